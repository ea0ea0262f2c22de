/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Synthesized jobs (events of one instant in the order given) whose answer follows from arithmetic: each test states the timeline in
 * milliseconds and what must be charged to what. */
#include "unit/diagnose_util.h"

/* The worker computes up to 49, its feeder pickles from 49 to 50. */
TEST(decode)
{
	struct synth *s = job_new();
	struct dl_report *r;

	two_steps(s);
	synth_run(s, 1, WORKER, WORKER, AT(5), AT(49), SYNTH_SLEEP, ON_INDEX);
	feeder_puts(s, 49, 50.01);
	r = job_report(s, NULL);
	check_adds_up(r);
	CHECK_EQ(r->devices.cnt, 1);
	CHECK_EQ(r->devices.v[0].idle_ns, MS(30));
	CHECK_EQ(charged(r, DL_CAUSE_DECODE), MS(49 - 20.12));
	CHECK_EQ(charged(r, DL_CAUSE_IPC), MS(1));
	CHECK_EQ(charged(r, DL_CAUSE_HOST), US(100));
	CHECK_EQ(charged(r, DL_CAUSE_GPU), US(20));
	CHECK(r->verdict.has_cause);
	CHECK_EQ(r->verdict.cause, DL_CAUSE_DECODE);
	CHECK_EQ(r->trainers.cnt, 1);
	CHECK_EQ(r->trainers.v[0].part.idle_ns, MS(30));
	CHECK_EQ(r->trainers.v[0].part.cause, DL_CAUSE_DECODE);
	CHECK_EQ(r->loaders.cnt, 1);
	CHECK_EQ(r->loaders.v[0].part.idle_ns, MS(30));
	CHECK_EQ(r->loaders.v[0].part.cause_ns[DL_CAUSE_DECODE], MS(49 - 20.12));
	dl_report_free(r);
}

/* The same place and length of wait, other causes: what the worker did decides. */
static struct dl_report *worker_blocked(const struct synth_wait *wait, uint32_t state, uint32_t waker,
					int32_t waker_nr)
{
	struct synth *s = job_new();

	synth_foreign(s, STRANGER, STRANGER, "server");
	two_steps(s);
	synth_run(s, 1, WORKER, WORKER, AT(5), AT(21), state, wait);
	synth_wake(s, AT(48), waker, waker, WORKER, WORKER, waker_nr);
	synth_run(s, 1, WORKER, WORKER, AT(48), AT(49), SYNTH_SLEEP, ON_INDEX);
	feeder_puts(s, 49, 50.01);
	return job_report(s, NULL);
}

static void check_27ms(struct dl_report *r, enum dl_cause cause)
{
	check_adds_up(r);
	CHECK_EQ(charged(r, cause), MS(27));
	CHECK_EQ(charged(r, DL_CAUSE_DECODE), MS(21 - 20.12) + MS(1));
	CHECK_EQ(r->verdict.cause, cause);
	dl_report_free(r);
}

TEST(twin_storage)
{
	check_27ms(worker_blocked(WAIT(NR_READ, .file_kind = DL_FILE_REG, .file_ino = 5, .file_dev = 8 << 20,
				       .flags = DL_SW_IOWAIT | DL_SW_QUARTET), SYNTH_DISK, 0, -1), DL_CAUSE_STORAGE);
}

/* A FUSE daemon outside the job answers: the file decides, not the waker. */
TEST(twin_fuse_is_storage)
{
	check_27ms(worker_blocked(WAIT(NR_READ, .file_kind = DL_FILE_REG, .file_ino = 5, .file_magic = 0x65735546,
				       .flags = DL_SW_QUARTET), SYNTH_SLEEP, STRANGER, NR_WRITE), DL_CAUSE_STORAGE);
}

TEST(twin_sleep)
{
	check_27ms(worker_blocked(WAIT(NR_NANOSLEEP, .deadline = AT(48), .flags = DL_SW_QUARTET), SYNTH_SLEEP, 0, -1),
		   DL_CAUSE_SLEEP);
}

TEST(twin_network)
{
	check_27ms(worker_blocked(WAIT(NR_RECVMSG, .file_kind = DL_FILE_INET, .file_ino = 9, .flags = DL_SW_QUARTET),
				  SYNTH_SLEEP, 0, -1), DL_CAUSE_NETWORK);
}

