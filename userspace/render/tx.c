/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Paragraphs, bars and numbers; tables are in tx_table.c. */
#include "render/tx.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "render/clean.h"

void tx_style(struct tx *t, enum tx_style style)
{
	static const char *const codes[] = {
		[TX_PLAIN] = "\033[0m",
		[TX_BOLD] = "\033[1m",
		[TX_DIM] = "\033[2m",
		[TX_WARN] = "\033[33m",
		[TX_BAD] = "\033[1;31m",
	};

	if (t->color)
		dl_str_add(&t->s, codes[style]);
}

void tx_text(struct tx *t, const char *text)
{
	dl_clean_line(&t->s, text, strlen(text), t->utf8);
}

void tx_spaces(struct tx *t, unsigned int cnt)
{
	dl_str_addf(&t->s, "%*s", (int)cnt, "");
}

void tx_nl(struct tx *t)
{
	dl_str_addn(&t->s, "\n", 1);
}

void tx_head(struct tx *t, const char *fmt, ...)
{
	_cleanup_free_ char *text = NULL;
	va_list ap;

	va_start(ap, fmt);
	if (vasprintf(&text, fmt, ap) < 0) {
		text = NULL;
		t->s.err = -ENOMEM;
	}
	va_end(ap);
	tx_nl(t);
	tx_style(t, TX_BOLD);
	tx_text(t, text ? text : "");
	tx_style(t, TX_PLAIN);
	tx_nl(t);
}

/* The length of the word at p, a number taking its unit along: "200 ms" stays on one line. */
static size_t word_len(const char *p)
{
	static const char *const units[] = {
		"%", "s", "ms", "us", "ns", "B", "KiB", "MiB", "GiB", "TiB", "GB/s", "MB/s", "CPUs",
	};
	const size_t len = strcspn(p, " ");
	const char *next = p + len + (p[len] == ' ');
	const size_t next_len = strcspn(next, " ,.;:)");

	if (p[0] < '0' || p[0] > '9')
		return len;
	for (size_t i = 0; i < ARRAY_SIZE(units); i++)
		if (next_len && strlen(units[i]) == next_len && !strncmp(next, units[i], next_len))
			return (size_t)(next - p) + strcspn(next, " ");
	return len;
}

void tx_para(struct tx *t, unsigned int indent, const char *lead, const char *text)
{
	_cleanup_(dl_str_fini) struct dl_str clean = {};
	const unsigned int hang = indent + (unsigned int)dl_text_width(lead);
	unsigned int at = hang;
	bool first = true;

	dl_clean_line(&clean, text, strlen(text), t->utf8);
	if (clean.err) {
		t->s.err = clean.err;
		return;
	}
	tx_spaces(t, indent);
	dl_str_add(&t->s, lead);
	for (const char *p = clean.s + strspn(clean.s, " "); *p; p += strspn(p, " ")) {
		const size_t len = word_len(p);
		_cleanup_free_ char *word = strndup(p, len);
		unsigned int width;

		if (!word) {
			t->s.err = -ENOMEM;
			return;
		}
		width = (unsigned int)dl_text_width(word);
		if (!first && at + 1 + width > t->width) {
			tx_nl(t);
			tx_spaces(t, hang);
			at = hang;
		} else if (!first) {
			dl_str_addn(&t->s, " ", 1);
			at++;
		}
		dl_str_add(&t->s, word);
		at += width;
		first = false;
		p += len;
	}
	tx_nl(t);
}

void tx_paraf(struct tx *t, unsigned int indent, const char *fmt, ...)
{
	_cleanup_free_ char *text = NULL;
	va_list ap;
	int len;

	va_start(ap, fmt);
	len = vasprintf(&text, fmt, ap);
	va_end(ap);
	if (len < 0) {
		text = NULL;
		t->s.err = -ENOMEM;
		return;
	}
	tx_para(t, indent, "", text);
}

void tx_note(struct tx *t, unsigned int indent, const char *text)
{
	tx_style(t, TX_DIM);
	tx_para(t, indent, "", text);
	tx_style(t, TX_PLAIN);
}

