/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* A small training job for the tests of the diagnosis: one trainer, workers with feeder and
 * sharer, a GPU. Times are in milliseconds from BASE. */
#ifndef DLBPF_TESTS_DIAGNOSE_UTIL_H
#define DLBPF_TESTS_DIAGNOSE_UTIL_H

#include "unit/test.h"

#include "diagnose/diagnose.h"
#include "synth/synth.h"
#include "trace/schema.h"
#include "trace/trace.h"

enum {
	NR_READ = 0, NR_WRITE = 1, NR_POLL = 7, NR_NANOSLEEP = 35, NR_CONNECT = 42, NR_RECVMSG = 47,
	NR_EXIT = 60, NR_WAIT4 = 61, NR_FUTEX = 202, NR_ACCEPT4 = 288,
	TRAINER = 100, PIN = 101, INDEX_FEEDER = 102,
	WORKER = 200, FEEDER = 201, SHARER = 202, HELPER_THREAD = 203,
	WORKER2 = 300, STRANGER = 900,
	RESULT_PIPE = 7001, INDEX_PIPE = 7002, SOCKET = 7003,
	FUTEX_COND = 0x189, FUTEX_TIMED = 0x89, FUTEX_SHARED = 0x109,
};

#define BASE MS(1000)
#define AT(ms) (BASE + MS(ms))
#define QUARTET 0x44c0u
#define GIL_ADDR 0x555500a5b8f0ULL

#define ON_RESULTS WAIT(NR_POLL, .file_kind = DL_FILE_FIFO, .file_ino = RESULT_PIPE, .deadline = AT(60000))
#define ON_INDEX WAIT(NR_POLL, .file_kind = DL_FILE_FIFO, .file_ino = INDEX_PIPE, .flags = DL_SW_QUARTET, \
		      .deadline = AT(60000))
#define ON_COND WAIT(NR_FUTEX, .arg0 = 0x7000, .arg1 = FUTEX_COND)

/* The tree: TASK events at the start; the worker is old enough to have no start-up. */
static inline struct synth *job_new(void)
{
	struct synth *s = synth_new(test_path("job.dlbpf"));

	CHECK(s);
	synth_mark(s, AT(0), DL_MARK_START, 0, "");
	synth_task(s, AT(0), TRAINER, TRAINER, 1, "python", DL_TF_ROOT, 0);
	synth_task(s, AT(0), WORKER, WORKER, TRAINER, "python", 0, QUARTET);
	synth_task(s, AT(0), FEEDER, WORKER, TRAINER, "python", 0, QUARTET);
	synth_task(s, AT(0), SHARER, WORKER, TRAINER, "python", 0, QUARTET);
	return s;
}

/* The chains of the worst gaps, for a person who looks into a failure. */
static inline void print_chains(const struct dl_report *r)
{
	vec_for_each(&r->worst, g) {
		vec_for_each(&g->steps, st)
			fprintf(stderr, "# %10.3f .. %10.3f tid %u %s%s: %s\n", ((double)st->start - (double)BASE) / 1e6,
				((double)st->end - (double)BASE) / 1e6, st->tid, dl_cause_id(st->cause),
				st->via_lock ? " (lock)" : "", st->text);
	}
}

/* The trainer's step behind a hand-over at t: it launches a kernel at t + 0.1 that runs for 10. */
static inline void step(struct synth *s, double t, uint32_t corr)
{
	synth_api(s, AT(t + 0.1), AT(t + 0.11), TRAINER, TRAINER, corr, DL_CALL_LAUNCH, "cudaLaunchKernel");
	synth_kernel(s, AT(t + 0.12), AT(t + 10.12), TRAINER, 0, 7, corr, "train_step");
}

/* Steps at 10 (kernel 10.12 .. 20.12) and at 50 (kernel from 50.12): one gap of exactly 30 ms. The
 * trainer waits at its result pipe from 11 on, the feeder's write at 50 ends that. */
static inline void two_steps(struct synth *s)
{
	step(s, 10, 1);
	step(s, 50, 2);
	synth_run(s, 0, TRAINER, TRAINER, AT(10), AT(11), SYNTH_SLEEP, ON_RESULTS);
	synth_wake(s, AT(50), FEEDER, WORKER, TRAINER, TRAINER, NR_WRITE);
	synth_run(s, 0, TRAINER, TRAINER, AT(50), AT(51), SYNTH_SLEEP, ON_RESULTS);
}

