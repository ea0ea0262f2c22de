/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Which events of a job fire which trigger: a trainer (100), two workers (201, 202), a helper (300). */
#include <signal.h>

#include "capture/trigger.h"
#include "unit/keep_util.h"

enum { SHELL = 90, TRAINER = 100, HELPER = 300 };

static struct dl_kstate *state;
static struct dl_triggers triggers;
static struct dl_fired hit;

static bool feed(const struct dl_hdr *ev)
{
	dl_kstate_event(state, ev);
	return dl_trigger_event(&triggers, state, ev, &hit);
}

static void job(void)
{
	struct dl_ev_task ev = task_ev(1 * S, SHELL, SHELL, 1, "sh");

	dl_kstate_free(state);
	CHECK_OK(dl_kstate_new(&state));
	dl_triggers_defaults(&triggers);
	ev.flags = DL_TF_ROOT;
	CHECK(!feed(&ev.h));
	ev = task_ev(1 * S, TRAINER, TRAINER, SHELL, "python3");
	CHECK(!feed(&ev.h));
	for (uint32_t pid = 201; pid <= 202; pid++) {
		ev = task_ev(1 * S, pid, pid, TRAINER, "pt_data_worker");
		ev.sig_caught = DL_WORKER_SIGNALS;
		CHECK(!feed(&ev.h));
	}
	ev = task_ev(1 * S, HELPER, HELPER, TRAINER, "nvidia-smi");
	CHECK(!feed(&ev.h));
}

static bool dies(uint32_t pid, int32_t status)
{
	struct dl_ev_exit ev = exit_ev(2 * S, pid, status);

	return feed(&ev.h);
}

TEST(a_worker_is_killed)
{
	job();
	CHECK(dies(201, SIGKILL));
	CHECK_EQ(hit.what, DL_TRIGGER_DEATH);
	CHECK_STR(hit.text, "worker 201 (pt_data_worker) was killed by signal 9 (Killed)");
}

TEST(a_worker_fails)
{
	job();
	CHECK(dies(202, 3 << 8));
	CHECK_STR(hit.text, "worker 202 (pt_data_worker) ended with exit code 3");
}

TEST(who_ends_in_order_fires_nothing)
{
	job();
	CHECK(!dies(201, 0));
	CHECK(!dies(202, 0));
	CHECK(!dies(TRAINER, 0));
	CHECK(!dies(SHELL, 0));
}

TEST(the_trainer_fails)
{
	job();
	CHECK(dies(TRAINER, 1 << 8));
	CHECK_STR(hit.text, "the trainer 100 (python3) ended with exit code 1");
}

/* It says "no" by its exit code, and its maker ends it when it is not wanted any more. */
TEST(a_helper_says_no)
{
	job();
	CHECK(!dies(HELPER, 1 << 8));
	job();
	CHECK(!dies(HELPER, SIGTERM));
	job();
	CHECK(dies(HELPER, SIGSEGV));
	CHECK_HAS(hit.text, "process 300 (nvidia-smi) was killed by signal 11");
}

TEST(threads_end_without_a_word)
{
	struct dl_ev_exit ev = exit_ev(2 * S, 201, SIGKILL);

	job();
	ev.flags = 0;
	CHECK(!feed(&ev.h));
}

TEST(the_user_ends_it)
{
	job();
	triggers.ending = true;
	CHECK(!dies(TRAINER, SIGINT));
}

TEST(what_is_off_does_not_fire)
{
	job();
	triggers.on[DL_TRIGGER_DEATH] = false;
	CHECK(!dies(201, SIGKILL));
}

TEST(said_again_is_not_now)
{
	struct dl_ev_exit ev = exit_ev(2 * S, 201, SIGKILL);

	job();
	ev.h.flags = DL_HDR_RESTATED;
	CHECK(!feed(&ev.h));
}

