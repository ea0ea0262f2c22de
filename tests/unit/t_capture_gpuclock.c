/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Clock conversion against a clock whose true course is known: drift, noise, jumps. */
#include "capture/gpu_priv.h"

#include "test.h"

#define MS 1000000ULL
#define BEGIN 5000000000ULL	/* CLOCK_MONOTONIC */
#define PERIOD (100 * MS)

static uint64_t rng = 88172645463325252ULL;

static uint64_t rnd(uint64_t n)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return rng % n;
}

/* The clock that is converted: an offset, a drift and one jump. */
struct course {
	uint64_t off;
	int64_t ppm;
	uint64_t step_at;	/* monotonic; 0 never */
	int64_t step;
};

static uint64_t gpu_at(const struct course *c, uint64_t mono)
{
	int64_t t = (int64_t)(mono + c->off) + (int64_t)((__int128)(int64_t)(mono - BEGIN) * c->ppm / 1000000);

	if (c->step_at && mono >= c->step_at)
		t += c->step;
	return (uint64_t)t;
}

/* The reading of a pair is off by up to half its bracket. */
static void add_pair(struct gpu_clock *clk, const struct course *c, uint64_t mono, uint64_t bracket)
{
	uint64_t noise = rnd(bracket + 1);

	CHECK(gpu_clock_add(clk, mono + noise - bracket / 2, gpu_at(c, mono), bracket));
}

struct worst { uint64_t error, error_sure; unsigned int unsure, backwards, in_step; };

static void check_span(const struct gpu_clock *clk, const struct course *c, uint64_t start, uint64_t end,
		       bool in_step, struct worst *w)
{
	uint64_t s = gpu_at(c, start), e = gpu_at(c, end), err;
	bool unsure = false;

	CHECK(gpu_clock_span(clk, &s, &e, &unsure));
	w->backwards += e < s;
	w->unsure += unsure;
	w->in_step += in_step;
	err = e > end ? e - end : end - e;
	if (err > w->error)
		w->error = err;
	if (!unsure && err > w->error_sure)
		w->error_sure = err;
	err = s > start ? s - start : start - s;
	if (!unsure && err > w->error_sure)
		w->error_sure = err;
}

/* Pairs every period; after each, what ended since the one before is converted, as in a recording. */
static struct worst run(const struct course *c, uint64_t bracket, unsigned int periods)
{
	struct gpu_clock *clk = calloc(1, sizeof(*clk));
	struct worst w = {};

	CHECK(clk != NULL);
	add_pair(clk, c, BEGIN, bracket);
	for (unsigned int i = 1; i <= periods; i++) {
		uint64_t from = BEGIN + (i - 1) * PERIOD, to = from + PERIOD;
		bool in_step = c->step_at > from && c->step_at <= to;

		add_pair(clk, c, to, bracket);
		for (int k = 0; k < 50; k++) {
			uint64_t end = from + MS + rnd(PERIOD - 2 * MS), len = rnd(200 * MS);

			if (len > end - BEGIN - MS)
				len = rnd(end - BEGIN);
			check_span(clk, c, end - len, end, in_step, &w);
		}
	}
	free(clk);
	return w;
}

TEST(drift_and_noise_convert_within_the_brackets)
{
	static const int64_t ppms[] = { 0, 50, -50, 500, -500 };

	for (size_t i = 0; i < sizeof(ppms) / sizeof(ppms[0]); i++) {
		const struct course c = { .off = 1795993439000000000ULL, .ppm = ppms[i] };
		struct worst w = run(&c, 400, 60);

		CHECK_EQ(w.backwards, 0);
		CHECK_EQ(w.unsure, 0);
		CHECK_MSG(w.error <= 202, "%" PRIu64 " ns at %d ppm", w.error, (int)ppms[i]);
	}
}

TEST(a_jump_touches_only_what_lies_beside_it)
{
	static const int64_t steps[] = {
		30 * (int64_t)MS, -30 * (int64_t)MS, 2000 * (int64_t)MS, -2000 * (int64_t)MS,
		3600000 * (int64_t)MS, -3600000 * (int64_t)MS, 200000, -200000,
	};

	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		const struct course c = {
			.off = 1795993439000000000ULL, .ppm = 20,
			.step_at = BEGIN + 2 * 1000 * MS + 41 * MS, .step = steps[i],
		};
		struct worst w = run(&c, 300, 60);

		CHECK_EQ(w.backwards, 0);
		/* Everything that touches the interval of the jump says so. */
		CHECK(w.unsure >= w.in_step);
		CHECK_MSG(w.error_sure <= 1000, "%" PRIu64 " ns unflagged, jump %" PRId64, w.error_sure, steps[i]);
		/* And even there an end is within that interval. */
		CHECK_MSG(w.error <= PERIOD, "%" PRIu64 " ns, jump %" PRId64, w.error, steps[i]);
	}
}

