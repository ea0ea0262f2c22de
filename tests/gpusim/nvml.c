/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * A double of libnvidia-ml.so.1. It shares nothing with the simulated device but the numbers of its
 * PCI buses: the recorder loads it, not the training process. All figures are known beforehand:
 *
 *	device i of GPUSIM_DEVICES (1) has 16 GiB, hangs at bus GPUSIM_PCI_BUS + i (1), and is called
 *	"Simulated GPU i"; with GPUSIM_NVML_NAME=same all are called alike
 *	the n-th look (from 0) sees 1 GiB + n * 64 MiB used, at most GPUSIM_NVML_TOP_MIB (4096); 10 + n
 *	percent busy, at most 90; memory busy half of that; 1,000,000 + n KB/s to the device, half from it
 *	the link is PCIe 3.0 x16 of a possible 4.0 x16; GPUSIM_NVML_LINK=GEN,WIDTH
 *
 * GPUSIM_NVML_PROCS names a file with a line "DEVICE PID BYTES" for each process, read at each look; BYTES
 * may be "?". Without it the processes that have the driver's double mapped are found, with 512 MiB each.
 * GPUSIM_NVML_API: "old" hides what came after NVML 10, "1" and "2" leave only that version of the list of
 * processes; GPUSIM_NVML_FAIL: "init", "count", "lost", "pcie", "procs" or "hang" (a call never returns).
 */
#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SIM_EXPORT __attribute__((visibility("default")))
#define DEF(name, params) SIM_EXPORT int name params; SIM_EXPORT int name params
#define GIB (1ULL << 30)
#define MIB (1ULL << 20)

enum { OK = 0, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, LOST = 15, UNKNOWN = 999,
       DEVICES = 8 };

SIM_EXPORT const int dlbpf_gpusim_marker = 1;

static struct device { unsigned int index; unsigned int looks; } devices[DEVICES];
static bool ready;

static bool fails(const char *how)
{
	const char *s = getenv("GPUSIM_NVML_FAIL");

	return s && !strcmp(s, how);
}

static unsigned int env_nr(const char *name, unsigned int otherwise)
{
	const char *s = getenv(name);

	return s && s[0] ? (unsigned int)atoi(s) : otherwise;
}

DEF(nvmlInit_v2, (void))
{
	ready = !fails("init");
	for (unsigned int i = 0; i < DEVICES; i++)
		devices[i] = (struct device){ .index = i };
	return ready ? OK : UNKNOWN;
}

DEF(nvmlInitWithFlags, (unsigned int flags))
{
	(void)flags;
	return nvmlInit_v2();
}

DEF(nvmlShutdown, (void))
{
	ready = false;
	return OK;
}

DEF(nvmlDeviceGetCount_v2, (unsigned int *cnt))
{
	*cnt = env_nr("GPUSIM_DEVICES", 1);
	return !ready || fails("count") ? UNKNOWN : OK;
}

DEF(nvmlDeviceGetHandleByIndex_v2, (unsigned int index, struct device **dev))
{
	if (index >= env_nr("GPUSIM_DEVICES", 1) || index >= DEVICES)
		return NOT_FOUND;
	*dev = &devices[index];
	return OK;
}

DEF(nvmlDeviceGetName, (struct device *dev, char *name, unsigned int len))
{
	const char *same = getenv("GPUSIM_NVML_NAME");

	if (same && !strcmp(same, "same"))
		snprintf(name, len, "Simulated GPU");
	else
		snprintf(name, len, "Simulated GPU %u", dev->index);
	return OK;
}

DEF(nvmlDeviceGetUUID, (struct device *dev, char *text, unsigned int len))
{
	snprintf(text, len, "GPU-%08x-0000-4000-8000-000000000000", 0xd1bf0000 + dev->index);
	return OK;
}

struct pci { char legacy[16]; unsigned int domain, bus, device, id, subsystem; char bus_id[32]; };

DEF(nvmlDeviceGetPciInfo_v2, (struct device *dev, struct pci *pci))
{
	pci->domain = 0;
	pci->bus = env_nr("GPUSIM_PCI_BUS", 1) + dev->index;
	pci->device = 0;
	return OK;
}

DEF(nvmlDeviceGetPciInfo_v3, (struct device *dev, struct pci *pci))
{
	return nvmlDeviceGetPciInfo_v2(dev, pci);
}

DEF(nvmlDeviceGetMigMode, (struct device *dev, unsigned int *current, unsigned int *pending))
{
	(void)dev;
	*current = *pending = env_nr("GPUSIM_NVML_MIG", 0);
	return OK;
}

struct util { unsigned int gpu, memory; };

/* The first call of a look. */
DEF(nvmlDeviceGetUtilizationRates, (struct device *dev, struct util *util))
{
	unsigned int n = dev->looks++;

	while (fails("hang"))
		pause();
	if (fails("lost"))
		return LOST;
	util->gpu = 10 + n < 90 ? 10 + n : 90;
	util->memory = util->gpu / 2;
	return OK;
}

static uint64_t used_now(const struct device *dev)
{
	const uint64_t top = env_nr("GPUSIM_NVML_TOP_MIB", 4096) * MIB;
	const uint64_t used = GIB + (dev->looks ? dev->looks - 1 : 0) * 64 * MIB;

	return used < top ? used : top;
}

