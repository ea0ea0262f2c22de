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
int dl_sum_copies(struct dl_report *r, const struct dl_timeline *tl, struct dl_diag *d);
int dl_sum_losses(struct dl_report *r, const struct dl_timeline *tl, struct dl_diag *d);
int dl_find_crash(struct dl_report *r, const struct dl_timeline *tl, struct dl_diag *d);
int dl_find_verdict(struct dl_report *r, const struct dl_timeline *tl, struct dl_diag *d);

#endif
