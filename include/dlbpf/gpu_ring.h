/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The memory that the CUPTI collector (in the training process) and the recorder (root) share.
 *
 * It is a memfd named DL_GPU_MEMFD, made by the collector, close-on-exec, sealed with
 * F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL, and found by the recorder among /proc/PID/fd. The
 * recorder verifies the seals and the size before it maps, copies a record before it looks at it,
 * and believes nothing in it. The collector believes the recorder, which is root.
 *
 * Page 0 is struct dl_gpu_ring, then data_sz bytes (a power of two) of ring. Positions are byte
 * counts that never wrap; the offset in the ring is position & (data_sz - 1). A record starts with
 * struct dl_hdr, is a multiple of 8 bytes and never wraps around the end: a header of kind
 * DL_EV_NONE fills the rest, its size clipped to 65528 and repeated where the rest is larger.
 * In records, header times are CUPTI's clock, tid and pid are ids of the collector's own PID
 * namespace; GPU_CLOCK records, at least one in each flush and always behind the records that they
 * cover, tie CUPTI's clock to CLOCK_MONOTONIC.
 *
 * Control: the recorder stores the mode it wants in want and wakes a sleeper with FUTEX_WAKE
 * (not PRIVATE) on that word, and adds to beat at least once a second. The collector answers in
 * state. When beat stands still for DL_GPU_BEAT_TIMEOUT_MS, the recorder is taken for dead and the
 * collector goes back to sleep: nothing enabled, no callbacks.
 */
#ifndef DLBPF_GPU_RING_H
#define DLBPF_GPU_RING_H

#include <dlbpf/event.h>

#define DL_GPU_MEMFD "dlbpf-gpu"
#define DL_GPU_THREAD "dlbpf-gpu"	/* name of the collector's thread: to see it appear */
#define DL_GPU_RING_MAGIC 0x676e697270676c64ULL	/* "dlgpring" */
#define DL_GPU_RING_ABI 2	/* raised when a record with text gets another field */
#define DL_GPU_RING_HDR_SZ 4096
#define DL_GPU_RING_MAX_SZ (8U << 20)	/* charged to the job's cgroup */
#define DL_GPU_BEAT_TIMEOUT_MS 5000

enum dl_gpu_mode {
	DL_GPU_MODE_OFF = 0,
	DL_GPU_MODE_LIGHT = 1,	/* copies, synchronisation, graph launches */
	DL_GPU_MODE_STD = 2,	/* and kernels, memsets, the launching calls */
	DL_GPU_MODE_FULL = 3,	/* and every call, overhead */
};

struct dl_gpu_ring {
	__u64 magic;
	__u32 abi;
	__u32 hdr_sz;		/* DL_GPU_RING_HDR_SZ */
	__u32 data_sz;
	__u32 pid;		/* owner, in its own PID namespace */
	__u64 start_ns;		/* CLOCK_MONOTONIC at which the collector was loaded */
	__u32 version;		/* cuptiGetVersion; 0 until CUPTI has been found */
	__u32 flags;		/* enum dl_gpu_source_flag */
	char text[128];		/* NUL-terminated: which CUPTI, or why none */
	__u8 pad0[512 - 168];

	/* written by the recorder */
	__u32 want;		/* enum dl_gpu_mode */
	__u32 flush_ms;		/* flush period; 0 is the collector's default (100) */
	__u32 beat;
	__u32 pad1;
	__u64 tail;		/* position up to which records have been read */
	__u8 pad2[512 - 24];

	/* written by the collector */
	__u64 head;		/* position up to which records are complete */
	__u32 state;		/* enum dl_gpu_mode in force */
	__s32 error;		/* last CUPTI error, 0 none */
	__u64 dropped_ring;	/* running totals, as in GPU_DROP */
	__u64 dropped_cupti;
	__u64 flush_cnt;
	__u64 last_flush_ns;	/* CLOCK_MONOTONIC */
	__u32 exited;		/* 1 after a clean end of the process */
	__u32 busy;		/* 1 while another subscriber holds CUPTI */
	__u8 pad3[512 - 56];
};

_Static_assert(sizeof(struct dl_gpu_ring) == 1536, "three lines of 512 bytes");
_Static_assert(sizeof(struct dl_gpu_ring) <= DL_GPU_RING_HDR_SZ, "fits in the header page");

#endif