TEST(a_large_jump_is_read_by_the_nearer_offset)
{
	/* An hour: before and after cannot be confused, so even beside the jump times are right. */
	static const int64_t steps[] = { 3600000 * (int64_t)MS, -3600000 * (int64_t)MS };

	for (size_t i = 0; i < 2; i++) {
		const struct course c = {
			.off = 1795993439000000000ULL, .step_at = BEGIN + 2041 * MS, .step = steps[i],
		};
		struct worst w = run(&c, 300, 40);

		CHECK(w.unsure > 0);
		CHECK_MSG(w.error <= 1000, "%" PRIu64, w.error);
	}
}

TEST(another_clock_altogether_is_a_jump)
{
	/* torch.profiler registers a callback that gives the TSC: 1e18 becomes 1e14. */
	struct gpu_clock *clk = calloc(1, sizeof(*clk));
	uint64_t mono;
	bool unsure;

	CHECK(clk != NULL);
	CHECK(gpu_clock_add(clk, BEGIN, 1795993439000000000ULL, 100));
	CHECK(gpu_clock_add(clk, BEGIN + PERIOD, 1795993439000000000ULL + PERIOD, 100));
	CHECK(gpu_clock_add(clk, BEGIN + 2 * PERIOD, 123456789000000ULL, 100));
	CHECK(gpu_clock_add(clk, BEGIN + 3 * PERIOD, 123456789000000ULL + PERIOD, 100));
	CHECK_EQ(clk->steps, 1);
	CHECK(gpu_clock_convert(clk, 123456789000000ULL + 7 * MS, &mono, &unsure));
	CHECK_EQ(mono, BEGIN + 2 * PERIOD + 7 * MS);
	CHECK(!unsure);
	CHECK(gpu_clock_convert(clk, 1795993439000000000ULL + 9 * MS, &mono, &unsure));
	CHECK_EQ(mono, BEGIN + 9 * MS);
	free(clk);
}

TEST(before_the_first_and_behind_the_last_pair)
{
	struct gpu_clock *clk = calloc(1, sizeof(*clk));
	uint64_t mono = 77;
	bool unsure = true;

	CHECK(clk != NULL);
	CHECK(!gpu_clock_convert(clk, 5, &mono, &unsure));
	CHECK_EQ(mono, 77);
	CHECK(gpu_clock_add(clk, BEGIN, 900000 * MS, 100));
	CHECK(gpu_clock_convert(clk, 900000 * MS - 3 * MS, &mono, &unsure));
	CHECK_EQ(mono, BEGIN - 3 * MS);
	CHECK(!unsure);
	CHECK(gpu_clock_convert(clk, 900000 * MS + 3 * MS, &mono, &unsure));
	CHECK_EQ(mono, BEGIN + 3 * MS);
	CHECK(!unsure);
	CHECK(gpu_clock_convert(clk, 950000 * MS, &mono, &unsure));
	CHECK(unsure);
	CHECK(gpu_clock_convert(clk, 1, &mono, &unsure));
	CHECK_EQ(mono, 0);	/* before the machine was started: cannot be */
	CHECK(unsure);
	free(clk);
}

TEST(impossible_pairs_are_left_out)
{
	struct gpu_clock *clk = calloc(1, sizeof(*clk));

	CHECK(clk != NULL);
	CHECK(!gpu_clock_add(clk, 0, 5, 1));
	CHECK(!gpu_clock_add(clk, 5, 0, 1));
	CHECK(!gpu_clock_add(clk, UINT64_MAX, 5, 1));
	CHECK(gpu_clock_add(clk, BEGIN, BEGIN, UINT64_MAX));
	CHECK(!gpu_clock_add(clk, BEGIN, BEGIN + 1, 1));
	CHECK(!gpu_clock_add(clk, BEGIN - 1, BEGIN + 1, 1));
	CHECK_EQ(clk->cnt, 1);
	free(clk);
}

TEST(random_pairs_never_turn_a_span_around)
{
	struct gpu_clock *clk = calloc(1, sizeof(*clk));
	uint64_t mono = 1;

	CHECK(clk != NULL);
	for (int i = 0; i < 3 * GPU_CLOCK_PAIRS; i++) {
		uint64_t s, e;
		bool unsure;

		mono += 1 + rnd(1ULL << (1 + rnd(50)));
		gpu_clock_add(clk, mono, 1 + rnd(1ULL << (1 + rnd(62))), rnd(1ULL << (1 + rnd(62))));
		s = rnd(1ULL << (1 + rnd(62)));
		e = s + rnd(1ULL << (1 + rnd(50)));
		if (gpu_clock_span(clk, &s, &e, &unsure))
			CHECK(s <= e);
	}
	free(clk);
}
