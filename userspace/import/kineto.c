/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Chrome JSON as PyTorch's profiler writes it, since 2021: one event of traceEvents at a time. GPU records
 * have the device where others have the process; their process is the one that called the driver.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "import/import_int.h"
#include "import/json.h"

enum kind {
	K_OTHER = 0, K_KERNEL, K_MEMCPY, K_MEMSET, K_SYNC, K_RUNTIME, K_DRIVER, K_OP, K_ANNOTATION,
};

/* Today's categories and those of 2021. */
static const struct { const char *cat; enum kind kind; } kinds[] = {
	{ "cpu_op", K_OP }, { "Operator", K_OP },
	{ "cuda_runtime", K_RUNTIME }, { "Runtime", K_RUNTIME }, { "hip_runtime", K_RUNTIME },
	{ "cuda_driver", K_DRIVER },
	{ "kernel", K_KERNEL }, { "gpu_memcpy", K_MEMCPY }, { "Memcpy", K_MEMCPY },
	{ "gpu_memset", K_MEMSET }, { "Memset", K_MEMSET }, { "cuda_sync", K_SYNC },
	{ "user_annotation", K_ANNOTATION },
};

struct num { int64_t v; bool ok; };

struct event {
	char ph;
	enum kind kind;
	struct num ts, dur;	/* ns */
	struct num pid, tid;
	struct num corr, device, context, stream, bytes, cbid, graph, event_id;
	char sync[64];
	char name[DL_JSON_TEXT_MAX + 8];
};

struct reader {
	struct dl_import *imp;
	struct dl_diag *d;
	struct dl_json j;
	struct event ev;
};

/* --- one event --- */

static enum kind kind_of(const char *cat)
{
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		if (!strcasecmp(cat, kinds[i].cat))
			return kinds[i].kind;
	}
	return K_OTHER;
}

/* Numbers are sometimes texts, and "stream 7" is 7. */
static void take_int(struct num *n, int tok, const char *text)
{
	if (tok == DL_JSON_STR) {
		while (*text && !isdigit((unsigned char)*text) && *text != '-')
			text++;
	}
	n->ok = (tok == DL_JSON_STR || tok == DL_JSON_NUM) && dl_json_int(text, &n->v);
}

static void take_time(struct num *n, int tok, const char *text)
{
	n->ok = (tok == DL_JSON_STR || tok == DL_JSON_NUM) && dl_json_milli(text, &n->v);
}

static int read_args(struct reader *r)
{
	struct event *ev = &r->ev;
	struct { const char *key; struct num *n; } nums[] = {
		{ "correlation", &ev->corr }, { "device", &ev->device }, { "context", &ev->context },
		{ "stream", &ev->stream }, { "bytes", &ev->bytes }, { "cbid", &ev->cbid },
		{ "graph id", &ev->graph }, { "event_id", &ev->event_id },
	};
	int tok;

	while ((tok = dl_json_next(&r->j)) == DL_JSON_KEY) {
		struct num *n = NULL;
		bool sync = !strcmp(r->j.text, "cuda_sync_kind");

		for (size_t i = 0; i < ARRAY_SIZE(nums) && !n; i++)
			n = strcmp(r->j.text, nums[i].key) ? NULL : nums[i].n;
		tok = dl_json_next(&r->j);
		if (n)
			take_int(n, tok, r->j.text);
		else if (sync && tok == DL_JSON_STR)
			snprintf(ev->sync, sizeof(ev->sync), "%.63s", r->j.text);
		tok = dl_json_skip(&r->j, tok);
		if (tok < 0)
			return tok;
	}
	return tok < 0 ? tok : 0;
}

static int read_member(struct reader *r)
{
	struct event *ev = &r->ev;
	struct dl_json *j = &r->j;
	char key[16];
	int tok;

	snprintf(key, sizeof(key), "%.15s", j->text);
	tok = dl_json_next(j);
	if (tok < 0)
		return tok;
	if (!strcmp(key, "args") && tok == DL_JSON_OBJ)
		return read_args(r);
	if (!strcmp(key, "ts"))
		take_time(&ev->ts, tok, j->text);
	else if (!strcmp(key, "dur"))
		take_time(&ev->dur, tok, j->text);
	else if (!strcmp(key, "pid"))
		take_int(&ev->pid, tok, j->text);
	else if (!strcmp(key, "tid"))
		take_int(&ev->tid, tok, j->text);
	else if (!strcmp(key, "ph") && tok == DL_JSON_STR)
		ev->ph = j->text[0];
	else if (!strcmp(key, "cat") && tok == DL_JSON_STR)
		ev->kind = kind_of(j->text);
	else if (!strcmp(key, "name") && tok == DL_JSON_STR)
		memcpy(ev->name, j->text, j->len + 1);
	return dl_json_skip(j, tok);
}

