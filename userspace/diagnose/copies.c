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

#define BEST_MIN_BYTES (1U << 20)	/* smaller copies say nothing about the link */

struct sizes { uint64_t *v; size_t cnt, cap; };
struct size_lists { struct sizes *v; size_t cnt, cap; };

/* One copy, measured. */
struct measured {
	const struct dl_copy *c;
	uint64_t ns, overlap_ns, cost_ns;
	uint64_t call_ns, cpu_ns, near_ns;
	uint64_t bps;		/* 0: too small to say */
	bool has_call, has_thread;
};

struct work {
	struct dl_report *r;
	const struct dl_timeline *tl;
	const struct dl_proc *p;
	uint32_t device;
	struct dl_spans busy;
	const struct dl_ev_gpu_link *link;	/* NULL unknown */
	uint8_t near_cpus[64];
	bool has_near;
	struct size_lists *row_sizes;		/* of each row of the report */
	struct dl_copy_device side[2];		/* from the device, to the device */
	struct sizes side_sizes[2];
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

static bool is_near(const struct work *w, uint16_t cpu)
{
	return cpu < sizeof(w->near_cpus) * 8 && w->near_cpus[cpu / 8] >> cpu % 8 & 1;
}

/* The thread's time on a CPU in the call, and of that on one near the device. */
static void measure_thread(const struct work *w, struct measured *m, const struct dl_thread *th, uint64_t from,
			   uint64_t to)
{
	uint32_t i = dl_seg_before(th, to);

	m->has_thread = i != DL_NONE;
	for (; i != DL_NONE && to > from; to = th->segs.v[i].start, i = i ? i - 1 : DL_NONE) {
		const struct dl_seg *s = &th->segs.v[i];
		const uint64_t start = s->start > from ? s->start : from;

		if (s->state == DL_ST_UNKNOWN && s->start < to)
			m->has_thread = false;
		if (s->state != DL_ST_RUNNING || start >= to)
			continue;
		m->cpu_ns += to - start;
		if (is_near(w, s->cpu))
			m->near_ns += to - start;
	}
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
		m->call_ns = a->end - a->start;
		if (a->thread != DL_NONE)
			measure_thread(w, m, &w->tl->threads.v[a->thread], a->start, a->end);
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

static struct dl_copy_row *row_of(struct work *w, const struct dl_copy *c)
{
	struct dl_report *r = w->r;
	struct dl_copy_row *row;

	vec_for_each(&r->copies, it) {
		if (it->pid == w->p->pid && it->device == c->device && it->dir == c->dir && it->mem == host_mem(c))
			return it;
	}
	if (!vec_push(w->row_sizes))
		return NULL;
	row = vec_push(&r->copies);
	if (!row)
		return NULL;
	row->pid = w->p->pid;
	row->device = c->device;
	row->dir = c->dir;
	row->mem = host_mem(c);
	return row;
}

static int add_size(struct sizes *s, uint64_t bytes)
{
	uint64_t *at = vec_push(s);

	if (!at)
		return -ENOMEM;
	*at = bytes;
	return 0;
}

static uint64_t median(struct sizes *s)
{
	if (!s->cnt)
		return 0;
	vec_sort(s);
	return s->v[s->cnt / 2];
}

static int add_to_row(struct work *w, const struct measured *m)
{
	struct dl_copy_row *row = row_of(w, m->c);

	if (!row)
		return -ENOMEM;
	row->cnt++;
	row->bytes += m->c->bytes;
	row->ns += m->ns;
	row->small_cnt += m->c->bytes < DL_COPY_SMALL_SZ;
	row->overlap_ns += m->overlap_ns;
	row->call_ns += m->call_ns;
	row->cpu_ns += m->cpu_ns;
	row->called_cnt += m->has_call;
	row->thread_cnt += m->has_thread;
	if (m->bps > row->best_bps)
		row->best_bps = m->bps;
	return add_size(&w->row_sizes->v[row - w->r->copies.v], m->c->bytes);
}

static int add_to_side(struct work *w, const struct measured *m)
{
	struct dl_copy_device *s = &w->side[to_device(m->c->dir)];
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
	s->near_ns += m->near_ns;
	s->has_near |= w->has_near && m->has_thread;
	if (m->bps > s->best_bps)
		s->best_bps = m->bps;
	return add_size(&w->side_sizes[to_device(m->c->dir)], m->c->bytes);
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

/* --- a device ----------------------------------------------------------------------------------- */

static void find_place(struct work *w, struct dl_link *ret)
{
	*ret = (struct dl_link){};
	w->link = dl_link_of(w->tl, w->p->pid, w->device, ret);
	if (!w->link)
		return;
	_Static_assert(sizeof(w->near_cpus) == sizeof(w->link->near_cpus) + sizeof(w->link->near_cpus2), "two halves");
	memcpy(w->near_cpus, &w->link->near_cpus, sizeof(w->link->near_cpus));
	memcpy(w->near_cpus + sizeof(w->link->near_cpus), &w->link->near_cpus2, sizeof(w->link->near_cpus2));
	for (size_t i = 0; i < sizeof(w->near_cpus); i++)
		w->has_near |= w->near_cpus[i] != 0;
}

static int publish(struct work *w, const struct dl_link *link)
{
	const int most = w->side[1].cost_ns >= w->side[0].cost_ns;
	struct dl_copy_device *out, *s = &w->side[most];

	if (!s->cnt)
		return 0;
	out = vec_push(&w->r->copy_devices);
	if (!out)
		return -ENOMEM;
	s->device = w->device;
	s->pid = w->p->pid;
	s->to_device = most;
	s->median_bytes = median(&w->side_sizes[most]);
	vec_for_each(&w->busy, b)
		s->kernel_ns += b->end - b->start;
	s->link = *link;
	s->numa_node = w->link ? w->link->numa_node : -1;
	s->numa_nodes = w->link ? w->link->numa_nodes : 0;
	s->dist_min = w->link ? w->link->dist_min : 0;
	s->dist_max = w->link ? w->link->dist_max : 0;
	s->problem = dl_copy_judge(s, &s->share);
	*out = *s;
	return 0;
}

static int sum_device(struct work *w, const struct dl_diagnose_opts *opts)
{
	struct dl_link link;
	int err;

	find_place(w, &link);
	err = dl_busy_spans(w->p, w->device, DL_KERN_ALL, &w->busy);
	vec_for_each(&w->p->copies, c) {
		struct measured m;

		if (err || c->device != w->device || c->start < opts->from_ts || c->start >= opts->to_ts)
			continue;
		measure(w, c, &m);
		err = add_to_row(w, &m);
		if (!err && (to_device(c->dir) || from_device(c->dir)))
			err = add_to_side(w, &m);
	}
	return err ? err : publish(w, &link);
}

static int sum_proc(struct work *w, const struct dl_diagnose_opts *opts)
{
	struct dl_map done = {};
	int err = 0;

	/* By devices in the order in which they appear: there are few, and no two reports differ. */
	for (size_t i = 0; i < w->p->copies.cnt && !err; i++) {
		struct work one = *w;

		one.device = w->p->copies.v[i].device;
		if (dl_map_get(&done, one.device, NULL))
			continue;
		err = dl_map_set(&done, one.device, 1);
		if (!err)
			err = sum_device(&one, opts);
		vec_free(&one.busy);
		vec_free(&one.side_sizes[0]);
		vec_free(&one.side_sizes[1]);
	}
	dl_map_fini(&done);
	return err;
}

int dl_sum_copies(struct dl_report *r, const struct dl_timeline *tl, const struct dl_diagnose_opts *opts,
		  struct dl_diag *d)
{
	struct size_lists lists = {};
	int err = 0;

	vec_for_each(&tl->procs, p) {
		struct work w = { .r = r, .tl = tl, .p = p, .row_sizes = &lists };

		err = err ? err : sum_proc(&w, opts);
	}
	for (size_t i = 0; i < lists.cnt; i++) {
		if (i < r->copies.cnt)
			r->copies.v[i].median_bytes = median(&lists.v[i]);
		vec_free(&lists.v[i]);
	}
	vec_free(&lists);
	return err ? dl_oom(d) : 0;
}
