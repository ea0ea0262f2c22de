/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The collector's memory among the descriptors of a process. */
#include "capture/gpu_priv.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"

#define FD_MAX 65536

/* How the link of a memfd reads; a file can be given that name too, which the seals tell. */
static bool is_ring(int dir_fd, const char *name)
{
	static const char want[] = "/memfd:" DL_GPU_MEMFD;
	char link[64];
	ssize_t n = readlinkat(dir_fd, name, link, sizeof(link));

	return n >= (ssize_t)sizeof(want) - 1 && !memcmp(link, want, sizeof(want) - 1) &&
	       (n == sizeof(want) - 1 || link[sizeof(want) - 1] == ' ');
}

int gpu_find_memfd(uint32_t pid, int *ret_fd, int *ret_nr, ino_t *ret_ino)
{
	_cleanup_closedir_ DIR *d = NULL;
	struct dirent *e;
	char path[64];
	int left = FD_MAX;

	snprintf(path, sizeof(path), "/proc/%u/fd", pid);
	d = opendir(path);
	if (!d)
		return errno == EACCES || errno == EPERM ? -errno : -ENOENT;
	while (left-- && (e = readdir(d))) {
		struct stat st;
		int fd;

		if (e->d_name[0] == '.' || !is_ring(dirfd(d), e->d_name))
			continue;
		/* Should it be a pipe after all, opening it must not wait. */
		fd = openat(dirfd(d), e->d_name, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
		if (fd < 0)
			continue;
		if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
			close(fd);
			continue;
		}
		*ret_fd = fd;
		*ret_nr = atoi(e->d_name);
		*ret_ino = st.st_ino;
		return 0;
	}
	return -ENOENT;
}

bool gpu_find_same(uint32_t pid, int nr, ino_t ino)
{
	struct stat st;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%u/fd/%d", pid, nr);
	return !stat(path, &st) && st.st_ino == ino;
}
