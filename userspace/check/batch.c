/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#include "check/batch.h"

#include <stdlib.h>
#include <string.h>

enum {
	PAGE = 4096,
	PERIOD_MAX = 64,	/* objects in a batch */
	GROUPS = 4,		/* batches that were seen to appear, before that tells something */
	REPEATS = 2,		/* a pattern is one when it was seen so often */
	PAIRS_MIN = 8,		/* objects a pattern apart, to tell whether it is one */
	WINDOW_MAX = 512,	/* objects that are looked through: beyond these they tell nothing new */
	SIZES_MAX = 4,		/* more of them, and they vary from batch to batch */
};

/* The share of objects that must be as large as their place in the pattern wants it: the last batch of an
 * epoch is smaller. */
#define FITS 0.85

bool ck_storage_parse(const char *name, uint32_t *ret_owner, uint64_t *ret_nr)
{
	static const char prefix[] = "torch_";
	unsigned long owner;
	uint64_t nr = 0;
	char *end;

	if (strncmp(name, prefix, sizeof(prefix) - 1))
		return false;
	name += sizeof(prefix) - 1;
	if (*name < '0' || *name > '9')
		return false;
	owner = strtoul(name, &end, 10);
	if (*end != '_' || !owner || owner > UINT32_MAX)
		return false;
	name = end + 1;
	strtoull(name, &end, 10);	/* the random part */
	if (end == name || (*end && *end != '_'))
		return false;
	if (*end == '_') {
		name = end + 1;
		nr = strtoull(name, &end, 10);
		if (end == name || *end)
			return false;
	}
	*ret_owner = (uint32_t)owner;
	*ret_nr = nr;
	return true;
}

static uint64_t pages(uint64_t size)
{
	return (size + PAGE - 1) / PAGE * PAGE;
}

/* The most frequent size at one place of a pattern, and how often it is met. */
static uint64_t mode_of(const struct ck_storage *v, size_t cnt, uint32_t period, uint32_t place, size_t *ret_cnt,
			size_t *ret_all)
{
	uint64_t best = 0;
	size_t best_cnt = 0, all = 0;

	for (size_t i = 0; i < cnt; i++) {
		size_t same = 0;

		if (v[i].nr % period != place)
			continue;
		all++;
		for (size_t j = 0; j < cnt; j++)
			same += v[j].nr % period == place && v[j].size == v[i].size;
		if (same > best_cnt || (same == best_cnt && v[i].size > best)) {
			best_cnt = same;
			best = v[i].size;
		}
	}
	*ret_cnt = best_cnt;
	*ret_all = all;
	return best;
}

