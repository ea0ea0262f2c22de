/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Loader threads: those that feed the trainer's main thread, or others that do. */
#include "timeline/roles.h"

#include <errno.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "timeline/past.h"
#include "timeline/timeline.h"

#define FEEDS_MIN 2

/* Who feeds whom: of a thread, those of its process that it fed more than once. */
struct feeder { uint32_t thread; size_t first, cnt; };

struct feeds {
	DL_VEC(struct feeder) feeders;
	DL_VEC(uint32_t) fed;
};

static bool may_load(const struct dl_timeline *tl, const struct dl_thread *th)
{
	return (th->role == DL_ROLE_TRAINER_THREAD || th->role == DL_ROLE_POOL) && !th->calls &&
	       tl->procs.v[th->proc].role == DL_ROLE_TRAINER;
}

static int add_fed(struct feeds *f, uint32_t to)
{
	uint32_t *at = vec_push(&f->fed);

	if (!at)
		return -ENOMEM;
	*at = to;
	return 0;
}

/* times: by thread, all 0. */
static int find_fed(const struct dl_timeline *tl, uint32_t thread, uint32_t *times, struct feeds *f)
{
	const struct dl_thread *th = &tl->threads.v[thread];
	struct feeder *feeder = vec_push(&f->feeders);
	uint64_t to, cnt;
	size_t pos;
	int err = 0;

	if (!feeder)
		return -ENOMEM;
	*feeder = (struct feeder){ .thread = thread, .first = f->fed.cnt };
	for (pos = 0; th->past && !err && dl_map_next(&th->past->fed, &pos, &to, &cnt);) {
		times[to] = (uint32_t)cnt;
		if (cnt >= FEEDS_MIN)
			err = add_fed(f, (uint32_t)to);
	}
	for (size_t i = dl_first_woke(tl, th); i < th->woke.cnt; i++) {
		const struct dl_woke *w = &th->woke.v[i];

		if (err || tl->threads.v[w->wakee].proc != th->proc || w->wakee == thread || !dl_tl_feeds(tl, thread, w))
			continue;
		if (++times[w->wakee] == FEEDS_MIN)
			err = add_fed(f, w->wakee);
	}
	vec_for_each(&th->woke, w)
		times[w->wakee] = 0;
	for (pos = 0; th->past && dl_map_next(&th->past->fed, &pos, &to, &cnt);)
		times[to] = 0;
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
