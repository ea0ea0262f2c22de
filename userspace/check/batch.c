/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#include "check/batch.h"

#include <stdlib.h>
#include <string.h>

enum {
	PAGE = 4096,
	PERIOD_MAX = 64,	/* objects in a batch */
	GROUPS = 4,		/* batches that were seen to appear, before that tells something */
	REPEATS = 2,		/* a pattern is one when it was seen so often */
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
 * made none lies before and behind. Of a fast loader there are none such, and what a look finds that came late is
 * more than one batch, as often as not. 0 unknown; *ret_bytes: of the largest that has so many.
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
	if (groups < GROUPS || (double)sizes[best] < FITS * (double)groups)
		return 0;
	*ret_bytes = largest[best];
	return best;
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

	/* A quadratic search: objects beyond these tell nothing new. */
	if (cnt > 512) {
		v += cnt - 512;
		cnt = 512;
	}
	group = group_of(v, cnt, &group_bytes);
	for (uint32_t period = 1; period <= PERIOD_MAX && (size_t)period * REPEATS <= cnt; period++) {
		if (!try_period(v, cnt, period, &b))
			continue;
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
