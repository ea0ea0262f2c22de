/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Roles from behaviour: a worker has PyTorch's four signal handlers, or is a forked child that
 * writes to its parent; the sharer blocks all signals; the feeder writes the result pipe. Names
 * are hints only: older PyTorch names no threads, newer gives three of them the same name.
 */
#include "timeline/roles.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <dlbpf/gpu_ring.h>

#include "timeline/past.h"
#include "timeline/timeline.h"

#define WRITES_MIN 2	/* of a forked child to its parent */

static bool name_is(const struct dl_timeline *tl, const struct dl_proc *p, const char *prefix)
{
	return p->main != DL_NONE && !strncmp(tl->threads.v[p->main].name, prefix, strlen(prefix));
}

static bool cmdline_has(const struct dl_proc *p, const char *text)
{
	return p->cmdline && strstr(p->cmdline, text);
}

/* --- the interpreter's lock --- */

/* The second wait of this kind at an address tells. */
static int count_gil(struct dl_timeline *tl, uint32_t proc, uint64_t addr, struct dl_map *seen)
{
	struct dl_proc *p = &tl->procs.v[proc];
	uint64_t key = dl_hash64((uint64_t)proc << 48 ^ addr >> 8), cnt = 0;

	if (p->gil_addr)
		return 0;
	dl_map_get(seen, key, &cnt);
	if (++cnt >= 2)
		p->gil_addr = addr;
	return dl_map_set(seen, key, cnt);
}

static int find_gil(struct dl_timeline *tl)
{
	struct dl_map seen = {};	/* process << 48 | address in units of 256 bytes -> count */
	int err = 0;

	for (size_t t = 0; t < tl->threads.cnt && !err; t++) {
		const struct dl_thread *th = &tl->threads.v[t];

		if (th->proc == DL_NONE)
			continue;
		for (size_t i = 0; th->past && i < th->past->gil_words.cnt && !err; i++)
			err = count_gil(tl, th->proc, th->past->gil_words.v[i], &seen);
		vec_for_each(&th->segs, s) {
			const struct dl_wait *w = dl_seg_wait(th, s);

			if (tl->procs.v[th->proc].gil_addr)
				break;
			if (!err && w && dl_looks_like_gil(tl, w, s->start))
				err = count_gil(tl, th->proc, w->arg0, &seen);
		}
	}
	dl_map_fini(&seen);
	/* A forked child has the same addresses as its parent. */
	for (int pass = 0; pass < 2 && !err; pass++) {
		vec_for_each(&tl->procs, p) {
			if (!p->gil_addr && !p->execed && p->forked && p->parent != DL_NONE)
				p->gil_addr = tl->procs.v[p->parent].gil_addr;
		}
	}
	return err;
}

/* --- processes --- */

static bool has_gpu(const struct dl_proc *p)
{
	return p->kernel_cnt || p->copy_cnt || p->api_cnt;
}

/* How often threads of one process woke threads of another by writing, as far as it matters. */
static size_t writes_to(const struct dl_timeline *tl, uint32_t from, uint32_t to)
{
	uint64_t thread, times;
	size_t cnt = 0, pos;

	vec_for_each(&tl->procs.v[from].threads, idx) {
		const struct dl_thread *th = &tl->threads.v[*idx];

		for (pos = 0; th->past && dl_map_next(&th->past->habits.wrote, &pos, &thread, &times);)
			cnt += tl->threads.v[thread].proc == to ? times : 0;
		for (size_t i = dl_first_woke(tl, th); i < th->woke.cnt && cnt < WRITES_MIN; i++) {
			const struct dl_woke *w = &th->woke.v[i];

			cnt += tl->threads.v[w->wakee].proc == to && dl_sys_class(tl->machine, w->syscall) == DL_SYS_WRITE;
		}
		if (cnt >= WRITES_MIN)
			break;
	}
	return cnt;
}

