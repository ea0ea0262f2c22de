/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What the recorder left out on purpose, and when; and holes, where nothing was left to leave out. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/str.h"
#include "diagnose/summary.h"
#include "trace/schema.h"

enum { TIMES_MAX = 16 };	/* of a row; then the last one takes all that follow */

static const struct { const char *text; bool part; } classes[DL_SHED_MAX] = {
	[DL_SHED_SAMPLE_USER] = { "user stacks of samples", true },
	[DL_SHED_SAMPLE] = { "samples", false },
	[DL_SHED_MEM] = { "memory figures", false },
	[DL_SHED_SWITCH_STACK] = { "kernel stacks of waits", true },
	[DL_SHED_MAJOR_FAULT] = { "places of major faults", false },
	[DL_SHED_WAKE_FOREIGN] = { "wakes of threads outside the tree", false },
	[DL_SHED_NAME] = { "names of threads", false },
	[DL_SHED_BLOCK_IO] = { "requests to disks", false },
	[DL_SHED_RECLAIM] = { "memory reclaims", false },
	[DL_SHED_CHILD_SIGNAL] = { "SIGCHLD signals", false },
	[DL_SHED_SIGNAL] = { "harmless signals", false },
	[DL_SHED_SYSCALL_FAIL] = { "failed system calls", false },
	[DL_SHED_CRASH_STACK] = { "stacks of crashes", false },
};

static struct dl_shed_row *row_of(struct dl_report *r, const struct dl_loss *l)
{
	const struct dl_event_desc *desc = dl_event_desc(l->kind);
	const bool known = l->shed < DL_SHED_MAX && classes[l->shed].text;
	const char *what = known ? classes[l->shed].text : desc ? desc->name : "events";
	struct dl_shed_row *row;

	vec_for_each(&r->sheds, it) {
		if (!strcmp(it->what, what))
			return it;
	}
	row = vec_push(&r->sheds);
	if (row)
		*row = (struct dl_shed_row){ .what = what, .kind = desc ? desc->name : "any", .part = known && classes[l->shed].part };
	return row;
}

/* Sorted; what is near is one. */
static void tidy(struct dl_shed_row *row)
{
	size_t cnt = 0;

	vec_sort(&row->times);
	vec_for_each(&row->times, t) {
		struct dl_time *last = cnt ? &row->times.v[cnt - 1] : NULL;

		if (last && (t->start <= last->end + DL_LOSS_NEAR_NS || cnt == TIMES_MAX))
			last->end = t->end > last->end ? t->end : last->end;
		else
			row->times.v[cnt++] = *t;
	}
	row->times.cnt = cnt;
}

int dl_sum_sheds(struct dl_report *r, const struct dl_timeline *tl)
{
	vec_for_each(&tl->losses, l) {
		struct dl_shed_row *row = l->cause == DL_LOSS_SHED && l->cnt ? row_of(r, l) : NULL;

		if (l->cause != DL_LOSS_SHED || !l->cnt)
			continue;
		if (!row)
			return -ENOMEM;
		row->cnt += l->cnt;
		vec_for_each(&l->times, t) {
			struct dl_time *at = vec_push(&row->times);

			if (!at)
				return -ENOMEM;
			*at = (struct dl_time){ t->start, t->end };
		}
	}
	vec_for_each(&r->sheds, row) {
		tidy(row);
		r->shed += row->cnt;
	}
	return 0;
}

char *dl_holes_note(const struct dl_report *r, const struct dl_timeline *tl)
{
	struct dl_str s = {};
	uint64_t sum = 0;

	vec_for_each(&tl->holes, h)
		sum += h->end - h->start;
	dl_str_addf(&s, "%zu %s of %.3f s in all, the first from %.3f s to %.3f s: a ring was full, and what threads did then is unexplained",
		    tl->holes.cnt, tl->holes.cnt == 1 ? "hole" : "holes", (double)sum / 1e9,
		    ((double)tl->holes.v[0].start - (double)r->start) / 1e9,
		    ((double)tl->holes.v[0].end - (double)r->start) / 1e9);
	return dl_str_take(&s);
}
