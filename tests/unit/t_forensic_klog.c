/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Kernel logs of 4.x to 6.x, as the kernel, dmesg, syslog and journalctl write them. */
#include "unit/test.h"

#include <time.h>

#include "base/cleanup.h"
#include "forensic/klog.h"

#define NOW INT64_C(1764493377000000000)	/* 2025-11-30 09:02:57 UTC */
#define KB UINT64_C(1024)

static void fini(struct dl_klog *k)
{
	dl_klog_fini(k);
}

#define _cleanup_klog_ _cleanup_(fini)

static void feed(struct dl_klog *k, const char *text)
{
	while (*text) {
		const size_t len = strcspn(text, "\n");

		CHECK_OK(dl_klog_line(k, text, len, NOW));
		text += len + (text[len] == '\n');
	}
	dl_klog_end(k);
}

static const struct dl_klog_event *only(const struct dl_klog *k)
{
	CHECK_EQ(k->events.cnt, 1);
	return k->events.v;
}

/* --- what stands before a message ----------------------------------------------------------------- */

#define FORK "cgroup: fork rejected by pids controller in /job"
#define WALL INT64_C(1764493377)

TEST(prefixes)
{
	static const struct { const char *line; uint64_t boot_ns; int64_t wall_s; } all[] = {
		{ "6,339,5140900,-;" FORK, 5140900000, 0 },
		{ "4,340,5140900,-,caller=T812;" FORK, 5140900000, 0 },
		{ "[    5.140900] " FORK, 5140900000, 0 },
		{ "<6>[    5.140900] " FORK, 5140900000, 0 },
		{ "[    5.140900][  T812] " FORK, 5140900000, 0 },
		{ "kern  :info  : [    5.140900] " FORK, 5140900000, 0 },
		{ "[Sun Nov 30 09:02:57 2025] " FORK, 0, WALL },
		{ "2025-11-30T09:02:57,123456+00:00 " FORK, 0, WALL },
		{ "Nov 30 09:02:57 gpu12 kernel: " FORK, 0, WALL },
		{ "Nov 30 09:02:57 gpu12 kernel: [    5.140900] " FORK, 5140900000, WALL },
		{ "Nov 30 09:02:57.500000 gpu12 kernel: " FORK, 0, WALL },
		{ "2025-11-30T10:02:57+0100 gpu12 kernel: " FORK, 0, WALL },
		{ "2025-11-30T08:02:57.000001-01:00 gpu12 kernel: " FORK, 0, WALL },
		{ "2025-11-30T09:02:57Z gpu12 kernel: " FORK, 0, WALL },
		{ "1764493377.250000 gpu12 kernel: " FORK, 0, WALL },
		{ "[    5.140900] gpu12 kernel: " FORK, 5140900000, 0 },
		{ "{ \"__REALTIME_TIMESTAMP\" : \"1764493377000000\", \"SYSLOG_IDENTIFIER\" : \"kernel\", "
		  "\"_SOURCE_MONOTONIC_TIMESTAMP\" : \"5140900\", \"MESSAGE\" : \"" FORK "\" }", 5140900000, WALL },
		{ FORK, 0, 0 },
	};

	CHECK_OK(setenv("TZ", "UTC", 1));
	tzset();
	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		_cleanup_klog_ struct dl_klog k = {};

		feed(&k, all[i].line);
		if (k.events.cnt != 1)
			test_fail(__FILE__, __LINE__, "%zu events of %s", k.events.cnt, all[i].line);
		if (k.events.v->boot_ns != all[i].boot_ns || k.events.v->wall_ns / 1000000000 != all[i].wall_s)
			test_fail(__FILE__, __LINE__, "%" PRIu64 " %" PRId64 " of %s", k.events.v->boot_ns, k.events.v->wall_ns, all[i].line);
		CHECK_STR(k.events.v->text, FORK);
		CHECK_EQ(k.events.v->kind, DL_KLOG_FORK_REJECTED);
	}
}

