/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The post-mortem for people: what ended the run and what to do first, then what it rests on. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "diagnose/postmortem.h"
#include "diagnose/report.h"
#include "render/postmortem.h"
#include "render/text.h"
#include "render/tx.h"
#include "render/who.h"

enum {
	DEFAULT_WIDTH = 100,
	STACK_FRAMES = 12,	/* of a thread; the JSON has them all */
};

static bool is_worker_thread(enum dl_role role)
{
	return role == DL_ROLE_FEEDER || role == DL_ROLE_SHARER || role == DL_ROLE_WORKER_THREAD;
}

/* "worker 1's queue feeder", "trainer", "systemd-logind". */
static void add_name(struct dl_str *out, const struct dl_pm_who *w)
{
	const char *noun = dl_thread_noun(w->role);

	if (w->role == DL_ROLE_WORKER || is_worker_thread(w->role)) {
		dl_str_add(out, "worker");
		if (w->index >= 0)
			dl_str_addf(out, " %" PRId32, w->index);
	} else if (w->role == DL_ROLE_TRAINER || noun) {
		dl_str_add(out, "trainer");
	} else if (w->name && w->name[0]) {
		dl_str_add(out, w->name);
	} else {
		dl_str_add(out, w->role == DL_ROLE_UNKNOWN ? "process" : dl_role_id(w->role));
	}
	if (noun)
		dl_str_addf(out, "'s %s", noun);
}

static void add_who(struct dl_str *out, const struct dl_pm_who *w)
{
	add_name(out, w);
	if (!w->pid && !w->nspid)
		return;
	if (!w->pid)
		dl_str_addf(out, " (pid %" PRIu32 ")", w->nspid);	/* as the training printed it */
	else if (w->nspid && w->nspid != w->pid)
		dl_str_addf(out, " (pid %" PRIu32 ", %" PRIu32 " in its container)", w->pid, w->nspid);
	else
		dl_str_addf(out, " (pid %" PRIu32 ")", w->pid);
}

/* The same in a table: "worker 1 (4711)". The processes' table has the inner numbers. */
static void add_short(struct dl_str *out, const struct dl_pm_who *w)
{
	add_name(out, w);
	if (w->pid || w->nspid)
		dl_str_addf(out, " (%" PRIu32 ")", w->pid ? w->pid : w->nspid);
}

static bool is_known(const struct dl_pm_who *w)
{
	return w->pid || w->nspid || w->name || w->role != DL_ROLE_UNKNOWN;
}

static void add_value(struct dl_str *out, uint64_t value, enum dl_pm_unit unit)
{
	tx_buf buf;

	switch (unit) {
	case DL_PM_BYTES:
		dl_str_add(out, tx_size(buf, value));
		break;
	case DL_PM_NS:
		dl_str_add(out, tx_ns(buf, value));
		break;
	case DL_PM_BPS:
		dl_str_addf(out, "%s/s", tx_size(buf, value));
		break;
	default:
		dl_str_add(out, tx_cnt(buf, value));
	}
}

static void put_cell(struct tx *t, struct tx_table *tab, struct dl_str *s)
{
	tx_cell(t, tab, s->s ? s->s : "");
	if (s->err)
		tab->err = s->err;
	dl_str_fini(s);
}

/* An empty cell for what is not known. */
static void size_cell(struct tx *t, struct tx_table *tab, uint64_t bytes, bool known)
{
	tx_buf buf;

	tx_cell(t, tab, known ? tx_size(buf, bytes) : "");
}

