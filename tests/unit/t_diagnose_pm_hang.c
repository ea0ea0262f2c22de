/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Runs that stand still: a lost batch, locks, stopped processes, orphans; and what only looks like it. */
#include "unit/pm_util.h"

#include "unit/failing_alloc.h"

enum { NR_FALLOCATE = 285, NR_CLOSE = 3, FUTEX_MUTEX = 0x80 };

/* A wait that beats every 5 s until `to`, as PyTorch's do; a nice process is woken up to 0.5 % late. */
static void beats(struct synth *s, uint32_t cpu, uint32_t tid, uint32_t pid, double from, double to, uint64_t pipe, uint16_t flags)
{
	for (double t = from; t < to; t += 5025) {
		synth_run(s, cpu, tid, pid, AT(t), AT(t + 0.2), SYNTH_SLEEP,
			  WAIT(NR_POLL, .file_kind = DL_FILE_FIFO, .file_ino = pipe, .flags = flags, .deadline = AT(t + 0.2 + 5000)));
		if (t + 5025 < to)
			synth_wake(s, AT(t + 5025 - 0.05), 0, 0, tid, pid, -1);
	}
}

/* Everybody waits from `from` to the end at `to`. */
static struct synth *all_idle(double from, double to)
{
	struct synth *s = job_running();

	beats(s, 0, TRAINER, TRAINER, from, to, RESULT_PIPE, 0);
	beats(s, 2, WORKER, WORKER, from, to, INDEX_PIPE, DL_SW_QUARTET);
	synth_mark(s, AT(to), DL_MARK_STOP, 0, "");
	return s;
}

TEST(batch_lost)
{
	struct synth *s = all_idle(40, 16000);
	struct dl_postmortem *pm;

	env_shm(s, 30, 64 * MIB, 60 * MIB, 0, 0);
	fails(s, 35, FEEDER, WORKER, NR_FALLOCATE, ENOSPC, MORE(.bytes = 10 * MIB, .flags = DL_SF_SHM), "torch_200_7");
	pm = explain(s, NULL);
	CHECK_DEATH(pm, "batch-lost", "certain");
	CHECK_EQ(pm->victim.pid, WORKER);
	CHECK_EQ(pm->ts, AT(35));
	CHECK(strstr(pm->text, "9.60 MiB") || strstr(pm->text, "10.0 MiB"));
	CHECK(number_of(pm, "shm.needed") > 64 * MIB);
	CHECK(has_command(pm, "--shm-size=") && has_command(pm, "timeout=600"));
	CHECK(strstr(thread_of(pm, TRAINER)->state, "waiting for the next batch"));
	CHECK(strstr(thread_of(pm, WORKER)->state, "idle"));
	CHECK(thread_of(pm, TRAINER)->for_ns > 15 * 1000000000ULL);
	dl_postmortem_free(pm);
}

TEST(batch_lost_for_descriptors)
{
	struct synth *s = all_idle(40, 16000);
	struct dl_postmortem *pm;

	fails(s, 35, FEEDER, WORKER, 72, EMFILE, MORE(.of = DL_LIMIT_FDS, .used = 64, .limit = 64), "");
	pm = explain(s, NULL);
	CHECK_DEATH(pm, "batch-lost", "certain");
	CHECK(has_command(pm, "ulimit -n"));
	dl_postmortem_free(pm);
	/* Without the call: the worker's own count. */
	s = all_idle(40, 16000);
	env_proc(s, 35, WORKER, 39, 39, 900, 65530);
	pm = explain(s, NULL);
	CHECK_DEATH(pm, "batch-lost", "likely");
	CHECK_EQ(pm->victim.pid, WORKER);
	dl_postmortem_free(pm);
}

TEST(batch_lost_unseen)
{
	struct dl_postmortem *pm = explain(all_idle(40, 16000), NULL);

	CHECK_DEATH(pm, "batch-lost", "likely");
	dl_postmortem_free(pm);
	/* Not for long: it may come. */
	pm = explain(all_idle(40, 1500), NULL);
	CHECK_DEATH(pm, "none", "certain");
	dl_postmortem_free(pm);
}

