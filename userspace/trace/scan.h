/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Where the frames of a file are, private to trace/: by its index, or by looking for them. */
#ifndef DLBPF_TRACE_SCAN_H
#define DLBPF_TRACE_SCAN_H

#include "trace/format.h"

struct dl_scan {
	uint64_t damaged_bytes;
	uint64_t damaged_off;	/* where the first of them is */
	bool torn;		/* it is a frame without its end */
	bool complete;		/* there is a footer */
};

/* Fills in ix, which is zeroed; 0 or -errno. first is the offset of the first frame. */
int dl_scan_file(struct dl_index *ix, struct dl_scan *scan, int fd, uint64_t file_sz,
		 uint64_t first, uint64_t trace_id);

#endif
