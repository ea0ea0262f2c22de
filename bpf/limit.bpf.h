/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Which limit a failed system call ran into, and how much of it was used: looked up where it failed,
 * since a moment later the thread has given back what it had. */
#ifndef DLBPF_LIMIT_BPF_H
#define DLBPF_LIMIT_BPF_H

#include "fail.bpf.h"

#define ENOENT 2
#define EIO 5
#define EAGAIN 11
#define ENOMEM 12
#define ENFILE 23
#define EMFILE 24
#define EFBIG 27
#define ENOSPC 28
#define ENOTCONN 107	/* a FUSE file system whose daemon is gone */
#define ETOOMANYREFS 109	/* too many descriptors are on their way through sockets */
#define ESTALE 116	/* a file of a server that no longer has it */
#define EDQUOT 122
#define EHWPOISON 133

#define CLONE_THREAD 0x00010000
#define RLIMIT_FSIZE 1
#define RLIMIT_DATA 2
#define RLIMIT_NPROC 6
#define RLIMIT_NOFILE 7
#define RLIMIT_MEMLOCK 8
#define RLIMIT_AS 9

#define PIDS_DEPTH 16

const volatile __u32 dl_max_maps = 0;	/* vm.max_map_count; set by userspace before loading */

/* Too large for the stack. */
struct fail_scratch {
	struct dl_ev_syscall_fail ev;
	char text[TEXT_MAX];
};

#define RLIM(t, which) BPF_CORE_READ(t, signal, rlim[which].rlim_cur)

static __always_inline void met(struct dl_ev_syscall_fail *ev, __u16 of, __u64 used, __u64 limit)
{
	ev->of = of;
	ev->used = used;
	ev->limit = limit;
}

/*
 * Whether all descriptors below the limit are in use, by the table's bitmap of full words; for limits
 * up to 64 * 64 * FULL_WORDS. For recvmsg, which does not say why it drops descriptors.
 */
#define FULL_WORDS 32
static __always_inline bool is_table_full(struct task_struct *t, __u64 limit)
{
	struct fdtable *fdt = BPF_CORE_READ(t, files, fdt);
	unsigned long *full = BPF_CORE_READ(fdt, full_fds_bits), *open = BPF_CORE_READ(fdt, open_fds), word = 0;
	__u64 left = limit >> 6;
	int i;

	if (!limit || BPF_CORE_READ(fdt, max_fds) < limit || left > 64 * FULL_WORDS)
		return false;
	for (i = 0; i < FULL_WORDS && left >= 64; i++, left -= 64) {
		if (bpf_probe_read_kernel(&word, sizeof(word), full + i) || word != ~0UL)
			return false;
	}
	if (left && left < 64 && (bpf_probe_read_kernel(&word, sizeof(word), full + i) || ~word & (BIT(left) - 1)))
		return false;
	if (!(limit & 63))
		return true;
	return !bpf_probe_read_kernel(&word, sizeof(word), open + (limit >> 6)) && !(~word & (BIT(limit & 63) - 1));
}

/* Why there was no memory: the limits that make mmap(2) and its like fail. */
static __always_inline void why_no_memory(struct dl_ev_syscall_fail *ev, struct task_struct *t, __u8 flags)
{
	struct mm_struct *mm = BPF_CORE_READ(t, mm);
	__u64 maps, limit, used;

	if (!mm)
		return;
	maps = (__u32)BPF_CORE_READ(mm, map_count);
	if (flags & DL_FC_MAPS && dl_max_maps && maps >= dl_max_maps) {
		met(ev, DL_LIMIT_MAPS, maps, dl_max_maps);
		return;
	}
	if (flags & DL_FC_LOCK || ev->err == EAGAIN) {
		limit = RLIM(t, RLIMIT_MEMLOCK);
		used = BPF_CORE_READ(mm, locked_vm) * dl_page_sz;
		if (limit != ~0ULL && used + ev->bytes > limit)
			met(ev, DL_LIMIT_MEMLOCK, used, limit);
		return;
	}
	if (!(flags & DL_FC_MAPS))
		return;
	limit = RLIM(t, RLIMIT_AS);
	used = BPF_CORE_READ(mm, total_vm) * dl_page_sz;
	if (limit != ~0ULL && used + ev->bytes > limit) {
		met(ev, DL_LIMIT_AS, used, limit);
		return;
	}
	limit = RLIM(t, RLIMIT_DATA);
	used = BPF_CORE_READ(mm, data_vm) * dl_page_sz;
	if (limit != ~0ULL && used + ev->bytes > limit)
		met(ev, DL_LIMIT_DATA, used, limit);
}

