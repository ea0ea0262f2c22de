/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What dlbpf needs of NVML's binary interface, written down here so that neither building nor running
 * needs NVIDIA's headers. NVML keeps old entries for ever and gives a function whose structure grew a
 * new name (_v2, _v3): a name stands for one layout.
 */
#ifndef DLBPF_CAPTURE_NVML_ABI_H
#define DLBPF_CAPTURE_NVML_ABI_H

#include <stddef.h>
#include <stdint.h>

#define NVML_ABI_LIB "libnvidia-ml.so.1"

enum {
	NVML_ABI_OK = 0,
	NVML_ABI_NO_PERMISSION = 4,
	NVML_ABI_INSUFFICIENT_SIZE = 7,
	NVML_ABI_LOST = 15,		/* the GPU fell off the bus: asking again is of no use */

	NVML_ABI_TX = 0,		/* PCIe counters: from the device */
	NVML_ABI_RX = 1,		/* to the device */

	NVML_ABI_NO_ATTACH = 2,		/* nvmlInitWithFlags: do not wake devices that nobody uses */
};

#define NVML_ABI_NO_MEMORY UINT64_MAX	/* a process whose memory is not known */

typedef struct nvml_abi_device *nvml_abi_dev;

struct nvml_abi_pci {		/* nvmlDeviceGetPciInfo_v3; _v2 ends before bus_id and has 16 bytes there */
	char bus_id_legacy[16];
	uint32_t domain, bus, device, device_id, subsystem_id;
	char bus_id[32];
};

struct nvml_abi_util { uint32_t gpu, memory; };			/* percent */

struct nvml_abi_memory { uint64_t total, free, used; };		/* used: with what the driver reserves */
struct nvml_abi_memory2 {	/* _v2: used without it */
	uint32_t version;
	uint64_t total, reserved, free, used;
};

#define NVML_ABI_MEMORY2 (2U << 24 | (uint32_t)sizeof(struct nvml_abi_memory2))

struct nvml_abi_proc1 { uint32_t pid; uint64_t used; };		/* without a suffix */
struct nvml_abi_proc2 { uint32_t pid; uint64_t used; uint32_t gpu_instance, compute_instance; };	/* _v2, _v3 */

_Static_assert(sizeof(struct nvml_abi_pci) == 68, "NVML's PCI record");
_Static_assert(offsetof(struct nvml_abi_pci, domain) == 16, "NVML's PCI record");
_Static_assert(sizeof(struct nvml_abi_memory) == 24, "NVML's memory record");
_Static_assert(sizeof(struct nvml_abi_memory2) == 40, "NVML's second memory record");
_Static_assert(NVML_ABI_MEMORY2 == 0x02000028, "NVML's second memory record");
_Static_assert(sizeof(struct nvml_abi_proc1) == 16, "NVML's process record");
_Static_assert(sizeof(struct nvml_abi_proc2) == 24, "NVML's second process record");

/* NVML(member, symbol, required, parameters): all return an error number. */
#define NVML_ABI_TABLE(NVML) \
	NVML(init, "nvmlInit_v2", 1, (void)) \
	NVML(init_flags, "nvmlInitWithFlags", 0, (unsigned int)) \
	NVML(shutdown, "nvmlShutdown", 1, (void)) \
	NVML(count, "nvmlDeviceGetCount_v2", 1, (unsigned int *)) \
	NVML(handle, "nvmlDeviceGetHandleByIndex_v2", 1, (unsigned int, nvml_abi_dev *)) \
	NVML(name, "nvmlDeviceGetName", 0, (nvml_abi_dev, char *, unsigned int)) \
	NVML(uuid, "nvmlDeviceGetUUID", 0, (nvml_abi_dev, char *, unsigned int)) \
	NVML(pci, "nvmlDeviceGetPciInfo_v3", 0, (nvml_abi_dev, struct nvml_abi_pci *)) \
	NVML(pci2, "nvmlDeviceGetPciInfo_v2", 0, (nvml_abi_dev, struct nvml_abi_pci *)) \
	NVML(mig, "nvmlDeviceGetMigMode", 0, (nvml_abi_dev, unsigned int *, unsigned int *)) \
	NVML(util, "nvmlDeviceGetUtilizationRates", 0, (nvml_abi_dev, struct nvml_abi_util *)) \
	NVML(memory, "nvmlDeviceGetMemoryInfo", 0, (nvml_abi_dev, struct nvml_abi_memory *)) \
	NVML(memory2, "nvmlDeviceGetMemoryInfo_v2", 0, (nvml_abi_dev, struct nvml_abi_memory2 *)) \
	NVML(procs1, "nvmlDeviceGetComputeRunningProcesses", 0, (nvml_abi_dev, unsigned int *, void *)) \
	NVML(procs2, "nvmlDeviceGetComputeRunningProcesses_v2", 0, (nvml_abi_dev, unsigned int *, void *)) \
	NVML(procs3, "nvmlDeviceGetComputeRunningProcesses_v3", 0, (nvml_abi_dev, unsigned int *, void *)) \
	NVML(pcie, "nvmlDeviceGetPcieThroughput", 0, (nvml_abi_dev, int, unsigned int *)) \
	NVML(gen, "nvmlDeviceGetCurrPcieLinkGeneration", 0, (nvml_abi_dev, unsigned int *)) \
	NVML(width, "nvmlDeviceGetCurrPcieLinkWidth", 0, (nvml_abi_dev, unsigned int *)) \
	NVML(gen_max, "nvmlDeviceGetMaxPcieLinkGeneration", 0, (nvml_abi_dev, unsigned int *)) \
	NVML(width_max, "nvmlDeviceGetMaxPcieLinkWidth", 0, (nvml_abi_dev, unsigned int *))

struct nvml_abi {
#define NVML(member, symbol, required, params) int (*member) params;
	NVML_ABI_TABLE(NVML)
#undef NVML
};

#endif
