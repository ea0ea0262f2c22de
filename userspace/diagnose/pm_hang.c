/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Nothing moves: the trainer waits for a batch, and either all of its workers wait for something to do (the
 * batch is lost), or one of them waits for a lock that nobody will release. PyTorch says nothing, for ever. A
 * worker that computes, sleeps or reads is slow, which is no hang.
 */
#include "diagnose/pm_int.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>

#include "diagnose/walk.h"
#include "timeline/past.h"

#define FUTEX_PRIVATE 128
#define BEAT_NS (20 * DL_PM_MS)		/* between two waits with a time-out: are the workers alive? */
#define LOST_NS (1500 * DL_PM_MS)	/* all idle for this long, after a call failed that sends a batch */
#define IDLE_NS (3 * DL_PM_S)		/* the same where no call is known to have failed */
#define LOCK_NS (5 * DL_PM_S)
#define STUCK_NS (10 * DL_PM_S)		/* in anything else that has no time-out */
#define FAILED_NS (10 * DL_PM_S)	/* a failed call before the wait began */
#define ORPHAN_NS (6 * DL_PM_S)		/* an idle worker looks for its parent every 5 s */

static bool same_wait(const struct dl_wait *a, const struct dl_wait *b)
{
	/* What the recorder found when it came has no descriptor. */
	return a->syscall == b->syscall && (a->file_ino == b->file_ino || !a->file_ino) && (a->arg0 == b->arg0 || a->file_ino);
}

/* What a flight recorder left out: for how long the thread had been as the trace begins with it. */
static uint64_t before_trace(const struct dl_timeline *tl, const struct dl_thread *th)
{
	vec_for_each(&tl->crash, k) {
		const struct dl_ev_mark *m = (const void *)k->ev;

		if (k->ev->kind == DL_EV_MARK && m->what == DL_MARK_SINCE && k->ev->tid == th->tid && m->value > 0)
			return (uint64_t)m->value * DL_PM_MS;
	}
	return 0;
}

bool dl_pm_blocked_since(const struct dl_timeline *tl, uint32_t thread, uint64_t ts, uint64_t *since,
			 const struct dl_wait **wait)
{
	const struct dl_thread *th = &tl->threads.v[thread];
	uint32_t i = dl_seg_before(th, ts);
	const struct dl_wait *found = NULL;
	uint64_t ran = 0;

	for (; i != DL_NONE; i = i ? i - 1 : DL_NONE) {
		const struct dl_seg *s = &th->segs.v[i];
		const struct dl_wait *w = dl_seg_wait(th, s);
		uint64_t end = dl_seg_end(th, i) < ts ? dl_seg_end(th, i) : ts;

		if (s->state != DL_ST_BLOCKED || !w) {
			ran += end - s->start;
			if ((s->state != DL_ST_RUNNING && s->state != DL_ST_RUNNABLE) || ran > BEAT_NS)
				break;
			continue;
		}
		if (found ? !same_wait(w, found) : end < ts && !dl_pm_timed_out(w, s->start))
			break;
		/* It came to an end that was none: only the time was over. */
		if (end < ts && w->wake_ts && !dl_pm_timed_out(w, s->start))
			break;
		found = found ? found : w;
		*since = s->start;
		ran = 0;
	}
	*wait = found;
	if (found && *since == dl_first_start(th)) {
		const uint64_t ns = before_trace(tl, th);

		*since -= ns < *since ? ns : 0;
	}
	return found != NULL;
}

static bool is_main(const struct dl_timeline *tl, uint32_t thread)
{
	const struct dl_thread *th = &tl->threads.v[thread];

	return th->proc != DL_NONE && tl->procs.v[th->proc].main == thread;
}

/* A worker with nothing to do: it waits at its index pipe, or for its turn there. */
static bool is_idle(const struct dl_timeline *tl, uint32_t proc, uint64_t ts, uint64_t *since)
{
	const struct dl_proc *p = &tl->procs.v[proc];
	const struct dl_wait *w;

	if (p->main == DL_NONE || !dl_pm_blocked_since(tl, p->main, ts, since, &w))
		return false;
	return dl_is_batch_wait(tl, w) && (!p->result_ino || w->file_ino != p->result_ino);
}

