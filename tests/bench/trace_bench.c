/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * How fast the trace file is written and read, and how large it is.
 *
 *	trace_bench [EVENTS]	a made-up DataLoader run of so many events (default: a million)
 *	trace_bench FILE	reads FILE, writes its events again and reads them back
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "base/vec.h"
#include "trace/schema.h"
#include "trace/trace.h"

/* All events, one behind the other. */
struct events {
	uint8_t *v;
	size_t cnt, cap, events;
};

static void die(const char *what, int err)
{
	fprintf(stderr, "trace_bench: %s: %s\n", what, strerror(-err));
	exit(1);
}

static void add(struct events *evs, const struct dl_hdr *ev)
{
	size_t sz = (ev->size + 7u) & ~7u;

	if (vec_reserve(evs, sz))
		die("events", -ENOMEM);
	memcpy(evs->v + evs->cnt, ev, ev->size);
	evs->cnt += sz;
	evs->events++;
}

/* --- a made-up run: trainer, workers with feeders, strangers, on a few CPUs --- */

enum { CPUS = 8, THREADS = 24 };

static uint64_t rng = 0x9e3779b97f4a7c15;

static uint64_t rnd(void)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	return rng ^= rng << 17;
}

/* Durations in the real world are spread over decades. */
static uint64_t spread(double median_ns)
{
	double sum = 0;

	for (int i = 0; i < 6; i++)
		sum += (double)(rnd() % 1000000) / 1e6;
	return (uint64_t)(median_ns * exp((sum - 3) * 1.8));
}

struct sim_thread {
	uint32_t tid, pid;
	uint64_t exec_ns, min_flt, wake_at, since;
	uint32_t switches, maj_flt;
	uint64_t addr;
	bool on_cpu;
};

static const struct sim_wait {
	int32_t nr;
	uint64_t arg1;
	uint16_t file_kind;
	uint64_t timeout;
} waits[] = {
	{ SYS_futex, 0x189, 0, 5000000 },	/* the GIL */
	{ SYS_futex, 0x80, 0, 0 },
	{ SYS_futex, 0x109, 0, 0 },
	{ SYS_read, 4, DL_FILE_FIFO, 0 },
	{ SYS_poll, 1, DL_FILE_UNIX, 5000000000 },
	{ SYS_recvmsg, 0, DL_FILE_UNIX, 0 },
	{ -1, 0, 0, 0 },
	{ SYS_epoll_wait, 16, DL_FILE_ANON, 1000000000 },
};

static struct sim_thread threads[THREADS];

static uint16_t hdr_flags(const struct sim_thread *t)
{
	return t >= threads + 18 ? DL_HDR_FOREIGN : 0;
}

static void sim_switch(struct events *evs, uint64_t ts, uint16_t cpu, struct sim_thread *prev,
		       const struct sim_thread *next)
{
	struct dl_ev_switch ev = {
		.h = { .size = sizeof(ev), .kind = DL_EV_SWITCH, .ts = ts, .cpu = cpu },
		.syscall = -1,
	};

	if (next) {
		ev.next_tid = next->tid;
		ev.next_pid = next->pid;
		ev.flags |= hdr_flags(next) ? DL_SW_NEXT_FOREIGN : 0;
	}
	if (prev) {
		size_t i = (size_t)(prev - threads);
		const struct sim_wait *w = &waits[rnd() % 4 ? i % 8 : rnd() % 8];
		uint64_t ran = ts - prev->since, less = rnd() % 700;

		ev.h.tid = prev->tid;
		ev.h.pid = prev->pid;
		ev.h.flags = hdr_flags(prev);
		ev.prev_state = w->nr >= 0;
		ev.syscall = w->nr;
		ev.arg0 = w->nr == SYS_futex ? prev->addr + (rnd() % 4) * 64 : w->nr >= 0 ? 3 + i : 0;
		ev.arg1 = w->arg1;
		ev.deadline = w->timeout ? ts + w->timeout - rnd() % 20000 : 0;
		ev.file_kind = w->file_kind;
		ev.file_ino = w->file_kind ? 100000 + i * 7 : 0;
		ev.file_dev = w->file_kind ? 14 : 0;
		ev.file_magic = w->file_kind ? 0x50495045 : 0;
		ev.exec_ns = prev->exec_ns += ran > less ? ran - less : ran;
		ev.min_flt = prev->min_flt += rnd() % 8 ? 0 : rnd() % 200;
		ev.maj_flt = prev->maj_flt += rnd() % 500 == 0;
		ev.switches = ++prev->switches;
	}
	add(evs, &ev.h);
}

