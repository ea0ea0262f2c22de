/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Shared memory objects that somebody outside the recorded tree removes; a part of fail.bpf.c. */
#ifndef DLBPF_UNLINK_BPF_H
#define DLBPF_UNLINK_BPF_H

#include "fail.bpf.h"

#define AT_FDCWD -100
#define AT_REMOVEDIR 0x200
#define UNLINKS_A_SECOND 64

const volatile __s64 dl_nr_unlinkat = -1;	/* set by userspace before loading */

struct unlink_scratch {
	struct dl_ev_shm_unlink ev;
	char text[TEXT_MAX];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct unlink_scratch);
} dl_unlink_scratch SEC(".maps");

/*
 * Where the last component of a path begins. Without a branch for each byte: the verifier would follow
 * both ways of each (newer ones also of a mask that is 0 or -1), and clang makes one unless the assembler
 * hides what is computed. Bytes behind the text's end are 0.
 */
static __always_inline __u32 last_component(const char *text)
{
	__u32 last = 0, i;

	for (i = 0; i < TEXT_MAX - 1; i++) {
		__u32 differs = (__u8)text[i] ^ '/';
		__u32 is = (differs - 1) >> 31;	/* 1 for a slash */

		asm volatile("" : "+r"(is));
		last = last * (1 - is) + (i + 1) * is;
	}
	return last & (TEXT_MAX - 1);
}

/* The directory of a name without one: that of a descriptor, or the working directory. */
static __always_inline struct super_block *dir_of(struct task_struct *t, __s32 fd)
{
	struct file *file;

	if (fd == AT_FDCWD)
		return BPF_CORE_READ(t, fs, pwd.dentry, d_sb);
	file = fd < 0 ? NULL : dl_fd_file_read(t, fd);
	return file ? BPF_CORE_READ(file, f_inode, i_sb) : NULL;
}

/* The process that made an object, as its name says: "torch_PID_..." */
static __always_inline __u32 owner_of(const char *name)
{
	__u32 pid = 0, i;

	if (name[0] != 't')
		return 0;
	for (i = 6; i < 16; i++) {
		__u8 digit = name[i] - '0';

		if (digit > 9)
			break;
		pid = pid * 10 + digit;
	}
	return pid;
}

/*
 * Reads the last component into e->text and returns its length with the NUL; 0 when it is none of ours or
 * not in /dev/shm. The path is
 * still where the call found it. Where the directory is part of it, that must be named "shm" (also that
 * of a container, seen from outside); else it must be a tmpfs.
 */
static __always_inline __s64 read_name(struct unlink_scratch *e, struct task_struct *t, __u64 path, __s32 fd)
{
	struct super_block *sb;
	char dir[4] = {};
	__u32 last;
	__s64 n;

	__builtin_memset(e, 0, sizeof(*e));
	n = bpf_probe_read_user_str(e->text, sizeof(e->text), (void *)path);
	if (n < 5 || n >= TEXT_MAX)
		return 0;
	last = last_component(e->text);
	if (last)
		n = bpf_probe_read_user_str(e->text, sizeof(e->text), (void *)(path + last));
	if (n < 5 || !is_shm_name(e->text))
		return 0;
	if (last >= 4) {
		if (bpf_probe_read_user(dir, sizeof(dir), (void *)(path + last - 4)) ||
		    dir[0] != 's' || dir[1] != 'h' || dir[2] != 'm' || dir[3] != '/')
			return 0;
		return n;
	}
	sb = dir_of(t, fd);
	if (!sb || BPF_CORE_READ(sb, s_magic) != TMPFS_MAGIC)
		return 0;
	e->ev.file_dev = BPF_CORE_READ(sb, s_dev);
	return n;
}

/*
 * A success of unlink(2), by anybody. Of the recorded processes it is everyday work, since PyTorch
 * unlinks an object as soon as both sides have it open; so it is for what other jobs made themselves.
 */
static __always_inline int on_unlinked(struct pt_regs *regs, __s64 nr)
{
	__u64 id = bpf_get_current_pid_tgid(), now, len;
	__u32 zero = 0, skipped = 0, owner;
	struct unlink_scratch *e;
	struct task_struct *t, *parent;
	struct dl_regs r;
	bool at = nr == dl_nr_unlinkat;
	__s64 n;

	if (dl_target_of(id >> 32))
		return 0;
	dl_regs_from(&r, regs);
	if (at && r.a[2] & AT_REMOVEDIR)
		return 0;
	t = (void *)bpf_get_current_task();
	e = bpf_map_lookup_elem(&dl_unlink_scratch, &zero);
	if (!e || dl_task_compat_read(t))
		return 0;
	n = read_name(e, t, at ? r.a[1] : r.a[0], at ? (__s32)r.a[0] : AT_FDCWD);
	if (!n)
		return 0;
	owner = owner_of(e->text);
	if (owner && (owner == id >> 32 || owner == dl_ns_id(BPF_CORE_READ(t, group_leader))))
		return 0;
	now = bpf_ktime_get_ns();
	if (is_too_many(id, nr, 0, UNLINKS_A_SECOND, now, &skipped))
		return 0;
	e->ev.owner = owner;
	e->ev.skipped = skipped;
	e->ev.sender_ppid = BPF_CORE_READ(t, real_parent, tgid);
	e->ev.sender_uid = bpf_get_current_uid_gid();
	bpf_get_current_comm(&e->ev.sender_comm, sizeof(e->ev.sender_comm));
	parent = BPF_CORE_READ(t, real_parent);
	bpf_core_read_str(&e->ev.parent_comm, sizeof(e->ev.parent_comm), &parent->comm);
	dl_hdr_init(&e->ev.h, DL_EV_SHM_UNLINK, 0, now, id >> 32, id);
	e->ev.h.flags = DL_HDR_FOREIGN;
	len = DL_TEXT_LEN(n, TEXT_MAX);
	e->ev.h.size = sizeof(e->ev) + len;
	dl_out_crash(e, sizeof(e->ev) + len, DL_EV_SHM_UNLINK);
	return 0;
}

#endif
