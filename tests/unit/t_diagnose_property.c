/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Whatever the trace holds, causes add up to idle time to the nanosecond, and so do the steps of
 * every chain: on random schedules, on random schedules with events missing, and on noise. */
#include "unit/diagnose_random.h"

enum gpu { GPU_NONE, GPU_KERNELS, GPU_CALLS };

/* As a recorder that could not keep up tells of them; whether events are missing there or not. */
static void random_holes(struct synth *s)
{
	uint64_t at = AT(5);

	for (uint32_t i = rnd(4); i; i--) {
		struct dl_ev_loss ev = { .h = { .kind = DL_EV_LOSS, .size = sizeof(ev), .cpu = DL_CPU_NONE },
					 .cause = DL_LOSS_RING_FULL, .cnt = i, .shed = rnd(2) ? DL_SHED_SWITCH : DL_SHED_WAKE };

		at += rnd(MS(90));
		ev.h.ts = ev.first = at;
		ev.last = at += rnd(MS(30));
		synth_event(s, &ev.h);
	}
}

static void one_run(uint64_t seed, uint32_t drop_percent, enum gpu gpu)
{
	struct dl_diagnose_opts opts = { .worst_cnt = 1000 };
	struct synth *s;
	struct dl_report *r;

	rng_state = seed;
	s = job_new();
	synth_foreign(s, STRANGER, STRANGER, "stranger");
	random_schedule(s, EVENTS, drop_percent);
	if (gpu == GPU_KERNELS)
		random_gpu(s, 60);
	else if (gpu == GPU_CALLS)
		random_calls(s, 80);
	random_life(s);
	if (drop_percent)
		random_holes(s);
	if (rnd(4) == 0)
		opts.from_ts = AT(50);
	r = job_report(s, &opts);
	check_adds_up(r);
	dl_report_free(r);
}

TEST(whole_schedules_add_up)
{
	for (uint64_t seed = 1; seed <= 300; seed++)
		one_run(seed, 0, GPU_KERNELS);
}

TEST(schedules_with_losses_add_up)
{
	for (uint64_t seed = 1; seed <= 300; seed++)
		one_run(seed * 7919, 1 + (uint32_t)(seed % 30), GPU_KERNELS);
}

TEST(waits_add_up)
{
	for (uint64_t seed = 1; seed <= 300; seed++)
		one_run(seed * 104729, (uint32_t)(seed % 10), GPU_NONE);
}

TEST(waits_and_calls_add_up)
{
	for (uint64_t seed = 1; seed <= 300; seed++)
		one_run(seed * 32452843, (uint32_t)(seed % 10), GPU_CALLS);
}

/* Events of any kind with any content: they need not make sense, but must add up and end. */
TEST(noise_adds_up)
{
	static const uint16_t kinds[] = {
		DL_EV_SWITCH, DL_EV_SWITCH, DL_EV_SWITCH, DL_EV_WAKE, DL_EV_WAKE, DL_EV_FORK, DL_EV_EXIT, DL_EV_TASK,
		DL_EV_GPU_KERNEL, DL_EV_GPU_MEMCPY, DL_EV_GPU_API, DL_EV_GPU_SYNC, DL_EV_SAMPLE, DL_EV_EXEC,
		DL_EV_SIGNAL, DL_EV_OOM_KILL, DL_EV_MEM, DL_EV_GPU_CLOCK, DL_EV_MARK,
		DL_EV_GPU_LINK, DL_EV_GPU_SAMPLE, DL_EV_LOSS,
	};
	static const struct dl_hdr blank;

	for (uint64_t seed = 1; seed <= 200; seed++) {
		struct dl_diagnose_opts opts = { .worst_cnt = 1000 };
		struct synth *s;
		struct dl_report *r;

		rng_state = seed * 15485863;
		s = job_new();
		for (int i = 0; i < 400; i++) {
			union { struct dl_hdr h; struct dl_ev_gpu_kernel kernel; struct dl_ev_loss loss; uint32_t w[128]; } ev =
				{ .h = blank };
			uint16_t kind = kinds[rnd(sizeof(kinds) / sizeof(kinds[0]))];

			for (size_t w = 0; w < 128; w++)
				ev.w[w] = rnd(3) ? threads[rnd(THREADS)].tid : rnd(2) ? rnd(4) : rng_state >> 40;
			ev.h.kind = kind;
			ev.h.size = dl_event_desc(kind)->size;
			ev.h.ts = AT(rnd(300)) + rnd(1000000);
			ev.h.cpu = (uint16_t)rnd(4);
			ev.h.flags = (uint16_t)rnd(2);
			ev.h.tid = rnd(8) ? threads[rnd(THREADS)].tid : 0;
			ev.h.pid = threads[rnd(THREADS)].pid;
			if (kind == DL_EV_LOSS) {	/* a hole, now and then one in the past */
				ev.loss.first = rnd(4) ? ev.h.ts : AT(rnd(300));
				ev.loss.last = ev.loss.first + rnd(50000000);
				ev.loss.shed = rnd(DL_SHED_MAX);
			}
			if (kind == DL_EV_GPU_KERNEL)
				ev.kernel.end = ev.h.ts + rnd(5000000);
			synth_event(s, &ev.h);
		}
		r = job_report(s, &opts);
		check_adds_up(r);
		dl_report_free(r);
	}
}
