/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The files of a control group and what they say, see Documentation/admin-guide/cgroup-v1/memory.rst,
 * .../cgroup-v2.rst and .../scheduler/sched-bwc.rst of the kernel. A row is a file; a file gives one
 * number or several.
 */
#include "capture/cgroup_read.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "capture/proc.h"

/* Version 1 writes "no limit" as the largest multiple of the page size; so would a limit of 4 EiB. */
#define NO_LIMIT_V1 (UINT64_C(1) << 62)

static uint64_t number(const char *text)
{
	return isdigit((unsigned char)*text) ? strtoull(text, NULL, 10) : 0;
}

static uint64_t limit(const char *text)
{
	const uint64_t nr = number(text);

	return nr >= NO_LIMIT_V1 ? 0 : nr;
}

static uint64_t key(const char *text, const char *name, uint64_t unit)
{
	uint64_t nr = 0;

	return dl_text_u64(text, name, &nr) ? nr * unit : 0;
}

/* --- version 1 --- */

static void v1_quota(const char *t, struct dl_ev_env_cgroup *ev)
{
	ev->cpu_quota_ns = number(t) * 1000;	/* -1 is none */
}

static void v1_period(const char *t, struct dl_ev_env_cgroup *ev)
{
	ev->cpu_period_ns = number(t) * 1000;
}

static void v1_cpu_stat(const char *t, struct dl_ev_env_cgroup *ev)
{
	ev->throttled_cnt = key(t, "nr_throttled", 1);
	ev->throttled_ns = key(t, "throttled_time", 1);
}

static void v1_usage(const char *t, struct dl_ev_env_cgroup *ev)
{
	ev->mem_usage = number(t);
}

static void v1_limit(const char *t, struct dl_ev_env_cgroup *ev)
{
	ev->mem_limit = limit(t);
}

static void v1_peak(const char *t, struct dl_ev_env_cgroup *ev)
{
	ev->mem_peak = number(t);
}

static void v1_stat(const char *t, struct dl_ev_env_cgroup *ev)
{
	const uint64_t cache = key(t, "total_cache", 1);

	ev->mem_anon = key(t, "total_rss", 1);
	ev->mem_shmem = key(t, "total_shmem", 1);
	ev->mem_file = cache > ev->mem_shmem ? cache - ev->mem_shmem : 0;
	ev->swap_usage = key(t, "total_swap", 1);
}

static void v1_memsw(const char *t, struct dl_ev_env_cgroup *ev)
{
	ev->swap_limit = limit(t);
}

static void v1_failcnt(const char *t, struct dl_ev_env_cgroup *ev)
{
	ev->limit_hits = number(t);
}

static void v1_oom(const char *t, struct dl_ev_env_cgroup *ev)
{
	ev->oom_kills = key(t, "oom_kill", 1);
}

static void pids_current(const char *t, struct dl_ev_env_cgroup *ev)
{
	ev->pids = number(t);
}

static void pids_max(const char *t, struct dl_ev_env_cgroup *ev)
{
	ev->pids_limit = number(t);	/* "max" is none */
}

static void pids_events(const char *t, struct dl_ev_env_cgroup *ev)
{
	ev->pids_hits = key(t, "max", 1);
}

static void v1_kernel(const char *t, struct dl_ev_env_cgroup *ev)
{
	ev->mem_kernel = number(t);
}

/* --- version 2 --- */

static void v2_cpu_max(const char *t, struct dl_ev_env_cgroup *ev)
{
	const char *period = strchr(t, ' ');

	ev->cpu_quota_ns = number(t) * 1000;	/* "max" is none */
	ev->cpu_period_ns = period ? number(period + 1) * 1000 : 0;
}

static void v2_cpu_stat(const char *t, struct dl_ev_env_cgroup *ev)
{
	ev->throttled_cnt = key(t, "nr_throttled", 1);
	ev->throttled_ns = key(t, "throttled_usec", 1000);
}

static void v2_stat(const char *t, struct dl_ev_env_cgroup *ev)
{
	const uint64_t file = key(t, "file", 1);

	ev->mem_anon = key(t, "anon", 1);
	ev->mem_shmem = key(t, "shmem", 1);
	ev->mem_file = file > ev->mem_shmem ? file - ev->mem_shmem : 0;
	ev->mem_kernel = key(t, "kernel", 1);
	ev->mem_pgtables = key(t, "pagetables", 1);
}

static void v2_swap(const char *t, struct dl_ev_env_cgroup *ev)
{
	ev->swap_usage = number(t);
}

static void v2_events(const char *t, struct dl_ev_env_cgroup *ev)
{
	ev->limit_hits = key(t, "max", 1);
	ev->oom_kills = key(t, "oom_kill", 1);
}

struct row {
	enum dl_cg_ctl ctl;
	const char *file;
	void (*read)(const char *text, struct dl_ev_env_cgroup *ev);
};

