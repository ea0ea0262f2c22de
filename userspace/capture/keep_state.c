/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The threads: what each was last seen to do. Facts are in keep_facts.c, saying again in keep_restate.c. */
#include "capture/keep_state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "capture/keep_state_int.h"
#include "capture/tree.h"

#define STATE_DEAD 0x90		/* EXIT_DEAD, TASK_DEAD: include/linux/sched.h */

int dl_kstate_new(struct dl_kstate **ret)
{
	struct dl_kstate *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->segment = 1;
	*ret = s;
	return 0;
}

void dl_kstate_free(struct dl_kstate *s)
{
	if (!s)
		return;
	dl_facts_fini(&s->facts);
	vec_for_each(&s->threads, t)
		free(*t);
	vec_free(&s->threads);
	vec_for_each(&s->procs, p)
		free(*p);
	vec_free(&s->procs);
	dl_map_fini(&s->by_tid);
	dl_map_fini(&s->by_pid);
	free(s);
}

/* --- tables ------------------------------------------------------------------------------------ */

struct dl_kstate_proc *dl_kstate_proc(const struct dl_kstate *s, uint32_t pid)
{
	uint64_t index;

	return dl_map_get(&s->by_pid, pid, &index) ? s->procs.v[index - 1] : NULL;
}

static struct dl_kstate_proc *add_proc(struct dl_kstate *s, uint32_t pid)
{
	struct dl_kstate_proc *p = dl_kstate_proc(s, pid), **slot;

	if (p || s->procs.cnt >= DL_KSTATE_THREADS)
		return p;
	p = calloc(1, sizeof(*p));
	slot = p ? vec_push(&s->procs) : NULL;
	if (!slot) {
		free(p);
		return NULL;
	}
	if (dl_map_set(&s->by_pid, pid, s->procs.cnt)) {
		s->procs.cnt--;
		free(p);
		return NULL;
	}
	p->pid = pid;
	*slot = p;
	return p;
}

static void set_run(struct dl_kstate *s, struct dl_kthread *t, enum dl_krun run, uint64_t ts)
{
	const int more = (run == DL_KRUN_ON_CPU) - (t->run == DL_KRUN_ON_CPU);

	s->running += (uint32_t)more;
	if (t->proc)
		t->proc->running += (uint32_t)more;
	t->run = run;
	t->since = ts;
}

static struct dl_kthread *find(const struct dl_kstate *s, uint32_t tid)
{
	uint64_t index;

	return dl_map_get(&s->by_tid, tid, &index) ? s->threads.v[index - 1] : NULL;
}

struct dl_kthread *dl_kstate_thread(const struct dl_kstate *s, uint32_t tid)
{
	return find(s, tid);
}

static struct dl_kthread *add_thread(struct dl_kstate *s, uint32_t tid, uint32_t pid)
{
	struct dl_kthread *t = find(s, tid), **slot;

	if (t)
		return t;
	if (s->threads.cnt >= DL_KSTATE_THREADS) {
		s->dropped++;
		return NULL;
	}
	t = calloc(1, sizeof(*t));
	slot = t ? vec_push(&s->threads) : NULL;
	if (!slot)
		goto err_free;
	if (dl_map_set(&s->by_tid, tid, s->threads.cnt))
		goto err_pop;
	t->tid = tid;
	t->pid = pid;
	t->proc = add_proc(s, pid);
	*slot = t;
	return t;

err_pop:
	s->threads.cnt--;
err_free:
	free(t);
	s->dropped++;
	return NULL;
}

/* The last one moves into the gap; its key exists, so this needs no memory. */
static void remove_thread(struct dl_kstate *s, size_t i)
{
	struct dl_kthread *t = s->threads.v[i], *last = s->threads.v[s->threads.cnt - 1];

	if (last != t && dl_map_set(&s->by_tid, last->tid, i + 1))
		return;
	set_run(s, t, DL_KRUN_UNKNOWN, 0);	/* where its last switch was lost it still runs */
	s->threads.v[i] = last;
	s->threads.cnt--;
	dl_map_del(&s->by_tid, t->tid);
	free(t);
}

static void remove_proc(struct dl_kstate *s, size_t i)
{
	struct dl_kstate_proc *p = s->procs.v[i], *last = s->procs.v[s->procs.cnt - 1];

	if (last != p && dl_map_set(&s->by_pid, last->pid, i + 1))
		return;
	s->procs.v[i] = last;
	s->procs.cnt--;
	dl_map_del(&s->by_pid, p->pid);
	vec_for_each(&s->threads, t) {
		if ((*t)->proc == p)
			(*t)->proc = NULL;
	}
	free(p);
}

void dl_kstate_forget_ended(struct dl_kstate *s, uint64_t before_ts)
{
	for (size_t i = s->threads.cnt; i-- > 0;) {
		if (s->threads.v[i]->end_ts && s->threads.v[i]->end_ts < before_ts)
			remove_thread(s, i);
	}
	for (size_t i = s->procs.cnt; i-- > 0;) {
		if (s->procs.v[i]->ended && s->procs.v[i]->end_ts < before_ts)
			remove_proc(s, i);
	}
}

