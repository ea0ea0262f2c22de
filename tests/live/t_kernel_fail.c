/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* System calls that fail for want of something: each want made for real, and what is no want. */
#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "kernel_test.h"

#define MIB (1024 * 1024LL)
#define TMPFS_MAGIC 0x01021994

static void nap_ms(long ms)
{
	struct timespec ts = { ms / 1000, ms % 1000 * 1000000 };

	while (nanosleep(&ts, &ts) && errno == EINTR)
		;
}

static void limit_to(int which, rlim_t soft)
{
	struct rlimit rl;

	if (getrlimit(which, &rl))
		_exit(90);
	rl.rlim_cur = soft;
	if (setrlimit(which, &rl))
		_exit(91);
}

/* A /dev/shm of its own, which ends with the process. */
static void small_shm(const char *options)
{
	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("tmpfs", "/dev/shm", "tmpfs", 0, options))
		_exit(92);
}

/* The failures of one system call, and how many of them. */
static const struct dl_ev_syscall_fail *failed(int nr, int err, int *ret_cnt)
{
	const struct dl_ev_syscall_fail *first = NULL;
	int cnt = 0;

	EACH(&h, SYSCALL_FAIL, syscall_fail, e) {
		if (e->syscall != nr || e->err != err)
			continue;
		first = first ? first : e;
		cnt++;
	}
	if (ret_cnt)
		*ret_cnt = cnt;
	return first;
}

static const char *text_of(const struct dl_ev_syscall_fail *e)
{
	return harness_text(&e->h, sizeof(*e));
}

/* --- room --------------------------------------------------------------------------------------- */

static void fill_shm(struct truth *t, void *arg)
{
	static char buf[64 * 1024];
	int fd;

	(void)arg;
	small_shm("size=1m,nr_inodes=3");
	fd = open("/dev/shm/torch_1_2_3", O_RDWR | O_CREAT | O_EXCL, 0600);
	if (fd < 0 || ftruncate(fd, 4 * MIB))
		_exit(1);
	t->v[0] = fallocate(fd, 0, 0, 4 * MIB) ? errno : 0;
	for (int i = 0; i < 32 && write(fd, buf, sizeof(buf)) == sizeof(buf); i++)
		t->v[1]++;
	t->v[2] = errno;
	/* the root directory, the file above, and one more */
	if (open("/dev/shm/psm_2", O_RDWR | O_CREAT, 0600) < 0)
		_exit(2);
	t->v[3] = open("/dev/shm/psm_3", O_RDWR | O_CREAT, 0600) < 0 ? errno : 0;
	t->v[4] = gettid();
}

TEST(no_room_in_shm)
{
	const struct dl_ev_syscall_fail *e;

	need_kernel();
	CHECK_EQ(harness_run(&h, fill_shm, NULL), 0);
	CHECK_EQ(h.truth->v[0], ENOSPC);
	CHECK_EQ(h.truth->v[1], 16);
	CHECK_EQ(h.truth->v[2], ENOSPC);
	CHECK_EQ(h.truth->v[3], ENOSPC);
	e = failed(SYS_fallocate, ENOSPC, NULL);
	CHECK(e);
	CHECK_EQ(e->h.tid, h.truth->v[4]);
	CHECK_EQ(e->h.flags & DL_HDR_FOREIGN, 0);
	CHECK_EQ(e->bytes, 4 * MIB);
	CHECK_EQ(e->of, DL_LIMIT_FS);
	CHECK_EQ(e->limit, MIB);
	CHECK_EQ(e->file_kind, DL_FILE_REG);
	CHECK_EQ(e->file_magic, TMPFS_MAGIC);
	CHECK(e->file_ino && e->file_dev);
	CHECK_EQ(e->flags, DL_SF_NAME | DL_SF_SHM);
	CHECK_STR(text_of(e), "torch_1_2_3");
	e = failed(SYS_write, ENOSPC, NULL);
	CHECK(e);
	CHECK_EQ(e->bytes, 64 * 1024);
	CHECK_EQ(e->limit, MIB);
	CHECK(e->used > MIB - 512 * 1024);	/* the counter lags */
	e = failed(SYS_openat, ENOSPC, NULL);
	CHECK(e);
	CHECK_EQ(e->of, DL_LIMIT_INODES);
	CHECK_EQ(e->flags, DL_SF_SHM);
	CHECK_STR(text_of(e), "/dev/shm/psm_3");
}