static void sim_wake(struct events *evs, uint64_t ts, uint16_t cpu, const struct sim_thread *waker,
		     const struct sim_thread *wakee)
{
	struct dl_ev_wake ev = {
		.h = { .size = sizeof(ev), .kind = DL_EV_WAKE, .ts = ts, .cpu = cpu },
		.wakee_tid = wakee->tid,
		.wakee_pid = wakee->pid,
		.syscall = -1,
		.wakee_state = 1,
	};

	if (waker) {
		ev.h.tid = waker->tid;
		ev.h.pid = waker->pid;
		ev.h.flags = hdr_flags(waker);
		if (rnd() % 4) {
			ev.syscall = SYS_futex;
			ev.arg0 = wakee->addr + (rnd() % 4) * 64;
			ev.arg1 = 0x81;
		}
	}
	add(evs, &ev.h);
}

static void sim_rest(struct events *evs, uint64_t ts, uint16_t cpu, const struct sim_thread *t)
{
	struct dl_ev_sample sample = {
		.h = { .size = sizeof(sample), .kind = DL_EV_SAMPLE, .ts = ts, .tid = t->tid,
		       .pid = t->pid, .cpu = cpu },
		.ip = 0x7f1234500000 + rnd() % 0x80000,
		.stack = (uint32_t)(rnd() % 500),
		.mode = rnd() % 4 == 0,
		.syscall = -1,
		.period_us = 10101,
	};
	static uint32_t corr;
	struct dl_ev_gpu_api api = {
		.h = { .size = sizeof(api), .kind = DL_EV_GPU_API, .ts = ts, .tid = 1000,
		       .pid = 1000, .cpu = DL_CPU_NONE },
		.end = ts + spread(6000),
		.domain = DL_GPU_RUNTIME,
		.cbid = 211,
		.class = DL_CALL_LAUNCH,
		.name = 17,
	};
	struct dl_ev_gpu_kernel kernel = {
		.h = { .size = sizeof(kernel), .kind = DL_EV_GPU_KERNEL, .pid = 1000,
		       .cpu = DL_CPU_NONE },
		.context = 1,
		.stream = 7,
		.name = (uint32_t)(20 + rnd() % 30),
	};

	if (rnd() % 16 == 0)
		add(evs, &sample.h);
	if (t == threads && rnd() % 2) {
		api.corr = kernel.corr = ++corr;
		add(evs, &api.h);
		kernel.h.ts = api.end + spread(3000);
		kernel.end = kernel.h.ts + spread(20000);
		add(evs, &kernel.h);
	}
}

static void simulate(struct events *evs, size_t want)
{
	struct sim_thread *cur[CPUS] = { 0 };
	uint64_t at[CPUS], ts;

	for (size_t i = 0; i < THREADS; i++) {
		uint32_t proc = i < 2 ? 1000 : i < 18 ? 1010 + (uint32_t)(i - 2) / 3 * 5 : 200;

		threads[i] = (struct sim_thread){
			.pid = proc, .tid = i < 18 ? proc + (uint32_t)(i % 3) : 200 + (uint32_t)i,
			.addr = 0x7f0000001000 + i * 0x3010, .exec_ns = spread(1e9),
			.switches = (uint32_t)(rnd() % 100000), .min_flt = rnd() % 500000,
		};
	}
	for (int c = 0; c < CPUS; c++)
		at[c] = 1000000000 + rnd() % 100000;
	while (evs->events < want) {
		struct sim_thread *next = NULL, *prev;
		uint16_t cpu = 0;

		for (uint16_t c = 1; c < CPUS; c++)
			cpu = at[c] < at[cpu] ? c : cpu;
		ts = at[cpu];
		prev = cur[cpu];
		if (prev)
			sim_rest(evs, ts - spread(300), cpu, prev);
		for (int tries = 0; !next && tries < 4 && (prev == NULL || rnd() % 3 == 0); tries++) {
			next = &threads[rnd() % 3 ? rnd() % 8 : rnd() % THREADS];
			next = next->on_cpu ? NULL : next;
		}
		if (!prev && !next) {
			at[cpu] += spread(20000);
			continue;
		}
		if (next && rnd() % 8)
			sim_wake(evs, ts - 500 - spread(2000), (uint16_t)(rnd() % CPUS),
				 rnd() % 4 ? &threads[rnd() % THREADS] : NULL, next);
		sim_switch(evs, ts, cpu, prev, next);
		if (prev)
			prev->on_cpu = false;
		if (next) {
			next->on_cpu = true;
			next->since = ts;
		}
		cur[cpu] = next;
		at[cpu] += spread(next ? 40000 : 25000);
	}
}

