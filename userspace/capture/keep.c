/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Segments: begun, ended, dropped, and given up when the disk is full. */
#include "capture/keep.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "capture/keep_int.h"
#include "capture/proc.h"

#define SEG_NS_MIN DL_NS_PER_S
#define SEG_NS_MAX (60 * DL_NS_PER_S)
#define SEG_SZ_MIN (256ULL << 10)
#define SEG_SZ_MAX (64ULL << 20)
#define RETRY_NS DL_NS_PER_S
#define KEEP_ANYWAY 2

static bool is_no_room(int err)
{
	return err == -ENOSPC || err == -EDQUOT || err == -EFBIG;
}

/* --- the newest segment -------------------------------------------------------------------------- */

static int raw_emit(struct dl_sink *sink, const struct dl_hdr *ev)
{
	struct dl_keep *k = (struct dl_keep *)sink;

	return dl_trace_write(k->w, ev);
}

/* Its size is what the file has, index and all. */
static void end_segment(struct dl_keep *k, uint64_t end_ts)
{
	struct dl_trace_writer_stats ws;
	struct dl_seg *seg;
	struct stat st;

	if (!k->w)
		return;
	dl_trace_writer_stats(k->w, &ws);
	k->cur.sz = ws.file_bytes;
	dl_trace_writer_close(k->w, NULL);	/* a full disk: without an index it can be read as well */
	k->w = NULL;
	k->events += ws.events;
	k->lost += ws.lost;
	k->cur.end_ts = end_ts;
	if (!fstatat(k->dir.fd, k->cur.name, &st, AT_SYMLINK_NOFOLLOW))
		k->cur.sz = (uint64_t)st.st_size;
	seg = vec_push(&k->segs);
	if (!seg) {
		dl_keep_dir_unlink(&k->dir, k->cur.name);
		return;
	}
	*seg = k->cur;
	k->segs_sz += seg->sz;
}

/* What was before it, in frames of their own: joining leaves them out. */
static int say_again(struct dl_keep *k, uint64_t ts)
{
	int err = dl_kstate_restate(k->state, ts, &k->sink);

	if (!err)
		err = dl_trace_writer_flush(k->w, UINT64_MAX);
	if (!err)
		err = dl_kstate_restate_marks(k->state, ts, ts > k->begin_ts ? ts - k->begin_ts : 0, &k->sink);
	return err ? err : dl_trace_writer_flush(k->w, UINT64_MAX);
}

/* Its description is that of a recording that begins now. */
static struct dl_trace_meta meta_at(const struct dl_keep *k, uint64_t ts)
{
	struct dl_trace_meta meta = *k->meta;
	struct timespec real;
	uint64_t now;

	now = dl_now_ns();
	clock_gettime(CLOCK_REALTIME, &real);
	meta.start_ts = ts;
	meta.start_realtime_ns = (uint64_t)real.tv_sec * DL_NS_PER_S + (uint64_t)real.tv_nsec + ts - now;
	return meta;
}

static int begin_segment(struct dl_keep *k, uint64_t ts)
{
	const struct dl_trace_writer_opts opts = { .frame_raw_sz = k->opts.frame_raw_sz, .no_sync = true };
	const bool first = !k->next_nr;
	const struct dl_trace_meta meta = first ? *k->meta : meta_at(k, ts);
	int err, fd;

	k->cur = (struct dl_seg){ .start_ts = ts };
	snprintf(k->cur.name, sizeof(k->cur.name), "%s-%06" PRIu32 ".dlbpf", k->session, k->next_nr);
	fd = dl_keep_dir_create(&k->dir, k->cur.name);
	if (fd < 0)
		return fd;
	k->next_nr++;
	err = dl_trace_writer_open(&k->w, fd, &meta, &opts, NULL);
	if (err)
		k->w = NULL;
	else if (!first)
		err = say_again(k, ts);
	if (!err)
		return 0;
	if (k->w)
		dl_trace_writer_close(k->w, NULL);
	k->w = NULL;
	dl_keep_dir_unlink(&k->dir, k->cur.name);
	return err;
}