/* Waits in queue.get(timeout=5) until `to`. */
static void gets(struct synth *s, double from, double to)
{
	for (double t = from; t < to; t += 5005) {
		synth_run(s, 0, TRAINER, TRAINER, AT(t), AT(t + 0.2), SYNTH_SLEEP,
			  WAIT(NR_FUTEX, .arg0 = 0x9000, .arg1 = FUTEX_COND, .deadline = AT(t + 0.2 + 5000)));
		if (t + 5005 < to)
			synth_wake(s, AT(t + 5004.9), 0, 0, TRAINER, TRAINER, -1);
	}
}

/* A pin-memory thread and idle workers are nothing while the trainer computes; once it waits, too, they are. */
TEST(pinned_batches)
{
	for (int waits = 0; waits < 2; waits++) {
		struct synth *s = job_new();
		struct dl_postmortem *pm;

		synth_task(s, AT(0), PIN, TRAINER, 1, "pt_data_pin", 0, 0);
		synth_run(s, 1, FEEDER, WORKER, AT(10), AT(11), SYNTH_SLEEP, ON_COND);
		beats(s, 3, PIN, TRAINER, 40, 16000, RESULT_PIPE, 0);
		beats(s, 2, WORKER, WORKER, 40, 16000, INDEX_PIPE, DL_SW_QUARTET);
		if (waits)
			gets(s, 50, 16000);
		else
			synth_run(s, 0, TRAINER, TRAINER, AT(50), AT(15990), SYNTH_RUNNABLE, NULL);
		synth_mark(s, AT(16000), DL_MARK_STOP, 0, "");
		pm = explain(s, NULL);
		CHECK_STR(dl_death_id(pm->death), waits ? "batch-lost" : "none");
		dl_postmortem_free(pm);
	}
}

/* The feeder has ended, its worker has not. */
TEST(feeder_ended)
{
	struct synth *s = all_idle(40, 16000);
	struct dl_postmortem *pm;

	synth_run(s, 3, FEEDER, WORKER, AT(35), AT(36), 0x80, WAIT(NR_EXIT, .flags = DL_SW_EXITING));
	synth_exit(s, AT(36), FEEDER, WORKER, 0, 0);
	pm = explain(s, NULL);
	CHECK_DEATH(pm, "batch-lost", "certain");
	CHECK(strstr(pm->text, "has ended"));
	dl_postmortem_free(pm);
}

/* Whoever looks at it ends it: that is not why. */
TEST(killed_after_a_hang)
{
	struct synth *s = all_idle(40, 16000);
	struct dl_postmortem *pm;

	signal_from(s, 15990, STRANGER, TRAINER, SIGKILL, 0, 0);
	died_of(s, 15991, TRAINER, SIGKILL);
	pm = explain(s, NULL);
	CHECK_DEATH(pm, "batch-lost", "likely");
	CHECK(fact_with(pm, "SIGKILL, sent by reaper"));
	dl_postmortem_free(pm);
	s = all_idle(40, 16000);
	signal_from(s, 15990, STRANGER, TRAINER, SIGINT, 128, 0);
	exited(s, 15991, TRAINER, 130);
	pm = explain(s, NULL);
	CHECK_DEATH(pm, "batch-lost", "likely");
	dl_postmortem_free(pm);
	/* Only just idle: the kill is why. */
	s = all_idle(40, 16000);
	signal_from(s, 300, STRANGER, TRAINER, SIGKILL, 0, 0);
	died_of(s, 301, TRAINER, SIGKILL);
	pm = explain(s, NULL);
	CHECK_DEATH(pm, "killed-by", "certain");
	dl_postmortem_free(pm);
}

/* --- locks --- */

/* The trainer waits, the worker's main thread does what is given until the end at `to`. */
static struct synth *worker_does(double to, const struct synth_wait *wait)
{
	struct synth *s = job_running();

