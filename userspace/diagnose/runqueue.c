/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What a wait for a CPU is charged to: quota, the latency of the wait before it, or whoever had it. */
#include "diagnose/walk.h"

#include <stdio.h>

#define LATENCY_MAX_NS 2000000ULL	/* a longer wait for an idle CPU is not wake-up latency */
#define JUST_WOKEN_NS 1000000ULL
#define MOVED_NS 300000ULL	/* a wake-up that ends on another CPU after longer was queued on one */
#define PASSING_NS 500000ULL	/* a kernel thread has a CPU for a moment; longer waits are not for it */

static const struct dl_wait *wait_before(const struct dl_thread *th, uint32_t seg)
{
	return seg && th->segs.v[seg - 1].state == DL_ST_BLOCKED ? dl_seg_wait(th, &th->segs.v[seg - 1]) : NULL;
}

static bool just_woke(const struct dl_thread *th, uint32_t wakee, uint64_t t)
{
	for (size_t i = dl_woke_at(th, t + 1); i-- > 0 && th->woke.v[i].ts + JUST_WOKEN_NS >= t;) {
		if (th->woke.v[i].wakee == wakee)
			return true;
	}
	return false;
}

/* A foreign thread that had the CPU. Of a wait its begin and its end are seen: the thread that took
 * the CPU and the one that had it last. A kernel thread that only passed by is not the reason while
 * there is another. */
static uint32_t foreign_holder(const struct dl_timeline *tl, const struct dl_rq *rq, uint64_t whole)
{
	uint32_t seen[2] = { rq->before, rq->preempted_by }, kthread = DL_NONE;

	for (int i = 0; i < 2; i++) {
		if (seen[i] == DL_NONE || seen[i] == DL_IDLE || tl->threads.v[seen[i]].proc != DL_NONE)
			continue;
		if (!tl->threads.v[seen[i]].kthread)
			return seen[i];
		kthread = kthread == DL_NONE ? seen[i] : kthread;
	}
	return whole < PASSING_NS ? kthread : DL_NONE;
}

/* A forked worker begins on its trainer's CPU, beside the making of the next one and the end of the one before.
 * What waits for that waits for start-up, which workers that stay alive would not need; fewer workers would
 * not help it. */
static bool holder_starts(const struct dl_timeline *tl, uint32_t holder, uint64_t t)
{
	uint64_t unused;

	return holder != DL_NONE && tl->threads.v[holder].proc != DL_NONE &&
	       dl_work_cause(tl, holder, t, &unused) == DL_CAUSE_STARTUP;
}

static void charge_held(struct dl_walk *w, uint32_t thread, bool affinity, uint32_t who, uint64_t start, uint64_t end)
{
	char text[96] = "ready to run, who had the CPU is not known";
	bool startup = holder_starts(w->tl, who, end);
	struct dl_what what = { .text = text, .affinity = affinity && !startup };

	if (who != DL_NONE) {
		what.kind = DL_EVI_THREAD;
		what.id = who;
		/* Who held the CPUs is said of contention alone. */
		what.own_tree = !startup && w->tl->threads.v[who].proc != DL_NONE;
	}
	if (who != DL_NONE && w->want_steps) {
		const struct dl_thread *th = &w->tl->threads.v[who];

		snprintf(text, sizeof(text), "ready to run, %s (tid %u%s) had the CPU", th->name[0] ? th->name : "a thread",
			 th->tid, th->proc == DL_NONE ? ", outside the job" : "");
	}
	dl_charge(w, startup ? DL_CAUSE_STARTUP : DL_CAUSE_CPU_CONTENTION, thread, start, end, &what);
}

/* Which CPU the thread waited for: a preempted one that which it lost, a woken one (the wake does not
 * say) that on which it ran next. It may have been moved in between. */
static uint16_t awaited_cpu(const struct dl_thread *th, uint32_t seg)
{
	if (th->rqs.v[th->segs.v[seg].ref].preempted_by != DL_NONE)
		return th->segs.v[seg].cpu;
	return seg + 1 < th->segs.cnt && th->segs.v[seg + 1].state == DL_ST_RUNNING ? th->segs.v[seg + 1].cpu :
		DL_CPU_NONE;
}

/* The run of one of the job's threads, on whatever CPU, that holds the instant just before t; NULL none. */
static const struct dl_cpu_run *any_run(const struct dl_timeline *tl, uint64_t t)
{
	vec_for_each(&tl->cpus, c) {
		size_t i = dl_run_at(c, t);

		if (i && c->runs.v[i - 1].end >= t)
			return &c->runs.v[i - 1];
	}
	return NULL;
}