static bool is_worker(const struct dl_timeline *tl, uint32_t i)
{
	const struct dl_proc *p = &tl->procs.v[i];

	if (p->parent == DL_NONE || tl->procs.v[p->parent].role == DL_ROLE_WORKER || has_gpu(p))
		return false;
	if (p->quartet)
		return true;
	if (cmdline_has(p, "resource_tracker") || name_is(tl, p, "torch_shm_manag"))
		return false;
	if (cmdline_has(p, "--multiprocessing-fork"))
		return true;
	return p->forked && !p->execed && writes_to(tl, i, p->parent) >= WRITES_MIN;
}

static enum dl_role helper_role(const struct dl_timeline *tl, const struct dl_proc *p)
{
	if (cmdline_has(p, "resource_tracker"))
		return DL_ROLE_TRACKER;
	if (cmdline_has(p, "multiprocessing.forkserver"))
		return DL_ROLE_FORKSERVER;
	if (name_is(tl, p, "torch_shm_manag"))
		return DL_ROLE_SHM_MANAGER;
	if (p->parent != DL_NONE && (tl->procs.v[p->parent].role == DL_ROLE_WORKER ||
				     tl->procs.v[p->parent].role == DL_ROLE_WORKER_CHILD))
		return DL_ROLE_WORKER_CHILD;
	return DL_ROLE_HELPER;
}

static uint32_t parent_of_role(const struct dl_timeline *tl, uint32_t i, enum dl_role role)
{
	for (int depth = 0; i != DL_NONE && depth < 32; depth++, i = tl->procs.v[i].parent) {
		if (tl->procs.v[i].role == role)
			return i;
	}
	return DL_NONE;
}

/* The process whose loader made this worker: its parent, or behind a forkserver the one above. */
static uint32_t worker_owner(const struct dl_timeline *tl, uint32_t i)
{
	uint32_t up = tl->procs.v[i].parent;

	if (up != DL_NONE && tl->procs.v[up].role == DL_ROLE_FORKSERVER && tl->procs.v[up].parent != DL_NONE)
		up = tl->procs.v[up].parent;
	return up;
}

static void find_trainers(struct dl_timeline *tl)
{
	bool any = false;
	uint32_t i;

	for (i = 0; i < tl->procs.cnt; i++) {
		uint32_t owner = tl->procs.v[i].role == DL_ROLE_WORKER ? worker_owner(tl, i) : DL_NONE;

		if (has_gpu(&tl->procs.v[i]))
			owner = i;
		if (owner == DL_NONE)
			continue;
		tl->procs.v[owner].role = DL_ROLE_TRAINER;
		any = true;
	}
	for (i = 0; i < tl->procs.cnt && !any; i++) {
		if (!tl->procs.v[i].root)
			continue;
		tl->procs.v[i].role = DL_ROLE_TRAINER;
		any = true;
	}
	if (!any && tl->procs.cnt)
		tl->procs.v[0].role = DL_ROLE_TRAINER;
}

static void find_launchers(struct dl_timeline *tl)
{
	for (uint32_t i = 0; i < tl->procs.cnt; i++) {
		uint32_t up = tl->procs.v[i].parent;

		if (tl->procs.v[i].role != DL_ROLE_TRAINER)
			continue;
		for (int depth = 0; up != DL_NONE && depth < 32; depth++, up = tl->procs.v[up].parent) {
			if (tl->procs.v[up].role == DL_ROLE_UNKNOWN)
				tl->procs.v[up].role = DL_ROLE_LAUNCHER;
		}
	}
}

