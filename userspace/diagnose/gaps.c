/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The gaps of every device, and what each is charged to. A gap is a maximal interval in which no
 * kernel runs on any stream. From the call that enqueued the first kernel behind it on, the host
 * had asked: the rest is a copy or the device itself. Before that the host was late: the walk.
 */
#include "diagnose/walk.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "diagnose/diagnose.h"
#include "diagnose/evidence.h"
#include "diagnose/summary.h"

struct device {
	struct dl_report *r;
	const struct dl_timeline *tl;
	uint32_t proc, id;
	struct dl_device_report *out;
	struct dl_ledger ledger;
	struct dl_spans busy;		/* all kernels */
	uint64_t start, end;
	const struct dl_diagnose_opts *opts;
};

static const struct dl_proc *proc_of(const struct device *dev)
{
	return &dev->tl->procs.v[dev->proc];
}

/* --- from the enqueue to the start of the kernel --- */

/* The first kernel at or behind t. */
static const struct dl_kern *kernel_at(const struct dl_proc *p, uint32_t device, uint64_t t)
{
	for (size_t i = vec_first_at(&p->kernels, t); i < p->kernels.cnt; i++) {
		if (p->kernels.v[i].device == device)
			return &p->kernels.v[i];
	}
	return NULL;
}

static const struct dl_api *api_of(const struct dl_proc *p, uint32_t corr)
{
	uint32_t idx;

	return corr && dl_dense_get(&p->api_by_corr, corr, &idx) ? &p->apis.v[idx] : NULL;
}

static void charge_asked(struct dl_walk *w, const struct device *dev, const struct dl_kern *k,
			 uint32_t thread, uint64_t t, uint64_t floor)
{
	struct dl_what copy = { .text = "the device waited for a copy" };
	struct dl_what gpu = { .text = "enqueued, the device had not started it", .kind = DL_EVI_NAME,
			       .id = dl_name_id(dev->proc, k->name) };

	while (t > floor) {
		uint64_t from = floor;

		if (dl_copy_before(proc_of(dev), k, t, &from))
			dl_charge(w, DL_CAUSE_PCIE, thread, from, t, &copy);
		else
			dl_charge(w, DL_CAUSE_GPU, thread, from, t, &gpu);
		t = from;
	}
}

/* --- a gap --- */

static uint32_t main_thread(const struct dl_proc *p)
{
	return p->main == DL_NONE ? DL_IDLE : p->main;
}

/* The first kernel behind the gap, and the call and the thread that enqueued it, as far as known. */
static uint32_t asker(const struct device *dev, const struct dl_gap *gap, const struct dl_kern **ret_k,
		      const struct dl_api **ret_api)
{
	const struct dl_proc *p = proc_of(dev);

	*ret_k = gap->open ? NULL : kernel_at(p, dev->id, gap->end);
	*ret_api = *ret_k ? api_of(p, (*ret_k)->corr) : NULL;
	return *ret_api && (*ret_api)->thread != DL_NONE ? (*ret_api)->thread : main_thread(p);
}

static bool is_blind(const struct dl_proc *p, const struct dl_gap *gap)
{
	vec_for_each(&p->gpu_blind, s)
		if (s->start < gap->end && s->end > gap->start)
			return true;
	return false;
}

static int explain_gap(struct device *dev, struct dl_gap *gap, bool want_steps, struct dl_ledger *ledger)
{
	const struct dl_kern *k;
	const struct dl_api *api;
	uint32_t thread = asker(dev, gap, &k, &api);
	uint64_t asked = api ? api->start : gap->end;
	struct dl_walk w = { .tl = dev->tl, .gap = gap, .ledger = ledger, .want_steps = want_steps,
			     .relabel = DL_CAUSE_CNT };

	if (asked < gap->start)
		asked = gap->start;
	if (asked > gap->end)
		asked = gap->end;
	if (k)
		charge_asked(&w, dev, k, thread, gap->end, asked);
	w.sync_thread = thread;
	w.sync_end = gap->sync_end;
	w.sync_budget = gap->sync_ns;
	if (thread == DL_IDLE) {
		struct dl_what lost = { .text = "the process's main thread is not known" };

		dl_charge(&w, DL_CAUSE_UNEXPLAINED, thread, gap->start, asked, &lost);
	} else {
		dl_walk_path(&w, thread, asked, gap->start);
	}
	return ledger ? ledger->err : 0;
}

