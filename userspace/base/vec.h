/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Growing arrays. A vector is any struct with the members { T *v; size_t cnt, cap; }, zeroed to
 * begin with:
 *
 *	struct { struct seg *v; size_t cnt, cap; } segs = {};
 *	struct seg *s = vec_push(&segs);	// zeroed; NULL without memory
 */
#ifndef DLBPF_BASE_VEC_H
#define DLBPF_BASE_VEC_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Makes room for cnt more of size sz; returns 0 or -ENOMEM. */
int dl_vec_grow(void **v, size_t cnt, size_t *cap, size_t more, size_t sz);

/* The number that an element begins with. */
static inline uint64_t dl_vec_key(const void *element)
{
	uint64_t key;

	memcpy(&key, element, sizeof(key));
	return key;
}

/* For elements that begin with a uint64_t and are sorted by it: index of the first one whose number
 * is at least t; cnt when there is none. */
static inline size_t dl_vec_first_at(const void *v, size_t cnt, size_t sz, uint64_t t)
{
	size_t first = 0;

	while (cnt > 1) {
		const size_t half = cnt / 2;

		first += dl_vec_key((const char *)v + (first + half - 1) * sz) < t ? half : 0;
		cnt -= half;
	}
	return first + (cnt && dl_vec_key((const char *)v + first * sz) < t);
}

/* The key of the element at an index. */
typedef uint64_t dl_key_fn(const void *ctx, size_t i);

/* The same, by whatever key, where the place is likely to be not far from one of before: in the logarithm of
 * how far it is. */
static inline __attribute__((always_inline)) size_t dl_first_near(dl_key_fn *key, const void *ctx, size_t cnt,
								  uint64_t t, size_t near)
{
	size_t lo, hi, step = 1;

	if (near > cnt)
		near = cnt;
	if (near < cnt && key(ctx, near) < t) {
		for (lo = near + 1; cnt - lo > step && key(ctx, lo + step - 1) < t; step *= 2)
			lo += step;
		hi = cnt - lo > step ? lo + step : cnt;
	} else {
		for (hi = near; hi > step && key(ctx, hi - step) >= t; step *= 2)
			hi -= step;
		lo = hi > step ? hi - step : 0;
	}
	while (lo < hi) {
		const size_t mid = lo + (hi - lo) / 2;

		if (key(ctx, mid) < t)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

struct dl_vec_keys { const char *v; size_t sz; };

static inline uint64_t dl_vec_key_at(const void *ctx, size_t i)
{
	const struct dl_vec_keys *k = ctx;

	return dl_vec_key(k->v + i * k->sz);
}

static inline size_t dl_vec_first_near(const void *v, size_t cnt, size_t sz, uint64_t t, size_t near)
{
	const struct dl_vec_keys k = { v, sz };

	return dl_first_near(dl_vec_key_at, &k, cnt, t, near);
}

#define vec_first_at(vec, t) dl_vec_first_at((vec)->v, (vec)->cnt, sizeof(*(vec)->v), (t))

#define vec_first_near(vec, t, near) dl_vec_first_near((vec)->v, (vec)->cnt, sizeof(*(vec)->v), (t), (near))

/* Sorts such elements by it; equal ones stay in their order. What consists of few rows that are in order is
 * sorted in little more than the time to read it. sz is a multiple of 8. */
void dl_vec_sort(void *v, size_t cnt, size_t sz);

#define vec_sort(vec) dl_vec_sort((vec)->v, (vec)->cnt, sizeof(*(vec)->v))

#define DL_VEC(type) struct { type *v; size_t cnt, cap; }

#define vec_reserve(vec, more) \
	dl_vec_grow((void **)&(vec)->v, (vec)->cnt, &(vec)->cap, (more), sizeof(*(vec)->v))

#define vec_push(vec) \
	((__typeof__((vec)->v))((vec)->cnt == (vec)->cap && vec_reserve(vec, 1) ? NULL : \
		memset(&(vec)->v[(vec)->cnt++], 0, sizeof(*(vec)->v))))

#define vec_last(vec) ((vec)->cnt ? &(vec)->v[(vec)->cnt - 1] : NULL)

#define vec_free(vec) do { \
	free((vec)->v); (vec)->v = NULL; (vec)->cnt = (vec)->cap = 0; \
} while (0)

/* "it &&": adding even 0 to a null pointer is undefined. "&*": a const vector's pointer must move too. */
#define vec_for_each(vec, it) \
	for (__typeof__(&*(vec)->v) it = (vec)->v; it && it < (vec)->v + (vec)->cnt; it++)

#endif
