/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What sysfs says of a PCI device: its link, and where it is attached. Nothing in here needs NVIDIA's
 * tools. sys: "/sys", or a copy of it in tests. */
#ifndef DLBPF_CAPTURE_PCI_H
#define DLBPF_CAPTURE_PCI_H

#include <stdbool.h>
#include <stdint.h>

#define DL_PCI_CPUS 512

struct dl_pci {
	uint32_t gen, width, gen_max, width_max;	/* of the link; 0 unknown */
	int32_t numa_node;				/* -1 unknown or none */
	uint32_t numa_nodes;				/* of the machine; 0 unknown */
	uint32_t dist_min, dist_max;			/* from that node to the others; 0 unknown or none */
	uint8_t near_cpus[DL_PCI_CPUS / 8];		/* all 0 unknown */
};

/* False when there is no such device; what it does not tell is left unknown. */
bool dl_pci_read(const char *sys, uint64_t pci, struct dl_pci *ret);

/* "0000:3b:00.0" to an address as in GPU_DEVICE; false on anything else. */
bool dl_pci_parse(const char *text, uint64_t *ret);

/* "16.0 GT/s PCIe" to a generation; 0 unknown. "0-3,8" to bits; false on anything else. */
uint32_t dl_pci_gen(const char *speed);
bool dl_pci_cpus(const char *list, uint8_t *bits);

#endif