static void put_verdict(struct tx *t, const struct dl_postmortem *pm)
{
	const bool died = pm->death != DL_DEATH_NONE;
	_cleanup_(dl_str_fini) struct dl_str who = {};

	tx_style(t, died ? TX_BAD : TX_BOLD);
	dl_str_addf(&t->s, "POST-MORTEM: %s", dl_death_id(pm->death));
	if (died && pm->death != DL_DEATH_UNEXPLAINED)
		dl_str_addf(&t->s, " (%s)", dl_pm_confidence_id(pm->confidence));
	tx_style(t, TX_PLAIN);
	tx_nl(t);
	tx_para(t, 2, "", pm->text ? pm->text : dl_death_doc(pm->death));
	if (died && is_known(&pm->victim)) {
		add_who(&who, &pm->victim);
		if (pm->sig) {
			dl_str_add(&who, ", ");
			dl_signal_text(&who, pm->sig);
		} else if (pm->has_status) {
			dl_str_add(&who, ", ");
			dl_exit_text(&who, pm->status);
		}
		if (pm->start && pm->ts >= pm->start)
			dl_str_addf(&who, ", %.3f s after the start of the recording", (double)(pm->ts - pm->start) / 1e9);
		dl_str_add(&who, ".");
		tx_note(t, 2, who.s ? who.s : "");
	}
	if (!pm->wrong_text)
		return;
	tx_nl(t);
	tx_style(t, TX_WARN);
	tx_para(t, 2, "! ", pm->wrong_text);
	tx_style(t, TX_PLAIN);
}

static void put_actions(struct tx *t, const struct dl_postmortem *pm)
{
	unsigned int nr = 1;
	char lead[16];

	if (!pm->actions.cnt)
		return;
	tx_head(t, "WHAT TO DO");
	vec_for_each(&pm->actions, a) {
		snprintf(lead, sizeof(lead), "%u. ", nr++);
		tx_para(t, 2, lead, a->text);
		if (!a->command)
			continue;
		/* not wrapped: it is to be copied; several lines are several commands */
		for (const char *line = a->command; *line;) {
			const size_t len = strcspn(line, "\n");
			_cleanup_free_ char *one = strndup(line, len);

			if (!one) {
				t->s.err = -ENOMEM;
				return;
			}
			tx_spaces(t, 7);
			tx_text(t, one);
			tx_nl(t);
			line += len + (line[len] == '\n');
		}
	}
}

/* What the facts allow beside the verdict, and what would have told. */
static void put_alternatives(struct tx *t, const struct dl_postmortem *pm)
{
	if (!pm->alternatives.cnt)
		return;
	tx_head(t, pm->death == DL_DEATH_UNEXPLAINED ? "WHAT IT MAY HAVE BEEN" : "WHAT ELSE IT MAY HAVE BEEN");
	vec_for_each(&pm->alternatives, a) {
		tx_paraf(t, 2, "%s: %s", dl_death_id(a->death), a->why);
		if (a->decides)
			tx_paraf(t, 4, "What would tell: %s", a->decides);
	}
}

static void add_date(struct dl_str *out, int64_t wall_ns)
{
	const time_t sec = (time_t)(wall_ns / 1000000000);
	struct tm tm;
	char buf[32];

	if (wall_ns > 0 && localtime_r(&sec, &tm) && strftime(buf, sizeof(buf), "%F %T", &tm))
		dl_str_add(out, buf);
}

/* "-12.345 s", "0": from the death, else from the end. Without a recording the time of day. */
static void add_when(struct dl_str *out, const struct dl_postmortem *pm, const struct dl_pm_fact *f)
{
	const uint64_t ts = f->ts;
	const uint64_t ref = pm->ts ? pm->ts : pm->end;

	if (!pm->path) {	/* no recording whose clock it could be told by */
		add_date(out, f->wall_ns);
		return;
	}
	if (!ts || !ref)
		return;
	if (ts == ref)
		dl_str_add(out, "0");
	else
		dl_str_addf(out, "%s%.3f s", ts < ref ? "-" : "+", (double)(ts < ref ? ref - ts : ts - ref) / 1e9);
}