TEST(the_oom_killer)
{
	struct dl_ev_oom_kill ev = DL_EVENT_INIT(oom_kill, DL_EV_OOM_KILL, 2 * S, 201, 201);

	job();
	ev.target_pid = ev.target_tid = 202;
	ev.limit = 512 << 20;
	ev.flags = DL_OOM_MEMCG;
	CHECK(feed(with_text(&ev.h, "/train")));
	CHECK_EQ(hit.what, DL_TRIGGER_OOM);
	CHECK_HAS(hit.text, "cgroup /train was at its memory limit (512 MiB) and the kernel chose worker 202");
	ev.flags |= DL_OOM_FOREIGN;
	CHECK(!feed(&ev.h));
}

TEST(sigbus)
{
	struct dl_ev_signal ev = DL_EVENT_INIT(signal, DL_EV_SIGNAL, 2 * S, 201, 201);

	job();
	ev.target_pid = ev.target_tid = 201;
	ev.sig = SIGBUS;
	CHECK(feed(&ev.h));
	CHECK_EQ(hit.what, DL_TRIGGER_SIGBUS);
	ev.sig = SIGCHLD;
	CHECK(!feed(&ev.h));
	ev.sig = SIGBUS;
	ev.target_pid = 77;	/* a stranger's */
	CHECK(!feed(&ev.h));
}

/* --- time --------------------------------------------------------------------------------------- */

static uint64_t exec_ns[400];

/* From `from` to `to` (seconds), a tick each second: those that run use `busy` ns of CPU time before
 * each. Returns the second at which something fired first, 0 never. */
static uint64_t pass(uint64_t from, uint64_t to, uint64_t trainer_ns, uint64_t worker_ns, enum dl_trigger want)
{
	uint64_t fired_at = 0;

	for (uint64_t t = from; t < to; t++) {
		struct dl_fired f[DL_TRIGGER_MAX];
		struct dl_ev_switch ev;
		int cnt;

		exec_ns[TRAINER] += trainer_ns;
		ev = in_ev(t * S - 20 * MS, TRAINER, TRAINER);
		feed(&ev.h);
		ev = out_ev(t * S - 10 * MS, TRAINER, TRAINER, 1, exec_ns[TRAINER]);
		feed(&ev.h);
		exec_ns[201] += worker_ns;
		ev = out_ev(t * S - 10 * MS, 201, 201, 1, exec_ns[201]);
		feed(&ev.h);
		cnt = dl_trigger_tick(&triggers, state, t * S, f);
		for (int i = 0; i < cnt; i++) {
			if (f[i].what != want)
				continue;
			CHECK_MSG(!fired_at, "twice: at %d and %d", (int)fired_at, (int)t);
			fired_at = t;
			hit = f[i];
		}
	}
	return fired_at;
}

TEST(a_gap)
{
	job();
	memset(exec_ns, 0, sizeof(exec_ns));
	triggers.after_ns[DL_TRIGGER_GAP] = 10 * S;
	CHECK_EQ(pass(10, 40, 300 * MS, 500 * MS, DL_TRIGGER_GAP), 0);
	/* It only looks every now and then whether its workers live. */
	CHECK_NEAR(pass(40, 100, MS, 500 * MS, DL_TRIGGER_GAP), 50, 1);
	CHECK_HAS(hit.text, "the trainer 100 (python3) has done nothing for 10");
	CHECK_HAS(hit.text, "while 2 workers live");
	/* It goes on, and stops again: that is another one. */
	CHECK_EQ(pass(100, 110, 300 * MS, 500 * MS, DL_TRIGGER_GAP), 0);
	CHECK_NEAR(pass(110, 150, MS, 500 * MS, DL_TRIGGER_GAP), 120, 1);
}

TEST(no_gap_while_the_gpu_works)
{
	uint64_t fired_at = 0;

	job();
	memset(exec_ns, 0, sizeof(exec_ns));
	triggers.after_ns[DL_TRIGGER_GAP] = 10 * S;
	for (uint64_t t = 10; t < 60; t++) {
		struct dl_ev_gpu_kernel k = DL_EVENT_INIT(gpu_kernel, DL_EV_GPU_KERNEL, t * S, TRAINER, 0);

		feed(&k.h);
		fired_at += pass(t, t + 1, MS, MS, DL_TRIGGER_GAP);
	}
	CHECK_EQ(fired_at, 0);
}

