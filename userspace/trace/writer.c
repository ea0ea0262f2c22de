/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Writes trace files. What is on disk is never written again: header at once, then one frame after
 * the other, then index and footer. A write that fails half way is cut off again.
 */
#include "trace/trace.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/vec.h"
#include "trace/format.h"
#include "trace/outq.h"

#define DEFAULT_FRAME_RAW_SZ (1u << 20)
#define MIN_FRAME_RAW_SZ DL_EVENT_MAX_SZ
#define MAX_FRAME_RAW_SZ (16u << 20)
#define DEFAULT_FRAME_NS 1000000000u
#define PART_MIN_SZ 65536	/* of bulk in a frame, before it is worth a frame of its own */

struct pending { uint64_t ts; uint32_t off; };

/* A frame that waits to be written: the index has it when it is. */
struct queued { uint64_t off; struct dl_frame_hdr hdr; };

struct dl_trace_writer {
	int fd;
	dl_desc_fn *desc;
	struct dl_trace_writer_opts opts;
	int err;		/* sticks */
	uint64_t off;		/* end of what is whole in the file */
	uint64_t raw_bytes, lost;
	struct dl_encoder *enc;
	struct dl_buf events;	/* pending, each on a multiple of 8 bytes */
	size_t pending_raw;	/* their sizes without padding */
	DL_VEC(struct pending) order;
	DL_VEC(const struct dl_hdr *) sorted;
	DL_VEC(const struct dl_hdr *) bulk;
	uint64_t now, since;	/* last time heard of; when nothing was pending */
	struct dl_buf out;
	struct dl_index index;
	struct dl_frame_hdr frame;
	struct dl_outq *queue;	/* opts.queue_sz; off is where its last piece will end */
	DL_VEC(struct queued) queued;
	uint64_t queued_events;
};

/* --- the file --- */

/* All of the bytes, or none as far as the file system lets us take them back. */
static int write_whole(struct dl_trace_writer *w, const void *p, size_t sz)
{
	size_t done = 0;
	int err = 0;

	if (w->queue) {
		err = dl_outq_put(w->queue, p, sz);
		w->off += err ? 0 : sz;
		return err;
	}
	while (done < sz) {
		ssize_t n = write(w->fd, (const uint8_t *)p + done, sz - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			err = n < 0 ? -errno : -EIO;
			break;
		}
		done += (size_t)n;
	}
	if (!err) {
		w->off += sz;
		return 0;
	}
	/* A pipe cannot go back: its reader sees a torn frame, which is no worse than the loss. */
	if (done && !ftruncate(w->fd, (off_t)w->off) && lseek(w->fd, (off_t)w->off, SEEK_SET) < 0)
		return err;
	return err;
}

static void writer_free(struct dl_trace_writer *w)
{
	if (!w)
		return;
	if (w->queue)
		dl_outq_close(w->queue, &w->off);
	vec_free(&w->queued);
	if (w->fd >= 0)
		close(w->fd);
	dl_encoder_free(w->enc);
	free(w->events.v);
	vec_free(&w->order);
	vec_free(&w->sorted);
	vec_free(&w->bulk);
	free(w->out.v);
	free(w->index.v);
	free(w);
}

static void set_opts(struct dl_trace_writer_opts *o, const struct dl_trace_writer_opts *given)
{
	if (given)
		*o = *given;
	if (!o->frame_raw_sz)
		o->frame_raw_sz = DEFAULT_FRAME_RAW_SZ;
	if (o->frame_raw_sz < MIN_FRAME_RAW_SZ)
		o->frame_raw_sz = MIN_FRAME_RAW_SZ;
	if (o->frame_raw_sz > MAX_FRAME_RAW_SZ)
		o->frame_raw_sz = MAX_FRAME_RAW_SZ;
	if (!o->frame_ns)
		o->frame_ns = DEFAULT_FRAME_NS;
}

/* Empties a regular file that was opened without O_TRUNC, and goes to its start. */
static int rewind_file(int fd)
{
	struct stat st;

	if (fstat(fd, &st))
		return -errno;
	if (S_ISREG(st.st_mode) && (ftruncate(fd, 0) || lseek(fd, 0, SEEK_SET) < 0))
		return -errno;
	return 0;
}

