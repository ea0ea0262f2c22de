/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Switches, wakes and samples of programs whose truth is known: what they blocked in, on which
 * descriptor, who woke them, how often, and where they ran.
 */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#define SAMPLE_HZ 199
#include "kernel_test.h"

#define NS_PER_MS 1000000LL
#define ROUNDS 500
#define TASK_UNINTERRUPTIBLE 2
#define TASK_RTLOCK_WAIT 0x1000	/* PREEMPT_RT: waits for a lock inside its system call */

static void run(body_fn body, void *arg)
{
	int status;

	need_kernel();
	status = harness_run(&h, body, arg);
	CHECK_MSG(status == 0, "the recorded program ended with %#x", status);
	CHECK_EQ(h.lost, 0);
}

static void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	sched_setaffinity(0, sizeof(set), &set);
}

static void note_usage(struct truth *t, int at)
{
	struct rusage ru;

	getrusage(RUSAGE_THREAD, &ru);
	t->v[at] = ru.ru_nvcsw;
	t->v[at + 1] = ru.ru_nivcsw;
	t->v[at + 2] = (int64_t)mono_ns();
}

/* --- ping-pong over two pipes ----------------------------------------------------------------- */

enum { PP_PING = 0, PP_PONG, PP_INO, PP_FD, PP_BEGIN, PP_END = PP_BEGIN + 3 };

static void pingpong(struct truth *t, void *arg)
{
	int rounds = *(int *)arg, there[2], back[2];
	struct stat st;
	pid_t pong;
	char c = 0;

	if (pipe(there) || pipe(back))
		_exit(1);
	pong = fork();
	if (!pong) {
		pin(sysconf(_SC_NPROCESSORS_ONLN) > 1);
		for (int i = 0; i < rounds; i++) {
			if (read(there[0], &c, 1) != 1 || write(back[1], &c, 1) != 1)
				_exit(1);
		}
		_exit(0);
	}
	pin(0);
	fstat(back[0], &st);
	t->v[PP_PING] = getpid();
	t->v[PP_PONG] = pong;
	t->v[PP_INO] = (int64_t)st.st_ino;
	t->v[PP_FD] = back[0];
	note_usage(t, PP_BEGIN);
	for (int i = 0; i < rounds; i++) {
		if (write(there[1], &c, 1) != 1 || read(back[0], &c, 1) != 1)
			_exit(1);
	}
	note_usage(t, PP_END);
	if (waitpid(pong, NULL, 0) != pong)
		_exit(1);
}

TEST(switch_counts_and_reasons)
{
	int64_t blocks = 0, preempts = 0, *v;
	int rounds = ROUNDS;

	run(pingpong, &rounds);
	v = (int64_t *)h.truth->v;
	EACH(&h, SWITCH, switch, e) {
		if (e->h.tid != v[PP_PING] || (int64_t)e->h.ts < v[PP_BEGIN + 2] || (int64_t)e->h.ts > v[PP_END + 2])
			continue;
		CHECK(!(e->h.flags & DL_HDR_FOREIGN));
		if (!e->prev_state) {
			preempts++;
			continue;
		}
		blocks++;
		CHECK_EQ(e->syscall, SYS_read);
		CHECK_EQ(e->arg0, v[PP_FD]);
		CHECK_EQ(e->file_kind, DL_FILE_FIFO);
		CHECK_EQ(e->file_ino, v[PP_INO]);
		CHECK_EQ(e->deadline, 0);
		CHECK_EQ(e->stack, 0);
	}
	CHECK_EQ(blocks, v[PP_END] - v[PP_BEGIN]);
	CHECK_EQ(preempts, v[PP_END + 1] - v[PP_BEGIN + 1]);
	CHECK(blocks > ROUNDS / 10);
}

/* No lost event: each thread's own counter goes up by one from switch to switch. */
TEST(switch_counters_step_by_one)
{
	uint32_t last[2] = {};
	int64_t exec[2] = {};

	need_kernel();
	CHECK(h.events.cnt > 0);
	EACH(&h, SWITCH, switch, e) {
		int i = e->h.tid == h.truth->v[PP_PING] ? 0 : e->h.tid == h.truth->v[PP_PONG] ? 1 : -1;

		if (i < 0)
			continue;
		if (last[i])
			CHECK_EQ(e->switches, last[i] + 1);
		CHECK((int64_t)e->exec_ns > exec[i]);
		last[i] = e->switches;
		exec[i] = (int64_t)e->exec_ns;
	}
	CHECK(last[0] && last[1]);
}

