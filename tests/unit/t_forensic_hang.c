/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Post-mortems of runs that live, or have ended and were not waited for, in planted machines; and of a real process. */
#include "unit/leftovers_util.h"

#include <sys/wait.h>

TEST(a_lost_batch)
{
	_cleanup_pm_ struct dl_postmortem *pm = NULL, *pm2 = NULL, *pm3 = NULL;

	begin();
	put_shell();
	put_proc(100, 1, "python3", 'S', IDLE, 0, 0);
	put_proc(201, 100, "pt_data_worker", 'S', IDLE, 0, 0);
	put_proc(202, 100, "pt_data_worker", 'S', SYS_read, 5, 0);
	put_thread(201, 211, "QueueFeeder", 'S', SYS_futex, 0x1000, 0x189);
	pm = ASK(.pid = 100);
	CHECK_DEATH(pm, BATCH_LOST, POSSIBLE);
	CHECK(other(pm, DL_DEATH_HANG));
	CHECK_EQ(pm->procs.cnt, 3);
	CHECK_EQ(pm->threads.cnt, 4);
	CHECK_EQ(number(pm, "workers"), 2);
	CHECK_STR(pm->cmdline, "train.py");
	CHECK_EQ(pm->procs.v[1].anon, 100 * MIB);
	/* A worker's number stands for its run. */
	pm2 = ASK(.pid = 202);
	CHECK_DEATH(pm2, BATCH_LOST, POSSIBLE);
	CHECK_EQ(pm2->victim.pid, 100);
	/* What says that one could not be made. */
	put("proc/100/root/dev/shm/x", "%s", "");
	CHECK_OK(unlink(below("proc/100/root/dev/shm/x")));
	CHECK_OK(truncate((put("proc/100/root/dev/shm/torch_201_5_6", "%s", ""), below("proc/100/root/dev/shm/torch_201_5_6")), 4 << 20));
	pm3 = ASK(.pid = 100);
	CHECK_DEATH(pm3, BATCH_LOST, LIKELY);
	CHECK(strstr(pm3->text, "could not be made"));
}

TEST(a_lost_batch_for_want_of_descriptors)
{
	_cleanup_pm_ struct dl_postmortem *pm = NULL;

	begin();
	put_shell();
	put_proc(100, 1, "python3", 'S', IDLE, 0, 0);
	put_proc(201, 100, "pt_data_worker", 'S', IDLE, 0, 0);
	for (int i = 0; i < 63; i++) {
		char path[64];

		snprintf(path, sizeof(path), "proc/201/fd/%d", i);
		put(path, "%s", "");
	}
	pm = ASK(.pid = 100);
	CHECK_DEATH(pm, BATCH_LOST, LIKELY);
	CHECK(strstr(pm->text, "limit of open files"));
	CHECK_EQ(number(pm, "fds.open"), 63);
	CHECK_EQ(number(pm, "fds.limit"), 64);
}

static void put_mutex(uint32_t pid, uint64_t addr, uint32_t owner)
{
	const uint32_t word[3] = { 2, 0, owner };
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "proc/%u/mem", pid);
	fd = open(below(path), O_WRONLY | O_CREAT, 0600);
	CHECK_EQ(pwrite(fd, word, sizeof(word), (off_t)addr), sizeof(word));
	close(fd);
}

TEST(a_lock_that_was_held_at_the_fork)
{
	_cleanup_pm_ struct dl_postmortem *pm = NULL, *pm2 = NULL, *pm3 = NULL;

	begin();
	put_shell();
	put_proc(100, 1, "python3", 'S', IDLE, 0, 0);
	put_thread(100, 105, "pt_data_pin", 'S', IDLE, 0, 0);
	put_proc(201, 100, "pt_data_worker", 'S', SYS_futex, 0x4000, 0x80);
	put_mutex(201, 0x4000, 105);
	pm = ASK(.pid = 100);
	CHECK_DEATH(pm, HANG, LIKELY);
	CHECK(strstr(pm->text, "pt_data_pin") && strstr(pm->text, "when it was forked"));
	CHECK_EQ(pm->victim.pid, 201);
	CHECK_EQ(pm->threads.v[2].holder.tid, 105);
	/* A thread of its own that lives may still give it back. */
	put_mutex(201, 0x4000, 211);
	put_thread(201, 211, "python3", 'S', SYS_read, 3, 0);
	pm2 = ASK(.pid = 100);
	CHECK_DEATH(pm2, HANG, POSSIBLE);
	CHECK_EQ(pm2->threads.v[2].holder.tid, 211);
	CHECK(strstr(pm2->threads.v[2].holder_text, "waiting to read"));
	/* What stands there may be anything: nothing is made of a number that nobody has. */
	put_mutex(201, 0x4000, 77777777);	/* its thread 211 reads */
	pm3 = ASK(.pid = 100);
	CHECK_DEATH(pm3, HANG, POSSIBLE);
	CHECK_EQ(pm3->threads.v[2].holder.pid, 0);
	CHECK(!pm3->threads.v[2].holder_text);
}

