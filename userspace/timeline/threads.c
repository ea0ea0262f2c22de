/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Thread states from scheduler events. Invariant: a thread's segments are sorted and gapless, and
 * a segment whose begin or end was not seen (lost events) is DL_ST_UNKNOWN, never stretched.
 */
#include "timeline/threads.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LATE_TIMER_NS 1000000	/* from a deadline to running, on a machine with a CPU free */

static int seg_push(struct dl_thread *th, uint64_t ts, enum dl_state state, uint32_t ref, uint16_t cpu)
{
	struct dl_seg *s = vec_last(&th->segs);

	if (s && ts < s->start)
		ts = s->start;
	if (!s || s->start != ts) {
		s = vec_push(&th->segs);
		if (!s)
			return -ENOMEM;
	}
	*s = (struct dl_seg){ .start = ts, .state = state, .ref = ref, .cpu = cpu };
	return 0;
}

static int push_blocked(struct dl_thread *th, uint64_t ts, uint16_t cpu, const struct dl_wait *wait)
{
	struct dl_wait *w = vec_push(&th->waits);

	if (!w)
		return -ENOMEM;
	*w = *wait;
	return seg_push(th, ts, DL_ST_BLOCKED, (uint32_t)(th->waits.cnt - 1), cpu);
}

static uint32_t rq_push(struct dl_thread *th, const struct dl_rq *rq)
{
	struct dl_rq *r = vec_push(&th->rqs);

	if (!r)
		return DL_NONE;
	*r = *rq;
	return (uint32_t)(th->rqs.cnt - 1);
}

static int push_runnable(struct dl_thread *th, uint64_t ts, uint16_t cpu, const struct dl_rq *rq)
{
	uint32_t ref = rq_push(th, rq);

	return ref == DL_NONE ? -ENOMEM : seg_push(th, ts, DL_ST_RUNNABLE, ref, cpu);
}

int dl_tl_unknown(struct dl_thread *th, uint64_t ts)
{
	return seg_push(th, ts, DL_ST_UNKNOWN, DL_NONE, DL_CPU_NONE);
}

static uint32_t thread_new(struct dl_timeline *tl, uint32_t tid)
{
	struct dl_thread *th = vec_push(&tl->threads);
	uint32_t idx = (uint32_t)(tl->threads.cnt - 1);

	if (!th || dl_map_set(&tl->tids, tid, idx))
		return DL_NONE;
	tl->recent[tid % DL_RECENT_CNT] = (struct dl_recent){ tid, idx };
	th->tid = tid;
	th->proc = th->creator = DL_NONE;
	th->end = UINT64_MAX;
	return idx;
}

uint32_t dl_tl_find_thread(struct dl_timeline *tl, uint32_t tid)
{
	struct dl_recent *r = &tl->recent[tid % DL_RECENT_CNT];
	uint64_t idx;

	if (!tid)
		return DL_IDLE;
	if (r->tid == tid)
		return r->idx;
	if (!dl_map_get(&tl->tids, tid, &idx))
		return DL_NONE;
	*r = (struct dl_recent){ tid, (uint32_t)idx };
	return r->idx;
}

uint32_t dl_tl_thread(struct dl_timeline *tl, uint32_t tid)
{
	uint32_t idx = dl_tl_find_thread(tl, tid);

	return idx == DL_NONE ? thread_new(tl, tid) : idx;
}

uint32_t dl_tl_proc(struct dl_timeline *tl, uint32_t pid)
{
	struct dl_proc *p;
	uint64_t idx;

	/* Most events in a row are of one. */
	if (tl->last_pid == pid && tl->last_proc != DL_NONE)
		return tl->last_proc;
	if (dl_map_get(&tl->pids, pid, &idx)) {
		tl->last_pid = pid;
		tl->last_proc = (uint32_t)idx;
		return tl->last_proc;
	}
	p = vec_push(&tl->procs);
	if (!p)
		return DL_NONE;
	idx = tl->procs.cnt - 1;
	if (dl_map_set(&tl->pids, pid, idx))
		return DL_NONE;
	p->pid = pid;
	p->parent = p->main = p->feeder = p->trainer = DL_NONE;
	p->loader = p->index = p->rank = -1;
	p->end = UINT64_MAX;
	return (uint32_t)idx;
}

