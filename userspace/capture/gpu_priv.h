/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The parts of the recorder's end of the GPU ring, each testable alone. */
#ifndef DLBPF_CAPTURE_GPU_PRIV_H
#define DLBPF_CAPTURE_GPU_PRIV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <dlbpf/gpu_ring.h>

#include "base/diag.h"
#include "base/map.h"

/* --- gpu_ring.c: a mapped ring; its owner may write anything into it at any time ------------- */

struct gpu_ring {
	struct dl_gpu_ring *hdr;
	const uint8_t *data;
	uint32_t data_sz;	/* ours: the header's may change */
	size_t map_sz;
	uint64_t tail;
	uint64_t invalid;	/* records not believed, so far */
};

union gpu_rec {			/* a record of our own, copied and validated */
	struct dl_hdr h;
	struct dl_ev_gpu_kernel kernel;
	struct dl_ev_gpu_memcpy memcpy_;
	struct dl_ev_gpu_api api;
	struct dl_ev_gpu_clock clock;
	struct dl_ev_gpu_source source;
	struct dl_ev_string string;
	uint8_t bytes[DL_EVENT_MAX_SZ];
};

/* fd is a memfd of somebody else's: 0, or -errno when it is not a ring that can be mapped safely. */
int gpu_ring_map(struct gpu_ring *r, int fd, struct dl_diag *d);
void gpu_ring_unmap(struct gpu_ring *r);
/* The collector's position, never further ahead than the ring is long. */
uint64_t gpu_ring_head(struct gpu_ring *r);
/* The next record before head. False at head; bad data are counted and skipped. */
bool gpu_ring_next(struct gpu_ring *r, uint64_t head, union gpu_rec *ret);
/* Tells the collector what has been read. */
void gpu_ring_release(struct gpu_ring *r);
/* The header's text without anything that a terminal would act upon. */
void gpu_ring_text(const struct gpu_ring *r, char *buf, size_t sz);

/* --- gpu_clock.c: CUPTI's clock to CLOCK_MONOTONIC -------------------------------------------- */

#define GPU_CLOCK_PAIRS 2048	/* 200 s of the collector's default period */

struct gpu_clock_pair {
	uint64_t mono, gpu;
	uint64_t bracket_ns;
	bool step;		/* the clock jumped between the pair before and this one */
};

struct gpu_clock {
	struct gpu_clock_pair v[GPU_CLOCK_PAIRS];	/* a ring, the newest at cnt - 1 */
	uint64_t cnt;		/* of all pairs ever added */
	uint64_t steps;
};

/* False when the pair cannot be true (it goes backwards) and was left out. */
bool gpu_clock_add(struct gpu_clock *c, uint64_t mono, uint64_t gpu, uint64_t bracket_ns);
/* False before the first pair. *ret_unsure: a jump of the clock lies near. */
bool gpu_clock_convert(const struct gpu_clock *c, uint64_t gpu, uint64_t *ret_mono, bool *ret_unsure);
/* Both ends of something; the end is never before the start. */
bool gpu_clock_span(const struct gpu_clock *c, uint64_t *start, uint64_t *end, bool *ret_unsure);

/* --- gpu_ids.c: thread ids of the process's own PID namespace to those of /proc ---------------- */

struct gpu_ids {
	uint32_t pid;
	uint32_t nspid;		/* its innermost id */
	bool same;		/* one namespace: ids need no translation */
	struct dl_map tids;
	uint64_t scan_ts;	/* CLOCK_MONOTONIC of the last look at /proc/PID/task */
};

int gpu_ids_open(struct gpu_ids *ids, uint32_t pid);
void gpu_ids_fini(struct gpu_ids *ids);
/* 0 when the thread is not there (any more). */
uint32_t gpu_ids_host(struct gpu_ids *ids, uint32_t nstid, uint64_t now);

/* --- gpu_find.c -------------------------------------------------------------------------------- */

/* The process's memfd, opened; -ENOENT without one. *ret_ino tells it from a later one. */
int gpu_find_memfd(uint32_t pid, int *ret_fd, int *ret_nr, ino_t *ret_ino);
bool gpu_find_same(uint32_t pid, int nr, ino_t ino);

/* --- gpu.c -------------------------------------------------------------------------------------- */

struct dl_gpu;
bool dl_gpu_knows(const struct dl_gpu *g, uint32_t pid);	/* its collector is mapped */

/* --- gpu_hint.c -------------------------------------------------------------------------------- */

#endif