/* A date without a year is of the last one in which it has been. */
TEST(no_year)
{
	_cleanup_klog_ struct dl_klog k = {};

	CHECK_OK(setenv("TZ", "UTC", 1));
	tzset();
	feed(&k, "Dec 24 18:00:00 h kernel: " FORK "\nNov 30 08:00:00 h kernel: " FORK);
	CHECK_EQ(k.events.cnt, 2);
	CHECK_EQ(k.events.v[0].wall_ns / 1000000000, 1735063200);	/* 2024 */
	CHECK_EQ(k.events.v[1].wall_ns / 1000000000, 1764489600);
}

/* --- out of memory ------------------------------------------------------------------------------- */

/* 6.x, version 2 of control groups: one statistic a line, and a table with kinds of memory. */
static const char oom_v2[] =
	"[ 9831.000001] python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0\n"
	"[ 9831.000002] CPU: 1 PID: 4712 Comm: python3 Not tainted 6.12.0 #1\n"
	"[ 9831.000003] Call Trace:\n"
	"[ 9831.000004]  <TASK>\n"
	"[ 9831.000005]  dump_stack_lvl+0x5d/0x80\n"
	"[ 9831.000010] memory: usage 1048576kB, limit 1048576kB, failcnt 812\n"
	"[ 9831.000011] swap: usage 1024kB, limit 2048kB, failcnt 3\n"
	"[ 9831.000012] Memory cgroup stats for /job.slice/run-1.scope:\n"
	"[ 9831.000013] anon 943718400\n"
	"[ 9831.000014] file 104857600\n"
	"[ 9831.000015] kernel 3145728\n"
	"[ 9831.000016] pagetables 2097152\n"
	"[ 9831.000017] shmem 83886080\n"
	"[ 9831.000020] Tasks state (memory values in pages):\n"
	"[ 9831.000021] [  pid  ]   uid  tgid total_vm      rss rss_anon rss_file rss_shmem pgtables_bytes swapents oom_score_adj name\n"
	"[ 9831.000022] [   4711]  1000  4711   523456    26214    20480     5734         0   409600        0             0 python3\n"
	"[ 9831.000023] [   4712]  1000  4712   723456   225280   204800        0     20480  2162688      256           300 pt_data_worker\n"
	"[ 9831.000030] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/job.slice/run-1.scope,"
	"task_memcg=/job.slice/run-1.scope/a,task=pt_data_worker,pid=4712,uid=1000\n"
	"[ 9831.000031] Memory cgroup out of memory: Killed process 4712 (pt_data_worker) total-vm:2893824kB, anon-rss:819200kB, "
	"file-rss:0kB, shmem-rss:81920kB, UID:1000 pgtables:2112kB oom_score_adj:300\n";

