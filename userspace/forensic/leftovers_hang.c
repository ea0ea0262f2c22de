/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Why a living run does not move: who waits for what, and who could end it. From one instant, so that what is said is
 * what fits it; a recording sees the moment in which it stopped.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "forensic/leftovers_int.h"

enum { THREADS_TOLD = 256 };

/* --- what a thread waits for ---------------------------------------------------------------------- */

enum wait_kind {
	WAIT_OTHER = 0, WAIT_POLL, WAIT_READ, WAIT_WRITE, WAIT_LOCK, WAIT_SHARED_LOCK, WAIT_ACCEPT, WAIT_SLEEP, WAIT_CHILD,
};

static const struct { long nr; enum wait_kind kind; const char *text; bool fd; } calls[] = {
#ifdef SYS_poll
	{ SYS_poll, WAIT_POLL, "waiting in poll for data", false },
	{ SYS_select, WAIT_POLL, "waiting in select for data", false },
	{ SYS_epoll_wait, WAIT_POLL, "waiting in epoll for data", false },
#endif
	{ SYS_ppoll, WAIT_POLL, "waiting in poll for data", false },
	{ SYS_pselect6, WAIT_POLL, "waiting in select for data", false },
	{ SYS_epoll_pwait, WAIT_POLL, "waiting in epoll for data", false },
	{ SYS_read, WAIT_READ, "waiting to read from", true },
	{ SYS_recvmsg, WAIT_READ, "waiting to receive from", true },
	{ SYS_recvfrom, WAIT_READ, "waiting to receive from", true },
	{ SYS_write, WAIT_WRITE, "waiting to write to", true },
	{ SYS_sendmsg, WAIT_WRITE, "waiting to send to", true },
	{ SYS_sendto, WAIT_WRITE, "waiting to send to", true },
	{ SYS_connect, WAIT_READ, "waiting to be connected by", true },
	{ SYS_accept4, WAIT_ACCEPT, "waiting for somebody to connect", false },
	{ SYS_accept, WAIT_ACCEPT, "waiting for somebody to connect", false },
	{ SYS_nanosleep, WAIT_SLEEP, "sleeping", false },
	{ SYS_clock_nanosleep, WAIT_SLEEP, "sleeping", false },
	{ SYS_wait4, WAIT_CHILD, "waiting for a child to end", false },
	{ SYS_waitid, WAIT_CHILD, "waiting for a child to end", false },
};

static enum wait_kind wait_kind(const struct dl_left_thread *t)
{
	if (!t->has_call || t->ran || t->nr < 0)
		return WAIT_OTHER;
	if (t->nr == SYS_futex)
		return t->arg1 & FUTEX_PRIVATE_FLAG ? WAIT_LOCK : WAIT_SHARED_LOCK;
	for (size_t i = 0; i < ARRAY_SIZE(calls); i++)
		if (calls[i].nr == t->nr)
			return calls[i].kind;
	return WAIT_OTHER;
}

/* "a pipe", "a socket", or the path. */
static void file_of(const struct dl_left *l, uint32_t pid, uint64_t fd, char *buf, size_t sz)
{
	char path[64], target[256];
	ssize_t n;

	snprintf(path, sizeof(path), "proc/%" PRIu32 "/fd/%d", pid, (int)fd);
	n = readlinkat(l->root_fd, path, target, sizeof(target) - 1);
	target[n > 0 ? n : 0] = '\0';
	if (!strncmp(target, "pipe:", 5))
		snprintf(buf, sz, "a pipe");
	else if (!strncmp(target, "socket:", 7))
		snprintf(buf, sz, "a socket");
	else
		snprintf(buf, sz, "%.200s", n > 0 ? target : "a file");
}

