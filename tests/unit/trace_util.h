/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* For the tests of the trace file: random events, whole files in and out, repaired checksums. */
#ifndef DLBPF_TESTS_TRACE_UTIL_H
#define DLBPF_TESTS_TRACE_UTIL_H

#include <fcntl.h>
#include <sys/stat.h>

#include "base/vec.h"
#include "trace/format.h"
#include "trace/schema.h"
#include "trace/trace.h"
#include "unit/test.h"

static uint64_t rng_state = 1;

__attribute__((unused))
static void rng_seed(uint64_t seed)
{
	rng_state = seed * 0x9e3779b97f4a7c15ULL + 1;
}

__attribute__((unused))
static uint64_t rng(void)
{
	rng_state ^= rng_state << 13;
	rng_state ^= rng_state >> 7;
	return rng_state ^= rng_state << 17;
}

/* Numbers as they are met: small ones, large ones, the ends of the range. */
__attribute__((unused))
static uint64_t rng_num(void)
{
	switch (rng() % 8) {
	case 0:
		return 0;
	case 1:
		return UINT64_MAX;
	case 2:
		return 1ULL << (rng() % 64);
	case 3:
		return rng();
	default:
		return rng() % (1ULL << (rng() % 32));
	}
}

/* A list of events, each on a multiple of 8 bytes. */
struct evlist {
	struct dl_buf bytes;
	struct { size_t *v; size_t cnt, cap; } off;
};

__attribute__((unused))
static const struct dl_hdr *evlist_at(const struct evlist *l, size_t i)
{
	return (const struct dl_hdr *)(const void *)(l->bytes.v + l->off.v[i]);
}

__attribute__((unused))
static void evlist_add(struct evlist *l, const struct dl_hdr *ev)
{
	size_t *off;

	CHECK_OK(vec_reserve(&l->bytes, ev->size + 8u));
	off = vec_push(&l->off);
	CHECK(off != NULL);
	*off = l->bytes.cnt;
	memcpy(l->bytes.v + l->bytes.cnt, ev, ev->size);
	l->bytes.cnt += (ev->size + 7u) & ~7u;
}

__attribute__((unused))
static void evlist_fini(struct evlist *l)
{
	free(l->bytes.v);
	free(l->off.v);
	memset(l, 0, sizeof(*l));
}

/* By time, equal times in their order. */
__attribute__((unused))
static void evlist_sort(struct evlist *l)
{
	for (size_t i = 1; i < l->off.cnt; i++) {
		size_t off = l->off.v[i], at = i;
		uint64_t ts = evlist_at(l, i)->ts;

		for (; at && evlist_at(l, at - 1)->ts > ts; at--)
			l->off.v[at] = l->off.v[at - 1];
		l->off.v[at] = off;
	}
}

/* A valid event of desc with random fields and, where it has one, a random tail. */
__attribute__((unused))
static const struct dl_hdr *random_event(const struct dl_event_desc *desc, uint64_t ts)
{
	static union {
		struct dl_hdr h;
		struct dl_ev_stack stack;
		uint8_t b[DL_EVENT_MAX_SZ];
	} ev;
	size_t room = DL_EVENT_MAX_SZ - desc->size, tail = 0;

	memset(&ev, 0, sizeof(ev));
	for (unsigned int i = 0; i < desc->field_cnt; i++) {
		const struct dl_field *f = &desc->fields[i];
		uint64_t num = f->unit == DL_UNIT_TIME && rng() % 2 ? ts + rng() % 100000 : rng_num();

		if (dl_ftype_is_int(f->type))
			memcpy(ev.b + f->off, &num, f->size);
		else
			for (unsigned int j = 0; j < f->size; j++)
				ev.b[f->off + j] = (uint8_t)rng();
	}
	if (desc->tail != DL_TAIL_NONE)
		tail = rng() % 16 ? rng() % 64 : rng() % 4 ? rng() % (room + 1) : room;
	if (desc->tail == DL_TAIL_ADDRS)
		tail &= ~(size_t)7;
	for (size_t i = 0; i < tail; i++)
		ev.b[desc->size + i] = (uint8_t)rng();
	ev.h.size = (uint16_t)(desc->size + tail);
	ev.h.kind = desc->kind;
	ev.h.tid = (uint32_t)(rng() % 4 ? rng() % 20 : rng_num());
	ev.h.pid = (uint32_t)(rng() % 4 ? ev.h.tid / 4 : rng_num());
	ev.h.ts = ts;
	ev.h.cpu = rng() % 4 ? (uint16_t)(rng() % 8) : (uint16_t)rng_num();
	ev.h.flags = (uint16_t)(rng() % 2 ? 0 : rng_num());
	if (desc->kind == DL_EV_STACK) {
		ev.stack.kernel_cnt = (uint16_t)(rng() % (tail / 8 + 1));
		ev.stack.user_cnt = (uint16_t)(tail / 8 - ev.stack.kernel_cnt);
	}
	return &ev.h;
}

__attribute__((unused))
static const struct dl_event_desc *random_desc(void)
{
	const struct dl_event_desc *desc;

	do
		desc = dl_event_desc((unsigned int)(rng() % DL_EV_MAX));
	while (!desc);
	return desc;
}

