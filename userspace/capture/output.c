/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Root writes a file into a folder that belongs to somebody else, who may put a link there at any
 * moment. So the file is opened with that user's own rights (the file system user id of this thread,
 * its groups): whatever the path leads to, it is what the user could have written, and it is theirs.
 * Links in the last place are refused in any case, and an existing file is only replaced when it is
 * a trace.
 */
#include "capture/output.h"

#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "trace/trace.h"

struct own_rights {
	gid_t *groups;
	int cnt;
};

/* Not to be called once there are threads: groups are those of the whole process. */
static int take_rights(const struct dl_invoker *inv, struct own_rights *own)
{
	int cnt = getgroups(0, NULL);

	if (cnt < 0)
		return -errno;
	own->groups = calloc((size_t)cnt + 1, sizeof(gid_t));
	if (!own->groups)
		return -ENOMEM;
	own->cnt = getgroups(cnt, own->groups);
	if (own->cnt < 0 || setgroups(inv->groups.cnt, inv->groups.v))
		return -errno;
	setfsgid(inv->gid);
	setfsuid(inv->uid);	/* also takes root's rights over files away, capabilities(7) */
	/* They do not tell of failure, only the id before: asking with -1 changes nothing. */
	if ((gid_t)setfsgid((gid_t)-1) != inv->gid || (uid_t)setfsuid((uid_t)-1) != inv->uid)
		return -EPERM;
	return 0;
}

static void give_back_rights(struct own_rights *own)
{
	setfsuid(geteuid());
	setfsgid(getegid());
	if (own->groups && own->cnt >= 0 && setgroups((size_t)own->cnt, own->groups))
		abort();	/* cannot fail for root; going on with fewer rights would hide it */
	free(own->groups);
}

static int open_as(const struct dl_invoker *inv, const char *path, int flags, mode_t mode)
{
	struct own_rights own = {};
	int fd;

	if (!inv->other_user) {
		fd = open(path, flags, mode);
		return fd < 0 ? -errno : fd;
	}
	fd = take_rights(inv, &own);
	if (!fd) {
		fd = open(path, flags, mode);
		if (fd < 0)
			fd = -errno;
	}
	give_back_rights(&own);
	return fd;
}

static int say_why(const struct dl_invoker *inv, const char *path, int err, struct dl_diag *d)
{
	if (err == -ELOOP)
		return dl_fail(d, err, "cannot write %s: it is a symbolic link, which dlbpf does not "
			       "follow; name the file itself with -o", path);
	if (err == -EISDIR)
		return dl_fail(d, err, "cannot write %s: it is a directory; name a file with -o", path);
	if ((err == -EACCES || err == -EPERM) && inv->other_user)
		return dl_fail(d, err, "cannot write %s: %s has no permission (the trace is written "
			       "with the rights of the user who called sudo); give another place with -o",
			       path, inv->user ? inv->user : "the calling user");
	return dl_fail(d, err, "cannot write %s: %s; give another place with -o", path, strerror(-err));
}

/* An existing file: a trace, or empty. */
static int check_existing(int fd, const char *path, const struct dl_invoker *inv, struct dl_diag *d)
{
	struct dl_trace *t;
	struct stat st;
	char link[48];

	if (fstat(fd, &st))
		return dl_fail_errno(d, -errno, "%s", path);
	if (!S_ISREG(st.st_mode))
		return dl_fail(d, -EINVAL, "cannot write %s: it is no regular file", path);
	if (st.st_nlink > 1 || (st.st_uid != inv->uid && st.st_uid != geteuid()))
		return dl_fail(d, -EPERM, "cannot write %s: it is somebody else's, or has another name "
			       "too; remove it, or give another place with -o", path);
	if (!st.st_size)
		return 0;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	if (dl_trace_open(&t, link, NULL))
		return dl_fail(d, -EEXIST, "%s exists and is not a dlbpf trace: it is not overwritten; "
			       "give another name with -o", path);
	dl_trace_close(t);
	return 0;
}

int dl_output_open(const char *path, const struct dl_invoker *inv, struct dl_diag *d)
{
	const int flags = O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
	_cleanup_close_ int fd = -1;
	int err;

	fd = open_as(inv, path, flags | O_CREAT | O_EXCL, 0644);
	if (fd >= 0)
		return take_fd(fd);
	if (fd != -EEXIST)
		return say_why(inv, path, fd, d);
	fd = open_as(inv, path, flags, 0);
	if (fd < 0)
		return say_why(inv, path, fd, d);
	err = check_existing(fd, path, inv, d);
	if (err)
		return err;
	if (ftruncate(fd, 0))
		return say_why(inv, path, -errno, d);
	return take_fd(fd);
}

static int open_dir(const char *path)
{
	const int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

int dl_output_open_dir(const char *path, const struct dl_invoker *inv, struct dl_diag *d)
{
	struct own_rights own = {};
	struct stat st;
	int fd = inv->other_user ? take_rights(inv, &own) : 0;

	if (!fd)
		fd = mkdir(path, 0700) && errno != EEXIST ? -errno : open_dir(path);
	if (inv->other_user)
		give_back_rights(&own);
	if (fd < 0)
		return dl_fail(d, fd, "cannot make the folder %s: %s; give another place with -o", path, strerror(-fd));
	if (fstat(fd, &st) || (st.st_uid != inv->uid && st.st_uid != geteuid())) {
		close(fd);
		return dl_fail(d, -EPERM, "the folder %s is somebody else's: remove it, or give another place with -o",
			       path);
	}
	return fd;
}

void dl_output_remove(const char *path, const struct dl_invoker *inv)
{
	struct own_rights own = {};

	if (!inv->other_user)
		unlink(path);
	else if (!take_rights(inv, &own))
		unlink(path);
	if (inv->other_user)
		give_back_rights(&own);
}
