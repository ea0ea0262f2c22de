/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Without GPU data: the trainer's waits for batches take the place of gaps. A wait is a row of
 * blocks of the trainer's main thread that lead to its workers (or loader threads), with its own
 * short runs between the steps of one hand-over.
 */
#include "diagnose/walk.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "diagnose/calls.h"
#include "diagnose/diagnose.h"
#include "diagnose/evidence.h"
#include "diagnose/summary.h"

#define JOIN_NS 2000000ULL	/* a longer run between two blocks is a step of the training */

/* Does this block wait for a batch? */
static bool is_wait(const struct dl_timeline *tl, uint32_t thread, uint32_t seg)
{
	const struct dl_thread *th = &tl->threads.v[thread];
	const struct dl_wait *w = dl_seg_wait(th, &th->segs.v[seg]);

	/* Inside a call of CUDA it waits for the GPU, or for the call: see calls.c. */
	if (!w || dl_api_at(tl, th, dl_seg_end(th, seg)))
		return false;
	if (dl_is_batch_wait(tl, w) || dl_is_handover_wait(tl, w))
		return true;
	switch (dl_why_blocked(tl, th, seg)) {
	case DL_WHY_STORAGE:
	case DL_WHY_SWAP:
	case DL_WHY_MEMORY:
	case DL_WHY_NETWORK:
		/* With workers it is imports, checkpoints, logs. */
		return !tl->procs.v[th->proc].loading.cnt;
	case DL_WHY_DATA:
	case DL_WHY_GIL:
	case DL_WHY_CHILD:
		return true;
	default:
		return false;
	}
}

struct trainer_waits {
	struct dl_report *r;
	const struct dl_timeline *tl;
	uint32_t proc;
	const struct dl_diagnose_opts *opts;
	struct dl_ledger *ledger;
};

/* Puts together the steps of each wait. */
struct collector {
	const struct dl_timeline *tl;
	const struct dl_thread *th;
	const struct dl_spans *starting, *handover;
	struct dl_spans *out;
	bool had_batch;		/* the last span saw one arrive */
	bool over;		/* and it was taken over: what comes is for the next batch */
	bool in_handover;
	bool only_joins;	/* the last span is nothing but waits for workers to end */
	size_t in_starting, in_handover_spans;	/* where the last look-ups ended */
	size_t ending;		/* spans before the first of those since a batch came or workers were made */
};

/* Does this block begin the wait for the next batch? The trainer polls the result pipe once for each
 * batch; behind a hand-over any wait at it is new. */
static bool is_next_batch(const struct collector *c, const struct dl_wait *w)
{
	if (c->over)
		return true;
	if (!dl_is_batch_wait(c->tl, w))
		return false;
	return c->in_handover || (c->had_batch && dl_sys_class(c->tl->machine, w->syscall) == DL_SYS_POLL);
}

/* Adds [start, end] to the last span, or begins another. 0 or -ENOMEM. */
static int add_part(struct collector *c, uint64_t start, uint64_t end, bool joins)
{
	struct dl_span *last = vec_last(c->out);

	if (last && start < last->end)
		start = last->end;
	if (start >= end)
		return 0;
	if (last && joins) {
		last->end = end;
		return 0;
	}
	last = vec_push(c->out);
	if (!last)
		return -ENOMEM;
	*last = (struct dl_span){ start, end };
	c->had_batch = c->over = c->only_joins = false;
	return 0;
}

/* The trainer waits for one of its workers to end. */
static bool is_end_of_worker(const struct collector *c, const struct dl_wait *w)
{
	uint32_t proc = w->waker == DL_NONE ? DL_NONE : c->tl->threads.v[w->waker].proc;

	return dl_is_join(c->tl, w) && proc != DL_NONE && c->tl->procs.v[proc].role == DL_ROLE_WORKER &&
	       c->tl->procs.v[proc].trainer == c->th->proc;
}

