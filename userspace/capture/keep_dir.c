/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#include "capture/keep_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "capture/output.h"

/* Of this thread alone, capabilities(7): root's rights over files go with them. Groups stay: the folder
 * is the user's own. */
static void be_user(const struct dl_keep_dir *dir)
{
	if (!dir->inv->other_user)
		return;
	setfsgid(dir->inv->gid);
	setfsuid(dir->inv->uid);
}

static void be_self(const struct dl_keep_dir *dir)
{
	if (!dir->inv->other_user)
		return;
	setfsuid(geteuid());
	setfsgid(getegid());
}

int dl_keep_dir_open(struct dl_keep_dir *dir, const char *path, const struct dl_invoker *inv, struct dl_diag *d)
{
	int err;

	*dir = (struct dl_keep_dir){ .fd = -1, .inv = inv };
	dir->path = strdup(path);
	if (!dir->path)
		return dl_oom(d);
	dir->fd = dl_output_open_dir(path, inv, d);
	if (dir->fd < 0) {
		err = dir->fd;
	} else if (!flock(dir->fd, LOCK_EX | LOCK_NB)) {
		return 0;
	} else {
		err = -errno;
		if (err == -EWOULDBLOCK)
			err = dl_fail(d, -EBUSY, "another recording keeps its last part in %s; give another name with "
				      "-o", path);
		else
			err = dl_fail_errno(d, err, "cannot lock %s", path);
	}
	dl_keep_dir_close(dir, false);
	return err;
}

void dl_keep_dir_close(struct dl_keep_dir *dir, bool and_remove)
{
	if (and_remove && dir->path && dir->fd >= 0) {
		be_user(dir);
		rmdir(dir->path);	/* fails where somebody put something else into it */
		be_self(dir);
	}
	if (dir->fd >= 0)
		close(dir->fd);
	free(dir->path);
	dir->path = NULL;
	dir->fd = -1;
}

int dl_keep_dir_create(const struct dl_keep_dir *dir, const char *name)
{
	int fd;

	be_user(dir);
	fd = openat(dir->fd, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY, 0600);
	fd = fd < 0 ? -errno : fd;
	be_self(dir);
	return fd;
}

int dl_keep_dir_read(const struct dl_keep_dir *dir, const char *name)
{
	int fd;

	be_user(dir);
	fd = openat(dir->fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	fd = fd < 0 ? -errno : fd;
	be_self(dir);
	return fd;
}

void dl_keep_dir_unlink(const struct dl_keep_dir *dir, const char *name)
{
	be_user(dir);
	unlinkat(dir->fd, name, 0);
	be_self(dir);
}

void dl_names_fini(struct dl_names *names)
{
	vec_for_each(names, it)
		free(*it);
	vec_free(names);
}

static int cmp_names(const void *a, const void *b)
{
	const char *const *x = a, *const *y = b;

	return strcmp(*x, *y);
}

int dl_keep_dir_list(const struct dl_keep_dir *dir, struct dl_names *ret)
{
	_cleanup_closedir_ DIR *dp = NULL;
	const int fd = openat(dir->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct dirent *de;

	*ret = (struct dl_names){};
	if (fd < 0)
		return -errno;
	dp = dl_dir_of(fd);
	if (!dp)
		return -ENOMEM;
	while ((de = readdir(dp))) {
		const char *end = strrchr(de->d_name, '.');
		char **slot;

		if (!end || strcmp(end, ".dlbpf"))
			continue;
		slot = vec_push(ret);
		if (slot)
			*slot = strdup(de->d_name);
		if (!slot || !*slot) {
			ret->cnt -= slot != NULL;
			dl_names_fini(ret);
			return -ENOMEM;
		}
	}
	if (ret->cnt)
		qsort(ret->v, ret->cnt, sizeof(*ret->v), cmp_names);
	return 0;
}