/* Absent without CONFIG_CGROUP_PIDS. */
struct pids_cgroup___dl {
	struct cgroup_subsys_state css;
	atomic64_t counter;
	atomic64_t limit;
} __dl_core;

/* The first full level from the thread's own cgroup up; the length of its name, 0 when none is. */
static __always_inline __s64 find_full_pids(struct fail_scratch *e, struct task_struct *t)
{
	struct cgroup_subsys_state *css;
	struct pids_cgroup___dl *cg;
	struct css_set *set;
	__s64 used, limit;
	__u32 id, i;

	if (!bpf_core_type_exists(struct pids_cgroup___dl) ||
	    !bpf_core_enum_value_exists(enum cgroup_subsys_id, pids_cgrp_id))
		return 0;
	id = bpf_core_enum_value(enum cgroup_subsys_id, pids_cgrp_id);
	set = BPF_CORE_READ(t, cgroups);
	if (bpf_probe_read_kernel(&css, sizeof(css),
				  (void *)set + bpf_core_field_offset(struct css_set, subsys) + id * sizeof(css)))
		return 0;
	for (i = 0; i < PIDS_DEPTH && css; i++) {
		cg = (void *)css - bpf_core_field_offset(struct pids_cgroup___dl, css);
		used = BPF_CORE_READ(cg, counter.counter);
		limit = BPF_CORE_READ(cg, limit.counter);
		if (used >= limit) {
			met(&e->ev, DL_LIMIT_PIDS, used, limit);
			e->ev.flags |= DL_SF_CGROUP;
			return bpf_probe_read_kernel_str(e->text, sizeof(e->text), BPF_CORE_READ(css, cgroup, kn, name));
		}
		css = BPF_CORE_READ(css, parent);
	}
	return 0;
}

struct user_struct___dl { atomic_t processes; } __dl_core;
struct ucounts___dl_mid { atomic_long_t ucount[1]; } __dl_core;
struct ucounts___dl_new { atomic_long_t rlimit[1]; } __dl_core;
struct cred___dl { struct user_struct___dl *user; struct ucounts___dl_new *ucounts; } __dl_core;
enum ucount_type___dl { UCOUNT_RLIMIT_NPROC___dl = 1 };

/*
 * Threads of the thread's user, as RLIMIT_NPROC counts them. Commit 21d1c5e386bc ("Reimplement
 * RLIMIT_NPROC on top of ucounts"), 5.14, moved the count; de399236e240 ("ucounts: Split rlimit and ucount
 * values and max values"), 6.0, gave it an array of its own, where it is the first.
 */
static __always_inline __u64 user_threads(struct task_struct *t)
{
	struct cred___dl *cred = (void *)BPF_CORE_READ(t, cred);
	struct user_struct___dl *user = NULL;
	struct ucounts___dl_mid *mid;
	struct ucounts___dl_new *ucounts;
	__u64 n = 0;

	if (bpf_core_field_exists(user->processes)) {
		user = BPF_CORE_READ(cred, user);
		return (__u32)BPF_CORE_READ(user, processes.counter);
	}
	if (!bpf_core_field_exists(cred->ucounts))
		return 0;
	ucounts = BPF_CORE_READ(cred, ucounts);
	mid = (void *)ucounts;
	if (bpf_core_field_exists(ucounts->rlimit))
		bpf_core_read(&n, sizeof(n), &ucounts->rlimit);
	else if (bpf_core_enum_value_exists(enum ucount_type___dl, UCOUNT_RLIMIT_NPROC___dl))
		bpf_probe_read_kernel(&n, sizeof(n), (void *)mid + bpf_core_field_offset(struct ucounts___dl_mid, ucount) +
				      8 * bpf_core_enum_value(enum ucount_type___dl, UCOUNT_RLIMIT_NPROC___dl));
	return n;
}

