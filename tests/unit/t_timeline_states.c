/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Thread states from scheduler events, also where events are missing. */
#include "unit/test.h"

#include "synth/synth.h"
#include "timeline/timeline.h"
#include "trace/trace.h"

enum { MAIN = 100, THREAD = 101, CHILD = 200, STRANGER = 900, NR_READ = 0, NR_WRITE = 1 };

#define AT(ms) (MS(1000) + MS(ms))

static struct synth *new_trace(void)
{
	struct synth *s = synth_new(test_path("t.dlbpf"));

	CHECK(s);
	synth_mark(s, AT(0), DL_MARK_START, 0, "");
	synth_task(s, AT(0), MAIN, MAIN, 1, "python", DL_TF_ROOT, 0);
	return s;
}

static struct dl_timeline *build(struct synth *s)
{
	struct dl_timeline *tl = NULL;
	struct dl_trace *t = NULL;
	struct dl_diag d = {};

	CHECK_EQ(synth_finish(s), 0);
	CHECK_EQ(dl_trace_open(&t, test_path("t.dlbpf"), &d), 0);
	CHECK_EQ(dl_timeline_build(&tl, t, &d), 0);
	dl_trace_close(t);
	return tl;
}

static const struct dl_thread *thread_of(const struct dl_timeline *tl, uint32_t tid)
{
	uint64_t idx = 0;

	CHECK(dl_map_get(&tl->tids, tid, &idx));
	return &tl->threads.v[idx];
}

static int state_at(const struct dl_thread *th, uint64_t t)
{
	uint32_t i = dl_seg_before(th, t);

	return i == DL_NONE ? -1 : th->segs.v[i].state;
}

/* TASK says nothing of a running thread; it runs until 5, is blocked until the wake at 8, waits for
 * its CPU until 9. */
TEST(run_block_wake)
{
	struct synth *s = new_trace();
	struct dl_timeline *tl;
	const struct dl_thread *th;

	synth_foreign(s, STRANGER, STRANGER, "other");
	synth_run(s, 0, MAIN, MAIN, AT(2), AT(5), SYNTH_SLEEP, WAIT(NR_READ, .file_kind = DL_FILE_FIFO, .file_ino = 3));
	synth_run(s, 0, STRANGER, STRANGER, AT(5), AT(9), SYNTH_RUNNABLE, NULL);
	synth_wake(s, AT(8), STRANGER, STRANGER, MAIN, MAIN, NR_WRITE);
	synth_run(s, 0, MAIN, MAIN, AT(9), AT(10), SYNTH_SLEEP, WAIT(NR_READ));
	tl = build(s);
	th = thread_of(tl, MAIN);
	CHECK_EQ(state_at(th, AT(3)), DL_ST_RUNNING);
	CHECK_EQ(state_at(th, AT(5)), DL_ST_RUNNING);
	CHECK_EQ(state_at(th, AT(7)), DL_ST_BLOCKED);
	CHECK_EQ(state_at(th, AT(8.5)), DL_ST_RUNNABLE);
	CHECK_EQ(state_at(th, AT(9.5)), DL_ST_RUNNING);
	CHECK_EQ(dl_running_ns(th, AT(0), AT(20), false), MS(4));
	CHECK_EQ(dl_running_ns(th, AT(4), AT(9.5), true), MS(1) + MS(1.5));
	uint32_t i = dl_seg_before(th, AT(7));
	const struct dl_wait *w = dl_seg_wait(th, &th->segs.v[i]);
	CHECK(w);
	CHECK_EQ(w->wake_ts, AT(8));
	CHECK_EQ(tl->threads.v[w->waker].tid, STRANGER);
	CHECK_EQ(w->file_ino, 3);
	CHECK_EQ(th->rqs.v[th->segs.v[i + 1].ref].before, (uint32_t)(thread_of(tl, STRANGER) - tl->threads.v));
	dl_timeline_free(tl);
}

/* Segments are gapless and sorted for every thread. */
TEST(gapless)
{
	struct synth *s = new_trace();
	struct dl_timeline *tl;

	for (int i = 0; i < 50; i++) {
		synth_wake(s, AT(10 * i + 1), 0, 0, MAIN, MAIN, -1);
		synth_run(s, 0, MAIN, MAIN, AT(10 * i + 2), AT(10 * i + 5), SYNTH_SLEEP, WAIT(NR_READ));
	}
	tl = build(s);
	vec_for_each(&tl->threads, th) {
		for (uint32_t i = 1; i < th->segs.cnt; i++)
			CHECK(th->segs.v[i - 1].start < th->segs.v[i].start);
	}
	CHECK_EQ(dl_running_ns(thread_of(tl, MAIN), 0, UINT64_MAX, false), MS(150));
	dl_timeline_free(tl);
}

/* The switch-in at 12 is not in the trace, but the thread's own counts say that it was switched out
 * once more at 20 and had run for 8 ms: it began at 12. */
TEST(switch_in_is_inferred)
{
	struct synth *s = new_trace();
	struct dl_ev_switch out = { .h = { .size = sizeof(out), .kind = DL_EV_SWITCH, .ts = AT(5), .tid = MAIN, .pid = MAIN },
				    .syscall = -1, .exec_ns = MS(3), .switches = 10, .flags = DL_SW_NEXT_FOREIGN,
				    .next_tid = STRANGER, .next_pid = STRANGER };
	struct dl_timeline *tl;
	const struct dl_thread *th;

	synth_event(s, &out.h);
	out.h.ts = AT(20);
	out.exec_ns = MS(11);
	out.switches = 11;
	synth_event(s, &out.h);
	tl = build(s);
	th = thread_of(tl, MAIN);
	CHECK_EQ(state_at(th, AT(11.9)), DL_ST_RUNNABLE);
	CHECK_EQ(state_at(th, AT(12.1)), DL_ST_RUNNING);
	CHECK_EQ(tl->inferred_switches, 1);
	CHECK_EQ(tl->lost_switches, 0);
	dl_timeline_free(tl);
}

