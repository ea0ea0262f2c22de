/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The OOM killer's choice: the victim's memory by kind and the cgroup level that is full. All
 * victims are reported, since they are rare and a foreign one explains as much.
 */
#include "dlbpf.bpf.h"

#define SIGKILL 9
#define SEND_SIG_PRIV 1
#define PAGE_COUNTER_UNLIMITED (1ULL << 50)	/* PAGE_COUNTER_MAX is LONG_MAX / PAGE_SIZE */
#define FULL_SLACK_PAGES 512	/* the charge that failed may have been for a huge page */
#define MEMCG_DEPTH 16

/* Absent without CONFIG_MEMCG. memsw shares its place with the swap counter of version 2. */
struct mem_cgroup___dl {
	struct cgroup_subsys_state css;
	struct page_counter memory;
	struct page_counter memsw;
} __dl_core;

struct oom_event {
	struct dl_ev_oom_kill ev;
	char name[DL_TAIL_MAX];
};

static __always_inline void fill_memory(struct dl_ev_oom_kill *ev, struct task_struct *victim)
{
	struct mm_struct *mm = BPF_CORE_READ(victim, mm);

	if (!mm)
		mm = BPF_CORE_READ(victim, signal, oom_mm);
	ev->adj = BPF_CORE_READ(victim, signal, oom_score_adj);
	if (!mm)
		return;
	ev->anon = DL_RSS(mm, DL_MM_ANON, BPF_CORE_READ) * dl_page_sz;
	ev->file = DL_RSS(mm, DL_MM_FILE, BPF_CORE_READ) * dl_page_sz;
	ev->shmem = DL_RSS(mm, DL_MM_SHMEM, BPF_CORE_READ) * dl_page_sz;
	ev->swap = DL_RSS(mm, DL_MM_SWAP, BPF_CORE_READ) * dl_page_sz;
	ev->pgtables = BPF_CORE_READ(mm, pgtables_bytes.counter);
}

static __always_inline bool is_full(__u64 usage, __u64 max)
{
	return max < PAGE_COUNTER_UNLIMITED && usage + FULL_SLACK_PAGES >= max;
}

/* Looks for a full level from the victim's own cgroup up; false when none is. */
static __always_inline bool level_full(struct dl_ev_oom_kill *ev, struct mem_cgroup___dl *cg)
{
	__u64 usage = BPF_CORE_READ(cg, memory.usage.counter), max = BPF_CORE_READ(cg, memory.max);

	if (!is_full(usage, max)) {
		/* version 1 may limit memory and swap together; hierarchy 0 is version 2 */
		if (!BPF_CORE_READ(cg, css.cgroup, root, hierarchy_id))
			return false;
		usage = BPF_CORE_READ(cg, memsw.usage.counter);
		max = BPF_CORE_READ(cg, memsw.max);
		if (!is_full(usage, max))
			return false;
	}
	ev->limit = max * dl_page_sz;
	ev->usage = usage * dl_page_sz;
	ev->flags |= DL_OOM_MEMCG;
	return true;
}

static __always_inline __u64 fill_cgroup(struct oom_event *e, struct task_struct *victim)
{
	struct cgroup_subsys_state *css;
	struct mem_cgroup___dl *cg;
	struct kernfs_node *kn;
	struct css_set *set;
	__u32 id, i;
	__s64 n;

	if (!bpf_core_type_exists(struct mem_cgroup___dl) ||
	    !bpf_core_enum_value_exists(enum cgroup_subsys_id, memory_cgrp_id))
		return 0;
	id = bpf_core_enum_value(enum cgroup_subsys_id, memory_cgrp_id);
	set = BPF_CORE_READ(victim, cgroups);
	bpf_probe_read_kernel(&css, sizeof(css),
			      (void *)set + bpf_core_field_offset(struct css_set, subsys) + id * sizeof(css));
	for (i = 0; i < MEMCG_DEPTH && css; i++) {
		cg = (void *)css - bpf_core_field_offset(struct mem_cgroup___dl, css);
		if (level_full(&e->ev, cg)) {
			kn = BPF_CORE_READ(css, cgroup, kn);
			e->ev.cgroup_id = BPF_CORE_READ(kn, id);
			n = bpf_probe_read_kernel_str(e->name, sizeof(e->name), BPF_CORE_READ(kn, name));
			return DL_TEXT_LEN(n, DL_TAIL_MAX);
		}
		css = BPF_CORE_READ(css, parent);
	}
	return 0;
}

static __always_inline void out_oom(struct task_struct *victim, __u32 tid)
{
	__u64 id = bpf_get_current_pid_tgid(), now = bpf_ktime_get_ns();
	struct oom_event e = {};
	__u64 n = 0;

	e.ev.target_tid = tid;
	e.ev.target_pid = tid;
	if (victim) {
		e.ev.target_pid = BPF_CORE_READ(victim, tgid);
		fill_memory(&e.ev, victim);
		n = fill_cgroup(&e, victim);
	}
	n &= DL_TAIL_MAX - 1;	/* for the verifier */
	dl_hdr_init(&e.ev.h, DL_EV_OOM_KILL, sizeof(e.ev) + n, now, id >> 32, id);
	if (!dl_target_of(id >> 32)) {
		struct task_struct *cur = (void *)bpf_get_current_task();

		e.ev.h.flags = DL_HDR_FOREIGN;
		if (id)
			dl_name_foreign(cur, id >> 32, id, BPF_CORE_READ(cur, flags), now);
	}
	if (!dl_target_of(e.ev.target_pid)) {
		e.ev.flags |= DL_OOM_FOREIGN;
		if (victim)
			dl_name_foreign(victim, e.ev.target_pid, tid, 0, now);
	}
	dl_out_crash(&e, sizeof(e.ev) + n, DL_EV_OOM_KILL);
}

/* commit 72ba14deb40a ("mm: update mark_victim tracepoints fields"), 6.9 and stable */
SEC("?tp_btf/mark_victim")
int BPF_PROG(dl_oom, struct task_struct *victim)
{
	out_oom(victim, victim->pid);
	return 0;
}

/*
 * Before it, the tracepoint has only a pid, and no helper turns that into a task. But
 * __oom_kill_process() sends the victim its SIGKILL right before, from the same thread: that
 * signal's task is kept here until then. A victim that was dying anyway gets no signal, and its
 * event says no more than its pid.
 */
struct oom_kill {
	__u32 killer;
	__u32 tid;
	struct task_struct *victim;
};

static struct oom_kill dl_oom_kills[64];

SEC("?tp_btf/signal_generate")
int BPF_PROG(dl_oom_signal, int sig, struct kernel_siginfo *info, struct task_struct *t)
{
	__u32 tid = bpf_get_current_pid_tgid();
	struct oom_kill *k = &dl_oom_kills[tid & 63];

	if (sig != SIGKILL || (unsigned long)info != SEND_SIG_PRIV)
		return 0;
	k->killer = tid;
	k->tid = t->pid;
	k->victim = t;
	return 0;
}

SEC("?tp_btf/mark_victim")
int BPF_PROG(dl_oom_pid, int pid)
{
	__u32 tid = bpf_get_current_pid_tgid();
	struct oom_kill *k = &dl_oom_kills[tid & 63];
	struct task_struct *victim = NULL;

	if (k->killer == tid && k->tid == (__u32)pid)
		victim = k->victim;
	k->killer = 0;
	out_oom(victim, pid);
	return 0;
}
