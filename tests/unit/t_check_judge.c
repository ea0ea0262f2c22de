/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Judgements of the pre-flight, on machines that were made up. */
#include "unit/test.h"

#include "base/cleanup.h"
#include "check/check.h"
#include "check/judge.h"

#define MIB (1024 * 1024ULL)
#define GIB (1024 * MIB)
#define LOCKS 65536	/* of a worker, and of the trainer */

static struct dl_ck_facts f;
static struct dl_check *check;

/* A machine without a fault: 64 CPUs, 256 GiB, nothing limits anything, nobody runs. */
static void good_machine(void)
{
	struct rlimit none = { RLIM_INFINITY, RLIM_INFINITY };

	dl_ck_facts_fini(&f);
	dl_check_free(check);
	check = NULL;
	f = (struct dl_ck_facts){
		.cpus = { .online = 64, .allowed = 64 },
		.levels_known = true,
		.mem = { .known = true, .total = 256 * GIB, .avail = 240 * GIB, .overcommit_known = true, .thp_known = true,
			 .thp = "madvise", .thp_defrag = "madvise" },
		.shm = { .known = true, .tmpfs = true, .total = 128 * GIB, .inodes = 1000000, .inodes_free = 999000,
			 .owners_known = true },
		.proc = { .known = true, .env_known = true, .uid = 1000, .pid_levels = 1, .map_count_max = 65530,
			  .core_pattern = "core" },
		.self = { .root = true, .trace_known = true, .trace_ok = true, .collector = true, .collector_path = "/x.so" },
	};
	for (int i = 0; i < RLIM_NLIMITS; i++) {
		f.proc.has_limit[i] = true;
		f.proc.limit[i] = none;
	}
}

static struct dl_ck_level *add_level(const char *path)
{
	struct dl_ck_level *l = vec_push(&f.levels);

	CHECK(l);
	snprintf(l->path, sizeof(l->path), "%s", path);
	l->ev.version = 2;
	return l;
}

static void set_var(const char *name, const char *value)
{
	struct dl_ck_var *v = &f.proc.vars[f.proc.var_cnt++];

	snprintf(v->name, sizeof(v->name), "%s", name);
	snprintf(v->value, sizeof(v->value), "%s", value);
}

/* A job that was watched: two workers, images and labels of 4.6 MiB a batch. */
static void run_job(uint32_t workers)
{
	f.target = DL_CK_PID;
	f.proc.pid = 4711;
	f.seen = (struct dl_ck_seen){
		.watched = true, .watched_ns = 3000000000ULL, .workers = workers, .trainers = 1, .start = DL_CK_FORK,
		.file_descriptor = true, .batch = { .bytes = 5 * MIB, .storages = 2, .seen = 20 }, .held = 1, .prefetch = 2,
		.trainer_fds = 40, .worker_fds = 20, .trainer_threads = 4, .worker_threads = 3, .trainer_maps = 1700,
		.peak_bytes = 10 * MIB,
	};
}

static const struct dl_ck_line *line_of(const char *id)
{
	struct dl_diag d = {};

	dl_check_free(check);
	check = NULL;
	CHECK_OK(dl_check_judge(&check, &f, &d));
	vec_for_each(&check->lines, it)
		if (!strcmp(it->id, id))
			return it;
	return NULL;
}

static double number_of(const struct dl_ck_line *l, const char *id)
{
	vec_for_each(&l->numbers, it)
		if (!strcmp(it->id, id))
			return it->value;
	return -1;
}

#define CHECK_STATE(ID, STATE) do { \
	const struct dl_ck_line *_l = line_of(ID); \
	CHECK_MSG(_l, "no line %s", ID); \
	CHECK_MSG(_l->state == (STATE), "%s is %s: %s", ID, dl_ck_state_id(_l->state), _l->text); \
	CHECK_MSG(_l->state != DL_CK_PROBLEM || _l->fix || _l->command, "%s: a problem without a remedy", ID); \
} while (0)

TEST(a_good_machine)
{
	good_machine();
	line_of("");
	vec_for_each(&check->lines, it)
		CHECK_MSG(it->state == DL_CK_OK || it->state == DL_CK_UNKNOWN, "%s: %s", it->id, it->text);
	CHECK_EQ(check->cnt[DL_CK_PROBLEM] + check->cnt[DL_CK_WARNING], 0);
	/* What depends on a job is not known without one. */
	CHECK_STATE("shm-size", DL_CK_UNKNOWN);
	CHECK_STATE("worker-cpus", DL_CK_UNKNOWN);
	CHECK(!line_of("run"));
	CHECK(!line_of("data-rate"));
}

