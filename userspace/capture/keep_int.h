/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What keep.c (segments) and keep_save.c (one trace of them) share. */
#ifndef DLBPF_CAPTURE_KEEP_INT_H
#define DLBPF_CAPTURE_KEEP_INT_H

#include "capture/keep.h"

#define DL_SEG_NAME_SZ 64

struct dl_seg {
	char name[DL_SEG_NAME_SZ];
	uint64_t start_ts, end_ts, sz;
};

struct dl_keep {
	struct dl_sink sink;	/* what is said again, into the writer */
	struct dl_keep_opts opts;
	struct dl_keep_dir dir;
	const struct dl_trace_meta *meta;
	struct dl_kstate *state;
	char session[40];	/* begins the names of this recording's segments */
	uint32_t next_nr;
	struct dl_trace_writer *w;	/* of the newest segment; NULL while there is no room for one */
	struct dl_seg cur;
	DL_VEC(struct dl_seg) segs;	/* the others, the oldest first */
	uint64_t segs_sz;
	uint64_t hold_ts, retry_ts, begin_ts;
	uint64_t events, lost;	/* of segments that are done */
};

/* Ends the newest segment and begins another: all that was recorded is in whole files then. */
int dl_keep_rotate(struct dl_keep *k, uint64_t seen_ts);
void dl_keep_end(struct dl_keep *k, uint64_t seen_ts);	/* the same without another */

#endif
