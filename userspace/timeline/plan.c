/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#include "timeline/plan.h"

#include <errno.h>
#include <stdlib.h>

#include "timeline/past.h"
#include "timeline/timeline.h"

/* A worker's first batch begins where its last batch's typical time says, which every batch changes a little. */
#define READY_SLACK_NS 1000000ULL

struct thread_plan {
	uint64_t start;		/* first instant of it that was recorded; 0 none */
	enum dl_role role;
	bool calls;
};

struct proc_plan {
	uint64_t start, gil_addr, result_ino, ready, ending;
	uint32_t parent, feeder, trainer, generation, group;
	int32_t loader, index, rank;
	enum dl_role role;
	bool loader_threads, has_kernels;
	struct dl_spans starting, loading;
};

struct dl_plan {
	DL_VEC(struct thread_plan) threads;
	DL_VEC(struct proc_plan) procs;
	DL_VEC(struct dl_loader) loaders;
};

static int copy_spans(struct dl_spans *into, const struct dl_spans *from)
{
	into->cnt = 0;
	if (vec_reserve(into, from->cnt))
		return -ENOMEM;
	for (size_t i = 0; i < from->cnt; i++)
		into->v[into->cnt++] = from->v[i];
	return 0;
}

static int take_proc(struct proc_plan *to, const struct dl_proc *p)
{
	*to = (struct proc_plan){
		.start = p->start, .gil_addr = p->gil_addr, .result_ino = p->result_ino, .ready = p->ready,
		.ending = p->ending, .parent = p->parent, .feeder = p->feeder, .trainer = p->trainer,
		.generation = p->generation, .group = p->group, .loader = p->loader, .index = p->index,
		.rank = p->rank, .role = p->role, .loader_threads = p->loader_threads, .has_kernels = p->has_kernels,
	};
	return copy_spans(&to->starting, &p->starting) || copy_spans(&to->loading, &p->loading) ? -ENOMEM : 0;
}

struct dl_plan *dl_plan_new(const struct dl_timeline *tl)
{
	struct dl_plan *p = calloc(1, sizeof(*p));
	int err = !p || vec_reserve(&p->threads, tl->threads.cnt) || vec_reserve(&p->procs, tl->procs.cnt) ||
		vec_reserve(&p->loaders, tl->loaders.cnt);

	for (size_t i = 0; i < tl->threads.cnt && !err; i++) {
		const struct dl_thread *th = &tl->threads.v[i];

		p->threads.v[p->threads.cnt++] = (struct thread_plan){ dl_first_start(th), th->role, th->calls };
	}
	for (size_t i = 0; i < tl->procs.cnt && !err; i++)
		err = take_proc(&p->procs.v[p->procs.cnt++], &tl->procs.v[i]);
	for (size_t i = 0; i < tl->loaders.cnt && !err; i++)
		p->loaders.v[p->loaders.cnt++] = tl->loaders.v[i];
	if (err) {
		dl_plan_free(p);
		return NULL;
	}
	return p;
}

void dl_plan_free(struct dl_plan *p)
{
	if (!p)
		return;
	vec_for_each(&p->procs, it) {
		vec_free(&it->starting);
		vec_free(&it->loading);
	}
	vec_free(&p->threads);
	vec_free(&p->procs);
	vec_free(&p->loaders);
	free(p);
}

/* One that was not read of yet is none. */
static uint32_t seen(uint32_t index, size_t cnt)
{
	return index < cnt ? index : DL_NONE;
}

static int apply_proc(const struct proc_plan *from, struct dl_proc *p, const struct dl_timeline *tl)
{
	p->gil_addr = from->gil_addr;
	p->result_ino = from->result_ino;
	p->ready = from->ready;
	p->ending = from->ending;
	p->parent = seen(from->parent, tl->procs.cnt);
	p->feeder = seen(from->feeder, tl->threads.cnt);
	p->trainer = seen(from->trainer, tl->procs.cnt);
	p->generation = from->generation;
	p->group = from->group;
	p->loader = from->loader;
	p->index = from->index;
	p->rank = from->rank;
	p->role = from->role;
	p->loader_threads = from->loader_threads;
	p->has_kernels = from->has_kernels;
	return copy_spans(&p->starting, &from->starting) || copy_spans(&p->loading, &from->loading) ? -ENOMEM : 0;
}

int dl_plan_apply(const struct dl_plan *p, struct dl_timeline *tl)
{
	int err = 0;

	for (size_t i = 0; i < tl->threads.cnt && i < p->threads.cnt; i++) {
		tl->threads.v[i].role = p->threads.v[i].role;
		tl->threads.v[i].calls = p->threads.v[i].calls;
	}
	for (size_t i = 0; i < tl->procs.cnt && i < p->procs.cnt && !err; i++)
		err = apply_proc(&p->procs.v[i], &tl->procs.v[i], tl);
	tl->loaders.cnt = 0;
	if (err || vec_reserve(&tl->loaders, p->loaders.cnt))
		return -ENOMEM;
	for (size_t i = 0; i < p->loaders.cnt; i++) {
		if (p->loaders.v[i].trainer < tl->procs.cnt)
			tl->loaders.v[tl->loaders.cnt++] = p->loaders.v[i];
	}
	return 0;
}

/* --- has anything changed? --- */

/* Do these cover other parts of the time before until? */
static bool spans_differ(const struct dl_spans *a, const struct dl_spans *b, uint64_t until)
{
	size_t i;

	for (i = 0; i < a->cnt && i < b->cnt && a->v[i].start < until && b->v[i].start < until; i++) {
		uint64_t x = a->v[i].end < until ? a->v[i].end : until, y = b->v[i].end < until ? b->v[i].end : until;

		if (a->v[i].start != b->v[i].start || x != y)
			return true;
	}
	return (i < a->cnt && a->v[i].start < until) || (i < b->cnt && b->v[i].start < until);
}

static bool ready_differs(const struct proc_plan *a, const struct proc_plan *b, uint64_t until)
{
	uint64_t x = a->ready < until ? a->ready : until, y = b->ready < until ? b->ready : until;

	if (!a->ready != !b->ready)
		return true;
	return (x > y ? x - y : y - x) > READY_SLACK_NS;
}

static bool ending_differs(const struct proc_plan *a, const struct proc_plan *b, uint64_t until)
{
	return a->ending != b->ending && (a->ending < until || b->ending < until);
}

static bool proc_differs(const struct proc_plan *a, const struct proc_plan *b, uint64_t until)
{
	if (a->start >= until && a->start)
		return false;
	return a->role != b->role || a->trainer != b->trainer || a->loader != b->loader || a->gil_addr != b->gil_addr ||
	       a->has_kernels != b->has_kernels || a->loader_threads != b->loader_threads ||
	       ready_differs(a, b, until) || ending_differs(a, b, until) ||
	       !a->loading.cnt != !b->loading.cnt || spans_differ(&a->starting, &b->starting, until) ||
	       spans_differ(&a->loading, &b->loading, until);
}

bool dl_plan_differs(const struct dl_plan *then, const struct dl_plan *now, uint64_t until)
{
	for (size_t i = 0; i < then->threads.cnt && i < now->threads.cnt; i++) {
		const struct thread_plan *a = &then->threads.v[i], *b = &now->threads.v[i];

		if (a->start && a->start < until && (a->role != b->role || a->calls != b->calls))
			return true;
	}
	for (size_t i = 0; i < then->procs.cnt && i < now->procs.cnt; i++) {
		if (proc_differs(&then->procs.v[i], &now->procs.v[i], until))
			return true;
	}
	return false;
}
