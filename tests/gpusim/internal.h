/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What the files of the libcuda double share among themselves. */
#ifndef GPUSIM_INTERNAL_H
#define GPUSIM_INTERNAL_H

#include <stdarg.h>

#include "sim.h"

int device_init(void);
uint64_t device_end(uint32_t device);	/* when all its work is done */
uint32_t device_next_event(void);
void wait_until(uint64_t until);
void model_load(struct sim_model *m);

static inline uint64_t bytes_ns(uint64_t bytes, uint64_t bps)
{
	return (uint64_t)((unsigned __int128)bytes * 1000000000ULL / bps);
}

#endif
