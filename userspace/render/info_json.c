/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* docs/info.schema.json says what each member means. */
#include <errno.h>

#include <dlbpf/event.h>

#include "render/enums.h"
#include "render/info.h"
#include "render/jsonb.h"
#include "trace/schema.h"
#include "trace/trace.h"

static void add_trace(struct jsonb *b, struct json_object *root, const struct dl_info *info)
{
	const struct dl_trace_info *ti = info->trace;
	struct json_object *o = jb_object(b, root, "trace");

	jb_str(b, o, "path", info->path);
	jb_bool(b, o, "complete", ti->complete);
	jb_u64(b, o, "duration_ns", ti->last_ts > ti->meta.start_ts ? ti->last_ts - ti->meta.start_ts : 0);
	jb_u64(b, o, "events", ti->events);
	jb_u64(b, o, "lost", info->lost);
	jb_u64(b, o, "frames", ti->frames);
	jb_u64(b, o, "file_bytes", ti->file_bytes);
	jb_u64(b, o, "raw_bytes", ti->raw_bytes);
	jb_u64(b, o, "damaged_frames", ti->damaged_frames);
	jb_u64(b, o, "damaged_bytes", ti->damaged_bytes);
	jb_str(b, o, "damage", info->damage);
	jb_u64(b, o, "format_major", ti->major);
	jb_u64(b, o, "format_minor", ti->minor);
	jb_str(b, o, "stop", info->stop);
	if (info->target_exited)
		jb_s64(b, o, "target_status", info->target_status);
	else
		jb_null(b, o, "target_status");
}

static void add_meta(struct jsonb *b, struct json_object *root, const struct dl_trace_meta *m)
{
	struct json_object *o = jb_object(b, root, "meta");

	jb_u64(b, o, "start_ts", m->start_ts);
	jb_u64(b, o, "start_realtime_ns", m->start_realtime_ns);
	jb_u64(b, o, "target_pid", m->target_pid);
	jb_u64(b, o, "cpus", m->cpus);
	jb_u64(b, o, "page_bytes", m->page_sz);
	jb_u64(b, o, "sample_hz", m->sample_hz);
	jb_str(b, o, "host", m->host);
	jb_str(b, o, "kernel", m->kernel);
	jb_str(b, o, "machine", m->machine);
	jb_str(b, o, "command", m->target_cmdline);
	jb_str(b, o, "recorder", m->recorder);
	jb_str(b, o, "record_args", m->record_args);
	jb_str(b, o, "boot_id", m->boot_id);
}

static void add_sources(struct jsonb *b, struct json_object *root, const struct dl_info *info)
{
	const struct dl_enum *states = dl_enum_by_tag("gpu_state", 9), *sources = dl_enum_by_tag("source", 6);
	struct json_object *list = jb_array(b, root, "gpu");

	vec_for_each(&info->gpu, s) {
		struct json_object *o = jb_object(b, list, NULL);

		jb_u64(b, o, "pid", s->pid);
		jb_str(b, o, "state", dl_enum_name(states, s->id));
		jb_bool(b, o, "simulated", s->simulated);
		jb_str(b, o, "text", s->text);
	}
	list = jb_array(b, root, "absent");
	vec_for_each(&info->absent, s) {
		struct json_object *o = jb_object(b, list, NULL);

		jb_str(b, o, "source", dl_enum_name(sources, s->id));
		jb_str(b, o, "text", s->text);
	}
}

static void add_kinds(struct jsonb *b, struct json_object *root, const struct dl_trace_info *ti)
{
	struct json_object *kinds = jb_object(b, root, "kinds");
	char number[16];

	for (unsigned int k = 0; k < DL_EV_MAX; k++) {
		const struct dl_event_desc *desc = dl_event_desc(k);

		if (!ti->kind_cnt[k])
			continue;
		snprintf(number, sizeof(number), "%u", k);
		jb_u64(b, kinds, desc ? desc->name : number, ti->kind_cnt[k]);
	}
}