/* The object with this number; they are in order of it. */
static const struct ck_storage *find_nr(const struct ck_storage *v, size_t cnt, uint64_t nr)
{
	size_t lo = 0, hi = cnt;

	while (lo < hi) {
		const size_t mid = (lo + hi) / 2;

		if (v[mid].nr < nr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < cnt && v[lo].nr == nr ? &v[lo] : NULL;
}

/* The most frequent size of so many objects in a row; how often it is met, 0 no row is whole. */
static size_t row_bytes(const struct ck_storage *v, size_t cnt, uint32_t period, uint64_t *ret)
{
	uint64_t sums[WINDOW_MAX];
	size_t rows = 0, best = 0;

	for (size_t i = 0; i + period <= cnt && rows < WINDOW_MAX; i++) {
		if (v[i + period - 1].nr - v[i].nr != period - 1)
			continue;
		sums[rows] = 0;
		for (uint32_t k = 0; k < period; k++)
			sums[rows] += pages(v[i + k].size);
		rows++;
	}
	for (size_t i = 0; i < rows; i++) {
		size_t same = 0;

		for (size_t j = 0; j < rows; j++)
			same += sums[j] == sums[i];
		if (same > best) {
			best = same;
			*ret = sums[i];
		}
	}
	return best;
}

enum answer { NO, YES, CANNOT_TELL };

/*
 * Is each object as large as the one so many numbers later? It does not matter then where a pattern begins, so one that
 * is shifted once, by an object more or less, costs no more than its length. And where there is none, this does not
 * find a long one that fits the few objects of each of its places.
 */
static enum answer repeats(const struct ck_storage *v, size_t cnt, uint32_t period, struct dl_ck_batch *ret)
{
	struct dl_ck_batch b = { .storages = period };
	size_t pairs = 0, same = 0;

	for (size_t i = 0; i < cnt; i++) {
		const struct ck_storage *next = find_nr(v, cnt, v[i].nr + period);

		pairs += next != NULL;
		same += next && next->size == v[i].size;
	}
	if (pairs < PAIRS_MIN)
		return CANNOT_TELL;
	if ((double)same < FITS * (double)pairs)
		return NO;
	if (row_bytes(v, cnt, period, &b.bytes) < REPEATS)
		return CANNOT_TELL;
	b.seen = (uint32_t)((v[cnt - 1].nr - v[0].nr + 1) / period);
	*ret = b;
	return YES;
}

/* Of one worker: is this the length of its pattern? */
static bool try_period(const struct ck_storage *v, size_t cnt, uint32_t period, struct dl_ck_batch *ret)
{
	struct dl_ck_batch b = { .storages = period };
	size_t fit = 0, all = 0, fewest = cnt;

	for (uint32_t place = 0; place < period; place++) {
		size_t same, here;

		b.bytes += pages(mode_of(v, cnt, period, place, &same, &here));
		fit += same;
		all += here;
		if (same < fewest)
			fewest = same;
	}
	if (fewest < REPEATS || (double)fit < FITS * (double)all)
		return false;
	b.seen = (uint32_t)((v[cnt - 1].nr - v[0].nr + 1) / period);
	*ret = b;
	return true;
}

static size_t count_size(const struct ck_storage *v, size_t cnt, uint64_t size, size_t *ret_first)
{
	size_t n = 0;

	*ret_first = cnt;
	for (size_t i = 0; i < cnt; i++) {
		if (v[i].size != size)
			continue;
		if (!n++)
			*ret_first = i;
	}
	return n;
}

/*
 * Without a pattern in their order (two threads of a worker make them): one of each size that is met again and
 * again. It may have been more of some, so the result is the least. False where there are many sizes: they vary.
 */
static bool by_sizes(const struct ck_storage *v, size_t cnt, struct dl_ck_batch *ret)
{
	struct dl_ck_batch b = { .at_least = true };
	size_t covered = 0, fewest = cnt, first;

	for (size_t i = 0; i < cnt; i++) {
		const size_t n = count_size(v, cnt, v[i].size, &first);

		if (first != i || n < REPEATS)
			continue;
		b.bytes += pages(v[i].size);
		b.storages++;
		covered += n;
		fewest = n < fewest ? n : fewest;
	}
	if (!b.storages || b.storages > SIZES_MAX || (double)covered < FITS * (double)cnt)
		return false;
	b.seen = (uint32_t)fewest;
	*ret = b;
	return true;
}

/*
 * How many objects of a worker appear together? Only those count that nothing else is near: a look in which it
 * made none lies before and behind. Of a fast loader there are none such, but for moments in which it was kept from its
 * CPU, and had several batches to make then: so most of its objects must lie in such groups. What a look finds that
 * came late is more than one batch, as often as not. 0 unknown; *ret_bytes: of the largest that has so many.
 */
static uint32_t group_of(const struct ck_storage *v, size_t cnt, uint64_t *ret_bytes)
{
	uint32_t sizes[PERIOD_MAX + 1] = {}, groups = 0, best = 0;
	uint64_t largest[PERIOD_MAX + 1] = {};

	*ret_bytes = 0;
	for (size_t i = 0, n; i < cnt; i += n) {
		uint64_t bytes = pages(v[i].size);

		for (n = 1; i + n < cnt && v[i + n].look == v[i].look; n++)
			bytes += pages(v[i + n].size);
		if (!i || i + n >= cnt || n > PERIOD_MAX || v[i].look < v[i - 1].look + 2 || v[i + n].look < v[i].look + 2 ||
		    v[i + n - 1].nr - v[i].nr != n - 1 || v[i].late)
			continue;
		groups++;
		sizes[n]++;
		if (sizes[n] > sizes[best])
			best = (uint32_t)n;
		largest[n] = bytes > largest[n] ? bytes : largest[n];
	}
	if (groups < GROUPS || (double)sizes[best] < FITS * (double)groups || 2 * (size_t)best * sizes[best] < cnt)
		return 0;
	*ret_bytes = largest[best];
	return best;
}

static uint32_t gcd(uint32_t a, uint32_t b)
{
	return b ? gcd(b, a % b) : a;
}

/*
 * Two batches of an image and a label whose images come first look like one of two and two. Where no group tells which
 * it is, the smaller is meant: it may have been more.
 */
static void reduce(struct dl_ck_batch *b, const struct ck_storage *v, size_t cnt)
{
	uint32_t times = 0;

	for (size_t i = 0; i + b->storages <= cnt && !times; i++) {
		if (v[i + b->storages - 1].nr - v[i].nr != b->storages - 1)
			continue;
		for (uint32_t k = 0; k < b->storages; k++) {
			uint32_t same = 0;

			for (uint32_t j = 0; j < b->storages; j++)
				same += v[i + j].size == v[i + k].size;
			times = gcd(same, times);
		}
	}
	if (times < 2)
		return;
	b->bytes /= times;
	b->storages /= times;
	b->seen *= times;
	b->at_least = true;
}

/* A pattern of one size, or of a part of a batch, is met as often in it as objects appear together. */
static void complete(struct dl_ck_batch *b, uint32_t group)
{
	const uint32_t times = group / b->storages;

	if (times < 2 || group % b->storages)
		return;
	b->bytes *= times;
	b->storages = group;
	b->seen = b->seen / times ? b->seen / times : 1;
}

static struct dl_ck_batch batch_of_one(const struct ck_storage *v, size_t cnt)
{
	struct dl_ck_batch b = { .storages = 1, .at_least = true }, other;
	uint64_t group_bytes;
	uint32_t group;

	if (cnt > WINDOW_MAX) {
		v += cnt - WINDOW_MAX;
		cnt = WINDOW_MAX;
	}
	group = group_of(v, cnt, &group_bytes);
	for (uint32_t period = 1; period <= PERIOD_MAX && (size_t)period * REPEATS <= cnt; period++) {
		const enum answer answer = repeats(v, cnt, period, &b);

		if (answer == NO || (answer == CANNOT_TELL && !try_period(v, cnt, period, &b)))
			continue;
		if (!group && period > 1)
			reduce(&b, v, cnt);
		complete(&b, group);
		return b;
	}
	b.seen = 1;
	for (size_t i = 0; i < cnt; i++)
		if (pages(v[i].size) > b.bytes)
			b.bytes = pages(v[i].size);
	if (by_sizes(v, cnt, &other) && other.bytes > b.bytes)
		b = other;
	if (group && group_bytes > b.bytes) {
		b.bytes = group_bytes;
		b.storages = group;
	}
	return b;
}

struct dl_ck_batch ck_batch_of(const struct ck_storage *v, size_t cnt)
{
	struct dl_ck_batch best = {};
	uint32_t seen = 0;

	for (size_t i = 0, n; i < cnt; i += n) {
		struct dl_ck_batch b;

		for (n = 1; i + n < cnt && v[i + n].owner == v[i].owner; n++)
			;
		b = batch_of_one(v + i, n);
		/* What has a pattern goes before what has none; of equals, the larger. */
		if (!best.bytes || (best.at_least && !b.at_least) ||
		    (best.at_least == b.at_least && b.bytes > best.bytes))
			best = b;
		seen += b.at_least ? 0 : b.seen;
	}
	if (!best.at_least && seen)
		best.seen = seen;
	return best;
}