/* --- events ------------------------------------------------------------------------------------ */

static void add_cpu(struct dl_kstate *s, struct dl_kthread *t, uint64_t cpu_ns)
{
	if (t->has_cpu && cpu_ns > t->cpu_ns) {
		s->cpu_ns += cpu_ns - t->cpu_ns;
		if (t->proc)
			t->proc->cpu_ns += cpu_ns - t->cpu_ns;
	}
	t->cpu_ns = cpu_ns;
	t->has_cpu = true;
}

static void switch_out(struct dl_kstate *s, const struct dl_ev_switch *ev)
{
	struct dl_kthread *t = add_thread(s, ev->h.tid, ev->h.pid);
	const bool blocked = ev->prev_state && !(ev->flags & DL_SW_PREEMPT);
	struct dl_kstate_proc *p;

	/* Rings of several CPUs are read one after the other: an older event may come later. */
	if (!t || ev->h.ts < t->since)
		return;
	add_cpu(s, t, ev->exec_ns);
	set_run(s, t, blocked ? DL_KRUN_BLOCKED : DL_KRUN_RUNNABLE, ev->h.ts);
	t->out = *ev;
	t->has_out = true;
	if ((ev->flags & DL_SW_EXITING) && (ev->prev_state & STATE_DEAD) && !t->end_ts)
		t->end_ts = ev->h.ts;
	if (!(ev->flags & DL_SW_QUARTET))
		return;
	p = dl_kstate_proc(s, ev->h.pid);
	if (p)
		p->worker = true;
}

static void switch_seen(struct dl_kstate *s, const struct dl_ev_switch *ev)
{
	struct dl_kthread *next;

	if (!(ev->h.flags & DL_HDR_FOREIGN) && ev->h.tid)
		switch_out(s, ev);
	if ((ev->flags & DL_SW_NEXT_FOREIGN) || !ev->next_tid)
		return;
	next = add_thread(s, ev->next_tid, ev->next_pid);
	if (!next || ev->h.ts < next->since)
		return;
	set_run(s, next, DL_KRUN_ON_CPU, ev->h.ts);
	next->cpu = ev->h.cpu;
}

static void wake_seen(struct dl_kstate *s, const struct dl_ev_wake *ev)
{
	struct dl_kthread *t = ev->flags & DL_WK_FOREIGN_WAKEE ? NULL : find(s, ev->wakee_tid);

	if (t && t->run == DL_KRUN_BLOCKED && ev->h.ts >= t->since)
		set_run(s, t, DL_KRUN_RUNNABLE, ev->h.ts);
}

/* A new thread may have been met already: its first wake can be stamped before the fork. */
static void fork_seen(struct dl_kstate *s, const struct dl_ev_fork *ev)
{
	struct dl_kstate_proc *p = dl_kstate_proc(s, ev->child_pid);
	struct dl_kthread *t = find(s, ev->child_tid);

	if (ev->h.flags & DL_HDR_FOREIGN)
		return;
	if (t && t->end_ts) {	/* the number is used again */
		set_run(s, t, DL_KRUN_UNKNOWN, 0);
		*t = (struct dl_kthread){ .tid = ev->child_tid };
	}
	if (p && p->ended && ev->child_pid == ev->child_tid) {
		if (p->has_facts)
			dl_facts_forget_pid(&s->facts, p->pid);
		*p = (struct dl_kstate_proc){ .pid = ev->child_pid };
	}
	t = add_thread(s, ev->child_tid, ev->child_pid);
	if (!t)
		return;
	t->pid = ev->child_pid;
	t->fork = *ev;
	t->has_fork = true;
	p = t->proc = add_proc(s, ev->child_pid);
	if (p && ev->child_pid == ev->child_tid)
		p->ppid = ev->h.pid;
	if (!t->has_cpu) {	/* all its CPU time will have been used while watched */
		t->has_cpu = true;
		t->cpu_ns = 0;
	}
}

static void task_seen(struct dl_kstate *s, const struct dl_ev_task *ev)
{
	struct dl_kthread *t = ev->flags & DL_TF_GONE ? NULL : add_thread(s, ev->h.tid, ev->h.pid);
	struct dl_kstate_proc *p = dl_kstate_proc(s, ev->h.pid);

	if (t) {
		t->task = *ev;
		t->has_task = true;
		if (!t->has_cpu)
			add_cpu(s, t, ev->exec_ns);
	}
	if (!p)
		return;
	p->ppid = ev->ppid;
	p->root |= (ev->flags & DL_TF_ROOT) != 0;
	if (ev->h.tid == ev->h.pid)
		p->worker |= dl_worker_handlers(ev->sig_caught);
}

