/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Inside timeline/: the tables of threads and processes, and how events change a thread's state. */
#ifndef DLBPF_TIMELINE_THREADS_H
#define DLBPF_TIMELINE_THREADS_H

#include "timeline/timeline.h"

/* All return an index or DL_NONE without memory. An unknown id is created. */
uint32_t dl_tl_thread(struct dl_timeline *tl, uint32_t tid);	/* foreign unless known */
uint32_t dl_tl_find_thread(struct dl_timeline *tl, uint32_t tid);	/* DL_NONE unless known */
uint32_t dl_tl_own_thread(struct dl_timeline *tl, uint32_t tid, uint32_t pid);
uint32_t dl_tl_proc(struct dl_timeline *tl, uint32_t pid);

/* All return 0 or -ENOMEM. */
int dl_tl_switch(struct dl_timeline *tl, const struct dl_ev_switch *ev);
int dl_tl_wake(struct dl_timeline *tl, const struct dl_ev_wake *ev);
int dl_tl_fork(struct dl_timeline *tl, const struct dl_ev_fork *ev);
int dl_tl_exit(struct dl_timeline *tl, const struct dl_ev_exit *ev);
int dl_tl_task(struct dl_timeline *tl, const struct dl_ev_task *ev);

/* Holes in the recording, see holes.c. A LOSS that tells of one; when losses happened. 0 or -ENOMEM. */
int dl_tl_hole_add(struct dl_timeline *tl, const struct dl_ev_loss *ev);
int dl_tl_loss_time(struct dl_loss *l, const struct dl_ev_loss *ev);

/* What lies between the two instants of holes: from the begin of the first to the end of the last; false when nothing does. */
bool dl_tl_hole(const struct dl_timeline *tl, uint64_t from, uint64_t to, struct dl_span *ret);

/* What the thread did in the hole is not known: until its first event behind it. */
int dl_tl_forget_hole(struct dl_thread *th, const struct dl_span *hole);

/* The recorder looked at a thread that sleeps, in this wait, and that has not been met since a hole. */
int dl_tl_task_behind(struct dl_timeline *tl, struct dl_thread *th, const struct dl_ev_task *ev, const struct dl_wait *wait);

/* Of threads that were not met again. */
int dl_tl_holes_finish(struct dl_timeline *tl);
/* From ts on it is not known what a thread does. */
int dl_tl_unknown(struct dl_thread *th, uint64_t ts);

/* Fills in tl->cpus from the threads' running segments. */
int dl_tl_cpus(struct dl_timeline *tl);

/* Inside timeline/: GPU records, see gpu.c. */
int dl_tl_gpu(struct dl_timeline *tl, const struct dl_hdr *ev);
int dl_tl_gpu_finish(struct dl_timeline *tl);
int dl_tl_span(struct dl_timeline *tl, const struct dl_ev_span *ev);
int dl_tl_spans_finish(struct dl_timeline *tl);

/* What follows from the driver calls, once samples are classified: see calls.c. */
int dl_tl_calls_finish(struct dl_timeline *tl);
/* Forgets some of what was read long ago from time to time; see thin.c. 0 or -ENOMEM. */
int dl_tl_thin(struct dl_timeline *tl);

/* Hand-overs of the process that do not change any more when segments of its main thread before this one are
 * cut off. 0 or -ENOMEM. */
int dl_handover_cut(struct dl_timeline *tl, struct dl_proc *p, uint32_t seg);

/* Classifies stacks and samples once all symbols are known, see stacks.c. */
int dl_tl_classify(struct dl_timeline *tl);

#endif
