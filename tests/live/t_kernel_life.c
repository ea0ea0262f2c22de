/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Births and deaths of a tree of processes and threads, counted exactly, and signals. */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "kernel_test.h"

#define THREADS 1000
#define NS_PER_MS 1000000LL

static void run(body_fn body, void *arg, int want_status)
{
	int status;

	need_kernel();
	status = harness_run(&h, body, arg);
	CHECK_MSG(status == want_status, "the recorded program ended with %#x, not %#x", status, want_status);
	CHECK_EQ(h.lost, 0);
}

static void nap(long ms)
{
	struct timespec ts = { 0, ms * NS_PER_MS };

	nanosleep(&ts, NULL);
}

/* --- the tree --------------------------------------------------------------------------------- */

enum { T_ROOT = 0, T_CHILD, T_GRAND, T_DAEMON, T_EXEC, T_KILLED };

static void grow(struct truth *t)
{
	pid_t p;

	t->v[T_CHILD] = getpid();
	p = fork();
	if (!p) {	/* a daemon: its parent ends at once, it leaves the session */
		setsid();
		p = fork();
		if (p)
			_exit(0);
		t->v[T_DAEMON] = getpid();
		nap(30);
		_exit(5);
	}
	waitpid(p, NULL, 0);
	p = fork();
	if (!p) {
		t->v[T_GRAND] = getpid();
		nap(5);
		_exit(4);
	}
	waitpid(p, NULL, 0);
	_exit(3);
}

static void tree(struct truth *t, void *arg)
{
	pid_t p;

	(void)arg;
	t->v[T_ROOT] = getpid();
	p = fork();
	if (!p)
		grow(t);
	waitpid(p, NULL, 0);
	p = fork();
	if (!p) {
		t->v[T_EXEC] = getpid();
		execl("/bin/true", "true", NULL);
		_exit(1);
	}
	waitpid(p, NULL, 0);
	p = fork();
	if (!p) {
		t->v[T_KILLED] = getpid();
		kill(getpid(), SIGKILL);
	}
	waitpid(p, NULL, 0);
	nap(60);	/* until the daemon has ended */
}

static const struct dl_ev_exit *exit_of(int64_t pid)
{
	EACH(&h, EXIT, exit, e) {
		if (e->h.pid == pid)
			return e;
	}
	FAIL("process %" PRId64 " has no EXIT", pid);
}

static bool forked(int64_t parent, int64_t child)
{
	EACH(&h, FORK, fork, e) {
		if (e->h.pid == parent && e->child_pid == child)
			return e->child_tid == child && e->child_nspid == child && e->child_nstid == child;
	}
	return false;
}

static void *make_noise(void *stop)
{
	while (!*(volatile bool *)stop) {
		pid_t p = fork();

		if (!p)
			_exit(0);
		waitpid(p, NULL, 0);
		nap(1);
	}
	return NULL;
}

TEST(tree_is_followed)
{
	volatile bool stop = false;
	pthread_t noise;
	int64_t *v;
	int status;

	need_kernel();
	/* Foreign processes are born and die all the while. */
	CHECK_OK(-pthread_create(&noise, NULL, make_noise, (void *)&stop));
	status = harness_run(&h, tree, NULL);
	stop = true;
	pthread_join(noise, NULL);
	CHECK_EQ(status, 0);
	v = (int64_t *)h.truth->v;
	/* root -> child, exec, killed; child -> daemon's parent, grand; daemon's parent -> daemon */
	CHECK_EQ(harness_count(&h, DL_EV_FORK), 6);
	CHECK_EQ(harness_count(&h, DL_EV_EXIT), 7);
	CHECK_EQ(harness_count(&h, DL_EV_EXEC), 1);
	CHECK(forked(v[T_ROOT], v[T_CHILD]));
	CHECK(forked(v[T_CHILD], v[T_GRAND]));
	CHECK(forked(v[T_ROOT], v[T_EXEC]));
	CHECK_EQ(exit_of(v[T_CHILD])->code, 3 << 8);
	CHECK_EQ(exit_of(v[T_CHILD])->ppid, v[T_ROOT]);
	CHECK_EQ(exit_of(v[T_GRAND])->code, 4 << 8);
	CHECK_EQ(exit_of(v[T_DAEMON])->code, 5 << 8);
	CHECK_EQ(exit_of(v[T_EXEC])->code, 0);
	CHECK_EQ(exit_of(v[T_KILLED])->code, SIGKILL);
	EACH(&h, EXIT, exit, e) {
		CHECK_EQ(!!(e->flags & DL_EX_LAST), 1);
		CHECK_EQ(!!(e->flags & DL_EX_ROOT), e->h.pid == v[T_ROOT]);
		CHECK_MSG(e->maxrss > 0 && e->min_flt > 0, "pid %u: maxrss %llu, faults %llu", e->h.pid, e->maxrss, e->min_flt);
	}
	EACH(&h, EXEC, exec, e) {
		CHECK_EQ(e->h.pid, v[T_EXEC]);
		CHECK_EQ(e->old_tid, v[T_EXEC]);
		CHECK_STR(harness_text(&e->h, sizeof(*e)), "/bin/true");
	}
}

