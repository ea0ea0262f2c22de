/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#include "base/vec.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int dl_vec_grow(void **v, size_t cnt, size_t *cap, size_t more, size_t sz)
{
	size_t want, bytes;
	void *grown;

	if (*cap - cnt >= more)
		return 0;
	if (__builtin_add_overflow(cnt, more, &want))
		return -ENOMEM;
	if (want < *cap + *cap / 2)
		want = *cap + *cap / 2;
	if (want < 16)
		want = 16;
	if (__builtin_mul_overflow(want, sz, &bytes))
		return -ENOMEM;
	grown = realloc(*v, bytes);
	if (!grown)
		return -ENOMEM;
	*v = grown;
	*cap = want;
	return 0;
}

void *dl_vec_at_zeroed(void *v, size_t index, size_t sz)
{
	return memset((char *)v + index * sz, 0, sz);
}

size_t dl_vec_first_at(const void *v, size_t cnt, size_t sz, uint64_t t)
{
	size_t lo = 0, hi = cnt;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		uint64_t at;

		memcpy(&at, (const char *)v + mid * sz, sizeof(at));
		if (at < t)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static int by_first(const void *a, const void *b)
{
	uint64_t x, y;

	memcpy(&x, a, sizeof(x));
	memcpy(&y, b, sizeof(y));
	return x < y ? -1 : x > y;
}

void dl_vec_sort(void *v, size_t cnt, size_t sz)
{
	if (cnt)
		qsort(v, cnt, sz, by_first);
}
