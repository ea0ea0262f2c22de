/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Roles and phases as they were known once all of the trace had been read. A second reading knows them from
 * its first event on. Threads and processes have the same indices in every reading.
 */
#ifndef DLBPF_TIMELINE_PLAN_H
#define DLBPF_TIMELINE_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/diag.h"

struct dl_timeline;
struct dl_plan;

/* Of a timeline that was settled. NULL without memory. */
struct dl_plan *dl_plan_new(const struct dl_timeline *tl);
void dl_plan_free(struct dl_plan *p);

/* Roles and phases of all that the timeline has so far are the plan's. 0 or -ENOMEM. */
int dl_plan_apply(const struct dl_plan *p, struct dl_timeline *tl);

/* Does anything that was known when `then` was made, and that time before `until` was charged by, look
 * otherwise now? */
bool dl_plan_differs(const struct dl_plan *then, const struct dl_plan *now, uint64_t until);

#endif