	beats(s, 0, TRAINER, TRAINER, 40, to, RESULT_PIPE, 0);
	synth_run(s, 2, WORKER, WORKER, AT(35), AT(36), wait ? SYNTH_SLEEP : SYNTH_RUNNABLE, wait);
	if (!wait) {
		synth_run(s, 2, WORKER, WORKER, AT(37), AT(to - 1), SYNTH_RUNNABLE, NULL);
		synth_run(s, 2, WORKER, WORKER, AT(to - 0.9), AT(to - 0.5), SYNTH_RUNNABLE, NULL);
	}
	synth_mark(s, AT(to), DL_MARK_STOP, 0, "");
	return s;
}

TEST(lock_for_ever)
{
	struct dl_postmortem *pm = explain(worker_does(16000, WAIT(NR_FUTEX, .arg0 = 0x7000, .arg1 = FUTEX_MUTEX)), NULL);

	CHECK_DEATH(pm, "hang", "certain");
	CHECK_EQ(pm->victim.pid, WORKER);
	CHECK(strstr(pm->text, "none of its other threads can release it"));
	CHECK(strstr(thread_of(pm, WORKER)->state, "lock"));
	CHECK(has_command(pm, "py-spy dump --native --pid 200"));
	dl_postmortem_free(pm);
}

/* In all of these it may go on by itself. */
TEST(no_hang)
{
	const struct synth_wait *const waits[] = {
		NULL,	/* computes */
		WAIT(NR_NANOSLEEP, .deadline = AT(40000)),
		WAIT(NR_FUTEX, .arg0 = 0x7000, .arg1 = FUTEX_COND, .deadline = AT(40000)),
	};

	for (size_t i = 0; i < sizeof(waits) / sizeof(waits[0]); i++) {
		struct dl_postmortem *pm = explain(worker_does(16000, waits[i]), NULL);

		CHECK_DEATH(pm, "none", "certain");
		dl_postmortem_free(pm);
	}
}

TEST(lock_for_a_moment)
{
	struct dl_postmortem *pm = explain(worker_does(3000, WAIT(NR_FUTEX, .arg0 = 0x7000, .arg1 = FUTEX_MUTEX)), NULL);

	CHECK_DEATH(pm, "none", "certain");
	dl_postmortem_free(pm);
}

/* Another thread of the worker works: it may be about to release it. */
TEST(lock_held_by_a_busy_thread)
{
	struct synth *s = worker_does(16000, WAIT(NR_FUTEX, .arg0 = 0x7000, .arg1 = FUTEX_MUTEX));
	struct dl_postmortem *pm;

	synth_task(s, AT(1), HELPER_THREAD, WORKER, TRAINER, "python", 0, QUARTET);
	synth_run(s, 3, HELPER_THREAD, WORKER, AT(35), AT(15000), SYNTH_RUNNABLE, NULL);
	pm = explain(s, NULL);
	CHECK_DEATH(pm, "none", "certain");
	dl_postmortem_free(pm);
}

TEST(deadlock_of_two_threads)
{
	struct synth *s = worker_does(16000, WAIT(NR_FUTEX, .arg0 = 0x7000, .arg1 = FUTEX_MUTEX));
	struct dl_postmortem *pm;

	synth_task(s, AT(1), HELPER_THREAD, WORKER, TRAINER, "python", 0, QUARTET);
	synth_run(s, 3, HELPER_THREAD, WORKER, AT(34), AT(35), SYNTH_SLEEP, WAIT(NR_FUTEX, .arg0 = 0x8000, .arg1 = FUTEX_MUTEX));
	pm = explain(s, NULL);
	CHECK_DEATH(pm, "hang", "certain");
	CHECK(strstr(pm->text, "they wait for each other") && strstr(pm->text, "tid 203"));
	CHECK(strstr(thread_of(pm, HELPER_THREAD)->state, "lock"));
	dl_postmortem_free(pm);
}

