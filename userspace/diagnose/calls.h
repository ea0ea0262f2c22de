/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Waits inside CUDA calls, where it is not known what the GPU ran. */
#ifndef DLBPF_DIAGNOSE_CALLS_H
#define DLBPF_DIAGNOSE_CALLS_H

#include "base/vec.h"
#include "diagnose/report.h"
#include "timeline/timeline.h"

struct dl_call_wait {
	uint64_t start, end;
	bool estimated;		/* where it starts */
};
struct dl_call_waits { struct dl_call_wait *v; size_t cnt, cap; };

/* Those of a thread's outermost calls that lie within [from, to], sorted and disjoint; all its calls
 * there are added to *calls. 0 or -ENOMEM. */
int dl_call_waits(const struct dl_timeline *tl, uint32_t thread, uint64_t from, uint64_t to,
		  struct dl_call_waits *ret, struct dl_calls_report *calls);

#endif