/* The worker puts a batch at `from`, in ms: its feeder pickles it until `to`, on CPU 1. */
static inline void feeder_puts(struct synth *s, double from, double to)
{
	synth_wake(s, AT(from), WORKER, WORKER, FEEDER, WORKER, NR_FUTEX);
	synth_run(s, 1, FEEDER, WORKER, AT(from), AT(to), SYNTH_SLEEP, ON_COND);
}

/* Finishes the trace and diagnoses it; the caller frees the report. */
static inline struct dl_report *job_report(struct synth *s, const struct dl_diagnose_opts *opts)
{
	struct dl_report *r = NULL;
	struct dl_diag d = {};
	struct dl_trace *t = NULL;

	CHECK_EQ(synth_finish(s), 0);
	if (dl_trace_open(&t, test_path("job.dlbpf"), &d))
		test_fail(__FILE__, __LINE__, "%s", d.msg);
	if (dl_diagnose(&r, t, opts, &d))
		test_fail(__FILE__, __LINE__, "%s", d.msg);
	dl_trace_close(t);
	if (getenv("TEST_CHAINS"))
		print_chains(r);
	return r;
}

static inline uint64_t sum_charges(const struct dl_charge *causes)
{
	uint64_t ns = 0;

	for (int c = 0; c < DL_CAUSE_CNT; c++)
		ns += causes[c].ns;
	return ns;
}

/* Trainers share all the idle time out among them; loaders have a part of their trainer's. */
static inline void check_parts_add_up(const struct dl_report *r)
{
	uint64_t idle = 0, parts = 0;

	vec_for_each(&r->devices, dev)
		idle += dev->idle_ns;
	vec_for_each(&r->trainers, t) {
		uint64_t ns = 0, loaders = 0;

		for (int c = 0; c < DL_CAUSE_CNT; c++)
			ns += t->part.cause_ns[c];
		CHECK_EQ(ns, t->part.idle_ns);
		CHECK(t->part.idle_ns <= t->part.span_ns);
		parts += ns;
		vec_for_each(&r->loaders, l)
			loaders += l->proc == t->proc ? l->part.idle_ns : 0;
		CHECK(loaders <= t->part.idle_ns);
	}
	CHECK_EQ(parts, r->has_gpu ? idle : r->waits.total_ns);
}

/* What must hold of every report. */
static inline void check_adds_up(const struct dl_report *r)
{
	vec_for_each(&r->devices, dev) {
		CHECK_EQ(dev->busy_ns + dev->collective_ns + dev->idle_ns, dev->end - dev->start);
		CHECK_EQ(sum_charges(dev->causes), dev->idle_ns);
	}
	CHECK_EQ(sum_charges(r->waits.causes), r->waits.total_ns);
	check_parts_add_up(r);
	/* Who held the CPUs is about contention alone. */
	for (int c = 0; c < DL_CAUSE_CNT; c++) {
		const struct dl_charge *all = r->has_gpu ? r->devices.v[0].causes : r->waits.causes;

		CHECK(c == DL_CAUSE_CPU_CONTENTION || (!all[c].own_tree_ns && !all[c].affinity_ns));
	}
	vec_for_each(&r->worst, g) {
		uint64_t ns = 0, at = g->end;

		for (int c = 0; c < DL_CAUSE_CNT; c++)
			ns += g->cause_ns[c];
		CHECK_EQ(ns, g->end - g->start);
		ns = 0;
		vec_for_each(&g->steps, step) {
			CHECK(step->start <= step->end);
			ns += step->end - step->start;
			at = at < step->start ? at : step->start;
		}
		CHECK_EQ(ns, g->end - g->start);
		CHECK_EQ(at, g->start);
	}
}

/* One device's charge of a cause, in nanoseconds. */
static inline uint64_t charged(const struct dl_report *r, enum dl_cause cause)
{
	return r->devices.cnt ? r->devices.v[0].causes[cause].ns : r->waits.causes[cause].ns;
}

#endif
