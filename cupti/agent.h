/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The parts of the collector, in the order in which they know each other.
 *
 * One thread, asleep until a recorder asks, does everything that takes time: it finds CUPTI,
 * switches it on and off, flushes, converts and writes the ring. The application's threads meet
 * the collector only in pool_request() and pool_complete(), which take no lock and allocate
 * nothing. Nothing here may crash, block or print: the process belongs to somebody else.
 */
#ifndef DLBPF_CUPTI_AGENT_H
#define DLBPF_CUPTI_AGENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <dlbpf/gpu_ring.h>

#include "cupti_abi.h"

/* --- ring.c: the only writer is the collector's thread -------------------------------------- */

/* Makes the sealed memfd and maps it; 0 or -errno. */
int ring_open(void);
struct dl_gpu_ring *ring_header(void);
/* In a forked child: lets go of what belongs to the parent. */
void ring_leave(void);
/* Queues a record; false, and counted, when the ring is full. Urgent ones may use the last part. */
bool ring_put(const void *rec, size_t sz, bool urgent);
bool ring_put_text(struct dl_hdr *rec, size_t fixed_sz, const char *text, size_t len, bool urgent);
/* Lets the recorder see what was put. */
void ring_publish(void);
uint64_t ring_lost_cnt(void);
void ring_set_text(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* --- names.c -------------------------------------------------------------------------------- */

/* The id of a text, 0 without one or without room; ships the text in this session if need be. */
uint32_t names_id(const char *text);
/* From now on texts are shipped anew: the recorder is another one. */
void names_forget(void);

/* --- calls.c -------------------------------------------------------------------------------- */

struct call {
	uint16_t cbid;
	uint8_t domain;		/* enum dl_gpu_domain */
	uint8_t class;		/* enum dl_gpu_call */
	bool light;
	const char *name;
};

extern const struct call calls[];
extern const unsigned int calls_cnt;

/* NULL for a call that is of no interest. */
const struct call *call_find(unsigned int domain, uint32_t cbid);

/* --- pool.c: buffers for CUPTI -------------------------------------------------------------- */

int pool_open(void);	/* 0 or -errno; cheap to repeat */
void pool_request(uint8_t **buf, size_t *size, size_t *max_records);
void pool_complete(void *ctx, uint32_t stream, uint8_t *buf, size_t size, size_t valid);
/* Takes what was completed: walk(buf, valid) for each, then the buffer is free again. */
void pool_drain(void (*walk)(uint8_t *buf, size_t valid));
void pool_trim(void);	/* gives the memory of free buffers back */
uint64_t pool_lost_cnt(void);	/* records, estimated from their bytes, that found no buffer */
uint64_t pool_done_cnt(void);	/* buffers with records in them that came back */
uint64_t pool_request_cnt(void);	/* buffers that CUPTI asked for */
/* CUPTI has none of ours any more: those that it gave to another tool are free again. */
void pool_reclaim(void);

/* --- find.c --------------------------------------------------------------------------------- */

enum find_result { FIND_OK = 0, FIND_LATER, FIND_NONE };

/* Fills in the table once; later calls repeat the answer. path: which library it is. */
enum find_result find_cupti(struct cupti_api_table *ret, char *path, size_t sz, bool *ret_simulated,
			    bool *ret_loaded_here);
bool find_torch(void);	/* PyTorch is in the process */
/* A function of the driver, which is in the process; NULL where it has none. */
void *find_driver(const char *symbol);

/* --- use.c: CUPTI's interface, in the version that this session uses ------------------------------- */

/* 0, CUPTI_ABI_ERR_SUBSCRIBERS when another tool has it, or another error. */
cupti_result use_open(const struct cupti_api_table *cupti);
void use_close(void);
const char *use_holder(void);	/* the other tool's name; "" unknown */
bool use_is_v2(void);		/* several subscribers, each with buffers and kinds of its own */
void use_options(bool ours);	/* false: back to the defaults */
cupti_result use_register(void);
cupti_result use_kind(int kind, bool on);
bool use_has_call_filter(void);
void use_call(unsigned int domain, uint32_t cbid, bool on);
cupti_result use_next_record(uint8_t *buf, size_t valid, uint8_t **rec);
cupti_result use_timestamp(uint64_t *ret);
cupti_result use_dropped(size_t *ret);
/* False when one of the kinds is off; true also where this CUPTI cannot be asked. */
bool use_kinds_left(const int *kinds, size_t cnt);
bool use_can_ask_kinds(void);

/* --- convert.c ------------------------------------------------------------------------------ */

struct convert_counts {
	uint64_t unknown;	/* records of a kind CUPTI's walker stops at, or too short */
	uint64_t zero;		/* records without timestamps */
	uint64_t beats;		/* of others.c; they go no further */
	uint64_t work;		/* kernels, copies and memsets */
	uint64_t asked, waits;	/* calls that succeeded: launches and copies; synchronisation */
};

void convert_begin(const struct cupti_api_table *cupti, uint32_t pid);
void convert_mode(unsigned int mode);
void convert_buffer(uint8_t *buf, size_t valid);
const struct convert_counts *convert_counts(void);

/* --- others.c: other tools that use CUPTI in this process ------------------------------------------ */

enum others_sign {
	OTHERS_NONE = 0,
	OTHERS_OFF,	/* records come to us, but kinds were switched off */
	OTHERS_QUIET,	/* they may have been: calls are recorded and no work */
	OTHERS_TAKEN,	/* records go to somebody else */
};

void others_begin(uint64_t now);
/* After each flush. kinds: what should be on; lost: records lost so far. */
enum others_sign others_look(const int *kinds, size_t cnt, uint64_t now, uint64_t lost);
/* Whether kinds that should be on are off, where this CUPTI can be asked. */
bool others_kinds_gone(const int *kinds, size_t cnt, uint64_t now);
uint64_t others_ours_ns(void);	/* CLOCK_MONOTONIC at which all was well for the last time */

/* --- session.c ------------------------------------------------------------------------------ */

/* 0 when mode is in force; -EBUSY another tool holds CUPTI; -EAGAIN ask again later; else failed. */
int session_start(unsigned int mode);
/* Another mode without an interruption of what both record. */
void session_switch(unsigned int mode);
/* Whether the record of the beat's call is on. */
void use_beat(bool on);
void session_flush(void);
void session_stop(void);
bool session_running(void);

/* --- inject.c ------------------------------------------------------------------------------- */

void agent_wake(void);
void agent_flush_at_exit(void);	/* after a dlopen of CUPTI, to run before its destructors */

#endif
