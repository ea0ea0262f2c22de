/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Rings that nobody reads, as with a recorder that is stopped: what matters least goes first, births and
 * ends are complete, everything that is missing is counted and has its time, and when somebody reads
 * again all goes on.
 */
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <bpf/bpf.h>

#include "kernel_test.h"
#include "capture/shed.h"

#define FORKS 18000	/* more than the map of processes holds, with their ends less than the ring */
#define RING_SZ (4 << 20)
#define ROUNDS 30000	/* some 400 bytes each */

static struct harness own;

static void open_own(uint32_t sample_hz, uint32_t ring_sz, uint32_t crash_sz)
{
	const struct dl_kernel_opts opts = { .sample_hz = sample_hz, .ring_sz = ring_sz, .crash_sz = crash_sz, .user_stacks = true };
	static struct dl_diag d;
	const char *why;

	need_kernel();
	why = harness_open(&own, sample_hz, ring_sz);
	CHECK_MSG(!why, "%s", why);
	dl_kernel_close(own.k);
	CHECK_MSG(!dl_kernel_open(&own.k, &opts, &own.sink, &d), "%s", d.msg);
}

static int run_own(body_fn body, void *arg, bool drain)
{
	pid_t pid;
	int go;

	harness_reset(&own);
	pid = harness_start(&own, body, arg, &go);
	if (pid < 0 || harness_go(&own, pid, go))
		return -1;
	return harness_finish(&own, pid, drain);
}

/* The last total of a class; *first and *last, when not NULL: of all that was told of it. */
static uint64_t told(enum dl_shed shed, uint64_t *first, uint64_t *last)
{
	uint64_t by_ring[DL_RING_CRASH + 1] = {}, cnt = 0, from = UINT64_MAX, to = 0;

	EACH(&own, LOSS, loss, e) {
		if (e->shed != shed)
			continue;
		CHECK_EQ(e->kind, dl_shed_rules[shed].kind);
		CHECK_EQ(e->cause, dl_shed_cause(&dl_shed_rules[shed]));
		CHECK(e->first && e->first <= e->last && e->h.ts == e->first);
		CHECK(e->ring <= DL_RING_CRASH && e->cnt > by_ring[e->ring]);
		by_ring[e->ring] = e->cnt;
		from = e->first < from ? e->first : from;
		to = e->last > to ? e->last : to;
	}
	for (size_t i = 0; i <= DL_RING_CRASH; i++)
		cnt += by_ring[i];
	if (first)
		*first = from;
	if (last)
		*last = to;
	return cnt;
}

/* --- births and ends -------------------------------------------------------------------------- */

/* By a shell: the test program's own children would inherit the mapped rings, page by page. */
static void fork_storm(struct truth *t, void *arg)
{
	char script[128];

	(void)t;
	snprintf(script, sizeof(script), "i=0; while [ $i -lt %d ]; do (exit 7); i=$((i+1)); done; exit 0", *(int *)arg);
	execl("/bin/sh", "sh", "-c", script, NULL);
}

static void check_lives(int forks)
{
	size_t born = 0, ended = 0;

	EACH(&own, FORK, fork, e)
		born += e->child_pid == e->child_tid;
	EACH(&own, EXIT, exit, e) {
		CHECK(e->flags & DL_EX_LAST);
		ended += e->code == 7 << 8;
	}
	CHECK_EQ(born, forks);
	CHECK_EQ(ended, forks);
	EACH(&own, LOSS, loss, e)
		CHECK(e->ring != DL_RING_CRASH || e->cause == DL_LOSS_SHED);
}

