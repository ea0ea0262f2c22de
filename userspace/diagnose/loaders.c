/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Batches per loader: how long the trainer waited, how long a worker made one, how long the
 * hand-over took. */
#include "diagnose/summary.h"

#include <errno.h>
#include <stdlib.h>

#include "diagnose/diagnose.h"
#include "diagnose/walk.h"

/* The produced batches of one worker, stage by stage. */
struct producer {
	bool begun;
	uint64_t last;			/* its last put; before the first one 0 */
	uint64_t idx_start, idx_ts;	/* its last wait for an index, and when that ended */
	uint64_t seg_at, woke_at;	/* segments and wakes before are done with */
	uint64_t batches, sum_ns, cnt;
};

/* What was found of a loader, or (number -1) of no loader, of a trainer. */
struct tally {
	uint32_t trainer;
	int32_t number;
	struct dl_values wait, produce, deliver;
	struct dl_values late_wait, late_deliver;	/* behind the end of the training, as it seems */
};

struct consumer {
	uint32_t trainer;
	struct dl_wait_search search;
	size_t late_from;		/* spans from this one on are in the tallies as late */
};

struct consumes { uint32_t trainer, thread; };

struct dl_loader_finder {
	DL_VEC(struct consumes) expected;	/* known from an earlier reading */
	bool missed;
	DL_VEC(struct producer) producers;	/* by process */
	DL_VEC(struct tally) tallies;
	DL_VEC(struct consumer) consumers;
};

static struct dl_dist distribution(struct dl_values *t)
{
	struct dl_dist d = { .cnt = t->cnt, .sum_ns = t->sum, .max_ns = t->max };

	if (!t->cnt)
		return d;
	d.p50_ns = dl_values_at(t, t->cnt / 2);
	d.p99_ns = dl_values_at(t, t->cnt - 1 - t->cnt / 100);
	return d;
}

static struct tally *tally_of(struct dl_loader_finder *f, uint32_t trainer, int32_t number)
{
	struct tally *t;

	vec_for_each(&f->tallies, it) {
		if (it->trainer == trainer && it->number == number)
			return it;
	}
	t = vec_push(&f->tallies);
	if (!t)
		return NULL;
	t->trainer = trainer;
	t->number = number;
	return t;
}

/* --- workers --- */

static bool sent_by(const struct dl_timeline *tl, const struct dl_wait *w, uint32_t trainer)
{
	return w->waker != DL_NONE && tl->threads.v[w->waker].proc == trainer;
}

/* The last wait for an index that began, and was over, before t. A worker can read pipes of its own. */
static void look_for_index(struct producer *pr, const struct dl_timeline *tl, const struct dl_thread *th, uint64_t t)
{
	size_t i = vec_first_at(&th->segs, pr->seg_at);

	for (; i < th->segs.cnt && th->segs.v[i].start < t; i++) {
		const struct dl_wait *w = dl_seg_wait(th, &th->segs.v[i]);

		pr->seg_at = th->segs.v[i].start;
		if (w && dl_seg_end(th, (uint32_t)i) > t)
			return;
		if (!w || !dl_is_batch_wait(tl, w) || !w->wake_ts || dl_timed_out(w, th->segs.v[i].start) ||
		    !sent_by(tl, w, tl->procs.v[th->proc].trainer))
			continue;
		pr->idx_start = th->segs.v[i].start;
		pr->idx_ts = w->wake_ts;
	}
	pr->seg_at = t;
}

/* Had the feeder waited for something to send? It is woken for the GIL too. */
static bool waited_for_batch(const struct dl_timeline *tl, const struct dl_thread *feeder, uint64_t t)
{
	uint32_t i = dl_seg_before(feeder, t);
	const struct dl_wait *w = i == DL_NONE ? NULL : dl_seg_wait(feeder, &feeder->segs.v[i]);

	return w && dl_sys_class(tl->machine, w->syscall) == DL_SYS_FUTEX && !w->deadline &&
	       !dl_is_gil(&tl->procs.v[feeder->proc], w->arg0);
}

