/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The tables of the text report: batches, processes, copies; and what is known of the recording. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "render/text_parts.h"
#include "render/who.h"

enum {
	MAX_PROCS = 24,		/* rows of the process table */
	PART_CAUSES = 3,	/* causes named for a trainer or a loader */
};

/* A kind of wait gets a column of its own from this share of some process's life on. */
#define KIND_MIN_SHARE 0.01

/* A cause with less of a trainer's or a loader's time than this is not named. */
#define PART_MIN_SHARE 0.01

/* As far as it lies in the recording. */
static uint64_t life(const struct dl_report *r, const struct dl_proc_report *p)
{
	const uint64_t start = p->start > r->start ? p->start : r->start;

	return p->end > start ? p->end - start : 0;
}

static double share_of(uint64_t part, uint64_t whole)
{
	return whole ? (double)part / (double)whole : 0;
}

static void add_share(struct tx *t, struct tx_table *tab, uint64_t part, uint64_t whole)
{
	const double pct = share_of(part, whole) * 100;
	char text[32] = "";

	if (pct >= 0.5)
		snprintf(text, sizeof(text), "%.0f %%", pct);
	else if (part)
		snprintf(text, sizeof(text), "<1 %%");
	tx_cell(t, tab, text);
}

/* --- batches ------------------------------------------------------------------------------- */

static void add_dist(struct tx *t, struct tx_table *tab, const char *what, const struct dl_dist *d)
{
	tx_buf buf;

	if (!d->cnt)
		return;
	tx_table_row(tab);
	tx_cell(t, tab, what);
	tx_cell(t, tab, tx_cnt(buf, d->cnt));
	tx_cell(t, tab, tx_ns(buf, d->p50_ns));
	tx_cell(t, tab, tx_ns(buf, d->p99_ns));
	tx_cell(t, tab, tx_ns(buf, d->max_ns));
	tx_cell(t, tab, tx_ns(buf, d->sum_ns));
}

static void loader_title(struct tx *t, const struct dl_report *r, const struct dl_loader_report *l)
{
	_cleanup_(dl_str_fini) struct dl_str s = {};
	tx_buf a;

	dl_str_addf(&s, "Loader %" PRIu32, l->index);
	if (dl_role_cnt(r, DL_ROLE_TRAINER) > 1) {
		dl_str_add(&s, " of the ");
		dl_who(&s, r, l->trainer_pid, DL_ROLE_TRAINER);
	}
	if (l->workers)
		dl_str_addf(&s, ", %" PRIu32 " %s: ", l->workers,
			    tx_plural(l->workers, "worker", "workers"));
	else
		dl_str_add(&s, ", no workers (num_workers=0, the trainer loads the data itself): ");
	if (l->batches)
		dl_str_addf(&s, "%s %s", tx_cnt(a, l->batches),
			    tx_plural(l->batches, "batch", "batches"));
	else
		dl_str_add(&s, "its batches could not be counted");
	if (s.err)
		t->s.err = s.err;
	else
		tx_para(t, 2, "", s.s);
}

/* "decode 81 %, ipc 9 %": the main causes of a part. */
static void add_part_causes(struct dl_str *s, const struct dl_part *part)
{
	bool told[DL_CAUSE_CNT] = {};

	for (int n = 0; n < PART_CAUSES; n++) {
		int most = -1;

		for (int c = 0; c < DL_CAUSE_CNT; c++) {
			if (!told[c] && part->cause_ns[c] && (most < 0 || part->cause_ns[c] > part->cause_ns[most]))
				most = c;
		}
		if (most < 0 || (double)part->cause_ns[most] < PART_MIN_SHARE * (double)part->idle_ns)
			return;
		told[most] = true;
		dl_str_addf(s, "%s%s %.0f %%", n ? ", " : "", dl_cause_id((enum dl_cause)most),
			    100 * share_of(part->cause_ns[most], part->idle_ns));
	}
}

