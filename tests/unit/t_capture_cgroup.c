/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Control groups of both versions, from texts and from folders made for the test. */
#include "unit/test.h"

#include <fcntl.h>

#include "base/cleanup.h"
#include "base/vec.h"
#include "capture/cgroup.h"

static bool has_memory(const char *dir, const char *controller)
{
	return !strcmp(dir, "/sys/fs/cgroup") ? strcmp(controller, "pids") != 0 : !strcmp(controller, "memory");
}

static const char v1_mounts[] =
	"24 1 0:22 / /proc rw - proc proc rw\n"
	"31 24 0:27 / /sys/fs/cgroup ro - tmpfs tmpfs ro\n"
	"32 31 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
	"33 31 0:29 /docker/1 /mnt/part rw - cgroup cgroup rw,memory\n"
	"34 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 master:3 - cgroup cgroup rw,cpu,cpuacct\n"
	"35 31 0:31 / /sys/fs/cgroup/with\\040space rw - cgroup cgroup rw,memory\n"
	"36 31 0:32 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
	"37 31 0:33 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n";

static bool has_none(const char *dir, const char *controller)
{
	(void)dir, (void)controller;
	return false;
}

TEST(mounts_of_version_1)
{
	struct dl_cg_mounts m;

	CHECK_OK(dl_cg_mounts_parse(v1_mounts, has_none, &m));
	/* The one that shows all groups, though it comes later. */
	CHECK_STR(m.ctl[DL_CG_MEMORY].dir, "/sys/fs/cgroup/with space");
	CHECK_STR(m.ctl[DL_CG_MEMORY].root, "/");
	CHECK_STR(m.ctl[DL_CG_CPU].dir, "/sys/fs/cgroup/cpu,cpuacct");
	CHECK_STR(m.ctl[DL_CG_PIDS].dir, "/sys/fs/cgroup/pids");
	CHECK_EQ(m.ctl[DL_CG_CPU].version, 1);
	dl_cg_mounts_fini(&m);
}

TEST(mounts_of_version_2)
{
	struct dl_cg_mounts m;

	CHECK_OK(dl_cg_mounts_parse("30 1 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n",
				    has_memory, &m));
	CHECK_STR(m.ctl[DL_CG_MEMORY].dir, "/sys/fs/cgroup");
	CHECK_EQ(m.ctl[DL_CG_MEMORY].version, 2);
	CHECK(m.ctl[DL_CG_CPU].dir);
	CHECK(!m.ctl[DL_CG_PIDS].dir);
	dl_cg_mounts_fini(&m);
}

TEST(mounts_of_both)
{
	struct dl_cg_mounts m;

	CHECK_OK(dl_cg_mounts_parse("1 1 0:1 / /v2 rw - cgroup2 cgroup2 rw\n"
				    "2 1 0:2 / /v1 rw - cgroup cgroup rw,cpu\n", has_memory, &m));
	CHECK_STR(m.ctl[DL_CG_MEMORY].dir, "/v2");
	CHECK_EQ(m.ctl[DL_CG_MEMORY].version, 2);
	CHECK_STR(m.ctl[DL_CG_CPU].dir, "/v1");
	CHECK_EQ(m.ctl[DL_CG_CPU].version, 1);
	dl_cg_mounts_fini(&m);
	CHECK_OK(dl_cg_mounts_parse("", has_memory, &m));
	CHECK(!m.ctl[DL_CG_MEMORY].dir);
	CHECK_OK(dl_cg_mounts_parse("1 2 3\n\n4 - 5\nx y z / /a rw - cgroup", has_memory, &m));
	CHECK(!m.ctl[DL_CG_MEMORY].dir);
}

TEST(paths)
{
	static const char text[] = "9:name=systemd:/user.slice\n4:memory:/a:b/c\n1:cpu,cpuacct:/\n0::/user.slice/x\n";
	char buf[32];

	CHECK(dl_cg_path(text, DL_CG_MEMORY, 1, buf, sizeof(buf)));
	CHECK_STR(buf, "/a:b/c");
	CHECK(dl_cg_path(text, DL_CG_CPU, 1, buf, sizeof(buf)));
	CHECK_STR(buf, "/");
	CHECK(!dl_cg_path(text, DL_CG_PIDS, 1, buf, sizeof(buf)));
	CHECK(dl_cg_path(text, DL_CG_PIDS, 2, buf, sizeof(buf)));
	CHECK_STR(buf, "/user.slice/x");
	CHECK(!dl_cg_path(text, DL_CG_MEMORY, 1, buf, 3));
	CHECK(!dl_cg_path("", DL_CG_CPU, 2, buf, sizeof(buf)));
}

