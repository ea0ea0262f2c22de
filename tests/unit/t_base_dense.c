/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Indices by numbers that lie close together, and by those that do not. */
#include <stdlib.h>

#include "base/dense.h"
#include "unit/test.h"

static uint64_t rng = 42;

static uint64_t rnd(void)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	return rng ^= rng << 17;
}

TEST(dense_as_a_table)
{
	struct dl_dense m = { 0 };
	struct dl_map truth = { 0 };
	uint64_t key = 1000, val;
	uint32_t got;

	CHECK(!dl_dense_get(&m, 0, NULL));
	CHECK(!dl_dense_get(&m, 1000, NULL));
	for (uint32_t i = 0; i < 20000; i++) {
		/* by ones and with gaps, at times far away or again */
		uint64_t k = rnd() % 50 ? (key += rnd() % 4) : rnd() % 3 ? rnd() >> rnd() % 64 : 900 + rnd() % (key - 900);

		CHECK_OK(dl_dense_set(&m, k, i));
		CHECK_OK(dl_map_set(&truth, k, i));
	}
	for (uint64_t k = 0; k < key + 100; k++) {
		const bool there = dl_map_get(&truth, k, &val);

		CHECK_EQ(dl_dense_get(&m, k, &got), there);
		CHECK(!there || got == val);
	}
	for (size_t pos = 0; dl_map_next(&truth, &pos, &key, &val);) {
		CHECK(dl_dense_get(&m, key, &got));
		CHECK_EQ(got, val);
	}
	dl_map_fini(&truth);
	dl_dense_fini(&m);
	CHECK(!m.v.v && !m.far.slots && !dl_dense_get(&m, 1000, NULL));
}

/* Numbers that are nowhere near each other take no more room than they are. */
TEST(dense_far_numbers_make_no_array)
{
	struct dl_dense m = { 0 };

	for (uint64_t i = 0; i < 1000; i++)
		CHECK_OK(dl_dense_set(&m, i << 40, (uint32_t)i));
	CHECK(m.v.cnt <= 4096 + 4);
	for (uint32_t i = 0, got = 0; i < 1000; i++) {
		CHECK(dl_dense_get(&m, (uint64_t)i << 40, &got));
		CHECK_EQ(got, i);
	}
	dl_dense_fini(&m);
}
