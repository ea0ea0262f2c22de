/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What is left of a thread's time when it is cut off, so that roles and rules find what they would have
 * found. None of it depends on what is decided from it, but for the interpreter's lock, which shows early.
 */
#ifndef DLBPF_TIMELINE_PAST_H
#define DLBPF_TIMELINE_PAST_H

#include "timeline/timeline.h"

struct dl_u64s { uint64_t *v; size_t cnt, cap; };

struct dl_lib {			/* a file that user samples lie in; LIBRARIES_MAX at most */
	const char *path;	/* of the process's mappings */
	uint32_t cnt;
};

struct dl_put {			/* wakes of a thread of its process, of which one may be its feeder */
	uint32_t to;
	uint64_t last_ts;
	struct dl_u64s ns;	/* from one to the next, of the first of them; later ones are in the timeline's puts */
};

struct dl_pipe {		/* a pipe at which a write of this thread ended a wait */
	uint32_t from;
	uint64_t ino;
};

/* How a thread waits and wakes. */
struct dl_habits {
	bool waits, accepts, fifo_poll, sock, elsewhere;	/* elsewhere: neither at a futex nor at a pipe */
	bool not_pool;		/* a wait that pool threads do not do */
	bool futex_main;	/* woke its process's main thread by a futex */
	bool gil;
	uint64_t timed_min, timed_max;	/* futex words that it waited at with a time-out; 0 none */
	struct dl_u64s words;	/* other futex words, while the GIL's is not known; FEW_MAX at most */
	struct dl_u64s polled;	/* inodes of the pipes that it polled; FEW_MAX at most */
	struct dl_map wrote;	/* threads that it woke by writing -> how often, up to 2 */
	const struct dl_habits *past;	/* of the time that was cut off, whose wrote come in addition; NULL none */
};

struct dl_past {
	struct dl_habits habits;
	struct dl_u64s gil_words;	/* where it waited as one waits for the GIL: each twice, until one is */
	DL_VEC(struct dl_pipe) pipes;	/* in order */
	struct dl_map piped;		/* threads of which there is one */
	struct dl_map fed;		/* threads of its process whose waits it ended, see dl_tl_feeds() -> how often, up to 2 */
	uint64_t first_start;		/* of its first segment */
	uint64_t block_end;		/* of the last block that was cut off; 0 none */
	uint64_t call_end;		/* of the driver calls that were cut off; 0 none */
	uint64_t service_ts;		/* start of its first poll or accept; 0 none */
	uint64_t idle_ts;		/* worker: of its first wait for an index; 0 none */
	DL_VEC(struct dl_put) puts;	/* of main threads */
	uint64_t smp_cnt;
	DL_VEC(struct dl_lib) libs;
	uint32_t smp_cls[DL_SMP_CNT];
	uint32_t waits;			/* blocks that were cut off; UINT32_MAX: or more */
	uint32_t waker, waker_back;	/* who last woke it by intent, and how many blocks before the cut; 0 none */
};

void dl_past_free(struct dl_past *p);

/* All return 0 or -ENOMEM. */
int dl_habits_add_wait(struct dl_habits *h, const struct dl_timeline *tl, const struct dl_thread *th, const struct dl_wait *w);
int dl_habits_add_wake(struct dl_habits *h, const struct dl_timeline *tl, const struct dl_thread *th, const struct dl_woke *w);
/* All of the thread's, the past's among them. */
int dl_habits_of(struct dl_habits *h, const struct dl_timeline *tl, const struct dl_thread *th);
void dl_habits_fini(struct dl_habits *h);

/* Did it wait for its process's GIL, as that is known now; at another futex with a time-out? */
bool dl_habits_gil(const struct dl_habits *h, const struct dl_proc *p);
bool dl_habits_timed(const struct dl_habits *h, const struct dl_proc *p);

/* A wait for the GIL is a private FUTEX_WAIT_BITSET with a deadline one switch interval away. */
bool dl_looks_like_gil(const struct dl_timeline *tl, const struct dl_wait *w, uint64_t start);

/* The thread whose write ended a wait at a pipe; DL_NONE it was none of that kind. */
uint32_t dl_pipe_writer(const struct dl_timeline *tl, const struct dl_wait *w);

/* Did this wake end a wait of its wakee for data, without the thread having been woken for it: was it at
 * work ahead of the need, as a loader is, where a pool gets each piece from who waits? */
bool dl_tl_feeds(const struct dl_timeline *tl, uint32_t thread, const struct dl_woke *w);

/* Wakes are held a little longer than segments: these have not been counted yet. */
static inline size_t dl_first_woke(const struct dl_timeline *tl, const struct dl_thread *th)
{
	return vec_first_at(&th->woke, tl->cut_ts);
}

/* What of a thread is to be cut off: what lies before these indices. */
struct dl_cut { size_t seg, wait, rq, woke, smp; };

/* Counts it. Nothing of any thread must have been cut off yet. */
int dl_past_add(struct dl_timeline *tl, uint32_t thread, const struct dl_cut *c, uint64_t cut_ts);

/* The file that is mapped there; NULL not known. */
const char *dl_mapped_at(const struct dl_timeline *tl, uint32_t proc, uint64_t ip);

/* Start of the thread's first segment, cut off or not; 0 it has none. */
uint64_t dl_first_start(const struct dl_thread *th);

#endif
