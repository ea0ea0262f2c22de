/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Loader threads: those that feed the trainer's main thread, or others that do. */
#include "timeline/roles.h"

#include <errno.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "timeline/timeline.h"

#define FUTEX_WAIT_BITSET 9
#define FUTEX_CMD(op) ((op) & 127)
#define HAND_OUT_NS 1000000	/* work is handed out this shortly before one waits for it */
#define FEEDS_MIN 2

/* Did this wake end a wait for data of a thread that had not asked for it just before? Who does that is at work
 * ahead of the need, as a loader is, where a pool gets each piece from who waits. */
static bool fed_unasked(const struct dl_timeline *tl, uint32_t thread, const struct dl_woke *w)
{
	const struct dl_thread *waiter = &tl->threads.v[w->wakee];
	uint32_t seg = dl_seg_before(waiter, w->ts);
	const struct dl_wait *wait = seg == DL_NONE ? NULL : dl_seg_wait(waiter, &waiter->segs.v[seg]);
	uint64_t from;

	/* Python's locks; libgomp's end of a region, which a spinning thread ends unasked, is another wait. */
	if (!wait || wait->wake_ts != w->ts || dl_sys_class(tl->machine, wait->syscall) != DL_SYS_FUTEX ||
	    FUTEX_CMD(wait->arg1) != FUTEX_WAIT_BITSET || dl_is_gil(&tl->procs.v[waiter->proc], wait->arg0))
		return false;
	from = waiter->segs.v[seg].start > HAND_OUT_NS ? waiter->segs.v[seg].start - HAND_OUT_NS : 0;
	for (size_t i = vec_first_at(&waiter->woke, from); i < waiter->woke.cnt && waiter->woke.v[i].ts < w->ts; i++) {
		if (waiter->woke.v[i].wakee == thread)
			return false;
	}
	return true;
}

/* Who feeds whom: of a thread, those of its process that it fed more than once. */
struct feeder { uint32_t thread; size_t first, cnt; };

struct feeds {
	DL_VEC(struct feeder) feeders;
	DL_VEC(uint32_t) fed;
};

static bool may_load(const struct dl_timeline *tl, const struct dl_thread *th)
{
	return (th->role == DL_ROLE_TRAINER_THREAD || th->role == DL_ROLE_POOL) && !th->apis.cnt &&
	       tl->procs.v[th->proc].role == DL_ROLE_TRAINER;
}

/* times: by thread, all 0. */
static int find_fed(const struct dl_timeline *tl, uint32_t thread, uint32_t *times, struct feeds *f)
{
	const struct dl_thread *th = &tl->threads.v[thread];
	struct feeder *feeder = vec_push(&f->feeders);
	int err = 0;

	if (!feeder)
		return -ENOMEM;
	*feeder = (struct feeder){ .thread = thread, .first = f->fed.cnt };
	vec_for_each(&th->woke, w) {
		if (err || tl->threads.v[w->wakee].proc != th->proc || w->wakee == thread || !fed_unasked(tl, thread, w))
			continue;
		if (++times[w->wakee] == FEEDS_MIN) {
			uint32_t *at = vec_push(&f->fed);

			err = at ? 0 : -ENOMEM;
			if (at)
				*at = w->wakee;
		}
	}
	vec_for_each(&th->woke, w)
		times[w->wakee] = 0;
	feeder->cnt = f->fed.cnt - feeder->first;
	return err;
}

static bool feeds_any(const struct dl_timeline *tl, const struct feeds *f, const struct feeder *feeder)
{
	for (size_t i = feeder->first; i < feeder->first + feeder->cnt; i++) {
		const struct dl_thread *to = &tl->threads.v[f->fed.v[i]];

		if (tl->procs.v[to->proc].main == f->fed.v[i] || to->role == DL_ROLE_LOADER_THREAD)
			return true;
	}
	return false;
}

/* A graph of threads hands batches on. */
int dl_find_loader_threads(struct dl_timeline *tl)
{
	_cleanup_free_ uint32_t *times = calloc(tl->threads.cnt, sizeof(*times));
	struct feeds f = {};
	int err = times ? 0 : -ENOMEM;
	bool changed = true;

	for (uint32_t i = 0; i < tl->threads.cnt && !err; i++) {
		if (tl->threads.v[i].proc != DL_NONE && may_load(tl, &tl->threads.v[i]))
			err = find_fed(tl, i, times, &f);
	}
	for (int round = 0; changed && round < 8 && !err; round++) {
		changed = false;
		vec_for_each(&f.feeders, feeder) {
			struct dl_thread *th = &tl->threads.v[feeder->thread];

			if (th->role == DL_ROLE_LOADER_THREAD || !feeds_any(tl, &f, feeder))
				continue;
			th->role = DL_ROLE_LOADER_THREAD;
			changed = true;
		}
	}
	vec_free(&f.feeders);
	vec_free(&f.fed);
	return err;
}
