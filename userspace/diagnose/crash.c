/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What killed a process of the job: the first fatal event decides. PyTorch raises a fatal signal
 * again after its handler, and its own message blames shared memory for every SIGBUS; neither is
 * believed here.
 */
#include "diagnose/summary.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "diagnose/evidence.h"
#include "trace/schema.h"

#define TMPFS_MAGIC 0x01021994
#define SI_KERNEL_CODE 128

static bool is_fatal(int32_t sig)
{
	switch (sig) {
	case SIGBUS:
	case SIGSEGV:
	case SIGFPE:
	case SIGILL:
	case SIGABRT:
	case SIGKILL:
	case SIGTERM:
	case SIGSYS:
	case SIGXCPU:
		return true;
	}
	return false;
}

static const struct dl_proc *own_proc(const struct dl_timeline *tl, uint32_t pid)
{
	uint64_t idx;

	return dl_map_get(&tl->pids, pid, &idx) ? &tl->procs.v[idx] : NULL;
}

/* The signal that the process died of; 0 none. */
static int32_t death_signal(const struct dl_proc *p)
{
	return p->exited ? p->exit_status & 0x7f : 0;
}

static const void *next_of(const struct dl_timeline *tl, size_t from, uint16_t kind, uint32_t pid, uint64_t within_ns)
{
	for (size_t i = from; i < tl->crash.cnt; i++) {
		const struct dl_hdr *ev = tl->crash.v[i].ev;

		if (ev->ts > tl->crash.v[from].ts + within_ns)
			break;
		if (ev->kind == kind && ev->pid == pid)
			return ev;
	}
	return NULL;
}

/* The OOM killer's mark and its signal come in either order. */
static const struct dl_ev_oom_kill *oom_of(const struct dl_timeline *tl, uint32_t pid)
{
	vec_for_each(&tl->crash, k) {
		const struct dl_ev_oom_kill *o = (const void *)k->ev;

		if (k->ev->kind == DL_EV_OOM_KILL && o->target_pid == pid)
			return o;
	}
	return NULL;
}

static const char *bytes(char buf[32], uint64_t n)
{
	return dl_fmt_bytes(buf, 32, n);
}

static const char *explain_sigbus(struct dl_str *s, const struct dl_ev_sigbus_map *m)
{
	char a[32], b[32], name[256] = "";
	size_t len = 0;
	const char *tail = m ? dl_event_tail(&m->h, &len) : NULL;

	if (!m || (m->fault_flags & DL_SB_NO_VMA)) {
		dl_str_add(s, "SIGBUS; what was mapped at the address is not known");
		return NULL;
	}
	if (tail && len < sizeof(name))
		memcpy(name, tail, len);
	if (m->fault_flags & DL_SB_PAST_END || m->file_off >= m->file_sz) {
		dl_str_addf(s, "touched offset %llu of the mapped file '%s', which is only %s long: it was truncated",
			    m->file_off, name, bytes(a, m->file_sz));
		return "mapped-file-truncated";
	}
	if (m->file_magic == TMPFS_MAGIC) {
		dl_str_addf(s, "the shared memory file system is full (%s of %s used) and '%s' was touched for the first time",
			    bytes(a, m->fs_used), bytes(b, m->fs_total), name);
		return "shm-full";
	}
	if (m->fs_total && m->fs_used + m->fs_total / 100 >= m->fs_total) {
		dl_str_addf(s, "the file system of the mapped file '%s' is full (%s of %s used)", name,
			    bytes(a, m->fs_used), bytes(b, m->fs_total));
		return "mapped-filesystem-full";
	}
	dl_str_addf(s, "SIGBUS in the mapped file '%s'; its file system has room and the file is long enough", name);
	return NULL;
}

static const char *explain_oom(struct dl_str *s, const struct dl_ev_oom_kill *o)
{
	char a[32], b[32], c[32], e[32];
	size_t len;
	const char *name = dl_event_tail(&o->h, &len);
	bool memcg = o->flags & DL_OOM_MEMCG;

	dl_str_addf(s, "the OOM killer chose it (%s private, %s shared memory, %s page tables)", bytes(a, o->anon),
		    bytes(b, o->shmem), bytes(c, o->pgtables));
	if (!memcg) {
		dl_str_add(s, ": the machine was out of memory");
		return "oom-host";
	}
	dl_str_addf(s, ": cgroup '%.*s' was at its limit of %s", (int)len, name ? name : "", bytes(e, o->limit));
	return "oom-cgroup";
}

