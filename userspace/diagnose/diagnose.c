/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* From a trace to a report: timeline, gaps or waits, summaries, verdict, in this order. */
#include "diagnose/diagnose.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "diagnose/copies.h"
#include "diagnose/summary.h"
#include "diagnose/walk.h"
#include "timeline/plan.h"
#include "timeline/timeline.h"
#include "trace/trace.h"

#define WORST_DEFAULT 5
#define STAGE_EVENTS 1000000
#define BEFORE_NS 10000000000ULL	/* of a window, to see who does what */
#define AHEAD_NS 2100000000ULL	/* the farthest that a rule looks: samples, see running.c, and what is near them */

static char *dup_or_null(const char *s)
{
	return s && *s ? strdup(s) : NULL;
}

static void take_meta(struct dl_report *r, const struct dl_timeline *tl, struct dl_trace *t)
{
	const struct dl_trace_info *info = dl_trace_info(t);

	r->complete = info->complete && tl->stopped;
	/* The zero of every instant that is printed, here, by dump and by info. */
	r->start = info->meta.start_ts ? info->meta.start_ts : tl->start;
	r->duration_ns = tl->end - tl->start;
	r->events = tl->events;
	if (tl->from_ts || tl->to_ts < UINT64_MAX) {	/* not all were read */
		r->events = info->events - info->unknown_events;
		r->duration_ns = (info->last_ts > tl->end ? info->last_ts : tl->end) - tl->start;
	}
	r->damaged_frames = info->damaged_frames;
	r->damaged_bytes = info->damaged_bytes;
	r->target_pid = info->meta.target_pid;
	r->host = dup_or_null(info->meta.host);
	r->kernel = dup_or_null(info->meta.kernel);
	r->target_cmdline = dup_or_null(info->meta.target_cmdline);
}

static int name_source(struct dl_report *r, const struct dl_timeline *tl)
{
	const struct dl_proc *best = NULL;
	struct dl_str s = {};

	vec_for_each(&tl->procs, p) {
		r->simulated |= p->gpu_simulated;
		if ((p->gpu_text || p->gpu_busy) && (!best || p->kernel_cnt > best->kernel_cnt))
			best = p;
	}
	if (best && best->gpu_text)
		dl_str_add(&s, best->gpu_text);
	else if (!best || best->kernel_cnt)
		dl_str_add(&s, r->has_gpu ? "CUPTI" : "none");
	if (r->simulated && s.len && !strstr(s.s, "simulated"))
		dl_str_add(&s, " (simulated)");
	if (best && best->gpu_state == DL_GPU_BUSY)
		dl_str_addf(&s, "%s%s", s.len ? "; then " : "", best->gpu_busy ? best->gpu_busy : "busy");
	r->gpu_source = dl_str_take(&s);
	return r->gpu_source ? 0 : -ENOMEM;
}

/* --- one reading --------------------------------------------------------------------------------- */

struct reading {
	struct dl_timeline *tl;
	uint64_t from, to;		/* events of all kinds are read in here */
	struct dl_gap_finder *gaps;	/* all of these are made by begin() */
	struct dl_wait_finder *waits;
	struct dl_loader_finder *loaders;
	struct dl_proc_finder *procs;
	struct dl_copy_finder *copies;
	struct dl_idle_finder *idle;
	struct dl_stage st;
	struct dl_plan *plan;		/* of the last stage */
	bool differs;			/* something looks otherwise now than when it was charged by */
	struct dl_diagnose_stats stats;
};

static void end(struct reading *rd)
{
	dl_gap_finder_free(rd->gaps);
	dl_wait_finder_free(rd->waits);
	dl_loader_finder_free(rd->loaders);
	dl_proc_finder_free(rd->procs);
	dl_copy_finder_free(rd->copies);
	dl_idle_finder_free(rd->idle);
	dl_timeline_free(rd->tl);
	dl_plan_free(rd->plan);
	memset(rd, 0, sizeof(*rd));
}

static uint64_t min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* The window with what the rules look at around it: who does what shows in some seconds, and a gap ends with a
 * kernel. */
