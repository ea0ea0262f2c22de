/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* A process: how near it is to its limits, and what memory it holds. */
#include <dirent.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/map.h"
#include "capture/env.h"
#include "capture/maps.h"
#include "capture/proc.h"

uint64_t dl_env_maps_limit(void)
{
	uint64_t nr = 0;

	return dl_proc_read_u64(AT_FDCWD, "/proc/sys/vm/max_map_count", &nr) ? nr : 0;
}

/* Linux 6.2 (f1f1f2569901) and later say how many descriptors there are by the size of the
 * directory; before, it is 0 and they are counted. */
static uint64_t count_fds(int proc_fd)
{
	_cleanup_closedir_ DIR *dir = NULL;
	uint64_t cnt = 0;
	struct stat st;
	int fd;

	if (!fstatat(proc_fd, "fd", &st, 0) && st.st_size > 0)
		return (uint64_t)st.st_size;
	fd = openat(proc_fd, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	dir = dl_dir_of(fd);
	if (!dir)
		return 0;
	for (const struct dirent *de; (de = readdir(dir));)
		cnt += de->d_name[0] != '.';
	return cnt;
}

static void read_io(int proc_fd, struct dl_ev_env_proc *ev)
{
	char buf[512];
	uint64_t nr;

	if (dl_proc_read(proc_fd, "io", buf, sizeof(buf)) <= 0)
		return;
	if (dl_text_u64(buf, "rchar", &nr))
		ev->read_chars = nr;
	if (dl_text_u64(buf, "read_bytes", &nr))
		ev->read_bytes = nr;
}

static int emit_mem(struct dl_sink *sink, uint64_t ts, uint32_t pid, const struct dl_status *st)
{
	struct dl_ev_mem ev = DL_EVENT_INIT(mem, DL_EV_MEM, ts, pid, pid);

	ev.anon = st->rss_anon;
	ev.file = st->rss_file;
	ev.shmem = st->rss_shmem;
	ev.swap = st->swap;
	ev.pgtables = st->pgtables;
	return sink->emit(sink, &ev.h);
}

/* A process that is ending has given up its memory and its descriptors: that there are none left of them
 * says nothing about how it died. */
static bool has_memory(const struct dl_status *st)
{
	return st->rss_anon || st->rss_file || st->rss_shmem || st->swap || st->pgtables;
}

static void count_maps(struct dl_env_proc *p, uint64_t ts, int proc_fd, uint64_t limit)
{
	const int64_t cnt = dl_maps_count(proc_fd);

	if (cnt > 0) {
		const uint64_t now = (uint64_t)cnt;
		const bool grows = now > p->maps + p->maps / 64 || (limit && now > limit / 2);

		const uint64_t least = now < limit / 16 ? DL_MAPS_FAR_NS : DL_MAPS_MIN_NS;

		p->maps_period_ns = grows || !p->maps_period_ns ? least : p->maps_period_ns * 2;
		if (p->maps_period_ns > DL_MAPS_MAX_NS)
			p->maps_period_ns = DL_MAPS_MAX_NS;
		p->maps = now;
	}
	p->next_maps_ts = ts + p->maps_period_ns;
}

void dl_env_look_libs(struct dl_env_proc *p, uint64_t libs)
{
	p->more_libs = libs != p->libs;
	p->libs = libs;
}

int dl_env_proc_emit(struct dl_env_proc *p, struct dl_sink *sink, uint64_t ts, uint32_t pid,
		     int proc_fd, uint64_t maps_limit, bool at_once)
{
	struct dl_ev_env_proc ev = DL_EVENT_INIT(env_proc, DL_EV_ENV_PROC, ts, pid, pid);
	struct dl_status st;
	struct rlimit rl;
	int err;

	err = dl_proc_status(proc_fd, 0, &st);
	if (err || !has_memory(&st))
		return -ESRCH;
	dl_env_look_libs(p, st.libs);
	if (at_once || ts >= p->next_maps_ts)
		count_maps(p, ts, proc_fd, maps_limit);
	ev.maps = p->maps;
	ev.maps_limit = maps_limit;
	ev.fds = count_fds(proc_fd);
	/* By number: it may be another process by now, but then status could not have been read
	 * through proc_fd a moment ago. */
	if (!prlimit((pid_t)pid, RLIMIT_NOFILE, NULL, &rl))
		ev.fds_limit = rl.rlim_cur;
	if (!prlimit((pid_t)pid, RLIMIT_NPROC, NULL, &rl))
		ev.procs_limit = rl.rlim_cur;
	ev.threads = st.threads;
	ev.cpus_allowed = st.cpus_allowed;
	ev.locked = st.locked;
	ev.pinned = st.pinned;
	read_io(proc_fd, &ev);
	err = sink->emit(sink, &ev.h);
	return err ? err : emit_mem(sink, ts, pid, &st);
}

static const struct {
	int resource;
	size_t soft, hard;	/* offsets in the event; hard 0: not told */
} limits[] = {
#define LIMIT(which, soft) { RLIMIT_##which, offsetof(struct dl_ev_proc_limits, soft), 0 }
#define LIMITS(which, soft, hard) \
	{ RLIMIT_##which, offsetof(struct dl_ev_proc_limits, soft), offsetof(struct dl_ev_proc_limits, hard) }
	LIMITS(NOFILE, nofile, nofile_hard), LIMITS(NPROC, nproc, nproc_hard), LIMITS(MEMLOCK, memlock, memlock_hard),
	LIMIT(CORE, core), LIMIT(AS, as), LIMIT(DATA, data), LIMIT(STACK, stack), LIMIT(FSIZE, fsize),
	LIMIT(MSGQUEUE, msgqueue),
#undef LIMIT
#undef LIMITS
};

int dl_env_limits_emit(struct dl_env_proc *p, struct dl_sink *sink, uint64_t ts, uint32_t pid, int proc_fd)
{
	struct dl_ev_proc_limits ev = DL_EVENT_INIT(proc_limits, DL_EV_PROC_LIMITS, ts, pid, pid);
	struct dl_status st;
	uint64_t hash;

	for (size_t i = 0; i < ARRAY_SIZE(limits); i++) {
		struct rlimit rl;

		if (prlimit((pid_t)pid, limits[i].resource, NULL, &rl))
			return 0;
		*(__u64 *)((char *)&ev + limits[i].soft) = rl.rlim_cur;
		if (limits[i].hard)
			*(__u64 *)((char *)&ev + limits[i].hard) = rl.rlim_max;
	}
	hash = dl_hash_bytes(&ev.h + 1, sizeof(ev) - sizeof(ev.h));
	/* Still the process that was asked, not another one with its number. */
	if (hash == p->limits_hash || dl_proc_status(proc_fd, 0, &st))
		return 0;
	p->limits_hash = hash;
	return sink->emit(sink, &ev.h);
}
