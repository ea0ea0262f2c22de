/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#include "base/vec.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

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

/* Elements are moved by words, whatever is in them. */
typedef uint64_t __attribute__((may_alias)) word_t;

static int by_key(const void *a, const void *b)
{
	const uint64_t x = dl_vec_key(a), y = dl_vec_key(b);

	return x < y ? -1 : x > y;
}

/* Where the row of elements in order that begins at first ends. */
static size_t row_end(const word_t *v, size_t cnt, size_t words, size_t first)
{
	size_t i = first + 1;

	while (i < cnt && v[i * words] >= v[(i - 1) * words])
		i++;
	return i;
}

/* Merges the rows [a, b) and [b, end) of from to the same place of to. */
static void merge(word_t *to, const word_t *from, size_t words, size_t a, size_t b, size_t end)
{
	const word_t *x = from + a * words, *const x_end = from + b * words;
	const word_t *y = x_end, *const y_end = from + end * words;
	/* Of rows that overlap little, most is in its place. */
	const size_t before = b < end ? dl_vec_first_at(x, b - a, words * sizeof(*x), *y + 1) : b - a;

	to += a * words;
	memcpy(to, x, before * words * sizeof(*x));
	to += before * words;
	x += before * words;
	while (x < x_end && y < y_end) {
		const bool second = *y < *x;
		const word_t *const it = second ? y : x;

		for (size_t w = 0; w < words; w++)
			*to++ = it[w];
		x += second ? 0 : words;
		y += second ? words : 0;
	}
	memcpy(to, x, (size_t)((const char *)x_end - (const char *)x));
	memcpy(to + (x_end - x), y, (size_t)((const char *)y_end - (const char *)y));
}

void dl_vec_sort(void *v, size_t cnt, size_t sz)
{
	const size_t words = sz / sizeof(word_t);
	word_t *from = v, *to, *other;
	bool sorted = false;

	if (!cnt || row_end(from, cnt, words, 0) == cnt)
		return;
	other = malloc(cnt * sz);
	if (!other) {
		qsort(v, cnt, sz, by_key);	/* which can do without */
		return;
	}
	/* Each pass halves the number of rows. */
	for (to = other; !sorted;) {
		word_t *const merged = to;

		for (size_t a = 0, end; a < cnt; a = end) {
			const size_t b = row_end(from, cnt, words, a);

			end = b < cnt ? row_end(from, cnt, words, b) : b;
			merge(to, from, words, a, b, end);
			sorted = !a && end == cnt;
		}
		to = from;
		from = merged;
	}
	if (from != v)
		memcpy(v, from, cnt * sz);
	free(other);
}
