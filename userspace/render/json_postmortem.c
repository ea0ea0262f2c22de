/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* docs/postmortem.schema.json says what each member means; a test holds the two together. */
#include <errno.h>

#include "diagnose/postmortem.h"
#include "diagnose/report.h"
#include "render/json_parts.h"
#include "render/jsonb.h"
#include "render/postmortem.h"

/* Instants are printed since the start of the recording; negative before, null where not known. */
static void add_at(struct jsonb *b, struct json_object *o, const char *key, const struct dl_postmortem *pm, uint64_t ts)
{
	if (ts && pm->start)
		jb_s64(b, o, key, (int64_t)(ts - pm->start));
	else
		jb_null(b, o, key);
}

static void add_id(struct jsonb *b, struct json_object *o, const char *key, uint32_t id)
{
	json_known(b, o, key, id, id != 0);
}

/* null for nobody known. */
static void add_who(struct jsonb *b, struct json_object *parent, const char *key, const struct dl_pm_who *w)
{
	struct json_object *o;

	if (!w->pid && !w->nspid && !w->name && w->role == DL_ROLE_UNKNOWN) {
		jb_null(b, parent, key);
		return;
	}
	o = jb_object(b, parent, key);
	add_id(b, o, "pid", w->pid);
	add_id(b, o, "nspid", w->nspid);
	add_id(b, o, "tid", w->tid);
	jb_str(b, o, "role", dl_role_id(w->role));
	if (w->index < 0)
		jb_null(b, o, "worker");
	else
		jb_s64(b, o, "worker", w->index);
	jb_str(b, o, "name", w->name);
}

static void add_verdict(struct jsonb *b, struct json_object *root, const struct dl_postmortem *pm)
{
	struct json_object *o = jb_object(b, root, "source");

	jb_str(b, o, "trace", pm->path);
	jb_bool(b, o, "complete", pm->complete);
	json_known(b, o, "duration_ns", pm->end - pm->start, pm->path && pm->end >= pm->start);
	jb_str(b, o, "host", pm->host);
	jb_str(b, o, "kernel", pm->kernel);
	jb_str(b, o, "command", pm->cmdline);
	o = jb_object(b, root, "verdict");
	jb_str(b, o, "death", dl_death_id(pm->death));
	jb_str(b, o, "confidence", dl_pm_confidence_id(pm->confidence));
	jb_str(b, o, "text", pm->text ? pm->text : dl_death_doc(pm->death));
	jb_str(b, o, "wrong_message", pm->wrong_text);
	json_known(b, o, "signal", (uint64_t)pm->sig, pm->sig > 0);
	json_known(b, o, "status", (uint64_t)(uint32_t)pm->status, pm->has_status);
	add_at(b, o, "at_ns", pm, pm->ts);
	add_who(b, root, "victim", &pm->victim);
}

static void add_facts(struct jsonb *b, struct json_object *root, const struct dl_postmortem *pm)
{
	struct json_object *list = jb_array(b, root, "facts");

	vec_for_each(&pm->facts, f) {
		struct json_object *o = jb_object(b, list, NULL);

		add_at(b, o, "at_ns", pm, f->ts);
		if (f->ts && pm->ts)
			jb_s64(b, o, "before_ns", (int64_t)(pm->ts - f->ts));
		else
			jb_null(b, o, "before_ns");
		json_known(b, o, "wall_ns", (uint64_t)f->wall_ns, f->wall_ns > 0);
		add_who(b, o, "who", &f->who);
		jb_str(b, o, "text", f->text);
		jb_str(b, o, "source", dl_pm_source_id(f->source));
		jb_bool(b, o, "decides", f->decides);
	}
}

static void add_numbers(struct jsonb *b, struct json_object *root, const struct dl_postmortem *pm)
{
	static const char *const units[] = { "bytes", "count", "ns", "bytes/s" };
	struct json_object *all = jb_object(b, root, "numbers");

	vec_for_each(&pm->numbers, n) {
		struct json_object *o = jb_object(b, all, n->id);

		jb_u64(b, o, "value", n->value);
		jb_str(b, o, "unit", units[n->unit <= DL_PM_BPS ? n->unit : DL_PM_CNT]);
		jb_str(b, o, "label", n->label);
		jb_bool(b, o, "estimated", n->estimated);
		jb_str(b, o, "how", n->how);
		jb_str(b, o, "source", dl_pm_source_id(n->source));
	}
}