TEST(a_good_job)
{
	good_machine();
	run_job(8);
	line_of("");
	vec_for_each(&check->lines, it)
		CHECK_MSG(it->state == DL_CK_OK, "%s is %s: %s", it->id, dl_ck_state_id(it->state), it->text);
}

/* --- CPUs --------------------------------------------------------------------------------------- */

/* 2.5 CPUs, said two levels above the job: the host's 64 are not the job's. */
TEST(quota_of_a_parent_level)
{
	const struct dl_ck_level *by;
	struct dl_ck_level *l;

	good_machine();
	run_job(8);
	add_level("/kubepods/pod1/box");
	l = add_level("/kubepods/pod1");
	l->ev.cpu_quota_ns = 250000000;
	l->ev.cpu_period_ns = 100000000;
	l = add_level("/kubepods");
	l->ev.cpu_quota_ns = 4000000000ULL;
	l->ev.cpu_period_ns = 100000000;
	f.place = DL_CK_KUBERNETES;
	CHECK(dl_ck_cpus_of(&f, &by) == 2.5);
	CHECK_STR(by->path, "/kubepods/pod1");
	CHECK_HAS(line_of("cpus")->text, "2.5 of 64 CPUs");
	CHECK_HAS(line_of("cpus")->text, "/kubepods/pod1");
	CHECK(number_of(line_of("cpus"), "cpus") == 2.5);
	CHECK_STATE("worker-cpus", DL_CK_WARNING);
	CHECK_EQ(number_of(line_of("worker-cpus"), "suggested_workers"), 2);
	f.seen.workers = 10;
	CHECK_STATE("worker-cpus", DL_CK_PROBLEM);
	CHECK_HAS(line_of("worker-cpus")->command, "num_workers=2");
	/* PyTorch's OpenMP goes by the affinity. */
	CHECK_STATE("threads", DL_CK_WARNING);
	CHECK_HAS(line_of("threads")->command, "OMP_NUM_THREADS=2");
	set_var("OMP_NUM_THREADS", "2");
	CHECK_STATE("threads", DL_CK_OK);
}

TEST(affinity_below_the_quota)
{
	struct dl_ck_level *l;

	good_machine();
	l = add_level("/job");
	l->ev.cpu_quota_ns = 800000000;
	l->ev.cpu_period_ns = 100000000;
	f.cpus.allowed = 4;
	CHECK(dl_ck_cpus_of(&f, NULL) == 4);
	CHECK_HAS(line_of("cpus")->text, "affinity");
	f.cpus.cpuset = 4;
	CHECK_HAS(line_of("cpus")->text, "cpuset");
}

/* An import that pinned the process: all workers on one CPU of many. */
TEST(pinned_to_one_cpu)
{
	good_machine();
	f.cpus.allowed = 1;
	CHECK_STATE("cpus", DL_CK_PROBLEM);
	CHECK_HAS(line_of("cpus")->command, "sched_setaffinity");
	f.cpus.online = 1;
	CHECK_STATE("cpus", DL_CK_OK);
}

TEST(throttled_while_watched)
{
	struct dl_ck_level *l;

	good_machine();
	run_job(2);
	l = add_level("/job");
	l->ev.cpu_quota_ns = 200000000;
	l->ev.cpu_period_ns = 100000000;
	l->ev.throttled_cnt = 1000;
	CHECK_STATE("quota", DL_CK_OK);		/* long ago */
	CHECK_HAS(line_of("quota")->text, "1,000");
	l->watched = true;
	CHECK_STATE("quota", DL_CK_OK);
	l->throttled_cnt = 2;
	CHECK_STATE("quota", DL_CK_WARNING);
	l->throttled_cnt = 20;			/* of 30 */
	CHECK_STATE("quota", DL_CK_PROBLEM);
	CHECK_HAS(line_of("quota")->text, "in 20 of about 30 periods");
	f.levels_known = false;
	CHECK_STATE("quota", DL_CK_UNKNOWN);
}

