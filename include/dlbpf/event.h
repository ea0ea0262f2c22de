/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The event structs and enumerations, made from events.def. Included by BPF programs (behind
 * vmlinux.h), by the CUPTI collector and by userspace, so it uses the kernel's __u types only.
 *
 * Layout rule: little-endian, no implicit padding, a size that is a multiple of 8. dl_hdr.size is
 * the size of the fixed part and the tail together, so a reader steps over kinds it does not know.
 */
#ifndef DLBPF_EVENT_H
#define DLBPF_EVENT_H

#ifndef __VMLINUX_H__
#include <linux/types.h>
#endif

struct dl_hdr {
	__u16 size;	/* bytes of the whole event, this header and the tail included */
	__u16 kind;	/* enum dl_kind */
	__u32 tid;	/* thread, host id; 0 the idle task, or nobody */
	__u64 ts;	/* CLOCK_MONOTONIC nanoseconds */
	__u32 pid;	/* process, host id */
	__u16 cpu;	/* CPU it happened on; 0xffff where it has none */
	__u16 flags;	/* enum dl_hdr_flag */
};

#define DL_CPU_NONE 0xffff
#define DL_EVENT_MAX_SZ 4096	/* no event is larger, its tail included */

enum dl_hdr_flag {
	DL_HDR_FOREIGN = 1 << 0,	/* the header's thread is outside the recorded tree */
	DL_HDR_UNSURE = 1 << 1,	/* times were converted across a jump of the clock they came from */
	DL_HDR_RESTATED = 1 << 2,	/* said again for those who have only what comes behind it: it happened before */
};

typedef struct { char s[16]; } dl_c16;
typedef struct { __u8 b[32]; } dl_x32;

#define DL_CTYPE_u16 __u16
#define DL_CTYPE_u32 __u32
#define DL_CTYPE_u64 __u64
#define DL_CTYPE_s32 __s32
#define DL_CTYPE_s64 __s64
#define DL_CTYPE_c16 dl_c16
#define DL_CTYPE_x32 dl_x32

#define EVENT(NAME, tag, id, group, tail, doc) struct dl_ev_##tag { struct dl_hdr h;
#define FIELD(tag, type, name, unit, doc) DL_CTYPE_##type name;
#define END(NAME, tag) };
#include "events.def"
#undef EVENT
#undef FIELD
#undef END

enum dl_kind {
	DL_EV_NONE = 0,
#define EVENT(NAME, tag, id, group, tail, doc) DL_EV_##NAME = id,
#define FIELD(tag, type, name, unit, doc)
#define END(NAME, tag)
#include "events.def"
#undef EVENT
#undef FIELD
#undef END
	DL_EV_MAX = 64,	/* above every id; grows with them */
};

