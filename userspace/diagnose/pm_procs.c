/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Each process at the death: what memory it held and whether that had grown, how near it was to its limits,
 * how it ended. Growth is that of what it alone holds; the page cache of a mapped file is none.
 */
#include "diagnose/pm_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define POINTS_MAX 96u		/* of a curve: all pairs of them are looked at */
#define POINTS_MIN 6u
#define SPAN_MIN_NS (2 * DL_PM_S)
#define GROWTH_MIN (16u << 20)	/* less may be anything */

struct point { double t, y; };

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double median(double *v, size_t cnt)
{
	qsort(v, cnt, sizeof(*v), by_value);
	return cnt % 2 ? v[cnt / 2] : (v[cnt / 2 - 1] + v[cnt / 2]) / 2;
}

/* The median of all pairs' slopes (Theil, Sen): a fifth of wild points does not move it. -1 no memory. */
static int slope_of(const struct point *pt, size_t cnt, double *ret)
{
	double *slopes = malloc(cnt * (cnt - 1) / 2 * sizeof(*slopes));
	size_t n = 0;

	if (!slopes)
		return -ENOMEM;
	for (size_t i = 0; i < cnt; i++) {
		for (size_t j = i + 1; j < cnt; j++) {
			if (pt[j].t > pt[i].t)
				slopes[n++] = (pt[j].y - pt[i].y) / (pt[j].t - pt[i].t);
		}
	}
	*ret = n ? median(slopes, n) : 0;
	free(slopes);
	return 0;
}

static double part_median(const struct point *pt, size_t from, size_t to)
{
	double v[POINTS_MAX];
	size_t n = 0;

	for (size_t i = from; i < to; i++)
		v[n++] = pt[i].y;
	return n ? median(v, n) : 0;
}

/* It grows on to the end: a process that fills up first and then stays is no leak. */
static bool grows_on(const struct point *pt, size_t cnt)
{
	const size_t third = cnt / 3;
	const double a = part_median(pt, 0, third), b = part_median(pt, third, cnt - third), c = part_median(pt, cnt - third, cnt);

	return b > a && c > b && (c - b) * 4 > b - a;
}

/* What the process alone holds, from when it was ready; thinned out evenly. */
static size_t curve_of(const struct dl_proc *p, uint64_t to, struct point pt[POINTS_MAX])
{
	size_t all = 0, n = 0, step;

	vec_for_each(&p->mem, m)
		all += m->ts <= to && m->ts >= p->ready && m->anon + m->swap + m->file;
	step = all / POINTS_MAX + 1;
	all = 0;
	vec_for_each(&p->mem, m) {
		if (m->ts > to || m->ts < p->ready || !(m->anon + m->swap + m->file) || all++ % step || n >= POINTS_MAX)
			continue;
		pt[n++] = (struct point){ (double)(m->ts - p->mem.v[0].ts) / 1e9, (double)(m->anon + m->swap) };
	}
	return n;
}

/* How often a worker had to wait for indices and got them. */
static uint64_t indices_of(const struct dl_timeline *tl, const struct dl_thread *th, uint32_t trainer, uint64_t to)
{
	uint64_t cnt = 0;

	vec_for_each(&th->waits, w)
		cnt += w->wake_ts && w->wake_ts <= to && dl_is_batch_wait(tl, w) && w->waker != DL_NONE &&
		       tl->threads.v[w->waker].proc == trainer;
	return cnt;
}

/* Batches that a worker has put, or a trainer has taken. A worker that is ahead waits for indices each time, one
 * that is behind wakes its feeder; what the kernel saw more of is nearer. */
static uint64_t batches_of(const struct dl_timeline *tl, const struct dl_proc *p, uint64_t to)
{
	const struct dl_thread *th = p->main == DL_NONE ? NULL : &tl->threads.v[p->main];
	uint64_t cnt = 0, last = 0, asked;

	if (!th)
		return 0;
	if (p->role == DL_ROLE_TRAINER) {
		vec_for_each(&p->handover, h)
			cnt += h->end <= to;
		return cnt;
	}
	if (p->role != DL_ROLE_WORKER)
		return 0;
	vec_for_each(&th->woke, w) {
		if (w->ts > to || tl->threads.v[w->wakee].role != DL_ROLE_FEEDER || tl->threads.v[w->wakee].proc != th->proc)
			continue;
		/* The feeder is woken for the interpreter's lock, too, within the same batch. */
		cnt += w->ts > last + DL_PM_MS;
		last = w->ts;
	}
	asked = indices_of(tl, th, p->trainer, to);
	return asked > cnt ? asked : cnt;
}