static char *describe(const struct dl_left *l, const struct dl_left_proc *p, const struct dl_left_thread *t)
{
	char file[256];

	switch (t->state) {
	case 'Z':
	case 'X':
		return dl_left_text("has ended, and nobody has waited for it");
	case 'T':
	case 't':
		return dl_left_text("stopped, by SIGSTOP or a debugger");
	case 'D':
		return dl_left_text("in the kernel and not to be interrupted%s%s", t->wchan[0] ? ", in " : "", t->wchan);
	}
	if (t->ran)
		return dl_left_text("running");
	if (!t->has_call)
		return dl_left_text("sleeping%s%s", t->wchan[0] ? " in " : ", in what may not be seen", t->wchan);
	if (t->nr == SYS_futex)
		return dl_left_text(t->arg1 & FUTEX_PRIVATE_FLAG ? "waiting for a lock or an event of its own process" :
				    "waiting for a lock or an event between processes");
	for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
		if (calls[i].nr != t->nr)
			continue;
		if (!calls[i].fd)
			return dl_left_text("%s", calls[i].text);
		file_of(l, p->pid, t->arg0, file, sizeof(file));
		return dl_left_text("%s %s", calls[i].text, file);
	}
	return dl_left_text("in system call %d", t->nr);
}

/* --- who holds a lock ---------------------------------------------------------------------------- */

enum holder { HOLDER_UNKNOWN = 0, HOLDER_THREAD, HOLDER_BEFORE_FORK, HOLDER_GONE };

static const struct dl_left_thread *thread_by_inner(const struct dl_left_proc *p, uint32_t id)
{
	vec_for_each(&p->threads, t)
		if ((t->nspid ? t->nspid : t->tid) == id)
			return t;
	return NULL;
}

/*
 * A child of fork() has the memory of its parent, and one thread. A mutex that names a thread of the parent was held by
 * it at the fork: in the child nobody will ever give it back.
 */
static enum holder holder_of(const struct dl_left *l, const struct dl_left_proc *p, const struct dl_left_thread *t,
			     const struct dl_left_proc **ret_proc, const struct dl_left_thread **ret_thread)
{
	const struct dl_left_proc *parent = dl_left_proc(l, p->ppid);

	*ret_proc = NULL;
	*ret_thread = NULL;
	if (!t->owner)
		return HOLDER_UNKNOWN;
	*ret_thread = thread_by_inner(p, t->owner);
	if (*ret_thread) {
		*ret_proc = p;
		return *ret_thread == t ? HOLDER_UNKNOWN : HOLDER_THREAD;
	}
	*ret_thread = parent ? thread_by_inner(parent, t->owner) : NULL;
	if (*ret_thread) {
		*ret_proc = parent;
		return HOLDER_BEFORE_FORK;
	}
	/* Any number could stand there: only one that a thread of about that time could have had is believed. */
	return p->nspid && t->owner < p->nspid && p->nspid - t->owner < 512 ? HOLDER_GONE : HOLDER_UNKNOWN;
}

static struct dl_pm_who who_of(const struct dl_left_proc *p, const struct dl_left_thread *t)
{
	return (struct dl_pm_who){ .pid = p->pid, .tid = t ? t->tid : p->pid, .nspid = p->nspid != p->pid ? p->nspid : 0,
				   .role = p->role, .index = -1, .name = (char *)(t ? t->comm : p->comm) };
}

static int add_thread(struct dl_left *l, const struct dl_left_proc *p, const struct dl_left_thread *t)
{
	const struct dl_left_proc *hp;
	const struct dl_left_thread *ht;
	const enum holder holder = holder_of(l, p, t, &hp, &ht);
	struct dl_pm_thread *to = vec_push(&l->pm->threads);
	struct dl_pm_who who = who_of(p, t), by = holder && hp ? who_of(hp, ht) : (struct dl_pm_who){ .index = -1 };

	if (!to)
		return -ENOMEM;
	to->who.index = to->holder.index = -1;
	to->state = describe(l, p, t);
	if (!to->state || dl_pm_who_copy(&to->who, &who) || dl_pm_who_copy(&to->holder, &by))
		return -ENOMEM;
	if (holder == HOLDER_THREAD)
		to->holder_text = describe(l, hp, ht);
	else if (holder == HOLDER_BEFORE_FORK)
		to->holder_text = dl_left_text("held the lock when this process was forked from it: nobody will give it "
					       "back here");
	else if (holder == HOLDER_GONE)
		to->holder_text = dl_left_text("thread %" PRIu32 ", which is gone, holds the lock", t->owner);
	return holder && !to->holder_text ? -ENOMEM : 0;
}

