/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What NVML and sysfs know of the GPUs of the recorded processes: GPU_LINK once for each device of a
 * process, GPU_SAMPLE every second. A thread of its own asks NVML, whose calls take up to 20 ms each, or
 * for ever where the driver is broken; the recorder's thread only takes what is there. Nothing is loaded,
 * and no thread made, before a process is seen that uses CUDA.
 */
#ifndef DLBPF_CAPTURE_NVML_WATCH_H
#define DLBPF_CAPTURE_NVML_WATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "capture/sink.h"

struct dl_gpu_watch;

struct dl_gpu_watch_opts {
	const char *sys;	/* NULL: DLBPF_SYSFS, or /sys */
	uint32_t period_ms;	/* 0: a second */
	/* Is this one of the recorded processes? */
	bool (*is_ours)(uint32_t pid, void *arg);
	void *arg;
};

int dl_gpu_watch_open(struct dl_gpu_watch **ret, const struct dl_gpu_watch_opts *opts);

/* Ends the thread, for two seconds at most; NULL-safe. */
void dl_gpu_watch_close(struct dl_gpu_watch *w);

/* A recorded process uses CUDA: from now on there is something to ask for. Cheap to repeat. */
void dl_gpu_watch_start(struct dl_gpu_watch *w);

/* A device as a process numbers it, from its collector. Starts, too. 0 or -ENOMEM. */
int dl_gpu_watch_device(struct dl_gpu_watch *w, const struct dl_ev_gpu_device *ev);

/* Emits what is new. last: the recording ends, what is still open is told as it stands. 0 or -errno of the sink. */
int dl_gpu_watch_emit(struct dl_gpu_watch *w, struct dl_sink *sink, bool last);

/*
 * NVML's number of a process's device by CUDA_VISIBLE_DEVICES (NULL: not set), -1 unknown. Plain numbers
 * mean something only where CUDA orders devices as NVML does: by address on request, or when all are alike.
 */
int32_t dl_gpu_visible(const char *visible, bool same_order, const char *const *uuids, uint32_t cnt, uint32_t device);

#endif