TEST(wakes_have_the_right_waker)
{
	int64_t *v = (int64_t *)h.truth->v, wakes = 0, blocks;

	need_kernel();
	EACH(&h, WAKE, wake, e) {
		if (e->wakee_tid != v[PP_PING] || (int64_t)e->h.ts < v[PP_BEGIN + 2] || (int64_t)e->h.ts > v[PP_END + 2])
			continue;
		if (e->h.tid != v[PP_PONG])
			continue;	/* e.g. a kernel thread that moves it to another CPU */
		CHECK_EQ(e->wakee_pid, v[PP_PING]);
		CHECK_EQ(e->h.pid, v[PP_PONG]);
		CHECK_EQ(e->syscall, SYS_write);
		CHECK(e->wakee_state & (1 | TASK_RTLOCK_WAIT));
		wakes++;
	}
	/* A wake may come while the sleeper is still on its way to the switch: then it does not block. */
	blocks = v[PP_END] - v[PP_BEGIN];
	CHECK_MSG(wakes >= blocks && wakes <= ROUNDS, "%" PRId64 " wakes for %" PRId64 " blocks", wakes, blocks);
}

/* Every foreign thread that is mentioned has a name. */
TEST(foreign_threads_are_named)
{
	need_kernel();
	EACH(&h, SWITCH, switch, e) {
		uint32_t tid = e->h.flags & DL_HDR_FOREIGN ? e->h.tid :
			       e->flags & DL_SW_NEXT_FOREIGN ? e->next_tid : 0;
		bool named = !tid;

		EACH(&h, NAME, name, n)
			named |= n->h.tid == tid && n->h.flags & DL_HDR_FOREIGN && n->comm.s[0];
		CHECK_MSG(named, "thread %u", tid);
	}
}

/* --- sockets, files --------------------------------------------------------------------------- */

static const struct dl_ev_switch *wait_in(int nr, uint64_t arg1)
{
	EACH(&h, SWITCH, switch, e) {
		if (!(e->h.flags & DL_HDR_FOREIGN) && e->prev_state && e->syscall == nr &&
		    (arg1 == UINT64_MAX || e->arg1 == arg1))
			return e;
	}
	FAIL("no wait in system call %d", nr);
}

static void sockets(struct truth *t, void *arg)
{
	int sv[2], inet = socket(AF_INET, SOCK_DGRAM, 0);
	struct timeval tv = { 0, 20000 };
	char c;
	struct iovec iov = { &c, 1 };

	(void)t, (void)arg;
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, sv) || inet < 0)
		_exit(1);
	setsockopt(sv[0], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
	setsockopt(inet, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
	recv(sv[0], &c, 1, 0);
	if (recvmsg(inet, &(struct msghdr){ .msg_iov = &iov, .msg_iovlen = 1 }, 0) == 1)
		_exit(1);
}

TEST(sockets_are_told_apart)
{
	run(sockets, NULL);
	CHECK_EQ(wait_in(SYS_recvfrom, UINT64_MAX)->file_kind, DL_FILE_UNIX);
	CHECK_EQ(wait_in(SYS_recvmsg, UINT64_MAX)->file_kind, DL_FILE_INET);
}

static char cold_path[256];

static void read_cold(struct truth *t, void *arg)
{
	static char buf[1 << 16];
	int fd = open(cold_path, O_RDONLY);
	struct stat st;

	(void)arg;
	if (fd < 0 || fstat(fd, &st))
		_exit(1);
	t->v[0] = (int64_t)st.st_ino;
	while (read(fd, buf, sizeof(buf)) > 0)
		;
}

TEST(cold_read_is_a_disk_wait)
{
	const char *dir = block_dir();
	int64_t waits_cnt = 0, bytes = 0;
	bool made;

	need_kernel();
	if (!dir)
		SKIP("no directory on a block device");
	snprintf(cold_path, sizeof(cold_path), "%s/dlbpf-cold-%d", dir, getpid());
	made = cold_file(cold_path, 16 << 20);
	if (made)
		harness_run(&h, read_cold, NULL);
	unlink(cold_path);
	CHECK(made);
	EACH(&h, SWITCH, switch, e) {
		if (e->h.flags & DL_HDR_FOREIGN || e->syscall != SYS_read || e->file_ino != (uint64_t)h.truth->v[0])
			continue;
		if (!(e->prev_state & TASK_UNINTERRUPTIBLE))
			continue;
		CHECK(e->flags & DL_SW_IOWAIT);
		CHECK_EQ(e->file_kind, DL_FILE_REG);
		CHECK(e->file_magic != 0);
		CHECK(e->stack != 0);
		waits_cnt++;
	}
	CHECK(waits_cnt > 0);
	EACH(&h, BLOCK_IO, block_io, e) {
		CHECK(e->end >= e->h.ts);
		CHECK(e->dev != 0);
		CHECK_EQ(e->error, 0);
		if (e->op == DL_BLOCK_READ)
			bytes += e->bytes;
	}
	/* readahead may go through a kernel worker, which names no thread: not all of the 16 MiB */
	CHECK_MSG(bytes > 1 << 20, "%" PRId64 " bytes of block I/O", bytes);
}

/* The frames of a disk wait come as one STACK event for each different stack. */
TEST(stacks_are_interned)
{
	size_t stacks = harness_count(&h, DL_EV_STACK);
	uint32_t ids[256] = {}, n = 0;

	need_kernel();
	if (!block_dir())
		SKIP("no directory on a block device");
	CHECK(stacks > 0 && stacks < 256);
	EACH(&h, STACK, stack, e) {
		CHECK_EQ(e->h.size, sizeof(*e) + 8 * (e->kernel_cnt + e->user_cnt));
		for (uint32_t i = 0; i < n; i++)
			CHECK(ids[i] != e->id);
		ids[n++] = e->id;
	}
	EACH(&h, SWITCH, switch, e) {
		bool found = !e->stack;

		for (uint32_t i = 0; i < n; i++)
			found |= ids[i] == e->stack;
		CHECK_MSG(found, "stack %u", e->stack);
	}
}

/* --- flags ------------------------------------------------------------------------------------ */

static void nap(void)
{
	struct timespec ts = { 0, 2 * NS_PER_MS };

	syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &ts, NULL);
}

