/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What record tells while it runs, on stderr: one line that renews itself on a terminal; elsewhere
 * only how it begins and ends. */
#ifndef DLBPF_CLI_PROGRESS_H
#define DLBPF_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct dl_record_status;
struct dl_record_result;

struct dl_progress {
	bool quiet, tty;
	bool line;		/* the cursor is behind a status line */
	char hint[512];		/* told last */
};

void dl_progress_init(struct dl_progress *p, bool quiet);
void dl_progress_end(struct dl_progress *p);	/* leaves the cursor on a line of its own */
void dl_progress_note(struct dl_progress *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* For struct dl_record_opts; arg is a struct dl_progress. */
void dl_progress_on_start(uint32_t pid, void *arg);
void dl_progress_on_status(const struct dl_record_status *st, void *arg);
void dl_progress_on_note(const char *text, void *arg);

/* The status line's text, without line ends, at most width characters of it. */
void dl_progress_format(const struct dl_record_status *st, unsigned int width, char *buf, size_t sz);

void dl_progress_summary(FILE *out, const char *path, const struct dl_record_result *res, const char *why);

#endif
