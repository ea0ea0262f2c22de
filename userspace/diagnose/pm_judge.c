/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Which death was the first, and whether something else had ended the run before it. A death counts from its
 * first event: PyTorch raises a fatal signal again after its handler, and exits follow when the memory is
 * freed. A trainer's SIGTERM to its own workers is how it ends, not why.
 */
#include "diagnose/pm_int.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "trace/schema.h"

#define CHAIN_NS (5 * DL_PM_S)		/* a signal, its handler, the same signal again */
#define ASKED_NS (120 * DL_PM_S)	/* from the wish to the end: a checkpoint may be written */
#define INTERRUPTED_NS (30 * DL_PM_S)	/* the same for Ctrl-C, which many catch and live on */
#define FOLLOWS_NS (60 * DL_PM_S)	/* a helper's death leads to the job's within this */
#define CUT_OFF_NS (10 * DL_PM_S)	/* a fatal signal this near to the end of a trace that is cut off */

struct deaths { struct dl_pm_dead *v; size_t cnt, cap; };

static const struct dl_ev_signal *as_signal(const struct dl_kept *k)
{
	const struct dl_ev_signal *ev = (const void *)k->ev;

	return k->ev->kind == DL_EV_SIGNAL && ev->result != 1 ? ev : NULL;
}

/* The first signal of the row that ended in the death. */
static const struct dl_ev_signal *fatal_signal(const struct dl_timeline *tl, uint32_t proc, int32_t signr)
{
	const struct dl_ev_signal *first = NULL, *last = NULL;
	const struct dl_proc *p = &tl->procs.v[proc];

	vec_for_each(&tl->crash, k) {
		const struct dl_ev_signal *ev = as_signal(k);

		if (!ev || ev->sig != signr || ev->target_pid != p->pid || dl_pm_proc_at(tl, p->pid, k->ts) != proc)
			continue;
		if (signr == SIGKILL)
			return ev;
		if (!last || ev->h.ts - last->h.ts > CHAIN_NS)
			first = ev;
		last = ev;
	}
	return first;
}

static bool is_fault(const struct dl_ev_signal *ev)
{
	return ev->code > 0 && (ev->sig == SIGBUS || ev->sig == SIGSEGV || ev->sig == SIGFPE || ev->sig == SIGILL);
}

/* Where its end is not in the trace: what cannot be survived, or what a trace that is cut off ends with. */
static int32_t unseen_signal(const struct dl_timeline *tl, uint32_t proc)
{
	const struct dl_proc *p = &tl->procs.v[proc];

	vec_for_each(&tl->crash, k) {
		const struct dl_ev_signal *ev = as_signal(k);
		const struct dl_ev_oom_kill *oom = (const void *)k->ev;

		if (k->ev->kind == DL_EV_OOM_KILL && oom->target_pid == p->pid && dl_pm_proc_at(tl, p->pid, k->ts) == proc)
			return SIGKILL;
		if (!ev || ev->target_pid != p->pid || dl_pm_proc_at(tl, p->pid, k->ts) != proc)
			continue;
		if (ev->sig == SIGKILL)
			return SIGKILL;
		if ((is_fault(ev) || (ev->sig == SIGABRT && ev->h.pid == p->pid)) && k->ts + CUT_OFF_NS > tl->end)
			return ev->sig;
	}
	return 0;
}

static bool is_sent(const struct dl_ev_signal *ev)
{
	return ev->code <= 0;
}

static bool by_own(const struct dl_timeline *tl, uint32_t proc, const struct dl_ev_signal *ev)
{
	if (!ev || !is_sent(ev) || (ev->h.flags & DL_HDR_FOREIGN) || ev->h.pid == ev->target_pid)
		return false;
	return dl_pm_is_ancestor(tl, dl_pm_proc_at(tl, ev->h.pid, ev->h.ts), proc);
}

static bool is_side(const struct dl_proc *p, int32_t signr)
{
	switch (p->role) {
	case DL_ROLE_TRAINER:
	case DL_ROLE_WORKER:
		return false;
	case DL_ROLE_LAUNCHER:
	case DL_ROLE_FORKSERVER:
	case DL_ROLE_SHM_MANAGER:
		return !signr;
	default:
		return !p->root;
	}
}

/* How its trainer's loader ends, or did no harm: the trainer went on, and ended in order. */
static bool is_harmless(const struct dl_timeline *tl, const struct dl_proc *p, const struct dl_pm_dead *d)
{
	const struct dl_proc *t = p->trainer == DL_NONE ? NULL : &tl->procs.v[p->trainer];

	if (d->by_own && d->side)
		return true;
	if (p->role != DL_ROLE_WORKER)
		return false;
	/* A watchdog of its own that kills is a cause; the end of the loader that ends its workers is none. */
	if (d->by_own && d->signr != SIGKILL)
		return true;
	return (d->by_own || !d->signr) && t && t->exited && !t->exit_status;
}

