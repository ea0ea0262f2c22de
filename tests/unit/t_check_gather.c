/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What the pre-flight reads, from machines that were planted in a folder: /proc, /sys and /etc of either
 * version of control groups. */
#include "unit/test.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/wait.h>

#include "base/cleanup.h"
#include "base/map.h"
#include "check/gather.h"

static struct dl_ck_facts f;
static char root[256];

static void put(const char *path, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A file of the machine, with the folders that lead to it. */
static void put(const char *path, const char *fmt, ...)
{
	char full[PATH_MAX];
	va_list ap;
	FILE *out;

	snprintf(full, sizeof(full), "%s%s", root, path);
	for (char *p = strchr(full + 1, '/'); p; p = strchr(p + 1, '/')) {
		*p = '\0';
		mkdir(full, 0700);
		*p = '/';
	}
	out = fopen(full, "w");
	CHECK_MSG(out, "%s", full);
	va_start(ap, fmt);
	vfprintf(out, fmt, ap);
	va_end(ap);
	CHECK_OK(fclose(out));
}

static void begin(const char *name)
{
	dl_ck_facts_fini(&f);
	memset(&f, 0, sizeof(f));
	snprintf(root, sizeof(root), "%s", test_path(name));
	CHECK(!mkdir(root, 0700) || errno == EEXIST);
}

static void put_process(uint32_t pid, const char *cgroup, const char *cpuset)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%u/status", pid);
	put(path, "Name:\tpython\nUmask:\t0022\nTgid:\t%u\nPid:\t%u\nPPid:\t1\nUid:\t1000\t1000\t1000\t1000\nNSpid:\t%u\t7\n"
	    "Threads:\t5\nCpus_allowed:\tff\nCpus_allowed_list:\t0-7\n", pid, pid, pid);
	snprintf(path, sizeof(path), "/proc/%u/comm", pid);
	put(path, "python\n");
	snprintf(path, sizeof(path), "/proc/%u/cgroup", pid);
	put(path, "%s", cgroup);
	snprintf(path, sizeof(path), "/proc/%u/cpuset", pid);
	put(path, "%s\n", cpuset);
	snprintf(path, sizeof(path), "/proc/%u/limits", pid);
	put(path, "Limit                     Soft Limit           Hard Limit           Units     \n"
	    "Max stack size            8388608              unlimited            bytes     \n"
	    "Max core file size        0                    unlimited            bytes     \n"
	    "Max processes             100                  200                  processes \n"
	    "Max open files            1024                 1048576              files     \n");
	snprintf(path, sizeof(path), "/proc/%u/environ", pid);
	put(path, "SECRET=1%cOMP_NUM_THREADS=4%cSLURM_JOB_ID=77%c", 0, 0, 0);
}

/* --- control groups ----------------------------------------------------------------------------- */

