/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Opens trace files and merges their frames into one sequence of events. */
#include "trace/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/vec.h"
#include "trace/format.h"
#include "trace/folder.h"
#include "trace/reader_int.h"
#include "trace/scan.h"

/* Frames overlap where events came late: a few at a time. More than this in memory is an attack. */
#define MAX_OPEN_SZ (1ULL << 30)

static void note_damage(struct dl_trace *t, uint64_t off, const char *what, const char *why)
{
	if (!t->damage[0])
		snprintf(t->damage, sizeof(t->damage), "%s: %s at byte %llu: %s", t->path, what,
			 (unsigned long long)off, why);
}

/* --- opening --- */

static int open_file(const char *path, int *ret_fd, uint64_t *ret_sz, struct dl_diag *d)
{
	struct stat st;
	/* O_NONBLOCK: a FIFO must not make us wait for a writer */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY), err;

	if (fd < 0)
		return dl_fail_errno(d, -errno, "cannot open %s", path);
	if (fstat(fd, &st)) {
		err = dl_fail_errno(d, -errno, "cannot look at %s", path);
	} else if (S_ISDIR(st.st_mode)) {
		err = dl_fail(d, -EISDIR, "%s is a directory, not a trace file", path);
	} else if (!S_ISREG(st.st_mode)) {
		err = dl_fail(d, -EINVAL, "%s is not a regular file; copy the trace to one first", path);
	} else {
		*ret_fd = fd;
		*ret_sz = (uint64_t)st.st_size;
		return 0;
	}
	close(fd);
	return err;
}

static int read_header(struct dl_file_header *h, int fd, uint64_t file_sz, const char *path, struct dl_diag *d)
{
	uint8_t prefix[DL_PREFIX_SZ];
	_cleanup_free_ uint8_t *all = NULL;
	size_t sz = file_sz < sizeof(prefix) ? file_sz : sizeof(prefix);
	uint32_t header_sz;
	int err;

	err = dl_read_at(fd, prefix, sz, 0);
	if (err)
		return dl_fail_errno(d, err, "cannot read %s", path);
	err = dl_header_prefix(prefix, sz, path, &header_sz, d);
	if (err)
		return err;
	if (header_sz > file_sz)
		return dl_fail(d, -EBADMSG, "%s was cut off in its header: nothing in it can be read", path);
	all = malloc(header_sz);
	if (!all)
		return dl_oom(d);
	err = dl_read_at(fd, all, header_sz, 0);
	if (err)
		return dl_fail_errno(d, err, "cannot read %s", path);
	return dl_header_parse(h, all, header_sz, path, d);
}

static int cmp_frames(const void *a, const void *b)
{
	const struct frame *x = a, *y = b;

	if (x->pos.first_ts != y->pos.first_ts)
		return x->pos.first_ts < y->pos.first_ts ? -1 : 1;
	return x->order < y->order ? -1 : x->order > y->order;
}

/* Frames from the one at first on, of the newest source. */
static int take_index(struct dl_trace *t, const struct dl_index *ix, size_t first)
{
	const uint64_t order = t->frames.cnt;

	if (vec_reserve(&t->frames, ix->cnt))
		return -ENOMEM;
	for (size_t i = first; i < ix->cnt; i++) {
		const struct dl_frame_pos *pos = &ix->v[i];

		t->frames.v[t->frames.cnt++] = (struct frame){ .pos = *pos, .order = order + i,
							       .source = (uint32_t)t->sources.cnt - 1 };
		if (!t->info.frames++ || pos->first_ts < t->info.first_ts)
			t->info.first_ts = pos->first_ts;
		if (pos->last_ts > t->info.last_ts)
			t->info.last_ts = pos->last_ts;
	}
	t->info.events += ix->events;
	t->info.raw_bytes += ix->struct_bytes;
	for (size_t k = 0; k <= DL_MAX_KIND; k++) {
		if (dl_event_desc((unsigned int)k))
			t->info.kind_cnt[k] += ix->kind_cnt[k];
		else
			t->info.unknown_events += ix->kind_cnt[k];
	}
	return 0;
}

