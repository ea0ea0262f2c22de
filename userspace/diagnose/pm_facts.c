/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What else happened around the death, in order: failures, signals, exits, memory that ran full. And what the
 * trace does not tell: losses, a late start, an end that is cut off.
 */
#include "diagnose/pm_int.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "trace/schema.h"
#include "trace/trace.h"

#define BEFORE_NS (60 * DL_PM_S)
#define AFTER_NS (30 * DL_PM_S)
#define UNNOTICED_NS (6 * DL_PM_S)	/* PyTorch's own loader looks for its workers every 5 s */
#define FAILS_MAX 12u
#define SIGNALS_MAX 24u

/* Is it told already: by the verdict? */
static bool is_told(const struct dl_postmortem *pm, uint64_t ts, uint32_t pid)
{
	vec_for_each(&pm->facts, f) {
		if (f->ts == ts && f->who.pid == pid)
			return true;
	}
	return false;
}

static bool is_near(const struct dl_pmx *x, uint64_t ts)
{
	const uint64_t at = x->pm->ts ? x->pm->ts : x->at;

	return ts + BEFORE_NS >= at && ts <= at + AFTER_NS;
}

static void fails(struct dl_pmx *x)
{
	size_t cnt = 0, more = 0;

	vec_for_each(&x->fails, f) {
		const struct dl_pm_who who = dl_pm_who_thread(x->tl, f->thread);
		struct dl_str s = {};

		if (!is_near(x, f->ts) || is_told(x->pm, f->ts, f->ev->h.pid))
			continue;
		if (f->proc != DL_NONE && x->tl->procs.v[f->proc].role == DL_ROLE_SHM_MANAGER && dl_pm_fail_death(x, f) == DL_DEATH_UNEXPLAINED)
			continue;	/* as it always does */
		if (cnt >= FAILS_MAX) {
			more++;
			continue;
		}
		dl_pm_fail_text(&s, x, f);
		DL_PM_DO(x, s.err ? s.err : dl_pm_fact(x->pm, &who, f->ts, DL_PM_TRACE, false, "%s", s.s));
		dl_str_fini(&s);
		cnt++;
	}
	if (more)
		DL_PM_DO(x, dl_pm_note(x->pm, "%zu more failed system calls near the death are not listed", more));
}

/* Signals that say how the rest of the job ended: not those of its own house-keeping. */
static void signals(struct dl_pmx *x)
{
	size_t cnt = 0;

	vec_for_each(&x->tl->crash, k) {
		const struct dl_ev_signal *ev = (const void *)k->ev;
		uint32_t target;
		struct dl_pm_who who;
		struct dl_str s = {};
		char name[24];

		if (k->ev->kind != DL_EV_SIGNAL || ev->result == 1 || !is_near(x, k->ts) || cnt >= SIGNALS_MAX)
			continue;
		if (ev->sig == SIGCHLD || ev->sig == SIGWINCH || ev->sig == SIGALRM || ev->sig == SIGPROF || ev->sig == SIGURG ||
		    ev->sig == SIGPIPE || ev->sig >= 32)
			continue;
		target = dl_pm_proc_at(x->tl, ev->target_pid, k->ts);
		if (target == DL_NONE || is_told(x->pm, k->ts, ev->target_pid))
			continue;
		who = dl_pm_who_proc(x->tl, target);
		dl_pm_signal_name(name, ev->sig);
		if (ev->code <= 0 && ev->h.pid == ev->target_pid) {
			dl_str_addf(&s, "raises %s itself%s", name, x->sig && ev->target_pid == x->sig->target_pid && ev->sig == x->sig->sig ?
				    ": the same death, from PyTorch's handler" : "");
		} else if (ev->code <= 0) {
			dl_str_addf(&s, "%s, sent by ", name);
			dl_pm_add_sender(&s, x->tl, ev);
		} else {
			dl_str_addf(&s, "%s by the kernel (code %d)", name, ev->code);
		}
		DL_PM_DO(x, s.err ? s.err : dl_pm_fact(x->pm, &who, k->ts, DL_PM_TRACE, false, "%s", s.s));
		dl_str_fini(&s);
		cnt++;
	}
}

