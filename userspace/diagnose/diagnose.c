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
#include "timeline/timeline.h"
#include "trace/trace.h"

#define WORST_DEFAULT 5

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
		if ((p->gpu_text || p->gpu_busy) && (!best || p->kernels.cnt > best->kernels.cnt))
			best = p;
	}
	if (best && best->gpu_text)
		dl_str_add(&s, best->gpu_text);
	else if (!best || best->kernels.cnt)
		dl_str_add(&s, r->has_gpu ? "CUPTI" : "none");
	if (r->simulated && s.len && !strstr(s.s, "simulated"))
		dl_str_add(&s, " (simulated)");
	if (best && best->gpu_state == DL_GPU_BUSY)
		dl_str_addf(&s, "%s%s", s.len ? "; then " : "", best->gpu_busy ? best->gpu_busy : "busy");
	r->gpu_source = dl_str_take(&s);
	return r->gpu_source ? 0 : -ENOMEM;
}

static int make_report(struct dl_report *r, const struct dl_timeline *tl, const struct dl_diagnose_opts *opts,
		       struct dl_diag *d)
{
	int err = 0;

	err = dl_sum_trainers(r, tl, d);
	if (!err)
		err = dl_sum_loaders(r, tl, d);
	if (!err && !opts->no_gpu)
		err = dl_find_gaps(r, tl, opts, d);
	r->has_gpu = r->devices.cnt > 0;
	if (!err && !r->has_gpu)
		err = dl_find_waits(r, tl, opts, d);
	if (!err && name_source(r, tl))
		err = dl_oom(d);
	if (!err)
		err = dl_sum_procs(r, tl, d);
	dl_judge_parts(r);
	if (!err)
		err = dl_sum_gpus(r, tl, d);
	if (!err)
		err = dl_sum_copies(r, tl, opts, d);
	if (!err)
		err = dl_sum_losses(r, tl, d);
	if (!err)
		err = dl_find_crash(r, tl, d);
	if (!err)
		err = dl_find_verdict(r, tl, d);
	return err;
}

int dl_diagnose(struct dl_report **ret, struct dl_trace *t, const struct dl_diagnose_opts *opts, struct dl_diag *d)
{
	struct dl_diagnose_opts use = opts ? *opts : (struct dl_diagnose_opts){};
	struct dl_timeline *tl = NULL;
	struct dl_report *r;
	int err;

	if (!use.to_ts)
		use.to_ts = UINT64_MAX;
	if (!use.worst_cnt)
		use.worst_cnt = WORST_DEFAULT;
	r = calloc(1, sizeof(*r));
	if (!r)
		return dl_oom(d);
	err = dl_timeline_build(&tl, t, d);
	if (!err) {
		take_meta(r, tl, t);
		err = make_report(r, tl, &use, d);
	}
	dl_timeline_free(tl);
	if (err) {
		dl_report_free(r);
		return err;
	}
	*ret = r;
	return 0;
}