static void exit_seen(struct dl_kstate *s, const struct dl_ev_exit *ev)
{
	struct dl_kstate_proc *p = dl_kstate_proc(s, ev->h.pid);
	struct dl_kthread *t = find(s, ev->h.tid);

	if (t) {
		add_cpu(s, t, ev->exec_ns);
		t->end_ts = ev->h.ts;
	}
	if (p && (ev->flags & DL_EX_LAST)) {
		p->ended = true;
		p->end_ts = ev->h.ts;
	}
}

/* Another program: whoever it was forked from has nothing to do with what it is. */
static void exec_seen(struct dl_kstate *s, const struct dl_ev_exec *ev)
{
	struct dl_kstate_proc *p = dl_kstate_proc(s, ev->h.pid);

	if (!p)
		return;
	if (p->has_facts)	/* looking through all of them for each program that runs would be dear */
		dl_facts_forget_pid(&s->facts, ev->h.pid);
	p->has_facts = false;
	p->worker = false;
}

static void gpu_seen(struct dl_kstate *s, uint32_t pid)
{
	struct dl_kstate_proc *p = dl_kstate_proc(s, pid);

	s->gpu_events++;
	if (p)
		p->gpu_events++;
}

static void take_fact(struct dl_kstate *s, const struct dl_hdr *ev)
{
	struct dl_kstate_proc *p;
	const int taken = dl_facts_take(&s->facts, ev, s->segment);

	if (taken < 0)
		s->dropped++;
	p = taken > 0 && ev->pid ? dl_kstate_proc(s, ev->pid) : NULL;
	if (p)
		p->has_facts = true;
}

void dl_kstate_event(struct dl_kstate *s, const struct dl_hdr *ev)
{
	if (ev->flags & DL_HDR_RESTATED)
		return;
	switch (ev->kind) {
	case DL_EV_SWITCH:
		switch_seen(s, (const void *)ev);
		return;
	case DL_EV_WAKE:
		wake_seen(s, (const void *)ev);
		return;
	case DL_EV_FORK:
		fork_seen(s, (const void *)ev);
		return;
	case DL_EV_TASK:
		task_seen(s, (const void *)ev);
		return;
	case DL_EV_EXIT:
		exit_seen(s, (const void *)ev);
		return;
	case DL_EV_BLOCK_IO:
		s->io++;
		return;
	case DL_EV_GPU_KERNEL:
	case DL_EV_GPU_GRAPH:
	case DL_EV_GPU_MEMCPY:
	case DL_EV_GPU_API:
		gpu_seen(s, ev->pid);
		return;
	case DL_EV_EXEC:
		exec_seen(s, (const void *)ev);
		break;
	}
	take_fact(s, ev);
}

/* --- asked by others --------------------------------------------------------------------------- */

uint64_t dl_kstate_dropped(const struct dl_kstate *s)
{
	return s->dropped;
}

bool dl_kstate_wants_new_stacks(struct dl_kstate *s)
{
	if (s->facts.stacks_sz <= DL_KSTATE_STACKS_SZ || s->asked_stacks)
		return false;
	s->asked_stacks = true;
	return true;
}

static bool is_fork_server(const struct dl_kstate *s, uint32_t pid)
{
	const struct dl_hdr *ev = dl_facts_get(&s->facts, DL_EV_CMDLINE, pid, 0);
	static const char name[] = "multiprocessing.forkserver";

	return ev && memmem((const char *)ev + sizeof(struct dl_ev_cmdline), ev->size - sizeof(struct dl_ev_cmdline), name,
			    sizeof(name) - 1);
}

void dl_kstate_count_workers(struct dl_kstate *s)
{
	vec_for_each(&s->procs, p)
		(*p)->workers = 0;
	vec_for_each(&s->procs, it) {
		struct dl_kstate_proc *p = (*it)->worker ? dl_kstate_proc(s, (*it)->ppid) : NULL;

		if (p && is_fork_server(s, p->pid))
			p = dl_kstate_proc(s, p->ppid);
		if (!p)
			continue;
		p->trainer = true;
		p->workers += !(*it)->ended;
	}
}

void dl_kstate_each_proc(struct dl_kstate *s, void (*fn)(struct dl_kstate_proc *p, void *arg), void *arg)
{
	vec_for_each(&s->procs, p)
		fn(*p, arg);
}

void dl_kstate_totals(const struct dl_kstate *s, struct dl_kstate_totals *ret)
{
	*ret = (struct dl_kstate_totals){ .cpu_ns = s->cpu_ns, .io = s->io, .gpu_events = s->gpu_events,
					  .running = s->running, .threads = (uint32_t)s->threads.cnt };
}

void dl_kstate_name(const struct dl_kstate *s, uint32_t tid, char ret[17])
{
	const struct dl_ev_name *name = (const void *)dl_facts_get(&s->facts, DL_EV_NAME, 0, tid);
	const struct dl_kthread *t = find(s, tid);

	memset(ret, 0, 17);
	if (name)
		memcpy(ret, name->comm.s, 16);
	else if (t && t->has_task)
		memcpy(ret, t->task.comm.s, 16);
	else if (t && t->has_fork)
		memcpy(ret, t->fork.comm.s, 16);
}
