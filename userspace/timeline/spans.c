/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What a profiler says that a thread was in: batches, operators, calls. */
#include "timeline/threads.h"

#include <errno.h>
#include <stdlib.h>

int dl_tl_span(struct dl_timeline *tl, const struct dl_ev_span *ev)
{
	uint32_t idx = dl_tl_own_thread(tl, ev->h.tid, ev->h.pid);
	struct dl_thread *th;
	struct dl_span *s;

	if (idx == DL_NONE)
		return -ENOMEM;
	if (idx == DL_IDLE || ev->end <= ev->h.ts)
		return 0;
	th = &tl->threads.v[idx];
	if (ev->kind == DL_SPAN_DATA_INLINE && th->proc != DL_NONE)
		tl->procs.v[th->proc].loads_inline = true;
	if (ev->kind == DL_SPAN_DATA || ev->kind == DL_SPAN_DATA_INLINE)
		s = vec_push(&th->in_data);
	else if (ev->kind == DL_SPAN_OP)
		s = vec_push(&th->in_calls);
	else
		return 0;
	if (!s)
		return -ENOMEM;
	*s = (struct dl_span){ ev->h.ts, ev->end };
	return 0;
}

static bool explains(const struct dl_api *a)
{
	return a->cls != DL_CALL_OTHER && a->cls != DL_CALL_LAUNCH && a->cls != DL_CALL_GRAPH_LAUNCH &&
	       a->cls != DL_CALL_MEMSET;
}

/* Sorted and without overlaps. */
static void unite(struct dl_spans *s)
{
	size_t kept = 0;

	vec_sort(s);
	for (size_t i = 0; i < s->cnt; i++) {
		struct dl_span it = s->v[i];

		if (kept && it.start <= s->v[kept - 1].end) {
			if (it.end > s->v[kept - 1].end)
				s->v[kept - 1].end = it.end;
		} else {
			s->v[kept++] = it;
		}
	}
	s->cnt = kept;
}

int dl_tl_spans_finish(struct dl_timeline *tl)
{
	vec_for_each(&tl->threads, th) {
		if (th->proc == DL_NONE || tl->procs.v[th->proc].gpu_state != DL_GPU_IMPORTED)
			continue;
		vec_for_each(&th->apis, i) {
			struct dl_api *a = &tl->procs.v[th->proc].apis.v[*i];
			struct dl_span *s;

			if (a->end <= a->start || a->spanned)
				continue;
			a->spanned = true;
			s = vec_push(explains(a) ? &th->in_costly : &th->in_calls);
			if (!s)
				return -ENOMEM;
			*s = (struct dl_span){ a->start, a->end };
		}
		unite(&th->in_data);
		unite(&th->in_calls);
		unite(&th->in_costly);
	}
	return 0;
}
