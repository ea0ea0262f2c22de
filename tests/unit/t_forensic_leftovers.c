/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Post-mortems of planted machines: kernel log, /dev/shm, control groups. Those of living runs are t_forensic_hang.c. */
#include "unit/leftovers_util.h"
#include "unit/failing_alloc.h"

#include <sched.h>
#include <sys/mount.h>
#include <sys/vfs.h>

/* --- the kernel log ------------------------------------------------------------------------------- */

TEST(nothing_is_left)
{
	_cleanup_pm_ struct dl_postmortem *pm = NULL;

	begin();
	pm = ASK(.pid = 0);
	CHECK_DEATH(pm, UNEXPLAINED, UNKNOWN);
	CHECK(noted(pm, "kmsg"));
	CHECK(noted(pm, "a recording"));
	CHECK_EQ(pm->alternatives.cnt, 0);
}

TEST(oom_of_the_process_that_the_output_names)
{
	_cleanup_pm_ struct dl_postmortem *pm = NULL;

	begin();
	put("dev/kmsg", BOOT "%s", oom);
	pm = ASK(.log = KILLED);
	CHECK_DEATH(pm, OOM_CGROUP, CERTAIN);
	CHECK_EQ(pm->victim.pid, 4712);
	CHECK_STR(pm->victim.name, "pt_data_worker");
	CHECK_EQ(pm->sig, SIGKILL);
	CHECK_EQ(pm->ts, 9831000031000);
	CHECK(strstr(pm->text, "/job") && strstr(pm->text, "1.00 GiB") && strstr(pm->text, "800 MiB"));
	CHECK_EQ(number(pm, "cgroup.limit"), 1024 * MIB);
	CHECK_EQ(number(pm, "cgroup.usage"), 1024 * MIB);
	CHECK_EQ(number(pm, "cgroup.anon"), 900 * MIB);
	CHECK_EQ(number(pm, "cgroup.shmem"), 80 * MIB);
	CHECK_EQ(number(pm, "cgroup.file"), 20 * MIB);
	CHECK_EQ(pm->procs.cnt, 2);	/* sshd is none of the run */
	CHECK_EQ(pm->procs.v[1].anon, 800 * MIB);
	CHECK_EQ(pm->procs.v[1].status, SIGKILL);
	CHECK(pm->procs.v[1].ended && !pm->procs.v[0].ended);
	CHECK(told(pm, "Memory cgroup out of memory", DL_PM_KERNEL_LOG));
	CHECK(!pm->claims.v->contradicts && !pm->wrong_text);
	CHECK(noted(pm, "near ones"));
}

/* In a container the output has inner numbers. */
TEST(oom_of_a_process_with_another_number)
{
	_cleanup_pm_ struct dl_postmortem *pm = NULL, *pm2 = NULL;

	begin();
	put("dev/kmsg", BOOT "%s", oom);
	pm = ASK(.log = "RuntimeError: DataLoader worker (pid 31) is killed by signal: Killed. \n");
	CHECK_DEATH(pm, OOM_CGROUP, POSSIBLE);
	CHECK_EQ(pm->victim.pid, 4712);
	CHECK_EQ(pm->victim.nspid, 31);
	CHECK(noted(pm, "container"));
	CHECK(other(pm, DL_DEATH_KILLED_BY) && other(pm, DL_DEATH_OOM_HOST));
	/* Slurm says the same: then it is that one. */
	pm2 = ASK(.log = "RuntimeError: DataLoader worker (pid 31) is killed by signal: Killed. \n"
		  "slurmstepd: error: Detected 1 oom_kill event in StepId=31.0. Some of the step tasks have been OOM Killed.\n");
	CHECK_DEATH(pm2, OOM_CGROUP, LIKELY);
	CHECK(strstr(pm2->text, "/job"));
	CHECK_EQ(pm2->alternatives.cnt, 0);
}

