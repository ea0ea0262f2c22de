/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What commands that read another tool's GPU trace have in common. */
#ifndef DLBPF_CLI_GPUTRACE_H
#define DLBPF_CLI_GPUTRACE_H

#include "base/diag.h"

struct dl_import;
struct dl_trace;

/*
 * Reads a GPU trace of another tool, puts it among the events of a recording (NULL: alone) and opens the
 * result, which lies in a temporary file without a name. ret_imp may be NULL.
 */
int dl_gputrace_open(const char *path, const char *run_path, struct dl_trace **ret, struct dl_import **ret_imp,
		     struct dl_diag *d);

#endif