/* The call of a thread that sends batches, or fetches them, that failed. */
static const struct dl_pm_fail *sender_failed(const struct dl_pmx *x, uint32_t trainer, uint64_t since, uint64_t ts)
{
	vec_for_each(&x->fails, f) {
		if (f->proc == DL_NONE || f->thread == DL_NONE || f->ts + FAILED_NS < since || f->ts > ts)
			continue;
		if (x->tl->procs.v[f->proc].role != DL_ROLE_WORKER || x->tl->procs.v[f->proc].trainer != trainer ||
		    is_main(x->tl, f->thread) || dl_pm_fail_death(x, f) == DL_DEATH_UNEXPLAINED)
			continue;
		return f;
	}
	return NULL;
}

/* A worker's feeder that ended while its worker lives. */
static uint32_t ended_feeder(const struct dl_timeline *tl, uint32_t trainer, uint64_t ts)
{
	for (uint32_t i = 0; i < tl->procs.cnt; i++) {
		const struct dl_proc *p = &tl->procs.v[i];

		if (p->role == DL_ROLE_WORKER && p->trainer == trainer && dl_pm_alive(p, ts) && p->feeder != DL_NONE &&
		    tl->threads.v[p->feeder].end < ts && tl->threads.v[p->feeder].end < p->ending)
			return i;
	}
	return DL_NONE;
}

/* A worker without a free descriptor, where the failed call itself is not in the trace. */
static uint32_t without_descriptors(const struct dl_pmx *x, uint32_t trainer, uint64_t ts)
{
	for (uint32_t i = 0; i < x->tl->procs.cnt; i++) {
		const struct dl_proc *p = &x->tl->procs.v[i];
		const struct dl_ev_env_proc *e = p->role == DL_ROLE_WORKER && p->trainer == trainer && dl_pm_alive(p, ts) ?
			dl_pm_limits_at(x, p->pid, ts) : NULL;

		if (e && e->fds_limit && e->fds >= e->fds_limit)
			return i;
	}
	return DL_NONE;
}

static void set_victim(struct dl_pmx *x, uint32_t proc, uint32_t thread, uint64_t ts, uint64_t at)
{
	const struct dl_proc *p = &x->tl->procs.v[proc];
	const struct dl_pm_who who = dl_pm_who_proc(x->tl, proc);

	x->proc = proc;
	x->thread = thread;
	x->at = at;
	x->pm->ts = ts;
	x->pm->sig = p->exited ? p->exit_status & 0x7f : 0;
	x->pm->has_status = p->exited;
	x->pm->status = p->exited ? p->exit_status : 0;
	DL_PM_DO(x, dl_pm_who_copy(&x->pm->victim, &who));
}

static void wait_fact(struct dl_pmx *x, uint32_t thread, uint64_t since, const char *what)
{
	const struct dl_pm_who who = dl_pm_who_thread(x->tl, thread);

	DL_PM_DO(x, dl_pm_fact(x->pm, &who, since, DL_PM_TRACE, true, "%s", what));
}

struct stall {
	uint32_t trainer, consumer;
	uint64_t since, ts;	/* the trainer waits for a batch, and did still */
	size_t alive, idle;	/* workers */
	uint64_t idle_since;	/* of the last one that became idle */
	uint32_t busy;		/* the first that is not idle */
};

static void batch_lost(struct dl_pmx *x, const struct stall *st)
{
	const struct dl_pm_fail *f = sender_failed(x, st->trainer, st->since, st->ts);
	const uint32_t feeder = f ? DL_NONE : ended_feeder(x->tl, st->trainer, st->ts);
	const uint32_t full = f || feeder != DL_NONE ? DL_NONE : without_descriptors(x, st->trainer, st->ts);
	const uint32_t victim = f ? f->proc : feeder != DL_NONE ? feeder : full != DL_NONE ? full : st->trainer;
	struct dl_str s = {}, text = {};
	char ns[32];

	wait_fact(x, st->consumer, st->since, "begins to wait for a batch, and waits on");
	if (f) {
		const struct dl_pm_who who = dl_pm_who_thread(x->tl, f->thread);

		dl_pm_fail_text(&text, x, f);
		dl_pm_add_proc(&s, x->tl, f->proc);
		dl_str_addf(&s, " lost a batch: the thread that sends it %s. Only its own output says so;", text.s ? text.s : "");
		DL_PM_DO(x, text.err ? text.err : dl_pm_fact(x->pm, &who, f->ts, DL_PM_TRACE, true, "%s", text.s));
		dl_str_fini(&text);
		x->fail = f;
	} else if (feeder != DL_NONE) {
		dl_pm_add_proc(&s, x->tl, feeder);
		dl_str_add(&s, " lost a batch: the thread that sends its batches has ended;");
	} else if (full != DL_NONE) {
		dl_pm_add_proc(&s, x->tl, full);
		dl_str_add(&s, " has as many open files as its limit allows, and a batch was lost;");
	} else {
		dl_str_add(&s, "a batch, or what was to be made of it, was lost between the processes;");
	}
	dl_str_addf(&s, " for %s ", dl_fmt_ns(ns, sizeof(ns), st->ts - (st->since > st->idle_since ? st->since : st->idle_since)));
	dl_pm_add_proc(&s, x->tl, st->trainer);
	dl_str_addf(&s, " had waited for a batch, and %s for something to do: nobody would ever have gone on",
		    st->alive == 1 ? "its worker" : "all of its workers");
	set_victim(x, victim, f ? f->thread : st->consumer, f ? f->ts : st->since, st->ts);
	dl_pm_verdict(x, DL_DEATH_BATCH_LOST, f || feeder != DL_NONE ? DL_PM_CERTAIN : DL_PM_LIKELY, &s);
}

