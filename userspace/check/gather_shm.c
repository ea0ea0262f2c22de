/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* /dev/shm: how large, how full, and what dead processes have left in it. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <linux/magic.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "check/batch.h"
#include "check/gather.h"

/* 4026531836, PROC_PID_INIT_INO in include/linux/proc_ns.h */
static bool in_first_pid_namespace(void)
{
	struct stat st;

	return !stat("/proc/self/ns/pid", &st) && st.st_ino == 0xeffffffcU;
}

/* Every number by which a process is known, in its own namespace and in those above. */
static int add_numbers(struct dl_map *owners, const char *status)
{
	const char *p = strstr(status, "\nNSpid:");

	if (!p)
		return 0;
	for (p += strlen("\nNSpid:"); *p == ' ' || *p == '\t';) {
		char *end;
		const unsigned long pid = strtoul(p + 1, &end, 10);

		if (end == p + 1)
			break;
		if (dl_map_set(owners, pid, 1))
			return -ENOMEM;
		p = end;
	}
	return 0;
}

/*
 * Other PID namespaces than our own and those in it cannot be seen, and with hidepid=, see proc(5), not even
 * all of these: then nobody can be said to be dead.
 */
int ck_find_owners(struct dl_map *owners, bool *ret_known)
{
	_cleanup_closedir_ DIR *dir = NULL;
	char path[300], text[16384];
	int err = 0;

	*ret_known = in_first_pid_namespace() && !access("/proc/1/status", R_OK);
	dir = *ret_known ? opendir("/proc") : NULL;
	for (const struct dirent *de; !err && dir && (de = readdir(dir));) {
		if (de->d_name[0] < '1' || de->d_name[0] > '9')
			continue;
		snprintf(path, sizeof(path), "/proc/%s/status", de->d_name);
		if (ck_read("", path, text, sizeof(text)))
			err = add_numbers(owners, text);
	}
	return err;
}

void ck_gather_torch(struct dl_ck_shm *shm, int shm_fd, const struct dl_map *owners)
{
	_cleanup_closedir_ DIR *dir = NULL;
	const int fd = openat(shm_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	uint64_t alive;

	if (fd < 0)
		return;
	dir = dl_dir_of(fd);
	if (!dir)
		return;
	shm->owners_known = owners != NULL;
	shm->torch_cnt = shm->torch_bytes = shm->dead_cnt = shm->dead_bytes = shm->failed_cnt = 0;
	for (const struct dirent *de; (de = readdir(dir));) {
		uint64_t nr, held;
		struct stat st;
		uint32_t owner;

		if (!ck_storage_parse(de->d_name, &owner, &nr) ||
		    fstatat(fd, de->d_name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode))
			continue;
		held = (uint64_t)st.st_blocks * 512;
		shm->torch_cnt++;
		shm->torch_bytes += held;
		if (!owners || dl_map_get(owners, owner, &alive))
			continue;
		shm->dead_cnt++;
		shm->dead_bytes += held;
		shm->failed_cnt += !held && st.st_size > 0;
	}
}

int ck_gather_left(struct dl_ck_facts *f, int shm_fd)
{
	_cleanup_(dl_map_fini) struct dl_map owners = {};
	bool known;
	int err = ck_find_owners(&owners, &known);

	if (!err)
		ck_gather_torch(&f->shm, shm_fd, known ? &owners : NULL);
	return err;
}

int ck_gather_shm(struct dl_ck_facts *f, int shm_fd)
{
	struct dl_ck_shm *shm = &f->shm;
	struct stat st, own;
	struct statfs fs;

	if (shm_fd < 0 || fstatfs(shm_fd, &fs)) {
		snprintf(shm->why, sizeof(shm->why), "/dev/shm: %s", strerror(shm_fd < 0 ? -shm_fd : errno));
		shm->missing = shm_fd == -ENOENT;
		f->root_needed |= shm_fd == -EACCES;
		return 0;
	}
	shm->known = true;
	shm->tmpfs = fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC;
	shm->total = (uint64_t)fs.f_blocks * (uint64_t)fs.f_bsize;
	shm->used = (uint64_t)(fs.f_blocks - fs.f_bfree) * (uint64_t)fs.f_bsize;
	shm->inodes = fs.f_files;
	shm->inodes_free = fs.f_ffree;
	shm->shared_with_host = !fstat(shm_fd, &st) && !stat("/dev/shm", &own) && st.st_dev == own.st_dev;
	return ck_gather_left(f, shm_fd);
}
