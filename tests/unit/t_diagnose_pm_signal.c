/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Deaths by a signal: the mark, the mapping and the sender decide, and what does not decide is not guessed. */
#include "unit/pm_util.h"

static void sigbus(struct synth *s, int code, uint32_t flags, uint32_t magic, uint64_t off, uint64_t size, uint64_t total, uint64_t used,
		   const char *name)
{
	struct dl_ev_sigbus_map ev = { .h = { .size = sizeof(ev), .kind = DL_EV_SIGBUS_MAP, .ts = AT(30), .tid = WORKER, .pid = WORKER },
				       .addr = 0x7f0000001000, .file_off = off, .file_sz = size, .file_ino = 77,
				       .file_magic = magic, .fs_total = total, .fs_used = used, .fault_flags = flags };

	signal_from(s, 30, WORKER, WORKER, SIGBUS, code, 0x7f0000001000);
	if (name)
		synth_event_text(s, &ev.h, name);
	/* PyTorch's handler raises it again. */
	signal_from(s, 30.1, WORKER, WORKER, SIGBUS, -6, 0);
	died_of(s, 30.2, WORKER, SIGBUS);
}

TEST(shm_full)
{
	struct synth *s = job_running();
	struct dl_postmortem *pm;

	env_shm(s, 1, 64 * MIB, 2 * MIB, 0, 0);
	env_shm(s, 25, 64 * MIB, 60 * MIB, 0, 0);
	sigbus(s, 2, DL_SB_WRITE | DL_SB_SHARED, TMPFS, 4096, 10 * MIB, 64 * MIB, 64 * MIB, "torch_200_abc");
	pm = explain(s, NULL);
	CHECK_DEATH(pm, "shm-full", "certain");
	CHECK_EQ(pm->victim.pid, WORKER);
	CHECK_EQ(pm->sig, SIGBUS);
	CHECK_EQ(pm->ts, AT(30));
	CHECK(!pm->wrong_text);
	CHECK_EQ(number_of(pm, "shm.total"), 64 * MIB);
	CHECK_EQ(number_of(pm, "shm.used"), 64 * MIB);
	CHECK_EQ(number_of(pm, "batch.bytes"), 10 * MIB);
	/* 1 worker x 2 ahead + 1 in use, or one more beside what is used */
	CHECK(number_of(pm, "shm.needed") >= 74 * MIB && number_of(pm, "shm.needed") < 200 * MIB);
	CHECK(has_command(pm, "--shm-size=") && has_command(pm, "sizeLimit:") && has_command(pm, "medium: Memory"));
	CHECK(has_command(pm, "shm_size:") && has_command(pm, "remount,size="));
	CHECK(fact_with(pm, "same death"));
	CHECK(fact_with(pm, "nearly full"));
	dl_postmortem_free(pm);
}

/* The same signal, object and message, but /dev/shm has room. */
TEST(shm_with_room)
{
	struct synth *s = job_running();
	struct dl_postmortem *pm;

	sigbus(s, 2, DL_SB_SHARED, TMPFS, 4096, 10 * MIB, 64 * MIB, 20 * MIB, "torch_200_abc");
	pm = explain(s, NULL);
	CHECK_DEATH(pm, "unexplained", "unknown");
	CHECK(has_alternative(pm, DL_DEATH_MAPPED_FILE_TRUNCATED));
	dl_postmortem_free(pm);
}

/* Another tmpfs is full: --shm-size would not help. */
TEST(other_tmpfs_full)
{
	struct synth *s = job_running();
	struct dl_postmortem *pm;

	env_shm(s, 1, 64 * MIB, 2 * MIB, 0, 0);
	sigbus(s, 2, DL_SB_WRITE | DL_SB_SHARED, TMPFS, 4096, 10 * MIB, 8 * MIB, 8 * MIB, "cache.bin");
	pm = explain(s, NULL);
	CHECK_DEATH(pm, "mapped-filesystem-full", "certain");
	CHECK(pm->wrong_text);
	CHECK_EQ(number_of(pm, "fs.total"), 8 * MIB);
	CHECK(!has_command(pm, "docker run --shm-size"));
	dl_postmortem_free(pm);
}

TEST(file_truncated)
{
	struct synth *s = job_running();
	struct dl_postmortem *pm;

	sigbus(s, 2, DL_SB_PAST_END, EXT4, 1 << 20, 4096, 0, 0, "features.bin");
	pm = explain(s, NULL);
	CHECK_DEATH(pm, "mapped-file-truncated", "certain");
	CHECK(pm->wrong_text && strstr(pm->text, "features.bin"));
	dl_postmortem_free(pm);
}

