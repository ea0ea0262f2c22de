/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Inside diagnose/: the parts of a report beside gaps and causes. All return 0 or an error with
 * its message. */
#ifndef DLBPF_DIAGNOSE_SUMMARY_H
#define DLBPF_DIAGNOSE_SUMMARY_H

#include "base/diag.h"
#include "diagnose/report.h"
#include "diagnose/walk.h"
#include "timeline/timeline.h"

struct dl_trace_info;

/* Stage by stage, as in walk.h; 0 or -ENOMEM. */
struct dl_proc_finder;
struct dl_proc_finder *dl_proc_finder_new(void);
void dl_proc_finder_free(struct dl_proc_finder *f);
int dl_procs_take(struct dl_proc_finder *f, const struct dl_stage *st);
int dl_procs_publish(const struct dl_proc_finder *f, struct dl_report *r, const struct dl_timeline *tl);

struct dl_loader_finder;
struct dl_loader_finder *dl_loader_finder_new(void);
void dl_loader_finder_free(struct dl_loader_finder *f);
int dl_loaders_take(struct dl_loader_finder *f, const struct dl_stage *st);
uint64_t dl_loaders_need(const struct dl_loader_finder *f, const struct dl_stage *st);
/* Who takes a trainer's batches came to be known late. */
bool dl_loaders_missed(const struct dl_loader_finder *f);
/* What an earlier reading found, whose timeline this is. */
int dl_loaders_expect(struct dl_loader_finder *f, const struct dl_loader_finder *earlier, const struct dl_timeline *tl);
int dl_loaders_publish(struct dl_loader_finder *f, struct dl_report *r, const struct dl_timeline *tl);

/* The trainers, whose parts are empty yet; loaders come from dl_loaders_publish. */
int dl_sum_trainers(struct dl_report *r, const struct dl_timeline *tl, struct dl_diag *d);

/* Adds a gap or a wait to its trainer and to the worker that made its batch; 0 or -ENOMEM. */
int dl_parts_add(struct dl_parts *parts, const struct dl_timeline *tl, const struct dl_gap *gap);
int dl_parts_merge(struct dl_parts *into, const struct dl_parts *from);
void dl_parts_fini(struct dl_parts *parts);
/* Adds them to the trainers and loaders of the report. */
void dl_parts_publish(const struct dl_parts *parts, struct dl_report *r, const struct dl_timeline *tl);
/* Adds observed time to a trainer (an index) and its loaders. */
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
int dl_find_verdict(struct dl_report *r, const struct dl_timeline *tl, const struct dl_diagnose_opts *opts, struct dl_diag *d);

#endif
