/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The longest gaps and what led to them, told in the order in which it happened. A thread that takes
 * turns with others on a CPU makes hundreds of steps: what it did in between is added up.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "render/text_parts.h"
#include "render/who.h"

enum {
	MAX_STRETCHES = 12,	/* shown of one gap, the longest ones */
	MAX_DOINGS = 3,		/* shown of one stretch */
	LINE_PARTS = 100,	/* a hundredth of the gap is worth a line */
	MAX_CAUSES = 4,		/* causes named in a gap's first line */
};

/* What a thread did again and again: run, wait for a CPU, run. */
struct doing {
	const struct dl_step *step;
	uint64_t ns, times;
};

/* Steps of one thread that follow each other. */
struct stretch {
	const struct dl_step *last;	/* whom it woke stands there */
	uint64_t start, ns;
	bool shown;
	DL_VEC(struct doing) doings;
};

typedef DL_VEC(struct stretch) stretch_vec;

static bool same_doing(const struct dl_step *a, const struct dl_step *b)
{
	return a->cause == b->cause && a->via_lock == b->via_lock &&
	       !strcmp(a->text ? a->text : "", b->text ? b->text : "");
}

static int add_doing(struct stretch *st, const struct dl_step *s)
{
	struct doing *d = NULL;

	vec_for_each(&st->doings, have)
		if (same_doing(have->step, s))
			d = have;
	if (!d)
		d = vec_push(&st->doings);
	if (!d)
		return -ENOMEM;
	d->step = s;
	d->ns += s->end - s->start;
	d->times++;
	return 0;
}

/* From latest first, as in the report, to earliest first. */
static int collect_stretches(const struct dl_gap *gap, stretch_vec *list)
{
	for (size_t i = gap->steps.cnt; i-- > 0;) {
		const struct dl_step *s = &gap->steps.v[i];
		struct stretch *st = vec_last(list);

		if (!st || st->last->jump || st->last->tid != s->tid || st->last->pid != s->pid ||
		    st->last->role != s->role) {
			st = vec_push(list);
			if (!st)
				return -ENOMEM;
			st->start = s->start;
		}
		st->last = s;
		st->ns += s->end - s->start;
		if (add_doing(st, s))
			return -ENOMEM;
	}
	return 0;
}

/* The longest ones, and of those only what is worth a line. */
static void choose_stretches(stretch_vec *list, uint64_t worth_ns)
{
	for (size_t n = 0; n < MAX_STRETCHES; n++) {
		struct stretch *longest = NULL;

		vec_for_each(list, st)
			if (!st->shown && (!longest || st->ns > longest->ns))
				longest = st;
		if (!longest || (n && longest->ns < worth_ns))
			return;
		longest->shown = true;
	}
}

static int compare_doings(const void *a, const void *b)
{
	const struct doing *da = a, *db = b;

	return (da->ns < db->ns) - (da->ns > db->ns);
}

static void gap_title(struct tx *t, const struct dl_report *r, const struct dl_gap *gap, unsigned int nr)
{
	const uint64_t len = gap->end - gap->start;
	_cleanup_(dl_str_fini) struct dl_str s = {};
	bool used[DL_CAUSE_CNT] = {};
	char lead[16];
	tx_buf a, b;

	if (r->has_gpu)
		dl_str_addf(&s, "GPU %" PRIu32 " idle for %s", gap->device, tx_ns(a, len));
	else
		dl_str_addf(&s, "waited for %s", tx_ns(a, len));
	dl_str_addf(&s, ", from %.3f s", gap->start > r->start ? (double)(gap->start - r->start) / 1e9 : 0.0);
	if (gap->open)
		dl_str_add(&s, " to the end of the recording");
	for (unsigned int n = 0; n < MAX_CAUSES; n++) {
		size_t best = DL_CAUSE_CNT;

		for (size_t i = 0; i < DL_CAUSE_CNT; i++)
			if (gap->cause_ns[i] && !used[i] &&
			    (best == DL_CAUSE_CNT || gap->cause_ns[i] > gap->cause_ns[best]))
				best = i;
		if (best == DL_CAUSE_CNT)
			break;
		used[best] = true;
		dl_str_addf(&s, "%s %s %s", n ? "," : ":", dl_cause_id((enum dl_cause)best),
			    tx_pct_of(b, gap->cause_ns[best], len));
	}
	if (s.err) {
		t->s.err = s.err;
		return;
	}
	snprintf(lead, sizeof(lead), "%u. ", nr);
	tx_para(t, 2, lead, s.s);
}

static void add_row(struct tx *t, struct tx_table *tab, const char *at, const char *ns, const char *cause,
		    const char *what)
{
	tx_table_row(tab);
	tx_cell(t, tab, at);
	tx_cell(t, tab, ns);
	tx_cell(t, tab, cause);
	tx_cell(t, tab, what);
}

static const char *at_text(tx_buf buf, const struct dl_report *r, const struct dl_gap *gap, uint64_t ts)
{
	snprintf(buf, sizeof(tx_buf), "%.*f s", gap->end - gap->start < 10000000 ? 6 : 3,
		 ts > r->start ? (double)(ts - r->start) / 1e9 : 0.0);
	return buf;
}

static void who_text(struct dl_str *out, const struct dl_report *r, const struct dl_step *s)
{
	dl_who(out, r, s->pid, s->role);
	if (s->tid && s->tid != s->pid)
		dl_str_addf(out, " (tid %" PRIu32 ")", s->tid);
	else if (s->pid)
		dl_str_addf(out, " (pid %" PRIu32 ")", s->pid);
}