static void on_signal(int sig)
{
	(void)sig;
}

static void *blocked_thread(void *arg)
{
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, NULL);
	((struct truth *)arg)->v[0] = gettid();
	nap();
	return NULL;
}

static void worker_like(struct truth *t, void *arg)
{
	const int quartet[] = { SIGBUS, SIGSEGV, SIGTERM, SIGFPE };
	pthread_t th;

	(void)arg;
	nap();
	t->v[1] = (int64_t)mono_ns();
	for (int i = 0; i < 4; i++)
		signal(quartet[i], on_signal);
	nap();
	if (pthread_create(&th, NULL, blocked_thread, t) || pthread_join(th, NULL))
		_exit(1);
	t->v[2] = (int64_t)mono_ns();
	execl("/bin/sleep", "sleep", "0.01", NULL);
}

TEST(worker_marks)
{
	int before = 0, with = 0, blocked = 0, after = 0;
	int64_t exec_ts = INT64_MAX;

	run(worker_like, NULL);
	EACH(&h, EXEC, exec, e)
		exec_ts = (int64_t)e->h.ts;
	EACH(&h, SWITCH, switch, e) {
		int64_t ts = (int64_t)e->h.ts;

		if (e->h.flags & DL_HDR_FOREIGN || !e->prev_state || e->flags & DL_SW_EXITING)
			continue;
		if (ts < h.truth->v[1]) {
			CHECK(!(e->flags & DL_SW_QUARTET));
			before++;
		} else if (ts > exec_ts) {
			CHECK(!(e->flags & DL_SW_QUARTET));
			after++;
		} else if (e->syscall == SYS_clock_nanosleep) {
			CHECK(e->flags & DL_SW_QUARTET);
			with++;
		}
		if (e->h.tid == h.truth->v[0] && e->syscall == SYS_clock_nanosleep) {
			CHECK(e->flags & DL_SW_SIGBLOCK);
			blocked++;
		} else if (e->h.tid == e->h.pid) {
			CHECK(!(e->flags & DL_SW_SIGBLOCK));
		}
	}
	CHECK(before && with && blocked && after);
}

static void over_quota(struct truth *t, void *arg)
{
	uint64_t end;

	(void)t;
	if (!cgroup_enter(arg))
		_exit(1);
	end = mono_ns() + 400 * NS_PER_MS;
	while (mono_ns() < end)
		;
}