/* A thread of the tree. One that has ended makes room for a new one with the same id. */
uint32_t dl_tl_own_thread(struct dl_timeline *tl, uint32_t tid, uint32_t pid)
{
	const struct dl_recent *r = &tl->recent[tid % DL_RECENT_CNT];
	uint32_t idx, proc;

	if (tid && r->tid == tid && tl->threads.v[r->idx].end == UINT64_MAX && tl->threads.v[r->idx].proc != DL_NONE)
		return r->idx;
	idx = dl_tl_thread(tl, tid);
	if (idx == DL_NONE || idx == DL_IDLE)
		return idx;
	if (tl->threads.v[idx].end != UINT64_MAX) {
		idx = thread_new(tl, tid);
		if (idx == DL_NONE)
			return DL_NONE;
	}
	if (tl->threads.v[idx].proc != DL_NONE)
		return idx;
	proc = dl_tl_proc(tl, pid);
	if (proc == DL_NONE)
		return DL_NONE;
	tl->threads.v[idx].proc = proc;
	if (tid == pid)
		tl->procs.v[proc].main = idx;
	return idx;
}

/* Everything since ts is not known; where it is a hole that is to blame, only from there on. */
static int forget_since(struct dl_timeline *tl, struct dl_thread *th, uint64_t ts, uint64_t now)
{
	struct dl_span hole;

	if (dl_tl_hole(tl, ts, now, &hole))
		return dl_tl_forget_hole(th, &hole);
	while (th->segs.cnt && th->segs.v[th->segs.cnt - 1].start >= ts)
		th->segs.cnt--;
	return seg_push(th, ts, DL_ST_UNKNOWN, DL_NONE, DL_CPU_NONE);
}

static void take_totals(struct dl_thread *th, const struct dl_ev_switch *ev)
{
	if (!th->has_totals) {
		th->first_exec_ns = ev->exec_ns;
		th->first_min_flt = ev->min_flt;
		th->first_maj_flt = ev->maj_flt;
		th->has_totals = true;
	}
	th->exec_ns = ev->exec_ns;
	th->min_flt = ev->min_flt;
	th->maj_flt = ev->maj_flt;
}

/* The thread was switched in and out once since its last switch-out, but the switch-in, which is
 * another thread's event, is not in the trace: kernels do leave some out (seen on a virtual machine,
 * by other tools too). The CPU time that it used since says when it was. */
static int infer_switch_in(struct dl_timeline *tl, struct dl_thread *th, uint64_t ts, uint16_t cpu, uint64_t ran_ns)
{
	const struct dl_seg *last = vec_last(&th->segs);
	struct dl_span hole;

	tl->inferred_switches++;
	if (ran_ns > ts - last->start)
		ran_ns = ts - last->start;
	if (last->state == DL_ST_BLOCKED && dl_tl_hole(tl, last->start, ts - ran_ns, &hole) && dl_tl_forget_hole(th, &hole))
		return -ENOMEM;
	return seg_push(th, ts - ran_ns, DL_ST_RUNNING, DL_NONE, cpu);
}

/* The thread's own count of switches rises by one from one switch-out to the next. Where it rises
 * by more, events were lost and what the thread did in between is not known. */
static int check_lost(struct dl_timeline *tl, struct dl_thread *th, const struct dl_ev_switch *ev, uint64_t ran_ns)
{
	const struct dl_seg *last = vec_last(&th->segs);
	uint32_t step = ev->switches - th->switches;
	bool counted = ev->switches && th->has_switches;
	uint64_t since = th->last_out_ts;
	struct dl_span hole;

	th->has_switches = ev->switches != 0;
	th->switches = ev->switches;
	th->last_out_ts = ev->h.ts;
	if (counted && step > 1) {
		tl->lost_switches += step - 1;
		return forget_since(tl, th, since, ev->h.ts);
	}
	/* No count to compare with: whether it slept through a hole is not known. */
	if (!counted && last && dl_tl_hole(tl, since ? since : th->segs.v[0].start, ev->h.ts, &hole)) {
		if (dl_tl_forget_hole(th, &hole))
			return -ENOMEM;
		last = vec_last(&th->segs);
	}
	if (!last || last->state == DL_ST_RUNNING || last->state == DL_ST_UNKNOWN)
		return 0;
	if (counted && ev->h.ts > last->start)
		return infer_switch_in(tl, th, ev->h.ts, ev->h.cpu, ran_ns);
	return forget_since(tl, th, last->start, ev->h.ts);
}

