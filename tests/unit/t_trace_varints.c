/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The encoder's fast way to write numbers writes what the plain one does. */
#include "base/cleanup.h"
#include "trace/encode.h"
#include "unit/trace_util.h"

static void check_varints(const uint64_t *v, size_t cnt)
{
	uint8_t want[64 * DL_VARINT_MAX], got[64 * DL_VARINT_MAX + 8], *p = want;
	uint64_t any = 0;

	for (size_t i = 0; i < cnt; i++) {
		p = dl_put_varint(p, v[i]);
		any |= v[i];
	}
	CHECK_EQ(dl_enc_varints(got, v, cnt, any) - got, p - want);
	CHECK(!memcmp(got, want, (size_t)(p - want)));
}

TEST(varints_at_every_length)
{
	for (unsigned int bit = 0; bit < 64; bit++) {
		const uint64_t edge = 1ULL << bit;
		const uint64_t v[] = { edge, edge - 1, 0, edge + 1, 1, 127, edge | 1, edge };

		for (size_t cnt = 0; cnt <= ARRAY_SIZE(v); cnt++)
			check_varints(v, cnt);
	}
}

TEST(varints_of_all_sizes_mixed)
{
	rng_seed(3);
	for (unsigned int n = 0; n < 3000; n++) {
		const unsigned int bits = 1 + n % 64, small = (unsigned int)(rng() % 8);
		uint64_t v[64];

		for (size_t i = 0; i < ARRAY_SIZE(v); i++)
			v[i] = (rng() >> (64 - bits)) >> (rng() % 8 < small ? bits / 2 : 0);
		check_varints(v, rng() % (ARRAY_SIZE(v) + 1));
	}
}
