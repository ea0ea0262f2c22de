/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What the BPF programs and their loader share beyond the events: map values, limits and the table
 * of system calls. Never written to a file, so it may change at any time.
 */
#ifndef DLBPF_BPF_SHARED_H
#define DLBPF_BPF_SHARED_H

#include <dlbpf/event.h>

#define DL_TARGETS_MAX 16384	/* recorded processes alive at a time */
#define DL_MAYBE_CNT 65536	/* slots of the filter in front of the target map */
#define DL_NAMED_CNT 4096
#define DL_WAITS_CNT 4096
#define DL_SYSCALL_CNT 512
#define DL_KSTACK_MAX 48	/* kernel frames kept */
#define DL_USTACK_MAX 32	/* user frames kept */
#define DL_PATH_MAX 256		/* bytes of an exec's path */
#define DL_TAIL_MAX 128		/* bytes of a file's or cgroup's name */

enum dl_target_flag {
	DL_TG_ROOT = 1 << 0,	/* the process that was asked for */
	DL_TG_QUARTET = 1 << 1,	/* known to have PyTorch's four handlers: not looked at again */
	DL_TG_DEAD = 1 << 2,	/* its last thread has ended; userspace removes it a little later */
};

struct dl_target {
	__u32 flags;
	__u32 reserved;
	__u64 mem_ts;		/* last MEM event */
	__u64 mem_swap;		/* swapped pages then */
};

/* Foreign threads whose name was sent: direct-mapped by tid, so a collision sends a name again. */
struct dl_named {
	__u32 tid;
	__u32 sig;		/* of start time and execs: tids are reused, names change with exec */
};

/* Relative time-outs of waits that may sleep more than once: direct-mapped by tid. Threads of one process
 * have ids in a row and sleep on different CPUs, so each has a cache line of its own. */
struct dl_wait {
	__u32 tid;
	__u32 sig;		/* of the call and the place it was made from */
	__u64 deadline;
	__u64 exec_ns;
} __attribute__((aligned(64)));

/* Which argument of a system call is the descriptor it waits for ... */
enum dl_sc_fd {
	DL_SC_FD_NONE = 0,
	DL_SC_FD_ARG0,
	DL_SC_FD_ARG1,
	DL_SC_FD_POLL,		/* the first struct pollfd at argument 0 */
};

/* ... and where its time-out is. */
enum dl_sc_timeout {
	DL_SC_TO_NONE = 0,
	DL_SC_TO_FUTEX,
	DL_SC_TO_MS_ARG2,	/* milliseconds, negative for ever */
	DL_SC_TO_MS_ARG3,
	DL_SC_TO_TS_ARG0,	/* a relative struct timespec */
	DL_SC_TO_TS_ARG2,
	DL_SC_TO_TS_ARG3,
	DL_SC_TO_TS_ARG4,
	DL_SC_TO_TV_ARG4,	/* a relative struct timeval */
	DL_SC_TO_CLOCK_NANOSLEEP,
	DL_SC_TO_RESTART,	/* restart_syscall(2): the relative wait that a stop interrupted */
};

struct dl_syscall {
	__u8 fd;		/* enum dl_sc_fd */
	__u8 timeout;		/* enum dl_sc_timeout */
};

/* What of a failed system call counts, and which of its arguments say more (from 1; 0 none). */
enum dl_sc_fail_flag {
	DL_FC_AGAIN = 1 << 0,	/* EAGAIN is a limit that was met, not a call to try again */
	DL_FC_NO_MEM = 1 << 1,	/* ENOMEM is an answer about an address, not want of memory */
	DL_FC_SHM_ENOENT = 1 << 2,	/* a shared memory object that is not there */
	DL_FC_MAPS = 1 << 3,	/* it adds or splits mappings */
	DL_FC_LOCK = 1 << 4,	/* it locks memory */
	DL_FC_FORK = 1 << 5,
	DL_FC_CLONE = 1 << 6,	/* the flags of clone(2) are its first argument ... */
	DL_FC_CLONE3 = 1 << 7,	/* ... or begin the struct that it points to */
};

struct dl_sc_fail {
	__u8 flags;		/* enum dl_sc_fail_flag */
	__u8 path;
	__u8 bytes;
	__u8 fd;		/* where enum dl_sc_fd does not say it */
};

/* CUDA's entry points, by the address that they have in a recorded process. */
#define DL_CUDA_CALLS_MAX 8192
#define DL_CUDA_THREADS_MAX 8192

