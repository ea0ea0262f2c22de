/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The numbers of the run at its death. What was read stands as it was read; what was worked out says from
 * what, and that it is an estimate.
 */
#include "diagnose/pm_int.h"

#include <inttypes.h>

#define PREFETCH 2u	/* PyTorch's default prefetch_factor, which no trace shows */

static void num(struct dl_pmx *x, const char *id, const char *label, uint64_t value, enum dl_pm_unit unit)
{
	uint64_t had;

	if (value && !dl_pm_get(x->pm, id, &had))
		DL_PM_DO(x, dl_pm_number(x->pm, id, label, value, unit, DL_PM_TRACE));
}

/* --- workers and batches --- */

/* Workers that make batches at the death, of all trainers: they share /dev/shm. With what it keeps behind an
 * exit a worker still counts at that moment. */
static uint64_t workers_at(const struct dl_pmx *x, uint64_t ts)
{
	uint64_t cnt = 0;

	vec_for_each(&x->tl->procs, p)
		cnt += p->role == DL_ROLE_WORKER && p->start <= ts && (!p->exited || p->end >= ts);
	return cnt;
}

static uint64_t largest_shmem(const struct dl_pmx *x)
{
	uint64_t most = 0;

	vec_for_each(&x->tl->procs, p) {
		if (p->role != DL_ROLE_WORKER)
			continue;
		vec_for_each(&p->mem, m)
			most = m->shmem > most ? m->shmem : most;
	}
	return most;
}

/* Objects of the size that most bytes are in: labels are small, and there are as many of them. */
static bool from_listing(struct dl_pmx *x, uint64_t *ret)
{
	const struct dl_ev_env_shm *best = NULL;

	vec_for_each(&x->tl->env, k) {
		const struct dl_ev_env_shm *s = (const void *)k->ev;

		/* Objects that take no room are what a failed allocation leaves behind, of any run. */
		if (k->ev->kind == DL_EV_ENV_SHM && k->ts <= x->at && s->torch_cnt > s->torch_hollow_cnt && s->torch_bytes <= s->used &&
		    (!best || s->torch_bytes >= best->torch_bytes))
			best = s;
	}
	if (!best)
		return false;
	*ret = best->torch_largest ? best->torch_largest : best->torch_bytes / best->torch_cnt;
	if (!*ret)
		return false;
	if (best->torch_largest)
		DL_PM_DO(x, dl_pm_estimate(x->pm, "batch.bytes", "shared memory of one batch", *ret, DL_PM_BYTES, DL_PM_TRACE,
					   "the largest of %" PRIu64 " objects in /dev/shm", (uint64_t)best->torch_cnt));
	else
		DL_PM_DO(x, dl_pm_estimate(x->pm, "batch.bytes", "shared memory of one batch", *ret, DL_PM_BYTES, DL_PM_TRACE,
					   "the mean of %" PRIu64 " objects in /dev/shm", (uint64_t)best->torch_cnt));
	return true;
}

/* The object that was asked for is the best witness; the listing, and what workers had mapped, are others. */
static uint64_t batch_bytes(struct dl_pmx *x)
{
	uint64_t bytes = 0;

	if (x->bus && x->bus->file_magic == DL_PM_TMPFS_MAGIC && x->pm->death == DL_DEATH_SHM_FULL)
		bytes = x->bus->file_sz;
	if (bytes) {
		DL_PM_DO(x, dl_pm_estimate(x->pm, "batch.bytes", "shared memory of one batch", bytes, DL_PM_BYTES, DL_PM_TRACE,
					   "the object that was written to"));
		return bytes;
	}
	if (x->fail && dl_pm_fail_death(x, x->fail) == DL_DEATH_SHM_FULL && x->fail->ev->bytes > 1) {
		bytes = x->fail->ev->bytes;
		DL_PM_DO(x, dl_pm_estimate(x->pm, "batch.bytes", "shared memory of one batch", bytes, DL_PM_BYTES, DL_PM_TRACE,
					   "what the failed call asked for"));
		return bytes;
	}
	if (from_listing(x, &bytes))
		return bytes;
	bytes = largest_shmem(x);
	if (bytes)
		DL_PM_DO(x, dl_pm_estimate(x->pm, "batch.bytes", "shared memory of one batch", bytes, DL_PM_BYTES, DL_PM_TRACE,
					   "the most shared memory that a worker had mapped at once"));
	return bytes;
}

/* What was in /dev/shm before this job: known where the recording began before its workers. */
static uint64_t before_job(const struct dl_pmx *x, uint64_t total)
{
	uint64_t born = UINT64_MAX;

	vec_for_each(&x->tl->procs, p) {
		if (p->role == DL_ROLE_WORKER && p->start < born)
			born = p->start;
	}
	vec_for_each(&x->tl->env, k) {
		const struct dl_ev_env_shm *s = (const void *)k->ev;

		if (k->ev->kind == DL_EV_ENV_SHM && k->ts < born && s->total == total)
			return s->used;
	}
	return 0;
}

