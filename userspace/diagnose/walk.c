/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The walk itself. Two kinds of jump: a wait for data leads to its waker for good; a wait for a
 * lock leads through what its holder did meanwhile and back to the waiter. The rules and what goes
 * wrong without each are in docs/DIAGNOSIS.md.
 */
#include "diagnose/walk.h"

#include <inttypes.h>
#include <stdio.h>

#define GIL_RERUN_NS 300000ULL		/* between two slices of one wait for the GIL */
#define GIL_FUTILE_NS 100000ULL		/* the same, after a wake */
#define DEPTH_MAX 8			/* locks behind locks */
#define LINKS_MAX 2000000ULL		/* segments in one walk: damage, not a program */
#define VISITED_MAX 32

static const char *const why_text[DL_WHY_CNT] = {
	[DL_WHY_UNKNOWN] = "blocked, no reason known",
	[DL_WHY_DATA] = "waited for another thread",
	[DL_WHY_LOCK] = "waited for a lock",
	[DL_WHY_GIL] = "waited for its interpreter (GIL)",
	[DL_WHY_KLOCK] = "waited for a lock of the kernel",
	[DL_WHY_KERNEL] = "waited in the kernel for no other thread (a grace period, or its own end)",
	[DL_WHY_STORAGE] = "waited for storage",
	[DL_WHY_SWAP] = "waited for swapped pages",
	[DL_WHY_MEMORY] = "waited for memory to be freed",
	[DL_WHY_NETWORK] = "waited for the network",
	[DL_WHY_SLEEP] = "slept",
	[DL_WHY_CHILD] = "waited for a child to end",
};

/* --- locks --- */

static bool same_process(const struct dl_timeline *tl, uint32_t a, uint32_t b)
{
	return tl->threads.v[a].proc != DL_NONE && tl->threads.v[a].proc == tl->threads.v[b].proc;
}

static bool woke_nobody(const struct dl_thread *th, uint64_t from, uint64_t to)
{
	size_t i = dl_woke_at(th, from);

	return i >= th->woke.cnt || th->woke.v[i].ts > to;
}

/* Did the thread come back from this wait for the GIL without it? It timed out, or it was woken and found
 * another one quicker: then it waits again at once, and has not told anybody that it had it. */
static bool came_back_without(const struct dl_timeline *tl, const struct dl_thread *th, uint32_t seg, uint64_t ran_ns)
{
	const struct dl_wait *w = dl_seg_wait(th, &th->segs.v[seg]);
	uint64_t end = dl_seg_end(th, seg);

	if (dl_why_blocked(tl, th, seg) != DL_WHY_GIL)
		return false;
	return dl_timed_out(w, th->segs.v[seg].start) ||
	       (ran_ns < GIL_FUTILE_NS && woke_nobody(th, end, end + GIL_RERUN_NS + ran_ns));
}

/* A wait for the GIL is a row of slices without it: one wait from the first to the last. */
static uint32_t first_gil_slice(const struct dl_timeline *tl, const struct dl_thread *th, uint32_t seg)
{
	uint64_t ran_ns = 0;

	for (uint32_t i = seg; i-- > 0;) {
		const struct dl_seg *s = &th->segs.v[i];

		if (s->state == DL_ST_UNKNOWN || s->state == DL_ST_GONE)
			break;
		if (s->state == DL_ST_RUNNING)
			ran_ns += dl_seg_end(th, i) - s->start;
		if (ran_ns > GIL_RERUN_NS)
			break;
		if (s->state != DL_ST_BLOCKED)
			continue;
		if (!came_back_without(tl, th, i, ran_ns))
			break;
		seg = i;
		ran_ns = 0;
	}
	return seg;
}