/* Mixed kinds, not quite in order. */
__attribute__((unused))
static struct evlist some_events(uint64_t seed, int cnt)
{
	struct evlist l = { 0 };
	uint64_t ts = 1000000;

	rng_seed(seed);
	for (int i = 0; i < cnt; i++) {
		ts += rng() % 1000;
		evlist_add(&l, random_event(random_desc(), ts - rng() % 5000));
	}
	return l;
}

__attribute__((unused))
static struct dl_trace_meta test_meta(void)
{
	return (struct dl_trace_meta){
		.start_ts = 1000, .start_realtime_ns = 1700000000123456789, .target_pid = 4711,
		.cpus = 96, .page_sz = 4096, .sample_hz = 99, .host = "h\xc3\xb6st",
		.kernel = "6.1.0-test", .machine = "x86_64", .target_cmdline = "python3 train.py --lr 0.1",
		.recorder = "dlbpf 0", .record_args = "record -p 4711",
		.boot_id = "f81d4fae-7dec-11d0-a765-00a0c91e6bf6",
	};
}

__attribute__((unused))
static struct dl_trace_writer *open_writer(const char *path, const struct dl_trace_writer_opts *opts,
					   dl_desc_fn *desc)
{
	const struct dl_trace_meta meta = test_meta();
	struct dl_trace_writer *w = NULL;
	struct dl_diag d = { "" };
	int fd = open(path, O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0600), err;

	CHECK_MSG(fd >= 0, "%s: %s", path, strerror(errno));
	err = dl_trace_writer_open_desc(&w, fd, &meta, opts, desc ? desc : dl_event_desc, &d);
	CHECK_MSG(!err, "%s", d.msg);
	return w;
}

__attribute__((unused))
static void write_list(const char *path, const struct evlist *l,
		       const struct dl_trace_writer_opts *opts, dl_desc_fn *desc)
{
	struct dl_trace_writer *w = open_writer(path, opts, desc);

	for (size_t i = 0; i < l->off.cnt; i++)
		CHECK_OK(dl_trace_write(w, evlist_at(l, i)));
	CHECK_OK(dl_trace_writer_close(w, NULL));
}

__attribute__((unused))
static struct dl_trace *open_trace(const char *path)
{
	struct dl_trace *t = NULL;
	struct dl_diag d = { "" };
	int err = dl_trace_open(&t, path, &d);

	CHECK_MSG(!err, "%s", d.msg);
	return t;
}

/*
 * Reads to the end; every event is checked for its form and order. Returns how many, in *ret (which
 * may be NULL) what they were.
 */
__attribute__((unused))
static size_t read_events(struct dl_trace *t, struct evlist *ret)
{
	const struct dl_hdr *ev;
	uint64_t last = 0;
	size_t cnt = 0;
	int err;

	for (; (err = dl_trace_next(t, &ev)) == 1; cnt++) {
		CHECK(dl_event_fits(dl_event_desc(ev->kind), ev));
		CHECK((uintptr_t)ev % 8 == 0);
		CHECK(ev->ts >= last);
		last = ev->ts;
		if (ret)
			evlist_add(ret, ev);
	}
	CHECK_EQ(err, 0);
	CHECK_EQ(dl_trace_next(t, &ev), 0);
	return cnt;
}

__attribute__((unused))
static void check_same(const struct evlist *got, const struct evlist *want)
{
	CHECK_EQ(got->off.cnt, want->off.cnt);
	for (size_t i = 0; i < want->off.cnt; i++) {
		const struct dl_hdr *g = evlist_at(got, i), *w = evlist_at(want, i);

		CHECK_EQ(g->kind, w->kind);
		CHECK_EQ(g->size, w->size);
		CHECK_MEM(g, w, w->size);
	}
}

/* --- files as bytes --- */

__attribute__((unused))
static struct dl_buf read_file(const char *path)
{
	struct dl_buf b = { 0 };
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	CHECK(fd >= 0);
	do {
		CHECK_OK(vec_reserve(&b, 65536));
		n = read(fd, b.v + b.cnt, 65536);
		CHECK(n >= 0);
		b.cnt += (size_t)n;
	} while (n);
	close(fd);
	return b;
}

__attribute__((unused))
static void write_file(const char *path, const void *p, size_t sz)
{
	int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);

	CHECK(fd >= 0);
	CHECK_EQ(write(fd, p, sz), sz);
	close(fd);
}

/* A file that met its limit while it was written: no torn frame is left, and what it says that it holds is there. */
__attribute__((unused))
static void check_limited(const char *path, off_t limit)
{
	struct dl_trace *t;
	struct stat st;

	CHECK(!stat(path, &st));
	CHECK(st.st_size <= limit);
	t = open_trace(path);
	CHECK_EQ(dl_trace_info(t)->damaged_bytes, 0);
	CHECK_EQ(read_events(t, NULL), dl_trace_info(t)->events);
	CHECK(dl_trace_info(t)->events > 100);
	dl_trace_close(t);
}

#endif
