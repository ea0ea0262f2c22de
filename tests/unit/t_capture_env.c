/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Samples of this machine and this process against what the C library says, and the tree of
 * processes. */
#include "unit/test.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>

#include "base/cleanup.h"
#include "capture/env.h"
#include "capture/proc.h"
#include "capture/tree.h"

struct kept {
	struct dl_sink sink;
	struct dl_ev_env_host host;
	struct dl_ev_env_proc proc;
	struct dl_ev_env_shm shm;
	struct dl_ev_mem mem;
	struct dl_ev_proc_limits limits;
	struct dl_ev_task task;		/* the last */
	int tasks, names, cmdlines, limits_cnt, others;
};

static int keep(struct dl_sink *sink, const struct dl_hdr *ev)
{
	struct kept *k = (struct kept *)sink;

	switch (ev->kind) {
	case DL_EV_ENV_HOST:
		k->host = *(const struct dl_ev_env_host *)ev;
		break;
	case DL_EV_ENV_PROC:
		k->proc = *(const struct dl_ev_env_proc *)ev;
		break;
	case DL_EV_ENV_SHM:
		k->shm = *(const struct dl_ev_env_shm *)ev;
		break;
	case DL_EV_MEM:
		k->mem = *(const struct dl_ev_mem *)ev;
		break;
	case DL_EV_PROC_LIMITS:
		k->limits = *(const struct dl_ev_proc_limits *)ev;
		k->limits_cnt++;
		break;
	case DL_EV_TASK:
		k->task = *(const struct dl_ev_task *)ev;
		k->tasks++;
		break;
	case DL_EV_NAME:
		k->names++;
		break;
	case DL_EV_CMDLINE:
		k->cmdlines++;
		break;
	default:
		k->others++;
	}
	return 0;
}

TEST(machine)
{
	struct kept k = { .sink.emit = keep };
	struct dl_env_host h;
	struct sysinfo si;

	CHECK_OK(sysinfo(&si));
	dl_env_host_open(&h);
	CHECK_OK(dl_env_host_emit(&h, &k.sink, 9));
	dl_env_host_close(&h);
	CHECK_EQ(k.host.h.ts, 9);
	CHECK_EQ(k.host.h.pid, 0);
	CHECK_EQ(k.host.mem_total, (uint64_t)si.totalram * si.mem_unit);
	CHECK(k.host.mem_avail > 0 && k.host.mem_avail <= k.host.mem_total);
	CHECK_EQ(k.host.swap_total, (uint64_t)si.totalswap * si.mem_unit);
	CHECK_EQ(k.host.cpus, sysconf(_SC_NPROCESSORS_ONLN));
	CHECK(k.host.idle_ns > 0);
	CHECK(k.host.threads >= si.procs / 2 && k.host.threads < k.host.threads_limit);
	CHECK(k.host.files > 3 && k.host.files < k.host.files_limit);
	CHECK(k.host.committed > 0 && (!k.host.commit_limit || k.host.commit_limit > 1 << 20));
	/* A second sample of closed files says nothing, and does not fail. */
	CHECK_OK(dl_env_host_emit(&h, &k.sink, 10));
	CHECK_EQ(k.host.mem_total, 0);
}

