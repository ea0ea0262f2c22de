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

/* The search, stage by stage. Zeroed to begin with. */
struct dl_call_search {
	bool known;		/* there are calls */
	double rate;		/* best of copies, bytes a second; 0 not known yet */
	uint64_t at;		/* calls that begin before are done with */
	uint64_t over;		/* end of the last outermost one */
	struct dl_call_waits out;	/* sorted and disjoint */
};

/* Looks for faster copies; true when the rate has changed. */
bool dl_call_rate(struct dl_call_search *s, const struct dl_proc *p);

/* Those of a thread's outermost calls that lie within the window; all its calls there are added to *calls.
 * 0 or -ENOMEM. */
struct dl_stage;
int dl_call_waits(struct dl_call_search *s, const struct dl_stage *st, uint32_t thread, struct dl_calls_report *calls);
uint64_t dl_call_need(const struct dl_call_search *s);
void dl_call_take(struct dl_call_search *s, size_t cnt);	/* the first ones of out are done with */
void dl_call_search_fini(struct dl_call_search *s);

#endif