/* Did any thread of the process do anything since? Threads that only serve do not count. alone: those that are
 * left wait for a lock, too; partner is the last of them. */
static bool is_quiet(const struct dl_timeline *tl, uint32_t proc, uint64_t since, uint64_t ts, bool *alone, uint32_t *partner)
{
	*alone = true;
	*partner = DL_NONE;
	vec_for_each(&tl->procs.v[proc].threads, idx) {
		const uint32_t i = *idx;
		const struct dl_thread *th = &tl->threads.v[i];
		const struct dl_wait *w;
		uint64_t from;

		if (i == tl->procs.v[proc].main || th->end < ts || th->start > ts || !th->segs.cnt)
			continue;
		if (dl_running_ns(th, since, ts, true) > BEAT_NS)
			return false;
		if (th->role == DL_ROLE_FEEDER || th->role == DL_ROLE_SHARER)
			continue;
		if (!dl_pm_blocked_since(tl, i, ts, &from, &w) || dl_sys_class(tl->machine, w->syscall) != DL_SYS_FUTEX || w->deadline)
			*alone = false;
		else
			*partner = i;
	}
	return true;
}

static bool was_busy(const struct dl_thread *th, uint64_t to)
{
	return dl_running_ns(th, 0, to, false) > 0;
}

/* Where the lock came from, as far as can be told. */
static void add_origin(struct dl_str *s, const struct dl_pmx *x, uint32_t proc)
{
	const struct dl_proc *p = &x->tl->procs.v[proc];
	size_t threads = 0;

	if (!p->forked || p->execed || !p->start)
		return;
	vec_for_each(&x->tl->threads, th)
		threads += th->proc == p->parent && th->start < p->start && th->end > p->start;
	dl_str_add(s, ". It was made by fork");
	if (threads > 1)
		dl_str_addf(s, " while the trainer had %zu threads", threads);
	dl_str_add(s, ": a lock that is held at that moment stays held in the worker for ever, since the thread that would release it does not exist there");
}

static bool by_lock(struct dl_pmx *x, const struct stall *st)
{
	const struct dl_proc *p = &x->tl->procs.v[st->busy];
	const struct dl_wait *w;
	struct dl_str s = {};
	uint32_t partner;
	uint64_t since;
	bool alone;
	char ns[32];

	if (p->main == DL_NONE || !dl_pm_blocked_since(x->tl, p->main, st->ts, &since, &w) || st->ts - since < LOCK_NS)
		return false;
	if (dl_sys_class(x->tl->machine, w->syscall) != DL_SYS_FUTEX || w->deadline || !(w->arg1 & FUTEX_PRIVATE))
		return false;
	if (!is_quiet(x->tl, st->busy, since, st->ts, &alone, &partner))
		return false;
	dl_pm_add_proc(&s, x->tl, st->busy);
	dl_str_addf(&s, " has waited for a lock for %s, and nothing in it ran since", dl_fmt_ns(ns, sizeof(ns), st->ts - since));
	if (alone && partner != DL_NONE)
		dl_str_addf(&s, ", and so does another thread of it (tid %u): they wait for each other", x->tl->threads.v[partner].tid);
	else if (alone)
		dl_str_add(&s, ": none of its other threads can release it");
	if (!was_busy(&x->tl->threads.v[p->main], since))
		dl_str_add(&s, "; it has done nothing else while it was recorded");
	if (partner == DL_NONE)
		add_origin(&s, x, st->busy);
	wait_fact(x, st->consumer, st->since, "begins to wait for a batch, and waits on");
	wait_fact(x, p->main, since, "begins to wait for a lock of its own process, and waits on");
	set_victim(x, st->busy, p->main, since, st->ts);
	dl_pm_verdict(x, DL_DEATH_HANG, alone ? DL_PM_CERTAIN : DL_PM_LIKELY, &s);
	return true;
}

