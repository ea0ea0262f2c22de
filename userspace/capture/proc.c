/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Reading /proc: files, lists of processes and threads, and what makes a process a target. */
#include "capture/proc.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/str.h"

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec ts;

	if (clock_gettime(clock, &ts))
		return 0;
	return (uint64_t)ts.tv_sec * DL_NS_PER_S + (uint64_t)ts.tv_nsec;
}

uint64_t dl_now_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

uint64_t dl_start_ns(uint64_t start_ticks)
{
	const uint64_t hz = (uint64_t)sysconf(_SC_CLK_TCK);
	const uint64_t start = start_ticks * (DL_NS_PER_S / (hz ? hz : 100));
	const uint64_t mono = clock_ns(CLOCK_MONOTONIC), boot = clock_ns(CLOCK_BOOTTIME);
	const uint64_t asleep = boot > mono ? boot - mono : 0;

	/* /proc counts from boot, the monotonic clock leaves out suspended time. */
	return start > asleep ? start - asleep : 0;
}

uint32_t dl_dev(dev_t dev)
{
	return major(dev) << 20 | (minor(dev) & 0xfffff);
}

ssize_t dl_pread_text(int fd, char *buf, size_t sz)
{
	size_t len = 0;
	ssize_t n;

	while (len < sz - 1) {
		n = pread(fd, buf + len, sz - 1 - len, (off_t)len);
		if (n < 0) {
			if (errno == EINTR)
				continue;
			return -errno;
		}
		if (!n)
			break;
		len += (size_t)n;
	}
	buf[len] = '\0';
	return (ssize_t)len;
}

ssize_t dl_proc_read(int dirfd, const char *path, char *buf, size_t sz)
{
	_cleanup_close_ int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC);

	return fd < 0 ? -errno : dl_pread_text(fd, buf, sz);
}

bool dl_proc_read_u64(int dirfd, const char *path, uint64_t *ret)
{
	char buf[64];

	if (dl_proc_read(dirfd, path, buf, sizeof(buf)) <= 0)
		return false;
	buf[strcspn(buf, "\n")] = '\0';
	if (!strcmp(buf, "max")) {
		*ret = UINT64_MAX;
		return true;
	}
	return dl_parse_u64(buf, ret);
}

bool dl_text_u64(const char *text, const char *key, uint64_t *ret)
{
	const size_t len = strlen(key);

	for (const char *line = text; line; line = strchr(line, '\n')) {
		char *end;

		line += *line == '\n';
		if (strncmp(line, key, len) || !strchr(": \t", line[len]) || !line[len])
			continue;
		line += len + strspn(line + len, ": \t");
		if (!isdigit((unsigned char)*line))
			return false;
		*ret = strtoull(line, &end, 10);
		return true;
	}
	return false;
}

