/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Why a thread stops: the descriptor it waits for and when its wait times out, from its registers,
 * its descriptor table and its own memory (it is still the current task, so that can be read).
 */
#ifndef DLBPF_WAIT_BPF_H
#define DLBPF_WAIT_BPF_H

#include "file.bpf.h"

/* linux/futex.h, linux/time.h: macros are not in BTF */
#define FUTEX_WAIT 0
#define FUTEX_LOCK_PI 6
#define FUTEX_WAIT_BITSET 9
#define FUTEX_WAIT_REQUEUE_PI 11
#define FUTEX_LOCK_PI2 13
#define FUTEX_CMD_MASK 0x7f
#define FUTEX_CLOCK_REALTIME 0x100
#define CLOCK_REALTIME 0
#define CLOCK_MONOTONIC 1
#define CLOCK_BOOTTIME 7
#define TIMER_ABSTIME 1

#define DL_NS_PER_S 1000000000ULL
#define DL_REL_MAX (1ULL << 61)

extern const volatile __u32 dl_same_call_ns;
extern struct dl_wait dl_waits[DL_WAITS_CNT];
extern __s64 dl_realtime_off_ns;
extern __s64 dl_boottime_off_ns;

struct dl_user_ts {
	__s64 sec;
	__s64 sub;
};

/* False when there is no time-out, or it cannot be read. unit_ns is what sub counts. */
static __always_inline bool dl_user_time(__u64 ptr, __u64 unit_ns, __u64 *ret_ns)
{
	struct dl_user_ts ts;

	if (!ptr || bpf_probe_read_user(&ts, sizeof(ts), (void *)ptr))
		return false;
	if (ts.sec < 0 || ts.sec > (__s64)(DL_REL_MAX / DL_NS_PER_S))
		return false;
	*ret_ns = ts.sec * DL_NS_PER_S + ts.sub * unit_ns;
	return true;
}

/*
 * The deadline of a relative time-out. The kernel counted it from the entry to the call, which is
 * not recorded: it is taken from the thread's first switch-out in the call. A thread that is woken
 * for nothing sleeps again in the same call, with the old deadline; that is told from a new call of
 * the same kind by registers (same call from the same place) and by how little it ran in between.
 */
static __always_inline __u64 dl_relative(struct dl_ev_switch *ev, const struct dl_regs *r, __u64 rel)
{
	__u64 sig = ((__u64)r->nr << 48) ^ r->a[0] ^ r->a[1] * 31 ^ r->a[2] * 961 ^ r->ip * 5 ^ r->sp;
	struct dl_wait *w = &dl_waits[ev->h.tid & (DL_WAITS_CNT - 1)];
	__u32 sig32 = sig ^ sig >> 32;

	if (rel > DL_REL_MAX)
		return 0;
	if (w->tid == ev->h.tid && w->sig == sig32 && ev->h.ts < w->deadline &&
	    ev->exec_ns - w->exec_ns < dl_same_call_ns) {
		w->exec_ns = ev->exec_ns;
		return w->deadline;
	}
	w->tid = ev->h.tid;
	w->sig = sig32;
	w->exec_ns = ev->exec_ns;
	w->deadline = ev->h.ts + rel;
	return w->deadline;
}

/* A thread that was stopped and continued goes on with its relative wait by restart_syscall(2). */
static __always_inline __u64 dl_restarted(const struct dl_ev_switch *ev)
{
	const struct dl_wait *w = &dl_waits[ev->h.tid & (DL_WAITS_CNT - 1)];

	return w->tid == ev->h.tid && ev->h.ts < w->deadline ? w->deadline : 0;
}

/* An absolute time of some clock as CLOCK_MONOTONIC; 0 for clocks that have no fixed distance. */
static __always_inline __u64 dl_absolute(struct dl_ev_switch *ev, __u32 clock, __u64 t)
{
	__s64 mono = t;

	if (clock == CLOCK_REALTIME) {
		ev->flags |= DL_SW_RT_DEADLINE;
		mono -= dl_realtime_off_ns;
	} else if (clock == CLOCK_BOOTTIME) {
		mono -= dl_boottime_off_ns;
	} else if (clock != CLOCK_MONOTONIC) {
		return 0;
	}
	return mono > 0 ? mono : 1;	/* 0 would be "never" */
}

