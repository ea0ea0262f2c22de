/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What the recorder had read of the machine, the groups and the processes around an instant. */
#include "diagnose/pm_int.h"

#include <string.h>

#include "trace/schema.h"

#define MOMENT_NS (200 * DL_PM_MS)	/* the recorder looks again when it hears of a death */

/* How full what it tells of is. */
static uint64_t fill_of(const struct dl_hdr *ev)
{
	const struct dl_ev_env_shm *s = (const void *)ev;
	const struct dl_ev_env_proc *p = (const void *)ev;
	const struct dl_ev_env_host *h = (const void *)ev;

	switch (ev->kind) {
	case DL_EV_ENV_SHM:
		return s->used;
	case DL_EV_ENV_PROC:
		return p->fds + p->maps;
	case DL_EV_ENV_HOST:
		return h->mem_total - h->mem_avail;
	}
	return 0;
}

/* The last of the kind before ts, or the one of the moment behind it where that is fuller: a death frees what
 * it held, and soon. Else the first behind it. */
static const struct dl_hdr *env_at(const struct dl_pmx *x, uint64_t ts, uint16_t kind, uint32_t pid)
{
	const struct dl_hdr *before = NULL;

	vec_for_each(&x->tl->env, k) {
		if (k->ev->kind != kind || (pid && k->ev->pid != pid))
			continue;
		if (k->ts <= ts)
			before = k->ev;
		else if (!before || (k->ts <= ts + MOMENT_NS && fill_of(k->ev) > fill_of(before)))
			return k->ev;
		else if (k->ts > ts + MOMENT_NS)
			break;
	}
	return before;
}

/* The process that stands for all of a /dev/shm can change: a pid says nothing. With several of them the one
 * that is of the size of the full one, else the fullest. */
const struct dl_ev_env_shm *dl_pm_shm_at(const struct dl_pmx *x, uint64_t ts)
{
	const struct dl_ev_env_shm *last = (const void *)env_at(x, ts, DL_EV_ENV_SHM, 0), *best = last;

	if (!last || !x->bus || !x->bus->fs_total || last->total == x->bus->fs_total)
		return last;
	vec_for_each(&x->tl->env, k) {
		const struct dl_ev_env_shm *s = (const void *)k->ev;

		if (k->ev->kind == DL_EV_ENV_SHM && s->total == x->bus->fs_total && k->ts <= ts)
			best = s;
	}
	return best;
}

const struct dl_ev_env_proc *dl_pm_limits_at(const struct dl_pmx *x, uint32_t pid, uint64_t ts)
{
	return (const void *)env_at(x, ts, DL_EV_ENV_PROC, pid);
}

const struct dl_ev_env_host *dl_pm_host_at(const struct dl_pmx *x, uint64_t ts)
{
	return (const void *)env_at(x, ts, DL_EV_ENV_HOST, 0);
}

static bool same_group(const struct dl_ev_env_cgroup *a, const struct dl_ev_env_cgroup *b)
{
	size_t la, lb;
	const char *ta = dl_event_tail(&a->h, &la), *tb = dl_event_tail(&b->h, &lb);

	return la == lb && (!la || !memcmp(ta, tb, la)) && a->version == b->version;
}

/* The kernel tells the group's last name, or its path. */
static bool is_named(const struct dl_ev_env_cgroup *g, const struct dl_ev_oom_kill *oom)
{
	size_t lg, lo;
	const char *path = dl_event_tail(&g->h, &lg), *name = dl_event_tail(&oom->h, &lo);

	while (lo && *name == '/') {
		name++;
		lo--;
	}
	return lo && lg >= lo && !memcmp(path + lg - lo, name, lo) && (lg == lo || path[lg - lo - 1] == '/');
}

/* How well a level fits: its name, its limit, how near it is to it; 0 not at all. */
static double fitness(const struct dl_ev_env_cgroup *g, const struct dl_ev_oom_kill *oom)
{
	double fill = g->mem_limit ? (double)g->mem_usage / (double)g->mem_limit : 0;

	if (!oom || !(oom->flags & DL_OOM_MEMCG))
		return fill;
	return (is_named(g, oom) ? 8 : 0) + (oom->limit && g->mem_limit == oom->limit ? 4 : 0) + (fill > 1 ? 1 : fill);
}

const struct dl_ev_env_cgroup *dl_pm_cgroup_at(const struct dl_pmx *x, uint64_t ts, const struct dl_ev_oom_kill *oom)
{
	const struct dl_ev_env_cgroup *best = NULL;

	vec_for_each(&x->tl->env, k) {
		const struct dl_ev_env_cgroup *g = (const void *)k->ev;

		if (k->ev->kind != DL_EV_ENV_CGROUP || (!g->mem_usage && !g->mem_limit))
			continue;
		if (k->ts > ts && best && (k->ts > ts + MOMENT_NS || !same_group(best, g) || g->mem_usage <= best->mem_usage))
			continue;
		if (!best || same_group(best, g) || fitness(g, oom) > fitness(best, oom))
			best = g;
	}
	return best;
}

/* Each level counts its own: the difference of the one that counted most. */
uint64_t dl_pm_cgroup_kills(const struct dl_pmx *x, uint64_t ts)
{
	uint64_t most = 0;

	for (size_t i = 0; i < x->tl->env.cnt; i++) {
		const struct dl_ev_env_cgroup *a = (const void *)x->tl->env.v[i].ev, *b;

		if (a->h.kind != DL_EV_ENV_CGROUP || a->h.ts > ts || a->h.ts + 5 * DL_PM_S < ts)
			continue;
		for (size_t j = i + 1; j < x->tl->env.cnt && x->tl->env.v[j].ts < ts + 5 * DL_PM_S; j++) {
			b = (const void *)x->tl->env.v[j].ev;
			if (b->h.kind == DL_EV_ENV_CGROUP && b->h.ts > ts && same_group(a, b) && b->oom_kills > a->oom_kills &&
			    b->oom_kills - a->oom_kills > most)
				most = b->oom_kills - a->oom_kills;
		}
	}
	return most;
}

const struct dl_mem *dl_pm_mem_at(const struct dl_proc *p, uint64_t ts)
{
	const struct dl_mem *last = NULL;

	vec_for_each(&p->mem, m) {
		/* What is read while it ends is not what it held. */
		if (m->ts > ts && last)
			break;
		if (m->anon + m->file + m->shmem + m->swap)
			last = m;
	}
	return last;
}
