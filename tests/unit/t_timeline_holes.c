/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* A hole in the recording, from 20 to 40: what threads did before it and behind it holds, what they did
 * in it is not known. */
#include <fcntl.h>

#include "unit/test.h"

#include "synth/synth.h"
#include "timeline/timeline.h"
#include "trace/trace.h"

enum { MAIN = 100, THREAD = 101, CHILD = 200, NR_READ = 0, NR_WRITE = 1, NR_FUTEX = 202 };

#define AT(ms) (MS(1000) + MS(ms))
#define ON_PIPE WAIT(NR_READ, .file_kind = DL_FILE_FIFO, .file_ino = 3)

static void hole(struct synth *s, double from, double to, uint64_t cnt, uint32_t shed)
{
	struct dl_ev_loss ev = {
		.h = { .size = sizeof(ev), .kind = DL_EV_LOSS, .ts = AT(from), .cpu = DL_CPU_NONE },
		.cause = DL_LOSS_RING_FULL, .kind = DL_EV_SWITCH, .cnt = cnt, .first = AT(from), .last = AT(to), .shed = shed,
	};

	synth_event(s, &ev.h);
}

static struct synth *new_trace(void)
{
	struct synth *s = synth_new(test_path("t.dlbpf"));

	CHECK(s);
	synth_mark(s, AT(0), DL_MARK_START, 0, "");
	synth_task(s, AT(0), MAIN, MAIN, 1, "python", DL_TF_ROOT, 0);
	synth_task(s, AT(0), THREAD, MAIN, 1, "python", 0, 0);
	return s;
}

/* The trace ends at 100. */
static struct dl_timeline *build(struct synth *s)
{
	struct dl_timeline *tl = NULL;
	struct dl_trace *t = NULL;
	struct dl_diag d = {};

	synth_mark(s, AT(100), DL_MARK_STOP, 0, "");
	CHECK_EQ(synth_finish(s), 0);
	CHECK_EQ(dl_trace_open(&t, test_path("t.dlbpf"), &d), 0);
	CHECK_EQ(dl_timeline_build(&tl, t, &d), 0);
	dl_trace_close(t);
	vec_for_each(&tl->threads, th) {
		for (size_t i = 1; i < th->segs.cnt; i++)
			CHECK(th->segs.v[i - 1].start < th->segs.v[i].start);
	}
	return tl;
}

static const struct dl_thread *thread_of(const struct dl_timeline *tl, uint32_t tid)
{
	uint64_t idx = 0;

	CHECK(dl_map_get(&tl->tids, tid, &idx));
	return &tl->threads.v[idx];
}

static int state_at(const struct dl_thread *th, double ms)
{
	uint32_t i = dl_seg_before(th, AT(ms));

	return i == DL_NONE ? -1 : th->segs.v[i].state;
}

#define CHECK_STATE(th, ms, state) CHECK_EQ(state_at(th, ms), state)

static uint64_t unknown_ns(const struct dl_thread *th)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < th->segs.cnt; i++)
		sum += th->segs.v[i].state == DL_ST_UNKNOWN ? dl_seg_end(th, i) - th->segs.v[i].start : 0;
	return sum;
}

/* MAIN is blocked from 10 on; in the hole it ran five times; at 50 it is woken, so that it was blocked since the end of the
 * hole; it runs from 51 to 52. */
