/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#include "render/tracks.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "diagnose/report.h"

#define ROW_BASE 900000000u	/* above every process id of Linux and every device of Kineto */
#define SORT_INDEX 4999000	/* viewers sort rows by it; Kineto puts devices at 5000000 */

enum { TRACK_GAPS = 1, TRACK_CHAIN = 2 };

struct row { uint64_t key; uint32_t device, pid; };

struct tracks {
	const struct dl_report *r;
	int64_t offset;
	struct dl_str *out;
	bool any;
	DL_VEC(struct row) rows;	/* a device of a process */
};

static void add_text(struct dl_str *out, const char *text)
{
	dl_str_add(out, "\"");
	for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
		if (*p == '"' || *p == '\\')
			dl_str_addf(out, "\\%c", *p);
		else if (*p < 0x20 || *p >= 0x7f)	/* names of threads may be in any encoding */
			dl_str_addf(out, "\\u%04x", *p < 0x20 ? *p : '?');
		else
			dl_str_addn(out, (const char *)p, 1);
	}
	dl_str_add(out, "\"");
}

static void begin(struct tracks *t)
{
	dl_str_add(t->out, t->any ? ",\n{" : "{");
	t->any = true;
}

static void add_us(struct dl_str *out, const char *key, int64_t ns)
{
	uint64_t abs = ns < 0 ? -(uint64_t)ns : (uint64_t)ns;

	dl_str_addf(out, ", \"%s\": %s%" PRIu64 ".%03u", key, ns < 0 ? "-" : "", abs / 1000, (unsigned int)(abs % 1000));
}

static void begin_span(struct tracks *t, size_t row, int track, const char *name, uint64_t start, uint64_t end)
{
	begin(t);
	dl_str_add(t->out, "\"ph\": \"X\", \"cat\": \"dlbpf\", \"name\": ");
	add_text(t->out, name);
	dl_str_addf(t->out, ", \"pid\": %u, \"tid\": %d", ROW_BASE + (uint32_t)row, track);
	add_us(t->out, "ts", (int64_t)start + t->offset);
	add_us(t->out, "dur", (int64_t)(end - start));
	dl_str_add(t->out, ", \"args\": {");
}

static void add_meta(struct tracks *t, size_t row, int track, const char *what, const char *name)
{
	begin(t);
	dl_str_addf(t->out, "\"ph\": \"M\", \"ts\": 0, \"name\": \"%s\", \"pid\": %u, \"tid\": %d, \"args\": {\"name\": ", what,
		    ROW_BASE + (uint32_t)row, track);
	add_text(t->out, name);
	dl_str_add(t->out, "}}");
}

static int add_row(struct tracks *t, const struct dl_gap *g, size_t *ret)
{
	uint64_t key = (uint64_t)g->proc << 32 | g->device;
	struct row *row;
	struct dl_str name = {};

	for (*ret = 0; *ret < t->rows.cnt; ++*ret) {
		if (t->rows.v[*ret].key == key)
			return 0;
	}
	row = vec_push(&t->rows);
	if (!row)
		return -ENOMEM;
	*row = (struct row){ .key = key, .device = g->device };
	vec_for_each(&t->r->trainers, it) {
		if (it->proc == g->proc)
			row->pid = it->pid;
	}
	dl_str_addf(&name, "dlbpf: why GPU %u was idle", g->device);
	if (row->pid)
		dl_str_addf(&name, " (pid %u)", row->pid);
	add_meta(t, *ret, 0, "process_name", name.s ? name.s : "dlbpf");
	dl_str_fini(&name);
	begin(t);
	dl_str_addf(t->out, "\"ph\": \"M\", \"ts\": 0, \"name\": \"process_sort_index\", \"pid\": %u, \"tid\": 0, \"args\": "
		    "{\"sort_index\": %u}}", ROW_BASE + (uint32_t)*ret, SORT_INDEX + (uint32_t)*ret);
	add_meta(t, *ret, TRACK_GAPS, "thread_name", "gaps by main cause");
	add_meta(t, *ret, TRACK_CHAIN, "thread_name", "the chain of each gap");
	return 0;
}

static enum dl_cause main_cause(const struct dl_gap *g)
{
	int best = 0;

	for (int c = 1; c < DL_CAUSE_CNT; c++) {
		if (g->cause_ns[c] > g->cause_ns[best])
			best = c;
	}
	return (enum dl_cause)best;
}

static void add_gap(struct tracks *t, const struct dl_gap *g, size_t row)
{
	bool any = false;

	begin_span(t, row, TRACK_GAPS, dl_cause_id(main_cause(g)), g->start, g->end);
	for (int c = 0; c < DL_CAUSE_CNT; c++) {
		if (!g->cause_ns[c])
			continue;
		dl_str_addf(t->out, "%s\"%s us\": %" PRIu64 ".%03u", any ? ", " : "", dl_cause_id((enum dl_cause)c),
			    g->cause_ns[c] / 1000, (unsigned int)(g->cause_ns[c] % 1000));
		any = true;
	}
	if (g->open)
		dl_str_addf(t->out, "%s\"open\": true", any ? ", " : "");
	dl_str_add(t->out, "}}");
}

static void add_step(struct tracks *t, const struct dl_step *s, size_t row)
{
	begin_span(t, row, TRACK_CHAIN, s->text ? s->text : dl_cause_id(s->cause), s->start, s->end);
	dl_str_addf(t->out, "\"cause\": \"%s\", \"role\": \"%s\", \"pid\": %u, \"tid\": %u", dl_cause_id(s->cause),
		    dl_role_id(s->role), s->pid, s->tid);
	if (s->via_lock)
		dl_str_add(t->out, ", \"through a lock\": true");
	dl_str_add(t->out, "}}");
}

int dl_render_tracks(const struct dl_report *r, int64_t offset_ns, struct dl_str *out)
{
	struct tracks t = { .r = r, .offset = offset_ns, .out = out };
	int err = 0;

	vec_for_each(&r->worst, g) {
		size_t row;

		err = add_row(&t, g, &row);
		if (err)
			break;
		add_gap(&t, g, row);
		vec_for_each(&g->steps, s)
			add_step(&t, s, row);
	}
	vec_free(&t.rows);
	return err ? err : out->err;
}