static int add_proc(struct dl_left *l, const struct dl_left_proc *p)
{
	struct dl_pm_who who = who_of(p, NULL);
	struct dl_pm_proc *to = vec_push(&l->pm->procs);

	if (!to)
		return -ENOMEM;
	to->who.index = -1;
	to->anon = p->anon;
	to->file = p->file;
	to->shmem = p->shmem;
	to->swap = p->swap;
	to->pgtables = p->pgtables;
	to->has_mem = p->state != 'Z';
	to->total_first = to->total_peak = p->anon + p->shmem + p->swap + p->pgtables;
	to->fds = p->fds;
	to->fds_limit = p->fds_limit;
	to->maps = p->maps;
	to->maps_limit = l->maps_limit;
	to->ended = p->state == 'Z';
	to->status = p->exit_status;
	to->state = dl_left_text("%s", p->state == 'Z' ? "dead, and nobody has waited for it" : p->orphan ?
				 "alive, its trainer is gone" : "alive");
	return !to->state || dl_pm_who_copy(&to->who, &who) ? -ENOMEM : 0;
}

static int add_all(struct dl_left *l)
{
	size_t told = 0;
	int err = 0;

	vec_for_each(&l->procs, p) {
		if (!err)
			err = add_proc(l, p);
		vec_for_each(&p->threads, t)
			if (!err && told++ < THREADS_TOLD)
				err = add_thread(l, p, t);
	}
	return err;
}

/* --- verdicts ----------------------------------------------------------------------------------- */

static size_t count_role(const struct dl_left *l, enum dl_role role)
{
	size_t cnt = 0;

	vec_for_each(&l->procs, p)
		cnt += p->role == role && p->state != 'Z';
	return cnt;
}

static int victim(struct dl_left *l, const struct dl_left_proc *p)
{
	struct dl_pm_who who = who_of(p, NULL);

	return dl_pm_who_copy(&l->pm->victim, &who);
}

/*
 * A worker that has died, and whose trainer has not noticed: a trainer that waits elsewhere, or under forkserver. Or the
 * process itself that was asked about, whose parent has not.
 */
static int unwaited(struct dl_left *l)
{
	vec_for_each(&l->procs, p) {
		struct dl_pm_who who = who_of(p, NULL);
		const struct dl_log_signal *sig;
		char name[48];
		int err;

		if (p->state != 'Z' || !p->exit_status || (p->role != DL_ROLE_WORKER && p != l->procs.v))
			continue;
		dl_left_name(name, sizeof(name), p->pid, p->comm);
		sig = WIFSIGNALED(p->exit_status) ? dl_log_signal(WTERMSIG(p->exit_status)) : NULL;
		err = sig ? dl_pm_fact(l->pm, &who, 0, DL_PM_PROC, true,
				       "process %s %s, and its parent has not waited for it", name, sig->tells) :
			dl_pm_fact(l->pm, &who, 0, DL_PM_PROC, true,
				   "process %s ended with status %#x, and its parent has not waited for it", name,
				   (unsigned int)p->exit_status);
		if (err)
			return err;
		if (sig && !l->fits) {
			l->fits = sig->fits;
			l->likely = sig->suggests;
			l->sig = sig->sig;
			l->pid = p->pid;
			l->pm->sig = sig->sig;
		}
		l->pm->status = p->exit_status;
		l->pm->has_status = true;
		err = victim(l, p);
		return err || sig ? err : dl_left_verdict(l, p->role == DL_ROLE_WORKER ? DL_DEATH_WORKER_EXIT :
							  DL_DEATH_TRAINER_EXIT, DL_PM_LIKELY, dl_left_text(
			"process %s ended by itself with exit code %d, and its parent has not noticed", name,
			WEXITSTATUS(p->exit_status)));
	}
	return 0;
}

/* The kernel log has a death that may be the trainer's: of a Python program, after the worker was made. */
static bool knows_a_death_since(const struct dl_left *l, uint64_t start_ns)
{
	vec_for_each(&l->klog.events, ev)
		if ((ev->kind == DL_KLOG_OOM || ev->kind == DL_KLOG_FAULT) && dl_left_is_python(ev->comm) &&
		    ev->boot_ns > start_ns)
			return l->klog.live;
	return false;
}

