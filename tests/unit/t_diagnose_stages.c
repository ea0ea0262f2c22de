/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * A trace that is explained stage by stage gives the report that it gives when all of it is in memory: to
 * the nanosecond, with every step of every chain and every word of evidence, for whatever size of the
 * stages. And what is held does not grow with the trace.
 */
#include "unit/diagnose_job.h"

#include <signal.h>

static void check_job(struct job *j, const struct dl_diagnose_opts *opts)
{
	static const uint64_t sizes[] = { 500, 2000, 9000 };

	write_job(j);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		check_stages(opts, sizes[i]);
}

TEST(stages_of_a_job_with_a_gpu)
{
	for (uint64_t seed = 1; seed <= 6; seed++) {
		struct job j = { .gpu = GPU_KERNELS, .epochs = 1 + (int)seed, .batches = 2000 / (1 + (int)seed), .persistent = seed % 2,
				 .spawn = seed % 4 == 2, .pin = seed > 3 };

		rng_state = seed;
		check_job(&j, &(struct dl_diagnose_opts){ .worst_cnt = 20 });
	}
}

/* Samples are looked at together where they are few, or do not show the kind of a fault: with samples a cut
 * may move estimates a little between causes. */
TEST(stages_of_a_sampled_job)
{
	for (uint64_t seed = 1; seed <= 4; seed++) {
		struct job j = { .gpu = (int)(seed % 2), .epochs = 2, .batches = 1000, .sampled = true };
		struct dl_report *r;

		rng_state = seed * 31;
		check_job(&j, &(struct dl_diagnose_opts){ .worst_cnt = 20 });
		r = read_job(NULL, NULL);
		CHECK(charged(r, DL_CAUSE_SHM) > MS(100));
		dl_report_free(r);
	}
}

TEST(stages_of_waits)
{
	for (uint64_t seed = 1; seed <= 6; seed++) {
		struct job j = { .gpu = seed % 2 ? GPU_NONE : GPU_CALLS, .epochs = 1 + (int)seed, .batches = 2000 / (1 + (int)seed),
				 .persistent = seed % 3 };

		rng_state = seed * 7919;
		check_job(&j, &(struct dl_diagnose_opts){ .worst_cnt = 20 });
	}
}

TEST(stages_of_a_window)
{
	for (uint64_t seed = 1; seed <= 4; seed++) {
		struct job j = { .gpu = (int)(seed % 3), .epochs = 2, .batches = 1000 };

		rng_state = seed * 104729;
		check_job(&j, &(struct dl_diagnose_opts){ .worst_cnt = 20, .from_ts = AT(3000), .to_ts = AT(9000) });
	}
}

/* What lies outside of a window is not decompressed, and the report is that of the window of the whole. */
TEST(stages_of_a_window_read_no_more_than_it)
{
	for (int gpu = GPU_NONE; gpu <= GPU_CALLS; gpu++) {
		struct job j = { .gpu = gpu, .epochs = 1, .batches = 20000, .persistent = true };
		struct dl_diagnose_opts opts = { .worst_cnt = 50, .from_ts = AT(100000), .to_ts = AT(105000) };
		struct dl_diagnose_stats window, whole;
		struct dl_report *a, *b;

		rng_state = 3 + (uint64_t)gpu;
		write_job(&j);
		a = read_job(&opts, &window);
		opts.whole = true;
		b = read_job(&opts, &whole);
		check_adds_up(a);
		printf("# %" PRIu64 " frames of %" PRIu64 "\n", window.frames, whole.frames);
		CHECK(window.frames * 3 < whole.frames);
		/* How fast a copy can be is known from those that were read. */
		if (gpu == GPU_CALLS)
			CHECK(a->waits.total_ns < b->waits.total_ns + b->waits.total_ns / 100 &&
			      b->waits.total_ns < a->waits.total_ns + a->waits.total_ns / 100);
		else
			same_reports(b, a);
		CHECK_EQ(a->events, b->events);
		CHECK_EQ(a->duration_ns, b->duration_ns);
		dl_report_free(a);
		dl_report_free(b);
	}
}

