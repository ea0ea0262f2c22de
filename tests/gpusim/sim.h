/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * A GPU made of software. The double of libcuda.so.1 holds the device (device.c) and the driver's
 * entry points (driver.c); the double of libcudart (runtime.c) calls them; the double of libcupti
 * (cupti.c) is told of every call and every piece of work through struct sim_sink.
 *
 * There is no thread that plays the device: when work is submitted, the model computes when it
 * will start and end, from the time of submission, what lies before it in its stream, what it
 * waits for and the engine it needs. So times do not depend on how busy the host is.
 */
#ifndef GPUSIM_SIM_H
#define GPUSIM_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_EXPORT __attribute__((visibility("default")))

/* Addresses that stand for memory without being any: only their range matters. */
#define SIM_DEVICE_BASE 0x7d0000000000ULL	/* device memory */
#define SIM_PINNED_BASE 0x7c0000000000ULL	/* pinned host memory with nothing behind it */
#define SIM_PAGEABLE_BASE 0x7b0000000000ULL	/* pageable host memory with nothing behind it */
#define SIM_RANGE_SZ 0x010000000000ULL

enum sim_error {		/* CUresult and cudaError_t agree on these */
	SIM_OK = 0,
	SIM_ERR_INVALID = 1,
	SIM_ERR_MEMORY = 2,
	SIM_ERR_NOT_INIT = 3,
	SIM_ERR_NO_DEVICE = 100,
	SIM_ERR_INVALID_DEVICE = 101,
	SIM_ERR_NOT_FOUND = 500,
	SIM_ERR_NOT_READY = 600,
};

enum sim_kind { SIM_KERNEL = 1, SIM_MEMCPY, SIM_MEMSET, SIM_SYNC, SIM_GRAPH };
enum sim_domain { SIM_DRIVER = 1, SIM_RUNTIME = 2 };	/* CUPTI's callback domains */

struct sim_op {			/* a piece of work, or a synchronisation of the host */
	enum sim_kind kind;
	uint32_t device, context, stream, corr;
	uint64_t start, end;	/* CLOCK_MONOTONIC, by the model */
	uint64_t queued;	/* when it was submitted */
	uint64_t bytes;
	uint8_t dir, src, dst;	/* CUPTI's copy and memory kinds */
	bool async;
	const char *name;	/* of a kernel; lives as long as the process */
	uint32_t sync_type, event;
	uint32_t graph;
	uint32_t grid[3], block[3];
	bool not_ready;		/* a query that found the work unfinished */
};

struct sim_call {
	enum sim_domain domain;
	uint32_t cbid, tid, corr, ret;
	uint64_t start, end;	/* CLOCK_MONOTONIC */
};

struct sim_sink {
	void (*op)(const struct sim_op *op);
	void (*call)(const struct sim_call *call);
};

/* Everything a device takes time for; see README.md for where the numbers come from. */
struct sim_model {
	char name[64];
	uint64_t mem_sz;
	uint64_t pinned_bps, pageable_bps, dtoh_bps, dtod_bps, memset_bps;	/* bytes a second */
	uint32_t copy_ns;		/* shortest copy, added to bytes / rate where pinned */
	uint32_t launch_ns;		/* a launching call on the host */
	uint32_t start_ns;		/* from the end of that call to the start on an idle device */
	uint32_t gap_ns;		/* between two pieces of work in a stream */
	uint32_t memcpy_ns;		/* cudaMemcpyAsync of pinned memory on the host */
	uint32_t small_ns;		/* the same, pageable, up to SIM_SMALL_SZ: it only fills a buffer */
	uint32_t stage_ns;		/* pageable: until the first part is staged and on its way */
	uint32_t tail_ns;		/* pageable: the call returns this long before the copy's end */
	uint32_t sync_ns;		/* from the work's end until a waiting call returns */
	uint32_t event_ns, query_ns;
	uint32_t malloc_ns, free_ns;
	uint32_t host_alloc_ns;		/* and per page: */
	uint32_t host_page_ns;
	uint32_t module_ns, graph_ns;
};

#define SIM_SMALL_SZ (64U << 10)	/* pageable copies up to this do not wait for the stream */

struct sim_stream;
struct sim_event;

/* --- device.c -------------------------------------------------------------------------------- */

uint64_t sim_now(void);
void sim_spin_until(uint64_t ts);
const struct sim_model *sim_model(void);
bool sim_ready(void);			/* cuInit() was called, and not in a parent process */
uint32_t sim_device_cnt(void);
uint32_t *sim_current(void);		/* this thread's current device */
struct sim_stream *sim_stream(void *handle);	/* NULL, 1 and 2 are the device's default stream */
int sim_stream_create(struct sim_stream **ret);
uint64_t sim_stream_end(struct sim_stream *s);
uint32_t sim_stream_id(const struct sim_stream *s);
int sim_mem_alloc(uint64_t *ret, size_t sz);
int sim_mem_free(uint64_t ptr);
void sim_pin(const void *p, size_t sz);
bool sim_unpin(const void *p, size_t *ret_sz);
uint8_t sim_mem_kind(const void *p);	/* CUPTI's memory kind */
void sim_emit(const struct sim_op *op);

int sim_kernel(struct sim_stream *s, const char *name, uint64_t ns, const uint32_t *grid,
	       const uint32_t *block);
int sim_memcpy(struct sim_stream *s, void *dst, const void *src, size_t sz, bool async);
int sim_memset(struct sim_stream *s, size_t sz);
int sim_graph(struct sim_stream *s, uint32_t id, uint64_t ns);
int sim_wait(uint64_t until, struct sim_stream *s, uint32_t sync_type, uint32_t event);
int sim_query(uint64_t until, struct sim_stream *s, uint32_t sync_type, uint32_t event);
void sim_stream_wait(struct sim_stream *s, uint64_t until, uint32_t event);

/* A call into the driver or the runtime; nested ones belong to the outermost. */
struct sim_scope { uint64_t start; enum sim_domain domain; uint32_t cbid; bool outer; };
SIM_EXPORT struct sim_scope sim_begin(enum sim_domain domain, uint32_t cbid);
SIM_EXPORT int sim_end(struct sim_scope *scope, int ret);
void sim_cost(const struct sim_scope *scope, uint64_t ns);	/* the call takes at least that */

SIM_EXPORT void sim_attach(const struct sim_sink *sink);	/* the double of libcupti */

/* A kernel's handle, as cuLaunchKernel() and cudaLaunchKernel() take it. */
struct sim_function { char name[256]; uint64_t ns; };
SIM_EXPORT struct sim_function *gpusim_function(const char *name, uint64_t ns);
SIM_EXPORT int gpusim_pinned(const void *p);
SIM_EXPORT int gpusim_is_simulated(void);

#endif