/* Foreign threads only as the other side of a switch or wake of ours. */
TEST(nothing_of_foreign_processes)
{
	need_kernel();
	CHECK(h.events.cnt > 0);
	vec_for_each(&h.events, at) {
		const struct dl_hdr *ev = *at;
		bool ours = false;

		if (ev->kind == DL_EV_NAME || ev->kind == DL_EV_STACK || ev->kind == DL_EV_ABSENT)
			continue;
		EACH(&h, EXIT, exit, e)
			ours |= e->h.pid == ev->pid;
		if (ours) {
			CHECK(!(ev->flags & DL_HDR_FOREIGN));
			continue;
		}
		CHECK_MSG(ev->flags & DL_HDR_FOREIGN, "kind %u of process %u", ev->kind, ev->pid);
		CHECK(ev->kind == DL_EV_SWITCH || ev->kind == DL_EV_WAKE || ev->kind == DL_EV_SIGNAL);
		if (ev->kind == DL_EV_SWITCH)
			CHECK(!(((const struct dl_ev_switch *)ev)->flags & DL_SW_NEXT_FOREIGN));
	}
}

/* --- a tree that exists already ------------------------------------------------------------------ */

static void existing(struct truth *t, void *arg)
{
	(void)t, (void)arg;
	nap(30);
}

TEST(children_from_before_are_recorded)
{
	int go[2], ready[2], seen = 0, status;
	volatile int64_t *v;
	pid_t top;
	char c;

	need_kernel();
	harness_reset(&h);
	v = h.truth->v;
	CHECK(!pipe(go) && !pipe(ready));
	fflush(stdout);
	top = fork();
	if (!top) {
		for (int depth = 0; depth < 3; depth++) {	/* each the child of the one before */
			pid_t p = fork();

			if (p) {
				v[depth] = getpid();
				if (write(ready[1], "x", 1) != 1)
					_exit(1);
				waitpid(p, NULL, 0);
				_exit(0);
			}
		}
		v[3] = getpid();
		if (write(ready[1], "x", 1) != 1 || read(go[0], &c, 1) != 1)
			_exit(1);
		existing(NULL, NULL);
		_exit(7);
	}
	for (int i = 0; i < 4; i++)
		CHECK_EQ(read(ready[0], &c, 1), 1);
	CHECK_OK(dl_kernel_add_target(h.k, (uint32_t)top, true, NULL));
	CHECK_EQ(write(go[1], "x", 1), 1);
	status = harness_finish(&h, top, true);
	CHECK_EQ(status, 0);
	for (int i = 0; i < 4; i++)
		seen += exit_of(v[i])->h.pid == v[i];
	CHECK_EQ(seen, 4);
	CHECK_EQ(exit_of(v[3])->code, 7 << 8);
	for (int i = 0; i < 2; i++)
		close(go[i]), close(ready[i]);
}

TEST(no_such_process)
{
	struct dl_diag d = {};

	need_kernel();
	CHECK_EQ(dl_kernel_add_target(h.k, 0x3ffffff, true, &d), -ESRCH);
	CHECK_HAS(d.msg, "no process");
}

/* --- threads ----------------------------------------------------------------------------------- */

static void *thread_body(void *arg)
{
	(void)arg;
	nap(1);
	return NULL;
}

static void many_threads(struct truth *t, void *arg)
{
	static pthread_t th[THREADS];
	pthread_attr_t attr;

	(void)t, (void)arg;
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 65536);
	for (int i = 0; i < THREADS; i++) {
		if (pthread_create(&th[i], &attr, thread_body, NULL))
			_exit(1);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(th[i], NULL);
	prctl(PR_SET_NAME, "renamed");
}