TEST(twin_external)
{
	check_27ms(worker_blocked(WAIT(NR_READ, .file_kind = DL_FILE_UNIX, .file_ino = 9, .flags = DL_SW_QUARTET),
				  SYNTH_SLEEP, STRANGER, NR_WRITE), DL_CAUSE_EXTERNAL);
}

/* A lost wake: nobody knows who ended the wait for data. */
TEST(twin_unknown_waker)
{
	check_27ms(worker_blocked(WAIT(NR_READ, .file_kind = DL_FILE_FIFO, .file_ino = 9, .flags = DL_SW_QUARTET),
				  SYNTH_SLEEP, 0, -1), DL_CAUSE_UNEXPLAINED);
}

/* Two of the machine's four CPUs idle all the time. */
static void env_host(struct synth *s)
{
	struct dl_ev_env_host ev = { .h = { .kind = DL_EV_ENV_HOST, .size = sizeof(ev), .ts = AT(0) }, .cpus = 4 };

	synth_event(s, &ev.h);
	ev.h.ts = AT(60);
	ev.idle_ns = MS(120);
	synth_event(s, &ev.h);
}

static struct dl_report *worker_runnable(bool throttled, uint32_t cpus_allowed)
{
	struct synth *s = job_new();

	env_host(s);

	synth_foreign(s, STRANGER, STRANGER, "stress");
	two_steps(s);
	/* preempted at 21, runs again at 48 when the stranger gives the CPU up */
	synth_run(s, 1, WORKER, WORKER, AT(5), AT(21), SYNTH_RUNNABLE,
		  WAIT(-1, .flags = DL_SW_QUARTET | DL_SW_EXCEPTION, .throttle_cnt = throttled,
		       .cpus_allowed = cpus_allowed));
	synth_run(s, 1, STRANGER, STRANGER, AT(21), AT(48), SYNTH_RUNNABLE, NULL);
	synth_run(s, 1, WORKER, WORKER, AT(48), AT(49), SYNTH_SLEEP, ON_INDEX);
	feeder_puts(s, 49, 50.01);
	return job_report(s, NULL);
}

TEST(twin_contention)
{
	struct dl_report *r = worker_runnable(false, 4);

	CHECK(strstr(r->devices.v[0].causes[DL_CAUSE_CPU_CONTENTION].detail, "stress"));
	CHECK_EQ(r->devices.v[0].causes[DL_CAUSE_CPU_CONTENTION].own_tree_ns, 0);
	CHECK_EQ(r->devices.v[0].causes[DL_CAUSE_CPU_CONTENTION].affinity_ns, 0);
	CHECK(!strstr(r->verdict.text, "affinity"));
	check_27ms(r, DL_CAUSE_CPU_CONTENTION);
}

/* The same wait of a worker that may run on one CPU only, while others idle: said as what it is. */
TEST(twin_contention_by_affinity)
{
	struct dl_report *r = worker_runnable(false, 1);

	CHECK_EQ(r->cpus, 4);
	CHECK_NEAR(r->cpu_idle * 100, 50, 1e-6);
	CHECK_EQ(r->devices.v[0].causes[DL_CAUSE_CPU_CONTENTION].affinity_ns, MS(27));
	CHECK(strstr(r->verdict.text, "affinity"));
	CHECK(strstr(r->verdict.text, "idle for 50 %"));
	check_27ms(r, DL_CAUSE_CPU_CONTENTION);
}

/* A working worker waits for the CPU that a new one has, from its birth at 21 to its first wait for an index. */
TEST(twin_held_by_a_worker_being_made)
{
	struct synth *s = job_new();
	struct dl_report *r;

	env_host(s);
	two_steps(s);
	synth_run(s, 1, WORKER, WORKER, AT(5), AT(21), SYNTH_RUNNABLE,
		  WAIT(-1, .flags = DL_SW_QUARTET | DL_SW_EXCEPTION, .cpus_allowed = 4));
	synth_fork(s, AT(20.9), TRAINER, TRAINER, WORKER2, WORKER2, "python");
	synth_run(s, 1, WORKER2, WORKER2, AT(21), AT(48), SYNTH_SLEEP, ON_INDEX);
	synth_run(s, 1, WORKER, WORKER, AT(48), AT(49), SYNTH_SLEEP, ON_INDEX);
	feeder_puts(s, 49, 50.01);
	r = job_report(s, NULL);
	CHECK_EQ(charged(r, DL_CAUSE_CPU_CONTENTION), 0);
	check_27ms(r, DL_CAUSE_STARTUP);
}

