/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What is wrong with the copies of each device, and what NVML saw of the devices. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <dlbpf/event.h>

#include "base/cleanup.h"
#include "render/text_parts.h"
#include "render/who.h"

static const struct tx_col fact_cols[] = { TX_LEFT(""), TX_LEFT("") };

/* A line of two columns; the text is freed. */
static void add_fact(struct tx *t, struct tx_table *tab, const char *what, struct dl_str *text)
{
	if (text->err)
		t->s.err = text->err;
	else if (text->len) {
		tx_table_row(tab);
		tx_cell(t, tab, what);
		tx_cell(t, tab, text->s);
	}
	dl_str_fini(text);
}

static const char *rate(tx_buf buf, uint64_t bps)
{
	return tx_rate(buf, bps, 1000000000);
}

static void add_link(struct dl_str *out, const struct dl_link *l)
{
	tx_buf a;

	dl_str_addf(out, "PCIe gen %" PRIu32 " x%" PRIu32, l->gen, l->width);
	if (l->gen_max && l->width_max && (l->gen_max != l->gen || l->width_max != l->width))
		dl_str_addf(out, " (device and slot could do gen %" PRIu32 " x%" PRIu32 ")", l->gen_max, l->width_max);
	dl_str_addf(out, ", %s in each direction in theory", rate(a, l->bps));
}

/* --- copies -------------------------------------------------------------------------------------- */

/* Rows of the device and the direction that the judgement is about. */
static bool is_of(const struct dl_copy_row *row, const struct dl_copy_device *c)
{
	const bool to = row->dir == DL_GPU_HTOD || row->dir == DL_GPU_HTOA;
	const bool from = row->dir == DL_GPU_DTOH || row->dir == DL_GPU_ATOH;

	return row->pid == c->pid && row->device == c->device && (c->to_device ? to : from);
}

static void say_problem(struct dl_str *out, const struct dl_copy_device *c)
{
	tx_buf a;

	switch (c->problem) {
	case DL_COPY_TOO_SMALL:
		dl_str_addf(out, "too small: copies below 256 KiB are %s of what copying cost", tx_pct_round(a, c->share));
		break;
	case DL_COPY_PAGEABLE:
		dl_str_addf(out, "pageable memory: %s of what copying cost", tx_pct_round(a, c->share));
		break;
	case DL_COPY_NOT_OVERLAPPED:
		dl_str_addf(out, "not overlapped: %s of the time that could have lain beside kernels did not",
			    tx_pct_round(a, c->share));
		break;
	case DL_COPY_LINK:
		dl_str_add(out, "nothing but the link: large copies, not pageable, beside kernels");
		break;
	default:
		dl_str_add(out, "nothing");
		break;
	}
}

static void say_memory(struct dl_str *out, const struct dl_report *r, const struct dl_copy_device *c)
{
	const char *sep = "";

	vec_for_each(&r->copies, row) {
		tx_buf n, b, t;

		if (!is_of(row, c))
			continue;
		dl_str_addf(out, "%s%s: %s of the copies, %s of the bytes, %s of the time", sep, dl_copy_mem_id(row->mem),
			    tx_pct_of(n, row->cnt, c->cnt), tx_pct_of(b, row->bytes, c->bytes), tx_pct_of(t, row->ns, c->ns));
		sep = "; ";
	}
}

static void say_rate(struct dl_str *out, const struct dl_copy_device *c)
{
	const uint64_t mean = c->ns ? (uint64_t)((double)c->bytes * 1e9 / (double)c->ns) : 0;
	tx_buf a, b;

	if (c->link.bps)
		add_link(out, &c->link);
	else
		dl_str_add(out, "generation and width are not known (NVML and sysfs say)");
	if (mean) {
		dl_str_addf(out, "; copies ran at %s", rate(a, mean));
		if (c->link.bps)
			dl_str_addf(out, " (%s)", tx_pct_of(b, mean, c->link.bps));
	}
	if (c->best_bps) {
		dl_str_addf(out, ", the best at %s", rate(a, c->best_bps));
		if (c->link.bps)
			dl_str_addf(out, " (%s)", tx_pct_of(b, c->best_bps, c->link.bps));
	}
	if (c->link.bps && c->best_bps > c->link.bps)
		dl_str_add(out, ", more than that link carries: what is known of it, or of the copies, is wrong");
}

/* How long the calls took, and how long their threads were on a CPU in them. */
static void say_host(struct dl_str *out, const struct dl_report *r, const struct dl_copy_device *c)
{
	uint64_t call[2] = {}, cpu[2] = {}, called = 0, threads = 0;
	tx_buf a, b;

	vec_for_each(&r->copies, row) {
		const bool pageable = row->mem == DL_GPU_MEM_PAGEABLE;

		if (!is_of(row, c))
			continue;
		call[pageable] += row->call_ns;
		cpu[pageable] += row->cpu_ns;
		called += row->called_cnt;
		threads += row->thread_cnt;
	}
	if (!called) {
		dl_str_add(out, "the calls that made the copies were not recorded");
		return;
	}
	dl_str_addf(out, "%s in the calls that made the copies", tx_ns(a, call[0] + call[1]));
	if (!threads)
		dl_str_add(out, "; what their threads did then was not recorded");
	else if (call[1])
		dl_str_addf(out, "; pageable ones kept the calling thread on a CPU for %s of %s, staging or waiting",
			    tx_ns(a, cpu[1]), tx_ns(b, call[1]));
	else
		dl_str_addf(out, ", %s of it on a CPU", tx_ns(b, cpu[0]));
}

