/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* One trainer's and one loader's part of the idle time: where several train on one machine, or train and
 * validate by turns, each has its own cause. */
#include "diagnose/summary.h"

#include <errno.h>

int dl_sum_trainers(struct dl_report *r, const struct dl_timeline *tl, struct dl_diag *d)
{
	vec_for_each(&tl->procs, p) {
		struct dl_trainer_report *t;

		if (p->role != DL_ROLE_TRAINER)
			continue;
		t = vec_push(&r->trainers);
		if (!t)
			return dl_oom(d);
		t->pid = p->pid;
		t->proc = (uint32_t)(p - tl->procs.v);
		t->rank = p->rank;
	}
	return 0;
}

static void add_gap(struct dl_part *part, const struct dl_gap *gap)
{
	part->idle_ns += gap->end - gap->start;
	for (int c = 0; c < DL_CAUSE_CNT; c++)
		part->cause_ns[c] += gap->cause_ns[c];
}

void dl_part_gap(struct dl_report *r, const struct dl_timeline *tl, const struct dl_gap *gap)
{
	const struct dl_proc *worker = gap->worker ? &tl->procs.v[gap->worker - 1] : NULL;

	vec_for_each(&r->trainers, t) {
		if (t->proc == gap->proc)
			add_gap(&t->part, gap);
	}
	if (!worker || worker->trainer != gap->proc || worker->loader < 0)
		return;
	vec_for_each(&r->loaders, l) {
		if (l->proc == gap->proc && l->index == (uint32_t)worker->loader)
			add_gap(&l->part, gap);
	}
}

void dl_part_span(struct dl_report *r, uint32_t proc, uint64_t ns)
{
	vec_for_each(&r->trainers, t)
		t->part.span_ns += t->proc == proc ? ns : 0;
	vec_for_each(&r->loaders, l)
		l->part.span_ns += l->proc == proc ? ns : 0;
}

static void judge(struct dl_part *part)
{
	int most = 0;

	for (int c = 1; c < DL_CAUSE_CNT; c++) {
		if (part->cause_ns[c] > part->cause_ns[most])
			most = c;
	}
	if ((double)part->idle_ns < DL_HEALTHY_SHARE * (double)part->span_ns || !part->cause_ns[most]) {
		part->healthy = part->span_ns > 0;
		return;
	}
	part->has_cause = true;
	part->cause = (enum dl_cause)most;
	part->share = (double)part->cause_ns[most] / (double)part->idle_ns;
}

void dl_judge_parts(struct dl_report *r)
{
	vec_for_each(&r->trainers, t)
		judge(&t->part);
	vec_for_each(&r->loaders, l)
		judge(&l->part);
}
