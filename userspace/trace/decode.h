/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The decoder's insides, private to decode.c (frames) and column.c (columns of numbers). */
#ifndef DLBPF_TRACE_DECODE_H
#define DLBPF_TRACE_DECODE_H

#include <zstd.h>

#include "base/vec.h"
#include "trace/format.h"

/* Events of a kind are decoded so many at a time, all of their columns: what they are written to stays in
 * the processor's first cache meanwhile. */
#define DL_DECODE_BLOCK 128

struct column {
	uint8_t enc;
	uint8_t map, order, key;	/* of numbers, once it is open */
	bool constant, zeros;		/* zeros: there are no residuals */
	uint64_t one;			/* the constant */
	const uint8_t *p, *end;		/* what was not read yet */
	size_t last, last2;		/* tables of what came last, by key slot: where in the decoder's */
};

/* A kind of the frame. */
struct part {
	const struct dl_file_event *ev;
	const struct dl_event_desc *own;	/* NULL: nothing of it is returned */
	size_t first, cnt;			/* its events in the arrays that are sorted by kind */
	size_t col;				/* its first column, behind those of the tail */
	struct column tail_len, tail;
};

struct dl_decoder {
	ZSTD_DCtx *dctx;
	struct dl_buf payload;
	DL_VEC(uint64_t) words;
	DL_VEC(struct column) cols;
	DL_VEC(uint64_t) tables;	/* of the open columns; all are 0 when none is open */
	struct part parts[DL_MAX_FRAME_KINDS];
	const char *why;

	/* by kind of the frame, 0 behind the last: cursor and end in the arrays that are sorted by kind, size of
	 * an event (0: it has a tail) */
	uint32_t next_event[DL_MAX_FRAME_KINDS + 1], end_event[DL_MAX_FRAME_KINDS + 1];
	uint32_t event_sz[DL_MAX_FRAME_KINDS + 1];

	/* arrays in words: threads of the frame; by event, sorted by kind */
	size_t thread_cnt;
	uint64_t *threads, *all_ts;
	uint32_t *pos, *tail_len;

	/* of the kind at hand, by event: its time, time since and thread of the neighbours on its CPU, index of
	 * its thread, CPU, and its slot */
	size_t cnt;
	const uint64_t *ts;
	uint64_t *dt;
	uint32_t *next, *thread, *cpu_slot;
	uint16_t *cpu;

	/* of the block at hand: a column's numbers and key slots, and the numbers of the one before it */
	uint64_t block[2][DL_DECODE_BLOCK], *v, *before;
	uint32_t slot[DL_DECODE_BLOCK];
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

/* Where cnt varints end, without looking at them; NULL when the bytes end first. */
const uint8_t *dl_skip_varints(const uint8_t *p, const uint8_t *end, size_t cnt);

/* Keeps the reason and returns -EBADMSG. */
int dl_decode_bad(struct dl_decoder *d, const char *why);

/* The column that begins at p; returns where it ends, or NULL. */
const uint8_t *dl_column_find(const uint8_t *p, const uint8_t *end, struct column *ret);

/* Reads the model of a column of numbers. keyed: it may depend on other columns. */
int dl_column_open(struct dl_decoder *d, struct column *c, bool keyed);

/* Gives tables to columns that were opened, d->cnt and d->thread_cnt being set. 0 or -ENOMEM. */
int dl_column_tables(struct dl_decoder *d, struct column *c, size_t cnt);

/* The numbers of n of the kind's events, from the one at first on, to d->v. */
int dl_column_read(struct dl_decoder *d, struct column *c, size_t first, size_t n);

/* Nothing may be left in them, and their tables are to be had again. For those without tables, too. */
int dl_column_close(struct dl_decoder *d, struct column *c, size_t cnt);

/* Time since, and thread of, the neighbours on the same CPU, to d->dt and d->next. */
void dl_find_neighbours(struct dl_decoder *d);

/* n numbers of d->v to the fields at off. */
void dl_column_scatter(const struct dl_decoder *d, uint8_t *buf, const uint32_t *pos, size_t n, unsigned int type,
		       size_t off);

#endif
