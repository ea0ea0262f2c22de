/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Whatever the trace holds, causes add up to idle time to the nanosecond, and so do the steps of
 * every chain: on random schedules, on random schedules with events missing, and on noise. */
#include "unit/diagnose_util.h"

static uint64_t rng_state;

static uint32_t rnd(uint32_t below)
{
	rng_state = rng_state * 6364136223846793005ULL + 1442695040888963407ULL;
	return (uint32_t)((rng_state >> 33) % below);
}

enum { THREADS = 9, CPUS = 3, EVENTS = 600 };

static const struct { uint32_t tid, pid; } threads[THREADS] = {
	{ TRAINER, TRAINER }, { PIN, TRAINER }, { INDEX_FEEDER, TRAINER }, { WORKER, WORKER },
	{ FEEDER, WORKER }, { SHARER, WORKER }, { WORKER2, WORKER2 }, { WORKER2 + 1, WORKER2 },
	{ STRANGER, STRANGER },
};

static struct synth_wait random_wait(uint64_t now)
{
	static const int32_t calls[] = { -1, NR_READ, NR_WRITE, NR_POLL, NR_NANOSLEEP, NR_CONNECT, NR_RECVMSG,
					 NR_WAIT4, NR_FUTEX, NR_FUTEX, NR_FUTEX, NR_ACCEPT4, 999 };
	static const uint32_t ops[] = { FUTEX_COND, FUTEX_TIMED, FUTEX_SHARED, 0x80 };
	struct synth_wait w = { .syscall = calls[rnd(sizeof(calls) / sizeof(calls[0]))] };

	w.file_kind = (uint16_t)rnd(DL_FILE_ANON + 1);
	w.file_ino = rnd(4);
	w.flags = (uint16_t)(rnd(4) ? DL_SW_QUARTET : rnd(1 << 11));
	w.throttle_cnt = !rnd(20);
	if (w.syscall == NR_FUTEX) {
		w.arg0 = rnd(2) ? GIL_ADDR : 0x1000;
		w.arg1 = ops[rnd(4)];
	}
	if (rnd(2))
		w.deadline = now + (rnd(2) ? MS(5) : MS(rnd(200)));
	return w;
}

/* A schedule that could have been: a thread is on one CPU at most, wakes find it blocked. */
static void random_schedule(struct synth *s, uint32_t drop_percent)
{
	int on[CPUS], state[THREADS] = {};	/* state: 0 blocked, 1 runnable, 2 running */
	uint64_t now = AT(1);

	for (int c = 0; c < CPUS; c++)
		on[c] = -1;
	for (int i = 0; i < EVENTS; i++) {
		int c = (int)rnd(CPUS), t = (int)rnd(THREADS);

		now += rnd(4) ? rnd(1000000) : rnd(100);
		if (rnd(2)) {
			int waker = on[c];

			if (state[t] == 0) {
				state[t] = 1;
				if (rnd(100) >= drop_percent)
					synth_wake(s, now, waker < 0 ? 0 : threads[waker].tid, waker < 0 ? 0 : threads[waker].pid,
						   threads[t].tid, threads[t].pid, rnd(3) ? (int32_t)(rnd(2) ? NR_FUTEX : NR_WRITE) : -1);
			}
			continue;
		}
		if (state[t] == 2)
			continue;
		if (state[t] == 0)
			t = -1;
		struct synth_wait w = random_wait(now);
		uint32_t out = on[c] >= 0 && rnd(3) ? (rnd(4) ? SYNTH_SLEEP : SYNTH_DISK) : SYNTH_RUNNABLE;

		if (on[c] == t)
			continue;
		if (rnd(100) >= drop_percent)
			synth_switch(s, now, (uint32_t)c, on[c] < 0 ? 0 : threads[on[c]].tid, on[c] < 0 ? 0 : threads[on[c]].pid,
				     t < 0 ? 0 : threads[t].tid, t < 0 ? 0 : threads[t].pid, out, &w);
		if (on[c] >= 0)
			state[on[c]] = out == SYNTH_RUNNABLE ? 1 : 0;
		on[c] = t;
		if (t >= 0)
			state[t] = 2;
	}
}

