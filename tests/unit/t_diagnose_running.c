/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What running time is charged to: page faults by samples, and the trainer's own part of a hand-over. */
#include "unit/diagnose_util.h"

/* Samples divide a worker's running time: 3 of 10 in first touch of shared memory. */
TEST(shm_by_samples)
{
	struct synth *s = job_new();
	struct dl_report *r;
	uint32_t stack;

	two_steps(s);
	stack = synth_stack(s, AT(1), WORKER, "clear_page_erms;shmem_get_folio_gfp;shmem_fault;handle_mm_fault;asm_exc_page_fault", NULL);
	synth_run(s, 1, WORKER, WORKER, AT(5), AT(49), SYNTH_SLEEP, ON_INDEX);
	for (int i = 0; i < 10; i++)
		synth_sample(s, AT(21 + 2 * i), 1, WORKER, WORKER, i < 3 ? DL_SAMPLE_KERNEL : DL_SAMPLE_USER, i < 3 ? stack : 0);
	feeder_puts(s, 49, 50.01);
	r = job_report(s, NULL);
	check_adds_up(r);
	CHECK_EQ(charged(r, DL_CAUSE_SHM), MS(49 - 20.12) * 3 / 10);
	CHECK_EQ(r->devices.v[0].causes[DL_CAUSE_SHM].estimated_ns, MS(49 - 20.12) * 3 / 10);
	CHECK_EQ(charged(r, DL_CAUSE_DECODE), MS(49 - 20.12) - MS(49 - 20.12) * 3 / 10);
	dl_report_free(r);
}

static void sample_at(struct synth *s, double ms, uint16_t mode, uint32_t stack, uint64_t ip)
{
	struct dl_ev_sample ev = { .h = { .kind = DL_EV_SAMPLE, .size = sizeof(ev), .ts = AT(ms), .tid = WORKER,
					  .pid = WORKER, .cpu = 1 },
				   .ip = ip, .stack = stack, .mode = mode, .syscall = -1, .period_us = 10000 };

	synth_event(s, &ev.h);
}

/* 16 samples in faults of the store at 0x4000 and user_cnt at the instruction behind it, in 28.88 ms;
 * four elsewhere. Returns what is charged to memory. */
static uint64_t faults_with_skid(int user_cnt)
{
	struct synth *s = job_new();
	uint32_t stack = synth_stack(s, AT(1), WORKER, "do_anonymous_page;handle_mm_fault;asm_exc_page_fault", NULL);
	struct dl_report *r;
	uint64_t ns;

	two_steps(s);
	synth_run(s, 1, WORKER, WORKER, AT(5), AT(49), SYNTH_SLEEP, ON_INDEX);
	for (int i = 0; i < 16; i++)
		sample_at(s, 21 + i, DL_SAMPLE_KERNEL, stack, 0x4000);
	for (int i = 0; i < user_cnt; i++)
		sample_at(s, 38 + i, DL_SAMPLE_USER, 0, 0x4003);
	for (int i = 0; i < 4; i++)
		sample_at(s, 45 + i, DL_SAMPLE_USER, 0, 0x9000);
	feeder_puts(s, 49, 50.01);
	r = job_report(s, NULL);
	check_adds_up(r);
	ns = charged(r, DL_CAUSE_MEMORY);
	dl_report_free(r);
	return ns;
}

/* The timer fires late, behind the fault: 1 sample of 17 at a faulting instruction is still the fault's;
 * 6 of 22 are the instruction's own work. */
TEST(samples_behind_a_fault_are_the_faults)
{
	CHECK_EQ(faults_with_skid(0), MS(49 - 20.12) * 16 / 20);
	CHECK_EQ(faults_with_skid(1), MS(49 - 20.12) * 17 / 21);
	CHECK_EQ(faults_with_skid(6), MS(49 - 20.12) * 16 / 26);
}

/* The batch is at hand at 30; the trainer unpickles it until 45, wakes the index feeder, works until 50
 * and launches. The worker was done at 29, its feeder pickled for 1 ms. */
static struct synth *unpickles(void)
{
	struct synth *s = job_new();

