/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Loads the collector into a process that runs already. One of its threads, which waits in a system
 * call, is borrowed for some 100 us: it creates a new thread, and goes back to its wait. The new
 * thread does the rest, dlopen() and InitializeInjection(), while nobody is stopped.
 */
#ifndef DLBPF_CAPTURE_INJECT_H
#define DLBPF_CAPTURE_INJECT_H

#include <stdint.h>

#include "base/diag.h"

struct dl_inject_result {
	uint32_t tid;		/* the thread that was borrowed */
	uint32_t tries;		/* threads that had to be asked */
	uint64_t away_ns;	/* how long it was away from its own code */
	uint64_t load_ns;	/* how long loading took, with nobody stopped */
};

/*
 * 0: loaded and initialised. Otherwise the message says why not, and the process goes on as it was:
 * -EEXIST it has a collector already, -ENOENT it does not use CUDA (no libcuda is mapped),
 * -EOPNOTSUPP such a process is never injected into, -EAGAIN not now, or another error.
 */
int dl_inject(uint32_t pid, const char *library, struct dl_inject_result *ret, struct dl_diag *d);

#endif
