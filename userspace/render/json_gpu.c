/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* "copy_devices" and "gpus" of the JSON report. */
#include <inttypes.h>
#include <stdio.h>

#include "render/json_parts.h"

static void share_or_null(struct jsonb *b, struct json_object *o, const char *key, double share, bool known)
{
	if (known)
		jb_share(b, o, key, share);
	else
		jb_null(b, o, key);
}

static double share_of(uint64_t part, uint64_t whole)
{
	return whole ? (double)part / (double)whole : 0;
}

static void add_link(struct jsonb *b, struct json_object *parent, const struct dl_link *l)
{
	struct json_object *o = jb_object(b, parent, "link");

	json_known(b, o, "generation", l->gen, l->gen > 0);
	json_known(b, o, "width", l->width, l->width > 0);
	json_known(b, o, "max_generation", l->gen_max, l->gen_max > 0);
	json_known(b, o, "max_width", l->width_max, l->width_max > 0);
	json_known(b, o, "bytes_per_s", l->bps, l->bps > 0);
}

void json_copy_devices(struct jsonb *b, struct json_object *root, const struct dl_report *r)
{
	struct json_object *list = jb_array(b, root, "copy_devices");

	vec_for_each(&r->copy_devices, c) {
		struct json_object *o = jb_object(b, list, NULL), *numa;

		jb_u64(b, o, "device", c->device);
		jb_u64(b, o, "pid", c->pid);
		jb_str(b, o, "direction", c->to_device ? "host-to-device" : "device-to-host");
		jb_u64(b, o, "count", c->cnt);
		jb_u64(b, o, "bytes", c->bytes);
		jb_u64(b, o, "ns", c->ns);
		jb_u64(b, o, "cost_ns", c->cost_ns);
		jb_u64(b, o, "small_cost_ns", c->small_ns);
		jb_u64(b, o, "pageable_cost_ns", c->pageable_ns);
		jb_u64(b, o, "unknown_memory_cost_ns", c->unknown_ns);
		jb_u64(b, o, "overlap_ns", c->overlap_ns);
		jb_u64(b, o, "kernel_ns", c->kernel_ns);
		jb_u64(b, o, "median_bytes", c->median_bytes);
		jb_u64(b, o, "best_bytes_per_s", c->best_bps);
		jb_str(b, o, "problem", dl_copy_problem_id(c->problem));
		jb_share(b, o, "share", c->share);
		add_link(b, o, &c->link);
		numa = jb_object(b, o, "numa");
		json_known(b, numa, "device_node", (uint64_t)c->numa_node, c->numa_node >= 0);
		json_known(b, numa, "nodes", c->numa_nodes, c->numa_nodes > 0);
		json_known(b, numa, "min_distance", c->dist_min, c->dist_min > 0);
		json_known(b, numa, "max_distance", c->dist_max, c->dist_max > 0);
		share_or_null(b, numa, "thread_near_share", share_of(c->near_ns, c->cpu_ns), c->has_near && c->cpu_ns);
		/* Which node each page lies on cannot be told from here, unless there is only one. */
		json_known(b, numa, "memory_node", 0, c->numa_nodes == 1);
	}
}

static void add_memory(struct jsonb *b, struct json_object *parent, const struct dl_report *r,
		       const struct dl_gpu_report *g)
{
	struct json_object *o = jb_object(b, parent, "memory"), *curve;

	json_known(b, o, "total_bytes", g->mem_total, g->mem_total > 0);
	json_known(b, o, "first_bytes", g->used_first, g->has_mem);
	json_known(b, o, "last_bytes", g->used_last, g->has_mem);
	json_known(b, o, "peak_bytes", g->used_peak, g->has_mem);
	if (g->has_mem)
		jb_s64(b, o, "peak_at_ns", (int64_t)(g->used_peak_ts - r->start));
	else
		jb_null(b, o, "peak_at_ns");
	json_known(b, o, "recorded_last_bytes", g->proc_last, g->has_proc);
	json_known(b, o, "recorded_peak_bytes", g->proc_peak, g->has_proc);
	curve = jb_array(b, o, "curve");
	for (size_t i = 0; i < DL_GPU_CURVE; i++) {
		struct json_object *at;

		if (!g->curve[i] && !g->proc_curve[i])
			continue;
		at = jb_object(b, curve, NULL);
		jb_u64(b, at, "from_ns", (uint64_t)((double)r->duration_ns / DL_GPU_CURVE * (double)i));
		json_known(b, at, "used_bytes", g->curve[i], g->curve[i] > 0);
		json_known(b, at, "recorded_bytes", g->proc_curve[i], g->proc_curve[i] > 0);
	}
}

static void add_use(struct jsonb *b, struct json_object *parent, const struct dl_gpu_report *g)
{
	struct json_object *o = jb_object(b, parent, "utilisation");

	share_or_null(b, o, "mean", g->util_mean, g->has_util);
	share_or_null(b, o, "max", g->util_max, g->has_util);
	share_or_null(b, o, "memory_mean", g->mem_util_mean, g->has_util);
	o = jb_object(b, parent, "pcie");
	json_known(b, o, "to_device_mean_bytes_per_s", g->rx_mean_bps, g->has_pcie);
	json_known(b, o, "to_device_max_bytes_per_s", g->rx_max_bps, g->has_pcie);
	json_known(b, o, "from_device_mean_bytes_per_s", g->tx_mean_bps, g->has_pcie);
	json_known(b, o, "from_device_max_bytes_per_s", g->tx_max_bps, g->has_pcie);
}

static void add_pci(struct jsonb *b, struct json_object *o, uint64_t pci)
{
	char text[32];

	snprintf(text, sizeof(text), "%04" PRIx64 ":%02x:%02x.%x", pci >> 16, (unsigned int)(pci >> 8 & 0xff),
		 (unsigned int)(pci >> 3 & 0x1f), (unsigned int)(pci & 7));
	jb_str(b, o, "pci", pci ? text : NULL);
}

void json_gpus(struct jsonb *b, struct json_object *root, const struct dl_report *r)
{
	struct json_object *list = jb_array(b, root, "gpus");

	vec_for_each(&r->gpus, g) {
		struct json_object *o = jb_object(b, list, NULL);

		json_known(b, o, "nvml_index", (uint64_t)g->index, g->index >= 0);
		json_known(b, o, "device", (uint64_t)g->device, g->device >= 0);
		json_known(b, o, "pid", g->pid, g->pid > 0);
		jb_str(b, o, "name", g->name);
		add_pci(b, o, g->pci);
		jb_bool(b, o, "simulated", g->simulated);
		jb_bool(b, o, "partitioned", g->mig);
		jb_bool(b, o, "shared", g->shared);
		json_known(b, o, "numa_node", (uint64_t)g->numa_node, g->numa_node >= 0);
		jb_u64(b, o, "samples", g->samples);
		add_link(b, o, &g->link);
		add_memory(b, o, r, g);
		add_use(b, o, g);
	}
}
