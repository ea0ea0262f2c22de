/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Wake-ups, in the waker's context: of threads of the tree by anybody, and by threads of the tree
 * of foreign user threads, since those may be asked to do something for them.
 */
#include "dlbpf.bpf.h"

/* Names the current thread, which is foreign, and returns its flags. */
static __always_inline __u32 name_waker(const struct dl_ev_wake *ev)
{
	struct task_struct *cur;
	__u32 flags;

	if (dl_has_current_btf()) {
		cur = bpf_get_current_task_btf();
		flags = cur->flags;
		dl_name_task(cur, ev->h.pid, ev->h.tid, flags, ev->h.ts);
		return flags;
	}
	cur = (void *)bpf_get_current_task();
	flags = BPF_CORE_READ(cur, flags);
	dl_name_foreign(cur, ev->h.pid, ev->h.tid, flags, ev->h.ts);
	return flags;
}

/* The waker: the current thread, which an interrupt may only have borrowed. */
static __always_inline void fill_waker(struct dl_ev_wake *ev, bool foreign)
{
	struct dl_regs r;

	ev->syscall = -1;
	if (!ev->h.tid) {
		/* The idle task does nothing by itself. */
		ev->flags |= DL_WK_IRQ | DL_WK_KTHREAD;
		ev->h.flags |= DL_HDR_FOREIGN;
		return;
	}
	if (foreign) {
		ev->h.flags |= DL_HDR_FOREIGN;
		if (name_waker(ev) & PF_KTHREAD) {
			ev->flags |= DL_WK_KTHREAD;
			return;
		}
	}
	dl_current_regs(&r);
	ev->syscall = r.nr;
	if (ev->syscall >= 0)
		dl_args(&r, &ev->arg0, &ev->arg1);
}

static __always_inline void out_wake(struct task_struct *p, __u64 id, bool foreign_wakee, bool foreign_waker,
				     __u32 flags)
{
	struct dl_ev_wake ev = {};

	dl_hdr_init(&ev.h, DL_EV_WAKE, sizeof(ev), bpf_ktime_get_ns(), id >> 32, id);
	ev.wakee_tid = p->pid;
	ev.wakee_pid = p->tgid;
	ev.flags = flags;
	ev.wakee_state = dl_task_state(p);
	ev.throttle_cnt = dl_task_throttle(p);
	fill_waker(&ev, foreign_waker);
	if (foreign_wakee) {
		ev.flags |= DL_WK_FOREIGN_WAKEE;
		dl_name_task(p, ev.wakee_pid, ev.wakee_tid, 0, ev.h.ts);
	}
	dl_out(&ev, sizeof(ev), DL_EV_WAKE);
}

static __always_inline int on_wake(struct task_struct *p, __u32 flags)
{
	struct dl_target *wakee = dl_target_of(p->tgid), *waker;
	__u64 id = bpf_get_current_pid_tgid();

	waker = (__u32)p->tgid == id >> 32 ? wakee : dl_target_of(id >> 32);
	if (!wakee) {
		barrier_var(waker);	/* or clang ORs the pointers, which the verifier forbids */
		/* The recorder's own reader is woken by crash events: that is no news. */
		if (!waker || p->flags & PF_KTHREAD || (__u32)p->tgid == dl_self_tgid || !dl_room(DL_SHED_WAKE_FOREIGN))
			return 0;
	}
	out_wake(p, id, !wakee, !waker, flags);
	return 0;
}

SEC("?tp_btf/sched_waking")
int BPF_PROG(dl_waking, struct task_struct *p)
{
	return on_wake(p, 0);
}

SEC("?tp_btf/sched_wakeup_new")
int BPF_PROG(dl_wakeup_new, struct task_struct *p)
{
	return on_wake(p, DL_WK_NEW);
}