TEST(threads_of_libraries)
{
	good_machine();
	run_job(8);
	f.cpus.allowed = f.cpus.online = 16;
	f.seen.worker_threads = 3 + 15;		/* OpenBLAS, one for each CPU */
	CHECK_STATE("threads", DL_CK_PROBLEM);
	CHECK_HAS(line_of("threads")->text, "128");
	CHECK_HAS(line_of("threads")->command, "OPENBLAS_NUM_THREADS=1");
	f.seen.worker_threads = 3 + 3;
	CHECK_STATE("threads", DL_CK_WARNING);
	f.seen.worker_threads = 3;
	CHECK_STATE("threads", DL_CK_OK);
	/* Not seen, but said. */
	f.seen.worker_threads = 0;
	set_var("OMP_NUM_THREADS", "8");
	CHECK_STATE("threads", DL_CK_WARNING);
	f.proc.env_known = false;
	CHECK_STATE("threads", DL_CK_UNKNOWN);
}

TEST(no_workers)
{
	good_machine();
	run_job(0);
	f.seen.start = DL_CK_START_UNKNOWN;
	CHECK_STATE("worker-cpus", DL_CK_WARNING);
	CHECK_HAS(line_of("worker-cpus")->command, "num_workers=63");
	CHECK_STATE("start-method", DL_CK_UNKNOWN);
	f.seen.ended = true;		/* too early to tell */
	CHECK_STATE("worker-cpus", DL_CK_UNKNOWN);
}

/* --- shared memory ------------------------------------------------------------------------------ */

TEST(shm_of_a_container)
{
	good_machine();
	run_job(8);
	f.place = DL_CK_CONTAINER;
	f.shm.total = 64 * MIB;
	f.shm.used = f.seen.now_bytes = 20 * MIB;
	CHECK_STATE("shm-size", DL_CK_PROBLEM);
	/* 8 workers x 2 batches + 1, of 5 MiB */
	CHECK_EQ(number_of(line_of("shm-size"), "needed_bytes"), 85 * MIB + 9 * LOCKS);
	CHECK_HAS(line_of("shm-size")->command, "docker run --shm-size=128m");
	f.place = DL_CK_KUBERNETES;
	CHECK_HAS(line_of("shm-size")->command, "medium: Memory, sizeLimit: 128Mi");
	f.place = DL_CK_HOST;
	CHECK_HAS(line_of("shm-size")->command, "remount,size=128M");
	/* It holds, barely; then with room. */
	f.shm.total = 90 * MIB;
	CHECK_STATE("shm-size", DL_CK_WARNING);
	f.shm.total = 128 * MIB;
	CHECK_STATE("shm-size", DL_CK_OK);
	CHECK_HAS(line_of("shm-size")->text, "second loader");
	f.shm.total = GIB;
	CHECK(!strstr(line_of("shm-size")->text, "second loader"));
	/* Others have used most of it. */
	f.shm.used = 960 * MIB;
	CHECK_STATE("shm-size", DL_CK_PROBLEM);
	CHECK_EQ(number_of(line_of("shm-size"), "others_bytes"), 940 * MIB);
}

TEST(shm_numbers_by_hand)
{
	good_machine();
	f.shm.total = 2 * GIB;
	f.workers = 8;
	f.batch_bytes = 150 * MIB;
	CHECK_STATE("shm-size", DL_CK_PROBLEM);
	CHECK_EQ(number_of(line_of("shm-size"), "needed_bytes"), 17 * 150 * MIB + 9 * LOCKS);
	CHECK_HAS(line_of("shm-size")->text, "assumed");
	f.prefetch = 1;
	CHECK_STATE("shm-size", DL_CK_OK);
	CHECK(!strstr(line_of("shm-size")->text, "assumed"));
}

TEST(shm_seen)
{
	struct dl_ck_need n;

	good_machine();
	run_job(2);
	f.seen.prefetch = 4;
	f.seen.held = 20;
	n = dl_ck_need_of(&f);
	CHECK_EQ(n.bytes, (2 * 4 + 20) * 5 * MIB + 3 * LOCKS);
	CHECK(!n.prefetch_assumed);
	/* Less than the default was seen at once: the default is assumed. */
	f.seen.prefetch = 1;
	n = dl_ck_need_of(&f);
	CHECK_EQ(n.prefetch, 2);
	CHECK(n.prefetch_assumed);
	/* What was there at once is needed in any case. */
	f.seen.peak_bytes = 900 * MIB;
	n = dl_ck_need_of(&f);
	CHECK_EQ(n.bytes, 900 * MIB + 3 * LOCKS);
	CHECK(n.by_peak);
	CHECK_HAS(line_of("shm-size")->text, "900 MiB at once");
}