static void add_losses(struct jsonb *b, struct json_object *root, const struct dl_info *info)
{
	const struct dl_enum *causes = dl_enum_by_tag("loss_cause", 10), *sheds = dl_enum_by_tag("shed", 4);
	struct json_object *list = jb_array(b, root, "losses");

	vec_for_each(&info->losses, l) {
		struct json_object *o = jb_object(b, list, NULL);
		const struct dl_event_desc *desc = dl_event_desc(l->kind);
		struct dl_str ring = {};

		dl_ring_text(&ring, l->ring);
		jb_str(b, o, "ring", ring.s);
		jb_str(b, o, "cause", dl_enum_name(causes, l->cause));
		jb_str(b, o, "kind", desc ? desc->name : "any");
		jb_str(b, o, "class", l->shed ? dl_enum_name(sheds, l->shed) : NULL);
		jb_u64(b, o, "count", l->cnt);
		dl_str_fini(&ring);
	}
}

static void add_procs(struct jsonb *b, struct json_object *root, const struct dl_info *info)
{
	struct json_object *list = jb_array(b, root, "processes");

	vec_for_each(&info->procs, p) {
		struct json_object *o = jb_object(b, list, NULL);

		jb_u64(b, o, "pid", p->pid);
		jb_u64(b, o, "nspid", p->nspid);
		jb_u64(b, o, "ppid", p->ppid);
		jb_bool(b, o, "root", p->root);
		jb_u64(b, o, "threads", p->threads);
		jb_u64(b, o, "events", p->events);
		jb_s64(b, o, "start_ns", (int64_t)(p->first_ts - info->trace->meta.start_ts));
		jb_s64(b, o, "end_ns", (int64_t)(p->last_ts - info->trace->meta.start_ts));
		if (p->exited)
			jb_s64(b, o, "exit_status", p->exit_status);
		else
			jb_null(b, o, "exit_status");
		jb_str(b, o, "name", p->name);
		jb_str(b, o, "command", p->cmdline);
	}
}

static int finish(struct jsonb *b, struct json_object *root, FILE *out, struct dl_diag *d)
{
	int err = jb_write(b, root, true, out, d);

	json_object_put(root);
	errno = 0;
	if (!err && fflush(out))
		err = dl_fail_errno(d, errno ? -errno : -EIO, "cannot write the result");
	return err;
}

int dl_info_json(const struct dl_info *info, FILE *out, struct dl_diag *d)
{
	struct jsonb b = {};
	struct json_object *root = jb_object(&b, NULL, NULL);

	jb_str(&b, root, "schema", DL_INFO_SCHEMA);
	add_trace(&b, root, info);
	add_meta(&b, root, &info->trace->meta);
	add_sources(&b, root, info);
	add_kinds(&b, root, info->trace);
	add_losses(&b, root, info);
	add_procs(&b, root, info);
	return finish(&b, root, out, d);
}

int dl_schema_json(FILE *out, struct dl_diag *d)
{
	struct jsonb b = {};
	struct json_object *root = jb_object(&b, NULL, NULL), *events = jb_array(&b, root, "events");

	for (unsigned int k = 0; k < DL_EV_MAX; k++) {
		const struct dl_event_desc *desc = dl_event_desc(k);
		struct json_object *o, *fields;

		if (!desc)
			continue;
		o = jb_object(&b, events, NULL);
		jb_str(&b, o, "name", desc->name);
		jb_u64(&b, o, "kind", desc->kind);
		jb_str(&b, o, "group", dl_group_name(desc->group));
		jb_str(&b, o, "tail", desc->tail == DL_TAIL_STR ? "text" :
				      desc->tail == DL_TAIL_ADDRS ? "addrs" : NULL);
		jb_str(&b, o, "meaning", desc->doc);
		fields = jb_array(&b, o, "fields");
		for (size_t i = 0; i < desc->field_cnt; i++) {
			struct json_object *f = jb_object(&b, fields, NULL);

			jb_str(&b, f, "name", desc->fields[i].name);
			jb_str(&b, f, "type", dl_ftype_name(desc->fields[i].type));
			jb_str(&b, f, "unit", dl_unit_name(desc->fields[i].unit));
			jb_str(&b, f, "meaning", desc->fields[i].doc);
		}
	}
	return finish(&b, root, out, d);
}