/* What the trainer holds of batches: those that it has mapped. */
static uint64_t trainer_holds(const struct dl_pmx *x)
{
	uint64_t most = 0;

	vec_for_each(&x->tl->procs, p) {
		const struct dl_mem *m = p->role == DL_ROLE_TRAINER ? dl_pm_mem_at(p, x->at) : NULL;

		if (m && m->ts <= x->at)
			most += m->shmem;
	}
	return most;
}

/*
 * Each worker has prefetch_factor batches under way, and the trainer one in use. What it keeps beyond that, and
 * what others had there, is on top. Full with `used` in it, it needs at least one more batch for each worker.
 */
static void needed(struct dl_pmx *x, uint64_t total, uint64_t used, uint64_t batch)
{
	const uint64_t workers = workers_at(x, x->at), ahead = workers * PREFETCH * batch;
	const uint64_t other = before_job(x, total), holds = trainer_holds(x);
	uint64_t kept = holds > batch ? holds : batch, need, least = used + workers * batch;
	struct dl_str how = {};
	char a[32], b[32], c[32];

	if (!workers || !batch)
		return;
	need = ahead + kept + other;
	dl_str_addf(&how, "%" PRIu64 " worker%s x %u batches ahead (PyTorch's default; x prefetch_factor if you set it) x %s, %s in use by the trainer",
		    workers, workers == 1 ? "" : "s", PREFETCH, dl_fmt_bytes(a, sizeof(a), batch), dl_fmt_bytes(b, sizeof(b), kept));
	if (other)
		dl_str_addf(&how, ", %s that was there before", dl_fmt_bytes(c, sizeof(c), other));
	if (need < least && least <= 16 * batch + other) {
		need = least;
		dl_str_addf(&how, "; at least one more batch of each worker beside the %s that were used", dl_fmt_bytes(a, sizeof(a), used));
	}
	if (how.err)
		x->err = x->err ? x->err : how.err;
	else
		DL_PM_DO(x, dl_pm_estimate(x->pm, "shm.needed", "shared memory needed", need, DL_PM_BYTES, DL_PM_TRACE, "%s", how.s));
	dl_str_fini(&how);
	if (holds > 3 * batch)
		DL_PM_DO(x, dl_pm_note(x->pm, "the trainer itself held %s of batches in shared memory, about %" PRIu64 " of them: it keeps references to batches that it has used, and the more shared memory it gets the more it may fill",
				       dl_fmt_bytes(a, sizeof(a), holds), holds / batch));
}

static bool is_about_shm(enum dl_death death)
{
	return death == DL_DEATH_SHM_FULL || death == DL_DEATH_BATCH_LOST || death == DL_DEATH_SHM_UNLINKED;
}

static void shm_numbers(struct dl_pmx *x)
{
	const struct dl_ev_env_shm *s = dl_pm_shm_at(x, x->at);
	const bool full = x->pm->death == DL_DEATH_SHM_FULL ||
			  (x->pm->death == DL_DEATH_BATCH_LOST && x->fail && dl_pm_fail_death(x, x->fail) == DL_DEATH_SHM_FULL);
	uint64_t total = s ? s->total : 0, used = s ? s->used : 0, batch;

	if (full && x->bus && x->bus->fs_total) {
		total = x->bus->fs_total;
		used = x->bus->fs_used;
	} else if (full && x->fail && x->fail->ev->of == DL_LIMIT_FS && x->fail->ev->limit) {
		total = x->fail->ev->limit;
		used = x->fail->ev->used;
	}
	batch = batch_bytes(x);
	num(x, "shm.total", "size of /dev/shm", total, DL_PM_BYTES);
	num(x, "shm.used", "used of /dev/shm", used, DL_PM_BYTES);
	if (is_about_shm(x->pm->death) && full)
		needed(x, total, used, batch);
	if (workers_at(x, x->at)) {
		num(x, "workers", "workers", workers_at(x, x->at), DL_PM_CNT);
		if (full)
			DL_PM_DO(x, dl_pm_estimate(x->pm, "prefetch", "batches ahead of each worker", PREFETCH, DL_PM_CNT, DL_PM_TRACE,
						   "PyTorch's default; a trace does not show prefetch_factor"));
	}
}

/* --- memory --- */

