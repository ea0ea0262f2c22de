/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The checks for people: by groups, what is wrong first, what to type below it. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "check/check.h"
#include "render/text.h"
#include "render/tx.h"

enum { WIDTH = 80, MARK = 9 };

static const struct {
	const char *mark;
	enum tx_style style;
} looks[] = {
	[DL_CK_OK] = { "ok       ", TX_PLAIN },
	[DL_CK_WARNING] = { "warning  ", TX_WARN },
	[DL_CK_PROBLEM] = { "PROBLEM  ", TX_BAD },
	[DL_CK_UNKNOWN] = { "unknown  ", TX_DIM },
};

/* In this order within a group. */
static const enum dl_ck_state order[] = { DL_CK_PROBLEM, DL_CK_WARNING, DL_CK_OK, DL_CK_UNKNOWN };

static void say_commands(struct tx *t, const char *command)
{
	for (const char *p = command; p && *p;) {
		const size_t len = strcspn(p, "\n");
		_cleanup_free_ char *line = strndup(p, len);

		if (!line) {
			t->s.err = -ENOMEM;
			return;
		}
		tx_spaces(t, 5 + MARK);
		tx_style(t, TX_BOLD);
		tx_text(t, line);
		tx_style(t, TX_PLAIN);
		tx_nl(t);
		p += len + (p[len] == '\n');
	}
}

static void say_line(struct tx *t, const struct dl_ck_line *l)
{
	_cleanup_free_ char *text = NULL;

	if (asprintf(&text, "%s: %s", l->name, l->text) < 0) {
		text = NULL;
		t->s.err = -ENOMEM;
		return;
	}
	tx_style(t, looks[l->state].style);
	tx_para(t, 2, looks[l->state].mark, text);
	tx_style(t, TX_PLAIN);
	if (l->fix)
		tx_para(t, 2 + MARK, "-> ", l->fix);
	say_commands(t, l->command);
}

static void say_group(struct tx *t, const struct dl_check *c, size_t first, size_t end, bool quiet)
{
	bool head = false;

	for (size_t s = 0; s < ARRAY_SIZE(order); s++) {
		for (size_t i = first; i < end; i++) {
			const struct dl_ck_line *l = &c->lines.v[i];

			if (l->state != order[s] || (quiet && l->state != DL_CK_PROBLEM && l->state != DL_CK_WARNING))
				continue;
			if (!head)
				tx_head(t, "%s", l->group);
			head = true;
			say_line(t, l);
		}
	}
}

static void say_target(struct tx *t, const struct dl_check *c)
{
	if (c->target == DL_CK_SELF)
		tx_paraf(t, 0, "Pre-flight for a job that is started from here");
	else
		tx_paraf(t, 0, "Pre-flight of %s%s (process %" PRIu32 ")", c->target == DL_CK_CMD ? "the command: " : "",
			 c->name[0] ? c->name : "a job", c->pid);
}

int dl_check_text(const struct dl_check *c, const struct dl_text_opts *opts, bool quiet, FILE *out, struct dl_diag *d)
{
	struct tx t = { .utf8 = opts->utf8, .color = opts->color, .width = opts->width ? opts->width : WIDTH };
	int err;

	if (!quiet)
		say_target(&t, c);
	for (size_t i = 0, end; i < c->lines.cnt; i = end) {
		for (end = i + 1; end < c->lines.cnt && !strcmp(c->lines.v[end].group, c->lines.v[i].group); end++)
			;
		say_group(&t, c, i, end, quiet);
	}
	tx_nl(&t);
	if (c->want_root && !quiet)
		tx_note(&t, 0, "As root (sudo) more of it can be seen.");
	tx_paraf(&t, 0, "%u %s, %u %s, %u ok, %u unknown", c->cnt[DL_CK_PROBLEM],
		 tx_plural(c->cnt[DL_CK_PROBLEM], "problem", "problems"), c->cnt[DL_CK_WARNING],
		 tx_plural(c->cnt[DL_CK_WARNING], "warning", "warnings"), c->cnt[DL_CK_OK], c->cnt[DL_CK_UNKNOWN]);
	if (t.s.err) {
		dl_str_fini(&t.s);
		return dl_oom(d);
	}
	err = fputs(t.s.s, out) < 0 || fflush(out) ? -errno : 0;
	dl_str_fini(&t.s);
	return err ? dl_fail_errno(d, err, "cannot write the checks") : 0;
}
