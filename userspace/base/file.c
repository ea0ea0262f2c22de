/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#include "base/file.h"

#include <errno.h>
#include <unistd.h>

DIR *dl_dir_of(int fd)
{
	DIR *dir = fdopendir(fd);

	if (!dir) {
		const int err = errno;

		close(fd);
		errno = err;
	}
	return dir;
}

int dl_read_at(int fd, void *buf, size_t sz, uint64_t off)
{
	size_t have = 0;

	while (have < sz) {
		const ssize_t n = pread(fd, (char *)buf + have, sz - have, (off_t)(off + have));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (!n)
			return -ENODATA;
		have += (size_t)n;
	}
	return 0;
}
