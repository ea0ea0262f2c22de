/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Holes: stretches of time in which switches or wakes of the tree's threads could not be recorded, as
 * LOSS tells. A LOSS with times stands where its hole begins, so that a hole is known before anything
 * behind it is.
 *
 * Each CPU may have its own ring, and so holes of its own: a hole is known while events of other CPUs still come, and
 * what they tell holds. What a thread did up to a hole holds, and so does what it did from its first event behind it on; when that is a
 * wake, it was blocked since the hole's end. In between it is not known, unless its own counters say that nothing
 * happened.
 */
#include <errno.h>
#include <string.h>

#include "timeline/threads.h"

static bool makes_hole(const struct dl_ev_loss *ev)
{
	return ev->first && ev->last >= ev->first && (ev->shed == DL_SHED_SWITCH || ev->shed == DL_SHED_WAKE);
}

static int add_span(struct dl_spans *spans, uint64_t start, uint64_t end, uint64_t near)
{
	struct dl_span *last = vec_last(spans);

	if (last && start <= last->end + near) {
		if (start < last->start)
			last->start = start;
		if (end > last->end)
			last->end = end;
		return 0;
	}
	last = vec_push(spans);
	if (!last)
		return -ENOMEM;
	*last = (struct dl_span){ start, end };
	return 0;
}

int dl_tl_hole_add(struct dl_timeline *tl, const struct dl_ev_loss *ev)
{
	return makes_hole(ev) ? add_span(&tl->holes, ev->first, ev->last + 1, 0) : 0;
}

int dl_tl_loss_time(struct dl_loss *l, const struct dl_ev_loss *ev)
{
	return ev->first && ev->last >= ev->first ? add_span(&l->times, ev->first, ev->last + 1, DL_LOSS_NEAR_NS) : 0;
}

bool dl_tl_hole(const struct dl_timeline *tl, uint64_t from, uint64_t to, struct dl_span *ret)
{
	bool any = false;

	for (size_t i = tl->holes.cnt; i-- && tl->holes.v[i].end > from;) {
		const struct dl_span *h = &tl->holes.v[i];

		if (h->start >= to)
			continue;
		if (!any)
			ret->end = h->end < to ? h->end : to;
		ret->start = h->start > from ? h->start : from + 1;
		any = true;
	}
	return any;
}

/*
 * The wait that a hole cuts off: whoever woke the thread behind the hole ended another one, of which the begin and the
 * reason are missing. In *ret what is known of that; false when it was not woken, or was not seen to get a CPU then.
 */
static bool cut_wait(struct dl_thread *th, size_t before, size_t behind, const struct dl_span *hole, struct dl_wait *ret)
{
	struct dl_wait *w = before ? dl_seg_wait(th, &th->segs.v[before - 1]) : NULL;
	const struct dl_seg *s = &th->segs.v[behind];
	bool ran;

	if (!w || w->wake_ts < hole->start)
		return false;
	*ret = (struct dl_wait){ .syscall = -2, .wake_ts = w->wake_ts, .waker = w->waker, .wake_syscall = w->wake_syscall,
				 .wake_flags = w->wake_flags };
	w->wake_ts = 0;
	w->waker = DL_NONE;
	w->wake_syscall = 0;
	w->wake_flags = 0;
	if (behind < th->segs.cnt && s->state == DL_ST_RUNNABLE)
		s++;
	ran = s < th->segs.v + th->segs.cnt && s->state == DL_ST_RUNNING;
	return ran && ret->wake_ts > hole->end;
}

/* Makes the segments [at, at + old) new ones, whose content is the caller's. */
static int splice(struct dl_thread *th, size_t at, size_t old, size_t new)
{
	if (new > old && vec_reserve(&th->segs, new - old))
		return -ENOMEM;
	memmove(th->segs.v + at + new, th->segs.v + at + old, (th->segs.cnt - at - old) * sizeof(*th->segs.v));
	th->segs.cnt = th->segs.cnt - old + new;
	return 0;
}

int dl_tl_forget_hole(struct dl_thread *th, const struct dl_span *hole)
{
	size_t before = vec_first_at(&th->segs, hole->start), behind = before;
	struct dl_wait wait, *w = NULL;
	struct dl_seg *at;

	while (behind < th->segs.cnt && th->segs.v[behind].start < hole->end)
		behind++;
	if (cut_wait(th, before, behind, hole, &wait)) {
		w = vec_push(&th->waits);
		if (!w)
			return -ENOMEM;
		*w = wait;
	}
	if (splice(th, before, behind - before, w ? 2 : 1))
		return -ENOMEM;
	at = &th->segs.v[before];
	/* one that was made in the hole begins there */
	*at = (struct dl_seg){ .start = !before && th->start > hole->start ? th->start : hole->start, .state = DL_ST_UNKNOWN,
			       .ref = DL_NONE, .cpu = DL_CPU_NONE };
	if (w)
		at[1] = (struct dl_seg){ .start = hole->end, .state = DL_ST_BLOCKED, .ref = (uint32_t)(th->waits.cnt - 1),
					 .cpu = DL_CPU_NONE };
	return 0;
}

/* What it did is known until then, and it had not ended. */
static uint64_t known_until(const struct dl_thread *th)
{
	return th->last_out_ts ? th->last_out_ts : th->segs.v[0].start;
}

int dl_tl_task_behind(struct dl_timeline *tl, struct dl_thread *th, const struct dl_ev_task *ev, const struct dl_wait *wait)
{
	struct dl_span hole;
	struct dl_wait *w;
	struct dl_seg *at;

	if (!dl_tl_hole(tl, known_until(th), ev->h.ts, &hole))
		return 0;
	if (vec_last(&th->segs)->start >= hole.end)
		return 0;	/* it has been met behind it, and tells by itself */
	if (!th->has_totals || ev->exec_ns != th->exec_ns) {
		if (dl_tl_forget_hole(th, &hole))
			return -ENOMEM;
		w = vec_push(&th->waits);
		at = w ? vec_push(&th->segs) : NULL;
		if (!at)
			return -ENOMEM;
		*w = *wait;
		*at = (struct dl_seg){ .start = ev->h.ts, .state = DL_ST_BLOCKED, .ref = (uint32_t)(th->waits.cnt - 1),
				       .cpu = DL_CPU_NONE };
		th->has_switches = false;
	}
	th->last_out_ts = ev->h.ts;	/* else it has not run: it is where it was */
	return 0;
}

/* Its last switch is missing, its end is not. */
static int end_at_exit(struct dl_thread *th)
{
	struct dl_seg *at = vec_last(&th->segs);
	const uint64_t ts = th->exit_ts > at->start ? th->exit_ts : at->start;

	at = vec_push(&th->segs);
	if (!at)
		return -ENOMEM;
	*at = (struct dl_seg){ .start = ts, .state = DL_ST_GONE, .ref = DL_NONE, .cpu = DL_CPU_NONE };
	th->end = ts;
	return 0;
}

int dl_tl_holes_finish(struct dl_timeline *tl)
{
	vec_for_each(&tl->threads, th) {
		struct dl_span hole;

		if (th->proc == DL_NONE || !th->segs.cnt || vec_last(&th->segs)->state == DL_ST_GONE)
			continue;
		if (!dl_tl_hole(tl, known_until(th), UINT64_MAX, &hole))
			continue;
		if (dl_tl_forget_hole(th, &hole))
			return -ENOMEM;
		if (th->exit_ts && end_at_exit(th))
			return -ENOMEM;
	}
	return 0;
}