/* A worker's main thread wakes its feeder when it has put a batch. */
static int take_worker(struct producer *pr, const struct dl_stage *st, const struct dl_proc *p, struct dl_values *produce)
{
	const struct dl_timeline *tl = st->tl;
	const struct dl_thread *th = &tl->threads.v[p->main];

	for (size_t i = vec_first_at(&th->woke, pr->woke_at); i < th->woke.cnt; i++) {
		const struct dl_woke *w = &th->woke.v[i];
		uint64_t from;

		if (!st->last && w->ts > st->until)
			break;
		if (tl->threads.v[w->wakee].role != DL_ROLE_FEEDER || tl->threads.v[w->wakee].proc != th->proc ||
		    !waited_for_batch(tl, &tl->threads.v[w->wakee], w->ts))
			continue;
		look_for_index(pr, tl, th, w->ts);
		if (!pr->begun)
			pr->last = p->ready;
		pr->begun = true;
		if (w->ts < st->opts->from_ts || w->ts >= st->opts->to_ts) {
			pr->last = w->ts;
			continue;
		}
		pr->batches++;
		from = pr->idx_ts && pr->idx_start >= pr->last ? pr->idx_ts : pr->last;
		if (from && dl_values_add(produce, w->ts - from))
			return -ENOMEM;
		pr->sum_ns += from ? w->ts - from : 0;
		pr->cnt += from != 0;
		pr->last = w->ts;
	}
	if (!st->last) {
		pr->woke_at = st->until + 1;
		look_for_index(pr, tl, th, st->until);
	}
	return 0;
}

static int take_workers(struct dl_loader_finder *f, const struct dl_stage *st)
{
	while (f->producers.cnt < st->tl->procs.cnt) {
		if (!vec_push(&f->producers))
			return -ENOMEM;
	}
	for (uint32_t i = 0; i < st->tl->procs.cnt; i++) {
		const struct dl_proc *p = &st->tl->procs.v[i];
		struct tally *t;

		if (p->role != DL_ROLE_WORKER || p->main == DL_NONE || p->trainer == DL_NONE)
			continue;
		t = tally_of(f, p->trainer, p->loader);
		if (!t || take_worker(&f->producers.v[i], st, p, &t->produce))
			return -ENOMEM;
	}
	return 0;
}

/* --- the trainer, or its pin-memory thread --- */

static uint32_t consumer_of(const struct dl_timeline *tl, uint32_t trainer)
{
	vec_for_each(&tl->procs.v[trainer].threads, i) {
		if (tl->threads.v[*i].role == DL_ROLE_PIN)
			return *i;
	}
	return tl->procs.v[trainer].main;
}

/* Whose batch a span waits for: the last worker that woke the consumer in it. Splits the span at
 * the first block of the hand-over. */
static int32_t split_span(const struct dl_timeline *tl, const struct dl_thread *th, const struct dl_span *span,
			  uint64_t *ret_handover)
{
	uint32_t i = dl_seg_before(th, span->end);
	int32_t loader = -1;

	*ret_handover = span->end;
	for (; i != DL_NONE && th->segs.v[i].start >= span->start; i = i ? i - 1 : DL_NONE) {
		const struct dl_wait *w = dl_seg_wait(th, &th->segs.v[i]);
		uint32_t from;

		if (!w)
			continue;
		if (dl_is_handover_wait(tl, w))
			*ret_handover = th->segs.v[i].start;
		if (w->waker == DL_NONE)
			continue;
		from = tl->threads.v[w->waker].proc;
		if (loader < 0 && from != DL_NONE && tl->procs.v[from].role == DL_ROLE_WORKER)
			loader = tl->procs.v[from].loader;
	}
	return loader;
}

/* They were waits after all, or never. */
static int settle_late(struct dl_loader_finder *f, uint32_t trainer, bool waits)
{
	int err = 0;

	vec_for_each(&f->tallies, t) {
		if (t->trainer != trainer || err)
			continue;
		if (waits)
			err = dl_values_merge(&t->wait, &t->late_wait);
		if (waits && !err)
			err = dl_values_merge(&t->deliver, &t->late_deliver);
		dl_values_fini(&t->late_wait);
		dl_values_fini(&t->late_deliver);
	}
	return err;
}

