/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Calls of CUDA without anything of what the GPU ran: uprobes. The trainer's waits are charged, with those
 * inside copies and allocations; where it waits for the GPU, the GPU is at work. */
#include "unit/diagnose_util.h"

static void call(struct synth *s, double from, double to, uint32_t class, uint64_t bytes, uint32_t dir)
{
	struct dl_ev_gpu_api ev = { .h = { .kind = DL_EV_GPU_API, .size = sizeof(ev), .ts = AT(from), .tid = TRAINER,
					   .pid = TRAINER } };

	ev.end = AT(to);
	ev.domain = DL_GPU_RUNTIME;
	ev.class = class;
	ev.bytes = bytes;
	ev.dir = dir;
	synth_event(s, &ev.h);
}

static void copy(struct synth *s, double from, double to, uint64_t bytes)
{
	call(s, from, to, DL_CALL_COPY, bytes, DL_GPU_HTOD);
}

static struct synth *uprobes_new(void)
{
	struct synth *s = job_new();

	synth_gpu_source(s, AT(0), TRAINER, DL_GPU_UPROBES, 0, "uprobes (2 calls of libcuda.so.1)");
	return s;
}

/* The trainer runs from 10 to 50 and then waits at its result pipe until 60. */
static void one_wait(struct synth *s)
{
	synth_run(s, 0, TRAINER, TRAINER, AT(10), AT(50), SYNTH_SLEEP, ON_RESULTS);
	synth_run(s, 1, WORKER, WORKER, AT(5), AT(59), SYNTH_SLEEP, ON_INDEX);
	feeder_puts(s, 59, 60.01);
	synth_wake(s, AT(60), FEEDER, WORKER, TRAINER, TRAINER, NR_WRITE);
	synth_run(s, 0, TRAINER, TRAINER, AT(60), AT(70), SYNTH_SLEEP, ON_RESULTS);
	synth_mark(s, AT(70), DL_MARK_STOP, 0, "");
}

static struct dl_report *checked(struct synth *s)
{
	struct dl_report *r = job_report(s, NULL);

	check_adds_up(r);
	CHECK(!r->has_gpu);
	return r;
}

TEST(the_source_is_named_and_batches_are_charged_as_ever)
{
	struct synth *s = uprobes_new();
	struct dl_report *r;

	one_wait(s);
	call(s, 20, 20, DL_CALL_LAUNCH, 0, 0);
	r = checked(s);
	CHECK_STR(r->gpu_source, "uprobes (2 calls of libcuda.so.1)");
	CHECK_EQ(r->waits.total_ns, MS(10));
	CHECK_EQ(charged(r, DL_CAUSE_DECODE), MS(9));
	CHECK_EQ(charged(r, DL_CAUSE_PCIE), 0);
	CHECK(r->waits.calls.known);
	CHECK_EQ(r->waits.calls.launch_cnt, 1);
	dl_report_free(r);
}

TEST(why_there_are_only_uprobes_is_said)
{
	struct synth *s = job_new();
	struct dl_report *r;

	synth_gpu_source(s, AT(1), TRAINER, DL_GPU_BUSY, 0, "busy: another tool");
	synth_gpu_source(s, AT(2), TRAINER, DL_GPU_UPROBES, DL_GPU_SIMULATED, "uprobes");
	one_wait(s);
	call(s, 20, 20, DL_CALL_LAUNCH, 0, 0);
	r = checked(s);
	CHECK_STR(r->gpu_source, "uprobes; busy: another tool (simulated)");
	dl_report_free(r);
}

/* 20 MB in 2 ms: 10 GB/s. The same again takes 12 ms: the first 10 were for the GPU's work before it. */
TEST(a_copy_behind_other_work_waits_for_the_gpu)
{
	struct synth *s = uprobes_new();
	struct dl_report *r;

	one_wait(s);
	copy(s, 12, 14, 20000000);
	copy(s, 20, 32, 20000000);
	r = checked(s);
	CHECK_EQ(charged(r, DL_CAUSE_PCIE), MS(4));
	CHECK_EQ(r->waits.causes[DL_CAUSE_PCIE].estimated_ns, MS(2));
	CHECK_EQ(r->waits.total_ns, MS(10 + 4));
	CHECK_EQ(r->waits.calls.copy_ns, MS(4));
	CHECK_EQ(r->waits.calls.copy_bytes, 40000000);
	CHECK_EQ(r->waits.calls.gpu_wait_ns, MS(10));
	dl_report_free(r);
}

/* A job that is limited by the GPU: every copy waits, no rate was ever seen, yet no link is so slow. */
TEST(a_rate_that_no_link_has_is_not_believed)
{
	struct synth *s = uprobes_new();
	struct dl_report *r;

	one_wait(s);
	copy(s, 12, 32, 2000000);
	copy(s, 33, 48, 2000000);
	r = checked(s);
	CHECK_EQ(charged(r, DL_CAUSE_PCIE), MS(2));
	CHECK_EQ(r->waits.calls.gpu_wait_ns, MS(19 + 14));
	dl_report_free(r);
}

