/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Makes a long trace from a recorded one: a stretch of it is repeated, one behind the other, until
 * there are enough events.
 *
 *	repeat FILE OUT EVENTS
 *
 * What lies before the stretch and behind it is written once. The stretch holds no birth and no death,
 * and begins and ends at instants at which every recorded thread is in the same state (on which CPU,
 * ready, waiting), so that the end of one repetition goes with the beginning of the next. Times move on
 * by the length of the stretch; running totals (CPU time, faults, context switches) by what they grew in
 * it, correlation ids by their range. What only says what something is (names, symbols, stacks) is
 * written once.
 * Prints one line of JSON.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/str.h"
#include "base/vec.h"
#include "trace/schema.h"
#include "trace/trace.h"

#define FLUSH_NS 250000000	/* as often as a recorder does */
#define CPUS_MAX 4096

/* All events, in the order of time, one behind the other. */
static DL_VEC(uint8_t) bytes;
static DL_VEC(size_t) at;	/* where each begins */

/* A running total of something: what it was before the stretch, first and last in it. */
struct total {
	uint64_t before, first, last;
	bool has_before, seen;
};

static DL_VEC(struct total) totals;
static struct dl_map total_of;

/* A number that grows by add with each repetition. */
struct patch {
	size_t off;	/* in bytes */
	uint64_t add;
	uint8_t sz;
};
typedef DL_VEC(struct patch) patches;

/* Events [from, to) are repeated. */
struct stretch {
	size_t from, to;
	uint64_t span_ns, corr_step;
};

static void die(const char *what, const char *why)
{
	fprintf(stderr, "repeat: %s: %s\n", what, why);
	exit(1);
}

static struct dl_hdr *event(size_t i)
{
	return (struct dl_hdr *)(bytes.v + at.v[i]);
}

/* --- reading --- */

static void load(struct dl_trace *t, const char *path)
{
	const struct dl_hdr *ev;
	int got;

	while ((got = dl_trace_next(t, &ev)) > 0) {
		size_t sz = (ev->size + 7u) & ~7u, *slot = vec_push(&at);

		if (!slot || vec_reserve(&bytes, sz))
			die(path, strerror(ENOMEM));
		*slot = bytes.cnt;
		memcpy(bytes.v + bytes.cnt, ev, ev->size);
		bytes.cnt += sz;
	}
	if (got < 0)
		die(path, strerror(-got));
	if (!at.cnt)
		die(path, "no events");
}

/* --- the stretch --- */

/* What happens again; everything else says what something is, once. */
static bool is_flow(const struct dl_hdr *ev)
{
	switch (ev->kind) {
	case DL_EV_SWITCH:
	case DL_EV_WAKE:
	case DL_EV_MEM:
	case DL_EV_MAJOR_FAULT:
	case DL_EV_RECLAIM:
	case DL_EV_BLOCK_IO:
	case DL_EV_SAMPLE:
	case DL_EV_ENV_HOST:
	case DL_EV_ENV_CGROUP:
	case DL_EV_ENV_SHM:
	case DL_EV_ENV_PROC:
	case DL_EV_GPU_KERNEL:
	case DL_EV_GPU_MEMCPY:
	case DL_EV_GPU_MEMSET:
	case DL_EV_GPU_SYNC:
	case DL_EV_GPU_API:
	case DL_EV_GPU_CLOCK:
	case DL_EV_GPU_OVERHEAD:
	case DL_EV_GPU_GRAPH:
	case DL_EV_GPU_SAMPLE:
	case DL_EV_SPAN:
		return true;
	}
	return false;
}

static bool is_life(const struct dl_hdr *ev)
{
	return ev->kind == DL_EV_FORK || ev->kind == DL_EV_EXEC || ev->kind == DL_EV_EXIT;
}

/* What recorded threads do: 0 they wait, READY, or RUNNING and on which CPU. */
enum { READY = 1, RUNNING = 2 };