static void drop_oldest(struct dl_keep *k)
{
	dl_keep_dir_unlink(&k->dir, k->segs.v[0].name);
	k->segs_sz -= k->segs.v[0].sz;
	k->segs.cnt--;
	memmove(k->segs.v, k->segs.v + 1, k->segs.cnt * sizeof(*k->segs.v));
}

/* There is no room: older segments go, one after the other, until a new one fits. The newest stay: where
 * something else takes what they give, they are all that will be left. Then the next try is in a second. */
static int make_room(struct dl_keep *k, int err, uint64_t ts)
{
	end_segment(k, ts);
	while (is_no_room(err)) {
		/* A limit of file sizes asks for another file, not for room. */
		if (err != -EFBIG) {
			if (k->segs.cnt <= KEEP_ANYWAY)
				break;
			drop_oldest(k);
		}
		err = begin_segment(k, ts);
		if (err == -EFBIG)
			err = -ENOSPC;	/* not even the head of a segment */
	}
	if (!is_no_room(err))
		return err;
	k->retry_ts = ts + RETRY_NS;
	return 0;
}

int dl_keep_rotate(struct dl_keep *k, uint64_t seen_ts)
{
	int err;

	if (!k->w)
		return 0;
	err = dl_trace_writer_flush(k->w, UINT64_MAX);
	if (is_no_room(err))
		return make_room(k, err, seen_ts);
	end_segment(k, seen_ts);
	err = err ? err : begin_segment(k, seen_ts);
	return is_no_room(err) ? make_room(k, err, seen_ts) : err;
}

void dl_keep_end(struct dl_keep *k, uint64_t seen_ts)
{
	end_segment(k, seen_ts);
}

/* --- in and out ---------------------------------------------------------------------------------- */

static int write_once(struct dl_keep *k, const struct dl_hdr *ev)
{
	int err = dl_kstate_before(k->state, ev, &k->sink);

	return err ? err : dl_trace_write(k->w, ev);
}

int dl_keep_write(struct dl_keep *k, const struct dl_hdr *ev)
{
	int err = k->w ? write_once(k, ev) : -ENOSPC;

	if (k->w && is_no_room(err)) {
		err = make_room(k, err, ev->ts);
		if (!err)
			err = k->w ? write_once(k, ev) : -ENOSPC;
	}
	if (is_no_room(err)) {
		k->lost++;
		err = 0;
	}
	if (!err)
		dl_kstate_event(k->state, ev);
	return err;
}

static bool is_due(const struct dl_keep *k, uint64_t now)
{
	struct dl_trace_writer_stats ws;

	dl_trace_writer_stats(k->w, &ws);
	return (k->opts.seg_ns && now > k->cur.start_ts && now - k->cur.start_ts >= k->opts.seg_ns) ||
	       (k->opts.seg_sz && ws.file_bytes >= k->opts.seg_sz);
}

static void drop_old(struct dl_keep *k, uint64_t now)
{
	const uint64_t ref = k->hold_ts ? k->hold_ts : now;
	struct dl_trace_writer_stats ws = {};

	if (k->w)
		dl_trace_writer_stats(k->w, &ws);
	while (k->segs.cnt && k->opts.span_ns && k->segs.v[0].end_ts + k->opts.span_ns <= ref)
		drop_oldest(k);
	while (k->segs.cnt && k->opts.max_sz && k->segs_sz + ws.file_bytes > k->opts.max_sz)
		drop_oldest(k);
}