static int take_span(struct dl_loader_finder *f, const struct dl_stage *st, struct consumer *c, size_t i)
{
	struct dl_span cut = c->search.out.v[i];
	const struct dl_span *span = &cut;
	size_t number = c->search.taken + i;
	bool late = number >= c->search.ending;
	uint64_t handover;
	struct tally *t;
	int32_t of;
	int err;

	cut.start = cut.start > st->opts->from_ts ? cut.start : st->opts->from_ts;
	cut.end = cut.end < st->opts->to_ts ? cut.end : st->opts->to_ts;
	if (cut.start >= cut.end)
		return 0;
	of = split_span(st->tl, &st->tl->threads.v[c->search.thread], span, &handover);
	t = tally_of(f, c->trainer, of);
	err = t ? 0 : -ENOMEM;
	if (late && number < c->late_from)
		c->late_from = number;
	if (!err && handover > span->start)
		err = dl_values_add(late ? &t->late_wait : &t->wait, handover - span->start);
	if (!err && handover < span->end)
		err = dl_values_add(late ? &t->late_deliver : &t->deliver, span->end - handover);
	return err;
}

/* As it turned out in the end, where that is known. */
static uint32_t expected_consumer(const struct dl_loader_finder *f, const struct dl_timeline *tl, uint32_t trainer)
{
	vec_for_each(&f->expected, e) {
		if (e->trainer == trainer)
			return e->thread < tl->threads.cnt ? e->thread : DL_NONE;
	}
	return consumer_of(tl, trainer);
}

static struct consumer *consumer_at(struct dl_loader_finder *f, uint32_t trainer, uint32_t thread)
{
	struct consumer *c;

	vec_for_each(&f->consumers, it) {
		f->missed |= it->trainer == trainer && it->search.thread != thread;
		if (it->trainer == trainer)
			return it;
	}
	c = vec_push(&f->consumers);
	if (!c)
		return NULL;
	c->trainer = trainer;
	c->late_from = SIZE_MAX;
	dl_wait_search_begin(&c->search, thread);
	return c;
}

static int take_consumer(struct dl_loader_finder *f, const struct dl_stage *st, struct consumer *c)
{
	int err = dl_wait_search(&c->search, st);
	size_t closed = dl_wait_closed(&c->search, st);

	/* A batch came after all. */
	if (!err && c->search.ending > c->late_from) {
		err = settle_late(f, c->trainer, true);
		c->late_from = SIZE_MAX;
	}
	for (size_t i = 0; i < closed && !err; i++)
		err = take_span(f, st, c, i);
	dl_wait_take(&c->search, closed);
	if (!err && st->last)
		err = settle_late(f, c->trainer, !dl_wait_ends(&c->search, st->tl));
	return err;
}

int dl_loaders_take(struct dl_loader_finder *f, const struct dl_stage *st)
{
	int err = take_workers(f, st);

	for (uint32_t i = 0; i < st->tl->procs.cnt && !err; i++) {
		uint32_t thread = st->tl->procs.v[i].role == DL_ROLE_TRAINER ? expected_consumer(f, st->tl, i) : DL_NONE;
		struct consumer *c;

		if (thread == DL_NONE)
			continue;
		c = consumer_at(f, i, thread);
		err = c ? take_consumer(f, st, c) : -ENOMEM;
	}
	return err;
}

uint64_t dl_loaders_need(const struct dl_loader_finder *f, const struct dl_stage *st)
{
	uint64_t need = st->until;

	vec_for_each(&f->consumers, c) {
		if (dl_wait_need(&c->search) < need)
			need = dl_wait_need(&c->search);
	}
	return need;
}

/* --- the report --- */

static uint64_t mean_ns(uint64_t sum_ns, uint64_t cnt)
{
	return cnt ? sum_ns / cnt : 0;
}

static bool is_of(const struct dl_proc *p, uint32_t trainer, int32_t loader)
{
	return p->role == DL_ROLE_WORKER && p->trainer == trainer && p->loader == loader && p->main != DL_NONE;
}