static void doing_text(struct dl_str *out, const struct doing *d)
{
	tx_buf cnt;

	dl_str_add(out, d->step->text ? d->step->text : dl_cause_doc(d->step->cause));
	if (d->step->via_lock)
		dl_str_add(out, ", holding what the next one waited for");
	if (d->times > 1)
		dl_str_addf(out, ", %s times", tx_cnt(cnt, d->times));
}

/* What has no line of its own. */
struct skipped {
	uint64_t steps, ns;
};

/* While it is less than least_ns it is kept for a later line. */
static void add_skipped(struct tx *t, struct tx_table *tab, struct skipped *sk, uint64_t least_ns)
{
	char text[64];
	tx_buf cnt, ns;

	if (!sk->steps || sk->ns < least_ns)
		return;
	snprintf(text, sizeof(text), "(%s shorter %s)", tx_cnt(cnt, sk->steps),
		 tx_plural(sk->steps, "step", "steps"));
	add_row(t, tab, "", tx_ns(ns, sk->ns), "", text);
	*sk = (struct skipped){};
}

static void skip(struct skipped *sk, const struct stretch *st, size_t from)
{
	for (size_t i = from; i < st->doings.cnt; i++) {
		sk->steps += st->doings.v[i].times;
		sk->ns += st->doings.v[i].ns;
	}
}

/* Most first; how many of them are worth a line, at least one. */
static size_t sort_doings(struct stretch *st, uint64_t worth_ns)
{
	size_t n = 1;

	qsort(st->doings.v, st->doings.cnt, sizeof(*st->doings.v), compare_doings);
	while (n < st->doings.cnt && n < MAX_DOINGS && st->doings.v[n].ns >= worth_ns)
		n++;
	return n;
}

static void add_woke(struct tx *t, struct tx_table *tab, const struct dl_report *r,
		     const struct dl_step *whom)
{
	_cleanup_(dl_str_fini) struct dl_str text = {};

	dl_str_addf(&text, "%s woke ", t->utf8 ? "\u2192" : "->");
	dl_who(&text, r, whom->pid, whom->role);
	add_row(t, tab, "", "", "", text.s ? text.s : "");
}

/* One line for a thread that did one thing; else its name and a line for each thing. */
static void add_stretch(struct tx *t, struct tx_table *tab, const struct dl_report *r,
			const struct dl_gap *gap, struct stretch *st, uint64_t worth_ns)
{
	const size_t lines = sort_doings(st, worth_ns);
	_cleanup_(dl_str_fini) struct dl_str who = {};
	tx_buf at, ns;

	at_text(at, r, gap, st->start);
	who_text(&who, r, st->last);
	if (lines > 1)
		add_row(t, tab, at, "", "", who.s ? who.s : "");
	for (size_t i = 0; i < lines; i++) {
		const struct doing *d = &st->doings.v[i];
		_cleanup_(dl_str_fini) struct dl_str what = {};

		if (lines == 1)
			dl_str_addf(&what, "%s: ", who.s ? who.s : "");
		doing_text(&what, d);
		if (what.err)
			tab->err = what.err;
		add_row(t, tab, lines == 1 ? at : "", tx_ns(ns, d->ns), dl_cause_id(d->step->cause),
			what.s ? what.s : "");
	}
}

static void print_stretches(struct tx *t, struct tx_table *tab, const struct dl_report *r,
			    const struct dl_gap *gap, stretch_vec *list, uint64_t worth_ns)
{
	struct skipped sk = {};

	vec_for_each(list, st) {
		const struct stretch *next = st + 1 < list->v + list->cnt ? st + 1 : NULL;

		if (!st->shown) {
			skip(&sk, st, 0);
			continue;
		}
		add_skipped(t, tab, &sk, worth_ns);
		add_stretch(t, tab, r, gap, st, worth_ns);
		skip(&sk, st, sort_doings(st, worth_ns));
		if (st->last->jump && next)
			add_woke(t, tab, r, next->last);
	}
	add_skipped(t, tab, &sk, 0);
}

static void print_steps(struct tx *t, const struct dl_report *r, const struct dl_gap *gap)
{
	static const struct tx_col cols[] = {
		TX_RIGHT("at"), TX_RIGHT("for"), TX_LEFT("cause"), TX_LEFT("who and what"),
	};
	struct tx_table tab = { .cols = cols, .col_cnt = ARRAY_SIZE(cols) };
	const uint64_t worth_ns = (gap->end - gap->start) / LINE_PARTS;
	stretch_vec list = {};
	tx_buf at;

	if (collect_stretches(gap, &list))
		tab.err = -ENOMEM;
	choose_stretches(&list, worth_ns);
	print_stretches(t, &tab, r, gap, &list, worth_ns);
	add_row(t, &tab, at_text(at, r, gap, gap->end), "", "", gap->open ? "the recording ends" :
		r->has_gpu ? "the GPU works again" : "the batch is there");
	tx_table_print(t, &tab, 5);
	vec_for_each(&list, st)
		vec_free(&st->doings);
	vec_free(&list);
}

void tx_gaps(struct tx *t, const struct dl_report *r)
{
	unsigned int nr = 1;

	if (!r->worst.cnt)
		return;
	tx_head(t, r->has_gpu ? "LONGEST GAPS" : "LONGEST WAITS");
	vec_for_each(&r->worst, gap) {
		if (nr > 1)
			tx_nl(t);
		gap_title(t, r, gap, nr++);
		if (gap->steps.cnt)
			print_steps(t, r, gap);
	}
}