struct memory { unsigned long long total, free, used; };
struct memory2 { unsigned int version; unsigned long long total, reserved, free, used; };

/* With the 512 MiB that "the driver" reserves. */
DEF(nvmlDeviceGetMemoryInfo, (struct device *dev, struct memory *m))
{
	m->total = 16 * GIB;
	m->used = used_now(dev) + 512 * MIB;
	m->free = m->total - m->used;
	return OK;
}

DEF(nvmlDeviceGetMemoryInfo_v2, (struct device *dev, struct memory2 *m))
{
	const char *api = getenv("GPUSIM_NVML_API");

	if (m->version != (2U << 24 | sizeof(*m)) || (api && !strcmp(api, "old")))
		return NOT_SUPPORTED;
	m->total = 16 * GIB;
	m->reserved = 512 * MIB;
	m->used = used_now(dev);
	m->free = m->total - m->used - m->reserved;
	return OK;
}

DEF(nvmlDeviceGetPcieThroughput, (struct device *dev, int counter, unsigned int *kbps))
{
	unsigned int n = dev->looks ? dev->looks - 1 : 0;

	if (fails("pcie"))
		return NOT_SUPPORTED;
	usleep(20000);	/* as long as the real one counts */
	*kbps = counter == 1 ? 1000000 + n : (1000000 + n) / 2;
	return OK;
}

static unsigned int link_nr(int which, unsigned int otherwise)
{
	const char *s = getenv("GPUSIM_NVML_LINK");
	unsigned int gen, width;

	if (!s || sscanf(s, "%u,%u", &gen, &width) != 2)
		return otherwise;
	return which ? width : gen;
}

#define LINK(name, value) DEF(name, (struct device *dev, unsigned int *v)) { (void)dev; *v = (value); return OK; }
LINK(nvmlDeviceGetCurrPcieLinkGeneration, link_nr(0, 3))
LINK(nvmlDeviceGetCurrPcieLinkWidth, link_nr(1, 16))
LINK(nvmlDeviceGetMaxPcieLinkGeneration, 4)
LINK(nvmlDeviceGetMaxPcieLinkWidth, 16)

/* --- processes --- */

struct proc { unsigned int pid; unsigned long long used; };

static void add(struct proc *list, unsigned int *cnt, unsigned int max, unsigned int pid, unsigned long long used)
{
	if (*cnt < max)
		list[*cnt] = (struct proc){ pid, used };
	++*cnt;
}

static unsigned int from_file(const char *path, unsigned int device, struct proc *list, unsigned int max)
{
	unsigned int cnt = 0, dev, pid;
	char line[128], bytes[64];
	FILE *f = fopen(path, "re");

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "%u %u %63s", &dev, &pid, bytes) == 3 && dev == device)
			add(list, &cnt, max, pid, bytes[0] == '?' ? ~0ULL : strtoull(bytes, NULL, 10));
	if (f)
		fclose(f);
	return cnt;
}

static bool maps_driver(const char *pid)
{
	char path[64], line[512];
	bool found = false;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%.16s/maps", pid);
	f = fopen(path, "re");
	while (f && !found && fgets(line, sizeof(line), f))
		found = strstr(line, "/gpusim/libcuda.so.1");
	if (f)
		fclose(f);
	return found;
}

static unsigned int from_proc(unsigned int device, struct proc *list, unsigned int max)
{
	DIR *dir = device ? NULL : opendir("/proc");
	unsigned int cnt = 0;
	struct dirent *e;

	while (dir && (e = readdir(dir)))
		if (e->d_name[0] >= '1' && e->d_name[0] <= '9' && maps_driver(e->d_name))
			add(list, &cnt, max, (unsigned int)atoi(e->d_name), 512 * MIB);
	if (dir)
		closedir(dir);
	return cnt;
}

struct proc2 { unsigned int pid; unsigned long long used; unsigned int gpu_instance, compute_instance; };

static int list_procs(const struct device *dev, unsigned int *cnt, void *ret, int version)
{
	const char *path = getenv("GPUSIM_NVML_PROCS"), *api = getenv("GPUSIM_NVML_API");
	struct proc list[256];
	unsigned int room = *cnt, have;

	if (fails("procs"))
		return NO_PERMISSION;
	if (api && ((!strcmp(api, "old") && version > 1) || (atoi(api) && atoi(api) != version)))
		return NOT_SUPPORTED;
	have = path ? from_file(path, dev->index, list, 256) : from_proc(dev->index, list, 256);
	*cnt = have;
	if (have > room)
		return INSUFFICIENT_SIZE;
	for (unsigned int i = 0; i < have; i++) {
		if (version == 1)
			((struct proc *)ret)[i] = list[i];
		else
			((struct proc2 *)ret)[i] = (struct proc2){ list[i].pid, list[i].used, ~0U, ~0U };
	}
	return OK;
}

DEF(nvmlDeviceGetComputeRunningProcesses, (struct device *dev, unsigned int *cnt, void *ret))
{
	return list_procs(dev, cnt, ret, 1);
}

DEF(nvmlDeviceGetComputeRunningProcesses_v2, (struct device *dev, unsigned int *cnt, void *ret))
{
	return list_procs(dev, cnt, ret, 2);
}

DEF(nvmlDeviceGetComputeRunningProcesses_v3, (struct device *dev, unsigned int *cnt, void *ret))
{
	return list_procs(dev, cnt, ret, 3);
}
