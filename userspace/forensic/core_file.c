/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The bytes of a core file. A packed one is gone through once, and only what is needed is kept, in a
 * file without a name: of a training's tens of GiB that is the headers, the stacks and little more.
 */
#include "forensic/core_int.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include "base/cleanup.h"
#include "base/file.h"

enum { IN_SZ = 128 << 10, OUT_SZ = 1 << 20 };

#define UNPACKED_MAX (UINT64_C(1) << 40)

static const struct {
	const char *magic;
	size_t sz;
	const char *what, *how;
} packings[] = {
	{ "\x04\x22\x4d\x18", 4, "lz4", "lz4 -d" },
	{ "\xfd" "7zXZ", 5, "xz", "xz -dk" },
	{ "\x1f\x8b", 2, "gzip", "gzip -dk" },
	{ "BZh", 3, "bzip2", "bzip2 -dk" },
};

static const char zstd_magic[] = "\x28\xb5\x2f\xfd";

int dl_core_part_add(struct dl_core_file *f, uint64_t off, uint64_t sz)
{
	struct dl_core_part *p;

	if (!sz || sz > UINT64_MAX - off)
		return 0;
	p = vec_push(&f->parts);
	if (!p)
		return -ENOMEM;
	*p = (struct dl_core_part){ off, off + sz };
	return 0;
}

/* Sorted, and those that touch made one. */
void dl_core_parts_sort(struct dl_core_file *f)
{
	size_t cnt = 0;

	vec_sort(&f->parts);
	for (size_t i = 0; i < f->parts.cnt; i++) {
		struct dl_core_part *last = cnt ? &f->parts.v[cnt - 1] : NULL;

		if (last && f->parts.v[i].off <= last->end)
			last->end = last->end > f->parts.v[i].end ? last->end : f->parts.v[i].end;
		else
			f->parts.v[cnt++] = f->parts.v[i];
	}
	f->parts.cnt = cnt;
}

/* The part that holds a place; NULL none. */
static const struct dl_core_part *part_at(const struct dl_core_file *f, uint64_t off)
{
	size_t i = vec_first_at(&f->parts, off + 1);

	return i && f->parts.v[i - 1].end > off ? &f->parts.v[i - 1] : NULL;
}

int dl_core_pread(const struct dl_core_file *f, void *buf, size_t sz, uint64_t off)
{
	const struct dl_core_part *p = part_at(f, off);

	if (!p || sz > p->end - off || off + sz > f->sz)
		return -ENODATA;
	return dl_read_at(f->fd, buf, sz, off);
}

void dl_core_file_close(struct dl_core_file *f)
{
	if (f->fd >= 0)
		close(f->fd);
	f->fd = -1;
	vec_free(&f->parts);
}

/* --- unpacking --------------------------------------------------------------------------------- */