/* A call that began before the gap and ended in it has waited for the GPU: a synchronise, a copy that blocks
 * (.item(), .cpu(), a pageable one), a free. For how long was the GPU busy meanwhile? Its kernels are many,
 * and there are gaps between them. */
static void find_sync(const struct device *dev, struct dl_gap *gap, size_t busy_cnt, uint32_t thread)
{
	const struct dl_thread *th = &dev->tl->threads.v[thread];
	const struct dl_api *a = th->proc == DL_NONE ? NULL : dl_api_at(dev->tl, th, gap->start);

	if (!a || a->end <= gap->start || a->start >= gap->start ||
	    (a->cls != DL_CALL_SYNC && a->cls != DL_CALL_COPY && a->cls != DL_CALL_FREE))
		return;
	gap->sync_end = a->end;
	for (size_t i = busy_cnt; i-- > 0 && dev->busy.v[i].end > a->start;)
		gap->sync_ns += dev->busy.v[i].end - (dev->busy.v[i].start > a->start ? dev->busy.v[i].start : a->start);
}

static bool gap_open(const struct device *dev, uint64_t end)
{
	return end == dev->end && !kernel_at(proc_of(dev), dev->id, end);
}

static int explain_all(struct device *dev, struct dl_diag *d)
{
	uint64_t at = dev->start;
	int err = 0;

	for (size_t i = 0; i <= dev->busy.cnt && !err; i++) {
		bool last = i == dev->busy.cnt;
		uint64_t next = last ? dev->end : dev->busy.v[i].start;
		struct dl_gap gap = { .start = at, .end = next, .device = dev->id,
				      .proc = dev->proc };

		if (is_blind(proc_of(dev), &gap)) {
			dev->out->unobserved_ns += next - at;
		} else if (next > at) {
			const struct dl_kern *k;
			const struct dl_api *api;

			gap.open = last && gap_open(dev, next);
			find_sync(dev, &gap, i, asker(dev, &gap, &k, &api));
			err = explain_gap(dev, &gap, false, &dev->ledger);
			for (int c = 0; c < DL_CAUSE_CNT; c++)
				dev->ledger.causes[c].gaps += gap.cause_ns[c] != 0;
			dl_part_gap(dev->r, dev->tl, &gap);
			dev->out->gap_cnt++;
			dev->out->idle_ns += next - at;
			err = err ? err : dl_keep_worst(dev->r, &gap, dev->opts->worst_cnt);
		}
		if (!last)
			at = dev->busy.v[i].end;
	}
	return err ? dl_oom(d) : 0;
}

/* --- a device --- */

/* From when on another tool had the records, to the end; UINT64_MAX never. */
static uint64_t blind_from(const struct dl_proc *p)
{
	return p->gpu_blind.cnt && p->gpu_blind.v[p->gpu_blind.cnt - 1].end == UINT64_MAX ?
		p->gpu_blind.v[p->gpu_blind.cnt - 1].start : UINT64_MAX;
}

/* The GPU was watched from the collector's start on where the process is older than the recording,
 * else from its first kernel on: what a job does before that is not idle time of its GPU. The last
 * clock record says until when records are complete. */
static void device_span(struct device *dev)
{
	const struct dl_proc *p = proc_of(dev);
	uint64_t first = UINT64_MAX, last = 0, seen = 0;

	vec_for_each(&p->kernels, k) {
		if (k->device != dev->id)
			continue;
		if (k->start < first)
			first = k->start;
		if (k->end > last)
			last = k->end;
	}
	vec_for_each(&dev->tl->clocks, c) {
		if (c->ev->pid != p->pid)
			continue;
		if (!p->start && !seen && c->ts < first)
			first = c->ts;
		seen = c->ts;
	}
	dev->start = first;
	dev->end = last;
	if (!p->exited && seen > last)
		dev->end = seen < dev->tl->end ? seen : dev->tl->end;
	if (dev->end > blind_from(p))
		dev->end = blind_from(p);
	if (dev->end < last)
		dev->end = last;
	if (dev->start < dev->opts->from_ts)
		dev->start = dev->opts->from_ts;
	if (dev->end > dev->opts->to_ts)
		dev->end = dev->opts->to_ts;
	if (dev->end < dev->start)
		dev->end = dev->start;
}

