/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What NVML and sysfs saw of the devices: memory over the run, use, the link. */
#include "diagnose/copies.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "trace/schema.h"

#define UNKNOWN UINT32_MAX

/* While a row is being filled: sums for the means. */
struct sums {
	uint64_t util_cnt, util, mem_util;
	uint64_t pcie_cnt, rx, tx;
	bool ours;		/* a recorded process was on it, or it is matched with a device that one used */
};

struct sums_vec { struct sums *v; size_t cnt, cap; };

/* --- links -------------------------------------------------------------------------------------- */

/* Bytes a second of one lane, behind the line code: 8b/10b up to 5 GT/s, 128b/130b up to 32 GT/s, and the
 * 242 of 256 bytes of a flit that carry packets at 64 GT/s. */
static const uint64_t lane_bps[] = { 0, 250000000, 500000000, 984615385, 1969230769, 3938461538, 7562500000 };

uint64_t dl_link_bps(uint32_t gen, uint32_t width)
{
	if (gen >= sizeof(lane_bps) / sizeof(lane_bps[0]) || width > 32)
		return 0;
	return lane_bps[gen] * width;
}

static void take_faster(struct dl_link *l, uint32_t gen, uint32_t width)
{
	const uint64_t bps = dl_link_bps(gen, width);

	if (bps <= l->bps)
		return;
	l->gen = gen;
	l->width = width;
	l->bps = bps;
}

static void take_link(struct dl_link *l, const struct dl_ev_gpu_link *ev)
{
	take_faster(l, ev->gen, ev->width);
	l->gen_max = ev->gen_max;
	l->width_max = ev->width_max;
}

const struct dl_ev_gpu_link *dl_link_of(const struct dl_timeline *tl, uint32_t pid, uint32_t device, struct dl_link *ret)
{
	const struct dl_ev_gpu_link *found = NULL;

	vec_for_each(&tl->gpu_looks, k) {
		const struct dl_ev_gpu_link *ev = (const void *)k->ev;

		if (ev->h.kind == DL_EV_GPU_LINK && ev->h.pid == pid && ev->device == device &&
		    ev->match != DL_GPU_MATCH_NONE)
			found = ev;
	}
	if (!found)
		return NULL;
	take_link(ret, found);
	vec_for_each(&tl->gpu_looks, k) {
		const struct dl_ev_gpu_sample *s = (const void *)k->ev;

		if (s->h.kind == DL_EV_GPU_SAMPLE && s->index == found->index && (s->flags & DL_GS_LINK))
			take_faster(ret, s->gen, s->width);
	}
	return found;
}

/* --- rows --------------------------------------------------------------------------------------- */

static bool uses(const struct dl_timeline *tl, uint32_t pid, uint32_t device)
{
	vec_for_each(&tl->procs, p) {
		if (p->pid != pid)
			continue;
		vec_for_each(&p->devices, id) {
			if (*id == device)
				return true;
		}
	}
	return false;
}

static struct dl_gpu_report *row_of(struct dl_report *r, struct sums_vec *sums, uint32_t index, uint64_t pci)
{
	struct dl_gpu_report *row;

	vec_for_each(&r->gpus, it) {
		if (index != UNKNOWN ? it->index == index : it->index < 0 && it->pci == pci)
			return it;
	}
	if (!vec_push(sums))
		return NULL;
	row = vec_push(&r->gpus);
	if (!row)
		return NULL;
	row->index = index == UNKNOWN ? -1 : (int64_t)index;
	row->pci = pci;
	row->device = -1;
	row->numa_node = -1;
	return row;
}

static int add_link(struct dl_report *r, const struct dl_timeline *tl, struct sums_vec *sums,
		    const struct dl_ev_gpu_link *ev)
{
	struct dl_gpu_report *row = row_of(r, sums, ev->index, ev->pci);
	const bool used = ev->match != DL_GPU_MATCH_NONE && uses(tl, ev->h.pid, ev->device);
	const char *text;
	size_t len;

	if (!row)
		return -ENOMEM;
	if (used && row->device < 0) {
		row->device = ev->device;
		row->pid = ev->h.pid;
	}
	row->pid = row->pid ? row->pid : ev->h.pid;
	sums->v[row - r->gpus.v].ours |= used || ev->match == DL_GPU_MATCH_NONE;
	row->pci = ev->pci;
	row->simulated |= (ev->flags & DL_GL_SIMULATED) != 0;
	row->mig |= (ev->flags & DL_GL_MIG) != 0;
	row->numa_node = ev->numa_node;
	row->mem_total = ev->mem_total;
	take_link(&row->link, ev);
	text = dl_event_tail(&ev->h, &len);
	if (row->name || !text || !len)
		return 0;
	row->name = strndup(text, len);
	return row->name ? 0 : -ENOMEM;
}

