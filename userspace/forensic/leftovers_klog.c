/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Which events of the kernel log are of this run, and what they decide. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "forensic/leftovers_int.h"

enum {
	CONTEXT_MAX = 6,	/* facts that decide nothing */
	ONE_CRASH_S = 30,	/* deaths so near to each other are of one crash, and the first of them decides */
	TASKS_TOLD = 64,
};

enum match {
	MATCH_NONE = 0,
	MATCH_NAME,	/* a Python program, and no process is known to compare it with */
	MATCH_OTHER_ID,	/* a Python program, but the output names another id: perhaps an inner one */
	MATCH_ID,
};

static bool names_pid(const struct dl_left *l, uint32_t pid)
{
	if (pid == l->o->pid || pid == l->pid)
		return pid;
	vec_for_each(&l->pm->claims, c)
		if (c->pid == pid)
			return pid;
	return false;
}

/* Of the tree that lives, or killed in one of the control groups of the run. */
static bool is_of_run(const struct dl_left *l, const struct dl_klog_event *ev)
{
	if (dl_left_proc(l, ev->pid))
		return true;
	vec_for_each(&l->groups, g)
		if (!l->own_groups && strcmp(g->path, "/") && ev->kind == DL_KLOG_OOM && ev->oom.cgroup &&
		    !strcmp(ev->oom.cgroup, g->path))
			return true;
	return false;
}

static enum match match_of(const struct dl_left *l, const struct dl_klog_event *ev)
{
	const bool python = dl_left_is_python(ev->comm) || (!ev->comm[0] && ev->pid);

	/* An id that the output names may be an inner one, and be anybody's out here; --pid is of out here. */
	if (ev->pid && names_pid(l, ev->pid) && (python || ev->pid == l->o->pid))
		return MATCH_ID;
	/* Where they name nobody: only if the output knows of such a death. */
	if (ev->kind == DL_KLOG_FORK_REJECTED || (ev->kind == DL_KLOG_DAEMON_KILL && !ev->pid))
		return l->fits ? MATCH_NAME : MATCH_NONE;
	if (!python)
		return MATCH_NONE;
	if (l->o->pid && ev->pid)
		return is_of_run(l, ev) ? MATCH_NAME : MATCH_NONE;
	return l->pid && ev->pid ? MATCH_OTHER_ID : MATCH_NAME;
}

/* The death that an event is; UNEXPLAINED: it decides nothing. */
static enum dl_death death_of(const struct dl_klog_event *ev)
{
	switch (ev->kind) {
	case DL_KLOG_OOM:
		return ev->oom.memcg ? DL_DEATH_OOM_CGROUP : DL_DEATH_OOM_HOST;
	case DL_KLOG_FAULT:
	case DL_KLOG_DUMPED:
		return ev->sig == SIGSEGV ? DL_DEATH_SEGFAULT : ev->sig == SIGFPE ? DL_DEATH_ARITHMETIC :
			ev->sig == SIGILL ? DL_DEATH_ILLEGAL_INSTRUCTION : ev->sig == SIGABRT ? DL_DEATH_ABORT :
			DL_DEATH_UNEXPLAINED;
	case DL_KLOG_MEMORY_FAILURE:
		return ev->pid ? DL_DEATH_MEMORY_FAILURE : DL_DEATH_UNEXPLAINED;
	case DL_KLOG_HUGEPAGES:
		return DL_DEATH_HUGEPAGES_EXHAUSTED;
	case DL_KLOG_FORK_REJECTED:
		return DL_DEATH_PROCESS_LIMIT;
	case DL_KLOG_DAEMON_KILL:
		return DL_DEATH_KILLED_BY;
	default:
		return DL_DEATH_UNEXPLAINED;
	}
}

/* --- facts and numbers -------------------------------------------------------------------------- */