static int orphans(struct dl_left *l)
{
	uint64_t cnt = 0, held = 0;
	const struct dl_left_proc *first = NULL;
	char buf[16];
	int err;

	vec_for_each(&l->procs, p) {
		if (!p->orphan)
			continue;
		first = first ? first : p;
		cnt++;
		held += p->anon + p->shmem;
	}
	if (!first)
		return 0;
	err = dl_pm_fact(l->pm, NULL, 0, DL_PM_PROC, true, "%" PRIu64 " DataLoader worker%s without a trainer, the first is "
			 "process %" PRIu32 " (parent now: %" PRIu32 ")", cnt, cnt == 1 ? " is" : "s are", first->pid,
			 first->ppid);
	if (!err && l->pm->death == DL_DEATH_UNEXPLAINED)
		err = victim(l, first);
	/* What killed the trainer goes before what that left. */
	return err ? err : dl_left_verdict(l, DL_DEATH_ORPHANED, l->fits || knows_a_death_since(l, first->start_ns) ?
					   DL_PM_POSSIBLE : DL_PM_LIKELY, dl_left_text(
		"the trainer is gone and %" PRIu64 " of its workers still %s, holding %s of memory: process %" PRIu32 "%s",
		cnt, cnt == 1 ? "lives" : "live", dl_fmt_bytes(buf, sizeof(buf), held), first->pid,
		cnt == 1 ? "" : " and others"));
}

static bool moves(const struct dl_left_proc *p)
{
	vec_for_each(&p->threads, t)
		if (t->ran)
			return true;
	return false;
}

static const struct dl_left_proc *any_moving(const struct dl_left *l)
{
	vec_for_each(&l->procs, p)
		if (!p->orphan && (p->role == DL_ROLE_TRAINER || p->role == DL_ROLE_WORKER) && moves(p))
			return p;
	return NULL;
}

static int in_state(struct dl_left *l, char state, const char *fmt_text, enum dl_pm_confidence confidence)
{
	vec_for_each(&l->procs, p)
		vec_for_each(&p->threads, t) {
			const struct dl_pm_who who = who_of(p, t);
			char name[48];
			_cleanup_free_ char *what = NULL;
			int err;

			if (t->state != state || t->ran)
				continue;
			what = describe(l, p, t);
			if (!what)
				return -ENOMEM;
			err = victim(l, p);
			if (!err)
				err = dl_pm_fact(l->pm, &who, 0, DL_PM_PROC, true, "is %s", what);
			return err ? err : dl_left_verdict(l, DL_DEATH_HANG, confidence, dl_left_text("process %s is %s%s",
				dl_left_name(name, sizeof(name), p->pid, p->comm), what, fmt_text));
		}
	return 0;
}

/* A thread that waits for a lock whose holder will not give it back. */
static int lost_lock(struct dl_left *l)
{
	vec_for_each(&l->procs, p)
		vec_for_each(&p->threads, t) {
			const struct dl_left_proc *hp;
			const struct dl_left_thread *ht;
			const enum holder holder = holder_of(l, p, t, &hp, &ht);
			char name[48];
			int err;

			if (holder != HOLDER_BEFORE_FORK && holder != HOLDER_GONE)
				continue;
			err = victim(l, p);
			if (err)
				return err;
			dl_left_name(name, sizeof(name), p->pid, p->comm);
			if (holder == HOLDER_BEFORE_FORK)
				return dl_left_verdict(l, DL_DEATH_HANG, DL_PM_LIKELY, dl_left_text(
					"process %s waits for a lock that thread %" PRIu32 " (%s) of its parent held when it was "
					"forked: here nobody will ever give it back", name, ht->tid, ht->comm));
			return dl_left_verdict(l, DL_DEATH_HANG, DL_PM_LIKELY, dl_left_text(
				"process %s waits for a lock whose holder, thread %" PRIu32 ", is gone", name, t->owner));
		}
	return 0;
}

/*
 * A private futex is woken by threads of its own process only: where all of them wait for one without a deadline,
 * nobody is left to do it. So ends a worker that was forked while a thread of the trainer held the lock.
 */