static void find_process_roles(struct dl_timeline *tl)
{
	int32_t rank = 0, trainers = 0;

	vec_for_each(&tl->procs, p) {
		if (p->parent == DL_NONE && dl_map_get(&tl->pids, p->ppid, NULL)) {
			uint64_t up = 0;

			dl_map_get(&tl->pids, p->ppid, &up);
			if (&tl->procs.v[up] != p)
				p->parent = (uint32_t)up;
		}
		if (cmdline_has(p, "multiprocessing.forkserver") && !p->quartet && p->execed)
			p->role = DL_ROLE_FORKSERVER;
	}
	for (uint32_t i = 0; i < tl->procs.cnt; i++) {
		if (is_worker(tl, i))
			tl->procs.v[i].role = DL_ROLE_WORKER;
	}
	find_trainers(tl);
	find_launchers(tl);
	vec_for_each(&tl->procs, p)
		trainers += p->role == DL_ROLE_TRAINER;
	for (uint32_t i = 0; i < tl->procs.cnt; i++) {
		struct dl_proc *p = &tl->procs.v[i];

		if (p->role == DL_ROLE_UNKNOWN)
			p->role = helper_role(tl, p);
		if (p->role == DL_ROLE_TRAINER && trainers > 1)
			p->rank = rank++;
		p->trainer = parent_of_role(tl, i, DL_ROLE_TRAINER);
	}
}

/* --- loaders --- */

/* The pipe that the trainer waits at when this worker's write wakes it. */
static void take_pipe(struct dl_timeline *tl, uint32_t thread, uint64_t ino)
{
	uint32_t proc = thread == DL_NONE ? DL_NONE : tl->threads.v[thread].proc;
	struct dl_proc *from = proc == DL_NONE ? NULL : &tl->procs.v[proc];

	if (from && from->role == DL_ROLE_WORKER && !from->result_ino)
		from->result_ino = ino;
}

static void find_result_pipes(struct dl_timeline *tl)
{
	vec_for_each(&tl->threads, th) {
		if (th->proc == DL_NONE || tl->procs.v[th->proc].role != DL_ROLE_TRAINER)
			continue;
		for (size_t i = 0; th->past && i < th->past->pipes.cnt; i++)
			take_pipe(tl, th->past->pipes.v[i].from, th->past->pipes.v[i].ino);
		vec_for_each(&th->waits, w)
			take_pipe(tl, dl_pipe_writer(tl, w), w->file_ino);
	}
}

struct group {
	uint32_t trainer;
	uint64_t ino, start, end, last_fork;
	uint32_t cnt, loader, id, generation;
};

/* A birth by the main thread of a trainer. */
struct birth { uint64_t start; uint32_t trainer; };
struct births { struct birth *v; size_t cnt, cap; };

struct groups {
	struct group *v;
	size_t cnt, cap;
	struct births threads;	/* by start */
	struct dl_map by_pipe;	/* trainer and inode -> index */
	DL_VEC(size_t) no_pipe;	/* those whose pipe is not known, or was not when they were made */
};

static int add_birth(struct births *b, uint64_t start, uint32_t trainer)
{
	struct birth *at = vec_push(b);

	if (!at)
		return -ENOMEM;
	*at = (struct birth){ start, trainer };
	return 0;
}

static int find_thread_births(const struct dl_timeline *tl, struct births *b)
{
	vec_for_each(&tl->threads, th) {
		if (th->proc != DL_NONE && th->start && th->creator == tl->procs.v[th->proc].main &&
		    add_birth(b, th->start, th->proc))
			return -ENOMEM;
	}
	vec_sort(b);
	return 0;
}

/* Was there one between two instants? */
static bool birth_between(const struct births *b, uint32_t trainer, uint64_t from, uint64_t to)
{
	for (size_t i = vec_first_at(b, from + 1); i < b->cnt && b->v[i].start < to; i++) {
		if (b->v[i].trainer == trainer)
			return true;
	}
	return false;
}

static uint64_t pipe_key(uint32_t trainer, uint64_t ino)
{
	return dl_hash64(ino) ^ trainer;
}

#define FORK_GAP_NS 1000000000ULL	/* workers of one loader are made in a row */

/* The group a worker belongs to: that of its result pipe, or that of the fork before it. A loader makes all of
 * its workers, then the threads that feed them (_reset, _try_put_index, in every PyTorch): a thread that is born
 * between two forks ends a row of them. */
