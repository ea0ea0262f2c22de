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

#include "diagnose/diagnose.h"
#include "diagnose/evidence.h"
#include "diagnose/summary.h"

#define JOIN_NS 2000000ULL	/* a longer run between two blocks is a step of the training */

/* Does this block wait for a batch? */
static bool is_wait(const struct dl_timeline *tl, uint32_t thread, uint32_t seg)
{
	const struct dl_thread *th = &tl->threads.v[thread];
	const struct dl_wait *w = dl_seg_wait(th, &th->segs.v[seg]);

	if (!w)
		return false;
	if (dl_is_batch_wait(tl, w) || dl_is_handover_wait(tl, w))
		return true;
	switch (dl_why_blocked(tl, th, seg)) {
	case DL_WHY_STORAGE:
	case DL_WHY_SWAP:
	case DL_WHY_MEMORY:
	case DL_WHY_NETWORK:
		return !dl_workers_alive(tl, th->proc, th->segs.v[seg].start, dl_seg_end(th, seg));
	case DL_WHY_DATA:
	case DL_WHY_GIL:
	case DL_WHY_CHILD:
		return true;
	default:
		return false;
	}
}

/* The run before the wait that already belongs to the hand-over. */
static uint64_t lead_in(const struct dl_timeline *tl, uint32_t thread, uint32_t seg, uint64_t floor)
{
	struct dl_span part;

	if (!seg || tl->threads.v[thread].segs.v[seg - 1].state != DL_ST_RUNNING)
		return tl->threads.v[thread].segs.v[seg].start;
	part = dl_handover_part(tl, thread, seg - 1);
	if (part.start >= part.end)
		return tl->threads.v[thread].segs.v[seg].start;
	return part.start > floor ? part.start : floor;
}

struct trainer_waits {
	struct dl_report *r;
	const struct dl_timeline *tl;
	uint32_t proc;
	const struct dl_diagnose_opts *opts;
	struct dl_ledger *ledger;
};

static bool joins(const struct dl_timeline *tl, uint32_t thread, uint32_t run, uint64_t start, uint64_t end)
{
	struct dl_span part;

	if (end - start <= JOIN_NS)
		return true;
	part = dl_handover_part(tl, thread, run);
	return part.start <= start && part.end >= end;
}

/* Has the span got its batch already, so that this block begins the wait for the next one? The
 * trainer polls the result pipe once for each batch; behind a hand-over any wait at it is new. */
static bool is_next_batch(const struct dl_timeline *tl, const struct dl_thread *th, uint32_t seg, bool had_batch,
			  bool in_handover)
{
	const struct dl_wait *w = dl_seg_wait(th, &th->segs.v[seg]);

	if (!dl_is_batch_wait(tl, w))
		return false;
	return in_handover || (had_batch && dl_sys_class(tl->machine, w->syscall) == DL_SYS_POLL);
}

int dl_wait_spans(const struct dl_timeline *tl, uint32_t thread, struct dl_spans *out)
{
	const struct dl_thread *th = &tl->threads.v[thread];
	bool any_run = false, had_batch = false, in_handover = false;

	for (uint32_t i = 0; i < th->segs.cnt; i++) {
		const struct dl_seg *s = &th->segs.v[i];
		const struct dl_wait *w = dl_seg_wait(th, s);
		struct dl_span *last = vec_last(out);
		uint64_t end = dl_seg_end(th, i);

		any_run |= s->state == DL_ST_RUNNING;
		if (!w || !is_wait(tl, thread, i) || !any_run)
			continue;
		/* The latency of waking up belongs to the wait. */
		if (i + 1 < th->segs.cnt && th->segs.v[i + 1].state == DL_ST_RUNNABLE)
			end = dl_seg_end(th, i + 1);
		if (last && !is_next_batch(tl, th, i, had_batch, in_handover) &&
		    (s->start <= last->end || (i && th->segs.v[i - 1].state == DL_ST_RUNNING &&
					       th->segs.v[i - 1].start <= last->end &&
					       joins(tl, thread, i - 1, last->end, s->start)))) {
			last->end = end;
		} else {
			uint64_t floor = last ? last->end : 0;

			last = vec_push(out);
			if (!last)
				return -ENOMEM;
			*last = (struct dl_span){ lead_in(tl, thread, i, floor), end };
			had_batch = false;
		}
		had_batch |= dl_is_batch_wait(tl, w) && w->wake_ts && !dl_timed_out(w, s->start);
		in_handover = dl_is_handover_wait(tl, w);
	}
	return 0;
}

static int explain_wait(const struct trainer_waits *tw, uint32_t thread, struct dl_gap *gap, bool want_steps,
			struct dl_ledger *ledger)
{
	struct dl_walk w = { .tl = tw->tl, .gap = gap, .ledger = ledger, .want_steps = want_steps,
			     .relabel = DL_CAUSE_CNT };

	dl_walk_path(&w, thread, gap->end, gap->start);
	return ledger->err;
}

static int do_trainer(struct trainer_waits *tw)
{
	const struct dl_proc *p = &tw->tl->procs.v[tw->proc];
	struct dl_spans spans = {};
	const struct dl_thread *th;
	int err;

	if (p->main == DL_NONE)
		return 0;
	th = &tw->tl->threads.v[p->main];
	err = dl_wait_spans(tw->tl, p->main, &spans);
	dl_clip_spans(&spans, tw->opts->from_ts, tw->opts->to_ts);
	for (size_t i = 0; i < spans.cnt && !err; i++) {
		struct dl_gap gap = { .start = spans.v[i].start, .end = spans.v[i].end, .proc = tw->proc };

		gap.open = gap.end >= th->end;
		err = explain_wait(tw, p->main, &gap, false, tw->ledger);
		for (int c = 0; c < DL_CAUSE_CNT; c++)
			tw->ledger->causes[c].gaps += gap.cause_ns[c] != 0;
		dl_part_gap(tw->r, tw->tl, &gap);
		tw->r->waits.total_ns += gap.end - gap.start;
		tw->r->waits.cnt++;
		err = err ? err : dl_keep_worst(tw->r, &gap, tw->opts->worst_cnt);
	}
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
		err = err ? err : explain_wait(&tw, tl->procs.v[g->proc].main, g, true, &unused);
		dl_ledger_fini(&unused);
	}
	if (!err)
		err = dl_ledger_publish(tl, &ledger, r->waits.causes);
	dl_ledger_fini(&ledger);
	return err ? dl_oom(d) : 0;
}
