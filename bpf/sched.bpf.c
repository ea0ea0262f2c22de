/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Context switches with the reason for each block, and memory of a process at its switches. Both
 * are read from tables that the kernel keeps anyway; no system call is traced.
 */
#include "wait.bpf.h"

#define MEM_PERIOD_NS (100 * DL_NS_PER_MS)
#define MEM_LOOK_NS (10 * DL_NS_PER_MS)
#define MEM_SWAP_STEP 256	/* pages */

/* A switch with kernel frames behind it; too large for the BPF stack. */
struct switch_stack {
	struct dl_ev_switch ev;
	__u64 addr[DL_KSTACK_MAX];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct switch_stack);
} dl_switch_buf SEC(".maps");

/* SIGBUS, SIGSEGV, SIGFPE and SIGTERM all have handlers: a DataLoader worker, under any start method. */
static __always_inline bool has_quartet(struct task_struct *t)
{
	struct sighand_struct *s = t->sighand;

	/* 0 and 1 are SIG_DFL and SIG_IGN; SIGTRAP: see dl_worker_handlers() */
	return s && (unsigned long)s->action[6].sa.sa_handler > 1 &&
	       (unsigned long)s->action[10].sa.sa_handler > 1 &&
	       (unsigned long)s->action[7].sa.sa_handler > 1 &&
	       (unsigned long)s->action[14].sa.sa_handler > 1 &&
	       (unsigned long)s->action[4].sa.sa_handler <= 1;
}

/* Signals that may stay open in a thread that "blocks all": the faults, SIGKILL, SIGSTOP, glibc's. */
#define SIG_BIT(n) (1ULL << ((n) - 1))
#define SIG_OPEN (SIG_BIT(4) | SIG_BIT(5) | SIG_BIT(6) | SIG_BIT(7) | SIG_BIT(8) | SIG_BIT(9) | \
		  SIG_BIT(11) | SIG_BIT(19) | SIG_BIT(32) | SIG_BIT(33) | SIG_BIT(34))

static __always_inline __u32 task_flags(struct task_struct *t, struct dl_target *target, bool preempt)
{
	__u32 f = 0;

	if (BPF_CORE_READ_BITFIELD(t, in_iowait))
		f |= DL_SW_IOWAIT;
	if (dl_task_memstall(t))
		f |= DL_SW_MEMSTALL;
	if (t->flags & PF_EXITING)
		f |= DL_SW_EXITING;
	else if (!(target->flags & DL_TG_QUARTET) && has_quartet(t))
		target->flags |= DL_TG_QUARTET;
	if (target->flags & DL_TG_QUARTET)
		f |= DL_SW_QUARTET;
	if ((t->blocked.sig[0] | SIG_OPEN) == ~0ULL)
		f |= DL_SW_SIGBLOCK;
	if (preempt)
		f |= DL_SW_PREEMPT;
	return f;
}

static __always_inline void out_with_stack(void *ctx, struct dl_ev_switch *ev)
{
	struct switch_stack *s;
	__u32 zero = 0;
	__s64 sz;

	s = bpf_map_lookup_elem(&dl_switch_buf, &zero);
	if (!s)
		return;
	sz = bpf_get_stack(ctx, s->addr, sizeof(s->addr), 0);
	if (sz <= 0 || sz > (__s64)sizeof(s->addr)) {
		dl_lost(DL_LOSS_STACK, DL_EV_SWITCH);
		dl_out(ev, sizeof(*ev), DL_EV_SWITCH);
		return;
	}
	/* In the ring stack is a frame count; userspace makes an id of the frames. */
	ev->stack = (__u32)sz >> 3;
	ev->h.size = sizeof(*ev) + sz;
	s->ev = *ev;
	dl_out(s, sizeof(*ev) + sz, DL_EV_SWITCH);
}

/* Fills in what is known of a recorded thread that is switched out; true when a stack is wanted. */
static __always_inline bool fill_prev(struct dl_ev_switch *ev, struct task_struct *prev,
				      struct dl_target *target, bool preempt, enum dl_read_how how)
{
	struct dl_regs r;

	ev->flags |= task_flags(prev, target, preempt);
	ev->exec_ns = prev->se.sum_exec_runtime;
	ev->min_flt = prev->min_flt;
	ev->maj_flt = prev->maj_flt;
	ev->switches = prev->nvcsw + prev->nivcsw;
	ev->throttle_cnt = dl_task_throttle(prev);
	ev->cpus_allowed = prev->nr_cpus_allowed;