static struct group *group_of(struct groups *groups, const struct dl_proc *p)
{
	uint64_t idx;

	if (p->result_ino && dl_map_get(&groups->by_pipe, pipe_key(p->trainer, p->result_ino), &idx))
		return &groups->v[idx];
	for (size_t i = p->result_ino ? groups->no_pipe.cnt : groups->cnt; i-- > 0;) {
		struct group *g = &groups->v[p->result_ino ? groups->no_pipe.v[i] : i];

		if (g->trainer == p->trainer && (!p->result_ino || !g->ino) && p->start - g->last_fork < FORK_GAP_NS &&
		    !birth_between(&groups->threads, p->trainer, g->last_fork, p->start))
			return g;
	}
	return NULL;
}

/* A group is a new generation of a loader when that loader's last one had ended before. */
static int loader_of(struct dl_timeline *tl, struct group *g)
{
	struct dl_loader *l;
	uint32_t best = DL_NONE;

	for (uint32_t i = 0; i < tl->loaders.cnt; i++) {
		l = &tl->loaders.v[i];
		if (l->trainer != g->trainer || l->end > g->start)
			continue;
		if (best == DL_NONE || (l->workers == g->cnt) > (tl->loaders.v[best].workers == g->cnt) ||
		    ((l->workers == g->cnt) == (tl->loaders.v[best].workers == g->cnt) &&
		     l->end > tl->loaders.v[best].end))
			best = i;
	}
	if (best == DL_NONE) {
		l = vec_push(&tl->loaders);
		if (!l)
			return -ENOMEM;
		*l = (struct dl_loader){ .trainer = g->trainer, .start = g->start };
		best = (uint32_t)(tl->loaders.cnt - 1);
	}
	l = &tl->loaders.v[best];
	g->generation = l->generations++;
	l->end = g->end;
	if (g->cnt > l->workers)
		l->workers = g->cnt;
	g->loader = best;
	return 0;
}

static int by_group_start(const void *a, const void *b)
{
	const struct group *x = a, *y = b;

	return x->start < y->start ? -1 : x->start > y->start;
}

int32_t dl_loader_number(const struct dl_timeline *tl, uint32_t loader)
{
	int number = 0;

	for (uint32_t i = 0; i < loader; i++)
		number += tl->loaders.v[i].trainer == tl->loaders.v[loader].trainer;
	return number;
}

static int add_to_group(struct groups *groups, struct dl_proc *p)
{
	struct group *g = group_of(groups, p);

	if (!g) {
		g = vec_push(groups);
		if (!g)
			return -ENOMEM;
		*g = (struct group){ .trainer = p->trainer, .start = p->start, .id = (uint32_t)groups->cnt - 1 };
		if (!p->result_ino) {
			size_t *at = vec_push(&groups->no_pipe);

			if (!at)
				return -ENOMEM;
			*at = groups->cnt - 1;
		}
	}
	if (p->result_ino && !g->ino) {
		g->ino = p->result_ino;
		if (dl_map_set(&groups->by_pipe, pipe_key(p->trainer, g->ino), (uint64_t)(g - groups->v)))
			return -ENOMEM;
	}
	g->last_fork = p->start;
	p->group = g->id;
	p->index = (int32_t)g->cnt++;
	if (p->end > g->end)
		g->end = p->end;
	return 0;
}

/* Loader and generation of each worker, from those of its group. */
static int number_workers(struct dl_timeline *tl, const struct groups *groups)
{
	struct dl_map by_id = {};
	uint64_t idx;
	int err = 0;

	for (size_t i = 0; i < groups->cnt && !err; i++)
		err = dl_map_set(&by_id, groups->v[i].id, i);
	vec_for_each(&tl->procs, p) {
		if (err || p->role != DL_ROLE_WORKER || p->trainer == DL_NONE || !dl_map_get(&by_id, p->group, &idx))
			continue;
		p->loader = dl_loader_number(tl, groups->v[idx].loader);
		p->generation = groups->v[idx].generation;
	}
	dl_map_fini(&by_id);
	return err;
}