TEST(known_up_to_the_hole_and_behind_it)
{
	struct synth *s = new_trace();
	const struct dl_thread *th;
	struct dl_timeline *tl;
	const struct dl_wait *w;

	synth_run(s, 0, MAIN, MAIN, AT(5), AT(10), SYNTH_SLEEP, ON_PIPE);
	hole(s, 20, 40, 11, DL_SHED_SWITCH);
	synth_run(s, 1, THREAD, MAIN, AT(45), AT(51), SYNTH_SLEEP, ON_PIPE);
	synth_wake(s, AT(50), THREAD, MAIN, MAIN, MAIN, NR_WRITE);
	synth_run(s, 0, MAIN, MAIN, AT(51), AT(52), SYNTH_SLEEP, WAIT(NR_FUTEX, .lost = 5));
	tl = build(s);
	th = thread_of(tl, MAIN);
	CHECK_STATE(th, 8, DL_ST_RUNNING);
	CHECK_STATE(th, 19, DL_ST_BLOCKED);
	CHECK_STATE(th, 20, DL_ST_BLOCKED);
	CHECK_STATE(th, 20.1, DL_ST_UNKNOWN);
	CHECK_STATE(th, 39.9, DL_ST_UNKNOWN);
	CHECK_STATE(th, 40.1, DL_ST_BLOCKED);
	CHECK_STATE(th, 50.5, DL_ST_RUNNABLE);
	CHECK_STATE(th, 51.5, DL_ST_RUNNING);
	CHECK_STATE(th, 60, DL_ST_BLOCKED);
	CHECK_EQ(unknown_ns(th), MS(20) + 1);	/* with the instant of the last loss */
	w = dl_seg_wait(th, &th->segs.v[dl_seg_before(th, AT(45))]);
	CHECK(w);
	CHECK_EQ(w->wake_ts, AT(50));
	CHECK_EQ(tl->threads.v[w->waker].tid, THREAD);
	CHECK_EQ(w->syscall, -2);	/* in what is not known */
	/* the wait that it had begun before the hole did not end by the wake at 50 */
	w = dl_seg_wait(th, &th->segs.v[dl_seg_before(th, AT(15))]);
	CHECK(w);
	CHECK_EQ(w->wake_ts, 0);
	CHECK_EQ(w->waker, DL_NONE);
	CHECK_EQ(tl->lost_switches, 5);
	CHECK_EQ(tl->holes.cnt, 1);
	dl_timeline_free(tl);
}

/* Its own counter says that it slept all the time. */
TEST(a_sleeper_is_not_hurt)
{
	struct synth *s = new_trace();
	const struct dl_thread *th;
	struct dl_timeline *tl;

	synth_run(s, 0, MAIN, MAIN, AT(5), AT(10), SYNTH_SLEEP, ON_PIPE);
	synth_run(s, 1, THREAD, MAIN, AT(5), AT(51), SYNTH_SLEEP, ON_PIPE);
	hole(s, 20, 40, 11, DL_SHED_SWITCH);
	synth_wake(s, AT(50), THREAD, MAIN, MAIN, MAIN, NR_WRITE);
	synth_run(s, 0, MAIN, MAIN, AT(51), AT(52), SYNTH_SLEEP, ON_PIPE);
	tl = build(s);
	th = thread_of(tl, MAIN);
	CHECK_STATE(th, 30, DL_ST_BLOCKED);
	CHECK_STATE(th, 50.5, DL_ST_RUNNABLE);
	CHECK_EQ(unknown_ns(th), 0);
	CHECK_EQ(dl_seg_wait(th, &th->segs.v[dl_seg_before(th, AT(30))])->wake_ts, AT(50));
	dl_timeline_free(tl);
}

/* Both run when the hole begins, and were switched out in it. */
TEST(runners_are_unknown_from_the_hole_on)
{
	struct synth *s = new_trace();
	const struct dl_thread *th;
	struct dl_timeline *tl;

	synth_run(s, 0, MAIN, MAIN, AT(2), AT(4), SYNTH_SLEEP, ON_PIPE);
	synth_switch(s, AT(10), 0, 0, 0, MAIN, MAIN, 0, NULL);
	hole(s, 20, 40, 3, DL_SHED_SWITCH);
	synth_switch(s, AT(60), 0, 0, 0, MAIN, MAIN, 0, NULL);
	synth_switch(s, AT(65), 0, MAIN, MAIN, 0, 0, SYNTH_SLEEP, WAIT(NR_FUTEX, .lost = 1));
	tl = build(s);
	th = thread_of(tl, MAIN);
	CHECK_STATE(th, 15, DL_ST_RUNNING);
	CHECK_STATE(th, 25, DL_ST_UNKNOWN);
	CHECK_STATE(th, 59, DL_ST_UNKNOWN);
	CHECK_STATE(th, 62, DL_ST_RUNNING);
	CHECK_STATE(th, 70, DL_ST_BLOCKED);
	CHECK_EQ(unknown_ns(th), MS(40));
	dl_timeline_free(tl);
}

