/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Cuts off what lies before an instant. Of each thread the segment that spans the instant is kept, and the
 * one before it; segments since its last switch-out, too, because lost events may take them back.
 */
#include "timeline/timeline.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "timeline/past.h"
#include "timeline/threads.h"

#define BEHIND_NS 1000000	/* wakes this shortly before a segment say something about it */
#define PENDING_MAX 65536	/* calls of a process whose work is yet to come; GPUs queue some 1,000 */
#define SLACK 64		/* elements of a vector that are not given back: there may be many threads */

static void drop_front(void **v, size_t *cnt, size_t *cap, size_t drop, size_t sz)
{
	if (drop) {
		*cnt -= drop;
		memmove(*v, (char *)*v + drop * sz, *cnt * sz);
	}
	if (*cap > SLACK && *cap / 4 > *cnt) {
		size_t left = *cnt * 2 + SLACK / 4;
		void *less = realloc(*v, left * sz);

		if (less) {
			*v = less;
			*cap = left;
		}
	}
}

#define vec_drop_front(vec, drop) \
	drop_front((void **)&(vec)->v, &(vec)->cnt, &(vec)->cap, (drop), sizeof(*(vec)->v))

/* --- threads --- */

static size_t first_seg(const struct dl_thread *th, uint64_t ts)
{
	size_t out = vec_first_at(&th->segs, th->last_out_ts), at = vec_first_at(&th->segs, ts + 1);

	at = at ? at - 1 : 0;
	at = out < at ? out : at;
	return at ? at - 1 : 0;
}

static struct dl_cut cut_of(const struct dl_thread *th, uint64_t ts)
{
	struct dl_cut c = { .seg = first_seg(th, ts), .wait = th->waits.cnt, .rq = th->rqs.cnt,
			    .smp = vec_first_at(&th->samples, ts) };
	uint64_t from = c.seg < th->segs.cnt && th->segs.v[c.seg].start < ts ? th->segs.v[c.seg].start : ts;

	for (size_t i = th->segs.cnt; i-- > c.seg;) {
		const struct dl_seg *s = &th->segs.v[i];

		if (s->ref == DL_NONE)
			continue;
		/* Mostly in order; a wait that a hole has cut in two stands at the end. */
		if (s->state == DL_ST_BLOCKED && s->ref < c.wait)
			c.wait = s->ref;
		if (s->state == DL_ST_RUNNABLE && s->ref < c.rq)
			c.rq = s->ref;
	}
	c.woke = vec_first_at(&th->woke, from > BEHIND_NS ? from - BEHIND_NS : 0);
	return c;
}

static void cut_spans(struct dl_spans *s, uint64_t ts)
{
	size_t drop = vec_first_at(s, ts);

	/* The one that may span it, and the one before. */
	vec_drop_front(s, drop > 2 ? drop - 2 : 0);
}

static void cut_thread(struct dl_thread *th, const struct dl_cut *c, uint64_t ts)
{
	vec_drop_front(&th->segs, c->seg);
	vec_drop_front(&th->waits, c->wait);
	vec_drop_front(&th->rqs, c->rq);
	vec_drop_front(&th->woke, c->woke);
	vec_drop_front(&th->samples, c->smp);
	vec_for_each(&th->segs, s) {
		if (s->ref == DL_NONE)
			continue;
		if (s->state == DL_ST_BLOCKED)
			s->ref -= (uint32_t)c->wait;
		if (s->state == DL_ST_RUNNABLE)
			s->ref -= (uint32_t)c->rq;
	}
	cut_spans(&th->in_data, ts);
	cut_spans(&th->in_calls, ts);
	cut_spans(&th->in_costly, ts);
}

/* --- GPU records --- */

/* Calls that span the instant need the kernels that ran meanwhile. */
static uint64_t kernels_from(const struct dl_proc *p, uint64_t ts)
{
	uint64_t from = ts;

	vec_for_each(&p->apis, a) {
		if (a->end >= ts && a->start < from)
			from = a->start;
	}
	return from;
}

static void note_done(struct dl_proc *p, uint32_t corr)
{
	uint32_t idx;

	if (corr && dl_dense_get(&p->api_by_corr, corr, &idx))
		p->apis.v[idx].done = true;
}