static size_t end_sz(const struct dl_trace_writer *w)
{
	/* at most: the next frame may be the first one with any kind */
	return DL_INDEX_FIXED_SZ + DL_EV_MAX * DL_INDEX_KIND_SZ +
	       (w->index.cnt + w->queued.cnt + 1) * DL_INDEX_FRAME_SZ + 4 + DL_FOOTER_SZ;
}

static int write_header(struct dl_trace_writer *w, const struct dl_trace_meta *meta,
			struct dl_diag *d)
{
	int err = dl_header_build(&w->out, meta, w->desc, &w->index.trace_id);

	if (err == -ENOMEM)
		return dl_oom(d);
	if (err)
		return dl_fail_errno(d, err, "cannot write the trace header");
	if (w->opts.max_sz && w->out.cnt + end_sz(w) > w->opts.max_sz)
		return dl_fail(d, -EFBIG, "a maximal trace size of %llu bytes leaves no room for events",
			       (unsigned long long)w->opts.max_sz);
	err = rewind_file(w->fd);
	err = err ?: write_whole(w, w->out.v, w->out.cnt);
	if (err)
		return dl_fail_errno(d, err, "cannot write the trace");
	return 0;
}

int dl_trace_writer_open_desc(struct dl_trace_writer **ret, int fd,
			      const struct dl_trace_meta *meta,
			      const struct dl_trace_writer_opts *opts, dl_desc_fn *desc,
			      struct dl_diag *d)
{
	struct dl_trace_writer *w = calloc(1, sizeof(*w));
	int err;

	if (!w) {
		if (fd >= 0)
			close(fd);
		return dl_oom(d);
	}
	w->fd = fd;
	w->desc = desc;
	w->now = w->since = meta->start_ts;
	set_opts(&w->opts, opts);
	w->enc = dl_encoder_new(desc, w->opts.level);
	err = w->enc ? write_header(w, meta, d) : dl_oom(d);
	if (!err && w->opts.queue_sz) {
		err = dl_outq_new(&w->queue, fd, w->off, w->opts.queue_sz);
		if (err)
			dl_fail_errno(d, err, "cannot start a thread that writes the trace");
	}
	if (err) {
		writer_free(w);
		return err;
	}
	*ret = w;
	return 0;
}

int dl_trace_writer_open(struct dl_trace_writer **ret, int fd, const struct dl_trace_meta *meta,
			 const struct dl_trace_writer_opts *opts, struct dl_diag *d)
{
	return dl_trace_writer_open_desc(ret, fd, meta, opts, dl_event_desc, d);
}

/* --- frames --- */

/* Rings are read one after the other, each nearly in order: rows that are merged. Equal times stay in order. */
static int sort_pending(struct dl_trace_writer *w)
{
	vec_sort(&w->order);
	w->sorted.cnt = 0;
	if (vec_reserve(&w->sorted, w->order.cnt))
		return -ENOMEM;
	vec_for_each(&w->order, it)
		w->sorted.v[w->sorted.cnt++] = (const void *)(w->events.v + it->off);
	return 0;
}

/* Into the index with what has been written. */
static void settle(struct dl_trace_writer *w, uint64_t written)
{
	size_t cnt = 0;

	while (cnt < w->queued.cnt) {
		const struct queued *q = &w->queued.v[cnt];

		if (q->off + q->hdr.header_sz + q->hdr.comp_sz > written)
			break;
		dl_index_add(&w->index, q->off, &q->hdr);	/* there is room: add_frame() */
		w->queued_events -= q->hdr.events;
		cnt++;
	}
	if (!cnt)
		return;
	w->queued.cnt -= cnt;
	memmove(w->queued.v, w->queued.v + cnt, w->queued.cnt * sizeof(*w->queued.v));
}

/* Room in the index first: a frame that is written but not in the index would be lost. */
static int reserve_frame(struct dl_trace_writer *w)
{
	if (w->queue && vec_reserve(&w->queued, 1))
		return -ENOMEM;
	return vec_reserve(&w->index, w->queued.cnt + 1) ? -ENOMEM : 0;
}

/* The frame of w->frame, which was written at off, or is going to be. */
static void add_frame(struct dl_trace_writer *w, uint64_t off)
{
	if (!w->queue) {
		dl_index_add(&w->index, off, &w->frame);
		return;
	}
	w->queued.v[w->queued.cnt++] = (struct queued){ off, w->frame };
	w->queued_events += w->frame.events;
	settle(w, dl_outq_written(w->queue));
}