static const char *explain_signal(struct dl_str *s, const struct dl_timeline *tl, size_t at, const struct dl_ev_signal *ev)
{
	const struct dl_ev_oom_kill *oom = oom_of(tl, ev->target_pid);

	if (ev->sig == SIGKILL && oom && ev->code != 0)
		return explain_oom(s, oom);
	if (ev->sig == SIGBUS && ev->code > 0)
		return explain_sigbus(s, next_of(tl, at, DL_EV_SIGBUS_MAP, ev->target_pid, 1000000000ULL));
	if (ev->sig == SIGSEGV && ev->code > 0) {
		dl_str_addf(s, "segmentation fault at address 0x%llx", ev->addr);
		return "segfault";
	}
	if (ev->sig == SIGABRT) {
		dl_str_add(s, "it aborted itself (SIGABRT)");
		return "abort";
	}
	if (ev->code <= 0 && ev->h.pid != ev->target_pid) {
		dl_str_addf(s, "%s sent by %.16s (pid %u, parent %u, uid %u)", strsignal(ev->sig), ev->sender_comm.s,
			    ev->h.pid, ev->sender_ppid, ev->sender_uid);
		return "killed-by";
	}
	dl_str_addf(s, "signal %d (%s), code %d", ev->sig, strsignal(ev->sig), ev->code);
	return NULL;
}

/* The trainer ends its workers with SIGTERM when it shuts down: no crash. */
static bool is_shutdown(const struct dl_timeline *tl, const struct dl_ev_signal *ev, const struct dl_proc *p)
{
	return ev->sig == SIGTERM && p->trainer != DL_NONE && ev->h.pid == tl->procs.v[p->trainer].pid;
}

static int set_crash(struct dl_report *r, const struct dl_proc *p, int32_t sig, uint64_t ts, const char *cause,
		     struct dl_str *text)
{
	struct dl_crash_report *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	r->crash = c;
	c->pid = p->pid;
	c->nspid = p->nspid;
	c->role = p->role;
	c->index = p->index;
	c->sig = sig;
	c->ts = ts;
	if (cause)
		c->cause = strdup(cause);
	c->text = dl_str_take(text);
	return !c->text || (cause && !c->cause) ? -ENOMEM : 0;
}

static int from_signals(struct dl_report *r, const struct dl_timeline *tl)
{
	for (size_t i = 0; i < tl->crash.cnt; i++) {
		const struct dl_ev_signal *ev = (const void *)tl->crash.v[i].ev;
		const struct dl_proc *p;
		struct dl_str text = {};
		const char *cause;

		if (ev->h.kind != DL_EV_SIGNAL || !is_fatal(ev->sig) || ev->result == 1)
			continue;
		p = own_proc(tl, ev->target_pid);
		if (!p || is_shutdown(tl, ev, p) || (death_signal(p) != ev->sig && ev->sig != SIGKILL))
			continue;
		cause = explain_signal(&text, tl, i, ev);
		return set_crash(r, p, ev->sig, ev->h.ts, cause, &text);
	}
	return 0;
}

/* A worker or trainer that ended with an exit code, which no signal explains. */
static int from_exits(struct dl_report *r, const struct dl_timeline *tl)
{
	vec_for_each(&tl->crash, k) {
		const struct dl_ev_exit *ev = (const void *)k->ev;
		int code = k->ev->kind == DL_EV_EXIT ? ev->code >> 8 & 0xff : 0;
		const struct dl_proc *p;
		struct dl_str text = {};

		if (!code || !(ev->flags & DL_EX_LAST))
			continue;
		p = own_proc(tl, ev->h.pid);
		if (!p || p->role != DL_ROLE_WORKER)
			continue;
		dl_str_addf(&text, "it ended by itself with exit code %d", code);
		return set_crash(r, p, 0, ev->h.ts, "worker-exit", &text);
	}
	return 0;
}

int dl_find_crash(struct dl_report *r, const struct dl_timeline *tl, struct dl_diag *d)
{
	int err = from_signals(r, tl);

	if (!err && !r->crash)
		err = from_exits(r, tl);
	return err ? dl_oom(d) : 0;
}