struct states {
	struct dl_map of;		/* by thread */
	uint32_t on_cpu[CPUS_MAX];	/* 0: none of them */
	uint64_t sum;			/* over all that do not wait: equal sums, equal states */
};

static uint64_t state_of(const struct states *st, uint32_t tid)
{
	uint64_t state = 0;

	dl_map_get(&st->of, tid, &state);
	return state;
}

static void set_state(struct states *st, uint32_t tid, uint64_t state)
{
	uint64_t old = state_of(st, tid);

	if (old)
		st->sum ^= dl_hash64((uint64_t)tid << 32 | old);
	if (state)
		st->sum ^= dl_hash64((uint64_t)tid << 32 | state);
	if (dl_map_set(&st->of, tid, state))
		die("threads", strerror(ENOMEM));
}

static void on_switch(struct states *st, const struct dl_ev_switch *ev)
{
	bool prev_own = ev->h.tid && !(ev->h.flags & DL_HDR_FOREIGN);
	bool next_own = ev->next_tid && !(ev->flags & DL_SW_NEXT_FOREIGN);
	bool ready = !ev->prev_state || ev->flags & DL_SW_PREEMPT;
	uint32_t *cpu;

	if (ev->h.cpu >= CPUS_MAX)
		die("switch", "too many CPUs");
	cpu = &st->on_cpu[ev->h.cpu];
	if (*cpu && *cpu != ev->h.tid)
		set_state(st, *cpu, 0);	/* kernels leave switches out at times */
	if (prev_own)
		set_state(st, ev->h.tid, ready ? READY : 0);
	if (next_own)
		set_state(st, ev->next_tid, RUNNING + ev->h.cpu);
	*cpu = next_own ? ev->next_tid : 0;
}

static void follow(struct states *st, const struct dl_hdr *ev)
{
	const struct dl_ev_wake *wake = (const void *)ev;

	if (ev->kind == DL_EV_SWITCH)
		on_switch(st, (const void *)ev);
	else if (ev->kind == DL_EV_WAKE && !(wake->flags & DL_WK_FOREIGN_WAKEE) && !state_of(st, wake->wakee_tid))
		set_state(st, wake->wakee_tid, READY);
}

/* The longest run of events [*from, *to) without a birth or death. */
static void find_calm(size_t *from, size_t *to)
{
	size_t start = 0;

	*from = *to = 0;
	for (size_t i = 0; i <= at.cnt; i++) {
		if (i < at.cnt && !is_life(event(i)))
			continue;
		if (i - start > *to - *from) {
			*from = start;
			*to = i;
		}
		start = i + 1;
	}
}

/*
 * The farthest two instants at which all recorded threads are in the same states. Without the first
 * tenth of the calm, in which not every thread has been seen yet, and its end.
 */
static void find_stretch(struct stretch *s, const char *path)
{
	static struct states st;
	size_t calm_from, calm_to, first, last;
	struct dl_map since = {};

	find_calm(&calm_from, &calm_to);
	first = calm_from + (calm_to - calm_from) / 10;
	last = calm_to - (calm_to - calm_from) / 50;
	for (size_t i = 0; i + 1 < last; i++) {
		uint64_t from;

		follow(&st, event(i));
		if (i < first || event(i)->kind != DL_EV_SWITCH)
			continue;
		if (!dl_map_get(&since, st.sum, &from)) {
			if (dl_map_set(&since, st.sum, i + 1))
				die(path, strerror(ENOMEM));
		} else if (i + 1 - from > s->to - s->from) {
			s->from = from;
			s->to = i + 1;
		}
	}
	dl_map_fini(&since);
	dl_map_fini(&st.of);
	if (s->to <= s->from)
		die(path, "no two instants are alike");
	s->span_ns = event(s->to)->ts - event(s->from)->ts;
}

/* --- what grows --- */

static uint64_t get(size_t off, uint8_t sz)
{
	uint64_t v = 0;

	memcpy(&v, bytes.v + off, sz);	/* little-endian, as all event structs are */
	return v;
}