static int fill_growth(const struct dl_pmx *x, struct dl_pm_proc *out, const struct dl_proc *p)
{
	struct point pt[POINTS_MAX];
	const size_t cnt = curve_of(p, x->at, pt);
	uint64_t batches, first;
	double span;
	int err;

	if (cnt < POINTS_MIN || pt[cnt - 1].t - pt[0].t < (double)SPAN_MIN_NS / 1e9)
		return 0;
	err = slope_of(pt, cnt, &out->growth_bps);
	if (err)
		return err;
	span = pt[cnt - 1].t - pt[0].t;
	out->has_growth = true;
	out->leaks = out->growth_bps * span > GROWTH_MIN && grows_on(pt, cnt);
	/* Batches of the same time. */
	first = p->mem.v[0].ts;
	batches = batches_of(x->tl, p, first + (uint64_t)(pt[cnt - 1].t * 1e9)) - batches_of(x->tl, p, first + (uint64_t)(pt[0].t * 1e9));
	if (batches)
		out->growth_batch = out->growth_bps * span / (double)batches;
	return 0;
}

static uint64_t total_of(const struct dl_mem *m)
{
	return m->anon + m->shmem + m->swap + m->pgtables;
}

static void fill_mem(const struct dl_pmx *x, struct dl_pm_proc *out, const struct dl_proc *p, bool victim)
{
	const struct dl_mem *m = dl_pm_mem_at(p, x->at);

	if (m) {
		out->anon = m->anon;
		out->file = m->file;
		out->shmem = m->shmem;
		out->swap = m->swap;
		out->pgtables = m->pgtables;
		out->has_mem = true;
		vec_for_each(&p->mem, it) {
			if (it->ts > x->at || !total_of(it))
				continue;
			out->total_first = out->total_first ? out->total_first : total_of(it);
			out->total_peak = total_of(it) > out->total_peak ? total_of(it) : out->total_peak;
		}
	}
	if (!victim || !x->oom)
		return;
	/* The kernel said it exactly. */
	out->anon = x->oom->anon;
	out->file = x->oom->file;
	out->shmem = x->oom->shmem;
	out->swap = x->oom->swap;
	out->pgtables = x->oom->pgtables;
	out->has_mem = true;
	if (out->anon + out->shmem + out->swap + out->pgtables > out->total_peak)
		out->total_peak = out->anon + out->shmem + out->swap + out->pgtables;
}

static int fill_state(struct dl_pm_proc *out, const struct dl_proc *p)
{
	struct dl_str s = {};
	char name[24];

	out->ended = p->exited;
	if (!p->exited) {
		dl_str_add(&s, "alive");
	} else {
		out->status = p->exit_status;
		out->end_ts = p->end;
		if (p->exit_status & 0x7f)
			dl_str_addf(&s, "killed by %s", dl_pm_signal_name(name, p->exit_status & 0x7f));
		else
			dl_str_addf(&s, "exit code %d", p->exit_status >> 8 & 0xff);
	}
	out->state = dl_str_take(&s);
	return out->state ? 0 : -ENOMEM;
}

static int add_proc(struct dl_pmx *x, uint32_t proc)
{
	const struct dl_proc *p = &x->tl->procs.v[proc];
	const struct dl_pm_who who = dl_pm_who_proc(x->tl, proc);
	const struct dl_ev_env_proc *e = dl_pm_limits_at(x, p->pid, x->at);
	struct dl_pm_proc *out = vec_push(&x->pm->procs);
	int err;

	if (!out)
		return -ENOMEM;
	out->who.index = -1;
	err = dl_pm_who_copy(&out->who, &who);
	if (err)
		return err;
	out->batches = batches_of(x->tl, p, x->at);
	fill_mem(x, out, p, proc == x->proc);
	if (e) {
		out->fds = e->fds;
		out->fds_limit = e->fds_limit;
		out->maps = e->maps;
		out->maps_limit = e->maps_limit;
	}
	err = fill_growth(x, out, p);
	return err ? err : fill_state(out, p);
}

/* Those that were there, and the victim; short-lived helpers that ended before are none of them. */
void dl_pm_procs(struct dl_pmx *x)
{
	for (uint32_t i = 0; i < x->tl->procs.cnt; i++) {
		const struct dl_proc *p = &x->tl->procs.v[i];

		if (i == x->proc || (dl_pm_alive(p, x->at) && p->role != DL_ROLE_UNKNOWN))
			DL_PM_DO(x, add_proc(x, i));
	}
}
