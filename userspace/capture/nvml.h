/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * NVML, NVIDIA's management library, loaded while running where the machine has it. Any call may take
 * tens of milliseconds, and a broken driver may keep one for ever: not for the recorder's own thread
 * (nvml_watch.h has one for it).
 */
#ifndef DLBPF_CAPTURE_NVML_H
#define DLBPF_CAPTURE_NVML_H

#include <stdbool.h>
#include <stdint.h>

#include "base/diag.h"

enum { DL_NVML_DEVICES = 64, DL_NVML_PROCS = 64 };

struct dl_nvml;

struct dl_nvml_facts {
	char name[96], uuid[96];	/* "" unknown */
	uint64_t pci;			/* as in GPU_DEVICE; 0 unknown */
	uint64_t mem_total;		/* 0 unknown */
	uint32_t gen, width, gen_max, width_max;	/* of the link; 0 unknown */
	bool mig, simulated;
};

struct dl_nvml_proc {
	uint32_t pid;
	uint64_t used;
};

struct dl_nvml_look {
	uint64_t ts;		/* CLOCK_MONOTONIC */
	uint32_t index;
	uint32_t flags;		/* enum dl_gpu_sample_flag: what of the following is known */
	uint32_t util_gpu, util_mem, rx_kbps, tx_kbps, gen, width;
	uint64_t mem_used, mem_total;
	uint32_t proc_cnt;
	struct dl_nvml_proc procs[DL_NVML_PROCS];
};

/*
 * DLBPF_LIBNVML names another library (not under a raised privilege); else it is the system's
 * libnvidia-ml.so.1. Never one out of the target's file system: its code would run as the recorder, root.
 */
int dl_nvml_open(struct dl_nvml **ret, struct dl_diag *d);
void dl_nvml_close(struct dl_nvml *n);	/* NULL-safe */

uint32_t dl_nvml_cnt(const struct dl_nvml *n);
/* -ENODEV when the device is lost. What it does not tell is left unknown. */
int dl_nvml_facts(struct dl_nvml *n, uint32_t index, struct dl_nvml_facts *ret);
/* pcie: count the link's traffic too, 20 ms for each direction. */
int dl_nvml_look(struct dl_nvml *n, uint32_t index, bool pcie, struct dl_nvml_look *ret);

#endif