TEST(twin_quota)
{
	check_27ms(worker_runnable(true, 4), DL_CAUSE_CPU_QUOTA);
}

/* Another process holds a lock that is not private, and computes: the lock is the cause. */
TEST(twin_lock_between_processes)
{
	struct synth *s = job_new();
	struct dl_report *r;

	synth_task(s, AT(0), WORKER2, WORKER2, TRAINER, "python", 0, QUARTET);
	two_steps(s);
	synth_run(s, 1, WORKER, WORKER, AT(5), AT(21), SYNTH_SLEEP,
		  WAIT(NR_FUTEX, .arg0 = 0x7f0010, .arg1 = FUTEX_SHARED, .flags = DL_SW_QUARTET));
	synth_run(s, 2, WORKER2, WORKER2, AT(5), AT(60), SYNTH_SLEEP, ON_INDEX);
	synth_wake(s, AT(48), WORKER2, WORKER2, WORKER, WORKER, NR_FUTEX);
	synth_run(s, 1, WORKER, WORKER, AT(48), AT(49), SYNTH_SLEEP, ON_INDEX);
	feeder_puts(s, 49, 50.01);
	r = job_report(s, NULL);
	CHECK_EQ(r->devices.v[0].causes[DL_CAUSE_LOCK].via_lock_ns, MS(27));
	check_27ms(r, DL_CAUSE_LOCK);
}

/* The hand-over waits for the worker's GIL in slices of 5 ms while the worker decodes the next
 * batch: decode, reached through the lock. */
static struct dl_report *behind_gil(uint32_t holder)
{
	struct synth *s = job_new();
	double t;

	synth_task(s, AT(0), HELPER_THREAD, WORKER, TRAINER, "python", 0, QUARTET);
	step(s, 10, 1);
	step(s, 50, 2);
	synth_run(s, 0, TRAINER, TRAINER, AT(10), AT(11), SYNTH_SLEEP,
		  WAIT(NR_RECVMSG, .file_kind = DL_FILE_UNIX, .file_ino = SOCKET));
	synth_wake(s, AT(50), SHARER, WORKER, TRAINER, TRAINER, NR_WRITE);
	synth_run(s, 0, TRAINER, TRAINER, AT(50), AT(51), SYNTH_SLEEP, ON_RESULTS);
	synth_run(s, 1, holder, WORKER, AT(5), AT(60), SYNTH_SLEEP, ON_INDEX);
	/* the sharer: accept ends at 12, then the GIL from 12.1 to 49.9 */
	synth_run(s, 2, SHARER, WORKER, AT(5), AT(5.1), SYNTH_SLEEP,
		  WAIT(NR_ACCEPT4, .file_kind = DL_FILE_UNIX, .flags = DL_SW_SIGBLOCK));
	synth_wake(s, AT(12), TRAINER, TRAINER, SHARER, WORKER, NR_CONNECT);
	for (t = 12; t < 47; t += 5) {
		synth_run(s, 2, SHARER, WORKER, AT(t), AT(t + 0.1), SYNTH_SLEEP,
			  WAIT(NR_FUTEX, .arg0 = GIL_ADDR, .arg1 = FUTEX_TIMED, .deadline = AT(t + 5),
			       .flags = DL_SW_SIGBLOCK));
		if (t + 5 < 47)
			synth_wake(s, AT(t + 5), 0, 0, SHARER, WORKER, -1);
	}
	synth_wake(s, AT(49.9), holder, WORKER, SHARER, WORKER, NR_FUTEX);
	synth_run(s, 2, SHARER, WORKER, AT(49.9), AT(50.1), SYNTH_SLEEP,
		  WAIT(NR_ACCEPT4, .file_kind = DL_FILE_UNIX, .flags = DL_SW_SIGBLOCK));
	return job_report(s, NULL);
}