TEST(a_copy_that_returns_at_once_is_no_wait)
{
	struct synth *s = uprobes_new();
	struct dl_report *r;

	one_wait(s);
	copy(s, 12, 12.1, 200000000);	/* pinned: 2 TB/s would be no copy */
	copy(s, 20, 20.01, 4096);
	copy(s, 30, 39, 4);	/* .item(): it waits for the kernels before it */
	call(s, 40, 49, DL_CALL_COPY, 0, 0);	/* of unknown size */
	r = checked(s);
	CHECK_EQ(charged(r, DL_CAUSE_PCIE), 0);
	CHECK_EQ(r->waits.total_ns, MS(10));
	CHECK_EQ(r->waits.calls.copy_cnt, 4);
	dl_report_free(r);
}

TEST(allocations_are_waits)
{
	struct synth *s = uprobes_new();
	struct dl_report *r;

	one_wait(s);
	call(s, 12, 15, DL_CALL_ALLOC, 0, 0);
	call(s, 16, 20, DL_CALL_HOST_ALLOC, 0, 0);
	call(s, 17, 18, DL_CALL_HOST_ALLOC, 0, 0);	/* inside the other */
	call(s, 21, 22, DL_CALL_FREE, 0, 0);	/* waits for the GPU */
	r = checked(s);
	CHECK_EQ(charged(r, DL_CAUSE_CUDA_API), MS(3 + 4));
	CHECK_EQ(r->waits.calls.api_cnt, 2);
	CHECK_EQ(r->waits.calls.gpu_wait_ns, MS(1));
	dl_report_free(r);
}

/* A synchronise that sleeps looks like a wait for another thread: it is none for a batch. */
TEST(a_synchronise_that_sleeps_is_no_wait_for_a_batch)
{
	struct synth *s = uprobes_new();
	struct dl_report *r;

	synth_run(s, 0, TRAINER, TRAINER, AT(10), AT(20), SYNTH_SLEEP, ON_COND);
	synth_wake(s, AT(45), 0, 0, TRAINER, TRAINER, -1);
	synth_run(s, 0, TRAINER, TRAINER, AT(45), AT(50), SYNTH_SLEEP, ON_RESULTS);
	synth_run(s, 1, WORKER, WORKER, AT(5), AT(59), SYNTH_SLEEP, ON_INDEX);
	feeder_puts(s, 59, 60.01);
	synth_wake(s, AT(60), FEEDER, WORKER, TRAINER, TRAINER, NR_WRITE);
	synth_run(s, 0, TRAINER, TRAINER, AT(60), AT(70), SYNTH_SLEEP, ON_RESULTS);
	synth_mark(s, AT(70), DL_MARK_STOP, 0, "");
	call(s, 19, 46, DL_CALL_SYNC, 0, 0);
	r = checked(s);
	CHECK_EQ(r->waits.total_ns, MS(10));
	CHECK_EQ(charged(r, DL_CAUSE_SYNC), 0);
	CHECK_EQ(r->waits.calls.gpu_wait_ns, MS(27));
	CHECK_EQ(r->waits.calls.gpu_wait_cnt, 1);
	dl_report_free(r);
}

TEST(a_trainer_that_only_waits_for_the_gpu_is_told_so)
{
	struct synth *s = uprobes_new();
	struct dl_report *r;

	synth_run(s, 1, WORKER, WORKER, AT(5), AT(6), SYNTH_SLEEP, ON_INDEX);
	synth_run(s, 0, TRAINER, TRAINER, AT(10), AT(500), SYNTH_SLEEP, ON_RESULTS);
	for (int i = 0; i < 40; i++)
		call(s, 20 + 12 * i, 30 + 12 * i, DL_CALL_SYNC, 0, 0);
	synth_mark(s, AT(500), DL_MARK_STOP, 0, "");
	r = checked(s);
	CHECK(r->verdict.healthy);
	CHECK(strstr(r->verdict.text, "waited for the GPU, which was at work"));
	dl_report_free(r);
}

TEST(no_gpu_leaves_calls_out)
{
	const struct dl_diagnose_opts opts = { .no_gpu = true };
	struct synth *s = uprobes_new();
	struct dl_report *r;

	one_wait(s);
	call(s, 12, 15, DL_CALL_ALLOC, 0, 0);
	r = job_report(s, &opts);
	check_adds_up(r);
	CHECK_EQ(r->waits.total_ns, MS(10));
	CHECK(!r->waits.calls.known);
	dl_report_free(r);
}

/* A call that damage has put across a wait: each nanosecond counts once. */
TEST(calls_and_waits_do_not_overlap)
{
	struct synth *s = uprobes_new();
	struct dl_report *r;

	one_wait(s);
	call(s, 45, 55, DL_CALL_ALLOC, 0, 0);	/* into the wait */
	r = checked(s);
	CHECK_EQ(r->waits.total_ns, MS(5 + 10));
	dl_report_free(r);
}