TEST(births_and_ends_are_complete_when_nobody_reads)
{
	uint64_t shed = 0;
	int forks = FORKS;

	open_own(0, 0, 4 << 20);
	CHECK_EQ(run_own(fork_storm, &forks, false), 0);
	check_lives(forks);
	/* they made room for themselves */
	CHECK(told(DL_SHED_CHILD_SIGNAL, NULL, NULL) > 0);
	for (int i = DL_SHED_NONE + 1; i < DL_SHED_MAX; i++)
		shed += dl_shed_cause(&dl_shed_rules[i]) == DL_LOSS_SHED ? told(i, NULL, NULL) : 0;
	CHECK_EQ(dl_kernel_shed_total(own.k), shed);
	harness_close(&own);
}

TEST(births_and_ends_are_complete_when_somebody_reads)
{
	int forks = FORKS / 2;

	open_own(0, 0, 0);
	CHECK_EQ(run_own(fork_storm, &forks, true), 0);
	check_lives(forks);
	CHECK_EQ(told(DL_SHED_CHILD_SIGNAL, NULL, NULL), 0);
	harness_close(&own);
}

/* A ring that is too small for them: what is missing is counted, one by one. */
TEST(births_and_ends_that_do_not_fit_are_counted)
{
	uint64_t lost_forks = 0, lost_ends = 0;
	size_t born = 0, ended = 0;
	int forks = 2000;

	open_own(0, 0, 65536);
	CHECK_EQ(run_own(fork_storm, &forks, false), 0);
	EACH(&own, FORK, fork, e)
		born++;
	EACH(&own, EXIT, exit, e)
		ended++;
	EACH(&own, LOSS, loss, e) {
		if (e->cause != DL_LOSS_RING_FULL)
			continue;
		lost_forks = e->kind == DL_EV_FORK ? e->cnt : lost_forks;
		lost_ends = e->kind == DL_EV_EXIT ? e->cnt : lost_ends;
	}
	CHECK(lost_forks > 0 && lost_ends > 0);
	CHECK_EQ(born + lost_forks, forks);
	CHECK_EQ(ended + lost_ends, forks + 1);
	harness_close(&own);
}

/* --- what goes first --------------------------------------------------------------------------- */

enum { PING = 0, PONG, PING_SWITCHES, BEGIN, END };

static void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	sched_setaffinity(0, sizeof(set), &set);
}

/* Two processes that wake each other on one CPU, with some work for the sampling timer to find. */
static void pingpong(struct truth *t, void *arg)
{
	int rounds = *(int *)arg, there[2], back[2];
	volatile unsigned int work = 0;
	struct rusage ru;
	pid_t pong;
	char c = 0;

	pin(0);
	if (pipe(there) || pipe(back))
		_exit(1);
	t->v[BEGIN] = (int64_t)mono_ns();
	pong = fork();
	for (int i = 0; i < rounds; i++) {
		for (int j = 0; j < 3000; j++)
			work++;
		if (!pong ? read(there[0], &c, 1) != 1 || write(back[1], &c, 1) != 1 :
		    write(there[1], &c, 1) != 1 || read(back[0], &c, 1) != 1)
			_exit(1);
	}
	if (!pong)
		_exit(0);
	waitpid(pong, NULL, 0);
	getrusage(RUSAGE_SELF, &ru);
	t->v[PING] = getpid();
	t->v[PONG] = pong;
	t->v[PING_SWITCHES] = ru.ru_nvcsw + ru.ru_nivcsw;
	t->v[END] = (int64_t)mono_ns();
}

