/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The sizes and fields of CUPTI's records, release by release. Sizes from 11.8 to 13.0 were
 * measured with cuptiActivityGetNextRecord() of the published libraries, and tests/gpu measures
 * them again where it finds one; the others are those of the headers' structs. Largest callback
 * ids are known for 11.8, 12.9, 13.0 and 13.4; between them they are set to lie between.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "cupti_double.h"

#ifndef GPUSIM_RELEASE
#define GPUSIM_RELEASE "13.0"
#endif

static const struct layout layouts[] = {
	/*           answers  largest ids  memcpy p2p memset kernel sync overhead graph */
	{ "11.0",    13,      391, 614,    72,  80,  72, 160, 40, 40, 48 },
	{ "11.1",    14,      400, 640,    80,  88,  80, 160, 40, 40, 48 },
	{ "11.2",    15,      410, 650,    80,  88,  80, 168, 40, 40, 48 },
	{ "11.6",    17,      430, 660,    88,  96,  88, 176, 40, 40, 48 },
	{ "11.8",    18,      434, 677,    88,  96,  88, 200, 40, 40, 48 },
	{ "12.1",    18,      444, 690,    88,  96,  88, 208, 40, 40, 48 },
	{ "12.4",    22,      455, 730,    88,  96,  88, 208, 40, 56, 56 },
	{ "12.6",    24,      475, 760,    88,  96,  88, 208, 40, 56, 56 },
	{ "12.8",    26,      486, 780,    96,  96,  88, 208, 56, 56, 56 },
	{ "12.9",    28,      487, 784,    96,  96,  88, 208, 56, 56, 56 },
	{ "13.0",    130001,  523, 807,    96,  96,  88, 216, 56, 56, 56 },
	{ "13.1",    130100,  530, 820,    96,  96,  88, 224, 56, 56, 56 },
	{ "13.2",    130200,  540, 840,    96,  96,  88, 232, 56, 56, 56 },
	{ "13.4",    130401,  566, 868,    112, 96, 104, 248, 56, 56, 56 },
};

const struct layout *layout(void)
{
	static const struct layout *found;
	const char *want;

	if (found)
		return found;
	want = getenv("GPUSIM_CUPTI_RELEASE");
	if (!want || !want[0])
		want = GPUSIM_RELEASE;
	for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++)
		if (!strcmp(layouts[i].release, want))
			found = &layouts[i];
	if (!found)
		abort();	/* a misspelt release must not pass for another */
	return found;
}

size_t record_size(uint32_t kind)
{
	const struct layout *l = layout();
	bool v12_4 = l->overhead_sz == 56, v12_8 = l->sync_sz == 56;

	switch (kind) {
	case 1: return l->memcpy_sz;
	case 2: return l->memset_sz;
	case 3: case 10: return l->kernel_sz;
	case 4: case 5: case 48: return 40;
	case 8: return v12_4 ? 184 : 176;
	case 9: return v12_8 || l->version >= 24 ? 32 : v12_4 ? 24 : 16;
	case 11: return 32;
	case 12: return 56;
	case 13: return l->version >= 130000 ? 40 : 32;
	case 17: return l->overhead_sz;
	case 22: return l->p2p_sz;
	case 36: return v12_8 ? 56 : 24;
	case 37: return 24;
	case 38: return l->sync_sz;
	case 39: return 24;
	case 45: return 80;
	case 49: return l->version >= 24 ? 128 : 120;
	case 51: return l->graph_sz;
	default: return 0;
	}
}

cupti_result walk(uint8_t *buf, size_t valid, uint8_t **record)
{
	uint8_t *next;
	uint32_t kind;
	size_t sz;

	if (!buf || !record)
		return CUPTI_ABI_ERR_PARAM;
	if (!*record) {
		next = buf;
	} else {
		memcpy(&kind, *record, sizeof(kind));
		next = *record + record_size(kind);
	}
	if (next + sizeof(kind) > buf + valid)
		return CUPTI_ABI_ERR_LIMIT;
	memcpy(&kind, next, sizeof(kind));
	sz = record_size(kind);
	if (!sz)
		return layout()->version == 18 ? CUPTI_ABI_ERR_UNKNOWN : CUPTI_ABI_ERR_KIND;
	if (next + sz > buf + valid)
		return CUPTI_ABI_ERR_LIMIT;
	*record = next;
	return CUPTI_ABI_OK;
}

/* --- filling in --------------------------------------------------------------------------------- */

static bool system_ids;

void record_thread_ids(bool system)
{
	system_ids = system;
}

bool record_system_ids(void)
{
	return system_ids;
}

static void begin(struct record *r, uint32_t kind, size_t start_off)
{
	memset(r, 0, sizeof(*r));
	r->sz = record_size(kind);
	r->start_off = start_off;
	memcpy(r->bytes, &kind, sizeof(kind));
}