TEST(oom_of_a_group_version_2)
{
	_cleanup_klog_ struct dl_klog k = {};
	const struct dl_klog_event *ev;
	const struct dl_klog_oom *o;

	feed(&k, oom_v2);
	ev = only(&k);
	o = &ev->oom;
	CHECK_EQ(ev->kind, DL_KLOG_OOM);
	CHECK_EQ(ev->pid, 4712);
	CHECK_EQ(ev->boot_ns, 9831000031000);
	CHECK_STR(ev->comm, "pt_data_worker");
	CHECK_STR(o->trigger, "python3");
	CHECK(o->memcg);
	CHECK_STR(o->limit_cgroup, "/job.slice/run-1.scope");
	CHECK_STR(o->cgroup, "/job.slice/run-1.scope/a");
	CHECK_EQ(o->usage, 1048576 * KB);
	CHECK_EQ(o->limit, 1048576 * KB);
	CHECK_EQ(o->failcnt, 812);
	CHECK_EQ(o->group_swap, 1024 * KB);
	CHECK_EQ(o->swap_limit, 2048 * KB);
	CHECK_EQ(o->group_anon, 943718400);
	CHECK_EQ(o->group_shmem, 83886080);
	CHECK_EQ(o->group_file, 104857600 - 83886080);	/* shared memory is not counted twice */
	CHECK_EQ(o->group_pgtables, 2097152);
	CHECK_EQ(o->anon, 819200 * KB);
	CHECK_EQ(o->shmem, 81920 * KB);
	CHECK_EQ(o->pgtables, 2112 * KB);
	CHECK_EQ(o->uid, 1000);
	CHECK_EQ(o->host_total, DL_KLOG_UNKNOWN);
	CHECK_EQ(o->tasks.cnt, 2);
	CHECK_EQ(o->tasks.v[1].pid, 4712);
	CHECK_STR(o->tasks.v[1].comm, "pt_data_worker");
	CHECK_EQ(o->tasks.v[1].rss, 225280 * 4 * KB);
	CHECK_EQ(o->tasks.v[1].anon, 204800 * 4 * KB);
	CHECK_EQ(o->tasks.v[1].shmem, 20480 * 4 * KB);
	CHECK_EQ(o->tasks.v[1].pgtables, 2162688);
	CHECK_EQ(o->tasks.v[1].swap, 256 * 4 * KB);
	CHECK_EQ(o->tasks.v[1].oom_score_adj, 300);
}

/* 4.19: all statistics in one line, "Kill process ... or sacrifice child", a table with page table pages. */
TEST(oom_of_a_group_version_1_old)
{
	_cleanup_klog_ struct dl_klog k = {};
	const struct dl_klog_oom *o;

	feed(&k,
	     "[  100.1] python invoked oom-killer: gfp_mask=0x14000c0(GFP_KERNEL), nodemask=(null), order=0, oom_score_adj=0\n"
	     "[  100.2] Task in /docker/abc killed as a result of limit of /docker/abc\n"
	     "[  100.3] memory: usage 921600kB, limit 921600kB, failcnt 1234\n"
	     "[  100.4] memory+swap: usage 921600kB, limit 1843200kB, failcnt 0\n"
	     "[  100.5] kmem: usage 5000kB, limit 9007199254740988kB, failcnt 0\n"
	     "[  100.6] Memory cgroup stats for /docker/abc: cache:8192KB rss:903068KB rss_huge:0KB shmem:4096KB mapped_file:0KB "
	     "dirty:0KB writeback:0KB swap:16KB inactive_anon:0KB active_anon:903068KB\n"
	     "[  100.7] [ pid ]   uid  tgid total_vm      rss nr_ptes nr_pmds nr_puds swapents oom_score_adj name\n"
	     "[  100.8] [31798]     0 31798   500000   230116     600       4       0        0             0 python\n"
	     "[  100.9] Memory cgroup out of memory: Kill process 31798 (python) score 980 or sacrifice child\n"
	     "[  101.0] Killed process 31798 (python) total-vm:2000000kB, anon-rss:903068kB, file-rss:17396kB, shmem-rss:0kB\n");
	o = &only(&k)->oom;
	CHECK_EQ(k.events.v->pid, 31798);
	CHECK(o->memcg);
	CHECK_STR(o->limit_cgroup, "/docker/abc");
	CHECK_EQ(o->limit, 921600 * KB);
	CHECK_EQ(o->failcnt, 1234);
	CHECK_EQ(o->swap_limit, 1843200 * KB);
	CHECK_EQ(o->group_anon, 903068 * KB);
	CHECK_EQ(o->group_shmem, 4096 * KB);
	CHECK_EQ(o->group_file, 4096 * KB);
	CHECK_EQ(o->group_swap, 16 * KB);
	CHECK_EQ(o->anon, 903068 * KB);
	CHECK_EQ(o->pgtables, DL_KLOG_UNKNOWN);
	CHECK_EQ(o->tasks.cnt, 1);
	CHECK_EQ(o->tasks.v->pgtables, 600 * 4 * KB);
	CHECK_EQ(o->tasks.v->anon, DL_KLOG_UNKNOWN);
}