static int add_death(struct deaths *all, const struct dl_timeline *tl, uint32_t proc)
{
	const struct dl_proc *p = &tl->procs.v[proc];
	struct dl_pm_dead d = { .proc = proc }, *at;

	d.signr = p->exited ? p->exit_status & 0x7f : unseen_signal(tl, proc);
	d.code = p->exited && !d.signr ? p->exit_status >> 8 & 0xff : 0;
	if (!d.signr && !d.code)
		return 0;
	if (d.signr)
		d.sig = fatal_signal(tl, proc, d.signr);
	d.ts = d.sig ? d.sig->h.ts : p->end;
	d.by_own = by_own(tl, proc, d.sig);
	d.side = is_side(p, d.signr);
	if (is_harmless(tl, p, &d))
		return 0;
	at = vec_push(all);
	if (!at)
		return -ENOMEM;
	*at = d;
	return 0;
}

static const struct dl_pm_dead *first_of(const struct deaths *all, bool side, uint64_t from, uint64_t to)
{
	const struct dl_pm_dead *best = NULL;

	vec_for_each(all, d) {
		if (d->side == side && d->ts >= from && d->ts <= to && (!best || d->ts < best->ts))
			best = d;
	}
	return best;
}

/* A helper's death counts where the job's followed, and the kernel's doing it was. */
static const struct dl_pm_dead *first_death(const struct deaths *all)
{
	const struct dl_pm_dead *main = first_of(all, false, 0, UINT64_MAX), *side;

	if (!main)
		return NULL;
	side = first_of(all, true, main->ts > FOLLOWS_NS ? main->ts - FOLLOWS_NS : 0, main->ts);
	return side && side->sig && side->sig->code > 0 ? side : main;
}

const struct dl_ev_signal *dl_pm_asked_to_end(const struct dl_pmx *x, uint32_t proc, uint64_t before)
{
	const struct dl_ev_signal *first = NULL;

	vec_for_each(&x->tl->crash, k) {
		const struct dl_ev_signal *ev = as_signal(k);
		uint32_t to;

		if (!ev || k->ts > before || k->ts + (ev->sig == SIGINT ? INTERRUPTED_NS : ASKED_NS) < before)
			continue;
		if (ev->sig != SIGINT && ev->sig != SIGTERM && ev->sig != SIGHUP && ev->sig != SIGQUIT)
			continue;
		/* Sent by the kernel is a terminal's doing; within the job they pass it on. */
		if (is_sent(ev) && !(ev->h.flags & DL_HDR_FOREIGN))
			continue;
		to = dl_pm_proc_at(x->tl, ev->target_pid, k->ts);
		if (to == DL_NONE || (to != proc && !dl_pm_is_ancestor(x->tl, to, proc)))
			continue;
		if (!first)
			first = ev;
	}
	return first;
}

static void set_victim(struct dl_pmx *x, const struct dl_pm_dead *d)
{
	const struct dl_proc *p = &x->tl->procs.v[d->proc];
	const struct dl_pm_who w = dl_pm_who_proc(x->tl, d->proc);

	x->proc = d->proc;
	x->thread = p->main;
	x->sig = d->sig;
	if (d->sig && d->sig->target_tid && !d->sig->group) {
		uint32_t thread = dl_pm_thread_at(x->tl, d->sig->target_tid, d->ts);

		x->thread = thread == DL_NONE ? p->main : thread;
	}
	DL_PM_DO(x, dl_pm_who_copy(&x->pm->victim, &w));
	x->pm->sig = d->signr;
	x->pm->has_status = p->exited;
	x->pm->status = p->exited ? p->exit_status : 0;
	x->pm->ts = x->at = d->ts;
}

/* Whoever looks at a training that hangs ends it: that is no cause. */
static bool from_outside(const struct dl_pmx *x, const struct dl_pm_dead *d)
{
	if (!d->signr)
		return dl_pm_asked_to_end(x, d->proc, d->ts) != NULL;
	return d->sig && (is_sent(d->sig) || d->signr == SIGINT || d->signr == SIGHUP) && d->sig->h.pid != d->sig->target_pid;
}

static void explain_death(struct dl_pmx *x, const struct dl_pm_dead *d)
{
	const struct dl_ev_signal *asked = d->signr == SIGKILL && d->sig && d->sig->code > 0 ? NULL :
		dl_pm_asked_to_end(x, d->proc, d->ts);
	const uint64_t stopped = asked ? asked->h.ts : d->ts;

	set_victim(x, d);
	if (from_outside(x, d) && dl_pm_by_hang(x, stopped, true))
		return;
	if (asked && (!d->sig || is_sent(d->sig) || asked->sig == d->signr))
		dl_pm_by_sender(x, d, asked);
	else if (d->signr)
		dl_pm_by_signal(x, d);
	else
		dl_pm_by_exit(x, d);
}

