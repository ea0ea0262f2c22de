/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Mappings of a process, and what lies where it got SIGBUS. */
#include "capture/maps.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "capture/env.h"
#include "capture/proc.h"

#define HUGETLBFS_MAGIC 0x958458f6

/* A number and the character behind it, which is stepped over. */
static bool number(char **p, int base, char behind, uint64_t *ret)
{
	char *end;

	*ret = strtoull(*p, &end, base);
	if (end == *p || *end != behind)
		return false;
	*p = end + 1;
	return true;
}

/* "7f..-7f.. r-xp 00001000 fe:01 1234   /path", see proc(5) */
bool dl_maps_parse(char *line, struct dl_mapping *ret)
{
	static const char deleted[] = " (deleted)";
	struct dl_mapping m = {};
	uint64_t maj, min;
	char *p = line;
	size_t len;

	if (!number(&p, 16, '-', &m.start) || !number(&p, 16, ' ', &m.end))
		return false;
	if (strnlen(p, 5) < 5 || p[4] != ' ')
		return false;
	m.write = p[1] == 'w';
	m.exec = p[2] == 'x';
	m.shared = p[3] == 's';
	p += 5;
	if (!number(&p, 16, ' ', &m.off) || !number(&p, 16, ':', &maj) || !number(&p, 16, ' ', &min))
		return false;
	m.ino = strtoull(p, &p, 10);
	m.dev = (uint32_t)(maj << 20 | (min & 0xfffff));
	p += strspn(p, " ");
	len = strlen(p);
	if (len >= sizeof(deleted) && !strcmp(p + len - (sizeof(deleted) - 1), deleted))
		p[len - (sizeof(deleted) - 1)] = '\0';
	m.path = p;
	*ret = m;
	return m.start < m.end;
}

int dl_maps_each(int proc_fd, int (*fn)(const struct dl_mapping *m, void *arg), void *arg)
{
	_cleanup_close_ int fd = openat(proc_fd, "maps", O_RDONLY | O_CLOEXEC);
	char buf[16384];
	size_t have = 0;
	int ret;

	if (fd < 0)
		return -errno;
	for (;;) {
		const ssize_t n = read(fd, buf + have, sizeof(buf) - 1 - have);
		char *line = buf, *nl;

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (!n)
			return 0;
		have += (size_t)n;
		buf[have] = '\0';
		while ((nl = memchr(line, '\n', have - (size_t)(line - buf)))) {
			struct dl_mapping m;

			*nl = '\0';
			ret = dl_maps_parse(line, &m) ? fn(&m, arg) : 0;
			if (ret)
				return ret;
			line = nl + 1;
		}
		have -= (size_t)(line - buf);
		if (have == sizeof(buf) - 1)
			have = 0;	/* no path is that long */
		memmove(buf, line, have);
	}
}

bool dl_maps_any(int proc_fd)
{
	_cleanup_close_ int fd = openat(proc_fd, "maps", O_RDONLY | O_CLOEXEC);
	char c;

	return fd >= 0 && read(fd, &c, 1) == 1;
}

int64_t dl_maps_count(int proc_fd)
{
	_cleanup_close_ int fd = openat(proc_fd, "maps", O_RDONLY | O_CLOEXEC);
	char buf[16384];
	int64_t cnt = 0;
	ssize_t n;

	if (fd < 0)
		return -errno;
	while ((n = read(fd, buf, sizeof(buf))) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		for (const char *p = buf; (p = memchr(p, '\n', (size_t)(buf + n - p))); p++)
			cnt++;
	}
	return cnt;
}

/* Opened as a mere path first: what a hostile target mapped may be a device that acts on open. */
static int reopen(int path_fd)
{
	char path[48];
	int fd;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", path_fd);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	return fd < 0 ? -errno : fd;
}