/* 5.2 and later under version 1: one statistic a line, each twice. And 4.x with a group below that of the limit. */
TEST(oom_of_a_group_with_groups_below)
{
	_cleanup_klog_ struct dl_klog k = {}, k4 = {};
	const struct dl_klog_oom *o;

	feed(&k,
	     "[ 1.0] python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0\n"
	     "[ 1.1] memory: usage 524288kB, limit 524288kB, failcnt 0\n"
	     "[ 1.2] Memory cgroup stats for /job:\n[ 1.3] cache 0\n[ 1.3] rss 0\n[ 1.3] shmem 0\n[ 1.3] swap 0\n"
	     "[ 1.3] hierarchical_memory_limit 536870912\n[ 1.4] total_cache 73728\n[ 1.4] total_rss 531660800\n[ 1.4] total_shmem 53728\n"
	     "[ 1.5] Memory cgroup out of memory: Killed process 5 (a) total-vm:1kB, anon-rss:2kB, file-rss:3kB, shmem-rss:4kB\n");
	o = &only(&k)->oom;
	CHECK_EQ(o->group_anon, 531660800);
	CHECK_EQ(o->group_shmem, 53728);
	CHECK_EQ(o->group_file, 20000);
	CHECK_STR(o->limit_cgroup, "/job");
	feed(&k4,
	     "[ 1.0] python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0\n"
	     "[ 1.1] Task in /job/a killed as a result of limit of /job\n"
	     "[ 1.2] Memory cgroup stats for /job: cache:1KB rss:2KB\n[ 1.3] Memory cgroup stats for /job/a: cache:10KB rss:20KB\n"
	     "[ 1.5] Killed process 5 (a) total-vm:1kB, anon-rss:2kB, file-rss:3kB, shmem-rss:4kB\n");
	o = &only(&k4)->oom;
	CHECK_EQ(o->group_anon, 22 * KB);
	CHECK_EQ(o->group_file, 11 * KB);
	CHECK_STR(o->limit_cgroup, "/job");
	CHECK_STR(o->cgroup, "/job/a");
}

TEST(oom_of_the_machine)
{
	_cleanup_klog_ struct dl_klog k = {};
	const struct dl_klog_oom *o;

	feed(&k,
	     "Nov 30 09:02:57 h kernel: chrome invoked oom-killer: gfp_mask=0x140cca(GFP_HIGHUSER_MOVABLE), order=0, oom_score_adj=0\n"
	     "Nov 30 09:02:57 h kernel: Mem-Info:\n"
	     "Nov 30 09:02:57 h kernel: active_anon:1000 inactive_anon:3900000 isolated_anon:0\n"
	     "Nov 30 09:02:57 h kernel:  mapped:100 shmem:262144 pagetables:5000\n"
	     "Nov 30 09:02:57 h kernel:  free:33000 free_pcp:0 free_cma:0\n"
	     "Nov 30 09:02:57 h kernel: Free swap  = 4kB\n"
	     "Nov 30 09:02:57 h kernel: Total swap = 2097148kB\n"
	     "Nov 30 09:02:57 h kernel: 4194304 pages RAM\n"
	     "Nov 30 09:02:57 h kernel: oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,"
	     "task_memcg=/user.slice,task=python3,pid=77,uid=1000\n"
	     "Nov 30 09:02:57 h kernel: Out of memory: Killed process 77 (python3) total-vm:9kB, anon-rss:15000000kB, file-rss:4kB, "
	     "shmem-rss:1048576kB, UID:1000 pgtables:32000kB oom_score_adj:0\n");
	o = &only(&k)->oom;
	CHECK(!o->memcg);
	CHECK(!o->limit_cgroup);
	CHECK_STR(o->cgroup, "/user.slice");
	CHECK_STR(o->trigger, "chrome");
	CHECK_EQ(o->host_total, UINT64_C(4194304) * 4096);
	CHECK_EQ(o->host_free, UINT64_C(33000) * 4096);
	CHECK_EQ(o->host_shmem, UINT64_C(262144) * 4096);
	CHECK_EQ(o->host_swap_total, 2097148 * KB);
	CHECK_EQ(o->host_swap_free, 4 * KB);
	CHECK_EQ(o->shmem, 1048576 * KB);
}

