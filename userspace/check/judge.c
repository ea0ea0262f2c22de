/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What all judgements share: building a line, numbers in words. */
#include "check/judge.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"

/* Adds to *to, behind sep where there is something already. */
__attribute__((format(printf, 4, 0)))
static void append(struct dl_ck_line *l, char **to, const char *sep, const char *fmt, va_list ap)
{
	_cleanup_free_ char *text = NULL, *old = *to;
	char *both;

	if (vasprintf(&text, fmt, ap) < 0) {
		text = NULL;
		l->err = -ENOMEM;
		return;
	}
	if (!old) {
		*to = take_ptr(text);
		return;
	}
	if (asprintf(&both, "%s%s%s", old, sep, text) < 0) {
		old = NULL;	/* stays in *to */
		l->err = -ENOMEM;
		return;
	}
	*to = both;
}

void ck_say(struct dl_ck_line *l, enum dl_ck_state state, const char *fmt, ...)
{
	va_list ap;

	free(l->text);
	l->text = NULL;
	l->state = state;
	va_start(ap, fmt);
	append(l, &l->text, "", fmt, ap);
	va_end(ap);
}

void ck_add(struct dl_ck_line *l, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	append(l, &l->text, "", fmt, ap);
	va_end(ap);
}

void ck_fix(struct dl_ck_line *l, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	append(l, &l->fix, "; ", fmt, ap);
	va_end(ap);
}

void ck_cmd(struct dl_ck_line *l, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	append(l, &l->command, "\n", fmt, ap);
	va_end(ap);
}

void ck_num(struct dl_ck_line *l, const char *id, double value)
{
	struct dl_ck_number *n = vec_push(&l->numbers);

	if (!n)
		l->err = -ENOMEM;
	else
		*n = (struct dl_ck_number){ id, value };
}

const char *ck_cpus(ck_buf buf, double cpus)
{
	const double rounded = (double)(long)(cpus * 10 + 0.5) / 10;

	if (rounded == (double)(long)rounded)
		snprintf(buf, sizeof(ck_buf), "%ld", (long)rounded);
	else
		snprintf(buf, sizeof(ck_buf), "%.1f", rounded);
	return buf;
}

const char *ck_size(ck_buf buf, uint64_t bytes)
{
	return dl_fmt_bytes(buf, sizeof(ck_buf), bytes);
}

const char *ck_cnt(ck_buf buf, uint64_t cnt)
{
	return dl_fmt_cnt(buf, sizeof(ck_buf), cnt);
}

const char *ck_limit(ck_buf buf, rlim_t limit)
{
	if (limit == RLIM_INFINITY)
		snprintf(buf, sizeof(ck_buf), "unlimited");
	else
		ck_cnt(buf, limit);
	return buf;
}

const char *ck_level(const struct dl_ck_level *level)
{
	return level->path[0] && strcmp(level->path, "/") ? level->path : "/ (the topmost that is seen)";
}

bool ck_soft(const struct dl_ck_facts *f, int resource, uint64_t *ret)
{
	if (!f->proc.has_limit[resource])
		return false;
	*ret = f->proc.limit[resource].rlim_cur;
	return f->proc.limit[resource].rlim_cur != RLIM_INFINITY;
}
