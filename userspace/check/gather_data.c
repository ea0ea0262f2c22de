/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The data: on what file system, and how fast a short read of it is. All of it happens in a process of its
 * own: a file server that is gone keeps a reader for ever. Nothing is written.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/vec.h"
#include "capture/env.h"
#include "capture/proc.h"
#include "check/gather.h"

enum {
	TIMEOUT_MS = 8000,
	FILES_MAX = 256,		/* read at most */
	ENTRIES_MAX = 2000,		/* looked at in search of them */
	DEPTH_MAX = 4,
	BLOCK = 1 << 20,		/* of a read; a multiple of all alignments of O_DIRECT */
	SEEKS = 9,			/* small reads of a large file, */
	SEEK_SZ = 4096,
	SEEK_FILE = 16 << 20,		/* which is as large as this */
};

#define READ_NS 1000000000ULL		/* for so long, */
#define READ_MAX (512ULL << 20)		/* and not more than this */

struct files {
	DL_VEC(char *) paths;
	int left;			/* entries that may still be looked at */
};

static void files_fini(struct files *files)
{
	vec_for_each(&files->paths, it)
		free(*it);
	vec_free(&files->paths);
}

static int add_file(struct files *files, const char *path)
{
	char **to = vec_push(&files->paths);

	if (to)
		*to = strdup(path);
	return to && *to ? 0 : -ENOMEM;
}

/* Regular files of a folder and of those in it, in the order in which they lie there. */
static int find_files(struct files *files, int root_fd, const char *path, int depth)
{
	_cleanup_closedir_ DIR *dir = NULL;
	const int fd = root_fd < 0 ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) :
		dl_open_in_root(root_fd, path, O_RDONLY | O_DIRECTORY);
	int err = 0;

	if (fd < 0)
		return 0;
	dir = dl_dir_of(fd);
	if (!dir)
		return 0;
	for (const struct dirent *de; !err && (de = readdir(dir)) && files->left-- > 0 && files->paths.cnt < FILES_MAX;) {
		char below[PATH_MAX];
		struct stat st;

		if (de->d_name[0] == '.' || fstatat(fd, de->d_name, &st, AT_SYMLINK_NOFOLLOW))
			continue;
		if ((size_t)snprintf(below, sizeof(below), "%s/%s", path, de->d_name) >= sizeof(below))
			continue;
		if (S_ISREG(st.st_mode) && st.st_size)
			err = add_file(files, below);
		else if (S_ISDIR(st.st_mode) && depth < DEPTH_MAX)
			err = find_files(files, root_fd, below, depth + 1);
	}
	return err;
}

static int open_file(int root_fd, const char *path, int flags)
{
	int fd;

	/* openat2(2) takes nothing else beside O_PATH. */
	flags |= flags & O_PATH ? O_CLOEXEC : O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
	if (root_fd >= 0)
		return dl_open_in_root(root_fd, path, flags);
	fd = open(path, flags);
	return fd < 0 ? -errno : fd;
}

/* --- rate ------------------------------------------------------------------------------------------ */

struct rate {
	uint64_t bytes, ns, files, pages, cached;
	bool direct;
	void *buf;
};

/* Pages of the file that the page cache holds already. Of files that are not one's own the kernel says that
 * all of them are there (134fca9063ad, 5.2). */
static void count_cached(struct rate *r, int fd, const struct stat *st)
{
	const uint64_t size = (uint64_t)st->st_size;
	const uint64_t sz = size < READ_MAX ? size : READ_MAX, page = (uint64_t)sysconf(_SC_PAGESIZE);
	const size_t pages = (size_t)((sz + page - 1) / page);
	_cleanup_free_ unsigned char *in = calloc(pages ? pages : 1, 1);
	const bool told = !geteuid() || st->st_uid == geteuid();
	void *map = in && sz && told ? mmap(NULL, sz, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;

	if (map == MAP_FAILED)
		return;
	if (!mincore(map, sz, in)) {
		r->pages += pages;
		for (size_t i = 0; i < pages; i++)
			r->cached += in[i] & 1;
	}
	munmap(map, sz);
}

static bool enough(const struct rate *r, uint64_t started)
{
	return dl_now_ns() - started > READ_NS || r->bytes >= READ_MAX;
}

/* One file, until its end or ours. -EINVAL: this file system has no O_DIRECT. */
static int read_file(struct rate *r, int root_fd, const char *path, uint64_t started)
{
	_cleanup_close_ int fd = open_file(root_fd, path, r->direct ? O_DIRECT : 0);
	uint64_t before = r->bytes;
	struct stat st;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) || !S_ISREG(st.st_mode))
		return -EINVAL;
	if (!r->direct)
		count_cached(r, fd, &st);
	while (!enough(r, started)) {
		const ssize_t n = read(fd, r->buf, BLOCK);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (!n)
			break;
		r->bytes += (uint64_t)n;
	}
	r->files += r->bytes > before;
	return 0;
}

static int read_files(struct rate *r, int root_fd, const struct files *files)
{
	const uint64_t started = dl_now_ns();
	int err = 0;

	vec_for_each(&files->paths, it) {
		err = read_file(r, root_fd, *it, started);
		/* No O_DIRECT here; or a file that may not be read, which is not the first. */
		if (err && (r->direct || !r->bytes) && !r->files)
			break;
		err = 0;
		if (enough(r, started))
			break;
	}
	r->ns = dl_now_ns() - started;
	return err;
}