TEST(a_lock_that_nobody_can_give_back)
{
	_cleanup_pm_ struct dl_postmortem *pm = NULL, *pm2 = NULL, *pm3 = NULL;

	begin();
	put_shell();
	put_proc(100, 1, "python3", 'S', IDLE, 0, 0);
	put_proc(201, 100, "pt_data_worker", 'S', SYS_futex, 0x4000, 0x189);
	pm = ASK(.pid = 100);
	CHECK_DEATH(pm, HANG, CERTAIN);
	CHECK_EQ(pm->victim.pid, 201);
	CHECK(strstr(pm->text, "no other thread") && strstr(pm->text, "forked"));
	/* Another thread may do it, and so does a deadline. */
	put_thread(201, 211, "python3", 'S', SYS_accept4, 3, 0);
	pm2 = ASK(.pid = 100);
	CHECK_DEATH(pm2, HANG, POSSIBLE);
	begin();
	put_shell();
	deadline = 0x7ff0;
	put_proc(100, 1, "python3", 'S', IDLE, 0, 0);
	put_proc(201, 100, "pt_data_worker", 'S', SYS_futex, 0x4000, 0x189);
	deadline = 0;
	pm3 = ASK(.pid = 100);
	CHECK_DEATH(pm3, HANG, POSSIBLE);
}

TEST(a_lock_between_processes)
{
	_cleanup_pm_ struct dl_postmortem *pm = NULL;

	begin();
	put_shell();
	put_proc(100, 1, "python3", 'S', IDLE, 0, 0);
	put_proc(201, 100, "pt_data_worker", 'S', SYS_futex, 0x4000, 0x109);
	put_proc(202, 100, "pt_data_worker", 'S', SYS_futex, 0x4000, 0x109);
	pm = ASK(.pid = 100);
	CHECK_DEATH(pm, HANG, LIKELY);
	CHECK(strstr(pm->text, "all 2 workers wait for a lock between processes"));
}

/* A verdict that is certain rests on a fact. */
static bool decided(const struct dl_postmortem *pm, const char *text)
{
	vec_for_each(&pm->facts, f)
		if (f->decides && strstr(f->text, text))
			return true;
	return false;
}

TEST(in_the_kernel_and_stopped_and_running)
{
	_cleanup_pm_ struct dl_postmortem *pm = NULL, *pm2 = NULL, *pm3 = NULL, *pm4 = NULL;

	begin();
	put_shell();
	put_proc(100, 1, "python3", 'S', IDLE, 0, 0);
	put_proc(201, 100, "pt_data_worker", 'D', SYS_read, 3, 0);
	pm = ASK(.pid = 100);
	CHECK_DEATH(pm, HANG, LIKELY);
	CHECK(strstr(pm->text, "folio_wait_bit_common") && strstr(pm->text, "network file system"));
	put_proc(201, 100, "pt_data_worker", 'T', SYS_read, 3, 0);
	pm2 = ASK(.pid = 100);
	CHECK_DEATH(pm2, HANG, CERTAIN);
	CHECK(strstr(pm2->text, "SIGSTOP"));
	CHECK(decided(pm2, "SIGSTOP"));
	put_proc(201, 100, "pt_data_worker", 'R', -1, 0, 0);
	pm3 = ASK(.pid = 100);
	CHECK_DEATH(pm3, NONE, LIKELY);
	/* A trainer that spins while its workers are idle may wait for its GPU. */
	put_proc(100, 1, "python3", 'R', -1, 0, 0);
	put_proc(201, 100, "pt_data_worker", 'S', IDLE, 0, 0);
	pm4 = ASK(.pid = 100);
	CHECK_DEATH(pm4, NONE, POSSIBLE);
	CHECK(other(pm4, DL_DEATH_HANG));
}

TEST(orphans)
{
	_cleanup_pm_ struct dl_postmortem *pm = NULL, *pm2 = NULL, *pm3 = NULL;

	begin();
	put_shell();
	put_proc(201, 1, "pt_data_worker", 'S', IDLE, 0, 0);
	put_proc(202, 1, "pt_data_worker", 'S', SYS_futex, 0x4000, 0x109);
	put_proc(300, 1, "nginx", 'S', IDLE, 0, 0);
	/* A shell handles the same signals. */
	put_proc(301, 1, "bash", 'S', IDLE, 0, 0);
	put("proc/301/status", "Name:\tbash\nTgid:\t301\nPid:\t301\nPPid:\t1\nSigCgt:\t000000004b817efb\n");
	pm = ASK(.pid = 0);
	CHECK_DEATH(pm, ORPHANED, LIKELY);
	CHECK(strstr(pm->text, "2 of its workers"));
	CHECK_EQ(pm->procs.cnt, 2);
	pm2 = ASK(.pid = 201);
	CHECK_DEATH(pm2, ORPHANED, LIKELY);
	/* What killed the trainer goes before what that left. */
	put("dev/kmsg", BOOT OOM_OF("4712", "python3"));
	pm3 = ASK(.log = "Killed\n");
	CHECK_DEATH(pm3, OOM_HOST, LIKELY);
	CHECK(told(pm3, "without a trainer", DL_PM_PROC));
}