TEST(thousand_threads)
{
	int64_t last = 0, slept = 0, last_switches = 0;
	bool renamed = false;

	run(many_threads, NULL, 0);
	CHECK_EQ(harness_count(&h, DL_EV_FORK), THREADS);
	CHECK_EQ(harness_count(&h, DL_EV_EXIT), THREADS + 1);
	EACH(&h, FORK, fork, e) {
		CHECK_EQ(e->child_pid, e->h.pid);
		CHECK(e->child_tid != e->child_pid);
		CHECK(e->clone_flags & CLONE_THREAD);
		CHECK_EQ(e->child_nstid, e->child_tid);
		CHECK_EQ(e->child_nspid, e->child_pid);
	}
	EACH(&h, EXIT, exit, e)
		last += e->flags & DL_EX_LAST ? 1 : 0;
	CHECK_EQ(last, 1);
	EACH(&h, SWITCH, switch, e) {
		if (e->h.flags & DL_HDR_FOREIGN)
			continue;
		slept += e->prev_state & 1 && e->h.tid != e->h.pid && e->deadline;
		last_switches += e->prev_state & 0x80 ? 1 : 0;	/* TASK_DEAD */
	}
	/* Now and then a sleep is so late that its timer has fired already. */
	CHECK_MSG(slept > THREADS * 9 / 10, "%" PRId64, slept);
	CHECK_EQ(last_switches, THREADS + 1);
	EACH(&h, NAME, name, e)
		renamed |= !(e->h.flags & DL_HDR_FOREIGN) && !strcmp(e->comm.s, "renamed");
	CHECK(renamed);
}

/* --- PID namespace ------------------------------------------------------------------------------ */

static void in_namespace(struct truth *t, void *arg)
{
	pid_t p;

	(void)arg;
	if (unshare(CLONE_NEWPID))
		_exit(1);
	p = fork();
	if (!p)
		_exit(getpid());	/* 1 */
	t->v[0] = p;
	waitpid(p, NULL, 0);
}

TEST(inner_pid_is_known)
{
	run(in_namespace, NULL, 0);
	EACH(&h, FORK, fork, e) {
		CHECK_EQ(e->child_pid, h.truth->v[0]);
		CHECK_EQ(e->child_nspid, 1);
		CHECK_EQ(e->child_nstid, 1);
	}
	CHECK_EQ(exit_of(h.truth->v[0])->code, 1 << 8);
}

/* --- signals ----------------------------------------------------------------------------------- */

static void wait_for_death(struct truth *t, void *arg)
{
	(void)t, (void)arg;
	nap(900);
}

TEST(killer_is_named)
{
	int go, status, found = 0;
	pid_t pid, killer;

	need_kernel();
	harness_reset(&h);
	pid = harness_start(&h, wait_for_death, NULL, &go);
	CHECK_OK(harness_go(&h, pid, go));
	fflush(stdout);
	killer = fork();
	if (!killer) {
		prctl(PR_SET_NAME, "the-killer");
		_exit(kill(pid, SIGKILL) != 0);
	}
	waitpid(killer, &status, 0);
	CHECK_EQ(harness_finish(&h, pid, true), SIGKILL);
	EACH(&h, SIGNAL, signal, e) {
		if (e->sig != SIGKILL)
			continue;
		CHECK_EQ(e->h.pid, killer);
		CHECK(e->h.flags & DL_HDR_FOREIGN);
		CHECK_EQ(e->target_pid, pid);
		CHECK_EQ(e->code, 0);
		CHECK_EQ(e->group, 1);
		CHECK_EQ(e->sender_ppid, getpid());
		CHECK_EQ(e->sender_uid, 0);
		CHECK_STR(e->sender_comm.s, "the-killer");
		found++;
	}
	CHECK_EQ(found, 1);
	CHECK_EQ(exit_of(pid)->code, SIGKILL);
}

static void on_bus(int sig)
{
	(void)sig;
	_exit(40);
}

static void touch_past_end(struct truth *t, void *arg)
{
	int fd = open(arg, O_RDWR | O_CREAT | O_TRUNC, 0600);
	long page = sysconf(_SC_PAGESIZE);
	struct stat st;
	char *p;

	if (fd < 0 || ftruncate(fd, 3 * page) || fstat(fd, &st))
		_exit(1);
	p = mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED || ftruncate(fd, page + 100))
		_exit(1);
	signal(SIGBUS, on_bus);
	t->v[0] = (int64_t)st.st_ino;
	t->v[1] = (intptr_t)p;
	t->v[2] = (intptr_t)p + 2 * page + 8;
	*(volatile char *)(p + 2 * page + 8) = 1;
}

static const struct dl_ev_signal *fault_signal(int sig)
{
	EACH(&h, SIGNAL, signal, e) {
		if (e->sig == sig && e->code > 0 && e->code < 0x80)
			return e;
	}
	FAIL("no signal %d from a fault", sig);
}

