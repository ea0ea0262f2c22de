/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* One trace of many segments: at a trigger, at the end, and of what a killed recorder has left. */
#include "capture/keep.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "capture/keep_int.h"
#include "capture/output.h"

#define SUFFIX ".dlbpf"
#define NAME_TRIES 100

/* A segment that is to be joined. Held open: it may be dropped meanwhile. */
struct part { char name[DL_SEG_NAME_SZ]; int fd; uint64_t sz; };
struct parts { struct part *v; size_t cnt, cap; };

static void parts_fini(struct parts *parts)
{
	vec_for_each(parts, it)
		if (it->fd >= 0)
			close(it->fd);
	vec_free(parts);
}

static int add_part(struct parts *parts, const struct dl_keep_dir *dir, const char *name)
{
	const int fd = dl_keep_dir_read(dir, name);
	struct part *part;
	struct stat st;

	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;	/* given up for want of room */
	part = fstat(fd, &st) ? NULL : vec_push(parts);
	if (!part) {
		close(fd);
		return -ENOMEM;
	}
	snprintf(part->name, sizeof(part->name), "%s", name);
	part->fd = fd;
	part->sz = (uint64_t)st.st_size;
	return 0;
}

/* --- joining ------------------------------------------------------------------------------------- */

struct into { struct dl_sink sink; struct dl_trace_writer *w; };

static struct dl_trace *open_part(const struct part *part)
{
	char path[48];
	struct dl_trace *t;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", part->fd);
	return dl_trace_open(&t, path, NULL) ? NULL : t;
}

/* Begins the joint trace with the description of its first part. fd becomes the writer's. */
static int begin(struct dl_trace_writer **ret, int fd, const struct dl_trace *first)
{
	const int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);

	return own < 0 ? -errno : dl_trace_writer_open(ret, own, &dl_trace_info(first)->meta, NULL, NULL);
}

static int writer_emit(struct dl_sink *sink, const struct dl_hdr *ev)
{
	return dl_trace_write(((struct into *)sink)->w, ev);
}

static int say_stop(struct dl_trace_writer *w, uint64_t ts, const char *text)
{
	struct dl_ev_mark ev = DL_EVENT_INIT(mark, DL_EV_MARK, ts, 0, 0);
	struct into into = { { writer_emit }, w };

	ev.what = DL_MARK_STOP;
	return dl_emit_text(&into.sink, &ev.h, text);
}

/* From part first on. consume: each goes as soon as it is copied, which gives the room for the next. */
static int join_from(const struct dl_keep_dir *dir, struct parts *parts, size_t first, int fd, bool consume,
		     const char *stop)
{
	struct dl_trace_writer_stats ws;
	struct dl_trace_writer *w = NULL;
	uint64_t last_ts = 0;
	int err = 0, close_err;

	for (size_t i = first; i < parts->cnt && !err; i++) {
		struct dl_trace *t = open_part(&parts->v[i]);
		const bool is_first = !w;

		if (!t)
			continue;	/* its recorder was killed before it had a head */
		if (is_first)
			err = begin(&w, fd, t);
		if (!err)
			err = dl_trace_copy_frames(t, w, !is_first);
		if (dl_trace_info(t)->last_ts > last_ts)
			last_ts = dl_trace_info(t)->last_ts;
		dl_trace_close(t);
		if (err || !consume)
			continue;
		dl_keep_dir_unlink(dir, parts->v[i].name);
		close(parts->v[i].fd);
		parts->v[i].fd = -1;
	}
	if (!w)
		return err ? err : -ENODATA;
	dl_trace_writer_stats(w, &ws);
	if (!err && !ws.frames)
		err = -ENODATA;
	if (!err && stop)
		err = say_stop(w, last_ts, stop);
	close_err = dl_trace_writer_close(w, NULL);	/* as much of it as there is, can be read */
	return err ? err : close_err;
}

enum { SLACK = 16 << 10 };	/* the head of the copy, and what is less than a block of either file */