	synth_task(s, AT(0), INDEX_FEEDER, TRAINER, 1, "python", 0, 0);
	step(s, 10, 1);
	step(s, 50, 2);
	synth_run(s, 0, TRAINER, TRAINER, AT(10), AT(11), SYNTH_SLEEP, ON_RESULTS);
	synth_wake(s, AT(30), FEEDER, WORKER, TRAINER, TRAINER, NR_WRITE);
	synth_run(s, 0, TRAINER, TRAINER, AT(30), AT(51), SYNTH_SLEEP, ON_RESULTS);
	synth_wake(s, AT(45), TRAINER, TRAINER, INDEX_FEEDER, TRAINER, NR_FUTEX);
	synth_run(s, 2, INDEX_FEEDER, TRAINER, AT(45), AT(45.2), SYNTH_SLEEP, ON_COND);
	synth_wake(s, AT(45.1), INDEX_FEEDER, TRAINER, WORKER, WORKER, NR_WRITE);
	synth_run(s, 1, WORKER, WORKER, AT(5), AT(29), SYNTH_SLEEP, ON_INDEX);
	feeder_puts(s, 29, 30.01);
	synth_run(s, 1, WORKER, WORKER, AT(45.1), AT(46), SYNTH_SLEEP, ON_INDEX);
	return s;
}

TEST(unpickling_is_ipc_up_to_the_next_index)
{
	struct dl_report *r = job_report(unpickles(), NULL);

	check_adds_up(r);
	CHECK_EQ(charged(r, DL_CAUSE_DECODE), MS(29 - 20.12));
	CHECK_EQ(charged(r, DL_CAUSE_IPC), MS(1) + MS(15));
	CHECK_EQ(charged(r, DL_CAUSE_HOST), MS(5) + US(100));
	CHECK_EQ(r->verdict.cause, DL_CAUSE_IPC);
	dl_report_free(r);
}

/* Without GPU data the wait lasts until the batch has been taken over. */
TEST(the_wait_includes_unpickling)
{
	const struct dl_diagnose_opts opts = { .no_gpu = true };
	struct dl_report *r = job_report(unpickles(), &opts);

	check_adds_up(r);
	CHECK_EQ(r->waits.cnt, 1);
	CHECK_EQ(r->waits.total_ns, MS(45 - 11));
	CHECK_EQ(charged(r, DL_CAUSE_IPC), MS(1) + MS(15));
	CHECK_EQ(charged(r, DL_CAUSE_HOST), 0);
	dl_report_free(r);
}

/* The batch was ready, so that nothing blocked: the trainer makes room in the pipe at 30, which wakes
 * the feeder in its write, and has the batch at 45. */
TEST(a_batch_that_was_ready_is_taken_over_too)
{
	struct synth *s = job_new();
	struct dl_report *r;

	synth_task(s, AT(0), INDEX_FEEDER, TRAINER, 1, "python", 0, 0);
	step(s, 10, 1);
	step(s, 50, 2);
	synth_run(s, 1, FEEDER, WORKER, AT(5), AT(9), SYNTH_SLEEP,
		  WAIT(NR_WRITE, .file_kind = DL_FILE_FIFO, .file_ino = RESULT_PIPE));
	synth_run(s, 1, WORKER, WORKER, AT(9), AT(9.5), SYNTH_SLEEP, ON_INDEX);
	synth_run(s, 0, TRAINER, TRAINER, AT(10), AT(51), SYNTH_SLEEP, ON_RESULTS);
	synth_wake(s, AT(30), TRAINER, TRAINER, FEEDER, WORKER, NR_READ);
	synth_run(s, 1, FEEDER, WORKER, AT(30), AT(30.1), SYNTH_SLEEP, ON_COND);
	synth_wake(s, AT(45), TRAINER, TRAINER, INDEX_FEEDER, TRAINER, NR_FUTEX);
	synth_run(s, 2, INDEX_FEEDER, TRAINER, AT(45), AT(45.2), SYNTH_SLEEP, ON_COND);
	synth_wake(s, AT(45.1), INDEX_FEEDER, TRAINER, WORKER, WORKER, NR_WRITE);
	synth_run(s, 1, WORKER, WORKER, AT(45.1), AT(46), SYNTH_SLEEP, ON_INDEX);
	feeder_puts(s, 46, 49);
	synth_wake(s, AT(52), FEEDER, WORKER, TRAINER, TRAINER, NR_WRITE);
	r = job_report(s, NULL);
	check_adds_up(r);
	CHECK_EQ(charged(r, DL_CAUSE_IPC), MS(15) + US(100));
	CHECK_EQ(charged(r, DL_CAUSE_HOST), MS(50.1 - 20.12) - MS(15) - US(100));
	dl_report_free(r);
}

