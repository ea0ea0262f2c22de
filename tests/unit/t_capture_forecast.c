/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Forecasts of planted series: what is a line is extended to the right moment, what is none is not. */
#include <math.h>

#include "capture/forecast.h"
#include "capture/proc.h"
#include "capture/sink.h"
#include "unit/trace_util.h"

#define S DL_NS_PER_S
#define MAX 1200

static struct dl_fc_point series[MAX];
static size_t cnt;

static void put(double val)
{
	CHECK(cnt < MAX);
	series[cnt] = (struct dl_fc_point){ 1000 * S + cnt * S, val };
	cnt++;
}

/* Between -1 and 1. */
static double noise(void)
{
	return (double)(rng() % 2000001) / 1e6 - 1;
}

static struct dl_forecast look(double limit)
{
	struct dl_forecast f;

	dl_forecast(&f, series, cnt, limit, 0);
	return f;
}

/* Within a tenth of what is known to come. */
static void check_eta(const struct dl_forecast *f, double want_s)
{
	CHECK(f->valid);
	CHECK_MSG(fabs((double)f->eta_ns / 1e9 - want_s) <= want_s / 10 + 1, "%.1f s, not %.1f", (double)f->eta_ns / 1e9, want_s);
	CHECK(f->soonest_ns <= f->eta_ns && f->eta_ns <= f->latest_ns);
}

TEST(a_line)
{
	struct dl_forecast f;

	cnt = 0;
	for (int i = 0; i < 120; i++)
		put(1000 + 10 * i);
	f = look(5000);		/* below half of it: 119 s are too few to say so */
	CHECK(!f.valid);
	f = look(3000);
	check_eta(&f, (3000 - 2190) / 10.0);
}

TEST(a_line_that_has_lasted)
{
	struct dl_forecast f;

	cnt = 0;
	for (int i = 0; i < 400; i++)
		put(100 + i);
	f = look(1500);
	check_eta(&f, 1500 - 499);
	f = look(10000);	/* further than what was seen allows */
	CHECK(!f.valid);
}

TEST(few_samples)
{
	cnt = 0;
	for (int i = 0; i < DL_FORECAST_MIN_CNT - 1; i++) {
		put(800 + i);
		CHECK(!look(900).valid);
	}
	put(800 + DL_FORECAST_MIN_CNT - 1);
	CHECK(look(900).valid);
	cnt = 0;
	CHECK(!look(1000).valid);
}

TEST(lines_with_noise)
{
	for (uint64_t seed = 1; seed <= 50; seed++) {
		struct dl_forecast f;

		rng_seed(seed);
		cnt = 0;
		for (int i = 0; i < 300; i++)
			put(5000 + 20 * i + 200 * noise());	/* ten seconds' worth */
		f = look(15000);
		/* The tops of the noise meet the limit first. */
		CHECK_MSG(f.valid, "seed %llu", (unsigned long long)seed);
		check_eta(&f, (15000 - 10980 - 200) / 20.0);
	}
}

TEST(noise_alone)
{
	for (uint64_t seed = 1; seed <= 200; seed++) {
		rng_seed(seed);
		cnt = 0;
		for (int i = 0; i < 200; i++)
			put(900 + 50 * noise());
		CHECK_MSG(!look(1000).valid, "seed %llu", (unsigned long long)seed);
	}
}

/* A walk goes up for a while now and then. It must be rare that this looks like a line. */
TEST(random_walks)
{
	int wrong = 0;

	for (uint64_t seed = 1; seed <= 200; seed++) {
		double val = 600;

		rng_seed(seed);
		cnt = 0;
		for (int i = 0; i < 300; i++)
			put(val += 3 * noise());
		wrong += look(1000).valid;
	}
	CHECK_MSG(wrong <= 10, "%d of 200", wrong);
}

/* At every instant of a saw, teeth short and long; a tooth that is longer than all that is remembered of
 * the last ones is told by what it fell from. */
TEST(saw_teeth)
{
	for (int period = 3; period <= 400; period = period * 3 / 2) {
		double fell_from = 0;

		cnt = 0;
		for (int i = 0; i < 2 * period + 600 && i < MAX; i++) {
			struct dl_forecast f;
			size_t from;

			put(500 + 450.0 * (i % period) / period);
			if (i && i % period == 0)
				fell_from = 500 + 450.0 * (period - 1) / period;
			if (i < period + 1)
				continue;
			from = cnt > 600 ? cnt - 600 : 0;
			dl_forecast(&f, series + from, cnt - from, 1000, fell_from);
			CHECK_MSG(!f.valid || f.val >= fell_from, "period %d, sample %d", period, i);
			/* at the very top of a tooth that is as high as the last one, it may be said */
			CHECK_MSG(!f.valid || i % period >= period * 9 / 10, "period %d, sample %d", period, i);
		}
	}
}

TEST(a_leak_hidden_in_a_saw)
{
	struct dl_forecast f;

	cnt = 0;
	for (int i = 0; i < 600; i++)
		put(2000 + 5 * i + 400 * (i % 7));
	f = look(9000);
	/* It is met by the top of a tooth. */
	check_eta(&f, (9000 - 5 * 599 - 2000 - 2400) / 5.0);
}

TEST(plateaus)
{
	cnt = 0;
	for (int i = 0; i < 200; i++)
		put(800);
	CHECK(!look(1000).valid);
	/* From a rise to rest: not to be believed for long. */
	cnt = 0;
	for (int i = 0; i < 120; i++)
		put(300 + 5 * i);
	CHECK(look(1000).valid);
	for (int i = 0; i < 200; i++) {
		put(895);
		CHECK_MSG(i < 20 || !look(1000).valid, "%d s after it came to rest", i);
	}
}

