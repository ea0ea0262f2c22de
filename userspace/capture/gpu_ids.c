/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * CUPTI runs inside the process and knows only the ids of its own PID namespace. NSpid in
 * /proc/PID/task/TID/status lists a thread's ids from this /proc's namespace to the innermost.
 */
#include "capture/gpu_priv.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"

#define RESCAN_NS 100000000ULL		/* for an id that is not known */
#define EXPIRE_NS 5000000000ULL		/* ids are used again */
#define TASK_MAX 65536

/* The first and the last number of NSpid, and how many there are; 0 where it cannot be read. */
static unsigned int read_nspid(int dir_fd, const char *path, uint32_t *ret_first, uint32_t *ret_last)
{
	_cleanup_close_ int fd = openat(dir_fd, path, O_RDONLY | O_CLOEXEC);
	unsigned int cnt = 0;
	char buf[4096], *p;
	ssize_t n;

	if (fd < 0)
		return 0;
	n = read(fd, buf, sizeof(buf) - 1);
	if (n <= 0)
		return 0;
	buf[n] = '\0';
	p = strstr(buf, "\nNSpid:");
	if (!p)
		return 0;
	p += 7;
	while (*p == '\t' || *p == ' ') {
		uint32_t v = (uint32_t)strtoul(p, &p, 10);

		if (!cnt++)
			*ret_first = v;
		*ret_last = v;
	}
	return cnt;
}

int gpu_ids_open(struct gpu_ids *ids, uint32_t pid)
{
	uint32_t first = 0, last = 0;
	unsigned int cnt;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%u/status", pid);
	cnt = read_nspid(AT_FDCWD, path, &first, &last);
	if (!cnt)
		return access(path, F_OK) ? -ESRCH : -EIO;
	*ids = (struct gpu_ids){ .pid = pid, .nspid = last, .same = cnt == 1 };
	return 0;
}

void gpu_ids_fini(struct gpu_ids *ids)
{
	dl_map_fini(&ids->tids);
	memset(ids, 0, sizeof(*ids));
}

static void scan(struct gpu_ids *ids, uint64_t now)
{
	_cleanup_closedir_ DIR *d = NULL;
	struct dirent *e;
	char path[64];
	int left = TASK_MAX;

	ids->scan_ts = now;
	dl_map_fini(&ids->tids);
	snprintf(path, sizeof(path), "/proc/%u/task", ids->pid);
	d = opendir(path);
	while (d && left-- && (e = readdir(d))) {
		uint32_t first = 0, last = 0;
		char file[300];

		if (e->d_name[0] == '.')
			continue;
		snprintf(file, sizeof(file), "%s/status", e->d_name);
		if (read_nspid(dirfd(d), file, &first, &last) > 1)
			dl_map_set(&ids->tids, last, first);	/* without memory: not known */
	}
}

uint32_t gpu_ids_host(struct gpu_ids *ids, uint32_t nstid, uint64_t now)
{
	uint64_t tid;

	if (ids->same)
		return nstid;
	if (now - ids->scan_ts >= EXPIRE_NS)
		scan(ids, now);
	if (dl_map_get(&ids->tids, nstid, &tid))
		return (uint32_t)tid;
	if (now - ids->scan_ts < RESCAN_NS)
		return 0;
	scan(ids, now);
	return dl_map_get(&ids->tids, nstid, &tid) ? (uint32_t)tid : 0;
}