static int add_block(struct collector *c, uint32_t i)
{
	const struct dl_seg *s = &c->th->segs.v[i];
	const struct dl_wait *w = dl_seg_wait(c->th, s);
	const struct dl_span *last = vec_last(c->out);
	uint64_t end = dl_seg_end(c->th, i);
	bool join = is_end_of_worker(c, w), joins;
	int err;

	/* The latency of waking up belongs to the wait. */
	if (i + 1 < c->th->segs.cnt && c->th->segs.v[i + 1].state == DL_ST_RUNNABLE)
		end = dl_seg_end(c->th, i + 1);
	joins = last && !is_next_batch(c, w) && join == c->only_joins && s->start <= last->end + JOIN_NS &&
		(s->start <= last->end || (i && c->th->segs.v[i - 1].state == DL_ST_RUNNING &&
					   c->th->segs.v[i - 1].start <= last->end));
	if (join && c->ending > c->out->cnt)
		c->ending = c->out->cnt - joins;
	err = add_part(c, s->start, end, joins);
	c->only_joins = join;
	if (!join && dl_is_batch_wait(c->tl, w) && w->wake_ts && !dl_timed_out(w, s->start)) {
		c->had_batch = true;
		c->ending = SIZE_MAX;
	}
	c->in_handover = dl_is_handover_wait(c->tl, w);
	return err;
}

static int add_spans(struct collector *c, const struct dl_spans *r, size_t *place, uint64_t start, uint64_t end)
{
	size_t i = *place = vec_first_near(r, start, *place);
	int err = 0;

	if (i && r->v[i - 1].end > start)
		i--;
	for (; i < r->cnt && r->v[i].start < end && !err; i++) {
		struct dl_span part = { r->v[i].start > start ? r->v[i].start : start,
					r->v[i].end < end ? r->v[i].end : end };
		const struct dl_span *last = vec_last(c->out);

		err = add_part(c, part.start, part.end, last && !c->over && !c->only_joins && part.start <= last->end + JOIN_NS);
		c->ending = SIZE_MAX;
		c->had_batch = r == c->handover;
		c->over = c->had_batch && part.end == r->v[i].end;
	}
	return err;
}

/* What of [start, end] lies in these spans: the trainer takes a batch over, or makes workers. Taking over
 * ends with the thread's own wake of an index feeder, or, where none was seen, in a block. place: where the
 * last piece was; they come in order. */
static int add_phase(struct collector *c, const struct dl_spans *r, size_t *place, uint64_t start, uint64_t end)
{
	/* Most often it lies between the two spans where the last piece was. */
	if ((!*place || r->v[*place - 1].end <= start) && (*place == r->cnt || r->v[*place].start >= end))
		return 0;
	return add_spans(c, r, place, start, end);
}

int dl_wait_spans(const struct dl_timeline *tl, uint32_t thread, struct dl_spans *out)
{
	static const struct dl_spans none;
	const struct dl_thread *th = &tl->threads.v[thread];
	bool main = th->proc != DL_NONE && tl->procs.v[th->proc].main == thread;
	struct collector c = { .tl = tl, .th = th, .out = out,
			       .starting = main ? &tl->procs.v[th->proc].starting : &none,
			       .handover = main ? &tl->procs.v[th->proc].handover : &none,
			       .ending = SIZE_MAX };
	bool any_run = false;
	int err = 0;

	for (uint32_t i = 0; i < th->segs.cnt && !err; i++) {
		uint64_t start = th->segs.v[i].start, end = dl_seg_end(th, i);

		any_run |= th->segs.v[i].state == DL_ST_RUNNING;
		if (!any_run)
			continue;
		if (is_wait(tl, thread, i)) {
			err = add_block(&c, i);
			continue;
		}
		if (th->segs.v[i].state != DL_ST_BLOCKED)
			err = add_phase(&c, c.starting, &c.in_starting, start, end);
		if (!err)
			err = add_phase(&c, c.handover, &c.in_handover_spans, start, end);
	}
	/* At the end of training nobody waits for a batch any more. Between epochs the next one waits. */
	if (out->cnt > c.ending && !(main && tl->procs.v[th->proc].loader_threads))
		out->cnt = c.ending;
	return err;
}

static int explain_wait(const struct trainer_waits *tw, uint32_t thread, struct dl_gap *gap, bool want_steps,
			bool estimated, struct dl_ledger *ledger)
{
	struct dl_walk w = { .tl = tw->tl, .gap = gap, .ledger = ledger, .want_steps = want_steps,
			     .copy_estimated = estimated, .relabel = DL_CAUSE_CNT };

	dl_walk_path(&w, thread, gap->end, gap->start);
	return ledger->err;
}

