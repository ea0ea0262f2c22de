/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The decoder's insides, private to decode.c (frames) and column.c (columns of numbers). */
#ifndef DLBPF_TRACE_DECODE_H
#define DLBPF_TRACE_DECODE_H

#include <zstd.h>

#include "base/vec.h"
#include "trace/format.h"

struct column {
	uint8_t enc;
	const uint8_t *p, *end;
};

/* A kind of the frame. */
struct part {
	const struct dl_file_event *ev;
	const struct dl_event_desc *own;	/* NULL: nothing of it is returned */
	size_t first, cnt;			/* its events in the arrays that are sorted by kind */
	size_t col;				/* its first column, behind those of the tail */
	struct column tail_len, tail;
	size_t next;				/* cursor */
};

struct dl_decoder {
	ZSTD_DCtx *dctx;
	struct dl_buf payload;
	DL_VEC(uint64_t) words;
	DL_VEC(struct column) cols;
	struct part parts[DL_MAX_FRAME_KINDS];
	const char *why;

	/* arrays in words: threads of the frame; by event, sorted by kind; scratch of one kind */
	size_t thread_cnt;
	uint64_t *threads;
	uint32_t *pos, *tail_len;
	uint64_t *v, *ts, *dt, *last, *last2;
	uint32_t *slot[DL_KEY_CNT], *next;
	size_t cnt;
	bool neighbours;	/* dt and next are those of the kind at hand */
};

/* Two bytes at a time are the most common by far. */
static inline const uint8_t *dl_get_varint_fast(const uint8_t *p, const uint8_t *end, uint64_t *ret)
{
	if (__builtin_expect(end - p >= 2, 1)) {
		if (p[0] < 0x80) {
			*ret = p[0];
			return p + 1;
		}
		if (p[1] < 0x80) {
			*ret = (uint64_t)(p[0] & 0x7f) | (uint64_t)p[1] << 7;
			return p + 2;
		}
	}
	return dl_get_varint(p, end, ret);
}

/* Keeps the reason and returns -EBADMSG. */
int dl_decode_bad(struct dl_decoder *d, const char *why);

/* The column that begins at p; returns where it ends, or NULL. */
const uint8_t *dl_column_find(const uint8_t *p, const uint8_t *end, struct column *ret);

/*
 * The numbers of a column to d->v. keyed: its model may depend on the columns before it; buf and pos
 * say where the kind's events are then.
 */
int dl_column_get(struct dl_decoder *d, const struct column *c, const uint8_t *buf,
		  const uint32_t *pos, bool keyed);

/* d->v to the fields at off. */
void dl_column_scatter(const struct dl_decoder *d, uint8_t *buf, const uint32_t *pos,
		       unsigned int type, size_t off);

#endif
