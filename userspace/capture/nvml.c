/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#include "capture/nvml.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include <dlbpf/event.h>

#include "base/cleanup.h"
#include "capture/nvml_abi.h"
#include "capture/proc.h"

struct dl_nvml {
	void *lib;
	struct nvml_abi f;
	uint32_t cnt;
	nvml_abi_dev dev[DL_NVML_DEVICES];	/* NULL: lost, or not ours to ask */
	bool simulated;
};

static const struct { const char *name; size_t off; bool required; } symbols[] = {
#define NVML(member, symbol, required, params) { symbol, offsetof(struct nvml_abi, member), required },
	NVML_ABI_TABLE(NVML)
#undef NVML
};

static int load(struct dl_nvml *n, struct dl_diag *d)
{
	const char *named = secure_getenv("DLBPF_LIBNVML");
	const char *path = named && named[0] ? named : NVML_ABI_LIB;
	const char *why;

	n->lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!n->lib) {
		why = dlerror();
		return dl_fail(d, -ENOENT, "NVML cannot be loaded (%s): utilisation, memory and link of GPUs are not sampled",
			       why ? why : path);
	}
	for (size_t i = 0; i < ARRAY_SIZE(symbols); i++) {
		void *at = dlsym(n->lib, symbols[i].name);

		if (!at && symbols[i].required)
			return dl_fail(d, -ENOSYS, "%s lacks %s: utilisation, memory and link of GPUs are not sampled", path,
				       symbols[i].name);
		memcpy((char *)&n->f + symbols[i].off, &at, sizeof(at));
	}
	n->simulated = dlsym(n->lib, "dlbpf_gpusim_marker");
	return 0;
}

/* A device that cannot be asked for keeps its number and is left alone. */
static int find_devices(struct dl_nvml *n, struct dl_diag *d)
{
	unsigned int cnt = 0;
	int ret = n->f.count(&cnt);

	if (ret)
		return dl_fail(d, -EIO, "NVML cannot count the GPUs (error %d)", ret);
	n->cnt = cnt < DL_NVML_DEVICES ? cnt : DL_NVML_DEVICES;
	for (uint32_t i = 0; i < n->cnt; i++)
		if (n->f.handle(i, &n->dev[i]))
			n->dev[i] = NULL;
	return 0;
}

int dl_nvml_open(struct dl_nvml **ret, struct dl_diag *d)
{
	struct dl_nvml *n = calloc(1, sizeof(*n));
	int err, got;

	if (!n)
		return dl_oom(d);
	err = load(n, d);
	if (!err) {
		got = n->f.init_flags ? n->f.init_flags(NVML_ABI_NO_ATTACH) : n->f.init();
		if (got)
			err = dl_fail(d, -EIO, "NVML cannot be used (error %d of its initialisation)", got);
	}
	if (err) {
		if (n->lib)
			dlclose(n->lib);
		free(n);
		return err;
	}
	err = find_devices(n, d);
	if (err) {
		dl_nvml_close(n);
		return err;
	}
	*ret = n;
	return 0;
}

void dl_nvml_close(struct dl_nvml *n)
{
	if (!n)
		return;
	n->f.shutdown();
	dlclose(n->lib);
	free(n);
}

uint32_t dl_nvml_cnt(const struct dl_nvml *n)
{
	return n->cnt;
}

/* A number by an entry that may not be there; 0 unknown. */
static uint32_t number(int (*get)(nvml_abi_dev, unsigned int *), nvml_abi_dev dev)
{
	unsigned int v = 0;

	return get && !get(dev, &v) ? v : 0;
}

static bool read_memory(const struct dl_nvml *n, nvml_abi_dev dev, uint64_t *ret_total, uint64_t *ret_used)
{
	struct nvml_abi_memory2 two = { .version = NVML_ABI_MEMORY2 };
	struct nvml_abi_memory one = {};

	if (n->f.memory2 && !n->f.memory2(dev, &two)) {
		*ret_total = two.total;
		*ret_used = two.used;
		return true;
	}
	if (!n->f.memory || n->f.memory(dev, &one))
		return false;
	*ret_total = one.total;
	*ret_used = one.used;
	return true;
}

static uint64_t read_pci(const struct dl_nvml *n, nvml_abi_dev dev)
{
	struct nvml_abi_pci pci = {};

	if ((!n->f.pci || n->f.pci(dev, &pci)) && (!n->f.pci2 || n->f.pci2(dev, &pci)))
		return 0;
	return (uint64_t)pci.domain << 16 | (uint64_t)(pci.bus & 0xff) << 8 | (pci.device & 0x1f) << 3;
}

