/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* A death by a signal: who sent it, or which fault of the program it was. */
#include "diagnose/pm_int.h"

#include <signal.h>
#include <string.h>

#define NULL_PAGE 65536u	/* nothing is ever mapped below: an access there went through a null pointer */
#define AFTER_FAIL_NS (2 * DL_PM_S)	/* a program gives up this soon after a call of it failed */

static void finish(struct dl_pmx *x, struct dl_str *s, enum dl_death death, enum dl_pm_confidence confidence)
{
	dl_pm_verdict(x, death, confidence, s);
}

static void add_fact(struct dl_pmx *x, const struct dl_ev_signal *ev, bool decides)
{
	const struct dl_pm_who who = dl_pm_who_thread(x->tl, x->thread);
	char name[24];
	struct dl_str s = {};

	if (ev->code <= 0 && ev->h.pid != ev->target_pid) {
		dl_str_addf(&s, "%s, sent by ", dl_pm_signal_name(name, ev->sig));
		dl_pm_add_sender(&s, x->tl, ev);
	} else {
		dl_str_addf(&s, "%s, code %d", dl_pm_signal_name(name, ev->sig), ev->code);
		if (ev->code > 0 && ev->code < 128)
			dl_str_addf(&s, ", at address 0x%llx", ev->addr);
	}
	DL_PM_DO(x, s.err ? s.err : dl_pm_fact(x->pm, &who, ev->h.ts, DL_PM_TRACE, decides, "%s", s.s));
	dl_str_fini(&s);
}

/* --- sent by somebody --- */

/* Ctrl-C and Ctrl-\ come from the kernel, to all of the terminal's foreground. */
static bool by_user(struct dl_pmx *x, const struct dl_pm_dead *d, const struct dl_ev_signal *ev)
{
	const bool terminal = ev->code > 0;
	struct dl_str s = {};

	if (ev->sig != SIGINT && !(ev->sig == SIGQUIT && terminal))
		return false;
	dl_str_addf(&s, "the run was interrupted: %s", ev->sig == SIGQUIT ? "SIGQUIT, as Ctrl-\\ sends it" :
		    terminal ? "SIGINT, by Ctrl-C at its terminal" : "SIGINT, as Ctrl-C sends it");
	if (!terminal && ev->h.pid != ev->target_pid) {
		dl_str_add(&s, ", sent by ");
		dl_pm_add_sender(&s, x->tl, ev);
	}
	if (d->code)
		dl_str_addf(&s, "; it ended with exit code %d", d->code);
	finish(x, &s, DL_DEATH_NONE, d->signr == ev->sig ? DL_PM_CERTAIN : DL_PM_LIKELY);
	return true;
}

static void add_end(struct dl_str *s, const struct dl_pmx *x, const struct dl_pm_dead *d, const struct dl_ev_signal *ev)
{
	uint32_t target = dl_pm_proc_at(x->tl, ev->target_pid, ev->h.ts);
	char name[24];

	if (target != DL_NONE && target != d->proc) {
		dl_str_addf(s, "; it was sent to ");
		dl_pm_add_proc(s, x->tl, target);
	}
	if (!d->signr)
		dl_str_addf(s, "; it then ended with exit code %d", d->code);
	else if (d->signr != ev->sig)
		dl_str_addf(s, "; %s followed", dl_pm_signal_name(name, d->signr));
}

