/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Building blocks of the text report: wrapped paragraphs, bars, tables, numbers with units. Text
 * given to these is cleaned for the terminal on its way. Internal to render/.
 */
#ifndef DLBPF_RENDER_TX_H
#define DLBPF_RENDER_TX_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/diag.h"
#include "base/str.h"
#include "base/vec.h"

struct tx {
	struct dl_str s;
	bool utf8, color, brief;
	unsigned int width;
};

enum tx_style { TX_PLAIN = 0, TX_BOLD, TX_DIM, TX_WARN, TX_BAD };

/* Writes all of it and frees it: 0, -ENOMEM, or the error of the write, out being flushed. */
int tx_finish(struct tx *t, FILE *out, struct dl_diag *d);

void tx_style(struct tx *t, enum tx_style style);	/* until the next call */
void tx_text(struct tx *t, const char *text);		/* cleaned, not wrapped */
void tx_spaces(struct tx *t, unsigned int cnt);
void tx_nl(struct tx *t);

/* An empty line and a heading. */
void tx_head(struct tx *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A paragraph: the first line begins with lead (or as many spaces), the others with its width. */
void tx_para(struct tx *t, unsigned int indent, const char *lead, const char *text);
void tx_paraf(struct tx *t, unsigned int indent, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* The same, faint. */
void tx_note(struct tx *t, unsigned int indent, const char *text);

/* share (0 .. 1) of cells columns; as wide as cells. */
void tx_bar(struct dl_str *out, bool utf8, double share, unsigned int cells);

/* Numbers. The buffers are 32 bytes. */
typedef char tx_buf[32];
const char *tx_ns(tx_buf buf, uint64_t ns);		/* "12.3 ms", "1 h 02 min" */
const char *tx_pct(tx_buf buf, double share);		/* "12.3 %", "< 0.1 %" */
const char *tx_pct_round(tx_buf buf, double share);	/* "12 %", "< 1 %" */
const char *tx_pct_of(tx_buf buf, uint64_t part, uint64_t whole);
const char *tx_cnt(tx_buf buf, uint64_t cnt);
const char *tx_size(tx_buf buf, uint64_t bytes);
const char *tx_rate(tx_buf buf, uint64_t bytes, uint64_t ns);	/* "3.20 GB/s"; "" unknown */
const char *tx_plural(uint64_t cnt, const char *one, const char *many);

/*
 * A table. Columns are as wide as their widest cell; the last one takes what is left of the line
 * and wraps. A row may be followed by notes, printed faint, across the table.
 */
struct tx_col {
	const char *title;
	bool right;	/* flush right */
	bool hide;	/* leave the column out */
};

#define TX_LEFT(TITLE) { .title = (TITLE) }
#define TX_RIGHT(TITLE) { .title = (TITLE), .right = true }

struct tx_table {
	const struct tx_col *cols;
	size_t col_cnt, at;	/* at: cells filled in the last row */
	DL_VEC(struct tx_cell) cells;	/* col_cnt a row */
	int err;
};

struct tx_cell {
	char *text;	/* cleaned; NULL empty */
	char *note;	/* of the first cell of a row: printed below it */
	enum tx_style style;
};

void tx_table_row(struct tx_table *tab);
/* Fills the next cell of the last row begun. */
void tx_cell(struct tx *t, struct tx_table *tab, const char *text);
void tx_cell_style(struct tx_table *tab, enum tx_style style);	/* of the last row */
void tx_row_note(struct tx_table *tab, const char *note);	/* one more of the last row */
void tx_table_print(struct tx *t, struct tx_table *tab, unsigned int indent);	/* and frees it */

#endif
