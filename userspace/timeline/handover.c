/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * When a trainer's main thread takes a batch over: from the end of its wait at the result pipe, or
 * from its own first wake of a loader's thread (it made room in the pipe, it connected to the
 * sharer), to its wake of an index feeder. PyTorch sends the worker its next indices right after it
 * has the batch (torch/utils/data/dataloader.py, _process_data), in every release from 1.2 to 2.13:
 * what lies before is reading, unpickling and mapping, what lies behind is the training's own.
 */
#include "timeline/timeline.h"

#include <errno.h>

#include "timeline/syscalls.h"
#include "timeline/threads.h"

#define POLL_SLACK_MAX_NS 100000000ULL
#define ANNOUNCE_NS 40000	/* making a storage's name and message, taking the answer */
#define LEAD_NS 100000	/* from the read's begin, or from unpickling the name of a socket, to the wake */

bool dl_timed_out(const struct dl_wait *w, uint64_t start)
{
	uint64_t slack;

	if (!w->deadline || !w->wake_ts || w->deadline <= start)
		return false;
	/* The kernel lets poll and select be late by 0.1 % of their time-out, 0.5 % for a thread that is nice, and
	 * 100 ms at most (__estimate_accuracy in fs/select.c). */
	slack = (w->deadline - start) / 200;
	slack = 1000000 + (slack < POLL_SLACK_MAX_NS ? slack : POLL_SLACK_MAX_NS);
	return w->wake_ts + 100000 >= w->deadline && w->wake_ts <= w->deadline + slack;
}

bool dl_is_batch_wait(const struct dl_timeline *tl, const struct dl_wait *w)
{
	enum dl_sys sys = dl_sys_class(tl->machine, w->syscall);

	return w->file_kind == DL_FILE_FIFO && (sys == DL_SYS_POLL || sys == DL_SYS_READ);
}

bool dl_is_handover_wait(const struct dl_timeline *tl, const struct dl_wait *w)
{
	enum dl_sys sys = dl_sys_class(tl->machine, w->syscall);

	return w->file_kind == DL_FILE_UNIX && (sys == DL_SYS_READ || sys == DL_SYS_POLL ||
						sys == DL_SYS_CONNECT || sys == DL_SYS_WRITE);
}

bool dl_is_join(const struct dl_timeline *tl, const struct dl_wait *w)
{
	uint32_t proc = w->waker == DL_NONE ? DL_NONE : tl->threads.v[w->waker].proc;

	if (!w->wake_ts)
		return false;
	/* Its last thread closes its end of the pipe, in whatever call it was killed. */
	return dl_sys_class(tl->machine, w->wake_syscall) == DL_SYS_EXIT ||
	       (proc != DL_NONE && tl->procs.v[proc].exited && tl->procs.v[proc].end <= w->wake_ts);
}

struct taker {
	const struct dl_timeline *tl;
	const struct dl_thread *th;
	struct dl_spans *out;
	bool taking;
	uint64_t from;
	uint64_t sure;		/* it was still taking the batch over then */
	size_t woke, api;	/* next of the thread's wakes, of its driver calls */
	uint64_t last_end;	/* of the last span */
	uint64_t until;		/* what is before that of wakes and calls is done with */
	int err;
};

static void begin(struct taker *k, uint64_t from)
{
	if (!k->taking)
		k->from = from > k->last_end ? from : k->last_end;
	k->taking = true;
}

static void end(struct taker *k, uint64_t to)
{
	struct dl_span *s;

	if (!k->taking)
		return;
	k->taking = false;
	if (to <= k->from)
		return;
	s = vec_push(k->out);
	if (!s) {
		k->err = -ENOMEM;
		return;
	}
	*s = (struct dl_span){ k->from, to };
	k->last_end = to;
}

static bool of_loader(const struct taker *k, uint32_t thread)
{
	uint32_t proc = thread == DL_NONE ? DL_NONE : k->tl->threads.v[thread].proc;

	return proc != DL_NONE && proc != k->th->proc &&
	       (k->tl->procs.v[proc].role == DL_ROLE_WORKER || k->tl->procs.v[proc].role == DL_ROLE_SHM_MANAGER);
}

static void take_wake(struct taker *k, const struct dl_woke *w)
{
	const struct dl_thread *to = &k->tl->threads.v[w->wakee];

	if (to->proc == k->th->proc) {
		if (to->role == DL_ROLE_INDEX_FEEDER)
			end(k, w->ts);
	} else if (to->role == DL_ROLE_FEEDER || to->role == DL_ROLE_SHARER || to->role == DL_ROLE_SHM_MANAGER) {
		begin(k, w->ts > LEAD_NS ? w->ts - LEAD_NS : 0);
		k->sure = w->ts;
	}
}

/* The thread's wakes and its driver calls, by time. The calls are the training's own: the batch is had
 * by then, though no index may have followed. */
static void take_until(struct taker *k, uint64_t until)
{
	const struct dl_proc *p = &k->tl->procs.v[k->th->proc];

	for (;;) {
		uint64_t woke = k->woke < k->th->woke.cnt ? k->th->woke.v[k->woke].ts : UINT64_MAX;
		uint64_t api = k->api < k->th->apis.cnt ? p->apis.v[k->th->apis.v[k->api]].start : UINT64_MAX;

		if ((woke < api ? woke : api) > until || (woke == UINT64_MAX && api == UINT64_MAX)) {
			k->until = until;
			return;
		}
		if (woke <= api) {
			take_wake(k, &k->th->woke.v[k->woke++]);
		} else {
			k->api++;
			if (k->taking && api > k->sure)
				end(k, k->sure);
		}
	}
}