/* Two switches are missing: nothing is known in between. */
TEST(lost_switches)
{
	struct synth *s = new_trace();
	struct dl_timeline *tl;
	const struct dl_thread *th;

	synth_run(s, 0, MAIN, MAIN, AT(2), AT(5), SYNTH_SLEEP, WAIT(NR_READ));
	synth_wake(s, AT(7), 0, 0, MAIN, MAIN, -1);
	synth_run(s, 0, MAIN, MAIN, AT(8), AT(15), SYNTH_SLEEP, WAIT(NR_READ, .lost = 2));
	tl = build(s);
	th = thread_of(tl, MAIN);
	CHECK_EQ(state_at(th, AT(4)), DL_ST_RUNNING);
	CHECK_EQ(state_at(th, AT(6)), DL_ST_UNKNOWN);
	CHECK_EQ(state_at(th, AT(14)), DL_ST_UNKNOWN);
	CHECK_EQ(state_at(th, AT(15.1)), DL_ST_BLOCKED);
	CHECK_EQ(tl->lost_switches, 2);
	dl_timeline_free(tl);
}

/* A child's id that was used before names the new thread from its fork on. */
TEST(ids_are_reused)
{
	struct synth *s = new_trace();
	struct dl_timeline *tl;
	const struct dl_thread *th;

	synth_fork(s, AT(1), MAIN, MAIN, CHILD, CHILD, "first");
	synth_run(s, 1, CHILD, CHILD, AT(1.5), AT(3), SYNTH_SLEEP, WAIT(NR_READ));
	synth_exit(s, AT(4), CHILD, CHILD, 3 << 8, DL_EX_LAST);
	synth_fork(s, AT(10), MAIN, MAIN, CHILD, CHILD, "second");
	synth_run(s, 1, CHILD, CHILD, AT(10.5), AT(12), SYNTH_SLEEP, WAIT(NR_READ));
	tl = build(s);
	th = thread_of(tl, CHILD);
	CHECK_STR(th->name, "second");
	CHECK_EQ(state_at(th, AT(2)), -1);
	CHECK_EQ(state_at(th, AT(11)), DL_ST_RUNNING);
	CHECK_EQ(tl->procs.cnt, 3);
	CHECK(tl->procs.v[1].exited);
	CHECK_EQ(tl->procs.v[1].exit_status, 3 << 8);
	CHECK(!tl->procs.v[2].exited);
	CHECK_EQ(tl->procs.v[2].parent, 0);
	dl_timeline_free(tl);
}

/* What may explain a death stays, in the order of time, a stranger's too; limits are with the samples. */
TEST(refusals_are_kept_with_deaths)
{
	struct dl_ev_syscall_fail fail = { .h = { sizeof(fail), DL_EV_SYSCALL_FAIL, MAIN, AT(2), MAIN, 0, 0 }, .err = 28 };
	struct dl_ev_shm_unlink gone = { .h = { sizeof(gone), DL_EV_SHM_UNLINK, STRANGER, AT(1), STRANGER, 0,
						DL_HDR_FOREIGN }, .owner = MAIN };
	struct dl_ev_proc_limits limits = { .h = { sizeof(limits), DL_EV_PROC_LIMITS, MAIN, AT(1), MAIN, 0, 0 },
					    .nofile = 1024 };
	static const uint16_t want[] = { DL_EV_SHM_UNLINK, DL_EV_SYSCALL_FAIL, DL_EV_EXIT };
	struct synth *s = new_trace();
	struct dl_timeline *tl;
	size_t found = 0;

	synth_event_text(s, &fail.h, "/dev/shm/torch_1");
	synth_event_text(s, &gone.h, "torch_1");
	synth_event(s, &limits.h);
	synth_exit(s, AT(4), MAIN, MAIN, 1 << 8, DL_EX_LAST);
	tl = build(s);
	vec_for_each(&tl->crash, k) {
		if (k->ev->kind == DL_EV_MARK)
			continue;
		CHECK(found < sizeof(want) / sizeof(want[0]));
		CHECK_EQ(k->ev->kind, want[found]);
		found++;
	}
	CHECK_EQ(found, 3);
	CHECK_EQ(tl->env.cnt, 1);
	CHECK_EQ(((const struct dl_ev_proc_limits *)tl->env.v[0].ev)->nofile, 1024);
	dl_timeline_free(tl);
}

/* fs/select.c: the timer of a poll fires up to 0.5 % of its time-out late, but never more than 100 ms. */
TEST(a_timer_may_be_late_as_the_kernel_lets_it)
{
	struct dl_wait w = { .deadline = AT(5000) };

	w.wake_ts = w.deadline + MS(25);
	CHECK(dl_timed_out(&w, AT(0)));
	w.wake_ts = w.deadline + MS(27);
	CHECK(!dl_timed_out(&w, AT(0)));
	w.deadline = AT(60000);
	w.wake_ts = w.deadline + MS(100);
	CHECK(dl_timed_out(&w, AT(0)));
	w.wake_ts = w.deadline + MS(102);
	CHECK(!dl_timed_out(&w, AT(0)));
	w.wake_ts = w.deadline - MS(1);
	CHECK(!dl_timed_out(&w, AT(0)));
}