static int switch_out(struct dl_timeline *tl, uint32_t idx, const struct dl_ev_switch *ev)
{
	struct dl_thread *th = &tl->threads.v[idx];
	struct dl_proc *p = &tl->procs.v[th->proc];
	bool still_runnable = !ev->prev_state || (ev->flags & DL_SW_PREEMPT);
	uint64_t ran_ns = ev->exec_ns > th->exec_ns ? ev->exec_ns - th->exec_ns : 0;
	struct dl_wait wait;
	int err;

	take_totals(th, ev);
	th->cpus_allowed = ev->cpus_allowed;
	if ((ev->flags & DL_SW_QUARTET) && !p->quartet) {
		p->quartet = true;
		p->handlers_ts = ev->h.ts;
	}
	th->outs++;
	th->sigblock_outs += (ev->flags & DL_SW_SIGBLOCK) != 0;
	err = check_lost(tl, th, ev, ran_ns);
	if (err)
		return err;
	if (still_runnable) {
		struct dl_rq rq = { .before = DL_NONE, .preempted_by = dl_tl_thread(tl, ev->next_tid),
				    .throttled = ev->throttle_cnt, .cpus_allowed = ev->cpus_allowed };

		th = &tl->threads.v[idx];	/* dl_tl_thread may have moved it */
		return push_runnable(th, ev->h.ts, ev->h.cpu, &rq);
	}
	if ((ev->flags & DL_SW_EXITING) && (ev->prev_state & 0x90)) {	/* EXIT_DEAD, TASK_DEAD */
		th->end = ev->h.ts;
		return seg_push(th, ev->h.ts, DL_ST_GONE, DL_NONE, ev->h.cpu);
	}
	wait = (struct dl_wait){
		.arg0 = ev->arg0, .arg1 = ev->arg1, .deadline = ev->deadline,
		.file_ino = ev->file_ino, .file_dev = ev->file_dev, .file_magic = ev->file_magic,
		.file_kind = ev->file_kind, .syscall = ev->syscall, .stack = ev->stack,
		.flags = ev->flags, .waker = DL_NONE, .uninterruptible = ev->prev_state & 2,
	};
	return push_blocked(th, ev->h.ts, ev->h.cpu, &wait);
}

/* A thread that blocks and is switched in again without a wake was woken a moment before it was
 * switched out: it had set its state, and the wake found it still on the CPU. It did not block. */
static bool woken_while_running(const struct dl_thread *th)
{
	const struct dl_seg *run = th->segs.cnt > 1 ? &th->segs.v[th->segs.cnt - 2] : NULL;

	return run && run->state == DL_ST_RUNNING && th->run_wake_ts >= run->start;
}

/* Timers' wakes are left out at times, as switches are. A thread that is back on a CPU right behind its
 * own deadline was woken by it. */
static void infer_timer(struct dl_timeline *tl, struct dl_wait *w, uint64_t start, uint64_t ts)
{
	if (w->deadline <= start || ts < w->deadline || ts - w->deadline > LATE_TIMER_NS)
		return;
	w->wake_ts = w->deadline;
	w->waker = DL_IDLE;
	w->wake_flags = DL_WK_IRQ;
	tl->inferred_wakes++;
}