static void write_much(struct truth *t, void *arg)
{
	int fd = memfd_create("torch", 0);

	(void)arg;
	signal(SIGXFSZ, SIG_IGN);
	limit_to(RLIMIT_FSIZE, 4096);
	t->v[0] = ftruncate(fd, 8192) ? errno : 0;
}

TEST(file_size_limit)
{
	const struct dl_ev_syscall_fail *e;

	need_kernel();
	CHECK_EQ(harness_run(&h, write_much, NULL), 0);
	CHECK_EQ(h.truth->v[0], EFBIG);
	e = failed(SYS_ftruncate, EFBIG, NULL);
	CHECK(e);
	CHECK_EQ(e->bytes, 8192);
	CHECK_EQ(e->of, DL_LIMIT_FSIZE);
	CHECK_EQ(e->limit, 4096);
}

/* --- descriptors ------------------------------------------------------------------------------------ */

/* More than the test program has open itself; no multiple of 64: the last word of the table is not whole. */
enum { FDS = 326, FAILURES = 300 };

static void open_many(struct truth *t, void *arg)
{
	int err = 0;

	(void)arg;
	limit_to(RLIMIT_NOFILE, FDS);
	while (open("/dev/null", O_RDONLY) >= 0)
		;
	t->v[0] = errno;
	for (int i = 1; i < FAILURES; i++)
		err |= open("/dev/null", O_RDONLY) >= 0;
	nap_ms(1200);	/* longer than what is counted together */
	err |= open("/dev/zero", O_RDONLY) >= 0;
	t->v[1] = err;
}

TEST(no_descriptors)
{
	const struct dl_ev_syscall_fail *e;

	need_kernel();
	CHECK_EQ(harness_run(&h, open_many, NULL), 0);
	CHECK_EQ(h.truth->v[0], EMFILE);
	CHECK_EQ(h.truth->v[1], 0);
	e = failed(SYS_openat, EMFILE, NULL);
	CHECK(e);
	CHECK_EQ(e->skipped, 0);
	CHECK_EQ(e->of, DL_LIMIT_FDS);
	CHECK_EQ(e->used, FDS);
	CHECK_EQ(e->limit, FDS);
	CHECK_STR(text_of(e), "/dev/null");
}

/* The loop of the test before: nothing is lost, but few of its failures are events. */
TEST(at_most_some_a_second)
{
	uint64_t skipped = 0, first = 0, last = 0;
	int cnt = 0;

	need_kernel();
	CHECK_EQ(harness_run(&h, open_many, NULL), 0);
	EACH(&h, SYSCALL_FAIL, syscall_fail, e) {
		if (e->syscall != SYS_openat || e->err != EMFILE)
			continue;
		first = first ? first : e->h.ts;
		last = e->h.ts;
		skipped += e->skipped;
		cnt++;
	}
	CHECK_EQ((uint64_t)cnt + skipped, FAILURES + 1);
	CHECK((uint64_t)cnt <= 4 * ((last - first) / 1000000000 + 1) + 1);
	CHECK(cnt >= 5);
}

static void inotify_groups(struct truth *t, void *arg)
{
	(void)arg;
	for (int i = 0; i < 100000; i++) {
		if (syscall(SYS_inotify_init1, 0) < 0)
			break;
	}
	t->v[0] = errno;
	t->v[1] = open("/dev/null", O_RDONLY);
}

/* The same error for want of something else. */
TEST(not_every_emfile_is_descriptors)
{
	const struct dl_ev_syscall_fail *e;

	need_kernel();
	CHECK_EQ(harness_run(&h, inotify_groups, NULL), 0);
	if (h.truth->v[0] != EMFILE || h.truth->v[1] < 0)
		SKIP("descriptors run out before inotify's instances do");
	e = failed(SYS_inotify_init1, EMFILE, NULL);
	CHECK(e);
	CHECK_EQ(e->of, DL_LIMIT_NONE);
}

static int send_fd(int sock, int fd)
{
	char buf[CMSG_SPACE(sizeof(int))] = {}, byte = 'x';
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = buf, .msg_controllen = sizeof(buf) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	return sendmsg(sock, &msg, 0) == 1 ? 0 : -1;
}

static int receive(int sock, size_t control)
{
	char buf[CMSG_SPACE(sizeof(int))], byte;
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = buf, .msg_controllen = control };

	if (recvmsg(sock, &msg, 0) != 1)
		_exit(3);
	return msg.msg_flags & MSG_CTRUNC;
}