static int do_wait(struct trainer_waits *tw, uint64_t start, uint64_t end, bool estimated)
{
	const struct dl_proc *p = &tw->tl->procs.v[tw->proc];
	struct dl_gap gap = { .start = start, .end = end, .proc = tw->proc };
	int err;

	gap.open = gap.end >= tw->tl->threads.v[p->main].end;
	err = explain_wait(tw, p->main, &gap, false, estimated, tw->ledger);
	for (int c = 0; c < DL_CAUSE_CNT; c++)
		tw->ledger->causes[c].gaps += gap.cause_ns[c] != 0;
	dl_part_gap(tw->r, tw->tl, &gap);
	tw->r->waits.total_ns += gap.end - gap.start;
	tw->r->waits.cnt++;
	return err ? err : dl_keep_worst(tw->r, &gap, tw->opts->worst_cnt);
}

/* The waits for batches, and between them those inside calls. */
static int do_waits(struct trainer_waits *tw, const struct dl_spans *spans, const struct dl_call_waits *calls)
{
	uint64_t over = 0;
	size_t c = 0;
	int err = 0;

	for (size_t i = 0; i <= spans->cnt && !err; i++) {
		const uint64_t next = i < spans->cnt ? spans->v[i].start : UINT64_MAX;

		for (; c < calls->cnt && calls->v[c].start < next && !err; c++) {
			const uint64_t start = calls->v[c].start > over ? calls->v[c].start : over;
			const uint64_t end = calls->v[c].end < next ? calls->v[c].end : next;

			if (start < end)
				err = do_wait(tw, start, end, calls->v[c].estimated);
		}
		if (i < spans->cnt && !err)
			err = do_wait(tw, spans->v[i].start, spans->v[i].end, false);
		over = i < spans->cnt ? spans->v[i].end : over;
	}
	return err;
}

static int do_trainer(struct trainer_waits *tw)
{
	const struct dl_proc *p = &tw->tl->procs.v[tw->proc];
	struct dl_call_waits calls = {};
	struct dl_spans spans = {};
	const struct dl_thread *th;
	int err;

	if (p->main == DL_NONE)
		return 0;
	th = &tw->tl->threads.v[p->main];
	err = dl_wait_spans(tw->tl, p->main, &spans);
	dl_clip_spans(&spans, tw->opts->from_ts, tw->opts->to_ts);
	if (!err && p->apis.cnt && !tw->opts->no_gpu) {
		tw->r->waits.calls.known = true;
		err = dl_call_waits(tw->tl, p->main, tw->opts->from_ts, tw->opts->to_ts, &calls, &tw->r->waits.calls);
	}
	if (!err)
		err = do_waits(tw, &spans, &calls);
	if (th->segs.cnt) {
		uint64_t from = th->segs.v[0].start, to = th->end;

		if (from < tw->opts->from_ts)
			from = tw->opts->from_ts;
		if (to > tw->opts->to_ts)
			to = tw->opts->to_ts;
		if (to > from) {
			tw->r->waits.wall_ns += to - from;
			dl_part_span(tw->r, tw->proc, to - from);
		}
	}
	vec_free(&calls);
	vec_free(&spans);
	return err;
}

int dl_find_waits(struct dl_report *r, const struct dl_timeline *tl, const struct dl_diagnose_opts *opts,
		  struct dl_diag *d)
{
	struct dl_ledger ledger = {};
	int err = 0;

	for (uint32_t i = 0; i < tl->procs.cnt && !err; i++) {
		struct trainer_waits tw = { .r = r, .tl = tl, .proc = i, .opts = opts, .ledger = &ledger };

		if (tl->procs.v[i].role == DL_ROLE_TRAINER)
			err = do_trainer(&tw);
	}
	dl_sort_worst(r);
	vec_for_each(&r->worst, g) {
		struct trainer_waits tw = { .r = r, .tl = tl, .proc = g->proc };
		struct dl_ledger unused = {};

		memset(g->cause_ns, 0, sizeof(g->cause_ns));
		err = err ? err : explain_wait(&tw, tl->procs.v[g->proc].main, g, true, false, &unused);
		dl_ledger_fini(&unused);
	}
	if (!err)
		err = dl_ledger_publish(tl, &ledger, r->waits.causes);
	dl_ledger_fini(&ledger);
	return err ? dl_oom(d) : 0;
}
