/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * SIGKILL by the kernel: the OOM killer, with its mark before or behind the signal, by kernel. Without a mark
 * it is not called that: the end of a container's first process kills the rest with the same code.
 */
#include "diagnose/pm_int.h"

#include <signal.h>
#include <string.h>

#define NEAR_LIMIT(usage, limit) ((limit) && (usage) + (limit) / 20 >= (limit))

static const struct dl_ev_oom_kill *mark_of(const struct dl_timeline *tl, uint32_t proc)
{
	const struct dl_proc *p = &tl->procs.v[proc];

	vec_for_each(&tl->crash, k) {
		const struct dl_ev_oom_kill *o = (const void *)k->ev;

		if (k->ev->kind == DL_EV_OOM_KILL && o->target_pid == p->pid && dl_pm_proc_at(tl, p->pid, k->ts) == proc)
			return o;
	}
	return NULL;
}

static void fact(struct dl_pmx *x, const struct dl_ev_oom_kill *o, const char *group)
{
	const struct dl_pm_who who = dl_pm_who_proc(x->tl, x->proc);
	const bool memcg = o->flags & DL_OOM_MEMCG;
	struct dl_str by = {};
	uint32_t proc = dl_pm_proc_at(x->tl, o->h.pid, o->h.ts);
	char usage[32], limit[32];

	if (proc != DL_NONE && proc != x->proc)
		dl_pm_add_proc(&by, x->tl, proc);
	else if (proc == DL_NONE)
		dl_str_addf(&by, "a process outside the job (pid %u)", o->h.pid);
	else
		dl_str_add(&by, "itself");
	if (by.err)
		x->err = x->err ? x->err : by.err;
	else if (memcg)
		DL_PM_DO(x, dl_pm_fact(x->pm, &who, o->h.ts, DL_PM_TRACE, true,
				       "chosen by the OOM killer: cgroup '%s' was at %s of %s when memory was asked for by %s", group,
				       dl_fmt_bytes(usage, sizeof(usage), o->usage), dl_fmt_bytes(limit, sizeof(limit), o->limit), by.s));
	else
		DL_PM_DO(x, dl_pm_fact(x->pm, &who, o->h.ts, DL_PM_TRACE, true,
				       "chosen by the OOM killer: the machine was out of memory when memory was asked for by %s", by.s));
	dl_str_fini(&by);
}

/* The victim is the largest, not the one that grew: who else grew stands among the processes. */
static void add_shares(struct dl_str *s, const struct dl_ev_oom_kill *o)
{
	char a[32], b[32], c[32], e[32];

	dl_str_addf(s, "it held %s private, %s shared memory, %s page tables", dl_fmt_bytes(a, sizeof(a), o->anon),
		    dl_fmt_bytes(b, sizeof(b), o->shmem), dl_fmt_bytes(c, sizeof(c), o->pgtables));
	if (o->swap)
		dl_str_addf(s, ", %s swapped out", dl_fmt_bytes(e, sizeof(e), o->swap));
}

/* Largest part of what the full group held, where it is much more than what its processes map. */
static void add_made_of(struct dl_str *s, struct dl_pmx *x, const struct dl_ev_oom_kill *o)
{
	const struct dl_ev_env_cgroup *g = dl_pm_cgroup_at(x, o->h.ts, o);
	char a[32];

	if (!g || !o->limit || g->mem_limit != o->limit)
		return;
	if (g->mem_shmem > o->limit / 3)
		dl_str_addf(s, "; %s of the group's memory was shared memory, which counts although no process may have it mapped",
			    dl_fmt_bytes(a, sizeof(a), g->mem_shmem));
}

bool dl_pm_by_oom(struct dl_pmx *x, const struct dl_pm_dead *d)
{
	const struct dl_ev_oom_kill *o = mark_of(x->tl, d->proc);
	struct dl_str s = {};
	char group[256], limit[32];

	if (!o)
		return false;
	x->oom = o;
	if (!d->sig || o->h.ts < d->sig->h.ts)
		x->at = x->pm->ts = o->h.ts;
	dl_pm_tail(group, sizeof(group), &o->h);
	fact(x, o, group);
	dl_pm_add_proc(&s, x->tl, d->proc);
	dl_str_add(&s, " was killed by the OOM killer");
	if (o->flags & DL_OOM_MEMCG)
		dl_str_addf(&s, ": cgroup '%s' was at its limit of %s; ", group[0] ? group : "?",
			    dl_fmt_bytes(limit, sizeof(limit), o->limit));
	else
		dl_str_add(&s, ": the machine was out of memory; ");
	add_shares(&s, o);
	if (o->flags & DL_OOM_MEMCG)
		add_made_of(&s, x, o);
	dl_pm_verdict(x, o->flags & DL_OOM_MEMCG ? DL_DEATH_OOM_CGROUP : DL_DEATH_OOM_HOST, DL_PM_CERTAIN, &s);
	return true;
}

