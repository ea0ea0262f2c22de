/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Birth, renaming and death of threads: this is what keeps the map of recorded processes. */
#include "dlbpf.bpf.h"

#define SIGNAL_GROUP_EXIT 0x00000004
#define WAIT_CORE 0x80

/*
 * Ended processes that may still be in the map of recorded ones, in a circle. Userspace removes them
 * when it has seen their end; this is for when it does not come to it: what forks and dies faster than
 * that would fill the map with the dead. The oldest of the circle has been dead for long enough.
 */
#define DEAD_CNT 4096

static __u32 dead[DEAD_CNT];
static __u64 dead_cnt;

/* Raised in copy_process(), before the new thread can run. It has the clone flags, which
 * sched_process_fork has not; the ids are set by then. */
SEC("?tp_btf/task_newtask")
int BPF_PROG(dl_fork, struct task_struct *child, __u64 clone_flags)
{
	__u64 id = bpf_get_current_pid_tgid();
	struct dl_target *parent = dl_target_of(id >> 32);
	__u32 child_pid = child->tgid;
	struct dl_ev_fork ev = {};

	if (!parent)
		return 0;
	if (child_pid != id >> 32) {
		struct dl_target t = { .flags = parent->flags & DL_TG_QUARTET };

		if (bpf_map_update_elem(&dl_targets, &child_pid, &t, BPF_ANY))
			dl_lost(DL_LOSS_MAP_FULL, DL_EV_FORK);
		dl_maybe[child_pid & (DL_MAYBE_CNT - 1)] = 1;
	}
	dl_hdr_init(&ev.h, DL_EV_FORK, sizeof(ev), bpf_ktime_get_ns(), id >> 32, id);
	ev.child_tid = child->pid;
	ev.child_pid = child_pid;
	ev.clone_flags = clone_flags;
	ev.child_nstid = dl_ns_id(child);
	ev.child_nspid = child_pid == ev.child_tid ? ev.child_nstid : dl_ns_id(BPF_CORE_READ(child, group_leader));
	bpf_probe_read_kernel_str(&ev.comm, sizeof(ev.comm), &child->comm);
	dl_out_crash(&ev, sizeof(ev), DL_EV_FORK);
	return 0;
}

struct exec_event {
	struct dl_ev_exec ev;
	char path[DL_PATH_MAX];
};

SEC("?tp_btf/sched_process_exec")
int BPF_PROG(dl_exec, struct task_struct *t, pid_t old_tid, struct linux_binprm *bprm)
{
	struct dl_target *target = dl_target_of(t->tgid);
	struct exec_event e = {};
	__u64 len;
	__s64 n;

	if (!target)
		return 0;
	target->flags &= ~DL_TG_QUARTET;	/* handlers do not survive it */
	n = bpf_probe_read_kernel_str(e.path, sizeof(e.path), bprm->filename);
	len = DL_TEXT_LEN(n, DL_PATH_MAX);
	dl_hdr_init(&e.ev.h, DL_EV_EXEC, sizeof(e.ev) + len, bpf_ktime_get_ns(), t->tgid, t->pid);
	e.ev.old_tid = old_tid;
	dl_out_crash(&e, sizeof(e.ev) + len, DL_EV_EXEC);
	return 0;
}

SEC("?tp_btf/task_rename")
int BPF_PROG(dl_rename, struct task_struct *t, const char *comm)
{
	struct dl_ev_name ev = {};

	if (!dl_target_of(t->tgid))
		return 0;
	dl_hdr_init(&ev.h, DL_EV_NAME, sizeof(ev), bpf_ktime_get_ns(), t->tgid, t->pid);
	bpf_probe_read_kernel_str(&ev.comm, sizeof(ev.comm), comm);
	dl_out(&ev, sizeof(ev), DL_EV_NAME);
	return 0;
}

static __always_inline void bury(__u32 pid)
{
	__u32 *slot = &dead[dead_cnt++ & (DEAD_CNT - 1)], old = *slot;	/* two CPUs at once: one is left to userspace */
	struct dl_target *t;

	*slot = pid;
	if (!old || old == pid)
		return;
	t = bpf_map_lookup_elem(&dl_targets, &old);
	if (t && t->flags & DL_TG_DEAD)	/* else its id is in use again, or it is gone */
		bpf_map_delete_elem(&dl_targets, &old);
}

/*
 * live is 0 when the last thread has come here; several threads may see that before 6.16, so the
 * first to mark the process takes the flag. Siblings that were counted already may still report
 * their own ends a little later, and each thread still has its last switch before it: hence
 * userspace removes the process from the map, not we.
 */
static __always_inline bool is_last(struct task_struct *t, struct dl_target *target)
{
	if (BPF_CORE_READ(t, signal, live.counter) > 0 || target->flags & DL_TG_DEAD)
		return false;
	target->flags |= DL_TG_DEAD;
	return true;
}

/* Raised behind exit_mm() until 6.16 ("exit: move and extend sched_process_exit() tracepoint"), before
 * it since: the mm is not looked at here. */
SEC("?tp_btf/sched_process_exit")
int BPF_PROG(dl_exit, struct task_struct *t)
{
	struct dl_target *target = dl_target_of(t->tgid);
	struct dl_ev_exit ev = {};

	if (!target)
		return 0;
	dl_hdr_init(&ev.h, DL_EV_EXIT, sizeof(ev), bpf_ktime_get_ns(), t->tgid, t->pid);
	ev.code = t->exit_code;
	if (is_last(t, target)) {
		bury(t->tgid);
		ev.flags |= DL_EX_LAST;
		if (BPF_CORE_READ(t, signal, flags) & SIGNAL_GROUP_EXIT)
			ev.code = BPF_CORE_READ(t, signal, group_exit_code);
	}
	if (ev.code & WAIT_CORE)
		ev.flags |= DL_EX_CORE;
	if (target->flags & DL_TG_ROOT)
		ev.flags |= DL_EX_ROOT;
	ev.exec_ns = t->se.sum_exec_runtime;
	ev.min_flt = t->min_flt;
	ev.maj_flt = t->maj_flt;
	ev.maxrss = BPF_CORE_READ(t, signal, maxrss) * dl_page_sz;
	ev.switches = t->nvcsw + t->nivcsw;
	ev.ppid = BPF_CORE_READ(t, real_parent, tgid);
	dl_out_crash(&ev, sizeof(ev), DL_EV_EXIT);
	return 0;
}