/* Of the newest source. no_state: it is a segment that others precede. */
static int read_frames(struct dl_trace *t, uint64_t file_sz, uint32_t first_off, bool no_state, struct dl_diag *d)
{
	_cleanup_free_ struct dl_index *ix = calloc(1, sizeof(*ix));
	const struct source *s = vec_last(&t->sources);
	struct dl_scan scan = { 0 };
	size_t first = 0;
	int err;

	if (!ix)
		return dl_oom(d);
	err = dl_scan_file(ix, &scan, s->fd, file_sz, first_off, s->trace_id);
	if (!err && no_state)
		err = dl_trace_skip_state(s, ix, &first);
	err = err ?: take_index(t, ix, first);
	free(ix->v);
	if (err == -ENOMEM)
		return dl_oom(d);
	if (err)
		return dl_fail_errno(d, err, "cannot read %s", t->path);
	t->info.complete = scan.complete;
	t->info.damaged_bytes += scan.damaged_bytes;
	if (scan.damaged_bytes)
		note_damage(t, scan.damaged_off, scan.torn ? "torn frame" : "damage", scan.torn ?
			    "the recorder did not finish it" : "not a whole frame");
	return 0;
}

static struct source *add_source(struct dl_trace *t, int fd)
{
	struct source *s = vec_push(&t->sources);

	if (s)
		s->fd = fd;
	else
		close(fd);
	return s;
}

static int open_one(struct dl_trace *t, const char *path, struct dl_diag *d)
{
	struct source *s;
	int err, fd;

	err = open_file(path, &fd, &t->info.file_bytes, d);
	if (err)
		return err;
	err = read_header(&t->header, fd, t->info.file_bytes, path, d);
	if (err) {
		close(fd);
		return err;
	}
	s = add_source(t, fd);
	if (!s)
		return dl_oom(d);
	s->trace_id = t->header.trace_id;
	return read_frames(t, t->info.file_bytes, t->header.size, false, d);
}

/* A segment behind others. One that its recorder was killed in the begin of, or that describes its events
 * otherwise, is left out; and so is one that was dropped just now. */
static int open_next(struct dl_trace *t, const char *path, struct dl_diag *d)
{
	_cleanup_free_ struct dl_file_header *h = calloc(1, sizeof(*h));
	struct source *s = NULL;
	uint64_t sz;
	int err, fd;

	if (!h)
		return dl_oom(d);
	if (open_file(path, &fd, &sz, NULL))
		return 0;
	err = read_header(h, fd, sz, path, NULL);
	if (err || !dl_trace_same_events(&h->schema) || !dl_trace_same_events(&t->header.schema))
		close(fd);
	else
		s = add_source(t, fd);
	if (s) {
		s->trace_id = h->trace_id;
		t->info.file_bytes += sz;
		err = read_frames(t, sz, h->size, true, d);
	}
	dl_file_header_fini(h);
	return s ? err : 0;
}

/* What a recorder with --keep has on disk, now or when it was killed. */
static int open_segments(struct dl_trace *t, const struct dl_folder *folder, struct dl_diag *d)
{
	int err = 0;

	for (size_t i = 0; i < folder->cnt && !err; i++) {
		if (t->sources.cnt) {
			err = open_next(t, folder->v[i], d);
			continue;
		}
		/* It begins with the first that has a head. */
		err = open_one(t, folder->v[i], d);
		if (err && !t->sources.cnt) {
			dl_file_header_fini(&t->header);
			err = 0;
		}
	}
	if (!err && !t->sources.cnt)
		err = dl_fail(d, -ENODATA, "%s holds no part of a recording that can be read", t->path);
	return err;
}

static int open_any(struct dl_trace *t, struct dl_diag *d)
{
	struct dl_folder folder;
	int err = dl_folder_of(t->path, &folder);

	if (err < 0)
		return dl_oom(d);
	if (!err)
		return open_one(t, t->path, d);
	err = open_segments(t, &folder, d);
	dl_folder_fini(&folder);
	return err;
}

