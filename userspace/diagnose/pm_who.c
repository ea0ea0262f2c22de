/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Names of processes, threads, senders and signals for a post-mortem. */
#include "diagnose/pm_int.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "diagnose/report.h"
#include "trace/schema.h"

static char *name_of(const struct dl_timeline *tl, uint32_t thread)
{
	if (thread == DL_NONE || !tl->threads.v[thread].name[0])
		return NULL;
	return tl->threads.v[thread].name;
}

struct dl_pm_who dl_pm_who_proc(const struct dl_timeline *tl, uint32_t proc)
{
	struct dl_pm_who w = { .index = -1 };
	const struct dl_proc *p;

	if (proc == DL_NONE)
		return w;
	p = &tl->procs.v[proc];
	w.pid = w.tid = p->pid;
	w.nspid = p->nspid;
	w.role = p->role;
	w.index = p->index;
	w.name = name_of(tl, p->main);
	return w;
}

struct dl_pm_who dl_pm_who_thread(const struct dl_timeline *tl, uint32_t thread)
{
	struct dl_pm_who w = { .index = -1 };
	const struct dl_thread *th;

	if (thread == DL_NONE)
		return w;
	th = &tl->threads.v[thread];
	if (th->proc != DL_NONE) {
		w = dl_pm_who_proc(tl, th->proc);
		w.role = th->role;
	} else {
		w.pid = th->tid;
	}
	w.tid = th->tid;
	w.name = name_of(tl, thread);
	return w;
}

static const char *role_noun(enum dl_role role)
{
	switch (role) {
	case DL_ROLE_TRAINER:
		return "the trainer";
	case DL_ROLE_LAUNCHER:
		return "the launcher";
	case DL_ROLE_WORKER:
		return "worker";
	case DL_ROLE_WORKER_CHILD:
		return "a worker's helper";
	case DL_ROLE_FORKSERVER:
		return "the fork server";
	case DL_ROLE_SHM_MANAGER:
		return "the shared memory manager";
	case DL_ROLE_TRACKER:
		return "Python's resource tracker";
	default:
		return "process";
	}
}

static size_t trainer_cnt(const struct dl_timeline *tl)
{
	size_t cnt = 0;

	vec_for_each(&tl->procs, p)
		cnt += p->role == DL_ROLE_TRAINER;
	return cnt;
}

void dl_pm_add_proc(struct dl_str *s, const struct dl_timeline *tl, uint32_t proc)
{
	const struct dl_proc *p = &tl->procs.v[proc];
	const char *name = name_of(tl, p->main);

	dl_str_add(s, role_noun(p->role));
	if (p->role == DL_ROLE_WORKER && p->index >= 0)
		dl_str_addf(s, " %d", p->index);
	if (p->role == DL_ROLE_TRAINER && p->rank >= 0 && trainer_cnt(tl) > 1)
		dl_str_addf(s, " of rank %d", p->rank);
	if ((p->role == DL_ROLE_HELPER || p->role == DL_ROLE_WORKER_CHILD || p->role == DL_ROLE_UNKNOWN) && name)
		dl_str_addf(s, " %s", name);
	dl_str_addf(s, " (pid %u", p->pid);
	if (p->nspid && p->nspid != p->pid)
		dl_str_addf(s, ", %u in its container", p->nspid);
	dl_str_add(s, ")");
}

/* What some well-known senders are. */
static const char *known_sender(const char comm[16])
{
	static const struct { const char *comm, *what; } known[] = {
		{ "systemd-oomd", "which ends whole groups under memory pressure before the kernel must" },
		{ "earlyoom", "which ends processes when the machine is short of memory" },
		{ "nohang", "which ends processes when the machine is short of memory" },
		{ "slurmstepd", "Slurm's daemon on this node: a limit of the job, or scancel" },
		{ "slurmd", "Slurm's daemon on this node" },
		{ "pbs_mom", "the PBS daemon on this node" },
		{ "sge_shepherd", "the Grid Engine's daemon for this job" },
		{ "kubelet", "Kubernetes' daemon on this node" },
		{ "containerd-shim", "the container runtime: the container was stopped" },
		{ "runc", "the container runtime: the container was stopped" },
		{ "crun", "the container runtime: the container was stopped" },
		{ "conmon", "the container runtime: the container was stopped" },
		{ "dockerd", "Docker: the container was stopped" },
		{ "docker-init", "the first process of the container" },
		{ "tini", "the first process of the container" },
		{ "dumb-init", "the first process of the container" },
		{ "systemd-logind", "which ends the processes of a session at logout" },
		{ "systemd", "which stopped the unit" },
		{ "timeout", "the command timeout(1): its time was over" },
		{ "sshd", "the session's ssh server" },
	};
	char name[17] = "";

	memcpy(name, comm, 16);
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		if (!strcmp(known[i].comm, name))
			return known[i].what;
	}
	return NULL;
}