int dl_mapping_open(int proc_fd, const struct dl_mapping *m, bool path_only)
{
	_cleanup_close_ int path_fd = -1;
	char link[64];
	struct stat st;

	snprintf(link, sizeof(link), "map_files/%" PRIx64 "-%" PRIx64, m->start, m->end);
	path_fd = openat(proc_fd, link, O_PATH | O_CLOEXEC);
	if (path_fd < 0 && m->path[0] == '/') {
		/* Without the right to use map_files (it needs the capability in the initial user
		 * namespace), or the mapping has changed: by name, below the process's own root. */
		_cleanup_close_ int root_fd = openat(proc_fd, "root", O_PATH | O_DIRECTORY | O_CLOEXEC);

		if (root_fd < 0)
			return -errno;
		path_fd = dl_open_in_root(root_fd, m->path + 1, O_PATH);
		if (path_fd < 0) {
			const int err = path_fd;

			path_fd = -1;
			return err;
		}
		if (fstat(path_fd, &st) || st.st_ino != m->ino)
			return -ESTALE;
	}
	if (path_fd < 0)
		return -errno;
	if (fstat(path_fd, &st))
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	return path_only ? take_fd(path_fd) : reopen(path_fd);
}

struct find {
	uint64_t addr, seen;
	struct dl_mapping m;
	struct dl_str path;
};

static int match(const struct dl_mapping *m, void *arg)
{
	struct find *f = arg;

	f->seen++;
	if (f->addr < m->start || f->addr >= m->end)
		return 0;
	f->m = *m;
	dl_str_add(&f->path, m->path);
	f->m.path = f->path.s ? f->path.s : "";
	return 1;
}

/* Size and file system of the file that is mapped. */
static void describe_file(int proc_fd, const struct find *f, struct dl_ev_sigbus_map *ev)
{
	_cleanup_close_ int fd = dl_mapping_open(proc_fd, &f->m, true);
	struct statfs fs;
	struct stat st;

	if (fd < 0 || fstat(fd, &st))
		return;
	ev->file_sz = (uint64_t)st.st_size;
	if (ev->file_off >= ev->file_sz)
		ev->fault_flags |= DL_SB_PAST_END;
	if (fstatfs(fd, &fs))
		return;
	ev->file_magic = (uint32_t)fs.f_type;
	ev->fs_total = (uint64_t)fs.f_blocks * (uint64_t)fs.f_bsize;
	/* what is kept for root counts as used: others do not get it */
	ev->fs_used = (uint64_t)(fs.f_blocks - fs.f_bavail) * (uint64_t)fs.f_bsize;
	if ((uint32_t)fs.f_type == HUGETLBFS_MAGIC)
		ev->fault_flags |= DL_SB_HUGETLB;
}

int dl_maps_emit_sigbus(struct dl_sink *sink, uint64_t ts, uint32_t pid, uint32_t tid, int proc_fd,
			uint64_t addr)
{
	struct dl_ev_sigbus_map ev = DL_EVENT_INIT(sigbus_map, DL_EV_SIGBUS_MAP, ts, pid, tid);
	struct find f = { .addr = addr };
	const char *name = "";
	int ret;

	ev.addr = addr;
	ev.fault_flags = DL_SB_FROM_PROC;
	ret = dl_maps_each(proc_fd, match, &f);
	if (ret >= 0 && !f.seen)
		ret = -ESRCH;	/* it has given up its memory */
	if (ret < 0) {
		dl_str_fini(&f.path);
		return ret;
	}
	if (!ret) {
		ev.fault_flags |= DL_SB_NO_VMA;
	} else {
		ev.vma_start = f.m.start;
		ev.vma_end = f.m.end;
		ev.fault_flags |= (f.m.write ? DL_SB_WRITE : 0) | (f.m.shared ? DL_SB_SHARED : 0);
		if (f.m.ino) {
			ev.file_off = f.m.off + (addr - f.m.start);
			ev.file_ino = f.m.ino;
			ev.file_dev = f.m.dev;
			describe_file(proc_fd, &f, &ev);
		}
		name = strrchr(f.m.path, '/');
		name = name ? name + 1 : f.m.path;
	}
	ret = dl_emit_text(sink, &ev.h, name);
	dl_str_fini(&f.path);
	return ret;
}
