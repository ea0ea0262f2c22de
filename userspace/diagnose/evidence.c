/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#include "diagnose/evidence.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define TOP_CNT 3
#define NAME_MAX_SZ 60	/* kernels have long names */

void dl_add_who(struct dl_str *s, const struct dl_timeline *tl, uint32_t thread)
{
	const struct dl_thread *th = &tl->threads.v[thread];
	const struct dl_proc *p = th->proc == DL_NONE ? NULL : &tl->procs.v[th->proc];

	if (!p) {
		dl_str_addf(s, "%s (pid %u, outside the job)", th->name[0] ? th->name : "unknown", th->tid);
		return;
	}
	dl_str_add(s, dl_role_id(p->role));
	if (p->index >= 0)
		dl_str_addf(s, " %d", p->index);
	if (th->role != p->role)
		dl_str_addf(s, "'s %s", dl_role_id(th->role));
	dl_str_addf(s, " (%s %u%s%s)", th->tid == p->pid ? "pid" : "tid", th->tid, th->name[0] ? ", " : "", th->name);
}

struct top { uint64_t key, ns; };

static size_t find_top(const struct dl_map *m, struct top top[TOP_CNT])
{
	uint64_t key, ns;
	size_t pos = 0, cnt = 0;

	while (dl_map_next(m, &pos, &key, &ns)) {
		size_t i = cnt < TOP_CNT ? cnt++ : TOP_CNT;

		for (; i > 0 && (top[i - 1].ns < ns || (top[i - 1].ns == ns && top[i - 1].key > key)); i--) {
			if (i < TOP_CNT)
				top[i] = top[i - 1];
		}
		if (i < TOP_CNT)
			top[i] = (struct top){ key, ns };
	}
	return cnt;
}

/* Any wait that named this file: for its file system and kind. */
static void add_file(struct dl_str *s, const struct dl_timeline *tl, uint64_t id)
{
	vec_for_each(&tl->threads, th) {
		vec_for_each(&th->waits, w) {
			if ((((uint64_t)w->file_dev << 32 ^ w->file_ino) & 0x0fffffffffffffffULL) != id || !w->file_ino)
				continue;
			dl_str_addf(s, "inode %" PRIu64 " on device %u:%u", w->file_ino, w->file_dev >> 20,
				    w->file_dev & 0xfffff);
			return;
		}
	}
	dl_str_add(s, "a file");
}

/* "" for what has no name */
static const char *name_of(const struct dl_timeline *tl, uint64_t id)
{
	uint32_t proc = (uint32_t)(id >> 32);
	const char *name = proc < tl->procs.cnt ? dl_string(tl, tl->procs.v[proc].pid, (uint32_t)id) : NULL;

	return name ? name : "";
}

static bool says_something(const struct dl_timeline *tl, uint64_t key)
{
	return key >> 60 != DL_EVI_NAME || name_of(tl, key & 0x0fffffffffffffffULL)[0];
}

static void add_evidence(struct dl_str *s, const struct dl_timeline *tl, enum dl_cause cause,
			 const struct top *t, uint64_t all)
{
	uint64_t id = t->key & 0x0fffffffffffffffULL;

	switch (t->key >> 60) {
	case DL_EVI_THREAD:
		if (cause == DL_CAUSE_CPU_CONTENTION)
			dl_str_add(s, "held by ");
		dl_add_who(s, tl, (uint32_t)id);
		break;
	case DL_EVI_FILE:
		add_file(s, tl, id);
		break;
	case DL_EVI_NAME:
		dl_str_addf(s, "%.*s", NAME_MAX_SZ, name_of(tl, id));
		break;
	default:
		return;
	}
	dl_str_addf(s, " %.0f %%", 100.0 * (double)t->ns / (double)all);
}

static int publish_cause(const struct dl_timeline *tl, enum dl_cause cause, const struct dl_map *evidence,
			 struct dl_charge *c)
{
	struct top top[TOP_CNT];
	struct dl_str s = {};
	size_t cnt = find_top(evidence, top);

	for (size_t i = 0; i < cnt && c->ns; i++) {
		/* Less than a twentieth says nothing: the time is spread over many. */
		if (top[i].ns * 20 < c->ns)
			break;
		if (!says_something(tl, top[i].key))
			continue;
		if (s.len)
			dl_str_add(&s, ", ");
		add_evidence(&s, tl, cause, &top[i], c->ns);
	}
	if (!s.len) {
		dl_str_fini(&s);
		return 0;
	}
	free(c->detail);
	c->detail = dl_str_take(&s);
	return c->detail ? 0 : -ENOMEM;
}

int dl_ledger_publish(const struct dl_timeline *tl, const struct dl_ledger *l, struct dl_charge causes[DL_CAUSE_CNT])
{
	for (int c = 0; c < DL_CAUSE_CNT; c++) {
		int err;

		causes[c] = l->causes[c];
		causes[c].detail = NULL;
		err = publish_cause(tl, (enum dl_cause)c, &l->evidence[c], &causes[c]);
		if (err)
			return err;
	}
	return l->err;
}

static uint64_t gap_ns(const struct dl_gap *g)
{
	return g->end - g->start;
}

int dl_keep_worst(struct dl_report *r, const struct dl_gap *gap, uint32_t cnt)
{
	struct dl_gap *least = NULL;

	if (!cnt)
		return 0;
	if (r->worst.cnt < cnt) {
		least = vec_push(&r->worst);
		if (!least)
			return -ENOMEM;
		*least = *gap;
		return 0;
	}
	vec_for_each(&r->worst, g) {
		if (!least || gap_ns(g) < gap_ns(least))
			least = g;
	}
	if (gap_ns(gap) > gap_ns(least))
		*least = *gap;
	return 0;
}

static int by_length(const void *a, const void *b)
{
	const struct dl_gap *x = a, *y = b;

	if (gap_ns(x) != gap_ns(y))
		return gap_ns(x) > gap_ns(y) ? -1 : 1;
	return x->start < y->start ? -1 : x->start > y->start;
}

void dl_sort_worst(struct dl_report *r)
{
	if (r->worst.cnt)
		qsort(r->worst.v, r->worst.cnt, sizeof(*r->worst.v), by_length);
}