void dl_pm_by_sender(struct dl_pmx *x, const struct dl_pm_dead *d, const struct dl_ev_signal *ev)
{
	const bool sure = d->signr || d->code == 128 + ev->sig;
	struct dl_str s = {};
	char name[24];

	x->sig = ev;
	x->at = x->pm->ts = ev->h.ts;
	add_fact(x, ev, true);
	if (by_user(x, d, ev))
		return;
	dl_pm_add_proc(&s, x->tl, d->proc);
	if (ev->sig == SIGHUP && ev->code > 0) {
		dl_str_add(&s, " was ended by SIGHUP: its terminal or ssh session was closed");
	} else if (ev->h.pid == ev->target_pid) {
		dl_str_addf(&s, " sent %s to itself: the program ended itself on purpose", dl_pm_signal_name(name, ev->sig));
	} else {
		dl_str_addf(&s, " was ended by %s (%s), sent by ", dl_pm_signal_name(name, ev->sig), sigdescr_np(ev->sig));
		dl_pm_add_sender(&s, x->tl, ev);
	}
	add_end(&s, x, d, ev);
	finish(x, &s, DL_DEATH_KILLED_BY, sure ? DL_PM_CERTAIN : DL_PM_LIKELY);
}

/* --- faults of the program --- */

static enum dl_death fault_death(int32_t sig)
{
	switch (sig) {
	case SIGSEGV:
		return DL_DEATH_SEGFAULT;
	case SIGABRT:
	case SIGTRAP:
		return DL_DEATH_ABORT;
	case SIGFPE:
		return DL_DEATH_ARITHMETIC;
	case SIGILL:
		return DL_DEATH_ILLEGAL_INSTRUCTION;
	default:
		return DL_DEATH_UNEXPLAINED;
	}
}

static void add_what(struct dl_str *s, const struct dl_ev_signal *ev)
{
	static const char *const fpe[] = { "", "an integer was divided by zero", "an integer overflowed",
					   "a number was divided by zero", "a number overflowed", "a number underflowed",
					   "an inexact result", "an invalid operation", "a subscript out of range" };

	switch (ev->sig) {
	case SIGSEGV:
		if (ev->code == 128)
			dl_str_add(s, " had a segmentation fault at an address that no program can have");
		else
			dl_str_addf(s, " had a segmentation fault at address 0x%llx%s", ev->addr,
				    ev->addr < NULL_PAGE ? " (a null pointer)" :
				    ev->code == 2 ? " (mapped, but not for this kind of access)" : "");
		break;
	case SIGFPE:
		dl_str_addf(s, " had an arithmetic error (SIGFPE): %s",
			    ev->code > 0 && ev->code < 9 ? fpe[ev->code] : "which kind is not known");
		break;
	case SIGILL:
		dl_str_add(s, " met an instruction that this CPU does not have (SIGILL)");
		break;
	case SIGTRAP:
		dl_str_add(s, " stopped itself at a failed check (SIGTRAP)");
		break;
	default:
		dl_str_add(s, " aborted itself (SIGABRT): a failed check, heap corruption, or an uncaught C++ exception");
	}
}

/* C++ throws where a call fails, and nobody catches it in a thread of a pool. */
static bool after_fail(struct dl_pmx *x, const struct dl_pm_dead *d)
{
	const struct dl_pm_fail *f = d->signr == SIGABRT ? dl_pm_fail_before(x, d->proc, d->ts, AFTER_FAIL_NS) : NULL;

	if (!f || f->proc != d->proc || dl_pm_fail_death(x, f) == DL_DEATH_UNEXPLAINED)
		return false;
	dl_pm_by_fail(x, f, "; it then aborted itself (SIGABRT)");
	return true;
}

static void by_fault(struct dl_pmx *x, const struct dl_pm_dead *d)
{
	const bool raised = d->sig->code <= 0 && d->signr != SIGABRT;
	struct dl_str s = {};

	add_fact(x, d->sig, true);
	if (after_fail(x, d))
		return;
	dl_pm_add_proc(&s, x->tl, d->proc);
	if (raised) {
		char name[24];

		dl_str_addf(&s, " raised %s itself", dl_pm_signal_name(name, d->signr));
	} else {
		add_what(&s, d->sig);
		/* The instruction of an abort is the C library's own: who called it is on the stack. */
		if (!dl_pm_add_caller(&s, x, d->proc) && d->signr != SIGABRT) {
			dl_str_add(&s, " in ");
			dl_pm_add_place(&s, x, d->proc, d->sig->ip);
		}
	}
	finish(x, &s, fault_death(d->signr), raised ? DL_PM_LIKELY : DL_PM_CERTAIN);
	if (d->signr == SIGABRT && x->tl->procs.v[d->proc].role == DL_ROLE_TRAINER)
		DL_PM_DO(x, dl_pm_alternative(x->pm, DL_DEATH_TIMEOUT, "the training's own output: NCCL's watchdog prints which collective and how long",
					      "where processes train together, NCCL's watchdog aborts the trainer after a collective's timeout"));
}

