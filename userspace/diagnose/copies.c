/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Copies between the host and the devices: how many, from what memory, beside kernels or not, what they
 * cost the thread that asked for them, and which of four things is wrong with them.
 *
 * What a copy costs is the longer of its own time and its call's: a thousand small copies take the device
 * next to nothing, and the thread that makes them everything.
 */
#include "diagnose/copies.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "diagnose/walk.h"

#define BEST_MIN_BYTES (1U << 20)	/* smaller copies say nothing about the link */

/* One copy, measured. */
struct measured {
	const struct dl_copy *c;
	const struct dl_thread *th;	/* that made the call; NULL not known what it did */
	uint64_t ns, overlap_ns, cost_ns;
	uint64_t call_ns, cpu_ns, call_start, call_end;
	uint64_t bps;		/* 0: too small to say */
	bool has_call, has_thread;
};

struct row {
	struct dl_copy_row out;
	size_t device;		/* index of the device that it was made for */
	struct dl_values sizes;
};

struct side {
	struct dl_copy_device out;
	struct dl_values sizes;
	DL_VEC(uint64_t) cpu_ns;	/* by CPU */
	bool has_thread;
};

struct device {
	uint32_t proc, id;
	size_t copies;			/* it is the how-many-th with copies, from 1; 0 there are none */
	struct side side[2];		/* from the device, to the device */
	uint64_t kernel_ns, kernels_end;	/* in which kernels ran, up to when */
};

struct dl_copy_finder {
	DL_VEC(struct device) devices;	/* in order of appearance */
	DL_VEC(struct row) rows;
	size_t with_copies;
};

/* A process in a stage. */
struct work {
	struct dl_copy_finder *f;
	const struct dl_stage *st;
	const struct dl_proc *p;
	uint32_t proc;
	struct dl_spans busy;		/* of the device that was last asked for */
	uint32_t busy_of;
	bool has_busy;
};

/* --- one copy ----------------------------------------------------------------------------------- */

uint64_t dl_overlap_ns(const struct dl_spans *s, uint64_t start, uint64_t end)
{
	size_t i = vec_first_at(s, start);
	uint64_t ns = 0;

	if (i && s->v[i - 1].end > start)
		i--;
	for (; i < s->cnt && s->v[i].start < end; i++) {
		const uint64_t from = s->v[i].start > start ? s->v[i].start : start;
		const uint64_t to = s->v[i].end < end ? s->v[i].end : end;

		ns += to > from ? to - from : 0;
	}
	return ns;
}

static bool in_window(const struct work *w, const struct dl_copy *c)
{
	return c->start >= w->st->opts->from_ts && c->start < w->st->opts->to_ts;
}

/* The thread's time on a CPU in the call; with a side, added to it by CPU. */
static int measure_thread(struct measured *m, const struct dl_thread *th, struct side *side)
{
	uint64_t from = m->call_start, to = m->call_end;
	uint32_t i = dl_seg_before(th, to);

	m->has_thread = i != DL_NONE;
	m->cpu_ns = 0;
	for (; i != DL_NONE && to > from; to = th->segs.v[i].start, i = i ? i - 1 : DL_NONE) {
		const struct dl_seg *s = &th->segs.v[i];
		const uint64_t start = s->start > from ? s->start : from;

		if (s->state == DL_ST_UNKNOWN && s->start < to)
			m->has_thread = false;
		if (s->state != DL_ST_RUNNING || start >= to)
			continue;
		m->cpu_ns += to - start;
		while (side && s->cpu != DL_CPU_NONE && side->cpu_ns.cnt <= s->cpu) {
			if (!vec_push(&side->cpu_ns))
				return -ENOMEM;
		}
		if (side && s->cpu != DL_CPU_NONE)
			side->cpu_ns.v[s->cpu] += to - start;
	}
	return 0;
}

