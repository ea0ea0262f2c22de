/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* When a wait times out, for each of the system calls that have a time-out. */
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/select.h>
#include <time.h>

#include "kernel_test.h"

#define NS_PER_MS 1000000LL

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

static int futex(uint32_t *word, int op, uint32_t val, const struct timespec *to)
{
	return (int)syscall(SYS_futex, word, op, val, to, NULL, FUTEX_BITSET_MATCH_ANY);
}

static struct timespec in_ms(clockid_t clock, int ms, int64_t *ret_ns)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	ts.tv_nsec += ms * NS_PER_MS;
	ts.tv_sec += ts.tv_nsec / 1000000000;
	ts.tv_nsec %= 1000000000;
	*ret_ns = ts.tv_sec * 1000000000LL + ts.tv_nsec;
	return ts;
}

static uint32_t futex_word;

static void waits(struct truth *t, void *arg)
{
	struct timespec ts, rel = { 0, 5 * NS_PER_MS };
	struct timeval tv = { 0, 7000 };	/* Linux writes back what is left */
	struct pollfd pfd = { .events = POLLIN };
	struct stat st;
	int64_t ns;
	int p[2], ep;

	(void)arg;
	if (pipe(p))
		_exit(1);
	pfd.fd = p[0];
	fstat(p[0], &st);
	t->v[10] = (int64_t)st.st_ino;
	t->v[11] = (intptr_t)&futex_word;

	ts = in_ms(CLOCK_MONOTONIC, 5, &ns);
	t->v[0] = ns;
	futex(&futex_word, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, 0, &ts);
	ts = in_ms(CLOCK_REALTIME, 6, &ns);
	t->v[1] = (int64_t)mono_ns() + 6 * NS_PER_MS;
	futex(&futex_word, FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME, 0, &ts);
	futex(&futex_word, FUTEX_WAIT, 0, &rel);
	ts = in_ms(CLOCK_MONOTONIC, 8, &ns);
	t->v[3] = ns;
	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL);
	syscall(SYS_nanosleep, &rel, NULL);
	poll(&pfd, 1, 9);
	ppoll(&pfd, 1, &rel, NULL);
#ifdef SYS_select	/* glibc's select() makes the other call */
	syscall(SYS_select, 0, NULL, NULL, NULL, &tv);
	tv.tv_usec = 7000;
#endif
	select(0, NULL, NULL, NULL, &tv);
	ep = epoll_create1(0);
	epoll_pwait(ep, &(struct epoll_event){}, 1, 11, NULL);
	t->v[12] = ep;
}

static const struct dl_ev_switch *wait_in(int nr, uint64_t arg1)
{
	EACH(&h, SWITCH, switch, e) {
		if (!(e->h.flags & DL_HDR_FOREIGN) && e->prev_state && e->syscall == nr &&
		    (arg1 == UINT64_MAX || e->arg1 == arg1))
			return e;
	}
	FAIL("no wait in system call %d", nr);
}

TEST(futex_deadlines)
{
	const struct dl_ev_switch *e;

	run(waits, NULL);
	e = wait_in(SYS_futex, 0x89);
	CHECK_EQ(e->arg0, h.truth->v[11]);
	CHECK_EQ(e->deadline, h.truth->v[0]);
	CHECK(!(e->flags & DL_SW_RT_DEADLINE));
	e = wait_in(SYS_futex, 0x109);
	CHECK_NEAR(e->deadline, h.truth->v[1], NS_PER_MS);
	CHECK(e->flags & DL_SW_RT_DEADLINE);
	e = wait_in(SYS_futex, FUTEX_WAIT);
	CHECK_EQ(e->deadline - e->h.ts, 5 * NS_PER_MS);
}

TEST(sleep_deadlines)
{
	const struct dl_ev_switch *e;

	need_kernel();
	e = wait_in(SYS_clock_nanosleep, UINT64_MAX);
	CHECK_EQ(e->deadline, h.truth->v[3]);
#ifdef SYS_nanosleep
	e = wait_in(SYS_nanosleep, UINT64_MAX);
	CHECK_EQ(e->deadline - e->h.ts, 5 * NS_PER_MS);
#endif
}