static void random_gpu(struct synth *s)
{
	uint64_t now = AT(2);

	for (uint32_t i = 1; i < 60; i++) {
		uint64_t len = rnd(MS(3)), lag = rnd(MS(4));

		now += rnd(MS(8));
		synth_api(s, now, now + rnd(MS(2)), threads[rnd(3)].tid, TRAINER, i, rnd(DL_CALL_GRAPH + 1), "call");
		if (rnd(3))
			synth_kernel(s, now + lag, now + lag + len, TRAINER, rnd(2), rnd(3), rnd(4) ? i : 0, rnd(5) ? "k" : "ncclDevKernel_x");
		else
			synth_memcpy(s, now + lag, now + lag + len, TRAINER, rnd(2), rnd(3), i, (uint16_t)(rnd(2) ? DL_GPU_HTOD : DL_GPU_DTOH),
				     (uint16_t)(1 + rnd(2)), rnd(1 << 24));
	}
}

/* Calls alone, as uprobes tell of them: nested, across waits, of all sizes. */
static void random_calls(struct synth *s)
{
	uint64_t now = AT(2);

	for (int i = 0; i < 80; i++) {
		struct dl_ev_gpu_api ev = { .h = { .kind = DL_EV_GPU_API, .size = sizeof(ev), .pid = TRAINER } };

		now += rnd(MS(6));
		ev.h.ts = now;
		ev.h.tid = threads[rnd(3)].tid;
		ev.end = now + rnd(rnd(3) ? MS(1) : MS(20));
		ev.class = rnd(DL_CALL_GRAPH + 1);
		ev.bytes = rnd(3) ? rnd(1 << 26) : 0;
		ev.dir = rnd(DL_GPU_PTOP + 1);
		ev.skipped = rnd(20);
		synth_event(s, &ev.h);
	}
}

static void random_life(struct synth *s)
{
	if (rnd(2))
		synth_fork(s, AT(rnd(100)), TRAINER, TRAINER, WORKER2, WORKER2, "python");
	if (rnd(2))
		synth_exit(s, AT(150 + rnd(100)), WORKER, WORKER, 0, DL_EX_LAST);
}

enum gpu { GPU_NONE, GPU_KERNELS, GPU_CALLS };

static void one_run(uint64_t seed, uint32_t drop_percent, enum gpu gpu)
{
	struct dl_diagnose_opts opts = { .worst_cnt = 1000 };
	struct synth *s;
	struct dl_report *r;

	rng_state = seed;
	s = job_new();
	synth_foreign(s, STRANGER, STRANGER, "stranger");
	random_schedule(s, drop_percent);
	if (gpu == GPU_KERNELS)
		random_gpu(s);
	else if (gpu == GPU_CALLS)
		random_calls(s);
	random_life(s);
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
		DL_EV_GPU_LINK, DL_EV_GPU_SAMPLE,
	};
	static const struct dl_hdr blank;

	for (uint64_t seed = 1; seed <= 200; seed++) {
		struct dl_diagnose_opts opts = { .worst_cnt = 1000 };
		struct synth *s;
		struct dl_report *r;

		rng_state = seed * 15485863;
		s = job_new();
		for (int i = 0; i < 400; i++) {
			union { struct dl_hdr h; struct dl_ev_gpu_kernel kernel; uint32_t w[128]; } ev = { .h = blank };
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
			if (kind == DL_EV_GPU_KERNEL)
				ev.kernel.end = ev.h.ts + rnd(5000000);
			synth_event(s, &ev.h);
		}
		r = job_report(s, &opts);
		check_adds_up(r);
		dl_report_free(r);
	}
}