static void say_numa(struct dl_str *out, const struct dl_copy_device *c)
{
	tx_buf a;

	if (c->numa_nodes == 1) {
		dl_str_add(out, "the machine has one node: GPU, threads and memory are all near");
		return;
	}
	if (c->numa_node < 0) {
		dl_str_add(out, "which node the GPU is attached to is not known");
		return;
	}
	dl_str_addf(out, "the GPU is attached to node %" PRId32, c->numa_node);
	if (c->numa_nodes)
		dl_str_addf(out, " of %" PRIu32, c->numa_nodes);
	if (c->dist_min && c->dist_min == c->dist_max)
		dl_str_addf(out, " (the others are at distance %" PRIu32 ", itself is 10)", c->dist_min);
	else if (c->dist_min)
		dl_str_addf(out, " (the others are at distances %" PRIu32 " to %" PRIu32 ", itself is 10)", c->dist_min,
			    c->dist_max);
	if (c->has_near && c->cpu_ns)
		dl_str_addf(out, "; the copying thread ran on its CPUs for %s of the time that it ran in these calls",
			    tx_pct_of(a, c->near_ns, c->cpu_ns));
	else
		dl_str_add(out, "; where the copying thread ran is not known");
	dl_str_add(out, "; on which node the copied memory lies is not known");
}

void tx_copy_devices(struct tx *t, const struct dl_report *r)
{
	vec_for_each(&r->copy_devices, c) {
		struct tx_table tab = { .cols = fact_cols, .col_cnt = ARRAY_SIZE(fact_cols) };
		struct dl_str s = {};
		tx_buf a, b;

		dl_str_addf(&s, "GPU %" PRIu32, c->device);
		if (dl_role_cnt(r, DL_ROLE_TRAINER) > 1) {
			dl_str_add(&s, " of the ");
			dl_who(&s, r, c->pid, DL_ROLE_TRAINER);
		}
		dl_str_addf(&s, ", %s", c->to_device ? "host to GPU" : "GPU to host");
		tx_nl(t);
		if (s.err)
			t->s.err = s.err;
		else
			tx_para(t, 2, "", s.s);
		dl_str_fini(&s);
		say_problem(&s, c);
		add_fact(t, &tab, "limited by", &s);
		say_memory(&s, r, c);
		add_fact(t, &tab, "memory", &s);
		dl_str_addf(&s, "%s of %s of copying lay beside kernels (%s)", tx_ns(a, c->overlap_ns), tx_ns(b, c->ns),
			    c->ns ? tx_pct_of((tx_buf){}, c->overlap_ns, c->ns) : "");
		add_fact(t, &tab, "overlap", &s);
		say_rate(&s, c);
		add_fact(t, &tab, "link", &s);
		say_host(&s, r, c);
		add_fact(t, &tab, "host", &s);
		say_numa(&s, c);
		add_fact(t, &tab, "NUMA", &s);
		tx_table_print(t, &tab, 4);
	}
}

/* --- what NVML saw ------------------------------------------------------------------------------- */

static void add_curve(struct dl_str *out, const struct dl_gpu_report *g, bool utf8)
{
	static const char *const blocks[] = { " ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█" };
	static const char *const ascii[] = { " ", ".", ".", ":", ":", "+", "+", "#", "#" };
	const uint64_t whole = g->mem_total > g->used_peak ? g->mem_total : g->used_peak;
	uint64_t last = 0;

	if (!whole)
		return;
	for (size_t i = 0; i < DL_GPU_CURVE; i++) {
		uint64_t used = g->curve[i] ? g->curve[i] : last;	/* between two samples: as before */
		size_t level = used ? 1 + (size_t)((double)used / (double)whole * 7.5) : 0;

		dl_str_add(out, (utf8 ? blocks : ascii)[level < 8 ? level : 8]);
		last = used;
	}
}

static void say_gpu_memory(struct dl_str *out, const struct dl_report *r, const struct dl_gpu_report *g)
{
	tx_buf a, b, c;

	if (!g->has_mem) {
		dl_str_add(out, "not known: NVML did not say");
		return;
	}
	dl_str_addf(out, "%s at first, %s at most (%.3f s after the start, %s of it)", tx_size(a, g->used_first),
		    tx_size(b, g->used_peak), g->used_peak_ts > r->start ? (double)(g->used_peak_ts - r->start) / 1e9 : 0,
		    tx_pct_of(c, g->used_peak, g->mem_total));
	dl_str_addf(out, ", %s at last", tx_size(a, g->used_last));
	if (g->has_proc)
		dl_str_addf(out, "; by the recorded processes %s at most, %s at last", tx_size(a, g->proc_peak),
			    tx_size(b, g->proc_last));
	else
		dl_str_add(out, "; how much of that is the recorded processes' is not known");
	if (g->shared)
		dl_str_add(out, "; other processes use it too");
}

