/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Events to frames. Events are turned into columns, one for each field of each kind, which are coded
 * (encode_column.c) and compressed.
 */
#include "trace/encode.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

#define SEARCH_MIN 128		/* frames until models are tried again: twice as many each time that led to no others */
#define SEARCH_MAX 2048
#define THREAD_SLOTS 1024	/* of the table of threads, to begin with; a power of two */
#define BLOCK_CNT 64		/* events that are turned into columns at a time: they stay in the cache meanwhile */
/* Columns that are compressed apart have at least so many bytes, and 3 for each 4 events of the frame, which is
 * one thirtieth of it. */
#define CUT_MIN_SZ 4096
#define COL_TAIL_LEN (DL_ENC_COLS - 1)

/*
 * What was tried on traces of several loads, against level 3 of zstd without blocks of their own for large
 * columns, which has 48 ns and 4.27 bytes an event: level 1 with such blocks 28 ns and 4.28 bytes; with
 * matches of 5 bytes and more 29 ns and 4.26; level 3 with them 40 ns and 4.16, level 5 80 ns and 4.06.
 */
static bool set_level(ZSTD_CCtx *cctx, int level)
{
	static const struct { ZSTD_cParameter what; int value; } fast[] = {
		{ ZSTD_c_compressionLevel, 1 }, { ZSTD_c_minMatch, 5 }, { ZSTD_c_hashLog, 13 },
	};

	if (level)
		return !ZSTD_isError(ZSTD_CCtx_setParameter(cctx, ZSTD_c_compressionLevel, level));
	for (size_t i = 0; i < ARRAY_SIZE(fast); i++) {
		if (ZSTD_isError(ZSTD_CCtx_setParameter(cctx, fast[i].what, fast[i].value)))
			return false;
	}
	return true;
}

struct dl_encoder *dl_encoder_new(dl_desc_fn *desc, int level)
{
	struct dl_encoder *e = calloc(1, sizeof(*e));

	if (!e)
		return NULL;
	e->desc = desc;
	e->cctx = ZSTD_createCCtx();
	e->kinds = calloc(DL_MAX_KIND + 1, sizeof(*e->kinds));
	if (!e->cctx || !e->kinds || !set_level(e->cctx, level)) {
		dl_encoder_free(e);
		return NULL;
	}
	return e;
}

void dl_encoder_free(struct dl_encoder *e)
{
	if (!e)
		return;
	ZSTD_freeCCtx(e->cctx);
	free(e->kinds);
	free(e->payload.v);
	free(e->scratch.v);
	free(e->trial.v);
	vec_free(&e->cuts);
	vec_free(&e->threads);
	vec_free(&e->thread_hash);
	vec_free(&e->grouped);
	vec_free(&e->indexes);
	vec_free(&e->order);
	vec_free(&e->words);
	vec_free(&e->values);
	free(e);
}

/* --- what a frame has in common --- */

static size_t thread_slot(const struct dl_encoder *e, uint64_t key)
{
	const size_t mask = e->thread_hash.cnt - 1;
	size_t at = (key * 0x9e3779b97f4a7c15ULL >> 32) & mask;

	while (e->thread_hash.v[at] && e->threads.v[e->thread_hash.v[at] - 1] != key)
		at = (at + 1) & mask;
	return at;
}

/* An empty table with that many slots, a power of two, and all threads that are known in it. */
static int rehash_threads(struct dl_encoder *e, size_t slots)
{
	e->thread_hash.cnt = 0;
	if (vec_reserve(&e->thread_hash, slots))
		return -ENOMEM;
	e->thread_hash.cnt = slots;
	memset(e->thread_hash.v, 0, slots * sizeof(*e->thread_hash.v));
	for (size_t i = 0; i < e->threads.cnt; i++)
		e->thread_hash.v[thread_slot(e, e->threads.v[i])] = (uint32_t)i + 1;
	return 0;
}