/* 2.5 CPUs and 4 GiB, said two levels above the job. */
TEST(version_2)
{
	begin("v2");
	put("/proc/self/mountinfo", "30 1 0:26 / %s/cg rw - cgroup2 cgroup2 rw\n", root);
	put("/cg/cgroup.controllers", "cpuset cpu io memory pids\n");
	put_process(42, "0::/kubepods/pod1/box\n", "/kubepods/pod1/box");
	for (int i = 0; i < 3; i++) {
		static const char *const dirs[] = { "/cg/kubepods", "/cg/kubepods/pod1", "/cg/kubepods/pod1/box" };
		char path[128];

		snprintf(path, sizeof(path), "%s/cgroup.events", dirs[i]);
		put(path, "populated 1\n");
		snprintf(path, sizeof(path), "%s/cpu.max", dirs[i]);
		put(path, "%s", i == 1 ? "250000 100000\n" : "max 100000\n");
		snprintf(path, sizeof(path), "%s/memory.max", dirs[i]);
		put(path, "%s", i == 1 ? "4294967296\n" : "max\n");
		snprintf(path, sizeof(path), "%s/memory.current", dirs[i]);
		put(path, "%d\n", 1 << 30);
		snprintf(path, sizeof(path), "%s/cpu.stat", dirs[i]);
		put(path, "nr_periods 100\nnr_throttled %d\n", i == 1 ? 9 : 0);
	}
	put("/cg/kubepods/pod1/box/cpuset.cpus.effective", "0-3\n");
	put("/cg/kubepods/memory.high", "%d\n", 1 << 29);
	put("/cg/kubepods/pod1/memory.high", "max\n");
	ck_gather_proc(&f, root, 42, NULL);
	CHECK_OK(ck_gather_levels(&f, root, 42, false));
	CHECK(f.levels_known);
	CHECK_EQ(f.levels.cnt, 3);
	CHECK_STR(f.levels.v[0].path, "/kubepods/pod1/box");
	CHECK_EQ(f.levels.v[1].ev.mem_limit, 4ULL << 30);
	CHECK_EQ(f.levels.v[1].mem_high, 0);
	CHECK_EQ(f.levels.v[2].mem_high, 1 << 29);
	CHECK_EQ(f.cpus.allowed, 8);
	CHECK_EQ(f.cpus.cpuset, 4);
	CHECK(dl_ck_cpus_of(&f, NULL) == 2.5);
	/* Again, after a while. */
	put("/cg/kubepods/pod1/cpu.stat", "nr_periods 130\nnr_throttled 29\n");
	CHECK_OK(ck_gather_levels(&f, root, 42, true));
	CHECK_EQ(f.levels.cnt, 3);
	CHECK(f.levels.v[1].watched);
	CHECK_EQ(f.levels.v[1].throttled_cnt, 20);
	ck_gather_place(&f, root, 42);
	CHECK_EQ(f.place, DL_CK_KUBERNETES);
	CHECK(f.slurm);
}

/* Each controller in a hierarchy of its own. */
TEST(version_1)
{
	begin("v1");
	put("/proc/self/mountinfo", "31 1 0:27 / %s/cg/memory rw - cgroup cgroup rw,memory\n"
	    "32 1 0:28 / %s/cg/cpu rw - cgroup cgroup rw,cpu,cpuacct\n33 1 0:29 / %s/cg/cpuset rw - cgroup cgroup rw,cpuset\n",
	    root, root, root);
	put_process(42, "3:memory:/docker/abc\n2:cpu,cpuacct:/docker/abc\n1:cpuset:/docker/abc\n", "/docker/abc");
	put("/cg/cpu/docker/abc/cpu.cfs_quota_us", "-1\n");
	put("/cg/cpu/docker/abc/cpu.cfs_period_us", "100000\n");
	put("/cg/cpu/docker/cpu.cfs_quota_us", "150000\n");
	put("/cg/cpu/docker/cpu.cfs_period_us", "100000\n");
	put("/cg/memory/docker/abc/memory.limit_in_bytes", "1073741824\n");
	put("/cg/memory/docker/abc/memory.usage_in_bytes", "1000000000\n");
	put("/cg/memory/docker/abc/memory.stat", "total_cache 900000000\ntotal_shmem 100000000\ntotal_rss 5\n");
	put("/cg/memory/docker/memory.limit_in_bytes", "9223372036854771712\n");
	put("/cg/cpuset/docker/abc/cpuset.effective_cpus", "1,5-6\n");
	ck_gather_proc(&f, root, 42, NULL);
	CHECK_OK(ck_gather_levels(&f, root, 42, false));
	CHECK_EQ(f.levels.cnt, 2);
	CHECK(dl_ck_cpus_of(&f, NULL) == 1.5);
	CHECK_EQ(f.cpus.cpuset, 3);
	CHECK_EQ(f.levels.v[0].ev.mem_limit, 1 << 30);
	CHECK_EQ(f.levels.v[0].ev.mem_file, 800000000);
	CHECK_EQ(f.levels.v[1].ev.mem_limit, 0);
	ck_gather_place(&f, root, 42);
	CHECK_EQ(f.place, DL_CK_CONTAINER);
}

