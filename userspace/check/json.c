/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The checks for scripts; docs/check.schema.json says what each member means. */
#include "check/check.h"

#include <errno.h>
#include <stdio.h>

#include "render/jsonb.h"

/* Fractions with three digits: CPUs, seconds, rates. */
static void add_number(struct jsonb *b, struct json_object *o, const struct dl_ck_number *n)
{
	struct json_object *v;
	char text[48];

	if (n->value == (double)(int64_t)n->value) {
		jb_s64(b, o, n->id, (int64_t)n->value);
		return;
	}
	snprintf(text, sizeof(text), "%.3f", n->value);
	v = o ? json_object_new_double_s(n->value, text) : NULL;
	if (!v || json_object_object_add(o, n->id, v))
		b->err = -ENOMEM;
}

static void add_commands(struct jsonb *b, struct json_object *o, const char *command)
{
	struct json_object *a = jb_array(b, o, "commands");

	while (command && *command) {
		size_t len = 0;

		while (command[len] && command[len] != '\n')
			len++;
		jb_strn(b, a, NULL, command, len);
		command += len + (command[len] == '\n');
	}
}

static void add_line(struct jsonb *b, struct json_object *a, const struct dl_ck_line *l)
{
	struct json_object *o = jb_object(b, a, NULL), *n;

	jb_str(b, o, "id", l->id);
	jb_str(b, o, "group", l->group);
	jb_str(b, o, "name", l->name);
	jb_str(b, o, "state", dl_ck_state_id(l->state));
	jb_str(b, o, "text", l->text);
	jb_str(b, o, "fix", l->fix);
	add_commands(b, o, l->command);
	n = jb_object(b, o, "numbers");
	vec_for_each(&l->numbers, it)
		add_number(b, n, it);
}

static void add_target(struct jsonb *b, struct json_object *root, const struct dl_check *c)
{
	static const char *const kinds[] = { [DL_CK_SELF] = "none", [DL_CK_PID] = "pid", [DL_CK_CMD] = "command" };
	static const char *const starts[] = {
		[DL_CK_START_UNKNOWN] = NULL, [DL_CK_FORK] = "fork", [DL_CK_SPAWN] = "spawn", [DL_CK_FORKSERVER] = "forkserver",
	};
	struct json_object *o = jb_object(b, root, "target");
	const struct dl_ck_seen *s = &c->seen;

	jb_str(b, o, "kind", kinds[c->target]);
	if (c->pid)
		jb_u64(b, o, "pid", c->pid);
	else
		jb_null(b, o, "pid");
	jb_str(b, o, "name", c->target == DL_CK_SELF ? NULL : c->name);
	jb_bool(b, o, "watched", s->watched);
	jb_u64(b, o, "watched_ns", s->watched_ns);
	jb_u64(b, o, "workers", s->workers);
	jb_str(b, o, "start_method", starts[s->start]);
	jb_u64(b, o, "batch_bytes", s->batch.bytes);
	jb_u64(b, o, "batch_tensors", s->batch.storages);
	jb_u64(b, o, "batches_seen", s->batch.seen);
	jb_bool(b, o, "batch_is_at_least", s->batch.at_least);
}

int dl_check_json(const struct dl_check *c, FILE *out, struct dl_diag *d)
{
	struct jsonb b = {};
	struct json_object *root = jb_object(&b, NULL, NULL), *a, *o;
	int err;

	jb_str(&b, root, "schema", "dlbpf.check/1");
	add_target(&b, root, c);
	a = jb_array(&b, root, "checks");
	vec_for_each(&c->lines, it)
		add_line(&b, a, it);
	o = jb_object(&b, root, "summary");
	jb_u64(&b, o, "problems", c->cnt[DL_CK_PROBLEM]);
	jb_u64(&b, o, "warnings", c->cnt[DL_CK_WARNING]);
	jb_u64(&b, o, "ok", c->cnt[DL_CK_OK]);
	jb_u64(&b, o, "unknown", c->cnt[DL_CK_UNKNOWN]);
	err = jb_write(&b, root, true, out, d);
	json_object_put(root);
	return err;
}
