/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Whether CUPTI's records still come to us. In its first interface the last tool to register
 * buffer callbacks gets all of them, and a kind that one tool switches off is off for all: a
 * torch.profiler that starts and ends during a recording does both, and holds no subscription that
 * would show it.
 *
 * So once a second the collector's thread makes a harmless call, cuDriverGetVersion, whose record
 * has to come back: the beat. Where it does not come, and nothing else either, buffers may only
 * be held up by long work. Then the call is made until a buffer of ours would have been full: CUPTI
 * asks for the next one at once, of us or of somebody else. A library that never gave the
 * beat back is not judged by it.
 */
#include "agent.h"

#include <stdlib.h>

#define SECOND_NS 1000000000ULL
#define LOOKS_MIN 5		/* flushes that a beat may take */
#define QUIET_NS (3 * SECOND_NS)
#define QUIET_CALLS 32
#define QUIET_WAITS 4
#define STORM_MAX 20000		/* more 40-byte records than two buffers hold */

static struct {
	int (*call)(int *);
	uint64_t seen, done, lost;	/* counts when the beat was made */
	uint64_t made_ns;		/* 0: none is under way */
	uint64_t next_ns, asked_ns;
	uint64_t ours_ns;		/* the last sign that records come to us */
	uint64_t beat_ns, kinds_ns;	/* the last beat; when all kinds were on for certain */
	unsigned int looks, late, gone;
	bool proven;
	struct { uint64_t work, asked, waits, since_ns; bool told; } quiet;
} beat;

void others_begin(uint64_t now)
{
	bool proven = beat.proven;

	beat = (typeof(beat)){
		.call = (int (*)(int *))find_driver("cuDriverGetVersion"),
		.ours_ns = now, .beat_ns = now, .kinds_ns = now, .proven = proven,
	};
}

static void make_beat(uint64_t now, uint64_t lost)
{
	int version;

	beat.seen = convert_counts()->beats;
	beat.done = pool_done_cnt();
	beat.lost = lost;
	beat.made_ns = now;
	beat.looks = 0;
	beat.call(&version);
}

/* Whether CUPTI asks us for buffers. */
static bool asks_us(void)
{
	uint64_t before = pool_request_cnt();
	int version;

	for (int i = 0; i < STORM_MAX && pool_request_cnt() == before; i++)
		beat.call(&version);
	return pool_request_cnt() != before;
}

uint64_t others_ours_ns(void)
{
	return beat.ours_ns;
}

bool others_kinds_gone(const int *kinds, size_t cnt, uint64_t now)
{
	if (now - beat.asked_ns < SECOND_NS / 2)
		return false;
	beat.asked_ns = now;
	/* Twice in a row: a tool that sets up may switch off and on. */
	beat.gone = use_kinds_left(kinds, cnt) ? 0 : beat.gone + 1;
	if (!beat.gone)
		beat.kinds_ns = now;
	return beat.gone >= 2;
}

static enum others_sign off_since(uint64_t since)
{
	beat.ours_ns = since;
	return OTHERS_OFF;
}

/*
 * Launches and copies are recorded, and waits for them that are over, but for seconds no kernel or
 * copy: their kinds may be off although the calls' are not. Said once, until work is seen again.
 */
static bool quiet(uint64_t now)
{
	const struct convert_counts *c = convert_counts();

	if (c->work != beat.quiet.work || !beat.quiet.since_ns) {
		beat.quiet = (typeof(beat.quiet)){
			.work = c->work, .asked = c->asked, .waits = c->waits, .since_ns = now,
		};
		return false;
	}
	if (beat.quiet.told || now - beat.quiet.since_ns < QUIET_NS ||
	    c->asked - beat.quiet.asked < QUIET_CALLS || c->waits - beat.quiet.waits < QUIET_WAITS)
		return false;
	beat.quiet.told = true;
	beat.ours_ns = beat.quiet.since_ns;
	return true;
}

enum others_sign others_look(const int *kinds, size_t cnt, uint64_t now, uint64_t lost)
{
	if (use_is_v2() || !beat.call)
		return OTHERS_NONE;
	if (others_kinds_gone(kinds, cnt, now)) {
		beat.gone = 0;
		use_beat(true);
		return asks_us() ? off_since(beat.kinds_ns) : OTHERS_TAKEN;
	}
	if (quiet(now))
		return OTHERS_QUIET;
	if (!beat.made_ns) {
		if (now >= beat.next_ns)
			make_beat(now, lost);
		return OTHERS_NONE;
	}
	beat.looks++;
	if (convert_counts()->beats != beat.seen) {
		beat.proven = true;
		beat.late = 0;
		beat.ours_ns = beat.beat_ns = now;
		beat.made_ns = 0;
		beat.next_ns = now + SECOND_NS;
		return OTHERS_NONE;
	}
	if (!beat.proven || beat.looks < LOOKS_MIN || now - beat.made_ns < SECOND_NS)
		return OTHERS_NONE;
	beat.made_ns = 0;
	if (lost != beat.lost)
		return OTHERS_NONE;	/* it may have been among those */
	if (pool_done_cnt() != beat.done) {
		/* Others of ours come: it is late, or its kind was switched off. */
		beat.ours_ns = now;
		return ++beat.late >= 3 ? off_since(beat.beat_ns) : OTHERS_NONE;
	}
	use_beat(true);
	if (!asks_us())
		return OTHERS_TAKEN;
	return ++beat.late >= 3 ? off_since(beat.beat_ns) : OTHERS_NONE;
}