static void loader_part(struct tx *t, const struct dl_report *r, const struct dl_loader_report *l)
{
	_cleanup_(dl_str_fini) struct dl_str s = {};
	tx_buf a;

	if (!l->part.idle_ns)
		return;
	dl_str_addf(&s, "%s %s for its batches: ", r->has_gpu ? "The GPU was idle" : "The trainer waited",
		    tx_ns(a, l->part.idle_ns));
	add_part_causes(&s, &l->part);
	if (s.err)
		t->s.err = s.err;
	else
		tx_para(t, 4, "", s.s);
}

void tx_trainers(struct tx *t, const struct dl_report *r)
{
	const struct tx_col cols[] = {
		TX_LEFT(""), TX_RIGHT("pid"), TX_RIGHT("seen"), TX_RIGHT(r->has_gpu ? "GPU idle" : "waited"),
		TX_RIGHT("share"), TX_LEFT("main causes"),
	};
	struct tx_table tab = { .cols = cols, .col_cnt = ARRAY_SIZE(cols) };

	if (r->trainers.cnt < 2)
		return;
	tx_head(t, "TRAINERS");
	vec_for_each(&r->trainers, tr) {
		_cleanup_(dl_str_fini) struct dl_str who = {}, causes = {};
		tx_buf buf;

		dl_who(&who, r, tr->pid, DL_ROLE_TRAINER);
		add_part_causes(&causes, &tr->part);
		if (who.err || causes.err) {
			t->s.err = -ENOMEM;
			break;
		}
		tx_table_row(&tab);
		tx_cell(t, &tab, who.s);
		snprintf(buf, sizeof(buf), "%" PRIu32, tr->pid);
		tx_cell(t, &tab, buf);
		tx_cell(t, &tab, tx_ns(buf, tr->part.span_ns));
		tx_cell(t, &tab, tx_ns(buf, tr->part.idle_ns));
		add_share(t, &tab, tr->part.idle_ns, tr->part.span_ns);
		tx_cell(t, &tab, tr->part.healthy ? "none: it hardly waited" : causes.s ? causes.s : "");
	}
	tx_table_print(t, &tab, 2);
}

void tx_batches(struct tx *t, const struct dl_report *r)
{
	static const struct tx_col cols[] = {
		TX_LEFT(""), TX_RIGHT("count"), TX_RIGHT("median"), TX_RIGHT("p99"),
		TX_RIGHT("longest"), TX_RIGHT("together"),
	};

	tx_head(t, "BATCHES");
	if (!r->loaders.cnt)
		tx_para(t, 2, "", "No data loader was seen.");
	vec_for_each(&r->loaders, l) {
		struct tx_table tab = { .cols = cols, .col_cnt = ARRAY_SIZE(cols) };

		loader_title(t, r, l);
		if (r->loaders.cnt > 1)
			loader_part(t, r, l);
		add_dist(t, &tab, "waiting for a batch", &l->wait);
		add_dist(t, &tab, l->workers ? "making it, in a worker" : "making it", &l->produce);
		add_dist(t, &tab, "handing it over", &l->deliver);
		tx_table_print(t, &tab, 4);
	}
}

/* --- processes ----------------------------------------------------------------------------- */

/* Which columns the processes at hand need. */
struct proc_cols {
	bool kind[DL_BLOCK_ON_CNT];
	bool nspid, throttled, major, shmem, swap, end;
};

static void choose_cols(struct proc_cols *c, const struct dl_report *r)
{
	memset(c, 0, sizeof(*c));
	vec_for_each(&r->procs, p) {
		c->nspid |= p->nspid && p->nspid != p->pid;
		c->throttled |= p->throttled_ns > 0;
		c->major |= p->maj_flt > 0;
		c->shmem |= p->shmem_peak > 0;
		c->swap |= p->swap_peak > 0;
		c->end |= p->exited;
		for (size_t k = 0; k < DL_BLOCK_ON_CNT; k++)
			c->kind[k] |= share_of(p->blocked_ns[k], life(r, p)) >= KIND_MIN_SHARE;
	}
	c->kind[DL_BLOCK_ON_OTHER] = true;	/* takes what has no column */
}

