/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Building JSON with json-c: failures stick in err, so that only the end is checked, and every
 * text is made valid UTF-8 on its way. Objects keep the order in which members were added.
 * Internal to render/.
 */
#ifndef DLBPF_RENDER_JSONB_H
#define DLBPF_RENDER_JSONB_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <json-c/json.h>

#include "base/diag.h"

struct jsonb {
	int err;	/* 0 or -ENOMEM */
};

/* key NULL: the parent is an array. A new member is owned by its parent; parent NULL: by the
 * caller, json_object_put(). */
struct json_object *jb_object(struct jsonb *b, struct json_object *parent, const char *key);
struct json_object *jb_array(struct jsonb *b, struct json_object *parent, const char *key);
void jb_u64(struct jsonb *b, struct json_object *parent, const char *key, uint64_t val);
void jb_s64(struct jsonb *b, struct json_object *parent, const char *key, int64_t val);
void jb_bool(struct jsonb *b, struct json_object *parent, const char *key, bool val);
void jb_null(struct jsonb *b, struct json_object *parent, const char *key);
void jb_share(struct jsonb *b, struct json_object *parent, const char *key, double val); /* 6 digits */
void jb_str(struct jsonb *b, struct json_object *parent, const char *key, const char *text); /* or null */
void jb_strn(struct jsonb *b, struct json_object *parent, const char *key, const char *text, size_t len);

/* Writes the document and a newline, pretty or in one line; 0 or -errno. */
int jb_write(struct jsonb *b, struct json_object *root, bool pretty, FILE *out, struct dl_diag *d);

#endif
