/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What is left of a time that was cut off: who woke whom long ago, calls whose kernels come late, and all that
 * roles and phases are decided from. */
#include "unit/diagnose_job.h"

#include "timeline/timeline.h"

/* --- what is looked for in a time that was cut off ------------------------------------------------- */

/* So that stages pass: a thread of the job that wakes up 1,000 times a second, and does nothing. */
static void add_noise(struct synth *s, uint64_t from, uint64_t to)
{
	for (uint64_t t = from; t < to; t += MS(1))
		synth_run(s, 15, NOISE, TRAINER, t, t + US(10), SYNTH_SLEEP, WAIT(NR_NANOSLEEP, .deadline = t + MS(1)));
}

/* The trainer has a batch at t, from a feeder, and trains on it. */
static void get_batch(struct synth *s, double t, uint32_t corr)
{
	step(s, t, corr);
	feeder_puts(s, t - 0.3, t + 0.1);
	synth_wake(s, AT(t), FEEDER, WORKER, TRAINER, TRAINER, NR_WRITE);
	synth_run(s, 0, TRAINER, TRAINER, AT(t), AT(t + 1), SYNTH_SLEEP, ON_RESULTS);
}

/* The worker hands out work, and waits for the result much later: what looks like a lock is none, since the
 * thread that ends the wait had last been woken by the one that waits. */
TEST(stages_know_who_woke_a_thread_long_ago)
{
	struct dl_diagnose_opts opts = { .worst_cnt = 5, .stage_events = 1500 };
	struct synth *s = job_new();
	struct dl_report *a;

	for (uint32_t i = 0; i <= 38; i++)	/* so that nothing else is waited for that long */
		get_batch(s, 500.0 * i + 10, i + 1);
	synth_run(s, 3, HELPER_THREAD, WORKER, AT(0.5), AT(0.6), SYNTH_SLEEP, ON_COND);
	synth_wake(s, AT(20), WORKER, WORKER, HELPER_THREAD, WORKER, NR_FUTEX);
	synth_run(s, 2, WORKER, WORKER, AT(10), AT(18800), SYNTH_SLEEP, WAIT(NR_FUTEX, .arg0 = 0x9000, .arg1 = FUTEX_COND, .flags = DL_SW_QUARTET));
	synth_wake(s, AT(19009), HELPER_THREAD, WORKER, WORKER, WORKER, NR_FUTEX);
	synth_run(s, 3, HELPER_THREAD, WORKER, AT(20), AT(5000), SYNTH_RUNNABLE, NULL);
	synth_run(s, 3, HELPER_THREAD, WORKER, AT(5001), AT(12000), SYNTH_RUNNABLE, NULL);
	synth_run(s, 3, HELPER_THREAD, WORKER, AT(12001), AT(19009.5), SYNTH_SLEEP, ON_COND);
	synth_run(s, 2, WORKER, WORKER, AT(19009), AT(19009.8), SYNTH_SLEEP, ON_INDEX);
	add_noise(s, AT(30), AT(25000));
	CHECK_EQ(synth_finish(s), 0);
	a = read_job(&opts, NULL);
	CHECK_EQ(charged(a, DL_CAUSE_LOCK), 0);
	dl_report_free(a);
	check_stages(&(struct dl_diagnose_opts){ .worst_cnt = 5 }, 1500);
}

/* A GPU that is many steps behind: its kernels start long after the calls that launched them. */
TEST(stages_know_the_calls_of_late_kernels)
{
	struct dl_diagnose_opts opts = { .worst_cnt = 5, .stage_events = 1500 };
	struct synth *s = job_new();
	struct dl_report *a;

	for (uint32_t i = 1; i <= 100; i++) {
		synth_run(s, 0, TRAINER, TRAINER, AT(200.0 * i - 199), AT(200.0 * i - 50), SYNTH_SLEEP, WAIT(NR_NANOSLEEP, .deadline = AT(200.0 * i)));
		synth_api(s, AT(2 + i), AT(2.1 + i), TRAINER, TRAINER, i, DL_CALL_LAUNCH, "cudaLaunchKernel");
		synth_kernel(s, AT(200.0 * i), AT(200.0 * i + 150), TRAINER, 0, 7, i, "late_kernel");
	}
	add_noise(s, AT(30), AT(25000));
	CHECK_EQ(synth_finish(s), 0);
	a = read_job(&opts, NULL);
	CHECK_EQ(a->devices.v[0].gap_cnt, 99);
	CHECK_EQ(charged(a, DL_CAUSE_GPU), 99 * MS(50));
	dl_report_free(a);
	check_stages(&(struct dl_diagnose_opts){ .worst_cnt = 5 }, 1500);
}

