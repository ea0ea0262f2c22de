/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What lies in /dev/shm. PyTorch names its objects torch_OWNER_RANDOM[_NUMBER] (aten/src/ATen/MapAllocator.cpp and
 * torch/csrc/StorageSharing.cpp). Under its default sharing strategy a name is removed as soon as the memory is mapped,
 * so that one which is still there tells of an allocation that failed in between: it has its full size and not one
 * block. Under file_system the names stay for as long as the tensor lives.
 */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/map.h"
#include "base/str.h"
#include "capture/env.h"
#include "forensic/leftovers_int.h"

enum {
	FILES_MAX = 65536,
	DEFAULT_SIZE = 64 << 20,	/* that Docker and Kubernetes give a container */
	BLOCK = 512,			/* unit of st_blocks */
};

/* Ids of all that live, inner and outer: the owner's name is of its own PID namespace. */
static int living(const struct dl_left *l, struct dl_map *ids)
{
	_cleanup_closedir_ DIR *dir = NULL;
	const struct dirent *de;
	const int fd = openat(l->root_fd, "proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int err = 0;

	if (fd < 0)
		return 0;
	dir = dl_dir_of(fd);
	if (!dir)
		return -ENOMEM;
	while (!err && (de = readdir(dir))) {
		struct dl_status st;
		char path[300], buf[8192];
		uint64_t nr;

		if (!dl_parse_u64(de->d_name, &nr) || !nr)
			continue;
		err = dl_map_set(ids, nr, 1);
		snprintf(path, sizeof(path), "proc/%s/status", de->d_name);
		if (!err && dl_proc_read(l->root_fd, path, buf, sizeof(buf)) > 0 && dl_parse_status(buf, &st) && st.nstgid)
			err = dl_map_set(ids, st.nstgid, 1);
	}
	return err;
}

static void add_object(struct dl_left_shm *s, const struct stat *st, uint32_t owner, bool dead)
{
	const uint64_t held = (uint64_t)st->st_blocks * BLOCK;
	const uint64_t made = (uint64_t)st->st_ctim.tv_sec * DL_NS_PER_S + (uint64_t)st->st_ctim.tv_nsec;

	if (dead) {
		s->dead_cnt++;
		s->dead_bytes += held;
	} else {
		s->live_cnt++;
		s->live_bytes += held;
	}
	if (!st->st_size || held)
		return;
	s->hollow_cnt++;
	s->hollow_want += (uint64_t)st->st_size;
	if (made > s->hollow_wall_ns)
		s->hollow_wall_ns = made;
	if (!s->hollow_pid || (dead && !s->hollow_dead)) {
		s->hollow_pid = owner;
		s->hollow_dead = dead;
	}
}

/* The folder that the run sees: in a container not the caller's. */
static int open_shm(const struct dl_left *l)
{
	char path[64];
	int fd;

	if (dl_left_lives(l)) {
		_cleanup_close_ int root = -1;

		snprintf(path, sizeof(path), "proc/%" PRIu32 "/root", l->procs.v->pid);
		root = openat(l->root_fd, path, O_PATH | O_DIRECTORY | O_CLOEXEC);
		fd = root < 0 ? -1 : dl_open_in_root(root, "dev/shm", O_RDONLY | O_DIRECTORY);
		if (fd >= 0)
			return fd;
	}
	fd = openat(l->root_fd, "dev/shm", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static int look_at_objects(struct dl_left *l, int shm_fd)
{
	_cleanup_closedir_ DIR *dir = NULL;
	struct dl_map ids = {};
	const struct dirent *de;
	int err, cnt = 0;

	dir = dl_dir_of(shm_fd);
	if (!dir)
		return -ENOMEM;
	err = living(l, &ids);
	while (!err && cnt < FILES_MAX && (de = readdir(dir))) {
		struct stat st;
		uint64_t alive;
		char *end;
		unsigned long owner;

		if (strncmp(de->d_name, "torch_", 6))
			continue;
		owner = strtoul(de->d_name + 6, &end, 10);
		if (*end != '_' || !owner || owner > INT32_MAX ||
		    fstatat(dirfd(dir), de->d_name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode))
			continue;
		cnt++;
		add_object(&l->shm, &st, (uint32_t)owner, !dl_map_get(&ids, owner, &alive));
	}
	dl_map_fini(&ids);
	return err;
}

int dl_left_read_shm(struct dl_left *l)
{
	struct dl_left_shm *s = &l->shm;
	const int fd = open_shm(l);
	struct statfs fs;

	if (fd < 0)
		return dl_pm_note(l->pm, "there is no /dev/shm to look at");
	if (!fstatfs(fd, &fs)) {
		s->known = true;
		s->total = (uint64_t)fs.f_blocks * (uint64_t)fs.f_bsize;
		s->used = (uint64_t)(fs.f_blocks - fs.f_bfree) * (uint64_t)fs.f_bsize;
		s->inodes = fs.f_files;
		s->inodes_free = fs.f_ffree;
	}
	return look_at_objects(l, fd);
}

/* --- what it says ----------------------------------------------------------------------------- */

static bool is_full(const struct dl_left_shm *s)
{
	return s->known && ((s->total && s->used >= s->total / 100 * 95) || (s->inodes && !s->inodes_free));
}

/* The one of the run, as far as that can be seen: a large and empty one is not what the run filled. */
static bool is_of_run(const struct dl_left *l)
{
	const struct dl_left_shm *s = &l->shm;

	return dl_left_lives(l) || is_full(s) || s->hollow_cnt || (s->total && s->total <= DEFAULT_SIZE);
}

static int add_sizes(struct dl_left *l)
{
	const struct dl_left_shm *s = &l->shm;
	char size[16];
	int err = 0;

	if (!s->known)
		return 0;
	if (is_of_run(l)) {
		if (s->total)
			err = dl_left_number(l, "shm.total", "size of /dev/shm, now", s->total, DL_PM_BYTES, DL_PM_SHM);
		return err ? err : dl_left_number(l, "shm.used", "used of /dev/shm, now", s->used, DL_PM_BYTES, DL_PM_SHM);
	}
	if (!(l->fits & DL_DEATH_BIT(SHM_FULL)))
		return 0;
	return dl_pm_note(l->pm, "the /dev/shm of here is %s large and not full: if the run filled one, it was another, of its "
			  "container or machine, or it was emptied since",
			  s->total ? dl_fmt_bytes(size, sizeof(size), s->total) : "without limit");
}

static int tell_objects(struct dl_left *l)
{
	const struct dl_left_shm *s = &l->shm;
	char a[16], b[16];
	int err = 0;

	if (s->dead_cnt)
		err = dl_pm_fact(l->pm, NULL, 0, DL_PM_SHM, false,
				 "%" PRIu64 " object%s of PyTorch in /dev/shm ha%s a dead owner and hold%s %s: nobody will "
				 "remove %s", s->dead_cnt, dl_left_s(s->dead_cnt), s->dead_cnt == 1 ? "s" : "ve",
				 s->dead_cnt == 1 ? "s" : "",
				 s->dead_bytes ? dl_fmt_bytes(a, sizeof(a), s->dead_bytes) : "no memory",
				 s->dead_cnt == 1 ? "it" : "them");
	if (!err && s->dead_bytes)
		err = dl_left_number(l, "shm.leftover", "held in /dev/shm by the dead", s->dead_bytes, DL_PM_BYTES, DL_PM_SHM);
	if (err || !s->known)
		return err;
	return dl_pm_fact(l->pm, NULL, 0, DL_PM_SHM, false, "/dev/shm is %s large and %s of it are used, now%s",
			  s->total ? dl_fmt_bytes(a, sizeof(a), s->total) : "without limit",
			  dl_fmt_bytes(b, sizeof(b), s->used), s->total && s->total <= DEFAULT_SIZE ?
			  ": 64 MiB is what a container gets when nobody says more" : "");
}

static int hollow_verdict(struct dl_left *l)
{
	const struct dl_left_shm *s = &l->shm;
	const bool named = l->pid && l->pid == s->hollow_pid;
	const uint64_t each = s->hollow_want / s->hollow_cnt;
	char want[16];
	struct dl_pm_who who = { .pid = 0, .nspid = s->hollow_pid, .role = DL_ROLE_WORKER, .index = -1 };
	int err = dl_pm_fact(l->pm, &who, 0, DL_PM_SHM, true,
			     "%" PRIu64 " object%s in /dev/shm ha%s a size, %s in all, and not one block: PyTorch made %s and "
			     "then got no room", s->hollow_cnt, dl_left_s(s->hollow_cnt), s->hollow_cnt == 1 ? "s" : "ve",
			     dl_fmt_bytes(want, sizeof(want), s->hollow_want), s->hollow_cnt == 1 ? "it" : "them");

	if (err)
		return err;
	vec_last(&l->pm->facts)->wall_ns = (int64_t)s->hollow_wall_ns;
	err = dl_pm_estimate(l->pm, "batch.bytes", "a batch, or its largest tensor", each, DL_PM_BYTES, DL_PM_SHM,
			     "mean size of %" PRIu64 " object%s that got no memory", s->hollow_cnt, dl_left_s(s->hollow_cnt));
	if (err)
		return err;
	/* Somebody who lives and waits: that is for leftovers_hang.c. */
	if (dl_left_lives(l) || !dl_left_allows(l, DL_DEATH_SHM_FULL))
		return 0;
	return dl_left_verdict(l, DL_DEATH_SHM_FULL, DL_PM_LIKELY, dl_left_text(
		"/dev/shm had no room for a batch: process %" PRIu32 "%s left an object of %s there that never got any memory",
		s->hollow_pid, named ? ", which the output names," : "", dl_fmt_bytes(want, sizeof(want), each)));
}

int dl_left_judge_shm(struct dl_left *l)
{
	const struct dl_left_shm *s = &l->shm;
	char a[16], b[16];
	int err = tell_objects(l);

	if (!err)
		err = add_sizes(l);
	if (!err && s->hollow_cnt)
		err = hollow_verdict(l);
	/* The output says SIGBUS, or no space, and it can still be seen to be full. */
	if (err || !l->fits || !(l->fits & DL_DEATH_BIT(SHM_FULL)) || dl_left_lives(l))
		return err;
	if (is_full(s))
		return dl_left_verdict(l, DL_DEATH_SHM_FULL, DL_PM_LIKELY, dl_left_text(
			"/dev/shm is full now, %s of %s, and the output fits that", dl_fmt_bytes(a, sizeof(a), s->used),
			s->total ? dl_fmt_bytes(b, sizeof(b), s->total) : "all its inodes"));
	if (s->known && s->total && s->total <= DEFAULT_SIZE)
		return dl_left_verdict(l, DL_DEATH_SHM_FULL, DL_PM_POSSIBLE, dl_left_text(
			"/dev/shm is only %s large, and the output fits one that was full; it does not prove it",
			dl_fmt_bytes(a, sizeof(a), s->total)));
	return 0;
}