/* The last page of a file is mapped whole: an address behind the end, but in it, is no truncation. */
TEST(last_page_is_no_truncation)
{
	struct synth *s = job_running();
	struct dl_postmortem *pm;

	sigbus(s, 2, 0, EXT4, 5000, 4097, 100 * MIB, 10 * MIB, "features.bin");
	pm = explain(s, NULL);
	CHECK_DEATH(pm, "unexplained", "unknown");
	dl_postmortem_free(pm);
}

TEST(disk_under_mapping_full)
{
	struct synth *s = job_running();
	struct dl_postmortem *pm;

	sigbus(s, 2, DL_SB_WRITE | DL_SB_SHARED, EXT4, 4096, 10 * MIB, 0, 0, "cache.bin");
	pm = explain(s, NULL);
	CHECK_DEATH(pm, "mapped-filesystem-full", "likely");
	CHECK(has_alternative(pm, DL_DEATH_MAPPED_FILE_ERROR));
	dl_postmortem_free(pm);
}

TEST(server_of_file_fails)
{
	struct synth *s = job_running();
	struct dl_postmortem *pm;

	sigbus(s, 2, 0, 0x65735546, 4096, 10 * MIB, 0, 0, "data");
	pm = explain(s, NULL);
	CHECK_DEATH(pm, "mapped-file-error", "likely");
	dl_postmortem_free(pm);
}

TEST(huge_pages)
{
	struct synth *s = job_running();
	struct dl_postmortem *pm;

	sigbus(s, 2, DL_SB_HUGETLB | DL_SB_WRITE, 0x958458f6, 0, 4 * MIB, 0, 0, "anon_hugepage");
	pm = explain(s, NULL);
	CHECK_DEATH(pm, "hugepages-exhausted", "certain");
	dl_postmortem_free(pm);
}

TEST(bad_memory)
{
	struct synth *s = job_running();
	struct dl_postmortem *pm;

	sigbus(s, 4, 0, TMPFS, 4096, 10 * MIB, 64 * MIB, 64 * MIB, "torch_200_abc");
	pm = explain(s, NULL);
	CHECK_DEATH(pm, "memory-failure", "certain");
	dl_postmortem_free(pm);
}

TEST(nothing_known_of_mapping)
{
	struct synth *s = job_running();
	struct dl_postmortem *pm;

	sigbus(s, 2, 0, 0, 0, 0, 0, 0, NULL);
	pm = explain(s, NULL);
	CHECK_DEATH(pm, "unexplained", "unknown");
	CHECK(has_alternative(pm, DL_DEATH_SHM_FULL) && has_alternative(pm, DL_DEATH_MAPPED_FILE_TRUNCATED));
	dl_postmortem_free(pm);
}

/* --- SIGKILL by the kernel --- */

static void oom_mark(struct synth *s, double t, uint32_t victim, uint32_t flags, const char *group)
{
	struct dl_ev_oom_kill ev = { .h = { .size = sizeof(ev), .kind = DL_EV_OOM_KILL, .ts = AT(t), .tid = TRAINER, .pid = TRAINER },
				     .target_tid = victim, .target_pid = victim, .anon = 300 * MIB, .shmem = 7 * MIB,
				     .limit = flags ? 512 * MIB : 0, .usage = flags ? 512 * MIB : 0, .flags = flags };

	synth_event_text(s, &ev.h, group);
}

static void check_oom(double mark, uint32_t flags, const char *want)
{
	struct synth *s = job_running();
	struct dl_postmortem *pm;

	env_cgroup(s, 5, "/", 2000 * MIB, 0, 0);
	env_cgroup(s, 5, "/job/1", 500 * MIB, 512 * MIB, 0);
	env_cgroup(s, 5, "/other", 1000 * MIB, 1024 * MIB, 0);
	oom_mark(s, mark, WORKER, flags, flags ? "/job/1" : "");
	signal_from(s, 30, TRAINER, WORKER, SIGKILL, 128, 0);
	died_of(s, 30.2, WORKER, SIGKILL);
	/* What follows is not why. */
	exited(s, 40, TRAINER, 1);
	pm = explain(s, NULL);
	CHECK_DEATH(pm, want, "certain");
	CHECK_EQ(pm->victim.pid, WORKER);
	CHECK_EQ(pm->ts, AT(mark < 30 ? mark : 30));
	CHECK(strstr(pm->text, "300 MiB private"));
	CHECK_EQ(proc_of(pm, WORKER)->anon, 300 * MIB);
	if (flags) {
		CHECK_EQ(number_of(pm, "cgroup.limit"), 512 * MIB);
		CHECK_EQ(number_of(pm, "cgroup.usage"), 512 * MIB);
		CHECK_EQ(number_of(pm, "cgroup.anon"), 250 * MIB);
		CHECK_EQ(number_of(pm, "cgroup.shmem"), 125 * MIB);
		CHECK(has_command(pm, "--memory="));
	}
	CHECK(fact_with(pm, "ended with exit code 1"));
	dl_postmortem_free(pm);
}

