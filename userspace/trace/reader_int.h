/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The reader's own, private to trace/: reader.c opens and merges, join.c knows about segments. */
#ifndef DLBPF_TRACE_READER_INT_H
#define DLBPF_TRACE_READER_INT_H

#include "base/vec.h"
#include "trace/format.h"

/* A frame that is being read. */
struct open_frame {
	struct dl_decoded dec;
	size_t at;	/* next event */
	uint64_t order;	/* of the frame in the file: of equal times the earlier one comes first */
};

struct frame {
	struct dl_frame_pos pos;
	uint64_t order;	/* in the file; segments one behind the other */
	uint32_t source;
	bool bad;
};

/* The file, or one of the segments. */
struct source {
	int fd;
	uint64_t trace_id;
};

struct dl_trace {
	DL_VEC(struct source) sources;
	char *path;
	struct dl_file_header header;
	struct dl_trace_info info;
	char damage[512];
	struct dl_decoder *dec;
	struct dl_buf comp;
	struct { struct frame *v; size_t cnt, cap; } frames;	/* by first_ts */

	uint64_t from, to;
	dl_kinds keep;	/* these are read outside of the window, too */
	size_t next_frame;
	struct { struct open_frame *v; size_t cnt, cap; } heap;	/* smallest next event first */
	DL_VEC(struct dl_decoded) spare;	/* buffers to be used again */
	size_t open_sz;
	bool step;	/* the first of the heap was returned and has to go on */
	uint64_t limit;	/* before this time all events are of the first of the heap */
};

/* Header and payload to t->comp. 1, 0 when the frame is damaged, or -errno. */
int dl_trace_load(struct dl_trace *t, struct frame *f, struct dl_frame_hdr *h);

/* The file describes its events as this build does. Only then can frames of several files be mixed. */
bool dl_trace_same_events(const struct dl_file_schema *s);

/* The frames at the head of a segment that say again what the ones before it say: *ret_first is how many.
 * All, when its recorder was killed in them. What they count is taken out of ix's totals. */
int dl_trace_skip_state(const struct source *s, struct dl_index *ix, size_t *ret_first);

#endif