TEST(oom_of_the_machine_and_of_strangers)
{
	_cleanup_pm_ struct dl_postmortem *pm = NULL, *pm2 = NULL;

	begin();
	put("dev/kmsg", BOOT OOM_OF("4712", "python3"));
	pm = ASK(.log = KILLED);
	CHECK_DEATH(pm, OOM_HOST, CERTAIN);
	/* Another program's death is told, and decides nothing. The number may be an inner one. */
	begin();
	put("dev/kmsg", BOOT OOM_OF("4712", "mysqld"));
	pm2 = ASK(.log = KILLED);
	CHECK_DEATH(pm2, UNEXPLAINED, UNKNOWN);
	CHECK(told(pm2, "mysqld", DL_PM_KERNEL_LOG) && noted(pm2, "near ones"));
	CHECK(other(pm2, DL_DEATH_OOM_CGROUP) && other(pm2, DL_DEATH_OOM_HOST) && other(pm2, DL_DEATH_KILLED_BY));
	CHECK_EQ(pm2->alternatives.cnt, 3);
}

/* With another fault's kernel log beside it: a bus error is no kill for want of memory. */
TEST(oom_beside_a_bus_error)
{
	_cleanup_pm_ struct dl_postmortem *pm = NULL;

	begin();
	put("dev/kmsg", BOOT "%s", oom);
	pm = ASK(.log = BUS);
	CHECK_DEATH(pm, UNEXPLAINED, UNKNOWN);
	CHECK_EQ(pm->sig, SIGBUS);
	CHECK_EQ(pm->victim.nspid, 4712);
	CHECK(other(pm, DL_DEATH_SHM_FULL) && other(pm, DL_DEATH_MAPPED_FILE_TRUNCATED) && !other(pm, DL_DEATH_OOM_CGROUP));
	CHECK(other(pm, DL_DEATH_SHM_FULL)->decides);
	CHECK(strstr(pm->text, "SIGBUS"));
	CHECK(!told(pm, "out of memory", DL_PM_KERNEL_LOG));
}

TEST(nobody_was_asked_about)
{
	_cleanup_pm_ struct dl_postmortem *pm = NULL;

	begin();
	put("dev/kmsg", BOOT "%s", oom);
	pm = ASK(.pid = 0);
	CHECK_DEATH(pm, OOM_CGROUP, LIKELY);
	CHECK(noted(pm, "nobody was asked about"));
}

/* A group at its limit loses one process after the other: the first one decides, of the last crash. */
TEST(several_kills)
{
	_cleanup_pm_ struct dl_postmortem *pm = NULL;

	begin();
	put("dev/kmsg", BOOT
	    "3,1,100000000,-;Memory cgroup out of memory: Killed process 11 (python3) total-vm:1kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB\n"
	    "3,2,900000000,-;Memory cgroup out of memory: Killed process 21 (python3) total-vm:1kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB\n"
	    "6,2,900000000,-;dying[5]: segfault at 10 ip 00007f0000001234 sp 00007fff0 error 6 in libfoo.so[7f0000000000+3000]\n"
	    "3,3,900500000,-;Memory cgroup out of memory: Killed process 22 (pt_data_worker) total-vm:1kB, anon-rss:1kB, file-rss:0kB, "
	    "shmem-rss:0kB\n");
	pm = ASK(.pid = 0);
	CHECK_DEATH(pm, OOM_CGROUP, LIKELY);
	CHECK_EQ(pm->victim.pid, 21);
	CHECK(noted(pm, "has 3 deaths"));
	CHECK(!told(pm, "dying", DL_PM_KERNEL_LOG));
}

TEST(killed_and_no_oom_since_the_boot)
{
	_cleanup_pm_ struct dl_postmortem *pm = NULL, *pm2 = NULL, *pm3 = NULL;

	begin();
	put("dev/kmsg", BOOT "6,1,5140900,-;usb 1-1: new device\n");
	pm = ASK(.log = KILLED);
	CHECK_DEATH(pm, KILLED_BY, POSSIBLE);
	CHECK(strstr(pm->text, "if the run was on this machine"));
	CHECK(other(pm, DL_DEATH_OOM_CGROUP) && other(pm, DL_DEATH_OOM_HOST));
	/* A log that has lost its beginning may have lost it. */
	begin();
	put("dev/kmsg", "6,1000,5140900000,-;usb 1-1: new device\n");
	pm2 = ASK(.log = KILLED);
	CHECK_DEATH(pm2, UNEXPLAINED, UNKNOWN);
	CHECK(noted(pm2, "overwritten"));
	/* And so may one that may not be read, or is saved. */
	begin();
	put("saved", BOOT);
	pm3 = ASK(.log = KILLED, .kernel_log = below("saved"));
	CHECK_DEATH(pm3, UNEXPLAINED, UNKNOWN);
	CHECK_EQ(pm3->alternatives.cnt, 3);
}