int dl_trace_open(struct dl_trace **ret, const char *path, struct dl_diag *d)
{
	struct dl_trace *t = calloc(1, sizeof(*t));
	int err;

	if (!t)
		return dl_oom(d);
	t->to = UINT64_MAX;
	t->path = strdup(path);
	t->dec = dl_decoder_new();
	err = t->path && t->dec ? open_any(t, d) : dl_oom(d);
	if (err) {
		dl_trace_close(t);
		return err;
	}
	if (t->frames.cnt)
		qsort(t->frames.v, t->frames.cnt, sizeof(*t->frames.v), cmp_frames);
	t->info.meta = t->header.meta;
	t->info.major = t->header.major;
	t->info.minor = t->header.minor;
	*ret = t;
	return 0;
}

void dl_trace_close(struct dl_trace *t)
{
	if (!t)
		return;
	vec_for_each(&t->sources, s)
		close(s->fd);
	vec_free(&t->sources);
	vec_for_each(&t->heap, f)
		free(f->dec.buf);
	vec_for_each(&t->spare, s)
		free(s->buf);
	vec_free(&t->heap);
	vec_free(&t->spare);
	vec_free(&t->frames);
	dl_file_header_fini(&t->header);
	dl_decoder_free(t->dec);
	free(t->comp.v);
	free(t->path);
	free(t);
}

const struct dl_trace_info *dl_trace_info(const struct dl_trace *t)
{
	return &t->info;
}

const char *dl_trace_damage(const struct dl_trace *t)
{
	return t->damage[0] ? t->damage : NULL;
}

/* --- merging --- */

static const struct dl_hdr *head(const struct open_frame *f)
{
	return (const struct dl_hdr *)(const void *)(f->dec.buf + f->at);
}

static bool before(const struct open_frame *a, const struct open_frame *b)
{
	const struct dl_hdr *x = head(a), *y = head(b);

	return x->ts != y->ts ? x->ts < y->ts : a->order < b->order;
}

static void sift_down(struct dl_trace *t, size_t i)
{
	struct open_frame *v = t->heap.v;

	for (;;) {
		size_t child = 2 * i + 1;
		struct open_frame tmp;

		if (child >= t->heap.cnt)
			return;
		if (child + 1 < t->heap.cnt && before(&v[child + 1], &v[child]))
			child++;
		if (!before(&v[child], &v[i]))
			return;
		tmp = v[i];
		v[i] = v[child];
		v[child] = tmp;
		i = child;
	}
}

static void sift_up(struct dl_trace *t, size_t i)
{
	struct open_frame *v = t->heap.v, tmp;

	while (i && before(&v[i], &v[(i - 1) / 2])) {
		tmp = v[i];
		v[i] = v[(i - 1) / 2];
		v[(i - 1) / 2] = tmp;
		i = (i - 1) / 2;
	}
}

/* Keeps one buffer, so that reading frame by frame allocates nothing. */
static void retire(struct dl_trace *t, struct dl_decoded *dec)
{
	struct dl_decoded *spare = t->spare.cnt ? NULL : vec_push(&t->spare);

	if (spare)
		*spare = *dec;
	else
		free(dec->buf);
}

static void pop(struct dl_trace *t)
{
	struct open_frame first = t->heap.v[0];

	t->heap.v[0] = t->heap.v[--t->heap.cnt];
	t->open_sz -= first.dec.sz;
	retire(t, &first.dec);
	sift_down(t, 0);
}

static void reject(struct dl_trace *t, struct frame *f, const char *why)
{
	f->bad = true;
	t->info.damaged_frames++;
	t->info.damaged_bytes += f->pos.header_sz + f->pos.comp_sz;
	note_damage(t, f->pos.off, "frame", why);
}

