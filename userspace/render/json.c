/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* docs/report.schema.json says what each member means; a test holds the two together. */
#include "render/json.h"

#include <errno.h>

#include "diagnose/report.h"
#include "render/json_parts.h"
#include "render/jsonb.h"
#include "render/text_parts.h"
#include "render/who.h"

/* Instants are printed since the start of the recording; negative before. */
static int64_t since_start(const struct dl_report *r, uint64_t ts)
{
	return (int64_t)(ts - r->start);
}

static double share_of(uint64_t part, uint64_t whole)
{
	return whole ? (double)part / (double)whole : 0;
}

static void id_or_null(struct jsonb *b, struct json_object *o, const char *key, int32_t id)
{
	if (id < 0)
		jb_null(b, o, key);
	else
		jb_s64(b, o, key, id);
}

static void add_trace(struct jsonb *b, struct json_object *root, const struct dl_report *r)
{
	struct json_object *o = jb_object(b, root, "trace");

	jb_str(b, o, "path", r->path);
	jb_bool(b, o, "complete", r->complete);
	jb_bool(b, o, "live", r->live);
	jb_u64(b, o, "duration_ns", r->duration_ns);
	jb_u64(b, o, "events", r->events);
	jb_u64(b, o, "lost", r->lost);
	jb_u64(b, o, "left_out", r->shed);
	jb_u64(b, o, "damaged_frames", r->damaged_frames);
	jb_u64(b, o, "damaged_bytes", r->damaged_bytes);
	jb_str(b, o, "gpu_source", r->gpu_source);
	jb_str(b, o, "gpu_hint", r->gpu_hint);
	jb_bool(b, o, "has_gpu", r->has_gpu);
	jb_bool(b, o, "simulated", r->simulated);
	jb_str(b, o, "host", r->host);
	jb_str(b, o, "kernel", r->kernel);
	jb_str(b, o, "command", r->target_cmdline);
	jb_u64(b, o, "target_pid", r->target_pid);
	jb_u64(b, o, "cpus", r->cpus);
	if (r->cpu_idle < 0)
		jb_null(b, o, "cpu_idle");
	else
		jb_share(b, o, "cpu_idle", r->cpu_idle);
}

static void add_verdict(struct jsonb *b, struct json_object *root, const struct dl_report *r)
{
	const struct dl_verdict *v = &r->verdict;
	struct json_object *o = jb_object(b, root, "verdict"), *actions;

	jb_str(b, o, "cause", v->has_cause ? dl_cause_id(v->cause) : NULL);
	jb_share(b, o, "share", v->has_cause ? v->share : 0);
	jb_bool(b, o, "healthy", v->healthy);
	jb_str(b, o, "copies", v->copies ? dl_copy_problem_id(v->copies) : NULL);
	jb_str(b, o, "text", v->text ? v->text : "");
	actions = jb_array(b, o, "actions");
	vec_for_each(&v->actions, text)
		jb_str(b, actions, NULL, *text);
}

static void add_causes(struct jsonb *b, struct json_object *parent, const struct dl_charge *causes,
		       uint64_t total)
{
	struct json_object *list = jb_array(b, parent, "causes");
	struct tx_cause_list sorted;

	tx_causes_sorted(&sorted, causes);
	for (size_t i = 0; i < sorted.cnt; i++) {
		const struct dl_charge *c = &causes[sorted.v[i]];
		struct json_object *o = jb_object(b, list, NULL);

		jb_str(b, o, "cause", dl_cause_id(sorted.v[i]));
		jb_u64(b, o, "ns", c->ns);
		jb_share(b, o, "share", share_of(c->ns, total));
		jb_u64(b, o, "gaps", c->gaps);
		jb_u64(b, o, "via_lock_ns", c->via_lock_ns);
		jb_u64(b, o, "own_tree_ns", c->own_tree_ns);
		jb_u64(b, o, "affinity_ns", c->affinity_ns);
		jb_u64(b, o, "estimated_ns", c->estimated_ns);
		jb_str(b, o, "detail", c->detail);
	}
}

/* {"decode": ns, ...}, those that have time. */
static void add_cause_ns(struct jsonb *b, struct json_object *parent, const uint64_t cause_ns[DL_CAUSE_CNT])
{
	struct json_object *o = jb_object(b, parent, "causes");

	for (size_t i = 0; i < DL_CAUSE_CNT; i++)
		if (cause_ns[i])
			jb_u64(b, o, dl_cause_id((enum dl_cause)i), cause_ns[i]);
}