static int switch_in(struct dl_timeline *tl, uint32_t idx, const struct dl_ev_switch *ev, uint32_t before)
{
	struct dl_thread *th = &tl->threads.v[idx];
	struct dl_seg *last = vec_last(&th->segs);
	struct dl_rq rq = { .before = before, .preempted_by = DL_NONE };
	struct dl_span hole;

	if (last && last->state == DL_ST_RUNNABLE) {
		th->rqs.v[last->ref].before = before;
	} else if (last && last->state == DL_ST_BLOCKED) {
		struct dl_wait *w = dl_seg_wait(th, last);

		if (!w->wake_ts && woken_while_running(th)) {
			uint32_t ref = rq_push(th, &rq);

			if (ref == DL_NONE)
				return -ENOMEM;
			last->state = DL_ST_RUNNABLE;
			last->ref = ref;
		} else if (!w->wake_ts) {
			infer_timer(tl, w, last->start, ev->h.ts);
			/* woken in a hole: from when on it only waited for its CPU is not known */
			if (!w->wake_ts && dl_tl_hole(tl, last->start, ev->h.ts, &hole) && dl_tl_forget_hole(th, &hole))
				return -ENOMEM;
		}
	} else if (last && last->state == DL_ST_RUNNING && dl_tl_hole(tl, last->start, ev->h.ts, &hole)) {
		if (dl_tl_forget_hole(th, &hole))
			return -ENOMEM;
	} else if (last && last->state == DL_ST_RUNNING) {
		last->state = DL_ST_UNKNOWN;
	}
	return seg_push(th, ev->h.ts, DL_ST_RUNNING, DL_NONE, ev->h.cpu);
}

int dl_tl_switch(struct dl_timeline *tl, const struct dl_ev_switch *ev)
{
	bool prev_own = !(ev->h.flags & DL_HDR_FOREIGN) && ev->h.tid;
	bool next_own = !(ev->flags & DL_SW_NEXT_FOREIGN) && ev->next_tid;
	uint32_t prev, next;
	int err = 0;

	prev = prev_own ? dl_tl_own_thread(tl, ev->h.tid, ev->h.pid) : dl_tl_thread(tl, ev->h.tid);
	next = next_own ? dl_tl_own_thread(tl, ev->next_tid, ev->next_pid) : dl_tl_thread(tl, ev->next_tid);
	if (prev == DL_NONE || next == DL_NONE)
		return -ENOMEM;
	if (prev_own)
		err = switch_out(tl, prev, ev);
	if (!err && next_own)
		err = switch_in(tl, next, ev, prev);
	return err;
}

static void set_waker(struct dl_wait *w, const struct dl_ev_wake *ev, uint32_t waker)
{
	w->wake_ts = ev->h.ts;
	w->waker = waker;
	w->wake_syscall = ev->syscall;
	w->wake_flags = (uint16_t)ev->flags;
}

int dl_tl_wake(struct dl_timeline *tl, const struct dl_ev_wake *ev)
{
	bool own = !(ev->flags & DL_WK_FOREIGN_WAKEE) && ev->wakee_tid;
	bool waker_own = !(ev->h.flags & DL_HDR_FOREIGN) && ev->h.tid;
	struct dl_rq rq = { .before = DL_NONE, .preempted_by = DL_NONE, .throttled = ev->throttle_cnt,
			    .fresh = ev->flags & DL_WK_NEW };
	uint32_t waker, wakee;
	struct dl_thread *th;
	struct dl_seg *last;

	waker = waker_own ? dl_tl_own_thread(tl, ev->h.tid, ev->h.pid) : dl_tl_thread(tl, ev->h.tid);
	wakee = own ? dl_tl_own_thread(tl, ev->wakee_tid, ev->wakee_pid) : dl_tl_thread(tl, ev->wakee_tid);
	if (waker == DL_NONE || wakee == DL_NONE)
		return -ENOMEM;
	if (waker_own) {
		struct dl_woke *woke = vec_push(&tl->threads.v[waker].woke);

		if (!woke)
			return -ENOMEM;
		*woke = (struct dl_woke){ .ts = ev->h.ts, .wakee = wakee, .syscall = ev->syscall };
	}
	if (ev->flags & DL_WK_KTHREAD)
		tl->threads.v[waker].kthread = true;
	if (!own)
		return 0;
	th = &tl->threads.v[wakee];
	rq.cpus_allowed = th->cpus_allowed;
	last = vec_last(&th->segs);
	if (!last)
		return push_runnable(th, ev->h.ts, ev->h.cpu, &rq);
	if (last->state == DL_ST_RUNNING) {
		th->run_wake_ts = ev->h.ts;
		return 0;
	}
	if (last->state == DL_ST_RUNNABLE || last->state == DL_ST_GONE)
		return 0;
	if (last->state == DL_ST_BLOCKED)
		set_waker(dl_seg_wait(th, last), ev, waker);
	return push_runnable(th, ev->h.ts, ev->h.cpu, &rq);
}