static void measure(const struct work *w, const struct dl_copy *c, struct measured *m)
{
	const uint32_t index = (uint32_t)(c - w->p->copies.v);
	uint32_t api, last;

	*m = (struct measured){ .c = c, .ns = c->end - c->start };
	m->overlap_ns = dl_overlap_ns(&w->busy, c->start, c->end);
	if (c->bytes >= BEST_MIN_BYTES && m->ns)
		m->bps = (uint64_t)((double)c->bytes * 1e9 / (double)m->ns);
	/* A call that made several copies is the last one's alone. */
	if (c->corr && dl_dense_get(&w->p->api_by_corr, c->corr, &api) &&
	    dl_dense_get(&w->p->copy_by_corr, c->corr, &last) && last == index) {
		const struct dl_api *a = &w->p->apis.v[api];

		m->has_call = true;
		m->call_start = a->start;
		m->call_end = a->end;
		m->call_ns = a->end - a->start;
		m->th = a->thread == DL_NONE ? NULL : &w->st->tl->threads.v[a->thread];
		if (m->th)
			measure_thread(m, m->th, NULL);
	}
	m->cost_ns = m->call_ns > m->ns ? m->call_ns : m->ns;
}

/* --- rows and devices --------------------------------------------------------------------------- */

static bool to_device(uint32_t dir)
{
	return dir == DL_GPU_HTOD || dir == DL_GPU_HTOA;
}

static bool from_device(uint32_t dir)
{
	return dir == DL_GPU_DTOH || dir == DL_GPU_ATOH;
}

static uint32_t host_mem(const struct dl_copy *c)
{
	return to_device(c->dir) ? c->src : c->dst;
}

static struct row *row_of(struct work *w, const struct dl_copy *c, size_t device)
{
	struct row *row;

	vec_for_each(&w->f->rows, it) {
		if (it->out.pid == w->p->pid && it->out.device == c->device && it->out.dir == c->dir && it->out.mem == host_mem(c))
			return it;
	}
	row = vec_push(&w->f->rows);
	if (!row)
		return NULL;
	row->device = device;
	row->out.pid = w->p->pid;
	row->out.device = c->device;
	row->out.dir = c->dir;
	row->out.mem = host_mem(c);
	return row;
}

static int add_to_row(struct work *w, const struct measured *m, size_t device)
{
	struct row *row = row_of(w, m->c, device);
	struct dl_copy_row *out;

	if (!row)
		return -ENOMEM;
	out = &row->out;
	out->cnt++;
	out->bytes += m->c->bytes;
	out->ns += m->ns;
	out->small_cnt += m->c->bytes < DL_COPY_SMALL_SZ;
	out->overlap_ns += m->overlap_ns;
	out->call_ns += m->call_ns;
	out->cpu_ns += m->cpu_ns;
	out->called_cnt += m->has_call;
	out->thread_cnt += m->has_thread;
	if (m->bps > out->best_bps)
		out->best_bps = m->bps;
	return dl_values_add(&row->sizes, m->c->bytes);
}

static int add_to_side(struct side *side, struct measured *m)
{
	struct dl_copy_device *s = &side->out;
	const uint32_t mem = host_mem(m->c);

	s->cnt++;
	s->bytes += m->c->bytes;
	s->ns += m->ns;
	s->overlap_ns += m->overlap_ns;
	s->cost_ns += m->cost_ns;
	s->small_ns += m->c->bytes < DL_COPY_SMALL_SZ ? m->cost_ns : 0;
	s->pageable_ns += mem == DL_GPU_MEM_PAGEABLE ? m->cost_ns : 0;
	s->unknown_ns += mem == DL_GPU_MEM_UNKNOWN ? m->cost_ns : 0;
	s->cpu_ns += m->cpu_ns;
	side->has_thread |= m->has_thread;
	if (m->bps > s->best_bps)
		s->best_bps = m->bps;
	if (m->th && measure_thread(m, m->th, side))
		return -ENOMEM;
	return dl_values_add(&side->sizes, m->c->bytes);
}

/* --- what is wrong ------------------------------------------------------------------------------ */

static double ratio(uint64_t part, uint64_t whole)
{
	return whole ? (double)part / (double)whole : 0;
}

static double small_share(const struct dl_copy_device *c)
{
	return ratio(c->small_ns, c->cost_ns);
}

static double pageable_share(const struct dl_copy_device *c)
{
	return ratio(c->pageable_ns, c->cost_ns);
}

/* No more than all of the copies can lie beside kernels, and no more than all of the kernels beside copies. */
static double overlap_missing(const struct dl_copy_device *c)
{
	const uint64_t could = c->ns < c->kernel_ns ? c->ns : c->kernel_ns;

	return could && c->overlap_ns < could ? 1 - ratio(c->overlap_ns, could) : 0;
}

static double always(const struct dl_copy_device *c)
{
	(void)c;
	return 1;
}