/* Nobody reads until it has ended: the ring fills once. */
TEST(least_important_first)
{
	uint64_t user, sample, sw, last, wake;
	int64_t met = 0, least = 0, most = 0;
	int rounds = ROUNDS;

	open_own(997, RING_SZ, 0);
	CHECK_EQ(run_own(pingpong, &rounds, false), 0);
	CHECK(told(DL_SHED_SAMPLE_USER, &user, NULL) > 0);
	CHECK(told(DL_SHED_SAMPLE, &sample, NULL) > 0);
	CHECK(told(DL_SHED_SWITCH, &sw, &last) > 0);
	CHECK(told(DL_SHED_WAKE, &wake, NULL) > 0);
	CHECK(user <= sample && sample <= sw);
	CHECK((int64_t)user >= own.truth->v[BEGIN] && (int64_t)last <= own.truth->v[END] + 1000000000);
	/* What is there is the beginning, and whole; what is missing is the rest. */
	EACH(&own, SWITCH, switch, e) {
		if (e->h.tid != own.truth->v[PING])
			continue;
		CHECK(e->h.ts <= sw + 1000000);
		least = met++ && least < e->switches ? least : e->switches;	/* rings come one after the other */
		most = e->switches > most ? e->switches : most;
	}
	CHECK(met > 100);
	CHECK_EQ(met, most - least + 1);
	CHECK(most < own.truth->v[PING_SWITCHES]);
	EACH(&own, SAMPLE, sample, e)
		CHECK(e->h.ts <= sample + 1000000);
	harness_close(&own);
}

/* The ring is full, then read: what comes behind is as complete as ever. */
TEST(goes_on_behind_a_hole)
{
	int rounds = ROUNDS;
	size_t there;

	open_own(0, RING_SZ, 0);
	CHECK_EQ(run_own(pingpong, &rounds, false), 0);
	CHECK(told(DL_SHED_SWITCH, NULL, NULL) > 0);
	CHECK_EQ(dl_kernel_holes(own.k), 1);
	rounds = 300;
	CHECK_EQ(run_own(pingpong, &rounds, true), 0);
	CHECK_EQ(told(DL_SHED_SWITCH, NULL, NULL), 0);
	CHECK_EQ(dl_kernel_holes(own.k), 1);
	there = harness_count(&own, DL_EV_SWITCH);
	CHECK_MSG(there >= 600, "%zu switches of 600 there and back", there);
	harness_close(&own);
}

/* --- page faults ------------------------------------------------------------------------------- */

enum { FAULTS = 0, PAGES = 4096 };

static void fault_storm(struct truth *t, void *arg)
{
	char *p = mmap(NULL, PAGES * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct rusage ru;

	(void)arg;
	if (p == MAP_FAILED)
		_exit(1);
	madvise(p, PAGES * 4096, MADV_NOHUGEPAGE);
	for (int round = 0; round < 100; round++) {
		for (size_t i = 0; i < PAGES; i++)
			p[i * 4096] = 1;
		madvise(p, PAGES * 4096, MADV_DONTNEED);
	}
	getrusage(RUSAGE_SELF, &ru);
	t->v[FAULTS] = ru.ru_minflt;
}

/* 400,000 page faults without I/O: no program runs for one. */
TEST(minor_faults_run_nothing)
{
	struct dl_prog_stat before[64], after[64];
	uint64_t runs = 0;
	int fd, cnt;

	need_kernel();
	fd = bpf_enable_stats(BPF_STATS_RUN_TIME);
	if (fd < 0)
		SKIP("this kernel counts no runs of programs");
	cnt = dl_kernel_prog_stats(h.k, before, 64);
	CHECK(cnt > 0);
	CHECK_EQ(harness_run(&h, fault_storm, NULL), 0);
	CHECK_EQ(dl_kernel_prog_stats(h.k, after, 64), cnt);
	close(fd);
	/* Switches, wakes and failed system calls are those of all the machine, and so are forks and the like, which
	 * are few. */
	for (int i = 0; i < cnt; i++) {
		if (strncmp(after[i].name, "dl_switch", 9) && strncmp(after[i].name, "dl_wak", 6) && strcmp(after[i].name, "dl_fail"))
			runs += after[i].run_cnt - before[i].run_cnt;
	}
	CHECK(h.truth->v[FAULTS] > 400000);
	CHECK_MSG((int64_t)runs < h.truth->v[FAULTS] / 10, "%" PRIu64 " runs of programs in %" PRId64 " faults", runs,
		  (int64_t)h.truth->v[FAULTS]);
	CHECK_EQ(h.lost, 0);
}