/* --- whatever schedule ---------------------------------------------------------------------------- */

/* Rules look ahead as far as chance wants it here, for some 100 ms. */
static void random_run(uint64_t seed, int gpu, uint32_t drop_percent, uint64_t events, bool same)
{
	struct dl_diagnose_opts opts = { .worst_cnt = 1000, .ahead_ns = MS(400) };
	struct synth *s;
	struct dl_report *a, *b;
	struct dl_diagnose_stats stats;

	rng_state = seed;
	s = job_new();
	synth_foreign(s, STRANGER, STRANGER, "stranger");
	random_schedule(s, 8 * EVENTS, drop_percent);
	if (gpu == GPU_KERNELS)
		random_gpu(s, 400);
	else if (gpu == GPU_CALLS)
		random_calls(s, 500);
	random_life(s);
	CHECK_EQ(synth_finish(s), 0);
	a = read_job(&opts, NULL);
	opts.stage_events = events;
	b = read_job(&opts, &stats);
	CHECK(stats.stages > 2);
	check_adds_up(b);
	if (same)
		same_reports(a, b);
	dl_report_free(a);
	dl_report_free(b);
}

TEST(stages_of_random_schedules)
{
	for (uint64_t seed = 1; seed <= 60; seed++)
		random_run(seed, GPU_KERNELS, 0, 100 + 150 * (seed % 5), true);
}

TEST(stages_of_random_waits)
{
	for (uint64_t seed = 1; seed <= 60; seed++)
		random_run(seed * 104729, seed % 2 ? GPU_NONE : GPU_CALLS, 0, 100 + 150 * (seed % 5), true);
}

/* Lost events show late, and take back what was charged before: only the sums hold. */
TEST(stages_of_random_schedules_with_losses)
{
	for (uint64_t seed = 1; seed <= 60; seed++)
		random_run(seed * 7919, (int)(seed % 3), 1 + (uint32_t)(seed % 30), 100 + 150 * (seed % 5), false);
}

/* --- a death --------------------------------------------------------------------------------------- */

static void kill_worker(struct synth *s, uint64_t ts, uint32_t pid)
{
	struct dl_ev_signal ev = { .h = { .size = sizeof(ev), .kind = DL_EV_SIGNAL, .ts = ts, .tid = STRANGER, .pid = STRANGER },
				   .target_tid = pid, .target_pid = pid, .sig = SIGKILL, .code = 0, .sender_ppid = 1,
				   .sender_uid = 1000, .sender_comm = { "reaper" } };

	synth_event(s, &ev.h);
	synth_exit(s, ts + US(200), pid, pid, SIGKILL, DL_EX_LAST);
}

/* A worker is killed; the trainer notices, or waits on for minutes. */
static void dead_worker(uint64_t seed, uint64_t rest)
{
	struct job j = { .epochs = 1, .batches = 1500, .persistent = true };
	struct dl_diagnose_opts opts = { .worst_cnt = 5 };
	struct dl_report *a, *b;
	struct dl_diagnose_stats stats;

	rng_state = seed;
	begin_job(&j);
	make_workers(&j);
	one_epoch(&j);
	kill_worker(j.s, j.now + MS(2), j.worker[1].pid);
	j.now += US(50);
	trainer_blocks(&j, ON_RESULTS, j.now + rest);
	for (uint64_t t = j.now - rest + MS(5); t < j.now; t += MS(2))
		synth_run(j.s, 15, NOISE, TRAINER, t, t + US(10), SYNTH_SLEEP, WAIT(NR_NANOSLEEP, .deadline = t + MS(2)));
	CHECK_EQ(synth_finish(j.s), 0);
	a = read_job(&opts, NULL);
	opts.stage_events = 700;
	b = read_job(&opts, &stats);
	CHECK(stats.stages > 2);
	CHECK(a->crash && b->crash);
	CHECK_EQ(a->crash->pid, j.worker[1].pid);
	CHECK_EQ(b->crash->pid, a->crash->pid);
	CHECK_EQ(b->crash->sig, a->crash->sig);
	CHECK_EQ(b->crash->ts, a->crash->ts);
	CHECK_STR(b->crash->cause, a->crash->cause);
	CHECK_STR(b->crash->text, a->crash->text);
	same_reports(a, b);
	dl_report_free(a);
	dl_report_free(b);
}