/* The trainer is in cudaStreamSynchronize from 20.2 to 49: the device copies from 25 to 45. */
static struct dl_report *synchronised_with(uint16_t dir)
{
	struct synth *s = job_new();

	step(s, 10, 1);
	step(s, 50, 2);
	synth_run(s, 0, TRAINER, TRAINER, AT(10), AT(51), SYNTH_SLEEP, ON_RESULTS);
	synth_api(s, AT(20.2), AT(49), TRAINER, TRAINER, 7, DL_CALL_SYNC, "cudaStreamSynchronize");
	synth_memcpy(s, AT(25), AT(45), TRAINER, 0, 8, 6, dir, DL_GPU_MEM_PINNED, 1 << 20);
	return job_report(s, NULL);
}

TEST(a_synchronise_with_a_copy_is_the_copy)
{
	struct dl_report *r = synchronised_with(DL_GPU_HTOD);

	check_adds_up(r);
	CHECK_EQ(charged(r, DL_CAUSE_PCIE), MS(20));
	CHECK_EQ(charged(r, DL_CAUSE_SYNC), MS(49 - 20.2) - MS(20));
	dl_report_free(r);
	r = synchronised_with(DL_GPU_DTOD);
	check_adds_up(r);
	CHECK_EQ(charged(r, DL_CAUSE_PCIE), 0);
	CHECK_EQ(charged(r, DL_CAUSE_GPU), MS(20) + US(20));
	dl_report_free(r);
}

/* A worker that always finds its next index in the pipe is never woken by the index feeder, which is known
 * by its birth behind the worker's, and by waiting for its queue and the interpreter alone. */
TEST(an_index_feeder_that_wakes_nobody)
{
	struct synth *s = job_new();
	struct dl_report *r;

	synth_fork(s, AT(1), TRAINER, TRAINER, WORKER2, WORKER2, "python");
	synth_run(s, 3, WORKER2, WORKER2, AT(1.1), AT(90), SYNTH_SLEEP, ON_INDEX);
	synth_fork(s, AT(2), TRAINER, TRAINER, INDEX_FEEDER, TRAINER, "python");
	synth_run(s, 2, INDEX_FEEDER, TRAINER, AT(2.1), AT(2.2), SYNTH_SLEEP,
		  WAIT(NR_FUTEX, .arg0 = GIL_ADDR, .arg1 = FUTEX_TIMED, .deadline = AT(7.2)));
	synth_wake(s, AT(2.5), TRAINER, TRAINER, INDEX_FEEDER, TRAINER, NR_FUTEX);
	synth_run(s, 2, INDEX_FEEDER, TRAINER, AT(2.5), AT(2.6), SYNTH_SLEEP,
		  WAIT(NR_FUTEX, .arg0 = GIL_ADDR, .arg1 = FUTEX_TIMED, .deadline = AT(7.6)));
	synth_wake(s, AT(2.7), TRAINER, TRAINER, INDEX_FEEDER, TRAINER, NR_FUTEX);
	synth_run(s, 2, INDEX_FEEDER, TRAINER, AT(2.7), AT(2.8), SYNTH_SLEEP, ON_COND);
	step(s, 10, 1);
	step(s, 50, 2);
	synth_run(s, 0, TRAINER, TRAINER, AT(1), AT(11), SYNTH_SLEEP, ON_RESULTS);
	synth_wake(s, AT(30), FEEDER, WORKER, TRAINER, TRAINER, NR_WRITE);
	synth_run(s, 1, WORKER, WORKER, AT(5), AT(29), SYNTH_SLEEP, ON_INDEX);
	feeder_puts(s, 29, 30.01);
	synth_run(s, 0, TRAINER, TRAINER, AT(30), AT(51), SYNTH_SLEEP, ON_RESULTS);
	synth_wake(s, AT(45), TRAINER, TRAINER, INDEX_FEEDER, TRAINER, NR_FUTEX);
	synth_run(s, 2, INDEX_FEEDER, TRAINER, AT(45), AT(45.1), SYNTH_SLEEP, ON_COND);
	r = job_report(s, NULL);
	check_adds_up(r);
	CHECK_EQ(charged(r, DL_CAUSE_IPC), MS(1) + MS(15));
	CHECK_EQ(charged(r, DL_CAUSE_HOST), MS(5) + US(100));
	dl_report_free(r);
}

/* Four kernels of 5 ms with 1 us between them, then a read-back that began with the first one and ends
 * behind the last, at 30.1, and 15 ms of the trainer's Python: all of it is what the read-back cost. */