/* Forked while another thread of the trainer lived, and nothing but waiting since. */
TEST(lock_held_at_fork)
{
	struct synth *s = job_new();
	struct dl_postmortem *pm;

	synth_fork(s, AT(2), TRAINER, TRAINER, PIN, TRAINER, "logger");
	synth_run(s, 3, PIN, TRAINER, AT(2), AT(20), SYNTH_SLEEP, ON_COND);
	synth_fork(s, AT(10), TRAINER, TRAINER, 250, 250, "python");
	synth_task(s, AT(12), 250, 250, TRAINER, "python", DL_TF_LATE, QUARTET);
	synth_run(s, 2, 250, 250, AT(12), AT(13), SYNTH_SLEEP, WAIT(NR_FUTEX, .arg0 = 0x7000, .arg1 = FUTEX_MUTEX, .flags = DL_SW_QUARTET));
	beats(s, 0, TRAINER, TRAINER, 40, 16000, RESULT_PIPE, 0);
	beats(s, 1, WORKER, WORKER, 40, 16000, INDEX_PIPE, DL_SW_QUARTET);
	pm = explain(s, NULL);
	CHECK_DEATH(pm, "hang", "certain");
	CHECK_EQ(pm->victim.pid, 250);
	CHECK_MSG(strstr(pm->text, "made by fork while the trainer had 2 threads"), "%s", pm->text);
	dl_postmortem_free(pm);
}

/* A server that never answers: likely, since nothing else is seen of it. */
TEST(storage_that_never_answers)
{
	struct synth *s = worker_does(16000, WAIT(NR_READ, .file_kind = DL_FILE_REG, .file_ino = 9, .file_magic = 0x65735546));
	struct dl_postmortem *pm = explain(s, NULL);

	CHECK_DEATH(pm, "hang", "likely");
	CHECK_MSG(strstr(pm->text, "waiting for storage"), "%s", pm->text);
	CHECK(has_alternative(pm, DL_DEATH_NONE));
	dl_postmortem_free(pm);
}

/* The crash of a report is the same verdict; what may only be slow is none there. */
TEST(crash_of_a_report)
{
	struct dl_report *r = job_report(worker_does(16000, WAIT(NR_READ, .file_kind = DL_FILE_REG, .file_ino = 9, .file_magic = 0x65735546)), NULL);

	CHECK(!r->crash);
	dl_report_free(r);
	r = job_report(worker_does(16000, WAIT(NR_FUTEX, .arg0 = 0x7000, .arg1 = FUTEX_MUTEX)), NULL);
	CHECK(r->crash);
	CHECK_STR(r->crash->cause, "hang");
	CHECK_EQ(r->crash->pid, WORKER);
	dl_report_free(r);
	r = job_report(all_idle(40, 16000), NULL);
	CHECK(r->crash);
	CHECK_STR(r->crash->cause, "batch-lost");
	dl_report_free(r);
}

/* --- stopped --- */

TEST(stopped_worker)
{
	for (int continued = 0; continued < 2; continued++) {
		struct synth *s = worker_does(16000, WAIT(NR_NANOSLEEP, .deadline = AT(37)));
		struct dl_postmortem *pm;

		signal_from(s, 36, STRANGER, WORKER, SIGSTOP, 0, 0);
		if (continued)
			signal_from(s, 200, STRANGER, WORKER, SIGCONT, 0, 0);
		pm = explain(s, NULL);
		CHECK_DEATH(pm, continued ? "none" : "hang", "certain");
		CHECK(continued || (strstr(pm->text, "SIGSTOP, sent by reaper") && has_command(pm, "kill -CONT 200")));
		dl_postmortem_free(pm);
	}
}

/* --- orphans --- */