static int find_loaders(struct dl_timeline *tl)
{
	struct groups groups = {};
	int err = find_thread_births(tl, &groups.threads);

	find_result_pipes(tl);
	for (size_t i = 0; i < tl->procs.cnt && !err; i++) {
		if (tl->procs.v[i].role == DL_ROLE_WORKER && tl->procs.v[i].trainer != DL_NONE)
			err = add_to_group(&groups, &tl->procs.v[i]);
	}
	if (groups.cnt)
		qsort(groups.v, groups.cnt, sizeof(*groups.v), by_group_start);
	for (size_t i = 0; i < groups.cnt && !err; i++)
		err = loader_of(tl, &groups.v[i]);
	if (!err)
		err = number_workers(tl, &groups);
	vec_free(&groups.threads);
	dl_map_fini(&groups.by_pipe);
	vec_free(&groups.no_pipe);
	vec_free(&groups);
	return err;
}

/* --- threads --- */

/* What is known of workers, to ask it for many threads. */
struct workers {
	struct births births;	/* by start */
	struct dl_map pipes;	/* trainer and inode of a result pipe */
	struct dl_map trainers;	/* those that have any */
};

static int find_workers(const struct dl_timeline *tl, struct workers *w)
{
	int err = 0;

	vec_for_each(&tl->procs, p) {
		if (err || p->role != DL_ROLE_WORKER || p->trainer == DL_NONE)
			continue;
		err = dl_map_set(&w->trainers, p->trainer, 1);
		if (!err && p->result_ino)
			err = dl_map_set(&w->pipes, pipe_key(p->trainer, p->result_ino), 1);
		if (!err && p->start)
			err = add_birth(&w->births, p->start, p->trainer);
	}
	vec_sort(&w->births);
	return err;
}

static void workers_fini(struct workers *w)
{
	vec_free(&w->births);
	dl_map_fini(&w->pipes);
	dl_map_fini(&w->trainers);
}

#define FEEDER_BIRTH_NS 1000000000ULL

/* A queue's feeder is made by the first put, right behind the making of the workers. Where workers are
 * never idle it wakes none of them: its waits, for the queue and the interpreter alone, tell. */
static bool is_new_feeder(const struct dl_timeline *tl, const struct workers *w, const struct dl_thread *th,
			  const struct dl_habits *h)
{
	const struct dl_proc *p = &tl->procs.v[th->proc];

	if (!th->start || th->creator != p->main || !h->waits || !dl_habits_gil(h, p) || dl_habits_timed(h, p) || h->elsewhere)
		return false;
	return birth_between(&w->births, th->proc, th->start > FEEDER_BIRTH_NS ? th->start - FEEDER_BIRTH_NS : 0, th->start);
}

static bool is_main_of_worker(const struct dl_timeline *tl, const struct dl_thread *th, uint32_t to)
{
	uint32_t proc = tl->threads.v[to].proc;

	(void)th;
	return proc != DL_NONE && tl->procs.v[proc].role == DL_ROLE_WORKER && tl->procs.v[proc].main == to;
}

static bool is_of_other(const struct dl_timeline *tl, const struct dl_thread *th, uint32_t to)
{
	return tl->threads.v[to].proc != DL_NONE && tl->threads.v[to].proc != th->proc;
}

/* Has the thread woken one of that kind by writing? */
static bool wrote_to(const struct dl_timeline *tl, const struct dl_thread *th, const struct dl_habits *h,
		     bool (*is)(const struct dl_timeline *tl, const struct dl_thread *th, uint32_t to))
{
	uint64_t to, times;

	for (; h; h = h->past) {
		for (size_t pos = 0; dl_map_next(&h->wrote, &pos, &to, &times);) {
			if (is(tl, th, (uint32_t)to))
				return true;
		}
	}
	return false;
}

