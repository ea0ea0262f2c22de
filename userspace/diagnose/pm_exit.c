/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * A death without a signal. The exit code says little; the calls that had failed before, what the trainer had
 * waited for, and whether Python ended its threads in order or was cut off say more.
 */
#include "diagnose/pm_int.h"

#include <string.h>

#include "trace/schema.h"

#define FAIL_NS (30 * DL_PM_S)	/* from a failed call to the exit: workers are waited for, 5 s each */
#define RAISED_NS (10 * DL_PM_S)	/* from an exception to the exit */
#define GAVE_UP_NS (40 * DL_PM_S)	/* from a time-out to the exit: a worker that hangs is waited for */

enum ending { END_UNKNOWN, END_IN_ORDER, END_AT_ONCE };

/* Python ends a queue's feeder before it leaves; _exit() takes all threads with it, with its own status. */
static enum ending ending_of(const struct dl_timeline *tl, uint32_t proc)
{
	const struct dl_proc *p = &tl->procs.v[proc];

	if (p->feeder == DL_NONE)
		return END_UNKNOWN;
	vec_for_each(&tl->crash, k) {
		const struct dl_ev_exit *ev = (const void *)k->ev;

		if (k->ev->kind != DL_EV_EXIT || k->ev->tid != tl->threads.v[p->feeder].tid || k->ev->pid != p->pid)
			continue;
		return ev->code == p->exit_status ? END_AT_ONCE : ev->code == 0 ? END_IN_ORDER : END_UNKNOWN;
	}
	return END_UNKNOWN;
}

static void exit_fact(struct dl_pmx *x, const struct dl_pm_dead *d)
{
	const struct dl_pm_who who = dl_pm_who_proc(x->tl, d->proc);

	DL_PM_DO(x, dl_pm_fact(x->pm, &who, x->tl->procs.v[d->proc].end, DL_PM_TRACE, true, "ended by itself with exit code %d", d->code));
}

static void by_worker(struct dl_pmx *x, const struct dl_pm_dead *d)
{
	const enum ending ending = ending_of(x->tl, d->proc);
	struct dl_str s = {};

	exit_fact(x, d);
	dl_pm_add_proc(&s, x->tl, d->proc);
	dl_str_addf(&s, " ended by itself with exit code %d", d->code);
	if (ending == END_IN_ORDER && d->code == 1) {
		dl_str_add(&s, ": Python ended its threads in order, as it does after an exception that nobody caught; the traceback is in the worker's own output (stderr)");
		dl_pm_verdict(x, DL_DEATH_WORKER_EXCEPTION, DL_PM_LIKELY, &s);
		DL_PM_DO(x, dl_pm_alternative(x->pm, DL_DEATH_WORKER_EXIT, "whether the worker's output has a traceback",
					      "sys.exit(1) in the data set's code ends it in the same way"));
		return;
	}
	if (ending == END_IN_ORDER)
		dl_str_addf(&s, ": Python ended its threads in order, as sys.exit(%d) does", d->code);
	else if (ending == END_AT_ONCE)
		dl_str_addf(&s, ": at once, without Python's clean-up, as os._exit(%d) does, or exit(%d) in a library", d->code, d->code);
	dl_pm_verdict(x, DL_DEATH_WORKER_EXIT, ending == END_UNKNOWN && d->code == 1 ? DL_PM_LIKELY : DL_PM_CERTAIN, &s);
	if (ending == END_UNKNOWN && d->code == 1)
		DL_PM_DO(x, dl_pm_alternative(x->pm, DL_DEATH_WORKER_EXCEPTION, "whether the worker's output has a traceback",
					      "a Python exception outside of the data set's code ends a worker with exit code 1"));
}

/* --- an exception that a worker has passed on --- */

struct message { uint64_t ts; uint32_t proc; };

/* The last wait for a batch that a worker ended, before ts. */
static struct message last_message(const struct dl_timeline *tl, const struct dl_thread *th, uint64_t ts)
{
	struct message m = { .proc = DL_NONE };
	uint32_t i = dl_seg_before(th, ts);