/* --- levels, in folders ------------------------------------------------------------------------ */

static void put(const char *dir, const char *file, const char *text)
{
	char path[1024];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, file);
	f = fopen(path, "w");
	CHECK(f);
	fputs(text, f);
	CHECK_OK(fclose(f));
}

static const char *make_dir(const char *name)
{
	const char *path = test_path(name);

	CHECK(!mkdir(path, 0700) || errno == EEXIST);
	return path;
}

struct row {
	struct dl_ev_env_cgroup ev;
	char path[64];
};

struct rows {
	struct dl_sink sink;
	DL_VEC(struct row) v;
};

static int keep(struct dl_sink *sink, const struct dl_hdr *ev)
{
	struct rows *rows = (struct rows *)sink;
	struct row *row = vec_push(&rows->v);
	const size_t len = ev->size - sizeof(row->ev);

	memcpy(&row->ev, ev, sizeof(row->ev));
	memcpy(row->path, (const char *)ev + sizeof(row->ev), len < 63 ? len : 63);
	return 0;
}

static void sample(const struct dl_cg_mounts *m, const char *proc_cgroup, struct rows *ret)
{
	struct dl_cg_chain *chain;
	struct dl_diag d = {};

	CHECK_MSG(!dl_cg_chain_open(&chain, m, proc_cgroup, &d), "%s", d.msg);
	ret->sink.emit = keep;
	CHECK_OK(dl_cg_chain_emit(chain, &ret->sink, 123, 45));
	CHECK_EQ(ret->v.cnt, dl_cg_chain_levels(chain));
	dl_cg_chain_close(chain);
}

/* Memory two levels down, the CPU at the root: what another controller has is not mixed in. */
TEST(levels_of_version_1)
{
	const char *mem = make_dir("mem"), *cpu = make_dir("cpu");
	struct dl_cg_mounts m = {
		.ctl[DL_CG_MEMORY] = { strdup(mem), strdup("/"), 1 },
		.ctl[DL_CG_CPU] = { strdup(cpu), strdup("/"), 1 },
	};
	struct rows rows = {};
	const char *dir;

	put(mem, "memory.limit_in_bytes", "9223372036854771712\n");
	put(mem, "memory.usage_in_bytes", "3000\n");
	put(cpu, "cpu.cfs_quota_us", "-1\n");
	put(cpu, "cpu.cfs_period_us", "100000\n");
	put(cpu, "cpu.stat", "nr_periods 8\nnr_throttled 3\nthrottled_time 777\n");
	dir = make_dir("mem/job");
	put(dir, "memory.limit_in_bytes", "1048576\n");
	put(dir, "memory.usage_in_bytes", "2000\n");
	put(dir, "memory.failcnt", "6\n");
	dir = make_dir("mem/job/a");
	put(dir, "memory.limit_in_bytes", "524288\n");
	put(dir, "memory.usage_in_bytes", "1000\n");
	put(dir, "memory.max_usage_in_bytes", "1500\n");
	put(dir, "memory.memsw.limit_in_bytes", "600000\n");
	put(dir, "memory.kmem.usage_in_bytes", "4096\n");
	put(dir, "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n");
	put(dir, "memory.stat", "cache 1\nrss 2\nshmem 3\nhierarchical_memory_limit 4\ntotal_cache 900\ntotal_rss 100\n"
	    "total_shmem 300\ntotal_swap 50\n");

	sample(&m, "4:memory:/job/a\n1:cpu,cpuacct:/\n0::/\n", &rows);
	CHECK_EQ(rows.v.cnt, 3);
	CHECK_STR(rows.v.v[0].path, "/job/a");
	CHECK_EQ(rows.v.v[0].ev.level, 0);
	CHECK_EQ(rows.v.v[0].ev.version, 1);
	CHECK_EQ(rows.v.v[0].ev.h.pid, 45);
	CHECK_EQ(rows.v.v[0].ev.h.ts, 123);
	CHECK_EQ(rows.v.v[0].ev.mem_limit, 524288);
	CHECK_EQ(rows.v.v[0].ev.mem_usage, 1000);
	CHECK_EQ(rows.v.v[0].ev.mem_peak, 1500);
	CHECK_EQ(rows.v.v[0].ev.swap_limit, 600000);
	CHECK_EQ(rows.v.v[0].ev.oom_kills, 2);
	CHECK_EQ(rows.v.v[0].ev.mem_anon, 100);
	CHECK_EQ(rows.v.v[0].ev.mem_shmem, 300);
	CHECK_EQ(rows.v.v[0].ev.mem_file, 600);
	CHECK_EQ(rows.v.v[0].ev.swap_usage, 50);
	CHECK_EQ(rows.v.v[0].ev.mem_kernel, 4096);
	CHECK_EQ(rows.v.v[0].ev.cpu_period_ns, 0);
	CHECK_STR(rows.v.v[1].path, "/job");
	CHECK_EQ(rows.v.v[1].ev.mem_limit, 1048576);
	CHECK_EQ(rows.v.v[1].ev.limit_hits, 6);
	CHECK_EQ(rows.v.v[1].ev.throttled_cnt, 0);
	CHECK_STR(rows.v.v[2].path, "/");
	CHECK_EQ(rows.v.v[2].ev.level, 2);
	CHECK_EQ(rows.v.v[2].ev.mem_limit, 0);
	CHECK_EQ(rows.v.v[2].ev.cpu_quota_ns, 0);
	CHECK_EQ(rows.v.v[2].ev.cpu_period_ns, 100000000);
	CHECK_EQ(rows.v.v[2].ev.throttled_cnt, 3);
	CHECK_EQ(rows.v.v[2].ev.throttled_ns, 777);
	vec_free(&rows.v);
	dl_cg_mounts_fini(&m);
}

