/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The /dev/shm that a process sees, which in a container is not the recorder's. */
#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "capture/env.h"
#include "capture/proc.h"

enum { SHM_FILES_MAX = 4096 };	/* files looked at in one sample */

int dl_open_in_root(int root_fd, const char *path, int flags)
{
	struct open_how how = {
		.flags = (uint64_t)(flags | O_CLOEXEC),
		.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS,
	};
	const long fd = syscall(SYS_openat2, root_fd, path, &how, sizeof(how));

	return fd < 0 ? -errno : (int)fd;
}

uint64_t dl_mnt_ns(int proc_fd)
{
	struct stat ns, root;

	if (fstatat(proc_fd, "ns/mnt", &ns, 0) || fstatat(proc_fd, "root", &root, 0))
		return 0;
	/* A chroot without a namespace of its own has another /dev as well. */
	return ns.st_ino ^ (uint64_t)root.st_ino << 32 ^ (uint64_t)root.st_dev << 20;
}

int dl_env_shm_open(struct dl_env_shm *s, int proc_fd)
{
	*s = (struct dl_env_shm)DL_ENV_SHM_NONE;
	s->mnt_ns = dl_mnt_ns(proc_fd);
	s->root_fd = openat(proc_fd, "root", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (s->root_fd < 0)
		return -errno;
	s->shm_fd = dl_open_in_root(s->root_fd, "dev/shm", O_PATH | O_DIRECTORY);
	if (s->shm_fd < 0) {
		const int err = s->shm_fd;

		s->shm_fd = -1;
		dl_env_shm_close(s);
		return err;
	}
	return 0;
}

void dl_env_shm_close(struct dl_env_shm *s)
{
	if (s->root_fd >= 0)
		close(s->root_fd);
	if (s->shm_fd >= 0)
		close(s->shm_fd);
	s->root_fd = s->shm_fd = -1;
}

/* A file that PyTorch gave its size and could not fill keeps the size, and has no block. */
static void add_file(const struct stat *st, struct dl_ev_env_shm *ev)
{
	const uint64_t size = (uint64_t)st->st_size;

	ev->torch_bytes += size;
	ev->torch_blocks += (uint64_t)st->st_blocks * 512;
	ev->torch_hollow_cnt += size && !st->st_blocks;
	if (size > ev->torch_largest)
		ev->torch_largest = size;
}

static void count_files(int shm_fd, struct dl_ev_env_shm *ev)
{
	_cleanup_closedir_ DIR *dir = NULL;
	const struct dirent *de;
	const int fd = openat(shm_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return;
	dir = dl_dir_of(fd);
	if (!dir)
		return;
	while ((de = readdir(dir))) {
		struct stat st;

		if (strncmp(de->d_name, "torch_", 6))
			continue;
		if (ev->torch_cnt++ < SHM_FILES_MAX &&
		    !fstatat(fd, de->d_name, &st, AT_SYMLINK_NOFOLLOW) && S_ISREG(st.st_mode))
			add_file(&st, ev);
	}
}

/* Something may have been mounted over it since. Once the last process of a mount namespace has
 * ended, the path leads to what lies below the mount: so the process must still be there after. */
static void look_again(struct dl_env_shm *s, int proc_fd)
{
	const int fd = dl_open_in_root(s->root_fd, "dev/shm", O_PATH | O_DIRECTORY);
	struct stat now, held;

	if (fd < 0)
		return;
	if (!fstat(fd, &now) && !fstat(s->shm_fd, &held) && now.st_dev != held.st_dev &&
	    dl_mnt_ns(proc_fd) == s->mnt_ns) {
		close(s->shm_fd);
		s->shm_fd = fd;
	} else {
		close(fd);
	}
}

int dl_env_shm_emit(struct dl_env_shm *s, struct dl_sink *sink, uint64_t ts, uint32_t pid,
		    int proc_fd)
{
	struct dl_ev_env_shm ev = DL_EVENT_INIT(env_shm, DL_EV_ENV_SHM, ts, pid, pid);
	struct statfs fs;
	struct stat st;

	if (proc_fd >= 0)
		look_again(s, proc_fd);
	if (fstatfs(s->shm_fd, &fs))
		return 0;	/* not there: nothing to say */
	ev.total = (uint64_t)fs.f_blocks * (uint64_t)fs.f_bsize;
	ev.used = (uint64_t)(fs.f_blocks - fs.f_bfree) * (uint64_t)fs.f_bsize;
	ev.inodes_total = fs.f_files;
	ev.inodes_free = fs.f_ffree;
	if (!fstat(s->shm_fd, &st))
		ev.file_dev = dl_dev(st.st_dev);
	count_files(s->shm_fd, &ev);
	return dl_emit_text(sink, &ev.h, "/dev/shm");
}
