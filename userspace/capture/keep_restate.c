/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Says again, at the head of a segment and where it is referred to, what was said before it. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "capture/keep_state_int.h"
#include "capture/proc.h"
#include "trace/schema.h"

#define LATE_NS (2 * DL_NS_PER_S)	/* what belongs to the dead still comes for so long */
#define SINCE_NS DL_NS_PER_S		/* what has not changed for so long is told by a mark */

/* With the flag, and with this time unless ts is 0. */
static int say(struct dl_sink *out, const struct dl_hdr *ev, uint64_t ts)
{
	union {
		struct dl_hdr h;
		char bytes[DL_EVENT_MAX_SZ];
	} buf;

	memcpy(&buf, ev, ev->size);
	buf.h.flags |= DL_HDR_RESTATED;
	if (ts)
		buf.h.ts = ts;
	return out->emit(out, &buf.h);
}

/* --- stacks and symbols, when they are referred to ----------------------------------------------- */

static int say_symbol(struct dl_kstate *s, uint32_t pid, uint64_t addr, uint64_t ts, struct dl_sink *out)
{
	struct dl_fact *f = addr ? dl_facts_find(&s->facts, DL_EV_SYMBOL, pid, addr) : NULL;

	if (!f || f->segment == s->segment)
		return 0;
	f->segment = s->segment;
	return say(out, f->ev, ts);
}

static int say_symbols_of(struct dl_kstate *s, const struct dl_ev_stack *ev, uint64_t ts, struct dl_sink *out)
{
	const uint64_t *addrs = (const void *)(ev + 1);
	const size_t have = (ev->h.size - sizeof(*ev)) / sizeof(*addrs);
	int err = 0;

	for (size_t i = 0; i < have && !err; i++)
		err = say_symbol(s, i < ev->kernel_cnt ? 0 : ev->h.pid, addrs[i], ts, out);
	return err;
}

static int say_stack(struct dl_kstate *s, uint32_t id, uint64_t ts, struct dl_sink *out)
{
	struct dl_fact *f = id ? dl_facts_find(&s->facts, DL_EV_STACK, 0, id) : NULL;
	int err;

	if (!f || f->segment == s->segment)
		return 0;
	f->segment = s->segment;
	err = say(out, f->ev, ts);
	return err ? err : say_symbols_of(s, (const void *)f->ev, ts, out);
}

static bool refers(uint16_t kind)
{
	return kind == DL_EV_SWITCH || kind == DL_EV_SAMPLE || kind == DL_EV_STACK;
}

int dl_kstate_before(struct dl_kstate *s, const struct dl_hdr *ev, struct dl_sink *out)
{
	const struct dl_ev_sample *sample;
	int err;

	/* It is not yet known to be well formed. */
	if ((ev->flags & DL_HDR_RESTATED) || !refers(ev->kind) || !dl_event_fits(dl_event_desc(ev->kind), ev))
		return 0;
	switch (ev->kind) {
	case DL_EV_SWITCH:
		return say_stack(s, ((const struct dl_ev_switch *)ev)->stack, ev->ts, out);
	case DL_EV_SAMPLE:
		sample = (const void *)ev;
		err = say_stack(s, sample->stack, ev->ts, out);
		return err ? err : say_symbol(s, ev->pid, sample->ip, ev->ts, out);
	case DL_EV_STACK:
		return say_symbols_of(s, (const void *)ev, ev->ts, out);
	}
	return 0;
}

/* --- the head of a segment ----------------------------------------------------------------------- */

static bool lives(const struct dl_kstate *s, uint32_t pid)
{
	const struct dl_kstate_proc *p = dl_kstate_proc(s, pid);

	return p && !p->ended;
}