/* The CPU that was waited for was not in the job's hands. A stranger had it; where none was seen the thread
 * has been moved from CPU to CPU while it waited, and whoever of the job ran then had one of them. */
static void charge_rest(struct dl_walk *w, uint32_t thread, bool affinity, uint32_t foreign, bool idle, uint64_t start,
			uint64_t end)
{
	while (end > start && foreign == DL_NONE && !idle) {
		const struct dl_cpu_run *run = any_run(w->tl, end);
		uint64_t from = run && run->start > start ? run->start : start;

		if (!run)
			break;
		charge_held(w, thread, affinity, run->thread, from, end);
		end = from;
	}
	charge_held(w, thread, affinity, foreign, start, end);
}

/* When the job's own threads had the CPU is known exactly; in between somebody else had it. */
static void charge_contention(struct dl_walk *w, uint32_t thread, uint32_t seg, uint64_t start, uint64_t end)
{
	const struct dl_thread *th = &w->tl->threads.v[thread];
	const struct dl_rq *rq = &th->rqs.v[th->segs.v[seg].ref];
	uint32_t foreign = foreign_holder(w->tl, rq, dl_seg_end(th, seg) - th->segs.v[seg].start);
	uint16_t cpu = awaited_cpu(th, seg);
	const struct dl_cpu *c = cpu < w->tl->cpus.cnt ? &w->tl->cpus.v[cpu] : NULL;
	bool affinity = rq->cpus_allowed && rq->cpus_allowed < w->tl->cpus_online;

	/* From an idle CPU: nobody of the job had it, whoever ran elsewhere. */
	if (rq->before == DL_IDLE && foreign == DL_NONE)
		c = NULL;

	for (size_t i = c ? dl_run_at(c, end) : 0; i-- > 0 && end > start;) {
		const struct dl_cpu_run *run = &c->runs.v[i];
		uint64_t from = run->start > start ? run->start : start;

		if (run->end <= start)
			break;
		if (run->end < end) {
			charge_rest(w, thread, affinity, foreign, false, run->end, end);
			end = run->end;
		}
		charge_held(w, thread, affinity, run->thread, from, end);
		end = from;
	}
	charge_rest(w, thread, affinity, foreign, rq->before == DL_IDLE, start, end);
}

/* Has the waker had the CPU all the time since its wake, so that the thread got it from nobody else? */
static bool straight_from(const struct dl_timeline *tl, uint32_t waker, uint16_t cpu, uint64_t woken, uint64_t got)
{
	const struct dl_cpu *c = cpu < tl->cpus.cnt ? &tl->cpus.v[cpu] : NULL;
	size_t i = c ? dl_run_at(c, got) : 0;

	/* A waker outside the job has no runs here. */
	if (!c || tl->threads.v[waker].proc == DL_NONE)
		return true;
	return i && c->runs.v[i - 1].thread == waker && c->runs.v[i - 1].start <= woken;
}

bool dl_is_latency(const struct dl_timeline *tl, uint32_t thread, uint32_t seg)
{
	const struct dl_thread *th = &tl->threads.v[thread];
	const struct dl_rq *rq = &th->rqs.v[th->segs.v[seg].ref];
	const struct dl_wait *wait = wait_before(th, seg);
	uint64_t start = th->segs.v[seg].start, end = dl_seg_end(th, seg);
	uint16_t cpu = awaited_cpu(th, seg);

	if (!wait || rq->throttled || rq->fresh || rq->preempted_by != DL_NONE || end - start >= LATENCY_MAX_NS)
		return false;
	/* Pulled to a CPU that went idle: until then it was queued on another one. */
	if (rq->before == DL_IDLE)
		return end - start < MOVED_NS || cpu == th->segs.v[seg - 1].cpu;
	return rq->before == wait->waker && wait->waker != DL_NONE && straight_from(tl, wait->waker, cpu, start, end);
}

/* What the latency of a wake-up is charged to: what the wait was. */
static enum dl_cause latency_cause(const struct dl_timeline *tl, uint32_t thread, uint32_t seg, enum dl_why why)
{
	const struct dl_thread *th = &tl->threads.v[thread];
	const struct dl_wait *wait = wait_before(th, seg);
	uint32_t waker = wait->waker;
	uint64_t unused;
	enum dl_cause work = dl_work_cause(tl, thread, th->segs.v[seg].start, &unused);