int dl_keep_tick(struct dl_keep *k, uint64_t now, uint64_t seen_ts)
{
	int err = 0;

	if (!k->w) {
		if (now < k->retry_ts)
			return 0;
		err = begin_segment(k, seen_ts);
		k->retry_ts = now + RETRY_NS;
		return is_no_room(err) ? 0 : err;
	}
	err = dl_trace_writer_flush(k->w, now);
	if (is_no_room(err))
		return make_room(k, err, seen_ts);
	if (!err && is_due(k, now))
		err = dl_keep_rotate(k, seen_ts);
	if (!err)
		drop_old(k, now);
	return err;
}

void dl_keep_hold(struct dl_keep *k, uint64_t ts)
{
	k->hold_ts = ts;
}

struct dl_kstate *dl_keep_state(struct dl_keep *k)
{
	return k->state;
}

void dl_keep_stats(const struct dl_keep *k, uint64_t now, struct dl_keep_stats *ret)
{
	struct dl_trace_writer_stats ws = {};
	uint64_t from = k->segs.cnt ? k->segs.v[0].start_ts : k->cur.start_ts;

	if (k->w)
		dl_trace_writer_stats(k->w, &ws);
	*ret = (struct dl_keep_stats){
		.events = k->events + ws.events,
		.lost = k->lost + ws.lost,
		.kept_bytes = k->segs_sz + ws.file_bytes,
		.kept_ns = now > from ? now - from : 0,
		.segments = (uint32_t)k->segs.cnt + (k->w != NULL),
		.full = !k->w,
	};
}

/* --- begin and end ------------------------------------------------------------------------------- */

static uint64_t clamp(uint64_t v, uint64_t lo, uint64_t hi)
{
	return v < lo ? lo : v > hi ? hi : v;
}

static void set_opts(struct dl_keep_opts *o, const struct dl_keep_opts *given)
{
	*o = *given;
	if (!o->seg_ns && o->span_ns)
		o->seg_ns = clamp(o->span_ns / 8, SEG_NS_MIN, SEG_NS_MAX);
	if (!o->seg_sz && o->max_sz)
		o->seg_sz = clamp(o->max_sz / 8, SEG_SZ_MIN, SEG_SZ_MAX);
}

/* Of one recording, and in the order of recordings. */
static void set_session(struct dl_keep *k)
{
	const time_t when = (time_t)(k->meta->start_realtime_ns / DL_NS_PER_S);
	struct tm tm = {};

	gmtime_r(&when, &tm);
	snprintf(k->session, sizeof(k->session), "%04d%02d%02dT%02d%02d%02dZ-%d", tm.tm_year + 1900, tm.tm_mon + 1,
		 tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, (int)getpid());
}

int dl_keep_open(struct dl_keep **ret, const struct dl_keep_opts *opts, const char *dir, const struct dl_invoker *inv,
		 const struct dl_trace_meta *meta, struct dl_diag *d)
{
	struct dl_keep *k = calloc(1, sizeof(*k));
	int err;

	if (!k)
		return dl_oom(d);
	k->sink.emit = raw_emit;
	k->meta = meta;
	k->begin_ts = meta->start_ts;
	set_opts(&k->opts, opts);
	set_session(k);
	err = dl_kstate_new(&k->state) ? dl_oom(d) : dl_keep_dir_open(&k->dir, dir, inv, d);
	if (err) {
		dl_kstate_free(k->state);
		free(k);
		return err;
	}
	if (opts->base)
		err = dl_keep_recover(&k->dir, opts->base, &opts->told);
	err = err ? err : begin_segment(k, meta->start_ts);
	if (err) {
		dl_keep_close(k, true);
		return dl_fail_errno(d, err, "cannot write to %s", dir);
	}
	*ret = k;
	return 0;
}

void dl_keep_close(struct dl_keep *k, bool and_remove)
{
	if (!k)
		return;
	end_segment(k, dl_now_ns());
	while (and_remove && k->segs.cnt)
		drop_oldest(k);
	vec_free(&k->segs);
	dl_kstate_free(k->state);
	dl_keep_dir_close(&k->dir, and_remove);
	free(k);
}