/* The advice of PyTorch, and a kernel log that knows better. */
TEST(bus_errors_that_the_kernel_explains)
{
	static const struct { const char *line; enum dl_death death; enum dl_pm_confidence confidence; } all[] = {
		{ "4,9,20000000,-;PID 4712 killed due to inadequate hugepage pool\n", DL_DEATH_HUGEPAGES_EXHAUSTED, DL_PM_CERTAIN },
		{ "3,9,20000000,-;Memory failure: 0x1f2e3: Killing python3:4712 due to hardware memory corruption\n",
		  DL_DEATH_MEMORY_FAILURE, DL_PM_CERTAIN },
		{ "3,9,20000000,-;I/O error, dev sdb, sector 2048 op 0x0:(READ) flags 0x0\n", DL_DEATH_MAPPED_FILE_ERROR, DL_PM_POSSIBLE },
	};

	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		_cleanup_pm_ struct dl_postmortem *pm = NULL;

		begin();
		put("dev/kmsg", BOOT "%s", all[i].line);
		pm = ASK(.log = BUS);
		CHECK_EQ(pm->death, all[i].death);
		CHECK_EQ(pm->confidence, all[i].confidence);
		CHECK(pm->claims.v->contradicts);
		CHECK(strstr(pm->wrong_text, "every bus error"));
		if (all[i].confidence == DL_PM_POSSIBLE)
			CHECK(other(pm, DL_DEATH_SHM_FULL) && other(pm, DL_DEATH_MAPPED_FILE_TRUNCATED));
		else
			CHECK_EQ(pm->alternatives.cnt, 0);
	}
}

TEST(segfault_with_its_library)
{
	_cleanup_pm_ struct dl_postmortem *pm = NULL, *pm2 = NULL;

	begin();
	put("dev/kmsg", BOOT "6,9,20000000,-;python3[812]: segfault at 10 ip 00007f0000001234 sp 00007fff0 error 6 in libfoo.so[7f0000000000+3000]\n");
	pm = ASK(.log = "./run.sh: line 3:   812 Segmentation fault      (core dumped) python3 train.py\n");
	CHECK_DEATH(pm, SEGFAULT, CERTAIN);
	CHECK(strstr(pm->text, "libfoo.so") && strstr(pm->text, "wrote to address 0x10"));
	/* Without the kernel's line, as for a worker, whose handler hides it: as far as the output goes. */
	begin();
	pm2 = ASK(.log = "ERROR: Unexpected segmentation fault encountered in worker.\n");
	CHECK_DEATH(pm2, SEGFAULT, LIKELY);
	CHECK(!strstr(pm2->text, "memory ran out"));
}

TEST(a_saved_log_decides_as_well)
{
	_cleanup_pm_ struct dl_postmortem *pm = NULL;

	begin();
	put("journal", "Nov 30 09:02:57 gpu12 kernel: Memory cgroup out of memory: Killed process 4712 (python3) total-vm:2893824kB, "
	    "anon-rss:819200kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:2112kB oom_score_adj:0\n");
	pm = ASK(.log = KILLED, .kernel_log = below("journal"));
	CHECK_DEATH(pm, OOM_CGROUP, CERTAIN);
	CHECK(pm->facts.v->wall_ns > 0);
}

TEST(daemons_that_kill)
{
	_cleanup_pm_ struct dl_postmortem *pm = NULL, *pm2 = NULL, *pm3 = NULL;

	begin();
	put("journal", "Nov 30 09:02:57 h systemd-oomd[700]: Killed /user.slice/run-4.scope due to memory pressure for /user.slice being 61%% > 50%%\n");
	pm = ASK(.log = KILLED, .kernel_log = below("journal"));
	CHECK_DEATH(pm, KILLED_BY, POSSIBLE);	/* that may have been anybody's */
	CHECK(strstr(pm->text, "run-4.scope"));
	CHECK(other(pm, DL_DEATH_OOM_CGROUP));
	put("journal", "Nov 30 09:02:57 h earlyoom[9]: sending SIGKILL to process 4712 uid 1000 \"python3\": badness 900\n");
	pm2 = ASK(.log = KILLED, .kernel_log = below("journal"));
	CHECK_DEATH(pm2, KILLED_BY, CERTAIN);
	put("journal", "Nov 30 09:02:57 h earlyoom[9]: sending SIGKILL to process 77 uid 1000 \"firefox\": badness 900\n");
	pm3 = ASK(.log = KILLED, .kernel_log = below("journal"));
	CHECK_DEATH(pm3, UNEXPLAINED, UNKNOWN);
}