static int64_t clock_ns(clockid_t clock)
{
	struct timespec ts;

	return clock_gettime(clock, &ts) ? 0 : (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

/* The kernel's seconds are near CLOCK_MONOTONIC, whose rate is adjusted and theirs is not. */
static int64_t wall_of(const struct dl_left *l, const struct dl_klog_event *ev)
{
	if (ev->wall_ns || !ev->boot_ns || !l->klog.live)
		return ev->wall_ns;
	return clock_ns(CLOCK_REALTIME) - clock_ns(CLOCK_MONOTONIC) + (int64_t)ev->boot_ns;
}

static int add_fact(struct dl_left *l, const struct dl_klog_event *ev, bool decides)
{
	struct dl_pm_who who = {
		.pid = ev->pid, .tid = ev->pid, .index = -1, .name = (char *)(ev->comm[0] ? ev->comm : NULL),
	};
	int err = dl_pm_fact(l->pm, ev->pid || ev->comm[0] ? &who : NULL, ev->boot_ns, DL_PM_KERNEL_LOG, decides,
			     "%s", ev->text);

	if (!err)
		vec_last(&l->pm->facts)->wall_ns = wall_of(l, ev);
	return err;
}

static uint64_t known(uint64_t value)
{
	return value == DL_KLOG_UNKNOWN ? 0 : value;
}

static int add_task(struct dl_left *l, const struct dl_klog_task *t, const struct dl_klog_event *ev)
{
	struct dl_pm_proc *p;
	char *name, *state;

	vec_for_each(&l->pm->procs, known_proc)
		if (known_proc->who.pid == t->pid)	/* it lives, and was looked at itself */
			return 0;
	name = strdup(t->comm);
	state = strdup(t->pid == ev->pid ? "killed by SIGKILL" : "alive then");

	p = name && state ? vec_push(&l->pm->procs) : NULL;
	if (!p) {
		free(name);
		free(state);
		return -ENOMEM;
	}
	*p = (struct dl_pm_proc){
		.who = { .pid = t->pid, .tid = t->pid, .index = -1, .name = name }, .state = state, .has_mem = true,
		/* Older tables do not tell kinds apart: then all that is resident. */
		.anon = t->anon == DL_KLOG_UNKNOWN ? known(t->rss) : t->anon, .file = known(t->file), .shmem = known(t->shmem),
		.swap = known(t->swap), .pgtables = known(t->pgtables), .ended = t->pid == ev->pid,
		.status = t->pid == ev->pid ? SIGKILL : 0, .end_ts = t->pid == ev->pid ? ev->boot_ns : 0,
	};
	p->total_peak = p->total_first = p->anon + p->shmem + p->swap + p->pgtables;
	return 0;
}

static int add_tasks(struct dl_left *l, const struct dl_klog_event *ev)
{
	size_t told = 0;
	int err = 0;

	vec_for_each(&ev->oom.tasks, t)
		if (!err && (t->pid == ev->pid || dl_left_is_python(t->comm)) && told++ < TASKS_TOLD)
			err = add_task(l, t, ev);
	return err;
}

static int oom_numbers(struct dl_left *l, const struct dl_klog_oom *o)
{
	const struct { const char *id, *label; uint64_t value; } numbers[] = {
		{ "cgroup.limit", "memory limit of the control group", o->limit },
		{ "cgroup.usage", "used of it when it was hit", o->usage },
		{ "cgroup.anon", "of that private memory", o->group_anon },
		{ "cgroup.file", "of that page cache", o->group_file },
		{ "cgroup.shmem", "of that shared memory, /dev/shm too", o->group_shmem },
		{ "cgroup.pgtables", "of that page tables", o->group_pgtables },
		{ "cgroup.swap", "swapped out", o->group_swap },
		{ "host.total", "memory of the machine", o->host_total },
		{ "host.available", "free on the machine", o->host_free },
		{ "host.shmem", "shared memory on the machine", o->host_shmem },
		{ "host.swap-total", "swap of the machine", o->host_swap_total },
		{ "host.swap-free", "of that free", o->host_swap_free },
	};
	int err = 0;

	for (size_t i = 0; !err && i < ARRAY_SIZE(numbers); i++)
		if (numbers[i].value != DL_KLOG_UNKNOWN)
			err = dl_left_number(l, numbers[i].id, numbers[i].label, numbers[i].value, DL_PM_BYTES,
					     DL_PM_KERNEL_LOG);
	if (!err && o->failcnt != DL_KLOG_UNKNOWN)
		err = dl_left_number(l, "cgroup.limit-hits", "times the limit was hit", o->failcnt, DL_PM_CNT,
				     DL_PM_KERNEL_LOG);
	return err;
}

/* --- verdicts ---------------------------------------------------------------------------------- */

static void held(const struct dl_klog_oom *o, struct dl_str *s)
{
	char buf[16];

	if (o->anon == DL_KLOG_UNKNOWN)
		return;
	dl_str_addf(s, "; it held %s of its own", dl_fmt_bytes(buf, sizeof(buf), o->anon));
	if (known(o->shmem))
		dl_str_addf(s, " and %s of shared memory", dl_fmt_bytes(buf, sizeof(buf), o->shmem));
}

static char *oom_text(const struct dl_klog_event *ev)
{
	const struct dl_klog_oom *o = &ev->oom;
	struct dl_str s = {};
	char name[48], buf[16];

	dl_str_addf(&s, "process %s was killed by the kernel: ", dl_left_name(name, sizeof(name), ev->pid, ev->comm));
	if (!o->memcg) {
		dl_str_add(&s, o->cpuset ? "the memory nodes that it may use were full" : "the machine was out of memory");
		if (o->host_total != DL_KLOG_UNKNOWN)
			dl_str_addf(&s, ", %s in all", dl_fmt_bytes(buf, sizeof(buf), o->host_total));
	} else {
		dl_str_addf(&s, "control group %s was at its memory limit", o->limit_cgroup ? o->limit_cgroup : "(not named)");
		if (o->limit != DL_KLOG_UNKNOWN)
			dl_str_addf(&s, " of %s", dl_fmt_bytes(buf, sizeof(buf), o->limit));
	}
	held(o, &s);
	return dl_str_take(&s);
}

static char *fault_text(const struct dl_klog_event *ev)
{
	const struct dl_log_signal *sig = dl_log_signal(ev->sig);
	struct dl_str s = {};
	char name[48];

	dl_str_addf(&s, "process %s %s", dl_left_name(name, sizeof(name), ev->pid, ev->comm),
		    sig ? sig->tells : "made a fault that ended it");
	if (ev->lib[0])
		dl_str_addf(&s, ", in %s", ev->lib);
	if (ev->has_addr)
		dl_str_addf(&s, ", when it %s address %#" PRIx64, ev->wrote ? "wrote to" : "read", ev->addr);
	return dl_str_take(&s);
}

static char *text_of(const struct dl_klog_event *ev)
{
	char name[48];

	dl_left_name(name, sizeof(name), ev->pid, ev->comm);
	switch (ev->kind) {
	case DL_KLOG_OOM:
		return oom_text(ev);
	case DL_KLOG_MEMORY_FAILURE:
		return dl_left_text("process %s was killed because the hardware reported bad memory under it", name);
	case DL_KLOG_HUGEPAGES:
		return dl_left_text("process %s was killed because no huge page was left for its mapping", name);
	case DL_KLOG_FORK_REJECTED:
		return dl_left_text("a new process or thread was refused: a control group was at its limit of them (pids.max)");
	case DL_KLOG_DAEMON_KILL:
		return dl_left_text("a daemon that watches memory killed it: %s", ev->text);
	default:
		return fault_text(ev);
	}
}

/* Something that died later left an object in /dev/shm that got no memory: of two deaths the last is asked about. */
static bool is_outlived(const struct dl_left *l, const struct dl_klog_event *ev)
{
	const int64_t wall_ns = wall_of(l, ev);

	return l->shm.hollow_cnt && l->shm.hollow_dead && wall_ns > 0 &&
	       (int64_t)l->shm.hollow_wall_ns > wall_ns + 2 * (int64_t)DL_NS_PER_S;
}

static enum dl_pm_confidence confidence_of(const struct dl_left *l, const struct dl_klog_event *ev, enum match match)
{
	/* Of a core: what it died of, and not why. */
	if (match == MATCH_ID && ev->kind != DL_KLOG_DUMPED)
		return DL_PM_CERTAIN;
	if (match == MATCH_NAME && !l->o->pid && is_outlived(l, ev))
		return DL_PM_POSSIBLE;
	/* It may be another process of another day, unless the output itself allows nothing else. */
	if (match == MATCH_OTHER_ID || (ev->kind == DL_KLOG_DAEMON_KILL && !ev->pid))
		return l->fits == UINT64_C(1) << death_of(ev) ? DL_PM_LIKELY : DL_PM_POSSIBLE;
	/* Its number and its name may be anybody's, unless the output knows of such a death. */
	return match == MATCH_ID || l->fits || ev->kind == DL_KLOG_OOM || ev->kind == DL_KLOG_FAULT ? DL_PM_LIKELY :
		DL_PM_POSSIBLE;
}

static int set_victim(struct dl_left *l, const struct dl_klog_event *ev, enum match match)
{
	struct dl_pm_who who = { .pid = ev->pid, .tid = ev->pid, .index = -1, .name = (char *)(ev->comm[0] ? ev->comm : NULL),
				 .nspid = match == MATCH_OTHER_ID ? l->pid : 0,
				 .role = strncmp(ev->comm, "pt_data_worker", 14) ? DL_ROLE_UNKNOWN : DL_ROLE_WORKER };

	if (!ev->pid)
		return 0;
	l->pm->sig = ev->sig;
	l->pm->ts = ev->boot_ns;
	if (ev->sig) {
		l->pm->status = ev->sig;
		l->pm->has_status = true;
	}
	return dl_pm_who_copy(&l->pm->victim, &who);
}

static bool same_crash(const struct dl_klog_event *a, const struct dl_klog_event *b)
{
	const int64_t limit = ONE_CRASH_S * (int64_t)DL_NS_PER_S;

	if (a->boot_ns && b->boot_ns)
		return b->boot_ns >= a->boot_ns && b->boot_ns - a->boot_ns <= (uint64_t)limit;
	return a->wall_ns && b->wall_ns && b->wall_ns >= a->wall_ns && b->wall_ns - a->wall_ns <= limit;
}

/* From one death of several back to the first of them: a group at its limit loses one process after the other. */
static const struct dl_klog_event *first_of_crash(const struct dl_left *l, const struct dl_klog_event *last, enum match match)
{
	const struct dl_klog_event *first = last;

	for (const struct dl_klog_event *ev = last; ev-- > l->klog.events.v;) {
		if (death_of(ev) != death_of(first) || match_of(l, ev) != match || !dl_left_allows(l, death_of(ev)))
			continue;
		if (!same_crash(ev, first))
			break;
		first = ev;
	}
	return first;
}

/* The event that decides: of the very process, else of a Python program; the first of the last crash. */
static const struct dl_klog_event *pick(const struct dl_left *l, enum match *ret_match, size_t *ret_same)
{
	const struct dl_klog_event *best = NULL;

	*ret_match = MATCH_NONE;
	*ret_same = 0;
	vec_for_each(&l->klog.events, ev) {
		const enum dl_death death = death_of(ev);
		const enum match match = death == DL_DEATH_UNEXPLAINED ? MATCH_NONE : match_of(l, ev);

		if (!match || !dl_left_allows(l, death))
			continue;
		*ret_same += 1;
		/* A signal that coredump saw is the end of a fault. */
		if (match > *ret_match || (match == *ret_match && ev->kind != DL_KLOG_DUMPED)) {
			*ret_match = match;
			best = ev;
		}
	}
	return best ? first_of_crash(l, best, *ret_match) : NULL;
}

static int notes_on_oom(struct dl_left *l, const struct dl_klog_oom *o)
{
	char buf[16];

	if (o->memcg && o->usage != DL_KLOG_UNKNOWN && known(o->group_shmem) > o->usage / 2)
		return dl_pm_note(l->pm, "%s of the group's memory is shared memory: batches in /dev/shm count towards the "
				  "limit, and so does memory that CUDA pins, whose blocks PyTorch rounds up to powers of two",
				  dl_fmt_bytes(buf, sizeof(buf), o->group_shmem));
	return 0;
}

static int decide(struct dl_left *l)
{
	const struct dl_klog_event *ev;
	enum match match;
	size_t same;
	int err;

	ev = pick(l, &match, &same);
	if (!ev)
		return 0;
	if (l->pm->death == DL_DEATH_UNEXPLAINED || confidence_of(l, ev, match) > l->pm->confidence) {
		err = set_victim(l, ev, match);
		if (err)
			return err;
	}
	err = dl_left_verdict(l, death_of(ev), confidence_of(l, ev, match), text_of(ev));
	if (!err)
		err = add_fact(l, ev, l->pm->death == death_of(ev));
	if (err || l->pm->death != death_of(ev))
		return err;
	if (ev->kind == DL_KLOG_OOM) {
		err = oom_numbers(l, &ev->oom);
		err = err ? err : add_tasks(l, ev);
		err = err ? err : notes_on_oom(l, &ev->oom);
	}
	if (!err && match == MATCH_OTHER_ID)
		err = dl_pm_note(l->pm, "the output names process %" PRIu32 ", the kernel log %" PRIu32 ": they are the same "
				 "one if the run was in a container, whose processes have numbers of their own", l->pid,
				 ev->pid);
	if (!err && match == MATCH_NAME && !l->o->pid && !l->fits)
		err = dl_pm_note(l->pm, "nobody was asked about: of the kernel log the last crash of a Python program was "
				 "taken");
	if (!err && match != MATCH_ID && same > 1)
		err = dl_pm_note(l->pm, "the kernel log has %zu deaths that fit; the first of the last crash was taken", same);
	return err;
}

/* Other programs die too, and this one may have died of what the event is not. */
static bool is_context(const struct dl_left *l, const struct dl_klog_event *ev)
{
	const enum dl_death death = death_of(ev);

	if (death == DL_DEATH_UNEXPLAINED)
		return true;
	if (!dl_left_allows(l, death) || (l->o->pid && !match_of(l, ev)))
		return false;
	return (ev->kind != DL_KLOG_FAULT && ev->kind != DL_KLOG_DUMPED) || match_of(l, ev);
}

/* What may have to do with it, and decides nothing. */
static int add_context(struct dl_left *l)
{
	size_t told = 0;
	int err = 0;

	for (size_t i = l->klog.events.cnt; i-- > 0 && told < CONTEXT_MAX && !err;) {
		const struct dl_klog_event *ev = &l->klog.events.v[i];
		bool known_fact = false;

		if (ev->kind == DL_KLOG_LOGOUT && !(l->fits & DL_DEATH_BIT(SHM_UNLINKED)))
			continue;
		if (!is_context(l, ev))
			continue;
		vec_for_each(&l->pm->facts, f)
			known_fact |= f->source == DL_PM_KERNEL_LOG && f->ts == ev->boot_ns && strstr(f->text, ev->text);
		if (known_fact)
			continue;
		err = add_fact(l, ev, false);
		told++;
	}
	return err;
}

/* A disk failed, and the output knows of a SIGBUS or of an error of one. */
static int io_verdict(struct dl_left *l)
{
	vec_for_each(&l->klog.events, ev) {
		if ((ev->kind != DL_KLOG_IO_ERROR && ev->kind != DL_KLOG_FS_GONE) ||
		    !(l->fits & DL_DEATH_BIT(MAPPED_FILE_ERROR)))
			continue;
		return dl_left_verdict(l, DL_DEATH_MAPPED_FILE_ERROR, DL_PM_POSSIBLE, dl_left_text(
			"a disk or a file system failed, which ends who reads a mapped file of it: %s", ev->text));
	}
	return 0;
}

/*
 * Nothing of an OOM in a log that goes back to the boot: a SIGKILL was sent by somebody then, if it was on this machine.
 */
static int absence_verdict(struct dl_left *l)
{
	vec_for_each(&l->klog.events, ev)
		if (ev->kind == DL_KLOG_OOM)
			return 0;
	if (!l->klog.complete || l->sig != SIGKILL || !l->fits)
		return 0;
	return dl_left_verdict(l, DL_DEATH_KILLED_BY, DL_PM_POSSIBLE, dl_left_text(
		"somebody sent SIGKILL: the kernel log of this machine goes back to its start and has no kill for want of "
		"memory, so if the run was on this machine, another process did it"));
}

static bool has_klog_fact(const struct dl_left *l)
{
	vec_for_each(&l->pm->facts, f)
		if (f->source == DL_PM_KERNEL_LOG)
			return true;
	return false;
}

int dl_left_judge_klog(struct dl_left *l)
{
	int err;

	if (!l->has_klog)
		return 0;
	err = decide(l);
	if (!err)
		err = io_verdict(l);
	if (!err)
		err = absence_verdict(l);
	if (!err)
		err = add_context(l);
	if (!err && l->klog.live && has_klog_fact(l))
		err = dl_pm_note(l->pm, "times of the kernel log are near ones: its clock is not corrected as the machine's "
				 "is");
	if (!err && l->klog.live && !l->klog.complete)
		err = dl_pm_note(l->pm, "the kernel log does not go back to the start of the machine: older lines were "
				 "overwritten");
	return err;
}
