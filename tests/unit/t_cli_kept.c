/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What the analysis makes of a part of a recording: the same of its threads as of the whole, and nothing
 * of the time before it. */
#include "timeline/timeline.h"
#include "unit/keep_util.h"

enum { TRAINER = 100, WORKER = 201, IDLER = 202, STARVED = 203, OLD = 90 };

#define BEGIN (100 * S)	/* of what is kept */

static struct dl_kstate *state;
static struct dl_trace_writer *w;

static int write_it(struct dl_sink *sink, const struct dl_hdr *ev)
{
	(void)sink;
	return dl_trace_write(w, ev);
}

static struct dl_sink sink = { write_it };

static void worker(uint64_t ts, uint32_t pid)
{
	struct dl_ev_fork fork = fork_ev(ts, TRAINER, pid);
	struct dl_ev_task task = task_ev(ts + S, pid, pid, TRAINER, "pt_data_worker");

	dl_kstate_event(state, &fork.h);
	task.sig_caught = DL_WORKER_SIGNALS;
	dl_kstate_event(state, &task.h);
}

/* What came before: never written. */
static void past(void)
{
	struct dl_ev_task task = task_ev(1 * S, OLD, OLD, 1, "sh");
	struct dl_ev_switch ev;
	struct dl_ev_wake wake = DL_EVENT_INIT(wake, DL_EV_WAKE, 99 * S, TRAINER, TRAINER);

	CHECK_OK(dl_kstate_new(&state));
	task.flags = DL_TF_ROOT;
	dl_kstate_event(state, &task.h);
	task = task_ev(1 * S, TRAINER, TRAINER, OLD, "python3");
	dl_kstate_event(state, &task.h);
	for (uint32_t pid = WORKER; pid <= STARVED; pid++)
		worker(10 * S + (pid - WORKER) * 10 * MS, pid);
	ev = in_ev(98 * S, WORKER, WORKER);
	dl_kstate_event(state, &ev.h);
	ev = out_ev(20 * S, IDLER, IDLER, 1, 3 * S);
	dl_kstate_event(state, &ev.h);
	ev = out_ev(97 * S, STARVED, STARVED, 1, 4 * S);
	dl_kstate_event(state, &ev.h);
	wake.wakee_tid = wake.wakee_pid = STARVED;
	dl_kstate_event(state, &wake.h);
}

static struct dl_timeline *kept(void)
{
	const char *path = test_path("kept.dlbpf");
	struct dl_timeline *tl;
	struct dl_ev_switch ev;
	struct dl_diag d;
	struct dl_trace *t;

	past();
	w = open_writer(path, NULL, NULL);
	CHECK_OK(dl_kstate_restate(state, BEGIN, &sink));
	CHECK_OK(dl_kstate_restate_marks(state, BEGIN, 99 * S, &sink));
	ev = out_ev(BEGIN + S, WORKER, WORKER, 1, 60 * S);
	CHECK_OK(dl_trace_write(w, &ev.h));
	ev = out_ev(BEGIN + 2 * S, TRAINER, TRAINER, 1, 60 * S);
	CHECK_OK(dl_trace_write(w, &ev.h));
	CHECK_OK(dl_trace_writer_close(w, NULL));
	t = open_trace(path);
	CHECK_OK(dl_timeline_build(&tl, t, &d));
	dl_trace_close(t);
	dl_kstate_free(state);
	return tl;
}

static const struct dl_thread *thread(const struct dl_timeline *tl, uint32_t tid)
{
	uint64_t idx;

	CHECK(dl_map_get(&tl->tids, tid, &idx));
	return &tl->threads.v[idx];
}

static uint64_t state_ns(const struct dl_thread *th, enum dl_state want, uint64_t from, uint64_t to)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < th->segs.cnt; i++) {
		uint64_t start = th->segs.v[i].start, end = dl_seg_end(th, i);

		start = start > from ? start : from;
		end = end < to ? end : to;
		if (th->segs.v[i].state == want && start < end)
			sum += end - start;
	}
	return sum;
}

TEST(it_begins_where_it_is_kept_from)
{
	struct dl_timeline *tl = kept();

	CHECK_EQ(tl->start, BEGIN);
	CHECK_EQ(tl->end, BEGIN + 2 * S);
	dl_timeline_free(tl);
}

TEST(nobody_did_anything_before)
{
	struct dl_timeline *tl = kept();

	vec_for_each(&tl->threads, th) {
		CHECK_EQ(state_ns(th, DL_ST_RUNNING, 0, BEGIN), 0);
		CHECK_EQ(state_ns(th, DL_ST_RUNNABLE, 0, BEGIN), 0);
		CHECK_EQ(state_ns(th, DL_ST_BLOCKED, 0, BEGIN), 0);
	}
	dl_timeline_free(tl);
}

TEST(what_they_do_from_the_begin_on)
{
	struct dl_timeline *tl = kept();
	const struct dl_thread *th = thread(tl, WORKER);

	CHECK_EQ(state_ns(th, DL_ST_RUNNING, BEGIN, BEGIN + S), S);
	CHECK_EQ(state_ns(th, DL_ST_BLOCKED, BEGIN + S, BEGIN + 2 * S), S);
	th = thread(tl, IDLER);
	CHECK_EQ(state_ns(th, DL_ST_BLOCKED, BEGIN, BEGIN + 2 * S), 2 * S);
	CHECK_EQ(th->waits.v[th->waits.cnt - 1].file_ino, IDLER);
	CHECK_EQ(th->waits.v[th->waits.cnt - 1].syscall, 202);
	th = thread(tl, STARVED);
	CHECK_EQ(state_ns(th, DL_ST_RUNNABLE, BEGIN, BEGIN + 2 * S), 2 * S);
	CHECK_EQ(tl->lost_switches, 0);
	dl_timeline_free(tl);
}

TEST(who_they_are)
{
	struct dl_timeline *tl = kept();
	uint64_t idx, parent;

	CHECK(dl_map_get(&tl->pids, TRAINER, &parent));
	for (uint32_t pid = WORKER; pid <= STARVED; pid++) {
		const struct dl_proc *p;

		CHECK(dl_map_get(&tl->pids, pid, &idx));
		p = &tl->procs.v[idx];
		CHECK_EQ(p->role, DL_ROLE_WORKER);
		CHECK_EQ(p->parent, parent);
		CHECK_EQ(p->start, 10 * S + (pid - WORKER) * 10 * MS);	/* when it was made */
		CHECK_EQ(p->index, pid - WORKER);
		CHECK_EQ(p->nspid, pid % 100);
		CHECK_STR(thread(tl, pid)->name, "pt_data_worker");
	}
	CHECK_EQ(tl->procs.v[parent].role, DL_ROLE_TRAINER);
	dl_timeline_free(tl);
}
