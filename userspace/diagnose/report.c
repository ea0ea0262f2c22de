/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The report's names and its end. */
#include "diagnose/report.h"

#include <stdlib.h>

static const char *const cause_ids[DL_CAUSE_CNT] = {
#define CAUSE(ID, id, doc) [DL_CAUSE_##ID] = id,
#include "diagnose/cause.def"
#undef CAUSE
};

static const char *const cause_docs[DL_CAUSE_CNT] = {
#define CAUSE(ID, id, doc) [DL_CAUSE_##ID] = doc,
#include "diagnose/cause.def"
#undef CAUSE
};

const char *dl_cause_id(enum dl_cause cause)
{
	return cause < DL_CAUSE_CNT ? cause_ids[cause] : cause_ids[DL_CAUSE_UNEXPLAINED];
}

const char *dl_cause_doc(enum dl_cause cause)
{
	return cause < DL_CAUSE_CNT ? cause_docs[cause] : cause_docs[DL_CAUSE_UNEXPLAINED];
}

static const char *const role_ids[DL_ROLE_CNT] = {
	[DL_ROLE_UNKNOWN] = "unknown",
	[DL_ROLE_LAUNCHER] = "launcher",
	[DL_ROLE_TRAINER] = "trainer",
	[DL_ROLE_WORKER] = "worker",
	[DL_ROLE_WORKER_CHILD] = "worker-child",
	[DL_ROLE_FORKSERVER] = "forkserver",
	[DL_ROLE_SHM_MANAGER] = "shm-manager",
	[DL_ROLE_TRACKER] = "tracker",
	[DL_ROLE_HELPER] = "helper",
	[DL_ROLE_PIN] = "pin-memory",
	[DL_ROLE_INDEX_FEEDER] = "index-feeder",
	[DL_ROLE_LOADER_THREAD] = "loader-thread",
	[DL_ROLE_POOL] = "pool",
	[DL_ROLE_COLLECTOR] = "dlbpf-collector",
	[DL_ROLE_TRAINER_THREAD] = "trainer-thread",
	[DL_ROLE_FEEDER] = "feeder",
	[DL_ROLE_SHARER] = "sharer",
	[DL_ROLE_WORKER_THREAD] = "worker-thread",
};

const char *dl_role_id(enum dl_role role)
{
	return role < DL_ROLE_CNT && role_ids[role] ? role_ids[role] : role_ids[DL_ROLE_UNKNOWN];
}

static const char *const block_kind_ids[DL_BLOCK_ON_CNT] = {
	[DL_BLOCK_ON_DATA] = "data",
	[DL_BLOCK_ON_LOCK] = "lock",
	[DL_BLOCK_ON_GIL] = "gil",
	[DL_BLOCK_ON_STORAGE] = "storage",
	[DL_BLOCK_ON_NETWORK] = "network",
	[DL_BLOCK_ON_MEMORY] = "memory",
	[DL_BLOCK_ON_TIMER] = "timer",
	[DL_BLOCK_ON_CHILD] = "child",
	[DL_BLOCK_ON_OTHER] = "other",
};

const char *dl_block_kind_id(enum dl_block_kind kind)
{
	return kind < DL_BLOCK_ON_CNT && block_kind_ids[kind] ? block_kind_ids[kind] :
								block_kind_ids[DL_BLOCK_ON_OTHER];
}

static const char *const copy_problem_ids[DL_COPY_PROBLEM_CNT] = {
	[DL_COPY_NONE] = "none",
	[DL_COPY_TOO_SMALL] = "too-small",
	[DL_COPY_PAGEABLE] = "pageable",
	[DL_COPY_NOT_OVERLAPPED] = "not-overlapped",
	[DL_COPY_LINK] = "link-limited",
};

const char *dl_copy_problem_id(enum dl_copy_problem problem)
{
	return problem < DL_COPY_PROBLEM_CNT ? copy_problem_ids[problem] : copy_problem_ids[DL_COPY_NONE];
}

static void free_charges(struct dl_charge *causes)
{
	for (size_t i = 0; i < DL_CAUSE_CNT; i++)
		free(causes[i].detail);
}

static void free_crash(struct dl_crash_report *c)
{
	if (!c)
		return;
	free(c->cause);
	free(c->text);
	free(c);
}

void dl_report_free(struct dl_report *r)
{
	if (!r)
		return;
	vec_for_each(&r->verdict.actions, action)
		free(*action);
	vec_free(&r->verdict.actions);
	vec_for_each(&r->devices, dev) {
		free(dev->name);
		free_charges(dev->causes);
	}
	vec_free(&r->devices);
	free_charges(r->waits.causes);
	vec_for_each(&r->worst, gap) {
		vec_for_each(&gap->steps, step)
			free(step->text);
		vec_free(&gap->steps);
	}
	vec_free(&r->worst);
	vec_for_each(&r->procs, proc) {
		free(proc->name);
		free(proc->cmdline);
	}
	vec_free(&r->procs);
	vec_free(&r->trainers);
	vec_free(&r->loaders);
	vec_free(&r->copies);
	vec_free(&r->copy_devices);
	vec_for_each(&r->gpus, gpu)
		free(gpu->name);
	vec_free(&r->gpus);
	free_crash(r->crash);
	vec_free(&r->losses);
	vec_for_each(&r->sheds, shed)
		vec_free(&shed->times);
	vec_free(&r->sheds);
	vec_for_each(&r->absent, text)
		free(*text);
	vec_free(&r->absent);
	vec_for_each(&r->notes, text)
		free(*text);
	vec_free(&r->notes);
	free(r->path);
	free(r->gpu_source);
	free(r->gpu_hint);
	free(r->host);
	free(r->kernel);
	free(r->target_cmdline);
	free(r->verdict.text);
	free(r);
}