TEST(shm_without_a_job)
{
	good_machine();
	f.shm.total = 64 * MIB;
	CHECK_STATE("shm-size", DL_CK_WARNING);
	f.shm.known = false;
	snprintf(f.shm.why, sizeof(f.shm.why), "Permission denied");
	CHECK_STATE("shm-size", DL_CK_UNKNOWN);
	f.shm.missing = true;
	CHECK_STATE("shm-size", DL_CK_PROBLEM);
	good_machine();
	f.shm.tmpfs = false;
	CHECK_STATE("shm-size", DL_CK_PROBLEM);
}

/* A command that died of it, though all that was seen would fit. */
TEST(shm_full_in_a_failed_run)
{
	good_machine();
	run_job(1);
	f.target = DL_CK_CMD;
	f.seen.ended = true;
	f.seen.status = 1 << 8;
	f.shm.total = 16 * MIB;
	f.seen.peak_bytes = 8 * MIB;
	CHECK_STATE("shm-size", DL_CK_WARNING);
	CHECK_STATE("run", DL_CK_PROBLEM);
	f.seen.failed = 2;
	CHECK_STATE("shm-size", DL_CK_PROBLEM);
	f.seen.failed = 0;
	f.seen.peak_bytes = 13 * MIB;
	CHECK_STATE("shm-size", DL_CK_PROBLEM);
}

TEST(shm_left_behind)
{
	good_machine();
	f.shm.torch_cnt = 3;
	CHECK_STATE("shm-left", DL_CK_OK);
	f.shm.dead_cnt = 2;
	f.shm.dead_bytes = GIB;
	f.shm.failed_cnt = 1;
	CHECK_STATE("shm-left", DL_CK_WARNING);
	CHECK_HAS(line_of("shm-left")->text, "2 files torch_* of processes that are gone hold 1.00 GiB");
	CHECK_HAS(line_of("shm-left")->text, "/dev/shm was full");
	f.shm.dead_bytes = 64 * GIB;
	CHECK_STATE("shm-left", DL_CK_PROBLEM);
	f.shm.owners_known = false;
	CHECK_STATE("shm-left", DL_CK_UNKNOWN);
	good_machine();
	run_job(8);
	f.shm.inodes_free = 20;
	CHECK_STATE("shm-inodes", DL_CK_PROBLEM);
}

/* --- memory ------------------------------------------------------------------------------------- */

TEST(memory_of_the_machine)
{
	good_machine();
	f.mem.avail = 20 * GIB;
	CHECK_STATE("memory-host", DL_CK_WARNING);
	f.mem.avail = 4 * GIB;
	CHECK_STATE("memory-host", DL_CK_PROBLEM);
	f.mem.avail = 100 * GIB;
	f.workers = 64;
	f.batch_bytes = GIB;
	CHECK_STATE("memory-host", DL_CK_PROBLEM);
	f.mem.known = false;
	CHECK_STATE("memory-host", DL_CK_UNKNOWN);
}

/* The limit is a level above; page cache gives way, shared memory does not. */
TEST(memory_of_a_parent_level)
{
	struct dl_ck_level *l;

	good_machine();
	run_job(8);
	add_level("/docker/1");
	l = add_level("/docker");
	l->ev.mem_limit = 8 * GIB;
	l->ev.mem_usage = 8 * GIB - MIB;
	l->ev.mem_file = 6 * GIB;
	CHECK_STATE("memory-cgroup", DL_CK_OK);
	CHECK_EQ(number_of(line_of("memory-cgroup"), "left_bytes"), 6 * GIB + MIB);
	CHECK_HAS(line_of("memory-cgroup")->text, "/dev/shm is larger");
	l->ev.mem_file = GIB;
	CHECK_STATE("memory-cgroup", DL_CK_WARNING);
	l->ev.mem_file = 0;
	CHECK_STATE("memory-cgroup", DL_CK_PROBLEM);
	f.place = DL_CK_CONTAINER;
	CHECK_HAS(line_of("memory-cgroup")->command, "--memory=");
	f.slurm = true;
	CHECK_HAS(line_of("memory-cgroup")->command, "--mem=");
	/* The loaders will need more than is left. */
	l->ev.mem_usage = 2 * GIB;
	CHECK_STATE("memory-cgroup", DL_CK_OK);
	f.seen.batch.bytes = GIB;
	CHECK_STATE("memory-cgroup", DL_CK_PROBLEM);
	CHECK_HAS(line_of("memory-cgroup")->text, "17.0 GiB more");
}

