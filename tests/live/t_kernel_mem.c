/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Faults, resident memory, reclaim and the OOM killer, against what the program did itself. */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/swap.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "kernel_test.h"

#define NS_PER_MS 1000000LL
#define MIB (1024 * 1024LL)

static void nap(long ms)
{
	struct timespec ts = { 0, ms * NS_PER_MS };

	syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &ts, NULL);
}

/* What a CPU may hold back of a counter: max(32, 2 * CPUs) pages, for all CPUs; before 6.2 a thread
 * may, 64 pages. */
static int64_t slack(void)
{
	int64_t cpus = sysconf(_SC_NPROCESSORS_CONF), batch = cpus > 16 ? 2 * cpus : 32;

	return cpus * batch * sysconf(_SC_PAGESIZE);
}

static char *touched(size_t size, int flags)
{
	char *p = mmap(NULL, size, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		_exit(1);
	madvise(p, size, MADV_NOHUGEPAGE);
	for (size_t i = 0; i < size; i += 4096)
		p[i] = 1;
	return p;
}

static void faults(struct truth *t, void *arg)
{
	struct rusage ru[2] = {};

	(void)arg;
	nap(1);
	getrusage(RUSAGE_THREAD, &ru[0]);
	touched(20 * MIB, MAP_PRIVATE);
	getrusage(RUSAGE_THREAD, &ru[1]);
	nap(2);
	t->v[0] = ru[0].ru_minflt;
	t->v[1] = ru[1].ru_minflt;
	t->v[2] = ru[1].ru_majflt;
	nap(3);
}

TEST(fault_counts_are_the_kernels)
{
	int found = 0;

	need_kernel();
	CHECK_EQ(harness_run(&h, faults, NULL), 0);
	CHECK(h.truth->v[1] - h.truth->v[0] >= 5000);	/* 20 MiB of pages of 4 KiB */
	EACH(&h, SWITCH, switch, e) {
		/* the sleep of 2 ms, by its deadline */
		if (e->h.flags & DL_HDR_FOREIGN || e->syscall != SYS_clock_nanosleep ||
		    e->deadline != e->h.ts + 2 * NS_PER_MS)
			continue;
		CHECK_EQ(e->min_flt, h.truth->v[1]);
		CHECK_EQ(e->maj_flt, h.truth->v[2]);
		found++;
	}
	CHECK_EQ(found, 1);
}

/* One line of /proc/self/status, in bytes. */
static int64_t status_bytes(const char *field)
{
	FILE *f = fopen("/proc/self/status", "re");
	long long kib = -1;
	char line[128];

	while (f && fgets(line, sizeof(line), f)) {
		if (!strncmp(line, field, strlen(field)))
			kib = atoll(line + strlen(field));
	}
	if (f)
		fclose(f);
	return kib * 1024;
}

static void grow(struct truth *t, void *arg)
{
	(void)arg;
	touched(40 * MIB, MAP_PRIVATE);
	touched(24 * MIB, MAP_SHARED);
	t->v[0] = status_bytes("RssAnon:");
	t->v[1] = status_bytes("RssShmem:");
	t->v[2] = status_bytes("RssFile:");
	t->v[3] = status_bytes("VmPTE:");
	nap(120);
	nap(1);
}

TEST(memory_by_kind)
{
	const struct dl_ev_mem *last = NULL;

	need_kernel();
	CHECK_EQ(harness_run(&h, grow, NULL), 0);
	EACH(&h, MEM, mem, e)
		last = e;
	CHECK(last);
	CHECK(h.truth->v[0] >= 39 * MIB && h.truth->v[1] >= 23 * MIB);
	CHECK_NEAR(last->anon, h.truth->v[0], slack());
	CHECK_NEAR(last->shmem, h.truth->v[1], slack());
	CHECK_NEAR(last->file, h.truth->v[2], slack());
	CHECK_NEAR(last->swap, 0, slack());
	CHECK_NEAR(last->pgtables, h.truth->v[3], 64 * 1024);
}

/* --- major faults ------------------------------------------------------------------------------- */

static char cold_path[256];

static void touch_cold(struct truth *t, void *arg)
{
	int fd = open(cold_path, O_RDONLY);
	struct rusage ru;
	struct stat st;
	char *p;

	(void)arg;
	if (fd < 0 || fstat(fd, &st))
		_exit(1);
	p = mmap(NULL, 4 * MIB, PROT_READ, MAP_SHARED, fd, MIB);
	if (p == MAP_FAILED)
		_exit(1);
	madvise(p, 4 * MIB, MADV_RANDOM);	/* no readahead: each page is a fault */
	getrusage(RUSAGE_THREAD, &ru);
	t->v[3] = ru.ru_majflt;
	for (size_t i = 0; i < 4 * MIB; i += 256 * 1024)
		t->v[5] += p[i];
	getrusage(RUSAGE_THREAD, &ru);
	t->v[0] = (int64_t)st.st_ino;
	t->v[1] = (intptr_t)p;
	t->v[2] = ru.ru_majflt - t->v[3];
}

TEST(major_faults_name_their_file)
{
	const char *dir = block_dir();
	int64_t ours = 0, plain = 0;
	bool made;
	int status = -1;

	need_kernel();
	if (!dir)
		SKIP("no directory on a block device");
	snprintf(cold_path, sizeof(cold_path), "%s/dlbpf-cold-map-%d", dir, getpid());
	made = cold_file(cold_path, 8 * MIB);
	if (made)
		status = harness_run(&h, touch_cold, NULL);
	unlink(cold_path);
	CHECK_EQ(status, 0);
	CHECK(h.truth->v[2] > 0);
	EACH(&h, MAJOR_FAULT, major_fault, e) {
		int64_t off = (int64_t)e->addr - h.truth->v[1];

		if (off < 0 || off >= 4 * MIB)
			continue;
		if (e->kind == DL_FAULT_UNKNOWN) {
			plain++;
			continue;
		}
		CHECK_EQ(e->kind, DL_FAULT_FILE);
		CHECK_EQ(e->file_ino, h.truth->v[0]);
		CHECK_EQ(e->file_off, MIB + off);
		CHECK_EQ(off % (256 * 1024), 0);
		CHECK(e->file_dev != 0 && e->ip != 0);
		ours++;
	}
	CHECK_EQ(ours + plain, h.truth->v[2]);
	if (plain)
		SKIP("this kernel cannot look up a mapping in BPF (the count is right)");
}

/* --- limits ------------------------------------------------------------------------------------- */

static bool limited(struct cgroup *g, const char *name, const char *bytes)
{
	return cgroup_make(g, "memory", name) &&
	       cgroup_set(g, "memory.limit_in_bytes", bytes, "memory.max", bytes) &&
	       cgroup_set(g, "memory.swappiness", "0", "memory.swap.max", "0");
}

static void read_much(struct truth *t, void *arg)
{
	static char buf[1 << 16];
	int fd;

	(void)t;
	fd = cgroup_enter(arg) ? open(cold_path, O_RDONLY) : -1;
	if (fd < 0)
		_exit(1);
	while (read(fd, buf, sizeof(buf)) > 0)
		;
}

TEST(memcg_reclaim_is_seen)
{
	const char *dir = block_dir();
	int64_t pages = 0, cnt = 0;
	int status = -1;
	struct cgroup g;

	need_kernel();
	if (!dir)
		SKIP("no directory on a block device");
	if (!limited(&g, "dlbpf-test-reclaim", "16777216"))
		SKIP("no memory controller");
	snprintf(cold_path, sizeof(cold_path), "%s/dlbpf-cold-much-%d", dir, getpid());
	if (cold_file(cold_path, 64 * MIB))
		status = harness_run(&h, read_much, &g);
	unlink(cold_path);
	cgroup_remove(&g);
	CHECK_EQ(status, 0);
	EACH(&h, RECLAIM, reclaim, e) {
		CHECK_EQ(e->kind, DL_RECLAIM_MEMCG);
		CHECK(e->start && e->start <= e->h.ts);
		CHECK(!(e->h.flags & DL_HDR_FOREIGN));
		pages += (int64_t)e->pages;
		cnt++;
	}
	CHECK(cnt > 0);
	/* 64 MiB went through 16 MiB */
	CHECK_MSG(pages >= 32 * MIB / 4096, "%" PRId64 " pages in %" PRId64 " reclaims", pages, cnt);
}

static bool have_swap(void)
{
	FILE *f = fopen("/proc/swaps", "re");
	char line[256];
	int lines = 0;

	while (f && fgets(line, sizeof(line), f))
		lines++;
	if (f)
		fclose(f);
	return lines > 1;
}

/* A swap file of our own, where there is no swap; "" when there is some. False when it cannot be. */
static bool make_swap(char *path, size_t sz)
{
	const char *dir = block_dir();
	char cmd[400];
	int fd, err;

	path[0] = 0;
	if (have_swap())
		return true;
	if (!dir)
		return false;
	snprintf(path, sz, "%s/dlbpf-test-swap-%d", dir, getpid());
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	err = fd < 0 ? errno : posix_fallocate(fd, 0, 96 * MIB);
	if (fd >= 0)
		close(fd);
	snprintf(cmd, sizeof(cmd), "mkswap %s >/dev/null 2>&1", path);
	if (!err && !system(cmd) && !swapon(path, 0))
		return true;
	unlink(path);
	return false;
}

static void drop_swap(const char *path)
{
	if (!*path)
		return;
	swapoff(path);
	unlink(path);
}

static void swapped(struct truth *t, void *arg)
{
	struct rusage ru[2];
	char *p;

	if (!cgroup_enter(arg))
		_exit(1);
	p = touched(48 * MIB, MAP_PRIVATE);
	t->v[0] = status_bytes("VmSwap:");
	nap(120);
	nap(1);
	t->v[1] = (intptr_t)p;
	getrusage(RUSAGE_THREAD, &ru[0]);
	for (size_t i = 0; i < 16 * MIB; i += 65536)
		t->v[3] += p[i];
	getrusage(RUSAGE_THREAD, &ru[1]);
	t->v[2] = ru[1].ru_majflt - ru[0].ru_majflt;
}

TEST(swap_is_seen_at_its_owner)
{
	int64_t most = 0, in = 0;
	int status = -1;
	struct cgroup g;
	char swap[256];

	need_kernel();
	if (!cgroup_make(&g, "memory", "dlbpf-test-swap"))
		SKIP("no memory controller");
	if (!make_swap(swap, sizeof(swap))) {
		cgroup_remove(&g);
		SKIP("no swap space, and none can be made");
	}
	if (cgroup_set(&g, "memory.limit_in_bytes", "25165824", "memory.max", "25165824"))
		status = harness_run(&h, swapped, &g);
	cgroup_remove(&g);
	drop_swap(swap);
	CHECK_EQ(status, 0);
	CHECK(h.truth->v[0] > 16 * MIB && h.truth->v[2] > 0);
	EACH(&h, MEM, mem, e)
		most = (int64_t)e->swap > most ? (int64_t)e->swap : most;
	CHECK_NEAR(most, h.truth->v[0], 4 * MIB + slack());
	EACH(&h, MAJOR_FAULT, major_fault, e) {
		int64_t off = (int64_t)e->addr - h.truth->v[1];

		if (off < 0 || off >= 16 * MIB)
			continue;
		CHECK(e->kind == DL_FAULT_SWAP || e->kind == DL_FAULT_UNKNOWN);
		CHECK_EQ(e->file_ino, 0);
		in++;
	}
	/* A burst is cut: 64 in 10 ms are events. */
	CHECK(in >= (h.truth->v[2] < 64 ? h.truth->v[2] : 64));
}

#define OOM_LIMIT (48 * MIB)

static void eat(struct truth *t, void *arg)
{
	if (!cgroup_enter(arg))
		_exit(1);
	t->v[0] = getpid();
	touched(8 * MIB, MAP_SHARED);
	touched(200 * MIB, MAP_PRIVATE);
}

TEST(oom_victim_and_limit)
{
	const struct dl_ev_oom_kill *o = NULL;
	int status = -1, kills = 0;
	struct cgroup g;

	need_kernel();
	if (!limited(&g, "dlbpf-test-oom", "50331648"))
		SKIP("no memory controller");
	status = harness_run(&h, eat, &g);
	cgroup_remove(&g);
	CHECK_EQ(status & 0x7f, SIGKILL);
	EACH(&h, OOM_KILL, oom_kill, e) {
		o = e;
		kills++;
	}
	CHECK_EQ(kills, 1);
	CHECK_EQ(o->target_pid, h.truth->v[0]);
	CHECK_EQ(o->h.pid, h.truth->v[0]);	/* it asked for the memory itself */
	CHECK_EQ(o->flags, DL_OOM_MEMCG);
	CHECK_EQ(o->limit, OOM_LIMIT);
	CHECK(o->usage <= OOM_LIMIT && o->usage > OOM_LIMIT - 3 * MIB);
	CHECK_NEAR(o->shmem, 8 * MIB, MIB + slack());
	CHECK((int64_t)o->anon > 32 * MIB - slack() && (int64_t)o->anon < OOM_LIMIT);
	CHECK_EQ(o->adj, 0);
	CHECK(o->cgroup_id != 0);
	CHECK_STR(harness_text(&o->h, sizeof(*o)), "dlbpf-test-oom");
	EACH(&h, SIGNAL, signal, e) {
		if (e->sig == SIGKILL && e->target_tid == o->target_tid)
			CHECK_EQ(e->code, 0x80);	/* SI_KERNEL */
	}
}