static bool is_bulk(const struct dl_hdr *ev)
{
	return ev->kind < DL_EV_MAX && DL_BULK_KINDS & DL_KIND(ev->kind);
}

/* Is there so much bulk that it is worth a frame of its own, and would a reader find all in the same order then? */
static bool is_worth_parting(const struct dl_trace_writer *w)
{
	uint64_t bulk_ts = 0;
	size_t bulk_sz = 0;

	vec_for_each(&w->sorted, ev) {
		if (is_bulk(*ev)) {
			bulk_sz += (*ev)->size;
			bulk_ts = (*ev)->ts;
		} else if (bulk_ts == (*ev)->ts && bulk_sz) {
			return false;
		}
	}
	return bulk_sz >= PART_MIN_SZ;
}

/* What is bulk goes behind all else. *ret_first is how many events are before it; 0: they go into one frame. */
static int part_bulk(struct dl_trace_writer *w, size_t *ret_first)
{
	size_t first = 0;

	*ret_first = 0;
	w->bulk.cnt = 0;
	if (!is_worth_parting(w))
		return 0;
	if (vec_reserve(&w->bulk, w->sorted.cnt))
		return -ENOMEM;
	vec_for_each(&w->sorted, ev) {
		if (is_bulk(*ev))
			w->bulk.v[w->bulk.cnt++] = *ev;
		else
			w->sorted.v[first++] = *ev;
	}
	memcpy(w->sorted.v + first, w->bulk.v, w->bulk.cnt * sizeof(*w->bulk.v));
	*ret_first = first;
	return 0;
}

static int encode_part(struct dl_trace_writer *w, size_t from, size_t cnt)
{
	int err;

	w->out.cnt = 0;
	w->frame.seq = w->index.cnt + w->queued.cnt;
	w->frame.trace_id = w->index.trace_id;
	err = dl_encode_frame(w->enc, w->sorted.v + from, cnt, &w->frame, &w->out);
	if (err)
		return err;
	if (w->opts.max_sz && w->off + w->out.cnt + end_sz(w) > w->opts.max_sz)
		return -EFBIG;
	err = reserve_frame(w);
	if (err)
		return err;
	return write_whole(w, w->out.v, w->out.cnt);
}

/* Some of what is pending as one frame; takes it off *left and *left_sz. */
static int write_part(struct dl_trace_writer *w, size_t from, size_t cnt, size_t *left, size_t *left_sz)
{
	uint64_t off = w->off;
	int err = cnt ? encode_part(w, from, cnt) : 0;

	if (err || !cnt)
		return err;
	add_frame(w, off);
	*left -= cnt;
	for (size_t i = from; i < from + cnt; i++)
		*left_sz -= w->sorted.v[i]->size;
	return 0;
}

/* Writes what is pending, as one frame or two. What cannot be written is lost, and the error sticks. */
static int write_frame(struct dl_trace_writer *w)
{
	size_t left = w->order.cnt, left_sz = w->pending_raw, first = 0;
	int err;

	if (!w->order.cnt)
		return w->err;
	err = w->err ?: sort_pending(w);
	err = err ?: part_bulk(w, &first);
	err = err ?: write_part(w, 0, first, &left, &left_sz);
	err = err ?: write_part(w, first, w->sorted.cnt - first, &left, &left_sz);
	if (err) {
		w->err = err;
		w->lost += left;
		w->raw_bytes -= left_sz;
	}
	w->order.cnt = 0;
	w->events.cnt = 0;
	w->pending_raw = 0;
	w->since = w->now;
	return err;
}

int dl_trace_writer_put_frame(struct dl_trace_writer *w, const struct dl_frame_hdr *h, const uint8_t *payload)
{
	uint64_t off;
	int err;

	err = write_frame(w);	/* what came first stands first */
	if (err)
		return err;
	off = w->off;
	w->frame = *h;
	w->frame.seq = w->index.cnt + w->queued.cnt;
	w->frame.trace_id = w->index.trace_id;
	w->out.cnt = 0;
	if (vec_reserve(&w->out, (size_t)DL_FRAME_HEADER_MAX + h->comp_sz) || reserve_frame(w))
		return w->err = -ENOMEM;
	w->out.cnt = dl_frame_hdr_build(w->out.v, &w->frame);
	memcpy(w->out.v + w->out.cnt, payload, h->comp_sz);
	w->out.cnt += h->comp_sz;
	if (w->opts.max_sz && w->off + w->out.cnt + end_sz(w) > w->opts.max_sz)
		return w->err = -EFBIG;
	err = write_whole(w, w->out.v, w->out.cnt);
	if (err) {
		w->lost += h->events;
		return w->err = err;
	}
	w->raw_bytes += h->struct_sz;
	add_frame(w, off);
	return 0;
}