static void put_facts(struct tx *t, const struct dl_postmortem *pm)
{
	bool timed = false, decided = false, other = false, named = false;

	if (!pm->facts.cnt)
		return;
	vec_for_each(&pm->facts, f) {
		timed |= pm->path ? f->ts != 0 : f->wall_ns > 0;
		decided |= f->decides;
		other |= f->source != DL_PM_TRACE;
		named |= is_known(&f->who);
	}
	const struct tx_col cols[] = {
		{ .title = "" , .hide = !decided },
		{ .title = "time", .right = true, .hide = !timed },
		{ .title = "from", .hide = !other },
		{ .title = "who", .hide = !named },
		TX_LEFT("what"),
	};
	struct tx_table tab = { .cols = cols, .col_cnt = ARRAY_SIZE(cols) };

	tx_head(t, "WHAT HAPPENED");
	vec_for_each(&pm->facts, f) {
		struct dl_str when = {}, who = {};

		tx_table_row(&tab);
		tx_cell(t, &tab, f->decides ? ">" : "");
		add_when(&when, pm, f);
		put_cell(t, &tab, &when);
		tx_cell(t, &tab, dl_pm_source_id(f->source));
		if (is_known(&f->who))
			add_short(&who, &f->who);
		put_cell(t, &tab, &who);
		tx_cell(t, &tab, f->text);
		if (f->decides)
			tx_cell_style(&tab, TX_BOLD);
	}
	tx_table_print(t, &tab, 2);
	if (decided)
		tx_note(t, 2, timed && pm->path ? "> decides the verdict. Times are from the death." : "> decides the verdict.");
	else if (timed && pm->path)
		tx_note(t, 2, pm->ts ? "Times are from the death." : "Times are from the end of the recording.");
}

static void put_numbers(struct tx *t, const struct dl_postmortem *pm)
{
	const struct tx_col cols[] = { TX_LEFT("number"), TX_RIGHT("value"), TX_LEFT("") };
	struct tx_table tab = { .cols = cols, .col_cnt = ARRAY_SIZE(cols) };

	if (!pm->numbers.cnt)
		return;
	tx_head(t, "NUMBERS");
	vec_for_each(&pm->numbers, n) {
		struct dl_str value = {}, how = {};

		tx_table_row(&tab);
		tx_cell(t, &tab, n->label);
		add_value(&value, n->value, n->unit);
		put_cell(t, &tab, &value);
		if (n->estimated)
			dl_str_addf(&how, "estimate%s%s", n->how ? ": " : "", n->how ? n->how : "");
		else if (n->how)
			dl_str_add(&how, n->how);
		put_cell(t, &tab, &how);
	}
	tx_table_print(t, &tab, 2);
}

static void pair_cell(struct tx *t, struct tx_table *tab, uint64_t have, uint64_t limit)
{
	struct dl_str s = {};

	if (have && limit)
		dl_str_addf(&s, "%" PRIu64 " of %" PRIu64, have, limit);
	else if (have)
		dl_str_addf(&s, "%" PRIu64, have);
	put_cell(t, tab, &s);
}

static void growth_note(struct tx_table *tab, const struct dl_pm_proc *p)
{
	_cleanup_(dl_str_fini) struct dl_str s = {};
	tx_buf buf;

	if (!p->has_growth || !p->leaks)
		return;
	dl_str_addf(&s, "its own memory grew by %s a second", tx_size(buf, p->growth_bps > 0 ? (uint64_t)p->growth_bps : 0));
	if (p->growth_batch > 0)
		dl_str_addf(&s, ", %s a batch", tx_size(buf, (uint64_t)p->growth_batch));
	if (s.s)
		tx_row_note(tab, s.s);
}

static void put_procs(struct tx *t, const struct dl_postmortem *pm)
{
	bool mem = false, swap = false, fds = false, maps = false;

	if (!pm->procs.cnt)
		return;
	vec_for_each(&pm->procs, p) {
		mem |= p->has_mem;
		swap |= p->swap != 0;
		fds |= p->fds != 0;
		maps |= p->maps != 0;
	}
	const struct tx_col cols[] = {
		TX_LEFT("process"),
		{ .title = "private", .right = true, .hide = !mem },
		{ .title = "shared", .right = true, .hide = !mem },
		{ .title = "files", .right = true, .hide = !mem },
		{ .title = "swapped", .right = true, .hide = !swap },
		{ .title = "peak", .right = true, .hide = !mem },
		{ .title = "descriptors", .right = true, .hide = !fds },
		{ .title = "mappings", .right = true, .hide = !maps },
		TX_LEFT("end"),
	};
	struct tx_table tab = { .cols = cols, .col_cnt = ARRAY_SIZE(cols) };

	tx_head(t, "PROCESSES");
	vec_for_each(&pm->procs, p) {
		struct dl_str who = {};

		tx_table_row(&tab);
		add_who(&who, &p->who);
		put_cell(t, &tab, &who);
		size_cell(t, &tab, p->anon, p->has_mem);
		size_cell(t, &tab, p->shmem, p->has_mem);
		size_cell(t, &tab, p->file, p->has_mem);
		size_cell(t, &tab, p->swap, p->has_mem);
		size_cell(t, &tab, p->total_peak, p->has_mem && p->total_peak);
		pair_cell(t, &tab, p->fds, p->fds_limit);
		pair_cell(t, &tab, p->maps, p->maps_limit);
		tx_cell(t, &tab, p->state ? p->state : p->ended ? "ended" : "alive");
		growth_note(&tab, p);
	}
	tx_table_print(t, &tab, 2);
}