int dl_trace_load(struct dl_trace *t, struct frame *f, struct dl_frame_hdr *h)
{
	const struct source *s = &t->sources.v[f->source];
	size_t sz = (size_t)f->pos.header_sz + f->pos.comp_sz;
	int err;

	t->comp.cnt = 0;
	if (vec_reserve(&t->comp, sz))
		return -ENOMEM;
	err = dl_read_at(s->fd, t->comp.v, sz, f->pos.off);
	if (err == -ENODATA)
		reject(t, f, "the file became shorter");
	else if (!err && (!dl_frame_hdr_parse(h, t->comp.v, f->pos.header_sz, s->trace_id) ||
			  h->header_sz != f->pos.header_sz || h->comp_sz != f->pos.comp_sz ||
			  h->first_ts != f->pos.first_ts || h->last_ts != f->pos.last_ts))
		reject(t, f, "its header is damaged");
	else if (!err && dl_crc32(t->comp.v + h->header_sz, h->comp_sz) != h->payload_crc)
		reject(t, f, "its checksum is wrong");
	else
		return err ? err : 1;
	return 0;
}

/* Up to when events are read. */
static uint64_t last_ts(const struct dl_trace *t)
{
	return t->keep ? UINT64_MAX : t->to;
}

/* Takes out what is not asked for. */
static void thin_out(const struct dl_trace *t, struct open_frame *o)
{
	size_t kept = 0, sz;

	for (size_t at = 0; at < o->dec.sz; at += sz) {
		const struct dl_hdr *ev = (const void *)(o->dec.buf + at);

		sz = (ev->size + 7u) & ~7u;
		if ((ev->ts < t->from || ev->ts > t->to) && !(ev->kind < DL_EV_MAX && t->keep & DL_KIND(ev->kind)))
			continue;
		if (kept != at)
			memmove(o->dec.buf + kept, ev, sz);
		kept += sz;
	}
	o->dec.sz = kept;
}

/* Decodes the frame and puts it on the heap, unless it is damaged or has nothing that is asked for. */
static int open_frame(struct dl_trace *t, size_t index)
{
	struct frame *f = &t->frames.v[index];
	struct open_frame o = { .order = f->order };
	struct dl_frame_hdr h;
	const char *why;
	int err = dl_trace_load(t, f, &h);

	if (err <= 0)
		return err;
	if (vec_reserve(&t->heap, 1))
		return -ENOMEM;
	if (t->spare.cnt)
		o.dec = t->spare.v[--t->spare.cnt];
	err = dl_decode_frame(t->dec, &t->header.schema, &h, t->comp.v + h.header_sz, &o.dec, &why);
	if (!err && t->open_sz + o.dec.sz > MAX_OPEN_SZ) {
		err = -EBADMSG;
		why = "too many frames overlap";
	}
	if (err == -EBADMSG) {
		reject(t, f, why);
		err = 0;
		o.dec.sz = 0;
	}
	t->info.decoded_frames++;
	if (!err && t->keep && (f->pos.first_ts < t->from || f->pos.last_ts > t->to))
		thin_out(t, &o);
	while (!err && !t->keep && o.at < o.dec.sz && head(&o)->ts < t->from)
		o.at += (head(&o)->size + 7u) & ~7u;
	if (err || o.at >= o.dec.sz) {
		retire(t, &o.dec);
		return err;
	}
	t->open_sz += o.dec.sz;
	t->heap.v[t->heap.cnt++] = o;
	sift_up(t, t->heap.cnt - 1);
	return 0;
}

/* The kinds of events that a frame holds, by its header; all when that cannot be had: reading it will tell. */
static dl_kinds kinds_of(const struct dl_trace *t, const struct frame *f)
{
	const struct source *s = &t->sources.v[f->source];
	uint8_t head_bytes[DL_FRAME_HEADER_MAX];
	struct dl_frame_hdr h;
	dl_kinds kinds = 0;

	if (f->pos.header_sz > sizeof(head_bytes) || dl_read_at(s->fd, head_bytes, f->pos.header_sz, f->pos.off) ||
	    !dl_frame_hdr_parse(&h, head_bytes, f->pos.header_sz, s->trace_id))
		return UINT64_MAX;
	for (uint32_t i = 0; i < h.kinds; i++)
		kinds |= h.kind[i].kind < DL_EV_MAX ? DL_KIND(h.kind[i].kind) : 0;
	return kinds;
}

