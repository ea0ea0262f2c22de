/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Inside diagnose/: from the walk's ledger to the report, evidence in words. */
#ifndef DLBPF_DIAGNOSE_EVIDENCE_H
#define DLBPF_DIAGNOSE_EVIDENCE_H

#include "base/str.h"
#include "diagnose/walk.h"

/* Copies the totals and makes each cause's line of evidence. 0 or -ENOMEM. */
int dl_ledger_publish(const struct dl_timeline *tl, const struct dl_ledger *l,
		      struct dl_charge causes[DL_CAUSE_CNT]);

/* "worker 1 (pid 123)", "pin-memory thread", "stress (pid 9, another job)" */
void dl_add_who(struct dl_str *s, const struct dl_timeline *tl, uint32_t thread);

/* Keeps the cnt longest gaps; unordered until dl_sort_worst. 1: it is among them, and its steps are theirs;
 * 0 it is not; -ENOMEM. */
int dl_keep_worst(struct dl_gap_vec *worst, const struct dl_gap *gap, uint32_t cnt);
void dl_sort_worst(struct dl_gap_vec *worst);
/* Moves them to the report. */
void dl_worst_publish(struct dl_gap_vec *worst, struct dl_report *r);

#endif
