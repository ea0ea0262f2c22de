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
	uint64_t stage_events;		/* read so many, explain them, forget them; 0: a million */
	uint64_t ahead_ns;		/* of trace behind what is explained, for tests; 0: 2.1 s, as the rules need it */
	bool twice;			/* read it twice in any case, for tests */
	bool whole;			/* read all of it though only a window is asked for, for tests */
};

/* How a trace was read, for tests. */
struct dl_diagnose_stats {
	uint64_t stages;	/* of the last reading */
	uint64_t readings;	/* 2: roles became clear too late in the first one */
	uint64_t held;		/* segments, wakes, samples and GPU records, at most, behind a cut */
	uint64_t frames;	/* that were decompressed */
};

/*
 * Reads the trace, or of what lies outside of the window only what is needed, and explains it, in memory that grows with the number of threads and the longest
 * gap. A trace of more than one stage is read again where roles or phases turned out otherwise than a stage
 * before had taken them. stats may be NULL.
 */
int dl_diagnose(struct dl_report **ret, struct dl_trace *t, const struct dl_diagnose_opts *opts,
		struct dl_diag *d);
int dl_diagnose_stages(struct dl_report **ret, struct dl_trace *t, const struct dl_diagnose_opts *opts,
		       struct dl_diagnose_stats *stats, struct dl_diag *d);

#endif
