/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Tables: collected first, since a column is as wide as its widest cell. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "render/clean.h"
#include "render/tx.h"

enum {
	GAP = 2,		/* blanks between columns */
	LAST_MIN = 24,		/* narrower than this, the last column is not worth wrapping */
	NOTE_INDENT = 2,
};

void tx_table_row(struct tx_table *tab)
{
	for (size_t i = 0; i < tab->col_cnt; i++)
		if (!vec_push(&tab->cells))
			tab->err = -ENOMEM;
	tab->at = 0;
}

void tx_cell(struct tx *t, struct tx_table *tab, const char *text)
{
	_cleanup_(dl_str_fini) struct dl_str clean = {};
	const size_t index = tab->cells.cnt - tab->col_cnt + tab->at;

	if (tab->err || tab->at++ >= tab->col_cnt)
		return;
	dl_clean_line(&clean, text, strlen(text), t->utf8);
	tab->cells.v[index].text = dl_str_take(&clean);
	if (!tab->cells.v[index].text)
		tab->err = -ENOMEM;
}

void tx_cell_style(struct tx_table *tab, enum tx_style style)
{
	if (!tab->err && tab->cells.cnt)
		tab->cells.v[tab->cells.cnt - tab->col_cnt].style = style;
}

void tx_row_note(struct tx_table *tab, const char *note)
{
	struct dl_str joined = {};
	struct tx_cell *first;

	if (tab->err || !tab->cells.cnt)
		return;
	first = &tab->cells.v[tab->cells.cnt - tab->col_cnt];
	if (first->note)
		dl_str_addf(&joined, "%s\n", first->note);
	dl_str_add(&joined, note);
	free(first->note);
	first->note = dl_str_take(&joined);
	if (!first->note)
		tab->err = -ENOMEM;
}

static const char *cell_text(const struct tx_table *tab, size_t row, size_t col)
{
	const char *text = tab->cells.v[row * tab->col_cnt + col].text;

	return text ? text : "";
}

static void print_cell(struct tx *t, const struct tx_col *col, const char *text, size_t width)
{
	const size_t used = dl_text_width(text);
	const unsigned int pad = used < width ? (unsigned int)(width - used) : 0;

	if (col->right)
		tx_spaces(t, pad);
	dl_str_add(&t->s, text);
	if (!col->right)
		tx_spaces(t, pad);
}

/* The last column, wrapped to what is left of the line. */
static void print_last(struct tx *t, const struct tx_col *col, const char *text, size_t width,
		       unsigned int at)
{
	if (!text[0]) {
		tx_nl(t);
	} else if (col->right) {
		print_cell(t, col, text, width);
		tx_nl(t);
	} else {
		struct tx part = { .utf8 = t->utf8, .width = t->width };
		const size_t skip = at;

		if (t->width < at + LAST_MIN)
			part.width = at + (unsigned int)dl_text_width(text) + 1;
		tx_para(&part, at, "", text);
		if (part.s.err)
			t->s.err = part.s.err;
		else
			dl_str_add(&t->s, part.s.s + skip);
		dl_str_fini(&part.s);
	}
}

static void trim_blanks(struct dl_str *s)
{
	while (!s->err && s->len && s->s[s->len - 1] == ' ')
		s->s[--s->len] = '\0';
}

static void print_row(struct tx *t, const struct tx_table *tab, const size_t *widths, size_t last,
		      size_t row, unsigned int indent)
{
	const bool title = row == SIZE_MAX;
	unsigned int at = indent;

	tx_spaces(t, indent);
	for (size_t c = 0; c <= last; c++) {
		const struct tx_col *col = &tab->cols[c];
		const char *text = title ? col->title : cell_text(tab, row, c);

		if (col->hide)
			continue;
		if (c == last) {
			if (!text[0])
				trim_blanks(&t->s);
			print_last(t, col, text, widths[c], at);
			return;
		}
		print_cell(t, col, text, widths[c]);
		tx_spaces(t, GAP);
		at += (unsigned int)widths[c] + GAP;
	}
}

static void print_notes(struct tx *t, const char *note, unsigned int indent)
{
	for (const char *p = note; p && *p;) {
		const size_t len = strcspn(p, "\n");
		_cleanup_free_ char *line = strndup(p, len);

		if (!line) {
			t->s.err = -ENOMEM;
			return;
		}
		tx_note(t, indent, line);
		p += len + (p[len] == '\n');
	}
}

static void print_table(struct tx *t, const struct tx_table *tab, size_t *widths, unsigned int indent)
{
	const size_t rows = tab->cells.cnt / tab->col_cnt;
	bool titles = false;
	size_t last = 0;

	for (size_t c = 0; c < tab->col_cnt; c++) {
		widths[c] = dl_text_width(tab->cols[c].title);
		if (tab->cols[c].hide)
			continue;
		last = c;
		titles |= tab->cols[c].title[0] != '\0';
		for (size_t r = 0; r < rows; r++) {
			const size_t width = dl_text_width(cell_text(tab, r, c));

			widths[c] = width > widths[c] ? width : widths[c];
		}
	}
	if (titles) {
		tx_style(t, TX_DIM);
		print_row(t, tab, widths, last, SIZE_MAX, indent);
		tx_style(t, TX_PLAIN);
	}
	for (size_t r = 0; r < rows; r++) {
		const struct tx_cell *first = &tab->cells.v[r * tab->col_cnt];

		if (first->style)
			tx_style(t, first->style);
		print_row(t, tab, widths, last, r, indent);
		if (first->style)
			tx_style(t, TX_PLAIN);
		print_notes(t, first->note, indent + NOTE_INDENT);
	}
}

void tx_table_print(struct tx *t, struct tx_table *tab, unsigned int indent)
{
	_cleanup_free_ size_t *widths = calloc(tab->col_cnt, sizeof(*widths));

	if (tab->err || !widths)
		t->s.err = -ENOMEM;
	else if (tab->cells.cnt)
		print_table(t, tab, widths, indent);
	vec_for_each(&tab->cells, cell) {
		free(cell->text);
		free(cell->note);
	}
	vec_free(&tab->cells);
}
