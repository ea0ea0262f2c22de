/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* GPU records into spans per process, and the union of kernels that says when a device is busy. */
#include "timeline/threads.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trace/schema.h"

static int add_name(struct dl_timeline *tl, const struct dl_ev_gpu_device *ev)
{
	struct dl_gpu_name *n = vec_push(&tl->gpu_names);
	const char *text;
	size_t len;

	if (!n)
		return -ENOMEM;
	text = dl_event_tail(&ev->h, &len);
	n->device = ev->device;
	n->pid = ev->h.pid;
	n->simulated = ev->flags & DL_GPU_SIMULATED;
	n->name = strndup(text ? text : "", len);
	return n->name ? 0 : -ENOMEM;
}

/* While another tool has CUPTI, what the GPU does is not known: that is not idle time. */
static int set_blind(struct dl_proc *p, const struct dl_ev_gpu_source *ev)
{
	struct dl_span *last = vec_last(&p->gpu_blind);
	bool open = last && last->end == UINT64_MAX;

	if (ev->state == DL_GPU_BUSY && !open) {
		last = vec_push(&p->gpu_blind);
		if (!last)
			return -ENOMEM;
		*last = (struct dl_span){ ev->until ? ev->until : ev->h.ts, UINT64_MAX };
	} else if (ev->state == DL_GPU_COLLECTOR && open) {
		last->end = ev->h.ts;
	}
	return 0;
}

static int set_source(struct dl_proc *p, const struct dl_ev_gpu_source *ev)
{
	const uint32_t was = p->gpu_state;
	const char *text;
	char **into, *before, *why;
	size_t len;

	if (set_blind(p, ev))
		return -ENOMEM;
	p->gpu_state = ev->state;
	p->gpu_version = ev->version;
	if (ev->flags & DL_GPU_SIMULATED)
		p->gpu_simulated = true;
	text = dl_event_tail(&ev->h, &len);
	into = ev->state == DL_GPU_BUSY ? &p->gpu_busy : &p->gpu_text;
	if (!text || !len || (ev->state == DL_GPU_STOPPED && p->gpu_text))
		return 0;
	before = *into;
	why = was == DL_GPU_BUSY && p->gpu_busy ? p->gpu_busy : before;
	/* Why there are only uprobes, and what there was before. */
	if (ev->state == DL_GPU_UPROBES && was != DL_GPU_UPROBES && why) {
		const bool then = p->kernel_cnt && before;

		if (asprintf(into, "%s%s%.*s; %s", then ? before : "", then ? "; then " : "", (int)len, text, why) < 0)
			*into = NULL;
	} else {
		*into = strndup(text, len);
	}
	free(before);
	return *into ? 0 : -ENOMEM;
}

/* There are few. */
static int note_device(struct dl_proc *p, uint32_t device)
{
	uint32_t *at;

	vec_for_each(&p->devices, id) {
		if (*id == device)
			return 0;
	}
	at = vec_push(&p->devices);
	if (!at)
		return -ENOMEM;
	*at = device;
	return 0;
}

static int add_kernel(struct dl_proc *p, const struct dl_ev_gpu_kernel *ev)
{
	struct dl_kern *k = vec_push(&p->kernels);

	if (!k || note_device(p, ev->device))
		return -ENOMEM;
	p->kernel_cnt++;
	*k = (struct dl_kern){ .start = ev->h.ts, .end = ev->end < ev->h.ts ? ev->h.ts : ev->end,
			       .device = ev->device, .stream = ev->stream, .corr = ev->corr, .name = ev->name };
	return 0;
}

static int add_graph(struct dl_proc *p, const struct dl_ev_gpu_graph *ev)
{
	struct dl_kern *k = vec_push(&p->kernels);

	if (!k || note_device(p, ev->device))
		return -ENOMEM;
	p->kernel_cnt++;
	*k = (struct dl_kern){ .start = ev->h.ts, .end = ev->end < ev->h.ts ? ev->h.ts : ev->end,
			       .device = ev->device, .stream = ev->stream, .corr = ev->corr };
	return 0;
}