TEST(decode_through_gil)
{
	struct dl_report *r = behind_gil(WORKER);

	check_adds_up(r);
	CHECK_EQ(r->verdict.cause, DL_CAUSE_DECODE);
	/* the gap begins at 20.12, in the middle of the row of slices, which ends at 49.9 */
	CHECK_EQ(charged(r, DL_CAUSE_DECODE), MS(49.9 - 20.12));
	CHECK_EQ(r->devices.v[0].causes[DL_CAUSE_DECODE].via_lock_ns, MS(49.9 - 20.12));
	CHECK_EQ(charged(r, DL_CAUSE_GIL), 0);
	dl_report_free(r);
}

/* The same, but a helper thread burns the GIL: nothing for the batch. */
TEST(gil_of_a_helper_thread)
{
	struct dl_report *r = behind_gil(HELPER_THREAD);

	check_adds_up(r);
	CHECK_EQ(r->verdict.cause, DL_CAUSE_GIL);
	CHECK_EQ(charged(r, DL_CAUSE_GIL), MS(49.9 - 20.12));
	dl_report_free(r);
}

/* The trainer is busy in Python: host. */
TEST(host)
{
	struct synth *s = job_new();
	struct dl_report *r;

	step(s, 10, 1);
	step(s, 50, 2);
	synth_run(s, 0, TRAINER, TRAINER, AT(5), AT(60), SYNTH_SLEEP, ON_RESULTS);
	r = job_report(s, NULL);
	check_adds_up(r);
	CHECK_EQ(charged(r, DL_CAUSE_HOST), MS(50.1 - 20.12));
	CHECK_EQ(r->verdict.cause, DL_CAUSE_HOST);
	dl_report_free(r);
}

/* The trainer waits for the GPU from 12 to 20.2 and then needs until 50.1 to launch again. Without
 * the synchronise it would have been 8.12 ms ahead. */
TEST(sync_takes_what_it_cost)
{
	struct synth *s = job_new();
	struct dl_report *r;

	step(s, 10, 1);
	step(s, 50, 2);
	synth_api(s, AT(12), AT(20.2), TRAINER, TRAINER, 9, DL_CALL_SYNC, "cudaStreamSynchronize");
	synth_run(s, 0, TRAINER, TRAINER, AT(5), AT(60), SYNTH_SLEEP, ON_RESULTS);
	r = job_report(s, NULL);
	check_adds_up(r);
	/* 0.08 inside the call, then what it cost */
	CHECK_EQ(charged(r, DL_CAUSE_SYNC), MS(0.08) + MS(8.12));
	CHECK_EQ(charged(r, DL_CAUSE_HOST), MS(50.1 - 20.2) - MS(8.12));
	dl_report_free(r);
}

/* A pageable copy blocks the trainer before the launch. */
TEST(pcie_pageable)
{
	struct synth *s = job_new();
	struct dl_report *r;

	step(s, 10, 1);
	step(s, 50, 2);
	synth_api(s, AT(22), AT(49), TRAINER, TRAINER, 9, DL_CALL_COPY, "cudaMemcpyAsync");
	synth_memcpy(s, AT(23), AT(49), TRAINER, 0, 7, 9, DL_GPU_HTOD, DL_GPU_MEM_PAGEABLE, 300 << 20);
	synth_run(s, 0, TRAINER, TRAINER, AT(5), AT(60), SYNTH_SLEEP, ON_RESULTS);
	r = job_report(s, NULL);
	check_adds_up(r);
	CHECK_EQ(charged(r, DL_CAUSE_PCIE), MS(27));
	CHECK_EQ(charged(r, DL_CAUSE_HOST), MS(22 - 20.12) + MS(1.1));
	CHECK_EQ(r->verdict.cause, DL_CAUSE_PCIE);
	CHECK_EQ(r->copies.cnt, 1);
	CHECK_EQ(r->copies.v[0].mem, DL_GPU_MEM_PAGEABLE);
	CHECK_EQ(r->copies.v[0].bytes, 300 << 20);
	dl_report_free(r);
}