TEST(a_worker_that_nobody_has_waited_for)
{
	_cleanup_pm_ struct dl_postmortem *pm = NULL, *pm2 = NULL;

	begin();
	put_shell();
	put_proc(100, 1, "python3", 'S', IDLE, 0, 0);
	put_proc(4712, 100, "pt_data_worker", 'Z', -1, 0, 0);
	put_stat("proc/4712", 4712, "pt_data_worker", 'Z', 100, SIGKILL);
	put("dev/kmsg", BOOT "%s", oom);
	pm = ASK(.pid = 100);
	CHECK_DEATH(pm, OOM_CGROUP, CERTAIN);
	CHECK_EQ(pm->victim.pid, 4712);
	CHECK(told(pm, "was killed outright (SIGKILL)", DL_PM_PROC));
	CHECK_OK(unlink(below("dev/kmsg")));
	put_stat("proc/4712", 4712, "pt_data_worker", 'Z', 100, 3 << 8);
	pm2 = ASK(.pid = 100);
	CHECK_DEATH(pm2, WORKER_EXIT, LIKELY);
	CHECK(strstr(pm2->text, "exit code 3"));
	CHECK_EQ(pm2->status, 3 << 8);
}

TEST(a_trainer_that_nobody_has_waited_for)
{
	_cleanup_pm_ struct dl_postmortem *pm = NULL, *pm2 = NULL;

	begin();
	put_shell();
	put_proc(100, 1, "python3", 'Z', -1, 0, 0);
	put_stat("proc/100", 100, "python3", 'Z', 1, 1 << 8);
	/* Its helper is none of the run's deaths. */
	put_proc(150, 100, "bash", 'Z', -1, 0, 0);
	put_stat("proc/150", 150, "bash", 'Z', 100, SIGSEGV);
	pm = ASK(.pid = 100);
	CHECK_DEATH(pm, TRAINER_EXIT, LIKELY);
	CHECK(strstr(pm->text, "exit code 1"));
	put_stat("proc/100", 100, "python3", 'Z', 1, SIGSEGV | 0x80);
	pm2 = ASK(.pid = 100);
	CHECK_DEATH(pm2, SEGFAULT, LIKELY);
	CHECK_EQ(pm2->victim.pid, 100);
	CHECK_EQ(pm2->sig, SIGSEGV);
}

TEST(a_process_that_is_gone)
{
	_cleanup_pm_ struct dl_postmortem *pm = NULL, *pm2 = NULL;

	begin();
	put_shell();
	pm = ASK(.pid = 4712);
	CHECK_DEATH(pm, UNEXPLAINED, UNKNOWN);
	CHECK(noted(pm, "no process 4712 any more"));
	put("dev/kmsg", BOOT "%s", oom);
	pm2 = ASK(.pid = 4712);
	CHECK_DEATH(pm2, OOM_CGROUP, CERTAIN);
}

TEST(a_number_from_inside_a_container)
{
	_cleanup_pm_ struct dl_postmortem *pm = NULL;

	begin();
	put_shell();
	put_proc(4100, 1, "python3", 'S', IDLE, 0, 0);
	put("proc/4100/status", "Name:\tpython3\nTgid:\t4100\nPid:\t4100\nPPid:\t1\nNStgid:\t4100\t31\nNSpid:\t4100\t31\nSigCgt:\t0\n");
	pm = ASK(.pid = 31);
	CHECK_DEATH(pm, HANG, POSSIBLE);
	CHECK_EQ(pm->victim.pid, 4100);
	CHECK_EQ(pm->victim.nspid, 31);
}

/* --- this machine ------------------------------------------------------------------------------- */

TEST(a_real_process)
{
	_cleanup_pm_ struct dl_postmortem *pm = NULL;
	struct dl_leftover_opts o = { .settle_ns = 1000000 };
	struct dl_diag d = {};
	const pid_t pid = fork();
	int err;

	if (!pid) {
		for (;;)
			pause();
	}
	o.pid = (uint32_t)pid;
	err = dl_postmortem_leftovers(&pm, &o, &d);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	CHECK_MSG(!err, "%s", d.msg);
	CHECK_EQ(pm->procs.cnt, 1);
	CHECK_EQ(pm->threads.cnt, 1);
	CHECK(number(pm, "host.total") > 0 && number(pm, "maps.count") > 0 && number(pm, "fds.limit") > 0);
}
