/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#ifndef DLBPF_CLI_REPORT_BRIEF_H
#define DLBPF_CLI_REPORT_BRIEF_H

#include <stdio.h>

/*
 * The first lines of the report of a trace: verdict, what to do, busy and idle. Prints failures to
 * stderr and returns an exit code (DL_EXIT_OK, DL_EXIT_FAILURE).
 */
int dlbpf_report_brief(const char *path, FILE *out);

#endif
