/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Waits that are not what they look like: for a lock on a file, for the kernel itself, for a worker to
 * end; and looks into /proc that come late. */
#include "unit/diagnose_util.h"

enum { NR_FLOCK = 73, NR_FCNTL = 72, NR_EXIT_GROUP = 231 };

/* Another process of the job holds the lock from before the gap to 48 and sleeps: the lock is the cause. */
static void check_file_lock(int32_t nr)
{
	struct synth *s = job_new();
	struct dl_report *r;

	synth_task(s, AT(0), WORKER2, WORKER2, TRAINER, "python", 0, 0);
	two_steps(s);
	synth_run(s, 1, WORKER, WORKER, AT(5), AT(21), SYNTH_SLEEP, WAIT(nr, .flags = DL_SW_QUARTET));
	synth_run(s, 2, WORKER2, WORKER2, AT(5), AT(6), SYNTH_SLEEP, WAIT(NR_NANOSLEEP, .deadline = AT(47)));
	synth_wake(s, AT(47), 0, 0, WORKER2, WORKER2, -1);
	synth_run(s, 2, WORKER2, WORKER2, AT(47), AT(60), SYNTH_SLEEP, ON_INDEX);
	synth_wake(s, AT(48), WORKER2, WORKER2, WORKER, WORKER, nr);
	synth_run(s, 1, WORKER, WORKER, AT(48), AT(49), SYNTH_SLEEP, ON_INDEX);
	feeder_puts(s, 49, 50.01);
	r = job_report(s, NULL);
	check_adds_up(r);
	CHECK_EQ(charged(r, DL_CAUSE_LOCK), MS(27));
	CHECK_EQ(charged(r, DL_CAUSE_SLEEP), 0);
	dl_report_free(r);
}

TEST(flock_is_a_lock)
{
	check_file_lock(NR_FLOCK);
}

TEST(fcntl_is_a_lock)
{
	check_file_lock(NR_FCNTL);
}

/* A grace period has no waker: it is the system call's own time, here of the feeder's hand-over. */
TEST(grace_periods_are_the_callers_own)
{
	struct synth *s = job_new();
	uint32_t stack = synth_stack(s, AT(1), WORKER, "schedule;synchronize_rcu;expand_files;alloc_fd", NULL);
	struct dl_report *r;

	two_steps(s);
	synth_run(s, 1, WORKER, WORKER, AT(5), AT(29), SYNTH_SLEEP, ON_INDEX);
	synth_wake(s, AT(29), WORKER, WORKER, FEEDER, WORKER, NR_FUTEX);
	synth_run(s, 1, FEEDER, WORKER, AT(29), AT(30), SYNTH_DISK, WAIT(NR_RECVMSG, .stack = stack));
	synth_run(s, 1, FEEDER, WORKER, AT(49), AT(50.01), SYNTH_SLEEP, ON_COND);
	r = job_report(s, NULL);
	check_adds_up(r);
	CHECK_EQ(charged(r, DL_CAUSE_UNEXPLAINED), 0);
	CHECK_EQ(charged(r, DL_CAUSE_IPC), MS(21));
	dl_report_free(r);
}

/* One batch arrives at 20; then, from 31 on, the trainer waits at the worker's sentinel, a pipe, until the
 * worker, which sleeps, has ended. killed: its last thread ends in a futex call. */
static struct dl_report *joined_at_the_end(bool killed)
{
	const struct dl_diagnose_opts opts = { .no_gpu = true };
	struct synth *s = job_new();

	synth_run(s, 0, TRAINER, TRAINER, AT(10), AT(11), SYNTH_SLEEP, ON_RESULTS);
	synth_wake(s, AT(20), FEEDER, WORKER, TRAINER, TRAINER, NR_WRITE);
	synth_run(s, 1, WORKER, WORKER, AT(5), AT(19), SYNTH_SLEEP, WAIT(NR_NANOSLEEP, .deadline = AT(90)));
	feeder_puts(s, 19, 20.01);
	synth_run(s, 0, TRAINER, TRAINER, AT(20), AT(31), SYNTH_SLEEP,
		  WAIT(NR_POLL, .file_kind = DL_FILE_FIFO, .file_ino = 77, .deadline = AT(5031)));
	synth_wake(s, AT(90), 0, 0, WORKER, WORKER, -1);
	synth_exit(s, AT(90.5), WORKER, WORKER, 0, DL_EX_LAST);
	synth_wake(s, AT(91), WORKER, WORKER, TRAINER, TRAINER, killed ? NR_FUTEX : NR_EXIT_GROUP);
	synth_run(s, 1, WORKER, WORKER, AT(90), AT(91.1), 0x80, WAIT(NR_EXIT_GROUP, .flags = DL_SW_EXITING));
	synth_run(s, 0, TRAINER, TRAINER, AT(91), AT(92), SYNTH_SLEEP, WAIT(NR_NANOSLEEP, .deadline = AT(93)));
	synth_mark(s, AT(93), DL_MARK_STOP, 0, "");
	return job_report(s, &opts);
}

