/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#include "base/values.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/vec.h"

/* Numbers below 2^SUB_BITS have a bucket each; above, each power of two is divided into that many. */
#define SUB_BITS 7
#define SUB_CNT (1u << SUB_BITS)
#define BUCKETS ((64 - SUB_BITS + 1) * SUB_CNT)

static size_t bucket_of(uint64_t value)
{
	unsigned int shift = value < SUB_CNT ? 0 : 63 - SUB_BITS - (unsigned int)__builtin_clzll(value);

	return value < SUB_CNT ? value : (size_t)(shift + 1) * SUB_CNT + ((value >> shift) - SUB_CNT);
}

/* The middle of a bucket. */
static uint64_t value_of(size_t bucket)
{
	unsigned int shift = bucket < SUB_CNT ? 0 : (unsigned int)(bucket / SUB_CNT - 1);
	uint64_t from = bucket < SUB_CNT ? bucket : (SUB_CNT + bucket % SUB_CNT) << shift;

	return from + ((1ULL << shift) - 1) / 2;
}

static int make_buckets(struct dl_values *s)
{
	s->buckets = calloc(BUCKETS, sizeof(*s->buckets));
	if (!s->buckets)
		return -ENOMEM;
	vec_for_each(&s->few, v)
		s->buckets[bucket_of(*v)]++;
	vec_free(&s->few);
	return 0;
}

int dl_values_add(struct dl_values *s, uint64_t value)
{
	if (!s->buckets && s->few.cnt < DL_VALUES_EXACT) {
		uint64_t *at = vec_push(&s->few);

		if (!at)
			return -ENOMEM;
		*at = value;
	} else {
		if (!s->buckets && make_buckets(s))
			return -ENOMEM;
		s->buckets[bucket_of(value)]++;
	}
	s->cnt++;
	s->sum += value;
	if (value > s->max)
		s->max = value;
	return 0;
}

int dl_values_merge(struct dl_values *into, const struct dl_values *from)
{
	if (!into->buckets && (from->buckets || into->few.cnt + from->few.cnt > DL_VALUES_EXACT) && make_buckets(into))
		return -ENOMEM;
	if (!into->buckets && vec_reserve(&into->few, from->few.cnt))
		return -ENOMEM;
	vec_for_each(&from->few, v) {
		if (into->buckets)
			into->buckets[bucket_of(*v)]++;
		else
			into->few.v[into->few.cnt++] = *v;
	}
	for (size_t i = 0; from->buckets && i < BUCKETS; i++)
		into->buckets[i] += from->buckets[i];
	into->cnt += from->cnt;
	into->sum += from->sum;
	if (from->max > into->max)
		into->max = from->max;
	return 0;
}

uint64_t dl_values_at(struct dl_values *s, uint64_t place)
{
	uint64_t value = 0;

	if (!s->buckets) {
		vec_sort(&s->few);
		return s->few.v[place];
	}
	if (place == s->cnt - 1)
		return s->max;
	for (size_t i = 0; i < BUCKETS; i++) {
		if (s->buckets[i] > place) {
			value = value_of(i);
			break;
		}
		place -= s->buckets[i];
	}
	return value < s->max ? value : s->max;
}

void dl_values_fini(struct dl_values *s)
{
	vec_free(&s->few);
	free(s->buckets);
	memset(s, 0, sizeof(*s));
}