/* Of whoever has ended nothing more will be told, but for a moment. */
static bool is_stale(const struct dl_kstate *s, const struct dl_fact *f)
{
	const struct dl_hdr *ev = f->ev;

	switch (ev->kind) {
	case DL_EV_NAME:
		return !(ev->flags & DL_HDR_FOREIGN) && !dl_kstate_thread(s, ev->tid);
	case DL_EV_STACK:
		return s->asked_stacks && f->segment + 1 < s->segment;
	case DL_EV_GPU_LINK:
	case DL_EV_LOSS:
	case DL_EV_ABSENT:
		return false;
	default:
		return ev->pid && !dl_kstate_proc(s, ev->pid);
	}
}

static void forget_stale(struct dl_kstate *s)
{
	for (size_t i = s->facts.v.cnt; i-- > 0;) {
		if (is_stale(s, &s->facts.v.v[i]))
			dl_facts_remove(&s->facts, i);
	}
	if (s->facts.stacks_sz < DL_KSTATE_STACKS_SZ / 2)
		s->asked_stacks = false;
}

/* The state at the instant of restating, from the thread's own last switch. Where none was seen since
 * the recorder looked, what it saw still holds. */
static void bring_up_to_date(const struct dl_kthread *t, struct dl_ev_task *task)
{
	task->flags &= DL_TF_ROOT;
	if (t->has_cpu && t->cpu_ns > task->exec_ns)
		task->exec_ns = t->cpu_ns;
	if (t->run == DL_KRUN_UNKNOWN)
		return;
	task->state = t->run == DL_KRUN_BLOCKED ? (t->out.prev_state & 2 ? 'D' : 'S') : 'R';
	task->syscall = -2;
	task->arg0 = task->arg1 = 0;
	if (t->run == DL_KRUN_BLOCKED) {
		task->syscall = t->out.syscall;
		task->arg0 = t->out.arg0;
		task->arg1 = t->out.arg1;
	}
}

/* Who made it, at the time when it did. Its maker may be gone: then only TASK tells of whom it is. */
static int say_origin(const struct dl_kstate *s, const struct dl_kthread *t, uint64_t ts, struct dl_sink *out)
{
	const struct dl_kthread *maker = t->has_fork ? dl_kstate_thread(s, t->fork.h.tid) : NULL;
	struct dl_ev_task task;

	if (maker && !maker->end_ts) {
		int err = say(out, &t->fork.h, 0);

		if (err || !t->has_task)
			return err;
	}
	if (t->has_task) {
		task = t->task;
	} else if (t->has_fork) {
		task = DL_EVENT_INIT(task, DL_EV_TASK, ts, t->pid, t->tid);
		task.ppid = t->fork.h.pid;
		task.nspid = t->fork.child_nspid;
		task.nstid = t->fork.child_nstid;
		task.start = t->fork.h.ts;
		task.comm = t->fork.comm;
		task.state = 'R';
		task.syscall = -2;
	} else {
		return 0;
	}
	bring_up_to_date(t, &task);
	return say(out, &task.h, ts);
}

/* Out of the CPU, with its totals. Who came next has a state of its own. */
static int say_out(struct dl_kstate *s, const struct dl_kthread *t, uint64_t ts, struct dl_sink *out)
{
	struct dl_ev_switch ev = t->out;
	int err;

	if (!t->has_out) {
		ev = DL_EVENT_INIT(switch, DL_EV_SWITCH, ts, t->pid, t->tid);
		ev.h.cpu = t->cpu;
		ev.exec_ns = t->cpu_ns;
		ev.syscall = -1;
	}
	ev.next_tid = ev.next_pid = 0;
	ev.flags &= (uint16_t)~DL_SW_NEXT_FOREIGN;
	if (t->run != DL_KRUN_BLOCKED)
		ev.prev_state = 0;
	if (ev.stack && !dl_facts_find(&s->facts, DL_EV_STACK, 0, ev.stack))
		ev.stack = 0;
	err = say_stack(s, ev.stack, ts, out);
	return err ? err : say(out, &ev.h, ts);
}

/*
 * What it does. One that runs is switched out and in again: a reader that knows when it was made must not
 * take it for waiting ever since. A switch that is younger than the segment's begin keeps its own time:
 * what the thread did between the two is not known here.
 */