#define EVENT(NAME, tag, id, group, tail, doc) _Static_assert(sizeof(struct dl_ev_##tag) == sizeof(struct dl_hdr)
#define FIELD(tag, type, name, unit, doc) + sizeof(DL_CTYPE_##type)
#define END(NAME, tag) , #tag " has implicit padding"); \
	_Static_assert(sizeof(struct dl_ev_##tag) % 8 == 0, #tag " is no multiple of 8 bytes"); \
	_Static_assert(DL_EV_##NAME < DL_EV_MAX, #tag ": raise DL_EV_MAX");
#include "events.def"
#undef EVENT
#undef FIELD
#undef END

enum dl_file_kind {
	DL_FILE_NONE = 0,
	DL_FILE_FIFO,		/* pipe or named pipe */
	DL_FILE_UNIX,		/* AF_UNIX socket */
	DL_FILE_INET,		/* AF_INET or AF_INET6 socket */
	DL_FILE_SOCK,		/* any other socket */
	DL_FILE_REG,		/* regular file */
	DL_FILE_DIR,
	DL_FILE_BLK,
	DL_FILE_CHR,
	DL_FILE_ANON,		/* eventfd, epoll, pidfd, ... */
};

enum dl_switch_flag {
	DL_SW_IOWAIT = 1 << 0,	/* in_iowait */
	DL_SW_MEMSTALL = 1 << 1,	/* in_memstall: inside reclaim, or thrashing */
	DL_SW_EXCEPTION = 1 << 2,	/* entered the kernel by an exception or interrupt, no system call */
	DL_SW_PREEMPT = 1 << 3,	/* preempted in the kernel */
	DL_SW_QUARTET = 1 << 4,	/* has PyTorch's handlers for SIGBUS, SIGSEGV, SIGFPE and SIGTERM */
	DL_SW_SIGBLOCK = 1 << 5,	/* nearly all signals are blocked: PyTorch's resource sharer */
	DL_SW_NEXT_FOREIGN = 1 << 6,	/* the thread switched in is outside the tree */
	DL_SW_KTHREAD = 1 << 7,	/* the thread switched out is a kernel thread */
	DL_SW_EXITING = 1 << 8,	/* PF_EXITING */
	DL_SW_COMPAT = 1 << 9,	/* 32-bit system call: number and arguments are not read */
	DL_SW_RT_DEADLINE = 1 << 10,	/* deadline was given in CLOCK_REALTIME and converted */
	DL_SW_BLOCKIO = 1 << 11,	/* reserved: nobody sets it yet */
};

enum dl_wake_flag {
	DL_WK_NEW = 1 << 0,	/* the first wake of a new thread */
	DL_WK_IRQ = 1 << 1,	/* known to come from an interrupt */
	DL_WK_NOT_IRQ = 1 << 2,	/* reserved: the preempt count that would tell is not to be had everywhere */
	DL_WK_FOREIGN_WAKEE = 1 << 3,	/* the woken thread is outside the tree */
	DL_WK_KTHREAD = 1 << 4,	/* the waker is a kernel thread */
};

enum dl_name_flag {
	DL_NM_KTHREAD = 1 << 0,	/* a kernel thread */
};

enum dl_exit_flag {
	DL_EX_LAST = 1 << 0,	/* the last thread of its process */
	DL_EX_CORE = 1 << 1,	/* a core was dumped */
	DL_EX_ROOT = 1 << 2,	/* the process that was asked for */
};

enum dl_task_flag {
	DL_TF_ROOT = 1 << 0,	/* the process that was asked for */
	DL_TF_LATE = 1 << 1,	/* found after the recording began */
	DL_TF_GONE = 1 << 2,	/* could not be read: it ended first */
};

enum dl_fault_kind {
	DL_FAULT_UNKNOWN = 0,
	DL_FAULT_FILE,
	DL_FAULT_SWAP,
	DL_FAULT_SHMEM,
};

enum dl_reclaim_kind {
	DL_RECLAIM_DIRECT = 1,	/* the machine is short of memory */
	DL_RECLAIM_MEMCG,	/* the cgroup is at its limit */
};

enum dl_sigbus_flag {
	DL_SB_NO_VMA = 1 << 0,	/* nothing is mapped there, or it could not be looked up */
	DL_SB_WRITE = 1 << 1,	/* the mapping is writable */
	DL_SB_SHARED = 1 << 2,
	DL_SB_HUGETLB = 1 << 3,
	DL_SB_PAST_END = 1 << 4,	/* the address lies behind the end of the file */
	DL_SB_FROM_PROC = 1 << 5,	/* found by the recorder in /proc, a moment later */
};

enum dl_oom_flag {
	DL_OOM_MEMCG = 1 << 0,	/* a cgroup's limit */
	DL_OOM_FOREIGN = 1 << 1,	/* the victim is outside the tree */
};

/* The limits that make a system call fail. */
enum dl_limit {
	DL_LIMIT_NONE = 0,
	DL_LIMIT_FDS,		/* RLIMIT_NOFILE */
	DL_LIMIT_FILES,		/* fs.file-max, of the whole machine */
	DL_LIMIT_MAPS,		/* vm.max_map_count */
	DL_LIMIT_AS,		/* RLIMIT_AS, in bytes */
	DL_LIMIT_DATA,		/* RLIMIT_DATA, in bytes */
	DL_LIMIT_MEMLOCK,	/* RLIMIT_MEMLOCK, in bytes */
	DL_LIMIT_NPROC,		/* RLIMIT_NPROC: threads of the user */
	DL_LIMIT_PIDS,		/* pids.max of a cgroup */
	DL_LIMIT_FS,		/* the size of a tmpfs, in bytes */
	DL_LIMIT_INODES,	/* the files that a tmpfs may hold */
	DL_LIMIT_FSIZE,		/* RLIMIT_FSIZE, in bytes */
};

enum dl_fail_flag {
	DL_SF_CTRUNC = 1 << 0,	/* recvmsg returned with MSG_CTRUNC: descriptors that were sent are lost */
	DL_SF_NAME = 1 << 1,	/* the tail is the last name of the descriptor's file, not a path */
	DL_SF_CGROUP = 1 << 2,	/* the tail is the name of the cgroup that is full */
	DL_SF_FORK = 1 << 3,	/* a new process */
	DL_SF_THREAD = 1 << 4,	/* a new thread */
	DL_SF_SHM = 1 << 5,	/* it concerns a shared memory object, in /dev/shm */
};

enum dl_block_op {
	DL_BLOCK_READ = 0,
	DL_BLOCK_WRITE = 1,
	DL_BLOCK_OTHER = 2,
};

enum dl_sample_mode {
	DL_SAMPLE_USER = 0,
	DL_SAMPLE_KERNEL = 1,
};

/* Where the frames of a native stack end. */
enum dl_stack_end {
	DL_STACK_BASE = 0,	/* at the stack's end: it is whole */
	DL_STACK_MEMORY,	/* memory behind it was not kept */
	DL_STACK_NO_INFO,	/* nothing tells who called */
	DL_STACK_BROKEN,	/* what tells cannot be true */
	DL_STACK_FULL,		/* there are more than are kept */
	DL_STACK_TIME,		/* it took too long */
};

enum dl_gpu_state {
	DL_GPU_NONE = 0,
	DL_GPU_COLLECTOR,	/* CUPTI, through libdlbpf_cupti.so */
	DL_GPU_UPROBES,
	DL_GPU_BUSY,		/* another tool holds CUPTI */
	DL_GPU_FAILED,
	DL_GPU_STOPPED,
	DL_GPU_IMPORTED,	/* from another tool's trace */
};

enum dl_gpu_source_flag {
	DL_GPU_SIMULATED = 1 << 0,	/* the device is made of software */
};

enum dl_gpu_match {
	DL_GPU_MATCH_NONE = 0,	/* which of the machine's devices it is, is not known */
	DL_GPU_MATCH_PCI,	/* by the PCI address that the process's driver gave */
	DL_GPU_MATCH_ONLY,	/* there is only one */
	DL_GPU_MATCH_ENV,	/* by CUDA_VISIBLE_DEVICES as the process was started with */
};

enum dl_gpu_link_flag {
	DL_GL_NVML = 1 << 0,	/* NVML knows the device */
	DL_GL_SYSFS = 1 << 1,	/* so does sysfs */
	DL_GL_MIG = 1 << 2,	/* it is partitioned (MIG): the figures are those of the whole */
	DL_GL_SIMULATED = 1 << 3,	/* it is made of software */
};

enum dl_gpu_sample_flag {
	DL_GS_UTIL = 1 << 0,
	DL_GS_MEM = 1 << 1,
	DL_GS_PROCS = 1 << 2,	/* which processes use it */
	DL_GS_PROC_MEM = 1 << 3,	/* how much each of them has */
	DL_GS_PCIE = 1 << 4,
	DL_GS_LINK = 1 << 5,
};

enum dl_gpu_dir {
	DL_GPU_HTOD = 1,
	DL_GPU_DTOH = 2,
	DL_GPU_HTOA = 3,
	DL_GPU_ATOH = 4,
	DL_GPU_ATOA = 5,
	DL_GPU_ATOD = 6,
	DL_GPU_DTOA = 7,
	DL_GPU_DTOD = 8,
	DL_GPU_HTOH = 9,
	DL_GPU_PTOP = 10,
};

enum dl_gpu_mem {
	DL_GPU_MEM_UNKNOWN = 0,
	DL_GPU_MEM_PAGEABLE = 1,
	DL_GPU_MEM_PINNED = 2,
	DL_GPU_MEM_DEVICE = 3,
	DL_GPU_MEM_ARRAY = 4,
	DL_GPU_MEM_MANAGED = 5,
};

enum dl_gpu_sync_type {
	DL_GPU_SYNC_EVENT = 1,
	DL_GPU_SYNC_STREAM_WAIT = 2,	/* one stream waits for another: the host does not */
	DL_GPU_SYNC_STREAM = 3,
	DL_GPU_SYNC_CONTEXT = 4,
};

enum dl_gpu_domain {
	DL_GPU_RUNTIME = 1,
	DL_GPU_DRIVER = 2,
};

/* What the analysis needs to know of a call; the collector has the table of cbids. */
enum dl_gpu_call {
	DL_CALL_OTHER = 0,
	DL_CALL_LAUNCH,
	DL_CALL_GRAPH_LAUNCH,
	DL_CALL_COPY,
	DL_CALL_MEMSET,
	DL_CALL_SYNC,
	DL_CALL_ALLOC,		/* device memory */
	DL_CALL_HOST_ALLOC,	/* pinned memory */
	DL_CALL_FREE,
	DL_CALL_MODULE,		/* module or library load */
	DL_CALL_GRAPH,		/* graph instantiation and capture */
};

enum dl_span_kind {
	DL_SPAN_NONE = 0,
	DL_SPAN_DATA,		/* takes the next batch from whoever makes it */
	DL_SPAN_DATA_INLINE,	/* makes the next batch itself: num_workers=0 */
	DL_SPAN_STEP,		/* one step of the profiler's schedule */
	DL_SPAN_OP,		/* an operator of the framework */
};

/* Rings 0 .. DL_RING_SCHED_MAX - 1 are those of groups of CPUs. */
enum dl_ring {
	DL_RING_SCHED_MAX = 64,
	DL_RING_CRASH = 64,
	DL_RING_GPU = 65,
	DL_RING_WRITER = 66,	/* the recorder itself */
};

enum dl_loss_cause {
	DL_LOSS_NONE = 0,
	DL_LOSS_RING_FULL,
	DL_LOSS_RECURSION,	/* a program was not run since one was running on that CPU */
	DL_LOSS_MAP_FULL,
	DL_LOSS_STACK,		/* no stack could be taken */
	DL_LOSS_LATE,		/* arrived after its time had been written */
	DL_LOSS_INVALID,	/* malformed: not believed */
	DL_LOSS_GPU,		/* the collector's, see GPU_DROP */
	DL_LOSS_DISK,		/* there was no room on the disk */
	DL_LOSS_SHED,		/* left out on purpose, since a ring was filling: nothing that a verdict needs is missing */
	DL_LOSS_CAUSE_MAX,
};

/* What is told apart when a ring fills; bpf_shared.h has the table of how full it may be for each. */
enum dl_shed {
	DL_SHED_NONE = 0,	/* the loss is none of a full ring */
	DL_SHED_SAMPLE_USER,	/* user frames of samples: the samples stay */
	DL_SHED_SAMPLE,
	DL_SHED_MEM,		/* memory of processes */
	DL_SHED_SWITCH_STACK,	/* stacks of waits: the switches stay */
	DL_SHED_MAJOR_FAULT,
	DL_SHED_WAKE_FOREIGN,	/* wakes of threads outside the tree */
	DL_SHED_NAME,		/* names of threads */
	DL_SHED_BLOCK_IO,
	DL_SHED_RECLAIM,
	DL_SHED_GPU_API,	/* calls of CUDA seen by uprobes */
	DL_SHED_WAKE,		/* wakes of the tree's own threads */
	DL_SHED_SWITCH,		/* switches of the tree's own threads */
	DL_SHED_CHILD_SIGNAL,	/* SIGCHLD: the EXIT before it says the same */
	DL_SHED_SIGNAL,		/* signals that end nobody */
	DL_SHED_SYSCALL_FAIL,	/* system calls that failed, removals of shared memory */
	DL_SHED_CRASH_STACK,
	DL_SHED_MAX,
};

enum dl_source {
	DL_SRC_NONE = 0,
	DL_SRC_SWITCH,
	DL_SRC_WAKE,
	DL_SRC_LIFE,
	DL_SRC_FAULTS,
	DL_SRC_MEM,
	DL_SRC_SIGNALS,
	DL_SRC_OOM,
	DL_SRC_BLOCK,
	DL_SRC_SAMPLES,
	DL_SRC_CGROUP,
	DL_SRC_SHM,
	DL_SRC_GPU,
	DL_SRC_SYMBOLS,
	DL_SRC_SYSCALLS,
	DL_SRC_MAX,
};

enum dl_mark {
	DL_MARK_NONE = 0,
	DL_MARK_START,		/* tracing began */
	DL_MARK_STOP,		/* tracing ended; the tail says why */
	DL_MARK_TARGET_EXIT,	/* the target ended; value is its wait status */
	DL_MARK_SHED,		/* events were left out on purpose */
	DL_MARK_TRIGGER,	/* record --keep: a trigger fired; value is enum dl_trigger, the tail says what happened */
	DL_MARK_STATE,		/* all that was to be said again has been; value: seconds of the recording that are left out before it */
	DL_MARK_SINCE,		/* the header's thread has been as said again for value milliseconds */
};

enum dl_trigger {
	DL_TRIGGER_NONE = 0,
	DL_TRIGGER_DEATH,	/* a worker or the trainer died, or any process of the tree by a program error */
	DL_TRIGGER_OOM,		/* the OOM killer chose a process of the tree */
	DL_TRIGGER_SIGBUS,
	DL_TRIGGER_GAP,		/* the trainer stood still while its workers lived */
	DL_TRIGGER_STALL,	/* the whole tree stood still */
	DL_TRIGGER_SIGNAL,	/* the recorder was asked by SIGUSR1 */
	DL_TRIGGER_FORECAST,	/* a limit is going to be met */
	DL_TRIGGER_MAX,
};

/*
 * True for the set of handled signals (SigCgt of /proc/PID/status) of a DataLoader worker: PyTorch installs
 * handlers for SIGBUS, SIGFPE, SIGSEGV and SIGTERM there. A shell with a trap handles all that could end it,
 * these four and SIGTRAP among them, which no Python program does.
 */
#define DL_WORKER_SIGNALS 0x44c0ULL

static inline int dl_worker_handlers(__u64 sig_caught)
{
	return (sig_caught & DL_WORKER_SIGNALS) == DL_WORKER_SIGNALS && !(sig_caught & 0x10);
}

#endif
