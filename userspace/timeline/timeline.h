/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The timeline: what every thread of the recorded tree did at every instant, who woke whom, what
 * each GPU ran, and who plays which role. Made from a trace, then only read.
 *
 * Threads and processes are named by index, not by id: ids are reused. Segments of a thread are
 * gapless from its first to its last instant; a segment ends where the next one starts.
 */
#ifndef DLBPF_TIMELINE_TIMELINE_H
#define DLBPF_TIMELINE_TIMELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <dlbpf/event.h>

#include "base/dense.h"
#include "base/diag.h"
#include "base/map.h"
#include "base/values.h"
#include "base/vec.h"
#include "timeline/roles.h"
#include "timeline/syscalls.h"

struct dl_trace;
struct dl_past;
struct dl_plan;

#define DL_NONE UINT32_MAX	/* no thread, no process, no record */
#define DL_IDLE 0		/* index of the idle task among threads */

enum dl_state {
	DL_ST_UNKNOWN = 0,	/* before the first event, or events were lost */
	DL_ST_RUNNING,
	DL_ST_RUNNABLE,		/* ref: struct dl_rq */
	DL_ST_BLOCKED,		/* ref: struct dl_wait */
	DL_ST_GONE,
};

struct dl_seg {
	uint64_t start;
	uint32_t ref;
	uint16_t cpu;
	uint8_t state;		/* enum dl_state */
	uint8_t reserved;
};

/* One block of a thread, and how it ended. */
struct dl_wait {
	uint64_t arg0, arg1, deadline, file_ino;
	uint64_t wake_ts;	/* 0: never woken in the trace, or the wake was lost */
	uint32_t waker;		/* thread that woke it; DL_NONE unknown */
	int32_t wake_syscall;
	uint32_t file_dev, file_magic;
	int32_t syscall;	/* -1: not in a system call; -2: unknown */
	uint32_t stack;		/* STACK.id */
	uint16_t file_kind;	/* enum dl_file_kind */
	uint16_t flags;		/* enum dl_switch_flag */
	uint16_t wake_flags;	/* enum dl_wake_flag */
	bool uninterruptible;	/* state D */
};

/* One wait for a CPU. */
struct dl_rq {
	uint32_t before;	/* thread that had the CPU when this one got it; DL_NONE unknown */
	uint32_t preempted_by;	/* thread that took the CPU away; DL_NONE when it was woken */
	bool throttled;		/* its cgroup was over quota */
	bool fresh;		/* first wake of a new thread */
	uint32_t cpus_allowed;	/* CPUs that it may run on; 0 unknown */
};

struct dl_woke {		/* a wake that a thread made */
	uint64_t ts;
	uint32_t wakee;
	int32_t syscall;
};

struct dl_smp {			/* an on-CPU sample */
	uint64_t ts, ip;
	uint32_t stack;
	int32_t syscall;
	bool kernel;
	uint8_t cls;		/* enum dl_smp_class, set when all symbols are known */
};

/* What a sample was doing, from its kernel stack; see stacks.c. */
enum dl_smp_class {
	DL_SMP_USER = 0,
	DL_SMP_KERNEL,		/* in the kernel, for none of the reasons below */
	DL_SMP_FAULT,		/* in a page fault whose kind the stack does not show */
	DL_SMP_FAULT_ANON,	/* first touch of private memory */
	DL_SMP_FAULT_COW,	/* copy-on-write */
	DL_SMP_FAULT_SHM,	/* first touch of shared memory */
	DL_SMP_FAULT_FILE,
	DL_SMP_FAULT_SWAP,
	DL_SMP_RECLAIM,
	DL_SMP_SHM,		/* allocating or freeing shared memory outside faults */
	DL_SMP_UNMAP,
	DL_SMP_CNT,
};

/* Sorted, disjoint intervals. */
struct dl_span { uint64_t start, end; };
struct dl_spans { struct dl_span *v; size_t cnt, cap; };

#define DL_BATCH 64	/* what is known of so many together saves looking at each */

/* Where look-ups in a thread, a process or a CPU ended: the next ones are near. They move while a timeline is
 * only read. */
struct dl_places { size_t seg, woke, sample, api, step, handover, kernel, copy, run; };

/* A sample that no driver call explains. */
struct dl_own_smp {
	uint64_t ts;
	uint8_t cls;
};