void dl_clip_spans(struct dl_spans *s, uint64_t from, uint64_t to)
{
	size_t kept = 0;

	vec_for_each(s, it) {
		struct dl_span clipped = { it->start > from ? it->start : from, it->end < to ? it->end : to };

		if (clipped.start < clipped.end)
			s->v[kept++] = clipped;
	}
	s->cnt = kept;
}

static uint64_t total_ns(const struct dl_spans *s)
{
	uint64_t ns = 0;

	vec_for_each(s, it)
		ns += it->end - it->start;
	return ns;
}

static int name_device(struct device *dev)
{
	vec_for_each(&dev->tl->gpu_names, n) {
		if (n->pid != proc_of(dev)->pid || n->device != dev->id)
			continue;
		dev->out->simulated |= n->simulated;
		free(dev->out->name);
		dev->out->name = strdup(n->name);
		if (!dev->out->name)
			return -ENOMEM;
	}
	dev->out->simulated |= proc_of(dev)->gpu_simulated;
	return 0;
}

static int do_device(struct dl_report *r, const struct dl_timeline *tl, uint32_t proc, uint32_t id,
		     const struct dl_diagnose_opts *opts, struct dl_diag *d)
{
	struct device dev = { .r = r, .tl = tl, .proc = proc, .id = id, .opts = opts };
	struct dl_spans real = {};
	int err;

	dev.out = vec_push(&r->devices);
	if (!dev.out)
		return dl_oom(d);
	dev.out->id = id;
	dev.out->pid = tl->procs.v[proc].pid;
	device_span(&dev);
	dev.out->start = dev.start;
	dev.out->end = dev.end;
	err = name_device(&dev);
	if (!err)
		err = dl_busy_spans(proc_of(&dev), id, DL_KERN_ALL, &dev.busy);
	if (!err)
		err = dl_busy_spans(proc_of(&dev), id, DL_KERN_NO_COLLECTIVES, &real);
	if (!err) {
		dl_clip_spans(&dev.busy, dev.start, dev.end);
		dl_clip_spans(&real, dev.start, dev.end);
		dev.out->busy_ns = total_ns(&real);
		dev.out->collective_ns = total_ns(&dev.busy) - dev.out->busy_ns;
		vec_for_each(&proc_of(&dev)->kernels, k)
			dev.out->kernels += k->device == id;
		err = explain_all(&dev, d);
	}
	dl_part_span(r, proc, dev.end - dev.start - dev.out->unobserved_ns);
	if (!err)
		err = dl_ledger_publish(tl, &dev.ledger, dev.out->causes);
	vec_free(&real);
	vec_free(&dev.busy);
	dl_ledger_fini(&dev.ledger);
	return err ? dl_oom(d) : 0;
}

static int explain_worst(struct dl_report *r, const struct dl_timeline *tl, struct dl_diag *d)
{
	vec_for_each(&r->worst, g) {
		struct device dev = { .r = r, .tl = tl, .proc = g->proc, .id = g->device };
		struct dl_ledger ledger = {};
		int err;

		memset(g->cause_ns, 0, sizeof(g->cause_ns));
		err = explain_gap(&dev, g, true, &ledger);
		dl_ledger_fini(&ledger);
		if (err)
			return dl_oom(d);
	}
	return 0;
}

int dl_find_gaps(struct dl_report *r, const struct dl_timeline *tl, const struct dl_diagnose_opts *opts,
		 struct dl_diag *d)
{
	int err = 0;

	for (uint32_t i = 0; i < tl->procs.cnt && !err; i++) {
		const struct dl_proc *p = &tl->procs.v[i];
		struct dl_map ids = {};
		uint64_t id, unused;
		size_t pos = 0;

		vec_for_each(&p->kernels, k)
			err = err ? err : dl_map_set(&ids, k->device, 1);
		while (!err && dl_map_next(&ids, &pos, &id, &unused))
			err = do_device(r, tl, i, (uint32_t)id, opts, d);
		dl_map_fini(&ids);
	}
	if (err)
		return err == -ENOMEM ? dl_oom(d) : err;
	dl_sort_worst(r);
	return explain_worst(r, tl, d);
}