static void set_name(struct dl_thread *th, const char comm[16])
{
	memcpy(th->name, comm, 16);
	th->name[16] = '\0';
}

int dl_tl_fork(struct dl_timeline *tl, const struct dl_ev_fork *ev)
{
	uint32_t parent = dl_tl_own_thread(tl, ev->h.tid, ev->h.pid), child, proc;
	struct dl_rq rq = { .before = DL_NONE, .preempted_by = DL_NONE, .fresh = true };
	bool new_proc = ev->child_tid == ev->child_pid;
	struct dl_thread *th;

	if (parent == DL_NONE)
		return -ENOMEM;
	if (parent == DL_IDLE || !ev->child_tid)
		return 0;
	if (new_proc) {
		dl_map_del(&tl->pids, ev->child_pid);
		tl->last_proc = DL_NONE;
	}
	/* The child may have been seen already: its first wake can be stamped before the fork. */
	child = dl_tl_thread(tl, ev->child_tid);
	if (child != DL_NONE && (tl->threads.v[child].end != UINT64_MAX || tl->threads.v[child].start))
		child = thread_new(tl, ev->child_tid);
	proc = dl_tl_proc(tl, ev->child_pid);
	if (child == DL_NONE || proc == DL_NONE)
		return -ENOMEM;
	th = &tl->threads.v[child];
	th->proc = proc;
	th->creator = parent;
	th->start = ev->h.ts;
	th->nstid = ev->child_nstid;
	set_name(th, ev->comm.s);
	if (new_proc) {
		struct dl_proc *p = &tl->procs.v[proc];

		p->main = child;
		p->forked = true;
		p->parent = tl->threads.v[parent].proc;
		p->ppid = ev->h.pid;
		p->nspid = ev->child_nspid;
		p->start = ev->h.ts;
	}
	return th->segs.cnt ? 0 : push_runnable(th, ev->h.ts, DL_CPU_NONE, &rq);
}

int dl_tl_exit(struct dl_timeline *tl, const struct dl_ev_exit *ev)
{
	uint32_t idx = dl_tl_own_thread(tl, ev->h.tid, ev->h.pid);
	struct dl_thread *th;
	struct dl_proc *p;

	if (idx == DL_NONE)
		return -ENOMEM;
	if (idx == DL_IDLE)
		return 0;
	th = &tl->threads.v[idx];
	if (ev->exec_ns >= th->exec_ns) {
		th->exec_ns = ev->exec_ns;
		th->min_flt = ev->min_flt;
		th->maj_flt = (uint32_t)ev->maj_flt;
	}
	p = &tl->procs.v[th->proc];
	th->exit_ts = ev->h.ts;
	if (ev->maxrss > p->maxrss)
		p->maxrss = ev->maxrss;
	if (!(ev->flags & DL_EX_LAST))
		return 0;
	p->exited = true;
	p->exit_status = ev->code;
	p->end = ev->h.ts;
	return 0;
}

/* The recorder looks into /proc a while after a thread has ended: that is no new thread of its id. */
static bool about_the_dead(const struct dl_timeline *tl, const struct dl_ev_task *ev)
{
	uint64_t idx;

	return dl_map_get(&tl->tids, ev->h.tid, &idx) && ev->start < tl->threads.v[idx].end &&
	       tl->threads.v[idx].end != UINT64_MAX && tl->threads.v[idx].proc != DL_NONE;
}