/* In something else without a time-out, for long: perhaps. */
static bool by_stuck(struct dl_pmx *x, const struct stall *st)
{
	const struct dl_proc *p = &x->tl->procs.v[st->busy];
	const struct dl_wait *w;
	struct dl_str s = {}, in = {};
	uint64_t since;
	char ns[32];

	if (p->main == DL_NONE || !dl_pm_blocked_since(x->tl, p->main, st->ts, &since, &w) || st->ts - since < STUCK_NS ||
	    w->deadline || dl_sys_class(x->tl->machine, w->syscall) == DL_SYS_SLEEP)
		return false;
	/* A lock of its own process, which a thread of it may be about to release: see by_lock(). */
	if (dl_sys_class(x->tl->machine, w->syscall) == DL_SYS_FUTEX && (w->arg1 & FUTEX_PRIVATE))
		return false;
	dl_pm_wait_text(&in, x->tl, p->main, w);
	dl_pm_add_proc(&s, x->tl, st->busy);
	dl_str_addf(&s, " has been %s for %s, and the trainer waits for its batch", in.s ? in.s : "blocked", dl_fmt_ns(ns, sizeof(ns), st->ts - since));
	wait_fact(x, st->consumer, st->since, "begins to wait for a batch, and waits on");
	wait_fact(x, p->main, since, in.s ? in.s : "blocked");
	dl_str_fini(&in);
	set_victim(x, st->busy, p->main, since, st->ts);
	dl_pm_verdict(x, DL_DEATH_HANG, DL_PM_LIKELY, &s);
	DL_PM_DO(x, dl_pm_alternative(x->pm, DL_DEATH_NONE, "a longer recording", "what it waits for is only slow, and will come"));
	return true;
}

/* The signal that stopped the process and was not taken back; NULL it was not stopped. */
static const struct dl_ev_signal *stopped_by(const struct dl_timeline *tl, uint32_t proc, uint64_t ts)
{
	const struct dl_ev_signal *stop = NULL;

	vec_for_each(&tl->crash, k) {
		const struct dl_ev_signal *ev = (const void *)k->ev;

		if (k->ev->kind != DL_EV_SIGNAL || k->ts > ts || ev->target_pid != tl->procs.v[proc].pid ||
		    dl_pm_proc_at(tl, ev->target_pid, k->ts) != proc)
			continue;
		if (ev->sig == SIGCONT)
			stop = NULL;
		else if (ev->sig == SIGSTOP || ((ev->sig == SIGTSTP || ev->sig == SIGTTIN || ev->sig == SIGTTOU) && ev->result != 1))
			stop = ev;
	}
	return stop;
}

/* Stopped, as by Ctrl-Z: the process itself, or a worker whose batch is waited for. */
static bool by_stop(struct dl_pmx *x, uint32_t proc, uint64_t ts)
{
	const struct dl_ev_signal *ev = stopped_by(x->tl, proc, ts);
	const struct dl_pm_who who = dl_pm_who_proc(x->tl, proc);
	struct dl_str s = {}, by = {}, command = {};
	char ns[32], name[24];

	if (!ev || ts - ev->h.ts < IDLE_NS)
		return false;
	if (ev->code > 0)
		dl_str_add(&by, "its terminal (Ctrl-Z, or a read in the background)");
	else
		dl_pm_add_sender(&by, x->tl, ev);
	dl_pm_add_proc(&s, x->tl, proc);
	dl_str_addf(&s, " was stopped by %s, sent by %s, and was not continued for %s", dl_pm_signal_name(name, ev->sig), by.s ? by.s : "",
		    dl_fmt_ns(ns, sizeof(ns), ts - ev->h.ts));
	dl_str_addf(&command, "kill -CONT %" PRIu32, x->tl->procs.v[proc].pid);
	DL_PM_DO(x, by.err || command.err ? -ENOMEM :
		    dl_pm_fact(x->pm, &who, ev->h.ts, DL_PM_TRACE, true, "stopped by %s, sent by %s", name, by.s));
	DL_PM_DO(x, dl_pm_action(x->pm, command.s, "Let it go on:"));
	dl_str_fini(&by);
	dl_str_fini(&command);
	set_victim(x, proc, x->tl->procs.v[proc].main, ev->h.ts, ts);
	dl_pm_verdict(x, DL_DEATH_HANG, DL_PM_CERTAIN, &s);
	return true;
}