/* Nothing is killed there, but all is slow. */
TEST(memory_high)
{
	struct dl_ck_level *l;

	good_machine();
	add_level("/user/job");
	l = add_level("/user");
	l->mem_high = 10 * GIB;
	l->ev.mem_usage = 10 * GIB;
	l->ev.mem_file = 5 * GIB;
	CHECK_STATE("memory-cgroup", DL_CK_OK);
	l->ev.mem_file = 0;
	CHECK_STATE("memory-cgroup", DL_CK_WARNING);
	CHECK_HAS(line_of("memory-cgroup")->command, "/user/memory.high");
}

TEST(memory_history)
{
	good_machine();
	add_level("/job")->ev.oom_kills = 3;
	CHECK_STATE("memory-cgroup", DL_CK_WARNING);
	CHECK_HAS(line_of("memory-cgroup")->text, "ended 3 processes");
}

/* A limit above what the machine has is none. */
TEST(memory_limit_above_the_machine)
{
	good_machine();
	add_level("/job")->ev.mem_limit = 512 * GIB;
	CHECK_HAS(line_of("memory-cgroup")->text, "no memory limit");
}

TEST(swap)
{
	good_machine();
	run_job(2);
	CHECK_HAS(line_of("swap")->text, "none");
	f.mem.swap_total = f.mem.swap_free = 8 * GIB;
	CHECK_STATE("swap", DL_CK_OK);
	f.mem.zram = true;
	CHECK_HAS(line_of("swap")->text, "zram");
	f.mem.swapins_known = true;
	f.mem.swapins = 300;
	CHECK_STATE("swap", DL_CK_WARNING);
	f.mem.swapins = 30000;
	CHECK_STATE("swap", DL_CK_PROBLEM);
	f.mem.swapins = 0;
	f.mem.swap_free = GIB;
	CHECK_STATE("swap", DL_CK_WARNING);
}

TEST(overcommit_and_huge_pages)
{
	good_machine();
	run_job(2);
	f.mem.overcommit = 2;
	f.mem.commit_limit = 100 * GIB;
	f.mem.committed = 90 * GIB;
	CHECK_STATE("overcommit", DL_CK_WARNING);
	f.seen.trainer_data = 20 * GIB;
	CHECK_STATE("overcommit", DL_CK_PROBLEM);
	snprintf(f.mem.thp, sizeof(f.mem.thp), "always");
	CHECK_STATE("huge-pages", DL_CK_OK);
	snprintf(f.mem.thp_defrag, sizeof(f.mem.thp_defrag), "always");
	CHECK_STATE("huge-pages", DL_CK_WARNING);
}

/* --- limits ------------------------------------------------------------------------------------- */

TEST(descriptors)
{
	struct rlimit *l;

	good_machine();
	run_job(8);
	l = &f.proc.limit[RLIMIT_NOFILE];
	*l = (struct rlimit){ 1024, 1048576 };
	CHECK_STATE("descriptors", DL_CK_OK);
	CHECK_EQ(number_of(line_of("descriptors"), "needed"), 40 + 17 * 2);
	f.seen.batch.storages = 20;		/* dictionaries of tensors */
	f.seen.trainer_fds = 200;
	CHECK_STATE("descriptors", DL_CK_WARNING);
	f.seen.batch.storages = 60;
	CHECK_STATE("descriptors", DL_CK_PROBLEM);
	CHECK_HAS(line_of("descriptors")->command, "ulimit -n 65536");
	CHECK_HAS(line_of("descriptors")->command, "file_system");
	l->rlim_max = 4096;
	CHECK_HAS(line_of("descriptors")->command, "limits.d");
	f.place = DL_CK_CONTAINER;
	CHECK_HAS(line_of("descriptors")->command, "--ulimit nofile=65536:65536");
	/* That strategy keeps none open. */
	f.seen.file_system = true;
	CHECK_STATE("descriptors", DL_CK_OK);
	f.proc.has_limit[RLIMIT_NOFILE] = false;
	CHECK_STATE("descriptors", DL_CK_UNKNOWN);
}