static bool polls_results(const struct workers *w, uint32_t trainer, const struct dl_habits *h)
{
	vec_for_each(&h->polled, ino) {
		if (*ino && dl_map_get(&w->pipes, pipe_key(trainer, *ino), NULL))
			return true;
	}
	return false;
}

static enum dl_role trainer_thread(const struct dl_timeline *tl, const struct workers *known, const struct dl_thread *th,
				   const struct dl_habits *h)
{
	const bool workers = dl_map_get(&known->trainers, th->proc, NULL);
	const bool gil = dl_habits_gil(h, &tl->procs.v[th->proc]);

	if (!strcmp(th->name, DL_GPU_THREAD))
		return DL_ROLE_COLLECTOR;
	if (!strncmp(th->name, "pt_data_pin", 11) || polls_results(known, th->proc, h) || (workers && h->fifo_poll && h->sock))
		return DL_ROLE_PIN;
	if (wrote_to(tl, th, h, is_main_of_worker) || is_new_feeder(tl, known, th, h))
		return DL_ROLE_INDEX_FEEDER;
	if (!gil && ((h->waits && !h->not_pool) || !strncmp(th->name, "PTThreadPool", 12)))
		return DL_ROLE_POOL;
	if (!workers && gil && h->futex_main && !th->calls)
		return DL_ROLE_LOADER_THREAD;
	return DL_ROLE_TRAINER_THREAD;
}

static enum dl_role worker_thread(const struct dl_timeline *tl, const struct dl_thread *th, const struct dl_habits *h)
{
	/* Every new thread has its signals blocked for a moment: most of its switches decide. */
	if (h->accepts || th->sigblock_outs * 2 > th->outs)
		return DL_ROLE_SHARER;
	if (wrote_to(tl, th, h, is_of_other))
		return DL_ROLE_FEEDER;
	if (!dl_habits_gil(h, &tl->procs.v[th->proc]) && h->waits && !h->not_pool)
		return DL_ROLE_POOL;
	return DL_ROLE_WORKER_THREAD;
}

static int find_thread_role(struct dl_timeline *tl, const struct workers *workers, uint32_t i)
{
	struct dl_thread *th = &tl->threads.v[i];
	struct dl_proc *p = th->proc == DL_NONE ? NULL : &tl->procs.v[th->proc];
	struct dl_habits h = {};
	int err;

	if (!p)
		return 0;
	th->role = p->role;
	if (p->main == i || (p->role != DL_ROLE_TRAINER && p->role != DL_ROLE_WORKER))
		return 0;
	err = dl_habits_of(&h, tl, th);
	if (!err)
		th->role = p->role == DL_ROLE_WORKER ? worker_thread(tl, th, &h) :
			   trainer_thread(tl, workers, th, &h);
	dl_habits_fini(&h);
	if (th->role == DL_ROLE_FEEDER && p->feeder == DL_NONE)
		p->feeder = i;
	return err;
}

/* What was found before may have been found from too little. */
static void forget_roles(struct dl_timeline *tl)
{
	tl->loaders.cnt = 0;
	vec_for_each(&tl->procs, p) {
		p->role = DL_ROLE_UNKNOWN;
		p->trainer = p->feeder = DL_NONE;
		p->loader = p->index = p->rank = -1;
		p->generation = p->group = 0;
		p->gil_addr = p->result_ino = 0;
	}
	vec_for_each(&tl->threads, th)
		th->role = DL_ROLE_UNKNOWN;
}

int dl_find_roles(struct dl_timeline *tl)
{
	struct workers workers = {};
	int err;

	forget_roles(tl);
	err = find_gil(tl);
	if (err)
		return err;
	find_process_roles(tl);
	err = find_loaders(tl);
	if (!err)
		err = find_workers(tl, &workers);
	for (uint32_t i = 0; i < tl->threads.cnt && !err; i++)
		err = find_thread_role(tl, &workers, i);
	if (!err)
		err = dl_find_loader_threads(tl);
	workers_fini(&workers);
	return err;
}