	for (; i != DL_NONE; i = i ? i - 1 : DL_NONE) {
		const struct dl_wait *w = dl_seg_wait(th, &th->segs.v[i]);
		uint32_t proc = w && w->waker != DL_NONE ? tl->threads.v[w->waker].proc : DL_NONE;

		if (proc == DL_NONE || !w->wake_ts || w->wake_ts > ts || tl->procs.v[proc].role != DL_ROLE_WORKER ||
		    !dl_is_batch_wait(tl, w) || dl_sys_class(tl->machine, w->wake_syscall) != DL_SYS_WRITE)
			continue;
		m = (struct message){ w->wake_ts, proc };
		break;
	}
	return m;
}

/* Did the thread fetch shared memory from a worker then? */
static bool fetched(const struct dl_timeline *tl, const struct dl_thread *th, uint64_t from, uint64_t to)
{
	for (size_t i = vec_first_at(&th->woke, from); i < th->woke.cnt && th->woke.v[i].ts < to; i++) {
		if (tl->threads.v[th->woke.v[i].wakee].role == DL_ROLE_SHARER)
			return true;
	}
	for (uint32_t i = dl_seg_before(th, to); i != DL_NONE && th->segs.v[i].start >= from; i = i ? i - 1 : DL_NONE) {
		const struct dl_wait *w = dl_seg_wait(th, &th->segs.v[i]);

		if (w && dl_is_handover_wait(tl, w))
			return true;
	}
	return false;
}

/* A message without a batch was the last: an exception of the data set travels like this, and the trainer
 * raises it again. Only where the ones before had their tensors in shared memory. */
static uint32_t passed_on(const struct dl_timeline *tl, uint32_t trainer, uint64_t ts, uint64_t *when)
{
	const uint32_t consumer = dl_pm_consumer(tl, trainer);
	const struct dl_thread *th;
	struct message last, before;

	if (consumer == DL_NONE)
		return DL_NONE;
	th = &tl->threads.v[consumer];
	last = last_message(tl, th, ts);
	if (last.proc == DL_NONE || last.ts + RAISED_NS < ts || fetched(tl, th, last.ts, ts))
		return DL_NONE;
	before = last_message(tl, th, last.ts - 1);
	if (before.proc == DL_NONE || !fetched(tl, th, before.ts, last.ts))
		return DL_NONE;
	*when = last.ts;
	return last.proc;
}

static bool by_exception(struct dl_pmx *x, const struct dl_pm_dead *d)
{
	uint64_t when = 0;
	const uint32_t worker = passed_on(x->tl, d->proc, d->ts, &when);
	struct dl_pm_who who;
	struct dl_str s = {};

	if (worker == DL_NONE)
		return false;
	who = dl_pm_who_proc(x->tl, worker);
	DL_PM_DO(x, dl_pm_fact(x->pm, &who, when, DL_PM_TRACE, true, "sent the trainer a message without a batch, which was the last"));
	dl_pm_add_proc(&s, x->tl, worker);
	dl_str_add(&s, " sent a message without a batch, as it does with an exception of the data set; ");
	dl_pm_add_proc(&s, x->tl, d->proc);
	dl_str_addf(&s, " raised it again and ended with exit code %d", d->code);
	dl_pm_verdict(x, DL_DEATH_WORKER_EXCEPTION, DL_PM_LIKELY, &s);
	x->at = x->pm->ts = when;
	DL_PM_DO(x, dl_pm_alternative(x->pm, DL_DEATH_TRAINER_EXIT, "the last traceback in the training's output: whether it says \"Caught ... in DataLoader worker process\"",
				      "an exception of the trainer's own right after the end of its data"));
	return true;
}

/* --- a trainer that gave up waiting --- */

