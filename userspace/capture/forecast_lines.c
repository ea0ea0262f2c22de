/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Which numbers of which ENV events are lines with a limit: one row for each, in a table. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/map.h"
#include "base/str.h"
#include "base/vec.h"
#include "capture/forecast.h"
#include "capture/proc.h"
#include "trace/schema.h"

enum {
	POINTS = 600,		/* of a line; the oldest go */
	LINES_MAX = 1024,
};

#define APART_NS (DL_NS_PER_S / 2)	/* samples that crashes ask for come faster */
#define LOOK_NS (5 * DL_NS_PER_S)
#define FORGET_NS (60 * DL_NS_PER_S)	/* without a sample: whatever it was of is gone */
#define AGAIN_NS (120 * DL_NS_PER_S)	/* without a forecast: the next one is a new one */
#define FELL_SHARE 0.7			/* of its top, below which a value has fallen back */
#define WORTH_SHARE 0.1			/* of its limit, below which a line is not looked at */

/* --- the table ----------------------------------------------------------------------------------- */

#define GET(NAME, tag, USED, LIMIT) \
	static void NAME(const struct dl_hdr *ev, double *used, double *limit) \
	{ \
		const struct dl_ev_##tag *e = (const void *)ev; \
		*used = (double)(USED); \
		*limit = (double)(LIMIT); \
	}

GET(shm, env_shm, e->used, e->total)
GET(shm_inodes, env_shm, e->inodes_total - e->inodes_free, e->inodes_total)
/* The page cache gives way when the limit is near. Where its share is not known neither is the rest. */
GET(group_mem, env_cgroup, e->mem_usage > e->mem_file ? e->mem_usage - e->mem_file : 0,
    e->mem_anon + e->mem_file ? e->mem_limit : 0)
GET(group_pids, env_cgroup, e->pids, e->pids_limit)
GET(fds, env_proc, e->fds, e->fds_limit)
GET(maps, env_proc, e->maps, e->maps_limit)
GET(host_mem, env_host, e->mem_total - e->mem_avail, e->mem_total)

static const struct row {
	uint16_t kind;
	bool bytes;
	const char *brief;	/* "shm full" */
	const char *full;	/* of what the limit is */
	void (*get)(const struct dl_hdr *ev, double *used, double *limit);
} rows[] = {
	{ DL_EV_ENV_SHM, true, "shm full", "shared memory (/dev/shm)", shm },
	{ DL_EV_ENV_SHM, false, "shm out of inodes", "the number of files in /dev/shm", shm_inodes },
	{ DL_EV_ENV_CGROUP, true, "cgroup memory full", "the memory of cgroup", group_mem },
	{ DL_EV_ENV_CGROUP, false, "cgroup out of threads", "the threads of cgroup", group_pids },
	{ DL_EV_ENV_PROC, false, "out of descriptors", "the open files of process", fds },
	{ DL_EV_ENV_PROC, false, "out of mappings", "the memory mappings of process", maps },
	{ DL_EV_ENV_HOST, true, "memory full", "the machine's memory", host_mem },
};

/* --- lines --------------------------------------------------------------------------------------- */

struct line {
	const struct row *row;
	uint64_t key;
	char of[96];		/* which cgroup, which process; "" there is only one */
	double limit, top, fell_from;
	struct dl_fc_point *v;	/* POINTS, used as a ring */
	size_t first, cnt;
	uint64_t last_ts, due_ts;
};

struct dl_lines {
	DL_VEC(struct line *) v;
	struct dl_map by_key;	/* -> struct line * */
	struct dl_fc_point *sorted;	/* POINTS: room for a line as an array */
	uint64_t look_ts;
	struct dl_line_forecast next;
	bool has_next;
};

int dl_lines_new(struct dl_lines **ret)
{
	struct dl_lines *l = calloc(1, sizeof(*l));

	if (l)
		l->sorted = calloc(POINTS, sizeof(*l->sorted));
	if (!l || !l->sorted) {
		free(l);
		return -ENOMEM;
	}
	*ret = l;
	return 0;
}