TEST(what_was_given_must_be_there)
{
	struct dl_postmortem *pm = NULL;
	struct dl_diag d = {};

	begin();
	CHECK_EQ(dl_postmortem_leftovers(&pm, &(struct dl_leftover_opts){ .root = root, .kernel_log = below("nowhere") }, &d), -ENOENT);
	CHECK(strstr(d.msg, "nowhere"));
	CHECK_EQ(dl_postmortem_leftovers(&pm, &(struct dl_leftover_opts){ .root = below("norootthere") }, &d), -ENOENT);
	CHECK(!pm);
}

/* --- /dev/shm ------------------------------------------------------------------------------------- */

static void put_object(const char *name, uint64_t size, uint64_t bytes)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "dev/shm/%s", name);
	fd = open(below(path), O_WRONLY | O_CREAT, 0600);
	CHECK(fd >= 0);
	CHECK_OK(ftruncate(fd, (off_t)size));
	if (bytes) {
		CHECK_OK(posix_fallocate(fd, 0, (off_t)bytes));
		CHECK_OK(fsync(fd));
	}
	close(fd);
}

TEST(an_object_without_memory)
{
	_cleanup_pm_ struct dl_postmortem *pm = NULL, *pm2 = NULL, *pm3 = NULL;

	begin();
	put_object("torch_4712_99_3", 8 * MIB, 0);
	put_object("torch_4713_99_3", 2 * MIB, 2 * MIB);
	put_object("sem.mp-x", 32, 32);
	pm = ASK(.log = "RuntimeError: unable to write to file </torch_4712_99_3>: No space left on device (28)\n");
	CHECK_DEATH(pm, SHM_FULL, LIKELY);
	CHECK(told(pm, "8.00 MiB in all, and not one block", DL_PM_SHM));
	CHECK(told(pm, "2 objects of PyTorch in /dev/shm have a dead owner", DL_PM_SHM));
	CHECK_EQ(number(pm, "batch.bytes"), 8 * MIB);
	CHECK_EQ(pm->victim.nspid, 4712);
	CHECK(number(pm, "shm.leftover") >= 2 * MIB && number(pm, "shm.leftover") < 3 * MIB);
	/* By itself, and beside a bus error: it says which of them. */
	pm2 = ASK(.pid = 0);
	CHECK_DEATH(pm2, SHM_FULL, LIKELY);
	pm3 = ASK(.log = BUS);
	CHECK_DEATH(pm3, SHM_FULL, LIKELY);
	CHECK(!pm3->claims.v->contradicts);
	CHECK(strstr(pm3->text, "which the output names"));
}

TEST(objects_of_the_living)
{
	_cleanup_pm_ struct dl_postmortem *pm = NULL;

	begin();
	put_shell();
	put_proc(4712, 1, "python3", 'S', IDLE, 0, 0);
	put_object("torch_4712_99_3", MIB, MIB);
	pm = ASK(.pid = 0);
	CHECK_DEATH(pm, UNEXPLAINED, UNKNOWN);
	CHECK(!told(pm, "dead owner", DL_PM_SHM));
}

/* A large and empty one is not what the run filled, and says nothing of how large it should be. */
TEST(another_shm_than_the_runs)
{
	_cleanup_pm_ struct dl_postmortem *pm = NULL;
	struct statfs fs;
	uint64_t value;

	begin();
	below("dev/shm/x");
	CHECK_OK(statfs(root, &fs));
	if (fs.f_bfree < fs.f_blocks / 10 || fs.f_blocks * (uint64_t)fs.f_bsize < 256 * MIB)
		SKIP("the file system of the tests is itself small or full");
	pm = ASK(.log = "RuntimeError: unable to write to file </torch_4712_99_3>: No space left on device (28)\n");
	CHECK_DEATH(pm, SHM_FULL, LIKELY);
	CHECK(noted(pm, "it was another"));
	CHECK(!dl_pm_get(pm, "shm.total", &value));
}

