/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * CUDA calls without the collector: uprobes on the entry points of libcuda.so.1 and of the runtime, in
 * the very files that a recorded process has mapped. They tell when the host asked and waited, not
 * when the GPU ran.
 */
#ifndef DLBPF_CAPTURE_CUDA_PROBE_H
#define DLBPF_CAPTURE_CUDA_PROBE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/diag.h"
#include "capture/sink.h"

struct dl_kernel;
struct dl_cuda;

struct dl_cuda_opts {
	uint32_t mode;		/* enum dl_gpu_mode, not off */
	bool collector;		/* leave a collector time to come up where there is to be one */
};

int dl_cuda_open(struct dl_cuda **ret, struct dl_kernel *k, const struct dl_cuda_opts *opts, struct dl_sink *sink,
		 struct dl_diag *d);

/* Takes all probes off; before the kernel side is closed. NULL-safe. */
void dl_cuda_close(struct dl_cuda *c);

/*
 * Looks whether the process uses CUDA, and probes it when it does; costs a look at its mappings until
 * then. proc_fd: its /proc/PID; forked_by: its parent, 0 when it runs a program of its own. 1: it is
 * probed; 0: not, and where that is a failure an ABSENT event has said so once. -errno of the sink.
 */
int dl_cuda_probe(struct dl_cuda *c, uint32_t pid, uint32_t forked_by, int proc_fd, uint64_t now);

/* It has a collector by now, has ended, or runs another program. */
void dl_cuda_remove(struct dl_cuda *c, uint32_t pid);

/* Processes that are probed. */
size_t dl_cuda_procs(const struct dl_cuda *c);

#endif
