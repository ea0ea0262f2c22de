/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What keep_state.c, keep_facts.c and keep_restate.c share. */
#ifndef DLBPF_CAPTURE_KEEP_STATE_INT_H
#define DLBPF_CAPTURE_KEEP_STATE_INT_H

#include <stdbool.h>
#include <stdint.h>

#include <dlbpf/event.h>

#include "base/map.h"
#include "base/vec.h"
#include "capture/keep_state.h"

/* --- facts (keep_facts.c): events that stay true until the next of their key --- */

struct dl_fact {
	struct dl_hdr *ev;
	uint64_t key;
	uint32_t segment;	/* number of the last one in which it was said */
};

struct dl_facts {
	DL_VEC(struct dl_fact) v;
	struct dl_map by_key;	/* -> index + 1 */
	uint64_t sz, stacks_sz;
};

void dl_facts_fini(struct dl_facts *f);

/* Remembers the event if it is a fact. 1, 0 when it is none, or -ENOMEM or -ENOSPC when there is no room. */
int dl_facts_take(struct dl_facts *f, const struct dl_hdr *ev, uint32_t segment);

/* By what makes it one of its kind: dl_fact_id(). NULL unknown. */
struct dl_fact *dl_facts_find(const struct dl_facts *f, uint16_t kind, uint32_t pid, uint64_t id);
const struct dl_hdr *dl_facts_get(const struct dl_facts *f, uint16_t kind, uint32_t pid, uint64_t id);

void dl_facts_remove(struct dl_facts *f, size_t index);
void dl_facts_forget_pid(struct dl_facts *f, uint32_t pid);

/* --- threads (keep_state.c) --- */

enum dl_krun { DL_KRUN_UNKNOWN = 0, DL_KRUN_ON_CPU, DL_KRUN_RUNNABLE, DL_KRUN_BLOCKED };

struct dl_kthread {
	uint32_t tid, pid;
	struct dl_kstate_proc *proc;	/* NULL: gone, or there was no room for it */
	bool has_task, has_fork, has_out, has_cpu;
	enum dl_krun run;
	uint16_t cpu;		/* while it runs */
	uint64_t since;		/* of run; 0 before the first switch */
	uint64_t cpu_ns;
	uint64_t end_ts;	/* 0: lives */
	struct dl_ev_task task;
	struct dl_ev_switch out;	/* how it was last switched out */
	struct dl_ev_fork fork;
};

struct dl_kstate {
	DL_VEC(struct dl_kthread *) threads;	/* of the tree */
	DL_VEC(struct dl_kstate_proc *) procs;
	struct dl_map by_tid, by_pid;		/* -> index + 1 */
	struct dl_facts facts;
	uint32_t segment;	/* that is being written */
	uint32_t running;
	uint64_t cpu_ns, io, gpu_events, dropped;
	bool asked_stacks;
};

struct dl_kthread *dl_kstate_thread(const struct dl_kstate *s, uint32_t tid);	/* NULL unknown */
void dl_kstate_forget_ended(struct dl_kstate *s, uint64_t before_ts);

#endif