/* The recorder looks at the thread, which sleeps in this call, and has used so much CPU time. */
static void look(struct synth *s, int32_t syscall, uint64_t exec_ns)
{
	struct dl_ev_task ev = { .h = { .size = sizeof(ev), .kind = DL_EV_TASK, .ts = AT(70), .pid = MAIN, .tid = THREAD,
					.cpu = DL_CPU_NONE }, .state = 'S', .syscall = syscall, .flags = DL_TF_LATE };

	ev.exec_ns = exec_ns;
	synth_event(s, &ev.h);
}

/* Nobody is met again: neither is known from the hole on, but where the recorder has looked and the CPU time is the same. */
TEST(not_met_again)
{
	struct synth *s = new_trace();
	const struct dl_thread *th;
	struct dl_timeline *tl;

	synth_run(s, 0, MAIN, MAIN, AT(5), AT(10), SYNTH_SLEEP, ON_PIPE);
	synth_run(s, 1, THREAD, MAIN, AT(6), AT(10), SYNTH_SLEEP, ON_PIPE);
	hole(s, 20, 40, 3, DL_SHED_WAKE);
	look(s, NR_READ, MS(4));
	tl = build(s);
	th = thread_of(tl, MAIN);
	CHECK_STATE(th, 19, DL_ST_BLOCKED);
	CHECK_STATE(th, 21, DL_ST_UNKNOWN);
	CHECK_STATE(th, 99, DL_ST_UNKNOWN);
	th = thread_of(tl, THREAD);
	CHECK_STATE(th, 30, DL_ST_BLOCKED);
	CHECK_STATE(th, 99, DL_ST_BLOCKED);
	CHECK_EQ(unknown_ns(th), 0);
	dl_timeline_free(tl);
}

/* It has run since, and sleeps in another call when the recorder looks. */
TEST(a_look_tells_the_new_wait)
{
	struct synth *s = new_trace();
	const struct dl_thread *th;
	struct dl_timeline *tl;

	synth_run(s, 1, THREAD, MAIN, AT(6), AT(10), SYNTH_SLEEP, ON_PIPE);
	hole(s, 20, 40, 3, DL_SHED_SWITCH);
	look(s, NR_FUTEX, MS(9));
	tl = build(s);
	th = thread_of(tl, THREAD);
	CHECK_STATE(th, 19, DL_ST_BLOCKED);
	CHECK_STATE(th, 30, DL_ST_UNKNOWN);
	CHECK_STATE(th, 69, DL_ST_UNKNOWN);
	CHECK_STATE(th, 71, DL_ST_BLOCKED);
	CHECK_EQ(dl_seg_wait(th, &th->segs.v[dl_seg_before(th, AT(71))])->syscall, NR_FUTEX);
	dl_timeline_free(tl);
}

/* Its last switch is missing, its EXIT is not; and one is born in the hole. */
TEST(births_and_ends_in_the_hole)
{
	struct synth *s = new_trace();
	const struct dl_thread *th;
	struct dl_timeline *tl;

	synth_run(s, 0, MAIN, MAIN, AT(5), AT(10), SYNTH_SLEEP, ON_PIPE);
	synth_run(s, 1, THREAD, MAIN, AT(6), AT(10), SYNTH_SLEEP, ON_PIPE);
	hole(s, 20, 40, 30, DL_SHED_SWITCH);
	synth_exit(s, AT(30), THREAD, MAIN, 0, 0);
	synth_fork(s, AT(35), MAIN, MAIN, CHILD, CHILD, "python");
	synth_run(s, 1, CHILD, CHILD, AT(50), AT(52), SYNTH_SLEEP, WAIT(NR_READ, .lost = 4));
	tl = build(s);
	th = thread_of(tl, THREAD);
	CHECK_STATE(th, 19, DL_ST_BLOCKED);
	CHECK_STATE(th, 25, DL_ST_UNKNOWN);
	CHECK_STATE(th, 31, DL_ST_GONE);
	CHECK_EQ(th->end, AT(30));
	th = thread_of(tl, CHILD);
	CHECK_STATE(th, 60, DL_ST_BLOCKED);
	CHECK_STATE(th, 51, DL_ST_RUNNING);
	CHECK(th->segs.v[0].start >= AT(35));
	dl_timeline_free(tl);
}