static void take_wait(struct taker *k, uint32_t seg)
{
	const struct dl_wait *w = dl_seg_wait(k->th, &k->th->segs.v[seg]);
	uint64_t start = k->th->segs.v[seg].start, stop = dl_seg_end(k->th, seg);
	bool batch = dl_is_batch_wait(k->tl, w);

	enum dl_sys sys = dl_sys_class(k->tl->machine, w->syscall);

	/* The trainer polls once for each batch, and sleeps in none: the one before is had. */
	if ((batch && sys == DL_SYS_POLL) || sys == DL_SYS_SLEEP)
		end(k, k->sure);
	if (!w->wake_ts || dl_timed_out(w, start) || dl_is_join(k->tl, w) || !of_loader(k, w->waker))
		return;
	if (batch || dl_is_handover_wait(k->tl, w)) {
		begin(k, batch ? stop : start);
		k->sure = stop;
	}
}

/* --- a worker that announces each storage to torch_shm_manager (file_system) --- */

static int add_round_trip(struct dl_spans *out, uint64_t start, uint64_t stop)
{
	struct dl_span *last = vec_last(out);

	if (last && start <= last->end) {
		last->end = stop > last->end ? stop : last->end;
		return 0;
	}
	last = vec_push(out);
	if (!last)
		return -ENOMEM;
	*last = (struct dl_span){ start, stop };
	return 0;
}

/* default_collate puts batches into shared memory in the worker's main thread, one request to the manager
 * for each storage: its own pieces before a request and behind an answer are part of that. Segments of
 * [0, end). */
static int find_announcing(const struct dl_timeline *tl, struct dl_proc *p, uint32_t end, uint64_t *until)
{
	const struct dl_thread *th = &tl->threads.v[p->main];
	size_t woke = *until ? vec_first_at(&th->woke, *until + 1) : 0;
	int err = 0;

	for (uint32_t i = 0; i < end && !err; i++) {
		const struct dl_wait *w = dl_seg_wait(th, &th->segs.v[i]);
		uint64_t stop = dl_seg_end(th, i);

		if (stop <= *until)
			continue;
		for (; woke < th->woke.cnt && th->woke.v[woke].ts <= stop && !err; woke++) {
			uint64_t ts = th->woke.v[woke].ts;

			if (tl->threads.v[th->woke.v[woke].wakee].role == DL_ROLE_SHM_MANAGER)
				err = add_round_trip(&p->handover, ts > ANNOUNCE_NS ? ts - ANNOUNCE_NS : 0, ts);
		}
		if (!err && w && w->wake_ts && w->waker != DL_NONE && tl->threads.v[w->waker].role == DL_ROLE_SHM_MANAGER)
			err = add_round_trip(&p->handover, th->segs.v[i].start, stop + ANNOUNCE_NS);
		*until = stop;
	}
	return err;
}

/* The first segment that begins behind what is done with. */
static uint32_t first_left(const struct dl_thread *th, uint64_t until)
{
	return until ? (uint32_t)vec_first_at(&th->segs, until) : 0;
}

/* Segments up to end, and, behind the last one, all else. */
static int find_taking(const struct dl_timeline *tl, struct dl_proc *p, uint32_t end_seg, struct dl_taking *at)
{
	struct taker k = { .tl = tl, .th = &tl->threads.v[p->main], .out = &p->handover, .taking = at->taking,
			   .from = at->from, .sure = at->sure, .last_end = at->last_end, .until = at->until };
	const bool last = end_seg == k.th->segs.cnt;

	if (at->until) {
		k.woke = vec_first_at(&k.th->woke, at->until + 1);
		while (k.api < k.th->apis.cnt && tl->procs.v[k.th->proc].apis.v[k.th->apis.v[k.api]].start <= at->until)
			k.api++;
	}
	for (uint32_t i = first_left(k.th, at->until); i < end_seg; i++) {
		take_until(&k, k.th->segs.v[i].start);
		if (dl_seg_wait(k.th, &k.th->segs.v[i]))
			take_wait(&k, i);
	}
	take_until(&k, last ? UINT64_MAX : k.th->segs.v[end_seg].start);
	if (last)
		end(&k, k.sure);
	*at = (struct dl_taking){ .taking = k.taking, .from = k.from, .sure = k.sure, .last_end = k.last_end,
				  .until = k.until };
	return k.err;
}

/* What was found behind the last cut is found again: more may have been read. */
static void go_back(struct dl_proc *p)
{
	p->handover.cnt = p->taking.cnt;
	if (p->handover.cnt)
		p->handover.v[p->handover.cnt - 1] = p->taking.last;
}

static int find_all(struct dl_timeline *tl, struct dl_proc *p, uint32_t end_seg, struct dl_taking *at)
{
	if (p->role == DL_ROLE_WORKER)
		return find_announcing(tl, p, end_seg, &at->until);
	return p->role == DL_ROLE_TRAINER ? find_taking(tl, p, end_seg, at) : 0;
}

int dl_handover_cut(struct dl_timeline *tl, struct dl_proc *p, uint32_t seg)
{
	int err;

	if (!seg)
		return 0;
	go_back(p);
	err = find_all(tl, p, seg, &p->taking);
	p->taking.cnt = p->handover.cnt;
	if (p->taking.cnt)
		p->taking.last = p->handover.v[p->taking.cnt - 1];
	return err;
}

int dl_find_handovers(struct dl_timeline *tl)
{
	int err = 0;

	vec_for_each(&tl->procs, p) {
		struct dl_taking at = p->taking;

		go_back(p);
		if (!err && p->main != DL_NONE)
			err = find_all(tl, p, (uint32_t)tl->threads.v[p->main].segs.cnt, &at);
	}
	return err;
}