/* --- measuring --- */

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void load(struct events *evs, const char *path)
{
	struct dl_diag d = { "" };
	const struct dl_hdr *ev;
	struct dl_trace *t;
	int err = dl_trace_open(&t, path, &d);

	if (err) {
		fprintf(stderr, "trace_bench: %s\n", d.msg);
		exit(1);
	}
	while ((err = dl_trace_next(t, &ev)) == 1)
		add(evs, ev);
	if (err)
		die(path, err);
	dl_trace_close(t);
}

static void bench_write(const struct events *evs, const char *path, int level)
{
	const struct dl_trace_meta meta = { .start_ts = 1 };
	const struct dl_trace_writer_opts opts = { .level = level };
	struct dl_trace_writer_stats st;
	struct dl_trace_writer *w;
	double start = now(), took;
	int err, fd = open(path, O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0600);

	if (fd < 0)
		die(path, -errno);
	err = dl_trace_writer_open(&w, fd, &meta, &opts, NULL);
	if (err)
		die(path, err);
	for (size_t at = 0; at < evs->cnt;) {
		const struct dl_hdr *ev = (const void *)(evs->v + at);

		err = dl_trace_write(w, ev);
		if (err)
			die("dl_trace_write", err);
		at += (ev->size + 7u) & ~7u;
	}
	err = dl_trace_writer_flush(w, UINT64_MAX);
	took = now() - start;
	if (err)
		die("dl_trace_writer_flush", err);
	dl_trace_writer_stats(w, &st);
	err = dl_trace_writer_close(w, NULL);
	if (err)
		die("dl_trace_writer_close", err);
	printf("write, level %d: %.2f million events/s, %.0f ns each; %.2f bytes an event, %.1f : 1, %" PRIu64
	       " frames\n", level, (double)st.events / took / 1e6, took * 1e9 / (double)st.events,
	       (double)st.file_bytes / (double)st.events,
	       (double)st.raw_bytes / (double)st.file_bytes, st.frames);
}

static void bench_read(const char *path)
{
	double start = now(), took;
	const struct dl_hdr *ev;
	struct dl_trace *t;
	uint64_t sum = 0, cnt = 0;
	int err = dl_trace_open(&t, path, NULL);

	if (err)
		die(path, err);
	for (; (err = dl_trace_next(t, &ev)) == 1; cnt++)
		sum += ev->ts + ev->tid;
	took = now() - start;
	if (err)
		die(path, err);
	printf("read: %.2f million events/s, %.0f ns each (%" PRIu64 " events, sum %" PRIx64 ")\n",
	       (double)cnt / took / 1e6, took * 1e9 / (double)cnt, cnt, sum);
	dl_trace_close(t);
}

int main(int argc, char **argv)
{
	static const int levels[] = { 0, 1, 3, 6, 9 };	/* 0: as recorders write it */
	const char *tmp = getenv("TMPDIR");
	struct events evs = { 0 };
	uint64_t want = 1000000;
	char path[256];

	if (argc > 1 && !dl_parse_u64(argv[1], &want))
		load(&evs, argv[1]);
	else
		simulate(&evs, want);
	if (!evs.events)
		die("no events", -ENODATA);
	snprintf(path, sizeof(path), "%s/trace_bench.%d.dlbpf", tmp ? tmp : "/tmp", (int)getpid());
	for (size_t l = 0; l < ARRAY_SIZE(levels); l++) {
		bench_write(&evs, path, levels[l]);
		for (int i = 0; i < 3; i++)
			bench_read(path);
	}
	unlink(path);
	free(evs.v);
	return 0;
}
