/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Inside import/: what a reader of one format hands its records to. */
#ifndef DLBPF_IMPORT_IMPORT_INT_H
#define DLBPF_IMPORT_IMPORT_INT_H

#include <dlbpf/event.h>

#include "base/map.h"
#include "base/vec.h"
#include "import/import.h"
#include "import/spill.h"

/* Ids of strings begin here: out of the way of those that a collector has handed out. */
#define DL_IMPORT_NAME_BASE 0x40000000u

struct dl_import_thread { uint32_t pid, tid; uint64_t op_start, op_end; };	/* pid 0: the file's process */
struct dl_import_device { uint32_t id; bool used; uint64_t mem; char name[64]; };

struct dl_import {
	struct dl_import_info info;
	const char *path;	/* the caller's */
	char origin[128];
	char cut[512];
	struct dl_spill *spill;	/* times count from base_ns until they are written */
	struct dl_map names;	/* hash of a text -> STRING.id */
	struct dl_map thread_at;	/* pid << 32 | tid -> index in threads */
	struct dl_map pid_seen;	/* that have called the driver */
	DL_VEC(struct dl_import_thread) threads;
	DL_VEC(struct dl_import_device) devices;
	uint64_t first, last;	/* counted from base_ns */
	bool any;
	int64_t offset;		/* CLOCK_REALTIME - CLOCK_MONOTONIC of the trace that is written */
	struct dl_map pid_map, tid_map;	/* of the run: id in its namespace -> host id */
};

int dl_kineto_read(struct dl_import *imp, struct dl_diag *d);
int dl_nsys_read(struct dl_import *imp, struct dl_diag *d);

/* STRING.id of a text, which is written where it is new; 0 for none. 0 or -errno. */
int dl_import_name(struct dl_import *imp, uint64_t ts, const char *text, size_t len, uint32_t *ret, struct dl_diag *d);

/*
 * Takes one event whose first field is its end, as in all GPU records: kind, size and the other fields are
 * filled in; times count from base_ns. pid 0 is the process of the file. Events with impossible times are
 * counted, not taken.
 */
int dl_import_event(struct dl_import *imp, struct dl_hdr *ev, int64_t start_ns, int64_t dur_ns,
		    struct dl_diag *d);

/* A thread that has called the driver, or that was in a span. NULL without memory. */
struct dl_import_thread *dl_import_thread(struct dl_import *imp, uint32_t pid, uint32_t tid);

/* NULL without memory. */
struct dl_import_device *dl_import_device(struct dl_import *imp, uint32_t id);

/* An operator inside the last one of its thread says nothing new. */
int dl_import_span(struct dl_import *imp, uint32_t pid, uint32_t tid, int64_t start_ns, int64_t dur_ns,
		   const char *text, uint32_t kind, struct dl_diag *d);

/* By names that the two formats share. */
uint32_t dl_import_call_class(const char *name);
uint32_t dl_import_span_kind(const char *name);	/* 0: neither a batch nor a step */

#endif
