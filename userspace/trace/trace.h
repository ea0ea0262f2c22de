/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The trace file: written by one recorder, read by anybody, anywhere. docs/FORMAT.md is normative.
 *
 * Crash-proof: header and schema block, then independent compressed frames, each with its time
 * range, event count and checksum, then an index and a footer. A file without its end is read up
 * to the last whole frame.
 */
#ifndef DLBPF_TRACE_TRACE_H
#define DLBPF_TRACE_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <dlbpf/event.h>

#include "base/diag.h"

/* What is known when the recording begins; texts are owned by whoever filled it in. */
struct dl_trace_meta {
	uint64_t start_ts;		/* CLOCK_MONOTONIC */
	uint64_t start_realtime_ns;	/* CLOCK_REALTIME at start_ts */
	uint32_t target_pid;		/* host id of the root of the recorded tree */
	uint32_t cpus;			/* possible CPUs */
	uint32_t page_sz;
	uint32_t sample_hz;
	char *host;			/* host name */
	char *kernel;			/* uname -r */
	char *machine;			/* uname -m */
	char *target_cmdline;
	char *recorder;			/* "dlbpf 0.1.0" */
	char *record_args;		/* command line of the recorder */
	char *boot_id;			/* /proc/sys/kernel/random/boot_id */
};

/* A set of kinds: bit k is kind k. */
typedef uint64_t dl_kinds;
#define DL_KIND(kind) (1ULL << (kind))

/* What threads did, what GPUs did, and looks that are repeated. All else says what there is: it is needed by who
 * reads a part of the trace, too, and stands in frames of its own where there is much of this. */
#define DL_BULK_KINDS \
	(DL_KIND(DL_EV_SWITCH) | DL_KIND(DL_EV_WAKE) | DL_KIND(DL_EV_SAMPLE) | DL_KIND(DL_EV_MEM) | \
	 DL_KIND(DL_EV_ENV_HOST) | DL_KIND(DL_EV_ENV_CGROUP) | DL_KIND(DL_EV_ENV_SHM) | DL_KIND(DL_EV_ENV_PROC) | \
	 DL_KIND(DL_EV_GPU_KERNEL) | DL_KIND(DL_EV_GPU_GRAPH) | DL_KIND(DL_EV_GPU_MEMCPY) | DL_KIND(DL_EV_GPU_SYNC) | \
	 DL_KIND(DL_EV_GPU_API) | DL_KIND(DL_EV_GPU_CLOCK) | DL_KIND(DL_EV_GPU_SAMPLE) | DL_KIND(DL_EV_SPAN))

/* --- writing --- */

struct dl_trace_writer;

struct dl_trace_writer_opts {
	uint32_t frame_raw_sz;	/* events are compressed when this much is pending; 0: 1 MiB */
	uint32_t frame_ns;	/* or when the oldest has been pending this long; 0: 1 s */
	int level;		/* zstd level; 0: the default, which is the fastest */
	uint64_t max_sz;	/* stop with -EFBIG when the file would grow beyond; 0: no limit */
	bool no_sync;		/* do not wait for the disk when it is closed */
	size_t queue_sz;	/* a thread of its own writes, and so many bytes may wait for it; 0: the caller writes */
};

/*
 * Creates or replaces the file and writes header and schema block at once. fd must be open for
 * writing and is owned by the writer from then on, also on failure.
 */
int dl_trace_writer_open(struct dl_trace_writer **ret, int fd, const struct dl_trace_meta *meta,
			 const struct dl_trace_writer_opts *opts, struct dl_diag *d);

/*
 * Takes a copy of the event. Order is free within the frame's time; a late event goes into a later
 * frame and is merged by the reader. Returns 0, -EINVAL for a malformed event, -EFBIG at max_sz,
 * or the error of the write (-ENOSPC, ...), with queue_sz of an earlier one. After an error the file on disk
 * is still readable, and every further call returns the same error.
 */
int dl_trace_write(struct dl_trace_writer *w, const struct dl_hdr *ev);

