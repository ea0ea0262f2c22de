/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Phases of a training job: the trainer makes workers, it has workers, a worker ends. */
#include "timeline/timeline.h"

#include <errno.h>
#include <stdlib.h>

#include "timeline/past.h"
#include "timeline/roles.h"
#include "timeline/syscalls.h"

#define FORK_LEAD_NS 10000000ULL	/* queues and locks made before the first fork of a loader */
#define FORK_TAIL_NS 2000000ULL
#define DEATH_NS 20000000ULL		/* before an exit: joins, atexit handlers */

static int add_span(struct dl_spans *spans, uint64_t start, uint64_t end)
{
	struct dl_span *at = vec_push(spans);

	if (!at)
		return -ENOMEM;
	*at = (struct dl_span){ start, end };
	return 0;
}

/* Sorts, and joins what overlaps. */
static void join_spans(struct dl_spans *s)
{
	size_t kept = 0;

	if (!s->cnt)
		return;
	vec_sort(s);
	for (size_t i = 1; i < s->cnt; i++) {
		struct dl_span *last = &s->v[kept];

		if (s->v[i].start > last->end)
			s->v[++kept] = s->v[i];
		else if (s->v[i].end > last->end)
			last->end = s->v[i].end;
	}
	s->cnt = kept + 1;
}

/* The end of the thread's last driver call or wait before t. */
static uint64_t last_stop(const struct dl_timeline *tl, const struct dl_thread *th, uint64_t t)
{
	uint64_t called = dl_last_call_end(tl, th, t);
	uint64_t best = th->segs.cnt ? dl_first_start(th) : t;
	uint32_t seg = dl_seg_before(th, t);

	if (th->past && th->past->block_end && th->past->block_end < t)
		best = th->past->block_end;
	for (; seg != DL_NONE; seg = seg ? seg - 1 : DL_NONE) {
		if (th->segs.v[seg].state != DL_ST_BLOCKED)
			continue;
		best = dl_seg_end(th, seg);
		break;
	}
	if (th->past && th->past->call_end > called && th->past->call_end < t)
		called = th->past->call_end;
	if (called > best)
		best = called < t ? called : t;
	return best;
}

/* The last time that the trainer's main thread fed the new process what it is to run. */
static uint64_t last_fed(const struct dl_thread *trainer, const struct dl_proc *worker)
{
	uint64_t last = worker->birth.end > worker->start ? worker->birth.end : worker->start;

	for (size_t i = vec_first_at(&trainer->woke, worker->start); i < trainer->woke.cnt; i++) {
		if (worker->handlers_ts && trainer->woke.v[i].ts > worker->handlers_ts)
			break;
		if (trainer->woke.v[i].wakee == worker->main && trainer->woke.v[i].ts > last)
			last = trainer->woke.v[i].ts;
	}
	return last;
}

/* Since when a process was made that runs a program of its own, while what its parent did is held. */
static void find_births(struct dl_timeline *tl)
{
	vec_for_each(&tl->procs, p) {
		uint32_t by = p->execed && p->forked && !p->birth.start && p->parent != DL_NONE ? tl->procs.v[p->parent].main :
			DL_NONE;

		if (by != DL_NONE)
			p->birth.start = last_stop(tl, &tl->threads.v[by], p->start);
	}
}

/*
 * A worker that is forked takes a moment. One that is spawned is pickled with its data set before
 * the fork (multiprocessing/popen_spawn_posix.py), however long that takes: the trainer does nothing
 * else since its last driver call or wait; and then fed through a pipe.
 */
static struct dl_span birth_of(const struct dl_timeline *tl, const struct dl_proc *trainer, const struct dl_proc *worker)
{
	struct dl_span s = { worker->start > FORK_LEAD_NS ? worker->start - FORK_LEAD_NS : 0, worker->start };

