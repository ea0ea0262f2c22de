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

/* One entry of a line of evidence: a thread, several of one kind, a file, a name. */
struct top { uint64_t key, ns; uint32_t threads; };
struct tops { struct top *v; size_t cnt, cap; };

static uint64_t id_of(const struct top *t)
{
	return t->key & 0x0fffffffffffffffULL;
}

/* Threads of one kind: of a process and a role, or outside the job of a name. */
static int by_kind(const void *a, const void *b, void *arg)
{
	const struct top *x = a, *y = b;
	const struct dl_timeline *tl = arg;
	const struct dl_thread *s = &tl->threads.v[id_of(x)], *t = &tl->threads.v[id_of(y)];

	if (s->proc != t->proc)
		return s->proc < t->proc ? -1 : 1;
	if (s->proc == DL_NONE)
		return strcmp(s->name, t->name);
	return s->role < t->role ? -1 : s->role > t->role;
}

static int by_ns(const void *a, const void *b)
{
	const struct top *x = a, *y = b;

	if (x->ns != y->ns)
		return x->ns > y->ns ? -1 : 1;
	return x->key < y->key ? -1 : x->key > y->key;
}

/* Many threads of one kind, none of which has half of their time, become one entry. */
static size_t join_kind(struct top *v, size_t cnt)
{
	uint64_t sum = 0, most = 0;

	for (size_t i = 0; i < cnt; i++) {
		sum += v[i].ns;
		most = v[i].ns > most ? v[i].ns : most;
	}
	if (cnt <= 2 || most * 2 > sum)
		return cnt;
	v[0].ns = sum;
	v[0].threads = (uint32_t)cnt;
	return 1;
}

static void join_threads(struct tops *tops, const struct dl_timeline *tl)
{
	size_t kept = 0, threads = 0;

	/* threads first */
	for (size_t i = 0; i < tops->cnt; i++) {
		if (tops->v[i].key >> 60 == DL_EVI_THREAD) {
			struct top t = tops->v[i];

			tops->v[i] = tops->v[threads];
			tops->v[threads++] = t;
		}
	}
	qsort_r(tops->v, threads, sizeof(*tops->v), by_kind, (void *)tl);
	for (size_t i = 0, next; i < threads; i = next) {
		size_t left;

		for (next = i + 1; next < threads && !by_kind(&tops->v[i], &tops->v[next], (void *)tl); next++)
			;
		left = join_kind(&tops->v[i], next - i);
		memmove(&tops->v[kept], &tops->v[i], left * sizeof(*tops->v));
		kept += left;
	}
	memmove(&tops->v[kept], &tops->v[threads], (tops->cnt - threads) * sizeof(*tops->v));
	tops->cnt -= threads - kept;
}

static int find_top(struct tops *tops, const struct dl_timeline *tl, const struct dl_map *m)
{
	uint64_t key, ns;
	size_t pos = 0;

	while (dl_map_next(m, &pos, &key, &ns)) {
		struct top *t = vec_push(tops);

		if (!t)
			return -ENOMEM;
		*t = (struct top){ key, ns, 1 };
	}
	if (!tops->cnt)
		return 0;
	join_threads(tops, tl);
	qsort(tops->v, tops->cnt, sizeof(*tops->v), by_ns);
	return 0;
}

static void add_threads(struct dl_str *s, const struct dl_timeline *tl, const struct top *t)
{
	const struct dl_thread *th = &tl->threads.v[id_of(t)];
	const struct dl_proc *p = th->proc == DL_NONE ? NULL : &tl->procs.v[th->proc];
	const char *lib = NULL;

	if (t->threads == 1) {
		dl_add_who(s, tl, (uint32_t)id_of(t));
	} else if (!p) {
		dl_str_addf(s, "%u threads named %s, outside the job", t->threads, th->name[0] ? th->name : "?");
	} else {
		bool plain = th->role == DL_ROLE_TRAINER_THREAD || th->role == DL_ROLE_WORKER_THREAD;

		dl_str_addf(s, "%u %s%sthreads of %s", t->threads, plain ? "" : dl_role_id(th->role), plain ? "" : " ",
			    dl_role_id(p->role));
		if (p->index >= 0)
			dl_str_addf(s, " %d", p->index);
		dl_str_addf(s, " (pid %u)", p->pid);
	}
	if (p && th->tid != p->pid && (th->role == DL_ROLE_POOL || t->threads > 1))
		lib = dl_library_of(tl, th->proc, th->role);
	if (lib)
		dl_str_addf(s, ", in %s,", lib);
}