static void fill_kernel(struct record *r, const struct sim_op *op, uint32_t kind)
{
	struct cupti_kernel *k = (void *)r->bytes;

	begin(r, kind, offsetof(struct cupti_kernel, start));
	k->device = op->device;
	k->context = op->context;
	k->stream = op->stream;
	k->corr = op->corr;
	k->name = op->name;
	k->grid_id = op->corr;
	for (int i = 0; i < 3; i++) {
		k->grid[i] = (int32_t)op->grid[i];
		k->block[i] = (int32_t)op->block[i];
	}
}

static void fill_memcpy(struct record *r, const struct sim_op *op)
{
	struct cupti_memcpy *m = (void *)r->bytes;

	begin(r, CUPTI_ABI_KIND_MEMCPY, offsetof(struct cupti_memcpy, start));
	m->copy_kind = op->dir;
	m->src_kind = op->src;
	m->dst_kind = op->dst;
	m->flags = op->async;
	m->bytes = op->bytes;
	m->device = op->device;
	m->context = op->context;
	m->stream = op->stream;
	m->corr = op->corr;
}

static void fill_memset(struct record *r, const struct sim_op *op)
{
	struct cupti_memset *m = (void *)r->bytes;

	begin(r, CUPTI_ABI_KIND_MEMSET, offsetof(struct cupti_memset, start));
	m->bytes = op->bytes;
	m->device = op->device;
	m->context = op->context;
	m->stream = op->stream;
	m->corr = op->corr;
	m->flags = op->async;
	m->memory_kind = op->dst;
}

static void fill_sync(struct record *r, const struct sim_op *op)
{
	struct cupti_sync *s = (void *)r->bytes;

	begin(r, CUPTI_ABI_KIND_SYNC, offsetof(struct cupti_sync, start));
	s->type = op->sync_type;
	s->context = op->context;
	s->stream = op->stream;
	s->event = op->event;
	s->corr = op->corr;
}

static void fill_graph(struct record *r, const struct sim_op *op)
{
	struct cupti_graph_trace *t = (void *)r->bytes;

	begin(r, CUPTI_ABI_KIND_GRAPH_TRACE, offsetof(struct cupti_graph_trace, start));
	t->corr = op->corr;
	t->device = op->device;
	t->graph = op->graph;
	t->context = op->context;
	t->stream = op->stream;
}

void record_of_op(struct record *r, const struct sim_op *op, uint32_t kernel_kind)
{
	r->sz = 0;
	switch (op->kind) {
	case SIM_KERNEL:
		fill_kernel(r, op, kernel_kind);
		break;
	case SIM_MEMCPY:
		fill_memcpy(r, op);
		break;
	case SIM_MEMSET:
		fill_memset(r, op);
		break;
	case SIM_SYNC:
		fill_sync(r, op);
		break;
	case SIM_GRAPH:
		fill_graph(r, op);
		break;
	}
}

void record_of_call(struct record *r, const struct sim_call *call, uint32_t pid)
{
	uint32_t kind = call->domain == SIM_RUNTIME ? CUPTI_ABI_KIND_RUNTIME : CUPTI_ABI_KIND_DRIVER;
	struct cupti_api *a = (void *)r->bytes;

	begin(r, kind, offsetof(struct cupti_api, start));
	a->cbid = call->cbid;
	a->pid = pid;
	/* By default CUPTI gives a cut-off pthread_self(). */
	a->tid = system_ids ? call->tid : (uint32_t)(uintptr_t)pthread_self();
	a->corr = call->corr;
	a->ret = call->ret;
}

void record_times(struct record *r, uint64_t start, uint64_t end)
{
	memcpy(r->bytes + r->start_off, &start, sizeof(start));
	memcpy(r->bytes + r->start_off + 8, &end, sizeof(end));
}

void record_blank_after(uint8_t *rec, uint64_t limit)
{
	static const size_t offs[52] = {
		[1] = 16, [2] = 16, [3] = 16, [10] = 16, [22] = 16, [51] = 8,
	};
	uint32_t kind;
	uint64_t end;

	memcpy(&kind, rec, sizeof(kind));
	if (kind >= 52 || !offs[kind])
		return;
	memcpy(&end, rec + offs[kind] + 8, sizeof(end));
	if (end > limit)
		memset(rec + offs[kind], 0, 16);
}

const char *call_name(int domain, uint32_t cbid)
{
	static const struct { int domain; uint32_t cbid; const char *name; } names[] = {
		{ 1, 118, "cuEventCreate" }, { 1, 119, "cuEventRecord" }, { 1, 120, "cuEventQuery" },
		{ 1, 124, "cuStreamCreate" }, { 1, 125, "cuStreamQuery" },
		{ 1, 295, "cuStreamWaitEvent" }, { 1, 307, "cuLaunchKernel" },
		{ 2, 132, "cudaStreamQuery_v3020" }, { 2, 134, "cudaEventCreateWithFlags_v3020" },
		{ 2, 135, "cudaEventRecord_v3020" }, { 2, 138, "cudaEventQuery_v3020" },
		{ 2, 147, "cudaStreamWaitEvent_v3020" }, { 2, 198, "cudaStreamCreateWithFlags_v5000" },
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (names[i].domain == domain && names[i].cbid == cbid)
			return names[i].name;
	return NULL;
}