/* What was left out on purpose, and losses of other things, make no hole. */
TEST(only_switches_and_wakes_make_holes)
{
	struct synth *s = new_trace();
	const struct dl_thread *th;
	struct dl_timeline *tl;

	synth_run(s, 0, MAIN, MAIN, AT(5), AT(10), SYNTH_SLEEP, ON_PIPE);
	hole(s, 20, 40, 3, DL_SHED_SAMPLE_USER);
	hole(s, 20, 40, 3, DL_SHED_NONE);
	tl = build(s);
	th = thread_of(tl, MAIN);
	CHECK_EQ(tl->holes.cnt, 0);
	CHECK_STATE(th, 30, DL_ST_BLOCKED);
	CHECK_STATE(th, 99, DL_ST_BLOCKED);
	dl_timeline_free(tl);
}

/* Holes of two rings that overlap are one; of two that do not, what lies between them counts. */
TEST(two_holes)
{
	struct synth *s = new_trace();
	const struct dl_thread *th;
	struct dl_timeline *tl;

	synth_run(s, 0, MAIN, MAIN, AT(5), AT(10), SYNTH_SLEEP, ON_PIPE);
	hole(s, 20, 30, 3, DL_SHED_SWITCH);
	hole(s, 25, 40, 4, DL_SHED_WAKE);
	synth_wake(s, AT(44), 0, 0, MAIN, MAIN, -1);
	synth_run(s, 0, MAIN, MAIN, AT(45), AT(50), SYNTH_SLEEP, WAIT(NR_READ, .lost = 1));
	hole(s, 60, 70, 9, DL_SHED_SWITCH);
	synth_wake(s, AT(79), 0, 0, MAIN, MAIN, -1);
	synth_run(s, 0, MAIN, MAIN, AT(80), AT(90), SYNTH_SLEEP, WAIT(NR_READ, .lost = 2));
	tl = build(s);
	th = thread_of(tl, MAIN);
	CHECK_EQ(tl->holes.cnt, 2);
	CHECK_STATE(th, 19, DL_ST_BLOCKED);
	CHECK_STATE(th, 30, DL_ST_UNKNOWN);
	CHECK_STATE(th, 43, DL_ST_BLOCKED);
	CHECK_STATE(th, 47, DL_ST_RUNNING);
	CHECK_STATE(th, 55, DL_ST_BLOCKED);
	CHECK_STATE(th, 65, DL_ST_UNKNOWN);
	CHECK_STATE(th, 85, DL_ST_RUNNING);
	CHECK_STATE(th, 95, DL_ST_BLOCKED);
	CHECK_EQ(unknown_ns(th), MS(20) + 1 + MS(10) + 1);
	dl_timeline_free(tl);
}

/* --- random schedules ---------------------------------------------------------------------------- */

enum { THREADS = 5, CPUS = 2, STEPS = 400 };

static uint64_t rng_state;

static uint32_t rnd(uint32_t below)
{
	rng_state = rng_state * 6364136223846793005ULL + 1442695040888963407ULL;
	return (uint32_t)((rng_state >> 33) % below);
}

static uint32_t tid_of(int t)
{
	return t < 0 ? 0 : (uint32_t)(MAIN + t);
}

static uint32_t pid_of(int t)
{
	return t < 0 ? 0 : MAIN;
}

/* One that could have been: who is blocked is woken before it gets a CPU, and has one at most. */
static void random_schedule(struct synth *s)
{
	enum { BLOCKED, WAITS, RUNS } state[THREADS] = {};
	int on[CPUS] = { -1, -1 };
	uint64_t now = AT(1);

	for (int i = 0; i < STEPS; i++) {
		const int cpu = (int)rnd(CPUS), was = on[cpu], t = (int)rnd(THREADS);
		const bool sleeps = rnd(3);

		now += 1000 + rnd(400000);
		if (state[t] == BLOCKED) {
			synth_wake(s, now, tid_of(was), pid_of(was), tid_of(t), MAIN, was < 0 ? -1 : NR_WRITE);
			state[t] = WAITS;
		} else if (state[t] == WAITS) {
			synth_switch(s, now, (uint32_t)cpu, tid_of(was), pid_of(was), tid_of(t), MAIN,
				     sleeps ? SYNTH_SLEEP : SYNTH_RUNNABLE, ON_PIPE);
			if (was >= 0)
				state[was] = sleeps ? BLOCKED : WAITS;
			state[t] = RUNS;
			on[cpu] = t;
		}
	}
}

