/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What commands that read a trace have in common: opening it, windows of time, the terminal. */
#ifndef DLBPF_CLI_TERM_H
#define DLBPF_CLI_TERM_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/opts.h"

struct dl_trace;
struct dl_text_opts;

/* What record writes and the others read when no file is named. */
#define DL_DEFAULT_TRACE "trace.dlbpf"

enum dl_color { DL_COLOR_AUTO = 0, DL_COLOR_ALWAYS, DL_COLOR_NEVER };

extern const char *const dl_color_choices[];	/* in the order of enum dl_color */

/* The one operand, or DL_DEFAULT_TRACE where there is such a file. DL_EXIT_OK or the exit code of
 * an error that has been printed. */
int dl_cli_trace_path(const struct dl_cmd *cmd, int argc, char **argv, int first, const char **ret);

/* The same with the trace opened; the caller closes it. */
int dl_cli_trace_open(const struct dl_cmd *cmd, int argc, char **argv, int first, struct dl_trace **ret,
		      const char **ret_path);

/* From --from and --to to CLOCK_MONOTONIC; 0 and UINT64_MAX where they were not given. DL_EXIT_OK
 * or the exit code of an error that has been printed. */
int dl_cli_window(const struct dl_cmd *cmd, const struct dl_trace *t, const struct dl_opt_time *from,
		  const struct dl_opt_time *to, uint64_t *ret_from, uint64_t *ret_to);

/* Colours and width for stdout. */
void dl_cli_text_opts(struct dl_text_opts *ret, enum dl_color color);

/* Prints the message of a failed function, except for a closed pipe; returns DL_EXIT_FAILURE. */
int dl_cli_failed(int err, const struct dl_diag *d);

#endif
