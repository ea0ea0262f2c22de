/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Inside timeline/: the tables of threads and processes, and how events change a thread's state. */
#ifndef DLBPF_TIMELINE_THREADS_H
#define DLBPF_TIMELINE_THREADS_H

#include "timeline/timeline.h"

/* All return an index or DL_NONE without memory. An unknown id is created. */
uint32_t dl_tl_thread(struct dl_timeline *tl, uint32_t tid);	/* foreign unless known */
uint32_t dl_tl_own_thread(struct dl_timeline *tl, uint32_t tid, uint32_t pid);
uint32_t dl_tl_proc(struct dl_timeline *tl, uint32_t pid);

/* All return 0 or -ENOMEM. */
int dl_tl_switch(struct dl_timeline *tl, const struct dl_ev_switch *ev);
int dl_tl_wake(struct dl_timeline *tl, const struct dl_ev_wake *ev);
int dl_tl_fork(struct dl_timeline *tl, const struct dl_ev_fork *ev);
int dl_tl_exit(struct dl_timeline *tl, const struct dl_ev_exit *ev);
int dl_tl_task(struct dl_timeline *tl, const struct dl_ev_task *ev);

/* Fills in tl->cpus from the threads' running segments. */
int dl_tl_cpus(struct dl_timeline *tl);

/* Inside timeline/: GPU records, see gpu.c. */
int dl_tl_gpu(struct dl_timeline *tl, const struct dl_hdr *ev);
int dl_tl_gpu_finish(struct dl_timeline *tl);
int dl_tl_span(struct dl_timeline *tl, const struct dl_ev_span *ev);
int dl_tl_spans_finish(struct dl_timeline *tl);

/* Classifies stacks and samples once all symbols are known, see stacks.c. */
int dl_tl_classify(struct dl_timeline *tl);

#endif