TEST(no_groups_to_be_seen)
{
	begin("none");
	put("/proc/self/mountinfo", "24 1 0:22 / /proc rw - proc proc rw\n");
	put_process(42, "0::/x\n", "/");
	CHECK_OK(ck_gather_levels(&f, root, 42, false));
	CHECK(!f.levels_known);
	CHECK(f.levels_why[0]);
	CHECK_OK(ck_gather_levels(&f, root, 43, false));
	CHECK(!f.levels_known);
}

/* --- a process ---------------------------------------------------------------------------------- */

TEST(limits_and_environment)
{
	begin("proc");
	put_process(42, "", "/");
	put_process(43, "", "/");
	put("/proc/sys/vm/max_map_count", "65530\n");
	put("/proc/sys/kernel/core_pattern", "|/usr/lib/systemd/systemd-coredump %%P\n");
	put("/dev/infiniband/uverbs0", " ");
	put("/.dockerenv", " ");
	ck_gather_proc(&f, root, 42, NULL);
	CHECK(f.proc.known && f.proc.env_known && f.proc.infiniband && f.proc.has_container_file);
	CHECK_EQ(f.proc.uid, 1000);
	CHECK_EQ(f.proc.pid_levels, 2);
	CHECK_EQ(f.proc.user_tasks, 10);
	CHECK_EQ(f.proc.map_count_max, 65530);
	CHECK_EQ(f.proc.limit[RLIMIT_NOFILE].rlim_cur, 1024);
	CHECK(f.proc.limit[RLIMIT_CORE].rlim_max == RLIM_INFINITY);
	CHECK(!f.proc.has_limit[RLIMIT_MEMLOCK]);
	CHECK_STR(f.proc.core_pattern, "|/usr/lib/systemd/systemd-coredump %P");
	CHECK_STR(dl_ck_var(&f, "OMP_NUM_THREADS"), "4");
	CHECK(!dl_ck_var(&f, "SECRET"));	/* nobody asked for it */
	CHECK_EQ(f.cpus.mask[0], 0xff);
	ck_gather_proc(&f, root, 99, NULL);
	CHECK_HAS(f.proc.why, "99");
}

TEST(lists_of_cpus)
{
	CHECK_EQ(ck_list_cnt("0-3,8,10-11"), 7);
	CHECK_EQ(ck_list_cnt("5"), 1);
	CHECK_EQ(ck_list_cnt("0-1023"), 1024);
	CHECK_EQ(ck_list_cnt(""), 0);
	CHECK_EQ(ck_list_cnt("3-1"), 0);
	begin("cpus");
	put("/sys/devices/system/cpu/online", "0-63\n");
	ck_gather_cpus(&f, root);
	CHECK_EQ(f.cpus.online, 64);
}

/* --- the machine -------------------------------------------------------------------------------- */

TEST(memory)
{
	begin("memory");
	put("/proc/meminfo", "MemTotal:       1048576 kB\nMemAvailable:    524288 kB\nSwapTotal:       2048 kB\n"
	    "SwapFree:        1024 kB\nCommitLimit:     4096 kB\nCommitted_AS:    1000 kB\n");
	put("/proc/sys/vm/overcommit_memory", "2\n");
	put("/proc/swaps", "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n/dev/zram0 partition 2048 1024 100\n");
	put("/sys/module/zswap/parameters/enabled", "Y\n");
	put("/sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never\n");
	put("/sys/kernel/mm/transparent_hugepage/defrag", "always defer defer+madvise [madvise] never\n");
	put("/proc/vmstat", "pswpin 100\npswpout 5\n");
	ck_gather_mem(&f, root);
	CHECK(f.mem.known && f.mem.zram && f.mem.zswap && f.mem.overcommit_known);
	CHECK_EQ(f.mem.avail, 512 << 20);
	CHECK_EQ(f.mem.overcommit, 2);
	CHECK_STR(f.mem.swap_dev, "/dev/zram0");
	CHECK_STR(f.mem.thp, "always");
	CHECK_STR(f.mem.thp_defrag, "madvise");
	ck_gather_swapins(&f, root, false);
	put("/proc/vmstat", "pswpin 175\npswpout 5\n");
	ck_gather_swapins(&f, root, true);
	CHECK(f.mem.swapins_known);
	CHECK_EQ(f.mem.swapins, 75);
	begin("no-memory");
	ck_gather_mem(&f, root);
	CHECK(!f.mem.known && !f.mem.thp_known && !f.mem.overcommit_known);
}