static bool is_wanted(const struct dl_trace *t, const struct frame *f)
{
	if (f->bad)
		return false;
	if (f->pos.last_ts >= t->from && f->pos.first_ts <= t->to)
		return true;
	return t->keep && kinds_of(t, f) & t->keep;
}

int dl_trace_window(struct dl_trace *t, uint64_t from_ts, uint64_t to_ts)
{
	return dl_trace_window_keep(t, from_ts, to_ts, 0);
}

void dl_trace_widen(const struct dl_trace *t, dl_kinds kinds, uint64_t *from_ts, uint64_t *to_ts)
{
	uint64_t from = *from_ts, to = *to_ts;

	for (size_t i = t->frames.cnt; i-- > 0 && *from_ts == from;) {
		const struct frame *f = &t->frames.v[i];

		if (f->pos.last_ts < from && kinds_of(t, f) & kinds)
			*from_ts = f->pos.first_ts;
	}
	for (size_t i = 0; i < t->frames.cnt && *to_ts == to; i++) {
		const struct frame *f = &t->frames.v[i];

		if (f->pos.first_ts > to && kinds_of(t, f) & kinds)
			*to_ts = f->pos.last_ts;
	}
}

int dl_trace_window_keep(struct dl_trace *t, uint64_t from_ts, uint64_t to_ts, dl_kinds keep)
{
	if (from_ts > to_ts)
		return -EINVAL;
	vec_for_each(&t->heap, f)
		retire(t, &f->dec);
	t->heap.cnt = 0;
	t->open_sz = 0;
	t->next_frame = 0;
	t->step = false;
	t->from = from_ts;
	t->to = to_ts;
	t->keep = keep;
	return 0;
}

/* Opens every frame that may hold an event that comes before the first of the heap. */
static int open_due(struct dl_trace *t)
{
	while (t->next_frame < t->frames.cnt) {
		const struct frame *f = &t->frames.v[t->next_frame];
		int err;

		if (f->pos.first_ts > last_ts(t))
			t->next_frame = t->frames.cnt;
		else if (t->heap.cnt && f->pos.first_ts > head(&t->heap.v[0])->ts)
			return 0;
		else if (!is_wanted(t, f))
			t->next_frame++;
		else if ((err = open_frame(t, t->next_frame)))
			return err;
		else
			t->next_frame++;
	}
	return 0;
}

/* Up to when the first of the heap stays the first, and no other frame need be opened. */
static uint64_t find_limit(const struct dl_trace *t)
{
	uint64_t limit = last_ts(t);

	for (size_t i = 1; i < 3 && i < t->heap.cnt; i++) {
		if (head(&t->heap.v[i])->ts < limit)
			limit = head(&t->heap.v[i])->ts;
	}
	if (t->next_frame < t->frames.cnt && t->frames.v[t->next_frame].pos.first_ts < limit)
		limit = t->frames.v[t->next_frame].pos.first_ts;
	return limit;
}

int dl_trace_next(struct dl_trace *t, const struct dl_hdr **ret)
{
	struct open_frame *first = t->heap.v;
	int err;

	if (t->step) {
		t->step = false;
		first->at += (head(first)->size + 7u) & ~7u;
		if (first->at < first->dec.sz && head(first)->ts < t->limit) {
			t->step = true;
			*ret = head(first);
			return 1;
		}
		if (first->at < first->dec.sz)
			sift_down(t, 0);
		else
			pop(t);
	}
	err = open_due(t);
	if (err)
		return err;
	if (!t->heap.cnt || head(&t->heap.v[0])->ts > last_ts(t))
		return 0;
	t->step = true;
	t->limit = find_limit(t);
	*ret = head(&t->heap.v[0]);
	return 1;
}