	if (why == DL_WHY_KERNEL)
		return work;
	if (why == DL_WHY_DATA && (work == DL_CAUSE_STARTUP || th->role == DL_ROLE_WORKER_CHILD))
		return work;
	if (waker == DL_NONE || waker == DL_IDLE || dl_timed_out(wait, th->segs.v[seg - 1].start))
		return dl_why_cause(why);
	if ((why == DL_WHY_DATA || why == DL_WHY_CHILD) && tl->threads.v[waker].proc == DL_NONE)
		return tl->threads.v[waker].kthread ? dl_why_cause(why) : DL_CAUSE_EXTERNAL;
	if (why == DL_WHY_CHILD && tl->threads.v[waker].role == DL_ROLE_WORKER_CHILD)
		return DL_CAUSE_DECODE;
	if (why == DL_WHY_LOCK && th->role != DL_ROLE_WORKER && th->role != DL_ROLE_LOADER_THREAD)
		return dl_work_cause(tl, waker, th->segs.v[seg].start, &unused);
	return dl_why_cause(why);
}

/* Did the thread lose its CPU to one of the job that it had just woken, and until when did that one have it? */
static bool gave_way(const struct dl_timeline *tl, const struct dl_thread *th, uint32_t seg, uint64_t *ret_back)
{
	const struct dl_rq *rq = &th->rqs.v[th->segs.v[seg].ref];
	uint64_t start = th->segs.v[seg].start;
	uint16_t cpu = th->segs.v[seg].cpu;
	size_t i;

	if (rq->preempted_by == DL_NONE || rq->preempted_by == DL_IDLE ||
	    tl->threads.v[rq->preempted_by].proc == DL_NONE || !just_woke(th, rq->preempted_by, start))
		return false;
	*ret_back = UINT64_MAX;
	if (cpu >= tl->cpus.cnt)
		return true;
	i = dl_run_at(&tl->cpus.v[cpu], start);
	if (i < tl->cpus.v[cpu].runs.cnt && tl->cpus.v[cpu].runs.v[i].thread == rq->preempted_by &&
	    tl->cpus.v[cpu].runs.v[i].start == start)
		*ret_back = tl->cpus.v[cpu].runs.v[i].end;
	return true;
}

void dl_charge_latency(struct dl_walk *w, uint32_t thread, uint32_t seg, enum dl_why why, uint64_t start, uint64_t end)
{
	struct dl_what what = { .text = "waking up", .kind = DL_EVI_THREAD, .id = thread };

	if (dl_api_at(w->tl, &w->tl->threads.v[thread], end))
		dl_charge_running(w, thread, start, end);
	else
		dl_charge(w, latency_cause(w->tl, thread, seg, why), thread, start, end, &what);
}

void dl_charge_runnable(struct dl_walk *w, uint32_t thread, uint32_t seg, uint64_t start, uint64_t end)
{
	uint64_t back, unused;
	const struct dl_thread *th = &w->tl->threads.v[thread];
	const struct dl_rq *rq = &th->rqs.v[th->segs.v[seg].ref];
	struct dl_what what = { .text = "ready to run, its cgroup had used up its CPU time", .kind = DL_EVI_THREAD,
				.id = thread };

	if (rq->throttled) {
		dl_charge(w, DL_CAUSE_CPU_QUOTA, thread, start, end, &what);
		return;
	}
	if (rq->fresh && (rq->before == DL_IDLE || dl_seg_end(th, seg) - th->segs.v[seg].start < LATENCY_MAX_NS)) {
		what.text = "new thread, ready to run";
		dl_charge(w, th->role == DL_ROLE_WORKER_CHILD ? DL_CAUSE_DECODE : DL_CAUSE_STARTUP, thread, start, end,
			  &what);
		return;
	}
	if (gave_way(w->tl, th, seg, &back)) {
		enum dl_cause cause = dl_work_cause(w->tl, rq->preempted_by, back < end ? back : end, &unused);

		/* Behind the wakee's run others had it. */
		if (back < end)
			charge_contention(w, thread, seg, back > start ? back : start, end);
		/* The trainer, woken by a thread on the path, takes what it is handed. */
		if (cause == DL_CAUSE_HOST)
			cause = DL_CAUSE_IPC;
		what.text = "gave its CPU to a thread that it had just woken";
		what.id = rq->preempted_by;
		dl_charge(w, cause, thread, start, back < end ? back : end, &what);
		return;
	}
	charge_contention(w, thread, seg, start, end);
}