TEST(log_out)
{
	begin("logind");
	ck_gather_host(&f, root);
	CHECK(!f.host.systemd);
	put("/run/systemd/system/x", " ");
	ck_gather_host(&f, root);
	CHECK(f.host.systemd && !f.host.logind_known);
	/* Comments tell the defaults. */
	put("/etc/systemd/logind.conf", "[Login]\n#KillUserProcesses=no\n#RemoveIPC=yes\n");
	ck_gather_host(&f, root);
	CHECK(f.host.logind_known && f.host.remove_ipc && !f.host.kill_user);
	put("/etc/systemd/logind.conf.d/10-a.conf", "[Login]\nRemoveIPC=yes\nKillUserProcesses=yes\n");
	put("/etc/systemd/logind.conf.d/20-b.conf", "[Login]\nRemoveIPC=no\n#KillUserProcesses=no\n");
	put("/etc/systemd/logind.conf.d/30-c.txt", "[Login]\nRemoveIPC=yes\n");
	ck_gather_host(&f, root);
	CHECK(!f.host.remove_ipc && f.host.kill_user);
	put("/proc/77/comm", "systemd-oomd\n");
	put("/proc/78/comm", "earlyoomx\n");
	ck_gather_host(&f, root);
	CHECK(f.host.oomd && !f.host.earlyoom);
}

TEST(mounts)
{
	static const char text[] =
		"22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
		"30 22 0:40 / /data rw - nfs4 server:/export rw,vers=4.2\n"
		"31 22 0:41 / /data\\040set rw master:1 propagate_from:2 - fuse.gcsfuse bucket rw\n"
		"32 30 0:42 / /data/fast rw - xfs /dev/nvme0n1 rw\n"
		"33 22 0:43 / /data rw - tmpfs tmpfs rw\n";
	struct ck_mount m;

	CHECK(ck_mount_find(text, 0, "/data/a/b", &m));
	CHECK_STR(m.fs, "tmpfs");		/* the last one mounted there */
	CHECK(ck_mount_find(text, 30, NULL, &m));
	CHECK_STR(m.fs, "nfs4");
	CHECK_STR(m.source, "server:/export");
	CHECK_STR(m.options, "rw,vers=4.2");
	CHECK(ck_mount_find(text, 0, "/data/fast", &m));
	CHECK_STR(m.fs, "xfs");
	CHECK(ck_mount_find(text, 0, "/data/faster", &m));
	CHECK_STR(m.fs, "tmpfs");
	CHECK(ck_mount_find(text, 0, "/data set/x", &m));
	CHECK_STR(m.fs, "fuse.gcsfuse");
	CHECK(ck_mount_find(text, 0, "/elsewhere", &m));
	CHECK_STR(m.fs, "ext4");
	CHECK(!ck_mount_find(text, 99, NULL, &m));
	CHECK(!ck_mount_find("1 2 3\n\nx - y\n", 0, "/x", &m));
	CHECK_EQ(ck_fs_class("nfs4"), DL_CK_FS_NETWORK);
	CHECK_EQ(ck_fs_class("fuse.sshfs"), DL_CK_FS_FUSE);
	CHECK_EQ(ck_fs_class("overlay"), DL_CK_FS_OVERLAY);
	CHECK_EQ(ck_fs_class("ext4"), DL_CK_FS_LOCAL);
	CHECK_EQ(ck_fs_class("newfs"), DL_CK_FS_UNKNOWN);
}

/* --- /dev/shm ----------------------------------------------------------------------------------- */

