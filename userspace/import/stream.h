/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* A file read from its begin to its end, unpacked where it is gzipped, a buffer at a time. */
#ifndef DLBPF_IMPORT_STREAM_H
#define DLBPF_IMPORT_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/diag.h"

struct dl_stream {
	const char *path;	/* the caller's */
	const unsigned char *at, *end;	/* unread bytes */
	uint64_t off;		/* of end in the unpacked text */
	bool cut;		/* a gzipped file ended in the middle */
	bool eof;
	unsigned char *buf;
	void *gz;
};

int dl_stream_open(struct dl_stream *s, const char *path, struct dl_diag *d);
void dl_stream_close(struct dl_stream *s);

/* More bytes when at == end: 1, 0 at the end of the file, or -errno. A gzipped file that ends in the
 * middle ends there, and cut is set. */
int dl_stream_fill(struct dl_stream *s, struct dl_diag *d);

/* Where the next unread byte lies in the unpacked text. */
static inline uint64_t dl_stream_tell(const struct dl_stream *s)
{
	return s->off - (uint64_t)(s->end - s->at);
}

#endif