static void exits(struct dl_pmx *x)
{
	vec_for_each(&x->tl->procs, p) {
		const struct dl_pm_who who = dl_pm_who_proc(x->tl, (uint32_t)(p - x->tl->procs.v));
		char name[24];

		if (!p->exited || !is_near(x, p->end) || is_told(x->pm, p->end, p->pid))
			continue;
		if (p->role != DL_ROLE_TRAINER && p->role != DL_ROLE_WORKER && !p->root && !p->exit_status)
			continue;
		if (p->exit_status & 0x7f)
			DL_PM_DO(x, dl_pm_fact(x->pm, &who, p->end, DL_PM_TRACE, false, "ended, killed by %s",
					       dl_pm_signal_name(name, p->exit_status & 0x7f)));
		else
			DL_PM_DO(x, dl_pm_fact(x->pm, &who, p->end, DL_PM_TRACE, false, "ended with exit code %d",
					       p->exit_status >> 8 & 0xff));
	}
}

/* A thread of the house that ended although its process went on: the pin-memory thread, a feeder. */
static void threads(struct dl_pmx *x)
{
	for (uint32_t i = 1; i < x->tl->threads.cnt; i++) {
		const struct dl_thread *th = &x->tl->threads.v[i];
		const struct dl_proc *p = th->proc == DL_NONE ? NULL : &x->tl->procs.v[th->proc];
		const struct dl_pm_who who = dl_pm_who_thread(x->tl, i);

		if (!p || (th->role != DL_ROLE_PIN && th->role != DL_ROLE_FEEDER) || th->end >= x->tl->end || !is_near(x, th->end))
			continue;
		if (p->exited && th->end + 100 * DL_PM_MS > p->end)
			continue;
		DL_PM_DO(x, dl_pm_fact(x->pm, &who, th->end, DL_PM_TRACE, false, "ended, while its process went on"));
	}
}

/* /dev/shm becomes nearly full; a group meets its limit: the first time of each. */
static void pressure(struct dl_pmx *x)
{
	const struct dl_ev_env_cgroup *last = NULL;
	bool shm = false, limit = false;
	char a[32], b[32];

	vec_for_each(&x->tl->env, k) {
		const struct dl_ev_env_shm *s = (const void *)k->ev;
		const struct dl_ev_env_cgroup *g = (const void *)k->ev;

		if (k->ts > x->at)
			break;
		if (k->ev->kind == DL_EV_ENV_SHM && !shm && s->total && s->used >= s->total / 10 * 9) {
			DL_PM_DO(x, dl_pm_fact(x->pm, NULL, k->ts, DL_PM_TRACE, false, "/dev/shm is nearly full: %s of %s",
					       dl_fmt_bytes(a, sizeof(a), s->used), dl_fmt_bytes(b, sizeof(b), s->total)));
			shm = true;
		}
		if (k->ev->kind != DL_EV_ENV_CGROUP || limit || !g->mem_limit)
			continue;
		if (last && last->mem_limit == g->mem_limit && g->limit_hits > last->limit_hits) {
			char path[256];

			dl_pm_tail(path, sizeof(path), &g->h);
			DL_PM_DO(x, dl_pm_fact(x->pm, NULL, k->ts, DL_PM_TRACE, false, "cgroup '%s' has met its memory limit of %s: %s is used",
					       path, dl_fmt_bytes(b, sizeof(b), g->mem_limit), dl_fmt_bytes(a, sizeof(a), g->mem_usage)));
			limit = true;
		}
		last = g;
	}
}

/* Workers that go on behind the death of their trainer. */
static void orphans(struct dl_pmx *x)
{
	size_t cnt = 0;

	vec_for_each(&x->tl->procs, p) {
		const struct dl_proc *t = p->trainer == DL_NONE ? NULL : &x->tl->procs.v[p->trainer];

		cnt += p->role == DL_ROLE_WORKER && !p->exited && t && t->exited && t->end < x->tl->end;
	}
	if (cnt)
		DL_PM_DO(x, dl_pm_note(x->pm, "%zu worker%s of a trainer that is gone went on to the end of the recording", cnt, cnt == 1 ? "" : "s"));
}

