/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Which of a trainer's threads load, in graphs of threads that wake each other at random, against going through
 * all wakes for each pair of threads. */
#include "unit/diagnose_util.h"

#include "timeline/timeline.h"

enum { THREADS = 14, FIRST = 5000, ROUNDS = 40, LEAD_NS = 1000000 };

static uint64_t rng;

static uint32_t rnd(uint32_t below)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return (uint32_t)(rng % below);
}

static uint32_t tid_of(uint32_t i)
{
	return i ? FIRST + i : TRAINER;
}

/* Each thread sleeps, is woken by one of its few feeders, and has at times asked it just before. */
static struct dl_timeline *make(uint64_t seed)
{
	struct synth *s = job_new();
	struct dl_timeline *tl = NULL;
	struct dl_trace *t = NULL;
	struct dl_diag d = {};
	uint32_t feeder[THREADS][2];

	rng = seed * 2654435761 + 88172645463325252ULL;
	for (uint32_t i = 0; i < THREADS; i++) {
		feeder[i][0] = rnd(THREADS);
		feeder[i][1] = rnd(THREADS);
		if (i)
			synth_task(s, AT(0), tid_of(i), TRAINER, 1, "python", 0, 0);
	}
	for (uint32_t r = 0; r < ROUNDS; r++) {
		for (uint32_t i = 0; i < THREADS; i++) {
			const uint32_t by = feeder[i][rnd(2)];
			const double at = 1 + r * 10 + rnd(4000) / 1e3, asked = rnd(3) ? 0.2 : 1.7;

			/* from at on it runs, and sleeps until it is woken */
			synth_run(s, i, tid_of(i), TRAINER, AT(at), AT(at + 1.8), SYNTH_SLEEP,
				  rnd(8) ? ON_COND : WAIT(NR_FUTEX, .arg0 = 0x7000, .arg1 = 0x80));
			if (rnd(2))
				synth_wake(s, AT(at + asked), tid_of(i), TRAINER, tid_of(by), TRAINER, NR_FUTEX);
			if (by != i && (seed + i) % 3)
				synth_wake(s, AT(at + 2.5 + rnd(1000) / 1e3), tid_of(by), TRAINER, tid_of(i), TRAINER, NR_FUTEX);
		}
	}
	CHECK_EQ(synth_finish(s), 0);
	CHECK_OK(dl_trace_open(&t, test_path("job.dlbpf"), &d));
	CHECK_OK(dl_timeline_build(&tl, t, &d));
	dl_trace_close(t);
	return tl;
}

static uint32_t fed(const struct dl_timeline *tl, uint32_t thread, uint32_t to)
{
	const struct dl_thread *waiter = &tl->threads.v[to];
	uint32_t cnt = 0;

	vec_for_each(&tl->threads.v[thread].woke, w) {
		for (uint32_t i = 0; i < waiter->segs.cnt; i++) {
			const struct dl_wait *wait = dl_seg_wait(waiter, &waiter->segs.v[i]);
			const uint64_t start = waiter->segs.v[i].start;
			bool asked = false;

			if (w->wakee != to || !wait || start >= w->ts || dl_seg_end(waiter, i) < w->ts || wait->wake_ts != w->ts ||
			    wait->syscall != NR_FUTEX || (wait->arg1 & 127) != 9)
				continue;
			vec_for_each(&waiter->woke, own)
				asked |= own->wakee == thread && own->ts >= start - LEAD_NS && own->ts < w->ts;
			cnt += !asked;
		}
	}
	return cnt;
}

TEST(threads_that_feed_the_trainer_load)
{
	uint32_t loaders = 0, others = 0;

	for (uint64_t seed = 1; seed < 60; seed++) {
		struct dl_timeline *tl = make(seed);
		const uint32_t main = tl->procs.v[0].main;
		bool loads[64] = { false };
		bool changed = true;

		CHECK(tl->threads.cnt < 64);
		while (changed) {
			changed = false;
			vec_for_each(&tl->procs.v[0].threads, i) {
				for (uint32_t to = 1; to < tl->threads.cnt && !loads[*i] && *i != main; to++) {
					if (to == *i || tl->threads.v[to].proc != 0 || (to != main && !loads[to]) || fed(tl, *i, to) < 2)
						continue;
					loads[*i] = changed = true;
				}
			}
		}
		vec_for_each(&tl->procs.v[0].threads, i) {
			CHECK_EQ(tl->threads.v[*i].role == DL_ROLE_LOADER_THREAD, loads[*i]);
			loaders += loads[*i];
			others += !loads[*i];
		}
		dl_timeline_free(tl);
	}
	CHECK(loaders > 50 && others > 50);
}