/* How long the thread sat in waits that the kernel or a device ended: it can hold the GIL meanwhile. */
static uint64_t stuck_ns(const struct dl_timeline *tl, const struct dl_thread *th, uint64_t from, uint64_t to)
{
	uint32_t i = dl_seg_before(th, to);
	uint64_t ns = 0;

	for (; i != DL_NONE && to > from; to = th->segs.v[i].start, i = i ? i - 1 : DL_NONE) {
		uint64_t start = th->segs.v[i].start > from ? th->segs.v[i].start : from;

		if (th->segs.v[i].state != DL_ST_BLOCKED || to <= start)
			continue;
		switch (dl_why_blocked(tl, th, i)) {
		case DL_WHY_STORAGE:
		case DL_WHY_SWAP:
		case DL_WHY_MEMORY:
		case DL_WHY_KLOCK:
		case DL_WHY_KERNEL:
			ns += to - start;
			break;
		default:
			break;
		}
	}
	return ns;
}

/* The thread of the process that was longest on or for a CPU, or stuck in the kernel. */
static uint32_t busiest(const struct dl_timeline *tl, uint32_t thread, uint64_t start, uint64_t end, bool stuck)
{
	const uint32_t proc = tl->threads.v[thread].proc;
	const struct dl_proc *p = proc == DL_NONE ? NULL : &tl->procs.v[proc];
	uint32_t best = DL_NONE;
	uint64_t most = 0;

	for (size_t k = 0; p && k < p->threads.cnt; k++) {
		const struct dl_span *lives = &p->lives.v[k / DL_BATCH];
		const uint32_t i = p->threads.v[k];
		const struct dl_thread *th = &tl->threads.v[i];
		uint64_t ns;

		/* Most of the threads that ever were are gone. */
		if (lives->start > end || lives->end < start) {
			k |= DL_BATCH - 1;
			continue;
		}
		if (i == thread || th->start > end || th->end < start)
			continue;
		ns = stuck ? stuck_ns(tl, th, start, end) : dl_running_ns(th, start, end, true);
		if (ns > most) {
			most = ns;
			best = i;
		}
	}
	return best;
}

/* Who had the GIL: the thread whose release ended the wait; where a timer ended it, the thread of
 * the process that was on or for a CPU most of that time; where none was, one that held it in a page
 * fault or the like. */
static uint32_t gil_holder(const struct dl_timeline *tl, uint32_t thread, const struct dl_wait *w,
			   uint64_t wait_start, uint64_t start, uint64_t end)
{
	uint32_t best;

	if (w->waker != DL_NONE && w->waker != thread && same_process(tl, thread, w->waker) &&
	    w->wake_ts && !dl_timed_out(w, wait_start))
		return w->waker;
	best = busiest(tl, thread, start, end, false);
	return best == DL_NONE ? busiest(tl, thread, start, end, true) : best;
}

/* Threads whose work is for the batch: behind their GIL the work is the cause, else the GIL is. */
static bool works_for_batch(enum dl_role role)
{
	return role == DL_ROLE_WORKER || role == DL_ROLE_FEEDER || role == DL_ROLE_SHARER ||
	       role == DL_ROLE_TRAINER || role == DL_ROLE_PIN || role == DL_ROLE_INDEX_FEEDER ||
	       role == DL_ROLE_LOADER_THREAD;
}

static void look_through(struct dl_walk *w, uint32_t thread, uint32_t holder, uint64_t start, uint64_t end,
			 enum dl_cause relabel, enum dl_cause otherwise)
{
	struct dl_what what = { .text = "waited for a lock, its holder is not known", .kind = DL_EVI_THREAD, .id = thread };
	enum dl_cause outer = w->relabel;

	if (holder == DL_NONE || holder == DL_IDLE || holder == thread || w->via_lock >= DEPTH_MAX ||
	    w->tl->threads.v[holder].proc == DL_NONE) {
		dl_charge(w, otherwise, thread, start, end, &what);
		return;
	}
	w->via_lock++;
	if (outer == DL_CAUSE_CNT)
		w->relabel = relabel;
	dl_walk_path(w, holder, end, start);
	w->relabel = outer;
	w->via_lock--;
}

/* The latency of waking up is charged as the wait, but its holder has released it by then and may do
 * something else: what counts is what it did before. */
