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

/* 0 or -errno; cheap to repeat. Buffers that another tool was handed instead of us never come back: when
 * too few are left, they are made anew. */
int pool_open(void);
void pool_request(uint8_t **buf, size_t *size, size_t *max_records);
void pool_complete(void *ctx, uint32_t stream, uint8_t *buf, size_t size, size_t valid);
/* Takes what was completed: walk(buf, valid) for each, then the buffer is free again. */
void pool_drain(void (*walk)(uint8_t *buf, size_t valid));
void pool_trim(void);	/* gives the memory of free buffers back */
uint64_t pool_lost_cnt(void);	/* records, estimated from their bytes, that found no buffer */
/* Another tool's buffers with records in them that we were handed: all, or those with records of what the
 * device did. */
uint64_t pool_foreign_cnt(bool device_only);

/* --- find.c --------------------------------------------------------------------------------- */

enum find_result { FIND_OK = 0, FIND_LATER, FIND_NONE };

/* Fills in the table once; later calls repeat the answer. path: which library it is. */
enum find_result find_cupti(struct cupti_api_table *ret, char *path, size_t sz, bool *ret_simulated,
			    bool *ret_loaded_here);
/* A function of the driver, which is in the process; NULL where it has none. */
void *find_driver(const char *symbol);

/* --- convert.c ------------------------------------------------------------------------------ */

struct convert_counts {
	uint64_t unknown;	/* records of a kind CUPTI's walker stops at, or too short */
	uint64_t zero;		/* records without timestamps */
	uint64_t records;	/* all that came */
};

void convert_begin(const struct cupti_api_table *cupti, unsigned int mode, uint32_t pid);
void convert_buffer(uint8_t *buf, size_t valid);
const struct convert_counts *convert_counts(void);
/* Does it hold records of what the device did? Callable on any thread. */
bool convert_has_device_records(uint8_t *buf, size_t valid);

/* --- watch.c -------------------------------------------------------------------------------- */

enum watch_result { WATCH_OURS = 0, WATCH_LOST, WATCH_TOOK };

/* left_on: calls that we once left on may have been put in buffers of the other tool's since. */
void watch_begin(uint64_t now, bool left_on);
void watch_beat(void);	/* before a flush */
/* After a flush: do records come to us (OURS), to another tool that came later (LOST), or did we take them
 * from one that was there (TOOK)? *ret_until: CLOCK_MONOTONIC up to which they came. */
enum watch_result watch_look(uint64_t now, uint64_t *ret_until);
/* None came for some flushes, though not for long enough to be sure. */
bool watch_doubts(void);

/* --- session.c ------------------------------------------------------------------------------ */

/* 0 when mode is in force; -EBUSY another tool holds CUPTI; -EAGAIN ask again later; else failed. */
int session_start(unsigned int mode);
/* 0, or -EBUSY when another tool has the records now: the session is over, and CUPTI as that tool left it. */
int session_flush(void);
void session_stop(void);
bool session_running(void);
/* The recorder has gone: the next one may ask again what another tool had. */
void session_forget(void);
/* Switches off what was left on when another tool took over, once that is over. Returns how long until then in
 * ms, -1 when nothing is left. */
int session_tidy(void);

/* --- inject.c ------------------------------------------------------------------------------- */

void agent_wake(void);
void agent_flush_at_exit(void);	/* after a dlopen of CUPTI, to run before its destructors */

#endif