/* The trace without the switches and wakes in the hole, of which a LOSS tells; of all CPUs (-1), or of one. */
static void cut_hole(const char *from, const char *to, uint64_t start, uint64_t end, int cpu)
{
	struct dl_ev_loss loss = { .h = { .size = sizeof(loss), .kind = DL_EV_LOSS, .ts = start, .cpu = DL_CPU_NONE },
				   .cause = DL_LOSS_RING_FULL, .kind = DL_EV_SWITCH, .first = start, .last = end,
				   .shed = DL_SHED_SWITCH };
	const struct dl_hdr *ev;
	struct dl_trace_writer *w;
	struct dl_diag d = {};
	struct dl_trace *t;

	CHECK_OK(dl_trace_open(&t, from, &d));
	CHECK_OK(dl_trace_writer_open(&w, open(to, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), &dl_trace_info(t)->meta, NULL, &d));
	while (dl_trace_next(t, &ev) > 0) {
		const bool sched = (ev->kind == DL_EV_SWITCH || ev->kind == DL_EV_WAKE) && (cpu < 0 || ev->cpu == cpu);

		loss.cnt += sched && ev->ts >= start && ev->ts <= end;
		if (!sched || ev->ts < start || ev->ts > end)
			CHECK_OK(dl_trace_write(w, ev));
	}
	CHECK_OK(dl_trace_write(w, &loss.h));
	CHECK_OK(dl_trace_writer_close(w, &d));
	dl_trace_close(t);
}

static struct dl_timeline *read_timeline(const char *path)
{
	struct dl_timeline *tl = NULL;
	struct dl_trace *t = NULL;
	struct dl_diag d = {};

	CHECK_OK(dl_trace_open(&t, path, &d));
	CHECK_OK(dl_timeline_build(&tl, t, &d));
	dl_trace_close(t);
	return tl;
}

/* What is said is true: before the hole all is as without it, and at any time a state is the right one or not known. */
TEST(never_wrong)
{
	uint64_t known = 0, unknown = 0, known_in = 0, all_in = 0;

	for (uint64_t seed = 1; seed <= 300; seed++) {
		struct synth *s = new_trace();
		struct dl_timeline *a, *b;
		uint64_t start, end;

		rng_state = seed * 7919;
		for (uint32_t tid = THREAD + 1; tid < MAIN + THREADS; tid++)
			synth_task(s, AT(0), tid, MAIN, 1, "python", 0, 0);
		random_schedule(s);
		synth_mark(s, AT(100), DL_MARK_STOP, 0, "");
		CHECK_OK(synth_finish(s));
		start = AT(5 + rnd(50));
		end = start + MS(1 + rnd(20));
		cut_hole(test_path("t.dlbpf"), test_path("holed.dlbpf"), start, end, (int)(seed % 3) - 1);
		a = read_timeline(test_path("t.dlbpf"));
		b = read_timeline(test_path("holed.dlbpf"));
		for (int t = 0; t < THREADS; t++) {
			const struct dl_thread *x = thread_of(a, tid_of(t)), *y = thread_of(b, tid_of(t));

			for (double ms = 0.01; ms < 99; ms += 0.0625) {
				const int is = state_at(x, ms), said = state_at(y, ms);
				const bool in = AT(ms) > start && AT(ms) <= end && seed % 3;

				if (said == DL_ST_UNKNOWN && is != DL_ST_UNKNOWN)
					CHECK(AT(ms) > start);
				else
					CHECK_MSG(said == is || said == -1, "seed %" PRIu64 ", thread %u at %.3f ms: %d, not %d; the hole is %.3f .. %.3f",
						  seed, tid_of(t), ms, said, is, (double)(start - AT(0)) / 1e6,
						  (double)(end - AT(0)) / 1e6);
				known += said == is && AT(ms) > end;
				unknown += said != is && AT(ms) > end;
				known_in += said == is && in;
				all_in += in;
			}
		}
		dl_timeline_free(a);
		dl_timeline_free(b);
	}
	/* the hole costs more than itself only until a thread is met again */
	CHECK_MSG(unknown * 4 < known, "behind the holes %" PRIu64 " of %" PRIu64 " are unknown", unknown, known + unknown);
	/* and in a hole of one CPU of two some of what others tell is left */
	CHECK_MSG(known_in * 5 > all_in, "in holes of one CPU %" PRIu64 " of %" PRIu64 " are known", known_in, all_in);
}
