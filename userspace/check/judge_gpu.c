/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* GPUs, their links, and how near the job's CPUs are to them. */
#include <string.h>

#include "check/judge.h"

void ck_judge_gpus(const struct dl_ck_facts *f, struct dl_ck_line *l)
{
	const struct dl_ck_gpus *g = &f->gpus;
	const char *visible = dl_ck_var(f, "CUDA_VISIBLE_DEVICES");

	ck_num(l, "gpus", g->cnt);
	if (!g->has_device) {
		ck_say(l, DL_CK_OK, "no NVIDIA GPU here");
		return;
	}
	if (!g->nvml) {
		ck_say(l, DL_CK_WARNING, "there is an NVIDIA GPU, but NVML does not tell of it: %s", g->why);
		ck_fix(l, "see whether the driver answers");
		ck_cmd(l, "nvidia-smi");
		return;
	}
	ck_say(l, DL_CK_OK, "%u: %s%s", g->cnt, g->v[0].name[0] ? g->v[0].name : "of unknown name",
	       g->v[0].simulated ? " (SIMULATED)" : "");
	for (uint32_t i = 1; i < g->cnt; i++)
		if (strcmp(g->v[i].name, g->v[0].name)) {
			ck_add(l, " and others");
			break;
		}
	if (visible)
		ck_add(l, "; CUDA_VISIBLE_DEVICES=%s", visible);
	if (visible && (!visible[0] || !strcmp(visible, "-1"))) {
		l->state = DL_CK_WARNING;
		ck_add(l, ": the job sees none");
		ck_cmd(l, "unset CUDA_VISIBLE_DEVICES");
	}
}

void ck_judge_gpu_link(const struct dl_ck_facts *f, struct dl_ck_line *l)
{
	const struct dl_ck_gpu *narrow = NULL, *slow = NULL, *known = NULL;

	if (!f->gpus.cnt)
		return;
	for (uint32_t i = 0; i < f->gpus.cnt; i++) {
		const struct dl_ck_gpu *g = &f->gpus.v[i];

		if (!g->link_known)
			continue;
		known = known ? known : g;
		if (g->width < g->width_max && (!narrow || g->width < narrow->width))
			narrow = g;
		/* An idle GPU turns its link down to save power. */
		if (g->gen < g->gen_max && g->busy)
			slow = g;
	}
	if (!known) {
		ck_say(l, DL_CK_UNKNOWN, "neither NVML nor sysfs tells of the link");
		return;
	}
	if (narrow) {
		ck_say(l, DL_CK_WARNING, "a GPU (%s) has %u of %u lanes: copies take %.3g times as long", narrow->name, narrow->width,
		       narrow->width_max, (double)narrow->width_max / narrow->width);
		ck_num(l, "width", narrow->width);
		ck_num(l, "width_max", narrow->width_max);
		ck_fix(l, "the slot, a riser or the board's settings limit it; see LnkSta against LnkCap");
		ck_cmd(l, "sudo lspci -vv -d 10de: | grep -E 'LnkCap:|LnkSta:'");
		return;
	}
	known = slow ? slow : known;
	ck_num(l, "gen", known->gen);
	ck_num(l, "gen_max", known->gen_max);
	ck_num(l, "width", known->width);
	if (slow) {
		ck_say(l, DL_CK_WARNING, "a GPU (%s) is busy and its link runs at generation %u of %u", slow->name, slow->gen,
		       slow->gen_max);
		ck_fix(l, "the slot or the board's settings limit it; see LnkSta against LnkCap");
		ck_cmd(l, "sudo lspci -vv -d 10de: | grep -E 'LnkCap:|LnkSta:'");
		return;
	}
	ck_say(l, DL_CK_OK, "PCIe generation %u, %u lanes", known->gen_max, known->width);
	if (known->gen < known->gen_max)
		ck_add(l, " (generation %u now, while the GPU is idle)", known->gen);
}

static bool overlap(const uint8_t *a, const uint8_t *b)
{
	for (size_t i = 0; i < DL_PCI_CPUS / 8; i++)
		if (a[i] & b[i])
			return true;
	return false;
}

static bool all_of(const uint8_t *part, const uint8_t *whole)
{
	for (size_t i = 0; i < DL_PCI_CPUS / 8; i++)
		if (part[i] & ~whole[i])
			return false;
	return true;
}

void ck_judge_gpu_node(const struct dl_ck_facts *f, struct dl_ck_line *l)
{
	static const uint8_t none[DL_PCI_CPUS / 8];
	const bool mask_known = memcmp(f->cpus.mask, none, sizeof(none)) != 0;
	bool all = true, known = false;

	if (!f->gpus.cnt)
		return;
	for (uint32_t i = 0; i < f->gpus.cnt; i++) {
		const struct dl_ck_gpu *g = &f->gpus.v[i];

		if (g->sysfs_known && g->nodes == 1) {
			ck_say(l, DL_CK_OK, "the machine has one NUMA node");
			return;
		}
		if (!g->near_known || !mask_known)
			continue;
		known = true;
		all &= all_of(f->cpus.mask, g->near_cpus);
		if (overlap(f->cpus.mask, g->near_cpus))
			continue;
		ck_num(l, "node", g->node);
		ck_say(l, DL_CK_WARNING, "none of the CPUs that the job may use is at the NUMA node of GPU %u (%s), node %d: each copy "
		       "crosses the link between the nodes", i, g->name, g->node);
		ck_fix(l, "run the job where its GPU is");
		ck_cmd(l, "numactl --cpunodebind=%d --preferred=%d python train.py", g->node, g->node);
		return;
	}
	if (!known)
		ck_say(l, DL_CK_UNKNOWN, "the NUMA node of the GPU is not known");
	else if (all)
		ck_say(l, DL_CK_OK, "all CPUs of the job are at its GPU's node");
	else
		ck_say(l, DL_CK_OK, "some CPUs of the job are at its GPU's node, some at others (numactl --cpunodebind binds)");
}
