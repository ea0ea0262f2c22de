/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What a reader has to know of what came before: facts that are written once (names, command lines,
 * mappings, symbols, strings, the GPU's devices and sources, losses, what is absent) and the state of
 * every thread (which program, since when, running or blocked in what). A recorder that keeps only its
 * last part says them again at the head of every segment, with DL_HDR_RESTATED, so that each segment
 * can be read without those before it.
 *
 *  - State is stamped with the instant at which the segment begins, as if the recorder had looked at
 *    /proc then: TASK, NAME, SWITCH (out of a thread that is blocked or waits for a CPU; from the idle
 *    task to one that runs), and so are facts. FORK, EXEC and GPU_CLOCK keep the times that they are about.
 *  - Stacks and symbols, of which there may be very many, are said again in front of the first event
 *    of the segment that refers to them.
 *
 * Bounded: DL_KSTATE_FACTS_SZ bytes of facts, DL_KSTATE_THREADS threads; what does not fit is counted.
 */
#ifndef DLBPF_CAPTURE_KEEP_STATE_H
#define DLBPF_CAPTURE_KEEP_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "capture/sink.h"

#define DL_KSTATE_FACTS_SZ (64ULL << 20)
#define DL_KSTATE_STACKS_SZ (32ULL << 20)	/* of which stacks; see dl_kstate_wants_new_stacks() */
#define DL_KSTATE_THREADS 65536

struct dl_kstate;

int dl_kstate_new(struct dl_kstate **ret);
void dl_kstate_free(struct dl_kstate *s);

/* Before an event is written: emits what it refers to and what this segment has not said yet. */
int dl_kstate_before(struct dl_kstate *s, const struct dl_hdr *ev, struct dl_sink *out);

/* After it was written. Never fails: what cannot be remembered is counted. */
void dl_kstate_event(struct dl_kstate *s, const struct dl_hdr *ev);

/* A segment begins at ts: emits all there is to say again; then, in a call of its own since they have
 * to stand in a frame of their own, the marks. left_out_ns: of the recording, before ts. */
int dl_kstate_restate(struct dl_kstate *s, uint64_t ts, struct dl_sink *out);
int dl_kstate_restate_marks(struct dl_kstate *s, uint64_t ts, uint64_t left_out_ns, struct dl_sink *out);

/* Facts and threads that there was no room for. */
uint64_t dl_kstate_dropped(const struct dl_kstate *s);

/* The stacks have become too many: whoever gives them ids is to begin anew. True once each time. */
bool dl_kstate_wants_new_stacks(struct dl_kstate *s);

/* --- who is who, for triggers --- */

struct dl_kstate_proc {
	uint32_t pid, ppid;
	bool root;		/* the process that was asked for */
	bool worker;		/* has PyTorch's handlers */
	bool trainer;		/* has, or had, workers */
	bool ended;
	bool has_facts;		/* that are about it alone */
	uint32_t workers;	/* alive; as of the last dl_kstate_count_workers() */
	uint64_t gpu_events;	/* so far: it, or its GPU, did something */
	uint64_t cpu_ns;	/* CPU time of its threads, while watched */
	uint32_t running;	/* threads that are on a CPU now */
	uint64_t seen_cpu_ns, seen_gpu, moved_ts;	/* the triggers' own */
	bool told;		/* likewise */
	uint64_t end_ts;
};

/* NULL: not of the tree, or long gone. Valid until the next event. */
struct dl_kstate_proc *dl_kstate_proc(const struct dl_kstate *s, uint32_t pid);

/* Finds whose workers the workers are: of their parent, or of the parent of their fork server. */
void dl_kstate_count_workers(struct dl_kstate *s);
void dl_kstate_each_proc(struct dl_kstate *s, void (*fn)(struct dl_kstate_proc *p, void *arg), void *arg);

struct dl_kstate_totals {
	uint64_t cpu_ns;	/* of all threads of the tree, while watched */
	uint64_t io, gpu_events;	/* requests to block devices; what GPUs did */
	uint32_t running;	/* threads on a CPU now */
	uint32_t threads;
};

void dl_kstate_totals(const struct dl_kstate *s, struct dl_kstate_totals *ret);

/* Name of a thread; "" unknown. */
void dl_kstate_name(const struct dl_kstate *s, uint32_t tid, char ret[17]);

#endif