static bool by_stopped_worker(struct dl_pmx *x, uint32_t trainer, uint64_t ts)
{
	for (uint32_t i = 0; i < x->tl->procs.cnt; i++) {
		const struct dl_proc *p = &x->tl->procs.v[i];

		if (p->role == DL_ROLE_WORKER && p->trainer == trainer && dl_pm_alive(p, ts) && by_stop(x, i, ts))
			return true;
	}
	return false;
}

static void count_workers(const struct dl_pmx *x, struct stall *st)
{
	st->busy = DL_NONE;
	for (uint32_t i = 0; i < x->tl->procs.cnt; i++) {
		const struct dl_proc *p = &x->tl->procs.v[i];
		uint64_t since;

		if (p->role != DL_ROLE_WORKER || p->trainer != st->trainer || !dl_pm_alive(p, st->ts))
			continue;
		st->alive++;
		if (is_idle(x->tl, i, st->ts, &since)) {
			st->idle++;
			st->idle_since = since > st->idle_since ? since : st->idle_since;
		} else if (st->busy == DL_NONE) {
			st->busy = i;
		}
	}
}

/* A pin-memory thread waits for batches also while the trainer computes, and between two epochs. Only when the
 * trainer waits for it, in queue.get(timeout=5), is a batch wanted. */
static bool is_wanted(const struct dl_timeline *tl, struct stall *st)
{
	const uint32_t main = tl->procs.v[st->trainer].main;
	const struct dl_wait *w;
	uint64_t since;

	if (main == st->consumer)
		return true;
	if (main == DL_NONE || !dl_pm_blocked_since(tl, main, st->ts, &since, &w))
		return false;
	if (dl_sys_class(tl->machine, w->syscall) != DL_SYS_FUTEX || w->deadline < st->ts || dl_is_gil(&tl->procs.v[st->trainer], w->arg0))
		return false;
	st->since = since > st->since ? since : st->since;
	return true;
}

static bool by_trainer(struct dl_pmx *x, uint32_t trainer, uint64_t ts, bool sure)
{
	struct stall st = { .trainer = trainer, .ts = ts, .consumer = dl_pm_consumer(x->tl, trainer) };
	const struct dl_wait *w;
	uint64_t quiet;

	if (st.consumer == DL_NONE || !dl_pm_blocked_since(x->tl, st.consumer, ts, &st.since, &w))
		return false;
	if ((!dl_is_batch_wait(x->tl, w) && !dl_is_handover_wait(x->tl, w)) || !is_wanted(x->tl, &st))
		return false;
	if (by_stopped_worker(x, trainer, ts))
		return true;
	count_workers(x, &st);
	if (!st.alive)
		return false;
	quiet = ts - (st.since > st.idle_since ? st.since : st.idle_since);
	if (st.idle == st.alive) {
		/* That the trainer waits for its pin-memory thread shows by its beat of 5 s, no sooner. */
		const uint64_t least = sender_failed(x, trainer, st.since, ts) ? LOST_NS :
			st.consumer == x->tl->procs.v[trainer].main ? IDLE_NS : 2 * IDLE_NS;

		if (!dl_is_batch_wait(x->tl, w) || quiet < least)
			return false;
		batch_lost(x, &st);
		return true;
	}
	for (uint32_t i = st.busy; i < x->tl->procs.cnt; i++) {
		const struct dl_proc *p = &x->tl->procs.v[i];

		if (p->role != DL_ROLE_WORKER || p->trainer != trainer || !dl_pm_alive(p, ts))
			continue;
		st.busy = i;
		if (by_lock(x, &st) || (!sure && by_stuck(x, &st)))
			return true;
	}
	return false;
}