TEST(levels_of_version_2)
{
	const char *root = make_dir("v2");
	struct dl_cg_mounts m = {};
	struct rows rows = {};
	const char *dir;

	for (int i = 0; i < DL_CG_CTL_CNT; i++)
		m.ctl[i] = (struct dl_cg_mount){ strdup(root), strdup("/"), 2 };
	put(root, "memory.stat", "anon 5\nfile 6\n");	/* and no cgroup.events: the whole machine */
	dir = make_dir("v2/pod");
	put(dir, "cgroup.events", "populated 1\n");
	put(dir, "cpu.max", "150000 100000\n");
	put(dir, "cpu.stat", "usage_usec 9\nnr_periods 1\nnr_throttled 4\nthrottled_usec 21\n");
	put(dir, "memory.max", "max\n");
	dir = make_dir("v2/pod/box");
	put(dir, "cgroup.events", "populated 1\n");
	put(dir, "cpu.max", "max 100000\n");
	put(dir, "memory.max", "4096000\n");
	put(dir, "memory.current", "4000\n");
	put(dir, "memory.peak", "5000\n");
	put(dir, "memory.swap.max", "0\n");
	put(dir, "memory.swap.current", "7\n");
	put(dir, "memory.events", "low 0\nhigh 0\nmax 11\noom 2\noom_kill 1\noom_group_kill 0\n");
	put(dir, "memory.stat", "anon 100\nfile 50\nkernel 17\nkernel_stack 2\npagetables 9\nshmem 20\nfile_mapped 3\n");
	put(dir, "pids.current", "33\n");
	put(dir, "pids.max", "max\n");
	put(dir, "pids.events", "max 5\n");

	sample(&m, "0::/pod/box\n", &rows);
	CHECK_EQ(rows.v.cnt, 2);
	CHECK_STR(rows.v.v[0].path, "/pod/box");
	CHECK_EQ(rows.v.v[0].ev.version, 2);
	CHECK_EQ(rows.v.v[0].ev.mem_limit, 4096000);
	CHECK_EQ(rows.v.v[0].ev.mem_usage, 4000);
	CHECK_EQ(rows.v.v[0].ev.mem_peak, 5000);
	CHECK_EQ(rows.v.v[0].ev.mem_anon, 100);
	CHECK_EQ(rows.v.v[0].ev.mem_file, 30);
	CHECK_EQ(rows.v.v[0].ev.mem_shmem, 20);
	CHECK_EQ(rows.v.v[0].ev.swap_usage, 7);
	CHECK_EQ(rows.v.v[0].ev.limit_hits, 11);
	CHECK_EQ(rows.v.v[0].ev.oom_kills, 1);
	CHECK_EQ(rows.v.v[0].ev.cpu_quota_ns, 0);
	CHECK_EQ(rows.v.v[0].ev.pids, 33);
	CHECK_EQ(rows.v.v[0].ev.pids_limit, 0);
	CHECK_EQ(rows.v.v[0].ev.pids_hits, 5);
	CHECK_EQ(rows.v.v[0].ev.mem_kernel, 17);
	CHECK_EQ(rows.v.v[0].ev.mem_pgtables, 9);
	CHECK_STR(rows.v.v[1].path, "/pod");
	CHECK_EQ(rows.v.v[1].ev.cpu_quota_ns, 150000000);
	CHECK_EQ(rows.v.v[1].ev.throttled_cnt, 4);
	CHECK_EQ(rows.v.v[1].ev.throttled_ns, 21000);
	CHECK_EQ(rows.v.v[1].ev.mem_limit, 0);
	vec_free(&rows.v);
	dl_cg_mounts_fini(&m);
}