	if (dl_task_compat(prev)) {
		ev->flags |= DL_SW_COMPAT;
		return false;
	}
	dl_task_regs(&r, prev);
	ev->syscall = r.nr;
	if (ev->syscall < 0) {
		ev->flags |= DL_SW_EXCEPTION;
		return ev->prev_state != 0 && !(ev->flags & DL_SW_EXITING);
	}
	dl_args(&r, &ev->arg0, &ev->arg1);
	/* A stopped thread does not wait for what its system call waited for. */
	if (!ev->prev_state || ev->prev_state & (__TASK_STOPPED | __TASK_TRACED) || ev->flags & DL_SW_EXITING)
		return false;
	dl_wait_reason(ev, prev, &r, how);
	return (ev->prev_state & (TASK_UNINTERRUPTIBLE | TASK_NOLOAD)) == TASK_UNINTERRUPTIBLE;
}

/* Memory of the process, ten times a second, or sooner when its swap has changed. */
static __always_inline void out_mem(struct task_struct *t, struct dl_target *target, __u64 now)
{
	struct mm_struct *mm = t->mm;
	struct dl_ev_mem ev = {};
	__u64 swap;

	if (!mm)
		return;
	swap = DL_RSS(mm, DL_MM_SWAP, dl_load);
	if (now - target->mem_ts < MEM_PERIOD_NS && swap - target->mem_swap + MEM_SWAP_STEP <= 2 * MEM_SWAP_STEP)
		return;
	target->mem_ts = now;
	target->mem_swap = swap;
	dl_hdr_init(&ev.h, DL_EV_MEM, sizeof(ev), now, t->tgid, t->pid);
	ev.anon = DL_RSS(mm, DL_MM_ANON, dl_load) * dl_page_sz;
	ev.file = DL_RSS(mm, DL_MM_FILE, dl_load) * dl_page_sz;
	ev.shmem = DL_RSS(mm, DL_MM_SHMEM, dl_load) * dl_page_sz;
	ev.swap = swap * dl_page_sz;
	ev.pgtables = mm->pgtables_bytes.counter;
	dl_out(&ev, sizeof(ev), DL_EV_MEM);
}

static __always_inline void out_switch(void *ctx, bool preempt, struct task_struct *prev, struct task_struct *next,
				       __u32 prev_state, struct dl_target *pt, struct dl_target *nt, enum dl_read_how how)
{
	__u64 now = bpf_ktime_get_ns();
	struct dl_ev_switch ev = {};
	bool stack = false;

	dl_hdr_init(&ev.h, DL_EV_SWITCH, sizeof(ev), now, prev->tgid, prev->pid);
	ev.next_tid = next->pid;
	ev.next_pid = next->tgid;
	ev.prev_state = prev_state;
	ev.syscall = -1;
	if (!nt) {
		ev.flags |= DL_SW_NEXT_FOREIGN;
		if (ev.next_tid)
			dl_name_task(next, ev.next_pid, ev.next_tid, next->flags, now);
	}
	if (pt) {
		stack = fill_prev(&ev, prev, pt, preempt, how);
	} else {
		ev.h.flags = DL_HDR_FOREIGN;
		if (prev->flags & PF_KTHREAD)
			ev.flags |= DL_SW_KTHREAD;
		if (ev.h.tid)
			dl_name_task(prev, ev.h.pid, ev.h.tid, prev->flags, now);
	}
	if (stack && dl_room(DL_SHED_SWITCH_STACK))
		out_with_stack(ctx, &ev);
	else
		dl_out(&ev, sizeof(ev), DL_EV_SWITCH);
	if (pt && now - pt->mem_ts > MEM_LOOK_NS)
		out_mem(prev, pt, now);
}

static __always_inline int on_switch(void *ctx, bool preempt, struct task_struct *prev, struct task_struct *next,
				     __u32 prev_state, enum dl_read_how how)
{
	struct dl_target *pt = dl_target_of(prev->tgid), *nt;

	nt = prev->tgid == next->tgid ? pt : dl_target_of(next->tgid);
	if (!pt) {
		barrier_var(nt);	/* or clang ORs the pointers, which the verifier forbids */
		if (!nt)
			return 0;
	}
	out_switch(ctx, preempt, prev, next, prev_state, pt, nt, how);
	return 0;
}

/* commit 8feb053d5319 ("sched/tracing: Append prev_state to tp args instead"), 5.18 */
SEC("?tp_btf/sched_switch")
int BPF_PROG(dl_switch, bool preempt, struct task_struct *prev, struct task_struct *next,
	     unsigned int prev_state)
{
	return on_switch(ctx, preempt, prev, next, prev_state, DL_READ_CAST);
}

SEC("?tp_btf/sched_switch")
int BPF_PROG(dl_switch_4, bool preempt, struct task_struct *prev, struct task_struct *next,
	     unsigned int prev_state)
{
	return on_switch(ctx, preempt, prev, next, prev_state, DL_READ_HELPER);
}

/* Before it, the state may have been overwritten by a wake that is under way (TASK_WAKING). */
SEC("?tp_btf/sched_switch")
int BPF_PROG(dl_switch_3, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	return on_switch(ctx, preempt, prev, next, dl_task_state(prev), DL_READ_HELPER);
}