static int add_thread(struct dl_encoder *e, uint64_t key, uint32_t *ret)
{
	uint64_t *slot;

	if (e->threads.cnt * 2 >= e->thread_hash.cnt && rehash_threads(e, e->thread_hash.cnt * 2))
		return -ENOMEM;
	slot = vec_push(&e->threads);
	if (!slot)
		return -ENOMEM;
	*slot = key;
	*ret = (uint32_t)e->threads.cnt - 1;
	e->thread_hash.v[thread_slot(e, key)] = (uint32_t)e->threads.cnt;
	return 0;
}

/* The index of an event's thread. */
static int thread_of(struct dl_encoder *e, const struct dl_hdr *ev, uint32_t *ret)
{
	const uint64_t key = (uint64_t)ev->tid << 32 | ev->pid;
	const uint32_t index = e->thread_hash.v[thread_slot(e, key)];

	*ret = index - 1;
	return index ? 0 : add_thread(e, key, ret);
}

/* The index of an event's kind, which is added to the header's when it is the first one; index: + 1, by kind. */
static int kind_of(struct dl_frame_hdr *h, const struct dl_hdr *ev, uint16_t *index, uint8_t *ret)
{
	if (!index[ev->kind]) {
		if (h->kinds == DL_MAX_FRAME_KINDS)
			return -EINVAL;
		h->kind[h->kinds].kind = ev->kind;
		h->kind[h->kinds].cnt = 0;
		index[ev->kind] = (uint16_t)++h->kinds;
	}
	*ret = (uint8_t)(index[ev->kind] - 1);
	h->kind[*ret].cnt++;
	return 0;
}

/*
 * One look at the heads of all events, which are far apart in memory: fills in the header's kinds, e->order,
 * e->thread and, in e->values, the time since the event before. *ret_any: these or'ed.
 */
static int look_at_events(struct dl_encoder *e, const struct dl_hdr *const *events, size_t cnt,
			  struct dl_frame_hdr *h, uint64_t *ret_any)
{
	uint16_t index[DL_MAX_KIND + 1] = { 0 };
	uint64_t last = events[0]->ts, any = 0;

	h->kinds = 0;
	h->struct_sz = 0;
	e->threads.cnt = 0;
	if (rehash_threads(e, THREAD_SLOTS))
		return -ENOMEM;
	for (size_t i = 0; i < cnt; i++) {
		const struct dl_hdr *ev = events[i];
		int err;

		err = thread_of(e, ev, &e->thread[i]);
		err = err ?: kind_of(h, ev, index, &e->order.v[i]);
		if (err)
			return err;
		h->struct_sz += ev->size;
		any |= e->values.v[i] = ev->ts - last;
		last = ev->ts;
	}
	*ret_any = any;
	return 0;
}

static void group_by_kind(struct dl_encoder *e, const struct dl_hdr *const *events, size_t cnt,
			  const struct dl_frame_hdr *h)
{
	size_t at[DL_MAX_FRAME_KINDS], sum = 0;

	for (uint32_t k = 0; k < h->kinds; k++) {
		at[k] = sum;
		sum += h->kind[k].cnt;
	}
	for (size_t i = 0; i < cnt; i++) {
		const size_t to = at[e->order.v[i]]++;

		e->grouped.v[to] = events[i];
		e->group_thread[to] = e->thread[i];
	}
}

/* --- the columns of a kind --- */

/* Number nr of a kind's integers: time, CPU, flags, then the fields in their order; false where the field is none. */
static bool integer_at(const struct dl_event_desc *desc, unsigned int nr, unsigned int *ret_type, size_t *ret_off)
{
	static const struct { uint8_t type; size_t off; } header[] = {
		{ DL_FT_u64, offsetof(struct dl_hdr, ts) },
		{ DL_FT_u16, offsetof(struct dl_hdr, cpu) },
		{ DL_FT_u16, offsetof(struct dl_hdr, flags) },
	};

	*ret_type = nr < 3 ? header[nr].type : desc->fields[nr - 3].type;
	*ret_off = nr < 3 ? header[nr].off : desc->fields[nr - 3].off;
	return dl_ftype_is_int(*ret_type);
}