/* Its last wait for a batch, when that ended by its own time-out; its length, looked through its pieces. */
static bool gave_up(const struct dl_timeline *tl, uint32_t trainer, uint64_t ts, uint64_t *when, uint64_t *waited)
{
	const struct dl_thread *th = tl->procs.v[trainer].main == DL_NONE ? NULL : &tl->threads.v[tl->procs.v[trainer].main];
	uint32_t i = th ? dl_seg_before(th, ts) : DL_NONE;

	for (; i != DL_NONE && th->segs.v[i].start + GAVE_UP_NS > ts; i = i ? i - 1 : DL_NONE) {
		const struct dl_wait *w = dl_seg_wait(th, &th->segs.v[i]);
		const uint64_t start = th->segs.v[i].start;
		bool result = false;

		if (!w || !dl_is_batch_wait(tl, w) || dl_is_join(tl, w))
			continue;
		vec_for_each(&tl->procs, p)
			result |= p->role == DL_ROLE_WORKER && p->trainer == trainer && p->result_ino == w->file_ino && w->file_ino;
		if (!result)
			continue;
		if (!dl_pm_timed_out(w, start))
			return false;
		*when = w->wake_ts;
		*waited = w->wake_ts - start;
		return true;
	}
	return false;
}

static bool by_timeout(struct dl_pmx *x, const struct dl_pm_dead *d)
{
	const struct dl_pm_who who = dl_pm_who_proc(x->tl, d->proc);
	uint64_t when, waited;
	struct dl_str s = {};
	char ns[32];

	if (!gave_up(x->tl, d->proc, d->ts, &when, &waited))
		return false;
	DL_PM_DO(x, dl_pm_fact(x->pm, &who, when, DL_PM_TRACE, true, "gave up waiting for a batch after %s", dl_fmt_ns(ns, sizeof(ns), waited)));
	if (dl_pm_by_hang(x, when, true))
		return true;
	dl_pm_add_proc(&s, x->tl, d->proc);
	dl_str_addf(&s, " waited %s for a batch, gave up (the DataLoader's timeout), and ended with exit code %d",
		    dl_fmt_ns(ns, sizeof(ns), waited), d->code);
	dl_pm_verdict(x, DL_DEATH_TIMEOUT, DL_PM_LIKELY, &s);
	x->at = x->pm->ts = when;
	return true;
}

static void by_trainer(struct dl_pmx *x, const struct dl_pm_dead *d)
{
	struct dl_str s = {};

	exit_fact(x, d);
	dl_pm_add_proc(&s, x->tl, d->proc);
	dl_str_addf(&s, " ended by itself with exit code %d; no signal led to it, and no failed system call was recorded%s", d->code,
		    d->code == 1 ? ": most often a Python exception, whose traceback is the end of the training's output" : "");
	dl_pm_verdict(x, DL_DEATH_TRAINER_EXIT, DL_PM_CERTAIN, &s);
	vec_for_each(&x->tl->procs, p) {
		if (p->role != DL_ROLE_WORKER || p->trainer != d->proc)
			continue;
		DL_PM_DO(x, dl_pm_alternative(x->pm, DL_DEATH_WORKER_EXCEPTION, "the last traceback in the training's output: whether it says \"Caught ... in DataLoader worker process\"",
					      "an exception of the data set comes through the pipe like a batch, and the trainer raises it again"));
		break;
	}
}

void dl_pm_by_exit(struct dl_pmx *x, const struct dl_pm_dead *d)
{
	const struct dl_proc *p = &x->tl->procs.v[d->proc];
	const struct dl_pm_fail *f = dl_pm_fail_before(x, d->proc, d->ts, FAIL_NS);
	struct dl_str then = {};

	/* Why it waited is the cause, also where a call had failed: that is then why. */
	if (p->role == DL_ROLE_TRAINER && by_timeout(x, d))
		return;
	if (f) {
		dl_str_add(&then, "; ");
		dl_pm_add_proc(&then, x->tl, d->proc);
		dl_str_addf(&then, " then ended with exit code %d", d->code);
		exit_fact(x, d);
		if (then.err)
			x->err = x->err ? x->err : then.err;
		else
			dl_pm_by_fail(x, f, then.s);
		dl_str_fini(&then);
		return;
	}
	if (p->role == DL_ROLE_WORKER)
		by_worker(x, d);
	else if (p->role != DL_ROLE_TRAINER || !by_exception(x, d))
		by_trainer(x, d);
}