/* An OOM of the process that the output names goes before what lies about. */
TEST(an_object_beside_an_oom)
{
	_cleanup_pm_ struct dl_postmortem *pm = NULL;

	begin();
	put("dev/kmsg", BOOT "%s", oom);
	put_object("torch_1_99_3", 8 * MIB, 0);
	pm = ASK(.log = KILLED);
	CHECK_DEATH(pm, OOM_CGROUP, CERTAIN);
}

/* Without anybody being asked about, the later death of the two counts; an object is as old as its last change. */
TEST(an_object_after_an_oom)
{
	static const char kill[] = "-11-30T09:02:57+0000 gpu12 kernel: Memory cgroup out of memory: Killed process 11 (python3) "
		"total-vm:2893824kB, anon-rss:819200kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:2112kB oom_score_adj:0\n";
	_cleanup_pm_ struct dl_postmortem *pm = NULL, *pm2 = NULL;

	begin();
	put("before", "2025%s", kill);
	put("after", "2200%s", kill);
	put_object("torch_4712_99_3", 8 * MIB, 0);
	pm = ASK(.kernel_log = below("before"));
	CHECK_DEATH(pm, SHM_FULL, LIKELY);
	CHECK(other(pm, DL_DEATH_OOM_CGROUP));
	pm2 = ASK(.kernel_log = below("after"));
	CHECK_DEATH(pm2, OOM_CGROUP, LIKELY);
}

/* A real tmpfs, which needs root. */
TEST(a_small_and_a_full_one)
{
	_cleanup_pm_ struct dl_postmortem *pm = NULL, *pm2 = NULL;

	begin();
	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("tmpfs", (below("dev/shm/x"), mkdir(below("dev/shm"), 0700), below("dev/shm")), "tmpfs", 0, "size=4m"))
		SKIP("mounting a tmpfs needs root: %s", strerror(errno));
	pm = ASK(.log = BUS);
	CHECK_DEATH(pm, SHM_FULL, POSSIBLE);
	CHECK_EQ(number(pm, "shm.total"), 4 * MIB);
	CHECK(strstr(pm->text, "does not prove it"));
	CHECK(other(pm, DL_DEATH_MAPPED_FILE_TRUNCATED));
	put_object("torch_4712_99_3", 4 * MIB, 4 * MIB);
	pm2 = ASK(.log = BUS);
	CHECK_OK(umount(below("dev/shm")));
	CHECK_DEATH(pm2, SHM_FULL, LIKELY);
	CHECK_EQ(number(pm2, "shm.used"), 4 * MIB);
	CHECK(told(pm2, "64 MiB is what a container gets", DL_PM_SHM));
}

/* --- control groups ------------------------------------------------------------------------------ */

static void put_v2(const char *events, const char *pids)
{
	put("proc/self/mountinfo", "30 1 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n");
	put("proc/self/cgroup", "0::/shell\n");
	put("sys/fs/cgroup/cgroup.controllers", "cpu memory pids\n");
	put("sys/fs/cgroup/shell/cgroup.events", "populated 1\n");
	put("sys/fs/cgroup/shell/memory.max", "max\n");
	put("sys/fs/cgroup/job/cgroup.events", "populated 1\n");
	put("sys/fs/cgroup/job/memory.max", "1073741824\n");
	put("sys/fs/cgroup/job/memory.current", "104857600\n");
	put("sys/fs/cgroup/job/memory.peak", "1073741824\n");
	put("sys/fs/cgroup/job/memory.events", "%s", events);
	put("sys/fs/cgroup/job/pids.max", "64\n");
	put("sys/fs/cgroup/job/pids.current", "5\n");
	put("sys/fs/cgroup/job/pids.events", "%s", pids);
}