static __always_inline __u64 dl_futex_deadline(struct dl_ev_switch *ev, const struct dl_regs *r)
{
	__u32 op = r->a[1], clock = CLOCK_MONOTONIC;
	__u64 t;

	switch (op & FUTEX_CMD_MASK) {
	case FUTEX_WAIT:
		return dl_user_time(r->a[3], 1, &t) ? dl_relative(ev, r, t) : 0;
	case FUTEX_LOCK_PI:
		clock = CLOCK_REALTIME;
		break;
	case FUTEX_WAIT_BITSET:
	case FUTEX_WAIT_REQUEUE_PI:
	case FUTEX_LOCK_PI2:
		if (op & FUTEX_CLOCK_REALTIME)
			clock = CLOCK_REALTIME;
		break;
	default:	/* the argument is something else: FUTEX_REQUEUE's count */
		return 0;
	}
	return dl_user_time(r->a[3], 1, &t) ? dl_absolute(ev, clock, t) : 0;
}

static __always_inline __u64 dl_timespec_deadline(struct dl_ev_switch *ev, const struct dl_regs *r,
						  __u64 ptr, __u64 unit_ns)
{
	__u64 t;

	return dl_user_time(ptr, unit_ns, &t) ? dl_relative(ev, r, t) : 0;
}

static __always_inline __u64 dl_nanosleep_deadline(struct dl_ev_switch *ev, const struct dl_regs *r)
{
	__u64 t;

	if (!dl_user_time(r->a[2], 1, &t))
		return 0;
	return r->a[1] & TIMER_ABSTIME ? dl_absolute(ev, r->a[0], t) : dl_relative(ev, r, t);
}

static __always_inline __u64 dl_ms_deadline(struct dl_ev_switch *ev, const struct dl_regs *r, __s32 ms)
{
	return ms < 0 ? 0 : dl_relative(ev, r, ms * DL_NS_PER_MS);
}

static __always_inline __u64 dl_deadline(struct dl_ev_switch *ev, const struct dl_regs *r, __u8 how)
{
	switch (how) {
	case DL_SC_TO_FUTEX:
		return dl_futex_deadline(ev, r);
	case DL_SC_TO_MS_ARG2:
		return dl_ms_deadline(ev, r, r->a[2]);
	case DL_SC_TO_MS_ARG3:
		return dl_ms_deadline(ev, r, r->a[3]);
	case DL_SC_TO_TS_ARG0:
		return dl_timespec_deadline(ev, r, r->a[0], 1);
	case DL_SC_TO_TS_ARG2:
		return dl_timespec_deadline(ev, r, r->a[2], 1);
	case DL_SC_TO_TS_ARG3:
		return dl_timespec_deadline(ev, r, r->a[3], 1);
	case DL_SC_TO_TS_ARG4:
		return dl_timespec_deadline(ev, r, r->a[4], 1);
	case DL_SC_TO_TV_ARG4:
		return dl_timespec_deadline(ev, r, r->a[4], 1000);
	case DL_SC_TO_CLOCK_NANOSLEEP:
		return dl_nanosleep_deadline(ev, r);
	case DL_SC_TO_RESTART:
		return dl_restarted(ev);
	}
	return 0;
}

static __always_inline void dl_wait_file(struct dl_ev_switch *ev, struct task_struct *t,
					 const struct dl_regs *r, __u8 which, enum dl_read_how how)
{
	struct dl_file f = {};
	__s32 fd;

	switch (which) {
	case DL_SC_FD_ARG0:
		fd = r->a[0];
		break;
	case DL_SC_FD_ARG1:
		fd = r->a[1];
		break;
	case DL_SC_FD_POLL:
		if (!r->a[1] || bpf_probe_read_user(&fd, sizeof(fd), (void *)r->a[0]))
			return;
		break;
	default:
		return;
	}
	if (fd < 0 || !dl_fd_read(&f, t, fd, how))
		return;
	ev->file_ino = f.ino;
	ev->file_dev = f.dev;
	ev->file_magic = f.magic;
	ev->file_kind = f.kind;
}

/* Descriptor and deadline of the system call that a thread blocks in. */
static __always_inline void dl_wait_reason(struct dl_ev_switch *ev, struct task_struct *t,
					   const struct dl_regs *r, enum dl_read_how how)
{
	__u64 nr = r->nr;
	__u8 fd, timeout;

	if (nr >= DL_SYSCALL_CNT)
		return;
	fd = dl_syscalls[nr].fd;
	timeout = dl_syscalls[nr].timeout;
	if (fd)
		dl_wait_file(ev, t, r, fd, how);
	if (timeout)
		ev->deadline = dl_deadline(ev, r, timeout);
}

#endif
