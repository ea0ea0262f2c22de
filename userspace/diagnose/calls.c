/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Where it is not known what the GPU ran (uprobes, or no kernels recorded): what the trainer's own calls
 * of CUDA say. Inside a copy, an allocation or the loading of a module it waits for that, as it does for a
 * batch. Inside a synchronise it waits for the GPU, which is at work then: no wait of this kind.
 *
 * A copy from pageable memory waits for what its stream has to do first, too. What is the copy's own is
 * known where the device's record of it is; else it is estimated from the bytes and the best rate of any
 * copy, and lies at the end of the call.
 */
#include "diagnose/calls.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "diagnose/diagnose.h"
#include "diagnose/walk.h"

#define SHORT_NS 50000ULL		/* a call as short as that waits for nothing */
#define RATED_SZ (1ULL << 20)		/* copies that a rate is taken from */
#define RATE_MIN 2e9			/* bytes a second: every link and every memory does that */
#define RATE_MAX 100e9			/* a faster one was not over when the call returned */

static uint64_t length_of(const struct dl_api *a)
{
	return a->end - a->start;
}

static double rate_of(const struct dl_api *a)
{
	return length_of(a) ? (double)a->bytes * 1e9 / (double)length_of(a) : RATE_MAX;
}

bool dl_call_rate(struct dl_call_search *s, const struct dl_proc *p)
{
	double was = s->rate, best = was > RATE_MIN ? was : RATE_MIN;

	vec_for_each(&p->apis, a) {
		if (a->cls == DL_CALL_COPY && a->bytes >= RATED_SZ && rate_of(a) < RATE_MAX && rate_of(a) > best)
			best = rate_of(a);
	}
	s->rate = best;
	return best > was;
}

/* How much of the call's end is the copy itself; *ret_estimated when not all of it is. */
static uint64_t own_ns(const struct dl_proc *p, const struct dl_api *a, double rate, bool *ret_estimated)
{
	uint64_t ns, len = length_of(a);
	uint32_t idx;

	*ret_estimated = false;
	if (a->corr && dl_dense_get(&p->copy_by_corr, a->corr, &idx)) {
		const struct dl_copy *c = &p->copies.v[idx];

		if (c->dir == DL_GPU_DTOD || c->start >= a->end)
			return 0;
		return c->start > a->start ? a->end - c->start : len;
	}
	if (a->dir == DL_GPU_DTOD || !a->bytes || rate_of(a) >= RATE_MAX)
		return 0;
	ns = (uint64_t)((double)a->bytes * 1e9 / rate);
	*ret_estimated = ns < len;
	return ns < len ? ns : len;
}

/* What the host waited for in a call, in nanoseconds before its end, and not for the GPU's own work. */
static uint64_t waited_ns(const struct dl_proc *p, const struct dl_api *a, double rate, bool *ret_estimated)
{
	uint64_t ns = length_of(a);

	*ret_estimated = false;
	switch (a->cls) {
	case DL_CALL_COPY:
		ns = own_ns(p, a, rate, ret_estimated);
		break;
	case DL_CALL_ALLOC:
	case DL_CALL_HOST_ALLOC:
	case DL_CALL_MODULE:
	case DL_CALL_GRAPH:
		break;
	default:
		return 0;	/* cudaFree waits for the GPU, as a synchronise does */
	}
	return ns < SHORT_NS ? 0 : ns;
}

static void count(struct dl_calls_report *c, const struct dl_api *a, uint64_t waited)
{
	c->launch_cnt += a->skipped;
	switch (a->cls) {
	case DL_CALL_COPY:
		c->copy_cnt++;
		c->copy_bytes += a->bytes;
		c->copy_ns += waited;
		c->gpu_wait_ns += length_of(a) - waited;
		break;
	case DL_CALL_SYNC:
	case DL_CALL_FREE:
		c->gpu_wait_cnt++;
		c->gpu_wait_ns += length_of(a);
		break;
	case DL_CALL_ALLOC:
	case DL_CALL_HOST_ALLOC:
	case DL_CALL_MODULE:
	case DL_CALL_GRAPH:
		c->api_cnt++;
		c->api_ns += waited;
		break;
	case DL_CALL_LAUNCH:
	case DL_CALL_GRAPH_LAUNCH:
		c->launch_cnt++;
		break;
	}
}

/* Index of the first of the thread's calls that is not done with. */
static size_t first_left(const struct dl_call_search *s, const struct dl_thread *th, const struct dl_proc *p)
{
	size_t lo = 0, hi = th->apis.cnt;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (p->apis.v[th->apis.v[mid]].start < s->at)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

int dl_call_waits(struct dl_call_search *s, const struct dl_stage *st, uint32_t thread, struct dl_calls_report *calls)
{
	const struct dl_thread *th = &st->tl->threads.v[thread];
	const struct dl_proc *p = &st->tl->procs.v[th->proc];
	uint64_t from = st->opts->from_ts, to = st->opts->to_ts;

	s->known = true;
	for (size_t i = first_left(s, th, p); i < th->apis.cnt; i++) {
		const struct dl_api *a = &p->apis.v[th->apis.v[i]];
		struct dl_call_wait *w;
		bool estimated;
		uint64_t ns;

		if (!st->last && a->start > st->until)
			break;
		/* The outermost: what is inside is part of it. */
		if (a->start < s->over || a->start < from || a->end > to)
			continue;
		if (!st->last && a->end > st->until) {
			s->at = a->start;
			return 0;
		}
		if (a->end > th->end)
			continue;
		s->over = a->end;
		ns = waited_ns(p, a, s->rate, &estimated);
		count(calls, a, ns);
		if (!ns)
			continue;
		w = vec_push(&s->out);
		if (!w)
			return -ENOMEM;
		*w = (struct dl_call_wait){ a->end - ns, a->end, estimated };
	}
	s->at = st->until + 1;
	return 0;
}

uint64_t dl_call_need(const struct dl_call_search *s)
{
	return s->out.cnt && s->out.v[0].start < s->at ? s->out.v[0].start : s->at;
}

void dl_call_take(struct dl_call_search *s, size_t cnt)
{
	s->out.cnt -= cnt;
	if (cnt)
		memmove(s->out.v, s->out.v + cnt, s->out.cnt * sizeof(*s->out.v));
}

void dl_call_search_fini(struct dl_call_search *s)
{
	vec_free(&s->out);
}