/* The mount shows only a part, as in a container that was given its own groups. */
TEST(a_mount_of_a_part)
{
	const char *root = make_dir("part");
	struct dl_cg_mounts m = { .ctl[DL_CG_MEMORY] = { strdup(root), strdup("/docker/1"), 1 } };
	struct dl_cg_chain *chain;
	struct rows rows = {};
	struct dl_diag d = {};

	put(root, "memory.limit_in_bytes", "111\n");
	put(make_dir("part/sub"), "memory.limit_in_bytes", "11\n");
	sample(&m, "4:memory:/docker/1/sub\n", &rows);
	CHECK_EQ(rows.v.cnt, 2);
	CHECK_EQ(rows.v.v[0].ev.mem_limit, 11);
	CHECK_STR(rows.v.v[1].path, "/docker/1");
	CHECK_EQ(rows.v.v[1].ev.mem_limit, 111);
	vec_free(&rows.v);
	CHECK_EQ(dl_cg_chain_open(&chain, &m, "4:memory:/docker/12\n", &d), -ENOENT);
	CHECK_EQ(dl_cg_chain_open(&chain, &m, "4:memory:/../other\n", &d), -ENOENT);
	CHECK_HAS(d.msg, "namespace");
	dl_cg_mounts_fini(&m);
	CHECK_EQ(dl_cg_chain_open(&chain, &m, "4:memory:/a\n", &d), -ENOENT);
	CHECK_HAS(d.msg, "no control group file system");
}

/* The groups of this process, which are whatever they are: levels that get nearer to the root. */
TEST(own_groups)
{
	struct dl_cg_mounts m;
	struct dl_cg_chain *chain;
	struct rows rows = { .sink.emit = keep };
	struct dl_diag d = {};
	char text[4096] = "";
	const int fd = open("/proc/self/cgroup", O_RDONLY | O_CLOEXEC);
	int err;

	CHECK(fd >= 0 && read(fd, text, sizeof(text) - 1) > 0);
	close(fd);
	CHECK_OK(dl_cg_mounts_read(&m));
	err = dl_cg_chain_open(&chain, &m, text, &d);
	if (err) {
		dl_cg_mounts_fini(&m);
		CHECK_EQ(err, -ENOENT);
		SKIP("%s", d.msg);
	}
	CHECK_OK(dl_cg_chain_emit(chain, &rows.sink, 1, 2));
	CHECK(rows.v.cnt > 0);
	for (size_t i = 1; i < rows.v.cnt; i++)
		CHECK(strlen(rows.v.v[i].path) <= strlen(rows.v.v[i - 1].path));
	vec_free(&rows.v);
	dl_cg_chain_close(chain);
	dl_cg_mounts_fini(&m);
}
