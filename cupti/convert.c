/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* CUPTI's records, read by their prefixes, to events in the ring. Times stay CUPTI's. */
#include "agent.h"

#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PUBLISH_EVERY 256	/* records: a long buffer becomes visible, and safe, in parts */

static struct {
	const struct cupti_api_table *cupti;
	unsigned int mode;
	uint32_t pid, own_tid;
	size_t kernel_sz;	/* what this library's kernel records measure */
	struct convert_counts cnt;
} conv;

/*
 * What the library's own walker takes for the size of a kind: in a buffer that holds that kind at
 * every multiple of 8, the second record starts where the first ends. 0 where it will not say.
 */
static size_t measure(uint32_t kind)
{
	static uint64_t buf[128];	/* 1 KiB: the largest known record is 248 bytes */
	uint8_t *rec = NULL;

	for (size_t i = 0; i < sizeof(buf) / sizeof(buf[0]); i++)
		buf[i] = kind;
	if (use_next_record((uint8_t *)buf, sizeof(buf), &rec) ||
	    use_next_record((uint8_t *)buf, sizeof(buf), &rec))
		return 0;
	return (size_t)(rec - (uint8_t *)buf);
}

void convert_begin(const struct cupti_api_table *cupti, uint32_t pid)
{
	conv.cupti = cupti;
	conv.pid = pid;
	conv.own_tid = (uint32_t)syscall(SYS_gettid);
	conv.kernel_sz = measure(CUPTI_ABI_KIND_CONCURRENT_KERNEL);
}

void convert_mode(unsigned int mode)
{
	conv.mode = mode;
}

const struct convert_counts *convert_counts(void)
{
	return &conv.cnt;
}

#define HEADER(KIND, TAG, START, TID) { .size = sizeof(struct dl_ev_##TAG), .kind = DL_EV_##KIND, \
	.ts = (START), .tid = (TID), .pid = conv.pid, .cpu = DL_CPU_NONE }
#define PUT(ev) ring_put(&(ev), sizeof(ev), false)

/* Both are 0 where the device's own buffers were full and CUPTI lost the times. */
static bool timeless(uint64_t start, uint64_t end)
{
	if (start && end)
		return false;
	conv.cnt.zero++;
	return true;
}

static void put_kernel(const uint8_t *rec)
{
	const struct cupti_kernel *k = (const void *)rec;
	struct dl_ev_gpu_kernel ev = {
		.h = HEADER(GPU_KERNEL, gpu_kernel, k->start, 0),
		.end = k->end, .device = k->device, .context = k->context, .stream = k->stream,
		.corr = k->corr,
		.graph = conv.kernel_sz >= sizeof(*k) ? k->graph : 0,
	};

	if (timeless(k->start, k->end))
		return;
	ev.name = names_id(k->name);
	PUT(ev);
}

static void put_memcpy(const uint8_t *rec)
{
	const struct cupti_memcpy *m = (const void *)rec;
	struct dl_ev_gpu_memcpy ev = {
		.h = HEADER(GPU_MEMCPY, gpu_memcpy, m->start, 0),
		.end = m->end, .bytes = m->bytes, .device = m->device, .context = m->context,
		.stream = m->stream, .corr = m->corr, .dir = m->copy_kind, .src = m->src_kind,
		.dst = m->dst_kind, .flags = m->flags & 1,
	};

	if (!timeless(m->start, m->end))
		PUT(ev);
}

static void put_memcpy_p2p(const uint8_t *rec)
{
	const struct cupti_memcpy_p2p *m = (const void *)rec;
	struct dl_ev_gpu_memcpy ev = {
		.h = HEADER(GPU_MEMCPY, gpu_memcpy, m->start, 0),
		.end = m->end, .bytes = m->bytes, .device = m->device, .context = m->context,
		.stream = m->stream, .corr = m->corr, .dir = DL_GPU_PTOP, .src = m->src_kind,
		.dst = m->dst_kind, .flags = m->flags & 1,
	};

	if (!timeless(m->start, m->end))
		PUT(ev);
}

static void put_memset(const uint8_t *rec)
{
	const struct cupti_memset *m = (const void *)rec;
	struct dl_ev_gpu_memset ev = {
		.h = HEADER(GPU_MEMSET, gpu_memset, m->start, 0),
		.end = m->end, .bytes = m->bytes, .device = m->device, .context = m->context,
		.stream = m->stream, .corr = m->corr,
	};

	if (!timeless(m->start, m->end))
		PUT(ev);
}

static void put_sync(const uint8_t *rec)
{
	const struct cupti_sync *s = (const void *)rec;
	struct dl_ev_gpu_sync ev = {
		.h = HEADER(GPU_SYNC, gpu_sync, s->start, 0),
		.end = s->end, .type = s->type, .context = s->context, .stream = s->stream,
		.event = s->event, .corr = s->corr,
	};

	if (!timeless(s->start, s->end))
		PUT(ev);
}