static void line_free(struct line *line)
{
	free(line->v);
	free(line);
}

void dl_lines_free(struct dl_lines *l)
{
	if (!l)
		return;
	vec_for_each(&l->v, it)
		line_free(*it);
	vec_free(&l->v);
	dl_map_fini(&l->by_key);
	free(l->sorted);
	free(l);
}

static struct line *add_line(struct dl_lines *l, const struct row *row, uint64_t key, const struct dl_hdr *ev)
{
	struct line *line = l->v.cnt < LINES_MAX ? calloc(1, sizeof(*line)) : NULL, **slot;
	const char *text;
	size_t len;

	if (!line)
		return NULL;
	line->v = calloc(POINTS, sizeof(*line->v));
	slot = line->v ? vec_push(&l->v) : NULL;
	if (!slot || dl_map_set(&l->by_key, key, (uintptr_t)line)) {
		l->v.cnt -= slot != NULL;
		line_free(line);
		return NULL;
	}
	*slot = line;
	line->row = row;
	line->key = key;
	text = dl_event_tail(ev, &len);
	if (ev->kind == DL_EV_ENV_CGROUP)
		snprintf(line->of, sizeof(line->of), " %.*s", (int)(len < 90 ? len : 90), text);
	else if (ev->kind == DL_EV_ENV_PROC)
		snprintf(line->of, sizeof(line->of), " %u", ev->pid);
	return line;
}

/* A process, a cgroup's path, a /dev/shm by who is asked about it. */
static uint64_t key_of(const struct row *row, const struct dl_hdr *ev)
{
	size_t len;
	const char *text = dl_event_tail(ev, &len);
	const uint64_t v[3] = { (uint64_t)(row - rows), ev->kind == DL_EV_ENV_CGROUP ? 0 : ev->pid,
				dl_hash_bytes(text, len) };

	return dl_hash_bytes(v, sizeof(v));
}

static void add_point(struct line *line, uint64_t ts, double val)
{
	if (val > line->top)
		line->top = val;
	if (val < line->top * FELL_SHARE) {
		line->fell_from = line->top;
		line->top = val;
	}
	if (line->cnt && ts < line->v[(line->first + line->cnt - 1) % POINTS].ts + APART_NS)
		return;
	if (line->cnt == POINTS) {
		line->first = (line->first + 1) % POINTS;
		line->cnt--;
	}
	line->v[(line->first + line->cnt++) % POINTS] = (struct dl_fc_point){ ts, val };
}

void dl_lines_event(struct dl_lines *l, const struct dl_hdr *ev)
{
	if (ev->kind < DL_EV_ENV_HOST || ev->kind > DL_EV_ENV_PROC || (ev->flags & DL_HDR_RESTATED))
		return;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const uint64_t key = rows[i].kind == ev->kind ? key_of(&rows[i], ev) : 0;
		double used = 0, limit = 0;
		struct line *line;
		uint64_t found;

		if (!key)
			continue;
		rows[i].get(ev, &used, &limit);
		if (limit <= 0 || used < 0)
			continue;	/* unlimited, or not known */
		line = dl_map_get(&l->by_key, key, &found) ? (struct line *)(uintptr_t)found :
			add_line(l, &rows[i], key, ev);
		if (!line)
			continue;
		if (line->limit != limit) {	/* another limit: what was told does not hold */
			line->limit = limit;
			line->due_ts = 0;
		}
		line->last_ts = ev->ts;
		add_point(line, ev->ts, used);
	}
}

/* --- what comes next ----------------------------------------------------------------------------- */

static const char *fmt_eta(char *buf, size_t sz, uint64_t ns)
{
	const uint64_t s = (ns + DL_NS_PER_S / 2) / DL_NS_PER_S;

	if (s < 100)
		snprintf(buf, sz, "%llu s", (unsigned long long)s);
	else if (s < 100 * 60)
		snprintf(buf, sz, "%llu min", (unsigned long long)(s + 30) / 60);
	else
		snprintf(buf, sz, "%llu h", (unsigned long long)(s + 1800) / 3600);
	return buf;
}

