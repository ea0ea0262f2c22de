/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#include "unit/test.h"

#include "base/values.h"

static uint64_t state = 1;

/* From 0 to 2^63, small ones as often as large ones. */
static uint64_t rnd(void)
{
	state = state * 6364136223846793005ULL + 1442695040888963407ULL;
	return state >> (1 + (state >> 5) % 62);
}

static int by_size(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

static void fill(struct dl_values *s, uint64_t *all, size_t cnt)
{
	for (size_t i = 0; i < cnt; i++) {
		all[i] = rnd();
		CHECK_EQ(dl_values_add(s, all[i]), 0);
	}
}

TEST(values_few_are_exact)
{
	static uint64_t all[DL_VALUES_EXACT];
	struct dl_values s = {};

	fill(&s, all, DL_VALUES_EXACT);
	qsort(all, DL_VALUES_EXACT, sizeof(*all), by_size);
	for (size_t i = 0; i < DL_VALUES_EXACT; i += 97)
		CHECK_EQ(dl_values_at(&s, i), all[i]);
	CHECK_EQ(s.max, all[DL_VALUES_EXACT - 1]);
	dl_values_fini(&s);
	CHECK_EQ(s.cnt, 0);
}

static void check_near(struct dl_values *s, const uint64_t *sorted, size_t cnt)
{
	CHECK_EQ(s->cnt, cnt);
	CHECK_EQ(s->max, sorted[cnt - 1]);
	CHECK_EQ(dl_values_at(s, cnt - 1), sorted[cnt - 1]);
	for (size_t i = 0; i < cnt; i += 97) {
		uint64_t got = dl_values_at(s, i), off = got > sorted[i] ? got - sorted[i] : sorted[i] - got;

		if (off > sorted[i] / 256)
			test_fail(__FILE__, __LINE__, "%" PRIu64 " for %" PRIu64, got, sorted[i]);
	}
}

TEST(values_many_are_near)
{
	enum { CNT = 3 * DL_VALUES_EXACT };
	static uint64_t all[CNT];
	struct dl_values s = {};

	fill(&s, all, CNT);
	qsort(all, CNT, sizeof(*all), by_size);
	check_near(&s, all, CNT);
	dl_values_fini(&s);
}

/* In whatever way they come together. */
TEST(values_merge)
{
	static const size_t cnts[] = { 0, 1, 1000, DL_VALUES_EXACT, DL_VALUES_EXACT + 1 };
	static uint64_t all[2 * DL_VALUES_EXACT + 2];

	for (size_t i = 0; i < 5; i++) {
		for (size_t k = 0; k < 5; k++) {
			struct dl_values a = {}, b = {};
			size_t cnt = cnts[i] + cnts[k];

			fill(&a, all, cnts[i]);
			fill(&b, all + cnts[i], cnts[k]);
			CHECK_EQ(dl_values_merge(&a, &b), 0);
			qsort(all, cnt, sizeof(*all), by_size);
			if (cnt)
				check_near(&a, all, cnt);
			if (cnt && cnt <= DL_VALUES_EXACT)
				CHECK_EQ(dl_values_at(&a, cnt / 2), all[cnt / 2]);
			dl_values_fini(&a);
			dl_values_fini(&b);
		}
	}
}