/* The last line alone, and a report whose last line is missing. */
TEST(oom_in_part)
{
	_cleanup_klog_ struct dl_klog k = {};

	feed(&k, "Memory cgroup out of memory: Killed process 5 (a (b) c) total-vm:1kB, anon-rss:2kB, file-rss:3kB, shmem-rss:4kB\n"
		 "python3 invoked oom-killer: gfp_mask=0xcc0, order=0, oom_score_adj=0\n"
		 "memory: usage 1kB, limit 1kB, failcnt 1\n");
	CHECK(only(&k)->oom.memcg);
	CHECK_EQ(k.events.v->pid, 5);
	CHECK_STR(k.events.v->comm, "a (b) c");
	CHECK_EQ(k.events.v->oom.anon, 2 * KB);
	CHECK_EQ(k.events.v->oom.limit, DL_KLOG_UNKNOWN);
}

/* Two reports: nothing of the first is in the second. */
TEST(oom_twice)
{
	_cleanup_klog_ struct dl_klog k = {};

	feed(&k, oom_v2);
	feed(&k, "[ 9999.0] b invoked oom-killer: gfp_mask=0xcc0, order=0, oom_score_adj=0\n"
		 "[ 9999.1] Out of memory: Killed process 6 (b) total-vm:1kB, anon-rss:2kB, file-rss:3kB, shmem-rss:4kB\n");
	CHECK_EQ(k.events.cnt, 2);
	CHECK(!k.events.v[1].oom.memcg && !k.events.v[1].oom.limit_cgroup);
	CHECK_EQ(k.events.v[1].oom.limit, DL_KLOG_UNKNOWN);
	CHECK_EQ(k.events.v[1].oom.tasks.cnt, 0);
	CHECK_EQ(k.events.v[0].oom.tasks.cnt, 2);
}

/* --- other lines ----------------------------------------------------------------------------------- */

