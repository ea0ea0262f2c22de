/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The hash table, against an array that does the same slowly. */
#include "base/map.h"
#include "unit/test.h"

TEST(map_finds_nothing_in_nothing)
{
	struct dl_map m = { 0 };
	uint64_t val = 5, key;
	size_t pos = 0;

	CHECK(!dl_map_get(&m, 0, &val));
	CHECK_EQ(val, 5);
	dl_map_del(&m, 0);
	CHECK(!dl_map_next(&m, &pos, &key, &val));
	dl_map_fini(&m);
}

TEST(map_keeps_what_it_is_given)
{
	const uint64_t keys[] = { 0, 1, UINT64_MAX, 1ULL << 32, 1ULL << 63 };
	struct dl_map m = { 0 };
	uint64_t val;

	for (uint64_t i = 0; i < 5; i++)
		CHECK_OK(dl_map_set(&m, keys[i], i + 100));
	CHECK_OK(dl_map_set(&m, 0, 7));	/* replaces */
	CHECK_EQ(m.cnt, 5);
	CHECK(dl_map_get(&m, 0, &val));
	CHECK_EQ(val, 7);
	CHECK(dl_map_get(&m, UINT64_MAX, &val));
	CHECK_EQ(val, 102);
	CHECK(dl_map_get(&m, 1ULL << 63, NULL));
	CHECK(!dl_map_get(&m, 2, NULL));
	dl_map_fini(&m);
	CHECK_EQ(m.cnt, 0);
}

enum { KEYS = 500 };

static void compare(const struct dl_map *m, const bool *there, const uint64_t *vals)
{
	uint64_t key, val, seen = 0, want = 0;
	size_t pos = 0;

	for (uint64_t k = 0; k < KEYS; k++) {
		want += there[k];
		CHECK_EQ(dl_map_get(m, k * 64, &val), there[k]);
		if (there[k])
			CHECK_EQ(val, vals[k]);
	}
	CHECK_EQ(m->cnt, want);
	while (dl_map_next(m, &pos, &key, &val)) {
		CHECK(key % 64 == 0 && key / 64 < KEYS && there[key / 64]);
		CHECK_EQ(val, vals[key / 64]);
		seen++;
	}
	CHECK_EQ(seen, want);
}

TEST(map_agrees_with_an_array)
{
	struct dl_map m = { 0 };
	bool there[KEYS] = { false };
	uint64_t vals[KEYS] = { 0 }, rng = 88172645463325252ULL;

	for (int i = 0; i < 200000; i++) {
		uint64_t k;

		rng ^= rng << 13;
		rng ^= rng >> 7;
		rng ^= rng << 17;
		k = rng % KEYS;
		if (rng >> 40 & 1) {
			CHECK_OK(dl_map_set(&m, k * 64, rng));
			there[k] = true;
			vals[k] = rng;
		} else {
			dl_map_del(&m, k * 64);
			there[k] = false;
		}
		if (i % 10007 == 0)
			compare(&m, there, vals);
	}
	compare(&m, there, vals);
	CHECK(m.cap <= 4096);	/* removed places are used again */
	dl_map_fini(&m);
}

TEST(map_adds_up_in_place)
{
	struct dl_map m = { 0 };
	uint64_t val;

	for (uint64_t i = 0; i < 5000; i++) {
		uint64_t *at = dl_map_at(&m, i % 100);

		CHECK(at != NULL);
		CHECK_EQ(*at, i / 100);	/* a new one is 0 */
		++*at;
	}
	CHECK_EQ(m.cnt, 100);
	dl_map_del(&m, 7);
	CHECK_EQ(*dl_map_at(&m, 7), 0);	/* and so is one that was there before */
	CHECK(dl_map_get(&m, 8, &val));
	CHECK_EQ(val, 50);
	dl_map_fini(&m);
}

TEST(hash_spreads)
{
	unsigned int buckets[256] = { 0 };

	for (uint64_t i = 0; i < 256 * 64; i++)
		buckets[dl_hash64(i << 20) & 255]++;
	for (int i = 0; i < 256; i++)
		CHECK(buckets[i] > 16 && buckets[i] < 160);
}

TEST(hash_of_bytes)
{
	const char text[] = "abcdefghijklmnopqrstuvwxyz";

	for (size_t n = 0; n < 26; n++) {
		char copy[32] = { 0 };

		memcpy(copy + 3, text, n);	/* not aligned */
		CHECK_EQ(dl_hash_bytes(copy + 3, n), dl_hash_bytes(text, n));
		CHECK(dl_hash_bytes(text, n) != dl_hash_bytes(text, n + 1));
		copy[3] ^= 1;
		CHECK(!n || dl_hash_bytes(copy + 3, n) != dl_hash_bytes(text, n));
	}
	CHECK(dl_hash_bytes("\0", 1) != dl_hash_bytes("\0\0", 2));
}
