/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The recorder's end of the GPU ring (dlbpf/gpu_ring.h): finds the collectors of the recorded
 * processes, switches them on and off, drains and validates their records, converts their clock.
 */
#ifndef DLBPF_CAPTURE_GPU_H
#define DLBPF_CAPTURE_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/diag.h"
#include "capture/sink.h"

#define DL_GPU_LIBRARY "libdlbpf_cupti.so"		/* the collector's file */
#define DL_GPU_VARIABLE "CUDA_INJECTION64_PATH"		/* what names it to the driver */

struct dl_gpu;

struct dl_gpu_opts {
	uint32_t mode;		/* enum dl_gpu_mode */
	uint32_t flush_ms;	/* 0: the collector's default */
};

int dl_gpu_open(struct dl_gpu **ret, const struct dl_gpu_opts *opts, struct dl_sink *sink,
		struct dl_diag *d);
void dl_gpu_close(struct dl_gpu *g);	/* switches off what it switched on; NULL-safe */

/* Looks for a collector in the process (its /proc/PID/fd) unless it is known already; cheap to
 * repeat. Returns 1 when there is one, 0 when not, -errno. */
int dl_gpu_probe(struct dl_gpu *g, uint32_t pid);

/* Its collector gives records, or is about to: no other tool holds CUPTI, nothing has failed. */
bool dl_gpu_gives(const struct dl_gpu *g, uint32_t pid);

/* Another mode, for all of them, while they record; what both modes have is recorded without a gap. */
void dl_gpu_set_mode(struct dl_gpu *g, uint32_t mode);

/* Beats, drains and emits what can be converted. Returns events emitted or -errno of the sink. */
int dl_gpu_drain(struct dl_gpu *g, uint64_t now_ts);

/* Switches all collectors off, waits a moment for their last flush and drains it: to be called
 * while the sink is still open, at the end of a recording. Returns events emitted or -errno. */
int dl_gpu_stop(struct dl_gpu *g);

/* The process ended: drains the rest and lets go. */
int dl_gpu_forget(struct dl_gpu *g, uint32_t pid);

/* One line: "CUPTI 13.0 (simulated)", or "none". */
const char *dl_gpu_describe(const struct dl_gpu *g, char *buf, size_t sz);

/* Why there is no GPU data for pid and what would give it: an exact command or variable setting.
 * "" when there is a collector, or when the process does not use CUDA. */
const char *dl_gpu_hint(const struct dl_gpu *g, uint32_t pid, char *buf, size_t sz);

/* Has it mapped the driver's library? */
bool dl_gpu_uses_cuda(uint32_t pid);

/* Path of the collector: DLBPF_CUPTI_LIB, beside the program in a build folder, or in ../lib/dlbpf
 * where it is installed. False when it is not there. */
bool dl_gpu_library(char *buf, size_t sz);

#endif