TEST(poll_deadlines)
{
	const struct dl_ev_switch *e;

	need_kernel();
#ifdef SYS_poll
	e = wait_in(SYS_poll, UINT64_MAX);
	CHECK_EQ(e->deadline - e->h.ts, 9 * NS_PER_MS);
	CHECK_EQ(e->file_ino, h.truth->v[10]);
	CHECK_EQ(e->file_kind, DL_FILE_FIFO);
#endif
	e = wait_in(SYS_ppoll, UINT64_MAX);
	CHECK_EQ(e->deadline - e->h.ts, 5 * NS_PER_MS);
	CHECK_EQ(e->file_kind, DL_FILE_FIFO);
#ifdef SYS_select
	e = wait_in(SYS_select, UINT64_MAX);
	CHECK_EQ(e->deadline - e->h.ts, 7 * NS_PER_MS);
#endif
	e = wait_in(SYS_pselect6, UINT64_MAX);
	CHECK_NEAR(e->deadline - e->h.ts, 7 * NS_PER_MS, NS_PER_MS);
	e = wait_in(SYS_epoll_pwait, UINT64_MAX);
	CHECK_EQ(e->deadline - e->h.ts, 11 * NS_PER_MS);
	CHECK_EQ(e->arg0, h.truth->v[12]);
	CHECK_EQ(e->file_kind, DL_FILE_ANON);
}

static void stopped_sleep(struct truth *t, void *arg)
{
	struct timespec rel = { 0, 120 * NS_PER_MS };
	pid_t p = fork(), self;

	(void)t, (void)arg;
	if (!p) {
		self = getppid();
		poll(NULL, 0, 20);
		kill(self, SIGSTOP);
		poll(NULL, 0, 20);
		kill(self, SIGCONT);
		_exit(0);
	}
	syscall(SYS_nanosleep, &rel, NULL);
	waitpid(p, NULL, 0);
}

/* Stopped and continued, as a debugger does: the wait goes on to the same end. */
TEST(restarted_wait_keeps_its_deadline)
{
	const struct dl_ev_switch *first, *again;

	run(stopped_sleep, NULL);
	first = wait_in(SYS_nanosleep, UINT64_MAX);
	again = wait_in(SYS_restart_syscall, UINT64_MAX);
	CHECK_EQ(first->deadline - first->h.ts, 120 * NS_PER_MS);
	CHECK(again->h.ts > first->h.ts + 30 * NS_PER_MS);
	CHECK_EQ(again->deadline, first->deadline);
}

#define HERD_ROUNDS 40

/*
 * Two processes on one CPU poll a pipe. Whoever polled last is woken first, and takes the byte: the
 * other finds nothing, and sleeps again in the same call.
 */
static void herd(struct truth *t, void *arg)
{
	struct pollfd pfd = { .events = POLLIN };
	pid_t taker, giver;
	int p[2];
	char c;

	(void)arg;
	if (pipe(p))
		_exit(1);
	pfd.fd = p[0];
	pin(0);
	t->v[0] = getpid();
	taker = fork();
	if (!taker) {
		for (;;) {
			poll(NULL, 0, 2);
			poll(&pfd, 1, -1);
			if (read(p[0], &c, 1) != 1)
				_exit(1);
		}
	}
	giver = fork();
	if (!giver) {
		pin(sysconf(_SC_NPROCESSORS_ONLN) > 1);
		for (int i = 0; i < HERD_ROUNDS; i++) {
			poll(NULL, 0, 5);
			if (write(p[1], &c, 1) != 1)
				_exit(1);
		}
		_exit(0);
	}
	while (waitpid(giver, NULL, WNOHANG) != giver) {
		if (poll(&pfd, 1, 400) == 1)	/* was first */
			poll(NULL, 0, 1);
	}
	kill(taker, SIGKILL);
	waitpid(taker, NULL, 0);
}

TEST(sleeping_again_keeps_the_deadline)
{
	const struct dl_ev_switch *last = NULL;
	uint64_t run_ns = UINT64_MAX;
	int same = 0;

	run(herd, NULL);
	EACH(&h, SWITCH, switch, e) {
		if (e->h.tid != h.truth->v[0] || !e->prev_state || e->syscall != SYS_poll || e->arg1 != 1)
			continue;
		CHECK(e->deadline > e->h.ts);
		same += last && last->deadline == e->deadline;
		if (last && e->exec_ns - last->exec_ns < run_ns)
			run_ns = e->exec_ns - last->exec_ns;
		last = e;
	}
	if (run_ns > 60000)
		SKIP("an emulator: %" PRIu64 " ns to look at one descriptor and sleep again", run_ns);
	CHECK_MSG(same > 0, "never in %d rounds", HERD_ROUNDS);	/* under load the order is often another */
}
