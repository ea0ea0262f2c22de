/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * A gap where all that is known of the host is another tool's GPU trace: calls of CUDA, operators, the
 * loader's spans. Nobody knows whether the thread ran meanwhile: outside of all of them nothing is
 * claimed.
 */
#include "diagnose/walk.h"

#include <errno.h>
#include <stdlib.h>

#include "base/str.h"

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

/* --- which idle is meant --- */

/* Time of [from, to] in which nothing of the device runs, its copies included. */
static int idle_without_copies(const struct dl_proc *p, uint32_t device, uint64_t from, uint64_t to, uint64_t *ret)
{
	struct dl_spans all = {};
	uint64_t at = from;
	int err = dl_busy_spans(p, device, DL_KERN_ALL, &all);

	vec_for_each(&p->copies, c) {
		struct dl_span *s;

		if (err || c->device != device)
			continue;
		s = vec_push(&all);
		if (!s)
			err = -ENOMEM;
		else
			*s = (struct dl_span){ c->start, c->end };
	}
	*ret = 0;
	if (!err) {
		vec_sort(&all);
		dl_clip_spans(&all, from, to);
		vec_for_each(&all, s) {
			if (s->start > at)
				*ret += s->start - at;
			if (s->end > at)
				at = s->end;
		}
		*ret += to - at;
	}
	vec_free(&all);
	return err;
}

/* People compare: a viewer or an analysis of the same trace may mean another idle. */
int dl_note_imported(struct dl_report *r, const struct dl_timeline *tl)
{
	vec_for_each(&r->devices, dev) {
		uint64_t proc, ns;
		struct dl_str s = {};
		char buf[32];
		char **at;

		if (!dl_map_get(&tl->pids, dev->pid, &proc) || tl->procs.v[proc].gpu_state != DL_GPU_IMPORTED)
			continue;
		if (idle_without_copies(&tl->procs.v[proc], dev->id, dev->start, dev->end, &ns))
			return -ENOMEM;
		dl_str_addf(&s, "idle of GPU %u is time without a kernel; where copies count as busy, as in other tools, it was idle for %s",
			    dev->id, dl_fmt_ns(buf, sizeof(buf), ns));
		at = s.err ? NULL : vec_push(&r->notes);
		if (!at) {
			dl_str_fini(&s);
			return -ENOMEM;
		}
		*at = dl_str_take(&s);
	}
	return 0;
}
