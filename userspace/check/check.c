/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The table of checks. */
#include "check/check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "check/judge.h"

/* Ids are used by scripts: never rename one. Rows of a group stand together. */
static const struct row {
	const char *id, *group, *name;
	ck_judge *judge;
} rows[] = {
	{ "run", "The job", "run", ck_judge_run },
	{ "start-method", "The job", "workers start by", ck_judge_start },
	{ "sharing", "The job", "memory is shared by", ck_judge_sharing },
	{ "variables", "The job", "costly variables", ck_judge_variables },
	{ "shm-size", "Shared memory", "size of /dev/shm", ck_judge_shm_size },
	{ "shm-inodes", "Shared memory", "files in /dev/shm", ck_judge_shm_inodes },
	{ "shm-left", "Shared memory", "left behind", ck_judge_shm_left },
	{ "cpus", "CPUs", "CPUs", ck_judge_cpus },
	{ "worker-cpus", "CPUs", "workers", ck_judge_worker_cpus },
	{ "quota", "CPUs", "quota", ck_judge_quota },
	{ "threads", "CPUs", "threads of libraries", ck_judge_threads },
	{ "memory-host", "Memory", "machine", ck_judge_mem_host },
	{ "memory-cgroup", "Memory", "limit of the job", ck_judge_mem_cgroup },
	{ "swap", "Memory", "swap", ck_judge_swap },
	{ "overcommit", "Memory", "overcommit", ck_judge_overcommit },
	{ "huge-pages", "Memory", "huge pages", ck_judge_thp },
	{ "descriptors", "Limits", "open files", ck_judge_fds },
	{ "mappings", "Limits", "memory mappings", ck_judge_maps },
	{ "locked-memory", "Limits", "locked memory", ck_judge_memlock },
	{ "processes", "Limits", "processes", ck_judge_procs },
	{ "core", "Limits", "core files", ck_judge_core },
	{ "stack", "Limits", "stack", ck_judge_stack },
	{ "data-file-system", "Data", "file system", ck_judge_data_fs },
	{ "data-rate", "Data", "rate", ck_judge_data_rate },
	{ "gpus", "GPU", "devices", ck_judge_gpus },
	{ "gpu-link", "GPU", "link", ck_judge_gpu_link },
	{ "gpu-node", "GPU", "NUMA node", ck_judge_gpu_node },
	{ "place", "Surroundings", "place", ck_judge_place },
	{ "scheduler", "Surroundings", "scheduler", ck_judge_scheduler },
	{ "log-out", "Surroundings", "log-out", ck_judge_logout },
	{ "oom-daemon", "Surroundings", "memory guards", ck_judge_oomd },
	{ "trace", "dlbpf", "recording", ck_judge_trace },
	{ "kernel", "dlbpf", "kernel", ck_judge_features },
	{ "collector", "dlbpf", "GPU collector", ck_judge_collector },
};

const char *dl_ck_state_id(enum dl_ck_state state)
{
	static const char *const ids[] = {
		[DL_CK_OK] = "ok",
		[DL_CK_WARNING] = "warning",
		[DL_CK_PROBLEM] = "problem",
		[DL_CK_UNKNOWN] = "unknown",
	};

	return ids[state];
}

static void line_fini(struct dl_ck_line *l)
{
	free(l->text);
	free(l->fix);
	free(l->command);
	vec_free(&l->numbers);
}

void dl_check_free(struct dl_check *c)
{
	if (!c)
		return;
	vec_for_each(&c->lines, it)
		line_fini(it);
	vec_free(&c->lines);
	free(c);
}

static int judge_one(struct dl_check *c, const struct dl_ck_facts *f, const struct row *row)
{
	struct dl_ck_line l = { .id = row->id, .group = row->group, .name = row->name };
	struct dl_ck_line *to;

	row->judge(f, &l);
	/* Nothing said: it does not apply here. */
	to = l.text && !l.err ? vec_push(&c->lines) : NULL;
	if (!to) {
		const int err = l.text || l.err ? -ENOMEM : 0;

		line_fini(&l);
		return err;
	}
	*to = l;
	c->cnt[l.state]++;
	return 0;
}

int dl_check_judge(struct dl_check **ret, const struct dl_ck_facts *f, struct dl_diag *d)
{
	struct dl_check *c = calloc(1, sizeof(*c));
	int err = c ? 0 : -ENOMEM;

	for (size_t i = 0; !err && i < ARRAY_SIZE(rows); i++)
		err = judge_one(c, f, &rows[i]);
	if (err) {
		dl_check_free(c);
		return dl_oom(d);
	}
	c->target = f->target;
	c->pid = f->proc.pid;
	memcpy(c->name, f->proc.name, sizeof(c->name));
	c->seen = f->seen;
	c->want_root = !f->self.root && (f->root_needed || !f->self.trace_known);
	*ret = c;
	return 0;
}