static void charge_gil_latency(struct dl_walk *w, uint32_t thread, uint32_t holder, enum dl_cause relabel,
			       uint64_t start, uint64_t end)
{
	struct dl_what what = { .text = "waking up", .kind = DL_EVI_THREAD, .id = thread };
	enum dl_cause cause = DL_CAUSE_GIL;
	uint64_t unused;

	if (holder != DL_NONE && holder != DL_IDLE && relabel == DL_CAUSE_CNT)
		cause = dl_work_cause(w->tl, holder, start, &unused);
	w->via_lock++;
	dl_charge(w, cause, thread, start, end, &what);
	w->via_lock--;
}

/* Returns where the wait began: the walk goes on in the waiter before it. */
static uint64_t walk_gil(struct dl_walk *w, uint32_t thread, uint32_t seg, uint64_t t, uint64_t floor)
{
	const struct dl_thread *th = &w->tl->threads.v[thread];
	const struct dl_wait *wait = dl_seg_wait(th, &th->segs.v[seg]);
	uint32_t first = first_gil_slice(w->tl, th, seg);
	uint64_t start = th->segs.v[first].start, released = dl_seg_end(th, seg);
	enum dl_cause relabel = DL_CAUSE_CNT;
	uint32_t holder;

	if (start < floor)
		start = floor;
	if (released > t)
		released = t;
	holder = gil_holder(w->tl, thread, wait, th->segs.v[seg].start, start, released);
	if (holder != DL_NONE && !works_for_batch(w->tl->threads.v[holder].role))
		relabel = DL_CAUSE_GIL;
	if (released < t)
		charge_gil_latency(w, thread, holder, relabel, released > start ? released : start, t);
	if (released > start)
		look_through(w, thread, holder, start, released, relabel, DL_CAUSE_GIL);
	return start;
}

/* A lock that a worker's main thread waits for is the cause itself; locks of the hand-over (the
 * result pipe's write lock) lead to what their holder did. */
static void walk_lock(struct dl_walk *w, uint32_t thread, uint32_t seg, enum dl_why why, uint64_t start, uint64_t t)
{
	const struct dl_thread *th = &w->tl->threads.v[thread];
	const struct dl_wait *wait = dl_seg_wait(th, &th->segs.v[seg]);
	enum dl_cause relabel = DL_CAUSE_CNT, otherwise = DL_CAUSE_LOCK;

	if (why == DL_WHY_LOCK && (th->role == DL_ROLE_WORKER || th->role == DL_ROLE_LOADER_THREAD))
		relabel = DL_CAUSE_LOCK;
	if (why == DL_WHY_KLOCK)
		otherwise = DL_CAUSE_UNEXPLAINED;
	look_through(w, thread, wait->wake_ts ? wait->waker : DL_NONE, start, t, relabel, otherwise);
}

/* --- data --- */

/* Nobody ended the wait: the trace did. Who should have? For a trainer that waits for a batch the
 * worker that was busiest since; else nobody is known. */
static uint32_t expected_waker(const struct dl_timeline *tl, uint32_t thread, uint64_t start, uint64_t end)
{
	const struct dl_thread *th = &tl->threads.v[thread];
	uint32_t best = DL_NONE;
	uint64_t most = 0;

	if (th->role != DL_ROLE_TRAINER && th->role != DL_ROLE_PIN)
		return DL_NONE;
	vec_for_each(&tl->procs, p) {
		uint64_t ns;

		if (p->role != DL_ROLE_WORKER || p->trainer != th->proc || p->main == DL_NONE ||
		    p->start > end || p->end < start)
			continue;
		ns = dl_running_ns(&tl->threads.v[p->main], start, end, true);
		if (ns > most) {
			most = ns;
			best = p->main;
		}
	}
	return best;
}