static void cut_kernels(struct dl_proc *p, uint64_t from)
{
	size_t kept = 0;

	for (size_t i = 0; i < p->kernels.cnt; i++) {
		if (p->kernels.v[i].end >= from)
			p->kernels.v[kept++] = p->kernels.v[i];
		else
			note_done(p, p->kernels.v[i].corr);
	}
	p->kernels.cnt = kept;
	vec_drop_front(&p->kernels, 0);
}

static void cut_copies(struct dl_proc *p, uint64_t from)
{
	size_t kept = 0;

	for (size_t i = 0; i < p->copies.cnt; i++) {
		if (p->copies.v[i].end >= from)
			p->copies.v[kept++] = p->copies.v[i];
		else
			note_done(p, p->copies.v[i].corr);
	}
	p->copies.cnt = kept;
	vec_drop_front(&p->copies, 0);
}

static bool is_pending(const struct dl_proc *p, const struct dl_api *a)
{
	if (!a->corr || a->done || (!p->kernel_cnt && !p->copy_cnt))
		return false;
	return a->cls == DL_CALL_LAUNCH || a->cls == DL_CALL_GRAPH_LAUNCH || a->cls == DL_CALL_COPY;
}

static void note_call(struct dl_timeline *tl, const struct dl_api *a)
{
	struct dl_past *past = a->thread == DL_NONE ? NULL : tl->threads.v[a->thread].past;

	if (past && a->end > past->call_end)
		past->call_end = a->end;
}

/* Their indices are found anew by dl_tl_gpu_finish(). */
static void cut_calls(struct dl_timeline *tl, struct dl_proc *p, uint64_t ts)
{
	size_t kept = 0, pending = 0;

	vec_for_each(&p->apis, a)
		pending += a->end < ts && is_pending(p, a);
	for (size_t i = 0; i < p->apis.cnt; i++) {
		struct dl_api *a = &p->apis.v[i];
		bool waits = a->end < ts && is_pending(p, a) && pending-- <= PENDING_MAX;

		if (a->end >= ts || waits)
			p->apis.v[kept++] = *a;
		else
			note_call(tl, a);
	}
	p->apis.cnt = kept;
	vec_drop_front(&p->apis, 0);
}

static void cut_proc(struct dl_timeline *tl, struct dl_proc *p, uint64_t ts)
{
	uint64_t from = kernels_from(p, ts);
	size_t drop = vec_first_at(&p->handover, ts);

	cut_kernels(p, from);
	cut_copies(p, from);
	cut_calls(tl, p, ts);
	vec_drop_front(&p->syncs, vec_first_at(&p->syncs, ts));
	/* The last one before the instant stays, and one more that may span it. */
	drop = drop > 2 ? drop - 2 : 0;
	if (drop > p->taking.cnt)
		drop = p->taking.cnt;
	vec_drop_front(&p->handover, drop);
	p->taking.cnt -= drop;
}

/* --- all --- */

static uint64_t count_held(const struct dl_timeline *tl)
{
	uint64_t cnt = 0;

	vec_for_each(&tl->threads, th)
		cnt += th->segs.cnt + th->woke.cnt + th->samples.cnt;
	vec_for_each(&tl->procs, p)
		cnt += p->kernels.cnt + p->copies.cnt + p->apis.cnt;
	return cnt;
}

int dl_timeline_cut(struct dl_timeline *tl, uint64_t ts, struct dl_diag *d)
{
	_cleanup_free_ struct dl_cut *cuts = NULL;
	int err = 0;

	if (ts > tl->cut_ts) {
		cuts = calloc(tl->threads.cnt, sizeof(*cuts));
		if (!cuts)
			return dl_oom(d);
		for (uint32_t i = 0; i < tl->threads.cnt; i++)
			cuts[i] = cut_of(&tl->threads.v[i], ts);
		vec_for_each(&tl->procs, p) {
			if (!err && p->main != DL_NONE)
				err = dl_handover_cut(tl, p, (uint32_t)cuts[p->main].seg);
		}
		for (uint32_t i = 0; i < tl->threads.cnt && !err; i++)
			err = dl_past_add(tl, i, &cuts[i], ts);
		err = err ? err : dl_tl_thin(tl);
		if (err)
			return dl_oom(d);
		for (uint32_t i = 0; i < tl->threads.cnt; i++)
			cut_thread(&tl->threads.v[i], &cuts[i], ts);
		vec_for_each(&tl->procs, p)
			cut_proc(tl, p, ts);
		tl->cut_ts = ts;
	}
	tl->held = count_held(tl);
	return 0;
}
