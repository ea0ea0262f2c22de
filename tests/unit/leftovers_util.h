/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Planted machines for the tests of leftovers: a folder with a /proc, /sys/fs/cgroup, /dev/shm and kernel log of its own. */
#ifndef DLBPF_TESTS_LEFTOVERS_UTIL_H
#define DLBPF_TESTS_LEFTOVERS_UTIL_H

#include "unit/test.h"

#include <fcntl.h>
#include <sys/syscall.h>

#include "base/cleanup.h"
#include "forensic/leftovers.h"

#define MIB UINT64_C(1048576)

static inline void free_pm(struct dl_postmortem **pm)
{
	dl_postmortem_free(*pm);
}

#define _cleanup_pm_ _cleanup_(free_pm)

/* --- planting ------------------------------------------------------------------------------------ */

static char root[512];

static inline void begin(void)
{
	static int nr;
	char name[32];

	snprintf(name, sizeof(name), "root%d", nr++);
	snprintf(root, sizeof(root), "%s", test_path(name));
	CHECK_OK(mkdir(root, 0700));
}

/* The path below the planted root, its folders made. */
static inline const char *below(const char *path)
{
	static char full[1024];

	snprintf(full, sizeof(full), "%s/%s", root, path);
	for (char *p = full + strlen(root) + 1; (p = strchr(p, '/')); p++) {
		*p = '\0';
		CHECK(!mkdir(full, 0700) || errno == EEXIST);
		*p = '/';
	}
	return full;
}

__attribute__((format(printf, 2, 3)))
static inline void put(const char *path, const char *fmt, ...)
{
	FILE *f = fopen(below(path), "w");
	va_list ap;

	CHECK(f);
	va_start(ap, fmt);
	vfprintf(f, fmt, ap);
	va_end(ap);
	CHECK_OK(fclose(f));
}

#define IDLE SYS_ppoll
#define WORKER_SIGNALS "00000000000044c0"

static unsigned int deadline;	/* of futexes that are planted next: address of a time, 0 none */

static inline void put_stat(const char *dir, uint32_t id, const char *comm, char state, uint32_t ppid, int status)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/stat", dir);
	put(path, "%u (%s) %c %u 1 1 0 -1 4194304 10 0 0 0 5 5 0 0 20 0 1 0 1000 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 %d\n",
	    id, comm, state, ppid, status);
	snprintf(path, sizeof(path), "%s/status", dir);
	put(path, "Name:\t%s\nTgid:\t%u\nPid:\t%u\nPPid:\t%u\nNStgid:\t%u\nNSpid:\t%u\nRssAnon:\t  102400 kB\nRssShmem:\t    1024 kB\n"
	    "SigCgt:\t%s\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t3\n", comm, id, id, ppid, id, id,
	    !strncmp(comm, "pt_data_worker", 14) ? WORKER_SIGNALS : "0000000000010002");
}

static inline void put_thread(uint32_t pid, uint32_t tid, const char *comm, char state, long nr, uint64_t arg0, uint64_t arg1)
{
	char dir[64], path[128];

	snprintf(dir, sizeof(dir), "proc/%u/task/%u", pid, tid);
	put_stat(dir, tid, comm, state, 1, 0);
	snprintf(path, sizeof(path), "%s/syscall", dir);
	put(path, "%ld 0x%" PRIx64 " 0x%" PRIx64 " 0x0 0x%x 0x0 0x0 0x7ffd 0x7f00\n", nr, arg0, arg1, deadline);
	snprintf(path, sizeof(path), "%s/wchan", dir);
	put(path, "%s", state == 'D' ? "folio_wait_bit_common" : "do_wait");
}

/* A process whose only thread is in a system call. */
static inline void put_proc(uint32_t pid, uint32_t ppid, const char *comm, char state, long nr, uint64_t arg0, uint64_t arg1)
{
	char path[64];

	snprintf(path, sizeof(path), "proc/%u", pid);
	put_stat(path, pid, comm, state, ppid, 0);
	put_thread(pid, pid, comm, state, nr, arg0, arg1);
	snprintf(path, sizeof(path), "proc/%u/limits", pid);
	put(path, "Limit                     Soft Limit           Hard Limit           Units\n"
	    "Max open files            64                   1024                 files\n");
	snprintf(path, sizeof(path), "proc/%u/maps", pid);
	put(path, "7f0000000000-7f0000001000 rw-p 00000000 00:00 0\n");
	snprintf(path, sizeof(path), "proc/%u/cmdline", pid);
	put(path, "%s", "train.py");
}

