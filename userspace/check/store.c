/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#include "check/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/map.h"
#include "capture/proc.h"
#include "check/gather.h"

enum { PAGE = 4096, OBJECTS_MAX = 16384, AT_ONCE_MAX = 1024 };

/* What is there at once counts when it was met in so many looks, and in so large a share of them: a descriptor
 * that was handed over may stay open a moment longer. */
enum { LASTING = 5 };
#define LASTING_SHARE 0.05

struct object {
	struct ck_storage s;
	uint64_t bytes;			/* in whole pages */
	uint32_t look, main_look;	/* the last in which it was met, and with a trainer */
	uint32_t worker;		/* pid of the worker that had it open in that look; 0 none */
	uint32_t names;			/* looks in which its name was there */
	bool empty;			/* and no memory behind it */
};

struct ck_store {
	DL_VEC(struct object) objs;
	struct dl_map by_key;		/* -> index + 1 */
	struct dl_map files;		/* hashes of paths that were judged already */
	uint32_t look;
	uint64_t peak_bytes, now_bytes, largest;
	uint32_t looks;			/* with any object */
	uint32_t main_cnt[AT_ONCE_MAX], worker_cnt[AT_ONCE_MAX];	/* looks with so many at once: of all trainers, of
									 * the worker that has most */
	bool by_fd, by_name;
	char file[DL_CK_PATH];
	uint64_t file_sz;
};

struct ck_store *ck_store_new(void)
{
	return calloc(1, sizeof(struct ck_store));
}

void ck_store_free(struct ck_store *s)
{
	if (!s)
		return;
	vec_free(&s->objs);
	dl_map_fini(&s->by_key);
	dl_map_fini(&s->files);
	free(s);
}

void ck_store_begin(struct ck_store *s)
{
	s->look++;
	if (s->objs.cnt < OBJECTS_MAX)
		return;
	/* What so many had to tell is known. */
	s->objs.cnt = 0;
	dl_map_fini(&s->by_key);
}

static uint64_t key_of(const struct stat *st)
{
	return st->st_ino ^ (uint64_t)st->st_dev << 44;
}

bool ck_store_has(const struct ck_store *s, const struct stat *st)
{
	uint64_t at;

	return dl_map_get(&s->by_key, key_of(st), &at);
}

static struct object *note(struct ck_store *s, const char *name, const struct stat *st)
{
	const uint64_t key = key_of(st);
	struct object *o = NULL;
	uint32_t owner;
	uint64_t nr, at;

	if (!ck_storage_parse(name, &owner, &nr) || !st->st_size)
		return NULL;
	if (dl_map_get(&s->by_key, key, &at))
		o = &s->objs.v[at - 1];
	if (!o || o->s.owner != owner || o->s.nr != nr) {
		o = vec_push(&s->objs);
		if (!o || dl_map_set(&s->by_key, key, s->objs.cnt))
			return NULL;
		o->s = (struct ck_storage){ .ino = st->st_ino, .dev = dl_dev(st->st_dev), .owner = owner, .nr = nr,
					  .look = s->look };
	}
	o->s.size = (uint64_t)st->st_size;
	o->bytes = (o->s.size + PAGE - 1) / PAGE * PAGE;
	if (o->look != s->look)
		o->worker = 0;
	o->look = s->look;
	if (o->bytes > s->largest)
		s->largest = o->bytes;
	return o;
}

/* --- files that are read ---------------------------------------------------------------------------- */

static bool has_suffix(const char *text, const char *suffix)
{
	const size_t len = strlen(text), n = strlen(suffix);

	return len >= n && !strcmp(text + len - n, suffix);
}

/* Programs, libraries, devices and logs are no data. */
static bool is_data(const char *path)
{
	static const char *const folders[] = {
		"/dev/", "/proc/", "/sys/", "/usr/", "/lib", "/bin/", "/etc/", "/run/", "/var/log/", "/memfd:",
	};
	static const char *const suffixes[] = { ".so", ".py", ".pyc", ".log", ".pt", ".pth", ".ckpt", " (deleted)" };

	if (path[0] != '/' || strstr(path, ".so.") || strstr(path, "/site-packages/") || strstr(path, "/dist-packages/"))
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(folders); i++)
		if (!strncmp(path, folders[i], strlen(folders[i])))
			return false;
	for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++)
		if (has_suffix(path, suffixes[i]))
			return false;
	return true;
}