int dl_trace_write(struct dl_trace_writer *w, const struct dl_hdr *ev)
{
	size_t padded = (ev->size + 7u) & ~(size_t)7;
	struct pending *p;
	int err;

	if (w->err)
		return w->err;
	if (!dl_event_fits(w->desc(ev->kind), ev))
		return -EINVAL;
	if (w->order.cnt && (w->pending_raw + ev->size > w->opts.frame_raw_sz ||
			     w->order.cnt == DL_MAX_FRAME_EVENTS)) {
		err = write_frame(w);
		if (err)
			return err;
	}
	if (w->events.cap - w->events.cnt < padded && vec_reserve(&w->events, padded))
		return w->err = -ENOMEM;
	p = vec_push(&w->order);
	if (!p)
		return w->err = -ENOMEM;
	memcpy(w->events.v + w->events.cnt, ev, ev->size);
	*p = (struct pending){ .ts = ev->ts, .off = (uint32_t)w->events.cnt };
	w->events.cnt += padded;
	w->pending_raw += ev->size;
	w->raw_bytes += ev->size;
	return 0;
}

int dl_trace_writer_flush(struct dl_trace_writer *w, uint64_t now_ts)
{
	if (w->err)
		return w->err;
	if (now_ts != UINT64_MAX) {
		/* By arrival, not by the events' own times: GPU records come late, and every
		 * batch of them would make a frame of its own. */
		w->now = now_ts;
		if (!w->order.cnt)
			w->since = now_ts;
		if (now_ts < w->since || now_ts - w->since < w->opts.frame_ns)
			return 0;
	}
	return write_frame(w);
}

bool dl_trace_writer_is_behind(const struct dl_trace_writer *w)
{
	return w->queue && dl_outq_is_behind(w->queue);
}

void dl_trace_writer_stats(const struct dl_trace_writer *w, struct dl_trace_writer_stats *ret)
{
	*ret = (struct dl_trace_writer_stats){
		.events = w->index.events + w->queued_events + w->order.cnt,
		.raw_bytes = w->raw_bytes,
		.file_bytes = w->queue ? dl_outq_written(w->queue) : w->off,
		.frames = w->index.cnt + w->queued.cnt,
		.lost = w->lost,
	};
}

static int write_end(struct dl_trace_writer *w)
{
	uint64_t off = w->off;
	size_t sz;
	int err;

	w->out.cnt = 0;
	err = dl_index_build(&w->out, &w->index);
	if (err)
		return err;
	sz = w->out.cnt;
	if (vec_reserve(&w->out, DL_FOOTER_SZ))
		return -ENOMEM;
	dl_footer_build(w->out.v + sz, off, (uint32_t)sz, w->index.trace_id);
	return write_whole(w, w->out.v, sz + DL_FOOTER_SZ);
}

/* Waits for what is to be written. What could not be is lost. */
static int end_queue(struct dl_trace_writer *w)
{
	int err;

	if (!w->queue)
		return 0;
	err = dl_outq_close(w->queue, &w->off);
	w->queue = NULL;
	settle(w, w->off);
	vec_for_each(&w->queued, q) {
		w->lost += q->hdr.events;
		w->raw_bytes -= q->hdr.struct_sz;
	}
	w->queued.cnt = 0;
	return err;
}

int dl_trace_writer_close(struct dl_trace_writer *w, struct dl_diag *d)
{
	int err, end_err;

	if (!w)
		return 0;
	err = write_frame(w);
	end_err = end_queue(w);
	err = err ?: end_err;
	end_err = write_end(w);
	err = err ?: end_err;
	/* EINVAL, EROFS: a pipe or a device, which have nothing to sync */
	if (!err && !w->opts.no_sync && fsync(w->fd) && errno != EINVAL && errno != EROFS)
		err = -errno;
	if (close(w->fd) && !err && errno != EINTR)
		err = -errno;
	w->fd = -1;
	writer_free(w);
	if (err == -EFBIG)
		return dl_fail(d, err, "the trace has reached its maximal size");
	if (err)
		return dl_fail_errno(d, err, "cannot write the trace");
	return 0;
}