static const struct dl_device_report *device_of(const struct dl_report *r, const struct dl_gpu_report *g)
{
	vec_for_each(&r->devices, dev)
		if (g->device >= 0 && dev->pid == g->pid && dev->id == (uint32_t)g->device)
			return dev;
	return NULL;
}

static void say_use(struct dl_str *out, const struct dl_report *r, const struct dl_gpu_report *g)
{
	const struct dl_device_report *dev = device_of(r, g);
	tx_buf a, b, c;

	if (!g->has_util) {
		dl_str_add(out, "not known: NVML did not say");
		return;
	}
	dl_str_addf(out, "%s on average, %s at most by NVML; its memory was busy for %s", tx_pct_round(a, g->util_mean),
		    tx_pct_round(b, g->util_max), tx_pct_round(c, g->mem_util_mean));
	if (dev && dev->end > dev->start)
		dl_str_addf(out, ". Busy by dlbpf: %s", tx_pct_of(a, dev->busy_ns + dev->collective_ns, dev->end - dev->start - dev->unobserved_ns));
}

static void gpu_title(struct tx *t, const struct dl_gpu_report *g)
{
	_cleanup_(dl_str_fini) struct dl_str s = {};
	tx_buf a;

	if (g->index >= 0)
		dl_str_addf(&s, "GPU %" PRId64 " of the machine", g->index);
	else
		dl_str_add(&s, g->simulated ? "A simulated GPU" : "A GPU of the machine");
	if (g->name)
		dl_str_addf(&s, ", %s", g->name);
	if (g->index >= 0 && g->simulated && !(g->name && strcasestr(g->name, "simulated")))
		dl_str_add(&s, " (simulated)");
	if (g->mem_total)
		dl_str_addf(&s, ", %s", tx_size(a, g->mem_total));
	if (g->pci)
		dl_str_addf(&s, ", PCI %04" PRIx64 ":%02x:%02x.%x", g->pci >> 16, (unsigned int)(g->pci >> 8 & 0xff),
			    (unsigned int)(g->pci >> 3 & 0x1f), (unsigned int)(g->pci & 7));
	if (g->device >= 0)
		dl_str_addf(&s, "; GPU %" PRId64 " of process %" PRIu32, g->device, g->pid);
	else if (g->pid)
		dl_str_addf(&s, "; used by process %" PRIu32 ", under which number is not known", g->pid);
	if (g->mig)
		dl_str_add(&s, "; it is partitioned (MIG), and these are figures of the whole");
	if (s.err)
		t->s.err = s.err;
	else
		tx_para(t, 2, "", s.s);
}

/* A device that neither NVML nor sysfs knows, as a simulated one, is named among the devices already. */
static bool has_facts(const struct dl_gpu_report *g)
{
	return g->name || g->samples || g->has_pcie || g->link.bps || g->pci || g->mem_total;
}

void tx_gpus(struct tx *t, const struct dl_report *r)
{
	bool any = false, headed = false;

	vec_for_each(&r->gpus, g) {
		struct tx_table tab = { .cols = fact_cols, .col_cnt = ARRAY_SIZE(fact_cols) };
		struct dl_str s = {};
		tx_buf a, b, c;

		if (!has_facts(g))
			continue;
		if (!headed)
			tx_head(t, "GPU MEMORY AND LINK");
		headed = true;
		gpu_title(t, g);
		if (g->samples) {
			say_gpu_memory(&s, r, g);
			add_fact(t, &tab, "memory", &s);
			if (g->has_mem && g->samples > 1)
				add_curve(&s, g, t->utf8);
			add_fact(t, &tab, "over the run", &s);
			say_use(&s, r, g);
			add_fact(t, &tab, "use", &s);
		}
		if (g->has_pcie)
			dl_str_addf(&s, "to the GPU %s on average, %s at most; from it %s on average, counted for 20 ms each time",
				    rate(a, g->rx_mean_bps), rate(b, g->rx_max_bps), rate(c, g->tx_mean_bps));
		add_fact(t, &tab, "PCIe", &s);
		if (g->link.bps)
			add_link(&s, &g->link);
		add_fact(t, &tab, "link", &s);
		tx_table_print(t, &tab, 4);
		any |= g->has_util;
	}
	if (any)
		tx_note(t, 2, "NVML's utilisation and \"busy\" are different things: NVML counts the share of its own periods in which a kernel of any process ran, asked once a second; busy is the time of this process's kernels, each of them measured.");
}