TEST(process)
{
	_cleanup_close_ int fd = dl_proc_open((uint32_t)getpid());
	struct kept k = { .sink.emit = keep };
	struct dl_env_proc p = {};
	const size_t sz = 32 << 20;
	uint64_t fds, maps, limit = dl_env_maps_limit();
	struct rlimit nofile;
	char *mem;
	int more[8];

	CHECK(limit > 1000);
	CHECK_OK(getrlimit(RLIMIT_NOFILE, &nofile));
	CHECK_OK(dl_env_proc_emit(&p, &k.sink, 1, (uint32_t)getpid(), fd, limit, true));
	CHECK_EQ(k.proc.fds_limit, nofile.rlim_cur);
	CHECK_EQ(k.proc.threads, 1);
	CHECK_EQ(k.proc.maps_limit, limit);
	fds = k.proc.fds;
	maps = k.proc.maps;
	CHECK(fds >= 4 && maps > 10);
	for (int i = 0; i < 8; i++)
		more[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
	mem = mmap(NULL, sz, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(mem != MAP_FAILED);
	memset(mem, 1, sz);
	CHECK_OK(dl_env_proc_emit(&p, &k.sink, 2, (uint32_t)getpid(), fd, limit, true));
	CHECK_EQ(k.proc.fds, fds + 8);
	CHECK(k.proc.maps > maps);
	CHECK(k.mem.shmem >= sz);
	/* The count of mappings is repeated until it is due again. */
	maps = k.proc.maps;
	munmap(mem, sz);
	CHECK_OK(dl_env_proc_emit(&p, &k.sink, 3, (uint32_t)getpid(), fd, limit, false));
	CHECK_EQ(k.proc.maps, maps);
	CHECK_OK(dl_env_proc_emit(&p, &k.sink, 3 + DL_MAPS_MAX_NS, (uint32_t)getpid(), fd, limit, false));
	CHECK_EQ(k.proc.maps, maps - 1);
	for (int i = 0; i < 8; i++)
		close(more[i]);
}

/* To count mappings is dear: rarely while there are few of many, sooner where the limit is not far. */
TEST(mappings_are_counted_when_it_matters)
{
	_cleanup_close_ int fd = dl_proc_open((uint32_t)getpid());
	const uint64_t first = 1, soon = first + DL_MAPS_MIN_NS, late = first + DL_MAPS_FAR_NS;

	for (int near = 0; near < 2; near++) {
		struct kept k = { .sink.emit = keep };
		struct dl_env_proc p = {};
		uint64_t maps, limit = 1 << 20;
		char *mem;

		CHECK_OK(dl_env_proc_emit(&p, &k.sink, 0, (uint32_t)getpid(), fd, limit, true));
		limit = near ? k.proc.maps * 10 : limit;
		p = (struct dl_env_proc){};
		CHECK_OK(dl_env_proc_emit(&p, &k.sink, first, (uint32_t)getpid(), fd, limit, true));
		maps = k.proc.maps;
		mem = mmap(NULL, 1 << 20, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		CHECK(mem != MAP_FAILED);
		CHECK_OK(dl_env_proc_emit(&p, &k.sink, soon, (uint32_t)getpid(), fd, limit, false));
		CHECK_EQ(k.proc.maps, near ? maps + 1 : maps);
		CHECK_OK(dl_env_proc_emit(&p, &k.sink, late, (uint32_t)getpid(), fd, limit, false));
		CHECK_EQ(k.proc.maps, maps + 1);
		munmap(mem, 1 << 20);
	}
}

/* What ended has neither memory nor descriptors left; a sample that says 0 would be believed. */
TEST(process_that_has_ended)
{
	struct kept k = { .sink.emit = keep };
	struct dl_env_proc p = {};
	pid_t pid = fork();
	siginfo_t si;
	int fd;

	if (!pid)
		_exit(0);
	fd = dl_proc_open((uint32_t)pid);
	CHECK(fd >= 0);
	CHECK_OK(waitid(P_PID, (id_t)pid, &si, WEXITED | WNOWAIT));
	CHECK_EQ(dl_env_proc_emit(&p, &k.sink, 1, (uint32_t)pid, fd, 1, true), -ESRCH);
	CHECK_EQ(k.proc.h.kind, 0);
	CHECK_EQ(k.mem.h.kind, 0);
	CHECK_EQ(waitpid(pid, NULL, 0), pid);
	CHECK_OK(dl_env_limits_emit(&p, &k.sink, 1, (uint32_t)pid, fd));
	CHECK_EQ(k.limits_cnt, 0);
	close(fd);
}

TEST(limits_are_told_once_and_when_they_change)
{
	const uint32_t pid = (uint32_t)getpid();
	_cleanup_close_ int fd = dl_proc_open(pid);
	struct kept k = { .sink.emit = keep };
	struct rlimit nofile, core, stack;
	struct dl_env_proc p = {};

	CHECK_OK(getrlimit(RLIMIT_NOFILE, &nofile));
	CHECK_OK(getrlimit(RLIMIT_CORE, &core));
	CHECK_OK(getrlimit(RLIMIT_STACK, &stack));
	for (int i = 0; i < 2; i++)
		CHECK_OK(dl_env_limits_emit(&p, &k.sink, 7, pid, fd));
	CHECK_EQ(k.limits_cnt, 1);
	CHECK_EQ(k.limits.h.pid, pid);
	CHECK_EQ(k.limits.nofile, nofile.rlim_cur);
	CHECK_EQ(k.limits.nofile_hard, nofile.rlim_max);
	CHECK_EQ(k.limits.core, core.rlim_cur);
	CHECK_EQ(k.limits.stack, stack.rlim_cur);
	core.rlim_cur = core.rlim_cur ? 0 : 4096;
	if (core.rlim_cur > core.rlim_max)
		SKIP("the core limit cannot be changed");
	CHECK_OK(setrlimit(RLIMIT_CORE, &core));
	CHECK_OK(dl_env_limits_emit(&p, &k.sink, 8, pid, fd));
	CHECK_EQ(k.limits_cnt, 2);
	CHECK_EQ(k.limits.core, core.rlim_cur);
}

TEST(shared_memory)
{
	_cleanup_close_ int fd = dl_proc_open((uint32_t)getpid());
	struct dl_env_shm s = DL_ENV_SHM_NONE;
	struct kept k = { .sink.emit = keep };
	struct dl_ev_env_shm was;
	struct statvfs fs;
	struct stat st;
	char path[64];
	int file;

	if (statvfs("/dev/shm", &fs))
		SKIP("no /dev/shm");
	CHECK_OK(dl_env_shm_open(&s, fd));
	CHECK_OK(dl_env_shm_emit(&s, &k.sink, 1, 2, fd));
	CHECK_EQ(k.shm.total, (uint64_t)fs.f_blocks * fs.f_frsize);
	CHECK_EQ(k.shm.inodes_total, fs.f_files);
	CHECK_OK(stat("/dev/shm", &st));
	CHECK_EQ(k.shm.file_dev, dl_dev(st.st_dev));
	was = k.shm;
	snprintf(path, sizeof(path), "/dev/shm/torch_%d_test", getpid());
	file = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
	CHECK(file >= 0);
	CHECK_OK(ftruncate(file, 12345));
	CHECK_OK(dl_env_shm_emit(&s, &k.sink, 1, 2, -1));
	CHECK_EQ(k.shm.torch_cnt, was.torch_cnt + 1);
	CHECK_EQ(k.shm.torch_bytes, was.torch_bytes + 12345);
	/* Its size alone takes no room; a byte takes a page. */
	CHECK_EQ(k.shm.torch_hollow_cnt, was.torch_hollow_cnt + 1);
	CHECK_EQ(k.shm.torch_blocks, was.torch_blocks);
	CHECK(k.shm.torch_largest >= 12345);
	CHECK_OK(ftruncate(file, 1LL << 40));
	CHECK_EQ(pwrite(file, "x", 1, 0), 1);
	CHECK_OK(dl_env_shm_emit(&s, &k.sink, 1, 2, -1));
	close(file);
	CHECK_OK(unlink(path));
	dl_env_shm_close(&s);
	CHECK_EQ(k.shm.torch_hollow_cnt, was.torch_hollow_cnt);
	CHECK_EQ(k.shm.torch_blocks, was.torch_blocks + (uint64_t)sysconf(_SC_PAGESIZE));
	CHECK_EQ(k.shm.torch_largest, 1LL << 40);
}

/* A link in the target's root must not lead out of it. */
TEST(links_stay_in_the_root)
{
	const char *root = test_path("root");
	char path[600];
	int dir, fd;

	CHECK_OK(mkdir(root, 0700));
	snprintf(path, sizeof(path), "%s/dev", root);
	CHECK_OK(mkdir(path, 0700));
	snprintf(path, sizeof(path), "%s/run", root);
	CHECK_OK(mkdir(path, 0700));
	snprintf(path, sizeof(path), "%s/dev/shm", root);
	CHECK_OK(symlink("/run", path));
	dir = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	fd = dl_open_in_root(dir, "dev/shm", O_PATH | O_DIRECTORY);
	if (fd == -ENOSYS)
		SKIP("no openat2 (before Linux 5.6)");
	CHECK(fd >= 0);
	{
		struct stat got, want;
		char in[600];

		snprintf(in, sizeof(in), "%s/run", root);
		CHECK_OK(fstat(fd, &got));
		CHECK_OK(stat(in, &want));
		CHECK_EQ(got.st_ino, want.st_ino);
	}
	close(fd);
	CHECK(dl_open_in_root(dir, "../../../../../../etc", O_PATH | O_DIRECTORY) < 0);
	close(dir);
}

/* --- the tree ----------------------------------------------------------------------------------- */

static void on_signal(int sig)
{
	_exit(sig);
}

/* A child that handles what PyTorch's workers handle, or not all of it. */
static pid_t child(bool all, int *ret_hold)
{
	int hold[2], ready[2];
	pid_t pid;
	char c;

	CHECK_OK(pipe(hold));
	CHECK_OK(pipe(ready));
	pid = fork();
	if (!pid) {
		close(hold[1]);
		signal(SIGBUS, on_signal);
		signal(SIGSEGV, on_signal);
		signal(SIGFPE, on_signal);
		signal(SIGTERM, all ? on_signal : SIG_DFL);
		prctl(PR_SET_NAME, "a worker");
		(void)!write(ready[1], "x", 1);
		(void)!read(hold[0], &c, 1);
		_exit(0);
	}
	CHECK_EQ(read(ready[0], &c, 1), 1);
	close(ready[0]);
	close(ready[1]);
	close(hold[0]);
	*ret_hold = hold[1];
	return pid;
}

TEST(workers_are_known_by_their_handlers)
{
	struct kept k = { .sink.emit = keep };
	struct dl_tree t = {};
	struct dl_tree_proc *p;
	int hold[2];
	pid_t pids[2];

	pids[0] = child(true, &hold[0]);
	pids[1] = child(false, &hold[1]);
	for (int i = 0; i < 2; i++) {
		p = dl_tree_add(&t, (uint32_t)pids[i], (uint32_t)getpid());
		CHECK(p && p == dl_tree_add(&t, (uint32_t)pids[i], 1));
		CHECK_OK(dl_tree_snapshot(&t, p, &k.sink, 5, DL_TF_LATE));
		CHECK_EQ(p->worker, i == 0);
		CHECK_EQ(k.task.h.pid, pids[i]);
		CHECK_EQ(k.task.ppid, getpid());
		CHECK_EQ(k.task.flags, DL_TF_LATE);
		CHECK_STR(k.task.comm.s, "a worker");
		CHECK(k.task.state == 'S' || k.task.state == 'R');
	}
	CHECK_EQ(k.tasks, 2);
	CHECK_EQ(k.names, 2);
	CHECK_EQ(k.cmdlines, 2);
	CHECK_EQ(t.workers, 1);
	kill(pids[0], SIGKILL);
	close(hold[0]);
	CHECK_EQ(waitpid(pids[0], NULL, 0), pids[0]);
	/* The first is gone, and the second, which moves into its place, is found. */
	CHECK_EQ(dl_tree_snapshot(&t, dl_tree_find(&t, (uint32_t)pids[0]), &k.sink, 6, 0), -ESRCH);
	dl_tree_remove(&t, (uint32_t)pids[0]);
	CHECK_EQ(t.workers, 0);
	CHECK_EQ(t.workers_seen, 1);
	CHECK(!dl_tree_find(&t, (uint32_t)pids[0]));
	p = dl_tree_find(&t, (uint32_t)pids[1]);
	CHECK(p && p->pid == (uint32_t)pids[1]);
	CHECK(!dl_tree_add(&t, (uint32_t)pids[0], 1));
	kill(pids[1], SIGKILL);
	close(hold[1]);
	CHECK_EQ(waitpid(pids[1], NULL, 0), pids[1]);
	dl_tree_remove(&t, (uint32_t)pids[1]);
	CHECK_EQ(t.procs.cnt, 0);
	dl_tree_fini(&t);
}

TEST(looks_come_when_they_are_due)
{
	struct dl_tree t = {};
	struct dl_look look;

	dl_tree_look_later(&t, 1, 0, 1000);
	dl_tree_look_later(&t, 2, 7, 2000);
	CHECK(!dl_tree_next_look(&t, 300000999, &look));
	CHECK(dl_tree_next_look(&t, 300001000, &look));
	CHECK_EQ(look.pid, 1);
	CHECK(!dl_tree_next_look(&t, 300001000, &look));
	CHECK(dl_tree_next_look(&t, 300002000, &look));
	CHECK_EQ(look.pid, 2);
	CHECK_EQ(look.tid, 7);
	CHECK(!dl_tree_next_look(&t, 1999000000, &look));
	CHECK(dl_tree_next_look(&t, 2000001000, &look));
	CHECK_EQ(look.pid, 1);
	CHECK(dl_tree_next_look(&t, 2000002000, &look));
	CHECK(!dl_tree_next_look(&t, UINT64_MAX, &look));
	dl_tree_fini(&t);
}

/* A loader that starts a process for every sample: memory stays bounded and what is left out is
 * counted. */
TEST(very_many_looks)
{
	struct dl_tree t = {};
	struct dl_look look;
	uint64_t got = 0, now = 0;

	for (uint32_t i = 0; i < 100000; i++) {
		now = i * 100000ULL;	/* 10,000 a second */
		dl_tree_look_later(&t, i + 1, 0, now);
		while (dl_tree_next_look(&t, now, &look))
			got++;
	}
	while (dl_tree_next_look(&t, UINT64_MAX, &look))
		got++;
	CHECK_EQ(got + t.not_followed, 200000);
	CHECK(t.not_followed > 0 && got > 100000);
	CHECK(t.looks[0].cap <= 1 << 16 && t.looks[1].cap <= 1 << 16);
	dl_tree_fini(&t);
}
