/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Why a thread is blocked. The order matters: the kernel's own reasons (reclaim, swap, a kernel
 * lock) show in the stack and come before the descriptor; the blocked file's file system decides
 * before the waker does, else a FUSE daemon looks like a foreign process.
 */
#include "diagnose/walk.h"

#include "timeline/past.h"

#define FUTEX_PRIVATE 128
#define FUTEX_CMD(op) ((op) & 127)
#define FUTEX_WAIT 0
#define FUTEX_LOCK_PI 6
#define FUTEX_WAIT_BITSET 9
#define FUTEX_LOCK_PI2 13

/* A wait with a deadline this far away is for data (queue.get with a time-out), not for a lock. */
#define DATA_TIMEOUT_NS 40000000ULL

#define LOOK_BACK 64	/* waits of a thread */

/* Who last woke the thread before t, wakes for the GIL aside; its creator where nobody did since its
 * birth; DL_NONE not known. */
static uint32_t last_waker_before(const struct dl_timeline *tl, const struct dl_thread *th, uint64_t t)
{
	const struct dl_proc *p = th->proc == DL_NONE ? NULL : &tl->procs.v[th->proc];
	uint32_t i = dl_seg_before(th, t), looked = 0;

	for (; i != DL_NONE && looked < LOOK_BACK; i = i ? i - 1 : DL_NONE) {
		const struct dl_wait *w = dl_seg_wait(th, &th->segs.v[i]);

		if (!w)
			continue;
		looked++;
		if (!w->wake_ts || w->wake_ts > t || (p && dl_is_gil(p, w->arg0)))
			continue;
		/* A timer's or another interrupt's wake names whoever was on the CPU. */
		return dl_timed_out(w, th->segs.v[i].start) || w->wake_syscall < 0 ? DL_NONE : w->waker;
	}
	if (i == DL_NONE && th->past && th->past->waker_back && th->past->waker_back <= LOOK_BACK - looked)
		return th->past->waker;
	if (th->past && th->past->waits > LOOK_BACK - looked)
		return DL_NONE;
	return i == DL_NONE && th->start ? th->creator : DL_NONE;
}

/* A lock, unless the thread that ended the wait had itself been woken by this one: then this one had
 * handed out work and waited for the result. */
static enum dl_why lock_or_result(const struct dl_timeline *tl, const struct dl_thread *th,
				  const struct dl_wait *w)
{
	if (w->waker == DL_NONE || w->waker == DL_IDLE)
		return DL_WHY_DATA;
	/* A pool does what others gave it, though the last to end a region need not have slept before it. */
	if (th->role == DL_ROLE_POOL || tl->threads.v[w->waker].role == DL_ROLE_POOL)
		return DL_WHY_DATA;
	if (last_waker_before(tl, &tl->threads.v[w->waker], w->wake_ts) ==
	    (uint32_t)(th - tl->threads.v))
		return DL_WHY_DATA;
	return DL_WHY_LOCK;
}

static enum dl_why why_futex(const struct dl_timeline *tl, const struct dl_thread *th,
			     const struct dl_wait *w, uint64_t start)
{
	unsigned int cmd = FUTEX_CMD(w->arg1);

	if (th->proc != DL_NONE && dl_is_gil(&tl->procs.v[th->proc], w->arg0))
		return DL_WHY_GIL;
	if (cmd == FUTEX_LOCK_PI || cmd == FUTEX_LOCK_PI2)
		return DL_WHY_LOCK;
	/* pthread_join waits on a word that the kernel clears at the end of a thread, not private. */
	if (dl_sys_class(tl->machine, w->wake_syscall) == DL_SYS_EXIT)
		return DL_WHY_CHILD;
	if (!(w->arg1 & FUTEX_PRIVATE))
		return w->deadline > start + DATA_TIMEOUT_NS && dl_timed_out(w, start) ? DL_WHY_DATA : DL_WHY_LOCK;
	/* threading.Lock and Condition look the same; in a worker's main thread it is a lock. */
	if (cmd == FUTEX_WAIT_BITSET && !w->deadline && th->role == DL_ROLE_WORKER)
		return lock_or_result(tl, th, w);
	/* glibc waits like this for a mutex only (lll_lock_wait), libgomp for the end of a region. */
	if (cmd == FUTEX_WAIT && !w->deadline)
		return lock_or_result(tl, th, w);
	return DL_WHY_DATA;
}

static enum dl_why why_stack(const struct dl_timeline *tl, const struct dl_wait *w)
{
	if (!w->stack || w->stack >= tl->stacks.cnt)
		return DL_WHY_UNKNOWN;
	switch (tl->stacks.v[w->stack].wait) {
	case DL_SW_WAIT_IO:
		return DL_WHY_STORAGE;
	case DL_SW_WAIT_SWAP:
		return DL_WHY_SWAP;
	case DL_SW_WAIT_RECLAIM:
		return DL_WHY_MEMORY;
	case DL_SW_WAIT_RWSEM:
		return DL_WHY_KLOCK;
	case DL_SW_WAIT_RCU:
		return DL_WHY_KERNEL;
	}
	return DL_WHY_UNKNOWN;
}