/* The thread to go on in, or DL_NONE with the cause to charge to the waiter. */
static uint32_t data_source(const struct dl_timeline *tl, uint32_t thread, uint32_t seg, uint64_t t,
			    enum dl_cause *ret_cause)
{
	const struct dl_thread *th = &tl->threads.v[thread];
	const struct dl_seg *s = &th->segs.v[seg];
	const struct dl_wait *w = dl_seg_wait(th, s);
	uint32_t waker = w->waker;

	*ret_cause = DL_CAUSE_UNEXPLAINED;
	if (!w->wake_ts || waker == DL_NONE)
		return dl_seg_end(th, seg) >= th->end ? expected_waker(tl, thread, s->start, t) : DL_NONE;
	if (dl_timed_out(w, s->start)) {
		*ret_cause = DL_CAUSE_SLEEP;
		return DL_NONE;
	}
	if (waker == DL_IDLE || (w->wake_flags & DL_WK_IRQ)) {
		if (w->file_kind == DL_FILE_INET)
			*ret_cause = DL_CAUSE_NETWORK;
		return DL_NONE;
	}
	if (tl->threads.v[waker].proc == DL_NONE) {
		if (!tl->threads.v[waker].kthread)
			*ret_cause = DL_CAUSE_EXTERNAL;
		return DL_NONE;
	}
	return waker;
}

/* Charges a wait that ends in the waiter itself. */
static void charge_wait(struct dl_walk *w, uint32_t thread, uint32_t seg, enum dl_cause cause, const char *text,
			uint64_t start, uint64_t t)
{
	const struct dl_thread *th = &w->tl->threads.v[thread];
	const struct dl_wait *wait = dl_seg_wait(th, &th->segs.v[seg]);
	struct dl_what what = { .text = text, .kind = DL_EVI_THREAD, .id = thread };
	char detailed[96];

	if (cause == DL_CAUSE_STORAGE && wait->file_ino) {
		what.kind = DL_EVI_FILE;
		what.id = (uint64_t)wait->file_dev << 32 ^ wait->file_ino;
		what.dev = wait->file_dev;
		snprintf(detailed, sizeof(detailed), "%s: inode %" PRIu64 " on device %u:%u", text, wait->file_ino,
			 wait->file_dev >> 20, wait->file_dev & 0xfffff);
		what.text = detailed;
	} else if (cause == DL_CAUSE_EXTERNAL && wait->waker != DL_NONE) {
		const struct dl_thread *waker = &w->tl->threads.v[wait->waker];

		what.id = wait->waker;
		snprintf(detailed, sizeof(detailed), "waited for %s (tid %u, outside the job)",
			 waker->name[0] ? waker->name : "a process", waker->tid);
		what.text = detailed;
	}
	dl_charge(w, cause, thread, start, t, &what);
}

struct place { uint32_t thread; uint64_t t; };
struct visited { struct place at[VISITED_MAX]; uint32_t cnt; };

/* Two threads that woke each other at one instant would be walked for ever. */
static bool visit(struct visited *v, uint32_t thread, uint64_t t)
{
	if (v->cnt && v->at[v->cnt - 1].t != t)
		v->cnt = 0;
	for (uint32_t i = 0; i < v->cnt; i++) {
		if (v->at[i].thread == thread)
			return false;
	}
	if (v->cnt < VISITED_MAX)
		v->at[v->cnt++] = (struct place){ thread, t };
	return true;
}

/* The first worker that the path comes to made the batch that was waited for. */
static void note_worker(struct dl_walk *w, uint32_t thread)
{
	uint32_t proc = w->tl->threads.v[thread].proc;

	if (w->gap && !w->gap->worker && proc != DL_NONE && w->tl->procs.v[proc].role == DL_ROLE_WORKER)
		w->gap->worker = proc + 1;
}