/* Pinned and asynchronous: the host asked early, the device copied. */
TEST(pcie_pinned)
{
	struct synth *s = job_new();
	struct dl_report *r;

	step(s, 10, 1);
	synth_api(s, AT(21), AT(21.01), TRAINER, TRAINER, 8, DL_CALL_COPY, "cudaMemcpyAsync");
	synth_memcpy(s, AT(21.05), AT(50), TRAINER, 0, 7, 8, DL_GPU_HTOD, DL_GPU_MEM_PINNED, 300 << 20);
	synth_api(s, AT(21.1), AT(21.11), TRAINER, TRAINER, 2, DL_CALL_LAUNCH, "cudaLaunchKernel");
	synth_kernel(s, AT(50.02), AT(60), TRAINER, 0, 7, 2, "train_step");
	synth_run(s, 0, TRAINER, TRAINER, AT(5), AT(60), SYNTH_SLEEP, ON_RESULTS);
	r = job_report(s, NULL);
	check_adds_up(r);
	/* 0.01 in the call, 28.9 behind the launch; the last 0.02 are the device's own */
	CHECK_EQ(charged(r, DL_CAUSE_PCIE), MS(0.01) + MS(28.9));
	CHECK_EQ(charged(r, DL_CAUSE_GPU), US(20));
	dl_report_free(r);
}

/* By rounded clocks the copy ends 5 ns behind the start of the kernel that waited for it. */
TEST(pcie_pinned_by_rounded_clocks)
{
	struct synth *s = job_new();
	struct dl_report *r;

	step(s, 10, 1);
	synth_memcpy(s, AT(21.05), AT(50) + 5, TRAINER, 0, 8, 8, DL_GPU_HTOD, DL_GPU_MEM_PINNED, 300 << 20);
	synth_api(s, AT(21.1), AT(21.11), TRAINER, TRAINER, 2, DL_CALL_LAUNCH, "cudaLaunchKernel");
	synth_kernel(s, AT(50), AT(60), TRAINER, 0, 7, 2, "train_step");
	synth_run(s, 0, TRAINER, TRAINER, AT(5), AT(60), SYNTH_SLEEP, ON_RESULTS);
	r = job_report(s, NULL);
	check_adds_up(r);
	CHECK_EQ(charged(r, DL_CAUSE_PCIE), MS(28.9));
	CHECK_EQ(charged(r, DL_CAUSE_GPU), 0);
	dl_report_free(r);
}

/* num_workers=0: what comes before the copy of a batch is its making. */
TEST(no_workers)
{
	struct synth *s = synth_new(test_path("job.dlbpf"));
	struct dl_report *r;

	CHECK(s);
	synth_task(s, AT(0), TRAINER, TRAINER, 1, "python", DL_TF_ROOT, 0);
	step(s, 10, 1);
	step(s, 50, 2);
	synth_api(s, AT(45), AT(46), TRAINER, TRAINER, 9, DL_CALL_COPY, "cudaMemcpyAsync");
	synth_memcpy(s, AT(45.1), AT(46), TRAINER, 0, 7, 9, DL_GPU_HTOD, DL_GPU_MEM_PAGEABLE, 1 << 20);
	synth_run(s, 0, TRAINER, TRAINER, AT(5), AT(60), SYNTH_SLEEP, ON_RESULTS);
	r = job_report(s, NULL);
	check_adds_up(r);
	CHECK_EQ(charged(r, DL_CAUSE_DECODE), MS(45 - 20.12));
	CHECK_EQ(charged(r, DL_CAUSE_PCIE), MS(1));
	CHECK_EQ(charged(r, DL_CAUSE_HOST), MS(50.1 - 46));
	CHECK_EQ(r->verdict.cause, DL_CAUSE_DECODE);
	dl_report_free(r);
}

/* A worker is born at 21 and ready at 40: start-up, whatever it runs. */
TEST(startup)
{
	struct synth *s = synth_new(test_path("job.dlbpf"));
	struct dl_report *r;

	CHECK(s);
	synth_task(s, AT(0), TRAINER, TRAINER, 1, "python", DL_TF_ROOT, 0);
	two_steps(s);
	synth_run(s, 1, TRAINER + 1, TRAINER, AT(5), AT(6), SYNTH_SLEEP, ON_COND);
	synth_fork(s, AT(10.5), TRAINER, TRAINER, WORKER, WORKER, "python");
	synth_run(s, 1, WORKER, WORKER, AT(10.5), AT(40), SYNTH_SLEEP, ON_INDEX);
	synth_wake(s, AT(40), INDEX_FEEDER, TRAINER, WORKER, WORKER, NR_WRITE);
	synth_run(s, 1, WORKER, WORKER, AT(40), AT(49), SYNTH_SLEEP, ON_INDEX);
	synth_fork(s, AT(42), WORKER, WORKER, FEEDER, WORKER, "python");
	synth_run(s, 2, FEEDER, WORKER, AT(42), AT(42.1), SYNTH_SLEEP, ON_COND);
	feeder_puts(s, 49, 50.01);
	r = job_report(s, NULL);
	check_adds_up(r);
	/* the feeder is younger than 20 ms: its run is start-up too */
	CHECK_EQ(charged(r, DL_CAUSE_STARTUP), MS(40 - 20.12) + MS(1));
	CHECK_EQ(charged(r, DL_CAUSE_DECODE), MS(9));
	dl_report_free(r);
}