static int locked_up(struct dl_left *l)
{
	vec_for_each(&l->procs, p) {
		bool all = p->threads.cnt && p->state != 'Z';
		char name[48];
		int err;

		vec_for_each(&p->threads, t)
			all = all && t->for_ever && wait_kind(t) == WAIT_LOCK;
		if (!all)
			continue;
		const struct dl_pm_who who = who_of(p, NULL);

		err = victim(l, p);
		if (!err)
			err = dl_pm_fact(l->pm, &who, 0, DL_PM_PROC, true, "waits for a lock of its own, without a deadline, "
					 "and so does every thread of it");
		return err ? err : dl_left_verdict(l, DL_DEATH_HANG, DL_PM_CERTAIN, dl_left_text(
			"process %s waits for a lock of its own that nobody is left to give back: %s%s",
			dl_left_name(name, sizeof(name), p->pid, p->comm),
			p->threads.cnt == 1 ? "it has no other thread" : "all its threads wait so",
			p->role != DL_ROLE_WORKER ? "" :
			". Most often a thread of the trainer held it when the worker was forked"));
	}
	return 0;
}

/* Workers that all wait for the lock of a queue between processes: who had it has died with it. */
static int shared_lock(struct dl_left *l)
{
	const struct dl_left_proc *first = NULL;
	size_t waiting = 0;
	int err;

	vec_for_each(&l->procs, p) {
		bool waits = false;

		vec_for_each(&p->threads, t)
			waits |= wait_kind(t) == WAIT_SHARED_LOCK;
		if (!waits || p->role != DL_ROLE_WORKER)
			continue;
		first = first ? first : p;
		waiting++;
	}
	if (!waiting || waiting < count_role(l, DL_ROLE_WORKER))
		return 0;
	err = victim(l, first);
	return err ? err : dl_left_verdict(l, DL_DEATH_HANG, DL_PM_LIKELY, dl_left_text(
		"%s%zu worker%s wait%s for a lock between processes, and nobody who lives has been seen to hold it: a process "
		"that died with it leaves it locked", waiting > 1 ? "all " : "the ", waiting, dl_left_s(waiting),
		waiting == 1 ? "s" : ""));
}

static bool near_limit(uint64_t value, uint64_t limit)
{
	return limit && value >= limit - limit / 32 - 2;
}

static bool all_idle(const struct dl_left *l)
{
	vec_for_each(&l->procs, p) {
		const enum wait_kind kind = p->threads.cnt ? wait_kind(p->threads.v) : WAIT_OTHER;

		if (p->role == DL_ROLE_WORKER && p->state != 'Z' && kind != WAIT_POLL && kind != WAIT_READ)
			return false;
	}
	return count_role(l, DL_ROLE_WORKER) > 0;
}

/* The trainer waits, and so does every worker, for something to do: what is between them is lost. */
static int lost_batch(struct dl_left *l)
{
	const struct dl_left_proc *trainer = l->procs.v;
	const enum wait_kind kind = trainer->threads.cnt ? wait_kind(trainer->threads.v) : WAIT_OTHER;
	const size_t workers = count_role(l, DL_ROLE_WORKER);
	const char *why = "";
	int err;

	if (!all_idle(l) || (kind != WAIT_POLL && kind != WAIT_READ && kind != WAIT_LOCK))
		return 0;
	if (l->shm.hollow_cnt)
		why = "; an object without memory in /dev/shm says that one could not be made";
	vec_for_each(&l->procs, p) {
		if (near_limit(p->fds, p->fds_limit))
			why = "; a process is at its limit of open files";
		else if (near_limit(p->maps, l->maps_limit))
			why = "; a process is at its limit of memory mappings";
	}
	err = dl_pm_fact(l->pm, NULL, 0, DL_PM_PROC, true, "the trainer, process %" PRIu32 ", waits, and all %zu workers wait "
			 "for something to do", trainer->pid, workers);
	if (!err)
		err = victim(l, trainer);
	if (!err && !*why)
		err = dl_pm_alternative(l->pm, DL_DEATH_HANG, "a stack of the trainer (py-spy dump), or a recording",
					"the trainer waits for something other than a batch: another rank, the GPU, a lock");
	return err ? err : dl_left_verdict(l, DL_DEATH_BATCH_LOST, *why ? DL_PM_LIKELY : DL_PM_POSSIBLE, dl_left_text(
		"a batch was lost on its way: the trainer, process %" PRIu32 ", waits for ever and its %zu worker%s nothing to "
		"do%s", trainer->pid, workers, workers == 1 ? " has" : "s have", why));
}

