/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What the recorder's files share: recorder.c (begin and end), recorder_loop.c (in between),
 * recorder_look.c (events that ask for a look at something), recorder_env.c (samples), recorder_keep.c (the flight recorder). */
#ifndef DLBPF_CAPTURE_RECORDER_INT_H
#define DLBPF_CAPTURE_RECORDER_INT_H

#include <stdbool.h>
#include <stdint.h>

#include <dlbpf/bpf_shared.h>

#include "base/map.h"
#include "base/str.h"
#include "base/vec.h"
#include "capture/cgroup.h"
#include "capture/cuda_probe.h"
#include "capture/env.h"
#include "capture/gpu.h"
#include "capture/nvml_watch.h"
#include "capture/kernel.h"
#include "capture/proc.h"
#include "capture/recorder.h"
#include "capture/spawn.h"
#include "capture/symbols.h"
#include "capture/tree.h"
#include "trace/trace.h"

/* One set of groups, or one /dev/shm, and a process that is in it. */
struct dl_rec_chain {
	struct dl_cg_chain *chain;
	uint64_t id;
	uint32_t pid;
};

struct dl_rec_shm {
	struct dl_env_shm shm;
	uint32_t pid;
};

enum { DL_REC_FAILS = 31 };	/* keeps the errors that a want of something gives apart, or nearly */

struct dl_recorder {
	struct dl_sink sink;	/* what all sources emit into */
	const struct dl_record_opts *o;
	struct dl_trace_writer *w;
	struct dl_rec_keep *keep;	/* instead of w */
	uint64_t drain_ts;	/* all events until then have been emitted */
	struct dl_str early;	/* events from before there was a file */
	int write_err;		/* the writer's, once it has failed */
	uint64_t invalid;	/* events that the writer refused */
	struct dl_kernel *k;
	struct dl_gpu *g;
	struct dl_cuda *cuda;
	struct dl_gpu_watch *watch;	/* NVML and sysfs */
	struct dl_symbols *sym;
	struct dl_tree tree;
	struct dl_spawn spawn;
	uint32_t root_pid;
	bool root_exited, has_status;
	int status;
	/* samples */
	struct dl_env_host host;
	struct dl_cg_mounts mounts;
	DL_VEC(struct dl_rec_chain) chains;
	DL_VEC(struct dl_rec_shm) shms;
	uint64_t maps_limit;
	size_t next_proc;	/* of a tree too large for one round */
	bool env_wanted;	/* something crashed */
	bool gpu_wanted;	/* a process is new: look for its collector */
	bool looks_due;		/* there was no time for all looks */
	uint32_t holes;		/* so far; behind them everybody is looked at again */
	bool hole_looks;	/* when there is no new one for a while */
	uint64_t shed, shed_told_ts;	/* what the kernel side left out, and when that was told last */
	uint64_t env_ts;
	uint64_t env_crash_ts, env_whole_ts;	/* the last one that a crash asked for, and with all that is dear */
	uint64_t env_fail_ts[DL_REC_FAILS];	/* and that a failed system call did, by its error */
	uint32_t env_pid;	/* who crashed or failed; 0 nobody since the last sample */
	struct dl_map asked;	/* hashes of addresses whose names were asked for */
	uint64_t lost;
	bool told_cgroup, told_shm;
};

/* The loop's own: what it waits for, and how it ends. */
struct dl_rec_loop {
	int epoll_fd, signal_fd, pid_fd;
	uint64_t start_ts, second_ts, end_ts;	/* end_ts: 0 while the target runs */
	uint64_t second_events, hint_ts;
	unsigned int signals;
	enum dl_record_end end;
	int err;
	char gpu[128], hint[512];
};

/* --- recorder.c --- */

int dl_rec_emit_losses(struct dl_recorder *r);

/* --- recorder_loop.c --- */

/* Until l->end is set. */
void dl_rec_loop(struct dl_recorder *r, struct dl_rec_loop *l);
void dl_rec_note(const struct dl_recorder *r, const char *text);
void dl_rec_on_signal(struct dl_recorder *r, struct dl_rec_loop *l);
int dl_rec_probe_gpus(struct dl_recorder *r, uint64_t now);
void dl_rec_find_hint(struct dl_recorder *r, struct dl_rec_loop *l);

/* --- recorder_look.c --- */

/* A process of the tree, found by a scan or by its fork. */
struct dl_tree_proc *dl_rec_add_proc(struct dl_recorder *r, uint32_t pid, uint32_t ppid, bool root);

/* Adds the descendants that exist already, to the kernel side too. */
int dl_rec_add_tree(struct dl_recorder *r, uint32_t root, struct dl_diag *d);

/* Everything there is to say about a process now. */
int dl_rec_look_at(struct dl_recorder *r, struct dl_tree_proc *p, uint32_t flags);

/* After an event has been written. */
int dl_rec_on_event(struct dl_recorder *r, const struct dl_hdr *ev);

/* A thread got a fatal signal by its own doing: its stack becomes a CRASH_STACK, a little later. */
void dl_rec_fault_stack(struct dl_recorder *r, const struct dl_fault_stack *fs);

/* Looks that are due. */
int dl_rec_due_looks(struct dl_recorder *r, uint64_t now);

/* --- recorder_env.c --- */

void dl_rec_env_open(struct dl_recorder *r);
void dl_rec_env_close(struct dl_recorder *r);

/* Notes the groups and the /dev/shm of a process, when they are new. */
int dl_rec_env_meet(struct dl_recorder *r, struct dl_tree_proc *p);

/* A process crashed: a sample is wanted at once. */
void dl_rec_env_crash(struct dl_recorder *r, uint32_t pid);
/* It was refused something, or a helper ended in failure: once a second for each kind (an errno, or a number that is none). */
void dl_rec_env_fail(struct dl_recorder *r, uint32_t pid, uint32_t kind, uint64_t ts);

/* A whole sample now; at_once: something crashed, spare nothing. */
int dl_rec_env_sample(struct dl_recorder *r, bool at_once);

/* --- recorder_keep.c --- */

int dl_rec_keep_open(struct dl_recorder *r, struct dl_diag *d);
void dl_rec_keep_abort(struct dl_recorder *r);	/* nothing was recorded */
int dl_rec_keep_write(struct dl_recorder *r, const struct dl_hdr *ev);
int dl_rec_keep_tick(struct dl_recorder *r, uint64_t now);
int dl_rec_keep_asked(struct dl_recorder *r);	/* by SIGUSR1 */
void dl_rec_keep_ending(struct dl_recorder *r);	/* the user ends it */
uint64_t dl_rec_keep_lost(const struct dl_recorder *r);	/* no room on the disk */
uint64_t dl_rec_keep_dropped(const struct dl_recorder *r);	/* no room to remember it by */
void dl_rec_keep_status(const struct dl_recorder *r, uint64_t now, struct dl_record_status *st);
int dl_rec_keep_finish(struct dl_recorder *r, struct dl_record_result *res, struct dl_diag *d);

int dl_rec_absent(struct dl_recorder *r, uint32_t source, const char *text);
int dl_rec_mark(struct dl_recorder *r, uint32_t what, int32_t value, const char *text);

#endif
