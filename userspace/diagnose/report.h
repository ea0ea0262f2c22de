/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What the diagnosis found: plain data, made by dl_diagnose() and printed by render/. All times
 * are nanoseconds; instants are CLOCK_MONOTONIC. Texts are owned by the report; NULL is "unknown"
 * or "none". Nothing in here is a guess: what is not known is CAUSE_UNEXPLAINED or listed absent.
 */
#ifndef DLBPF_DIAGNOSE_REPORT_H
#define DLBPF_DIAGNOSE_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/vec.h"
#include "timeline/roles.h"

enum dl_cause {
#define CAUSE(ID, id, doc) DL_CAUSE_##ID,
#include "diagnose/cause.def"
#undef CAUSE
	DL_CAUSE_CNT,
};

const char *dl_cause_id(enum dl_cause cause);	/* "cpu-contention" */
const char *dl_cause_doc(enum dl_cause cause);

const char *dl_role_id(enum dl_role role);	/* "worker", "pin-memory", as in JSON */

/* Time charged to one cause. */
struct dl_charge {
	uint64_t ns;
	uint64_t via_lock_ns;	/* of which reached by looking through a lock, the GIL included */
	uint64_t gaps;		/* gaps in which it has a part */
	uint64_t own_tree_ns;	/* cpu-contention: the CPU was held by the recorded tree itself */
	uint64_t affinity_ns;	/* cpu-contention: of threads that may not run on every CPU of the machine */
	uint64_t estimated_ns;	/* of which split by samples, an estimate */
	char *detail;		/* one line of evidence: who, what; NULL none */
};

/* One step of a critical path, latest first. */
struct dl_step {
	uint64_t start, end;
	enum dl_cause cause;
	uint32_t tid, pid;	/* host ids of the thread charged */
	enum dl_role role;	/* of that thread */
	char *text;		/* "worker 1 running in user code", "blocked in read of /dev/sda" */
	bool via_lock;
	bool jump;		/* the path came here by a wake-up: the step after (later) was woken by this thread */
};

struct dl_gap {
	uint64_t start, end;
	uint32_t device;	/* meaningless for waits */
	bool open;		/* the trace ended before it did */
	uint32_t proc;		/* index of the process, for the diagnosis itself */
	uint32_t worker;	/* 1 + index of the worker process whose batch was waited for; 0 none */
	uint64_t sync_end, sync_ns;	/* end of the call that had waited for the GPU before it, and for how
					 * long the GPU was busy meanwhile; 0 none */
	uint64_t cause_ns[DL_CAUSE_CNT];	/* adds up to end - start exactly */
	DL_VEC(struct dl_step) steps;	/* only for the worst gaps */
};

struct dl_copy_row {
	uint32_t device;
	uint32_t dir;		/* enum dl_gpu_dir */
	uint32_t mem;		/* host side: enum dl_gpu_mem */
	uint64_t cnt, bytes, ns;
	uint64_t best_bps;	/* best rate of a copy of 1 MiB or more, bytes a second; 0 none */
	uint64_t median_bytes;
	uint32_t pid;		/* process whose copies these are: its device numbers are its own */
	uint64_t small_cnt;	/* of less than DL_COPY_SMALL_SZ */
	uint64_t overlap_ns;	/* of ns, while a kernel of the process ran on the device */
	uint64_t call_ns;	/* host's time inside the calls that made them, as far as recorded */
	uint64_t cpu_ns;	/* of which the calling thread was on a CPU */
	uint64_t called_cnt;	/* copies whose call is known */
	uint64_t thread_cnt;	/* and of which it is known what the calling thread did */
};

/* A copy below this costs more by being one than by its bytes: some 10 us, which is 250 KB at 25 GB/s. */
#define DL_COPY_SMALL_SZ (256U << 10)

/* What is wrong with a device's copies; docs/DIAGNOSIS.md has the rules. */
enum dl_copy_problem {
	DL_COPY_NONE = 0,	/* there are none */
	DL_COPY_TOO_SMALL,
	DL_COPY_PAGEABLE,
	DL_COPY_NOT_OVERLAPPED,
	DL_COPY_LINK,		/* none of these: the link is the limit */
	DL_COPY_PROBLEM_CNT,
};

const char *dl_copy_problem_id(enum dl_copy_problem problem);	/* "too-small", as in JSON */

/* A link; 0 unknown. */
struct dl_link {
	uint32_t gen, width;		/* the fastest seen while recorded: idle links slow down */
	uint32_t gen_max, width_max;	/* that device and slot could do */
	uint64_t bps;			/* bytes a second in one direction, in theory, at gen and width */
};

