/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Driver calls of a thread, and what is worked out from them once for all walks. */
#include "timeline/past.h"
#include "timeline/threads.h"

#include <errno.h>

bool dl_call_explains(const struct dl_api *a)
{
	switch (a->cls) {
	case DL_CALL_COPY:
	case DL_CALL_SYNC:
	case DL_CALL_ALLOC:
	case DL_CALL_HOST_ALLOC:
	case DL_CALL_FREE:
	case DL_CALL_MODULE:
	case DL_CALL_GRAPH:
		return true;
	}
	return false;
}

struct calls { const struct dl_api *apis; const uint32_t *v; };

static uint64_t start_of(const void *ctx, size_t i)
{
	const struct calls *c = ctx;

	return c->apis[c->v[i]].start;
}

/* The place of the first call that starts at or behind t. */
static size_t first_call(const struct dl_timeline *tl, const struct dl_thread *th, uint64_t t)
{
	const struct calls c = { tl->procs.v[th->proc].apis.v, th->apis.v };
	size_t i = dl_first_near(start_of, &c, th->apis.cnt, t, th->places ? th->places->api : 0);

	if (th->places)
		th->places->api = i;
	return i;
}

uint32_t dl_call_before(const struct dl_timeline *tl, const struct dl_thread *th, uint64_t t)
{
	size_t i = th->apis.cnt ? first_call(tl, th, t) : 0;

	return i ? (uint32_t)(i - 1) : DL_NONE;
}

const struct dl_api *dl_api_at(const struct dl_timeline *tl, const struct dl_thread *th, uint64_t t)
{
	const struct dl_proc *p;
	uint32_t i;

	if (th->proc == DL_NONE || !th->apis.cnt)
		return NULL;
	p = &tl->procs.v[th->proc];
	/* A runtime call holds driver calls; two levels back is as deep as they nest. */
	i = dl_call_before(tl, th, t);
	for (int back = 0; i != DL_NONE && back < 3; back++, i = i ? i - 1 : DL_NONE) {
		const struct dl_api *a = &p->apis.v[th->apis.v[i]];

		if (a->end >= t && dl_call_explains(a))
			return a;
	}
	return NULL;
}

static uint64_t step_of(const void *ctx, size_t i)
{
	return ((const uint32_t *)ctx)[i];
}

const struct dl_api *dl_next_step(const struct dl_timeline *tl, const struct dl_thread *th, uint64_t t)
{
	size_t from = th->apis.cnt ? first_call(tl, th, t) : 0;
	size_t i = dl_first_near(step_of, th->steps.v, th->steps.cnt, from, th->places ? th->places->step : 0);

	if (th->places)
		th->places->step = i;
	return i < th->steps.cnt ? &tl->procs.v[th->proc].apis.v[th->apis.v[th->steps.v[i]]] : NULL;
}

uint64_t dl_last_call_end(const struct dl_timeline *tl, const struct dl_thread *th, uint64_t t)
{
	const struct dl_proc *p = &tl->procs.v[th->proc];
	size_t cnt = th->apis.cnt ? first_call(tl, th, t) : 0, batch = cnt ? (cnt - 1) / DL_BATCH : 0;
	uint64_t last;

	if (!cnt || batch >= th->reach.cnt)
		return 0;
	last = th->reach.v[batch];
	for (size_t i = batch * DL_BATCH; i < cnt; i++) {
		const uint64_t end = p->apis.v[th->apis.v[i]].end;

		last = end > last ? end : last;
	}
	return last;
}

static int find_steps(const struct dl_timeline *tl, struct dl_thread *th)
{
	const struct dl_proc *p = &tl->procs.v[th->proc];
	uint64_t reach = 0, *batch;

	th->steps.cnt = th->reach.cnt = 0;
	for (uint32_t i = 0; i < th->apis.cnt; i++) {
		const struct dl_api *a = &p->apis.v[th->apis.v[i]];
		uint32_t *at;

		if (i % DL_BATCH == 0) {
			batch = vec_push(&th->reach);
			if (!batch)
				return -ENOMEM;
			*batch = reach;
		}
		reach = a->end > reach ? a->end : reach;
		if (a->cls != DL_CALL_LAUNCH && a->cls != DL_CALL_GRAPH_LAUNCH &&
		    !(a->cls == DL_CALL_COPY && dl_dense_get(&p->copy_by_corr, a->corr, NULL)))
			continue;
		at = vec_push(&th->steps);
		if (!at)
			return -ENOMEM;
		*at = i;
	}
	return 0;
}

/* Samples in a call are the call's own. */
static int find_own_samples(const struct dl_timeline *tl, struct dl_thread *th)
{
	th->own_samples.cnt = 0;
	for (int c = 0; c < DL_SMP_CNT; c++)
		th->cls_cnt[c] = th->past ? th->past->smp_cls[c] : 0;
	vec_for_each(&th->samples, smp) {
		struct dl_own_smp *own;

		th->cls_cnt[smp->cls]++;
		if (dl_api_at(tl, th, smp->ts))
			continue;
		own = vec_push(&th->own_samples);
		if (!own)
			return -ENOMEM;
		*own = (struct dl_own_smp){ smp->ts, smp->cls };
	}
	return 0;
}

int dl_tl_calls_finish(struct dl_timeline *tl)
{
	int err = 0;

	for (uint32_t i = 0; i < tl->threads.cnt && !err; i++) {
		struct dl_thread *th = &tl->threads.v[i];

		if (th->proc != DL_NONE && tl->procs.v[th->proc].main == i)
			err = find_steps(tl, th);
		if (!err)
			err = find_own_samples(tl, th);
	}
	return err;
}