/* Where the search for hand-overs stood at the cut; see handover.c. */
struct dl_taking {
	bool taking;
	uint64_t from, sure, last_end;
	uint64_t until;		/* wakes and calls up to here are done with */
	size_t cnt;		/* spans found by then, */
	struct dl_span last;	/* and the last of them */
};

struct dl_thread {
	/* what scheduler events touch comes first */
	uint32_t tid;
	uint32_t proc;		/* index; DL_NONE for a foreign thread */
	uint64_t end;		/* exit; UINT64_MAX */
	DL_VEC(struct dl_seg) segs;
	DL_VEC(struct dl_wait) waits;
	DL_VEC(struct dl_rq) rqs;
	DL_VEC(struct dl_woke) woke;
	uint64_t exec_ns, min_flt;	/* from first_* to the last seen */
	uint32_t maj_flt;
	uint32_t cpus_allowed;	/* as of its last switch; 0 unknown */
	uint32_t outs, sigblock_outs;	/* switch-outs, and those with nearly all signals blocked */
	bool kthread, has_totals;
	/* while building */
	bool has_switches;
	uint32_t switches;
	uint64_t last_out_ts;
	uint64_t run_wake_ts;	/* a wake met while running */
	uint64_t exit_ts;	/* of its EXIT; 0 none */

	uint32_t nstid;
	uint32_t creator;	/* thread that made it; DL_NONE unknown */
	uint64_t start;		/* creation, when recorded; else 0 */
	uint64_t first_exec_ns, first_min_flt;
	uint32_t first_maj_flt;
	char name[16 + 1];
	enum dl_role role;
	DL_VEC(struct dl_smp) samples;
	DL_VEC(struct dl_own_smp) own_samples;
	uint32_t cls_cnt[DL_SMP_CNT];	/* samples by class */
	DL_VEC(uint32_t) apis;	/* indices in the process's apis, in order of start */
	DL_VEC(uint32_t) steps;	/* main thread: places in apis of launches, and of copies whose record is known */
	DL_VEC(uint64_t) reach;	/* main thread: of each DL_BATCH calls, the latest end of the calls before them */
	struct dl_spans in_data;	/* a profiler saw it wait for or make a batch */
	struct dl_spans in_calls;	/* and in operators of the framework, or in calls of the driver */
	struct dl_spans in_costly;	/* of which calls that explain time by themselves: all but launches */
	struct dl_places *places;	/* NULL while building */
	bool calls;		/* it calls the driver, at any time that is known */
	bool goes_on;		/* end is not its own, only that of what has been read */
	struct dl_past *past;	/* what is left of the time that was cut off; NULL nothing was. See past.h */
};

struct dl_mem { uint64_t ts, anon, file, shmem, swap, pgtables; };

struct dl_api {
	uint64_t start, end;
	uint32_t thread;	/* DL_NONE unknown */
	uint32_t corr, cls, cbid, domain, name;
	uint64_t bytes;		/* of a copy; 0 unknown */
	uint32_t dir;		/* of a copy, enum dl_gpu_dir; 0 unknown */
	uint32_t skipped;	/* launches before it that were left out */
	bool spanned;		/* it is in the thread's spans */
	bool done;		/* what it launched was cut off */
};

struct dl_kern {		/* a kernel, or a graph as a whole */
	uint64_t start, end;
	uint32_t device, stream, corr, name;
	bool collective;
};

struct dl_copy {
	uint64_t start, end, bytes;
	uint32_t device, stream, corr;
	uint16_t dir, src, dst, flags;
	uint64_t reach;		/* the latest end of this one and those that began before it */
};

struct dl_sync {
	uint64_t start, end;
	uint32_t stream, corr, type;
};

struct dl_mapping { uint64_t start, end; char *path; };	/* executable */