TEST(sigbus_of_a_truncated_file)
{
	const struct dl_ev_sigbus_map *m = NULL;
	long page = sysconf(_SC_PAGESIZE);
	const struct dl_ev_signal *s;
	const char *path = test_path("cut-short.bin");
	int delivered = 0;

	run(touch_past_end, (void *)path, 40 << 8);
	s = fault_signal(SIGBUS);
	CHECK_EQ(s->code, 2);	/* BUS_ADRERR */
	CHECK_EQ(s->addr, h.truth->v[2]);
	CHECK_EQ(s->target_tid, s->h.tid);
	CHECK(s->ip != 0);
	EACH(&h, SIGBUS_MAP, sigbus_map, e)
		m = e;
	CHECK(m);
	CHECK_EQ(m->addr, h.truth->v[2]);
	if (m->fault_flags & DL_SB_NO_VMA)
		SKIP("this kernel cannot look up a mapping in BPF");
	CHECK_EQ(m->vma_start, h.truth->v[1]);
	CHECK_EQ(m->vma_end, h.truth->v[1] + 3 * page);
	CHECK_EQ(m->file_off, 2 * page + 8);
	CHECK_EQ(m->file_sz, page + 100);
	CHECK_EQ(m->file_ino, h.truth->v[0]);
	CHECK_EQ(m->fault_flags, DL_SB_WRITE | DL_SB_SHARED | DL_SB_PAST_END);
	CHECK_STR(harness_text(&m->h, sizeof(*m)), "cut-short.bin");
	EACH(&h, SIGNAL_DELIVER, signal_deliver, e) {
		if (e->sig != SIGBUS)
			continue;
		CHECK_EQ(e->handler, (intptr_t)on_bus);
		delivered++;
	}
	CHECK_EQ(delivered, 1);
}

#define FS_PAGES 64

static void fill_tmpfs(struct truth *t, void *arg)
{
	long page = sysconf(_SC_PAGESIZE);
	char opt[32], path[600];
	int fd;
	char *p;

	snprintf(opt, sizeof(opt), "size=%ld", FS_PAGES * page);
	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) || mkdir(arg, 0700) ||
	    mount("dlbpf-test", arg, "tmpfs", 0, opt))
		_exit(1);
	snprintf(path, sizeof(path), "%s/torch_123_456", (char *)arg);
	fd = open(path, O_RDWR | O_CREAT, 0600);
	if (fd < 0 || ftruncate(fd, 4 * FS_PAGES * page))
		_exit(1);
	p = mmap(NULL, 4 * FS_PAGES * page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		_exit(1);
	for (int i = 0; i < 4 * FS_PAGES; i++) {
		t->v[0] = i;
		*(volatile char *)(p + i * page) = 1;
	}
}

TEST(sigbus_of_a_full_tmpfs)
{
	const struct dl_ev_sigbus_map *m = NULL;
	long page = sysconf(_SC_PAGESIZE);
	const char *dir = test_path("small");
	int status;

	need_kernel();
	status = harness_run(&h, fill_tmpfs, (void *)dir);
	CHECK_MSG((status & 0x7f) == SIGBUS, "%#x", status);
	CHECK_EQ(fault_signal(SIGBUS)->code, 2);
	EACH(&h, SIGBUS_MAP, sigbus_map, e)
		m = e;
	CHECK(m);
	if (m->fault_flags & DL_SB_NO_VMA)
		SKIP("this kernel cannot look up a mapping in BPF");
	CHECK_EQ(h.truth->v[0], FS_PAGES);	/* that many fitted */
	CHECK_EQ(m->file_off, FS_PAGES * page);
	CHECK_EQ(m->file_sz, 4 * FS_PAGES * page);
	CHECK_EQ(m->file_magic, 0x01021994);
	CHECK(!(m->fault_flags & DL_SB_PAST_END));
	CHECK_EQ(m->fs_total, FS_PAGES * page);
	/* what each CPU holds back of the count */
	CHECK_NEAR(m->fs_used, FS_PAGES * page, 64 * page * sysconf(_SC_NPROCESSORS_CONF));
	CHECK_STR(harness_text(&m->h, sizeof(*m)), "torch_123_456");
}

static void segv(struct truth *t, void *arg)
{
	(void)t, (void)arg;
	*(volatile int *)0x1234 = 1;
}

TEST(segfault_has_its_address)
{
	int status;

	need_kernel();
	status = harness_run(&h, segv, NULL);
	CHECK_EQ(status & 0x7f, SIGSEGV);
	CHECK_EQ(fault_signal(SIGSEGV)->addr, 0x1234);
	CHECK_EQ(fault_signal(SIGSEGV)->code, 1);	/* SEGV_MAPERR */
	CHECK_EQ(harness_count(&h, DL_EV_SIGBUS_MAP), 0);
}