/* Values of an integer of some events; returns the bits in which they differ from the first one. */
static uint64_t gather(uint64_t *v, const struct dl_hdr *const *ev, size_t cnt, uint64_t first, unsigned int type,
		       size_t off)
{
	uint64_t diff = 0;

#define GATHER(ctype) do { \
	for (size_t i = 0; i < cnt; i++) { \
		ctype one; \
		memcpy(&one, (const uint8_t *)ev[i] + off, sizeof(one)); \
		v[i] = (uint64_t)one; \
		diff |= v[i] ^ first; \
	} \
} while (0)
	switch (type) {
	case DL_FT_u16:
		GATHER(uint16_t);
		break;
	case DL_FT_u32:
		GATHER(uint32_t);
		break;
	case DL_FT_s32:
		GATHER(int32_t);
		break;
	default:
		GATHER(uint64_t);
	}
#undef GATHER
	return diff;
}

/*
 * All integers of a kind to e->values, column by column. Events are far apart in memory, and there are many
 * columns: each event is looked at once, with others near it, not once for each column.
 */
static int transpose(struct dl_encoder *e, const struct dl_event_desc *desc, const struct dl_hdr *const *ev, size_t cnt,
		     uint64_t *diff)
{
	const unsigned int cols = 3 + desc->field_cnt;
	unsigned int type;
	size_t off;

	e->values.cnt = 0;
	if (vec_reserve(&e->values, (cols + 1) * cnt))	/* one more for what is made here */
		return -ENOMEM;
	memset(diff, 0, cols * sizeof(*diff));
	for (size_t at = 0; at < cnt; at += BLOCK_CNT) {
		const size_t some = cnt - at < BLOCK_CNT ? cnt - at : BLOCK_CNT;

		for (unsigned int c = 0; c < cols; c++) {
			uint64_t *v = e->values.v + c * cnt, first;

			if (!integer_at(desc, c, &type, &off))
				continue;
			gather(&first, ev, 1, 0, type, off);
			diff[c] |= gather(v + at, ev + at, some, first, type, off);
		}
	}
	return 0;
}

/* A column of raw bytes of one size. */
static int put_bytes(struct dl_encoder *e, const struct dl_hdr *const *ev, size_t cnt, size_t off, size_t sz)
{
	struct dl_buf *b = &e->scratch;

	b->cnt = 0;
	if (vec_reserve(b, cnt * sz))
		return -ENOMEM;
	for (size_t i = 0; i < cnt; i++, b->cnt += sz)
		memcpy(b->v + b->cnt, (const uint8_t *)ev[i] + off, sz);
	return dl_enc_bytes(e, b->v, b->cnt);
}

static uint8_t *put_addrs(uint8_t *p, const uint8_t *tail, size_t sz, uint64_t *last)
{
	for (size_t i = 0; i < sz; i += 8) {
		uint64_t addr = dl_get(tail + i, 8);

		p = dl_put_varint(p, dl_zigzag(addr - *last));
		*last = addr;
	}
	return p;
}

/* The lengths of the tails, then the tails. */
static int put_tails(struct dl_encoder *e, const struct dl_event_desc *desc, const struct dl_hdr *const *ev,
		     uint8_t *model)
{
	uint64_t *v = e->values.v + (3 + (size_t)desc->field_cnt) * e->k.cnt, last = 0, diff = 0;
	struct dl_buf *b = &e->scratch;
	size_t sum = 0;
	int err;

	for (size_t i = 0; i < e->k.cnt; i++) {
		v[i] = (uint64_t)(ev[i]->size - desc->size);
		diff |= v[i] ^ v[0];
		sum += v[i];
	}
	err = dl_enc_column(e, v, !diff, model, DL_FT_u32, DL_UNIT_NUM, false);
	if (err)
		return err;
	b->cnt = 0;
	if (vec_reserve(b, sum * 2))
		return -ENOMEM;
	for (size_t i = 0; i < e->k.cnt; i++) {
		const uint8_t *tail = (const uint8_t *)ev[i] + desc->size;
		size_t sz = ev[i]->size - desc->size;

		if (desc->tail == DL_TAIL_ADDRS) {
			b->cnt = (size_t)(put_addrs(b->v + b->cnt, tail, sz, &last) - b->v);
		} else if (sz) {
			memcpy(b->v + b->cnt, tail, sz);
			b->cnt += sz;
		}
	}
	return dl_enc_bytes(e, b->v, b->cnt);
}