static int add_copy(struct dl_proc *p, const struct dl_ev_gpu_memcpy *ev)
{
	struct dl_copy *c = vec_push(&p->copies);

	if (!c || note_device(p, ev->device))
		return -ENOMEM;
	p->copy_cnt++;
	*c = (struct dl_copy){ .start = ev->h.ts, .end = ev->end < ev->h.ts ? ev->h.ts : ev->end,
			       .bytes = ev->bytes, .device = ev->device, .stream = ev->stream,
			       .corr = ev->corr, .dir = ev->dir, .src = ev->src, .dst = ev->dst,
			       .flags = ev->flags };
	return 0;
}

static int add_sync(struct dl_proc *p, const struct dl_ev_gpu_sync *ev)
{
	struct dl_sync *s = vec_push(&p->syncs);

	if (!s)
		return -ENOMEM;
	*s = (struct dl_sync){ .start = ev->h.ts, .end = ev->end < ev->h.ts ? ev->h.ts : ev->end,
			       .stream = ev->stream, .corr = ev->corr, .type = ev->type };
	return 0;
}

static int add_api(struct dl_timeline *tl, uint32_t proc, const struct dl_ev_gpu_api *ev)
{
	uint32_t th = ev->h.tid ? dl_tl_find_thread(tl, ev->h.tid) : DL_NONE;
	struct dl_api *a = vec_push(&tl->procs.v[proc].apis);

	if (!a)
		return -ENOMEM;
	tl->procs.v[proc].api_cnt++;
	*a = (struct dl_api){ .start = ev->h.ts, .end = ev->end < ev->h.ts ? ev->h.ts : ev->end,
			      .thread = th, .corr = ev->corr, .cls = ev->class,
			      .cbid = ev->cbid, .domain = ev->domain, .name = ev->name, .bytes = ev->bytes,
			      .dir = ev->dir, .skipped = ev->skipped };
	return 0;
}

int dl_tl_gpu(struct dl_timeline *tl, const struct dl_hdr *ev)
{
	uint32_t proc = dl_tl_proc(tl, ev->pid);
	struct dl_proc *p;

	if (proc == DL_NONE)
		return -ENOMEM;
	p = &tl->procs.v[proc];
	switch (ev->kind) {
	case DL_EV_GPU_SOURCE:
		return set_source(p, (const void *)ev);
	case DL_EV_GPU_KERNEL:
		return add_kernel(p, (const void *)ev);
	case DL_EV_GPU_GRAPH:
		return add_graph(p, (const void *)ev);
	case DL_EV_GPU_MEMCPY:
		return add_copy(p, (const void *)ev);
	case DL_EV_GPU_SYNC:
		return add_sync(p, (const void *)ev);
	case DL_EV_GPU_API:
		return add_api(tl, proc, (const void *)ev);
	case DL_EV_GPU_DROP:
		memcpy(&p->gpu_drop, ev, sizeof(p->gpu_drop));
		return 0;
	case DL_EV_GPU_DEVICE:
		return add_name(tl, (const void *)ev);
	}
	return 0;
}

/* NCCL's and RCCL's device kernels: they spin until all ranks have come. */
static bool is_collective(const char *name)
{
	return name && (!strncmp(name, "nccl", 4) || !strncmp(name, "rccl", 4) ||
			strstr(name, "ncclDevKernel") || strstr(name, "ncclKernel"));
}

struct known_name { uint32_t name; bool known, collective; };

/* A job has few kernels, and launches each of them over and over. */
static void mark_collectives(const struct dl_timeline *tl, struct dl_proc *p)
{
	struct known_name recent[256] = {};

	vec_for_each(&p->kernels, k) {
		struct known_name *r = &recent[k->name % 256];

		if (!r->known || r->name != k->name) {
			r->known = true;
			r->name = k->name;
			r->collective = is_collective(dl_string(tl, p->pid, k->name));
		}
		k->collective = r->collective;
	}
}

