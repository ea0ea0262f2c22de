/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The text report: its order, the verdict, and the causes of a device's idle time. */
#include "render/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "render/text_parts.h"
#include "render/who.h"

enum {
	DEFAULT_WIDTH = 100,
	BAR_CELLS = 20,
	WIDE_BAR_CELLS = 40,
};

/* Causes below this share are listed without the explanation of what they mean. */
#define DOC_MIN_SHARE 0.01

void tx_causes_sorted(struct tx_cause_list *list, const struct dl_charge *causes)
{
	list->cnt = 0;
	for (size_t i = 0; i < DL_CAUSE_CNT; i++) {
		size_t at = list->cnt;

		if (!causes[i].ns)
			continue;
		for (; at && causes[list->v[at - 1]].ns < causes[i].ns; at--)
			list->v[at] = list->v[at - 1];
		list->v[at] = (enum dl_cause)i;
		list->cnt++;
	}
}

void tx_crash(struct tx *t, const struct dl_report *r)
{
	const struct dl_crash_report *c = r->crash;
	_cleanup_(dl_str_fini) struct dl_str who = {};

	if (!c)
		return;
	tx_style(t, TX_BAD);
	dl_str_add(&t->s, "CRASH");
	if (c->cause) {
		dl_str_add(&t->s, ": ");
		tx_text(t, c->cause);
	}
	tx_style(t, TX_PLAIN);
	tx_nl(t);
	dl_who(&who, r, c->pid, c->role);
	dl_str_addf(&who, " (pid %" PRIu32, c->pid);
	if (c->nspid && c->nspid != c->pid)
		dl_str_addf(&who, ", %" PRIu32 " in its container", c->nspid);
	dl_str_add(&who, ")");
	if (c->sig) {
		dl_str_add(&who, ", ");
		dl_signal_text(&who, c->sig);
	}
	if (c->ts >= r->start)
		dl_str_addf(&who, ", %.3f s after the start", (double)(c->ts - r->start) / 1e9);
	dl_str_add(&who, ".");
	tx_para(t, 2, "", c->text ? c->text : "Why is not known.");
	if (who.s)
		tx_note(t, 2, who.s);
	tx_nl(t);
}

void tx_verdict(struct tx *t, const struct dl_report *r)
{
	const struct dl_verdict *v = &r->verdict;
	unsigned int nr = 1;
	char lead[16];
	tx_buf pct;

	tx_style(t, TX_BOLD);
	dl_str_add(&t->s, "VERDICT: ");
	if (v->has_cause)
		dl_str_addf(&t->s, "%s, %s of %s", dl_cause_id(v->cause), tx_pct_round(pct, v->share),
			    r->has_gpu ? "the GPU's idle time" : "the waiting for batches");
	else if (v->healthy)
		dl_str_add(&t->s, r->has_gpu ? "nothing holds the GPU up" : "the trainer is not short of batches");
	else
		dl_str_add(&t->s, "none");
	tx_style(t, TX_PLAIN);
	tx_nl(t);
	if (v->text)
		tx_para(t, 2, "", v->text);
	else if (!v->has_cause)
		tx_para(t, 2, "", "There is nothing in this recording to blame.");
	if (!v->actions.cnt)
		return;
	tx_nl(t);
	tx_style(t, TX_BOLD);
	dl_str_add(&t->s, "WHAT TO DO");
	tx_style(t, TX_PLAIN);
	tx_nl(t);
	vec_for_each(&v->actions, action) {
		snprintf(lead, sizeof(lead), "%u. ", nr++);
		tx_para(t, 2, lead, *action);
	}
}

static void warn(struct tx *t, bool *any, const char *text)
{
	if (!*any)
		tx_nl(t);
	*any = true;
	tx_style(t, TX_WARN);
	tx_para(t, 2, "! ", text);
	tx_style(t, TX_PLAIN);
}