static void group_numbers(struct dl_pmx *x)
{
	const struct dl_ev_env_cgroup *g = dl_pm_cgroup_at(x, x->at, x->oom);
	const bool memcg = x->oom && (x->oom->flags & DL_OOM_MEMCG);
	uint64_t pgtables = 0;

	num(x, "cgroup.limit", "memory limit of the cgroup", memcg && x->oom->limit ? x->oom->limit : g ? g->mem_limit : 0, DL_PM_BYTES);
	num(x, "cgroup.usage", "memory charged to the cgroup", memcg && x->oom->usage ? x->oom->usage : g ? g->mem_usage : 0, DL_PM_BYTES);
	if (!g)
		return;
	num(x, "cgroup.anon", "private memory in the cgroup", g->mem_anon, DL_PM_BYTES);
	num(x, "cgroup.shmem", "shared memory in the cgroup", g->mem_shmem, DL_PM_BYTES);
	num(x, "cgroup.file", "page cache in the cgroup", g->mem_file, DL_PM_BYTES);
	num(x, "cgroup.swap", "swapped out", g->swap_usage, DL_PM_BYTES);
	vec_for_each(&x->tl->procs, p) {
		const struct dl_mem *m = dl_pm_alive(p, x->at) ? dl_pm_mem_at(p, x->at) : NULL;

		pgtables += m ? m->pgtables : 0;
	}
	if (pgtables && x->oom)
		DL_PM_DO(x, dl_pm_estimate(x->pm, "cgroup.pgtables", "page tables", pgtables, DL_PM_BYTES, DL_PM_TRACE,
					   "the sum of the job's processes"));
}

static void host_numbers(struct dl_pmx *x)
{
	const struct dl_ev_env_host *h = dl_pm_host_at(x, x->at);

	if (!h)
		return;
	num(x, "host.total", "memory of the machine", h->mem_total, DL_PM_BYTES);
	num(x, "host.available", "available memory of the machine", h->mem_avail, DL_PM_BYTES);
	num(x, "host.swap-free", "free swap space", h->swap_free, DL_PM_BYTES);
}

/* --- limits of the process --- */

static bool is_half_full(uint64_t have, uint64_t limit)
{
	return limit && have >= limit / 2;
}

/* What the failing call met is exact; else what the recorder had read. The processes have them all. */
static void limit_numbers(struct dl_pmx *x)
{
	const enum dl_death death = x->pm->death;
	const struct dl_ev_syscall_fail *f = x->fail ? x->fail->ev : NULL;
	const struct dl_ev_env_proc *e = x->proc == DL_NONE ? NULL : dl_pm_limits_at(x, x->tl->procs.v[x->proc].pid, x->at);
	const struct dl_ev_env_cgroup *g = dl_pm_cgroup_at(x, x->at, x->oom);

	if (f && f->of == DL_LIMIT_FDS) {
		num(x, "fds.open", "open files of the process", f->used, DL_PM_CNT);
		num(x, "fds.limit", "limit (ulimit -n)", f->limit, DL_PM_CNT);
	} else if (f && f->of == DL_LIMIT_MAPS) {
		num(x, "maps.count", "memory mappings of the process", f->used, DL_PM_CNT);
		num(x, "maps.limit", "limit (vm.max_map_count)", f->limit, DL_PM_CNT);
	} else if (f && (f->of == DL_LIMIT_PIDS || f->of == DL_LIMIT_NPROC)) {
		num(x, "pids.count", "processes and threads", f->used, DL_PM_CNT);
		num(x, "pids.limit", f->of == DL_LIMIT_PIDS ? "limit (pids.max of the cgroup)" : "limit (ulimit -u)", f->limit, DL_PM_CNT);
	}
	if (e && (death == DL_DEATH_FD_LIMIT || death == DL_DEATH_BATCH_LOST || is_half_full(e->fds, e->fds_limit))) {
		num(x, "fds.open", "open files of the process", e->fds, DL_PM_CNT);
		num(x, "fds.limit", "limit (ulimit -n)", e->fds_limit, DL_PM_CNT);
	}
	if (e && (death == DL_DEATH_MAP_COUNT_LIMIT || is_half_full(e->maps, e->maps_limit))) {
		num(x, "maps.count", "memory mappings of the process", e->maps, DL_PM_CNT);
		num(x, "maps.limit", "limit (vm.max_map_count)", e->maps_limit, DL_PM_CNT);
	}
	if (g && death == DL_DEATH_PROCESS_LIMIT) {
		num(x, "pids.count", "processes and threads of the cgroup", g->pids, DL_PM_CNT);
		num(x, "pids.limit", "limit (pids.max)", g->pids_limit, DL_PM_CNT);
	}
}

static void fs_numbers(struct dl_pmx *x)
{
	if (x->pm->death == DL_DEATH_SHM_FULL)
		return;
	if (x->bus && x->bus->fs_total) {
		num(x, "fs.total", "size of the file system", x->bus->fs_total, DL_PM_BYTES);
		num(x, "fs.used", "used of the file system", x->bus->fs_used, DL_PM_BYTES);
	} else if (x->pm->death == DL_DEATH_DISK_FULL && x->fail && x->fail->ev->of == DL_LIMIT_FS) {
		num(x, "fs.total", "size of the file system", x->fail->ev->limit, DL_PM_BYTES);
		num(x, "fs.used", "used of the file system", x->fail->ev->used, DL_PM_BYTES);
	}
}

void dl_pm_numbers(struct dl_pmx *x)
{
	shm_numbers(x);
	fs_numbers(x);
	group_numbers(x);
	host_numbers(x);
	limit_numbers(x);
}