/* The first that applies. Small copies come before pageable ones, since pinned memory does not help them;
 * these before missing overlap, since a pageable copy cannot overlap; and what is left is the link. */
static const struct {
	enum dl_copy_problem problem;
	double (*share)(const struct dl_copy_device *c);
	double least;
} rules[] = {
	{ DL_COPY_TOO_SMALL, small_share, DL_COPY_SMALL_SHARE },
	{ DL_COPY_PAGEABLE, pageable_share, DL_COPY_PAGEABLE_SHARE },
	{ DL_COPY_NOT_OVERLAPPED, overlap_missing, DL_COPY_OVERLAP_MISSING },
	{ DL_COPY_LINK, always, 0 },
};

enum dl_copy_problem dl_copy_judge(const struct dl_copy_device *c, double *ret_share)
{
	*ret_share = 0;
	for (size_t i = 0; c->cnt && i < sizeof(rules) / sizeof(rules[0]); i++) {
		const double share = rules[i].share(c);

		if (share >= rules[i].least) {
			*ret_share = share;
			return rules[i].problem;
		}
	}
	return DL_COPY_NONE;
}

/* --- stages ------------------------------------------------------------------------------------- */

static struct device *device_of(struct dl_copy_finder *f, uint32_t proc, uint32_t id)
{
	struct device *dev;

	vec_for_each(&f->devices, it) {
		if (it->proc == proc && it->id == id)
			return it;
	}
	dev = vec_push(&f->devices);
	if (!dev)
		return NULL;
	dev->proc = proc;
	dev->id = id;
	return dev;
}

static int take_kernels(struct work *w)
{
	for (size_t i = vec_first_at(&w->p->kernels, w->st->after + 1); i < w->p->kernels.cnt; i++) {
		const struct dl_kern *k = &w->p->kernels.v[i];
		uint64_t start = k->start, end;
		struct device *dev;

		if (!w->st->last && k->start > w->st->until)
			break;
		dev = device_of(w->f, w->proc, k->device);
		if (!dev)
			return -ENOMEM;
		start = start > dev->kernels_end ? start : dev->kernels_end;
		start = start > w->st->opts->from_ts ? start : w->st->opts->from_ts;
		end = k->end < w->st->opts->to_ts ? k->end : w->st->opts->to_ts;
		if (end > start) {
			dev->kernel_ns += end - start;
			dev->kernels_end = end;
		}
	}
	return 0;
}

static int take_copy(struct work *w, const struct dl_copy *c)
{
	struct device *dev = device_of(w->f, w->proc, c->device);
	struct measured m;
	int err = 0;

	if (!dev)
		return -ENOMEM;
	if (!dev->copies)
		dev->copies = ++w->f->with_copies;
	if (!in_window(w, c))
		return 0;
	if (!w->has_busy || w->busy_of != c->device) {
		vec_free(&w->busy);
		err = dl_busy_spans(w->p, c->device, DL_KERN_ALL, &w->busy);
		w->has_busy = true;
		w->busy_of = c->device;
	}
	if (err)
		return err;
	measure(w, c, &m);
	err = add_to_row(w, &m, (size_t)(dev - w->f->devices.v));
	if (!err && (to_device(c->dir) || from_device(c->dir)))
		err = add_to_side(&dev->side[to_device(c->dir)], &m);
	return err;
}

/* By device, as they appear: what runs beside the copies of one is looked up once. */
static int take_copies(struct work *w, size_t first, size_t end)
{
	struct dl_map done = {};
	int err = 0;

	for (size_t i = first; i < end && !err; i++) {
		const uint32_t device = w->p->copies.v[i].device;

		if (dl_map_get(&done, device, NULL))
			continue;
		err = dl_map_set(&done, device, 1);
		for (size_t k = i; k < end && !err; k++) {
			if (w->p->copies.v[k].device == device)
				err = take_copy(w, &w->p->copies.v[k]);
		}
	}
	dl_map_fini(&done);
	return err;
}

static int take_proc(struct dl_copy_finder *f, const struct dl_stage *st, uint32_t proc)
{
	struct work w = { .f = f, .st = st, .p = &st->tl->procs.v[proc], .proc = proc };
	size_t first = vec_first_at(&w.p->copies, st->after + 1);
	size_t end = st->last ? w.p->copies.cnt : vec_first_at(&w.p->copies, st->until + 1);
	int err = take_copies(&w, first, end);

	vec_free(&w.busy);
	return err ? err : take_kernels(&w);
}