static void receive_fds(struct truth *t, void *arg)
{
	const size_t whole = CMSG_SPACE(sizeof(int));
	int s[2];

	(void)arg;
	limit_to(RLIMIT_NOFILE, FDS);
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, s) || send_fd(s[0], 1) || send_fd(s[0], 1) || send_fd(s[0], 1))
		_exit(1);
	t->v[0] = receive(s[1], whole);		/* all is well */
	t->v[1] = receive(s[1], 0);		/* no buffer for it */
	while (open("/dev/null", O_RDONLY) >= 0)
		;
	t->v[2] = receive(s[1], whole);		/* no room for it */
	t->v[3] = s[1];
}

TEST(descriptors_dropped_on_the_way)
{
	int cnt = 0;

	need_kernel();
	CHECK_EQ(harness_run(&h, receive_fds, NULL), 0);
	CHECK_EQ(h.truth->v[0], 0);
	CHECK_EQ(h.truth->v[1], MSG_CTRUNC);
	CHECK_EQ(h.truth->v[2], MSG_CTRUNC);
	EACH(&h, SYSCALL_FAIL, syscall_fail, e) {
		if (e->syscall != SYS_recvmsg)
			continue;
		CHECK_EQ(e->err, 0);
		CHECK_EQ(e->flags, DL_SF_CTRUNC);
		CHECK_EQ(e->arg0, h.truth->v[3]);
		CHECK_EQ(e->file_kind, DL_FILE_UNIX);
		CHECK_EQ(e->of, cnt ? DL_LIMIT_FDS : DL_LIMIT_NONE);
		CHECK_EQ(e->limit, cnt ? FDS : 0);
		cnt++;
	}
	CHECK_EQ(cnt, 2);
}

/* --- memory --------------------------------------------------------------------------------------------- */

