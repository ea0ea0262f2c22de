/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Ends without a signal: the failed call before, the trainer's last wait, how the threads ended; and growth. */
#include "unit/pm_util.h"

enum { NR_MMAP = 9, NR_CLONE = 56, NR_FALLOCATE = 285, NR_OPENAT = 257, NR_INOTIFY = 254 };

/* A call of the worker's main thread fails, its exception is passed on, the trainer ends. */
static struct dl_postmortem *failed(int nr, int err, const struct dl_ev_syscall_fail *more, const char *path)
{
	struct synth *s = job_running();

	env_shm(s, 1, 64 * MIB, 2 * MIB, 0, 0);
	env_shm(s, 25, 64 * MIB, 60 * MIB, 0, 0);
	env_proc(s, 25, WORKER, 60, 64, 65500, 65530);
	env_proc(s, 25, TRAINER, 20, 1024, 900, 65530);
	fails(s, 30, WORKER, WORKER, nr, err, more, path);
	exited(s, 600, TRAINER, 1);
	exited(s, 601, WORKER, 0);
	return explain(s, NULL);
}

static void check_fail(int nr, int err, const struct dl_ev_syscall_fail *more, const char *path, const char *want, const char *text)
{
	struct dl_postmortem *pm = failed(nr, err, more, path);

	CHECK_DEATH(pm, want, "certain");
	CHECK_MSG(strstr(pm->text, text), "%s", pm->text);
	CHECK_EQ(pm->victim.pid, WORKER);
	CHECK_EQ(pm->ts, AT(30));
	CHECK(fact_with(pm, "exit code 1"));
	dl_postmortem_free(pm);
}

TEST(failed_calls)
{
	check_fail(NR_FALLOCATE, ENOSPC, MORE(.bytes = 9 * MIB, .flags = DL_SF_SHM, .file_magic = TMPFS), "torch_200_7", "shm-full", "9.00 MiB");
	check_fail(NR_WRITE, ENOSPC, NULL, "/dev/shm/torch_200_7", "shm-full", "60.0 MiB of it were used");
	check_fail(NR_WRITE, ENOSPC, MORE(.file_magic = EXT4, .flags = DL_SF_NAME), "torch_model.pt", "disk-full", "torch_model.pt");
	check_fail(NR_OPENAT, ENOSPC, MORE(.of = DL_LIMIT_INODES, .limit = 100, .flags = DL_SF_SHM), "/dev/shm/sem.mp-1", "shm-full", "100 files");
	check_fail(NR_WRITE, EDQUOT, NULL, "/home/u/x", "disk-full", "quota");
	check_fail(NR_OPENAT, EMFILE, MORE(.of = DL_LIMIT_FDS, .used = 64, .limit = 64), "/data/1.jpg", "fd-limit", "64 open files");
	check_fail(NR_OPENAT, EMFILE, NULL, "/dev/shm/torch_200_7", "fd-limit", "64 open files");
	check_fail(NR_OPENAT, ENFILE, NULL, "/data/1.jpg", "fd-limit", "whole machine");
	check_fail(NR_RECVMSG, 0, MORE(.flags = DL_SF_CTRUNC), "", "fd-limit", "descriptors");
	check_fail(NR_MMAP, ENOMEM, MORE(.of = DL_LIMIT_MAPS, .used = 65530, .limit = 65530), "", "map-count-limit", "65530 memory mappings");
	check_fail(NR_MMAP, ENOMEM, NULL, "", "map-count-limit", "vm.max_map_count allows 65530");
	check_fail(NR_CLONE, EAGAIN, MORE(.flags = DL_SF_THREAD), "", "process-limit", "create a thread");
	check_fail(NR_CLONE, EAGAIN, MORE(.of = DL_LIMIT_PIDS, .limit = 24, .flags = DL_SF_FORK | DL_SF_CGROUP), "job", "process-limit", "allows 24");
	check_fail(NR_CLONE, ENOMEM, NULL, "", "process-limit", "create a process");
	check_fail(NR_OPENAT, ENOENT, MORE(.flags = DL_SF_SHM), "/dev/shm/torch_200_7", "shm-unlinked", "not in the trace");
}

/* These say nothing of a limit: the end stays the trainer's own. */
TEST(calls_that_fail_for_other_reasons)
{
	static const struct { int nr, err; const char *path; } calls[] = {
		{ NR_OPENAT, ENOENT, "/data/labels.txt" },
		{ NR_READ, EAGAIN, "" },
		{ NR_INOTIFY, ENOSPC, "" },
		{ NR_OPENAT, EACCES, "/data/1.jpg" },
	};

	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		struct dl_postmortem *pm = failed(calls[i].nr, calls[i].err, NULL, calls[i].path);

		CHECK_DEATH(pm, "trainer-exit", "certain");
		dl_postmortem_free(pm);
	}
}