/* A new thread or process. */
static __always_inline __s64 why_no_process(struct fail_scratch *e, struct task_struct *t, const struct dl_regs *r,
					    __u8 flags)
{
	__u64 clone_flags = 0, used, limit;
	__s64 n;

	if (flags & DL_FC_CLONE)
		clone_flags = r->a[0];
	else if (flags & DL_FC_CLONE3)
		bpf_probe_read_user(&clone_flags, sizeof(clone_flags), (void *)r->a[0]);
	e->ev.flags |= clone_flags & CLONE_THREAD ? DL_SF_THREAD : DL_SF_FORK;
	if (e->ev.err != EAGAIN)
		return 0;
	n = find_full_pids(e, t);
	if (n > 0)
		return n;
	limit = RLIM(t, RLIMIT_NPROC);
	used = user_threads(t);
	if (limit != ~0ULL && used >= limit)
		met(&e->ev, DL_LIMIT_NPROC, used, limit);
	return 0;
}

static __always_inline void why_no_room(struct dl_ev_syscall_fail *ev, struct file *file)
{
	struct shmem_sb_info *info;
	__u64 max;
	__s64 used;

	if (ev->file_magic != TMPFS_MAGIC)
		return;
	info = BPF_CORE_READ(file, f_inode, i_sb, s_fs_info);
	max = info ? BPF_CORE_READ(info, max_blocks) : 0;
	if (!max)
		return;
	/* It lags by what each CPU holds back, some dozens of pages. */
	used = BPF_CORE_READ(info, used_blocks.count);
	met(ev, DL_LIMIT_FS, used > 0 ? used * dl_page_sz : 0, max * dl_page_sz);
}

/* Which limit it was, where that can be told here; the length of a cgroup's name, or 0. */
static __always_inline __s64 find_limit(struct fail_scratch *e, struct task_struct *t, const struct dl_regs *r,
					struct file *file, __u8 flags)
{
	struct dl_ev_syscall_fail *ev = &e->ev;
	__u64 limit;

	if (flags & (DL_FC_FORK | DL_FC_CLONE | DL_FC_CLONE3))
		return why_no_process(e, t, r, flags);
	switch (ev->err) {
	case EMFILE:	/* inotify and the like have limits of their own that give it too */
		limit = RLIM(t, RLIMIT_NOFILE);
		if (limit > 64 * 64 * FULL_WORDS || is_table_full(t, limit))
			met(ev, DL_LIMIT_FDS, limit, limit);
		break;
	case ETOOMANYREFS:	/* the same limit, of those that are on their way */
		met(ev, DL_LIMIT_FDS, 0, RLIM(t, RLIMIT_NOFILE));
		break;
	case ENFILE:
		ev->of = DL_LIMIT_FILES;
		break;
	case EFBIG:
		if (RLIM(t, RLIMIT_FSIZE) != ~0ULL)
			met(ev, DL_LIMIT_FSIZE, 0, RLIM(t, RLIMIT_FSIZE));
		break;
	case EAGAIN:
	case ENOMEM:
		why_no_memory(ev, t, flags);
		break;
	case ENOSPC:
	case EDQUOT:
		if (file)
			why_no_room(ev, file);
		else if (ev->flags & DL_SF_SHM && ev->err == ENOSPC)
			ev->of = DL_LIMIT_INODES;	/* a new name takes no room in a tmpfs */
		break;
	}
	return 0;
}

#endif
