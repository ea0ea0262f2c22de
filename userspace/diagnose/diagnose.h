/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#ifndef DLBPF_DIAGNOSE_DIAGNOSE_H
#define DLBPF_DIAGNOSE_DIAGNOSE_H

#include <stdint.h>

#include "base/diag.h"
#include "diagnose/report.h"

struct dl_trace;

struct dl_diagnose_opts {
	uint64_t from_ts, to_ts;	/* only gaps in this window; 0 and UINT64_MAX: all */
	uint32_t worst_cnt;		/* gaps to keep with their chains; 0: 5 */
	bool no_gpu;			/* charge the trainer's waits even where there are GPU data */
};

/* Reads all of the trace and explains it. */
int dl_diagnose(struct dl_report **ret, struct dl_trace *t, const struct dl_diagnose_opts *opts,
		struct dl_diag *d);

#endif
