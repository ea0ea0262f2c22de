/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* GPUs: what NVML and sysfs say of them. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "capture/nvml.h"
#include "check/gather.h"

enum { NVML_TIMEOUT_MS = 15000 };	/* without the persistence daemon a driver takes seconds to wake up */

static void one_gpu(struct dl_nvml *n, uint32_t index, struct dl_ck_gpu *g)
{
	static struct dl_nvml_look look;	/* large, and this is a process of its own */
	struct dl_nvml_facts facts;

	g->node = -1;
	if (dl_nvml_facts(n, index, &facts))
		return;
	ck_copy(g->name, sizeof(g->name), facts.name);
	g->simulated = facts.simulated;
	g->pci = facts.pci;
	g->gen = facts.gen;
	g->width = facts.width;
	g->gen_max = facts.gen_max;
	g->width_max = facts.width_max;
	g->link_known = g->gen && g->width && g->gen_max && g->width_max;
	g->busy = !dl_nvml_look(n, index, false, &look) && (look.flags & DL_GS_UTIL) && look.util_gpu > 0;
}

static int ask_nvml(void *arg, void *buf)
{
	struct dl_ck_gpus *ret = buf;
	struct dl_nvml *n;
	struct dl_diag d = {};

	(void)arg;
	if (dl_nvml_open(&n, &d)) {
		ck_copy(ret->why, sizeof(ret->why), d.msg);
		return 0;
	}
	ret->nvml = true;
	ret->cnt = dl_nvml_cnt(n);
	if (ret->cnt > DL_CK_GPUS)
		ret->cnt = DL_CK_GPUS;
	for (uint32_t i = 0; i < ret->cnt; i++)
		one_gpu(n, i, &ret->v[i]);
	dl_nvml_close(n);
	return 0;
}

/* Is there one at all? Its maker's number, and a class of displays and accelerators. */
static bool has_device(const char *sys)
{
	_cleanup_closedir_ DIR *dir = NULL;
	char path[PATH_MAX], vendor[16], class[16];

	if (!access("/dev/nvidiactl", F_OK))
		return true;
	snprintf(path, sizeof(path), "%s/bus/pci/devices", sys);
	dir = opendir(path);
	for (const struct dirent *de; dir && (de = readdir(dir));) {
		if (de->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "/bus/pci/devices/%s/vendor", de->d_name);
		if (!ck_read(sys, path, vendor, sizeof(vendor)) || strcmp(vendor, "0x10de"))
			continue;
		snprintf(path, sizeof(path), "/bus/pci/devices/%s/class", de->d_name);
		if (ck_read(sys, path, class, sizeof(class)) && !strncmp(class, "0x03", 4))
			return true;
	}
	return false;
}

/* What sysfs knows goes before what NVML says: it is there for every device, and is not rounded. */
static void ask_sysfs(struct dl_ck_gpu *g, const char *sys)
{
	struct dl_pci pci;

	if (!g->pci || !dl_pci_read(sys, g->pci, &pci))
		return;
	g->sysfs_known = true;
	g->node = pci.numa_node;
	g->nodes = pci.numa_nodes;
	memcpy(g->near_cpus, pci.near_cpus, sizeof(g->near_cpus));
	for (size_t i = 0; i < sizeof(pci.near_cpus); i++)
		g->near_known |= pci.near_cpus[i] != 0;
	if (!g->link_known && pci.gen && pci.width && pci.gen_max && pci.width_max) {
		g->gen = pci.gen;
		g->width = pci.width;
		g->gen_max = pci.gen_max;
		g->width_max = pci.width_max;
		g->link_known = true;
	}
}

void ck_gather_gpus(struct dl_ck_facts *f, const char *sys)
{
	struct dl_ck_gpus *g = &f->gpus;
	int err;

	memset(g, 0, sizeof(*g));
	err = ck_in_child(ask_nvml, NULL, g, sizeof(*g), NVML_TIMEOUT_MS);
	if (err) {
		memset(g, 0, sizeof(*g));
		snprintf(g->why, sizeof(g->why), err == -ETIMEDOUT ? "NVML did not answer within %d s: the driver hangs" :
			 "NVML crashed or could not be asked", NVML_TIMEOUT_MS / 1000);
	}
	g->has_device = g->cnt || has_device(sys);
	for (uint32_t i = 0; i < g->cnt; i++)
		ask_sysfs(&g->v[i], sys);
}