TEST(oom_mark_before)
{
	check_oom(29.9, DL_OOM_MEMCG, "oom-cgroup");
}

TEST(oom_mark_behind)
{
	check_oom(30.05, DL_OOM_MEMCG, "oom-cgroup");
}

/* The mark is the last thing in the trace. */
TEST(oom_at_the_end_of_a_trace)
{
	struct synth *s = job_running();
	struct dl_postmortem *pm;

	oom_mark(s, 30, WORKER, DL_OOM_MEMCG, "/job/1");
	pm = explain(s, NULL);
	CHECK_DEATH(pm, "oom-cgroup", "certain");
	CHECK_EQ(pm->victim.pid, WORKER);
	dl_postmortem_free(pm);
}

TEST(oom_of_machine)
{
	check_oom(29.9, 0, "oom-host");
}

/* Another process was chosen: the kernel's SIGKILL to this one is not explained by that. */
static struct synth *killed_by_kernel(void)
{
	struct synth *s = job_running();

	signal_from(s, 30, WORKER, WORKER, SIGKILL, 128, 0);
	died_of(s, 30.2, WORKER, SIGKILL);
	return s;
}

TEST(kernel_kill_without_mark)
{
	struct synth *s = killed_by_kernel();
	struct dl_postmortem *pm;

	oom_mark(s, 29.9, STRANGER, 0, "");
	env_cgroup(s, 5, "/job/1", 500 * MIB, 512 * MIB, 3);
	env_cgroup(s, 50, "/job/1", 100 * MIB, 512 * MIB, 3);
	pm = explain(s, NULL);
	CHECK_DEATH(pm, "unexplained", "unknown");
	CHECK(has_alternative(pm, DL_DEATH_OOM_CGROUP) && has_alternative(pm, DL_DEATH_OOM_HOST) && has_alternative(pm, DL_DEATH_KILLED_BY));
	dl_postmortem_free(pm);
}

TEST(kernel_kill_that_the_group_counted)
{
	struct synth *s = killed_by_kernel();
	struct dl_postmortem *pm;

	env_cgroup(s, 5, "/job/1", 500 * MIB, 512 * MIB, 3);
	env_cgroup(s, 50, "/job/1", 100 * MIB, 512 * MIB, 4);
	pm = explain(s, NULL);
	CHECK_DEATH(pm, "oom-cgroup", "likely");
	dl_postmortem_free(pm);
}

TEST(container_ended)
{
	struct synth *s = job_running();
	struct dl_ev_signal ev = { .h = { .size = sizeof(ev), .kind = DL_EV_SIGNAL, .ts = AT(30), .tid = STRANGER, .pid = STRANGER,
					  .flags = DL_HDR_FOREIGN },
				   .target_tid = TRAINER, .target_pid = TRAINER, .sig = SIGKILL, .code = 128, .sender_comm = { "tini" } };
	struct dl_postmortem *pm;

	synth_event(s, &ev.h);
	died_of(s, 30.2, TRAINER, SIGKILL);
	pm = explain(s, NULL);
	CHECK_DEATH(pm, "killed-by", "likely");
	dl_postmortem_free(pm);
}

/* --- sent by somebody --- */

TEST(killed_by_stranger)
{
	struct synth *s = job_running();
	struct dl_postmortem *pm;

	synth_name(s, AT(1), 1, 1, "systemd");
	signal_from(s, 30, STRANGER, WORKER, SIGKILL, 0, 0);
	died_of(s, 30.2, WORKER, SIGKILL);
	exited(s, 40, TRAINER, 1);
	pm = explain(s, NULL);
	CHECK_DEATH(pm, "killed-by", "certain");
	CHECK(strstr(pm->text, "reaper (pid 900, parent systemd 1, user id 1000)"));
	CHECK_EQ(pm->victim.pid, WORKER);
	dl_postmortem_free(pm);
}

/* A watchdog of the trainer's own is a cause; the TERM with which its loader ends is none. */
TEST(killed_by_own_trainer)
{
	struct synth *s = job_running();
	struct dl_postmortem *pm;

	signal_from(s, 30, TRAINER, WORKER, SIGKILL, 0, 0);
	died_of(s, 30.2, WORKER, SIGKILL);
	pm = explain(s, NULL);
	CHECK_DEATH(pm, "killed-by", "certain");
	CHECK(strstr(pm->text, "the job's own trainer"));
	dl_postmortem_free(pm);
}