static void check_read_back(uint32_t cls, const char *name)
{
	struct synth *s = job_new();
	struct dl_report *r;

	for (uint32_t i = 0; i < 4; i++) {
		synth_api(s, AT(9 + 0.1 * i), AT(9.05 + 0.1 * i), TRAINER, TRAINER, 1 + i, DL_CALL_LAUNCH, "cudaLaunchKernel");
		synth_kernel(s, AT(10 + 5.001 * i), AT(15 + 5.001 * i), TRAINER, 0, 7, 1 + i, "train_step");
	}
	synth_api(s, AT(10), AT(30.1), TRAINER, TRAINER, 8, cls, name);
	if (cls == DL_CALL_COPY)
		synth_memcpy(s, AT(30.01), AT(30.02), TRAINER, 0, 7, 8, DL_GPU_DTOH, DL_GPU_MEM_PAGEABLE, 4);
	synth_api(s, AT(45.1), AT(45.11), TRAINER, TRAINER, 9, DL_CALL_LAUNCH, "cudaLaunchKernel");
	synth_kernel(s, AT(45.12), AT(55), TRAINER, 0, 7, 9, "train_step");
	synth_run(s, 0, TRAINER, TRAINER, AT(5), AT(60), SYNTH_SLEEP, ON_RESULTS);
	r = job_report(s, NULL);
	check_adds_up(r);
	CHECK(charged(r, DL_CAUSE_SYNC) >= MS(15));
	CHECK_EQ(charged(r, DL_CAUSE_HOST), 0);
	CHECK_EQ(r->verdict.cause, DL_CAUSE_SYNC);
	dl_report_free(r);
}

TEST(a_synchronise_waited_for_all_kernels_of_the_step)
{
	check_read_back(DL_CALL_SYNC, "cudaStreamSynchronize");
}

TEST(a_copy_back_is_a_synchronise)
{
	check_read_back(DL_CALL_COPY, "cudaMemcpyAsync");
}

/* torch_shm_manager answers a worker's requests: its pieces of 30 us between answers and requests are
 * hand-over, its longer work before them is decoding. */
TEST(announcing_storages_is_ipc)
{
	enum { MANAGER = 800 };
	struct synth *s = job_new();
	struct dl_report *r;

	synth_task(s, AT(0), MANAGER, MANAGER, WORKER, "torch_shm_manag", 0, 0);
	synth_cmdline(s, AT(0), MANAGER, "/usr/lib/torch/bin/torch_shm_manager");
	two_steps(s);
	synth_run(s, 2, MANAGER, MANAGER, AT(1), AT(2), SYNTH_SLEEP, WAIT(NR_POLL, .file_kind = DL_FILE_UNIX));
	synth_run(s, 1, WORKER, WORKER, AT(5), AT(40), SYNTH_SLEEP, WAIT(NR_READ, .file_kind = DL_FILE_UNIX, .flags = DL_SW_QUARTET));
	for (int i = 0; i < 90; i++) {
		double t = 40 + 0.1 * i;

		synth_wake(s, AT(t) - US(1), WORKER, WORKER, MANAGER, MANAGER, NR_WRITE);
		synth_run(s, 2, MANAGER, MANAGER, AT(t), AT(t + 0.07), SYNTH_SLEEP, WAIT(NR_POLL, .file_kind = DL_FILE_UNIX));
		synth_wake(s, AT(t + 0.069), MANAGER, MANAGER, WORKER, WORKER, NR_WRITE);
		synth_run(s, 1, WORKER, WORKER, AT(t + 0.07), AT(t + 0.1), SYNTH_SLEEP,
			  i < 89 ? WAIT(NR_READ, .file_kind = DL_FILE_UNIX, .flags = DL_SW_QUARTET) : ON_INDEX);
	}
	synth_wake(s, AT(49) - US(1), WORKER, WORKER, FEEDER, WORKER, NR_FUTEX);
	synth_run(s, 1, FEEDER, WORKER, AT(49), AT(50.01), SYNTH_SLEEP, ON_COND);
	r = job_report(s, NULL);
	check_adds_up(r);
	CHECK_NEAR((double)charged(r, DL_CAUSE_DECODE) / 1e6, 40 - 20.12 - 0.04, 0.002);
	CHECK_NEAR((double)charged(r, DL_CAUSE_IPC) / 1e6, 10.04, 0.002);
	dl_report_free(r);
}