	if (worker->execed && trainer->main != DL_NONE) {
		bool known = worker->birth.start && worker->parent == worker->trainer;
		uint64_t stop = known ? worker->birth.start : last_stop(tl, &tl->threads.v[trainer->main], worker->start);

		s.start = stop < s.start ? stop : s.start;
		s.end = last_fed(&tl->threads.v[trainer->main], worker);
	}
	s.end += FORK_TAIL_NS;
	return s;
}

/* Workers that are made together are made in one phase, from the first one's birth to the last one's. */
static int add_birth(struct dl_timeline *tl, const struct dl_proc *worker, struct dl_map *by_group)
{
	struct dl_proc *trainer = &tl->procs.v[worker->trainer];
	struct dl_span s = birth_of(tl, trainer, worker), *all;
	uint64_t idx;
	int err;

	if (!dl_map_get(by_group, worker->group, &idx)) {
		err = dl_map_set(by_group, worker->group, trainer->starting.cnt);
		return err ? err : add_span(&trainer->starting, s.start, s.end);
	}
	all = &trainer->starting.v[idx];
	all->start = s.start < all->start ? s.start : all->start;
	all->end = s.end > all->end ? s.end : all->end;
	return 0;
}

/* A worker ends its feeder first, then frees what it has, the data set among it. */
static uint64_t ending_from(const struct dl_timeline *tl, const struct dl_proc *p)
{
	uint64_t from = p->end > DEATH_NS ? p->end - DEATH_NS : 0;

	return p->feeder != DL_NONE && tl->threads.v[p->feeder].end < from ? tl->threads.v[p->feeder].end : from;
}

/* torch_shm_manager links all of PyTorch before it serves anybody. */
static uint64_t manager_ready(const struct dl_timeline *tl, const struct dl_proc *p)
{
	const struct dl_thread *th = p->main == DL_NONE ? NULL : &tl->threads.v[p->main];

	if (th && th->past && th->past->service_ts)
		return th->past->service_ts;
	for (uint32_t i = 0; th && i < th->segs.cnt; i++) {
		const struct dl_wait *w = dl_seg_wait(th, &th->segs.v[i]);
		enum dl_sys sys = w ? dl_sys_class(tl->machine, w->syscall) : DL_SYS_NONE;

		if (sys == DL_SYS_POLL || sys == DL_SYS_ACCEPT)
			return th->segs.v[i].start;
	}
	return 0;
}

/* --- a worker's first batch --- */

/* From one put to the next. 0 or -ENOMEM. */
static int collect_batches(const struct dl_timeline *tl, const struct dl_proc *p, struct dl_values *ns)
{
	const struct dl_thread *th = &tl->threads.v[p->main];
	uint64_t last = 0;
	int err = 0;

	for (size_t k = 0; th->past && k < th->past->puts.cnt; k++) {
		const struct dl_put *put = &th->past->puts.v[k];

		if (put->to != p->feeder)
			continue;
		last = put->last_ts;
		for (size_t i = 0; i < put->ns.cnt && !err; i++)
			err = dl_values_add(ns, put->ns.v[i]);
	}
	for (size_t i = dl_first_woke(tl, th); i < th->woke.cnt && !err; i++) {
		const struct dl_woke *w = &th->woke.v[i];

		if (w->wakee != p->feeder)
			continue;
		if (last)
			err = dl_values_add(ns, w->ts - last);
		last = w->ts;
	}
	return err;
}

static bool is_of(const struct dl_proc *p, uint32_t trainer, int32_t number)
{
	return p->role == DL_ROLE_WORKER && p->trainer == trainer && p->loader == number && p->main != DL_NONE;
}

static int find_typical_batch(struct dl_timeline *tl, struct dl_loader *l, int32_t number)
{
	struct dl_values ns = {};
	int err = 0;

	vec_for_each(&tl->puts, it) {
		if (!err && it->trainer == l->trainer && it->loader == number)
			err = dl_values_merge(&ns, &it->ns);
	}
	vec_for_each(&tl->procs, p) {
		if (!err && is_of(p, l->trainer, number) && p->feeder != DL_NONE)
			err = collect_batches(tl, p, &ns);
	}
	l->batch_ns = ns.cnt ? dl_values_at(&ns, ns.cnt / 2) : 0;
	dl_values_fini(&ns);
	return err;
}