TEST(mappings)
{
	good_machine();
	run_job(2);
	f.seen.trainer_maps = 40000;
	CHECK_STATE("mappings", DL_CK_WARNING);
	f.seen.worker_maps = 60000;
	CHECK_STATE("mappings", DL_CK_PROBLEM);
	CHECK_HAS(line_of("mappings")->command, "vm.max_map_count");
	f.proc.map_count_max = 0;
	CHECK_STATE("mappings", DL_CK_UNKNOWN);
}

TEST(locked_memory)
{
	good_machine();
	f.proc.limit[RLIMIT_MEMLOCK].rlim_cur = 8 * MIB;
	CHECK_STATE("locked-memory", DL_CK_OK);
	f.proc.infiniband = true;
	CHECK_STATE("locked-memory", DL_CK_WARNING);
	f.proc.limit[RLIMIT_MEMLOCK].rlim_cur = RLIM_INFINITY;
	CHECK_STATE("locked-memory", DL_CK_OK);
}

TEST(processes)
{
	struct dl_ck_level *l;

	good_machine();
	run_job(8);
	f.proc.user_tasks = 900;
	f.proc.limit[RLIMIT_NPROC] = (struct rlimit){ 1000, 1000 };
	CHECK_STATE("processes", DL_CK_WARNING);
	CHECK_EQ(number_of(line_of("processes"), "left"), 100);
	f.proc.uid = 0;		/* root has no such limit */
	CHECK_STATE("processes", DL_CK_OK);
	l = add_level("/docker/1");
	l->ev.pids = 90;
	l->ev.pids_limit = 100;
	f.place = DL_CK_CONTAINER;
	CHECK_STATE("processes", DL_CK_PROBLEM);
	CHECK_HAS(line_of("processes")->command, "--pids-limit");
}

TEST(cores_and_stack)
{
	good_machine();
	CHECK_STATE("core", DL_CK_OK);
	f.proc.limit[RLIMIT_CORE].rlim_cur = 0;
	CHECK_STATE("core", DL_CK_WARNING);
	CHECK_HAS(line_of("core")->command, "ulimit -c unlimited");
	f.proc.limit[RLIMIT_CORE].rlim_cur = MIB;
	CHECK_HAS(line_of("core")->text, "cut off");
	f.proc.limit[RLIMIT_STACK].rlim_cur = 8 * MIB;
	CHECK_STATE("stack", DL_CK_OK);
	f.proc.limit[RLIMIT_STACK].rlim_cur = 256 * 1024;
	CHECK_STATE("stack", DL_CK_WARNING);
}

/* --- the job ------------------------------------------------------------------------------------ */

TEST(variables)
{
	good_machine();
	set_var("CUDA_LAUNCH_BLOCKING", "0");
	CHECK_STATE("variables", DL_CK_OK);
	set_var("NCCL_DEBUG", "INFO");
	CHECK_STATE("variables", DL_CK_OK);
	set_var("OMP_WAIT_POLICY", "active");
	CHECK_STATE("variables", DL_CK_WARNING);
	set_var("PYTORCH_NO_CUDA_MEMORY_CACHING", "1");
	CHECK_STATE("variables", DL_CK_PROBLEM);
	CHECK_STR(line_of("variables")->command, "unset PYTORCH_NO_CUDA_MEMORY_CACHING\nunset OMP_WAIT_POLICY");
}

TEST(how_a_command_ended)
{
	good_machine();
	run_job(2);
	f.target = DL_CK_CMD;
	CHECK_STATE("run", DL_CK_OK);
	f.seen.ended = true;
	CHECK_STATE("run", DL_CK_OK);
	f.seen.status = 7;
	CHECK_STATE("run", DL_CK_PROBLEM);
	CHECK_HAS(line_of("run")->text, "signal 7");
	f.seen.status = 3 << 8;
	CHECK_HAS(line_of("run")->text, "exit code 3");
	f.seen.trainer_of_target = 99;
	f.seen.status = 0;
	CHECK_STATE("run", DL_CK_WARNING);
	CHECK_HAS(line_of("run")->command, "-p 99");
	f.seen = (struct dl_ck_seen){ .why = "the descriptors of its processes may not be read" };
	CHECK_STATE("run", DL_CK_UNKNOWN);
}

/* --- data, GPUs, surroundings ------------------------------------------------------------------- */