static void clear_event(struct event *ev)
{
	char *name = ev->name;

	memset(ev, 0, offsetof(struct event, name));
	name[0] = 0;
}

static uint32_t id_of(const struct num *n, uint32_t otherwise)
{
	return n->ok ? (uint32_t)n->v : otherwise;
}

static int use_device(struct reader *r, uint32_t *ret)
{
	struct dl_import_device *dev;

	*ret = r->ev.device.ok ? (uint32_t)r->ev.device.v : id_of(&r->ev.pid, 0);
	dev = dl_import_device(r->imp, *ret);
	if (!dev)
		return dl_oom(r->d);
	dev->used = true;
	return 0;
}

static int take_kernel(struct reader *r, uint32_t device)
{
	struct event *ev = &r->ev;
	struct dl_ev_gpu_kernel k = { .h = { .kind = DL_EV_GPU_KERNEL, .size = sizeof(k) }, .device = device,
				      .context = id_of(&ev->context, 0), .stream = id_of(&ev->stream, id_of(&ev->tid, 0)),
				      .corr = id_of(&ev->corr, 0), .graph = id_of(&ev->graph, 0) };
	int err = dl_import_name(r->imp, 0, ev->name, strlen(ev->name), &k.name, r->d);

	r->imp->info.kernels++;
	return err ? err : dl_import_event(r->imp, &k.h, ev->ts.v, ev->dur.v, r->d);
}

static uint16_t mem_of(const char *name, size_t len)
{
	static const struct { const char *name; uint16_t mem; } mems[] = {
		{ "Pageable", DL_GPU_MEM_PAGEABLE }, { "Pinned", DL_GPU_MEM_PINNED }, { "Device", DL_GPU_MEM_DEVICE },
		{ "Array", DL_GPU_MEM_ARRAY }, { "Managed", DL_GPU_MEM_MANAGED },
	};

	for (size_t i = 0; i < ARRAY_SIZE(mems); i++) {
		if (strlen(mems[i].name) == len && !strncasecmp(name, mems[i].name, len))
			return mems[i].mem;
	}
	return DL_GPU_MEM_UNKNOWN;
}

/* "Memcpy HtoD (Pageable -> Device)" */
static void parse_copy(const char *name, struct dl_ev_gpu_memcpy *c)
{
	static const struct { const char *part; uint16_t dir; } dirs[] = {
		{ "HtoD", DL_GPU_HTOD }, { "DtoH", DL_GPU_DTOH }, { "DtoD", DL_GPU_DTOD }, { "HtoH", DL_GPU_HTOH },
		{ "PtoP", DL_GPU_PTOP }, { "HtoA", DL_GPU_HTOA }, { "AtoH", DL_GPU_ATOH }, { "AtoA", DL_GPU_ATOA },
		{ "AtoD", DL_GPU_ATOD }, { "DtoA", DL_GPU_DTOA },
		{ "HostToDevice", DL_GPU_HTOD }, { "DeviceToHost", DL_GPU_DTOH }, { "DeviceToDevice", DL_GPU_DTOD },
	};
	const char *open = strchr(name, '('), *arrow = open ? strstr(open, " -> ") : NULL;
	const char *close = arrow ? strchr(arrow, ')') : NULL;

	for (size_t i = 0; i < ARRAY_SIZE(dirs) && !c->dir; i++) {
		if (strstr(name, dirs[i].part))
			c->dir = dirs[i].dir;
	}
	if (!close)
		return;
	c->src = mem_of(open + 1, (size_t)(arrow - open - 1));
	c->dst = mem_of(arrow + 4, (size_t)(close - arrow - 4));
}

static int take_copy(struct reader *r, uint32_t device)
{
	struct event *ev = &r->ev;
	struct dl_ev_gpu_memcpy c = { .h = { .kind = DL_EV_GPU_MEMCPY, .size = sizeof(c) }, .device = device,
				      .context = id_of(&ev->context, 0), .stream = id_of(&ev->stream, id_of(&ev->tid, 0)),
				      .corr = id_of(&ev->corr, 0) };

	if (ev->bytes.ok && ev->bytes.v > 0)
		c.bytes = (uint64_t)ev->bytes.v;
	parse_copy(ev->name, &c);
	r->imp->info.copies++;
	return dl_import_event(r->imp, &c.h, ev->ts.v, ev->dur.v, r->d);
}