int dl_tl_task(struct dl_timeline *tl, const struct dl_ev_task *ev)
{
	uint32_t idx = about_the_dead(tl, ev) ? DL_IDLE : dl_tl_own_thread(tl, ev->h.tid, ev->h.pid), parent = DL_NONE;
	struct dl_wait wait = { .syscall = ev->syscall, .arg0 = ev->arg0, .arg1 = ev->arg1,
				.waker = DL_NONE, .uninterruptible = ev->state == 'D' };
	struct dl_thread *th;
	struct dl_proc *p;
	uint64_t found;

	if (idx == DL_NONE)
		return -ENOMEM;
	if (idx == DL_IDLE)
		return 0;
	th = &tl->threads.v[idx];
	p = &tl->procs.v[th->proc];
	th->nstid = ev->nstid;
	if (ev->comm.s[0])
		set_name(th, ev->comm.s);
	p->nspid = ev->nspid;
	p->ppid = ev->ppid;
	if (dl_map_get(&tl->pids, ev->ppid, &found))
		parent = (uint32_t)found;
	if (p->parent == DL_NONE && parent != DL_NONE)
		p->parent = parent;
	if (ev->flags & DL_TF_ROOT)
		p->root = true;
	if (dl_worker_handlers(ev->sig_caught) && !p->quartet) {
		p->quartet = true;
		p->handlers_ts = ev->h.ts;
	}
	if (ev->sig_blocked >> 32 == 0xfffffffe || __builtin_popcountll(ev->sig_blocked) > 48)
		th->sigblock_outs++;
	th->outs++;
	if ((th->segs.cnt && !tl->holes.cnt) || (ev->flags & DL_TF_GONE))
		return 0;
	if (th->segs.cnt && (ev->state == 'S' || ev->state == 'D'))
		return dl_tl_task_behind(tl, th, ev, &wait);
	if (th->segs.cnt)
		return 0;
	if (ev->state != 'S' && ev->state != 'D')
		return seg_push(th, ev->h.ts, DL_ST_UNKNOWN, DL_NONE, DL_CPU_NONE);
	return push_blocked(th, ev->h.ts, DL_CPU_NONE, &wait);
}

uint32_t dl_seg_before(const struct dl_thread *th, uint64_t t)
{
	size_t i = vec_first_near(&th->segs, t, th->places ? th->places->seg : 0);

	if (th->places)
		th->places->seg = i;
	return i ? (uint32_t)(i - 1) : DL_NONE;
}

uint64_t dl_running_ns(const struct dl_thread *th, uint64_t from, uint64_t to, bool runnable_too)
{
	uint32_t i = dl_seg_before(th, to);
	uint64_t sum = 0;

	for (; i != DL_NONE && to > from; to = th->segs.v[i].start, i = i ? i - 1 : DL_NONE) {
		const struct dl_seg *s = &th->segs.v[i];
		uint64_t start = s->start > from ? s->start : from;

		if (start < to && (s->state == DL_ST_RUNNING || (runnable_too && s->state == DL_ST_RUNNABLE)))
			sum += to - start;
	}
	return sum;
}

size_t dl_woke_at(const struct dl_thread *th, uint64_t t)
{
	return th->places->woke = vec_first_near(&th->woke, t, th->places->woke);
}

size_t dl_run_at(const struct dl_cpu *c, uint64_t t)
{
	return c->places->run = vec_first_near(&c->runs, t, c->places->run);
}

static int add_runs(struct dl_timeline *tl, uint32_t thread)
{
	const struct dl_thread *th = &tl->threads.v[thread];

	for (uint32_t i = 0; i < th->segs.cnt; i++) {
		const struct dl_seg *s = &th->segs.v[i];
		struct dl_cpu_run *run;

		if (s->state != DL_ST_RUNNING || s->cpu == DL_CPU_NONE)
			continue;
		while (tl->cpus.cnt <= s->cpu) {
			if (!vec_push(&tl->cpus))
				return -ENOMEM;
		}
		run = vec_push(&tl->cpus.v[s->cpu].runs);
		if (!run)
			return -ENOMEM;
		*run = (struct dl_cpu_run){ s->start, dl_seg_end(th, i), thread };
	}
	return 0;
}

int dl_tl_cpus(struct dl_timeline *tl)
{
	int err = 0;

	vec_for_each(&tl->cpus, c)
		c->runs.cnt = 0;
	for (uint32_t i = 0; i < tl->threads.cnt && !err; i++)
		err = add_runs(tl, i);
	vec_for_each(&tl->cpus, c)
		vec_sort(&c->runs);
	return err;
}