TEST(left_behind)
{
	_cleanup_(dl_map_fini) struct dl_map owners = {};
	_cleanup_close_ int fd = -1;
	char full[PATH_MAX], data[8192] = { 1 };

	begin("shm");
	put("/shm/torch_100_1_0", "%s", "alive");
	put("/shm/torch_200_1_0", "%*s", (int)sizeof(data), "");
	put("/shm/torch_200_1_1", "%s", "");
	put("/shm/other_200", "x");
	snprintf(full, sizeof(full), "%s/shm/torch_200_1_1", root);
	CHECK_OK(truncate(full, 1 << 20));	/* what a failed allocation leaves */
	snprintf(full, sizeof(full), "%s/shm", root);
	fd = open(full, O_RDONLY | O_DIRECTORY);
	CHECK(fd >= 0);
	CHECK_OK(dl_map_set(&owners, 100, 1));
	ck_gather_torch(&f.shm, fd, &owners);
	CHECK(f.shm.owners_known);
	CHECK_EQ(f.shm.torch_cnt, 3);
	CHECK_EQ(f.shm.dead_cnt, 2);
	CHECK_EQ(f.shm.failed_cnt, 1);
	CHECK(f.shm.dead_bytes >= sizeof(data) && f.shm.dead_bytes < 1 << 20);
	/* Nobody can be seen: nobody is dead. */
	ck_gather_torch(&f.shm, fd, NULL);
	CHECK(!f.shm.owners_known);
	CHECK_EQ(f.shm.torch_cnt, 3);
	CHECK_EQ(f.shm.dead_cnt, 0);
}

TEST(a_real_shm)
{
	_cleanup_close_ int fd = open("/dev/shm", O_PATH | O_DIRECTORY);

	begin("real");
	if (fd < 0)
		SKIP("there is no /dev/shm");
	CHECK_OK(ck_gather_shm(&f, fd));
	CHECK(f.shm.known && f.shm.shared_with_host);
	CHECK_OK(ck_gather_shm(&f, -ENOENT));
	CHECK(f.shm.missing && f.shm.why[0]);
}

/* --- data --------------------------------------------------------------------------------------- */

TEST(reading_data)
{
	begin("data");
	put("/set/a/1.bin", "%*s", 300000, "");
	put("/set/a/2.bin", "%*s", 100000, "");
	put("/set/empty", "%s", "");
	put("/set/.hidden", "%*s", 100000, "");
	snprintf(f.data.path, sizeof(f.data.path), "%s/set", root);
	f.data.asked = true;
	ck_gather_data(&f, "", 0);
	CHECK_MSG(f.data.fs[0], "%s", f.data.why);
	CHECK_EQ(f.data.read_bytes, 400000);
	CHECK_EQ(f.data.file_cnt, 2);
	CHECK(f.data.read_ns);
	CHECK(f.data.direct || f.data.cached >= 0);
}

TEST(no_data)
{
	begin("no-data");
	snprintf(f.data.path, sizeof(f.data.path), "%s/nowhere", root);
	f.data.asked = true;
	ck_gather_data(&f, "", 0);
	CHECK_HAS(f.data.why, "No such file");
	CHECK_EQ(f.data.read_bytes, 0);
	snprintf(f.data.path, sizeof(f.data.path), "%s", root);
	ck_gather_data(&f, "", 0);
	CHECK_HAS(f.data.why, "no file in it");
	snprintf(f.data.path, sizeof(f.data.path), "/dev/null");
	ck_gather_data(&f, "", 0);
	CHECK_EQ(f.data.read_bytes, 0);
}

/* --- what may hang ------------------------------------------------------------------------------ */

static int answers(void *arg, void *buf)
{
	*(int *)buf = *(int *)arg + 1;
	return 0;
}

static int hangs(void *arg, void *buf)
{
	(void)arg, (void)buf;
	while (pause() < 0)
		;
	return 0;
}

static int dies(void *arg, void *buf)
{
	(void)buf;
	raise(arg ? SIGKILL : SIGTERM);
	return 0;
}

TEST(a_process_for_what_may_hang)
{
	int one = 1, got = 0;

	CHECK_OK(ck_in_child(answers, &one, &got, sizeof(got), 10000));
	CHECK_EQ(got, 2);
	CHECK_EQ(ck_in_child(hangs, NULL, &got, sizeof(got), 50), -ETIMEDOUT);
	CHECK_EQ(ck_in_child(dies, &one, &got, sizeof(got), 10000), -EIO);
	/* None of them is left. */
	CHECK(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD);
}