/* The oldest parts make room for the others: as many as it takes for the largest one that is left. */
static size_t give_up(const struct dl_keep_dir *dir, struct parts *parts)
{
	uint64_t room = 0, need;
	size_t first = 0;

	do {
		room += parts->v[first].sz;
		dl_keep_dir_unlink(dir, parts->v[first].name);
		close(parts->v[first].fd);
		parts->v[first].fd = -1;
		first++;
		need = 0;
		for (size_t i = first; i < parts->cnt; i++)
			need = parts->v[i].sz > need ? parts->v[i].sz : need;
	} while (first + 1 < parts->cnt && room < need + SLACK);
	return first;
}

static int join(const struct dl_keep_dir *dir, struct parts *parts, int fd, const char *stop)
{
	int err = join_from(dir, parts, 0, fd, false, stop);
	size_t first;

	if ((err != -ENOSPC && err != -EDQUOT) || parts->cnt < 2)
		return err;
	if (ftruncate(fd, 0))
		return err;
	first = give_up(dir, parts);
	return join_from(dir, parts, first, fd, true, stop);
}

/* --- in a process of its own ---------------------------------------------------------------------- */

static bool is_wanted(const struct dl_keep *k, const struct parts *parts, const struct dl_keep_out *out, int fd)
{
	if (fd <= STDERR_FILENO || fd == k->dir.fd || fd == out->fd)
		return true;
	vec_for_each(parts, it)
		if (it->fd == fd)
			return true;
	return false;
}

/* The recorder's: what it closes must be closed, its probes above all. */
static void close_others(const struct dl_keep *k, const struct parts *parts, const struct dl_keep_out *out)
{
	DIR *dp = opendir("/proc/self/fd");
	struct dirent *de;

	while (dp && (de = readdir(dp))) {
		const int fd = atoi(de->d_name);

		if (de->d_name[0] != '.' && fd != dirfd(dp) && !is_wanted(k, parts, out, fd))
			close(fd);
	}
	if (dp)
		closedir(dp);
}

__attribute__((noreturn))
static void be_saver(const struct dl_keep *k, struct parts *parts, const struct dl_keep_out *out)
{
	int fd = out->fd, err;

	close_others(k, parts, out);
	setpriority(PRIO_PROCESS, 0, 10);
	if (fd < 0)
		fd = dl_output_open(out->path, k->dir.inv, NULL);
	err = fd < 0 ? fd : join(&k->dir, parts, fd, out->stop);
	if (err && out->fd < 0 && fd >= 0 && err != -ENOSPC && err != -EDQUOT)
		dl_output_remove(out->path, k->dir.inv);
	if (!err && out->remove)
		dl_output_remove(out->remove, k->dir.inv);
	_exit(-err & 0xff);
}

pid_t dl_keep_save(struct dl_keep *k, uint64_t seen_ts, const struct dl_keep_out *out)
{
	_cleanup_(parts_fini) struct parts parts = {};
	pid_t pid;
	int err = 0, closed[2];
	char c;

	if (out->last)
		dl_keep_end(k, seen_ts);
	else
		err = dl_keep_rotate(k, seen_ts);
	for (size_t i = 0; i < k->segs.cnt && !err; i++)
		err = add_part(&parts, &k->dir, k->segs.v[i].name);
	if (err)
		return err;
	if (pipe2(closed, O_CLOEXEC))
		return -errno;
	pid = fork();
	if (!pid) {
		/* What the saver removes gives room once nobody has it open: not before the recorder has closed its own. */
		close(closed[1]);
		while (read(closed[0], &c, 1) < 0 && errno == EINTR)
			;
		close(closed[0]);
		be_saver(k, &parts, out);
	}
	err = pid < 0 ? -errno : 0;
	parts_fini(&parts);
	close(closed[0]);
	close(closed[1]);
	return err ? err : pid;
}