static const char *fmt_val(char *buf, size_t sz, const struct row *row, double val)
{
	return row->bytes ? dl_fmt_bytes(buf, sz, (uint64_t)val) : dl_fmt_cnt(buf, sz, (uint64_t)val);
}

static void describe(const struct line *line, const struct dl_forecast *f, struct dl_line_forecast *ret)
{
	char eta[24], soon[24], late[24], used[32], limit[32], rate[32];

	ret->f = *f;
	fmt_eta(eta, sizeof(eta), f->eta_ns);
	snprintf(ret->brief, sizeof(ret->brief), "%s in %s", line->row->brief, eta);
	/* By the minute where it is slow, so that the rate is no 0. */
	fmt_val(rate, sizeof(rate), line->row, f->per_s < 10 ? f->per_s * 60 : f->per_s);
	snprintf(ret->text, sizeof(ret->text), "%s%s will meet its limit in about %s (%s to %s): %s of %s, %s more a %s",
		 line->row->full, line->of, eta, fmt_eta(soon, sizeof(soon), f->soonest_ns),
		 fmt_eta(late, sizeof(late), f->latest_ns), fmt_val(used, sizeof(used), line->row, f->val),
		 fmt_val(limit, sizeof(limit), line->row, line->limit), rate, f->per_s < 10 ? "minute" : "second");
}

static bool forecast(struct dl_lines *l, const struct line *line, struct dl_forecast *ret)
{
	if (line->cnt < DL_FORECAST_MIN_CNT ||
	    line->v[(line->first + line->cnt - 1) % POINTS].val < line->limit * WORTH_SHARE)
		return false;
	for (size_t i = 0; i < line->cnt; i++)
		l->sorted[i] = line->v[(line->first + i) % POINTS];
	dl_forecast(ret, l->sorted, line->cnt, line->limit, line->fell_from);
	return ret->valid;
}

static void forget_gone(struct dl_lines *l, uint64_t now)
{
	for (size_t i = l->v.cnt; i-- > 0;) {
		struct line *line = l->v.v[i];

		if (line->last_ts + FORGET_NS > now)
			continue;
		dl_map_del(&l->by_key, line->key);
		line_free(line);
		l->v.v[i] = l->v.v[--l->v.cnt];
	}
}

/* True when the line has come so near to its limit just now. */
static bool is_due(struct line *line, const struct dl_forecast *f, uint64_t now, uint64_t save_ns)
{
	const bool known = line->due_ts && now - line->due_ts <= AGAIN_NS;

	if (f->eta_ns > save_ns)
		return false;
	line->due_ts = now;
	return !known;
}

bool dl_lines_next(struct dl_lines *l, uint64_t now, uint64_t within_ns, struct dl_line_forecast *ret,
		   uint64_t save_ns, struct dl_line_forecast *ret_save, bool *ret_due)
{
	struct dl_forecast best = { .eta_ns = UINT64_MAX };
	const struct line *nearest = NULL;

	*ret_due = false;
	if (!l->look_ts || now - l->look_ts >= LOOK_NS) {
		l->look_ts = now;
		forget_gone(l, now);
		vec_for_each(&l->v, it) {
			struct dl_forecast f;

			if (!forecast(l, *it, &f))
				continue;
			if (is_due(*it, &f, now, save_ns) && (!*ret_due || f.eta_ns < ret_save->f.eta_ns)) {
				describe(*it, &f, ret_save);
				*ret_due = true;
			}
			if (f.eta_ns > within_ns || f.eta_ns >= best.eta_ns)
				continue;
			nearest = *it;
			best = f;
		}
		l->has_next = nearest != NULL;
		if (nearest)
			describe(nearest, &best, &l->next);
	}
	if (l->has_next)
		*ret = l->next;
	return l->has_next;
}
