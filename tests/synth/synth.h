/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Builds traces by hand for the tests of the timeline and the diagnosis: events are collected in
 * memory in any order and written by synth_finish() with the real writer, sorted by time.
 *
 * What can be derived is: the running totals of a thread (exec_ns, switches, faults) follow from
 * its switches, HDR_FOREIGN and its relatives from synth_foreign(), string and stack ids from the
 * names given. Failures (no memory) stick and come out of synth_finish().
 */
#ifndef DLBPF_TESTS_SYNTH_H
#define DLBPF_TESTS_SYNTH_H

#include <stdbool.h>
#include <stdint.h>

#include <dlbpf/event.h>

#include "trace/trace.h"

/* Task states of the kernel, as in SWITCH.prev_state. */
#define SYNTH_RUNNABLE 0u
#define SYNTH_SLEEP 1u	/* TASK_INTERRUPTIBLE */
#define SYNTH_DISK 2u	/* TASK_UNINTERRUPTIBLE */

/* Times in the traces: nanoseconds, never 0. */
#define US(n) ((uint64_t)((n) * 1000.0 + 0.5))
#define MS(n) ((uint64_t)((n) * 1000000.0 + 0.5))

struct synth;

/* NULL without memory. The file is created by synth_finish(). */
struct synth *synth_new(const char *path);

/* Writes the file and frees s. 0 or -errno. */
int synth_finish(struct synth *s);

/* The same, but leaves out index and footer, as after kill -9 of the recorder. */
int synth_finish_killed(struct synth *s);

/* Frees s without a file. NULL is allowed. */
void synth_free(struct synth *s);

/* To be changed before synth_finish(). The texts must live until then. target_pid is set by
 * synth_task() with DL_TF_ROOT; start_ts 0 becomes the time of the first event. */
struct dl_trace_meta *synth_meta(struct synth *s);

/* Any event; size and kind must be right. The copy is not changed. */
void synth_event(struct synth *s, const struct dl_hdr *ev);

/* An event with text behind its fixed part. */
void synth_event_text(struct synth *s, const struct dl_hdr *ev, const char *text);

/* --- threads --- */

/* Declares a thread to be outside of the recorded tree, and names it (NULL: without a name). */
void synth_foreign(struct synth *s, uint32_t tid, uint32_t pid, const char *comm);

/* flags: enum dl_task_flag. Writes TASK; with comm also NAME. */
void synth_task(struct synth *s, uint64_t ts, uint32_t tid, uint32_t pid, uint32_t ppid,
		const char *comm, uint32_t flags, uint64_t sig_caught);

void synth_name(struct synth *s, uint64_t ts, uint32_t tid, uint32_t pid, const char *comm);

/* child_pid == child_tid: a process, else a thread. Writes FORK and the child's first WAKE. */
void synth_fork(struct synth *s, uint64_t ts, uint32_t tid, uint32_t pid,
		uint32_t child_tid, uint32_t child_pid, const char *comm);

void synth_exec(struct synth *s, uint64_t ts, uint32_t tid, uint32_t pid, const char *path);

/* code as from wait(2); flags: enum dl_exit_flag. */
void synth_exit(struct synth *s, uint64_t ts, uint32_t tid, uint32_t pid, int code,
		uint32_t flags);

void synth_cmdline(struct synth *s, uint64_t ts, uint32_t pid, const char *cmdline);

/* --- scheduling --- */

/* Why a thread was switched out. Use WAIT(). */
struct synth_wait {
	int32_t syscall;	/* -1: none */
	uint64_t arg0, arg1;
	uint64_t deadline;
	uint64_t file_ino;
	uint32_t file_dev, file_magic;
	uint16_t file_kind;	/* enum dl_file_kind */
	uint16_t flags;		/* enum dl_switch_flag */
	uint32_t stack;		/* from synth_stack() */
	uint32_t throttle_cnt;
	uint32_t cpus_allowed;	/* 0 unknown */
	uint32_t min_flt, maj_flt;	/* faults since the thread's last switch */
	uint32_t lost;		/* switches of this thread that the trace lacks */
};

/* WAIT(SYS_futex, .arg0 = 0x1000, .arg1 = 0x189); WAIT(-1, .flags = DL_SW_EXCEPTION) */
#define WAIT(nr, ...) (&(const struct synth_wait){ .syscall = (nr), ##__VA_ARGS__ })