static void add_file(struct dl_str *s, const struct dl_ledger *l, uint64_t key)
{
	uint64_t dev, ino = key & 0x0fffffffffffffffULL;

	if (!dl_map_get(&l->devs, key, &dev)) {
		dl_str_add(s, "a file");
		return;
	}
	ino ^= dev << 32 & 0x0fffffffffffffffULL;
	dl_str_addf(s, "inode %" PRIu64 " on device %u:%u", ino, (uint32_t)dev >> 20, (uint32_t)dev & 0xfffff);
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

static void add_evidence(struct dl_str *s, const struct dl_timeline *tl, const struct dl_ledger *l, enum dl_cause cause,
			 const struct top *t, uint64_t all)
{
	uint64_t id = id_of(t);

	switch (t->key >> 60) {
	case DL_EVI_THREAD:
		if (cause == DL_CAUSE_CPU_CONTENTION)
			dl_str_add(s, "held by ");
		add_threads(s, tl, t);
		break;
	case DL_EVI_FILE:
		add_file(s, l, t->key);
		break;
	case DL_EVI_NAME:
		dl_str_addf(s, "%.*s", NAME_MAX_SZ, name_of(tl, id));
		break;
	default:
		return;
	}
	dl_str_addf(s, " %.0f %%", 100.0 * (double)t->ns / (double)all);
}

static int publish_cause(const struct dl_timeline *tl, enum dl_cause cause, const struct dl_ledger *l,
			 struct dl_charge *c)
{
	struct tops tops = {};
	struct dl_str s = {};
	int err = find_top(&tops, tl, &l->evidence[cause]);

	for (size_t i = 0; i < tops.cnt && i < TOP_CNT && c->ns; i++) {
		const struct top *t = &tops.v[i];

		/* Less than a twentieth says nothing: the time is spread over many. */
		if (t->ns * 20 < c->ns)
			break;
		if (!says_something(tl, t->key))
			continue;
		if (s.len)
			dl_str_add(&s, ", ");
		add_evidence(&s, tl, l, cause, t, c->ns);
	}
	vec_free(&tops);
	if (err || !s.len) {
		dl_str_fini(&s);
		return err;
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
		err = publish_cause(tl, (enum dl_cause)c, l, &causes[c]);
		if (err)
			return err;
	}
	return l->err;
}

static uint64_t gap_ns(const struct dl_gap *g)
{
	return g->end - g->start;
}

static void free_steps(struct dl_gap *g)
{
	vec_for_each(&g->steps, st)
		free(st->text);
	vec_free(&g->steps);
}

void dl_gaps_free(struct dl_gap_vec *gaps)
{
	vec_for_each(gaps, g)
		free_steps(g);
	vec_free(gaps);
}

int dl_keep_worst(struct dl_gap_vec *worst, const struct dl_gap *gap, uint32_t cnt)
{
	struct dl_gap *least = NULL;

	if (!cnt)
		return 0;
	if (worst->cnt < cnt) {
		least = vec_push(worst);
		if (!least)
			return -ENOMEM;
		*least = *gap;
		return 1;
	}
	vec_for_each(worst, g) {
		if (!least || gap_ns(g) < gap_ns(least))
			least = g;
	}
	if (gap_ns(gap) <= gap_ns(least))
		return 0;
	free_steps(least);
	*least = *gap;
	return 1;
}

static int by_length(const void *a, const void *b)
{
	const struct dl_gap *x = a, *y = b;

	if (gap_ns(x) != gap_ns(y))
		return gap_ns(x) > gap_ns(y) ? -1 : 1;
	return x->start < y->start ? -1 : x->start > y->start;
}

void dl_sort_worst(struct dl_gap_vec *worst)
{
	if (worst->cnt)
		qsort(worst->v, worst->cnt, sizeof(*worst->v), by_length);
}

void dl_worst_publish(struct dl_gap_vec *worst, struct dl_report *r)
{
	dl_sort_worst(worst);
	r->worst.v = worst->v;
	r->worst.cnt = worst->cnt;
	r->worst.cap = worst->cap;
	*worst = (struct dl_gap_vec){};
}