static int set_window(struct reading *rd, struct dl_trace *t, struct dl_diag *d)
{
	const struct dl_diagnose_opts *o = rd->st.opts;
	int err;

	rd->to = UINT64_MAX;
	if (!o->whole && (o->from_ts || o->to_ts < UINT64_MAX)) {
		rd->from = o->from_ts;
		rd->to = o->to_ts;
		dl_trace_widen(t, DL_KIND(DL_EV_GPU_KERNEL) | DL_KIND(DL_EV_GPU_GRAPH), &rd->from, &rd->to);
		rd->from = min_u64(rd->from, o->from_ts > BEFORE_NS ? o->from_ts - BEFORE_NS : 0);
		if (rd->to < UINT64_MAX - o->ahead_ns)
			rd->to += o->ahead_ns;
	}
	rd->tl->from_ts = rd->from;
	rd->tl->to_ts = rd->to;
	rd->tl->in_window = !rd->from;
	err = dl_trace_window_keep(t, rd->from, rd->to, rd->from || rd->to < UINT64_MAX ? ~DL_BULK_KINDS : 0);
	return err ? dl_fail(d, err, "the window ends before it begins") : 0;
}

static int begin(struct reading *rd, struct dl_trace *t, const struct dl_diagnose_opts *opts,
		 const struct reading *earlier, struct dl_diag *d)
{
	int err = dl_timeline_open(&rd->tl, t, d);

	rd->gaps = dl_gap_finder_new();
	rd->waits = dl_wait_finder_new();
	rd->loaders = dl_loader_finder_new();
	rd->procs = dl_proc_finder_new();
	rd->copies = dl_copy_finder_new();
	rd->idle = dl_idle_finder_new();
	rd->st.tl = rd->tl;
	rd->st.opts = opts;
	if (err)
		return err;
	if (!rd->gaps || !rd->waits || !rd->loaders || !rd->procs || !rd->copies || !rd->idle)
		return dl_oom(d);
	err = set_window(rd, t, d);
	if (err || !earlier)
		return err;
	rd->tl->plan = earlier->plan;
	err = dl_gaps_expect(rd->gaps, earlier->gaps);
	err = err ? err : dl_waits_expect(rd->waits, earlier->waits);
	err = err ? err : dl_loaders_expect(rd->loaders, earlier->loaders, earlier->tl);
	return err ? dl_oom(d) : 0;
}

/* Waits are for where there is no GPU: as long as none was seen. */
static bool has_gpu(const struct reading *rd)
{
	uint32_t proc, id;
	uint64_t start;

	return dl_gaps_device(rd->gaps, 0, &proc, &id, &start);
}

static int take_stage(struct reading *rd)
{
	const struct dl_stage *st = &rd->st;
	int err = 0;

	if (!st->opts->no_gpu)
		err = dl_gaps_take(rd->gaps, st);
	if (!err && !has_gpu(rd))
		err = dl_waits_take(rd->waits, st);
	if (!err)
		err = dl_loaders_take(rd->loaders, st);
	if (!err)
		err = dl_procs_take(rd->procs, st);
	if (!err)
		err = dl_copies_take(rd->copies, st);
	return err ? err : dl_idle_take(rd->idle, st, rd->gaps);
}

/* From when on the timeline is needed for the next stage, with what the rules look at behind. */
static uint64_t needed(const struct reading *rd)
{
	uint64_t need = dl_loaders_need(rd->loaders, &rd->st);

	if (!rd->st.opts->no_gpu)
		need = min_u64(need, dl_gaps_need(rd->gaps, &rd->st));
	if (!has_gpu(rd))
		need = min_u64(need, dl_waits_need(rd->waits, &rd->st));
	return need > rd->st.opts->ahead_ns ? need - rd->st.opts->ahead_ns : 0;
}

/* Has a decision changed that times before were charged by? */
static int compare(struct reading *rd)
{
	struct dl_plan *now = dl_plan_new(rd->tl);

	if (!now)
		return -ENOMEM;
	if (rd->plan && dl_plan_differs(rd->plan, now, rd->st.after))
		rd->differs = true;
	dl_plan_free(rd->plan);
	rd->plan = now;
	return 0;
}

static int read_all(struct reading *rd, struct dl_trace *t, struct dl_diag *d)
{
	int more = 1, err = 0;

	while (more && !err) {
		uint64_t cnt = rd->st.opts->stage_events, newest;

		/* What has to be held is looked at again in each stage: about as much more, two of it are one event, has
		 * to come first. */
		if (rd->tl->held / 2 > cnt)
			cnt = rd->tl->held / 2;
		more = dl_timeline_read(rd->tl, t, cnt, d);
		if (more < 0)
			return more;
		err = dl_timeline_settle(rd->tl, d);
		if (err)
			return err;
		newest = rd->tl->end > rd->st.opts->ahead_ns ? rd->tl->end - rd->st.opts->ahead_ns : 0;
		rd->st.last = !more;
		newest = min_u64(newest, rd->to);
		rd->st.until = newest > rd->st.after ? newest : rd->st.after;
		rd->stats.stages++;
		err = compare(rd);
		if (!err)
			err = take_stage(rd);
		if (err)
			return dl_oom(d);
		rd->st.after = rd->st.until;
		if (more)
			err = dl_timeline_cut(rd->tl, needed(rd), d);
		if (rd->tl->held > rd->stats.held)
			rd->stats.held = rd->tl->held;
	}
	return err;
}