static void grow(const struct patch *p)
{
	uint64_t v = get(p->off, p->sz) + p->add;

	memcpy(bytes.v + p->off, &v, p->sz);
}

/* Totals of a thread have the same name in every kind; those of the machine and of cgroups are their kind's. */
static struct total *total(const struct dl_hdr *ev, const struct dl_event_desc *desc, const struct dl_field *f)
{
	struct { uint32_t kind, tid, level, name; } key = { .tid = ev->tid };
	uint64_t hash, idx;
	struct total *t;

	if (desc->group == DL_GROUP_ENV) {
		key.kind = ev->kind;
		key.tid = ev->pid;
		if (ev->kind == DL_EV_ENV_CGROUP)
			key.level = ((const struct dl_ev_env_cgroup *)ev)->level;
	}
	key.name = (uint32_t)dl_hash_bytes(f->name, strlen(f->name));
	hash = dl_hash_bytes(&key, sizeof(key));
	if (dl_map_get(&total_of, hash, &idx))
		return &totals.v[idx];
	t = vec_push(&totals);
	if (!t || dl_map_set(&total_of, hash, totals.cnt - 1))
		die("totals", strerror(ENOMEM));
	return t;
}

static void see_totals(size_t i, bool before)
{
	const struct dl_hdr *ev = event(i);
	const struct dl_event_desc *desc = dl_event_desc(ev->kind);

	if (!is_flow(ev) || ev->flags & DL_HDR_FOREIGN)
		return;
	for (const struct dl_field *f = desc->fields; f < desc->fields + desc->field_cnt; f++) {
		struct total *t;

		if (f->unit != DL_UNIT_TOTAL)
			continue;
		t = total(ev, desc, f);
		t->last = get(at.v[i] + f->off, f->size);
		if (before) {
			t->before = t->last;
			t->has_before = true;
		} else if (!t->seen) {
			t->first = t->last;
			t->seen = true;
		}
	}
}

static uint64_t growth(const struct total *t)
{
	return t->seen ? t->last - (t->has_before ? t->before : t->first) : 0;
}

static bool is_corr(const struct dl_field *f)
{
	return !strcmp(f->name, "corr");
}

static uint64_t corr_range(const struct stretch *s)
{
	uint64_t least = UINT64_MAX, most = 0;

	for (size_t i = s->from; i < s->to; i++) {
		const struct dl_event_desc *desc = dl_event_desc(event(i)->kind);

		for (const struct dl_field *f = desc->fields; f < desc->fields + desc->field_cnt; f++) {
			uint64_t v = is_corr(f) ? get(at.v[i] + f->off, f->size) : 0;

			if (v) {
				least = v < least ? v : least;
				most = v > most ? v : most;
			}
		}
	}
	return most ? most - least + 1 : 0;
}

static void add_patch(patches *to, size_t off, uint8_t sz, uint64_t add)
{
	struct patch *p;

	if (!add)
		return;
	p = vec_push(to);
	if (!p)
		die("patches", strerror(ENOMEM));
	*p = (struct patch){ .off = off, .add = add, .sz = sz };
}

/* How much one number of an event grows from one repetition to the next. */
static uint64_t step_of(const struct stretch *s, size_t i, const struct dl_event_desc *desc, const struct dl_field *f)
{
	const struct dl_hdr *ev = event(i);

	if (f->unit == DL_UNIT_TIME) {
		uint64_t ts = get(at.v[i] + f->off, f->size);

		/* When a thread was created, say, does not move on. */
		return ts && (is_flow(ev) || ts >= event(s->to)->ts) ? s->span_ns : 0;
	}
	if (ev->kind == DL_EV_GPU_CLOCK && f->unit == DL_UNIT_NUM)
		return s->span_ns;
	if (f->unit == DL_UNIT_TOTAL && !(ev->flags & DL_HDR_FOREIGN))
		return growth(total(ev, desc, f));
	return is_corr(f) && get(at.v[i] + f->off, f->size) ? s->corr_step : 0;
}