TEST(quota_shows_as_throttled)
{
	int throttled = 0, status = -1;
	struct cgroup g;

	need_kernel();
	if (!cgroup_make(&g, "cpu", "dlbpf-test-quota"))
		SKIP("no cpu controller");
	if (cgroup_set(&g, "cpu.cfs_period_us", "50000", NULL, NULL) &&
	    cgroup_set(&g, "cpu.cfs_quota_us", "10000", "cpu.max", "10000 50000"))
		status = harness_run(&h, over_quota, &g);
	cgroup_remove(&g);
	CHECK_EQ(status, 0);
	EACH(&h, SWITCH, switch, e)
		throttled += !(e->h.flags & DL_HDR_FOREIGN) && !e->prev_state && e->throttle_cnt;
	CHECK_MSG(throttled >= 2, "%d throttled stays in 8 periods", throttled);
}

/* --- samples ---------------------------------------------------------------------------------- */

static volatile uint64_t burn_sink;

__attribute__((noinline, noclone)) static void burn(uint64_t ns)
{
	struct timespec ts;
	uint64_t x = 1;

	do {
		for (int i = 0; i < 1000000; i++)
			x = x * 6364136223846793005ULL + 1442695040888963407ULL;
		burn_sink = x;
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	} while (ts.tv_sec * 1000000000ULL + ts.tv_nsec < ns);
}

__attribute__((noinline, noclone)) static void burn_end(void)
{
	burn_sink = 0;
}

static void busy(struct truth *t, void *arg)
{
	(void)t, (void)arg;
	burn(1000 * NS_PER_MS);
	burn_end();
}

TEST(samples_hit_the_busy_function)
{
	uint64_t from = (uintptr_t)burn, to = from + 512;
	int user = 0, hits = 0, stacked = 0;

	run(busy, NULL);
	EACH(&h, SAMPLE, sample, e) {
		CHECK_EQ(e->period_us, 1000000 / 199);
		if (e->mode != DL_SAMPLE_USER)
			continue;
		CHECK_EQ(e->syscall, -1);
		user++;
		hits += e->ip >= from && e->ip < to;
		EACH(&h, STACK, stack, s) {
			const uint64_t *addr = (const uint64_t *)(s + 1);

			if (s->id != e->stack)
				continue;
			CHECK_EQ(s->kernel_cnt, 0);
			CHECK_EQ(s->h.pid, e->h.pid);
			CHECK(s->user_cnt > 0 && addr[0] == e->ip);
			stacked++;
		}
	}
	CHECK_MSG(user >= 100 && user <= 240, "%d samples of one second of CPU time at 199 Hz", user);
	CHECK_MSG(hits > user * 9 / 10, "%d of %d", hits, user);
	CHECK_EQ(stacked, user);
}

/* --- losses ----------------------------------------------------------------------------------- */

TEST(full_ring_is_counted)
{
	uint64_t lost = 0, total = 0, last = 0, steps = 0;
	int rounds = ROUNDS, go;
	struct harness small;
	const char *why;
	pid_t pid;

	need_kernel();
	why = harness_open(&small, 0, 4096);
	CHECK_MSG(!why, "%s", why);
	pid = harness_start(&small, pingpong, &rounds, &go);
	CHECK_OK(harness_go(&small, pid, go));
	CHECK_EQ(harness_finish(&small, pid, false), 0);
	EACH(&small, LOSS, loss, e) {
		if (e->cause == DL_LOSS_SHED)	/* names, and what else matters less */
			continue;
		CHECK_EQ(e->cause, DL_LOSS_RING_FULL);
		CHECK(e->ring < DL_RING_SCHED_MAX);
		total += e->cnt;
		lost += e->kind == DL_EV_SWITCH ? e->cnt : 0;
	}
	CHECK_EQ(total, small.lost);
	CHECK(lost > ROUNDS / 2);
	CHECK(harness_count(&small, DL_EV_EXIT) == 2);	/* the other ring is not hurt */
	/* The ring is empty again: what comes now shows the gap in the threads' own counters. */
	harness_reset(&small);
	rounds = 10 * ROUNDS;
	pid = harness_start(&small, pingpong, &rounds, &go);
	CHECK_OK(harness_go(&small, pid, go));
	CHECK_EQ(harness_finish(&small, pid, true), 0);
	EACH(&small, SWITCH, switch, e) {
		if (e->h.tid != small.truth->v[PP_PING])
			continue;
		steps += last && e->switches > last + 1;
		last = e->switches;
	}
	CHECK(steps > 0);
	harness_close(&small);
}