static inline void put_shell(void)
{
	put_stat("proc/1", 1, "systemd", 'S', 0, 0);
}

static inline struct dl_postmortem *ask(struct dl_leftover_opts o)
{
	struct dl_postmortem *pm = NULL;
	struct dl_diag d = {};

	o.root = root;
	o.settle_ns = 1000000;
	if (o.log)
		o.log_len = strlen(o.log);
	CHECK_MSG(!dl_postmortem_leftovers(&pm, &o, &d), "%s", d.msg);
	CHECK(pm->text && *pm->text);
	return pm;
}

#define ASK(...) ask((struct dl_leftover_opts){ __VA_ARGS__ })

static inline const struct dl_pm_alternative *other(const struct dl_postmortem *pm, enum dl_death death)
{
	vec_for_each(&pm->alternatives, a)
		if (a->death == death)
			return a;
	return NULL;
}

static inline bool noted(const struct dl_postmortem *pm, const char *text)
{
	vec_for_each(&pm->notes, n)
		if (strstr(*n, text))
			return true;
	return false;
}

static inline bool told(const struct dl_postmortem *pm, const char *text, enum dl_pm_source source)
{
	vec_for_each(&pm->facts, f)
		if (f->source == source && strstr(f->text, text))
			return true;
	return false;
}

static inline uint64_t number(const struct dl_postmortem *pm, const char *id)
{
	uint64_t value = UINT64_MAX;

	CHECK_MSG(dl_pm_get(pm, id, &value), "no number %s", id);
	return value;
}

#define CHECK_DEATH(pm, ID, how) do { \
	if ((pm)->death != DL_DEATH_##ID || (pm)->confidence != DL_PM_##how) \
		test_fail(__FILE__, __LINE__, "%s %s: %s", dl_death_id((pm)->death), dl_pm_confidence_id((pm)->confidence), (pm)->text); \
} while (0)

/* --- texts ----------------------------------------------------------------------------------------- */

#define BOOT "6,0,0,-;Linux version 6.12.0\n"
#define KILLED "RuntimeError: DataLoader worker (pid 4712) is killed by signal: Killed. \n"
#define BUS "RuntimeError: DataLoader worker (pid 4712) is killed by signal: Bus error. It is possible that dataloader's workers " \
	"are out of shared memory. Please try to raise your shared memory limit.\n"

static const char oom[] =
	"4,1,9831000001,-;python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0\n"
	"4,2,9831000010,-;memory: usage 1048576kB, limit 1048576kB, failcnt 812\n"
	"4,3,9831000012,-;Memory cgroup stats for /job:\n"
	"4,4,9831000013,-;anon 943718400\n"
	"4,5,9831000014,-;file 104857600\n"
	"4,6,9831000017,-;shmem 83886080\n"
	"4,7,9831000021,-;[  pid  ]   uid  tgid total_vm      rss rss_anon rss_file rss_shmem pgtables_bytes swapents oom_score_adj name\n"
	"4,8,9831000022,-;[   4711]  1000  4711   523456    26214    20480     5734         0   409600        0             0 python3\n"
	"4,9,9831000023,-;[   4712]  1000  4712   723456   225280   204800        0     20480  2162688      256           300 pt_data_worker\n"
	"4,10,9831000024,-;[    600]     0   600     3456      280      200       80         0    20480        0             0 sshd\n"
	"6,11,9831000030,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/job,task_memcg=/job,"
	"task=pt_data_worker,pid=4712,uid=1000\n"
	"3,12,9831000031,-;Memory cgroup out of memory: Killed process 4712 (pt_data_worker) total-vm:2893824kB, anon-rss:819200kB, "
	"file-rss:0kB, shmem-rss:81920kB, UID:1000 pgtables:2112kB oom_score_adj:300\n";

#define OOM_OF(pid, comm) "3,12,9831000031,-;Out of memory: Killed process " pid " (" comm ") total-vm:2893824kB, " \
	"anon-rss:819200kB, file-rss:0kB, shmem-rss:81920kB, UID:1000 pgtables:2112kB oom_score_adj:0\n"

#endif
