/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What the files of tests/synth share. */
#ifndef DLBPF_TESTS_SYNTH_INTERNAL_H
#define DLBPF_TESTS_SYNTH_INTERNAL_H

#include "base/map.h"
#include "base/vec.h"
#include "synth/synth.h"

struct item {
	uint64_t ts;
	uint64_t seq;	/* keeps equal times in the order they were given */
	size_t off;	/* in synth.bytes */
};

struct thread {
	uint32_t tid;
	bool foreign;
	bool on_cpu;
	uint16_t cpu;
	uint64_t since;
	uint64_t exec_ns, min_flt;
	uint32_t maj_flt, switches;
};

struct text {
	uint32_t pid;
	uint32_t id;
	char *s;
};

struct cpu {
	bool busy;	/* a run whose end is not yet written */
	struct dl_ev_switch out;
};

struct synth {
	char *path;
	struct dl_trace_meta meta;
	int err;
	DL_VEC(unsigned char) bytes;
	DL_VEC(struct item) items;
	DL_VEC(struct thread) threads;
	struct dl_map thread_idx;
	DL_VEC(struct text) strings, symbols, stacks;
	DL_VEC(struct cpu) cpus;
};

/* An event of `fixed` bytes and its tail; the size is filled in. */
void synth_add(struct synth *s, const struct dl_hdr *ev, size_t fixed, const void *tail,
	       size_t tail_sz);

/* What is known of a thread; never NULL. */
struct thread *synth_thread(struct synth *s, uint32_t tid);

/* A header with the thread's CPU and flags. */
struct dl_hdr synth_header(struct synth *s, uint16_t kind, size_t sz, uint64_t ts, uint32_t tid,
			   uint32_t pid);

#define HEADER(s, KIND, tag, ts, tid, pid) \
	synth_header(s, DL_EV_##KIND, sizeof(struct dl_ev_##tag), ts, tid, pid)

#endif