TEST(the_end_of_the_workers_is_no_wait_for_a_batch)
{
	for (int killed = 0; killed < 2; killed++) {
		struct dl_report *r = joined_at_the_end(killed);

		check_adds_up(r);
		CHECK_EQ(r->waits.cnt, 1);
		CHECK_EQ(r->waits.total_ns, MS(20 - 11));
		dl_report_free(r);
	}
}

/* The recorder reads /proc of the worker's main thread a moment after it has ended. */
TEST(a_late_look_makes_no_second_thread)
{
	const struct dl_ev_task late = { .h = { .kind = DL_EV_TASK, .size = sizeof(late), .ts = AT(102), .tid = WORKER,
						.pid = WORKER }, .ppid = TRAINER, .state = 'Z', .start = AT(1), .syscall = -2 };
	struct synth *s = job_new();
	struct dl_report *r;
	size_t threads;

	two_steps(s);
	synth_run(s, 1, WORKER, WORKER, AT(5), AT(49), SYNTH_SLEEP, ON_INDEX);
	feeder_puts(s, 49, 50.01);
	synth_wake(s, AT(100), 0, 0, WORKER, WORKER, -1);
	synth_run(s, 1, WORKER, WORKER, AT(100), AT(101), 0x80, WAIT(NR_EXIT_GROUP, .flags = DL_SW_EXITING));
	synth_exit(s, AT(100.5), WORKER, WORKER, 0, DL_EX_LAST);
	synth_event(s, &late.h);
	r = job_report(s, NULL);
	check_adds_up(r);
	CHECK_EQ(charged(r, DL_CAUSE_DECODE), MS(49 - 20.12));
	CHECK_EQ(r->procs.cnt, 2);
	threads = 0;
	vec_for_each(&r->procs, p)
		threads += p->pid == WORKER ? p->threads : 0;
	CHECK_EQ(threads, 3);
	dl_report_free(r);
}

/* The trainer waits 20 us for a mutex that its own helper thread held for a moment between two sleeps:
 * that is not what the gap is for. */
TEST(a_mutex_is_looked_through)
{
	struct synth *s = job_new();
	struct dl_report *r;

	synth_task(s, AT(0), PIN, TRAINER, 1, "python", 0, 0);
	step(s, 10, 1);
	step(s, 50, 2);
	synth_run(s, 2, PIN, TRAINER, AT(5), AT(6), SYNTH_SLEEP, WAIT(NR_NANOSLEEP, .deadline = AT(29.99)));
	synth_wake(s, AT(29.99), 0, 0, PIN, TRAINER, -1);
	synth_run(s, 2, PIN, TRAINER, AT(29.99), AT(30.05), SYNTH_SLEEP, WAIT(NR_NANOSLEEP, .deadline = AT(99)));
	synth_run(s, 0, TRAINER, TRAINER, AT(10), AT(30), SYNTH_SLEEP, WAIT(NR_FUTEX, .arg0 = 0x1000, .arg1 = 0x80));
	synth_wake(s, AT(30.02), PIN, TRAINER, TRAINER, TRAINER, NR_FUTEX);
	synth_run(s, 0, TRAINER, TRAINER, AT(30.02), AT(51), SYNTH_SLEEP, ON_RESULTS);
	r = job_report(s, NULL);
	check_adds_up(r);
	CHECK_EQ(charged(r, DL_CAUSE_SLEEP), 0);
	CHECK_EQ(charged(r, DL_CAUSE_HOST), MS(50.1 - 20.12));
	dl_report_free(r);
}