/* --- the report ---------------------------------------------------------------------------------- */

static int publish_times(struct dl_report *r, struct reading *rd)
{
	const struct dl_timeline *tl = rd->tl;
	int err = dl_loaders_publish(rd->loaders, r, tl);

	if (!err)
		err = dl_gaps_publish(rd->gaps, r, &rd->st);
	r->has_gpu = r->devices.cnt > 0;
	if (!err && !r->has_gpu)
		err = dl_waits_publish(rd->waits, r, &rd->st);
	if (!err)
		err = name_source(r, tl);
	if (!err)
		err = dl_procs_publish(rd->procs, r, tl);
	dl_judge_parts(r);
	return err;
}

static int make_report(struct dl_report *r, struct reading *rd, struct dl_diag *d)
{
	const struct dl_timeline *tl = rd->tl;
	int err;

	err = dl_sum_trainers(r, tl, d);
	if (!err && publish_times(r, rd))
		err = dl_oom(d);
	if (!err)
		err = dl_sum_gpus(r, tl, d);
	if (!err && dl_copies_publish(rd->copies, r, tl))
		err = dl_oom(d);
	if (!err)
		err = dl_sum_losses(r, tl, d);
	if (!err && dl_idle_publish(rd->idle, r, tl))
		err = dl_oom(d);
	if (!err)
		err = dl_find_crash(r, tl, d);
	if (!err)
		err = dl_find_verdict(r, tl, rd->st.opts, d);
	return err;
}

static bool too_late(const struct reading *rd)
{
	return rd->differs || dl_gaps_missed(rd->gaps) || dl_waits_missed(rd->waits) || dl_loaders_missed(rd->loaders);
}

/* Roles and phases are found as the trace is read. Where a later stage knows better than one before that has
 * charged by them, a second reading knows all of them in time. */
static int read_twice(struct reading *rd, struct dl_trace *t, const struct dl_diagnose_opts *opts, struct dl_diag *d)
{
	struct reading first = {};
	struct dl_plan *plan;
	int err = begin(&first, t, opts, NULL, d);

	if (!err)
		err = read_all(&first, t, d);
	first.stats.readings = 1;
	if (err || (!opts->twice && !too_late(&first))) {
		*rd = first;
		return err;
	}
	err = begin(rd, t, opts, &first, d);
	plan = first.plan;	/* all that is needed of it now */
	first.plan = NULL;
	end(&first);
	if (!err)
		err = read_all(rd, t, d);
	rd->stats.readings = 2;
	if (rd->tl)
		rd->tl->plan = NULL;
	dl_plan_free(plan);
	return err;
}

int dl_diagnose_stages(struct dl_report **ret, struct dl_trace *t, const struct dl_diagnose_opts *opts,
		       struct dl_diagnose_stats *stats, struct dl_diag *d)
{
	struct dl_diagnose_opts use = opts ? *opts : (struct dl_diagnose_opts){};
	struct reading rd = {};
	struct dl_report *r;
	int err;

	if (!use.to_ts)
		use.to_ts = UINT64_MAX;
	if (!use.worst_cnt)
		use.worst_cnt = WORST_DEFAULT;
	if (!use.stage_events)
		use.stage_events = STAGE_EVENTS;
	if (!use.ahead_ns)
		use.ahead_ns = AHEAD_NS;
	r = calloc(1, sizeof(*r));
	if (!r)
		return dl_oom(d);
	err = read_twice(&rd, t, &use, d);
	if (!err) {
		take_meta(r, rd.tl, t);
		err = make_report(r, &rd, d);
	}
	rd.stats.frames = dl_trace_info(t)->decoded_frames;
	if (stats)
		*stats = rd.stats;
	end(&rd);
	if (err) {
		dl_report_free(r);
		return err;
	}
	*ret = r;
	return 0;
}

int dl_diagnose(struct dl_report **ret, struct dl_trace *t, const struct dl_diagnose_opts *opts, struct dl_diag *d)
{
	return dl_diagnose_stages(ret, t, opts, NULL, d);
}