/* Batches come in order: one slow worker makes everybody wait. */
static void find_slow_worker(struct dl_loader_report *out, const struct dl_loader_finder *f, const struct dl_timeline *tl,
			     uint32_t trainer, int32_t loader)
{
	const struct producer *slow = NULL;
	uint64_t sum = 0, cnt = 0;
	int32_t index = -1;

	out->slow_worker = -1;
	for (uint32_t i = 0; i < f->producers.cnt; i++) {
		const struct producer *p = &f->producers.v[i];

		if (!is_of(&tl->procs.v[i], trainer, loader))
			continue;
		out->batches += p->batches;
		if (p->cnt && (!slow || mean_ns(p->sum_ns, p->cnt) > mean_ns(slow->sum_ns, slow->cnt))) {
			slow = p;
			index = tl->procs.v[i].index;
		}
		sum += p->sum_ns;
		cnt += p->cnt;
	}
	if (!slow || cnt == slow->cnt)
		return;
	out->slow_ns = mean_ns(slow->sum_ns, slow->cnt);
	out->other_ns = mean_ns(sum - slow->sum_ns, cnt - slow->cnt);
	if (out->slow_ns > 2 * out->other_ns)
		out->slow_worker = index;
}

/* only: what no worker is known to have made is this one's, too. */
static int publish(struct dl_loader_finder *f, struct dl_report *r, const struct dl_timeline *tl, uint32_t trainer,
		   int32_t loader, uint32_t workers, bool only)
{
	struct dl_values wait = {}, produce = {}, deliver = {};
	struct dl_loader_report *out = vec_push(&r->loaders);
	int err = 0;

	if (!out)
		return -ENOMEM;
	out->proc = trainer;
	out->trainer_pid = tl->procs.v[trainer].pid;
	out->index = loader < 0 ? 0 : (uint32_t)loader;
	out->workers = workers;
	find_slow_worker(out, f, tl, trainer, loader);
	vec_for_each(&f->tallies, t) {
		if (t->trainer != trainer || err)
			continue;
		if (t->number == loader)
			err = dl_values_merge(&produce, &t->produce);
		if (!err && (t->number == loader || (only && t->number < 0)))
			err = dl_values_merge(&wait, &t->wait) || dl_values_merge(&deliver, &t->deliver) ? -ENOMEM : 0;
	}
	out->wait = distribution(&wait);
	out->produce = distribution(&produce);
	out->deliver = distribution(&deliver);
	dl_values_fini(&wait);
	dl_values_fini(&produce);
	dl_values_fini(&deliver);
	return err;
}

int dl_loaders_publish(struct dl_loader_finder *f, struct dl_report *r, const struct dl_timeline *tl)
{
	int err = 0;

	for (uint32_t t = 0; t < tl->procs.cnt && !err; t++) {
		int32_t number = 0, cnt = 0;

		if (tl->procs.v[t].role != DL_ROLE_TRAINER)
			continue;
		vec_for_each(&tl->loaders, l)
			cnt += l->trainer == t;
		vec_for_each(&tl->loaders, l) {
			if (l->trainer == t && !err)
				err = publish(f, r, tl, t, number++, l->workers, cnt == 1);
		}
		if (!cnt)
			err = publish(f, r, tl, t, -1, 0, true);
	}
	return err;
}

bool dl_loaders_missed(const struct dl_loader_finder *f)
{
	return f->missed;
}

int dl_loaders_expect(struct dl_loader_finder *f, const struct dl_loader_finder *earlier, const struct dl_timeline *tl)
{
	vec_for_each(&earlier->consumers, c) {
		struct consumes *at = vec_push(&f->expected);

		if (!at)
			return -ENOMEM;
		*at = (struct consumes){ c->trainer, consumer_of(tl, c->trainer) };
	}
	return 0;
}

struct dl_loader_finder *dl_loader_finder_new(void)
{
	return calloc(1, sizeof(struct dl_loader_finder));
}

void dl_loader_finder_free(struct dl_loader_finder *f)
{
	if (!f)
		return;
	vec_for_each(&f->tallies, t) {
		dl_values_fini(&t->wait);
		dl_values_fini(&t->produce);
		dl_values_fini(&t->deliver);
		dl_values_fini(&t->late_wait);
		dl_values_fini(&t->late_deliver);
	}
	vec_for_each(&f->consumers, c)
		dl_wait_search_fini(&c->search);
	vec_free(&f->expected);
	vec_free(&f->producers);
	vec_free(&f->tallies);
	vec_free(&f->consumers);
	free(f);
}