static uint32_t stretch(const struct dl_timeline *tl, uint64_t ts)
{
	const uint64_t len = tl->end > tl->start ? tl->end - tl->start : 1;
	const uint64_t at = ts > tl->start ? ts - tl->start : 0;

	return at >= len ? DL_GPU_CURVE - 1 : (uint32_t)((double)at / (double)len * DL_GPU_CURVE);
}

static void take_memory(struct dl_gpu_report *row, const struct dl_timeline *tl, const struct dl_ev_gpu_sample *s)
{
	const uint32_t at = stretch(tl, s->h.ts);

	if (s->flags & DL_GS_MEM) {
		row->used_first = row->has_mem ? row->used_first : s->mem_used;
		row->used_last = s->mem_used;
		row->has_mem = true;
		row->mem_total = s->mem_total;
		if (s->mem_used > row->used_peak) {
			row->used_peak = s->mem_used;
			row->used_peak_ts = s->h.ts;
		}
		if (s->mem_used > row->curve[at])
			row->curve[at] = s->mem_used;
	}
	if (!(s->flags & DL_GS_PROC_MEM) || !s->proc_cnt)
		return;
	row->has_proc = true;
	row->proc_last = s->proc_used;
	if (s->proc_used > row->proc_peak) {
		row->proc_peak = s->proc_used;
		row->proc_peak_ts = s->h.ts;
	}
	if (s->proc_used > row->proc_curve[at])
		row->proc_curve[at] = s->proc_used;
}

static double percent(uint32_t v)
{
	return v > 100 ? 1 : (double)v / 100;
}

static void take_use(struct dl_gpu_report *row, struct sums *sum, const struct dl_ev_gpu_sample *s)
{
	if (s->flags & DL_GS_UTIL) {
		row->has_util = true;
		sum->util_cnt++;
		sum->util += s->util_gpu;
		sum->mem_util += s->util_mem;
		if (percent(s->util_gpu) > row->util_max)
			row->util_max = percent(s->util_gpu);
	}
	if (s->flags & DL_GS_PCIE) {
		const uint64_t rx = s->rx_kbps * 1000ULL, tx = s->tx_kbps * 1000ULL;

		row->has_pcie = true;
		sum->pcie_cnt++;
		sum->rx += rx;
		sum->tx += tx;
		row->rx_max_bps = rx > row->rx_max_bps ? rx : row->rx_max_bps;
		row->tx_max_bps = tx > row->tx_max_bps ? tx : row->tx_max_bps;
	}
	if (s->flags & DL_GS_LINK)
		take_faster(&row->link, s->gen, s->width);
}

static void take_sample(struct dl_report *r, struct sums_vec *sums, const struct dl_timeline *tl,
			const struct dl_ev_gpu_sample *s)
{
	vec_for_each(&r->gpus, row) {
		struct sums *sum = &sums->v[row - r->gpus.v];

		if (row->index != s->index)
			continue;
		row->samples++;
		row->shared |= s->other_cnt > 0;
		sum->ours |= s->proc_cnt > 0;
		take_memory(row, tl, s);
		take_use(row, sum, s);
		return;
	}
}

static void finish_row(struct dl_gpu_report *row, const struct sums *sum)
{
	if (sum->util_cnt) {
		row->util_mean = (double)sum->util / (double)sum->util_cnt / 100;
		row->mem_util_mean = (double)sum->mem_util / (double)sum->util_cnt / 100;
		row->util_mean = row->util_mean > 1 ? 1 : row->util_mean;
		row->mem_util_mean = row->mem_util_mean > 1 ? 1 : row->mem_util_mean;
	}
	if (sum->pcie_cnt) {
		row->rx_mean_bps = sum->rx / sum->pcie_cnt;
		row->tx_mean_bps = sum->tx / sum->pcie_cnt;
	}
}

/* A process may see all devices of the machine and use one. */
static void keep_ours(struct dl_report *r, const struct sums_vec *sums)
{
	size_t kept = 0;

	for (size_t i = 0; i < r->gpus.cnt; i++) {
		if (!sums->v[i].ours) {
			free(r->gpus.v[i].name);
			continue;
		}
		finish_row(&r->gpus.v[i], &sums->v[i]);
		r->gpus.v[kept++] = r->gpus.v[i];
	}
	r->gpus.cnt = kept;
}

int dl_sum_gpus(struct dl_report *r, const struct dl_timeline *tl, struct dl_diag *d)
{
	struct sums_vec sums = {};
	int err = 0;

	/* The first samples are older than what says whose devices they are about. */
	vec_for_each(&tl->gpu_looks, k) {
		if (k->ev->kind == DL_EV_GPU_LINK)
			err = err ? err : add_link(r, tl, &sums, (const void *)k->ev);
	}
	vec_for_each(&tl->gpu_looks, k) {
		if (!err && k->ev->kind == DL_EV_GPU_SAMPLE)
			take_sample(r, &sums, tl, (const void *)k->ev);
	}
	if (!err)
		keep_ours(r, &sums);
	vec_free(&sums);
	return err ? dl_oom(d) : 0;
}