int dl_nvml_facts(struct dl_nvml *n, uint32_t index, struct dl_nvml_facts *ret)
{
	nvml_abi_dev dev = index < n->cnt ? n->dev[index] : NULL;
	unsigned int mig = 0, pending = 0;
	uint64_t used;

	memset(ret, 0, sizeof(*ret));
	if (!dev)
		return -ENODEV;
	ret->simulated = n->simulated;
	if (!n->f.name || n->f.name(dev, ret->name, sizeof(ret->name)))
		ret->name[0] = '\0';
	if (!n->f.uuid || n->f.uuid(dev, ret->uuid, sizeof(ret->uuid)))
		ret->uuid[0] = '\0';
	ret->name[sizeof(ret->name) - 1] = ret->uuid[sizeof(ret->uuid) - 1] = '\0';
	ret->pci = read_pci(n, dev);
	if (!read_memory(n, dev, &ret->mem_total, &used))
		ret->mem_total = 0;
	ret->gen = number(n->f.gen, dev);
	ret->width = number(n->f.width, dev);
	ret->gen_max = number(n->f.gen_max, dev);
	ret->width_max = number(n->f.width_max, dev);
	ret->mig = n->f.mig && !n->f.mig(dev, &mig, &pending) && mig;
	return 0;
}

/* The newest entry that answers; a name stands for one layout. With more processes than there is room for,
 * none is known. */
static void read_procs(const struct dl_nvml *n, nvml_abi_dev dev, struct dl_nvml_look *ret)
{
	int (*const get[])(nvml_abi_dev, unsigned int *, void *) = { n->f.procs3, n->f.procs2, n->f.procs1 };

	for (size_t i = 0; i < ARRAY_SIZE(get); i++) {
		union { struct nvml_abi_proc1 one[DL_NVML_PROCS]; struct nvml_abi_proc2 two[DL_NVML_PROCS]; } buf;
		unsigned int cnt = DL_NVML_PROCS;
		const bool old = get[i] == n->f.procs1;
		int err;

		if (!get[i])
			continue;
		memset(&buf, 0, sizeof(buf));
		err = get[i](dev, &cnt, &buf);
		if (err)
			continue;
		ret->flags |= DL_GS_PROCS | DL_GS_PROC_MEM;
		ret->proc_cnt = cnt < DL_NVML_PROCS ? cnt : DL_NVML_PROCS;
		for (uint32_t p = 0; p < ret->proc_cnt; p++) {
			ret->procs[p].pid = old ? buf.one[p].pid : buf.two[p].pid;
			ret->procs[p].used = old ? buf.one[p].used : buf.two[p].used;
			if (ret->procs[p].used == NVML_ABI_NO_MEMORY) {
				ret->procs[p].used = 0;
				ret->flags &= ~(uint32_t)DL_GS_PROC_MEM;
			}
		}
		return;
	}
}

int dl_nvml_look(struct dl_nvml *n, uint32_t index, bool pcie, struct dl_nvml_look *ret)
{
	nvml_abi_dev dev = index < n->cnt ? n->dev[index] : NULL;
	struct nvml_abi_util util = {};
	int err = 0;

	memset(ret, 0, sizeof(*ret));
	ret->index = index;
	ret->ts = dl_now_ns();
	if (!dev)
		return -ENODEV;
	if (n->f.util)
		err = n->f.util(dev, &util);
	if (err == NVML_ABI_LOST) {
		n->dev[index] = NULL;
		return -ENODEV;
	}
	if (n->f.util && !err) {
		ret->flags |= DL_GS_UTIL;
		ret->util_gpu = util.gpu;
		ret->util_mem = util.memory;
	}
	if (read_memory(n, dev, &ret->mem_total, &ret->mem_used))
		ret->flags |= DL_GS_MEM;
	read_procs(n, dev, ret);
	ret->gen = number(n->f.gen, dev);
	ret->width = number(n->f.width, dev);
	if (ret->gen && ret->width)
		ret->flags |= DL_GS_LINK;
	if (pcie && n->f.pcie && !n->f.pcie(dev, NVML_ABI_RX, &ret->rx_kbps) &&
	    !n->f.pcie(dev, NVML_ABI_TX, &ret->tx_kbps))
		ret->flags |= DL_GS_PCIE;
	return 0;
}