void ck_store_offer(struct ck_store *s, const char *path, uint64_t size)
{
	if (size <= s->file_sz || strlen(path) >= sizeof(s->file) || !is_data(path))
		return;
	ck_copy(s->file, sizeof(s->file), path);
	s->file_sz = size;
}

const char *ck_store_file(const struct ck_store *s)
{
	return s->file;
}

uint64_t ck_store_file_size(const struct ck_store *s)
{
	return s->file_sz;
}

/* Opened for reading only, as /proc/PID/fdinfo says: "flags: 0100000", octal. */
static bool is_read_only(int proc_fd, const char *nr)
{
	char path[64], text[512];
	const char *flags;

	snprintf(path, sizeof(path), "fdinfo/%s", nr);
	if (dl_proc_read(proc_fd, path, text, sizeof(text)) <= 0)
		return false;
	flags = strstr(text, "flags:");
	return flags && (strtoul(flags + strlen("flags:"), NULL, 8) & O_ACCMODE) == O_RDONLY;
}

static void consider(struct ck_store *s, int proc_fd, int dir_fd, const char *nr, const char *path)
{
	const uint64_t key = dl_hash_bytes(path, strlen(path));
	uint64_t known;
	struct stat st;

	if (path[0] != '/' || dl_map_get(&s->files, key, &known))
		return;
	if (dl_map_set(&s->files, key, 1) || !is_data(path) || !is_read_only(proc_fd, nr))
		return;
	if (!fstatat(dir_fd, nr, &st, 0) && S_ISREG(st.st_mode))
		ck_store_offer(s, path, (uint64_t)st.st_size);
}

/* --- looks ------------------------------------------------------------------------------------------ */

static int one_fd(struct ck_store *s, const struct ck_member *m, int dir_fd, const char *nr)
{
	static const char deleted[] = " (deleted)";
	char link[PATH_MAX], *base;
	struct object *o;
	struct stat st;
	const ssize_t n = readlinkat(dir_fd, nr, link, sizeof(link) - 1);

	if (n <= 0)
		return n < 0 && errno == EACCES ? -EACCES : 0;
	link[n] = '\0';
	base = strrchr(link, '/');
	if (!base || strncmp(base, "/torch_", 7) || base < link + 4 || strncmp(base - 4, "/shm", 4)) {
		consider(s, m->fd, dir_fd, nr, link);
		return 0;
	}
	base++;
	if (has_suffix(base, deleted)) {
		base[strlen(base) - (sizeof(deleted) - 1)] = '\0';
		s->by_fd = true;
	}
	if (fstatat(dir_fd, nr, &st, 0))
		return 0;
	o = note(s, base, &st);
	if (o && m->worker)
		o->worker = m->pid;
	else if (o)
		o->main_look = s->look;
	return 0;
}