/* All copies between the host and one device of one process. */
struct dl_copy_device {
	uint32_t device, pid;
	bool to_device;		/* the direction that cost most, which all of the following is about */
	uint64_t cnt, bytes, ns;
	uint64_t cost_ns;	/* of each copy the longer of its time and its call's */
	uint64_t small_ns, pageable_ns, unknown_ns;	/* of cost_ns: small ones; by kind of host memory */
	uint64_t overlap_ns;	/* of ns, while a kernel ran */
	uint64_t kernel_ns;	/* in which a kernel ran at all */
	uint64_t best_bps;	/* of a copy of 1 MiB or more; 0 none */
	uint64_t median_bytes;
	enum dl_copy_problem problem;
	double share;		/* that decided: of the cost, or what is missing of the overlap, 0 .. 1 */
	struct dl_link link;
	/* the thread that copies: its time on a CPU inside the calls, and of that near the device */
	uint64_t cpu_ns, near_ns;	/* near_ns only where has_near */
	bool has_near;
	int32_t numa_node;	/* of the device; -1 unknown */
	uint32_t numa_nodes, dist_min, dist_max;	/* as in GPU_LINK; 0 unknown */
};

enum { DL_GPU_CURVE = 40 };	/* stretches of the recording */

/* A device of the machine as NVML saw it. */
struct dl_gpu_report {
	int64_t index;		/* NVML's number; -1 NVML does not know it */
	int64_t device;		/* the process's number of it, as in devices; -1 not known which it is */
	uint32_t pid;		/* that process, or one that uses it; 0 unknown */
	char *name;
	bool simulated, mig;
	uint64_t pci;		/* as in GPU_DEVICE; 0 unknown */
	struct dl_link link;
	int32_t numa_node;	/* -1 unknown */
	uint64_t samples;
	uint64_t mem_total;	/* 0 unknown */
	bool has_mem, has_proc, has_util, has_pcie;	/* whether these are known: */
	uint64_t used_first, used_last, used_peak, used_peak_ts;
	uint64_t proc_last, proc_peak, proc_peak_ts;	/* of all recorded processes on it together */
	double util_mean, util_max, mem_util_mean;	/* NVML's utilisation, 0 .. 1 */
	uint64_t rx_mean_bps, rx_max_bps, tx_mean_bps, tx_max_bps;
	bool shared;		/* other processes were seen on it */
	uint64_t curve[DL_GPU_CURVE];	/* most memory used in each stretch of the recording; 0 no sample */
	uint64_t proc_curve[DL_GPU_CURVE];
};

struct dl_device_report {
	uint32_t id;
	uint32_t pid;		/* process whose records these are */
	char *name;
	bool simulated;
	uint64_t start, end;	/* observed span */
	uint64_t unobserved_ns;	/* of it, from kernel to kernel: another tool had the records in between */
	uint64_t busy_ns;	/* some kernel runs; collectives that run alone are not busy */
	uint64_t collective_ns;	/* only collectives run */
	uint64_t idle_ns;	/* busy + collective + idle = end - start */
	uint64_t kernels;
	uint64_t gap_cnt;
	struct dl_charge causes[DL_CAUSE_CNT];	/* ns add up to idle_ns exactly */
};

/* What of the idle time, or of the waits, is one trainer's or was spent on one loader's batches. */
struct dl_part {
	uint64_t idle_ns;	/* adds up with cause_ns exactly */
	uint64_t span_ns;	/* observed; a loader has its trainer's */
	uint64_t cause_ns[DL_CAUSE_CNT];
	bool has_cause;		/* false: nothing to blame */
	bool healthy;		/* it hardly waited */
	enum dl_cause cause;	/* the main one */
	double share;		/* of idle_ns, 0 .. 1 */
};

struct dl_trainer_report {
	uint32_t pid;
	uint32_t proc;		/* index of the process, for the diagnosis itself: a pid can come again */
	int32_t rank;		/* -1 none */
	struct dl_part part;	/* of all its devices together, or of its waits */
};

/* What a trainer's main thread called, where it is not known what the GPU ran. */
struct dl_calls_report {
	bool known;		/* calls were recorded */
	uint64_t copy_cnt, copy_bytes, copy_ns;	/* ns: waited for the copy itself */
	uint64_t api_cnt, api_ns;		/* allocations, modules, graphs */
	uint64_t gpu_wait_cnt, gpu_wait_ns;	/* synchronise and the like, and copies behind other work: the
						 * GPU was at work */
	uint64_t launch_cnt;
};

/* Without GPU data: the trainer's waits for batches, and in calls where they are known. */
struct dl_waits_report {
	uint64_t total_ns;	/* adds up with causes exactly */
	uint64_t wall_ns;
	uint64_t cnt;
	struct dl_charge causes[DL_CAUSE_CNT];
	struct dl_calls_report calls;
};

struct dl_dist {
	uint64_t cnt, sum_ns, p50_ns, p99_ns, max_ns;
};

/* One loader of one trainer. */
struct dl_loader_report {
	uint32_t trainer_pid;
	uint32_t proc;		/* of the trainer, as above */
	uint32_t index;		/* 0, 1, ... in order of appearance */
	uint32_t workers;	/* at most alive at once; 0 for loading in the trainer */
	uint64_t batches;	/* 0 where they cannot be counted */
	struct dl_dist wait;	/* trainer (or pin thread) waiting for the batch to be made */
	struct dl_dist produce;	/* worker: index received to batch put */
	struct dl_dist deliver;	/* batch put to hand-over done */
	struct dl_part part;	/* gaps or waits that led to one of its workers */
	int32_t slow_worker;	/* makes batches in more than twice the time of the others; -1 none */
	uint64_t slow_ns, other_ns;	/* mean time of its batches, and of theirs */
};