TEST(orphans)
{
	struct synth *s = job_running();
	struct dl_postmortem *pm;

	exited(s, 40, TRAINER, 0);
	synth_run(s, 2, WORKER, WORKER, AT(39), AT(41), SYNTH_SLEEP, WAIT(NR_FUTEX, .arg0 = 0x7000, .arg1 = FUTEX_MUTEX));
	synth_mark(s, AT(9000), DL_MARK_STOP, 0, "");
	pm = explain(s, NULL);
	CHECK_DEATH(pm, "orphaned", "certain");
	CHECK_EQ(pm->victim.pid, WORKER);
	CHECK(has_command(pm, "kill -9 200"));
	dl_postmortem_free(pm);
	/* They look for their parent every 5 s only. */
	s = job_running();
	exited(s, 40, TRAINER, 0);
	synth_mark(s, AT(3000), DL_MARK_STOP, 0, "");
	pm = explain(s, NULL);
	CHECK_DEATH(pm, "none", "certain");
	dl_postmortem_free(pm);
}

/* The trainer's death is the first event; its workers that go on are told beside it. */
TEST(orphans_of_a_death)
{
	struct synth *s = job_running();
	struct dl_postmortem *pm;

	signal_from(s, 40, STRANGER, TRAINER, SIGKILL, 0, 0);
	died_of(s, 41, TRAINER, SIGKILL);
	synth_mark(s, AT(9000), DL_MARK_STOP, 0, "");
	pm = explain(s, NULL);
	CHECK_DEATH(pm, "killed-by", "certain");
	CHECK(has_note(pm, "1 worker of a trainer that is gone"));
	CHECK(!proc_of(pm, WORKER)->ended);
	dl_postmortem_free(pm);
}

/* --- what else is told --- */

TEST(gpu_and_late_start)
{
	struct synth *s = all_idle(40, 16000);
	struct dl_postmortem *pm;

	step(s, 7, 1);
	pm = explain(s, NULL);
	CHECK(pm->gpu && strstr(pm->gpu, "idle for") && strstr(pm->gpu, "train_step") && strstr(pm->gpu, "waiting for the next batch"));
	CHECK(has_note(pm, "began when the training ran already"));
	dl_postmortem_free(pm);
}

/* A worker dies, and its trainer never learns of it. */
TEST(death_that_nobody_noticed)
{
	for (int noticed = 0; noticed < 2; noticed++) {
		struct synth *s = job_running();
		struct dl_postmortem *pm;

		signal_from(s, 30, STRANGER, WORKER, SIGKILL, 0, 0);
		died_of(s, 31, WORKER, SIGKILL);
		beats(s, 0, TRAINER, TRAINER, 40, 16000, RESULT_PIPE, 0);
		if (noticed)
			exited(s, 15990, TRAINER, 1);
		synth_mark(s, AT(16000), DL_MARK_STOP, 0, "");
		pm = explain(s, NULL);
		CHECK_DEATH(pm, "killed-by", "certain");
		CHECK_EQ(has_note(pm, "has not learnt of this death"), !noticed);
		dl_postmortem_free(pm);
	}
}

/* What a flight recorder kept begins in the middle: how long a thread had waited then is told by a mark. */
TEST(kept_part)
{
	struct dl_ev_mark since = { .h = { .size = sizeof(since), .kind = DL_EV_MARK, .ts = AT(1), .tid = WORKER, .pid = WORKER },
				    .what = DL_MARK_SINCE, .value = 900 };
	struct dl_ev_task task = { .h = { .size = sizeof(task), .kind = DL_EV_TASK, .ts = AT(1), .tid = WORKER, .pid = WORKER },
				   .ppid = TRAINER, .nspid = WORKER, .nstid = WORKER, .state = 'S', .sig_caught = QUARTET, .syscall = NR_FUTEX,
				   .arg0 = 0x7000, .arg1 = FUTEX_MUTEX };
	struct synth *s = synth_new(test_path("job.dlbpf"));
	struct dl_postmortem *pm;

	CHECK(s);
	synth_mark(s, AT(0), DL_MARK_START, 0, "");
	synth_task(s, AT(0), TRAINER, TRAINER, 1, "python", DL_TF_ROOT, 0);
	synth_event(s, &task.h);
	synth_event(s, &since.h);
	synth_mark(s, AT(2), DL_MARK_STATE, 900, "");
	synth_mark(s, AT(3), DL_MARK_TRIGGER, DL_TRIGGER_GAP, "the trainer stood still for 10 s");
	beats(s, 0, TRAINER, TRAINER, 40, 16000, RESULT_PIPE, 0);
	synth_mark(s, AT(16000), DL_MARK_STOP, 0, "");
	pm = explain(s, NULL);
	CHECK_DEATH(pm, "hang", "certain");
	CHECK_NEAR(thread_of(pm, WORKER)->for_ns, MS(16899), MS(2));
	CHECK(has_note(pm, "900 s before it are left out") && has_note(pm, "stood still for 10 s"));
	dl_postmortem_free(pm);
}