/* One blocked segment. Moves *thread and *t to where the walk goes on. */
static void walk_blocked(struct dl_walk *w, uint32_t *thread, uint64_t *t, uint32_t seg, uint64_t floor,
			 struct visited *visited)
{
	const struct dl_thread *th = &w->tl->threads.v[*thread];
	uint64_t start = th->segs.v[seg].start > floor ? th->segs.v[seg].start : floor;
	const struct dl_api *api = dl_api_at(w->tl, th, *t);
	enum dl_why why = dl_why_blocked(w->tl, th, seg);
	enum dl_cause cause = dl_why_cause(why);
	uint32_t next;

	if (api) {
		if (api->start > start)
			start = api->start;
		dl_charge_running(w, *thread, start, *t);
		*t = start;
		return;
	}
	if (why == DL_WHY_GIL) {
		*t = walk_gil(w, *thread, seg, *t, floor);
		return;
	}
	if (why == DL_WHY_LOCK || why == DL_WHY_KLOCK) {
		walk_lock(w, *thread, seg, why, start, *t);
		*t = start;
		return;
	}
	if (why == DL_WHY_KERNEL) {
		uint64_t from;

		cause = dl_work_cause(w->tl, *thread, *t, &from);
		start = from > start ? from : start;
	}
	if (why == DL_WHY_DATA || why == DL_WHY_CHILD || why == DL_WHY_NETWORK) {
		next = data_source(w->tl, *thread, seg, *t, &cause);
		if (next != DL_NONE && visit(visited, next, *t)) {
			note_worker(w, next);
			*thread = next;
			w->jumped = true;
			return;
		}
		if (why == DL_WHY_NETWORK)
			cause = DL_CAUSE_NETWORK;
	}
	charge_wait(w, *thread, seg, cause, why_text[why], start, *t);
	*t = start;
}

/* Returns where the walk goes on in the thread. */
static uint64_t walk_runnable(struct dl_walk *w, uint32_t thread, uint32_t seg, uint64_t start, uint64_t t, uint64_t floor)
{
	enum dl_why why;

	if (!dl_is_latency(w->tl, thread, seg)) {
		dl_charge_runnable(w, thread, seg, start, t);
		return start;
	}
	/* The latency of waking up is charged as the wait: behind the GIL as what its holder does. */
	why = dl_why_blocked(w->tl, &w->tl->threads.v[thread], seg - 1);
	if (why == DL_WHY_GIL)
		return walk_gil(w, thread, seg - 1, t, floor);
	dl_charge_latency(w, thread, seg, why, start, t);
	return start;
}

void dl_walk_path(struct dl_walk *w, uint32_t thread, uint64_t t, uint64_t floor)
{
	struct dl_what lost = { .text = "not known: events are missing" };
	struct visited visited = {};

	visit(&visited, thread, t);
	while (t > floor) {
		const struct dl_thread *th = &w->tl->threads.v[thread];
		uint32_t seg = dl_seg_before(th, t);
		uint64_t start;

		if (++w->links > LINKS_MAX) {
			dl_charge(w, DL_CAUSE_UNEXPLAINED, thread, floor, t, &lost);
			return;
		}
		if (dl_only_spans(w->tl, thread)) {
			t = dl_charge_spans(w, thread, floor, t);
			continue;
		}
		if (seg == DL_NONE) {
			/* Before its birth a thread is what its creator did. */
			if (th->start && th->creator != DL_NONE && visit(&visited, th->creator, t)) {
				thread = th->creator;
				continue;
			}
			dl_charge(w, DL_CAUSE_UNEXPLAINED, thread, floor, t, &lost);
			return;
		}
		start = th->segs.v[seg].start > floor ? th->segs.v[seg].start : floor;
		switch (th->segs.v[seg].state) {
		case DL_ST_RUNNING:
			dl_charge_running(w, thread, start, t);
			t = start;
			break;
		case DL_ST_RUNNABLE:
			t = walk_runnable(w, thread, seg, start, t, floor);
			break;
		case DL_ST_BLOCKED:
			walk_blocked(w, &thread, &t, seg, floor, &visited);
			break;
		default:
			dl_charge(w, DL_CAUSE_UNEXPLAINED, thread, start, t, &lost);
			t = start;
		}
	}
}
