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
	uint32_t proc, id;
	uint64_t start;			/* from here on it is observed */
	uint64_t at;			/* what is before is explained */
	uint64_t last;			/* end of the last of its kernels */
	bool over;			/* the window that is asked for ends before the next kernel */
	struct dl_spans busy;		/* all kernels, in the window; the last ones of them */
	uint64_t busy_ns;		/* of all of them */
	uint64_t real_ns, real_end;	/* the same without collectives; up to when */
	uint64_t kernels, gap_cnt, idle_ns, unobserved_ns;
	struct dl_ledger ledger;
};

struct begin { uint32_t proc; uint64_t start; };

struct dl_gap_finder {
	DL_VEC(struct device) devices;	/* in order of their first kernels */
	DL_VEC(struct begin) expected;	/* known from an earlier reading */
	struct dl_parts parts;
	struct dl_gap_vec worst;
	bool missed;
};

/* A device in a stage. */
struct look {
	const struct dl_stage *st;
	struct dl_gap_finder *f;
	struct device *dev;
	const struct dl_proc *p;
};

/* --- from the enqueue to the start of the kernel --- */

/* The first kernel at or behind t. */
static const struct dl_kern *kernel_at(const struct dl_proc *p, uint32_t device, uint64_t t)
{
	size_t i = p->places->kernel = vec_first_near(&p->kernels, t, p->places->kernel);

	for (; i < p->kernels.cnt; i++) {
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

static void charge_asked(struct dl_walk *w, const struct look *l, const struct dl_kern *k,
			 uint32_t thread, uint64_t t, uint64_t floor)
{
	struct dl_what copy = { .text = "the device waited for a copy" };
	struct dl_what gpu = { .text = "enqueued, the device had not started it", .kind = DL_EVI_NAME,
			       .id = dl_name_id(l->dev->proc, k->name) };

	while (t > floor) {
		uint64_t from = floor;

		if (dl_copy_before(l->p, k, t, &from))
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
static uint32_t asker(const struct look *l, const struct dl_gap *gap, const struct dl_kern **ret_k,
		      const struct dl_api **ret_api)
{
	*ret_k = gap->open ? NULL : kernel_at(l->p, l->dev->id, gap->end);
	*ret_api = *ret_k ? api_of(l->p, (*ret_k)->corr) : NULL;
	return *ret_api && (*ret_api)->thread != DL_NONE ? (*ret_api)->thread : main_thread(l->p);
}

static bool is_blind(const struct dl_proc *p, const struct dl_gap *gap)
{
	vec_for_each(&p->gpu_blind, s)
		if (s->start < gap->end && s->end > gap->start)
			return true;
	return false;
}

static int explain_gap(const struct look *l, struct dl_gap *gap, bool want_steps, struct dl_ledger *ledger)
{
	const struct dl_kern *k;
	const struct dl_api *api;
	uint32_t thread = asker(l, gap, &k, &api);
	uint64_t asked = api ? api->start : gap->end;
	struct dl_walk w = { .tl = l->st->tl, .gap = gap, .ledger = ledger, .want_steps = want_steps,
			     .relabel = DL_CAUSE_CNT };

	if (asked < gap->start)
		asked = gap->start;
	if (asked > gap->end)
		asked = gap->end;
	if (k)
		charge_asked(&w, l, k, thread, gap->end, asked);
	w.sync_thread = thread;
	w.sync_end = gap->sync_end;
	w.sync_budget = gap->sync_ns;
	if (thread == DL_IDLE) {
		struct dl_what lost = { .text = "the process's main thread is not known" };

		dl_charge(&w, DL_CAUSE_UNEXPLAINED, thread, gap->start, asked, &lost);
	} else {
		dl_walk_path(&w, thread, asked, gap->start);
	}
	return ledger->err;
}

/* A call that began before the gap and ended in it has waited for the GPU: a synchronise, a copy that blocks
 * (.item(), .cpu(), a pageable one), a free. For how long was the GPU busy meanwhile? Its kernels are many,
 * and there are gaps between them. */
static void find_sync(const struct look *l, struct dl_gap *gap)
{
	const struct dl_spans *busy = &l->dev->busy;
	const struct dl_kern *k;
	const struct dl_api *a;
	uint32_t thread = asker(l, gap, &k, &a);
	const struct dl_thread *th = &l->st->tl->threads.v[thread];

	a = th->proc == DL_NONE ? NULL : dl_api_at(l->st->tl, th, gap->start);
	if (!a || a->end <= gap->start || a->start >= gap->start ||
	    (a->cls != DL_CALL_SYNC && a->cls != DL_CALL_COPY && a->cls != DL_CALL_FREE))
		return;
	gap->sync_end = a->end;
	for (size_t i = busy->cnt; i-- > 0 && busy->v[i].end > a->start;)
		gap->sync_ns += busy->v[i].end - (busy->v[i].start > a->start ? busy->v[i].start : a->start);
}

/* What is between at and `to`, if anything, is a gap. */
static int take_gap(const struct look *l, uint64_t to, bool open)
{
	struct device *dev = l->dev;
	struct dl_gap gap = { .start = dev->at, .end = to, .device = dev->id, .proc = dev->proc, .open = open };
	int err;

	dev->at = to;
	if (is_blind(l->p, &gap)) {
		dev->unobserved_ns += gap.end - gap.start;
		return 0;
	}
	find_sync(l, &gap);
	err = explain_gap(l, &gap, false, &dev->ledger);
	for (int c = 0; c < DL_CAUSE_CNT; c++)
		dev->ledger.causes[c].gaps += gap.cause_ns[c] != 0;
	dev->gap_cnt++;
	dev->idle_ns += gap.end - gap.start;
	err = err ? err : dl_parts_add(&l->f->parts, l->st->tl, &gap);
	err = err ? err : dl_keep_worst(&l->f->worst, &gap, l->st->opts->worst_cnt);
	return err < 0 ? err : 0;
}

/* --- a device --- */

/* The GPU was watched from the collector's start on where the process is older than the recording,
 * else from its first kernel on: what a job does before that is not idle time of its GPU. */
static int begin_device(struct dl_gap_finder *f, const struct dl_stage *st, uint32_t proc, const struct dl_kern *k)
{
	const struct dl_proc *p = &st->tl->procs.v[proc];
	struct device *dev = vec_push(&f->devices);

	if (!dev)
		return -ENOMEM;
	dev->proc = proc;
	dev->id = k->device;
	dev->start = k->start;
	vec_for_each(&st->tl->clocks, c) {
		if (c->ev->pid != p->pid)
			continue;
		if (!p->start && c->ts < dev->start)
			dev->start = c->ts;
		break;
	}
	if (dev->start < st->opts->from_ts)
		dev->start = st->opts->from_ts;
	dev->at = dev->start;
	f->missed |= dev->start < k->start && dev->start < st->tl->cut_ts;
	return 0;
}

static int add_busy(struct device *dev, const struct dl_kern *k, uint64_t start, uint64_t end)
{
	struct dl_span *last = vec_last(&dev->busy);
	uint64_t real = start > dev->real_end ? start : dev->real_end;

	if (!k->collective && end > real) {
		dev->real_ns += end - real;
		dev->real_end = end;
	}
	if (last && start <= last->end) {
		if (end > last->end) {
			dev->busy_ns += end - last->end;
			last->end = end;
		}
		return 0;
	}
	last = vec_push(&dev->busy);
	if (!last)
		return -ENOMEM;
	*last = (struct dl_span){ start, end };
	dev->busy_ns += end - start;
	return 0;
}

static int take_kernel(const struct look *l, const struct dl_kern *k)
{
	struct device *dev = l->dev;
	uint64_t to = l->st->opts->to_ts, start = k->start > dev->start ? k->start : dev->start;
	uint64_t end = k->end < to ? k->end : to;
	int err = 0;

	dev->kernels += k->end >= l->st->opts->from_ts && k->start < to;
	if (k->end > dev->last)
		dev->last = k->end;
	if (k->start >= to && !dev->over) {
		dev->over = true;
		return to > dev->at ? take_gap(l, to, false) : 0;
	}
	if (start >= end || dev->over)
		return 0;
	if (start > dev->at)
		err = take_gap(l, start, false);
	if (end > dev->at)
		dev->at = end;
	return err ? err : add_busy(dev, k, start, end);
}

/* From when on another tool had the records, to the end; UINT64_MAX never. */
static uint64_t blind_from(const struct dl_proc *p)
{
	return p->gpu_blind.cnt && p->gpu_blind.v[p->gpu_blind.cnt - 1].end == UINT64_MAX ?
		p->gpu_blind.v[p->gpu_blind.cnt - 1].start : UINT64_MAX;
}

/* The last clock record says until when records are complete. */
static uint64_t device_end(const struct look *l)
{
	const struct device *dev = l->dev;
	const struct dl_timeline *tl = l->st->tl;
	uint64_t end = dev->last, seen = 0;

	vec_for_each(&tl->clocks, c)
		seen = c->ev->pid == l->p->pid ? c->ts : seen;
	if (!l->p->exited && seen > end)
		end = seen < tl->end ? seen : tl->end;
	if (end > blind_from(l->p))
		end = blind_from(l->p);
	if (end < dev->last)
		end = dev->last;
	if (end > l->st->opts->to_ts)
		end = l->st->opts->to_ts;
	return end < dev->start ? dev->start : end;
}

static int end_device(const struct look *l)
{
	uint64_t end = device_end(l);

	return end > l->dev->at ? take_gap(l, end, !kernel_at(l->p, l->dev->id, end)) : 0;
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

/* --- stages --- */

static struct device *device_of(struct dl_gap_finder *f, uint32_t proc, uint32_t id)
{
	vec_for_each(&f->devices, dev) {
		if (dev->proc == proc && dev->id == id)
			return dev;
	}
	return NULL;
}

static int take_proc(struct dl_gap_finder *f, const struct dl_stage *st, uint32_t proc)
{
	const struct dl_proc *p = &st->tl->procs.v[proc];
	int err = 0;

	for (size_t i = vec_first_at(&p->kernels, st->after + 1); i < p->kernels.cnt && !err; i++) {
		const struct dl_kern *k = &p->kernels.v[i];
		struct look l = { .st = st, .f = f, .p = p };

		if (k->start > st->until && !st->last)
			break;
		if (!device_of(f, proc, k->device))
			err = begin_device(f, st, proc, k);
		l.dev = device_of(f, proc, k->device);
		err = err ? err : take_kernel(&l, k);
	}
	return err;
}

/* The longest gaps, step by step, while what they need is there. */
static int explain_worst(struct dl_gap_finder *f, const struct dl_stage *st)
{
	int err = 0;

	vec_for_each(&f->worst, g) {
		struct look l = { .st = st, .f = f, .dev = device_of(f, g->proc, g->device), .p = &st->tl->procs.v[g->proc] };
		struct dl_ledger ledger = {};

		if (g->steps.cnt || err)
			continue;
		memset(g->cause_ns, 0, sizeof(g->cause_ns));
		err = explain_gap(&l, g, true, &ledger);
		dl_ledger_fini(&ledger);
	}
	return err;
}

/* Busy time that a call waited for which goes on is still needed. */
static void forget_busy(struct device *dev, const struct dl_stage *st)
{
	uint64_t from = dev->at;
	size_t drop = 0;

	vec_for_each(&st->tl->procs.v[dev->proc].apis, a) {
		if (a->end >= dev->at && a->start < from)
			from = a->start;
	}
	while (drop + 1 < dev->busy.cnt && dev->busy.v[drop].end < from)
		drop++;
	dev->busy.cnt -= drop;
	memmove(dev->busy.v, dev->busy.v + drop, dev->busy.cnt * sizeof(*dev->busy.v));
}

int dl_gaps_take(struct dl_gap_finder *f, const struct dl_stage *st)
{
	int err = 0;

	for (uint32_t i = 0; i < st->tl->procs.cnt && !err; i++)
		err = take_proc(f, st, i);
	vec_for_each(&f->devices, dev) {
		struct look l = { .st = st, .f = f, .dev = dev, .p = &st->tl->procs.v[dev->proc] };

		if (st->last && !err)
			err = end_device(&l);
		else if (dev->busy.cnt)
			forget_busy(dev, st);
	}
	return err ? err : explain_worst(f, st);
}

uint64_t dl_gaps_need(const struct dl_gap_finder *f, const struct dl_stage *st)
{
	uint64_t need = st->until;

	vec_for_each(&f->devices, dev) {
		const struct dl_proc *p = &st->tl->procs.v[dev->proc];

		/* Of a process that has ended no gap is open: its device's time ends with its last kernel. */
		if (!dev->over && dev->at < need && !(p->exited && p->end <= st->until))
			need = dev->at;
	}
	vec_for_each(&f->expected, e) {
		bool begun = false;

		vec_for_each(&f->devices, dev)
			begun |= dev->proc == e->proc && dev->start == e->start;
		if (!begun && e->start < need)
			need = e->start;
	}
	return need;
}

/* --- the report --- */

static int name_device(struct dl_device_report *out, const struct device *dev, const struct dl_timeline *tl)
{
	const struct dl_proc *p = &tl->procs.v[dev->proc];

	vec_for_each(&tl->gpu_names, n) {
		if (n->pid != p->pid || n->device != dev->id)
			continue;
		out->simulated |= n->simulated;
		free(out->name);
		out->name = strdup(n->name);
		if (!out->name)
			return -ENOMEM;
	}
	out->simulated |= p->gpu_simulated;
	return 0;
}

static int publish_device(const struct look *l, struct dl_report *r)
{
	const struct device *dev = l->dev;
	struct dl_device_report *out = vec_push(&r->devices);
	int err;

	if (!out)
		return -ENOMEM;
	out->id = dev->id;
	out->pid = l->p->pid;
	out->start = dev->start;
	out->end = device_end(l);
	out->busy_ns = dev->real_ns;
	out->collective_ns = dev->busy_ns - dev->real_ns;
	out->idle_ns = dev->idle_ns;
	out->unobserved_ns = dev->unobserved_ns;
	out->kernels = dev->kernels;
	out->gap_cnt = dev->gap_cnt;
	err = name_device(out, dev, l->st->tl);
	dl_part_span(r, dev->proc, out->end - out->start - out->unobserved_ns);
	return err ? err : dl_ledger_publish(l->st->tl, &dev->ledger, out->causes);
}

int dl_gaps_publish(struct dl_gap_finder *f, struct dl_report *r, const struct dl_stage *st)
{
	int err = 0;

	for (uint32_t i = 0; i < st->tl->procs.cnt && !err; i++) {
		struct dl_map ids = {};
		uint64_t id, unused;
		size_t pos = 0;

		vec_for_each(&f->devices, dev) {
			if (dev->proc == i && !err)
				err = dl_map_set(&ids, dev->id, 1);
		}
		while (!err && dl_map_next(&ids, &pos, &id, &unused)) {
			struct look l = { .st = st, .f = f, .dev = device_of(f, i, (uint32_t)id), .p = &st->tl->procs.v[i] };

			err = publish_device(&l, r);
		}
		dl_map_fini(&ids);
	}
	if (!f->devices.cnt)
		return err;
	dl_parts_publish(&f->parts, r, st->tl);
	dl_worst_publish(&f->worst, r);
	return err;
}

bool dl_gaps_device(const struct dl_gap_finder *f, size_t i, uint32_t *ret_proc, uint32_t *ret_id, uint64_t *ret_start)
{
	if (i >= f->devices.cnt)
		return false;
	*ret_proc = f->devices.v[i].proc;
	*ret_id = f->devices.v[i].id;
	*ret_start = f->devices.v[i].start;
	return true;
}

bool dl_gaps_missed(const struct dl_gap_finder *f)
{
	return f->missed;
}

int dl_gaps_expect(struct dl_gap_finder *f, const struct dl_gap_finder *earlier)
{
	vec_for_each(&earlier->devices, dev) {
		struct begin *at = vec_push(&f->expected);

		if (!at)
			return -ENOMEM;
		*at = (struct begin){ dev->proc, dev->start };
	}
	return 0;
}

struct dl_gap_finder *dl_gap_finder_new(void)
{
	return calloc(1, sizeof(struct dl_gap_finder));
}

void dl_gap_finder_free(struct dl_gap_finder *f)
{
	if (!f)
		return;
	vec_for_each(&f->devices, dev) {
		vec_free(&dev->busy);
		dl_ledger_fini(&dev->ledger);
	}
	vec_free(&f->devices);
	vec_free(&f->expected);
	dl_parts_fini(&f->parts);
	dl_gaps_free(&f->worst);
	free(f);
}