static int nameless_file(void)
{
	const char *dir = getenv("TMPDIR");
	int fd = open(dir && *dir ? dir : "/var/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	if (fd < 0)
		fd = memfd_create("core", MFD_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static int write_at(int fd, const uint8_t *p, size_t sz, uint64_t off)
{
	while (sz) {
		const ssize_t n = pwrite(fd, p, sz, (off_t)off);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		p += n;
		off += (uint64_t)n;
		sz -= (size_t)n;
	}
	return 0;
}

struct unpacking {
	struct dl_core_file *f;
	const struct dl_core_plan *plan;
	uint64_t need, last;	/* last: nothing behind it is kept */
	bool planned;
};

/* Asks for what is needed next, as long as that is there already. */
static int ask(struct unpacking *u)
{
	struct dl_core_file *f = u->f;
	int err = 0;

	while (!u->planned && f->sz >= u->need && !err) {
		f->parts.cnt = 0;
		err = dl_core_part_add(f, 0, f->sz);
		if (!err)
			err = u->plan->need(u->plan->arg, &u->need);
		u->planned = !u->need;
	}
	if (err || !u->planned)
		return err;
	err = u->plan->keep(u->plan->arg);
	dl_core_parts_sort(f);
	u->last = f->parts.cnt ? f->parts.v[f->parts.cnt - 1].end : 0;
	return err;
}

static int keep_some(struct dl_core_file *f, const uint8_t *p, size_t sz)
{
	const uint64_t from = f->sz, to = f->sz + sz;
	int err = 0;

	for (size_t i = vec_first_at(&f->parts, from), first = i ? i - 1 : 0; first < f->parts.cnt && !err; first++) {
		const struct dl_core_part *part = &f->parts.v[first];
		const uint64_t a = part->off > from ? part->off : from, b = part->end < to ? part->end : to;

		if (part->off >= to)
			break;
		if (a < b)
			err = write_at(f->fd, p + (a - from), b - a, a);
	}
	return err;
}

static int take(struct unpacking *u, const uint8_t *p, size_t sz)
{
	int err;

	if (u->planned) {
		err = keep_some(u->f, p, sz);
		u->f->sz += sz;
		return err;
	}
	err = write_at(u->f->fd, p, sz, u->f->sz);
	u->f->sz += sz;
	return err ? err : ask(u);
}

/* A stream that ends too early or is broken leaves what came before: the core then is one that was cut off. */
static int unpack(struct unpacking *u, int fd, ZSTD_DStream *z, uint8_t *in, uint8_t *out)
{
	for (;;) {
		const ssize_t n = read(fd, in, IN_SZ);
		ZSTD_inBuffer zin = { in, n > 0 ? (size_t)n : 0, 0 };
		ZSTD_outBuffer zout;

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (!n)
			return 0;
		do {
			int err;

			zout = (ZSTD_outBuffer){ out, OUT_SZ, 0 };
			if (ZSTD_isError(ZSTD_decompressStream(z, &zout, &zin)) || u->f->sz > UNPACKED_MAX)
				return 0;
			err = take(u, out, zout.pos);
			if (err)
				return err;
			u->f->whole = u->planned && u->f->sz >= u->last;
			if (u->f->whole)
				return 0;
		} while (zin.pos < zin.size || zout.pos == OUT_SZ);
	}
}

static int open_packed(struct dl_core_file *f, int fd, const char *path, const struct dl_core_plan *plan,
		       struct dl_diag *d)
{
	_cleanup_free_ uint8_t *in = malloc(IN_SZ), *out = malloc(OUT_SZ);
	struct unpacking u = { .f = f, .plan = plan };
	ZSTD_DStream *z = ZSTD_createDStream();
	int err;

	f->packed = true;
	f->fd = nameless_file();
	if (!in || !out || !z)
		err = dl_oom(d);
	else if (f->fd < 0)
		err = dl_fail_errno(d, f->fd, "cannot make a temporary file");
	else
		err = plan->need(plan->arg, &u.need);
	if (!err) {
		err = unpack(&u, fd, z, in, out);
		if (!err && !u.planned) {
			f->parts.cnt = 0;
			err = dl_core_part_add(f, 0, f->sz);
		}
		if (err && !(d && d->msg[0]))
			dl_fail_errno(d, err, "cannot unpack %s", path);
	}
	ZSTD_freeDStream(z);
	return err;
}

/* --- opening ----------------------------------------------------------------------------------- */

static int refuse_packed(const char magic[8], const char *path, struct dl_diag *d)
{
	for (size_t i = 0; i < ARRAY_SIZE(packings); i++) {
		if (!memcmp(magic, packings[i].magic, packings[i].sz))
			return dl_fail(d, -ENOTSUP, "%s is packed by %s, which is not read here; unpack it first: %s %s",
				       path, packings[i].what, packings[i].how, path);
	}
	if (!memcmp(magic, "ProblemT", 8))
		return dl_fail(d, -ENOTSUP, "%s is a report of apport; the core is in it: apport-unpack %s DIR gives "
			       "DIR/CoreDump", path, path);
	return 0;
}

int dl_core_file_open(struct dl_core_file *f, const char *path, const struct dl_core_plan *plan, int64_t *ret_wall_ns,
		      struct dl_diag *d)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	char magic[8] = "";
	struct stat st;
	int err;

	f->fd = -1;
	if (fd < 0 || fstat(fd, &st))
		return dl_fail_errno(d, -errno, "cannot open %s", path);
	if (!S_ISREG(st.st_mode))
		return dl_fail(d, -EINVAL, "%s is not a regular file", path);
	*ret_wall_ns = st.st_mtim.tv_sec * INT64_C(1000000000) + st.st_mtim.tv_nsec;
	if (pread(fd, magic, sizeof(magic), 0) < 4)
		return dl_fail(d, -EINVAL, "%s is not a core file: it is %s", path, st.st_size ? "too short" : "empty");
	err = refuse_packed(magic, path, d);
	if (err)
		return err;
	if (!memcmp(magic, zstd_magic, 4))
		return open_packed(f, fd, path, plan, d);
	f->fd = take_fd(fd);
	f->sz = (uint64_t)st.st_size;
	return dl_core_part_add(f, 0, f->sz) ? dl_oom(d) : 0;
}
