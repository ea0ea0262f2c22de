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
#include "diagnose/diagnose.h"

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

struct device {
	uint32_t proc, id;
	uint64_t at;		/* what runs before is in a span, or counted */
	uint64_t known;		/* the device's time goes on up to here at least */
	uint64_t busy_ns;	/* up to there */
	struct dl_spans rest;	/* behind */
};

struct dl_idle_finder { DL_VEC(struct device) devices; };

static struct device *device_of(struct dl_idle_finder *f, uint32_t proc, uint32_t id)
{
	vec_for_each(&f->devices, it) {
		if (it->proc == proc && it->id == id)
			return it;
	}
	return NULL;
}

/* Counts what of the rest lies before t. */
static void count_busy(struct device *dev, uint64_t t)
{
	size_t kept = 0;

	vec_for_each(&dev->rest, s) {
		uint64_t end = s->end < t ? s->end : t;

		dev->busy_ns += end > s->start ? end - s->start : 0;
		if (s->start < t)
			s->start = end;
		if (s->end > s->start)
			dev->rest.v[kept++] = *s;
	}
	dev->rest.cnt = kept;
}

/* Something of the device runs, its copies included. */
static int add_busy(struct device *dev, uint64_t start, uint64_t end)
{
	struct dl_span *s;

	start = start > dev->at ? start : dev->at;
	if (end <= start)
		return 0;
	dev->at = end;
	s = vec_push(&dev->rest);
	if (!s)
		return -ENOMEM;
	*s = (struct dl_span){ start, end };
	return 0;
}

/* What comes before a device's first kernel is not in its time. */
static int begin_devices(struct dl_idle_finder *f, const struct dl_gap_finder *gaps)
{
	uint32_t proc, id;
	uint64_t start;

	for (size_t i = f->devices.cnt; dl_gaps_device(gaps, i, &proc, &id, &start); i++) {
		struct device *dev = vec_push(&f->devices);

		if (!dev)
			return -ENOMEM;
		*dev = (struct device){ .proc = proc, .id = id, .at = start };
	}
	return 0;
}

static int take_proc(struct dl_idle_finder *f, const struct dl_stage *st, uint32_t proc)
{
	const struct dl_proc *p = &st->tl->procs.v[proc];
	size_t k = vec_first_at(&p->kernels, st->after + 1), c = vec_first_at(&p->copies, st->after + 1);
	int err = 0;

	while (!err && (k < p->kernels.cnt || c < p->copies.cnt)) {
		const struct dl_copy *copy = c < p->copies.cnt ? &p->copies.v[c] : NULL;
		const struct dl_kern *kern = k < p->kernels.cnt && (!copy || p->kernels.v[k].start <= copy->start) ?
			&p->kernels.v[k] : NULL;
		struct dl_span s = kern ? (struct dl_span){ kern->start, kern->end } : (struct dl_span){ copy->start, copy->end };
		struct device *dev = device_of(f, proc, kern ? kern->device : copy->device);

		if (!st->last && s.start > st->until)
			break;
		err = dev ? add_busy(dev, s.start, s.end) : 0;
		if (dev && kern && kern->end > dev->known)
			dev->known = kern->end < st->opts->to_ts ? kern->end : st->opts->to_ts;
		k += kern != NULL;
		c += kern == NULL;
	}
	return err;
}

int dl_idle_take(struct dl_idle_finder *f, const struct dl_stage *st, const struct dl_gap_finder *gaps)
{
	int err = begin_devices(f, gaps);

	for (uint32_t i = 0; i < st->tl->procs.cnt && !err; i++) {
		if (st->tl->procs.v[i].gpu_state == DL_GPU_IMPORTED)
			err = take_proc(f, st, i);
	}
	vec_for_each(&f->devices, dev)
		count_busy(dev, dev->known);
	return err;
}

/* People compare: a viewer or an analysis of the same trace may mean another idle. */
int dl_idle_publish(struct dl_idle_finder *f, struct dl_report *r, const struct dl_timeline *tl)
{
	vec_for_each(&r->devices, out) {
		struct dl_str s = {};
		struct device *dev;
		uint64_t proc;
		char buf[32];
		char **at;

		if (!dl_map_get(&tl->pids, out->pid, &proc) || tl->procs.v[proc].gpu_state != DL_GPU_IMPORTED)
			continue;
		dev = device_of(f, (uint32_t)proc, out->id);
		if (!dev)
			continue;
		count_busy(dev, out->end);
		dl_str_addf(&s, "idle of GPU %u is time without a kernel; where copies count as busy, as in other tools, it was idle for %s",
			    out->id, dl_fmt_ns(buf, sizeof(buf), out->end - out->start - dev->busy_ns));
		at = s.err ? NULL : vec_push(&r->notes);
		if (!at) {
			dl_str_fini(&s);
			return -ENOMEM;
		}
		*at = dl_str_take(&s);
	}
	return 0;
}

struct dl_idle_finder *dl_idle_finder_new(void)
{
	return calloc(1, sizeof(struct dl_idle_finder));
}

void dl_idle_finder_free(struct dl_idle_finder *f)
{
	if (!f)
		return;
	vec_for_each(&f->devices, dev)
		vec_free(&dev->rest);
	vec_free(&f->devices);
	free(f);
}