void tx_bar(struct dl_str *out, bool utf8, double share, unsigned int cells)
{
	static const char *const eighths[] = {
		" ", "\u258f", "\u258e", "\u258d", "\u258c", "\u258b", "\u258a", "\u2589",
	};
	const double part = share < 0 ? 0 : share > 1 ? 1 : share;
	const unsigned int steps = (unsigned int)(part * cells * 8 + 0.5);
	unsigned int i = 0;

	if (!utf8) {
		const unsigned int full = (unsigned int)(part * cells + 0.5);

		for (; i < full; i++)
			dl_str_add(out, "#");
		for (; i < cells; i++)
			dl_str_add(out, ".");
		return;
	}
	for (; i < steps / 8; i++)
		dl_str_add(out, "\u2588");
	if (i < cells) {
		dl_str_add(out, eighths[steps % 8]);
		i++;
	}
	for (; i < cells; i++)
		dl_str_add(out, " ");
}

const char *tx_ns(tx_buf buf, uint64_t ns)
{
	const uint64_t s = (ns + 500000000) / 1000000000;

	if (s < 600)
		return dl_fmt_ns(buf, sizeof(tx_buf), ns);
	if (s < 3600)
		snprintf(buf, sizeof(tx_buf), "%" PRIu64 " min %02" PRIu64 " s", s / 60, s % 60);
	else
		snprintf(buf, sizeof(tx_buf), "%" PRIu64 " h %02" PRIu64 " min", s / 3600, s / 60 % 60);
	return buf;
}

const char *tx_pct(tx_buf buf, double share)
{
	if (share > 0 && share < 0.0005)
		snprintf(buf, sizeof(tx_buf), "< 0.1 %%");
	else if (share < 1 && share > 0.9994)
		snprintf(buf, sizeof(tx_buf), "99.9 %%");	/* not quite all of it */
	else
		snprintf(buf, sizeof(tx_buf), "%.1f %%", share * 100);
	return buf;
}

const char *tx_pct_round(tx_buf buf, double share)
{
	if (share > 0 && share < 0.005)
		snprintf(buf, sizeof(tx_buf), "< 1 %%");
	else
		snprintf(buf, sizeof(tx_buf), "%.0f %%", share < 1 && share > 0.99 ? 99 : share * 100);
	return buf;
}

const char *tx_pct_of(tx_buf buf, uint64_t part, uint64_t whole)
{
	return tx_pct(buf, whole ? (double)part / (double)whole : 0);
}

const char *tx_cnt(tx_buf buf, uint64_t cnt)
{
	return dl_fmt_cnt(buf, sizeof(tx_buf), cnt);
}

const char *tx_size(tx_buf buf, uint64_t bytes)
{
	return dl_fmt_bytes(buf, sizeof(tx_buf), bytes);
}

const char *tx_rate(tx_buf buf, uint64_t bytes, uint64_t ns)
{
	const double gbps = ns ? (double)bytes / (double)ns : 0;

	buf[0] = '\0';
	if (gbps >= 0.9995)
		snprintf(buf, sizeof(tx_buf), "%.*f GB/s", gbps < 9.995 ? 2 : gbps < 99.95 ? 1 : 0, gbps);
	else if (gbps > 0)
		snprintf(buf, sizeof(tx_buf), "%.*f MB/s", gbps < 0.09995 ? 1 : 0, gbps * 1e3);
	return buf;
}

const char *tx_plural(uint64_t cnt, const char *one, const char *many)
{
	return cnt == 1 ? one : many;
}

int tx_finish(struct tx *t, FILE *out, struct dl_diag *d)
{
	int err = 0;

	errno = 0;
	if (t->s.err)
		err = dl_oom(d);
	else if (fwrite(t->s.s, 1, t->s.len, out) != t->s.len || fflush(out))
		err = dl_fail_errno(d, errno ? -errno : -EIO, "cannot write the result");
	dl_str_fini(&t->s);
	return err;
}
