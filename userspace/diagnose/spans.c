/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * A gap where all that is known of the host is another tool's GPU trace: calls of CUDA, operators, the
 * loader's spans. Nobody knows whether the thread ran meanwhile: outside of all of them nothing is
 * claimed.
 */
#include "diagnose/walk.h"

bool dl_only_spans(const struct dl_timeline *tl, uint32_t thread)
{
	const struct dl_thread *th = &tl->threads.v[thread];

	return th->proc != DL_NONE && !th->has_switches && tl->procs.v[th->proc].gpu_state == DL_GPU_IMPORTED;
}

/* Does the instant just before t lie in a span? Moves *from to its start, or to the end of the last span
 * before t. */
static bool in_span(const struct dl_spans *s, uint64_t t, uint64_t *from)
{
	size_t i = vec_first_at(s, t);
	uint64_t edge;
	bool in;

	if (!i)
		return false;
	in = s->v[i - 1].end >= t;
	edge = in ? s->v[i - 1].start : s->v[i - 1].end;
	if (edge > *from)
		*from = edge;
	return in;
}

uint64_t dl_charge_spans(struct dl_walk *w, uint32_t thread, uint64_t floor, uint64_t t)
{
	static const struct dl_what data = { .text = "in the loader's __next__ (the GPU trace does not say why)" };
	static const struct dl_what made = { .text = "made the batch itself (num_workers=0)" };
	static const struct dl_what busy = { .text = "in operators and launches" };
	static const struct dl_what between = { .text = "between operators and calls: its own Python, or it waited" };
	const struct dl_thread *th = &w->tl->threads.v[thread];
	struct dl_what what = data;
	uint64_t from = floor;
	enum dl_cause cause = DL_CAUSE_DATA;

	if (in_span(&th->in_costly, t, &from)) {
		dl_charge_running(w, thread, from, t);
		return from;
	}
	if (in_span(&th->in_data, t, &from)) {
		what = w->tl->procs.v[th->proc].loads_inline ? made : data;
	} else if (in_span(&th->in_calls, t, &from)) {
		cause = DL_CAUSE_HOST;
		what = busy;
	} else {
		cause = DL_CAUSE_UNEXPLAINED;
		what = between;
	}
	what.kind = DL_EVI_THREAD;
	what.id = thread;
	dl_charge(w, cause, thread, from, t, &what);
	return from;
}
