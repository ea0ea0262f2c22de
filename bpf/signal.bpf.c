/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Signals to recorded threads: who sent them, who took them, and what was mapped at a SIGBUS. */
#include "signal.bpf.h"
#include "vma.bpf.h"

static __always_inline void fill_sender(struct dl_ev_signal *ev)
{
	struct task_struct *cur = (void *)bpf_get_current_task();

	ev->sender_ppid = BPF_CORE_READ(cur, real_parent, tgid);
	ev->sender_uid = bpf_get_current_uid_gid();
	bpf_get_current_comm(&ev->sender_comm, sizeof(ev->sender_comm));
}

SEC("?tp_btf/signal_generate")
int BPF_PROG(dl_signal, int sig, struct kernel_siginfo *info, struct task_struct *t, int group, int result)
{
	__u64 id = bpf_get_current_pid_tgid();
	struct dl_ev_signal ev = {};
	struct dl_regs r;
	int code;

	if (!dl_target_of(t->tgid))
		return 0;
	code = sig_code(info);
	if (code == SI_TIMER)	/* profilers: hundreds a second, and never a reason to die */
		return 0;
	if (sig_left_out(sig))
		return 0;
	dl_hdr_init(&ev.h, DL_EV_SIGNAL, sizeof(ev), bpf_ktime_get_ns(), id >> 32, id);
	if (!dl_target_of(id >> 32))
		ev.h.flags = DL_HDR_FOREIGN;
	ev.target_tid = t->pid;
	ev.target_pid = t->tgid;
	ev.sig = sig;
	ev.code = code;
	if (is_fault(sig, code))
		ev.addr = (__u64)BPF_CORE_READ(info, _sifields._sigfault._addr);
	if ((__u32)id == ev.target_tid) {
		dl_current_regs(&r);
		ev.ip = r.ip;
	}
	ev.result = result;
	ev.group = group != 0;	/* enum pid_type: 0 is one thread */
	fill_sender(&ev);
	dl_out_crash(&ev, sizeof(ev), DL_EV_SIGNAL);
	return 0;
}

SEC("?tp_btf/signal_deliver")
int BPF_PROG(dl_deliver, int sig, struct kernel_siginfo *info, struct k_sigaction *ka)
{
	__u64 id = bpf_get_current_pid_tgid();
	struct dl_ev_signal_deliver ev = {};
	int code;

	if (!dl_target_of(id >> 32))
		return 0;
	code = sig_code(info);
	if (code == SI_TIMER || sig_left_out(sig))
		return 0;
	dl_hdr_init(&ev.h, DL_EV_SIGNAL_DELIVER, sizeof(ev), bpf_ktime_get_ns(), id >> 32, id);
	ev.sig = sig;
	ev.code = code;
	ev.handler = (__u64)BPF_CORE_READ(ka, sa.sa_handler);
	dl_out_crash(&ev, sizeof(ev), DL_EV_SIGNAL_DELIVER);
	return 0;
}

struct sigbus_event {
	struct dl_ev_sigbus_map ev;
	char name[DL_TAIL_MAX];
};

/* Size and use of a tmpfs. The use lags by what each CPU holds back, some dozens of pages. */
static __always_inline void fill_fs(struct dl_ev_sigbus_map *ev, struct file *file)
{
	struct shmem_sb_info *info;
	__s64 used;

	if (ev->file_magic != TMPFS_MAGIC)
		return;
	info = BPF_CORE_READ(file, f_inode, i_sb, s_fs_info);
	if (!info)
		return;
	used = BPF_CORE_READ(info, used_blocks.count);
	ev->fs_total = BPF_CORE_READ(info, max_blocks) * dl_page_sz;
	ev->fs_used = used > 0 ? used * dl_page_sz : 0;
}

static __always_inline __u64 fill_map(struct sigbus_event *e, struct dl_vma *vma)
{
	struct dl_ev_sigbus_map *ev = &e->ev;
	struct file *file = vma->file;
	struct dl_file f = {};
	__s64 n;

	ev->vma_start = vma->start;
	ev->vma_end = vma->end;
	ev->file_off = vma->pgoff * dl_page_sz + (ev->addr - vma->start);
	ev->fault_flags = (vma->flags & VM_WRITE ? DL_SB_WRITE : 0) | (vma->flags & VM_SHARED ? DL_SB_SHARED : 0) |
			  (vma->flags & VM_HUGETLB ? DL_SB_HUGETLB : 0);
	if (!file)
		return 0;
	dl_file_read(&f, file);
	ev->file_ino = f.ino;
	ev->file_dev = f.dev;
	ev->file_magic = f.magic;
	ev->file_sz = BPF_CORE_READ(file, f_inode, i_size);
	/* The last page of a file is mapped whole. */
	if (ev->file_off >= ((ev->file_sz + dl_page_sz - 1) & ~((__u64)dl_page_sz - 1)))
		ev->fault_flags |= DL_SB_PAST_END;
	fill_fs(ev, file);
	n = bpf_probe_read_kernel_str(e->name, sizeof(e->name), BPF_CORE_READ(file, f_path.dentry, d_name.name));
	return DL_TEXT_LEN(n, DL_TAIL_MAX);
}

static __always_inline int on_sigbus(int sig, struct kernel_siginfo *info, struct task_struct *t,
				     enum dl_vma_how how)
{
	__u64 id = bpf_get_current_pid_tgid();
	struct sigbus_event e = {};
	struct dl_vma vma = {};
	__u64 n = 0;

	if (sig != SIGBUS || (__u32)id != (__u32)t->pid || !dl_target_of(id >> 32) || !is_fault(sig, sig_code(info)))
		return 0;
	e.ev.addr = (__u64)BPF_CORE_READ(info, _sifields._sigfault._addr);
	dl_vma_find(&vma, e.ev.addr, how);
	if (vma.found)
		n = fill_map(&e, &vma);
	else
		e.ev.fault_flags = DL_SB_NO_VMA;
	n &= DL_TAIL_MAX - 1;	/* for the verifier */
	dl_hdr_init(&e.ev.h, DL_EV_SIGBUS_MAP, sizeof(e.ev) + n, bpf_ktime_get_ns(), id >> 32, id);
	dl_out_crash(&e, sizeof(e.ev) + n, DL_EV_SIGBUS_MAP);
	return 0;
}

SEC("?tp_btf/signal_generate")
int BPF_PROG(dl_sigbus_vma, int sig, struct kernel_siginfo *info, struct task_struct *t)
{
	return on_sigbus(sig, info, t, DL_VMA_HELPER);
}

SEC("?tp_btf/signal_generate")
int BPF_PROG(dl_sigbus_rb, int sig, struct kernel_siginfo *info, struct task_struct *t)
{
	return on_sigbus(sig, info, t, DL_VMA_RB);
}

SEC("?tp_btf/signal_generate")
int BPF_PROG(dl_sigbus, int sig, struct kernel_siginfo *info, struct task_struct *t)
{
	return on_sigbus(sig, info, t, DL_VMA_NONE);
}
