/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Taking probes off. The kernel does it one after the other, under a lock, with a grace period for each:
 * 30 ms and more, and a process has a hundred probes. Nobody is to wait for that, neither the recording
 * nor the user at its end: a process of its own inherits the descriptors, and its end closes them.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "capture/cuda_priv.h"
#include "capture/kernel.h"

static int by_number(const void *a, const void *b)
{
	const int x = *(const int *)a, y = *(const int *)b;

	return x < y ? -1 : x > y;
}

/* Everything else is closed at once: whoever reads our output waits for its end. */
static void keep_only(const int *fds, size_t cnt)
{
	const long max = sysconf(_SC_OPEN_MAX);
	size_t at = 0;

	for (int fd = 0; fd < max; fd++) {
		while (at < cnt && fds[at] < fd)
			at++;
		if (at == cnt || fds[at] != fd)
			close(fd);
	}
}

/* Never returns. Ours are closed, cheaply, while this one still has them: then it ends. */
static void hold(const int *fds, size_t cnt, int until_fd)
{
	char c;

	if (fork())	/* nobody's child: there is no zombie left to collect */
		_exit(0);
	setsid();
	keep_only(fds, cnt);
	while (read(until_fd, &c, 1) < 0 && errno == EINTR)
		;
	_exit(0);
}

void cuda_off(struct dl_uprobe **v, size_t cnt)
{
	_cleanup_free_ int *fds = malloc((cnt + 1) * sizeof(*fds));
	int p[2] = { -1, -1 };
	pid_t pid = -1;

	for (size_t i = 0; i < cnt && fds; i++)
		fds[i] = dl_kernel_uprobe_fd(v[i]);
	if (cnt && fds && !pipe(p)) {
		fds[cnt] = p[0];
		qsort(fds, cnt + 1, sizeof(*fds), by_number);	/* here: it may allocate */
		pid = fork();
	}
	if (!pid)
		hold(fds, cnt + 1, p[0]);
	while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	for (size_t i = 0; i < cnt; i++)
		dl_kernel_uprobe_off(v[i]);
	for (int i = 0; i < 2; i++) {
		if (p[i] >= 0)
			close(p[i]);
	}
}
