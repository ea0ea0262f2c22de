/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* A process for what may hang: a file server that is gone, a broken driver. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "capture/proc.h"
#include "check/gather.h"

static int write_all(int fd, const char *buf, size_t sz)
{
	while (sz) {
		const ssize_t n = write(fd, buf, sz);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return -EIO;
		buf += n;
		sz -= (size_t)n;
	}
	return 0;
}

/* All of buf, or what went wrong. */
static int read_all(int fd, char *buf, size_t sz, int timeout_ms)
{
	const uint64_t end = dl_now_ns() + (uint64_t)timeout_ms * 1000000;

	while (sz) {
		const uint64_t now = dl_now_ns();
		struct pollfd p = { .fd = fd, .events = POLLIN };
		const int ready = now < end ? poll(&p, 1, (int)((end - now) / 1000000) + 1) : 0;
		ssize_t n;

		if (ready < 0 && errno != EINTR)
			return -errno;
		if (ready < 0)
			continue;	/* Ctrl-C: it does not take long */
		if (!ready)
			return -ETIMEDOUT;
		n = read(fd, buf, sz);
		if (n <= 0)
			return -EIO;
		buf += n;
		sz -= (size_t)n;
	}
	return 0;
}

/* One that hangs in the kernel ends when it can; nobody waits for it. */
static void end_child(pid_t pid, bool hangs)
{
	if (!hangs) {
		while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
			;
		return;
	}
	kill(pid, SIGKILL);
	for (int i = 0; i < 20 && !waitpid(pid, NULL, WNOHANG); i++)
		usleep(10000);
}

int ck_in_child(int (*fn)(void *arg, void *buf), void *arg, void *buf, size_t sz, int timeout_ms)
{
	int pipe_fd[2], err;
	pid_t pid;

	if (pipe2(pipe_fd, O_CLOEXEC))
		return -errno;
	fflush(NULL);
	pid = fork();
	if (pid < 0) {
		err = -errno;
		close(pipe_fd[0]);
		close(pipe_fd[1]);
		return err;
	}
	if (!pid) {
		close(pipe_fd[0]);
		err = fn(arg, buf);
		_exit(err || write_all(pipe_fd[1], buf, sz) ? 1 : 0);
	}
	close(pipe_fd[1]);
	err = read_all(pipe_fd[0], buf, sz, timeout_ms);
	close(pipe_fd[0]);
	end_child(pid, err == -ETIMEDOUT);
	return err;
}