static void add_proc(struct tx *t, struct tx_table *tab, const struct dl_report *r,
		     const struct dl_proc_report *p, const struct proc_cols *c)
{
	_cleanup_(dl_str_fini) struct dl_str who = {}, end = {};
	uint64_t other = 0;
	tx_buf buf;

	dl_who_proc(&who, r, p);
	if (p->exited)
		dl_exit_text(&end, p->exit_status);
	else
		dl_str_add(&end, "");
	if (who.err || end.err) {
		tab->err = -ENOMEM;
		return;
	}
	tx_table_row(tab);
	if (p->exited && p->exit_status & 0x7f)
		tx_cell_style(tab, TX_WARN);
	tx_cell(t, tab, who.s);
	snprintf(buf, sizeof(buf), "%" PRIu32, p->pid);
	tx_cell(t, tab, buf);
	snprintf(buf, sizeof(buf), "%" PRIu32, p->nspid);
	tx_cell(t, tab, buf);
	tx_cell(t, tab, tx_ns(buf, life(r, p)));
	add_share(t, tab, p->cpu_ns, life(r, p));
	add_share(t, tab, p->runnable_ns, life(r, p));
	add_share(t, tab, p->throttled_ns, life(r, p));
	for (size_t k = 0; k < DL_BLOCK_ON_OTHER; k++) {
		add_share(t, tab, p->blocked_ns[k], life(r, p));
		other += c->kind[k] ? 0 : p->blocked_ns[k];
	}
	add_share(t, tab, other + p->blocked_ns[DL_BLOCK_ON_OTHER], life(r, p));
	tx_cell(t, tab, tx_cnt(buf, p->min_flt));
	tx_cell(t, tab, tx_cnt(buf, p->maj_flt));
	tx_cell(t, tab, p->rss_peak ? tx_size(buf, p->rss_peak) : "");
	tx_cell(t, tab, p->shmem_peak ? tx_size(buf, p->shmem_peak) : "");
	tx_cell(t, tab, p->swap_peak ? tx_size(buf, p->swap_peak) : "");
	tx_cell(t, tab, end.s);
}

/* A trainer and its workers together; what is neither comes last, and only while there is room. */
static uint64_t proc_order(const struct dl_proc_report *p)
{
	if (p->role == DL_ROLE_TRAINER)
		return (uint64_t)p->pid << 24;
	if (p->role == DL_ROLE_WORKER)
		return ((uint64_t)p->trainer_pid << 24) + ((uint64_t)(uint8_t)((uint32_t)p->loader + 1) << 16) +
		       (uint16_t)((uint32_t)p->index + 2);
	return UINT64_MAX;
}

static int compare_procs(const void *a, const void *b)
{
	const struct dl_proc_report *pa = *(const struct dl_proc_report *const *)a;
	const struct dl_proc_report *pb = *(const struct dl_proc_report *const *)b;
	const uint64_t oa = proc_order(pa), ob = proc_order(pb);

	return oa != ob ? (oa < ob ? -1 : 1) : (pa > pb) - (pa < pb);
}

static void tx_legend(struct tx *t, const struct proc_cols *c)
{
	_cleanup_(dl_str_fini) struct dl_str s = {};

	if (c->nspid)
		dl_str_add(&s, "inside: the pid in its container, as PyTorch prints it. ");
	dl_str_add(&s, "CPU: of all threads, 100 % is one CPU. queued: the main thread had work but no "
		       "CPU was free. ");
	if (c->throttled)
		dl_str_add(&s, "quota: held back by the cgroup's CPU limit. ");
	dl_str_add(&s, "data to other: what the main thread waited for. RSS and what is behind it: the "
		       "most memory at any time.");
	if (s.err)
		t->s.err = s.err;
	else
		tx_note(t, 2, s.s);
}

