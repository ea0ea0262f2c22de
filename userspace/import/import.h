/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * GPU traces that other tools have made: Chrome JSON of PyTorch's profiler (Kineto), plain or gzipped, and
 * the SQLite export of Nsight Systems. They are read once, a piece at a time; their records become events,
 * sorted by time in temporary files, and then a dlbpf trace, alone or merged with one of the same run.
 *
 * The files are CLOCK_REALTIME. A trace made of one alone keeps that clock, and its header says so: start_ts
 * is start_realtime_ns. Merged, they are converted to the other trace's CLOCK_MONOTONIC.
 */
#ifndef DLBPF_IMPORT_IMPORT_H
#define DLBPF_IMPORT_IMPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/diag.h"

struct dl_import;
struct dl_trace;

enum dl_import_format { DL_IMPORT_KINETO = 1, DL_IMPORT_NSYS };

struct dl_import_info {
	enum dl_import_format format;
	const char *origin;	/* "Kineto trace", "Nsight Systems 2025.5.2" */
	bool has_clock;		/* times are CLOCK_REALTIME; else from an unknown zero */
	int64_t base_ns;	/* what the file counts from, in CLOCK_REALTIME */
	uint64_t first_ns, last_ns;	/* over all records that were taken */
	uint32_t pid;		/* of the process that used the GPU, as the file has it; 0 unknown */
	uint32_t pids;		/* processes with records */
	uint64_t kernels, copies, memsets, syncs, calls, spans;
	uint64_t invalid;	/* records without usable times */
	const char *cut;	/* where and how the file ends in the middle; NULL it is whole */
};

int dl_import_read(struct dl_import **ret, const char *path, struct dl_diag *d);
void dl_import_free(struct dl_import *imp);

const struct dl_import_info *dl_import_info(const struct dl_import *imp);

/* Writes a trace; fd is owned by the call. */
int dl_import_write(struct dl_import *imp, int fd, struct dl_diag *d);

/*
 * Writes all events of the run but its own GPU records of the same processes, and those of the import on
 * its clock with its process and thread ids. Fails where the two do not overlap in time, or where the
 * run has no such process. fd is owned by the call.
 */
int dl_import_merge(struct dl_import *imp, struct dl_trace *run, const char *run_path, int fd, struct dl_diag *d);

/* CLOCK_REALTIME minus CLOCK_MONOTONIC that dl_import_merge has used; 0 after dl_import_write. */
int64_t dl_import_offset(const struct dl_import *imp);

/*
 * Copies a Kineto trace to out, gzipped if out_gz, with more events (JSON objects with commas between) at
 * the end of its traceEvents. Every other byte stays as it is.
 */
int dl_annotate_copy(const char *path, const char *more, int out_fd, bool out_gz, struct dl_diag *d);

#endif
