/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What follows from facts by arithmetic, for more than one judgement. */
#include "check/facts.h"

#include <stdlib.h>
#include <string.h>

void dl_ck_facts_fini(struct dl_ck_facts *f)
{
	vec_free(&f->levels);
}

const char *dl_ck_var(const struct dl_ck_facts *f, const char *name)
{
	for (uint32_t i = 0; i < f->proc.var_cnt; i++)
		if (!strcmp(f->proc.vars[i].name, name))
			return f->proc.vars[i].value;
	return NULL;
}

double dl_ck_cpus_of(const struct dl_ck_facts *f, const struct dl_ck_level **ret_by)
{
	double least = f->cpus.allowed ? f->cpus.allowed : f->cpus.online;

	if (ret_by)
		*ret_by = NULL;
	if (f->cpus.cpuset && (!least || f->cpus.cpuset < least))
		least = f->cpus.cpuset;
	vec_for_each(&f->levels, it) {
		const double quota = it->ev.cpu_quota_ns && it->ev.cpu_period_ns ?
			(double)it->ev.cpu_quota_ns / (double)it->ev.cpu_period_ns : 0;

		if (quota > 0 && (!least || quota < least)) {
			least = quota;
			if (ret_by)
				*ret_by = it;
		}
	}
	return least;
}

uint32_t dl_ck_workers(const struct dl_ck_facts *f)
{
	return f->workers ? f->workers : f->seen.workers;
}

enum {
	PREFETCH = 2,		/* DataLoader's default prefetch_factor */
	LOCKS = 16 * 4096,	/* a worker's queues and events: some semaphores, which have a page each */
};

/*
 * A worker may have prefetch_factor batches made or in the making, which main hands out anew for each that it
 * takes; what the training holds, one at least, comes on top.
 */
struct dl_ck_need dl_ck_need_of(const struct dl_ck_facts *f)
{
	const struct dl_ck_seen *s = &f->seen;
	const uint32_t trainers = s->trainers ? s->trainers : 1;
	struct dl_ck_need n = {
		.workers = dl_ck_workers(f),
		.prefetch = f->prefetch,
		.held = s->held > trainers ? s->held : trainers,
		.batch = f->batch_bytes ? f->batch_bytes : s->batch.bytes,
		.at_least = (!f->batch_bytes && s->batch.at_least) || (s->ended && s->status),
	};

	if (!n.prefetch) {
		n.prefetch = s->prefetch > PREFETCH ? s->prefetch : PREFETCH;
		n.prefetch_assumed = n.prefetch != s->prefetch;
	}
	if (n.workers && n.batch) {
		const uint64_t at_once = (uint64_t)n.workers * n.prefetch + n.held;

		n.bytes = at_once * n.batch;
		n.storages = at_once * s->batch.storages;
	}
	if (s->peak_bytes > n.bytes) {
		n.bytes = s->peak_bytes;
		n.by_peak = true;
	}
	if (n.bytes)
		n.bytes += (uint64_t)LOCKS * (n.workers + 1);
	return n;
}