int dl_copies_take(struct dl_copy_finder *f, const struct dl_stage *st)
{
	int err = 0;

	for (uint32_t i = 0; i < st->tl->procs.cnt && !err; i++)
		err = take_proc(f, st, i);
	return err;
}

/* --- the report --------------------------------------------------------------------------------- */

static uint64_t median(struct dl_values *s)
{
	return s->cnt ? dl_values_at(s, s->cnt / 2) : 0;
}

static void find_near(struct dl_copy_device *s, const struct side *side, const struct dl_ev_gpu_link *link)
{
	uint8_t near[64] = {};
	bool known = false;

	if (link) {
		_Static_assert(sizeof(near) == sizeof(link->near_cpus) + sizeof(link->near_cpus2), "two halves");
		memcpy(near, &link->near_cpus, sizeof(link->near_cpus));
		memcpy(near + sizeof(link->near_cpus), &link->near_cpus2, sizeof(link->near_cpus2));
	}
	for (size_t i = 0; i < sizeof(near); i++)
		known |= near[i] != 0;
	s->has_near = known && side->has_thread;
	for (size_t cpu = 0; cpu < side->cpu_ns.cnt && cpu < sizeof(near) * 8; cpu++)
		s->near_ns += near[cpu / 8] >> cpu % 8 & 1 ? side->cpu_ns.v[cpu] : 0;
}

static int publish_device(struct device *dev, struct dl_report *r, const struct dl_timeline *tl)
{
	struct side *side = &dev->side[dev->side[1].out.cost_ns >= dev->side[0].out.cost_ns];
	uint32_t pid = tl->procs.v[dev->proc].pid;
	struct dl_copy_device *out, *s = &side->out;
	const struct dl_ev_gpu_link *link = dl_link_of(tl, pid, dev->id, &s->link);

	if (!s->cnt)
		return 0;
	out = vec_push(&r->copy_devices);
	if (!out)
		return -ENOMEM;
	s->device = dev->id;
	s->pid = pid;
	s->to_device = side == &dev->side[1];
	s->median_bytes = median(&side->sizes);
	s->kernel_ns = dev->kernel_ns;
	find_near(s, side, link);
	s->numa_node = link ? link->numa_node : -1;
	s->numa_nodes = link ? link->numa_nodes : 0;
	s->dist_min = link ? link->dist_min : 0;
	s->dist_max = link ? link->dist_max : 0;
	s->problem = dl_copy_judge(s, &s->share);
	*out = *s;
	return 0;
}

static int publish_rows(struct dl_copy_finder *f, struct dl_report *r, size_t device)
{
	vec_for_each(&f->rows, row) {
		struct dl_copy_row *out;

		if (row->device != device)
			continue;
		out = vec_push(&r->copies);
		if (!out)
			return -ENOMEM;
		*out = row->out;
		out->median_bytes = median(&row->sizes);
	}
	return 0;
}

static int publish_proc(struct dl_copy_finder *f, struct dl_report *r, const struct dl_timeline *tl, uint32_t proc)
{
	int err = 0;

	for (size_t nth = 1; nth <= f->with_copies; nth++) {
		for (size_t k = 0; k < f->devices.cnt && !err; k++) {
			struct device *dev = &f->devices.v[k];

			if (dev->proc != proc || dev->copies != nth)
				continue;
			err = publish_rows(f, r, k);
			err = err ? err : publish_device(dev, r, tl);
		}
	}
	return err;
}

int dl_copies_publish(struct dl_copy_finder *f, struct dl_report *r, const struct dl_timeline *tl)
{
	int err = 0;

	for (uint32_t i = 0; i < tl->procs.cnt && !err; i++)
		err = publish_proc(f, r, tl, i);
	return err;
}

struct dl_copy_finder *dl_copy_finder_new(void)
{
	return calloc(1, sizeof(struct dl_copy_finder));
}

void dl_copy_finder_free(struct dl_copy_finder *f)
{
	if (!f)
		return;
	vec_for_each(&f->devices, dev) {
		for (int i = 0; i < 2; i++) {
			dl_values_fini(&dev->side[i].sizes);
			vec_free(&dev->side[i].cpu_ns);
		}
	}
	vec_for_each(&f->rows, row)
		dl_values_fini(&row->sizes);
	vec_free(&f->devices);
	vec_free(&f->rows);
	free(f);
}
