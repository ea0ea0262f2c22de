/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#include "import/spill.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/vec.h"

#define DEFAULT_BUF_SZ (32u << 20)
#define READ_SZ (128u << 10)
#define RUNS_MAX 512	/* 16 GiB of events: their read buffers are 64 MiB then */

struct item { uint64_t ts; uint32_t off; };

/* One sorted piece: a file, or what is still in memory (fd -1). */
struct run {
	int fd;
	uint8_t *buf;
	size_t at, end;		/* unread bytes of buf, or items of memory */
	uint64_t file_at;
	const struct dl_hdr *cur;	/* NULL: over */
};

struct dl_spill {
	uint8_t *buf;
	size_t sz, cap;
	DL_VEC(struct item) items;
	DL_VEC(struct run) runs;
	struct run *last;	/* gave the last event */
};

int dl_temp_file(int *ret_fd, struct dl_diag *d)
{
	const char *dir = getenv("TMPDIR");
	char path[4096];
	int fd;

	if (!dir || !*dir)
		dir = "/var/tmp";
	fd = open(dir, O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0 && snprintf(path, sizeof(path), "%s/dlbpf-XXXXXX", dir) < (int)sizeof(path)) {
		fd = mkostemp(path, O_CLOEXEC);
		if (fd >= 0)
			unlink(path);
	}
	if (fd < 0)
		return dl_fail_errno(d, -errno, "cannot make a temporary file in %s (TMPDIR names another folder)", dir);
	*ret_fd = fd;
	return 0;
}

struct dl_spill *dl_spill_new(size_t buf_sz)
{
	struct dl_spill *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->cap = buf_sz ? buf_sz : DEFAULT_BUF_SZ;
	if (s->cap < DL_EVENT_MAX_SZ)
		s->cap = DL_EVENT_MAX_SZ;
	s->buf = malloc(s->cap);
	if (!s->buf) {
		free(s);
		return NULL;
	}
	return s;
}

void dl_spill_free(struct dl_spill *s)
{
	if (!s)
		return;
	vec_for_each(&s->runs, r) {
		if (r->fd >= 0)
			close(r->fd);
		free(r->buf);
	}
	vec_free(&s->runs);
	vec_free(&s->items);
	free(s->buf);
	free(s);
}

/* Events lie on multiples of 8 bytes, in memory and in files. */
static size_t padded_sz(const struct dl_hdr *ev)
{
	return (ev->size + 7u) & ~(size_t)7;
}

static int cmp_items(const void *a, const void *b)
{
	const struct item *x = a, *y = b;

	if (x->ts != y->ts)
		return x->ts < y->ts ? -1 : 1;
	return x->off < y->off ? -1 : x->off > y->off;
}