int dl_proc_open(uint32_t pid)
{
	char path[32];
	int fd;

	snprintf(path, sizeof(path), "/proc/%" PRIu32, pid);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static ssize_t read_thread_file(int proc_fd, uint32_t tid, const char *name, char *buf, size_t sz)
{
	char path[64];

	if (!tid)
		return dl_proc_read(proc_fd, name, buf, sz);
	snprintf(path, sizeof(path), "task/%" PRIu32 "/%s", tid, name);
	return dl_proc_read(proc_fd, path, buf, sz);
}

int dl_proc_stat(int proc_fd, uint32_t tid, struct dl_stat *ret)
{
	char buf[1024];
	const ssize_t n = read_thread_file(proc_fd, tid, "stat", buf, sizeof(buf));

	if (n < 0)
		return (int)n;
	return dl_parse_stat(buf, ret) ? 0 : -ESRCH;
}

int dl_proc_status(int proc_fd, uint32_t tid, struct dl_status *ret)
{
	char buf[8192];		/* the list of groups may be long */
	const ssize_t n = read_thread_file(proc_fd, tid, "status", buf, sizeof(buf));

	if (n < 0)
		return (int)n;
	return dl_parse_status(buf, ret) ? 0 : -ESRCH;
}

/* Numbers of a directory such as /proc or /proc/PID/task. */
static int each_number(int dirfd, const char *name, int (*fn)(uint32_t nr, void *arg), void *arg)
{
	_cleanup_closedir_ DIR *dir = NULL;
	const struct dirent *de;
	int fd, ret = 0;

	fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	dir = dl_dir_of(fd);
	if (!dir)
		return -errno;
	while (!ret && (errno = 0, de = readdir(dir))) {
		uint64_t nr;

		if (dl_parse_u64(de->d_name, &nr) && nr && nr <= UINT32_MAX)
			ret = fn((uint32_t)nr, arg);
	}
	return ret ? ret : -errno;
}

int dl_proc_each_tid(int proc_fd, int (*fn)(uint32_t tid, void *arg), void *arg)
{
	return each_number(proc_fd, "task", fn, arg);
}

static int list_one(uint32_t pid, void *arg)
{
	struct dl_pid_list *list = arg;
	struct dl_pid_pair *pair;
	struct dl_stat st;
	char path[48], buf[1024];

	snprintf(path, sizeof(path), "/proc/%" PRIu32 "/stat", pid);
	if (dl_proc_read(AT_FDCWD, path, buf, sizeof(buf)) < 0 || !dl_parse_stat(buf, &st))
		return 0;	/* gone */
	pair = vec_push(list);
	if (!pair)
		return -ENOMEM;
	*pair = (struct dl_pid_pair){ pid, st.ppid };
	return 0;
}

int dl_proc_list(struct dl_pid_list *ret)
{
	struct dl_pid_list list = {};
	const int err = each_number(AT_FDCWD, "/proc", list_one, &list);

	if (err) {
		vec_free(&list);
		return err;
	}
	*ret = list;
	return 0;
}

int dl_proc_strings(int proc_fd, const char *name, size_t max, char **ret, size_t *ret_len)
{
	_cleanup_close_ int fd = openat(proc_fd, name, O_RDONLY | O_CLOEXEC);
	_cleanup_free_ char *buf = NULL;
	size_t len = 0, cap = 4096;
	ssize_t n;

	if (fd < 0)
		return -errno;
	for (;;) {
		char *more = realloc(buf, cap + 2);

		if (!more)
			return -ENOMEM;
		buf = more;
		n = read(fd, buf + len, cap - len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		len += (size_t)n;
		if (!n || len >= max)
			break;
		if (len == cap)
			cap *= 2;
	}
	if (len > max)
		len = max;
	buf[len] = buf[len + 1] = '\0';
	*ret = take_ptr(buf);
	*ret_len = len;
	return 0;
}

int dl_proc_cmdline(int proc_fd, char *buf, size_t sz, uint32_t *ret_argc)
{
	_cleanup_free_ char *text = NULL;
	uint32_t argc = 0;
	size_t len;
	int err;

	err = dl_proc_strings(proc_fd, "cmdline", 128 << 10, &text, &len);
	if (err)
		return err;
	while (len && !text[len - 1])
		len--;
	for (size_t i = 0; i < len; i++) {
		if (!text[i]) {
			text[i] = ' ';
			argc++;
		} else if ((unsigned char)text[i] < ' ') {
			text[i] = ' ';
		}
	}
	if (len >= sz)
		len = sz - 1;
	memcpy(buf, text, len);
	buf[len] = '\0';
	*ret_argc = len ? argc + 1 : 0;
	return 0;
}

/* Is pid above us in the tree, or ourselves? */
static bool is_own_line(uint32_t pid)
{
	uint32_t up = (uint32_t)getpid();

	for (int depth = 0; up && depth < 256; depth++) {
		_cleanup_close_ int fd = -1;
		struct dl_stat st;

		if (up == pid)
			return true;
		fd = dl_proc_open(up);
		if (fd < 0 || dl_proc_stat(fd, 0, &st))
			return false;
		up = st.ppid;
	}
	return false;
}

int dl_proc_check_target(uint32_t pid, struct dl_diag *d)
{
	_cleanup_close_ int fd = dl_proc_open(pid);
	struct dl_status status;
	struct dl_stat st;
	int err;

	if (fd == -ENOENT)
		return dl_fail(d, -ESRCH, "there is no process %" PRIu32, pid);
	if (fd < 0)
		return dl_fail_errno(d, fd, "process %" PRIu32, pid);
	err = dl_proc_stat(fd, 0, &st);
	if (!err)
		err = dl_proc_status(fd, 0, &status);
	if (err == -ESRCH)
		return dl_fail(d, err, "process %" PRIu32 " has just ended", pid);
	if (err)
		return dl_fail_errno(d, err, "process %" PRIu32, pid);
	if (status.tgid != pid)
		return dl_fail(d, -EINVAL, "%" PRIu32 " is a thread of process %" PRIu32
			       ": give the process, -p %" PRIu32, pid, status.tgid, status.tgid);
	if (st.flags & DL_PF_KTHREAD)
		return dl_fail(d, -EINVAL, "%" PRIu32 " (%s) is a thread of the kernel, no program",
			       pid, st.comm);
	if (st.state == 'Z' || st.state == 'X')
		return dl_fail(d, -ESRCH, "process %" PRIu32 " (%s) has already ended; its parent, "
			       "process %" PRIu32 ", has not waited for it", pid, st.comm, st.ppid);
	if (pid == (uint32_t)getpid())
		return dl_fail(d, -EINVAL, "%" PRIu32 " is dlbpf itself", pid);
	if (is_own_line(pid))
		return dl_fail(d, -EINVAL, "process %" PRIu32 " (%s) started this dlbpf, which would "
			       "then record itself; give the training process", pid, st.comm);
	return 0;
}