/* When the worker first waited for an index, with nothing left to do. UINT64_MAX: not before `until`. */
static uint64_t first_idle(const struct dl_timeline *tl, const struct dl_proc *p, uint64_t until)
{
	const struct dl_thread *th = &tl->threads.v[p->main];

	if (th->past && th->past->idle_ts)
		return th->past->idle_ts < until ? th->past->idle_ts : UINT64_MAX;
	for (uint32_t i = th->past ? 0 : dl_seg_before(th, p->ready + 1); i != DL_NONE && i < th->segs.cnt && th->segs.v[i].start < until; i++) {
		const struct dl_wait *w = dl_seg_wait(th, &th->segs.v[i]);

		if (w && th->segs.v[i].start >= p->ready && dl_is_batch_wait(tl, w))
			return th->segs.v[i].start;
	}
	return UINT64_MAX;
}

/*
 * Behind PyTorch's signal handlers a worker still imports what its seeds need (numpy.random, 5 ms and
 * more) and calls things for the first time. Nothing marks the end of that, unless it then waits for
 * an index. Else its first batch took as long as batches of this loader typically do.
 */
static void find_first_batch(struct dl_timeline *tl, struct dl_proc *p, uint64_t typical_ns)
{
	uint64_t put = p->feeder == DL_NONE ? 0 : tl->threads.v[p->feeder].start, idle;

	if (!p->start || !p->ready || put <= p->ready)
		return;
	idle = first_idle(tl, p, put);
	if (idle != UINT64_MAX)
		p->ready = idle;
	else if (typical_ns && put - p->ready > typical_ns)
		p->ready = put - typical_ns;
}

static int find_first_batches(struct dl_timeline *tl)
{
	int err = 0;

	for (uint32_t i = 0; i < tl->loaders.cnt && !err; i++) {
		struct dl_loader *l = &tl->loaders.v[i];
		int32_t number = dl_loader_number(tl, i);

		err = find_typical_batch(tl, l, number);
		vec_for_each(&tl->procs, p) {
			if (is_of(p, l->trainer, number))
				find_first_batch(tl, p, l->batch_ns);
		}
	}
	return err;
}

static void forget_phases(struct dl_timeline *tl)
{
	vec_for_each(&tl->procs, p) {
		p->ready = p->handlers_ts;
		p->starting.cnt = p->loading.cnt = 0;
		p->loader_threads = false;
	}
}

int dl_find_phases(struct dl_timeline *tl)
{
	struct dl_map by_group = {};	/* the place of a group in its trainer's starting */
	int err = 0;

	forget_phases(tl);
	find_births(tl);
	vec_for_each(&tl->procs, p) {
		struct dl_proc *t = p->role == DL_ROLE_WORKER && p->trainer != DL_NONE ? &tl->procs.v[p->trainer] : NULL;

		if (p->role == DL_ROLE_SHM_MANAGER)
			p->ready = manager_ready(tl, p);
		p->ending = p->exited ? ending_from(tl, p) : UINT64_MAX;
		if (t && !err)
			err = add_span(&t->loading, p->start, p->end);
		if (t && !err && p->start)
			err = add_birth(tl, p, &by_group);
	}
	dl_map_fini(&by_group);
	if (!err)
		err = find_first_batches(tl);
	vec_for_each(&tl->procs, p) {
		join_spans(&p->loading);
		join_spans(&p->starting);
	}
	vec_for_each(&tl->threads, th) {
		if (th->role == DL_ROLE_LOADER_THREAD)
			tl->procs.v[th->proc].loader_threads = true;
	}
	return err;
}