static int say_run(struct dl_kstate *s, const struct dl_kthread *t, uint64_t ts, struct dl_sink *out)
{
	struct dl_ev_switch ev;
	int err;

	if (t->run == DL_KRUN_UNKNOWN)
		return 0;
	if (t->since > ts)
		ts = t->since;
	err = say_out(s, t, ts, out);
	if (err || t->run != DL_KRUN_ON_CPU)
		return err;
	ev = DL_EVENT_INIT(switch, DL_EV_SWITCH, ts, 0, 0);
	ev.h.cpu = t->cpu;
	ev.syscall = -1;
	ev.next_tid = t->tid;
	ev.next_pid = t->pid;
	return say(out, &ev.h, ts);
}

static bool is_told_at_head(const struct dl_hdr *ev)
{
	return ev->kind != DL_EV_STACK && ev->kind != DL_EV_SYMBOL;
}

/* Facts that are about an instant keep it. */
static uint64_t time_of(const struct dl_hdr *ev, uint64_t ts)
{
	return ev->kind == DL_EV_EXEC || ev->kind == DL_EV_GPU_CLOCK ? 0 : ts;
}

int dl_kstate_restate(struct dl_kstate *s, uint64_t ts, struct dl_sink *out)
{
	int err = 0;

	s->segment++;
	dl_kstate_forget_ended(s, ts > LATE_NS ? ts - LATE_NS : 0);
	forget_stale(s);
	for (size_t i = 0; i < s->threads.cnt && !err; i++) {
		const struct dl_kthread *t = s->threads.v[i];

		if (!t->end_ts)
			err = say_origin(s, t, ts, out);
	}
	for (size_t i = 0; i < s->facts.v.cnt && !err; i++) {
		struct dl_fact *f = &s->facts.v.v[i];

		if (!is_told_at_head(f->ev) || (f->ev->kind == DL_EV_EXEC && !lives(s, f->ev->pid)))
			continue;
		f->segment = s->segment;
		err = say(out, f->ev, time_of(f->ev, ts));
	}
	/* Behind what they are: a switch must find its thread. */
	for (size_t i = 0; i < s->threads.cnt && !err; i++) {
		const struct dl_kthread *t = s->threads.v[i];

		if (!t->end_ts)
			err = say_run(s, t, ts, out);
	}
	return err;
}

static int say_mark(struct dl_sink *out, uint64_t ts, uint32_t tid, uint32_t pid, uint32_t what, uint64_t value,
		    const char *text)
{
	struct dl_ev_mark ev = DL_EVENT_INIT(mark, DL_EV_MARK, ts, pid, tid);

	ev.h.flags = DL_HDR_RESTATED;
	ev.what = what;
	ev.value = value < INT32_MAX ? (int32_t)value : INT32_MAX;
	return dl_emit_text(out, &ev.h, text);
}

int dl_kstate_restate_marks(struct dl_kstate *s, uint64_t ts, uint64_t left_out_ns, struct dl_sink *out)
{
	char text[128] = "recording began";
	int err;

	if (left_out_ns)
		snprintf(text, sizeof(text), "what is kept begins; the recording began %llu s before",
			 (unsigned long long)(left_out_ns / DL_NS_PER_S));
	err = say_mark(out, ts, 0, 0, DL_MARK_START, 0, text);
	for (size_t i = 0; i < s->threads.cnt && !err; i++) {
		const struct dl_kthread *t = s->threads.v[i];

		if (!t->end_ts && t->run != DL_KRUN_UNKNOWN && t->since + SINCE_NS < ts)
			err = say_mark(out, ts, t->tid, t->pid, DL_MARK_SINCE, (ts - t->since) / 1000000, "");
	}
	return err ? err : say_mark(out, ts, 0, 0, DL_MARK_STATE, left_out_ns / DL_NS_PER_S, "");
}