/* Out of memory mappings says ENOMEM, and so does a limit of the address space. */
TEST(enomem_with_few_mappings)
{
	struct synth *s = job_running();
	struct dl_postmortem *pm;

	env_proc(s, 25, WORKER, 60, 64, 2000, 65530);
	fails(s, 30, WORKER, WORKER, NR_MMAP, ENOMEM, MORE(.bytes = 1ULL << 40), "");
	exited(s, 600, TRAINER, 1);
	pm = explain(s, NULL);
	CHECK_DEATH(pm, "trainer-exit", "certain");
	CHECK(fact_with(pm, "ENOMEM"));
	dl_postmortem_free(pm);
}

/* What had failed a minute before, and was lived with, is not why. */
TEST(failure_long_before)
{
	struct synth *s = job_running();
	struct dl_postmortem *pm;

	fails(s, 30, WORKER, WORKER, NR_OPENAT, EMFILE, NULL, "/data/1.jpg");
	exited(s, 60000, TRAINER, 1);
	pm = explain(s, NULL);
	CHECK_DEATH(pm, "trainer-exit", "certain");
	dl_postmortem_free(pm);
}

/* The first of a row of failures is told, though the last one is nearest to the end. */
TEST(first_of_a_row)
{
	struct synth *s = job_running();
	struct dl_postmortem *pm;

	fails(s, 30, WORKER, WORKER, NR_OPENAT, EMFILE, NULL, "/data/1.jpg");
	fails(s, 900, WORKER, WORKER, NR_OPENAT, EMFILE, NULL, "/data/2.jpg");
	fails(s, 1800, TRAINER, TRAINER, NR_OPENAT, EMFILE, NULL, "/tmp/x");
	exited(s, 2000, TRAINER, 1);
	pm = explain(s, NULL);
	CHECK_DEATH(pm, "fd-limit", "certain");
	CHECK_EQ(pm->ts, AT(30));
	CHECK(strstr(pm->text, "/data/1.jpg") && strstr(pm->text, "then ended with exit code 1"));
	CHECK(fact_with(pm, "/data/2.jpg") && fact_with(pm, "/tmp/x"));
	dl_postmortem_free(pm);
}

/* C++ throws, and nobody catches it: the abort is the tail of the failure. */
TEST(abort_behind_a_failure)
{
	for (int late = 0; late < 2; late++) {
		struct synth *s = job_running();
		struct dl_postmortem *pm;

		fails(s, 30, WORKER, WORKER, NR_WRITE, ENOSPC, MORE(.file_magic = EXT4), "/ckpt/model.pt");
		signal_from(s, late ? 9000 : 31, WORKER, WORKER, SIGABRT, -6, 0);
		died_of(s, late ? 9001 : 32, WORKER, SIGABRT);
		pm = explain(s, NULL);
		CHECK_DEATH(pm, late ? "abort" : "disk-full", "certain");
		dl_postmortem_free(pm);
	}
}

TEST(who_removed_the_objects)
{
	struct dl_ev_shm_unlink ev = { .h = { .size = sizeof(ev), .kind = DL_EV_SHM_UNLINK, .ts = AT(28), .tid = STRANGER, .pid = STRANGER,
					      .flags = DL_HDR_FOREIGN },
				       .sender_ppid = 1, .sender_uid = 0, .sender_comm = { "systemd-logind" }, .parent_comm = { "systemd" } };
	struct synth *s = job_running();
	struct dl_postmortem *pm;
	const struct dl_pm_fact *f;

	synth_event_text(s, &ev.h, "torch_200_6");
	ev.h.ts = AT(29);
	synth_event_text(s, &ev.h, "torch_200_7");
	fails(s, 30, TRAINER, TRAINER, NR_OPENAT, ENOENT, MORE(.flags = DL_SF_SHM), "/dev/shm/torch_200_7");
	exited(s, 600, TRAINER, 1);
	pm = explain(s, NULL);
	CHECK_DEATH(pm, "shm-unlinked", "certain");
	CHECK(strstr(pm->text, "systemd-logind (pid 900, parent systemd 1"));
	f = fact_with(pm, "removed 'torch_200_7'");
	CHECK(f && f->decides && f->ts == AT(29) && f->who.pid == STRANGER);
	CHECK(has_command(pm, "RemoveIPC=no"));
	dl_postmortem_free(pm);
}