/* Three of the worker's switches are missing: what it did in between is not known. */
TEST(lost_switches_are_unexplained)
{
	struct synth *s = job_new();
	struct dl_report *r;

	two_steps(s);
	synth_run(s, 1, WORKER, WORKER, AT(5), AT(25), SYNTH_RUNNABLE, WAIT(-1, .flags = DL_SW_QUARTET));
	synth_run(s, 1, WORKER, WORKER, AT(30), AT(49), SYNTH_SLEEP,
		  WAIT(NR_POLL, .file_kind = DL_FILE_FIFO, .file_ino = INDEX_PIPE, .lost = 3, .flags = DL_SW_QUARTET));
	feeder_puts(s, 49, 50.01);
	r = job_report(s, NULL);
	check_adds_up(r);
	CHECK_EQ(charged(r, DL_CAUSE_UNEXPLAINED), MS(49 - 25));
	CHECK_EQ(charged(r, DL_CAUSE_DECODE), MS(25 - 20.12));
	dl_report_free(r);
}

/* The wake is stamped a moment before the switch-out: the worker did not block, it waited for a
 * CPU that a stranger had. */
TEST(wake_before_switch_out)
{
	struct synth *s = job_new();
	struct dl_report *r;

	synth_foreign(s, STRANGER, STRANGER, "stress");
	two_steps(s);
	synth_run(s, 1, WORKER, WORKER, AT(5), AT(21), SYNTH_SLEEP,
		  WAIT(NR_READ, .file_kind = DL_FILE_FIFO, .file_ino = 9, .flags = DL_SW_QUARTET));
	synth_wake(s, AT(20.99), STRANGER, STRANGER, WORKER, WORKER, NR_WRITE);
	synth_run(s, 1, STRANGER, STRANGER, AT(21), AT(48), SYNTH_RUNNABLE, NULL);
	synth_run(s, 1, WORKER, WORKER, AT(48), AT(49), SYNTH_SLEEP, ON_INDEX);
	feeder_puts(s, 49, 50.01);
	r = job_report(s, NULL);
	CHECK_EQ(charged(r, DL_CAUSE_EXTERNAL), 0);
	check_27ms(r, DL_CAUSE_CPU_CONTENTION);
}

/* Kernels on two streams overlap, a collective runs alone for 5 ms. */
TEST(busy_is_a_union)
{
	struct synth *s = job_new();
	struct dl_report *r;

	synth_kernel(s, AT(10), AT(20), TRAINER, 0, 1, 0, "a");
	synth_kernel(s, AT(15), AT(30), TRAINER, 0, 2, 0, "b");
	synth_kernel(s, AT(28), AT(35), TRAINER, 0, 3, 0, "ncclDevKernel_AllReduce");
	synth_kernel(s, AT(40), AT(50), TRAINER, 0, 1, 0, "a");
	synth_run(s, 0, TRAINER, TRAINER, AT(5), AT(60), SYNTH_SLEEP, ON_RESULTS);
	r = job_report(s, NULL);
	check_adds_up(r);
	CHECK_EQ(r->devices.v[0].busy_ns, MS(30));
	CHECK_EQ(r->devices.v[0].collective_ns, MS(5));
	CHECK_EQ(r->devices.v[0].idle_ns, MS(5));
	dl_report_free(r);
}

