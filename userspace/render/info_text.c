/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <dlbpf/event.h>

#include "base/cleanup.h"
#include "render/enums.h"
#include "render/info.h"
#include "render/text.h"
#include "render/tx.h"
#include "render/who.h"
#include "trace/schema.h"
#include "trace/trace.h"

enum {
	DEFAULT_WIDTH = 100,
	MAX_PROCS = 40,
};

static void add_fact(struct tx *t, struct tx_table *tab, const char *what, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

static void add_fact(struct tx *t, struct tx_table *tab, const char *what, const char *fmt, ...)
{
	_cleanup_free_ char *text = NULL;
	va_list ap;
	int len;

	va_start(ap, fmt);
	len = vasprintf(&text, fmt, ap);
	va_end(ap);
	if (len < 0) {
		text = NULL;
		tab->err = -ENOMEM;
		return;
	}
	tx_table_row(tab);
	tx_cell(t, tab, what);
	tx_cell(t, tab, text);
}

static uint64_t length_ns(const struct dl_trace_info *ti)
{
	return ti->last_ts > ti->meta.start_ts ? ti->last_ts - ti->meta.start_ts : 0;
}

static void add_when(struct tx *t, struct tx_table *tab, const struct dl_trace_meta *m)
{
	const time_t secs = (time_t)(m->start_realtime_ns / 1000000000);
	char text[64];
	struct tm tm;

	if (m->start_realtime_ns && gmtime_r(&secs, &tm) &&
	    strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S UTC", &tm))
		add_fact(t, tab, "recorded", "%s", text);
}

static void add_end(struct tx *t, struct tx_table *tab, const struct dl_info *info)
{
	_cleanup_(dl_str_fini) struct dl_str status = {};

	if (info->trace->complete)
		add_fact(t, tab, "end", "%s", info->stop && info->stop[0] ? info->stop : "complete");
	else
		add_fact(t, tab, "end", "missing: the recorder was killed or still writes, or the file was "
			 "cut off. Readable up to %.3f s", (double)length_ns(info->trace) / 1e9);
	if (info->trace->damaged_frames || info->trace->damaged_bytes) {
		tx_buf a, b;

		add_fact(t, tab, "damage", "%s %s, %s not readable%s%s", tx_cnt(a, info->trace->damaged_frames),
			 tx_plural(info->trace->damaged_frames, "frame", "frames"),
			 tx_size(b, info->trace->damaged_bytes), info->damage ? "; " : "",
			 info->damage ? info->damage : "");
	}
	if (info->target_exited) {
		dl_exit_text(&status, info->target_status);
		add_fact(t, tab, "target ended", "%s", status.s ? status.s : "");
	}
}

static void print_facts(struct tx *t, const struct dl_info *info)
{
	static const struct tx_col cols[] = { TX_LEFT(""), TX_LEFT("") };
	struct tx_table tab = { .cols = cols, .col_cnt = ARRAY_SIZE(cols) };
	const struct dl_trace_info *ti = info->trace;
	const struct dl_trace_meta *m = &ti->meta;
	tx_buf a, b;

	tx_style(t, TX_BOLD);
	tx_text(t, info->path);
	tx_style(t, TX_PLAIN);
	tx_nl(t);
	add_when(t, &tab, m);
	if (m->cpus || (m->host && m->host[0]))	/* what was imported does not say */
		add_fact(t, &tab, "host", "%s: Linux %s, %s, %" PRIu32 " %s", m->host ? m->host : "?",
			 m->kernel ? m->kernel : "?", m->machine ? m->machine : "?", m->cpus,
			 tx_plural(m->cpus, "CPU", "CPUs"));
	if (m->record_args)
		add_fact(t, &tab, "by", "%s%s%s", m->recorder ? m->recorder : "", m->recorder ? ": " : "",
			 m->record_args);
	add_fact(t, &tab, "target", "pid %" PRIu32 "%s%s", m->target_pid,
		 m->target_cmdline && m->target_cmdline[0] ? ": " : "", m->target_cmdline ? m->target_cmdline : "");
	add_fact(t, &tab, "length", "%s, %s %s", tx_ns(a, length_ns(ti)), tx_cnt(b, ti->events),
		 tx_plural(ti->events, "event", "events"));
	add_end(t, &tab, info);
	add_fact(t, &tab, "file", "%s in %" PRIu64 " %s, %.2f bytes an event (%s raw), format %u.%u",
		 tx_size(a, ti->file_bytes), ti->frames, tx_plural(ti->frames, "frame", "frames"),
		 ti->events ? (double)ti->file_bytes / (double)ti->events : 0.0, tx_size(b, ti->raw_bytes),
		 ti->major, ti->minor);
	tx_table_print(t, &tab, 2);
}

static void print_sources(struct tx *t, const struct dl_info *info)
{
	static const struct tx_col cols[] = { TX_LEFT(""), TX_LEFT("") };
	struct tx_table tab = { .cols = cols, .col_cnt = ARRAY_SIZE(cols) };
	const struct dl_trace_info *ti = info->trace;
	const struct dl_enum *states = dl_enum_by_tag("gpu_state", 9), *sources = dl_enum_by_tag("source", 6);

	tx_head(t, "SOURCES");
	add_fact(t, &tab, "kernel", "%s", ti->kind_cnt[DL_EV_SWITCH] ? "scheduling, recorded" :
								      "no scheduling events");
	if (ti->meta.sample_hz)
		add_fact(t, &tab, "samples", "%" PRIu32 " a second and CPU", ti->meta.sample_hz);
	vec_for_each(&info->gpu, s) {
		const char *state = dl_enum_name(states, s->id);

		add_fact(t, &tab, "GPU", "pid %" PRIu32 ": %s, %s%s", s->pid, state ? state : "?", s->text,
			 s->simulated && !strcasestr(s->text, "simulated") ? " (SIMULATED)" : "");
	}
	if (!info->gpu.cnt)
		add_fact(t, &tab, "GPU", "no data");
	vec_for_each(&info->absent, s) {
		const char *name = dl_enum_name(sources, s->id);

		add_fact(t, &tab, s == info->absent.v ? "absent" : "", "%s: %s", name ? name : "?", s->text);
	}
	tx_table_print(t, &tab, 2);
}

static void print_kinds(struct tx *t, const struct dl_trace_info *ti)
{
	static const struct tx_col cols[] = {
		TX_LEFT("kind"), TX_RIGHT("events"), TX_RIGHT("share"), TX_LEFT("meaning"),
	};
	struct tx_table tab = { .cols = cols, .col_cnt = ARRAY_SIZE(cols) };
	tx_buf buf;

	tx_head(t, "EVENTS");
	if (!ti->events)
		tx_para(t, 2, "", "There are none.");
	for (unsigned int k = 0; k < DL_EV_MAX; k++) {
		const struct dl_event_desc *desc = dl_event_desc(k);

		if (!ti->kind_cnt[k])
			continue;
		tx_table_row(&tab);
		snprintf(buf, sizeof(buf), "kind %u", k);
		tx_cell(t, &tab, desc ? desc->name : buf);
		tx_cell(t, &tab, tx_cnt(buf, ti->kind_cnt[k]));
		tx_cell(t, &tab, tx_pct_of(buf, ti->kind_cnt[k], ti->events));
		tx_cell(t, &tab, desc ? desc->doc : "unknown to this version of dlbpf");
	}
	tx_table_print(t, &tab, 2);
}

static void print_losses(struct tx *t, const struct dl_info *info)
{
	static const struct tx_col cols[] = {
		TX_LEFT("ring"), TX_LEFT("cause"), TX_LEFT("kind"), TX_RIGHT("events"),
	};
	struct tx_table tab = { .cols = cols, .col_cnt = ARRAY_SIZE(cols) };
	const struct dl_enum *causes = dl_enum_by_tag("loss_cause", 10), *sheds = dl_enum_by_tag("shed", 4);
	tx_buf buf;

	tx_head(t, "LOST");
	if (!info->lost)
		tx_para(t, 2, "", info->losses.cnt ? "Nothing, but this was left out on purpose:" : "Nothing.");
	vec_for_each(&info->losses, l) {
		const struct dl_event_desc *desc = dl_event_desc(l->kind);
		const char *cause = dl_enum_name(causes, l->cause), *part;
		_cleanup_(dl_str_fini) struct dl_str ring = {};

		if (!l->cnt)
			continue;
		dl_ring_text(&ring, l->ring);
		tx_table_row(&tab);
		tx_cell(t, &tab, ring.s ? ring.s : "?");
		tx_cell(t, &tab, cause ? cause : "?");
		part = l->shed ? dl_enum_name(sheds, l->shed) : NULL;
		tx_cell(t, &tab, part ? part : desc ? desc->name : "any");
		tx_cell(t, &tab, tx_cnt(buf, l->cnt));
	}
	tx_table_print(t, &tab, 2);
}

static void print_procs(struct tx *t, const struct dl_info *info)
{
	static const struct tx_col cols[] = {
		TX_RIGHT("pid"), TX_RIGHT("inside"), TX_RIGHT("parent"), TX_RIGHT("threads"),
		TX_RIGHT("events"), TX_LEFT("end"), TX_LEFT("name"), TX_LEFT("command"),
	};
	struct tx_table tab = { .cols = cols, .col_cnt = ARRAY_SIZE(cols) };
	tx_buf buf;

	tx_head(t, "PROCESSES (%zu)", info->procs.cnt);
	for (size_t i = 0; i < info->procs.cnt && i < MAX_PROCS; i++) {
		const struct dl_info_proc *p = &info->procs.v[i];
		_cleanup_(dl_str_fini) struct dl_str end = {};

		tx_table_row(&tab);
		snprintf(buf, sizeof(buf), "%" PRIu32, p->pid);
		tx_cell(t, &tab, buf);
		snprintf(buf, sizeof(buf), "%" PRIu32, p->nspid);
		tx_cell(t, &tab, p->nspid ? buf : "");
		snprintf(buf, sizeof(buf), "%" PRIu32, p->ppid);
		tx_cell(t, &tab, p->ppid ? buf : "");
		snprintf(buf, sizeof(buf), "%" PRIu32, p->threads);
		tx_cell(t, &tab, buf);
		tx_cell(t, &tab, tx_cnt(buf, p->events));
		if (p->exited)
			dl_exit_text(&end, p->exit_status);
		tx_cell(t, &tab, end.s ? end.s : "");
		tx_cell(t, &tab, p->name);
		tx_cell(t, &tab, p->cmdline ? p->cmdline : "");
	}
	tx_table_print(t, &tab, 2);
	if (info->procs.cnt > MAX_PROCS)
		tx_paraf(t, 2, "... and %zu more, in --json", info->procs.cnt - MAX_PROCS);
}

static struct tx tx_of(const struct dl_text_opts *opts)
{
	return (struct tx){ .utf8 = opts->utf8, .color = opts->color,
			    .width = opts->width ? opts->width : DEFAULT_WIDTH };
}

int dl_info_text(const struct dl_info *info, const struct dl_text_opts *opts, FILE *out, struct dl_diag *d)
{
	struct tx t = tx_of(opts);

	print_facts(&t, info);
	print_sources(&t, info);
	print_kinds(&t, info->trace);
	print_losses(&t, info);
	print_procs(&t, info);
	return tx_finish(&t, out, d);
}

int dl_schema_text(const struct dl_text_opts *opts, FILE *out, struct dl_diag *d)
{
	static const struct tx_col cols[] = {
		TX_LEFT(""), TX_LEFT(""), TX_LEFT(""), TX_LEFT(""),
	};
	struct tx t = tx_of(opts);

	for (unsigned int k = 0; k < DL_EV_MAX; k++) {
		struct tx_table tab = { .cols = cols, .col_cnt = ARRAY_SIZE(cols) };
		const struct dl_event_desc *desc = dl_event_desc(k);

		if (!desc)
			continue;
		if (t.s.len)
			tx_nl(&t);
		tx_style(&t, TX_BOLD);
		dl_str_addf(&t.s, "%s", desc->name);
		tx_style(&t, TX_PLAIN);
		dl_str_addf(&t.s, " (%u, %s)\n", desc->kind, dl_group_name(desc->group));
		tx_para(&t, 2, "", desc->doc);
		for (size_t i = 0; i < desc->field_cnt; i++) {
			const struct dl_field *f = &desc->fields[i];

			tx_table_row(&tab);
			tx_cell(&t, &tab, f->name);
			tx_cell(&t, &tab, dl_ftype_name(f->type));
			tx_cell(&t, &tab, dl_unit_name(f->unit));
			tx_cell(&t, &tab, f->doc);
		}
		tx_table_print(&t, &tab, 4);
	}
	return tx_finish(&t, out, d);
}