/* The first process of a container takes all others with it. */
static bool is_init(const struct dl_pmx *x, const struct dl_ev_signal *ev)
{
	uint32_t proc = ev->h.flags & DL_HDR_FOREIGN ? DL_NONE : dl_pm_proc_at(x->tl, ev->h.pid, ev->h.ts);

	if (proc != DL_NONE && ev->h.pid != ev->target_pid)
		return x->tl->procs.v[proc].nspid == 1 && x->tl->procs.v[proc].nspid != x->tl->procs.v[proc].pid;
	return ev->h.pid == 1 || !strncmp(ev->sender_comm.s, "tini", 5) || !strncmp(ev->sender_comm.s, "docker-init", 12) ||
	       !strncmp(ev->sender_comm.s, "dumb-init", 10) || !strncmp(ev->sender_comm.s, "catatonit", 10);
}

static void no_mark(struct dl_pmx *x)
{
	const struct dl_ev_env_cgroup *g = dl_pm_cgroup_at(x, x->pm->ts, NULL);
	const struct dl_ev_env_host *h = dl_pm_host_at(x, x->pm->ts);
	char a[32], b[32];

	if (g && g->mem_limit)
		DL_PM_DO(x, dl_pm_alternative(x->pm, DL_DEATH_OOM_CGROUP, "the kernel log of that time (dmesg -T | grep -i oom)",
					      "the cgroup had %s of its limit of %s%s", dl_fmt_bytes(a, sizeof(a), g->mem_usage),
					      dl_fmt_bytes(b, sizeof(b), g->mem_limit),
					      NEAR_LIMIT(g->mem_usage, g->mem_limit) ? ", and was full" : ""));
	else
		DL_PM_DO(x, dl_pm_alternative(x->pm, DL_DEATH_OOM_CGROUP, "the kernel log of that time (dmesg -T | grep -i oom)",
					      "a cgroup's limit; none was recorded"));
	if (h)
		DL_PM_DO(x, dl_pm_alternative(x->pm, DL_DEATH_OOM_HOST, "the kernel log of that time (dmesg -T | grep -i oom)",
					      "the machine had %s of %s available", dl_fmt_bytes(a, sizeof(a), h->mem_avail),
					      dl_fmt_bytes(b, sizeof(b), h->mem_total)));
	else
		DL_PM_DO(x, dl_pm_alternative(x->pm, DL_DEATH_OOM_HOST, "the kernel log of that time (dmesg -T | grep -i oom)",
					      "the machine's memory was not recorded"));
	DL_PM_DO(x, dl_pm_alternative(x->pm, DL_DEATH_KILLED_BY, "the log of the container runtime, or of the scheduler",
				      "the first process of its container ended: the kernel kills the others with the same code"));
}

void dl_pm_killed_by_kernel(struct dl_pmx *x, const struct dl_pm_dead *d)
{
	const struct dl_pm_who who = dl_pm_who_proc(x->tl, d->proc);
	const uint64_t kills = dl_pm_cgroup_kills(x, d->ts);
	const bool init = is_init(x, d->sig);
	struct dl_str s = {};
	char path[256];

	DL_PM_DO(x, dl_pm_fact(x->pm, &who, d->ts, DL_PM_TRACE, true,
			       "SIGKILL by the kernel (code %d), while %.16s (pid %u) ran; no mark of the OOM killer for it", d->sig->code,
			       d->sig->sender_comm.s, d->sig->h.pid));
	dl_pm_add_proc(&s, x->tl, d->proc);
	if (kills) {
		const struct dl_ev_env_cgroup *g = dl_pm_cgroup_at(x, d->ts, NULL);

		dl_pm_tail(path, sizeof(path), g ? &g->h : NULL);
		dl_str_addf(&s, " was killed by the kernel, and its cgroup '%s' counted %llu kill%s by the OOM killer then; the OOM killer's own mark is not in the trace",
			    path, (unsigned long long)kills, kills == 1 ? "" : "s");
		dl_pm_verdict(x, DL_DEATH_OOM_CGROUP, DL_PM_LIKELY, &s);
		return;
	}
	if (init) {
		dl_str_addf(&s, " was killed by the kernel since the first process of its container, %.16s (pid %u), ended",
			    d->sig->sender_comm.s, d->sig->h.pid);
		dl_pm_verdict(x, DL_DEATH_KILLED_BY, DL_PM_LIKELY, &s);
		return;
	}
	dl_str_add(&s, " was killed by the kernel (SIGKILL, code 128), as the OOM killer does it; but the OOM killer's mark is not in the trace");
	dl_pm_verdict(x, DL_DEATH_UNEXPLAINED, DL_PM_UNKNOWN, &s);
	no_mark(x);
}