/* In whole-kind recording (CUPTI before 12.5) this is where the calls of no interest go. */
static void put_api(const uint8_t *rec)
{
	const struct cupti_api *a = (const void *)rec;
	bool driver = a->kind == CUPTI_ABI_KIND_DRIVER;
	unsigned int domain = driver ? DL_GPU_DRIVER : DL_GPU_RUNTIME;
	const struct call *c = call_find(domain, a->cbid);
	const char *name = c ? c->name : NULL;
	struct dl_ev_gpu_api ev = {
		.h = HEADER(GPU_API, gpu_api, a->start, a->tid),
		.end = a->end, .domain = domain, .cbid = a->cbid, .corr = a->corr, .ret = a->ret,
		.class = c ? c->class : DL_CALL_OTHER,
	};

	if (driver && a->cbid == CUPTI_ABI_DRIVER_GET_VERSION && a->tid == conv.own_tid) {
		conv.cnt.beats++;
		return;
	}
	if (conv.mode != DL_GPU_MODE_FULL && !c)
		return;
	if (conv.mode == DL_GPU_MODE_LIGHT && !c->light)
		return;
	if (timeless(a->start, a->end))
		return;
	if (c && !a->ret) {
		conv.cnt.asked += c->class == DL_CALL_LAUNCH || c->class == DL_CALL_COPY;
		conv.cnt.waits += c->class == DL_CALL_SYNC;
	}
	if (!name && conv.cupti->callback_name &&
	    conv.cupti->callback_name(driver ? CUPTI_ABI_DOMAIN_DRIVER : CUPTI_ABI_DOMAIN_RUNTIME,
				      a->cbid, &name))
		name = NULL;
	ev.name = names_id(name);
	PUT(ev);
}

static void put_overhead(const uint8_t *rec)
{
	const struct cupti_overhead *o = (const void *)rec;
	struct dl_ev_gpu_overhead ev = {
		.h = HEADER(GPU_OVERHEAD, gpu_overhead, o->start, 0),
		.end = o->end, .kind = o->overhead_kind,
	};

	if (!timeless(o->start, o->end))
		PUT(ev);
}

static void put_graph(const uint8_t *rec)
{
	const struct cupti_graph_trace *t = (const void *)rec;
	struct dl_ev_gpu_graph ev = {
		.h = HEADER(GPU_GRAPH, gpu_graph, t->start, 0),
		.end = t->end, .device = t->device, .context = t->context, .stream = t->stream,
		.corr = t->corr, .graph = t->graph,
	};

	if (!timeless(t->start, t->end))
		PUT(ev);
}

static const struct {
	uint32_t kind;
	uint32_t min_sz;	/* up to the last field read */
	void (*put)(const uint8_t *rec);
	bool work;
} kinds[] = {
	{ CUPTI_ABI_KIND_CONCURRENT_KERNEL, offsetof(struct cupti_kernel, submitted), put_kernel, true },
	{ CUPTI_ABI_KIND_KERNEL, offsetof(struct cupti_kernel, submitted), put_kernel, true },
	{ CUPTI_ABI_KIND_RUNTIME, sizeof(struct cupti_api), put_api, false },
	{ CUPTI_ABI_KIND_DRIVER, sizeof(struct cupti_api), put_api, false },
	{ CUPTI_ABI_KIND_MEMCPY, sizeof(struct cupti_memcpy), put_memcpy, true },
	{ CUPTI_ABI_KIND_SYNC, sizeof(struct cupti_sync), put_sync, false },
	{ CUPTI_ABI_KIND_MEMSET, offsetof(struct cupti_memset, flags), put_memset, true },
	{ CUPTI_ABI_KIND_MEMCPY_P2P, sizeof(struct cupti_memcpy_p2p), put_memcpy_p2p, true },
	{ CUPTI_ABI_KIND_GRAPH_TRACE, sizeof(struct cupti_graph_trace), put_graph, true },
	{ CUPTI_ABI_KIND_OVERHEAD, sizeof(struct cupti_overhead), put_overhead, false },
};

static void put_record(const uint8_t *rec, size_t left)
{
	uint32_t kind;

	memcpy(&kind, rec, sizeof(kind));
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (kinds[i].kind != kind)
			continue;
		conv.cnt.work += kinds[i].work;
		if (left < kinds[i].min_sz)
			conv.cnt.unknown++;
		else
			kinds[i].put(rec);
		return;
	}
	/* A kind that was not asked for, of known size: another subscriber's. Not a loss. */
}

void convert_buffer(uint8_t *buf, size_t valid)
{
	unsigned int cnt = 0;
	uint8_t *rec = NULL;
	cupti_result err;

	while (!(err = use_next_record(buf, valid, &rec))) {
		/* Bounds in case of a walker that errs. */
		if (rec < buf || rec + sizeof(uint32_t) > buf + valid)
			break;
		put_record(rec, (size_t)(buf + valid - rec));
		if (++cnt % PUBLISH_EVERY == 0)
			ring_publish();
	}
	/* The walker cannot step over a kind it does not know: the rest of the buffer is lost. */
	if (err != CUPTI_ABI_ERR_LIMIT)
		conv.cnt.unknown++;
	ring_publish();
}
