/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * /proc as data. A process is held by the descriptor of its /proc/PID directory: what is read
 * through it is this process, never another one that got its number later (reads of a process that
 * is gone fail with ESRCH). Texts from /proc are parsed by functions of their own.
 */
#ifndef DLBPF_CAPTURE_PROC_H
#define DLBPF_CAPTURE_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/diag.h"
#include "base/vec.h"

#define DL_NS_PER_S 1000000000ULL

uint64_t dl_now_ns(void);	/* CLOCK_MONOTONIC */

/* Reads a small file, at most sz - 1 bytes, and ends it with a NUL. Bytes read or -errno. */
ssize_t dl_proc_read(int dirfd, const char *path, char *buf, size_t sz);
/* The same for a descriptor that stays open: from its beginning. */
ssize_t dl_pread_text(int fd, char *buf, size_t sz);
/* One number from a file; false when it is not there or no number ("max" is UINT64_MAX). */
bool dl_proc_read_u64(int dirfd, const char *path, uint64_t *ret);

/* "key value" or "key: value" lines; the number behind the key at the start of a line. */
bool dl_text_u64(const char *text, const char *key, uint64_t *ret);

/* Fields of /proc/PID/stat, of a process or a thread. */
struct dl_stat {
	char comm[16];		/* NUL-padded; full 15 characters and a NUL */
	char state;
	uint32_t ppid;
	uint32_t flags;		/* PF_* */
	int32_t nice;
	uint64_t cpu_ticks;	/* utime + stime */
	uint64_t start_ticks;	/* since boot */
};

/* Fields of /proc/PID/status; what a kernel does not give is 0. */
struct dl_status {
	uint32_t tgid, pid, ppid;
	uint32_t nstgid, nspid;	/* in the innermost PID namespace */
	uint32_t uid, gid;	/* real */
	uint32_t threads;
	uint32_t umask;
	uint64_t sig_blocked, sig_caught;
	uint64_t cpus_allowed;	/* how many */
	uint64_t rss_anon, rss_file, rss_shmem, swap, pgtables, locked, pinned;	/* bytes */
	uint64_t libs;		/* code of libraries that is mapped, bytes */
};

#define DL_PF_KTHREAD 0x00200000	/* include/linux/sched.h, the same since 2.6.27 */

bool dl_parse_stat(const char *text, struct dl_stat *ret);
bool dl_parse_status(const char *text, struct dl_status *ret);

/* /proc/PID/syscall: number and arguments, -1 in the kernel without one, -2 when running. */
bool dl_parse_syscall(const char *text, int32_t *ret_nr, uint64_t *ret_arg0, uint64_t *ret_arg1);

/* /proc/PID, or a thread's /proc/PID/task/TID below it (tid 0: the process). */
int dl_proc_open(uint32_t pid);
int dl_proc_stat(int proc_fd, uint32_t tid, struct dl_stat *ret);
int dl_proc_status(int proc_fd, uint32_t tid, struct dl_status *ret);

/* Calls fn for each thread id until it returns non-zero, which is then returned. */
int dl_proc_each_tid(int proc_fd, int (*fn)(uint32_t tid, void *arg), void *arg);

/* NUL-separated strings of /proc/PID/environ or cmdline, the whole file up to max bytes. The
 * text is the caller's, ends with two NULs, and its length is stored without these. */
int dl_proc_strings(int proc_fd, const char *name, size_t max, char **ret, size_t *ret_len);

/* What such strings of an environment say of a variable, as getenv() would; NULL when it is not set. */
const char *dl_proc_var(const char *env, size_t len, const char *name);

/* The command line with one space between arguments; "" for none. Bytes clipped to sz. */
int dl_proc_cmdline(int proc_fd, char *buf, size_t sz, uint32_t *ret_argc);

/* A path of /proc/PID/mountinfo, which writes space, tab, newline and backslash as octal escapes; the caller's,
 * NULL with no memory. */
char *dl_mount_path(const char *s, size_t len);

/*
 * Size of the file system of a device (kernel encoding) and what ordinary users may not use of it, in bytes,
 * where a process sees it mounted. False when it is not, or is on no block device: a server need not answer.
 */
bool dl_fs_room(int proc_fd, uint32_t dev, uint64_t *ret_total, uint64_t *ret_used);

struct dl_pid_pair {
	uint32_t pid, ppid;
};

/* Every process that can be seen, and its parent. */
struct dl_pid_list {
	struct dl_pid_pair *v;
	size_t cnt, cap;
};

int dl_proc_list(struct dl_pid_list *ret);

/* Can the process be a target? Fails with a message for those that cannot: no such process, a
 * thread, a kernel thread, a zombie, the recorder itself or a process above it. */
int dl_proc_check_target(uint32_t pid, struct dl_diag *d);

/* Ticks of /proc/PID/stat's start as CLOCK_MONOTONIC; 0 when it lies before that clock began. */
uint64_t dl_start_ns(uint64_t start_ticks);

/* Kernel encoding (major << 20 | minor) of a st_dev. */
uint32_t dl_dev(dev_t dev);

#endif