static int put_thread_column(struct dl_encoder *e, uint64_t *v, uint8_t *model)
{
	uint64_t diff = 0;

	for (size_t i = 0; i < e->k.cnt; i++) {
		v[i] = e->k.thread[i];
		diff |= v[i] ^ v[0];
	}
	return dl_enc_column(e, v, !diff, model, DL_FT_u32, DL_UNIT_NUM, false);
}

static int put_columns(struct dl_encoder *e, const struct dl_event_desc *desc, const struct dl_hdr *const *ev,
		       uint8_t *model)
{
	uint64_t diff[3 + DL_MAX_FIELDS], *v;
	const size_t cnt = e->k.cnt;
	int err;

	err = transpose(e, desc, ev, cnt, diff);
	if (err)
		return err;
	v = e->values.v;
	e->k.ts = v;
	if (desc->tail != DL_TAIL_NONE)
		err = put_tails(e, desc, ev, &model[COL_TAIL_LEN]);
	err = err ?: put_thread_column(e, v + (3 + (size_t)desc->field_cnt) * cnt, &model[DL_HCOL_THREAD]);
	err = err ?: dl_enc_column(e, v + cnt, !diff[1], &model[DL_HCOL_CPU], DL_FT_u16, DL_UNIT_NUM, true);
	e->k.cpu = diff[1] ? v + cnt : NULL;
	err = err ?: dl_enc_column(e, v + cnt * 2, !diff[2], &model[DL_HCOL_FLAGS], DL_FT_u16, DL_UNIT_NUM, true);
	for (unsigned int i = 0; i < desc->field_cnt && !err; i++) {
		const struct dl_field *f = &desc->fields[i];

		if (dl_ftype_is_int(f->type))
			err = dl_enc_column(e, v + (3 + i) * cnt, !diff[3 + i], &model[DL_HCOL_CNT + i], f->type, f->unit,
					    true);
		else
			err = put_bytes(e, ev, cnt, f->off, f->size);
	}
	return err;
}

static int put_kind(struct dl_encoder *e, const struct dl_event_desc *desc, size_t first, size_t cnt)
{
	struct dl_enc_model_age *age = &e->kinds[desc->kind];
	int err;

	e->k = (struct dl_enc_kind){ .cnt = cnt, .thread = e->group_thread + first };
	if (!age->searched)
		memset(age->model, DL_ENC_NO_MODEL, sizeof(age->model));
	e->search = !age->searched || (cnt > 16 && (age->frames >= age->period || cnt / 4 > age->searched));
	e->changed = false;
	age->frames++;
	err = put_columns(e, desc, e->grouped.v + first, age->model);
	if (e->search && !err) {
		age->period = e->changed || age->period < SEARCH_MIN ? SEARCH_MIN : age->period * 2;
		age->period = age->period > SEARCH_MAX ? SEARCH_MAX : age->period;
		age->searched = (uint32_t)cnt;
		age->frames = 0;
	}
	return err;
}

/* --- frames --- */

static int reserve_common(struct dl_encoder *e, size_t cnt)
{
	e->grouped.cnt = e->order.cnt = e->indexes.cnt = e->values.cnt = e->payload.cnt = e->cuts.cnt = 0;
	if (vec_reserve(&e->grouped, cnt) || vec_reserve(&e->order, cnt) || vec_reserve(&e->indexes, 2 * cnt) ||
	    vec_reserve(&e->values, cnt))
		return -ENOMEM;
	e->thread = e->indexes.v;
	e->group_thread = e->thread + cnt;
	e->cut_sz = cnt * 3 / 4 > CUT_MIN_SZ ? cnt * 3 / 4 : CUT_MIN_SZ;
	return 0;
}

static int put_common(struct dl_encoder *e, const struct dl_hdr *const *events, size_t cnt,
		      struct dl_frame_hdr *h)
{
	struct dl_buf *out = &e->payload;
	uint64_t any = 0;
	size_t from;
	uint8_t *p;
	int err;

