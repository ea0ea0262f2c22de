/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Where captured events go. Every source (kernel rings, /proc samplers, the GPU ring) emits into a
 * sink; the recorder's own sink looks at some of them and writes all to the trace file.
 */
#ifndef DLBPF_CAPTURE_SINK_H
#define DLBPF_CAPTURE_SINK_H

#include <dlbpf/event.h>

struct dl_sink {
	/* The event is only valid during the call. Returns 0 or -errno, which ends the recording. */
	int (*emit)(struct dl_sink *sink, const struct dl_hdr *ev);
};

/* Fills in a header for an event that userspace makes: size from the kind's table. */
#define DL_EVENT_INIT(TAG, KIND, TS, PID, TID) (struct dl_ev_##TAG){ .h = { \
	.size = sizeof(struct dl_ev_##TAG), .kind = (KIND), .ts = (TS), .pid = (PID), .tid = (TID), \
	.cpu = DL_CPU_NONE } }

/* Emits ev with text as its tail (clipped to DL_EVENT_MAX_SZ). */
int dl_emit_text(struct dl_sink *sink, const struct dl_hdr *ev, const char *text);

#endif
