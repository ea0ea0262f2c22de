/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The encoder's inside: encode.c makes frames of events, encode_column.c columns of numbers. */
#ifndef DLBPF_TRACE_ENCODE_H
#define DLBPF_TRACE_ENCODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <zstd.h>

#include "base/vec.h"
#include "trace/format.h"

#define DL_ENC_COLS (DL_MAX_FIELDS + DL_HCOL_CNT + 1)	/* of a kind; the last is the lengths of its tails */
#define DL_ENC_NO_MODEL 0xff	/* none was chosen yet */

/* What the columns of a kind need to know of its events, in the order of time. */
struct dl_enc_kind {
	size_t cnt;
	const uint64_t *ts;
	const uint32_t *thread;	/* index in the frame's threads */
	const uint64_t *cpu;	/* NULL: not to be used yet */
	/* made when a model first asks for them */
	bool has_cpu_slots, has_field_slots, has_neighbours;
	const uint64_t *prev;	/* values of the column before; NULL: they are all the same */
};

struct dl_enc_model_age {
	uint32_t searched;	/* events of the kind when its models were last chosen; 0 never */
	uint32_t frames, period;	/* frames since then, and until they are chosen again */
	uint8_t model[DL_ENC_COLS];
};

struct dl_encoder {
	dl_desc_fn *desc;
	ZSTD_CCtx *cctx;
	struct dl_enc_model_age *kinds;	/* by kind */

	/* of the frame */
	struct dl_buf payload, scratch, trial;
	DL_VEC(size_t) cuts;			/* where in the payload something of another nature begins */
	size_t cut_sz;				/* bytes that are worth tables of their own when compressed */
	DL_VEC(uint64_t) threads;		/* tid << 32 | pid */
	DL_VEC(uint32_t) thread_hash;		/* index + 1 in threads */
	DL_VEC(const struct dl_hdr *) grouped;	/* by kind, then by time */
	DL_VEC(uint32_t) indexes;		/* e->thread and e->group_thread */
	DL_VEC(uint8_t) order;			/* of each event, the index of its kind */
	DL_VEC(uint64_t) words;			/* x, r, dt, last, last2, then slots and next */
	DL_VEC(uint64_t) values;		/* the integers of a kind, column by column */
	uint32_t *thread, *group_thread;	/* thread index of each event; by kind, then by time */
	uint64_t *x, *r, *dt, *last, *last2;
	uint32_t *cpu_slot, *field_slot, *zero_slot, *next;

	struct dl_enc_kind k;
	bool search, changed;	/* choose models anew; it led to others */
};

/* Room for the arrays of a kind with up to cnt events. 0 or -ENOMEM. */
int dl_enc_reserve(struct dl_encoder *e, size_t cnt);

/*
 * One column of the kind at hand, v, to e->payload. constant: all values are the first. keyed: models with
 * keys may be used. v is to stay as it is until the next column is done. 0 or -ENOMEM.
 */
int dl_enc_column(struct dl_encoder *e, const uint64_t *v, bool constant, uint8_t *model, unsigned int type,
		  unsigned int unit, bool keyed);

/* Bytes behind e->payload, with their encoding and size in front. */
int dl_enc_bytes(struct dl_encoder *e, const uint8_t *p, size_t sz);

/* cnt varints; any is all of them or'ed. Room for cnt * DL_VARINT_MAX + 8 must be there. Returns their end. */
uint8_t *dl_enc_varints(uint8_t *p, const uint64_t *v, size_t cnt, uint64_t any);

/* What lies between e->payload's byte from and its end is large enough to be compressed for itself. */
int dl_enc_cut(struct dl_encoder *e, size_t from);

#endif