static int write_all(int fd, const void *p, size_t sz)
{
	for (size_t done = 0; done < sz;) {
		ssize_t n = write(fd, (const uint8_t *)p + done, sz - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		done += (size_t)n;
	}
	return 0;
}

static int write_items(struct dl_spill *s, int fd)
{
	_cleanup_free_ uint8_t *out = malloc(READ_SZ);
	size_t cnt = 0;
	int err = 0;

	if (!out)
		return -ENOMEM;
	vec_for_each(&s->items, it) {
		const struct dl_hdr *ev = (const void *)(s->buf + it->off);
		size_t padded = padded_sz(ev);

		if (cnt + padded > READ_SZ) {
			err = err ? err : write_all(fd, out, cnt);
			cnt = 0;
		}
		memcpy(out + cnt, ev, padded);
		cnt += padded;
	}
	return err ? err : write_all(fd, out, cnt);
}

/* Sorts what is in memory and puts it into a file. */
static int flush(struct dl_spill *s, struct dl_diag *d)
{
	struct run run = { .fd = -1 };
	struct run *at;
	int err;

	if (s->runs.cnt == RUNS_MAX)
		return dl_fail(d, -EFBIG, "more than %u GiB of GPU records", RUNS_MAX * (DEFAULT_BUF_SZ >> 20) >> 10);
	err = dl_temp_file(&run.fd, d);
	if (err)
		return err;
	qsort(s->items.v, s->items.cnt, sizeof(*s->items.v), cmp_items);
	err = write_items(s, run.fd);
	if (!err) {
		at = vec_push(&s->runs);
		if (at)
			*at = run;
		err = at ? 0 : -ENOMEM;
	}
	if (err) {
		close(run.fd);
		return err == -ENOMEM ? dl_oom(d) : dl_fail_errno(d, err, "cannot write a temporary file");
	}
	s->items.cnt = 0;
	s->sz = 0;
	return 0;
}

int dl_spill_add(struct dl_spill *s, const struct dl_hdr *ev, struct dl_diag *d)
{
	size_t padded = padded_sz(ev);
	struct item *it;
	int err;

	if (s->sz + padded > s->cap) {
		err = flush(s, d);
		if (err)
			return err;
	}
	it = vec_push(&s->items);
	if (!it)
		return dl_oom(d);
	*it = (struct item){ ev->ts, (uint32_t)s->sz };
	memcpy(s->buf + s->sz, ev, ev->size);
	memset(s->buf + s->sz + ev->size, 0, padded - ev->size);
	s->sz += padded;
	return 0;
}

/* --- reading --- */

/* At least want bytes behind at, as far as the file has them. */
static int run_fill(struct run *r, size_t want)
{
	if (r->end - r->at >= want)
		return 0;
	memmove(r->buf, r->buf + r->at, r->end - r->at);
	r->end -= r->at;
	r->at = 0;
	while (r->end < want) {
		ssize_t n = pread(r->fd, r->buf + r->end, READ_SZ - r->end, (off_t)r->file_at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (!n)
			break;
		r->end += (size_t)n;
		r->file_at += (uint64_t)n;
	}
	return 0;
}

static int run_next(struct dl_spill *s, struct run *r)
{
	const struct dl_hdr *ev;
	int err;

	r->cur = NULL;
	if (r->fd < 0) {
		if (r->at < s->items.cnt)
			r->cur = (void *)(s->buf + s->items.v[r->at++].off);
		return 0;
	}
	err = run_fill(r, sizeof(*ev));
	if (err || r->end == r->at)
		return err;
	ev = (void *)(r->buf + r->at);
	if (r->end - r->at < sizeof(*ev))
		return -EIO;
	err = run_fill(r, padded_sz(ev));
	if (err)
		return err;
	ev = (void *)(r->buf + r->at);
	if (r->end - r->at < padded_sz(ev))
		return -EIO;
	r->at += padded_sz(ev);
	r->cur = ev;
	return 0;
}

int dl_spill_rewind(struct dl_spill *s, struct dl_diag *d)
{
	struct run *last = vec_last(&s->runs);
	int err = 0;

	if (s->items.cnt)
		qsort(s->items.v, s->items.cnt, sizeof(*s->items.v), cmp_items);
	if (!last || last->fd >= 0) {
		last = vec_push(&s->runs);
		if (!last)
			return dl_oom(d);
		last->fd = -1;
	}
	s->last = NULL;
	vec_for_each(&s->runs, r) {
		if (r->fd >= 0 && !r->buf) {
			r->buf = malloc(READ_SZ);
			if (!r->buf)
				return dl_oom(d);
		}
		r->at = r->end = 0;
		r->file_at = 0;
		err = err ? err : run_next(s, r);
	}
	return err ? dl_fail_errno(d, err, "cannot read a temporary file") : 0;
}

int dl_spill_next(struct dl_spill *s, const struct dl_hdr **ret, struct dl_diag *d)
{
	struct run *best = NULL;
	int err = s->last ? run_next(s, s->last) : 0;

	if (err)
		return dl_fail_errno(d, err, "cannot read a temporary file");
	/* Runs are in the order in which they were filled: the first of equal times came first. */
	vec_for_each(&s->runs, r) {
		if (r->cur && (!best || r->cur->ts < best->cur->ts))
			best = r;
	}
	s->last = best;
	if (!best)
		return 0;
	*ret = best->cur;
	return 1;
}