TEST(counters_of_version_2)
{
	_cleanup_pm_ struct dl_postmortem *pm = NULL, *pm2 = NULL, *pm3 = NULL, *pm4 = NULL;

	begin();
	put_v2("low 0\nhigh 0\nmax 91\noom 2\noom_kill 2\noom_group_kill 0\n", "max 0\n");
	pm = ASK(.log = KILLED, .cgroup = "/job");
	CHECK_DEATH(pm, OOM_CGROUP, LIKELY);
	CHECK(strstr(pm->text, "/job") && strstr(pm->text, "1.00 GiB"));
	CHECK(told(pm, "killed 2 processes", DL_PM_CGROUP));
	CHECK(told(pm, "met the limit 91 times", DL_PM_CGROUP));
	CHECK_EQ(number(pm, "cgroup.limit"), 1024 * MIB);
	CHECK_EQ(number(pm, "cgroup.peak"), 1024 * MIB);
	CHECK_EQ(number(pm, "cgroup.usage"), 100 * MIB);
	/* By themselves they do not say when. */
	pm2 = ASK(.cgroup = "/job");
	CHECK_DEATH(pm2, OOM_CGROUP, POSSIBLE);
	/* Of a bus error they are not the cause. */
	pm3 = ASK(.log = BUS, .cgroup = "/job");
	CHECK_DEATH(pm3, UNEXPLAINED, UNKNOWN);
	/* The shell's own say nothing. */
	pm4 = ASK(.log = KILLED);
	CHECK_DEATH(pm4, UNEXPLAINED, UNKNOWN);
}

TEST(refused_forks)
{
	_cleanup_pm_ struct dl_postmortem *pm = NULL;

	begin();
	put_v2("oom_kill 0\n", "max 17\n");
	pm = ASK(.log = "RuntimeError: can't start new thread\n", .cgroup = "/job");
	CHECK_DEATH(pm, PROCESS_LIMIT, LIKELY);
	CHECK(strstr(pm->text, "64") && strstr(pm->text, "17 times"));
	CHECK_EQ(number(pm, "pids.limit"), 64);
}

TEST(counters_of_version_1)
{
	_cleanup_pm_ struct dl_postmortem *pm = NULL;

	begin();
	put("proc/self/mountinfo", "30 1 0:26 / /sys/fs/cgroup/memory rw shared:4 - cgroup cgroup rw,memory\n");
	put("proc/self/cgroup", "4:memory:/\n");
	put("sys/fs/cgroup/memory/memory.usage_in_bytes", "1\n");
	put("sys/fs/cgroup/memory/job/a/memory.usage_in_bytes", "1048576\n");
	put("sys/fs/cgroup/memory/job/a/memory.limit_in_bytes", "9223372036854771712\n");
	put("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "2097152\n");
	put("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "1073741824\n");
	put("sys/fs/cgroup/memory/job/memory.max_usage_in_bytes", "1073741824\n");
	put("sys/fs/cgroup/memory/job/memory.failcnt", "55\n");
	put("sys/fs/cgroup/memory/job/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n");
	pm = ASK(.log = KILLED, .cgroup = "/job/a");
	CHECK_DEATH(pm, OOM_CGROUP, LIKELY);
	CHECK_EQ(number(pm, "cgroup.limit"), 1024 * MIB);
	CHECK(told(pm, "met the limit 55 times", DL_PM_CGROUP));
	CHECK(told(pm, "killed 1 process of control group /job for", DL_PM_CGROUP));
}

TEST(every_allocation_may_fail)
{
#if FAILING_ALLOC
	struct dl_leftover_opts o = { .pid = 100, .log = KILLED, .log_len = sizeof(KILLED) - 1, .cgroup = "/job", .root = root,
				      .settle_ns = 1 };
	int failed = 0;

	begin();
	put_shell();
	put_proc(100, 1, "python3", 'S', IDLE, 0, 0);
	put_proc(201, 100, "pt_data_worker", 'S', SYS_futex, 0x4000, 0x80);
	put_v2("max 91\noom_kill 2\n", "max 1\n");
	put_object("torch_4712_99_3", 8 * MIB, 0);
	put("dev/kmsg", BOOT "%s", oom);
	for (long n = 0;; n++) {
		struct dl_postmortem *pm = NULL;
		int err;
		long left;

		alloc_left = n;
		err = dl_postmortem_leftovers(&pm, &o, NULL);
		left = alloc_left;
		alloc_left = LONG_MAX;
		CHECK(!err == !!pm && (!err || err == -ENOMEM));
		dl_postmortem_free(pm);
		if (left > 0)
			break;
		failed += err != 0;
		CHECK(n < 100000);
	}
	CHECK(failed > 100);
#else
	SKIP("the sanitizer has an allocator of its own");
#endif
}