static int take_memset(struct reader *r, uint32_t device)
{
	struct event *ev = &r->ev;
	struct dl_ev_gpu_memset m = { .h = { .kind = DL_EV_GPU_MEMSET, .size = sizeof(m) }, .device = device,
				      .context = id_of(&ev->context, 0), .stream = id_of(&ev->stream, id_of(&ev->tid, 0)),
				      .corr = id_of(&ev->corr, 0) };

	if (ev->bytes.ok && ev->bytes.v > 0)
		m.bytes = (uint64_t)ev->bytes.v;
	r->imp->info.memsets++;
	return dl_import_event(r->imp, &m.h, ev->ts.v, ev->dur.v, r->d);
}

static int take_sync(struct reader *r)
{
	struct event *ev = &r->ev;
	const char *what = ev->sync[0] ? ev->sync : ev->name;
	struct dl_ev_gpu_sync s = { .h = { .kind = DL_EV_GPU_SYNC, .size = sizeof(s) },
				    .context = id_of(&ev->context, 0), .stream = id_of(&ev->stream, UINT32_MAX),
				    .event = id_of(&ev->event_id, UINT32_MAX), .corr = id_of(&ev->corr, 0) };

	s.type = strstr(what, "Wait") ? DL_GPU_SYNC_STREAM_WAIT : strstr(what, "Event") ? DL_GPU_SYNC_EVENT :
		 strstr(what, "Stream") ? DL_GPU_SYNC_STREAM : DL_GPU_SYNC_CONTEXT;
	r->imp->info.syncs++;
	return dl_import_event(r->imp, &s.h, ev->ts.v, ev->dur.v, r->d);
}

/* The thread of a row of the host; false where the row has no numbers (it is no thread then). */
static bool host_thread(const struct event *ev)
{
	return ev->pid.ok && ev->tid.ok && ev->pid.v > 0 && ev->pid.v <= INT32_MAX && ev->tid.v > 0 &&
	       ev->tid.v <= INT32_MAX;
}

static int take_call(struct reader *r)
{
	struct event *ev = &r->ev;
	struct dl_import *imp = r->imp;
	struct dl_ev_gpu_api a = { .h = { .kind = DL_EV_GPU_API, .size = sizeof(a) },
				   .domain = ev->kind == K_DRIVER ? DL_GPU_DRIVER : DL_GPU_RUNTIME,
				   .cbid = id_of(&ev->cbid, 0), .corr = id_of(&ev->corr, 0) };
	int err;

	if (!host_thread(ev)) {
		imp->info.invalid++;
		return 0;
	}
	a.h.pid = (uint32_t)ev->pid.v;
	a.h.tid = (uint32_t)ev->tid.v;
	a.class = dl_import_call_class(ev->name);
	if (!imp->info.calls)
		imp->info.pid = a.h.pid;
	if (dl_map_set(&imp->pid_seen, a.h.pid, 1) || !dl_import_thread(imp, a.h.pid, a.h.tid))
		return dl_oom(r->d);
	err = dl_import_name(imp, 0, ev->name, strlen(ev->name), &a.name, r->d);
	imp->info.calls++;
	return err ? err : dl_import_event(imp, &a.h, ev->ts.v, ev->dur.v, r->d);
}

static int take_span(struct reader *r)
{
	struct event *ev = &r->ev;
	uint32_t kind = dl_import_span_kind(ev->name);

	if (!kind && ev->kind == K_OP)
		kind = DL_SPAN_OP;
	if (!kind || !host_thread(ev))
		return 0;
	if (!r->imp->info.pid)
		r->imp->info.pid = (uint32_t)ev->pid.v;
	if (dl_map_set(&r->imp->pid_seen, (uint64_t)ev->pid.v, 1))
		return dl_oom(r->d);
	return dl_import_span(r->imp, (uint32_t)ev->pid.v, (uint32_t)ev->tid.v, ev->ts.v, ev->dur.v, ev->name, kind, r->d);
}

static int take_event(struct reader *r)
{
	struct event *ev = &r->ev;
	uint32_t device;
	int err;

	if (ev->ph != 'X' || ev->kind == K_OTHER)
		return 0;
	if (!ev->ts.ok || !ev->dur.ok || ev->ts.v < 0 || ev->dur.v < 0) {
		r->imp->info.invalid++;
		return 0;
	}
	switch (ev->kind) {
	case K_KERNEL:
	case K_MEMCPY:
	case K_MEMSET:
		err = use_device(r, &device);
		if (err)
			return err;
		return ev->kind == K_KERNEL ? take_kernel(r, device) :
		       ev->kind == K_MEMCPY ? take_copy(r, device) : take_memset(r, device);
	case K_SYNC:
		return take_sync(r);
	case K_RUNTIME:
	case K_DRIVER:
		return take_call(r);
	default:
		return take_span(r);
	}
}