void dl_pm_add_sender(struct dl_str *s, const struct dl_timeline *tl, const struct dl_ev_signal *ev)
{
	const char *what = known_sender(ev->sender_comm.s), *parent = NULL;
	uint32_t own = ev->h.flags & DL_HDR_FOREIGN ? DL_NONE : dl_pm_proc_at(tl, ev->h.pid, ev->h.ts);
	uint64_t idx;

	if (ev->sender_ppid && dl_map_get(&tl->tids, ev->sender_ppid, &idx))
		parent = name_of(tl, (uint32_t)idx);
	dl_str_addf(s, "%.16s (pid %u, parent %s%s%u, ", ev->sender_comm.s[0] ? ev->sender_comm.s : "a process", ev->h.pid,
		    parent ? parent : "", parent ? " " : "", ev->sender_ppid);
	if (ev->sender_uid)
		dl_str_addf(s, "user id %u", ev->sender_uid);
	else
		dl_str_add(s, "user root");
	if (own != DL_NONE) {
		dl_str_add(s, "; the job's own ");
		dl_str_add(s, tl->procs.v[own].role == DL_ROLE_UNKNOWN ? "process" : dl_role_id(tl->procs.v[own].role));
	}
	dl_str_add(s, ")");
	if (what)
		dl_str_addf(s, ", %s", what);
}

const char *dl_pm_signal_name(char buf[24], int32_t sig)
{
	const char *abbrev = sigabbrev_np(sig);

	if (abbrev)
		snprintf(buf, 24, "SIG%s", abbrev);
	else
		snprintf(buf, 24, "signal %d", sig);
	return buf;
}

bool dl_pm_alive(const struct dl_proc *p, uint64_t ts)
{
	return p->start <= ts && (!p->exited || p->end > ts);
}

uint32_t dl_pm_proc_at(const struct dl_timeline *tl, uint32_t pid, uint64_t ts)
{
	uint32_t best = DL_NONE;

	/* The last one of this id that had begun: a signal can come while it ends, and stamps of two CPUs differ. */
	for (uint32_t i = 0; i < tl->procs.cnt; i++) {
		if (tl->procs.v[i].pid == pid && (best == DL_NONE || tl->procs.v[i].start <= ts))
			best = i;
	}
	return best;
}

uint32_t dl_pm_thread_at(const struct dl_timeline *tl, uint32_t tid, uint64_t ts)
{
	uint32_t best = DL_NONE;

	for (uint32_t i = 1; i < tl->threads.cnt; i++) {
		if (tl->threads.v[i].tid == tid && (best == DL_NONE || tl->threads.v[i].start <= ts))
			best = i;
	}
	return best;
}

bool dl_pm_is_ancestor(const struct dl_timeline *tl, uint32_t proc, uint32_t of)
{
	if (proc == DL_NONE || of == DL_NONE)
		return false;
	if (tl->procs.v[of].trainer == proc && of != proc)
		return true;
	for (int depth = 0; of != DL_NONE && depth < 32; depth++) {
		of = tl->procs.v[of].parent;
		if (of == proc)
			return true;
	}
	return false;
}

uint32_t dl_pm_consumer(const struct dl_timeline *tl, uint32_t trainer)
{
	vec_for_each(&tl->procs.v[trainer].threads, i) {
		if (tl->threads.v[*i].role == DL_ROLE_PIN)
			return *i;
	}
	return tl->procs.v[trainer].main;
}

/* The kernel lets poll be late by 0.5 % of its time-out, at most 100 ms, where the process is nice, as batch jobs
 * are (select_estimate_accuracy in fs/select.c); with 0.1 %, as others get, dl_timed_out() goes. */
bool dl_pm_timed_out(const struct dl_wait *w, uint64_t start)
{
	uint64_t slack;

	if (dl_timed_out(w, start))
		return true;
	if (!w->deadline || !w->wake_ts || w->deadline <= start || w->wake_ts < w->deadline)
		return false;
	slack = (w->deadline - start) / 200;
	return w->wake_ts - w->deadline <= 2 * DL_PM_MS + (slack < 100 * DL_PM_MS ? slack : 100 * DL_PM_MS);
}

void dl_pm_tail(char *buf, size_t sz, const struct dl_hdr *ev)
{
	size_t len = 0;
	const char *tail = ev ? dl_event_tail(ev, &len) : NULL;

	if (len >= sz)
		len = sz - 1;
	if (tail)
		memcpy(buf, tail, len);
	buf[tail ? len : 0] = '\0';
}

void dl_pm_verdict(struct dl_pmx *x, enum dl_death death, enum dl_pm_confidence confidence, struct dl_str *text)
{
	char *made = dl_str_take(text);

	x->pm->death = death;
	x->pm->confidence = confidence;
	if (!made) {
		x->err = x->err ? x->err : -ENOMEM;
		return;
	}
	free(x->pm->text);
	x->pm->text = made;
}

void dl_pm_verdictf(struct dl_pmx *x, enum dl_death death, enum dl_pm_confidence confidence, const char *fmt, ...)
{
	struct dl_str s = {};
	char *made = NULL;
	va_list ap;
	int len;

	va_start(ap, fmt);
	len = vasprintf(&made, fmt, ap);
	va_end(ap);
	if (len < 0) {
		x->err = x->err ? x->err : -ENOMEM;
		return;
	}
	dl_str_add(&s, made);
	free(made);
	dl_pm_verdict(x, death, confidence, &s);
}
