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

static __always_inline __u16 dl_sock_kind(struct file *file)
{
	/* private_data of a socket's file is the socket */
	struct socket *sock = BPF_CORE_READ(file, private_data);

	switch (BPF_CORE_READ(sock, sk, __sk_common.skc_family)) {
	case AF_UNIX:
		return DL_FILE_UNIX;
	case AF_INET:
	case AF_INET6:
		return DL_FILE_INET;
	}
	return DL_FILE_SOCK;
}

static __always_inline void dl_file_read(struct dl_file *out, struct file *file)
{
	struct inode *inode = BPF_CORE_READ(file, f_inode);
	struct super_block *sb = BPF_CORE_READ(inode, i_sb);
	__u32 magic = BPF_CORE_READ(sb, s_magic);

	out->ino = BPF_CORE_READ(inode, i_ino);
	out->dev = BPF_CORE_READ(sb, s_dev);
	out->magic = magic;
	/* Since 6.16 anonymous inodes say S_IFREG, before they said nothing. */
	if (magic == ANON_INODE_FS_MAGIC || magic == PIDFS_MAGIC) {
		out->kind = DL_FILE_ANON;
		return;
	}
	switch (BPF_CORE_READ(inode, i_mode) & S_IFMT) {
	case S_IFIFO:
		out->kind = DL_FILE_FIFO;
		break;
	case S_IFSOCK:
		out->kind = dl_sock_kind(file);
		break;
	case S_IFREG:
		out->kind = DL_FILE_REG;
		break;
	case S_IFDIR:
		out->kind = DL_FILE_DIR;
		break;
	case S_IFBLK:
		out->kind = DL_FILE_BLK;
		break;
	case S_IFCHR:
		out->kind = DL_FILE_CHR;
		break;
	default:
		out->kind = DL_FILE_ANON;
	}
}

/* The open file behind a descriptor of t, or NULL. */
static __always_inline struct file *dl_fd_file(struct task_struct *t, __u32 fd)
{
	struct files_struct *files = t->files;
	struct file *file = NULL;
	struct fdtable *fdt;
	struct file **slots;

	if (!files)
		return NULL;
	fdt = files->fdt;
	if (!fdt || fd >= fdt->max_fds)
		return NULL;
	slots = fdt->fd;
	if (bpf_probe_read_kernel(&file, sizeof(file), slots + fd))
		return NULL;
	return file;
}

/* The same of a task that the verifier does not know. */
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
