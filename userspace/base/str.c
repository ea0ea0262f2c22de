/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#include "base/str.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool reserve(struct dl_str *s, size_t more)
{
	size_t cap = s->cap ? s->cap : 64;
	char *grown;

	if (s->err)
		return false;
	while (cap - s->len <= more) {
		if (__builtin_mul_overflow(cap, 2, &cap)) {
			s->err = -ENOMEM;
			return false;
		}
	}
	if (cap == s->cap)
		return true;
	grown = realloc(s->s, cap);
	if (!grown) {
		s->err = -ENOMEM;
		return false;
	}
	s->s = grown;
	s->cap = cap;
	return true;
}

void dl_str_addn(struct dl_str *s, const char *text, size_t len)
{
	if (!reserve(s, len))
		return;
	memcpy(s->s + s->len, text, len);
	s->len += len;
	s->s[s->len] = '\0';
}

void dl_str_add(struct dl_str *s, const char *text)
{
	dl_str_addn(s, text, strlen(text));
}

void dl_str_addf(struct dl_str *s, const char *fmt, ...)
{
	va_list ap, again;
	int len;

	va_start(ap, fmt);
	va_copy(again, ap);
	len = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (len >= 0 && reserve(s, (size_t)len)) {
		vsnprintf(s->s + s->len, (size_t)len + 1, fmt, again);
		s->len += (size_t)len;
	}
	va_end(again);
}

char *dl_str_take(struct dl_str *s)
{
	char *text;

	dl_str_addn(s, "", 0);
	text = s->err ? NULL : s->s;
	if (s->err)
		free(s->s);
	memset(s, 0, sizeof(*s));
	return text;
}

void dl_str_fini(struct dl_str *s)
{
	free(s->s);
	memset(s, 0, sizeof(*s));
}

static const char *scaled(char *buf, size_t sz, double val, const char *unit)
{
	int digits = val < 9.995 ? 2 : val < 99.95 ? 1 : 0;

	snprintf(buf, sz, "%.*f %s", digits, val, unit);
	return buf;
}

const char *dl_fmt_ns(char *buf, size_t sz, uint64_t ns)
{
	if (ns < 1000) {
		snprintf(buf, sz, "%" PRIu64 " ns", ns);
		return buf;
	}
	if (ns < 999500)
		return scaled(buf, sz, (double)ns / 1e3, "us");
	if (ns < 999500000)
		return scaled(buf, sz, (double)ns / 1e6, "ms");
	return scaled(buf, sz, (double)ns / 1e9, "s");
}

const char *dl_fmt_bytes(char *buf, size_t sz, uint64_t bytes)
{
	static const char *const units[] = { "KiB", "MiB", "GiB", "TiB" };
	double val = (double)bytes / 1024;
	size_t u = 0;

	if (bytes < 1024) {
		snprintf(buf, sz, "%" PRIu64 " B", bytes);
		return buf;
	}
	for (; val >= 999.5 && u + 1 < sizeof(units) / sizeof(units[0]); u++)
		val /= 1024;
	return scaled(buf, sz, val, units[u]);
}

const char *dl_fmt_cnt(char *buf, size_t sz, uint64_t cnt)
{
	char digits[24];
	size_t len = (size_t)snprintf(digits, sizeof(digits), "%" PRIu64, cnt), at = 0;

	for (size_t i = 0; i < len && at + 2 < sz; i++) {
		if (i && (len - i) % 3 == 0)
			buf[at++] = ',';
		buf[at++] = digits[i];
	}
	buf[at] = '\0';
	return buf;
}

bool dl_parse_u64(const char *text, uint64_t *ret)
{
	char *end;
	uintmax_t val;

	if (!isdigit((unsigned char)text[0]))
		return false;
	errno = 0;
	val = strtoumax(text, &end, 10);
	if (errno || *end || val > UINT64_MAX)
		return false;
	*ret = val;
	return true;
}
