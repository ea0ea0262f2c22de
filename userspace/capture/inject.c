/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The injection from begin to end: look, borrow a thread, hand the library over, wait for it. */
#include "capture/inject.h"
#include "capture/inject_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "capture/proc.h"

#define MS 1000000ULL
#define FIND_NS DL_NS_PER_S	/* for a thread that may be borrowed */
#define TRY_MS 30000			/* an attempt is killed then, which is safe at any time */
#define FILE_NS (3 * DL_NS_PER_S)	/* the new thread gives up earlier */
#define LOAD_NS (5 * DL_NS_PER_S)
#define ROUND_NS (5 * MS)
#define ROUNDS_A_LOOK 20		/* mappings change */
#define LIBRARY_MAX (64 << 20)

static void nap(uint64_t ns)
{
	const struct timespec ts = { .tv_nsec = (long)ns };

	nanosleep(&ts, NULL);
}

/* --- one attempt, in a process of its own ----------------------------------------------------------- */

static int wait_child(pid_t child)
{
	_cleanup_close_ int fd = (int)syscall(SYS_pidfd_open, child, 0);
	struct pollfd p = { .fd = fd, .events = POLLIN };
	int n, status;

	do {
		n = fd < 0 ? 0 : poll(&p, 1, TRY_MS);
	} while (n < 0 && errno == EINTR);
	if (n != 1)
		kill(child, SIGKILL);
	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return WIFEXITED(status) ? 0 : -EINTR;
}

/*
 * A tracer that ends, or is killed, lets go of what it traced. So it is a process that does nothing
 * else: a thread that does not stop in time needs no more care than that.
 */
static int attempt(const struct inject_target *t, uint32_t tid, struct inject_try *try)
{
	pid_t child;
	int err;

	memset(try, 0, sizeof(*try));
	try->err = 1;
	child = fork();
	if (child < 0)
		return -errno;
	if (!child) {
		inject_borrow(t, tid, try);
		_exit(0);
	}
	err = wait_child(child);
	return try->err == 1 ? err ? err : -EINTR : try->err;
}

static int borrow_any(struct inject_target *t, const struct inject_tids *tids, struct inject_try *try,
		      struct dl_inject_result *res, struct dl_diag *d)
{
	for (size_t i = 0; i < tids->cnt; i++) {
		const int err = attempt(t, tids->v[i], try);

		res->tries++;
		if (err == -EAGAIN)
			continue;
		if (!err) {
			res->tid = tids->v[i];
			res->away_ns = try->away_ns;
			return 0;
		}
		try->msg[sizeof(try->msg) - 1] = '\0';
		return dl_fail(d, err, "cannot inject into %u: %s", t->pid, try->msg[0] ? try->msg :
			       err == -EINTR ? "the process that did it was killed; the target goes on" :
			       strerror(-err));
	}
	return -EAGAIN;
}

static int borrow(struct inject_target *t, struct inject_try *try, struct dl_inject_result *res,
		  struct dl_diag *d)
{
	const uint64_t end = dl_now_ns() + FIND_NS;
	struct inject_tids tids = {};
	int err;

	for (unsigned int round = 1;; round++) {
		if (round % ROUNDS_A_LOOK == 0) {
			const uint32_t pid = t->pid;

			inject_target_close(t);
			err = inject_target_open(t, pid, d);
			if (err)
				break;
		}
		err = inject_threads(t, &tids);
		if (!err)
			err = borrow_any(t, &tids, try, res, d);
		if (err != -EAGAIN)
			break;
		if (dl_now_ns() > end) {
			dl_fail(d, err, "cannot inject into %u: none of its threads waited where it can be borrowed "
				"safely; try again later", t->pid);
			break;
		}
		nap(ROUND_NS);
	}
	free(tids.v);
	return err;
}

/* --- the new thread --------------------------------------------------------------------------------- */

static int read_data(uint32_t pid, uint64_t base, struct inject_data *ret)
{
	struct iovec to = { ret, sizeof(*ret) }, from = { (void *)(uintptr_t)(base + INJECT_PAGE), sizeof(*ret) };

	if (process_vm_readv((pid_t)pid, &to, 1, &from, 1, 0) != sizeof(*ret))
		return -ESRCH;
	ret->text[sizeof(ret->text) - 1] = '\0';
	return 0;
}

static int write_data(uint32_t pid, uint64_t base, size_t off, const void *buf, size_t sz)
{
	struct iovec from = { (void *)(uintptr_t)buf, sz }, to = { (void *)(uintptr_t)(base + INJECT_PAGE + off), sz };

	return process_vm_writev((pid_t)pid, &from, 1, &to, 1, 0) == (ssize_t)sz ? 0 : -ESRCH;
}

/* What the target says is shown on a terminal. */
static void make_plain(char *s)
{
	for (; *s; s++)
		if ((unsigned char)*s < ' ' || *s == 0x7f)
			*s = '?';
}

static int say_failed(uint32_t pid, struct inject_data *data, struct dl_diag *d)
{
	make_plain(data->text);
	switch (data->state) {
	case INJECT_NO_MEMFD:
		return dl_fail(d, -EIO, "cannot inject into %u: it cannot make a file in memory: %s", pid,
			       strerror(-data->result));
	case INJECT_NO_DLOPEN:
		return dl_fail(d, -ELIBACC, "cannot inject into %u: its dlopen() failed: %s", pid,
			       data->text[0] ? data->text : "no reason given");
	case INJECT_NO_SYMBOL:
		return dl_fail(d, -ELIBBAD, "cannot inject into %u: the library has no InitializeInjection()", pid);
	}
	return dl_fail(d, -EIO, "cannot inject into %u: the file was not filled in time", pid);
}