static void add_devices(struct jsonb *b, struct json_object *root, const struct dl_report *r)
{
	struct json_object *list = jb_array(b, root, "devices");

	vec_for_each(&r->devices, dev) {
		struct json_object *o = jb_object(b, list, NULL);

		jb_u64(b, o, "id", dev->id);
		jb_u64(b, o, "pid", dev->pid);
		jb_str(b, o, "name", dev->name);
		jb_bool(b, o, "simulated", dev->simulated);
		jb_s64(b, o, "start_ns", since_start(r, dev->start));
		jb_s64(b, o, "end_ns", since_start(r, dev->end));
		jb_u64(b, o, "busy_ns", dev->busy_ns);
		jb_u64(b, o, "collective_ns", dev->collective_ns);
		jb_u64(b, o, "unobserved_ns", dev->unobserved_ns);
		jb_u64(b, o, "idle_ns", dev->idle_ns);
		jb_u64(b, o, "kernels", dev->kernels);
		jb_u64(b, o, "gaps", dev->gap_cnt);
		add_causes(b, o, dev->causes, dev->idle_ns);
	}
}

static void add_calls(struct jsonb *b, struct json_object *parent, const struct dl_calls_report *c)
{
	struct json_object *o;

	if (!c->known)
		return;
	o = jb_object(b, parent, "calls");
	jb_u64(b, o, "copies", c->copy_cnt);
	jb_u64(b, o, "copy_bytes", c->copy_bytes);
	jb_u64(b, o, "copy_ns", c->copy_ns);
	jb_u64(b, o, "others", c->api_cnt);
	jb_u64(b, o, "others_ns", c->api_ns);
	jb_u64(b, o, "gpu_waits", c->gpu_wait_cnt);
	jb_u64(b, o, "gpu_wait_ns", c->gpu_wait_ns);
	jb_u64(b, o, "launches", c->launch_cnt);
}

static void add_waits(struct jsonb *b, struct json_object *root, const struct dl_report *r)
{
	struct json_object *o = jb_object(b, root, "waits");

	jb_u64(b, o, "total_ns", r->waits.total_ns);
	jb_u64(b, o, "wall_ns", r->waits.wall_ns);
	jb_u64(b, o, "count", r->waits.cnt);
	add_causes(b, o, r->waits.causes, r->waits.total_ns);
	add_calls(b, o, &r->waits.calls);
}

static void add_steps(struct jsonb *b, struct json_object *parent, const struct dl_report *r,
		      const struct dl_gap *gap)
{
	struct json_object *list = jb_array(b, parent, "steps");

	for (size_t i = gap->steps.cnt; i-- > 0;) {
		const struct dl_step *s = &gap->steps.v[i];
		struct json_object *o = jb_object(b, list, NULL);

		jb_s64(b, o, "start_ns", since_start(r, s->start));
		jb_s64(b, o, "end_ns", since_start(r, s->end));
		jb_str(b, o, "cause", dl_cause_id(s->cause));
		jb_u64(b, o, "pid", s->pid);
		jb_u64(b, o, "tid", s->tid);
		jb_str(b, o, "role", dl_role_id(s->role));
		jb_str(b, o, "text", s->text);
		jb_bool(b, o, "via_lock", s->via_lock);
		jb_bool(b, o, "woke_next", s->jump);
	}
}

static void add_worst(struct jsonb *b, struct json_object *root, const struct dl_report *r)
{
	struct json_object *list = jb_array(b, root, "worst");

	vec_for_each(&r->worst, gap) {
		struct json_object *o = jb_object(b, list, NULL);

		jb_s64(b, o, "start_ns", since_start(r, gap->start));
		jb_s64(b, o, "end_ns", since_start(r, gap->end));
		if (r->has_gpu)
			jb_u64(b, o, "device", gap->device);
		else
			jb_null(b, o, "device");
		jb_bool(b, o, "open", gap->open);
		add_cause_ns(b, o, gap->cause_ns);
		add_steps(b, o, r, gap);
	}
}