static int read_events(struct reader *r)
{
	int tok, err;

	while ((tok = dl_json_next(&r->j)) > 0 && tok != DL_JSON_ARR_END) {
		if (tok != DL_JSON_OBJ)
			return dl_json_wrong(&r->j, "an event of traceEvents is no object");
		clear_event(&r->ev);
		while ((tok = dl_json_next(&r->j)) == DL_JSON_KEY) {
			err = read_member(r);
			if (err)
				return err;
		}
		err = tok < 0 ? tok : take_event(r);
		if (err)
			return err;
	}
	return tok < 0 ? tok : 0;
}

/* --- the rest of the file --- */

static int read_device(struct reader *r)
{
	struct dl_import_device *dev, got = {};
	struct num id = {}, mem = {};
	int tok, err;

	while ((tok = dl_json_next(&r->j)) == DL_JSON_KEY) {
		char key[24];

		snprintf(key, sizeof(key), "%.23s", r->j.text);
		tok = dl_json_next(&r->j);
		if (!strcmp(key, "id"))
			take_int(&id, tok, r->j.text);
		else if (!strcmp(key, "totalGlobalMem"))
			take_int(&mem, tok, r->j.text);
		else if (!strcmp(key, "name") && tok == DL_JSON_STR)
			snprintf(got.name, sizeof(got.name), "%.63s", r->j.text);
		err = dl_json_skip(&r->j, tok);
		if (err)
			return err;
	}
	if (tok < 0 || !id.ok)
		return tok < 0 ? tok : 0;
	dev = dl_import_device(r->imp, (uint32_t)id.v);
	if (!dev)
		return dl_oom(r->d);
	memcpy(dev->name, got.name, sizeof(dev->name));
	dev->mem = mem.ok && mem.v > 0 ? (uint64_t)mem.v : 0;
	return 0;
}

static int read_devices(struct reader *r)
{
	int tok, err;

	while ((tok = dl_json_next(&r->j)) > 0 && tok != DL_JSON_ARR_END) {
		err = tok == DL_JSON_OBJ ? read_device(r) : dl_json_skip(&r->j, tok);
		if (err)
			return err;
	}
	return tok < 0 ? tok : 0;
}

static int read_top(struct reader *r, bool *ret_events)
{
	struct dl_json *j = &r->j;
	char key[32];
	int tok;

	snprintf(key, sizeof(key), "%.31s", j->text);
	tok = dl_json_next(j);
	if (!strcmp(key, "traceEvents")) {
		if (tok > 0 && tok != DL_JSON_ARR)
			return dl_json_wrong(j, "traceEvents is no array");
		*ret_events = true;
		return tok < 0 ? tok : read_events(r);
	}
	if (!strcmp(key, "deviceProperties") && tok == DL_JSON_ARR)
		return read_devices(r);
	if (!strcmp(key, "baseTimeNanoseconds") && tok == DL_JSON_NUM &&
	    (!dl_json_int(j->text, &r->imp->info.base_ns) || r->imp->info.base_ns < 0 ||
	     r->imp->info.base_ns > INT64_MAX / 2))
		return dl_json_wrong(j, "baseTimeNanoseconds is no time");
	return dl_json_skip(j, tok);
}

static int read_file(struct reader *r)
{
	bool events = false;
	int tok = dl_json_next(&r->j), err;

	if (tok == DL_JSON_ARR) {
		err = read_events(r);	/* Chrome's other form: the array alone */
		return err ? err : dl_json_next(&r->j);
	}
	if (tok < 0)
		return tok;
	if (tok != DL_JSON_OBJ)
		return dl_json_wrong(&r->j, "neither a Kineto trace (JSON) nor an Nsight Systems export (SQLite)");
	while ((tok = dl_json_next(&r->j)) == DL_JSON_KEY) {
		err = read_top(r, &events);
		if (err)
			return err;
	}
	if (tok < 0)
		return tok;
	if (!events)
		return dl_json_wrong(&r->j, "no traceEvents: this is no Kineto trace");
	return dl_json_next(&r->j);
}

int dl_kineto_read(struct dl_import *imp, struct dl_diag *d)
{
	_cleanup_free_ struct reader *r = calloc(1, sizeof(*r));
	struct dl_diag own = {};
	struct dl_stream in;
	int err;

	if (!r)
		return dl_oom(d);
	err = dl_stream_open(&in, imp->path, d);
	if (err)
		return err;
	r->imp = imp;
	r->d = &own;
	dl_json_begin(&r->j, &in, &own);
	snprintf(imp->origin, sizeof(imp->origin), "Kineto trace");
	imp->info.has_clock = true;
	err = read_file(r);
	/* A profiler that was killed: all that is whole counts. */
	if (err < 0 && r->j.cut && imp->any) {
		snprintf(imp->cut, sizeof(imp->cut), "%.500s", own.msg);
		err = 0;
	}
	if (err < 0)
		dl_fail(d, err, "%s", own.msg);
	dl_stream_close(&in);
	return err;
}