struct dl_proc {
	uint32_t pid, nspid;
	uint32_t parent;	/* process index; DL_NONE outside the tree or unknown */
	uint32_t ppid;
	uint32_t main;		/* main thread */
	DL_VEC(uint32_t) threads;	/* all of them */
	struct dl_spans lives;	/* of each DL_BATCH threads: from the first birth to the last end */
	uint32_t feeder;	/* worker: the thread that puts its batches; DL_NONE */
	bool root, forked, execed, exited, quartet;
	int32_t exit_status;
	uint64_t start, end;	/* fork (else first exec) and exit when recorded; else 0 and UINT64_MAX */
	uint64_t ending;	/* from here on it only ends; UINT64_MAX it did not */
	uint64_t ready;		/* first instant of its work: of service, of its first batch; 0 none */
	uint64_t handlers_ts;	/* first instant with PyTorch's signal handlers; 0 none */
	uint64_t maxrss;
	char *cmdline;
	enum dl_role role;
	uint32_t trainer;	/* process index of the trainer it works for; DL_NONE */
	int32_t loader, index, rank;
	uint32_t generation;	/* of its loader: 0, 1, ... when workers are made anew */
	uint32_t group;		/* worker: workers that were made together have the same */
	uint64_t gil_addr;	/* futex address of its GIL; 0 unknown */
	bool loads_inline;	/* trainer: a profiler saw it make batches itself */
	bool loader_threads;	/* trainer: has threads that load */
	struct dl_spans starting;	/* trainer: it makes workers */
	struct dl_spans loading;	/* trainer: it has workers */
	struct dl_spans handover;	/* its main thread hands a batch over: the trainer takes one, a worker
					 * announces shared memory to the manager */
	struct dl_taking taking;
	struct dl_span birth;		/* of a process with a program of its own: since when its parent made it; end
					 * is when it was fed last, as far as that was cut off */
	uint64_t result_ino;	/* worker: inode of the pipe that its batches go through; 0 unknown */
	DL_VEC(struct dl_mem) mem;	/* of a long recording not all: see thin.c */
	uint64_t rss_peak;	/* of all that were read, as the following */
	uint64_t anon_peak, shmem_peak, swap_peak;
	DL_VEC(struct dl_mapping) mappings;	/* as they were read; a forked child has its parent's */
	DL_VEC(struct dl_api) apis;
	DL_VEC(struct dl_kern) kernels;	/* sorted by start */
	DL_VEC(struct dl_copy) copies;	/* sorted by start */
	struct dl_places *places;
	DL_VEC(struct dl_sync) syncs;
	struct dl_dense api_by_corr;	/* corr -> index in apis */
	struct dl_dense copy_by_corr;	/* corr -> index in copies */
	uint64_t kernel_cnt, copy_cnt, api_cnt;	/* of all that were read */
	bool has_kernels;		/* at any time that is known */
	DL_VEC(uint32_t) devices;	/* that it used, in order of appearance */
	uint32_t gpu_state, gpu_version;
	bool gpu_simulated;
	char *gpu_text;		/* which collector, or why none; while another tool has CUPTI: gpu_busy */
	char *gpu_busy;
	struct dl_spans gpu_blind;	/* another tool had the records; UINT64_MAX: to the recording's end */
	struct dl_ev_gpu_drop gpu_drop;
};

struct dl_stack {
	uint64_t *addrs;
	uint16_t kernel_cnt, user_cnt;
	uint8_t cls;		/* enum dl_smp_class of the kernel part, DL_SMP_USER without one */
	uint8_t wait;		/* enum dl_stack_wait */
	bool classified;	/* with the names of all of its frames */
};

/* Why a thread with this kernel stack is blocked; see stacks.c. */
enum dl_stack_wait {
	DL_SW_WAIT_UNKNOWN = 0,
	DL_SW_WAIT_IO,
	DL_SW_WAIT_SWAP,
	DL_SW_WAIT_RECLAIM,
	DL_SW_WAIT_RWSEM,	/* a kernel lock: its waker is its holder */
	DL_SW_WAIT_RCU,		/* a grace period: for nobody */
};


struct dl_loss {
	uint32_t ring, cause, kind;
	uint32_t shed;			/* enum dl_shed */
	uint64_t cnt, before;		/* before: what was kept begins */
	struct dl_spans times;		/* when, where known; those nearer than DL_LOSS_NEAR_NS are one */
};

#define DL_LOSS_NEAR_NS 2000000000ULL

struct dl_gpu_name { uint32_t device, pid; char *name; bool simulated; };

/* A record that is only looked up, kept as it was. */
struct dl_kept { uint64_t ts; struct dl_hdr *ev; };
struct dl_kept_vec { struct dl_kept *v; size_t cnt, cap; };
struct dl_text_vec { char **v; size_t cnt, cap; };

struct dl_loader {
	uint32_t trainer;	/* process index */
	uint32_t generations;
	uint32_t workers;	/* of the largest generation */
	uint64_t start, end;
	uint64_t batch_ns;	/* a worker's typical time from one put to the next; 0 unknown */
};