/* The feeder wakes the trainer at 30, which takes its CPU for 0.5 ms; then a stranger has it until 45. */
TEST(behind_the_wakee_others_had_the_cpu)
{
	struct synth *s = job_new();
	struct dl_report *r;

	synth_foreign(s, STRANGER, STRANGER, "stress");
	step(s, 10, 1);
	step(s, 50, 2);
	synth_run(s, 0, TRAINER, TRAINER, AT(10), AT(11), SYNTH_SLEEP, ON_RESULTS);
	synth_run(s, 2, WORKER, WORKER, AT(5), AT(29), SYNTH_SLEEP, ON_INDEX);
	synth_wake(s, AT(29), WORKER, WORKER, FEEDER, WORKER, NR_FUTEX);
	synth_run(s, 1, FEEDER, WORKER, AT(29), AT(30), SYNTH_RUNNABLE, WAIT(NR_WRITE, .flags = DL_SW_QUARTET));
	synth_wake(s, AT(29.99), FEEDER, WORKER, TRAINER, TRAINER, NR_WRITE);
	synth_run(s, 1, TRAINER, TRAINER, AT(30), AT(30.5), SYNTH_SLEEP,
		  WAIT(NR_RECVMSG, .file_kind = DL_FILE_UNIX, .file_ino = SOCKET));
	synth_run(s, 1, STRANGER, STRANGER, AT(30.5), AT(45), SYNTH_RUNNABLE, NULL);
	synth_run(s, 1, FEEDER, WORKER, AT(45), AT(50.01), SYNTH_SLEEP, ON_COND);
	synth_wake(s, AT(50), FEEDER, WORKER, TRAINER, TRAINER, NR_WRITE);
	synth_run(s, 0, TRAINER, TRAINER, AT(50), AT(51), SYNTH_SLEEP, ON_RESULTS);
	r = job_report(s, NULL);
	check_adds_up(r);
	CHECK_EQ(charged(r, DL_CAUSE_CPU_CONTENTION), MS(45 - 30.5));
	CHECK_EQ(charged(r, DL_CAUSE_IPC), MS(1) + MS(0.5) + MS(5));
	CHECK(strstr(r->devices.v[0].causes[DL_CAUSE_CPU_CONTENTION].detail, "stress"));
	dl_report_free(r);
}

/* Twenty threads of the trainer take the CPU from the worker by turns: none has a twentieth, all have it. */
TEST(many_threads_are_named_together)
{
	struct synth *s = job_new();
	struct dl_report *r;

	for (uint32_t i = 0; i < 24; i++)
		synth_task(s, AT(0), 400 + i, TRAINER, 1, "python", 0, 0);
	two_steps(s);
	synth_run(s, 1, WORKER, WORKER, AT(5), AT(21), SYNTH_RUNNABLE, WAIT(-1, .flags = DL_SW_QUARTET | DL_SW_EXCEPTION));
	for (uint32_t i = 0; i < 24; i++)
		synth_run(s, 1, 400 + i, TRAINER, AT(21 + i), AT(22 + i), SYNTH_RUNNABLE, WAIT(-1, .flags = DL_SW_EXCEPTION));
	synth_run(s, 1, WORKER, WORKER, AT(45), AT(49), SYNTH_SLEEP, ON_INDEX);
	feeder_puts(s, 49, 50.01);
	r = job_report(s, NULL);
	check_adds_up(r);
	CHECK_EQ(charged(r, DL_CAUSE_CPU_CONTENTION), MS(24));
	CHECK(strstr(r->devices.v[0].causes[DL_CAUSE_CPU_CONTENTION].detail, "held by 24 threads of trainer (pid 100) 100 %"));
	dl_report_free(r);
}

/* The trainer, woken at 49.0 behind its own CPU's other work, runs at 50 on a CPU that was idle: where it had
 * blocked (CPU 0), that is a slow wake-up; on another one it had been queued. */
static struct dl_report *woken_late(uint32_t cpu)
{
	struct synth *s = job_new();

	step(s, 10, 1);
	step(s, 50, 2);
	synth_run(s, 0, TRAINER, TRAINER, AT(10), AT(11), SYNTH_SLEEP, ON_RESULTS);
	synth_run(s, 1, WORKER, WORKER, AT(5), AT(48), SYNTH_SLEEP, ON_INDEX);
	feeder_puts(s, 48, 49.01);
	synth_wake(s, AT(49), FEEDER, WORKER, TRAINER, TRAINER, NR_WRITE);
	synth_run(s, cpu, TRAINER, TRAINER, AT(50), AT(51), SYNTH_SLEEP, ON_RESULTS);
	return job_report(s, NULL);
}

TEST(a_wake_up_that_ends_elsewhere_was_queued)
{
	struct dl_report *r = woken_late(0);

	check_adds_up(r);
	CHECK_EQ(charged(r, DL_CAUSE_IPC), MS(2));
	CHECK_EQ(charged(r, DL_CAUSE_CPU_CONTENTION), 0);
	dl_report_free(r);
	r = woken_late(2);
	check_adds_up(r);
	CHECK_EQ(charged(r, DL_CAUSE_IPC), MS(1));
	CHECK_EQ(charged(r, DL_CAUSE_CPU_CONTENTION), MS(1));
	dl_report_free(r);
}