/* All threads of a trainer wait for each other. */
static bool by_deadlock(struct dl_pmx *x, uint32_t trainer, uint64_t ts)
{
	const struct dl_proc *p = &x->tl->procs.v[trainer];
	const struct dl_wait *w;
	struct dl_str s = {};
	uint32_t partner;
	uint64_t since;
	bool alone;
	char ns[32];

	if (p->main == DL_NONE || !dl_pm_blocked_since(x->tl, p->main, ts, &since, &w) || ts - since < STUCK_NS)
		return false;
	if (dl_sys_class(x->tl->machine, w->syscall) != DL_SYS_FUTEX || w->deadline || !(w->arg1 & FUTEX_PRIVATE) ||
	    !is_quiet(x->tl, trainer, since, ts, &alone, &partner) || !alone)
		return false;
	dl_pm_add_proc(&s, x->tl, trainer);
	dl_str_addf(&s, " has waited for a lock for %s, and so do all of its other threads: none can release it", dl_fmt_ns(ns, sizeof(ns), ts - since));
	wait_fact(x, p->main, since, "begins to wait for a lock of its own process, and waits on");
	set_victim(x, trainer, p->main, since, ts);
	dl_pm_verdict(x, DL_DEATH_HANG, DL_PM_LIKELY, &s);
	return true;
}

bool dl_pm_by_hang(struct dl_pmx *x, uint64_t ts, bool sure)
{
	for (uint32_t i = 0; i < x->tl->procs.cnt; i++) {
		const struct dl_proc *p = &x->tl->procs.v[i];

		if (p->role != DL_ROLE_TRAINER || p->start > ts || (p->exited && p->end < ts))
			continue;
		if (by_stop(x, i, ts) || by_trainer(x, i, ts, sure) || by_deadlock(x, i, ts))
			return true;
	}
	return false;
}

/* What was asked to be recorded is a worker, and its parent is init: the trainer is gone. A training has handlers
 * for these signals only where somebody put them there, and it has workers, or a GPU. */
static bool by_found_orphan(struct dl_pmx *x)
{
	for (uint32_t i = 0; i < x->tl->procs.cnt; i++) {
		const struct dl_proc *p = &x->tl->procs.v[i];
		struct dl_str s = {};

		if (!p->root || !p->quartet || p->ppid != 1 || p->start || p->loading.cnt || p->kernel_cnt || p->api_cnt ||
		    !dl_pm_alive(p, x->tl->end))
			continue;
		wait_fact(x, p->main, x->tl->start, "has a worker's signal handlers, and its parent is init");
		dl_str_addf(&s, "process %u has the signal handlers of a DataLoader's worker, and its parent is gone: its trainer had ended before the recording began",
			    p->pid);
		set_victim(x, i, p->main, x->tl->start, x->tl->end);
		dl_pm_verdict(x, DL_DEATH_ORPHANED, DL_PM_LIKELY, &s);
		DL_PM_DO(x, dl_pm_alternative(x->pm, DL_DEATH_NONE, "the program's command line, and whether a training of its goes on",
					      "a program of its own that handles these four signals, started in the background"));
		return true;
	}
	return false;
}

bool dl_pm_by_orphans(struct dl_pmx *x)
{
	struct dl_str s = {};
	uint32_t first = DL_NONE;
	size_t cnt = 0;

	for (uint32_t i = 0; i < x->tl->procs.cnt; i++) {
		const struct dl_proc *p = &x->tl->procs.v[i], *t = p->trainer == DL_NONE ? NULL : &x->tl->procs.v[p->trainer];

		if (p->role != DL_ROLE_WORKER || !dl_pm_alive(p, x->tl->end) || !t || !t->exited || t->end + ORPHAN_NS > x->tl->end)
			continue;
		first = first == DL_NONE ? i : first;
		cnt++;
	}
	if (!cnt)
		return by_found_orphan(x);
	dl_pm_add_proc(&s, x->tl, x->tl->procs.v[first].trainer);
	dl_str_addf(&s, " has ended, and %zu of its workers go%s on without it; the first of them is ", cnt, cnt == 1 ? "es" : "");
	wait_fact(x, x->tl->procs.v[x->tl->procs.v[first].trainer].main, x->tl->procs.v[x->tl->procs.v[first].trainer].end,
		  "ended, while its workers went on");
	dl_pm_add_proc(&s, x->tl, first);
	set_victim(x, first, x->tl->procs.v[first].main, x->tl->procs.v[x->tl->procs.v[first].trainer].end, x->tl->end);
	dl_pm_verdict(x, DL_DEATH_ORPHANED, DL_PM_CERTAIN, &s);
	return true;
}