/* What a loader's workers took from one put to the next, as far as that was cut off. */
struct dl_puts {
	uint32_t trainer;
	int32_t loader;
	struct dl_values ns;
};

/* A run of a thread of the tree on a CPU. */
struct dl_cpu_run { uint64_t start, end; uint32_t thread; };
struct dl_cpu {
	DL_VEC(struct dl_cpu_run) runs;	/* sorted by start */
	struct dl_places *places;
};

#define DL_RECENT_CNT 1024

struct dl_recent { uint32_t tid, idx; };

struct dl_timeline {
	uint64_t start, end;	/* observed span */
	uint64_t events;
	enum dl_machine machine;
	DL_VEC(struct dl_thread) threads;	/* [0] is the idle task */
	DL_VEC(struct dl_proc) procs;
	DL_VEC(struct dl_stack) stacks;		/* by STACK.id */
	DL_VEC(struct dl_loader) loaders;
	DL_VEC(struct dl_cpu) cpus;	/* by number */
	DL_VEC(struct dl_loss) losses;
	DL_VEC(struct dl_gpu_name) gpu_names;
	struct dl_text_vec absent;
	struct dl_kept_vec crash;	/* SIGNAL, SIGBUS_MAP, SIGNAL_DELIVER, OOM_KILL, SYSCALL_FAIL, SHM_UNLINK, CRASH_STACK, EXIT,
					 * MARK, BLOCK_IO that failed */
	struct dl_kept_vec env;	/* ENV_*, PROC_LIMITS; of a long recording not all: see thin.c */
	uint32_t cpus_online;	/* 0 unknown */
	struct dl_kept_vec clocks;	/* GPU_CLOCK */
	struct dl_kept_vec gpu_looks;	/* GPU_LINK, GPU_SAMPLE */
	struct dl_map tids, pids;	/* the newest thread and process of an id */
	struct dl_recent recent[DL_RECENT_CNT];	/* of tids, by its last bits */
	uint32_t last_pid, last_proc;		/* of pids: the last one; DL_NONE */
	struct dl_places *places;	/* of all threads, processes and CPUs */
	struct dl_map strings;		/* pid << 32 | id -> index in texts */
	struct dl_map ksyms, usyms;	/* kernel address, hash of pid and address -> texts */
	struct dl_text_vec texts;
	struct dl_spans holes;		/* switches or wakes of the tree's threads could not be recorded: holes.c */
	uint64_t lost_switches;		/* seen by the threads' own counters */
	uint64_t inferred_wakes;	/* timers' wakes that the trace lacks */
	uint64_t inferred_switches;	/* switch-ins that the trace lacks, placed by CPU time */
	bool stopped;			/* the recorder ended in order */
	const struct dl_plan *plan;	/* roles and phases, known from an earlier reading; NULL they are found */
	DL_VEC(struct dl_puts) puts;	/* by loader */
	uint64_t from_ts, to_ts;	/* scheduling was read in here: what threads did elsewhere is not known */
	bool in_window;			/* it is being read */
	uint64_t cut_ts;		/* nothing before is held, but what spans it; 0 all is */
	uint64_t held;			/* segments, wakes, samples and GPU records behind the last cut */
};

/* All of the trace. */
int dl_timeline_build(struct dl_timeline **ret, struct dl_trace *t, struct dl_diag *d);
void dl_timeline_free(struct dl_timeline *tl);

/*
 * Piece by piece, in memory that does not grow with the trace:
 *
 *	dl_timeline_open(&tl, t, d);
 *	while ((more = dl_timeline_read(tl, t, cnt, d)) >= 0) {
 *		dl_timeline_settle(tl, d);	// brings everything below up to date
 *		...
 *		dl_timeline_cut(tl, ts, d);	// what is before ts will not be asked for any more
 *		if (!more)
 *			break;
 *	}
 *
 * Threads and processes keep their indices; segments, waits and records do not. What decides roles and
 * phases is counted when it is cut off, so that they are found from all that was read; only what is read
 * later is not known, unless a plan says it (plan.h).
 */
int dl_timeline_open(struct dl_timeline **ret, struct dl_trace *t, struct dl_diag *d);
int dl_timeline_read(struct dl_timeline *tl, struct dl_trace *t, uint64_t cnt, struct dl_diag *d);	/* 1 more, 0 end */
int dl_timeline_settle(struct dl_timeline *tl, struct dl_diag *d);
int dl_timeline_cut(struct dl_timeline *tl, uint64_t ts, struct dl_diag *d);