/* One that is neither idle nor at work: the trainer waits for its batch. */
static int stuck_worker(struct dl_left *l)
{
	vec_for_each(&l->procs, p) {
		const struct dl_left_thread *t = p->threads.v;
		const enum wait_kind kind = p->threads.cnt ? wait_kind(t) : WAIT_OTHER;
		_cleanup_free_ char *what = NULL;
		char name[48];
		int err;

		if (p->role != DL_ROLE_WORKER || p->state == 'Z' || !p->threads.cnt || kind == WAIT_POLL || !t->has_call)
			continue;
		what = describe(l, p, t);
		if (!what)
			return -ENOMEM;
		err = victim(l, p);
		return err ? err : dl_left_verdict(l, DL_DEATH_HANG, DL_PM_POSSIBLE, dl_left_text(
			"worker %s is %s, while the trainer waits. It may also only be slow: ask again in a minute",
			dl_left_name(name, sizeof(name), p->pid, p->comm), what));
	}
	return 0;
}

static int idle_trainer(struct dl_left *l)
{
	const struct dl_left_proc *trainer = l->procs.v;
	_cleanup_free_ char *what = NULL;
	int err;

	what = trainer->threads.cnt ? describe(l, trainer, trainer->threads.v) : dl_left_text("not to be seen");
	if (!what)
		return -ENOMEM;
	err = victim(l, trainer);
	return err ? err : dl_left_verdict(l, DL_DEATH_HANG, DL_PM_POSSIBLE, dl_left_text(
		"nothing of the run moves: process %" PRIu32 " is %s. It may also only be slow: ask again in a minute",
		trainer->pid, what));
}

static int judge_still(struct dl_left *l)
{
	static int (*const steps[])(struct dl_left *) = {
		lost_lock, locked_up, shared_lock, lost_batch, stuck_worker, idle_trainer,
	};
	int err = in_state(l, 'T', ". Continue it with: kill -CONT", DL_PM_CERTAIN);

	if (!err)
		err = in_state(l, 't', "", DL_PM_CERTAIN);
	if (!err)
		err = in_state(l, 'D', ": most often a disk or a network file system that does not answer", DL_PM_LIKELY);
	for (size_t i = 0; !err && i < ARRAY_SIZE(steps); i++)
		if (l->pm->death == DL_DEATH_UNEXPLAINED)
			err = steps[i](l);
	return err;
}

/* A trainer that spins on its GPU, or on a collective, uses a CPU and does not move: its workers tell. */
static int goes_on(struct dl_left *l, const struct dl_left_proc *moving)
{
	const bool spins = moving->role == DL_ROLE_TRAINER && all_idle(l);
	int err = 0;

	if (spins)
		err = dl_pm_alternative(l->pm, DL_DEATH_HANG, "the same question in a minute, or a stack of the trainer "
					"(py-spy dump), or a recording", "it spins: a trainer that waits for its GPU or for "
					"another rank uses a CPU and does not move");
	return err ? err : dl_left_verdict(l, DL_DEATH_NONE, spins ? DL_PM_POSSIBLE : DL_PM_LIKELY, dl_left_text(
		"the run goes on: process %" PRIu32 " (%s) used a CPU while it was looked at", moving->pid, moving->comm));
}

int dl_left_judge_tree(struct dl_left *l)
{
	const struct dl_left_proc *moving;
	int err;

	if (!l->procs.cnt) {
		if (!l->o->pid)
			return 0;
		return dl_pm_note(l->pm, "there is no process %" PRIu32 " any more: /proc remembers nothing of the dead",
				  l->o->pid);
	}
	err = add_all(l);
	if (!err)
		err = unwaited(l);
	if (!err)
		err = orphans(l);
	if (err || l->fits || l->pm->death != DL_DEATH_UNEXPLAINED || !l->o->pid)
		return err;
	moving = any_moving(l);
	if (!moving)
		return judge_still(l);
	return goes_on(l, moving);
}