static void set_reach(struct dl_proc *p)
{
	uint64_t reach = 0;

	vec_for_each(&p->copies, c)
		c->reach = reach = c->end > reach ? c->end : reach;
}

static int finish_proc(struct dl_timeline *tl, struct dl_proc *p)
{
	int err = 0;

	dl_dense_fini(&p->api_by_corr);
	dl_dense_fini(&p->copy_by_corr);
	p->has_kernels |= p->kernel_cnt != 0;
	vec_sort(&p->kernels);
	vec_sort(&p->copies);
	vec_sort(&p->syncs);
	vec_sort(&p->apis);
	set_reach(p);
	mark_collectives(tl, p);
	for (uint32_t i = 0; i < p->apis.cnt && !err; i++) {
		struct dl_api *a = &p->apis.v[i];

		/* A process cannot call in another one's thread: damage. */
		if (a->thread != DL_NONE && tl->threads.v[a->thread].proc != (uint32_t)(p - tl->procs.v))
			a->thread = DL_NONE;
		/* A runtime call and the driver call inside it may share an id: keep the outer one. */
		if (a->corr && !dl_dense_get(&p->api_by_corr, a->corr, NULL))
			err = dl_dense_set(&p->api_by_corr, a->corr, i);
		if (!err && a->thread != DL_NONE) {
			uint32_t *at = vec_push(&tl->threads.v[a->thread].apis);

			if (!at)
				return -ENOMEM;
			*at = i;
			tl->threads.v[a->thread].calls = true;
		}
	}
	for (uint32_t i = 0; i < p->copies.cnt && !err; i++) {
		if (p->copies.v[i].corr)
			err = dl_dense_set(&p->copy_by_corr, p->copies.v[i].corr, i);
	}
	return err;
}

int dl_tl_gpu_finish(struct dl_timeline *tl)
{
	int err = 0;

	vec_for_each(&tl->threads, th)
		th->apis.cnt = 0;
	for (size_t i = 0; i < tl->procs.cnt && !err; i++)
		err = finish_proc(tl, &tl->procs.v[i]);
	return err;
}

int dl_busy_spans(const struct dl_proc *p, uint32_t device, enum dl_kern_filter filter, struct dl_spans *ret)
{
	struct dl_spans out = {};

	vec_for_each(&p->kernels, k) {
		struct dl_span *last = vec_last(&out);

		if (k->device != device || (filter == DL_KERN_NO_COLLECTIVES && k->collective))
			continue;
		if (last && k->start <= last->end) {
			if (k->end > last->end)
				last->end = k->end;
			continue;
		}
		last = vec_push(&out);
		if (!last) {
			vec_free(&out);
			return -ENOMEM;
		}
		*last = (struct dl_span){ k->start, k->end };
	}
	*ret = out;
	return 0;
}

/* Copies are sorted by start; they do not overlap much, so a short look back is enough. */
#define COPIES_BACK 64
#define CLOCK_SLACK_NS 2000	/* timestamps are rounded and converted one by one */

static bool waited_for(const struct dl_copy *c, const struct dl_kern *k)
{
	return c->device == k->device && c->end <= k->start + CLOCK_SLACK_NS && c->dir != DL_GPU_DTOD;
}

const struct dl_copy *dl_copy_before(const struct dl_proc *p, const struct dl_kern *k, uint64_t t, uint64_t *from)
{
	size_t i = p->places->copy = vec_first_near(&p->copies, t, p->places->copy);
	uint64_t last = *from;

	for (int back = 0; i-- > 0 && back < COPIES_BACK; back++) {
		const struct dl_copy *c = &p->copies.v[i];

		if (c->reach < t && c->reach <= last)
			break;	/* nor any before it */
		if (k && !waited_for(c, k))
			continue;
		if (c->end >= t) {
			*from = c->start > *from ? c->start : *from;
			return c;
		}
		if (c->end > last)
			last = c->end;
	}
	*from = last;
	return NULL;
}