/* Index of the segment that holds the instant just before t (start < t <= end); DL_NONE when the
 * thread did not exist then. */
uint32_t dl_seg_before(const struct dl_thread *th, uint64_t t);

static inline uint64_t dl_seg_end(const struct dl_thread *th, uint32_t seg)
{
	return seg + 1 < th->segs.cnt ? th->segs.v[seg + 1].start : th->end;
}

static inline struct dl_wait *dl_seg_wait(const struct dl_thread *th, const struct dl_seg *s)
{
	return s->state == DL_ST_BLOCKED && s->ref != DL_NONE ? &th->waits.v[s->ref] : NULL;
}

/* A call that explains time by itself: a copy, a synchronise, an allocation, ...; all but launches. */
bool dl_call_explains(const struct dl_api *a);

/* The place in th->apis of the last call that starts before t; DL_NONE none. */
uint32_t dl_call_before(const struct dl_timeline *tl, const struct dl_thread *th, uint64_t t);

/* The innermost call around the instant just before t that explains time by itself; NULL none. */
const struct dl_api *dl_api_at(const struct dl_timeline *tl, const struct dl_thread *th, uint64_t t);

/* The latest end of the calls of a process's main thread that start before t; 0 none. */
uint64_t dl_last_call_end(const struct dl_timeline *tl, const struct dl_thread *th, uint64_t t);

/* The first launch, or copy whose record is known, that the process's main thread makes at or behind t; NULL
 * none. */
const struct dl_api *dl_next_step(const struct dl_timeline *tl, const struct dl_thread *th, uint64_t t);

/* True for a futex of the process's GIL: its condition, its mutex, its forced switch. They lie
 * within 256 bytes (research on CPython 3.10 to 3.13: docs/DIAGNOSIS.md). */
static inline bool dl_is_gil(const struct dl_proc *p, uint64_t addr)
{
	return p->gil_addr && addr - p->gil_addr + 256 < 512;
}

/* True when the wait ended by its own deadline: the waker is then a timer, whoever ran. */
bool dl_timed_out(const struct dl_wait *w, uint64_t start);

/* Waits by what they are at: the pipe that batches come through; a socket of the hand-over. */
bool dl_is_batch_wait(const struct dl_timeline *tl, const struct dl_wait *w);
bool dl_is_handover_wait(const struct dl_timeline *tl, const struct dl_wait *w);

/* True when the wait was for another process or thread to end: at a worker's sentinel, which is a pipe, too. */
bool dl_is_join(const struct dl_timeline *tl, const struct dl_wait *w);

/* Index of the first wake that the thread made at or behind t. */
size_t dl_woke_at(const struct dl_thread *th, uint64_t t);

/* Index of the first run of the CPU that starts at or behind t. */
size_t dl_run_at(const struct dl_cpu *c, uint64_t t);

/* Running time of the thread between two instants. */
uint64_t dl_running_ns(const struct dl_thread *th, uint64_t from, uint64_t to, bool runnable_too);

/* The text that an event names by id in a process; NULL unknown. */
const char *dl_string(const struct dl_timeline *tl, uint32_t pid, uint32_t id);
const char *dl_kernel_symbol(const struct dl_timeline *tl, uint64_t addr);
const char *dl_user_symbol(const struct dl_timeline *tl, uint32_t pid, uint64_t addr);

/* The copy of the process that was under way just before t, and in *from the later of *from and its
 * start; NULL when there was none, and in *from the later of *from and the end of the last one. With k
 * only copies that the kernel had to wait for count: to or from its device, and over before it began. */
const struct dl_copy *dl_copy_before(const struct dl_proc *p, const struct dl_kern *k, uint64_t t, uint64_t *from);

/* The name of the file, without its folders, that most of the user samples of a process's threads in this
 * role lie in; NULL when it is not most, or not known. */
const char *dl_library_of(const struct dl_timeline *tl, uint32_t proc, uint32_t role);

enum dl_kern_filter { DL_KERN_ALL, DL_KERN_NO_COLLECTIVES };

/* The union of a process's kernels on a device. */
int dl_busy_spans(const struct dl_proc *p, uint32_t device, enum dl_kern_filter filter, struct dl_spans *ret);

#endif