/* Asked to, it ended with exit code 0, as a training does that saves itself first. */
static bool ended_as_asked(struct dl_pmx *x)
{
	for (uint32_t i = 0; i < x->tl->procs.cnt; i++) {
		const struct dl_proc *p = &x->tl->procs.v[i];
		struct dl_pm_dead d = { .proc = i };
		const struct dl_ev_signal *asked;

		if (p->role != DL_ROLE_TRAINER || !p->exited)
			continue;
		asked = dl_pm_asked_to_end(x, i, p->end);
		if (!asked)
			continue;
		d.ts = asked->h.ts;
		set_victim(x, &d);
		if (!dl_pm_by_hang(x, d.ts, true))
			dl_pm_by_sender(x, &d, asked);
		return true;
	}
	return false;
}

/* Another tool's trace has the GPU's work and the program's, and nothing of how processes end. */
static bool is_imported(const struct dl_timeline *tl)
{
	bool imported = false;

	vec_for_each(&tl->procs, p) {
		if (p->exited)
			return false;
		imported |= p->gpu_state == DL_GPU_IMPORTED;
	}
	vec_for_each(&tl->threads, th) {
		if (th->proc != DL_NONE && th->segs.cnt)
			return false;
	}
	return imported;
}

static void no_death(struct dl_pmx *x, const struct deaths *all)
{
	const struct dl_proc *root = NULL;
	bool alive = false;

	if (is_imported(x->tl)) {
		dl_pm_verdictf(x, DL_DEATH_UNEXPLAINED, DL_PM_UNKNOWN, "this trace is another tool's: it does not say how processes ended");
		return;
	}
	if (ended_as_asked(x) || dl_pm_by_hang(x, x->tl->end, x->brief) || dl_pm_by_orphans(x))
		return;
	vec_for_each(&x->tl->procs, p) {
		if (p->root || (!root && p->role == DL_ROLE_TRAINER))
			root = p;
		alive |= !p->exited && (p->role == DL_ROLE_TRAINER || p->role == DL_ROLE_WORKER);
	}
	if (root && root->exited && (root->exit_status >> 8 & 0xff) && all->cnt)
		dl_pm_verdictf(x, DL_DEATH_UNEXPLAINED, DL_PM_UNKNOWN,
			       "the program that was recorded ended with exit code %d; its training processes had ended in order",
			       root->exit_status >> 8 & 0xff);
	else if (root && root->exited)
		dl_pm_verdictf(x, DL_DEATH_NONE, DL_PM_CERTAIN, "the run ended in order, with exit code 0");
	else if (alive || root)
		dl_pm_verdictf(x, DL_DEATH_NONE, DL_PM_CERTAIN, "nothing died: the run goes on where the recording ends");
	else
		dl_pm_verdictf(x, DL_DEATH_NONE, DL_PM_LIKELY, "nothing died while it was recorded");
}

static const struct dl_pm_dead *death_of(const struct deaths *all, uint32_t proc)
{
	vec_for_each(all, d) {
		if (d->proc == proc)
			return d;
	}
	return NULL;
}

/* Somebody asks about a process that did not die by itself: it ended with the rest. */
static void note_asked(struct dl_pmx *x, uint32_t asked)
{
	const struct dl_proc *p = &x->tl->procs.v[asked];
	struct dl_str who = {};

	dl_pm_add_proc(&who, x->tl, asked);
	if (who.err)
		x->err = x->err ? x->err : who.err;
	else if (!p->exited)
		DL_PM_DO(x, dl_pm_note(x->pm, "%s, which you ask about, did not die while it was recorded", who.s));
	else
		DL_PM_DO(x, dl_pm_note(x->pm, "%s, which you ask about, did not die by itself: it ended as part of the end of the run", who.s));
	dl_str_fini(&who);
}

int dl_pm_judge(struct dl_pmx *x, uint32_t asked)
{
	const struct dl_pm_dead *d = NULL;
	struct deaths all = {};

	x->proc = x->thread = DL_NONE;
	x->at = x->tl->end;
	DL_PM_DO(x, dl_pm_read_fails(x));
	for (uint32_t i = 0; i < x->tl->procs.cnt; i++)
		DL_PM_DO(x, add_death(&all, x->tl, i));
	if (asked != DL_NONE)
		d = death_of(&all, asked);
	if (asked != DL_NONE && !d)
		note_asked(x, asked);
	if (!d)
		d = first_death(&all);
	if (!x->err && d)
		explain_death(x, d);
	else if (!x->err)
		no_death(x, &all);
	vec_free(&all);
	return x->err;
}