static void warnf(struct tx *t, bool *any, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

static void warnf(struct tx *t, bool *any, const char *fmt, ...)
{
	_cleanup_free_ char *text = NULL;
	va_list ap;
	int len;

	va_start(ap, fmt);
	len = vasprintf(&text, fmt, ap);
	va_end(ap);
	if (len < 0) {
		text = NULL;
		t->s.err = -ENOMEM;
		return;
	}
	warn(t, any, text);
}

static void warn_shed(struct tx *t, bool *any, const struct dl_report *r)
{
	_cleanup_(dl_str_fini) struct dl_str s = {};
	tx_buf a;

	dl_str_addf(&s, "%s events or parts of events were left out on purpose, the least important first, while they came "
		    "faster than they could be read or written: ", tx_cnt(a, r->shed));
	vec_for_each(&r->sheds, row)
		dl_str_addf(&s, "%s%s", row == r->sheds.v ? "" : ", ", row->what);
	dl_str_add(&s, t->brief ? "." : ". When is said at the end.");
	if (s.err) {
		t->s.err = s.err;
		return;
	}
	warn(t, any, s.s);
}

void tx_warnings(struct tx *t, const struct dl_report *r)
{
	tx_buf a, b;
	bool any = false;

	if (r->simulated)
		warn(t, &any, "The GPU is SIMULATED: a model of one, made of software. Its times are "
		     "not those of a real device.");
	if (!r->has_gpu) {
		if (r->waits.calls.known)
			warn(t, &any, "What the GPU ran is not known, only when the trainer called it: this explains "
			     "the time in which the trainer waited for batches and inside such calls, not the "
			     "time in which the GPU was idle.");
		else
			warn(t, &any, "No GPU data: this explains the time in which the trainer waited for "
			     "batches, not the time in which the GPU was idle.");
		if (r->gpu_hint && r->gpu_hint[0])
			warnf(t, &any, "To get GPU data: %s", r->gpu_hint);
	}
	if (r->live)
		warnf(t, &any, "The recording still goes on; this is its first %s.",
		      tx_ns(a, r->duration_ns));
	else if (!r->complete)
		warnf(t, &any, "The recording was cut off (the recorder was killed, or the file is not "
		      "whole). It is readable up to %s.", tx_ns(a, r->duration_ns));
	if (r->damaged_frames)
		warnf(t, &any, "%s %s of the file (%s) %s damaged and could not be read.",
		      tx_cnt(a, r->damaged_frames), tx_plural(r->damaged_frames, "part", "parts"),
		      tx_size(b, r->damaged_bytes), tx_plural(r->damaged_frames, "is", "are"));
	if (r->lost)
		warnf(t, &any, "%s events were lost (%s of all): what depends on them is charged to "
		      "\"unexplained\".%s", tx_cnt(a, r->lost), tx_pct_of(b, r->lost, r->lost + r->events),
		      r->losses.cnt && !t->brief ? " They are listed at the end." : "");
	if (r->shed)
		warn_shed(t, &any, r);
}

static void device_name(struct dl_str *out, const struct dl_report *r,
			const struct dl_device_report *dev)
{
	dl_str_addf(out, "GPU %" PRIu32, dev->id);
	if (dev->name && dev->name[0])
		dl_str_addf(out, ", %s", dev->name);
	if (dev->simulated && !(dev->name && strcasestr(dev->name, "simulated")))
		dl_str_add(out, " (simulated)");
	if (dl_role_cnt(r, DL_ROLE_TRAINER) > 1) {
		dl_str_add(out, ", used by ");
		dl_who(out, r, dev->pid, DL_ROLE_TRAINER);
	}
}

static uint64_t span(const struct dl_device_report *dev)
{
	return dev->end > dev->start ? dev->end - dev->start - dev->unobserved_ns : 0;
}

void tx_summary(struct tx *t, const struct dl_report *r)
{
	const struct dl_waits_report *w = &r->waits;
	tx_buf a, b, c, d;

	tx_nl(t);
	vec_for_each(&r->devices, dev) {
		_cleanup_(dl_str_fini) struct dl_str name = {};

		device_name(&name, r, dev);
		tx_paraf(t, 2, "%s: busy %s, idle %s of %s%s%s", name.s ? name.s : "GPU",
			 tx_pct_of(a, dev->busy_ns, span(dev)), tx_pct_of(b, dev->idle_ns, span(dev)),
			 tx_ns(c, span(dev)), dev->collective_ns ? ", in collectives alone " : "",
			 dev->collective_ns ? tx_pct_of(d, dev->collective_ns, span(dev)) : "");
	}
	if (!r->has_gpu)
		tx_paraf(t, 2, "waiting for batches: %s of %s (%s)", tx_ns(a, w->total_ns),
			 tx_ns(b, w->wall_ns), tx_pct_of(c, w->total_ns, w->wall_ns));
}

static void charge_notes(struct tx_table *tab, enum dl_cause cause, const struct dl_charge *c,
			 double share)
{
	_cleanup_(dl_str_fini) struct dl_str s = {};
	tx_buf a, b;

	if (share >= DOC_MIN_SHARE)
		dl_str_addf(&s, "%s\n", dl_cause_doc(cause));
	if (c->detail && c->detail[0])
		dl_str_addf(&s, "%s\n", c->detail);
	if (c->own_tree_ns)
		dl_str_addf(&s, "the CPUs were held by this job itself for %s, by others for %s\n",
			    tx_ns(a, c->own_tree_ns),
			    tx_ns(b, c->ns > c->own_tree_ns ? c->ns - c->own_tree_ns : 0));
	if (c->affinity_ns)
		dl_str_addf(&s, "%s of it by threads that may not run on every CPU (affinity)\n",
			    c->affinity_ns >= c->ns ? "all" : tx_ns(a, c->affinity_ns));
	if (c->via_lock_ns)
		dl_str_addf(&s, "%s of it while holding a lock or the GIL that the next one waited for\n",
			    c->via_lock_ns >= c->ns ? "all" : tx_ns(a, c->via_lock_ns));
	if (c->estimated_ns)
		dl_str_addf(&s, "%s of it is an estimate, from samples\n",
			    c->estimated_ns >= c->ns ? "all" : tx_ns(a, c->estimated_ns));
	if (s.err)
		tab->err = s.err;
	else if (s.len)
		tx_row_note(tab, s.s);
}

static void print_charges(struct tx *t, const struct dl_charge *causes, uint64_t total,
			  const char *times_title)
{
	const struct tx_col cols[] = {
		TX_LEFT("cause"), TX_RIGHT("time"), TX_RIGHT("share"), TX_LEFT(""),
		TX_RIGHT(times_title),
	};
	struct tx_table tab = { .cols = cols, .col_cnt = ARRAY_SIZE(cols) };
	struct tx_cause_list list;
	tx_buf buf;

	tx_causes_sorted(&list, causes);
	for (size_t i = 0; i < list.cnt; i++) {
		const struct dl_charge *c = &causes[list.v[i]];
		const double share = total ? (double)c->ns / (double)total : 0;
		_cleanup_(dl_str_fini) struct dl_str bar = {};

		tx_bar(&bar, t->utf8, share, BAR_CELLS);
		tx_table_row(&tab);
		if (!i)
			tx_cell_style(&tab, TX_BOLD);
		tx_cell(t, &tab, dl_cause_id(list.v[i]));
		tx_cell(t, &tab, tx_ns(buf, c->ns));
		tx_cell(t, &tab, tx_pct(buf, share));
		tx_cell(t, &tab, bar.s ? bar.s : "");
		tx_cell(t, &tab, tx_cnt(buf, c->gaps));
		charge_notes(&tab, list.v[i], c, share);
	}
	tx_table_print(t, &tab, 2);
}

static void add_use(struct tx *t, struct tx_table *tab, const char *what, uint64_t ns, uint64_t of,
		    const char *more)
{
	_cleanup_(dl_str_fini) struct dl_str bar = {};
	tx_buf buf;

	tx_bar(&bar, t->utf8, of ? (double)ns / (double)of : 0, WIDE_BAR_CELLS);
	tx_table_row(tab);
	tx_cell(t, tab, what);
	tx_cell(t, tab, tx_ns(buf, ns));
	tx_cell(t, tab, tx_pct_of(buf, ns, of));
	tx_cell(t, tab, bar.s ? bar.s : "");
	tx_cell(t, tab, more);
}

static void print_use(struct tx *t, const struct dl_device_report *dev)
{
	static const struct tx_col cols[] = {
		TX_LEFT(""), TX_RIGHT(""), TX_RIGHT(""), TX_LEFT(""), TX_LEFT(""),
	};
	struct tx_table tab = { .cols = cols, .col_cnt = ARRAY_SIZE(cols) };
	char more[96];
	tx_buf a;

	snprintf(more, sizeof(more), "%s %s", tx_cnt(a, dev->kernels),
		 tx_plural(dev->kernels, "kernel", "kernels"));
	add_use(t, &tab, "busy", dev->busy_ns, span(dev), more);
	if (dev->collective_ns)
		add_use(t, &tab, "collective", dev->collective_ns, span(dev),
			"collectives alone");
	snprintf(more, sizeof(more), "%s %s", tx_cnt(a, dev->gap_cnt),
		 tx_plural(dev->gap_cnt, "gap", "gaps"));
	add_use(t, &tab, "idle", dev->idle_ns, span(dev), dev->idle_ns ? more : "");
	tx_table_print(t, &tab, 2);
}

void tx_devices(struct tx *t, const struct dl_report *r)
{
	tx_buf a;

	if (!r->has_gpu)
		return;
	if (!r->devices.cnt) {
		tx_head(t, "GPU");
		tx_para(t, 2, "", "No kernel ran on any GPU while this was recorded.");
	}
	vec_for_each(&r->devices, dev) {
		_cleanup_(dl_str_fini) struct dl_str name = {};

		device_name(&name, r, dev);
		tx_head(t, "%s: %s observed", name.s ? name.s : "GPU", tx_ns(a, span(dev)));
		print_use(t, dev);
		if (!dev->idle_ns)
			continue;
		tx_note(t, 2, "Idle is time in which no kernel runs on any stream of this GPU. "
			"Each nanosecond of it is charged to one cause:");
		tx_nl(t);
		print_charges(t, dev->causes, dev->idle_ns, "gaps");
	}
}

static void tx_calls(struct tx *t, const struct dl_waits_report *w)
{
	const struct dl_calls_report *c = &w->calls;
	tx_buf a, b, d, e;

	if (!c->known)
		return;
	tx_nl(t);
	tx_paraf(t, 2, "Its calls of CUDA: %s launches, %s copies (%s), %s of memory, modules and graphs.",
		 tx_cnt(a, c->launch_cnt), tx_cnt(b, c->copy_cnt), tx_size(d, c->copy_bytes), tx_cnt(e, c->api_cnt));
	tx_paraf(t, 2, "It waited for the GPU itself, which was at work then, %s of %s (%s): that is not counted above.",
		 tx_ns(a, c->gpu_wait_ns), tx_ns(b, w->wall_ns), tx_pct_of(d, c->gpu_wait_ns, w->wall_ns));
}

void tx_waits(struct tx *t, const struct dl_report *r)
{
	const struct dl_waits_report *w = &r->waits;
	tx_buf a, b, c, d;

	if (r->has_gpu)
		return;
	tx_head(t, w->calls.known ? "WAITING FOR BATCHES AND CALLS" : "WAITING FOR BATCHES");
	if (!w->cnt && !w->total_ns) {
		tx_para(t, 2, "", "The trainer was not seen waiting for a batch.");
		tx_calls(t, w);
		return;
	}
	tx_paraf(t, 2, "The trainer waited for batches%s %s of %s (%s), in %s %s.", w->calls.known ? " and inside calls" : "",
		 tx_ns(a, w->total_ns), tx_ns(b, w->wall_ns), tx_pct_of(c, w->total_ns, w->wall_ns),
		 tx_cnt(d, w->cnt), tx_plural(w->cnt, "wait", "waits"));
	tx_note(t, 2, "Each nanosecond of it is charged to one cause:");
	tx_nl(t);
	print_charges(t, w->causes, w->total_ns, "waits");
	tx_calls(t, w);
}

int dl_render_text(const struct dl_report *r, const struct dl_text_opts *opts, FILE *out,
		   struct dl_diag *d)
{
	struct tx t = {
		.utf8 = opts->utf8,
		.color = opts->color,
		.brief = opts->brief,
		.width = opts->width ? opts->width : DEFAULT_WIDTH,
	};

	tx_crash(&t, r);
	tx_verdict(&t, r);
	if (opts->brief)
		tx_summary(&t, r);
	tx_warnings(&t, r);
	if (!opts->brief) {
		tx_devices(&t, r);
		tx_waits(&t, r);
		tx_gaps(&t, r);
		tx_trainers(&t, r);
		tx_batches(&t, r);
		tx_processes(&t, r);
		tx_copies(&t, r);
		tx_gpus(&t, r);
		tx_recording(&t, r);
	}
	return tx_finish(&t, out, d);
}