/* --- what is decided --------------------------------------------------------------------------------- */

static struct dl_timeline *read_timeline(uint64_t piece)
{
	struct dl_timeline *tl = NULL;
	struct dl_trace *t = NULL;
	struct dl_diag d = {};
	int more;

	CHECK_EQ(dl_trace_open(&t, test_path("job.dlbpf"), &d), 0);
	CHECK_EQ(dl_timeline_open(&tl, t, &d), 0);
	do {
		more = dl_timeline_read(tl, t, piece, &d);
		CHECK(more >= 0);
		CHECK_EQ(dl_timeline_settle(tl, &d), 0);
		if (more)
			CHECK_EQ(dl_timeline_cut(tl, tl->end - MS(20), &d), 0);
	} while (more);
	dl_trace_close(t);
	return tl;
}

/* Roles and phases, though nearly all that they are decided from was cut off. */
static void check_decisions(uint64_t piece)
{
	struct dl_timeline *a = read_timeline(UINT64_MAX), *b = read_timeline(piece);

	CHECK(b->cut_ts);
	CHECK_EQ(a->threads.cnt, b->threads.cnt);
	for (size_t i = 0; i < a->threads.cnt; i++) {
		if (a->threads.v[i].role != b->threads.v[i].role)
			test_fail(__FILE__, __LINE__, "tid %u is %s, not %s", a->threads.v[i].tid, dl_role_id(b->threads.v[i].role),
				  dl_role_id(a->threads.v[i].role));
		CHECK_EQ(a->threads.v[i].calls, b->threads.v[i].calls);
	}
	CHECK_EQ(a->procs.cnt, b->procs.cnt);
	for (size_t i = 0; i < a->procs.cnt; i++) {
		const struct dl_proc *x = &a->procs.v[i], *y = &b->procs.v[i];

		CHECK_EQ(x->role, y->role);
		CHECK_EQ(x->gil_addr, y->gil_addr);
		CHECK_EQ(x->result_ino, y->result_ino);
		CHECK_EQ(x->trainer, y->trainer);
		CHECK_EQ(x->feeder, y->feeder);
		CHECK_EQ(x->loader, y->loader);
		CHECK_EQ(x->index, y->index);
		CHECK_EQ(x->generation, y->generation);
		CHECK_EQ(x->ready, y->ready);
		CHECK_EQ(x->ending, y->ending);
		CHECK_EQ(x->loader_threads, y->loader_threads);
		CHECK_EQ(x->starting.cnt, y->starting.cnt);
		for (size_t k = 0; k < x->starting.cnt; k++) {
			CHECK_EQ(x->starting.v[k].start, y->starting.v[k].start);
			CHECK_EQ(x->starting.v[k].end, y->starting.v[k].end);
		}
	}
	CHECK_EQ(a->loaders.cnt, b->loaders.cnt);
	for (size_t i = 0; i < a->loaders.cnt; i++)
		CHECK_EQ(a->loaders.v[i].batch_ns, b->loaders.v[i].batch_ns);
	dl_timeline_free(a);
	dl_timeline_free(b);
}

TEST(stages_decide_jobs_as_the_whole)
{
	for (uint64_t seed = 1; seed <= 6; seed++) {
		struct job j = { .gpu = (int)(seed % 3), .epochs = 1 + (int)(seed % 4), .batches = 300, .persistent = seed % 2,
				 .manager = true, .spawn = seed > 3 };

		rng_state = seed * 17;
		write_job(&j);
		check_decisions(200);
		check_decisions(3000);
	}
}

TEST(stages_decide_random_schedules_as_the_whole)
{
	for (uint64_t seed = 1; seed <= 100; seed++) {
		struct synth *s;

		rng_state = seed * 32452843;
		s = job_new();
		synth_foreign(s, STRANGER, STRANGER, "stranger");
		random_schedule(s, 2 * EVENTS, 0);
		if (seed % 3 == 0)
			random_calls(s, 100);
		random_life(s);
		CHECK_EQ(synth_finish(s), 0);
		check_decisions(100);
	}
}