TEST(data)
{
	good_machine();
	f.data = (struct dl_ck_data){ .asked = true, .path = "/data", .fs = "nfs4", .source = "server:/export",
				      .class = DL_CK_FS_NETWORK, .read_bytes = 400 * MIB, .read_ns = 1000000000, .file_cnt = 4,
				      .direct = true };
	CHECK_STATE("data-file-system", DL_CK_WARNING);
	CHECK_HAS(line_of("data-file-system")->text, "server:/export");
	CHECK_STATE("data-rate", DL_CK_OK);
	CHECK_HAS(line_of("data-rate")->text, "past the page cache");
	f.data.read_bytes = 50 * MIB;
	CHECK_STATE("data-rate", DL_CK_WARNING);
	f.data.read_bytes = 5 * MIB;
	CHECK_STATE("data-rate", DL_CK_PROBLEM);
	/* What came from the page cache says nothing of the disk. */
	f.data.read_bytes = 500 * MIB;
	f.data.direct = false;
	f.data.cached = 0.9;
	CHECK_STATE("data-rate", DL_CK_UNKNOWN);
	CHECK_HAS(line_of("data-rate")->text, "90 %");
	f.data.cached = 0.1;
	CHECK_STATE("data-rate", DL_CK_OK);
	/* Of small files, the time of each. */
	f.data.read_bytes = 20 * MIB;
	f.data.file_cnt = 200;
	CHECK_STATE("data-rate", DL_CK_WARNING);
	CHECK_HAS(line_of("data-rate")->text, "5 ms a file");
	f.data.file_cnt = 400;
	CHECK_STATE("data-rate", DL_CK_OK);
	f.data.read_bytes = 2 * MIB;
	f.data.file_cnt = 20;
	CHECK_STATE("data-rate", DL_CK_PROBLEM);
	f.data.timed_out = true;
	CHECK_STATE("data-file-system", DL_CK_PROBLEM);
	CHECK(!line_of("data-rate"));
}

TEST(data_that_is_not_there)
{
	good_machine();
	f.data = (struct dl_ck_data){ .asked = true, .path = "/nowhere", .why = "No such file or directory" };
	line_of("");
	CHECK_EQ(line_of("data-file-system")->state, DL_CK_PROBLEM);
	f.data.found = true;		/* the job's own, gone since */
	CHECK_STATE("data-file-system", DL_CK_UNKNOWN);
}

TEST(data_on_a_slow_kind_of_disk)
{
	good_machine();
	f.data = (struct dl_ck_data){ .asked = true, .path = "/data", .fs = "ext4", .source = "/dev/sda1",
				      .class = DL_CK_FS_LOCAL };
	CHECK_STATE("data-file-system", DL_CK_OK);
	CHECK_STATE("data-rate", DL_CK_UNKNOWN);
	/* Virtual disks say so too: the time of a read decides. */
	f.data.rotational = true;
	CHECK_STATE("data-file-system", DL_CK_OK);
	f.data.seek_ns = 200000;
	CHECK_STATE("data-file-system", DL_CK_OK);
	f.data.seek_ns = 8000000;
	CHECK_STATE("data-file-system", DL_CK_WARNING);
	CHECK_HAS(line_of("data-file-system")->text, "8.0 ms");
	f.data.class = DL_CK_FS_FUSE;
	CHECK_STATE("data-file-system", DL_CK_WARNING);
	f.data.class = DL_CK_FS_MEMORY;
	CHECK_STATE("data-file-system", DL_CK_OK);
}

static struct dl_ck_gpu *add_gpu(void)
{
	struct dl_ck_gpu *g = &f.gpus.v[f.gpus.cnt++];

	f.gpus.nvml = f.gpus.has_device = true;
	*g = (struct dl_ck_gpu){ .name = "Some GPU", .gen = 4, .gen_max = 4, .width = 16, .width_max = 16, .link_known = true,
				 .sysfs_known = true, .nodes = 2, .near_known = true };
	g->near_cpus[0] = 0xff;
	return g;
}

TEST(gpu_links)
{
	struct dl_ck_gpu *g;

	good_machine();
	add_gpu();
	g = add_gpu();
	CHECK_STATE("gpus", DL_CK_OK);
	CHECK_STATE("gpu-link", DL_CK_OK);
	g->gen = 1;		/* idle, to save power */
	CHECK_STATE("gpu-link", DL_CK_OK);
	g->busy = true;
	CHECK_STATE("gpu-link", DL_CK_WARNING);
	g->width = 4;
	CHECK_STATE("gpu-link", DL_CK_WARNING);
	CHECK_HAS(line_of("gpu-link")->text, "4 of 16 lanes: copies take 4 times as long");
	f.gpus.v[0].link_known = g->link_known = false;
	CHECK_STATE("gpu-link", DL_CK_UNKNOWN);
	f.gpus.nvml = false;
	CHECK_STATE("gpus", DL_CK_WARNING);
}