TEST(segfaults)
{
	static const struct { const char *line; int sig; uint64_t addr, lib_off; bool wrote; const char *lib; } all[] = {
		{ "python3[812]: segfault at 10 ip 00007f0000001234 sp 00007fff0 error 4 in libfoo.so[7f0000000000+3000]",
		  SIGSEGV, 0x10, 0x1234, false, "libfoo.so" },
		{ "python3[812]: segfault at 7f1 ip 00007f0000001234 sp 00007fff0 error 6 in libfoo.so.1[1000,7f0000000000+3000] likely "
		  "on CPU 3 (core 3, socket 0)", SIGSEGV, 0x7f1, 0x1234, true, "libfoo.so.1" },
		{ "python3[812]: segfault at 0 ip 0000000000000000 sp 00007fff0 error 14", SIGSEGV, 0, 0, false, "" },
		{ "traps: python3[812] trap divide error ip:7f0000001234 sp:7fff0 error:0 in libfoo.so[7f0000000000+3000]",
		  SIGFPE, 0, 0x1234, false, "libfoo.so" },
		{ "traps: python3[812] trap invalid opcode ip:7f0000001234 sp:7fff0 error:0 in libfoo.so[7f0000000000+3000]",
		  SIGILL, 0, 0x1234, false, "libfoo.so" },
		{ "traps: python3[812] general protection fault ip:7f0000001234 sp:7fff0 error:0 in libfoo.so[7f0000000000+3000]",
		  SIGSEGV, 0, 0x1234, false, "libfoo.so" },
		{ "python3[812]: unhandled level 2 translation fault (11) at 0x10, esr 0x92000006, in libfoo.so[ffff0000+3000]",
		  SIGSEGV, 0x10, 0, false, "libfoo.so" },
		{ "MCE: Killing python3:812 due to hardware memory corruption fault at 7f10", SIGBUS, 0x7f10, 0, false, "" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		_cleanup_klog_ struct dl_klog k = {};
		const struct dl_klog_event *ev;

		feed(&k, all[i].line);
		ev = only(&k);
		CHECK_EQ(ev->pid, 812);
		CHECK_STR(ev->comm, "python3");
		CHECK_EQ(ev->sig, all[i].sig);
		CHECK_EQ(ev->addr, all[i].addr);
		CHECK_EQ(ev->lib_off, all[i].lib_off);
		CHECK_EQ(ev->wrote, all[i].wrote);
		CHECK_STR(ev->lib, all[i].lib);
	}
}

TEST(kinds)
{
	static const struct { const char *line; int kind; uint32_t pid; } all[] = {
		{ "Memory failure: 0x1f2e3: Killing python3:812 due to hardware memory corruption", DL_KLOG_MEMORY_FAILURE, 812 },
		{ "mce: [Hardware Error]: Machine check events logged", DL_KLOG_MEMORY_FAILURE, 0 },
		{ "PID 812 killed due to inadequate hugepage pool", DL_KLOG_HUGEPAGES, 812 },
		{ "INFO: task python3:812 blocked for more than 120 seconds.", DL_KLOG_HUNG, 812 },
		{ "watchdog: BUG: soft lockup - CPU#1 stuck for 22s! [python3:812]", DL_KLOG_HUNG, 812 },
		{ "python3: page allocation failure: order:4, mode:0x40dc0", DL_KLOG_ALLOC_FAILED, 0 },
		{ "blk_update_request: I/O error, dev sda, sector 2048 op 0x0:(READ) flags 0x80700", DL_KLOG_IO_ERROR, 0 },
		{ "I/O error, dev nvme0n1, sector 2048 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2", DL_KLOG_IO_ERROR, 0 },
		{ "EXT4-fs error (device sda1): ext4_lookup:1785: inode #2: comm python3: deleted inode", DL_KLOG_IO_ERROR, 0 },
		{ "XFS (sda1): Corruption detected. Unmount and run xfs_repair", DL_KLOG_IO_ERROR, 0 },
		{ "nfs: server data1 not responding, still trying", DL_KLOG_FS_GONE, 0 },
		{ "NVRM: Xid (PCI:0000:01:00): 79, pid=812, name=python3, GPU has fallen off the bus.", DL_KLOG_GPU, 812 },
		{ "Nov 30 09:00:00 h systemd-oomd[700]: Killed /user.slice/a.scope due to memory pressure", DL_KLOG_DAEMON_KILL, 0 },
		{ "Nov 30 09:00:00 h earlyoom[9]: sending SIGTERM to process 812 uid 1000 \"python3\": badness 900", DL_KLOG_DAEMON_KILL, 812 },
		{ "Nov 30 09:00:00 h systemd-coredump[9]: Process 812 (python3) of user 1000 dumped core.", DL_KLOG_DUMPED, 812 },
		{ "Nov 30 09:00:00 h systemd-logind[5]: Removed session 12.", DL_KLOG_LOGOUT, 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		_cleanup_klog_ struct dl_klog k = {};

		feed(&k, all[i].line);
		if (k.events.cnt != 1 || (int)k.events.v->kind != all[i].kind || k.events.v->pid != all[i].pid)
			test_fail(__FILE__, __LINE__, "%zu events, %s, process %u of: %s", k.events.cnt,
				  k.events.cnt ? dl_klog_kind_id(k.events.v->kind) : "", k.events.cnt ? k.events.v->pid : 0, all[i].line);
	}
}

TEST(lines_of_no_interest)
{
	static const char *const all[] = {
		"EXT4-fs (sda1): mounted filesystem with ordered data mode", "XFS (sda1): Ending clean mount", "",
		"python3: potentially", "usb 1-1: new high-speed USB device", "[", "[12", "6,339", "{", "{\"MESSAGE\":", "<", "<6", ": segfault at ",
		"Nov 30 09:00:00 h sshd[5]: Out of memory?", "Nov", "2025-11-30T", "INFO: task python3:812", "[   ] ", "9,9,9,-;",
		"oom_reaper: reaped process 812 (python3), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB",
	};

	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		_cleanup_klog_ struct dl_klog k = {};

		feed(&k, all[i]);
		if (k.events.cnt)
			test_fail(__FILE__, __LINE__, "%s of: %s", dl_klog_kind_id(k.events.v->kind), all[i]);
	}
}

/* Every beginning of a report is safe, and none but the whole one is an event. */
TEST(cut_anywhere)
{
	for (size_t len = 0; len < sizeof(oom_v2) - 1; len += 7) {
		_cleanup_klog_ struct dl_klog k = {};
		_cleanup_free_ char *part = strndup(oom_v2, len);

		CHECK(part);
		feed(&k, part);
		CHECK(k.events.cnt <= 1);
		CHECK(!k.events.cnt || k.events.v->pid);
	}
}

TEST(the_last_events_are_kept)
{
	_cleanup_klog_ struct dl_klog k = {};
	char line[128];

	for (int i = 1; i <= 10000; i++) {
		snprintf(line, sizeof(line), "PID %d killed due to inadequate hugepage pool", i);
		feed(&k, line);
	}
	CHECK(k.events.cnt <= 4096);
	CHECK_EQ(k.events.cnt + k.dropped, 10000);
	CHECK_EQ(k.events.v[k.events.cnt - 1].pid, 10000);
}

TEST(a_saved_file_and_the_kernel)
{
	const char *path = test_path("dmesg");
	_cleanup_klog_ struct dl_klog k = {}, live = {}, none = {};
	struct dl_diag d;
	FILE *f = fopen(path, "w");

	CHECK(f);
	fputs("6,0,0,-;Linux version 6.12\n6,1,100,-;early\n", f);
	for (int i = 0; i < 3000; i++)
		fputs("3,2,200000,-;", f), fprintf(f, "%*s\n", i * 3, "x");	/* also lines beyond what is read */
	fputs("4,339,5140900,-;" FORK "\n SUBSYSTEM=x\n", f);
	CHECK_OK(fclose(f));
	CHECK_OK(dl_klog_read_file(&k, path, NULL));
	CHECK_EQ(only(&k)->kind, DL_KLOG_FORK_REJECTED);
	CHECK(!k.live && !k.complete);
	CHECK_OK(dl_klog_read_kernel(&live, path, NULL));
	CHECK_EQ(only(&live)->boot_ns, 5140900000);
	CHECK(live.live && live.complete);
	CHECK_EQ(dl_klog_read_file(&none, test_path("nowhere"), &d), -ENOENT);
	CHECK(strstr(d.msg, "nowhere"));
}

TEST(the_running_kernels_own)
{
	_cleanup_klog_ struct dl_klog k = {};
	struct dl_diag d;
	const int err = dl_klog_read_kernel(&k, "/dev/kmsg", &d);

	if (err)
		SKIP("%s", d.msg);
	CHECK(k.live && k.lines);
}

TEST(mutated_reports)
{
	uint64_t seed = 1;

	for (int i = 0; i < 3000; i++) {
		_cleanup_klog_ struct dl_klog k = {};
		_cleanup_free_ char *text = strdup(oom_v2);

		CHECK(text);
		for (int j = 0; j < 1 + i % 13; j++) {
			seed = seed * 6364136223846793005 + 1442695040888963407;
			text[(seed >> 33) % (sizeof(oom_v2) - 1)] = (char)(seed >> 20 | 1);
		}
		feed(&k, text);
		vec_for_each(&k.events, ev)
			CHECK(ev->text && strlen(ev->comm) < sizeof(ev->comm) && ev->kind < DL_KLOG_KIND_CNT);
	}
}