/* The shared memory manager looks for objects that are gone all the time: that is how it works. */
TEST(manager_looks_for_objects)
{
	struct synth *s = job_running();
	struct dl_postmortem *pm;

	synth_fork(s, AT(1), WORKER, WORKER, WORKER2, WORKER2, "python");
	synth_exec(s, AT(2), WORKER2, WORKER2, "/torch/bin/torch_shm_manager");
	synth_name(s, AT(2.1), WORKER2, WORKER2, "torch_shm_manag");
	for (int i = 0; i < 20; i++)
		fails(s, 30 + i * 20, WORKER2, WORKER2, NR_OPENAT, ENOENT, MORE(.flags = DL_SF_SHM), "/dev/shm/torch_200_7");
	exited(s, 500, TRAINER, 1);
	pm = explain(s, NULL);
	CHECK_DEATH(pm, "trainer-exit", "certain");
	CHECK(!fact_with(pm, "ENOENT"));
	dl_postmortem_free(pm);
}

/* --- sizes --- */

TEST(shm_needed)
{
	struct synth *s = job_new();
	struct dl_postmortem *pm;
	uint64_t needed;

	/* 4 workers of 2 batches of 10 MiB, one in use, and 3 MiB that were there before them. */
	env_shm(s, 0.5, 64 * MIB, 3 * MIB, 0, 0);
	for (uint32_t i = 0; i < 3; i++) {
		synth_fork(s, AT(1 + i), TRAINER, TRAINER, 400 + i, 400 + i, "python");
		synth_task(s, AT(5), 400 + i, 400 + i, TRAINER, "python", DL_TF_LATE, QUARTET);
	}
	fails(s, 30, WORKER, WORKER, NR_FALLOCATE, ENOSPC, MORE(.bytes = 10 * MIB, .flags = DL_SF_SHM, .of = DL_LIMIT_FS, .used = 60 * MIB,
								.limit = 64 * MIB), "torch_200_7");
	exited(s, 600, TRAINER, 1);
	pm = explain(s, NULL);
	CHECK_EQ(number_of(pm, "workers"), 4);
	needed = number_of(pm, "shm.needed");
	CHECK(needed >= 90 * MIB && needed <= 120 * MIB);
	CHECK(has_command(pm, "--shm-size=128m"));
	vec_for_each(&pm->numbers, n)
		CHECK(strcmp(n->id, "shm.needed") || (n->estimated && strstr(n->how, "4 workers x 2 batches")));
	dl_postmortem_free(pm);
}

/* The trainer keeps what it gets: no size is enough, and it is said so. */
TEST(trainer_keeps_batches)
{
	struct synth *s = job_running();
	struct dl_postmortem *pm;

	env_shm(s, 25, 256 * MIB, 250 * MIB, 0, 0);
	mem(s, 26, TRAINER, 100 * MIB, 50 * MIB, 200 * MIB);
	fails(s, 30, WORKER, WORKER, NR_FALLOCATE, ENOSPC, MORE(.bytes = 10 * MIB, .flags = DL_SF_SHM), "torch_200_7");
	exited(s, 600, TRAINER, 1);
	pm = explain(s, NULL);
	CHECK(number_of(pm, "shm.needed") >= 220 * MIB);
	CHECK(has_note(pm, "keeps references"));
	dl_postmortem_free(pm);
}

/* --- exit codes --- */

static void check_worker_exit(int code, int feeder, const char *want, const char *sure)
{
	struct synth *s = job_running();
	struct dl_postmortem *pm;

	if (feeder >= 0)
		synth_exit(s, AT(29), FEEDER, WORKER, feeder, 0);
	exited(s, 30, WORKER, code);
	exited(s, 40, TRAINER, 1);
	pm = explain(s, NULL);
	CHECK_DEATH(pm, want, sure);
	CHECK_EQ(pm->victim.pid, WORKER);
	CHECK(pm->has_status && pm->status == code << 8);
	dl_postmortem_free(pm);
}

TEST(worker_exits)
{
	check_worker_exit(1, 0, "worker-exception", "likely");
	check_worker_exit(4, 0, "worker-exit", "certain");
	check_worker_exit(3, 3 << 8, "worker-exit", "certain");
	check_worker_exit(1, 1 << 8, "worker-exit", "certain");
	check_worker_exit(1, -1, "worker-exit", "likely");
}

/* The last message of a worker had no batch in it. */
static struct dl_postmortem *message(bool with_batch)
{
	struct synth *s = job_running();

