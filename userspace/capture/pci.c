/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#include "capture/pci.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "capture/proc.h"

bool dl_pci_parse(const char *text, uint64_t *ret)
{
	unsigned int domain, bus, dev, fn;
	int end = 0;

	if (sscanf(text, "%8x:%2x:%2x.%1x%n", &domain, &bus, &dev, &fn, &end) != 4 || text[end] || dev > 31 || fn > 7)
		return false;
	*ret = (uint64_t)domain << 16 | bus << 8 | dev << 3 | fn;
	return true;
}

/* Per lane: 2.5, 5, 8, 16, 32, 64 GT/s. */
uint32_t dl_pci_gen(const char *speed)
{
	static const double rates[] = { 2.5, 5, 8, 16, 32, 64 };
	char *end;
	double gts = strtod(speed, &end);

	if (strncmp(end, " GT/s", 5))
		return 0;
	for (uint32_t i = 0; i < ARRAY_SIZE(rates); i++)
		if (gts > rates[i] * 0.99 && gts < rates[i] * 1.01)
			return i + 1;
	return 0;
}

bool dl_pci_cpus(const char *list, uint8_t *bits)
{
	memset(bits, 0, DL_PCI_CPUS / 8);
	while (*list && *list != '\n') {
		char *end;
		unsigned long from = strtoul(list, &end, 10), to = from;

		if (end == list)
			return false;
		if (*end == '-') {
			list = end + 1;
			to = strtoul(list, &end, 10);
			if (end == list)
				return false;
		}
		if (to < from || (*end && *end != ',' && *end != '\n'))
			return false;
		for (unsigned long cpu = from; cpu <= to && cpu < DL_PCI_CPUS; cpu++)
			bits[cpu / 8] |= (uint8_t)(1 << cpu % 8);
		list = *end == ',' ? end + 1 : end;
	}
	return true;
}

static uint32_t small_number(int dir, const char *name)
{
	uint64_t v = 0;

	return dl_proc_read_u64(dir, name, &v) && v < 1024 ? (uint32_t)v : 0;
}

static void read_link(int dir, struct dl_pci *ret)
{
	char text[64];

	if (dl_proc_read(dir, "current_link_speed", text, sizeof(text)) > 0)
		ret->gen = dl_pci_gen(text);
	if (dl_proc_read(dir, "max_link_speed", text, sizeof(text)) > 0)
		ret->gen_max = dl_pci_gen(text);
	/* 0 and 255 are a link that is down. */
	ret->width = small_number(dir, "current_link_width");
	ret->width_max = small_number(dir, "max_link_width");
	ret->width = ret->width <= 32 ? ret->width : 0;
	ret->width_max = ret->width_max <= 32 ? ret->width_max : 0;
}

/* nodeN/distance: one number for each node of the machine, 10 for itself. */
static void read_nodes(const char *sys, struct dl_pci *ret)
{
	char path[PATH_MAX], text[4096], *at = text;
	const int32_t node = ret->numa_node < 0 ? 0 : ret->numa_node;
	uint32_t cnt = 0;

	snprintf(path, sizeof(path), "%s/devices/system/node/node%" PRId32 "/distance", sys, node);
	if (dl_proc_read(AT_FDCWD, path, text, sizeof(text)) <= 0)
		return;
	for (;; cnt++) {
		char *end;
		unsigned long dist = strtoul(at, &end, 10);

		if (end == at)
			break;
		at = end;
		if (ret->numa_node < 0 || dist <= 10 || dist > 255)
			continue;
		if (!ret->dist_min || dist < ret->dist_min)
			ret->dist_min = (uint32_t)dist;
		if (dist > ret->dist_max)
			ret->dist_max = (uint32_t)dist;
	}
	ret->numa_nodes = cnt;
}

bool dl_pci_read(const char *sys, uint64_t pci, struct dl_pci *ret)
{
	_cleanup_close_ int dir = -1;
	char path[PATH_MAX], text[4096];

	memset(ret, 0, sizeof(*ret));
	ret->numa_node = -1;
	snprintf(path, sizeof(path), "%s/bus/pci/devices/%04x:%02x:%02x.%x", sys, (unsigned int)(pci >> 16),
		 (unsigned int)(pci >> 8 & 0xff), (unsigned int)(pci >> 3 & 0x1f), (unsigned int)(pci & 7));
	dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return false;
	read_link(dir, ret);
	if (dl_proc_read(dir, "numa_node", text, sizeof(text)) > 0)
		ret->numa_node = atoi(text) < 0 ? -1 : atoi(text);
	read_nodes(sys, ret);
	/* Without a node the list is that of all CPUs, which says nothing. */
	if (ret->numa_node >= 0 && dl_proc_read(dir, "local_cpulist", text, sizeof(text)) > 0 &&
	    !dl_pci_cpus(text, ret->near_cpus))
		memset(ret->near_cpus, 0, sizeof(ret->near_cpus));
	return true;
}