static void patch_event(patches *to, const struct stretch *s, size_t i, uint64_t times)
{
	const struct dl_hdr *ev = event(i);
	const struct dl_event_desc *desc = dl_event_desc(ev->kind);

	add_patch(to, at.v[i] + offsetof(struct dl_hdr, ts), sizeof(ev->ts), s->span_ns * times);
	for (const struct dl_field *f = desc->fields; f < desc->fields + desc->field_cnt; f++)
		add_patch(to, at.v[i] + f->off, f->size, step_of(s, i, desc, f) * times);
}

/* --- writing --- */

struct out {
	struct dl_trace_writer *w;
	const char *path;
	uint64_t flushed_ts;
};

static void put(struct out *o, size_t i)
{
	const struct dl_hdr *ev = event(i);
	int err = dl_trace_write(o->w, ev);

	if (!err && ev->ts > o->flushed_ts + FLUSH_NS) {
		o->flushed_ts = ev->ts;
		err = dl_trace_writer_flush(o->w, ev->ts);
	}
	if (err)
		die(o->path, strerror(-err));
}

static uint64_t put_all(struct out *o, const struct stretch *s, uint64_t want)
{
	uint64_t flow = 0, times = 1, outside;
	patches grown = {}, moved = {};

	for (size_t i = 0; i < s->to; i++)
		see_totals(i, i < s->from);
	for (size_t i = s->from; i < s->to; i++) {
		if (!is_flow(event(i)))
			continue;
		patch_event(&grown, s, i, 1);
		flow++;
	}
	outside = at.cnt - flow;
	if (!flow)
		die(o->path, "nothing happens in the stretch");
	if (want > outside + flow)
		times = (want - outside + flow - 1) / flow;
	for (size_t i = s->to; i < at.cnt; i++)
		patch_event(&moved, s, i, times - 1);

	for (size_t i = 0; i < s->from; i++)
		put(o, i);
	for (uint64_t n = 0; n < times; n++) {
		for (size_t i = s->from; i < s->to; i++)
			if (!n || is_flow(event(i)))
				put(o, i);
		vec_for_each(&grown, p)
			grow(p);
	}
	vec_for_each(&moved, p)
		grow(p);
	for (size_t i = s->to; i < at.cnt; i++)
		put(o, i);
	vec_free(&grown);
	vec_free(&moved);
	return times;
}

int main(int argc, char **argv)
{
	struct dl_trace_writer_stats st;
	struct stretch s = {};
	struct dl_trace *t = NULL;
	struct dl_diag d = {};
	struct out o = {};
	uint64_t want, times;
	int fd;

	if (argc != 4 || !dl_parse_u64(argv[3], &want))
		die("usage", "repeat FILE OUT EVENTS");
	o.path = argv[2];
	if (dl_trace_open(&t, argv[1], &d))
		die(argv[1], d.msg);
	load(t, argv[1]);
	find_stretch(&s, argv[1]);
	s.corr_step = corr_range(&s);
	fd = open(o.path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		die(o.path, strerror(errno));
	if (dl_trace_writer_open(&o.w, fd, &dl_trace_info(t)->meta, NULL, &d))
		die(o.path, d.msg);
	times = put_all(&o, &s, want);
	dl_trace_writer_stats(o.w, &st);
	if (dl_trace_writer_close(o.w, &d))
		die(o.path, d.msg);
	printf("{\"events\": %" PRIu64 ", \"repetitions\": %" PRIu64 ", \"stretch_events\": %zu, \"stretch_ns\": %" PRIu64 "}\n",
	       st.events, times, s.to - s.from, s.span_ns);
	dl_trace_close(t);
	dl_map_fini(&total_of);
	vec_free(&totals);
	vec_free(&bytes);
	vec_free(&at);
	return 0;
}
