/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What is read from time to time, for as long as a recording takes, is thinned out where it has become long
 * ago: every second look is forgotten, again and again. The first and the last ones stay, and all that was
 * seen around a signal, a failure or an end.
 */
#include "timeline/threads.h"

#include <errno.h>
#include <stdlib.h>

#include "base/map.h"

#define LOOKS_MAX 16384		/* before any are forgotten */
#define MEM_MAX 4096		/* of each process */
#define NEAR_NS 10000000000ULL	/* around what may be a crash, and before the newest event */

/* Was there a signal, a failure, an end at about that time? */
static bool near_crash(const struct dl_timeline *tl, uint64_t ts)
{
	size_t i = vec_first_at(&tl->crash, ts > NEAR_NS ? ts - NEAR_NS : 0);

	for (; i < tl->crash.cnt && tl->crash.v[i].ts <= ts + NEAR_NS; i++) {
		if (tl->crash.v[i].ev->kind != DL_EV_MARK)
			return true;
	}
	return false;
}

/* Looks at one thing have one key. */
static uint64_t thing_of(const struct dl_hdr *ev)
{
	uint64_t key = (uint64_t)ev->kind << 56;

	if (ev->kind == DL_EV_ENV_CGROUP)
		return key | ((const struct dl_ev_env_cgroup *)ev)->level;
	if (ev->kind == DL_EV_GPU_SAMPLE)
		return key | ((const struct dl_ev_gpu_sample *)ev)->index;
	return ev->kind == DL_EV_ENV_HOST ? key : key | ev->pid;
}

static bool is_look(const struct dl_hdr *ev)
{
	return ev->kind == DL_EV_ENV_HOST || ev->kind == DL_EV_ENV_CGROUP || ev->kind == DL_EV_ENV_SHM ||
	       ev->kind == DL_EV_ENV_PROC || ev->kind == DL_EV_GPU_SAMPLE;
}

/* The peaks of a device's memory are not forgotten. */
static bool is_more(const struct dl_hdr *a, const struct dl_hdr *b)
{
	const struct dl_ev_gpu_sample *x = (const void *)a, *y = (const void *)b;

	return a->kind == DL_EV_GPU_SAMPLE && x->mem_used > y->mem_used;
}

static int thin_looks(const struct dl_timeline *tl, struct dl_kept_vec *kept)
{
	const size_t half = kept->cnt / 2;
	struct dl_map before = {};	/* of each thing: place of one that has no partner yet, from 1; 0 none */
	size_t cnt = 0;
	int err = 0;

	for (size_t i = 0; i < kept->cnt && !err; i++) {
		struct dl_kept k = kept->v[i];
		uint64_t *at = NULL;

		if (i < half && is_look(k.ev) && !near_crash(tl, k.ts) && k.ts + NEAR_NS < tl->end) {
			at = dl_map_at(&before, thing_of(k.ev));
			err = at ? 0 : -ENOMEM;
		}
		if (at && *at) {
			struct dl_kept *partner = &kept->v[*at - 1];
			bool more = is_more(k.ev, partner->ev);

			free(more ? partner->ev : k.ev);
			*partner = more ? k : *partner;
			*at = 0;
			continue;
		}
		kept->v[cnt++] = k;
		if (at)
			*at = cnt;
	}
	if (!err)
		kept->cnt = cnt;
	dl_map_fini(&before);
	return err;
}

/* Only the first and the last of each process are asked for. */
static int thin_clocks(struct dl_kept_vec *clocks)
{
	struct dl_map last = {};	/* place of a process's newest, from 1; with the top bit the first, too */
	const uint64_t first = 1ULL << 63;
	size_t cnt = 0;
	int err = 0;

	for (size_t i = 0; i < clocks->cnt && !err; i++) {
		struct dl_kept k = clocks->v[i];
		uint64_t *at = dl_map_at(&last, k.ev->pid);

		if (!at) {
			err = -ENOMEM;
		} else if (!*at || *at & first) {
			clocks->v[cnt++] = k;
			*at = cnt | (*at ? 0 : first);
		} else {
			free(clocks->v[*at - 1].ev);
			clocks->v[*at - 1] = k;
		}
	}
	if (!err)
		clocks->cnt = cnt;
	dl_map_fini(&last);
	return err;
}

static void thin_mem(struct dl_proc *p)
{
	const size_t half = p->mem.cnt / 2;
	size_t cnt = 0;

	for (size_t i = 0; i < p->mem.cnt; i++) {
		if (!i || i >= half || i % 2)
			p->mem.v[cnt++] = p->mem.v[i];
	}
	p->mem.cnt = cnt;
}

int dl_tl_thin(struct dl_timeline *tl)
{
	int err = thin_clocks(&tl->clocks);

	if (!err && tl->env.cnt > LOOKS_MAX)
		err = thin_looks(tl, &tl->env);
	if (!err && tl->gpu_looks.cnt > LOOKS_MAX)
		err = thin_looks(tl, &tl->gpu_looks);
	vec_for_each(&tl->procs, p) {
		if (p->mem.cnt > MEM_MAX)
			thin_mem(p);
	}
	return err;
}
