/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Where charged time is added up: the gap, its chain, the totals with their evidence. */
#include "diagnose/walk.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void dl_ledger_fini(struct dl_ledger *l)
{
	for (int c = 0; c < DL_CAUSE_CNT; c++)
		dl_map_fini(&l->evidence[c]);
	dl_map_fini(&l->devs);
}

/* --- evidence in bounded memory --- */

#define EVIDENCE_MAX 16384
#define EVIDENCE_SHARE 65536	/* less than one such part of the cause's time is forgotten */

/* Devices of files that nothing is known of any more. */
static int forget_files(struct dl_ledger *l)
{
	struct dl_map kept = {};
	uint64_t key, dev;
	size_t pos = 0;
	int err = 0;

	while (!err && dl_map_next(&l->devs, &pos, &key, &dev)) {
		bool used = false;

		for (int c = 0; c < DL_CAUSE_CNT; c++)
			used |= dl_map_get(&l->evidence[c], key, NULL);
		if (used)
			err = dl_map_set(&kept, key, dev);
	}
	dl_map_fini(&l->devs);
	l->devs = kept;
	return err;
}

/* Only what has a twentieth of a cause is said in the end. Threads may be said together, and are not that many. */
static int forget_small(struct dl_ledger *l, int cause)
{
	struct dl_map *m = &l->evidence[cause], kept = {};
	uint64_t key, ns;
	size_t pos = 0;
	int err = 0;

	while (!err && dl_map_next(m, &pos, &key, &ns)) {
		if (key >> 60 != DL_EVI_FILE || ns >= l->causes[cause].ns / EVIDENCE_SHARE)
			err = dl_map_set(&kept, key, ns);
	}
	dl_map_fini(m);
	*m = kept;
	l->room[cause] = 2 * kept.cnt;
	return err ? err : forget_files(l);
}

static int add_evidence(struct dl_ledger *l, int cause, uint64_t key, uint64_t ns)
{
	struct dl_map *m = &l->evidence[cause];
	uint64_t *had = dl_map_at(m, key);

	if (!had)
		return -ENOMEM;
	*had += ns;
	return m->cnt > EVIDENCE_MAX && m->cnt > l->room[cause] ? forget_small(l, cause) : 0;
}

int dl_ledger_merge(struct dl_ledger *into, const struct dl_ledger *from)
{
	uint64_t key, val;
	size_t pos = 0;
	int err = from->err;

	for (int c = 0; c < DL_CAUSE_CNT; c++) {
		struct dl_charge *a = &into->causes[c];
		const struct dl_charge *b = &from->causes[c];

		a->ns += b->ns;
		a->via_lock_ns += b->via_lock_ns;
		a->gaps += b->gaps;
		a->own_tree_ns += b->own_tree_ns;
		a->affinity_ns += b->affinity_ns;
		a->estimated_ns += b->estimated_ns;
		for (pos = 0; !err && dl_map_next(&from->evidence[c], &pos, &key, &val);)
			err = add_evidence(into, c, key, val);
	}
	for (pos = 0; !err && dl_map_next(&from->devs, &pos, &key, &val);)
		err = dl_map_set(&into->devs, key, val);
	return err;
}

static void add_step(struct dl_walk *w, enum dl_cause cause, uint32_t thread, uint64_t start, uint64_t end,
		     const struct dl_what *what)
{
	const struct dl_thread *th = &w->tl->threads.v[thread];
	struct dl_step *last = vec_last(&w->gap->steps);
	struct dl_step *s;

	if (last && !w->jumped && last->start == end && last->cause == cause && last->tid == th->tid && last->text &&
	    !strcmp(last->text, what->text)) {
		last->start = start;
		return;
	}
	s = vec_push(&w->gap->steps);
	if (!s) {
		if (w->ledger)
			w->ledger->err = -ENOMEM;
		return;
	}
	s->start = start;
	s->end = end;
	s->cause = cause;
	s->tid = th->tid;
	s->pid = th->proc == DL_NONE ? th->tid : w->tl->procs.v[th->proc].pid;
	s->role = th->role;
	s->via_lock = w->via_lock;
	s->jump = w->jumped;
	w->jumped = false;
	s->text = strdup(what->text);
	if (!s->text && w->ledger)
		w->ledger->err = -ENOMEM;
}

static void charge(struct dl_walk *w, enum dl_cause cause, uint32_t thread, uint64_t start, uint64_t end,
		   const struct dl_what *what)
{
	uint64_t ns = end - start;
	struct dl_charge *c;

	w->gap->cause_ns[cause] += ns;
	if (w->want_steps)
		add_step(w, cause, thread, start, end, what);
	if (!w->ledger)
		return;
	c = &w->ledger->causes[cause];
	c->ns += ns;
	if (w->via_lock)
		c->via_lock_ns += ns;
	if (what->estimated || (w->copy_estimated && cause == DL_CAUSE_PCIE))
		c->estimated_ns += ns;
	if (what->own_tree)
		c->own_tree_ns += ns;
	if (what->affinity)
		c->affinity_ns += ns;
	if (what->kind) {
		uint64_t key = dl_evidence_key(what->kind, what->id);

		if (add_evidence(w->ledger, cause, key, ns))
			w->ledger->err = -ENOMEM;
		if (what->kind == DL_EVI_FILE && dl_map_set(&w->ledger->devs, key, what->dev))
			w->ledger->err = -ENOMEM;
	}
}

void dl_charge(struct dl_walk *w, enum dl_cause cause, uint32_t thread, uint64_t start, uint64_t end,
	       const struct dl_what *what)
{
	struct dl_what refill = { .text = "ran: refilling the GPU after a synchronise", .kind = DL_EVI_THREAD,
				  .id = thread };
	uint64_t part;

	if (start >= end)
		return;
	if (w->relabel != DL_CAUSE_CNT && cause != DL_CAUSE_CPU_CONTENTION && cause != DL_CAUSE_CPU_QUOTA)
		cause = w->relabel;
	if (cause == DL_CAUSE_HOST && w->sync_budget && thread == w->sync_thread && end > w->sync_end) {
		part = end - (start > w->sync_end ? start : w->sync_end);
		if (part > w->sync_budget)
			part = w->sync_budget;
		w->sync_budget -= part;
		charge(w, DL_CAUSE_SYNC, thread, end - part, end, &refill);
		end -= part;
	}
	if (start < end)
		charge(w, cause, thread, start, end, what);
}
