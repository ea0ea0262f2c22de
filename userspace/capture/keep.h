/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The last part of a recording, on disk in segments. A segment is a trace of its own (docs/FORMAT.md,
 * "Segments"): it says again what was before it, and the newest one loses at most its last second when
 * everything is killed at once. The oldest goes when the rest is long or large enough. To save means to
 * join the segments into one trace, which copies frames and decodes nothing; a process of its own does it
 * while the recording goes on.
 *
 * On a full disk the oldest segments are given up for the newest.
 */
#ifndef DLBPF_CAPTURE_KEEP_H
#define DLBPF_CAPTURE_KEEP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/diag.h"
#include "base/vec.h"
#include "capture/keep_dir.h"
#include "capture/keep_state.h"
#include "capture/sink.h"
#include "trace/trace.h"

/* Told to the user; text is one line. */
struct dl_keep_told { void (*fn)(const char *text, void *arg); void *arg; };

struct dl_keep_opts {
	uint64_t span_ns;	/* keep so long; 0 no limit */
	uint64_t max_sz;	/* keep so many bytes; 0 no limit; one of both is given */
	uint64_t seg_ns;	/* 0: an eighth of span_ns, at least 1 s */
	uint64_t seg_sz;	/* 0: an eighth of max_sz, at least 256 KiB */
	uint32_t frame_raw_sz;	/* as in struct dl_trace_writer_opts */
	const char *base;	/* what a killed recorder has left is saved beside this; NULL: is left alone */
	struct dl_keep_told told;
};

struct dl_keep;

/* dir: the folder's path. meta describes the recording; its texts must outlive the keep. */
int dl_keep_open(struct dl_keep **ret, const struct dl_keep_opts *opts, const char *dir, const struct dl_invoker *inv,
		 const struct dl_trace_meta *meta, struct dl_diag *d);

/* The event goes into the newest segment. 0, -EINVAL for a malformed one, or an error that ends the
 * recording; a full disk is none. */
int dl_keep_write(struct dl_keep *k, const struct dl_hdr *ev);

/* A few times a second: writes what is a second old, begins and drops segments. All events until
 * seen_ts have been written. */
int dl_keep_tick(struct dl_keep *k, uint64_t now, uint64_t seen_ts);

/* What is younger than this less the span must stay, until it is 0 again: it is going to be saved. */
void dl_keep_hold(struct dl_keep *k, uint64_t ts);

struct dl_kstate *dl_keep_state(struct dl_keep *k);

struct dl_keep_stats {
	uint64_t events, lost;	/* of the whole recording */
	uint64_t kept_bytes;	/* on disk now */
	uint64_t kept_ns;	/* that the segments cover */
	uint32_t segments;
	bool full;		/* there is no room for even one segment: events are lost until there is */
};

void dl_keep_stats(const struct dl_keep *k, uint64_t now, struct dl_keep_stats *ret);

/* and_remove: segments and folder, too. Else they stay, for dl_keep_recover(). */
void dl_keep_close(struct dl_keep *k, bool and_remove);

/* --- saving (keep_save.c) --- */

/* Where to: fd, which is then its own, or a path that is opened in the user's name. */
struct dl_keep_out {
	int fd;			/* -1: path */
	const char *path;
	const char *remove;	/* an older trace that makes room for it afterwards; NULL none */
	bool last;		/* nothing will be written any more */
	const char *stop;	/* says that the recording goes on, as the text of a MARK at the end; NULL none */
};

/* Starts to join what is kept, in a process of its own: its id, or -errno. Wait for it with
 * dl_keep_saved(). */
pid_t dl_keep_save(struct dl_keep *k, uint64_t seen_ts, const struct dl_keep_out *out);

/* False: it goes on. *ret_err: 0 or -errno of the saving. */
bool dl_keep_saved(pid_t pid, bool wait, int *ret_err);

/* Joins what killed recorders have left in the folder, each recording into a trace that dl_keep_name()
 * calls "recovered", and removes it. No thread may run. */
int dl_keep_recover(const struct dl_keep_dir *dir, const char *base, const struct dl_keep_told *told);

/* BASE-20260131-235959-WHAT.dlbpf, in local time; -2 and so on is added where there is such a file.
 * base: the path of a trace, whose .dlbpf is left out. NULL without memory. */
char *dl_keep_name(const char *base, time_t when, const char *what);

#endif
