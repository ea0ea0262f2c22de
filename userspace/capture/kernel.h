/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The kernel side: loads and attaches the BPF programs, says what the kernel lacks, drains rings. */
#ifndef DLBPF_CAPTURE_KERNEL_H
#define DLBPF_CAPTURE_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/diag.h"
#include "capture/sink.h"

struct dl_kernel;

struct dl_kernel_opts {
	uint32_t sample_hz;	/* on-CPU samples a second and CPU; 0: none */
	uint32_t ring_sz;	/* bytes of each ring of a group of CPUs; 0: the default */
	bool user_stacks;	/* samples come with the user stack, by frame pointers */
	uint32_t crash_sz;	/* bytes of the ring of crash and lifecycle events; 0: the default */
	bool verbose;		/* libbpf's messages to stderr */
	bool no_syscalls;	/* no failed system calls: spares the host the slow exit of every call */
	bool all_syscalls;	/* watch them even where the machine makes so many that it is dear */
};

/*
 * Loads everything this kernel can run and attaches it. Nothing is recorded until a target is
 * added. What is not to be had is emitted as ABSENT events. Fails with a message that says what
 * is missing and what to do: no root, no BTF, lockdown, no ring buffer, a 5.10 PREEMPT_RT kernel.
 */
int dl_kernel_open(struct dl_kernel **ret, const struct dl_kernel_opts *opts, struct dl_sink *sink,
		   struct dl_diag *d);
void dl_kernel_close(struct dl_kernel *k);

/* Records the process and, from now on, its descendants. root: the one that was asked for. */
int dl_kernel_add_target(struct dl_kernel *k, uint32_t pid, bool root, struct dl_diag *d);
int dl_kernel_remove_target(struct dl_kernel *k, uint32_t pid);

/* Makes epoll_wait() return when crash or lifecycle events are waiting, and when a ring has become a quarter full. */
int dl_kernel_watch(const struct dl_kernel *k, int epoll_fd);

/* Emits what waits in the rings, DL_KIND_FAULT_STACK included: all, unless it comes faster than it can be emitted. The
 * number of events, or -errno of the sink. */
int dl_kernel_drain(struct dl_kernel *k);

/* The same of crash and lifecycle events alone: for a caller that has no room for more. */
int dl_kernel_drain_crash(struct dl_kernel *k);

/* The last drain did not get to the end: another one should follow soon. */
bool dl_kernel_behind(const struct dl_kernel *k);

/* It found a ring more than half full, or was behind: no time for a break. */
bool dl_kernel_in_hurry(const struct dl_kernel *k);

/* A STACK.id for a stack that somebody else emits. */
uint32_t dl_kernel_stack_id(struct dl_kernel *k);

/* Emits LOSS events for counters that grew since the last call; *ret_total: all losses so far. */
int dl_kernel_emit_losses(struct dl_kernel *k, uint64_t *ret_total);

/*
 * To be called once a second, now_ts being CLOCK_MONOTONIC: gives the failed system calls up where the machine
 * makes so many calls that to watch them costs more than a share of its CPUs. Returns 1 when it just did, with
 * the reason in why, which is also emitted as ABSENT; 0, or -errno of the sink.
 */
int dl_kernel_weigh_calls(struct dl_kernel *k, uint64_t now_ts, char *why, size_t sz);
/* What was left out on purpose so far, of which dl_kernel_emit_losses() tells as well; not part of its total. */
uint64_t dl_kernel_shed_total(const struct dl_kernel *k);

/* How often a ring was so full that nothing more was recorded until it had room again, as far as was told. */
uint32_t dl_kernel_holes(const struct dl_kernel *k);

/* Stacks get new ids from now on, and are emitted again. */
void dl_kernel_forget_stacks(struct dl_kernel *k);

/* --- kernel_cuda.c: uprobes on CUDA's entry points, of one process at a time --- */

struct dl_uprobe;
struct dl_cuda_call;

/* -EOPNOTSUPP where this kernel has no uprobes, or its verifier refused the programs. */
int dl_kernel_has_uprobes(const struct dl_kernel *k);

/* What lies at an address of a process; call NULL: nothing any more. */
int dl_kernel_set_cuda_call(struct dl_kernel *k, uint32_t pid, uint64_t ip, const struct dl_cuda_call *call);

/* Probes the entry at this offset of an open file in one process, or the return to its caller. */
int dl_kernel_uprobe(struct dl_kernel *k, uint32_t pid, int fd, uint64_t off, bool at_return, struct dl_uprobe **ret);
int dl_kernel_uprobe_fd(const struct dl_uprobe *u);	/* as long as it is open anywhere, the probe is on */
void dl_kernel_uprobe_off(struct dl_uprobe *u);	/* also when the kernel side is closed; NULL-safe */

/* For the benchmark: run time and run count of each program since load (BPF statistics on). */
struct dl_prog_stat { const char *name; uint64_t run_cnt, run_ns, recursion_misses; };
int dl_kernel_prog_stats(const struct dl_kernel *k, struct dl_prog_stat *ret, int max);

#endif