/* What ended in order was not ended by this: a loader's end, or a helper that was not needed any more. */
TEST(worker_killed_and_run_in_order)
{
	struct synth *s = job_running();
	struct dl_postmortem *pm;

	signal_from(s, 30, TRAINER, WORKER, SIGKILL, 0, 0);
	died_of(s, 30.2, WORKER, SIGKILL);
	exited(s, 40, TRAINER, 0);
	pm = explain(s, NULL);
	CHECK_DEATH(pm, "none", "certain");
	dl_postmortem_free(pm);
	s = job_running();
	exited(s, 30, WORKER, 1);
	exited(s, 40, TRAINER, 0);
	pm = explain(s, NULL);
	CHECK_DEATH(pm, "none", "certain");
	dl_postmortem_free(pm);
}

TEST(ended_by_own_trainer)
{
	struct synth *s = job_running();
	struct dl_postmortem *pm;

	signal_from(s, 30, TRAINER, WORKER, SIGTERM, 0, 0);
	died_of(s, 30.2, WORKER, SIGTERM);
	exited(s, 40, TRAINER, 0);
	pm = explain(s, NULL);
	CHECK_DEATH(pm, "none", "certain");
	dl_postmortem_free(pm);
}

/* A dying trainer ends its workers, too: its own death is the first event, though its exit comes last. */
TEST(trainer_dies_and_ends_workers)
{
	struct synth *s = job_running();
	struct dl_postmortem *pm;

	signal_from(s, 30, TRAINER, WORKER, SIGTERM, 0, 0);
	died_of(s, 30.2, WORKER, SIGTERM);
	exited(s, 40, TRAINER, 1);
	pm = explain(s, NULL);
	CHECK_DEATH(pm, "trainer-exit", "certain");
	CHECK_EQ(pm->victim.pid, TRAINER);
	CHECK(has_alternative(pm, DL_DEATH_WORKER_EXCEPTION));
	dl_postmortem_free(pm);
}

/* A scheduler asks, the trainer saves itself and ends with a code of its own. */
static void check_asked(int sig, int code, int status, const char *want, const char *sure)
{
	struct synth *s = job_running();
	struct dl_postmortem *pm;

	signal_from(s, 30, STRANGER, TRAINER, sig, code, 0);
	synth_exit(s, AT(9000), TRAINER, TRAINER, status, DL_EX_LAST);
	pm = explain(s, NULL);
	CHECK_DEATH(pm, want, sure);
	CHECK_EQ(pm->ts, AT(30));
	dl_postmortem_free(pm);
}

TEST(asked_to_end)
{
	check_asked(SIGTERM, 0, SIGTERM, "killed-by", "certain");
	check_asked(SIGTERM, 0, 1 << 8, "killed-by", "likely");
	check_asked(SIGTERM, 0, 143 << 8, "killed-by", "certain");
	check_asked(SIGTERM, 0, 0, "killed-by", "likely");
	check_asked(SIGHUP, 128, SIGHUP, "killed-by", "certain");
}

TEST(interrupted_by_user)
{
	check_asked(SIGINT, 128, SIGINT, "none", "certain");
	check_asked(SIGINT, 0, 1 << 8, "none", "likely");
	check_asked(SIGINT, 128, 0, "none", "likely");
}

/* Asked long ago, and something else ended it. */
TEST(asked_long_before)
{
	struct synth *s = job_running();
	struct dl_postmortem *pm;

	signal_from(s, 30, STRANGER, TRAINER, SIGTERM, 0, 0);
	exited(s, 200000, TRAINER, 1);
	pm = explain(s, NULL);
	CHECK_DEATH(pm, "trainer-exit", "certain");
	dl_postmortem_free(pm);
}

/* --- what a trace may lack --- */

TEST(signal_not_in_trace)
{
	struct synth *s = job_running();
	struct dl_postmortem *pm;

	died_of(s, 30, WORKER, SIGKILL);
	pm = explain(s, NULL);
	CHECK_DEATH(pm, "unexplained", "unknown");
	CHECK(has_alternative(pm, DL_DEATH_OOM_CGROUP) && has_alternative(pm, DL_DEATH_KILLED_BY));
	dl_postmortem_free(pm);
	s = job_running();
	died_of(s, 30, WORKER, SIGSEGV);
	pm = explain(s, NULL);
	CHECK_DEATH(pm, "segfault", "likely");
	dl_postmortem_free(pm);
}

