/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#include "render/jsonb.h"

#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "render/clean.h"

/* Takes val over, also on failure. */
static struct json_object *add(struct jsonb *b, struct json_object *parent, const char *key,
			       struct json_object *val, bool may_be_null)
{
	int err = -1;

	if (!val && !may_be_null) {
		b->err = -ENOMEM;
		return NULL;
	}
	if (parent && key)
		err = json_object_object_add(parent, key, val);
	else if (parent)
		err = json_object_array_add(parent, val);
	if (err) {
		b->err = -ENOMEM;
		json_object_put(val);
		return NULL;
	}
	return val;
}

static struct json_object *container(struct jsonb *b, struct json_object *parent, const char *key,
				     struct json_object *val)
{
	/* After a failure a missing parent is not a wish for a root. */
	if (key || parent || b->err)
		return add(b, parent, key, val, false);
	if (!val)
		b->err = -ENOMEM;
	return val;
}

struct json_object *jb_object(struct jsonb *b, struct json_object *parent, const char *key)
{
	return container(b, parent, key, json_object_new_object());
}

struct json_object *jb_array(struct jsonb *b, struct json_object *parent, const char *key)
{
	return container(b, parent, key, json_object_new_array());
}

void jb_u64(struct jsonb *b, struct json_object *parent, const char *key, uint64_t val)
{
	add(b, parent, key, json_object_new_uint64(val), false);
}

void jb_s64(struct jsonb *b, struct json_object *parent, const char *key, int64_t val)
{
	add(b, parent, key, json_object_new_int64(val), false);
}

void jb_bool(struct jsonb *b, struct json_object *parent, const char *key, bool val)
{
	add(b, parent, key, json_object_new_boolean(val), false);
}

void jb_null(struct jsonb *b, struct json_object *parent, const char *key)
{
	add(b, parent, key, NULL, true);
}

void jb_share(struct jsonb *b, struct json_object *parent, const char *key, double val)
{
	char text[64];

	/* JSON has no NaN: a share of nothing is 0. */
	snprintf(text, sizeof(text), "%.6f", val >= 0 && val <= 1 ? val : val > 1 ? 1.0 : 0.0);
	add(b, parent, key, json_object_new_double_s(val, text), false);
}

void jb_strn(struct jsonb *b, struct json_object *parent, const char *key, const char *text, size_t len)
{
	_cleanup_(dl_str_fini) struct dl_str clean = {};

	dl_str_addn(&clean, "", 0);
	dl_clean_utf8(&clean, text, len);
	add(b, parent, key, clean.err ? NULL : json_object_new_string_len(clean.s, (int)clean.len), false);
}

void jb_str(struct jsonb *b, struct json_object *parent, const char *key, const char *text)
{
	if (text)
		jb_strn(b, parent, key, text, strlen(text));
	else
		jb_null(b, parent, key);
}

int jb_write(struct jsonb *b, struct json_object *root, bool pretty, FILE *out, struct dl_diag *d)
{
	const int flags = JSON_C_TO_STRING_NOSLASHESCAPE |
			  (pretty ? JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED : 0);
	const char *text;
	size_t len;

	text = b->err || !root ? NULL : json_object_to_json_string_length(root, flags, &len);
	if (!text)
		return dl_oom(d);
	errno = 0;
	if (fwrite(text, 1, len, out) != len || putc('\n', out) == EOF)
		return dl_fail_errno(d, errno ? -errno : -EIO, "cannot write the result");
	return 0;
}