	if (with_batch) {
		batch_at(s, 30);
	} else {
		synth_wake(s, AT(30), WORKER, WORKER, FEEDER, WORKER, NR_FUTEX);
		synth_run(s, 1, FEEDER, WORKER, AT(30), AT(31), SYNTH_SLEEP, ON_COND);
		synth_wake(s, AT(30.9), FEEDER, WORKER, TRAINER, TRAINER, NR_WRITE);
		synth_run(s, 0, TRAINER, TRAINER, AT(31), AT(100), SYNTH_RUNNABLE, NULL);
	}
	exited(s, 101, TRAINER, 1);
	return explain(s, NULL);
}

TEST(exception_is_passed_on)
{
	struct dl_postmortem *pm = message(false);

	CHECK_DEATH(pm, "worker-exception", "likely");
	CHECK(has_alternative(pm, DL_DEATH_TRAINER_EXIT));
	dl_postmortem_free(pm);
	pm = message(true);
	CHECK_DEATH(pm, "trainer-exit", "certain");
	dl_postmortem_free(pm);
}

/* The trainer's wait ends by its own time-out, and it gives up; a beat of 5 s after which it goes on is none. */
static struct dl_postmortem *waited(bool late_batch)
{
	struct synth *s = job_running();

	synth_run(s, 0, TRAINER, TRAINER, AT(40), AT(41), SYNTH_SLEEP,
		  WAIT(NR_POLL, .file_kind = DL_FILE_FIFO, .file_ino = RESULT_PIPE, .deadline = AT(3041)));
	synth_wake(s, AT(24.5), FEEDER, WORKER, TRAINER, TRAINER, NR_WRITE);
	synth_run(s, 2, WORKER, WORKER, AT(26), AT(4000), SYNTH_RUNNABLE, NULL);
	synth_wake(s, AT(3041), 0, 0, TRAINER, TRAINER, -1);
	synth_run(s, 0, TRAINER, TRAINER, AT(3041.1), AT(3042), SYNTH_SLEEP, late_batch ? ON_RESULTS : ON_COND);
	if (late_batch)
		batch_at(s, 3100);
	exited(s, 3500, TRAINER, 1);
	return explain(s, NULL);
}

TEST(gave_up_waiting)
{
	struct dl_postmortem *pm = waited(false);

	CHECK_DEATH(pm, "timeout", "likely");
	CHECK_EQ(pm->victim.pid, TRAINER);
	CHECK(strstr(pm->text, "3.00 s"));
	dl_postmortem_free(pm);
	pm = waited(true);
	CHECK_DEATH(pm, "trainer-exit", "certain");
	dl_postmortem_free(pm);
}

/* --- growth --- */

static struct dl_postmortem *grown(uint64_t anon, uint64_t file, double stops_at)
{
	struct synth *s = job_running();

	for (int i = 0; i < 6; i++)
		batch_at(s, 1000 + i * 1500);
	for (int i = 0; i < 40; i++) {
		double grown = i * 250.0 < stops_at ? i : stops_at / 250.0;

		mem(s, 30 + i * 250.0, WORKER, 100 * MIB + (uint64_t)(grown * (double)anon) + (uint64_t)(i % 3) * 65536,
		    10 * MIB + (uint64_t)(grown * (double)file), MIB);
		mem(s, 30 + i * 250.0, TRAINER, 200 * MIB, 50 * MIB, MIB);
	}
	signal_from(s, 10100, STRANGER, WORKER, SIGKILL, 0, 0);
	died_of(s, 10101, WORKER, SIGKILL);
	return explain(s, NULL);
}

TEST(growth)
{
	struct dl_postmortem *pm = grown(2 * MIB, 0, 1e9);
	const struct dl_pm_proc *p = proc_of(pm, WORKER);

	CHECK(p->has_growth && p->leaks);
	CHECK_NEAR(p->growth_bps, 8 * MIB, MIB);
	CHECK_EQ(p->batches, 8);
	/* 78 MiB in the time of 6 of them */
	CHECK_NEAR(p->growth_batch, 13 * MIB, MIB);
	CHECK(!proc_of(pm, TRAINER)->leaks);
	CHECK_EQ(p->total_first, 102 * MIB);
	dl_postmortem_free(pm);
}

/* Page cache of a mapped file is no growth, nor is a process that fills up and stays. */
TEST(harmless_growth)
{
	struct dl_postmortem *pm = grown(0, 8 * MIB, 1e9);

	CHECK(!proc_of(pm, WORKER)->leaks);
	CHECK_EQ(proc_of(pm, WORKER)->file, 10 * MIB + 39 * 8 * MIB);
	dl_postmortem_free(pm);
	pm = grown(8 * MIB, 0, 2500);
	CHECK(!proc_of(pm, WORKER)->leaks);
	dl_postmortem_free(pm);
}