static void map_too_much(struct truth *t, void *arg)
{
	unsigned char vec;
	void *p;

	(void)arg;
	limit_to(RLIMIT_AS, 512 * MIB);
	p = mmap(NULL, 1024 * MIB, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	t->v[0] = p == MAP_FAILED ? errno : 0;
	/* An address where nothing is: an answer, no failure. */
	p = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	munmap(p, 4096);
	t->v[1] = syscall(SYS_mincore, p, 4096, &vec) ? errno : 0;
}

TEST(no_address_space)
{
	const struct dl_ev_syscall_fail *e;
	int cnt;

	need_kernel();
	CHECK_EQ(harness_run(&h, map_too_much, NULL), 0);
	CHECK_EQ(h.truth->v[0], ENOMEM);
	CHECK_EQ(h.truth->v[1], ENOMEM);
	e = failed(SYS_mmap, ENOMEM, &cnt);
	CHECK_EQ(cnt, 1);
	CHECK_EQ(e->bytes, 1024 * MIB);
	CHECK_EQ(e->of, DL_LIMIT_AS);
	CHECK_EQ(e->limit, 512 * MIB);
	CHECK(e->used > 0 && e->used < 512 * MIB);
	failed(SYS_mincore, ENOMEM, &cnt);
	CHECK_EQ(cnt, 0);
}

static int64_t max_maps(void)
{
	FILE *f = fopen("/proc/sys/vm/max_map_count", "re");
	long long max = 0;

	if (!f || fscanf(f, "%lld", &max) != 1)
		max = 0;
	if (f)
		fclose(f);
	return max;
}

static void map_too_often(struct truth *t, void *arg)
{
	(void)arg;
	for (int i = 0; i < 1 << 20; i++) {
		void *p = mmap(NULL, 4096, i & 1 ? PROT_READ : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (p == MAP_FAILED)
			break;
	}
	t->v[0] = errno;
}

TEST(no_mappings)
{
	const int64_t max = max_maps();
	const struct dl_ev_syscall_fail *e;

	need_kernel();
	if (max <= 0 || max > 300000)
		SKIP("vm.max_map_count is %lld: that would take long", (long long)max);
	CHECK_EQ(harness_run(&h, map_too_often, NULL), 0);
	CHECK_EQ(h.truth->v[0], ENOMEM);
	e = failed(SYS_mmap, ENOMEM, NULL);
	CHECK(e);
	CHECK_EQ(e->of, DL_LIMIT_MAPS);
	CHECK_EQ(e->limit, max);
	CHECK(e->used >= (uint64_t)max && e->used < (uint64_t)max + 16);
}

/* --- processes and threads -------------------------------------------------------------------------------- */

static void *idle(void *arg)
{
	return arg;
}

/* As a user of its own, of whom there is one thread. */
static void fork_as_user(struct truth *t, void *arg)
{
	pthread_t thread;
	pid_t pid;

	(void)arg;
	limit_to(RLIMIT_NPROC, 1);
	if (setgroups(0, NULL) || setresgid(54321, 54321, 54321) || setresuid(54321, 54321, 54321))
		_exit(1);
	pid = fork();
	if (!pid)
		_exit(0);
	t->v[0] = pid < 0 ? errno : 0;
	t->v[1] = pthread_create(&thread, NULL, idle, NULL);
}

static void check_fork_and_thread(unsigned int of, uint64_t limit, const char *text)
{
	int forks = 0, threads = 0;

	EACH(&h, SYSCALL_FAIL, syscall_fail, e) {
		if (e->err != EAGAIN)
			continue;
		forks += (e->flags & DL_SF_FORK) != 0;
		threads += (e->flags & DL_SF_THREAD) != 0;
		CHECK_EQ(e->of, of);
		CHECK_EQ(e->limit, limit);
		CHECK_EQ(e->used, limit);
		CHECK_STR(text_of(e), text);
	}
	CHECK_EQ(forks, 1);
	CHECK_EQ(threads, 1);
}

TEST(no_process_for_the_user)
{
	need_kernel();
	CHECK_EQ(harness_run(&h, fork_as_user, NULL), 0);
	CHECK_EQ(h.truth->v[0], EAGAIN);
	CHECK_EQ(h.truth->v[1], EAGAIN);
	check_fork_and_thread(DL_LIMIT_NPROC, 1, "");
}

static void fork_in_group(struct truth *t, void *arg)
{
	pthread_t thread;
	pid_t pid;

	if (!cgroup_enter(arg))
		_exit(1);
	pid = fork();
	if (!pid)
		_exit(0);
	t->v[0] = pid < 0 ? errno : 0;
	t->v[1] = pthread_create(&thread, NULL, idle, NULL);
}

TEST(no_process_in_the_cgroup)
{
	struct cgroup g;
	int status = -1;

	need_kernel();
	if (!cgroup_make(&g, "pids", "dlbpf-test-pids"))
		SKIP("no pids controller");
	if (cgroup_set(&g, "pids.max", "1", "pids.max", "1"))
		status = harness_run(&h, fork_in_group, &g);
	cgroup_remove(&g);
	CHECK_EQ(status, 0);
	CHECK_EQ(h.truth->v[0], EAGAIN);
	CHECK_EQ(h.truth->v[1], EAGAIN);
	check_fork_and_thread(DL_LIMIT_PIDS, 1, "dlbpf-test-pids");
}

/* --- what is no want ------------------------------------------------------------------------------------------ */

static void everyday(struct truth *t, void *arg)
{
	int p[2], err = 0;
	char c;

	(void)arg;
	err |= open("/nowhere/at_all", O_RDONLY) >= 0;
	err |= open("/dev/shm/other", O_RDONLY) >= 0;
	err |= pipe2(p, O_NONBLOCK) != 0;
	err |= read(p[0], &c, 1) >= 0 || errno != EAGAIN;
	err |= getpeername(socket(AF_INET, SOCK_STREAM, 0), &(struct sockaddr){ 0 }, &(socklen_t){ 16 }) == 0 ||
	       errno != ENOTCONN;
	t->v[0] = err;
	/* and one that is */
	t->v[1] = open("/dev/shm/torch_0_gone", O_RDONLY) < 0 ? errno : 0;
}

TEST(everyday_errors_are_left_out)
{
	const struct dl_ev_syscall_fail *e;

	need_kernel();
	CHECK_EQ(harness_run(&h, everyday, NULL), 0);
	CHECK_EQ(h.truth->v[0], 0);
	CHECK_EQ(h.truth->v[1], ENOENT);
	CHECK_EQ(harness_count(&h, DL_EV_SYSCALL_FAIL), 1);
	e = failed(SYS_openat, ENOENT, NULL);
	CHECK(e);
	CHECK_EQ(e->flags, DL_SF_SHM);
	CHECK_STR(text_of(e), "/dev/shm/torch_0_gone");
}