/* Fatal signals that are neither faults nor sent by anybody. */
static void by_limit(struct dl_pmx *x, const struct dl_pm_dead *d)
{
	struct dl_str s = {};
	char name[24];

	add_fact(x, d->sig, true);
	dl_pm_add_proc(&s, x->tl, d->proc);
	switch (d->signr) {
	case SIGXCPU:
		dl_str_add(&s, " had used all the CPU time that its limit allows (ulimit -t): SIGXCPU");
		break;
	case SIGXFSZ:
		dl_str_add(&s, " wrote a file larger than its limit allows (ulimit -f): SIGXFSZ");
		break;
	case SIGSYS:
		dl_str_add(&s, " made a system call that a filter of its container forbids (seccomp): SIGSYS");
		break;
	case SIGPIPE:
		dl_str_add(&s, " wrote to a pipe or socket whose reader was gone: SIGPIPE");
		break;
	default:
		dl_str_addf(&s, " died of %s, code %d", dl_pm_signal_name(name, d->signr), d->sig->code);
	}
	finish(x, &s, DL_DEATH_UNEXPLAINED, DL_PM_UNKNOWN);
}

/* It died of a signal that is not in the trace: what it was, not why. */
static void by_unseen(struct dl_pmx *x, const struct dl_pm_dead *d)
{
	const enum dl_death death = fault_death(d->signr);
	struct dl_str s = {};
	char name[24];

	if (d->signr == SIGKILL && dl_pm_by_oom(x, d))
		return;
	dl_pm_add_proc(&s, x->tl, d->proc);
	dl_str_addf(&s, " died of %s; the signal itself is not in the trace", dl_pm_signal_name(name, d->signr));
	finish(x, &s, death, death == DL_DEATH_UNEXPLAINED ? DL_PM_UNKNOWN : DL_PM_LIKELY);
	if (d->signr == SIGKILL)
		DL_PM_DO(x, dl_pm_alternative(x->pm, DL_DEATH_OOM_CGROUP, "the kernel log of that time (dmesg -T | grep -i oom)",
					      "the OOM killer ends its victims with SIGKILL"));
	if (death == DL_DEATH_UNEXPLAINED)
		DL_PM_DO(x, dl_pm_alternative(x->pm, DL_DEATH_KILLED_BY, "a recording that has the signal: see the losses below",
					      "any process of the same user, or of root, can send it"));
}

void dl_pm_by_signal(struct dl_pmx *x, const struct dl_pm_dead *d)
{
	if (!d->sig) {
		by_unseen(x, d);
		return;
	}
	if (d->signr == SIGKILL && d->sig->code > 0) {
		if (!dl_pm_by_oom(x, d))
			dl_pm_killed_by_kernel(x, d);
		return;
	}
	if ((d->sig->code <= 0 && d->sig->h.pid != d->sig->target_pid) || d->signr == SIGKILL || d->signr == SIGINT ||
	    d->signr == SIGHUP || d->signr == SIGTERM || d->signr == SIGQUIT) {
		dl_pm_by_sender(x, d, d->sig);
		return;
	}
	if (d->signr == SIGBUS && d->sig->code > 0) {
		add_fact(x, d->sig, false);
		dl_pm_by_sigbus(x, d);
	} else if (fault_death(d->signr) != DL_DEATH_UNEXPLAINED) {
		by_fault(x, d);
	} else {
		by_limit(x, d);
	}
}
