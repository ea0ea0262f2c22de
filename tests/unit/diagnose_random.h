/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Random schedules, GPU records and calls of a small job, from a seed in rng_state. */
#ifndef DLBPF_TESTS_DIAGNOSE_RANDOM_H
#define DLBPF_TESTS_DIAGNOSE_RANDOM_H

#include "unit/diagnose_util.h"

static uint64_t rng_state;

static inline uint32_t rnd(uint32_t below)
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

static inline struct synth_wait random_wait(uint64_t now)
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
static inline void random_schedule(struct synth *s, int events, uint32_t drop_percent)
{
	int on[CPUS], state[THREADS] = {};	/* state: 0 blocked, 1 runnable, 2 running */
	uint64_t now = AT(1);

	for (int c = 0; c < CPUS; c++)
		on[c] = -1;
	for (int i = 0; i < events; i++) {
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

static inline void random_gpu(struct synth *s, int cnt)
{
	uint64_t now = AT(2);

	for (uint32_t i = 1; i < (uint32_t)cnt; i++) {
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
static inline void random_calls(struct synth *s, int cnt)
{
	uint64_t now = AT(2);

	for (int i = 0; i < cnt; i++) {
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

static inline void random_life(struct synth *s)
{
	if (rnd(2))
		synth_fork(s, AT(rnd(100)), TRAINER, TRAINER, WORKER2, WORKER2, "python");
	if (rnd(2))
		synth_exit(s, AT(150 + rnd(100)), WORKER, WORKER, 0, DL_EX_LAST);
}

#endif
