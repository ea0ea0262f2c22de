/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The recorded processes as the recorder knows them: held by descriptor, looked at when they are
 * new and a little later, forgotten when they end. Bounded: at most DL_TREE_MAX processes.
 */
#ifndef DLBPF_CAPTURE_TREE_H
#define DLBPF_CAPTURE_TREE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/map.h"
#include "base/vec.h"
#include "capture/env.h"
#include "capture/sink.h"

#define DL_TREE_MAX 4096

struct dl_tree_proc {
	uint32_t pid, ppid;
	int fd;			/* /proc/PID */
	bool root;
	bool execed;		/* runs a program of its own, is no mere fork of another */
	bool worker;		/* has PyTorch's quartet of signal handlers */
	bool has_gpu;		/* a collector */
	bool has_uprobes;	/* on its CUDA calls, for want of one */
	bool injected;		/* or refused: not to be tried again */
	uint8_t looks;		/* so far, since it was forked or began its program */
	uint64_t look_ts;	/* of the last one */
	uint64_t fork_ts;	/* of the last look before a fork */
	uint64_t next_gpu_ts;	/* when to look for a collector again */
	uint32_t gpu_looks;
	struct dl_env_proc env;
};

/* A look at a process or thread that is due later. */
struct dl_look {
	uint64_t due;
	uint32_t pid, tid;	/* tid 0: all of the process */
};

struct dl_tree {
	struct dl_map by_pid;	/* -> index + 1 in procs */
	DL_VEC(struct dl_tree_proc *) procs;
	/* Looks of one delay come due in the order in which they were asked for. */
	struct dl_looks { struct dl_look *v; size_t cnt, cap, first; uint64_t removed; } looks[2];
	uint64_t removed;	/* so far; in a queue: when those that have ended were last taken out of it */
	uint32_t workers, workers_seen;
	uint32_t procs_seen;	/* counted by who adds: also those that were gone before they could be */
	uint64_t not_followed;	/* processes beyond DL_TREE_MAX, looks beyond the queue's end */
};

void dl_tree_fini(struct dl_tree *t);

struct dl_tree_proc *dl_tree_find(const struct dl_tree *t, uint32_t pid);

/* Adds it unless it is known; NULL when it is gone or there is no room. */
struct dl_tree_proc *dl_tree_add(struct dl_tree *t, uint32_t pid, uint32_t ppid);
void dl_tree_remove(struct dl_tree *t, uint32_t pid);

/* Asks for looks at pid, or one of its threads, in 0.3 s and in 2 s. */
void dl_tree_look_later(struct dl_tree *t, uint32_t pid, uint32_t tid, uint64_t now);

/* The next look that is due; false when there is none. */
bool dl_tree_next_look(struct dl_tree *t, uint64_t now, struct dl_look *ret);

/*
 * Emits TASK of every thread of the process and its CMDLINE, and NAME of every thread; notes
 * whether it is a worker. flags: enum dl_task_flag. -ESRCH when it is gone.
 */
int dl_tree_snapshot(struct dl_tree *t, struct dl_tree_proc *p, struct dl_sink *sink, uint64_t ts,
		     uint32_t flags);

/* The same for one thread: TASK only. */
int dl_tree_snapshot_thread(struct dl_tree_proc *p, uint32_t tid, struct dl_sink *sink, uint64_t ts,
			    uint32_t flags);

#endif
