/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The fit. Samples are put into a dozen parts of equal time, of each only the lowest and the highest
 * value count: teeth that are shorter than a part do not disturb, longer ones show as falls. The
 * slopes between all pairs of parts say what the line is (their median, Theil-Sen) and whether it is
 * one (their spread). Of the whole time, its last half, quarter and eighth, the longest that is a line
 * counts: a run behaves otherwise while it starts.
 */
#include "capture/forecast.h"

#include <stdlib.h>
#include <string.h>

#define PARTS 12
#define PAIRS (PARTS * (PARTS - 1) / 2)
#define LAST 4			/* parts at the end that have to go on as the whole does */
#define NS 1e9

struct part { double at, lo, hi; };	/* at: seconds, the middle of its samples */

static int cmp_double(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

/* False when a part has no samples. */
static bool split(struct part *parts, const struct dl_fc_point *v, size_t cnt)
{
	const double span = (double)(v[cnt - 1].ts - v[0].ts);
	double sum[PARTS] = {};
	size_t n[PARTS] = {};

	for (size_t i = 0; i < cnt; i++) {
		const double off = (double)(v[i].ts - v[0].ts);
		size_t p = (size_t)(off / span * PARTS);
		struct part *part;

		p = p < PARTS ? p : PARTS - 1;
		part = &parts[p];
		if (!n[p] || v[i].val < part->lo)
			part->lo = v[i].val;
		if (!n[p] || v[i].val > part->hi)
			part->hi = v[i].val;
		sum[p] += off / NS;
		n[p]++;
	}
	for (size_t p = 0; p < PARTS; p++) {
		if (!n[p])
			return false;
		parts[p].at = sum[p] / (double)n[p];
	}
	return true;
}

static double lo(const struct part *p)
{
	return p->lo;
}

static double hi(const struct part *p)
{
	return p->hi;
}

static double mid(const struct part *p)
{
	return (p->lo + p->hi) / 2;
}

/* Slopes between all pairs, the smallest first; how many. */
static size_t slopes(double *ret, const struct part *parts, size_t cnt, double (*val)(const struct part *p))
{
	size_t n = 0;

	for (size_t i = 0; i < cnt; i++)
		for (size_t j = i + 1; j < cnt; j++)
			ret[n++] = (val(&parts[j]) - val(&parts[i])) / (parts[j].at - parts[i].at);
	qsort(ret, n, sizeof(*ret), cmp_double);
	return n;
}

static double median_slope(const struct part *parts, size_t cnt, double (*val)(const struct part *p))
{
	double s[PAIRS];
	const size_t n = slopes(s, parts, cnt, val);

	return n % 2 ? s[n / 2] : (s[n / 2 - 1] + s[n / 2]) / 2;
}

/* The flattest tenth of the slopes: above 0 only where nearly every later part is higher. */
static double flattest(const struct part *parts, double (*val)(const struct part *p))
{
	double s[PAIRS];

	slopes(s, parts, PARTS, val);
	return s[PAIRS / 10];
}

static bool is_line(const struct part *parts, double per_s)
{
	const double last = median_slope(parts + PARTS - LAST, LAST, mid);
	const double first = median_slope(parts, LAST, mid);
	const double low = median_slope(parts, PARTS, lo), high = median_slope(parts, PARTS, hi);
	double expect;

	if (flattest(parts, lo) <= 0 || flattest(parts, hi) <= 0)
		return false;
	/* It must not spread or narrow, flatten or turn up on the way. */
	if (low > 3 * high || high > 3 * low)
		return false;
	if (last < per_s / 2.5 || last > per_s * 2.5 || first < per_s / 4 || first > per_s * 4)
		return false;
	/* Nor have come to rest just now: the last part goes on from the one before. */
	expect = mid(&parts[PARTS - 2]) + per_s * (parts[PARTS - 1].at - parts[PARTS - 2].at) / 4;
	return mid(&parts[PARTS - 1]) >= expect || hi(&parts[PARTS - 1]) - lo(&parts[PARTS - 1]) >
	       4 * per_s * (parts[PARTS - 1].at - parts[PARTS - 2].at);
}

static uint64_t until(double left, double per_s)
{
	const double ns = left / per_s * NS;

	return left <= 0 ? 0 : ns < 0x1p63 ? (uint64_t)ns : UINT64_MAX;
}

static bool fit(struct dl_forecast *ret, const struct dl_fc_point *v, size_t cnt, double limit, double fell_from)
{
	struct part parts[PARTS];
	double s[PAIRS], left;
	uint64_t span;

	if (cnt < DL_FORECAST_MIN_CNT)
		return false;
	span = v[cnt - 1].ts - v[0].ts;
	if (span < DL_FORECAST_MIN_NS || !split(parts, v, cnt))
		return false;
	slopes(s, parts, PARTS, mid);
	ret->per_s = median_slope(parts, PARTS, mid);
	ret->val = parts[PARTS - 1].hi;
	if (ret->per_s <= 0 || ret->val < fell_from || !is_line(parts, ret->per_s))
		return false;
	if (span < DL_FORECAST_TRUST_NS && ret->val < limit / 2)
		return false;
	left = limit - ret->val;
	ret->eta_ns = until(left, ret->per_s);
	ret->soonest_ns = until(left, s[PAIRS - 1 - PAIRS / 10]);
	ret->latest_ns = until(left, s[PAIRS / 10]);
	/* Neither further than what was seen allows, nor vaguer than is of use. */
	return ret->eta_ns / 4 <= span && ret->latest_ns / 3 <= ret->soonest_ns;
}

void dl_forecast(struct dl_forecast *ret, const struct dl_fc_point *v, size_t cnt, double limit, double fell_from)
{
	*ret = (struct dl_forecast){};
	for (int shift = 0; shift < 4 && cnt && !ret->valid; shift++) {
		const uint64_t span = (v[cnt - 1].ts - v[0].ts) >> shift;
		size_t first = 0;

		while (v[cnt - 1].ts - v[first].ts > span)
			first++;
		ret->valid = fit(ret, v + first, cnt - first, limit, fell_from);
	}
	if (!ret->valid)
		*ret = (struct dl_forecast){};
}
