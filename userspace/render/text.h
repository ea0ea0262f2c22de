/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The report for people: plain text, verdict first. */
#ifndef DLBPF_RENDER_TEXT_H
#define DLBPF_RENDER_TEXT_H

#include <stdbool.h>
#include <stdio.h>

#include "base/diag.h"

struct dl_report;

struct dl_text_opts {
	bool color;	/* ANSI escapes */
	bool utf8;	/* bars and lines drawn with more than ASCII; names shown as they are */
	bool brief;	/* verdict, what to do, busy and idle; nothing else */
	unsigned int width;	/* columns; 0: 100 */
};

/* Returns 0, -ENOMEM, or the error of the write (-EPIPE, -ENOSPC, ...), out being flushed. */
int dl_render_text(const struct dl_report *r, const struct dl_text_opts *opts, FILE *out,
		   struct dl_diag *d);

#endif