/* Files that the kernel makes up: cgroup v1 and v2, proc, sysfs, debugfs, tracefs, securityfs, bpf; and
 * memory: tmpfs, ramfs (linux/magic.h). */
static bool is_pseudo(uint32_t magic)
{
	static const uint32_t magics[] = { 0x27e0eb, 0x63677270, 0x9fa0, 0x62656572, 0x64626720, 0x74726163, 0x73636673,
					   0xcafe4a11, 0x01021994, 0x858458f6 };

	for (size_t i = 0; i < sizeof(magics) / sizeof(magics[0]); i++) {
		if (magics[i] == magic)
			return true;
	}
	return false;
}

static bool on_disk(const struct dl_wait *w)
{
	return (w->file_kind == DL_FILE_REG || w->file_kind == DL_FILE_DIR || w->file_kind == DL_FILE_BLK) &&
	       !is_pseudo(w->file_magic);
}

static enum dl_why why_descriptor(const struct dl_wait *w, uint64_t start)
{
	if (w->file_kind == DL_FILE_INET)
		return DL_WHY_NETWORK;
	if (w->file_kind == DL_FILE_NONE && dl_timed_out(w, start))
		return DL_WHY_SLEEP;
	return DL_WHY_DATA;
}

/* Neither the stack nor a descriptor says more. */
static enum dl_why why_flags(const struct dl_wait *w)
{
	if (w->flags & DL_SW_MEMSTALL)
		return DL_WHY_MEMORY;
	if (w->flags & DL_SW_IOWAIT)
		return DL_WHY_STORAGE;
	if (w->uninterruptible || (w->flags & DL_SW_EXCEPTION))
		return DL_WHY_KLOCK;
	return DL_WHY_UNKNOWN;
}

enum dl_why dl_why_blocked(const struct dl_timeline *tl, const struct dl_thread *th, uint32_t seg)
{
	const struct dl_seg *s = &th->segs.v[seg];
	const struct dl_wait *w = dl_seg_wait(th, s);
	enum dl_why why;

	if (!w)
		return DL_WHY_UNKNOWN;
	why = why_stack(tl, w);
	if (why != DL_WHY_UNKNOWN)
		return why;
	/* It was killed in that call, and only ends. */
	if (w->flags & DL_SW_EXITING)
		return DL_WHY_KERNEL;
	switch (dl_sys_class(tl->machine, w->syscall)) {
	case DL_SYS_FUTEX:
		return why_futex(tl, th, w, s->start);
	case DL_SYS_SLEEP:
		return DL_WHY_SLEEP;
	case DL_SYS_WAIT:
		return DL_WHY_CHILD;
	case DL_SYS_LOCK:
		return w->uninterruptible ? why_flags(w) : DL_WHY_LOCK;
	case DL_SYS_FSYNC:
	case DL_SYS_FILE:
		return DL_WHY_STORAGE;
	case DL_SYS_READ:
	case DL_SYS_WRITE:
	case DL_SYS_POLL:
	case DL_SYS_ACCEPT:
	case DL_SYS_CONNECT:
		if (on_disk(w) || (w->flags & DL_SW_IOWAIT))
			return DL_WHY_STORAGE;
		if (w->uninterruptible)
			return why_flags(w);
		return why_descriptor(w, s->start);
	default:
		why = why_flags(w);
		/* An interruptible sleep in any other call is ended by somebody, whatever it is for. */
		return why == DL_WHY_UNKNOWN && w->waker != DL_NONE ? DL_WHY_DATA : why;
	}
}

enum dl_cause dl_why_cause(enum dl_why why)
{
	static const enum dl_cause why_cause[DL_WHY_CNT] = {
		[DL_WHY_UNKNOWN] = DL_CAUSE_UNEXPLAINED,
		[DL_WHY_DATA] = DL_CAUSE_IPC,
		[DL_WHY_LOCK] = DL_CAUSE_LOCK,
		[DL_WHY_GIL] = DL_CAUSE_GIL,
		[DL_WHY_KLOCK] = DL_CAUSE_MEMORY,
		[DL_WHY_STORAGE] = DL_CAUSE_STORAGE,
		[DL_WHY_SWAP] = DL_CAUSE_SWAP,
		[DL_WHY_MEMORY] = DL_CAUSE_MEMORY,
		[DL_WHY_NETWORK] = DL_CAUSE_NETWORK,
		[DL_WHY_SLEEP] = DL_CAUSE_SLEEP,
		[DL_WHY_CHILD] = DL_CAUSE_STARTUP,
	};

	return why_cause[why];
}