/*
 * Writes what has been pending for frame_ns; UINT64_MAX: in any case. now_ts is CLOCK_MONOTONIC now.
 * To be called a few times a second, also when there are no events.
 */
int dl_trace_writer_flush(struct dl_trace_writer *w, uint64_t now_ts);

/* More than half of queue_sz waits for the disk: a caller that goes on will have to wait, too. */
bool dl_trace_writer_is_behind(const struct dl_trace_writer *w);

struct dl_trace_writer_stats {
	uint64_t events;	/* written or pending */
	uint64_t raw_bytes;	/* as structs */
	uint64_t file_bytes;	/* on disk so far */
	uint64_t frames;
	uint64_t lost;		/* taken by dl_trace_write(), but could not be written to the file */
};

void dl_trace_writer_stats(const struct dl_trace_writer *w, struct dl_trace_writer_stats *ret);

/*
 * Writes what is pending, the index and the footer, fsyncs and frees w (also on failure).
 * After an earlier -ENOSPC or -EFBIG it still tries to write the index.
 */
int dl_trace_writer_close(struct dl_trace_writer *w, struct dl_diag *d);

/* --- reading --- */

struct dl_trace;

struct dl_trace_info {
	struct dl_trace_meta meta;
	uint64_t first_ts, last_ts;	/* over all whole frames; 0 when there is none */
	uint64_t events;		/* of kinds that this build does not know, too */
	uint64_t unknown_events;	/* those */
	uint64_t frames;
	uint64_t file_bytes;
	uint64_t raw_bytes;
	uint64_t damaged_bytes;		/* behind the last whole frame, or skipped in between */
	uint64_t damaged_frames;	/* frames whose checksum or content is wrong, as far as met */
	uint64_t decoded_frames;	/* that were decompressed, as far as events were read; each time */
	uint64_t kind_cnt[DL_EV_MAX];	/* events by kind; from the frame headers or index */
	uint16_t major, minor;		/* format version */
	bool complete;			/* the footer is there: the recorder ended in order */
};

int dl_trace_open(struct dl_trace **ret, const char *path, struct dl_diag *d);
void dl_trace_close(struct dl_trace *t);

/* Valid until dl_trace_close. damaged_frames grows while events are read. */
const struct dl_trace_info *dl_trace_info(const struct dl_trace *t);

/* The path and message of the first damage met, or NULL. */
const char *dl_trace_damage(const struct dl_trace *t);

/* Reads only events with from <= ts <= to from then on, from the first; only needed frames are
 * decompressed. 0 and UINT64_MAX: all. */
int dl_trace_window(struct dl_trace *t, uint64_t from_ts, uint64_t to_ts);

/* The same, but of the kinds in keep all events are read, wherever they are. Frames outside of the window that
 * hold none of them are not decompressed. */
int dl_trace_window_keep(struct dl_trace *t, uint64_t from_ts, uint64_t to_ts, dl_kinds keep);

/* Widens a window to the nearest frames outside of it, on either side, that hold one of these kinds; where there
 * is none it stays. */
void dl_trace_widen(const struct dl_trace *t, dl_kinds kinds, uint64_t *from_ts, uint64_t *to_ts);

/*
 * The next event in the order of ts, all frames merged, in this build's layout: fields that the
 * file lacks are 0, kinds that this build does not know are left out. Valid until the next call.
 * Returns 1, 0 at the end, or -errno (out of memory, read error). Damage is not an error: it is
 * counted and skipped.
 */
int dl_trace_next(struct dl_trace *t, const struct dl_hdr **ret);

/* --- joining --- */

/*
 * Writes the whole frames of a trace behind w's, without decoding them: parts of one recording become
 * one trace. no_state: without those at its head that only say again what was before (up to the first
 * frame that holds nothing but MARKs). Damaged frames are left out and counted in t's info. 0,
 * -EPROTOTYPE when the trace describes its events otherwise than this build, or -errno of w or of a read.
 */
int dl_trace_copy_frames(struct dl_trace *t, struct dl_trace_writer *w, bool no_state);

#endif
