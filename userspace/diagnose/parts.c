/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* One trainer's and one loader's part of the idle time: where several train on one machine, or train and
 * validate by turns, each has its own cause. */
#include "diagnose/summary.h"

#include <errno.h>
#include <stdlib.h>

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

static struct dl_part *part_of(struct dl_part_vec *parts, uint32_t proc)
{
	while (parts->cnt <= proc) {
		if (!vec_push(parts))
			return NULL;
	}
	return &parts->v[proc];
}

int dl_parts_add(struct dl_parts *parts, const struct dl_timeline *tl, const struct dl_gap *gap)
{
	struct dl_part *part = part_of(&parts->trainers, gap->proc);

	if (!part)
		return -ENOMEM;
	add_gap(part, gap);
	if (!gap->worker || tl->procs.v[gap->worker - 1].trainer != gap->proc)
		return 0;
	part = part_of(&parts->workers, gap->worker - 1);
	if (!part)
		return -ENOMEM;
	add_gap(part, gap);
	return 0;
}

static void add_part(struct dl_part *into, const struct dl_part *from)
{
	into->idle_ns += from->idle_ns;
	for (int c = 0; c < DL_CAUSE_CNT; c++)
		into->cause_ns[c] += from->cause_ns[c];
}

static int merge(struct dl_part_vec *into, const struct dl_part_vec *from)
{
	for (uint32_t i = 0; i < from->cnt; i++) {
		struct dl_part *part = from->v[i].idle_ns ? part_of(into, i) : NULL;

		if (from->v[i].idle_ns && !part)
			return -ENOMEM;
		if (part)
			add_part(part, &from->v[i]);
	}
	return 0;
}

int dl_parts_merge(struct dl_parts *into, const struct dl_parts *from)
{
	int err = merge(&into->trainers, &from->trainers);

	return err ? err : merge(&into->workers, &from->workers);
}

void dl_parts_publish(const struct dl_parts *parts, struct dl_report *r, const struct dl_timeline *tl)
{
	vec_for_each(&r->trainers, t) {
		if (t->proc < parts->trainers.cnt)
			add_part(&t->part, &parts->trainers.v[t->proc]);
	}
	for (uint32_t i = 0; i < parts->workers.cnt; i++) {
		const struct dl_proc *p = &tl->procs.v[i];

		vec_for_each(&r->loaders, l) {
			if (p->loader >= 0 && l->proc == p->trainer && l->index == (uint32_t)p->loader)
				add_part(&l->part, &parts->workers.v[i]);
		}
	}
}

void dl_parts_fini(struct dl_parts *parts)
{
	vec_free(&parts->trainers);
	vec_free(&parts->workers);
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