bool dl_keep_saved(pid_t pid, bool wait, int *ret_err)
{
	int status;
	pid_t got;

	do
		got = waitpid(pid, &status, wait ? 0 : WNOHANG);
	while (got < 0 && errno == EINTR);
	if (!got)
		return false;
	*ret_err = got < 0 ? -errno : WIFEXITED(status) ? -WEXITSTATUS(status) : -EINTR;
	return true;
}

/* --- names --------------------------------------------------------------------------------------- */

char *dl_keep_name(const char *base, time_t when, const char *what)
{
	const size_t len = strlen(base), end = sizeof(SUFFIX) - 1;
	const size_t stem = len > end && !strcmp(base + len - end, SUFFIX) ? len - end : len;
	struct tm tm = {};
	struct stat st;

	localtime_r(&when, &tm);
	for (int i = 1; i <= NAME_TRIES; i++) {
		char stamp[32], nr[16] = "", *path;

		strftime(stamp, sizeof(stamp), "%Y%m%d-%H%M%S", &tm);
		if (i > 1)
			snprintf(nr, sizeof(nr), "-%d", i);
		if (asprintf(&path, "%.*s-%s-%s%s" SUFFIX, (int)stem, base, stamp, what, nr) < 0)
			return NULL;
		if (lstat(path, &st) || i == NAME_TRIES)
			return path;
		free(path);
	}
	return NULL;
}

/* --- what a killed recorder has left --------------------------------------------------------------- */

/* "20260131T235959Z-4711" of "20260131T235959Z-4711-000003.dlbpf"; 0: it is none of ours. */
static size_t session_len(const char *name)
{
	const char *end = strrchr(name, '-');

	return end && end != name && strspn(end + 1, "0123456789") == 6 && !strcmp(end + 7, SUFFIX) ?
		(size_t)(end - name) : 0;
}

static int recover_one(const struct dl_keep_dir *dir, const char *base, char *const *names, size_t cnt,
		       const struct dl_keep_told *told)
{
	_cleanup_(parts_fini) struct parts parts = {};
	_cleanup_free_ char *path = NULL;
	_cleanup_close_ int fd = -1;
	struct dl_diag d = {};
	char text[512];
	int err = 0;

	for (size_t i = 0; i < cnt && !err; i++)
		err = add_part(&parts, dir, names[i]);
	if (err || !parts.cnt)
		return err;
	path = dl_keep_name(base, time(NULL), "recovered");
	if (!path)
		return -ENOMEM;
	fd = dl_output_open(path, dir->inv, &d);
	err = fd < 0 ? fd : join(dir, &parts, fd, NULL);
	if (err == -ENODATA) {	/* not one event */
		dl_output_remove(path, dir->inv);
		err = 0;
	} else if (err) {
		snprintf(text, sizeof(text), "could not save what a killed recorder left in %.200s: %.250s", dir->path,
			 d.msg[0] ? d.msg : strerror(-err));
		if (told && told->fn)
			told->fn(text, told->arg);
		return err;	/* the segments stay */
	} else {
		snprintf(text, sizeof(text), "a recorder was killed before; what it had kept is now %s", path);
		if (told && told->fn)
			told->fn(text, told->arg);
	}
	for (size_t i = 0; i < cnt; i++)
		dl_keep_dir_unlink(dir, names[i]);
	return err;
}

int dl_keep_recover(const struct dl_keep_dir *dir, const char *base, const struct dl_keep_told *told)
{
	struct dl_names names;
	int err = dl_keep_dir_list(dir, &names);

	if (err)
		return err;
	for (size_t i = 0, end; i < names.cnt; i = end) {
		const size_t len = session_len(names.v[i]);

		end = i + 1;
		if (!len)
			continue;
		while (end < names.cnt && session_len(names.v[end]) == len && !strncmp(names.v[i], names.v[end], len))
			end++;
		if (recover_one(dir, base, names.v + i, end - i, told) == -ENOMEM)
			err = -ENOMEM;
	}
	dl_names_fini(&names);
	return err;
}