static void add_memory(struct jsonb *b, struct json_object *proc, const struct dl_pm_proc *p)
{
	struct json_object *o;

	if (!p->has_mem) {
		jb_null(b, proc, "memory");
		return;
	}
	o = jb_object(b, proc, "memory");
	jb_u64(b, o, "anon_bytes", p->anon);
	jb_u64(b, o, "file_bytes", p->file);
	jb_u64(b, o, "shmem_bytes", p->shmem);
	jb_u64(b, o, "swap_bytes", p->swap);
	jb_u64(b, o, "pgtables_bytes", p->pgtables);
	jb_u64(b, o, "first_bytes", p->total_first);
	jb_u64(b, o, "peak_bytes", p->total_peak);
	if (p->has_growth) {
		jb_s64(b, o, "growth_bytes_per_s", (int64_t)p->growth_bps);
		jb_s64(b, o, "growth_bytes_per_batch", (int64_t)p->growth_batch);
	} else {
		jb_null(b, o, "growth_bytes_per_s");
		jb_null(b, o, "growth_bytes_per_batch");
	}
	jb_bool(b, o, "leaks", p->leaks);
}

static void add_procs(struct jsonb *b, struct json_object *root, const struct dl_postmortem *pm)
{
	struct json_object *list = jb_array(b, root, "processes");

	vec_for_each(&pm->procs, p) {
		struct json_object *o = jb_object(b, list, NULL);

		add_who(b, o, "who", &p->who);
		jb_str(b, o, "state", p->state);
		jb_bool(b, o, "ended", p->ended);
		json_known(b, o, "status", (uint64_t)(uint32_t)p->status, p->ended);
		add_at(b, o, "end_ns", pm, p->end_ts);
		json_known(b, o, "descriptors", p->fds, p->fds != 0);
		json_known(b, o, "descriptors_limit", p->fds_limit, p->fds_limit != 0);
		json_known(b, o, "mappings", p->maps, p->maps != 0);
		json_known(b, o, "mappings_limit", p->maps_limit, p->maps_limit != 0);
		json_known(b, o, "batches", p->batches, p->batches != 0);
		add_memory(b, o, p);
	}
}

static void add_threads(struct jsonb *b, struct json_object *root, const struct dl_postmortem *pm)
{
	struct json_object *list = jb_array(b, root, "threads"), *stack;

	vec_for_each(&pm->threads, th) {
		struct json_object *o = jb_object(b, list, NULL);

		add_who(b, o, "who", &th->who);
		jb_str(b, o, "state", th->state);
		json_known(b, o, "since_ns", th->for_ns, th->for_ns != 0);
		add_who(b, o, "holder", &th->holder);
		jb_str(b, o, "holder_text", th->holder_text);
		jb_bool(b, o, "died", th->died);
		stack = jb_array(b, o, "stack");
		vec_for_each(&th->stack, frame)
			jb_str(b, stack, NULL, *frame);
	}
}

static void add_advice(struct jsonb *b, struct json_object *root, const struct dl_postmortem *pm)
{
	struct json_object *list = jb_array(b, root, "alternatives");

	vec_for_each(&pm->alternatives, a) {
		struct json_object *o = jb_object(b, list, NULL);

		jb_str(b, o, "death", dl_death_id(a->death));
		jb_str(b, o, "why", a->why);
		jb_str(b, o, "decides", a->decides);
	}
	list = jb_array(b, root, "actions");
	vec_for_each(&pm->actions, a) {
		struct json_object *o = jb_object(b, list, NULL);

		jb_str(b, o, "text", a->text);
		jb_str(b, o, "command", a->command);
	}
}

static void add_claims(struct jsonb *b, struct json_object *root, const struct dl_postmortem *pm)
{
	struct json_object *list = jb_array(b, root, "claims");

	vec_for_each(&pm->claims, c) {
		struct json_object *o = jb_object(b, list, NULL);

		jb_str(b, o, "line", c->line);
		jb_str(b, o, "tells", c->tells);
		jb_str(b, o, "not_tells", c->not_tells);
		if (c->suggests == DL_DEATH_UNEXPLAINED)
			jb_null(b, o, "suggests");
		else
			jb_str(b, o, "suggests", dl_death_id(c->suggests));
		add_id(b, o, "pid", c->pid);
		jb_bool(b, o, "contradicts", c->contradicts);
	}
}

int dl_render_postmortem_json(const struct dl_postmortem *pm, FILE *out, struct dl_diag *d)
{
	struct jsonb b = {};
	struct json_object *root = jb_object(&b, NULL, NULL), *list;
	int err;

	jb_str(&b, root, "schema", DL_POSTMORTEM_SCHEMA);
	add_verdict(&b, root, pm);
	add_facts(&b, root, pm);
	add_numbers(&b, root, pm);
	add_procs(&b, root, pm);
	add_threads(&b, root, pm);
	add_advice(&b, root, pm);
	add_claims(&b, root, pm);
	jb_str(&b, root, "gpu", pm->gpu);
	list = jb_array(&b, root, "notes");
	vec_for_each(&pm->notes, text)
		jb_str(&b, list, NULL, *text);
	err = jb_write(&b, root, true, out, d);
	json_object_put(root);
	errno = 0;
	if (!err && fflush(out))
		err = dl_fail_errno(d, errno ? -errno : -EIO, "cannot write the result");
	return err;
}