TEST(losses_are_told)
{
	struct synth *s = job_running();
	struct dl_postmortem *pm;

	synth_loss(s, AT(5), DL_RING_CRASH, DL_LOSS_RING_FULL, 0, 3);
	synth_absent(s, AT(0), DL_SRC_OOM, "OOM kills: the kernel has no tracepoint for them");
	died_of(s, 30, WORKER, SIGKILL);
	pm = explain(s, NULL);
	CHECK(has_note(pm, "3 events of deaths were lost") && has_note(pm, "OOM kills"));
	dl_postmortem_free(pm);
}

/* --- memory that is not to be had --- */

#if FAILING_ALLOC
static struct synth *rich(void)
{
	struct synth *s = all_idle(40, 16000);

	env_shm(s, 1, 64 * MIB, 2 * MIB, 0, 0);
	env_shm(s, 30, 64 * MIB, 60 * MIB, 2, 20 * MIB);
	env_cgroup(s, 30, "/job/1", 500 * MIB, 512 * MIB, 0);
	env_proc(s, 30, WORKER, 60, 64, 900, 65530);
	for (int i = 0; i < 12; i++)
		mem(s, 40 + i * 400, WORKER, (100 + (uint64_t)i * 8) * MIB, MIB, MIB);
	fails(s, 35, FEEDER, WORKER, NR_FALLOCATE, ENOSPC, MORE(.bytes = 10 * MIB, .flags = DL_SF_SHM), "torch_200_7");
	step(s, 7, 1);
	signal_from(s, 15990, STRANGER, TRAINER, SIGKILL, 0, 0);
	died_of(s, 15991, TRAINER, SIGKILL);
	return s;
}
#endif

/* At whichever allocation it ends: an error, and nothing is left behind. */
TEST(no_memory)
{
#if FAILING_ALLOC
	static const char log[] = "RuntimeError: DataLoader worker (pid 200) is killed by signal: Killed.\n";
	const struct dl_pm_opts opts = { .log = log, .log_len = sizeof(log) - 1 };
	long n = 0;
	int err;

	dl_postmortem_free(explain(rich(), &opts));	/* libraries keep something of their first time */
	do {
		struct dl_postmortem *pm = NULL;
		struct dl_trace *t = NULL;
		struct dl_diag d = {};
		const long before = alloc_live;

		CHECK_OK(dl_trace_open(&t, test_path("job.dlbpf"), &d));
		alloc_left = n;
		err = dl_postmortem_trace(&pm, t, &opts, &d);
		alloc_left = LONG_MAX;
		dl_trace_close(t);
		CHECK_MSG(!err || alloc_live == before, "%ld pieces are left after %ld allocations", alloc_live - before, n);
		CHECK_MSG(!err || err == -ENOMEM, "%d after %ld allocations", err, n);
		CHECK(err || pm);
		if (!err) {
			check_shape(pm);
			CHECK_DEATH(pm, "batch-lost", "certain");
		}
		dl_postmortem_free(pm);
		n += n < 4000 ? 1 : 97;
	} while (err);
	CHECK(n > 200);
#else
	SKIP("the sanitizer has an allocator of its own");
#endif
}
