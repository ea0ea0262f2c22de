/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What takes how long. Two presets, fitted to published traces; README.md has the derivation of
 * each number and says which are assumptions. GPUSIM_PRESET chooses, GPUSIM_<NAME> overrides.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

static const struct sim_model presets[] = {
	{	/* Kineto's resnet50 sample, workers0 */
		.name = "v100",
		.mem_sz = 34084028416ULL,
		.pinned_bps = 12300000000ULL,	/* assumed: PCIe 3.0 x16 */
		.pageable_bps = 9940000000ULL,
		.dtoh_bps = 12300000000ULL,	/* assumed */
		.dtod_bps = 400000000000ULL,	/* assumed: half the memory's rate, read and write */
		.memset_bps = 900000000000ULL,
		.copy_ns = 1200,
		.launch_ns = 9000, .start_ns = 2000, .gap_ns = 1000,
		.memcpy_ns = 7000, .small_ns = 12000, .stage_ns = 160000, .tail_ns = 80000,
		.sync_ns = 5000, .event_ns = 2000, .query_ns = 4000,
		.malloc_ns = 100000, .free_ns = 50000,			/* assumed */
		.host_alloc_ns = 50000, .host_page_ns = 250,		/* assumed */
		.module_ns = 1000000, .graph_ns = 5000000,		/* assumed */
	},
	{	/* nsys-ai's sample of two H100 */
		.name = "h100",
		.mem_sz = 85520809984ULL,
		.pinned_bps = 27690000000ULL,
		.pageable_bps = 12000000000ULL,	/* assumed: what one core copies */
		.dtoh_bps = 27690000000ULL,	/* assumed as to the device */
		.dtod_bps = 1518000000000ULL,
		.memset_bps = 2000000000000ULL,	/* assumed */
		.copy_ns = 2760,
		.launch_ns = 5400, .start_ns = 3500, .gap_ns = 1250,
		.memcpy_ns = 6300, .small_ns = 6300, .stage_ns = 100000, .tail_ns = 60000,
		.sync_ns = 5000, .event_ns = 2700, .query_ns = 2000,
		.malloc_ns = 100000, .free_ns = 50000,
		.host_alloc_ns = 50000, .host_page_ns = 250,
		.module_ns = 1000000, .graph_ns = 5000000,
	},
};

static void set_u64(uint64_t *v, const char *name, double unit)
{
	const char *s = getenv(name);

	if (s && s[0])
		*v = (uint64_t)(atof(s) * unit);
}

static void set_us(uint32_t *v, const char *name)
{
	const char *s = getenv(name);

	if (s && s[0])
		*v = (uint32_t)(atof(s) * 1e3);
}

void model_load(struct sim_model *m)
{
	const char *preset = getenv("GPUSIM_PRESET");

	*m = presets[0];
	for (size_t i = 0; preset && i < sizeof(presets) / sizeof(presets[0]); i++)
		if (!strcmp(presets[i].name, preset))
			*m = presets[i];
	set_u64(&m->pinned_bps, "GPUSIM_PINNED_GBPS", 1e9);
	set_u64(&m->pageable_bps, "GPUSIM_PAGEABLE_GBPS", 1e9);
	set_u64(&m->dtoh_bps, "GPUSIM_DTOH_GBPS", 1e9);
	set_u64(&m->mem_sz, "GPUSIM_MEM_GB", 1e9);
	set_us(&m->launch_ns, "GPUSIM_LAUNCH_US");
	set_us(&m->start_ns, "GPUSIM_START_US");
	set_us(&m->gap_ns, "GPUSIM_GAP_US");
	set_us(&m->memcpy_ns, "GPUSIM_MEMCPY_US");
	set_us(&m->stage_ns, "GPUSIM_STAGE_US");
	set_us(&m->sync_ns, "GPUSIM_SYNC_US");
	set_us(&m->malloc_ns, "GPUSIM_MALLOC_US");
	set_us(&m->host_alloc_ns, "GPUSIM_HOST_ALLOC_US");
	set_us(&m->module_ns, "GPUSIM_MODULE_US");
	set_us(&m->graph_ns, "GPUSIM_GRAPH_US");
	if (!m->pinned_bps || !m->pageable_bps || !m->dtoh_bps)
		*m = presets[0];
}