enum dl_block_kind {
	DL_BLOCK_ON_DATA = 0,	/* pipe, unix socket, poll */
	DL_BLOCK_ON_LOCK,
	DL_BLOCK_ON_GIL,
	DL_BLOCK_ON_STORAGE,
	DL_BLOCK_ON_NETWORK,
	DL_BLOCK_ON_MEMORY,
	DL_BLOCK_ON_TIMER,
	DL_BLOCK_ON_CHILD,
	DL_BLOCK_ON_OTHER,
	DL_BLOCK_ON_CNT,
};

const char *dl_block_kind_id(enum dl_block_kind kind);

struct dl_proc_report {
	uint32_t pid, ppid, nspid;
	enum dl_role role;
	int32_t index;		/* worker number in its loader, from 0; -1 none */
	int32_t loader;		/* loader index in its trainer; -1 none */
	int32_t rank;		/* of a trainer, from its environment or order; -1 none */
	uint32_t trainer_pid;	/* 0 none */
	uint32_t threads;	/* seen */
	char *name;		/* comm */
	char *cmdline;
	uint64_t start, end;	/* as far as recorded */
	uint64_t cpu_ns;		/* of all threads */
	uint64_t runnable_ns, throttled_ns;	/* of the main thread */
	uint64_t blocked_ns[DL_BLOCK_ON_CNT];	/* of the main thread */
	uint64_t min_flt, maj_flt;
	uint64_t rss_peak, anon_peak, shmem_peak, swap_peak;
	bool exited;
	int32_t exit_status;	/* as of wait(2) */
};

struct dl_crash_report {
	uint32_t pid, nspid;
	enum dl_role role;
	int32_t index;
	int32_t sig;
	uint64_t ts;
	char *cause;		/* id of DESIGN.md section 5: "shm-full", "killed-by", ...; NULL unknown */
	char *text;
};

struct dl_loss_row {
	const char *ring;	/* "sched 0", "crash", "gpu", "recorder" */
	const char *cause;
	const char *kind;	/* event name or "any" */
	uint64_t cnt;
	uint64_t first, last;	/* when, as far as known; 0 unknown */
};

struct dl_time { uint64_t start, end; };

/* What was left out on purpose while events came faster than they could be read or written. */
struct dl_shed_row {
	const char *what;	/* "user stacks of samples" */
	const char *kind;	/* event name or "any" */
	bool part;		/* the events stay, without it */
	uint64_t cnt;
	DL_VEC(struct dl_time) times;	/* when, within seconds */
};

struct dl_verdict {
	enum dl_cause cause;
	bool has_cause;		/* false: nothing to blame, text says why */
	bool healthy;		/* the GPU is the limit */
	double share;		/* of the idle time (or of the waits), 0 .. 1 */
	enum dl_copy_problem copies;	/* of the cause pcie: which kind */
	char *text;		/* one sentence with the evidence */
	DL_VEC(char *) actions;
};

struct dl_report {
	/* the trace */
	char *path;
	bool complete;
	bool live;		/* made from a recording that is still being written */
	uint64_t start, duration_ns, events, lost, damaged_frames, damaged_bytes;
	uint64_t shed;		/* left out on purpose, parts of events included; not lost */
	char *gpu_source;	/* "CUPTI 13.0 (simulated)", "none: ..." */
	char *gpu_hint;		/* the command or variable that would give GPU data; NULL */
	bool simulated;
	bool has_gpu;		/* devices are charged; else waits */
	char *host, *kernel, *target_cmdline;
	uint32_t target_pid;
	uint32_t cpus;		/* online on the machine; 0 unknown */
	double cpu_idle;	/* share of all CPUs' time in which they were idle, 0 .. 1; below 0 unknown */

	struct dl_verdict verdict;
	DL_VEC(struct dl_device_report) devices;
	struct dl_waits_report waits;
	DL_VEC(struct dl_gap) worst;	/* longest first, with their steps */
	DL_VEC(struct dl_proc_report) procs;
	DL_VEC(struct dl_trainer_report) trainers;
	DL_VEC(struct dl_loader_report) loaders;
	DL_VEC(struct dl_copy_row) copies;
	DL_VEC(struct dl_copy_device) copy_devices;
	DL_VEC(struct dl_gpu_report) gpus;
	struct dl_crash_report *crash;	/* NULL none */
	DL_VEC(struct dl_loss_row) losses;
	DL_VEC(struct dl_shed_row) sheds;
	DL_VEC(char *) absent;		/* what was not to be had, and what would give it */
	DL_VEC(char *) notes;		/* estimates, clock steps, lost switches, ... */
};

void dl_report_free(struct dl_report *r);

#endif
