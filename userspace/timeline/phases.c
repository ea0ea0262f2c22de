/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Phases of a training job: the trainer makes workers, it has workers, a worker ends. */
#include "timeline/timeline.h"

#include <errno.h>
#include <stdlib.h>

#include "timeline/roles.h"
#include "timeline/syscalls.h"

#define FORK_LEAD_NS 10000000ULL	/* queues and locks made before the first fork of a loader */
#define FORK_TAIL_NS 2000000ULL
#define FORK_ROW_NS 500000000ULL	/* workers of one generation are made in a row */
#define DEATH_NS 20000000ULL		/* before an exit: joins, atexit handlers */

static int add_span(struct dl_spans *spans, uint64_t start, uint64_t end)
{
	struct dl_span *at = vec_push(spans);

	if (!at)
		return -ENOMEM;
	*at = (struct dl_span){ start, end };
	return 0;
}

static int by_span_start(const void *a, const void *b)
{
	const struct dl_span *x = a, *y = b;

	return x->start < y->start ? -1 : x->start > y->start;
}

/* Sorts, and joins what overlaps or lies less than gap apart. */
static void join_spans(struct dl_spans *s, uint64_t gap)
{
	size_t kept = 0;

	if (!s->cnt)
		return;
	qsort(s->v, s->cnt, sizeof(*s->v), by_span_start);
	for (size_t i = 1; i < s->cnt; i++) {
		struct dl_span *last = &s->v[kept];

		if (s->v[i].start > last->end && s->v[i].start - last->end > gap)
			s->v[++kept] = s->v[i];
		else if (s->v[i].end > last->end)
			last->end = s->v[i].end;
	}
	s->cnt = kept + 1;
}

/* The end of the thread's last driver call or wait before t. */
static uint64_t last_stop(const struct dl_timeline *tl, const struct dl_thread *th, uint64_t t)
{
	const struct dl_proc *p = &tl->procs.v[th->proc];
	uint64_t best = th->segs.cnt ? th->segs.v[0].start : t;
	uint32_t seg = dl_seg_before(th, t);

	for (; seg != DL_NONE; seg = seg ? seg - 1 : DL_NONE) {
		if (th->segs.v[seg].state != DL_ST_BLOCKED)
			continue;
		best = dl_seg_end(th, seg);
		break;
	}
	vec_for_each(&th->apis, idx) {
		const struct dl_api *a = &p->apis.v[*idx];

		if (a->start >= t)
			break;
		if (a->end > best)
			best = a->end < t ? a->end : t;
	}
	return best;
}

/* The last time that the trainer's main thread fed the new process what it is to run. */
static uint64_t last_fed(const struct dl_thread *trainer, const struct dl_proc *worker)
{
	uint64_t last = worker->start;

	for (size_t i = vec_first_at(&trainer->woke, worker->start); i < trainer->woke.cnt; i++) {
		if (worker->ready && trainer->woke.v[i].ts > worker->ready)
			break;
		if (trainer->woke.v[i].wakee == worker->main)
			last = trainer->woke.v[i].ts;
	}
	return last;
}

/*
 * A worker that is forked takes a moment. One that is spawned is pickled with its data set before
 * the fork (multiprocessing/popen_spawn_posix.py), however long that takes: the trainer does nothing
 * else since its last driver call or wait; and then fed through a pipe.
 */
static int add_birth(struct dl_timeline *tl, struct dl_proc *trainer, const struct dl_proc *worker)
{
	uint64_t start = worker->start > FORK_LEAD_NS ? worker->start - FORK_LEAD_NS : 0;
	uint64_t end = worker->start;

	if (worker->execed && trainer->main != DL_NONE) {
		uint64_t stop = last_stop(tl, &tl->threads.v[trainer->main], worker->start);

		start = stop < start ? stop : start;
		end = last_fed(&tl->threads.v[trainer->main], worker);
	}
	return add_span(&trainer->starting, start, end + FORK_TAIL_NS);
}

/* A worker ends its feeder first, then frees what it has, the data set among it. */
static uint64_t ending_from(const struct dl_timeline *tl, const struct dl_proc *p)
{
	uint64_t from = p->end > DEATH_NS ? p->end - DEATH_NS : 0;

	vec_for_each(&tl->threads, th) {
		if (th->proc == (uint32_t)(p - tl->procs.v) && th->role == DL_ROLE_FEEDER && th->end < from)
			from = th->end;
	}
	return from;
}

/* torch_shm_manager links all of PyTorch before it serves anybody. */
static uint64_t manager_ready(const struct dl_timeline *tl, const struct dl_proc *p)
{
	const struct dl_thread *th = p->main == DL_NONE ? NULL : &tl->threads.v[p->main];

	for (uint32_t i = 0; th && i < th->segs.cnt; i++) {
		const struct dl_wait *w = dl_seg_wait(th, &th->segs.v[i]);
		enum dl_sys sys = w ? dl_sys_class(tl->machine, w->syscall) : DL_SYS_NONE;

		if (sys == DL_SYS_POLL || sys == DL_SYS_ACCEPT)
			return th->segs.v[i].start;
	}
	return 0;
}

int dl_find_phases(struct dl_timeline *tl)
{
	int err = 0;

	vec_for_each(&tl->procs, p) {
		struct dl_proc *t = p->role == DL_ROLE_WORKER && p->trainer != DL_NONE ? &tl->procs.v[p->trainer] : NULL;

		if (p->role == DL_ROLE_SHM_MANAGER)
			p->ready = manager_ready(tl, p);
		p->ending = p->exited ? ending_from(tl, p) : UINT64_MAX;
		if (t && !err)
			err = add_span(&t->loading, p->start, p->end);
		if (t && !err && p->start)
			err = add_birth(tl, t, p);
	}
	vec_for_each(&tl->procs, p) {
		join_spans(&p->loading, 0);
		join_spans(&p->starting, FORK_ROW_NS);
	}
	vec_for_each(&tl->threads, th) {
		if (th->role == DL_ROLE_LOADER_THREAD)
			tl->procs.v[th->proc].loader_threads = true;
	}
	return err;
}