static const struct row v1_rows[] = {
	{ DL_CG_CPU, "cpu.cfs_quota_us", v1_quota },
	{ DL_CG_CPU, "cpu.cfs_period_us", v1_period },
	{ DL_CG_CPU, "cpu.stat", v1_cpu_stat },
	{ DL_CG_MEMORY, "memory.usage_in_bytes", v1_usage },
	{ DL_CG_MEMORY, "memory.limit_in_bytes", v1_limit },
	{ DL_CG_MEMORY, "memory.max_usage_in_bytes", v1_peak },
	{ DL_CG_MEMORY, "memory.stat", v1_stat },
	{ DL_CG_MEMORY, "memory.memsw.limit_in_bytes", v1_memsw },
	{ DL_CG_MEMORY, "memory.failcnt", v1_failcnt },
	{ DL_CG_MEMORY, "memory.oom_control", v1_oom },
	{ DL_CG_MEMORY, "memory.kmem.usage_in_bytes", v1_kernel },
	{ DL_CG_PIDS, "pids.current", pids_current },
	{ DL_CG_PIDS, "pids.max", pids_max },
	{ DL_CG_PIDS, "pids.events", pids_events },
};

static const struct row v2_rows[] = {
	{ DL_CG_CPU, "cpu.max", v2_cpu_max },
	{ DL_CG_CPU, "cpu.stat", v2_cpu_stat },
	{ DL_CG_MEMORY, "memory.current", v1_usage },
	{ DL_CG_MEMORY, "memory.max", v1_limit },
	{ DL_CG_MEMORY, "memory.peak", v1_peak },
	{ DL_CG_MEMORY, "memory.stat", v2_stat },
	{ DL_CG_MEMORY, "memory.swap.current", v2_swap },
	{ DL_CG_MEMORY, "memory.swap.max", v1_memsw },
	{ DL_CG_MEMORY, "memory.events", v2_events },
	{ DL_CG_PIDS, "pids.current", pids_current },
	{ DL_CG_PIDS, "pids.max", pids_max },
	{ DL_CG_PIDS, "pids.events", pids_events },
};

_Static_assert(ARRAY_SIZE(v1_rows) <= DL_CG_FILES_MAX && ARRAY_SIZE(v2_rows) <= DL_CG_FILES_MAX,
	       "raise DL_CG_FILES_MAX");

void dl_cg_level_init(struct dl_cg_level *l)
{
	*l = (struct dl_cg_level){};
	for (size_t i = 0; i < DL_CG_FILES_MAX; i++)
		l->fd[i] = l->fd2[i] = -1;
}

void dl_cg_level_fini(struct dl_cg_level *l)
{
	for (size_t i = 0; i < DL_CG_FILES_MAX; i++) {
		if (l->fd[i] >= 0)
			close(l->fd[i]);
		if (l->fd2[i] >= 0)
			close(l->fd2[i]);
	}
	free(l->path);
	dl_cg_level_init(l);
}

void dl_cg_level_add(struct dl_cg_level *l, enum dl_cg_ctl ctl, int version, int dirfd)
{
	const struct row *rows = version == 2 ? v2_rows : v1_rows;
	const size_t cnt = version == 2 ? ARRAY_SIZE(v2_rows) : ARRAY_SIZE(v1_rows);
	int *fds = version == 2 ? l->fd2 : l->fd;

	for (size_t i = 0; i < cnt; i++) {
		if (rows[i].ctl != ctl || fds[i] >= 0)
			continue;
		fds[i] = openat(dirfd, rows[i].file, O_RDONLY | O_CLOEXEC);
		/* cpu.stat is there in every group of version 2, with or without the controller:
		 * alone it says nothing of a limit. */
		if (fds[i] >= 0 && l->version < version)
			l->version = version;
	}
}

bool dl_cg_level_is_empty(const struct dl_cg_level *l)
{
	for (size_t i = 0; i < DL_CG_FILES_MAX; i++)
		if (l->fd[i] >= 0 || l->fd2[i] >= 0)
			return false;
	return true;
}

static void read_rows(const struct row *rows, size_t cnt, const int *fds, struct dl_ev_env_cgroup *ev)
{
	char buf[8192];

	for (size_t i = 0; i < cnt; i++)
		if (fds[i] >= 0 && dl_pread_text(fds[i], buf, sizeof(buf)) > 0)
			rows[i].read(buf, ev);
}

void dl_cg_level_read(const struct dl_cg_level *l, struct dl_ev_env_cgroup *ev)
{
	ev->version = (uint32_t)l->version;
	read_rows(v1_rows, ARRAY_SIZE(v1_rows), l->fd, ev);
	read_rows(v2_rows, ARRAY_SIZE(v2_rows), l->fd2, ev);
}