struct dl_cuda_key {
	__u64 ip;
	__u32 pid;
	__u32 reserved;
};

enum dl_cuda_flag {
	DL_CUDA_ENTRY_ONLY = 1 << 0,	/* its return is not probed: the call is an instant */
	DL_CUDA_HAS_KIND = 1 << 1,	/* argument 4 is an enum cudaMemcpyKind */
	DL_CUDA_HAS_BYTES = 1 << 2,	/* argument 3 is a size */
};

struct dl_cuda_call {
	__u32 class;		/* enum dl_gpu_call */
	__u32 domain;		/* enum dl_gpu_domain */
	__u32 cbid;
	__u32 name;		/* STRING.id */
	__u32 dir;		/* enum dl_gpu_dir that its name tells; 0 none */
	__u32 flags;		/* enum dl_cuda_flag */
};

/*
 * What the kernel side copies of a thread that got a signal by its own doing: raw memory of the process,
 * which the recorder unwinds into a CRASH_STACK and forgets. A record of the ring only, above all events.
 */
#define DL_KIND_FAULT_STACK DL_EV_MAX
#define DL_FAULT_WORDS 36	/* of struct pt_regs, from its beginning */
#define DL_FAULT_CHUNK 512
#define DL_FAULT_STACK_SZ (32 * DL_FAULT_CHUNK)

struct dl_fault_stack {
	struct dl_hdr h;
	__s32 sig;
	__s32 code;
	__u64 addr;		/* si_addr of a fault */
	__u32 words;		/* of regs that are there */
	__u32 stack_sz;		/* bytes of stack that are there */
	__u64 map_start;	/* the mapping of its instruction; 0 unknown */
	__u64 map_off;		/* offset of its start in the file */
	__u64 map_ino;		/* of a file; else 0 */
	__u64 regs[DL_FAULT_WORDS];
	__u8 stack[DL_FAULT_STACK_SZ];	/* from the stack pointer on */
};

/* System calls of the machine by CPU, each in a cache line of its own; CPUs beyond share them. */
#define DL_CALL_SLOTS 64

struct dl_call_cnt {
	__u64 cnt;
} __attribute__((aligned(64)));
/*
 * What is left out when a ring fills, and from which fill on, in sixteenths of the ring: the least
 * important first. What may fill it (16) is lost where it does not fit, and not left out. One row a
 * class, SHED(class, kind, sixteenths); rows of the ring of crash and lifecycle events are SHED_CRASH.
 */
#define DL_SHED_TABLE \
	SHED(SAMPLE_USER, SAMPLE, 4) \
	SHED(SAMPLE, SAMPLE, 6) \
	SHED(MEM, MEM, 6) \
	SHED(SWITCH_STACK, SWITCH, 8) \
	SHED(MAJOR_FAULT, MAJOR_FAULT, 8) \
	SHED(WAKE_FOREIGN, WAKE, 10) \
	SHED(NAME, NAME, 12) \
	SHED(BLOCK_IO, BLOCK_IO, 14) \
	SHED(RECLAIM, RECLAIM, 14) \
	SHED(GPU_API, GPU_API, 16) \
	SHED(WAKE, WAKE, 16) \
	SHED(SWITCH, SWITCH, 16) \
	SHED_CRASH(CHILD_SIGNAL, SIGNAL, 4) \
	SHED_CRASH(SIGNAL, SIGNAL, 8) \
	SHED_CRASH(SYSCALL_FAIL, SYSCALL_FAIL, 12) \
	SHED_CRASH(CRASH_STACK, CRASH_STACK, 12)

#define DL_FILL_FULL 16
#define DL_FILL_HOLE 255	/* it was full: nothing until it is ... */
#define DL_FILL_HOLE_END 8	/* ... less full than this, so that what is missing is one piece */
#define DL_FILL_WAKE 4		/* its reader is woken */
#define DL_LOOK_EVERY 64	/* events from one look at the fill to the next, on average */

/* Of one class on one CPU: how many so far, and when since userspace last raised dl_shed_epoch. */
struct dl_shed_cnt {
	__u64 cnt;
	__u64 first, last;
	__u32 epoch;		/* that first and last are of */
	__u32 reserved;
};

struct dl_losses {
	__u64 cnt[DL_EV_MAX];	/* by kind; the map's key is enum dl_loss_cause */
};

#endif
