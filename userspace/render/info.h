/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What a trace file holds: gathered in one pass over it, printed as text or JSON. */
#ifndef DLBPF_RENDER_INFO_H
#define DLBPF_RENDER_INFO_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/diag.h"
#include "base/vec.h"

#define DL_INFO_SCHEMA "dlbpf.info/1"

struct dl_trace;
struct dl_trace_info;
struct dl_text_opts;

struct dl_info_source {
	uint32_t id;	/* GPU: enum dl_gpu_state; absent: enum dl_source */
	uint32_t pid;
	bool simulated;
	char *text;
};

struct dl_info_loss {
	uint32_t ring, cause, kind;	/* enum dl_ring, enum dl_loss_cause, enum dl_kind or 0 */
	uint32_t shed;		/* enum dl_shed */
	uint64_t cnt, before;	/* before: what was kept begins, not counted */
};

struct dl_info_proc {
	uint32_t pid, nspid, ppid;
	uint64_t first_ts, last_ts;
	uint64_t events;
	uint32_t threads;	/* seen */
	bool root, exited;
	int32_t exit_status;
	char name[17];
	char *cmdline;		/* NULL unknown */
};

struct dl_info {
	const struct dl_trace_info *trace;	/* as long as the trace is open */
	const char *path;			/* the caller's */
	char *damage;				/* the first one met; NULL none */
	char *stop;				/* why the recording ended; NULL unknown */
	bool target_exited;
	int32_t target_status;
	uint64_t lost;		/* without what was left out on purpose */
	DL_VEC(struct dl_info_source) gpu;
	DL_VEC(struct dl_info_source) absent;
	DL_VEC(struct dl_info_loss) losses;
	DL_VEC(struct dl_info_proc) procs;	/* of the recorded tree, in order of appearance */
};

/* Reads all of the trace. */
int dl_info_collect(struct dl_info **ret, struct dl_trace *t, const char *path, struct dl_diag *d);
void dl_info_free(struct dl_info *info);

int dl_info_text(const struct dl_info *info, const struct dl_text_opts *opts, FILE *out, struct dl_diag *d);
int dl_info_json(const struct dl_info *info, FILE *out, struct dl_diag *d);

/* The table of events of this build. */
int dl_schema_text(const struct dl_text_opts *opts, FILE *out, struct dl_diag *d);
int dl_schema_json(FILE *out, struct dl_diag *d);

#endif