/* wait NULL: no system call. tid 0 is the idle task. */
void synth_switch(struct synth *s, uint64_t ts, uint32_t cpu, uint32_t prev_tid, uint32_t prev_pid,
		  uint32_t next_tid, uint32_t next_pid, uint32_t prev_state,
		  const struct synth_wait *wait);

/*
 * The thread runs on cpu from `from` to `to` and then leaves it with state and wait. A CPU is idle
 * between two runs, unless the next one starts when the last one ends: then there is one switch
 * from thread to thread. Runs of a CPU, and of a thread, must be given in the order of time.
 * Do not mix with synth_switch() on the same cpu.
 */
void synth_run(struct synth *s, uint32_t cpu, uint32_t tid, uint32_t pid, uint64_t from,
	       uint64_t to, uint32_t state, const struct synth_wait *wait);

/* The waker's CPU is where it was last switched in. syscall -1: none. */
void synth_wake(struct synth *s, uint64_t ts, uint32_t waker_tid, uint32_t waker_pid,
		uint32_t wakee_tid, uint32_t wakee_pid, int32_t syscall);

/* The same with everything else: set h.tid, h.pid, wakee_*, syscall, args, flags as wanted. */
void synth_wake_ev(struct synth *s, uint64_t ts, struct dl_ev_wake ev);

/* --- GPU; names are interned --- */

void synth_gpu_source(struct synth *s, uint64_t ts, uint32_t pid, uint32_t state, uint32_t flags,
		      const char *text);
void synth_gpu_device(struct synth *s, uint64_t ts, uint32_t pid, uint32_t device, uint32_t flags,
		      const char *name);
void synth_kernel(struct synth *s, uint64_t ts, uint64_t end, uint32_t pid, uint32_t device,
		  uint32_t stream, uint32_t corr, const char *name);
/* dir: enum dl_gpu_dir; host_mem: enum dl_gpu_mem of the side that is not the device. */
void synth_memcpy(struct synth *s, uint64_t ts, uint64_t end, uint32_t pid, uint32_t device,
		  uint32_t stream, uint32_t corr, uint16_t dir, uint16_t host_mem, uint64_t bytes);
void synth_memset(struct synth *s, uint64_t ts, uint64_t end, uint32_t pid, uint32_t device,
		  uint32_t stream, uint32_t corr, uint64_t bytes);
/* type: enum dl_gpu_sync_type */
void synth_sync(struct synth *s, uint64_t ts, uint64_t end, uint32_t tid, uint32_t pid,
		uint32_t type, uint32_t stream, uint32_t corr);
/* class: enum dl_gpu_call. domain is DL_GPU_RUNTIME, cbid 0. */
void synth_api(struct synth *s, uint64_t ts, uint64_t end, uint32_t tid, uint32_t pid,
	       uint32_t corr, uint32_t class, const char *name);

/* --- samples --- */

/*
 * Names, innermost frame first, separated by ';', NULL or "" for none:
 *	synth_stack(s, ts, pid, "clear_page_erms;shmem_fault", "memcpy;collate;main")
 * Writes STACK and the SYMBOLs that are new, and returns the stack's id; the same names give the
 * same id. 0 without memory.
 */
uint32_t synth_stack(struct synth *s, uint64_t ts, uint32_t pid, const char *kernel,
		     const char *user);

/* mode: enum dl_sample_mode; period_us is 10000. */
void synth_sample(struct synth *s, uint64_t ts, uint32_t cpu, uint32_t tid, uint32_t pid,
		  uint16_t mode, uint32_t stack);

/* --- about the recording --- */

/* The id of a text for pid, 0 for everybody; writes STRING when it is new. 0 without memory. */
uint32_t synth_string(struct synth *s, uint64_t ts, uint32_t pid, const char *text);
void synth_loss(struct synth *s, uint64_t ts, uint32_t ring, uint32_t cause, uint32_t kind,
		uint64_t cnt);
void synth_absent(struct synth *s, uint64_t ts, uint32_t source, const char *why);
void synth_mark(struct synth *s, uint64_t ts, uint32_t what, int32_t value, const char *text);

#endif
