/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What the kernel side left out of rings that filled: its table, and the counts of CPUs made one. */
#ifndef DLBPF_CAPTURE_SHED_H
#define DLBPF_CAPTURE_SHED_H

#include <stdbool.h>
#include <stdint.h>

#include <dlbpf/bpf_shared.h>

struct dl_shed_rule {
	enum dl_shed shed;
	enum dl_kind kind;
	uint8_t from;		/* sixteenths of the ring */
	bool crash;		/* of the ring of crash and lifecycle events */
};

/* By class; [DL_SHED_NONE] is empty. */
extern const struct dl_shed_rule dl_shed_rules[DL_SHED_MAX];

/* What may fill its ring to the end is not left out: what does not fit is lost. */
static inline enum dl_loss_cause dl_shed_cause(const struct dl_shed_rule *r)
{
	return r->from < DL_FILL_FULL ? DL_LOSS_SHED : DL_LOSS_RING_FULL;
}

struct dl_shed_sum {
	uint64_t cnt;		/* so far */
	uint64_t first, last;	/* CLOCK_MONOTONIC, of those of this epoch; 0 there was none */
};

/* Of one class on the CPUs from .. to - 1. */
struct dl_shed_sum dl_shed_sum(const struct dl_shed_cnt *by_cpu, int from, int to, uint32_t epoch);

#endif