/* A death that the trainer does not learn of: of a forkserver's child, of a process of torchdata's own loaders. */
static void unnoticed(struct dl_pmx *x)
{
	const struct dl_proc *p = x->proc == DL_NONE ? NULL : &x->tl->procs.v[x->proc];
	const struct dl_wait *w;
	uint32_t consumer;
	uint64_t since;

	if (!p || p->role != DL_ROLE_WORKER || !p->exited || p->trainer == DL_NONE || x->tl->procs.v[p->trainer].exited ||
	    p->end + UNNOTICED_NS > x->tl->end)
		return;
	consumer = dl_pm_consumer(x->tl, p->trainer);
	if (consumer != DL_NONE && dl_pm_blocked_since(x->tl, consumer, x->tl->end, &since, &w) && x->tl->end - since > UNNOTICED_NS / 2)
		DL_PM_DO(x, dl_pm_note(x->pm, "the trainer has not learnt of this death: %.1f s later, when the recording ends, it still waits for a batch",
				       (double)(x->tl->end - p->end) / 1e9));
}

void dl_pm_facts(struct dl_pmx *x)
{
	if (x->pm->death != DL_DEATH_NONE || x->pm->ts) {
		pressure(x);
		fails(x);
		signals(x);
		exits(x);
		threads(x);
		orphans(x);
		unnoticed(x);
	}
	if (!x->err)
		dl_pm_sort_facts(x->pm);
}

static void losses(struct dl_pmx *x)
{
	uint64_t crash = 0, other = 0, shed = 0;

	vec_for_each(&x->tl->losses, l) {
		if (l->cause == DL_LOSS_STACK)
			continue;
		if (l->cause == DL_LOSS_SHED)
			shed += l->cnt;
		else if (l->ring == DL_RING_CRASH || l->kind == DL_EV_SIGNAL || l->kind == DL_EV_EXIT || l->kind == DL_EV_OOM_KILL)
			crash += l->cnt;
		else
			other += l->cnt;
	}
	if (crash)
		DL_PM_DO(x, dl_pm_note(x->pm, "%" PRIu64 " events of deaths were lost: the first event of this one may be among them", crash));
	if (other)
		DL_PM_DO(x, dl_pm_note(x->pm, "%" PRIu64 " other events were lost: states of threads may be wrong", other));
	if (shed)
		DL_PM_DO(x, dl_pm_note(x->pm, "%" PRIu64 " events of less importance were left out while they came too fast; none of births, ends and deadly signals is among them", shed));
}

/* What a flight recorder says of itself. */
static void marks(struct dl_pmx *x)
{
	vec_for_each(&x->tl->crash, k) {
		const struct dl_ev_mark *m = (const void *)k->ev;
		char text[256];

		if (k->ev->kind != DL_EV_MARK)
			continue;
		dl_pm_tail(text, sizeof(text), k->ev);
		if (m->what == DL_MARK_STATE && m->value > 0)
			DL_PM_DO(x, dl_pm_note(x->pm, "only the last part of the recording was kept: %d s before it are left out", m->value));
		if (m->what == DL_MARK_TRIGGER && text[0])
			DL_PM_DO(x, dl_pm_note(x->pm, "the recorder kept this part since: %s", text));
	}
}

void dl_pm_notes(struct dl_pmx *x, bool complete)
{
	bool late = true;

	if (!complete)
		DL_PM_DO(x, dl_pm_note(x->pm, "the trace is cut off: its recorder did not end in order, and what happened in the last second, or later, is not in it"));
	losses(x);
	marks(x);
	vec_for_each(&x->tl->procs, p) {
		if (p->role == DL_ROLE_TRAINER && p->start)
			late = false;
	}
	if (late && x->tl->procs.cnt)
		DL_PM_DO(x, dl_pm_note(x->pm, "the recording began when the training ran already: what led to the death may have begun before"));
	vec_for_each(&x->tl->absent, a)
		DL_PM_DO(x, dl_pm_note(x->pm, "not recorded: %s", *a));
}