void tx_processes(struct tx *t, const struct dl_report *r)
{
	_cleanup_free_ const struct dl_proc_report **order = calloc(r->procs.cnt + 1, sizeof(*order));
	struct proc_cols c;
	size_t shown = 0;

	tx_head(t, "PROCESSES");
	if (!r->procs.cnt) {
		tx_para(t, 2, "", "No process was seen.");
		return;
	}
	if (!order) {
		t->s.err = -ENOMEM;
		return;
	}
	choose_cols(&c, r);
	const struct tx_col cols[] = {
		TX_LEFT(""),
		TX_RIGHT("pid"),
		{ .title = "inside", .right = true, .hide = !c.nspid },
		TX_RIGHT("seen"),
		TX_RIGHT("CPU"),
		TX_RIGHT("queued"),
		{ .title = "quota", .right = true, .hide = !c.throttled },
		{ .title = "data", .right = true, .hide = !c.kind[DL_BLOCK_ON_DATA] },
		{ .title = "lock", .right = true, .hide = !c.kind[DL_BLOCK_ON_LOCK] },
		{ .title = "GIL", .right = true, .hide = !c.kind[DL_BLOCK_ON_GIL] },
		{ .title = "disk", .right = true, .hide = !c.kind[DL_BLOCK_ON_STORAGE] },
		{ .title = "network", .right = true, .hide = !c.kind[DL_BLOCK_ON_NETWORK] },
		{ .title = "memory", .right = true, .hide = !c.kind[DL_BLOCK_ON_MEMORY] },
		{ .title = "timer", .right = true, .hide = !c.kind[DL_BLOCK_ON_TIMER] },
		{ .title = "child", .right = true, .hide = !c.kind[DL_BLOCK_ON_CHILD] },
		TX_RIGHT("other"),
		TX_RIGHT("faults"),
		{ .title = "major", .right = true, .hide = !c.major },
		TX_RIGHT("RSS"),
		{ .title = "shared", .right = true, .hide = !c.shmem },
		{ .title = "swap", .right = true, .hide = !c.swap },
		{ .title = "end", .hide = !c.end },
	};
	struct tx_table tab = { .cols = cols, .col_cnt = ARRAY_SIZE(cols) };

	_Static_assert(DL_BLOCK_ON_OTHER == 8 && DL_BLOCK_ON_CNT == 9, "a column for each kind");
	for (size_t i = 0; i < r->procs.cnt; i++)
		order[i] = &r->procs.v[i];
	qsort(order, r->procs.cnt, sizeof(*order), compare_procs);
	for (; shown < r->procs.cnt && shown < MAX_PROCS; shown++)
		add_proc(t, &tab, r, order[shown], &c);
	tx_table_print(t, &tab, 2);
	if (shown < r->procs.cnt)
		tx_paraf(t, 2, "... and %zu more, in --json", r->procs.cnt - shown);
	tx_legend(t, &c);
}

/* --- copies -------------------------------------------------------------------------------- */

void tx_copies(struct tx *t, const struct dl_report *r)
{
	const struct tx_col cols[] = {
		TX_LEFT(""), { .title = "GPU", .right = true, .hide = r->devices.cnt < 2 },
		TX_LEFT("host memory"),
		TX_RIGHT("copies"), TX_RIGHT("bytes"), TX_RIGHT("median"),
		TX_RIGHT("small"), TX_RIGHT("time"), TX_RIGHT("rate"), TX_RIGHT("best"), TX_RIGHT("with kernels"),
	};
	struct tx_table tab = { .cols = cols, .col_cnt = ARRAY_SIZE(cols) };
	bool pageable = false;
	tx_buf buf;

	if (!r->copies.cnt)
		return;
	tx_head(t, "COPIES");
	vec_for_each(&r->copies, c) {
		const char *mem = dl_copy_mem_id(c->mem);

		pageable |= !strcmp(mem, "pageable");
		tx_table_row(&tab);
		tx_cell(t, &tab, dl_copy_dir_text(c->dir));
		snprintf(buf, sizeof(buf), "%" PRIu32, c->device);
		tx_cell(t, &tab, buf);
		tx_cell(t, &tab, strcmp(mem, "device") ? mem : "");
		tx_cell(t, &tab, tx_cnt(buf, c->cnt));
		tx_cell(t, &tab, tx_size(buf, c->bytes));
		tx_cell(t, &tab, tx_size(buf, c->median_bytes));
		tx_cell(t, &tab, c->small_cnt ? tx_cnt(buf, c->small_cnt) : "");
		tx_cell(t, &tab, tx_ns(buf, c->ns));
		tx_cell(t, &tab, tx_rate(buf, c->bytes, c->ns));
		tx_cell(t, &tab, tx_rate(buf, c->best_bps, 1000000000));
		add_share(t, &tab, c->overlap_ns, c->ns);
	}
	tx_table_print(t, &tab, 2);
	tx_copy_devices(t, r);
	if (pageable)
		tx_note(t, 2, "From pageable memory the host waits until the copy is made, and it is slower; "
			"pin_memory=True and .to(device, non_blocking=True) avoid both.");
}