static void put_stack(struct tx_table *tab, const struct dl_pm_thread *th)
{
	_cleanup_(dl_str_fini) struct dl_str s = {};
	size_t cnt = 0;

	vec_for_each(&th->stack, frame)
		if (cnt++ < STACK_FRAMES)
			dl_str_addf(&s, "%s%s", cnt > 1 ? "\n" : "", *frame);
	if (cnt > STACK_FRAMES)
		dl_str_addf(&s, "\n... %zu more", cnt - STACK_FRAMES);
	if (s.s)
		tx_row_note(tab, s.s);
}

static void put_threads(struct tx *t, const struct dl_postmortem *pm)
{
	const struct tx_col cols[] = { TX_LEFT("thread"), TX_RIGHT("tid"), TX_RIGHT("since"), TX_LEFT("state") };
	struct tx_table tab = { .cols = cols, .col_cnt = ARRAY_SIZE(cols) };
	tx_buf buf;

	if (!pm->threads.cnt)
		return;
	tx_head(t, pm->death == DL_DEATH_NONE ? "THREADS AT THE END" : "THREADS AT THAT MOMENT");
	vec_for_each(&pm->threads, th) {
		struct dl_str who = {}, tid = {}, state = {};

		tx_table_row(&tab);
		add_short(&who, &th->who);
		put_cell(t, &tab, &who);
		dl_str_addf(&tid, "%" PRIu32, th->who.tid);
		put_cell(t, &tab, &tid);
		tx_cell(t, &tab, th->for_ns ? tx_ns(buf, th->for_ns) : "");
		dl_str_add(&state, th->state ? th->state : "not known");
		if (th->holder.pid || th->holder_text) {
			dl_str_add(&state, "; ");
			if (th->holder.pid)
				add_short(&state, &th->holder);
			dl_str_addf(&state, "%s%s", th->holder.pid && th->holder_text ? " " : "",
				    th->holder_text ? th->holder_text : " could end it");
		}
		put_cell(t, &tab, &state);
		if (th->died)
			tx_cell_style(&tab, TX_BOLD);
		put_stack(&tab, th);
	}
	tx_table_print(t, &tab, 2);
}

static void put_claims(struct tx *t, const struct dl_postmortem *pm)
{
	if (!pm->claims.cnt)
		return;
	tx_head(t, "THE TRAINING'S OWN OUTPUT");
	vec_for_each(&pm->claims, c) {
		tx_para(t, 2, "| ", c->line ? c->line : "");
		if (c->tells)
			tx_para(t, 4, c->contradicts ? "! " : "", c->tells);
		if (c->not_tells)
			tx_paraf(t, 4, "It does not tell: %s", c->not_tells);
	}
}

static void put_notes(struct tx *t, const struct dl_postmortem *pm)
{
	if (!pm->notes.cnt)
		return;
	tx_head(t, "NOTES");
	vec_for_each(&pm->notes, n)
		tx_para(t, 2, "- ", *n);
}

int dl_render_postmortem(const struct dl_postmortem *pm, const struct dl_text_opts *opts, FILE *out, struct dl_diag *d)
{
	struct tx t = {
		.utf8 = opts->utf8,
		.color = opts->color,
		.width = opts->width ? opts->width : DEFAULT_WIDTH,
	};

	put_verdict(&t, pm);
	put_actions(&t, pm);
	put_alternatives(&t, pm);
	put_facts(&t, pm);
	put_numbers(&t, pm);
	put_procs(&t, pm);
	put_threads(&t, pm);
	if (pm->gpu) {
		tx_head(&t, "GPU");
		tx_para(&t, 2, "", pm->gpu);
	}
	put_claims(&t, pm);
	put_notes(&t, pm);
	return tx_finish(&t, out, d);
}