TEST(steps)
{
	for (int at = 5; at < 295; at++) {
		cnt = 0;
		for (int i = 0; i < 300; i++)
			put(i < at ? 100 : 900);
		CHECK_MSG(!look(1000).valid, "step at %d", at);
	}
	/* Two. */
	cnt = 0;
	for (int i = 0; i < 300; i++)
		put(i < 100 ? 300 : i < 200 ? 600 : 900);
	CHECK(!look(1000).valid);
}

/* Descriptors are lost one by one: a stair of many small steps is a line. */
TEST(a_stair)
{
	struct dl_forecast f;

	cnt = 0;
	for (int i = 0; i < 600; i++)
		put(700 + i / 4);
	f = look(1024);
	check_eta(&f, (1024 - 849) * 4.0);
}

TEST(falling)
{
	cnt = 0;
	for (int i = 0; i < 300; i++)
		put(900 - i);
	CHECK(!look(1000).valid);
}

TEST(starts_otherwise)
{
	struct dl_forecast f;

	/* Loads for a minute, then leaks slowly: the leak counts. */
	cnt = 0;
	for (int i = 0; i < 600; i++)
		put(i < 60 ? 10 * i : 600 + (i - 60) / 4.0);
	f = look(900);
	check_eta(&f, (900 - 600 - 539 / 4.0) * 4);
}

TEST(at_the_limit)
{
	struct dl_forecast f;

	cnt = 0;
	for (int i = 0; i <= 100; i++)
		put(i);
	f = look(100);
	CHECK(f.valid);
	CHECK_EQ(f.eta_ns, 0);
}

/* --- the lines of a recording ------------------------------------------------------------------- */

static void shm_sample(struct dl_lines *l, uint64_t ts, uint64_t used)
{
	struct dl_ev_env_shm ev = DL_EVENT_INIT(env_shm, DL_EV_ENV_SHM, ts, 42, 42);

	ev.total = 1 << 30;
	ev.used = used;
	dl_lines_event(l, &ev.h);
}

TEST(shared_memory_is_told_once)
{
	struct dl_line_forecast next, save;
	int told = 0, due_cnt = 0;
	uint64_t told_at = 0;
	struct dl_lines *l;
	bool due;

	CHECK_OK(dl_lines_new(&l));
	/* 2 MiB a second from 400 MiB on: full at 312 s, 100 s before that at 212 */
	for (uint64_t t = 1; t < 300; t++) {
		shm_sample(l, t * S, (400 + 2 * t) << 20);
		told += dl_lines_next(l, t * S, 1800 * S, &next, 100 * S, &save, &due);
		if (due) {
			due_cnt++;
			told_at = t;
			CHECK_HAS(save.text, "shared memory (/dev/shm)");
			CHECK_HAS(save.text, "of 1.00 GiB");
		}
	}
	CHECK_EQ(due_cnt, 1);
	CHECK_NEAR(told_at, 215, 8);
	CHECK(told > 100);
	CHECK_HAS(next.brief, "shm full in ");
	dl_lines_free(l);
}

/* Page cache goes when memory is wanted: a cgroup that is full of it is not full. */
TEST(page_cache_is_no_leak)
{
	struct dl_line_forecast next, save;
	struct dl_lines *l;
	bool due;

	CHECK_OK(dl_lines_new(&l));
	for (uint64_t t = 1; t < 300; t++) {
		struct dl_ev_env_cgroup ev = DL_EVENT_INIT(env_cgroup, DL_EV_ENV_CGROUP, t * S, 42, 42);

		ev.mem_limit = 4000ULL << 20;
		ev.mem_anon = 500 << 20;
		ev.mem_file = (1000 + 10 * t) << 20;
		ev.mem_usage = ev.mem_anon + ev.mem_file;
		dl_lines_event(l, &ev.h);
		CHECK(!dl_lines_next(l, t * S, 1800 * S, &next, 1800 * S, &save, &due) && !due);
	}
	dl_lines_free(l);
}

TEST(what_is_unlimited_is_no_line)
{
	struct dl_line_forecast next, save;
	struct dl_lines *l;
	bool due;

	CHECK_OK(dl_lines_new(&l));
	for (uint64_t t = 1; t < 300; t++) {
		struct dl_ev_env_proc ev = DL_EVENT_INIT(env_proc, DL_EV_ENV_PROC, t * S, 42, 42);

		ev.fds = 10 * t;
		dl_lines_event(l, &ev.h);
		CHECK(!dl_lines_next(l, t * S, 1800 * S, &next, 1800 * S, &save, &due));
	}
	dl_lines_free(l);
}

/* Each process has its own descriptors, and the one that loses them is named. */
TEST(the_process_is_named)
{
	struct dl_line_forecast next, save;
	struct dl_lines *l;
	bool due, any = false;

	CHECK_OK(dl_lines_new(&l));
	for (uint64_t t = 1; t < 200; t++) {
		for (uint32_t pid = 40; pid < 45; pid++) {
			struct dl_ev_env_proc ev = DL_EVENT_INIT(env_proc, DL_EV_ENV_PROC, t * S, pid, pid);

			ev.fds_limit = 1024;
			ev.fds = pid == 43 ? 500 + 2 * t : 900;
			dl_lines_event(l, &ev.h);
		}
		any |= dl_lines_next(l, t * S, 1800 * S, &next, 0, &save, &due);
	}
	CHECK(any);
	CHECK_HAS(next.text, "the open files of process 43");
	CHECK_HAS(next.text, "of 1,024");
	dl_lines_free(l);
}