/* --- the recording ------------------------------------------------------------------------- */

static void add_fact(struct tx *t, struct tx_table *tab, const char *what, const char *text)
{
	tx_table_row(tab);
	tx_cell(t, tab, what);
	tx_cell(t, tab, text);
}

/* "3.214 .. 13.300 s", from the start. */
static void add_time(struct dl_str *s, const struct dl_report *r, uint64_t first, uint64_t last)
{
	dl_str_addf(s, "%.3f .. %.3f s", ((double)first - (double)r->start) / 1e9, ((double)last - (double)r->start) / 1e9);
}

static void add_sheds(struct tx *t, struct tx_table *tab, const struct dl_report *r)
{
	vec_for_each(&r->sheds, row) {
		_cleanup_(dl_str_fini) struct dl_str s = {};
		tx_buf a;

		dl_str_addf(&s, "%s %s", tx_cnt(a, row->cnt), row->what);
		vec_for_each(&row->times, time) {
			dl_str_add(&s, time == row->times.v ? ", at " : " and ");
			add_time(&s, r, time->start, time->end);
		}
		add_fact(t, tab, row == r->sheds.v ? "left out" : "", s.s ? s.s : "");
	}
}

static void add_losses(struct tx *t, struct tx_table *tab, const struct dl_report *r)
{
	if (!r->lost && !r->losses.cnt)
		add_fact(t, tab, "lost", "nothing");
	vec_for_each(&r->losses, l) {
		_cleanup_(dl_str_fini) struct dl_str s = {};
		const bool any = !l->kind || !strcmp(l->kind, "any");
		tx_buf a;

		dl_str_addf(&s, "%s %s%s%s, %s: %s", tx_cnt(a, l->cnt), any ? "" : l->kind,
			    any ? "" : " ", tx_plural(l->cnt, "event", "events"),
			    l->ring ? l->ring : "?", l->cause ? l->cause : "?");
		if (l->first) {
			dl_str_add(&s, ", at ");
			add_time(&s, r, l->first, l->last);
		}
		add_fact(t, tab, l == r->losses.v ? "lost" : "", s.s ? s.s : "");
	}
}

void tx_recording(struct tx *t, const struct dl_report *r)
{
	static const struct tx_col cols[] = { TX_LEFT(""), TX_LEFT("") };
	struct tx_table tab = { .cols = cols, .col_cnt = ARRAY_SIZE(cols) };
	_cleanup_(dl_str_fini) struct dl_str what = {}, where = {};
	tx_buf a, b;

	tx_head(t, "THE RECORDING");
	dl_str_addf(&what, "%s, %s events, %s", tx_ns(a, r->duration_ns), tx_cnt(b, r->events),
		    r->live ? "still going on" : r->complete ? "complete" : "cut off");
	if (r->host)
		dl_str_addf(&where, "host %s", r->host);
	if (r->kernel)
		dl_str_addf(&where, "%sLinux %s", where.len ? ", " : "", r->kernel);
	if (what.err || where.err) {
		t->s.err = -ENOMEM;
		return;
	}
	if (r->path)
		add_fact(t, &tab, "file", r->path);
	if (r->target_cmdline)
		add_fact(t, &tab, "command", r->target_cmdline);
	if (r->target_pid) {
		snprintf(a, sizeof(a), "%" PRIu32, r->target_pid);
		add_fact(t, &tab, "pid", a);
	}
	if (where.len)
		add_fact(t, &tab, "on", where.s);
	add_fact(t, &tab, "length", what.s);
	add_fact(t, &tab, "GPU data", r->gpu_source ? r->gpu_source : "none");
	add_losses(t, &tab, r);
	add_sheds(t, &tab, r);
	vec_for_each(&r->absent, text)
		add_fact(t, &tab, text == r->absent.v ? "not available" : "", *text);
	vec_for_each(&r->notes, text)
		add_fact(t, &tab, text == r->notes.v ? "notes" : "", *text);
	tx_table_print(t, &tab, 2);
}