/* Until cond holds of what the thread says. */
static int wait_data(uint32_t pid, uint64_t base, uint64_t ns, bool (*cond)(const struct inject_data *data),
		     struct inject_data *ret, struct dl_diag *d)
{
	const uint64_t end = dl_now_ns() + ns;

	for (;;) {
		if (read_data(pid, base, ret))
			return dl_fail(d, -ESRCH, "cannot inject into %u: it ended, or started another program", pid);
		if (ret->state < 0)
			return say_failed(pid, ret, d);
		if (cond(ret))
			return 0;
		if (dl_now_ns() > end)
			return -ETIMEDOUT;
		nap(MS / 5);
	}
}

static bool has_file(const struct inject_data *data)
{
	return data->fd1 > 0;
}

static bool is_done(const struct inject_data *data)
{
	return data->state == INJECT_DONE;
}

static int copy_library(int from, int to)
{
	char buf[65536];
	uint64_t off = 0;
	ssize_t n;

	while ((n = pread(from, buf, sizeof(buf), (off_t)off)) != 0) {
		ssize_t done = 0;

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		while (done < n) {
			const ssize_t w = pwrite(to, buf + done, (size_t)(n - done), (off_t)off + done);

			if (w < 0 && errno == EINTR)
				continue;
			if (w <= 0)
				return w ? -errno : -EIO;
			done += w;
		}
		off += (uint64_t)n;
	}
	return 0;
}

/*
 * Through the very descriptor of the target, with the rights that it was opened with: a hostile
 * process may have put any file at that number, and /proc/PID/fd would open it anew with ours.
 */
static int fill_file(uint32_t pid, int fd, int lib_fd)
{
	_cleanup_close_ int pid_fd = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
	_cleanup_close_ int file = -1;

	if (pid_fd < 0)
		return -errno;
	file = (int)syscall(SYS_pidfd_getfd, pid_fd, fd, 0);
	if (file < 0)
		return -errno;
	if (fcntl(file, F_GET_SEALS) < 0)
		return -EBADF;
	return copy_library(lib_fd, file);
}

static int hand_over(uint32_t pid, uint64_t base, int lib_fd, struct dl_diag *d)
{
	struct inject_data data;
	int32_t filled = 1;
	int err;

	err = wait_data(pid, base, FILE_NS, has_file, &data, d);
	if (err)
		return err == -ETIMEDOUT ? dl_fail(d, err, "cannot inject into %u: its new thread does not run", pid) : err;
	err = fill_file(pid, data.fd1 - 1, lib_fd);
	if (err) {
		filled = 2;
		write_data(pid, base, offsetof(struct inject_data, filled), &filled, sizeof(filled));
		return dl_fail_errno(d, err, "cannot inject into %u: cannot hand the library over", pid);
	}
	/* The loader knows a library by its name, too: ours must not be taken for another one's. */
	snprintf(data.path, sizeof(data.path), "/proc/self/fd/./%d", data.fd1 - 1);
	err = write_data(pid, base, offsetof(struct inject_data, path), data.path, sizeof(data.path));
	if (!err)
		err = write_data(pid, base, offsetof(struct inject_data, filled), &filled, sizeof(filled));
	if (err)
		return dl_fail(d, err, "cannot inject into %u: it ended, or started another program", pid);
	err = wait_data(pid, base, LOAD_NS, is_done, &data, d);
	if (err == -ETIMEDOUT)
		return dl_fail(d, err, "%u is still loading the collector: another thread keeps its loader busy; the "
			       "collector will be there when it is through", pid);
	return err;
}

/* --- all of it -------------------------------------------------------------------------------------- */

/* One injection into a process at a time: two would use the same bytes. Ends with the descriptor. */
static int lock_target(uint32_t pid, struct dl_diag *d)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int n = snprintf(sa.sun_path + 1, sizeof(sa.sun_path) - 1, "dlbpf-inject-%u", pid);

	if (fd < 0)
		return dl_fail_errno(d, -errno, "cannot inject into %u", pid);
	if (!bind(fd, (struct sockaddr *)&sa, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)))
		return fd;
	close(fd);
	return dl_fail(d, -EAGAIN, "cannot inject into %u: another dlbpf is doing so", pid);
}

static int open_library(const char *path, struct dl_diag *d)
{
	const int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;

	if (fd < 0)
		return dl_fail_errno(d, -errno, "cannot open %s", path);
	if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_size > 0 && st.st_size <= LIBRARY_MAX)
		return fd;
	close(fd);
	return dl_fail(d, -EINVAL, "%s is no library", path);
}

int dl_inject(uint32_t pid, const char *library, struct dl_inject_result *ret, struct dl_diag *d)
{
	_cleanup_close_ int lib_fd = open_library(library, d);
	_cleanup_close_ int lock_fd = lib_fd < 0 ? -1 : lock_target(pid, d);
	struct dl_inject_result res = {};
	struct inject_target t;
	struct inject_try *try;
	uint64_t start;
	int err;

	if (lib_fd < 0 || lock_fd < 0)
		return lib_fd < 0 ? lib_fd : lock_fd;
	err = inject_target_open(&t, pid, d);
	if (err)
		return err;
	try = mmap(NULL, sizeof(*try), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (try == MAP_FAILED) {
		inject_target_close(&t);
		return dl_oom(d);
	}
	err = borrow(&t, try, &res, d);
	start = dl_now_ns();
	if (!err)
		err = hand_over(pid, try->base, lib_fd, d);
	res.load_ns = dl_now_ns() - start;
	munmap(try, sizeof(*try));
	inject_target_close(&t);
	*ret = res;
	return err;
}
