/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* How full a file system is whose file nobody has open any more: by its device, through the mounts of a process. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "capture/env.h"
#include "capture/proc.h"

enum { MOUNTINFO_MAX = 16 << 20 };

/* "36 35 98:0 /root /dir rw,noatime ...", see proc(5): the escaped mount point of a device; NULL another one's. */
static const char *mount_of(const char *line, uint32_t dev, size_t *ret_len)
{
	unsigned int major, minor;
	int at = 0;

	if (sscanf(line, "%*u %*u %u:%u %*s %n", &major, &minor, &at) != 2 || !at || (major << 20 | minor) != dev)
		return NULL;
	*ret_len = strcspn(line + at, " \n");
	return line + at;
}

static bool room_at(int root_fd, const char *path, uint64_t *ret_total, uint64_t *ret_used)
{
	_cleanup_close_ int fd = dl_open_in_root(root_fd, path, O_PATH | O_DIRECTORY);
	struct statfs fs;

	if (fd < 0 || fstatfs(fd, &fs) || !fs.f_blocks)
		return false;
	*ret_total = (uint64_t)fs.f_blocks * (uint64_t)fs.f_bsize;
	*ret_used = (uint64_t)(fs.f_blocks - fs.f_bavail) * (uint64_t)fs.f_bsize;
	return true;
}

bool dl_fs_room(int proc_fd, uint32_t dev, uint64_t *ret_total, uint64_t *ret_used)
{
	_cleanup_close_ int root_fd = -1;
	_cleanup_free_ char *text = NULL;
	bool found = false;
	size_t len;

	if (!(dev >> 20) || dl_proc_strings(proc_fd, "mountinfo", MOUNTINFO_MAX, &text, &len) < 0)
		return false;
	root_fd = openat(proc_fd, "root", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root_fd < 0)
		return false;
	for (const char *line = text; *line && !found; line += strcspn(line, "\n"), line += *line == '\n') {
		size_t n;
		const char *dir = mount_of(line, dev, &n);
		_cleanup_free_ char *path = dir ? dl_mount_path(dir, n) : NULL;

		found = path && room_at(root_fd, path, ret_total, ret_used);
	}
	return found;
}
