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
#include "timeline/past.h"

#define LONG_RUN_NS 10000000000ULL	/* a run that is not over is looked at in parts from then on */
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

/* --- the search for waits --- */

struct collector {
	const struct dl_timeline *tl;
	const struct dl_thread *th;
	const struct dl_spans *starting, *handover;
	struct dl_wait_search *s;
	size_t in_starting, in_handover;	/* where the last look-ups ended */
};

/* Of all spans that were found. */
static size_t found(const struct collector *c)
{
	return c->s->taken + c->s->out.cnt;
}

/* Does this block begin the wait for the next batch? The trainer polls the result pipe once for each
 * batch; behind a hand-over any wait at it is new. */
static bool is_next_batch(const struct collector *c, const struct dl_wait *w)
{
	if (c->s->over)
		return true;
	if (!dl_is_batch_wait(c->tl, w))
		return false;
	return c->s->in_handover || (c->s->had_batch && dl_sys_class(c->tl->machine, w->syscall) == DL_SYS_POLL);
}

/* Adds [start, end] to the last span, or begins another. 0 or -ENOMEM. */
static int add_part(struct collector *c, uint64_t start, uint64_t end, bool joins)
{
	struct dl_span *last = vec_last(&c->s->out);

	if (last && start < last->end)
		start = last->end;
	if (start >= end)
		return 0;
	if (last && joins) {
		last->end = end;
		return 0;
	}
	last = vec_push(&c->s->out);
	if (!last)
		return -ENOMEM;
	*last = (struct dl_span){ start, end };
	c->s->had_batch = c->s->over = c->s->only_joins = false;
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
	const struct dl_span *last = vec_last(&c->s->out);
	uint64_t end = dl_seg_end(c->th, i);
	bool join = is_end_of_worker(c, w), joins;
	int err;

	/* The latency of waking up belongs to the wait. */
	if (i + 1 < c->th->segs.cnt && c->th->segs.v[i + 1].state == DL_ST_RUNNABLE)
		end = dl_seg_end(c->th, i + 1);
	joins = last && !is_next_batch(c, w) && join == c->s->only_joins && s->start <= last->end + JOIN_NS &&
		(s->start <= last->end || (i && c->th->segs.v[i - 1].state == DL_ST_RUNNING &&
					   c->th->segs.v[i - 1].start <= last->end));
	if (join && c->s->ending > found(c))
		c->s->ending = found(c) - joins;
	err = add_part(c, s->start, end, joins);
	c->s->only_joins = join;
	if (!join && dl_is_batch_wait(c->tl, w) && w->wake_ts && !dl_timed_out(w, s->start)) {
		c->s->had_batch = true;
		c->s->ending = SIZE_MAX;
	}
	c->s->in_handover = dl_is_handover_wait(c->tl, w);
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
		const struct dl_span *last = vec_last(&c->s->out);

		err = add_part(c, part.start, part.end, last && !c->s->over && !c->s->only_joins && part.start <= last->end + JOIN_NS);
		c->s->ending = SIZE_MAX;
		c->s->had_batch = r == c->handover;
		c->s->over = c->s->had_batch && part.end == r->v[i].end;
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

/* Is all known of the block that its being a wait depends on? */
static bool is_final(const struct dl_thread *th, uint32_t seg, const struct dl_stage *st)
{
	if (st->last)
		return true;
	if (dl_seg_end(th, seg) > st->until || seg + 1 >= th->segs.cnt)
		return false;
	return th->segs.v[seg + 1].state != DL_ST_RUNNABLE || seg + 2 < th->segs.cnt;
}

static bool any_in(const struct dl_spans *s, uint64_t start, uint64_t end)
{
	size_t i = vec_first_at(s, end);

	return i && s->v[i - 1].end > start;
}

/* [start, end] of a segment. */
static int add_seg(struct collector *c, uint32_t i, uint64_t start, uint64_t end)
{
	int err = 0;

	c->s->any_run |= c->th->segs.v[i].state == DL_ST_RUNNING;
	if (!c->s->any_run)
		return 0;
	if (is_wait(c->tl, c->s->thread, i))
		return add_block(c, i);
	if (c->th->segs.v[i].state != DL_ST_BLOCKED)
		err = add_phase(c, c->starting, &c->in_starting, start, end);
	return err ? err : add_phase(c, c->handover, &c->in_handover, start, end);
}

void dl_wait_search_begin(struct dl_wait_search *s, uint32_t thread)
{
	*s = (struct dl_wait_search){ .thread = thread, .ending = SIZE_MAX };
}

int dl_wait_search(struct dl_wait_search *s, const struct dl_stage *st)
{
	static const struct dl_spans none;
	const struct dl_thread *th = &st->tl->threads.v[s->thread];
	const struct dl_proc *p = th->proc == DL_NONE ? NULL : &st->tl->procs.v[th->proc];
	bool main = p && p->main == s->thread;
	struct collector c = { .tl = st->tl, .th = th, .s = s, .starting = main ? &p->starting : &none,
			       .handover = main ? &p->handover : &none };
	uint32_t i = s->at ? dl_seg_before(th, s->at + 1) : 0;
	int err = 0;

	for (; i < th->segs.cnt && !err; i++) {
		uint64_t start = th->segs.v[i].start, end = dl_seg_end(th, i);

		if (end <= s->at && s->at)
			continue;
		if (start < s->at)
			start = s->at;
		if (th->segs.v[i].state == DL_ST_BLOCKED && !is_final(th, i, st))
			break;
		if (!st->last && end > st->until) {
			end = st->until;
			if (start > end || (end - start < LONG_RUN_NS && (any_in(c.starting, start, end) || any_in(c.handover, start, end))))
				break;
		}
		err = add_seg(&c, i, start, end);
		s->at = end;
		if (end < dl_seg_end(th, i))
			break;
	}
	s->done = i >= th->segs.cnt && !th->goes_on;
	return err;
}

size_t dl_wait_closed(const struct dl_wait_search *s, const struct dl_stage *st)
{
	const struct dl_span *last = vec_last(&s->out);

	return s->out.cnt - (last && !st->last && !s->done && last->end + JOIN_NS >= s->at);
}

/* At the end of training nobody waits for a batch any more. Between epochs the next one waits. */
bool dl_wait_ends(const struct dl_wait_search *s, const struct dl_timeline *tl)
{
	uint32_t proc = tl->threads.v[s->thread].proc;

	return proc == DL_NONE || tl->procs.v[proc].main != s->thread || !tl->procs.v[proc].loader_threads;
}

uint64_t dl_wait_need(const struct dl_wait_search *s)
{
	uint64_t at = s->done ? UINT64_MAX : s->at;

	return s->out.cnt && s->out.v[0].start < at ? s->out.v[0].start : at;
}

void dl_wait_take(struct dl_wait_search *s, size_t cnt)
{
	s->out.cnt -= cnt;
	s->taken += cnt;
	if (cnt)
		memmove(s->out.v, s->out.v + cnt, s->out.cnt * sizeof(*s->out.v));
}

void dl_wait_search_fini(struct dl_wait_search *s)
{
	vec_free(&s->out);
}

/* --- what they are charged to --- */

struct waits_sum {
	struct dl_ledger ledger;
	struct dl_parts parts;
	struct dl_gap_vec worst;
	uint64_t total_ns, cnt;
};

struct trainer {
	uint32_t proc;
	struct dl_wait_search search;
	struct dl_call_search calls;
	uint64_t over;			/* end of the last wait for a batch */
	struct waits_sum ended;		/* behind the end of the training, as it seems; from this span on: */
	size_t ended_from;
};

struct rate { uint32_t proc; double bps; };	/* of copies: see calls.c */

struct dl_wait_finder {
	DL_VEC(struct trainer) trainers;
	struct waits_sum sum;
	struct dl_calls_report calls;
	DL_VEC(struct rate) rates;	/* known from an earlier reading */
	bool missed;
};

static int explain_wait(const struct dl_stage *st, struct dl_gap *gap, bool want_steps, bool estimated,
			struct dl_ledger *ledger)
{
	struct dl_walk w = { .tl = st->tl, .gap = gap, .ledger = ledger, .want_steps = want_steps,
			     .copy_estimated = estimated, .relabel = DL_CAUSE_CNT };

	dl_walk_path(&w, st->tl->procs.v[gap->proc].main, gap->end, gap->start);
	return ledger->err;
}

static int take_wait(struct waits_sum *sum, const struct dl_stage *st, uint32_t proc, uint64_t start, uint64_t end,
		     bool estimated)
{
	struct dl_gap gap = { .start = start, .end = end, .proc = proc };
	int err;

	gap.open = gap.end >= st->tl->threads.v[st->tl->procs.v[proc].main].end;
	err = explain_wait(st, &gap, false, estimated, &sum->ledger);
	for (int c = 0; c < DL_CAUSE_CNT; c++)
		sum->ledger.causes[c].gaps += gap.cause_ns[c] != 0;
	err = err ? err : dl_parts_add(&sum->parts, st->tl, &gap);
	sum->total_ns += gap.end - gap.start;
	sum->cnt++;
	err = err ? err : dl_keep_worst(&sum->worst, &gap, st->opts->worst_cnt);
	return err < 0 ? err : 0;
}

static void waits_sum_fini(struct waits_sum *s)
{
	dl_ledger_fini(&s->ledger);
	dl_parts_fini(&s->parts);
	dl_gaps_free(&s->worst);
	memset(s, 0, sizeof(*s));
}

static int waits_merge(struct waits_sum *into, struct waits_sum *from, uint32_t worst_cnt)
{
	int err = dl_ledger_merge(&into->ledger, &from->ledger);

	into->total_ns += from->total_ns;
	into->cnt += from->cnt;
	err = err ? err : dl_parts_merge(&into->parts, &from->parts);
	for (size_t i = 0; i < from->worst.cnt && err >= 0; i++) {
		err = dl_keep_worst(&into->worst, &from->worst.v[i], worst_cnt);
		if (err > 0)
			memset(&from->worst.v[i].steps, 0, sizeof(from->worst.v[i].steps));
	}
	waits_sum_fini(from);
	return err < 0 ? err : 0;
}

/* A wait for a batch, cut to the window. */
static int take_span(struct dl_wait_finder *f, struct trainer *t, const struct dl_stage *st, size_t i)
{
	struct dl_span s = t->search.out.v[i];
	size_t number = t->search.taken + i;
	bool ended = number >= t->search.ending;

	if (ended && number < t->ended_from)
		t->ended_from = number;
	s.start = s.start > st->opts->from_ts ? s.start : st->opts->from_ts;
	s.end = s.end < st->opts->to_ts ? s.end : st->opts->to_ts;
	if (s.start >= s.end)
		return 0;
	t->over = s.end;
	return take_wait(ended ? &t->ended : &f->sum, st, t->proc, s.start, s.end, false);
}

/* A wait inside a call, between two waits for batches. */
static int take_call(struct dl_wait_finder *f, struct trainer *t, const struct dl_stage *st, const struct dl_call_wait *c,
		     uint64_t next)
{
	uint64_t start = c->start > t->over ? c->start : t->over, end = c->end < next ? c->end : next;

	return start < end ? take_wait(&f->sum, st, t->proc, start, end, c->estimated) : 0;
}

/* Where the first span that will be a wait in the window begins; UINT64_MAX there is none. */
static uint64_t next_span(const struct trainer *t, const struct dl_stage *st, size_t i, size_t end)
{
	for (; i < end; i++) {
		const struct dl_span *s = &t->search.out.v[i];

		if (s->end > st->opts->from_ts && s->start < st->opts->to_ts)
			return s->start > st->opts->from_ts ? s->start : st->opts->from_ts;
	}
	return UINT64_MAX;
}

/* Waits for batches and in calls, in order, up to where neither changes any more. */
static int take_both(struct dl_wait_finder *f, struct trainer *t, const struct dl_stage *st)
{
	size_t closed = dl_wait_closed(&t->search, st), end, i = 0, c = 0;
	uint64_t known = st->last || t->search.done ? UINT64_MAX : t->search.at;
	int err = 0;

	if (st->last && t->search.ending < t->search.taken + closed && dl_wait_ends(&t->search, st->tl))
		end = t->search.ending > t->search.taken ? t->search.ending - t->search.taken : 0;
	else
		end = closed;
	if (closed < t->search.out.cnt && t->search.out.v[closed].start < known)
		known = t->search.out.v[closed].start;
	if (!st->last && t->calls.at < known && t->calls.known)
		known = t->calls.at;
	while (!err) {
		uint64_t next = next_span(t, st, i, end);
		const struct dl_call_wait *call = c < t->calls.out.cnt ? &t->calls.out.v[c] : NULL;

		if (call && call->start < next) {
			if ((call->end < next ? call->end : next) > known)
				break;
			err = take_call(f, t, st, call, next);
			c++;
		} else if (i < end && (st->last || t->search.out.v[i].start < known)) {
			err = take_span(f, t, st, i++);
		} else {
			break;
		}
	}
	dl_wait_take(&t->search, i);
	dl_call_take(&t->calls, c);
	return err;
}

static struct trainer *trainer_of(struct dl_wait_finder *f, const struct dl_timeline *tl, uint32_t proc)
{
	struct trainer *t;

	vec_for_each(&f->trainers, it) {
		if (it->proc == proc)
			return it;
	}
	t = vec_push(&f->trainers);
	if (!t)
		return NULL;
	t->proc = proc;
	t->ended_from = SIZE_MAX;
	vec_for_each(&f->rates, r)
		t->calls.rate = r->proc == proc ? r->bps : t->calls.rate;
	dl_wait_search_begin(&t->search, tl->procs.v[proc].main);
	return t;
}

static int take_trainer(struct dl_wait_finder *f, const struct dl_stage *st, uint32_t proc)
{
	const struct dl_proc *p = &st->tl->procs.v[proc];
	struct trainer *t = trainer_of(f, st->tl, proc);
	int err;

	if (!t)
		return -ENOMEM;
	err = dl_wait_search(&t->search, st);
	if (!err && p->api_cnt && !st->opts->no_gpu) {
		f->missed |= dl_call_rate(&t->calls, p) && st->after;
		f->calls.known = true;
		err = dl_call_waits(&t->calls, st, p->main, &f->calls);
	}
	/* A batch came after all. */
	if (!err && t->search.ending > t->ended_from) {
		err = waits_merge(&f->sum, &t->ended, st->opts->worst_cnt);
		t->ended_from = SIZE_MAX;
	}
	return err ? err : take_both(f, t, st);
}

static int explain_worst(struct waits_sum *sum, const struct dl_stage *st)
{
	int err = 0;

	vec_for_each(&sum->worst, g) {
		struct dl_ledger unused = {};

		if (err || g->steps.cnt)
			continue;
		memset(g->cause_ns, 0, sizeof(g->cause_ns));
		err = explain_wait(st, g, true, false, &unused);
		dl_ledger_fini(&unused);
	}
	return err;
}

int dl_waits_take(struct dl_wait_finder *f, const struct dl_stage *st)
{
	int err = 0;

	for (uint32_t i = 0; i < st->tl->procs.cnt && !err; i++) {
		if (st->tl->procs.v[i].role == DL_ROLE_TRAINER && st->tl->procs.v[i].main != DL_NONE)
			err = take_trainer(f, st, i);
	}
	vec_for_each(&f->trainers, t) {
		/* One is still wanted. */
		if (!err && st->last && !dl_wait_ends(&t->search, st->tl))
			err = waits_merge(&f->sum, &t->ended, st->opts->worst_cnt);
		else if (!err)
			err = explain_worst(&t->ended, st);
	}
	return err ? err : explain_worst(&f->sum, st);
}

uint64_t dl_waits_need(const struct dl_wait_finder *f, const struct dl_stage *st)
{
	uint64_t need = st->until;

	vec_for_each(&f->trainers, t) {
		uint64_t waits = dl_wait_need(&t->search), calls = t->calls.known ? dl_call_need(&t->calls) : UINT64_MAX;

		need = waits < need ? waits : need;
		need = calls < need ? calls : need;
	}
	return need;
}

int dl_waits_publish(struct dl_wait_finder *f, struct dl_report *r, const struct dl_stage *st)
{
	r->waits.calls = f->calls;
	r->waits.total_ns = f->sum.total_ns;
	r->waits.cnt = f->sum.cnt;
	vec_for_each(&f->trainers, t) {
		const struct dl_thread *th = &st->tl->threads.v[st->tl->procs.v[t->proc].main];
		uint64_t from = dl_first_start(th), to = th->end;

		/* One that was taken for a trainer at first waited for nothing. */
		if (!th->segs.cnt || st->tl->procs.v[t->proc].role != DL_ROLE_TRAINER)
			continue;
		from = from < st->opts->from_ts ? st->opts->from_ts : from;
		to = to > st->opts->to_ts ? st->opts->to_ts : to;
		if (to > from) {
			r->waits.wall_ns += to - from;
			dl_part_span(r, t->proc, to - from);
		}
	}
	dl_parts_publish(&f->sum.parts, r, st->tl);
	dl_worst_publish(&f->sum.worst, r);
	return dl_ledger_publish(st->tl, &f->sum.ledger, r->waits.causes);
}

bool dl_waits_missed(const struct dl_wait_finder *f)
{
	return f->missed;
}

int dl_waits_expect(struct dl_wait_finder *f, const struct dl_wait_finder *earlier)
{
	vec_for_each(&earlier->trainers, t) {
		struct rate *at = vec_push(&f->rates);

		if (!at)
			return -ENOMEM;
		*at = (struct rate){ t->proc, t->calls.rate };
	}
	return 0;
}

struct dl_wait_finder *dl_wait_finder_new(void)
{
	return calloc(1, sizeof(struct dl_wait_finder));
}

void dl_wait_finder_free(struct dl_wait_finder *f)
{
	if (!f)
		return;
	vec_for_each(&f->trainers, t) {
		dl_wait_search_fini(&t->search);
		dl_call_search_fini(&t->calls);
		waits_sum_fini(&t->ended);
	}
	vec_free(&f->trainers);
	waits_sum_fini(&f->sum);
	vec_free(&f->rates);
	free(f);
}