	err = reserve_common(e, cnt);
	err = err ?: look_at_events(e, events, cnt, h, &any);
	err = err ?: dl_enc_reserve(e, cnt);
	if (err)
		return err;
	group_by_kind(e, events, cnt, h);
	if (vec_reserve(out, (e->threads.cnt * 2 + 1 + cnt) * DL_VARINT_MAX + cnt + 8))
		return -ENOMEM;
	p = dl_put_varint(out->v, e->threads.cnt);
	vec_for_each(&e->threads, t) {
		p = dl_put_varint(p, *t >> 32);
		p = dl_put_varint(p, (uint32_t)*t);
	}
	from = (size_t)(p - out->v);
	memcpy(p, e->order.v, cnt);
	out->cnt = from + cnt;
	err = dl_enc_cut(e, from);
	from = out->cnt;
	out->cnt = (size_t)(dl_enc_varints(p + cnt, e->values.v, cnt, any) - out->v);
	return err ?: dl_enc_cut(e, from);
}

/*
 * The payload behind out's first at bytes, as one zstd frame. A flush begins a new block, with tables of its
 * own: what is of another nature compresses better apart, and faster.
 */
static int compress(struct dl_encoder *e, struct dl_buf *out, size_t at, size_t *ret_sz)
{
	ZSTD_outBuffer to = { .dst = out->v, .size = out->cap, .pos = at };
	size_t from = 0, ret = 0;

	if (ZSTD_isError(ZSTD_CCtx_reset(e->cctx, ZSTD_reset_session_only)) ||
	    ZSTD_isError(ZSTD_CCtx_setPledgedSrcSize(e->cctx, e->payload.cnt)))
		return -EINVAL;
	for (size_t i = 0; i <= e->cuts.cnt; i++) {
		const bool last = i == e->cuts.cnt;
		const size_t end = last ? e->payload.cnt : e->cuts.v[i];
		ZSTD_inBuffer in = { .src = e->payload.v + from, .size = end - from };

		if (end == from && !last)
			continue;
		ret = ZSTD_compressStream2(e->cctx, &to, &in, last ? ZSTD_e_end : ZSTD_e_flush);
		if (ret)
			return -ENOMEM;		/* the only way it fails with room enough */
		from = end;
	}
	*ret_sz = to.pos - at;
	return 0;
}

int dl_encode_frame(struct dl_encoder *e, const struct dl_hdr *const *events, size_t cnt,
		    struct dl_frame_hdr *h, struct dl_buf *out)
{
	size_t at = 0, header_sz, sz;
	int err = put_common(e, events, cnt, h);

	for (uint32_t k = 0; !err && k < h->kinds; at += h->kind[k++].cnt)
		err = put_kind(e, e->desc(h->kind[k].kind), at, h->kind[k].cnt);
	if (err)
		return err;
	if (e->payload.cnt > DL_MAX_PAYLOAD_SZ)
		return -E2BIG;
	header_sz = DL_FRAME_FIXED_SZ + h->kinds * DL_FRAME_KIND_SZ + 4;
	/* The bound knows nothing of the blocks that a cut begins. */
	if (vec_reserve(out, header_sz + ZSTD_compressBound(e->payload.cnt) + (e->cuts.cnt + 1) * 16))
		return -ENOMEM;
	err = compress(e, out, out->cnt + header_sz, &sz);
	if (err)
		return err;
	h->header_sz = (uint32_t)header_sz;
	h->comp_sz = (uint32_t)sz;
	h->payload_sz = (uint32_t)e->payload.cnt;
	h->events = (uint32_t)cnt;
	h->first_ts = events[0]->ts;
	h->last_ts = events[cnt - 1]->ts;
	h->payload_crc = dl_crc32(out->v + out->cnt + header_sz, sz);
	h->codec = DL_CODEC_COLUMNS_ZSTD;
	dl_frame_hdr_build(out->v + out->cnt, h);
	out->cnt += header_sz + sz;
	return 0;
}