static void add_process(struct jsonb *b, struct json_object *list, const struct dl_report *r,
			const struct dl_proc_report *p)
{
	struct json_object *o = jb_object(b, list, NULL), *blocked;

	jb_u64(b, o, "pid", p->pid);
	jb_u64(b, o, "nspid", p->nspid);
	jb_u64(b, o, "ppid", p->ppid);
	jb_str(b, o, "role", dl_role_id(p->role));
	id_or_null(b, o, "index", p->index);
	id_or_null(b, o, "rank", p->rank);
	id_or_null(b, o, "loader", p->loader);
	jb_u64(b, o, "trainer_pid", p->trainer_pid);
	jb_u64(b, o, "threads", p->threads);
	jb_str(b, o, "name", p->name);
	jb_str(b, o, "command", p->cmdline);
	jb_s64(b, o, "start_ns", since_start(r, p->start));
	jb_s64(b, o, "end_ns", since_start(r, p->end));
	jb_u64(b, o, "cpu_ns", p->cpu_ns);
	jb_u64(b, o, "runnable_ns", p->runnable_ns);
	jb_u64(b, o, "throttled_ns", p->throttled_ns);
	blocked = jb_object(b, o, "blocked_ns");
	for (size_t k = 0; k < DL_BLOCK_ON_CNT; k++)
		jb_u64(b, blocked, dl_block_kind_id((enum dl_block_kind)k), p->blocked_ns[k]);
	jb_u64(b, o, "minor_faults", p->min_flt);
	jb_u64(b, o, "major_faults", p->maj_flt);
	jb_u64(b, o, "rss_peak_bytes", p->rss_peak);
	jb_u64(b, o, "anon_peak_bytes", p->anon_peak);
	jb_u64(b, o, "shmem_peak_bytes", p->shmem_peak);
	jb_u64(b, o, "swap_peak_bytes", p->swap_peak);
	if (p->exited)
		jb_s64(b, o, "exit_status", p->exit_status);
	else
		jb_null(b, o, "exit_status");
}

static void add_dist(struct jsonb *b, struct json_object *parent, const char *key,
		     const struct dl_dist *d)
{
	struct json_object *o = jb_object(b, parent, key);

	jb_u64(b, o, "count", d->cnt);
	jb_u64(b, o, "sum_ns", d->sum_ns);
	jb_u64(b, o, "median_ns", d->p50_ns);
	jb_u64(b, o, "p99_ns", d->p99_ns);
	jb_u64(b, o, "max_ns", d->max_ns);
}

static void add_part(struct jsonb *b, struct json_object *o, const struct dl_part *part)
{
	struct json_object *verdict;

	jb_u64(b, o, "span_ns", part->span_ns);
	jb_u64(b, o, "idle_ns", part->idle_ns);
	add_cause_ns(b, o, part->cause_ns);
	verdict = jb_object(b, o, "verdict");
	jb_str(b, verdict, "cause", part->has_cause ? dl_cause_id(part->cause) : NULL);
	jb_share(b, verdict, "share", part->share);
	jb_bool(b, verdict, "healthy", part->healthy);
}

static void add_trainers(struct jsonb *b, struct json_object *root, const struct dl_report *r)
{
	struct json_object *list = jb_array(b, root, "trainers");

	vec_for_each(&r->trainers, t) {
		struct json_object *o = jb_object(b, list, NULL);

		jb_u64(b, o, "pid", t->pid);
		id_or_null(b, o, "rank", t->rank);
		add_part(b, o, &t->part);
	}
}

static void add_loaders(struct jsonb *b, struct json_object *root, const struct dl_report *r)
{
	struct json_object *list = jb_array(b, root, "loaders");

	vec_for_each(&r->loaders, l) {
		struct json_object *o = jb_object(b, list, NULL);

		jb_u64(b, o, "trainer_pid", l->trainer_pid);
		jb_u64(b, o, "index", l->index);
		jb_u64(b, o, "workers", l->workers);
		jb_u64(b, o, "batches", l->batches);
		add_dist(b, o, "wait", &l->wait);
		add_dist(b, o, "produce", &l->produce);
		add_dist(b, o, "deliver", &l->deliver);
		add_part(b, o, &l->part);
	}
}

