/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What is behind a descriptor or a mapping: inode, device, file system, kind. */
#ifndef DLBPF_FILE_BPF_H
#define DLBPF_FILE_BPF_H

#include "dlbpf.bpf.h"

#define S_IFMT 0170000
#define S_IFSOCK 0140000
#define S_IFREG 0100000
#define S_IFBLK 0060000
#define S_IFDIR 0040000
#define S_IFCHR 0020000
#define S_IFIFO 0010000
#define AF_UNIX 1
#define AF_INET 2
#define AF_INET6 10
#define TMPFS_MAGIC 0x01021994
#define ANON_INODE_FS_MAGIC 0x09041934
#define PIDFS_MAGIC 0x50494446

struct dl_file {
	__u64 ino;
	__u32 dev;
	__u32 magic;
	__u16 kind;	/* enum dl_file_kind */
};

/*
 * How what hangs off a pointer that the verifier does not know is read: by helper calls, some 10 ns a
 * field, or, since commit a35b9af4ec2c ("bpf: Add a kfunc for generic type cast", 6.2), by plain loads,
 * which fault as harmlessly. A call of a function that the kernel lacks is refused even where it cannot
 * be reached (5.13 to 5.15), so programs that cast exist twice: see kernel_load.c.
 */
enum dl_read_how { DL_READ_HELPER, DL_READ_CAST };

extern void *bpf_rdonly_cast(const void *obj__ign, u32 btf_id__k) __ksym __weak;

#define DL_CAST(type, p) ((type *)bpf_rdonly_cast(p, bpf_core_type_id_kernel(type)))

static __always_inline __u16 dl_sock_kind(__u16 family)
{
	switch (family) {
	case AF_UNIX:
		return DL_FILE_UNIX;
	case AF_INET:
	case AF_INET6:
		return DL_FILE_INET;
	}
	return DL_FILE_SOCK;
}

static __always_inline __u16 dl_mode_kind(__u32 mode)
{
	switch (mode & S_IFMT) {
	case S_IFIFO:
		return DL_FILE_FIFO;
	case S_IFREG:
		return DL_FILE_REG;
	case S_IFDIR:
		return DL_FILE_DIR;
	case S_IFBLK:
		return DL_FILE_BLK;
	case S_IFCHR:
		return DL_FILE_CHR;
	}
	return DL_FILE_ANON;
}

/* Since 6.16 anonymous inodes say S_IFREG, before they said nothing. */
static __always_inline bool dl_is_anon(__u32 magic)
{
	return magic == ANON_INODE_FS_MAGIC || magic == PIDFS_MAGIC;
}

static __always_inline void dl_file_read(struct dl_file *out, struct file *file)
{
	struct inode *inode = BPF_CORE_READ(file, f_inode);
	struct super_block *sb = BPF_CORE_READ(inode, i_sb);
	__u32 mode = BPF_CORE_READ(inode, i_mode);

	out->ino = BPF_CORE_READ(inode, i_ino);
	out->dev = BPF_CORE_READ(sb, s_dev);
	out->magic = BPF_CORE_READ(sb, s_magic);
	if (dl_is_anon(out->magic)) {
		out->kind = DL_FILE_ANON;
	} else if ((mode & S_IFMT) == S_IFSOCK) {
		/* private_data of a socket's file is the socket */
		struct socket *sock = BPF_CORE_READ(file, private_data);

		out->kind = dl_sock_kind(BPF_CORE_READ(sock, sk, __sk_common.skc_family));
	} else {
		out->kind = dl_mode_kind(mode);
	}
}

/* The same by plain loads. */
static __always_inline void dl_file_load(struct dl_file *out, struct file *file)
{
	struct inode *inode = file->f_inode;
	struct super_block *sb;

	if (!inode)
		return;
	sb = inode->i_sb;
	if (!sb)
		return;
	out->ino = inode->i_ino;
	out->dev = sb->s_dev;
	out->magic = sb->s_magic;
	if (dl_is_anon(out->magic)) {
		out->kind = DL_FILE_ANON;
	} else if ((inode->i_mode & S_IFMT) == S_IFSOCK) {
		struct socket *sock = DL_CAST(struct socket, file->private_data);
		struct sock *sk = sock->sk;

		out->kind = sk ? dl_sock_kind(sk->__sk_common.skc_family) : DL_FILE_SOCK;
	} else {
		out->kind = dl_mode_kind(inode->i_mode);
	}
}

/* The slot of a descriptor of t in its table of open files, or NULL. */
static __always_inline struct file **dl_fd_slot(struct task_struct *t, __u32 fd)
{
	struct files_struct *files = t->files;
	struct fdtable *fdt;

	if (!files)
		return NULL;
	fdt = files->fdt;
	if (!fdt || fd >= fdt->max_fds)
		return NULL;
	return fdt->fd + fd;
}

/* Fills in the open file behind a descriptor of t; false when there is none. */
static __always_inline bool dl_fd_read(struct dl_file *out, struct task_struct *t, __u32 fd, enum dl_read_how how)
{
	struct file **slot = dl_fd_slot(t, fd), *file = NULL;

	if (!slot)
		return false;
	if (how == DL_READ_CAST) {
		/* Types that can be cast to are structs: one that is nothing but a pointer. */
		file = DL_CAST(struct file, DL_CAST(struct llist_node, slot)->next);
		if (!file)
			return false;
		dl_file_load(out, file);
		return true;
	}
	if (bpf_probe_read_kernel(&file, sizeof(file), slot) || !file)
		return false;
	dl_file_read(out, file);
	return true;
}

/* The open file behind a descriptor of a task that the verifier does not know, or NULL. */
static __always_inline struct file *dl_fd_file_read(struct task_struct *t, __u32 fd)
{
	struct fdtable *fdt = BPF_CORE_READ(t, files, fdt);
	struct file *file = NULL;

	if (!fdt || fd >= BPF_CORE_READ(fdt, max_fds))
		return NULL;
	if (bpf_probe_read_kernel(&file, sizeof(file), BPF_CORE_READ(fdt, fd) + fd))
		return NULL;
	return file;
}

#endif