int ck_store_member(struct ck_store *s, struct ck_member *m, uint64_t *ret_fds)
{
	_cleanup_closedir_ DIR *dir = NULL;
	const int fd = openat(m->fd, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	uint64_t cnt = 0;
	int err = 0;

	if (fd < 0)
		return errno == EACCES || errno == EPERM ? -EACCES : 0;
	dir = dl_dir_of(fd);
	if (!dir)
		return -ENOMEM;
	for (const struct dirent *de; !err && (de = readdir(dir));) {
		if (de->d_name[0] == '.')
			continue;
		cnt++;
		err = one_fd(s, m, fd, de->d_name);
	}
	if (!err && cnt > *ret_fds)
		*ret_fds = cnt;
	return err;
}

/* Names that stay for more than a look: the file_system strategy, or a failed allocation. */
int ck_store_dir(struct ck_store *s, const struct ck_family *fam, int shm_fd)
{
	_cleanup_closedir_ DIR *dir = NULL;
	const int fd = openat(shm_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return 0;
	dir = dl_dir_of(fd);
	if (!dir)
		return -ENOMEM;
	for (const struct dirent *de; (de = readdir(dir));) {
		struct object *o;
		struct stat st;
		uint32_t owner;
		uint64_t nr;

		if (!ck_storage_parse(de->d_name, &owner, &nr) || !ck_family_has(fam, owner) ||
		    fstatat(fd, de->d_name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode))
			continue;
		o = note(s, de->d_name, &st);
		if (!o)
			continue;
		o->names++;
		o->empty = !st.st_blocks;
		s->by_name |= o->names > 1 && !o->empty;
	}
	return 0;
}

void ck_store_end(struct ck_store *s, struct ck_family *fam, bool late)
{
	uint32_t with_main = 0, with_worker = 0;

	vec_for_each(&s->objs, o)
		o->s.late |= late && o->s.look == s->look;
	vec_for_each(&fam->v, it)
		it->objects = 0;
	s->now_bytes = 0;
	vec_for_each(&s->objs, o) {
		if (o->look != s->look)
			continue;
		s->now_bytes += o->bytes;
		if (o->main_look == s->look) {
			with_main++;
			continue;
		}
		vec_for_each(&fam->v, it)
			if (o->worker && it->pid == o->worker && !it->gone && ++it->objects > with_worker)
				with_worker = it->objects;
	}
	s->looks += s->now_bytes != 0;
	s->main_cnt[with_main < AT_ONCE_MAX ? with_main : AT_ONCE_MAX - 1]++;
	s->worker_cnt[with_worker < AT_ONCE_MAX ? with_worker : AT_ONCE_MAX - 1]++;
	if (s->now_bytes > s->peak_bytes)
		s->peak_bytes = s->now_bytes;
}

/* --- results ---------------------------------------------------------------------------------------- */

bool ck_store_any(const struct ck_store *s)
{
	return s->largest != 0;
}

static int by_order(const void *a, const void *b)
{
	const struct object *x = a, *y = b;

	if (x->s.owner != y->s.owner)
		return x->s.owner < y->s.owner ? -1 : 1;
	return x->s.nr < y->s.nr ? -1 : x->s.nr > y->s.nr;
}

static bool has_failed(const struct object *o)
{
	return o->empty && o->names > 1;
}

/* A batch of which one object got no memory is never finished: those behind it move up. */
static size_t without_failed(const struct object *sorted, size_t cnt, struct ck_storage *to)
{
	uint64_t failed = 0;
	size_t n = 0;

	for (size_t i = 0; i < cnt; i++) {
		if (i && sorted[i].s.owner != sorted[i - 1].s.owner)
			failed = 0;
		if (has_failed(&sorted[i])) {
			failed++;
			continue;
		}
		to[n] = sorted[i].s;
		to[n++].nr -= failed;
	}
	return n;
}

struct dl_ck_batch ck_store_batch(struct ck_store *s)
{
	_cleanup_free_ struct object *sorted = NULL;
	_cleanup_free_ struct ck_storage *v = NULL;
	size_t cnt;

	if (!s->objs.cnt)
		return (struct dl_ck_batch){};
	sorted = malloc(s->objs.cnt * sizeof(*sorted));
	v = malloc(s->objs.cnt * sizeof(*v));
	if (!sorted || !v)
		return (struct dl_ck_batch){};
	memcpy(sorted, s->objs.v, s->objs.cnt * sizeof(*sorted));
	qsort(sorted, s->objs.cnt, sizeof(*sorted), by_order);
	cnt = without_failed(sorted, s->objs.cnt, v);
	for (size_t i = 0; !cnt && i < s->objs.cnt; i++)
		v[i] = sorted[i].s;
	return ck_batch_of(v, cnt ? cnt : s->objs.cnt);
}

/* The most that lasted. */
static uint32_t lasting(const uint32_t *cnt, uint32_t looks)
{
	uint32_t n = AT_ONCE_MAX, sum = 0;

	while (--n) {
		sum += cnt[n];
		if (sum >= LASTING && sum >= LASTING_SHARE * looks)
			return n;
	}
	return 0;
}

static uint32_t in_batches(uint32_t objects, const struct dl_ck_batch *b)
{
	return b->at_least || !b->storages ? 0 : (objects + b->storages - 1) / b->storages;
}

void ck_store_result(struct ck_store *s, struct dl_ck_seen *ret)
{
	ret->batch = ck_store_batch(s);
	ret->peak_bytes = s->peak_bytes;
	ret->now_bytes = s->now_bytes;
	ret->file_descriptor = s->by_fd;
	ret->file_system |= s->by_name;
	vec_for_each(&s->objs, o)
		ret->failed += has_failed(o);
	/* By descriptors only: under the other strategy nobody keeps any. */
	if (s->by_fd) {
		ret->held = in_batches(lasting(s->main_cnt, s->looks), &ret->batch);
		ret->prefetch = in_batches(lasting(s->worker_cnt, s->looks), &ret->batch);
	}
}
