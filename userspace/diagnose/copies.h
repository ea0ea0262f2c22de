/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Inside diagnose/: copies between host and devices, what is wrong with them, and what NVML saw. */
#ifndef DLBPF_DIAGNOSE_COPIES_H
#define DLBPF_DIAGNOSE_COPIES_H

#include "base/diag.h"
#include "base/str.h"
#include "diagnose/diagnose.h"
#include "diagnose/report.h"
#include "timeline/timeline.h"

/* A kind of problem is named from these shares on; see the rules in copies.c and docs/DIAGNOSIS.md. */
#define DL_COPY_SMALL_SHARE 0.5		/* of what copies cost, by small ones */
#define DL_COPY_PAGEABLE_SHARE 0.5	/* of what copies cost, from or to pageable memory */
#define DL_COPY_OVERLAP_MISSING 0.5	/* of the time that could have lain beside kernels */

/* Stage by stage, as in walk.h. */
struct dl_stage;
struct dl_copy_finder;
struct dl_copy_finder *dl_copy_finder_new(void);	/* NULL without memory */
void dl_copy_finder_free(struct dl_copy_finder *f);
int dl_copies_take(struct dl_copy_finder *f, const struct dl_stage *st);	/* 0 or -ENOMEM */
int dl_copies_publish(struct dl_copy_finder *f, struct dl_report *r, const struct dl_timeline *tl);
int dl_sum_gpus(struct dl_report *r, const struct dl_timeline *tl, struct dl_diag *d);

/* What is wrong with the copies of a device by its numbers, and the share that decided. */
enum dl_copy_problem dl_copy_judge(const struct dl_copy_device *c, double *ret_share);

/* One clause that says what is wrong, with numbers, and what to do about it. */
void dl_copy_text(struct dl_str *out, const struct dl_copy_device *c);
int dl_copy_actions(struct dl_verdict *v, const struct dl_copy_device *c);

/* What a PCIe link carries in one direction, in bytes a second, without the overhead of packets; 0 unknown. */
uint64_t dl_link_bps(uint32_t gen, uint32_t width);

/* The link of a process's device, at its fastest in the recording; NULL when nothing is known of it. */
const struct dl_ev_gpu_link *dl_link_of(const struct dl_timeline *tl, uint32_t pid, uint32_t device,
					struct dl_link *ret);

/* Time of [start, end] that lies in one of the spans. */
uint64_t dl_overlap_ns(const struct dl_spans *s, uint64_t start, uint64_t end);

#endif
