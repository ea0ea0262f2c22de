/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The record side of the libcupti double. */
#ifndef GPUSIM_CUPTI_DOUBLE_H
#define GPUSIM_CUPTI_DOUBLE_H

#include "../../cupti/cupti_abi.h"
#include "sim.h"

/* clock.c */
double env_num(const char *name);	/* 0 without it */
uint64_t mono_ns(void);
void clock_load(void);
uint64_t cupti_time(uint64_t mono);

/* layout.c */
struct layout {
	const char *release;
	uint32_t version;	/* what cuptiGetVersion() answers */
	uint32_t runtime_max, driver_max;	/* largest callback ids */
	uint16_t memcpy_sz, p2p_sz, memset_sz, kernel_sz, sync_sz, overhead_sz, graph_sz;
};

const struct layout *layout(void);
/* 0 for a kind that this release does not know. */
size_t record_size(uint32_t kind);
cupti_result walk(uint8_t *buf, size_t valid, uint8_t **record);

struct record {
	uint8_t bytes[256];
	size_t sz;
	size_t start_off;	/* of start; end is 8 bytes behind */
};

void record_of_op(struct record *r, const struct sim_op *op, uint32_t kernel_kind);
void record_of_call(struct record *r, const struct sim_call *call, uint32_t pid);
void record_times(struct record *r, uint64_t start, uint64_t end);
void record_blank_after(uint8_t *rec, uint64_t limit);
void record_thread_ids(bool system);
bool record_system_ids(void);
const char *call_name(int domain, uint32_t cbid);

#endif