/* The recorder was killed with the rest: the signal is the last that is known. */
TEST(trace_is_cut_off)
{
	struct synth *s = job_running();
	struct dl_postmortem *pm;
	struct dl_trace *t = NULL;
	struct dl_diag d = {};

	signal_from(s, 30, STRANGER, TRAINER, SIGKILL, 0, 0);
	CHECK_EQ(synth_finish_killed(s), 0);
	CHECK_OK(dl_trace_open(&t, test_path("job.dlbpf"), &d));
	CHECK_OK(dl_postmortem_trace(&pm, t, NULL, &d));
	dl_trace_close(t);
	check_shape(pm);
	CHECK_DEATH(pm, "killed-by", "certain");
	CHECK(!pm->complete && has_note(pm, "cut off"));
	CHECK(!pm->has_status);
	dl_postmortem_free(pm);
}

/* A signal that was survived is none that it died of. */
TEST(survived_signal)
{
	struct synth *s = job_running();
	struct dl_postmortem *pm;

	signal_from(s, 30, STRANGER, WORKER, SIGSEGV, 0, 0);
	signal_from(s, 9000, STRANGER, WORKER, SIGKILL, 0, 0);
	died_of(s, 9001, WORKER, SIGKILL);
	pm = explain(s, NULL);
	CHECK_EQ(pm->sig, SIGKILL);
	CHECK_EQ(pm->ts, AT(9000));
	dl_postmortem_free(pm);
}

/* Nothing of how processes end is in another tool's trace: that nobody died is not known. */
TEST(trace_of_another_tool)
{
	struct synth *s = synth_new(test_path("job.dlbpf"));
	struct dl_postmortem *pm;

	CHECK(s);
	synth_gpu_source(s, AT(0), TRAINER, DL_GPU_IMPORTED, 0, "imported");
	synth_kernel(s, AT(1), AT(2), TRAINER, 0, 7, 1, "train_step");
	pm = explain(s, NULL);
	CHECK_DEATH(pm, "unexplained", "unknown");
	dl_postmortem_free(pm);
}

/* --- who is asked about --- */

TEST(asked_about_a_process)
{
	struct dl_pm_opts opts = { .pid = TRAINER };
	struct synth *s = job_running();
	struct dl_postmortem *pm;

	signal_from(s, 30, STRANGER, WORKER, SIGKILL, 0, 0);
	died_of(s, 30.2, WORKER, SIGKILL);
	exited(s, 40, TRAINER, 1);
	pm = explain(s, &opts);
	CHECK_EQ(pm->victim.pid, TRAINER);
	dl_postmortem_free(pm);
}

TEST(asked_by_inner_number)
{
	struct dl_ev_task task = { .h = { .size = sizeof(task), .kind = DL_EV_TASK, .ts = AT(1), .tid = WORKER2, .pid = WORKER2 },
				   .ppid = TRAINER, .nspid = 17, .nstid = 17, .state = 'S', .sig_caught = QUARTET, .syscall = -2 };
	struct dl_pm_opts opts = { .pid = 17 };
	struct synth *s = job_running();
	struct dl_postmortem *pm;

	synth_event(s, &task.h);
	signal_from(s, 30, STRANGER, WORKER, SIGKILL, 0, 0);
	died_of(s, 30.2, WORKER, SIGKILL);
	signal_from(s, 31, STRANGER, WORKER2, SIGTERM, 0, 0);
	died_of(s, 31.2, WORKER2, SIGTERM);
	pm = explain(s, &opts);
	CHECK_EQ(pm->victim.pid, WORKER2);
	CHECK_EQ(pm->victim.nspid, 17);
	CHECK_EQ(pm->sig, SIGTERM);
	dl_postmortem_free(pm);
}

TEST(asked_about_nobody)
{
	struct dl_pm_opts opts = { .pid = 4711 };
	struct dl_diag d = {};

	CHECK(!try_pm(job_running(), &opts, &d));
	CHECK(strstr(d.msg, "4711"));
}

/* It ended with the rest: the verdict is that of the run, and it is said so. */
TEST(asked_about_a_bystander)
{
	struct dl_pm_opts opts = { .pid = WORKER };
	struct synth *s = job_running();
	struct dl_postmortem *pm;

	signal_from(s, 30, TRAINER, WORKER, SIGTERM, 0, 0);
	died_of(s, 30.2, WORKER, SIGTERM);
	exited(s, 40, TRAINER, 1);
	pm = explain(s, &opts);
	CHECK_DEATH(pm, "trainer-exit", "certain");
	CHECK(has_note(pm, "did not die by itself"));
	dl_postmortem_free(pm);
}