static void add_copies(struct jsonb *b, struct json_object *root, const struct dl_report *r)
{
	struct json_object *list = jb_array(b, root, "copies");

	vec_for_each(&r->copies, c) {
		struct json_object *o = jb_object(b, list, NULL);

		jb_u64(b, o, "device", c->device);
		jb_str(b, o, "direction", dl_copy_dir_id(c->dir));
		jb_str(b, o, "memory", dl_copy_mem_id(c->mem));
		jb_u64(b, o, "count", c->cnt);
		jb_u64(b, o, "bytes", c->bytes);
		jb_u64(b, o, "ns", c->ns);
		jb_u64(b, o, "median_bytes", c->median_bytes);
		jb_u64(b, o, "best_bytes_per_s", c->best_bps);
		jb_u64(b, o, "pid", c->pid);
		jb_u64(b, o, "small_count", c->small_cnt);
		jb_u64(b, o, "overlap_ns", c->overlap_ns);
		json_known(b, o, "call_ns", c->call_ns, c->called_cnt > 0);
		json_known(b, o, "cpu_ns", c->cpu_ns, c->thread_cnt > 0);
	}
}

static void add_crash(struct jsonb *b, struct json_object *root, const struct dl_report *r)
{
	const struct dl_crash_report *c = r->crash;
	struct json_object *o;

	if (!c) {
		jb_null(b, root, "crash");
		return;
	}
	o = jb_object(b, root, "crash");
	jb_u64(b, o, "pid", c->pid);
	jb_u64(b, o, "nspid", c->nspid);
	jb_str(b, o, "role", dl_role_id(c->role));
	id_or_null(b, o, "index", c->index);
	jb_s64(b, o, "signal", c->sig);
	jb_s64(b, o, "at_ns", since_start(r, c->ts));
	jb_str(b, o, "cause", c->cause);
	jb_str(b, o, "text", c->text ? c->text : "");
}

static void add_sheds(struct jsonb *b, struct json_object *root, const struct dl_report *r)
{
	struct json_object *list = jb_array(b, root, "left_out");

	vec_for_each(&r->sheds, row) {
		struct json_object *o = jb_object(b, list, NULL), *times;

		jb_str(b, o, "what", row->what);
		jb_str(b, o, "kind", row->kind);
		jb_bool(b, o, "event_kept", row->part);
		jb_u64(b, o, "count", row->cnt);
		times = jb_array(b, o, "times");
		vec_for_each(&row->times, t) {
			struct json_object *time = jb_object(b, times, NULL);

			jb_s64(b, time, "start_ns", since_start(r, t->start));
			jb_s64(b, time, "end_ns", since_start(r, t->end));
		}
	}
}

static void add_recording(struct jsonb *b, struct json_object *root, const struct dl_report *r)
{
	struct json_object *list = jb_array(b, root, "losses");

	vec_for_each(&r->losses, l) {
		struct json_object *o = jb_object(b, list, NULL);

		jb_str(b, o, "ring", l->ring ? l->ring : "unknown");
		jb_str(b, o, "cause", l->cause ? l->cause : "unknown");
		jb_str(b, o, "kind", l->kind ? l->kind : "any");
		jb_u64(b, o, "count", l->cnt);
		if (l->first) {
			jb_s64(b, o, "first_ns", since_start(r, l->first));
			jb_s64(b, o, "last_ns", since_start(r, l->last));
		} else {
			jb_null(b, o, "first_ns");
			jb_null(b, o, "last_ns");
		}
	}
	add_sheds(b, root, r);
	list = jb_array(b, root, "absent");
	vec_for_each(&r->absent, text)
		jb_str(b, list, NULL, *text);
	list = jb_array(b, root, "notes");
	vec_for_each(&r->notes, text)
		jb_str(b, list, NULL, *text);
}

int dl_render_json(const struct dl_report *r, FILE *out, struct dl_diag *d)
{
	struct jsonb b = {};
	struct json_object *root = jb_object(&b, NULL, NULL), *list;
	int err;

	jb_str(&b, root, "schema", DL_REPORT_SCHEMA);
	add_trace(&b, root, r);
	add_verdict(&b, root, r);
	add_devices(&b, root, r);
	add_waits(&b, root, r);
	list = jb_array(&b, root, "processes");
	vec_for_each(&r->procs, p)
		add_process(&b, list, r, p);
	add_crash(&b, root, r);
	add_trainers(&b, root, r);
	add_loaders(&b, root, r);
	add_copies(&b, root, r);
	json_copy_devices(&b, root, r);
	json_gpus(&b, root, r);
	add_worst(&b, root, r);
	add_recording(&b, root, r);
	err = jb_write(&b, root, true, out, d);
	json_object_put(root);
	errno = 0;
	if (!err && fflush(out))
		err = dl_fail_errno(d, errno ? -errno : -EIO, "cannot write the result");
	return err;
}
