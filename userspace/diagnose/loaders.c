/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Batches per loader: how long the trainer waited, how long a worker made one, how long the
 * hand-over took. */
#include "diagnose/summary.h"

#include <errno.h>
#include <stdlib.h>

#include "diagnose/walk.h"

struct times { uint64_t *v; size_t cnt, cap; };

static int add_time(struct times *t, uint64_t ns)
{
	uint64_t *at = vec_push(t);

	if (!at)
		return -ENOMEM;
	*at = ns;
	return 0;
}

static struct dl_dist distribution(struct times *t)
{
	struct dl_dist d = { .cnt = t->cnt };

	if (!t->cnt)
		return d;
	vec_sort(t);
	for (size_t i = 0; i < t->cnt; i++)
		d.sum_ns += t->v[i];
	d.p50_ns = t->v[t->cnt / 2];
	d.p99_ns = t->v[t->cnt - 1 - t->cnt / 100];
	d.max_ns = t->v[t->cnt - 1];
	return d;
}

static bool sent_by(const struct dl_timeline *tl, const struct dl_wait *w, uint32_t trainer)
{
	return w->waker != DL_NONE && tl->threads.v[w->waker].proc == trainer;
}

/* The last wait for an index that ended at or before t and after from. A worker can read pipes of its own. */
static uint64_t index_arrival(const struct dl_timeline *tl, const struct dl_thread *th, uint64_t from, uint64_t t)
{
	uint32_t i = dl_seg_before(th, t);

	for (; i != DL_NONE && th->segs.v[i].start >= from; i = i ? i - 1 : DL_NONE) {
		const struct dl_wait *w = dl_seg_wait(th, &th->segs.v[i]);

		if (w && dl_is_batch_wait(tl, w) && w->wake_ts && !dl_timed_out(w, th->segs.v[i].start) &&
		    sent_by(tl, w, tl->procs.v[th->proc].trainer))
			return w->wake_ts;
	}
	return from;
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
static int worker_times(const struct dl_timeline *tl, const struct dl_proc *p, struct times *produce, uint64_t *batches)
{
	const struct dl_thread *th = &tl->threads.v[p->main];
	uint64_t last = p->ready ? p->ready : 0;

	vec_for_each(&th->woke, w) {
		uint64_t from;

		if (tl->threads.v[w->wakee].role != DL_ROLE_FEEDER || tl->threads.v[w->wakee].proc != th->proc ||
		    !waited_for_batch(tl, &tl->threads.v[w->wakee], w->ts))
			continue;
		(*batches)++;
		from = index_arrival(tl, th, last, w->ts);
		if (from && add_time(produce, w->ts - from))
			return -ENOMEM;
		last = w->ts;
	}
	return 0;
}

/* Who takes a trainer's batches, and when it waited for them. */
struct consumer {
	const struct dl_thread *th;
	struct dl_spans spans;
};

static const struct dl_thread *consumer_of(const struct dl_timeline *tl, uint32_t trainer)
{
	vec_for_each(&tl->procs.v[trainer].threads, i) {
		if (tl->threads.v[*i].role == DL_ROLE_PIN)
			return &tl->threads.v[*i];
	}
	return tl->procs.v[trainer].main == DL_NONE ? NULL : &tl->threads.v[tl->procs.v[trainer].main];
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

static int consumer_times(const struct dl_timeline *tl, const struct consumer *c, int32_t loader, bool only,
			  struct times *wait, struct times *deliver)
{
	int err = 0;

	for (size_t i = 0; i < c->spans.cnt && !err; i++) {
		const struct dl_span *span = &c->spans.v[i];
		uint64_t handover;
		int32_t of = split_span(tl, c->th, span, &handover);

		if (of != loader && !(only && of < 0))
			continue;
		if (handover > span->start)
			err = add_time(wait, handover - span->start);
		if (!err && handover < span->end)
			err = add_time(deliver, span->end - handover);
	}
	return err;
}

struct pace { int32_t worker; uint64_t sum_ns, cnt; };
struct paces { struct pace *v; size_t cnt, cap; };

static uint64_t mean_ns(uint64_t sum_ns, uint64_t cnt)
{
	return cnt ? sum_ns / cnt : 0;
}

/* Batches come in order: one slow worker makes everybody wait. */
static void find_slow_worker(struct dl_loader_report *out, const struct paces *paces)
{
	const struct pace *slow = NULL;
	uint64_t sum = 0, cnt = 0;

	out->slow_worker = -1;
	vec_for_each(paces, p) {
		if (!slow || mean_ns(p->sum_ns, p->cnt) > mean_ns(slow->sum_ns, slow->cnt))
			slow = p;
		sum += p->sum_ns;
		cnt += p->cnt;
	}
	if (!slow || cnt == slow->cnt)
		return;
	out->slow_ns = mean_ns(slow->sum_ns, slow->cnt);
	out->other_ns = mean_ns(sum - slow->sum_ns, cnt - slow->cnt);
	if (out->slow_ns > 2 * out->other_ns)
		out->slow_worker = slow->worker;
}

static int add_worker(const struct dl_timeline *tl, const struct dl_proc *p, struct times *produce, uint64_t *batches,
		      struct paces *paces)
{
	size_t had = produce->cnt;
	struct pace *pace;
	int err = worker_times(tl, p, produce, batches);

	if (err || produce->cnt == had)
		return err;
	pace = vec_push(paces);
	if (!pace)
		return -ENOMEM;
	pace->worker = p->index;
	pace->cnt = produce->cnt - had;
	for (size_t i = had; i < produce->cnt; i++)
		pace->sum_ns += produce->v[i];
	return 0;
}

static int sum_loader(struct dl_report *r, const struct dl_timeline *tl, uint32_t trainer, const struct consumer *c,
		      int32_t loader, uint32_t workers, bool only)
{
	struct times wait = {}, produce = {}, deliver = {};
	struct dl_loader_report *out = vec_push(&r->loaders);
	struct paces paces = {};
	int err = 0;

	if (!out)
		return -ENOMEM;
	out->proc = trainer;
	out->trainer_pid = tl->procs.v[trainer].pid;
	out->index = loader < 0 ? 0 : (uint32_t)loader;
	out->workers = workers;
	vec_for_each(&tl->procs, p) {
		if (p->role == DL_ROLE_WORKER && p->trainer == trainer && p->loader == loader && p->main != DL_NONE)
			err = err ? err : add_worker(tl, p, &produce, &out->batches, &paces);
	}
	find_slow_worker(out, &paces);
	vec_free(&paces);
	if (!err)
		err = consumer_times(tl, c, loader, only, &wait, &deliver);
	out->wait = distribution(&wait);
	out->produce = distribution(&produce);
	out->deliver = distribution(&deliver);
	vec_free(&wait);
	vec_free(&produce);
	vec_free(&deliver);
	return err;
}

static int sum_trainer(struct dl_report *r, const struct dl_timeline *tl, uint32_t t)
{
	struct consumer c = { .th = consumer_of(tl, t) };
	int err = c.th ? dl_wait_spans(tl, (uint32_t)(c.th - tl->threads.v), &c.spans) : 0;
	int32_t number = 0, cnt = 0;

	vec_for_each(&tl->loaders, l)
		cnt += l->trainer == t;
	vec_for_each(&tl->loaders, l) {
		if (l->trainer == t && !err)
			err = sum_loader(r, tl, t, &c, number++, l->workers, cnt == 1);
	}
	if (!cnt && !err)
		err = sum_loader(r, tl, t, &c, -1, 0, true);
	vec_free(&c.spans);
	return err;
}

int dl_sum_loaders(struct dl_report *r, const struct dl_timeline *tl, struct dl_diag *d)
{
	int err = 0;

	for (uint32_t t = 0; t < tl->procs.cnt && !err; t++) {
		if (tl->procs.v[t].role == DL_ROLE_TRAINER)
			err = sum_trainer(r, tl, t);
	}
	return err ? dl_oom(d) : 0;
}