TEST(no_gap_while_it_computes_without_a_switch)
{
	struct dl_fired f[DL_TRIGGER_MAX];
	struct dl_ev_switch ev;

	job();
	triggers.after_ns[DL_TRIGGER_GAP] = 10 * S;
	ev = in_ev(10 * S, TRAINER, TRAINER);
	feed(&ev.h);
	for (uint64_t t = 10; t < 100; t++)
		CHECK_EQ(dl_trigger_tick(&triggers, state, t * S, f), 0);
}

TEST(no_gap_without_workers)
{
	job();
	memset(exec_ns, 0, sizeof(exec_ns));
	dies(201, 0);
	dies(202, 0);
	triggers.after_ns[DL_TRIGGER_GAP] = 10 * S;
	CHECK_EQ(pass(10, 60, MS, 0, DL_TRIGGER_GAP), 0);
}

TEST(a_stall)
{
	job();
	memset(exec_ns, 0, sizeof(exec_ns));
	triggers.after_ns[DL_TRIGGER_STALL] = 10 * S;
	CHECK_EQ(pass(10, 40, MS, 500 * MS, DL_TRIGGER_STALL), 0);
	CHECK_NEAR(pass(40, 100, MS, MS, DL_TRIGGER_STALL), 50, 1);
	CHECK_HAS(hit.text, "no process of the run has done anything for 10");
}

/* Workers wait for a slow disk, and it does deliver. */
TEST(no_stall_while_a_disk_works)
{
	uint64_t fired_at = 0;

	job();
	memset(exec_ns, 0, sizeof(exec_ns));
	triggers.after_ns[DL_TRIGGER_STALL] = 10 * S;
	for (uint64_t t = 10; t < 60; t++) {
		struct dl_ev_block_io io = DL_EVENT_INIT(block_io, DL_EV_BLOCK_IO, t * S, 201, 201);

		feed(&io.h);
		fired_at += pass(t, t + 1, MS, MS, DL_TRIGGER_STALL);
	}
	CHECK_EQ(fired_at, 0);
}

/* Under a fork server the workers' parent only waits; the trainer is its parent. */
TEST(a_fork_server_trains_nothing)
{
	struct dl_ev_cmdline cmd = DL_EVENT_INIT(cmdline, DL_EV_CMDLINE, 1 * S, 150, 150);
	struct dl_ev_task ev;

	job();
	memset(exec_ns, 0, sizeof(exec_ns));
	ev = task_ev(1 * S, 150, 150, TRAINER, "python3");
	feed(&ev.h);
	feed(with_text(&cmd.h, "/usr/bin/python3 -c from multiprocessing.forkserver import main; main(8, 9)"));
	for (uint32_t pid = 201; pid <= 202; pid++) {
		ev = task_ev(1 * S, pid, pid, 150, "pt_data_worker");
		ev.sig_caught = DL_WORKER_SIGNALS;
		feed(&ev.h);
	}
	triggers.after_ns[DL_TRIGGER_GAP] = 10 * S;
	CHECK_EQ(pass(10, 60, 300 * MS, 500 * MS, DL_TRIGGER_GAP), 0);
	CHECK_NEAR(pass(60, 100, MS, 500 * MS, DL_TRIGGER_GAP), 70, 1);
	CHECK_HAS(hit.text, "the trainer 100");
}

/* --- names -------------------------------------------------------------------------------------- */

TEST(each_trigger_has_a_row)
{
	for (int what = 1; what < DL_TRIGGER_MAX; what++)
		CHECK(strcmp(dl_trigger_name((enum dl_trigger)what), "unknown"));
	CHECK_EQ(dl_trigger_by_name("gap"), DL_TRIGGER_GAP);
	CHECK_EQ(dl_trigger_by_name("forecast"), DL_TRIGGER_NONE);	/* an option of its own */
	CHECK_EQ(dl_trigger_by_name("gaps"), DL_TRIGGER_NONE);
	CHECK(dl_trigger_takes_time(DL_TRIGGER_STALL) && !dl_trigger_takes_time(DL_TRIGGER_OOM));
}
