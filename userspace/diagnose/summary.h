/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Inside diagnose/: the parts of a report beside gaps and causes. All return 0 or an error with
 * its message. */
#ifndef DLBPF_DIAGNOSE_SUMMARY_H
#define DLBPF_DIAGNOSE_SUMMARY_H

#include "base/diag.h"
#include "diagnose/report.h"
#include "timeline/timeline.h"

struct dl_trace_info;

int dl_sum_procs(struct dl_report *r, const struct dl_timeline *tl, struct dl_diag *d);
int dl_sum_loaders(struct dl_report *r, const struct dl_timeline *tl, struct dl_diag *d);
/* The trainers, whose parts are empty yet; loaders come from dl_sum_loaders. */
int dl_sum_trainers(struct dl_report *r, const struct dl_timeline *tl, struct dl_diag *d);

/* Adds a gap or a wait to its trainer and to its loader, and observed time to a trainer (an index) and its loaders. */
void dl_part_gap(struct dl_report *r, const struct dl_timeline *tl, const struct dl_gap *gap);
void dl_part_span(struct dl_report *r, uint32_t proc, uint64_t ns);

/* Names the main cause of each part. */
void dl_judge_parts(struct dl_report *r);

/* Idle, or waiting, for less than this share of the time: there is nothing to blame. */
#define DL_HEALTHY_SHARE 0.05

int dl_sum_losses(struct dl_report *r, const struct dl_timeline *tl, struct dl_diag *d);
/* What was left out on purpose, in rows of its own. 0 or -ENOMEM. */
int dl_sum_sheds(struct dl_report *r, const struct dl_timeline *tl);
/* One line about the holes in the recording, of which there is one at least; NULL without memory. */
char *dl_holes_note(const struct dl_report *r, const struct dl_timeline *tl);
int dl_find_crash(struct dl_report *r, const struct dl_timeline *tl, struct dl_diag *d);
int dl_find_verdict(struct dl_report *r, const struct dl_timeline *tl, struct dl_diag *d);

#endif