TEST(stages_of_a_death)
{
	for (uint64_t seed = 1; seed <= 3; seed++) {
		dead_worker(seed, MS(1500));
		dead_worker(seed, MS(40000));
	}
}

/* --- evidence ------------------------------------------------------------------------------------- */

/* Of 40,000 files that are read once, and one that is read now and then for longer, that one is named: what has
 * little time is forgotten on the way, a few thousand at a time. */
TEST(stages_name_the_file_among_many)
{
	struct dl_diagnose_opts opts = { .worst_cnt = 5, .stage_events = 20000 };
	struct synth *s = synth_new(test_path("job.dlbpf"));
	struct dl_diagnose_stats stats;
	struct dl_report *r;
	uint64_t t = AT(1);

	synth_task(s, AT(0), TRAINER, TRAINER, 1, "python", DL_TF_ROOT, 0);
	for (uint32_t i = 0; i < 41000; i++) {
		const bool slow = i % 40 == 39;
		const uint64_t until = t + (slow ? MS(30) : MS(1));

		synth_run(s, 0, TRAINER, TRAINER, t - US(400), t, SYNTH_DISK,
			  WAIT(NR_READ, .file_kind = DL_FILE_REG, .file_ino = slow ? 77 : 1000000 + i, .file_dev = 8 << 20 | 1,
			       .flags = DL_SW_IOWAIT));
		synth_wake(s, until, 0, 0, TRAINER, TRAINER, -1);
		t = until + US(500);
	}
	CHECK_EQ(synth_finish(s), 0);
	r = read_job(&opts, &stats);
	CHECK(stats.stages > 2);
	check_adds_up(r);
	CHECK(r->waits.causes[DL_CAUSE_STORAGE].detail);
	CHECK(strstr(r->waits.causes[DL_CAUSE_STORAGE].detail, "inode 77 on device 8:1 4"));
	dl_report_free(r);
}

/* --- what is held ---------------------------------------------------------------------------------- */

static uint64_t held(int gpu, int batches, bool persistent, int epochs)
{
	struct job j = { .gpu = gpu, .epochs = epochs, .batches = batches, .persistent = persistent, .sampled = true,
			 .pin = !persistent };
	struct dl_diagnose_opts opts = { .stage_events = 2000 };
	struct dl_diagnose_stats stats;
	struct dl_report *r;

	rng_state = 1;
	write_job(&j);
	r = read_job(&opts, &stats);
	check_adds_up(r);
	CHECK(stats.stages > 3);
	dl_report_free(r);
	return stats.held;
}

/* Ten times the trace: no more than a long batch more. */
TEST(stages_hold_no_more_of_a_longer_trace)
{
	for (int gpu = GPU_NONE; gpu <= GPU_CALLS; gpu++) {
		uint64_t one = held(gpu, 2000, true, 1), ten = held(gpu, 20000, true, 1);

		printf("# gpu %d: %" PRIu64 " held of 2000 batches, %" PRIu64 " of 20000\n", gpu, one, ten);
		CHECK(ten < one + one / 4);
		/* Workers and pin-memory threads that come and go. */
		one = held(gpu, 500, false, 6);
		ten = held(gpu, 500, false, 60);
		printf("# gpu %d: %" PRIu64 " held of 6 epochs, %" PRIu64 " of 60\n", gpu, one, ten);
		CHECK(ten < one + one / 4);
	}
}