/* Without GPU data the trainer's wait (11 to 50) is charged instead. */
TEST(waits_without_gpu)
{
	struct synth *s = job_new();
	struct dl_report *r;

	synth_run(s, 0, TRAINER, TRAINER, AT(10), AT(11), SYNTH_SLEEP, ON_RESULTS);
	synth_wake(s, AT(50), FEEDER, WORKER, TRAINER, TRAINER, NR_WRITE);
	synth_run(s, 0, TRAINER, TRAINER, AT(50), AT(61), SYNTH_SLEEP, ON_RESULTS);
	synth_run(s, 1, WORKER, WORKER, AT(5), AT(49), SYNTH_SLEEP, ON_INDEX);
	feeder_puts(s, 49, 50.01);
	synth_mark(s, AT(61), DL_MARK_STOP, 0, "");
	r = job_report(s, NULL);
	check_adds_up(r);
	CHECK(!r->has_gpu);
	CHECK_EQ(r->waits.cnt, 1);
	CHECK_EQ(r->waits.total_ns, MS(39));
	CHECK_EQ(r->waits.causes[DL_CAUSE_DECODE].ns, MS(38));
	CHECK_EQ(r->waits.causes[DL_CAUSE_IPC].ns, MS(1));
	CHECK_EQ(r->verdict.cause, DL_CAUSE_DECODE);
	dl_report_free(r);
}

/* Another tool took the records at 55, and the recorder noticed at 60: the device was watched until 55. */
TEST(another_tool_takes_the_records)
{
	struct synth *s = job_new();
	struct dl_ev_gpu_source busy = { .h = { .kind = DL_EV_GPU_SOURCE, .size = sizeof(busy), .ts = AT(60), .pid = TRAINER },
					 .state = DL_GPU_BUSY, .until = AT(55) };
	struct dl_report *r;

	synth_gpu_source(s, AT(1), TRAINER, DL_GPU_COLLECTOR, 0, "CUPTI 13.0");
	synth_kernel(s, AT(10), AT(20), TRAINER, 0, 1, 0, "a");
	synth_kernel(s, AT(40), AT(50), TRAINER, 0, 1, 0, "a");
	synth_run(s, 0, TRAINER, TRAINER, AT(5), AT(100), SYNTH_SLEEP, ON_RESULTS);
	for (int at = 10; at <= 100; at += 10) {
		struct dl_ev_gpu_clock c = { .h = { .kind = DL_EV_GPU_CLOCK, .size = sizeof(c), .ts = AT(at), .pid = TRAINER } };

		synth_event(s, &c.h);
	}
	synth_event_text(s, &busy.h, "busy (torch.profiler?): another tool has CUPTI's records");
	synth_mark(s, AT(100), DL_MARK_STOP, 0, "");
	r = job_report(s, NULL);
	check_adds_up(r);
	CHECK_EQ(r->devices.v[0].busy_ns, MS(20));
	CHECK_EQ(r->devices.v[0].end, AT(55));
	CHECK_EQ(r->devices.v[0].idle_ns, r->devices.v[0].end - r->devices.v[0].start - MS(20));
	CHECK_STR(r->gpu_source, "CUPTI 13.0; then busy (torch.profiler?): another tool has CUPTI's records");
	CHECK_EQ(r->notes.cnt, 1);
	CHECK(strstr(r->notes.v[0], "another tool had the GPU records"));
	dl_report_free(r);
}

/* The GPU is busy all the time: nobody is blamed. */
TEST(healthy)
{
	struct synth *s = job_new();
	struct dl_report *r;

	for (int i = 0; i < 10; i++)
		synth_kernel(s, AT(10 + 10 * i), AT(19.9 + 10 * i), TRAINER, 0, 1, (uint32_t)i + 1, "k");
	synth_run(s, 0, TRAINER, TRAINER, AT(5), AT(200), SYNTH_SLEEP, ON_RESULTS);
	r = job_report(s, NULL);
	check_adds_up(r);
	CHECK(r->verdict.healthy);
	CHECK(!r->verdict.has_cause);
	CHECK(strstr(r->verdict.text, "GPU is the limit"));
	dl_report_free(r);
}

/* Only part of the trace is asked for: 30 .. 40 of the decode gap. */
TEST(window)
{
	struct dl_diagnose_opts opts = { .from_ts = AT(30), .to_ts = AT(40) };
	struct synth *s = job_new();
	struct dl_report *r;

	two_steps(s);
	synth_run(s, 1, WORKER, WORKER, AT(5), AT(49), SYNTH_SLEEP, ON_INDEX);
	feeder_puts(s, 49, 50.01);
	r = job_report(s, &opts);
	check_adds_up(r);
	CHECK_EQ(r->devices.v[0].idle_ns, MS(10));
	CHECK_EQ(charged(r, DL_CAUSE_DECODE), MS(10));
	dl_report_free(r);
}
