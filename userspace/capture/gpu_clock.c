/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * CUPTI stamps CLOCK_REALTIME, which is slewed and can be set, or whatever a timestamp callback of
 * another tool gives: torch.profiler leaves one behind that counts CPU cycles. A clock of another rate
 * shows by keeping it. Between two pairs of readings the conversion is linear; where the clocks
 * moved apart by more than slewing can, the clock jumped somewhere between the two, and a time is
 * read by the offset before it or the one after it, whichever puts it between them.
 */
#include "capture/gpu_priv.h"

#define SLEW_PPM 1000		/* adjtimex slews by at most 500 */
#define NOISE_NS 20000
#define RATE_MAX 10		/* cycles of a CPU in a nanosecond */
#define FAR_NS 1000000000ULL	/* beyond the last pair by more than that: say so */

static const struct gpu_clock_pair *pair_at(const struct gpu_clock *c, uint64_t i)
{
	return &c->v[i % GPU_CLOCK_PAIRS];
}

static uint64_t noise(const struct gpu_clock_pair *a, const struct gpu_clock_pair *b)
{
	uint64_t ns = NOISE_NS + (b->mono - a->mono) / (1000000 / SLEW_PPM);

	if (a->bracket_ns < FAR_NS && b->bracket_ns < FAR_NS)
		ns += (a->bracket_ns + b->bracket_ns) / 2;
	return ns;
}

static bool is_near(uint64_t a, uint64_t b, uint64_t tolerance)
{
	return (a > b ? a - b : b - a) <= tolerance;
}

/* From a to b at the rate that it had from the pair before a to a, when that can be a clock's. */
static bool keeps_rate(const struct gpu_clock_pair *before, const struct gpu_clock_pair *a,
		       const struct gpu_clock_pair *b)
{
	uint64_t dm = a->mono - before->mono, dg = a->gpu - before->gpu;
	unsigned __int128 want;

	if (a->gpu <= before->gpu || b->gpu <= a->gpu || dg / RATE_MAX > dm || dm / RATE_MAX > dg)
		return false;
	want = (unsigned __int128)(b->mono - a->mono) * dg / dm;
	return want < INT64_MAX && is_near(b->gpu - a->gpu, (uint64_t)want, noise(a, b) * (dg / dm > 1 ? dg / dm + 1 : 1));
}

bool gpu_clock_add(struct gpu_clock *c, uint64_t mono, uint64_t gpu, uint64_t bracket_ns)
{
	struct gpu_clock_pair p = { .mono = mono, .gpu = gpu, .bracket_ns = bracket_ns };

	if (!mono || !gpu || mono > INT64_MAX || gpu > INT64_MAX)
		return false;
	if (c->cnt) {
		const struct gpu_clock_pair *last = pair_at(c, c->cnt - 1);

		if (mono <= last->mono)
			return false;
		p.step = gpu <= last->gpu || !is_near(gpu - last->gpu, mono - last->mono, noise(last, &p));
		if (p.step && c->cnt > 1)
			p.step = !keeps_rate(pair_at(c, c->cnt - 2), last, &p);
		c->steps += p.step;
	}
	c->v[c->cnt++ % GPU_CLOCK_PAIRS] = p;
	return true;
}

static uint64_t between(const struct gpu_clock_pair *a, const struct gpu_clock_pair *b, uint64_t gpu)
{
	unsigned __int128 x = (unsigned __int128)(gpu - a->gpu) * (b->mono - a->mono);

	return a->mono + (uint64_t)(x / (b->gpu - a->gpu));
}

/* Slewing faster than the kernel's own (chrony may): a line is nearer the truth than a jump. */
static bool nearly_straight(const struct gpu_clock_pair *a, const struct gpu_clock_pair *b)
{
	uint64_t dm = b->mono - a->mono, dg = b->gpu - a->gpu;

	return b->gpu > a->gpu && dg / 11 * 10 <= dm && dm / 11 * 10 <= dg;
}

/* The time in the interval between a and b, in which the clock jumped; false when it is outside. */
static bool across(const struct gpu_clock_pair *a, const struct gpu_clock_pair *b, uint64_t gpu,
		   uint64_t *ret)
{
	if (nearly_straight(a, b)) {
		if (gpu < a->gpu || gpu > b->gpu)
			return false;
		*ret = between(a, b, gpu);
		return true;
	}
	if (gpu <= b->gpu && b->gpu - gpu <= b->mono - a->mono) {
		*ret = b->mono - (b->gpu - gpu);
		return true;
	}
	if (gpu >= a->gpu && gpu - a->gpu <= b->mono - a->mono) {
		*ret = a->mono + (gpu - a->gpu);
		return true;
	}
	return false;
}

/* Outside all intervals: by the offset of the nearer end. */
static void beyond(const struct gpu_clock *c, uint64_t oldest, uint64_t gpu, uint64_t *ret,
		   bool *ret_unsure)
{
	const struct gpu_clock_pair *first = pair_at(c, oldest), *last = pair_at(c, c->cnt - 1);

	if (gpu >= last->gpu) {
		uint64_t ns = gpu - last->gpu;

		/* At the rate of late. */
		if (c->cnt - oldest > 1 && !last->step)
			ns = between(pair_at(c, c->cnt - 2), last, gpu) - last->mono;
		*ret = last->mono + ns;
		*ret_unsure = ns > FAR_NS;
		return;
	}
	*ret_unsure = first->gpu < gpu || first->gpu - gpu > FAR_NS;
	if (first->gpu < gpu)	/* in a hole that a jump forward left */
		*ret = first->mono + (gpu - first->gpu);
	else
		*ret = first->gpu - gpu < first->mono ? first->mono - (first->gpu - gpu) : 0;
	if (*ret > last->mono)
		*ret = last->mono;
}

bool gpu_clock_convert(const struct gpu_clock *c, uint64_t gpu, uint64_t *ret_mono, bool *ret_unsure)
{
	uint64_t oldest = c->cnt > GPU_CLOCK_PAIRS ? c->cnt - GPU_CLOCK_PAIRS : 0;
	bool twice = false;

	if (!c->cnt)
		return false;
	*ret_unsure = false;
	if (!c->steps && gpu > pair_at(c, c->cnt - 1)->gpu) {
		beyond(c, oldest, gpu, ret_mono, ret_unsure);
		return true;
	}
	/* The newest first: after a jump back a time can be read in two intervals, and records come
	 * soon after what they tell of. */
	for (uint64_t i = c->cnt - 1; i > oldest; i--) {
		const struct gpu_clock_pair *a = pair_at(c, i - 1), *b = pair_at(c, i);

		if (b->step) {
			if (!across(a, b, gpu, ret_mono)) {
				/* After a small jump back it may yet lie behind the jump. */
				twice |= gpu <= b->gpu && b->gpu - gpu <= b->mono - a->mono;
				continue;
			}
			*ret_unsure = true;
			return true;
		}
		if (gpu >= a->gpu && gpu <= b->gpu) {
			*ret_mono = between(a, b, gpu);
			*ret_unsure = twice;
			return true;
		}
	}
	beyond(c, oldest, gpu, ret_mono, ret_unsure);
	return true;
}

bool gpu_clock_span(const struct gpu_clock *c, uint64_t *start, uint64_t *end, bool *ret_unsure)
{
	uint64_t s, e;
	bool unsure_start, unsure_end;

	if (!gpu_clock_convert(c, *start, &s, &unsure_start) ||
	    !gpu_clock_convert(c, *end, &e, &unsure_end))
		return false;
	*ret_unsure = unsure_start || unsure_end || e < s;
	*start = s;
	*end = e < s ? s : e;
	return true;
}