/* The median time of small reads here and there in the first large file, past the page cache. */
static uint64_t measure_seeks(int root_fd, const struct files *files, void *buf)
{
	uint64_t ns[SEEKS];
	struct stat st;

	vec_for_each(&files->paths, it) {
		_cleanup_close_ int fd = open_file(root_fd, *it, O_DIRECT);
		uint64_t at = 1;

		if (fd < 0 || fstat(fd, &st) || st.st_size < SEEK_FILE)
			continue;
		for (size_t i = 0; i < SEEKS; i++) {
			const uint64_t before = dl_now_ns();

			at = at * 6364136223846793005ULL + 1442695040888963407ULL;
			if (pread(fd, buf, SEEK_SZ, (off_t)((at >> 20) % ((uint64_t)st.st_size / SEEK_SZ) * SEEK_SZ)) < 0)
				return 0;
			ns[i] = dl_now_ns() - before;
		}
		dl_vec_sort(ns, SEEKS, sizeof(ns[0]));
		return ns[SEEKS / 2];
	}
	return 0;
}

static void measure(struct dl_ck_data *data, int root_fd, const struct files *files)
{
	struct rate r = { .direct = true };
	int err;

	if (posix_memalign(&r.buf, 4096, BLOCK))
		return;
	err = read_files(&r, root_fd, files);
	if (err) {
		r = (struct rate){ .buf = r.buf };
		err = read_files(&r, root_fd, files);
	}
	if (!err && r.direct)
		data->seek_ns = measure_seeks(root_fd, files, r.buf);
	free(r.buf);
	if (err || !r.bytes) {
		snprintf(data->why, sizeof(data->why), "%s", err ? strerror(-err) : "no file with anything in it");
		return;
	}
	data->read_bytes = r.bytes;
	data->read_ns = r.ns;
	data->file_cnt = r.files;
	data->direct = r.direct;
	data->cached = r.pages ? (double)r.cached / (double)r.pages : -1;
}

/* --- file system ----------------------------------------------------------------------------------- */

/* A disk that turns; of a partition, the disk says so. */
static bool is_rotational(const char *root, dev_t dev)
{
	char path[128];
	uint64_t v;

	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/queue/rotational", major(dev), minor(dev));
	if (ck_read_u64(root, path, &v))
		return v == 1;
	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/../queue/rotational", major(dev), minor(dev));
	return ck_read_u64(root, path, &v) && v == 1;
}

static void find_mount(struct dl_ck_data *data, const char *root, uint32_t pid, int fd)
{
	_cleanup_free_ char *text = NULL;
	_cleanup_close_ int self = -1;
	struct ck_mount m;
	struct statx sx;
	char path[PATH_MAX];
	uint64_t id = 0;
	size_t len;

	if (pid)
		snprintf(path, sizeof(path), "%s/proc/%" PRIu32, root, pid);
	else
		snprintf(path, sizeof(path), "%s/proc/self", root);
	self = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	/* By its id: several file systems may be mounted one over the other. Linux 5.8, fa2fcf4f1df1. */
	if (!root[0] && !statx(fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &sx) && sx.stx_mask & STATX_MNT_ID)
		id = sx.stx_mnt_id;
	if (self < 0 || dl_proc_strings(self, "mountinfo", 16 << 20, &text, &len) ||
	    !ck_mount_find(text, id, data->path, &m))
		return;
	ck_copy(data->fs, sizeof(data->fs), m.fs);
	ck_copy(data->source, sizeof(data->source), m.source);
	ck_copy(data->options, sizeof(data->options), m.options);
	data->class = ck_fs_class(m.fs);
}

struct job {
	const char *root;
	uint32_t pid;
	int root_fd;		/* of the process; -1 our own */
};

static int look(void *arg, void *buf)
{
	const struct job *job = arg;
	struct dl_ck_data *data = buf;
	_cleanup_(files_fini) struct files files = { .left = ENTRIES_MAX };
	_cleanup_close_ int fd = open_file(job->root_fd, data->path, O_PATH);
	struct stat st;
	int err;

	if (fd < 0 || fstat(fd, &st)) {
		snprintf(data->why, sizeof(data->why), "%s", strerror(fd < 0 ? -fd : errno));
		return 0;
	}
	find_mount(data, job->root, job->pid, fd);
	data->rotational = is_rotational(job->root, st.st_dev);
	err = S_ISDIR(st.st_mode) ? find_files(&files, job->root_fd, data->path, 0) : add_file(&files, data->path);
	if (err)
		return err;
	if (!files.paths.cnt)
		ck_copy(data->why, sizeof(data->why), "there is no file in it");
	else
		measure(data, job->root_fd, &files);
	return 0;
}

void ck_gather_data(struct dl_ck_facts *f, const char *root, uint32_t pid)
{
	_cleanup_close_ int root_fd = -1;
	struct dl_ck_data *data = &f->data;
	struct dl_ck_data *got = malloc(sizeof(*got));
	struct job job = { .root = root, .pid = pid };
	char path[64];
	int err;

	if (!got)
		return;
	if (pid) {
		snprintf(path, sizeof(path), "/proc/%" PRIu32 "/root", pid);
		root_fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	}
	job.root_fd = root_fd;
	data->cached = -1;
	*got = *data;
	err = ck_in_child(look, &job, got, sizeof(*got), TIMEOUT_MS);
	if (!err)
		*data = *got;
	else if (err == -ETIMEDOUT)
		data->timed_out = true;
	else
		snprintf(data->why, sizeof(data->why), "could not be looked at: %s", strerror(-err));
	free(got);
}