TEST(gpu_nodes)
{
	struct dl_ck_gpu *g;

	good_machine();
	g = add_gpu();
	CHECK_STATE("gpu-node", DL_CK_UNKNOWN);
	f.cpus.mask[0] = 0x0f;
	CHECK_STATE("gpu-node", DL_CK_OK);
	f.cpus.mask[0] = 0;
	f.cpus.mask[2] = 0x0f;
	CHECK_STATE("gpu-node", DL_CK_WARNING);
	CHECK_HAS(line_of("gpu-node")->command, "numactl --cpunodebind=0");
	g->nodes = 1;
	CHECK_STATE("gpu-node", DL_CK_OK);
}

TEST(log_out)
{
	good_machine();
	f.host = (struct dl_ck_host){ .systemd = true, .logind_known = true, .remove_ipc = true, .user = "ann" };
	CHECK_STATE("log-out", DL_CK_WARNING);
	CHECK_HAS(line_of("log-out")->command, "enable-linger ann");
	run_job(2);
	f.seen.file_system = true;
	CHECK_STATE("log-out", DL_CK_PROBLEM);
	f.host.linger = true;
	CHECK_STATE("log-out", DL_CK_OK);
	f.host.linger = false;
	f.proc.uid = 0;
	CHECK_STATE("log-out", DL_CK_OK);
	f.proc.uid = 1000;
	f.host.remove_ipc = false;
	CHECK_STATE("log-out", DL_CK_OK);
	f.host.kill_user = true;
	CHECK_STATE("log-out", DL_CK_PROBLEM);
	/* A container with a /dev/shm of its own has nothing to do with it. */
	f.place = DL_CK_CONTAINER;
	CHECK(!line_of("log-out"));
}

TEST(guards_and_schedulers)
{
	good_machine();
	run_job(8);
	f.host.oomd = true;
	CHECK_STATE("oom-daemon", DL_CK_WARNING);
	CHECK(!line_of("scheduler"));
	f.slurm = true;
	set_var("SLURM_JOB_ID", "99");
	CHECK_STATE("scheduler", DL_CK_WARNING);	/* one CPU a task, unless asked for more */
	CHECK_HAS(line_of("scheduler")->command, "--cpus-per-task=9");
	set_var("SLURM_CPUS_PER_TASK", "16");
	CHECK_STATE("scheduler", DL_CK_OK);
}

TEST(dlbpf_itself)
{
	good_machine();
	CHECK_STATE("trace", DL_CK_OK);
	CHECK_STATE("kernel", DL_CK_OK);
	f.self.missing_cnt = 1;
	snprintf(f.self.missing, sizeof(f.self.missing), "this kernel has no uprobes");
	CHECK_STATE("kernel", DL_CK_WARNING);
	f.self.trace_ok = false;
	snprintf(f.self.trace_why, sizeof(f.self.trace_why), "this kernel has no type information");
	line_of("");
	CHECK_EQ(line_of("trace")->state, DL_CK_PROBLEM);
	CHECK(!line_of("kernel"));
	f.self.trace_known = false;
	CHECK_STATE("trace", DL_CK_UNKNOWN);
	/* Started without the collector, and there is a GPU. */
	run_job(2);
	add_gpu();
	CHECK_STATE("collector", DL_CK_WARNING);
	set_var("CUDA_INJECTION64_PATH", "/opt/libdlbpf_cupti.so");
	CHECK_STATE("collector", DL_CK_OK);
	f.self.collector = false;
	CHECK_STATE("collector", DL_CK_PROBLEM);
}

TEST(nothing_is_known)
{
	good_machine();
	dl_ck_facts_fini(&f);
	f = (struct dl_ck_facts){ .target = DL_CK_PID };
	line_of("");
	vec_for_each(&check->lines, it)
		CHECK_MSG(it->state != DL_CK_PROBLEM || !strcmp(it->id, "collector"), "%s is made of nothing: %s", it->id,
			  it->text);
	CHECK(check->cnt[DL_CK_UNKNOWN] > 10);
	good_machine();
}
