/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Events to frames. Events are turned into columns, one for each field of each kind, every column
 * is predicted by the model that suits it best, and what is left is compressed as a whole.
 */
#include "trace/format.h"

#include <errno.h>
#include <stdlib.h>
#include <zstd.h>

#include "base/map.h"
#include "base/vec.h"

#define SAMPLE_CNT 2048		/* values of a column on which the models are tried */
#define SEARCH_EVERY 64		/* frames until they are tried again */
#define MAX_COLS (DL_MAX_FIELDS + DL_HCOL_CNT + 1)
#define COL_TAIL_LEN (MAX_COLS - 1)

/* map, order and key in one byte, as in the file */
#define MODEL(map, order, key) ((uint8_t)((map) | (order) << 2 | (key) << 5))

struct kind_state {
	uint32_t searched;	/* events of the kind when its models were last chosen */
	uint32_t age;		/* frames since then */
	uint8_t model[MAX_COLS];
};

struct dl_encoder {
	dl_desc_fn *desc;
	int level;
	ZSTD_CCtx *cctx;
	struct kind_state *kinds;	/* by kind */

	/* of the frame */
	struct dl_buf payload, scratch, trial;
	DL_VEC(const struct dl_hdr *) grouped;	/* by kind, then by time */
	DL_VEC(uint64_t) threads;		/* tid << 32 | pid */
	DL_VEC(uint32_t) thread_hash;		/* index + 1 in threads */
	DL_VEC(uint64_t) words;			/* all arrays below, 64-bit ones first */

	/* of the kind at hand */
	const struct dl_hdr *const *ev;
	size_t cnt;
	uint64_t *v, *prev, *x, *r, *ts, *dt, *last, *last2;
	uint32_t *slot[DL_KEY_CNT], *next;
	bool search;
};

struct dl_encoder *dl_encoder_new(dl_desc_fn *desc, int level)
{
	struct dl_encoder *e = calloc(1, sizeof(*e));

	if (!e)
		return NULL;
	e->desc = desc;
	e->level = level;
	e->cctx = ZSTD_createCCtx();
	e->kinds = calloc(DL_MAX_KIND + 1, sizeof(*e->kinds));
	if (!e->cctx || !e->kinds) {
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
	vec_free(&e->grouped);
	vec_free(&e->threads);
	vec_free(&e->thread_hash);
	vec_free(&e->words);
	free(e);
}

/* --- what a frame has in common --- */

static uint32_t thread_index(struct dl_encoder *e, const struct dl_hdr *ev)
{
	uint64_t key = (uint64_t)ev->tid << 32 | ev->pid;
	size_t mask = e->thread_hash.cnt - 1;
	size_t at = dl_hash64(key) & mask;

	for (; e->thread_hash.v[at]; at = (at + 1) & mask) {
		if (e->threads.v[e->thread_hash.v[at] - 1] == key)
			return e->thread_hash.v[at] - 1;
	}
	e->threads.v[e->threads.cnt++] = key;
	e->thread_hash.v[at] = (uint32_t)e->threads.cnt;
	return (uint32_t)e->threads.cnt - 1;
}

static int find_threads(struct dl_encoder *e, const struct dl_hdr *const *events, size_t cnt)
{
	size_t slots = 64;

	while (slots < cnt * 2)
		slots *= 2;
	e->threads.cnt = e->thread_hash.cnt = 0;
	if (vec_reserve(&e->threads, cnt) || vec_reserve(&e->thread_hash, slots))
		return -ENOMEM;
	e->thread_hash.cnt = slots;
	memset(e->thread_hash.v, 0, slots * sizeof(*e->thread_hash.v));
	for (size_t i = 0; i < cnt; i++)
		thread_index(e, events[i]);
	return 0;
}

/* Fills in the header's kinds, in the order in which they first appear, and e->grouped. */
static int group_by_kind(struct dl_encoder *e, const struct dl_hdr *const *events, size_t cnt,
			 struct dl_frame_hdr *h, uint8_t *order)
{
	uint16_t index[DL_MAX_KIND + 1] = { 0 };	/* + 1 */
	size_t at[DL_MAX_FRAME_KINDS], sum = 0;

	h->kinds = 0;
	h->struct_sz = 0;
	for (size_t i = 0; i < cnt; i++) {
		uint16_t kind = events[i]->kind;

		if (!index[kind]) {
			if (h->kinds == DL_MAX_FRAME_KINDS)
				return -EINVAL;
			h->kind[h->kinds].kind = kind;
			h->kind[h->kinds].cnt = 0;
			index[kind] = (uint16_t)++h->kinds;
		}
		h->kind[index[kind] - 1].cnt++;
		h->struct_sz += events[i]->size;
		order[i] = (uint8_t)(index[kind] - 1);
	}
	for (uint32_t k = 0; k < h->kinds; k++) {
		at[k] = sum;
		sum += h->kind[k].cnt;
	}
	e->grouped.cnt = 0;
	if (vec_reserve(&e->grouped, cnt))
		return -ENOMEM;
	for (size_t i = 0; i < cnt; i++)
		e->grouped.v[at[order[i]]++] = events[i];
	return 0;
}

static int reserve_arrays(struct dl_encoder *e, size_t cnt)
{
	size_t slots = e->threads.cnt > DL_KEY_SLOTS ? e->threads.cnt : DL_KEY_SLOTS;
	size_t halves = (cnt + 1) / 2;
	uint64_t *p;

	e->words.cnt = 0;
	if (vec_reserve(&e->words, cnt * 6 + slots * 2 + halves * (DL_KEY_CNT + 1)))
		return -ENOMEM;
	p = e->words.v;
	e->v = p;
	e->prev = p += cnt;
	e->x = p += cnt;
	e->r = p += cnt;
	e->ts = p += cnt;
	e->dt = p += cnt;
	e->last = p += cnt;
	e->last2 = p += slots;
	p += slots;
	for (int k = 0; k < DL_KEY_CNT; k++, p += halves)
		e->slot[k] = (uint32_t *)(void *)p;
	e->next = (uint32_t *)(void *)p;
	memset(e->slot[DL_KEY_NONE], 0, cnt * sizeof(uint32_t));
	return 0;
}

/* --- columns --- */

static void put_byte(struct dl_buf *b, uint8_t byte)
{
	b->v[b->cnt++] = byte;
}

/* Applies the map; false when a value cannot be expressed in it. */
static bool map_values(struct dl_encoder *e, unsigned int map, size_t cnt)
{
	const uint64_t *v = e->v, *ts = e->ts;
	uint64_t *x = e->x;

	switch (map) {
	case DL_MAP_U:
		memcpy(x, v, cnt * sizeof(*x));
		return true;
	case DL_MAP_S:
		for (size_t i = 0; i < cnt; i++)
			x[i] = dl_zigzag(v[i]);
		return true;
	default:
		for (size_t i = 0; i < cnt; i++) {
			x[i] = v[i] ? dl_zigzag(v[i] - ts[i]) + 1 : 0;
			if (v[i] && !x[i])
				return false;
		}
		return true;
	}
}

/* Residuals of e->x under the model to e->r. */
static void predict(struct dl_encoder *e, unsigned int order, unsigned int key, size_t cnt)
{
	const uint64_t *x = e->x, *dt = e->dt;
	const uint32_t *slot = e->slot[key], *next = e->next;
	uint64_t *r = e->r, *last = e->last, *last2 = e->last2;
	size_t slots = key == DL_KEY_NONE ? 1 : key == DL_KEY_THREAD ? e->threads.cnt : DL_KEY_SLOTS;

	memset(last, 0, slots * sizeof(*last));
	memset(last2, 0, slots * sizeof(*last2));
	switch (order) {
	case DL_ORD_NONE:
		memcpy(r, x, cnt * sizeof(*r));
		break;
	case DL_ORD_LAST:
		for (size_t i = 0; i < cnt; i++) {
			r[i] = dl_zigzag(x[i] - last[slot[i]]);
			last[slot[i]] = x[i];
		}
		break;
	case DL_ORD_LINEAR:
		for (size_t i = 0; i < cnt; i++) {
			uint32_t s = slot[i];

			r[i] = dl_zigzag(x[i] - (2 * last[s] - last2[s]));
			last2[s] = last[s];
			last[s] = x[i];
		}
		break;
	case DL_ORD_RUN:
		for (size_t i = 0; i < cnt; i++) {
			uint32_t s = slot[i];

			r[i] = dl_zigzag(x[i] - (last[s] + (last[s] != last2[s] ? dt[i] : 0)));
			last2[s] = last[s];
			last[s] = x[i];
		}
		break;
	default:
		for (size_t i = 0; i < cnt; i++)
			r[i] = dl_zigzag(x[i] - next[i]);
	}
}

/* Model byte and residuals behind b; room must be there. */
static bool put_values(struct dl_encoder *e, struct dl_buf *b, uint8_t model, size_t cnt)
{
	uint64_t any = 0;
	uint8_t *p;

	if (!map_values(e, model & 3, cnt))
		return false;
	predict(e, model >> 2 & 7, model >> 5, cnt);
	put_byte(b, model);
	for (size_t i = 0; i < cnt; i++)
		any |= e->r[i];
	if (!any)
		return true;
	p = b->v + b->cnt;
	for (size_t i = 0; i < cnt; i++)
		p = dl_put_varint(p, e->r[i]);
	b->cnt = (size_t)(p - b->v);
	return true;
}

static size_t models(uint8_t *ret, unsigned int type, unsigned int unit, bool keyed)
{
	unsigned int map = type == DL_FT_s32 || type == DL_FT_s64 ? DL_MAP_S : DL_MAP_U;
	size_t cnt = 0;

	ret[cnt++] = MODEL(map, DL_ORD_NONE, DL_KEY_NONE);
	if (unit == DL_UNIT_TIME) {
		map = DL_MAP_TS;
		ret[cnt++] = MODEL(map, DL_ORD_NONE, DL_KEY_NONE);
	}
	for (unsigned int key = DL_KEY_NONE; key < DL_KEY_CNT; key++) {
		if (keyed || key == DL_KEY_NONE)
			ret[cnt++] = MODEL(map, DL_ORD_LAST, key);
	}
	if (keyed && unit == DL_UNIT_TOTAL) {
		ret[cnt++] = MODEL(map, DL_ORD_LINEAR, DL_KEY_THREAD);
		ret[cnt++] = MODEL(map, DL_ORD_LINEAR, DL_KEY_NONE);
		if (type == DL_FT_u64)
			ret[cnt++] = MODEL(map, DL_ORD_RUN, DL_KEY_THREAD);
	}
	if (keyed && unit == DL_UNIT_TID)
		ret[cnt++] = MODEL(map, DL_ORD_NEXT, DL_KEY_NONE);
	return cnt;
}

/* The model whose result compresses best on the first values. */
static int choose(struct dl_encoder *e, uint8_t *model, unsigned int type, unsigned int unit,
		  bool keyed)
{
	size_t cnt = e->cnt < SAMPLE_CNT ? e->cnt : SAMPLE_CNT, best = SIZE_MAX, tries, sz;
	uint8_t list[16];

	tries = models(list, type, unit, keyed);
	e->scratch.cnt = e->trial.cnt = 0;
	if (vec_reserve(&e->scratch, cnt * DL_VARINT_MAX + 1) ||
	    vec_reserve(&e->trial, ZSTD_compressBound(cnt * DL_VARINT_MAX + 1)))
		return -ENOMEM;
	for (size_t i = 0; i < tries; i++) {
		e->scratch.cnt = 0;
		if (!put_values(e, &e->scratch, list[i], cnt))
			continue;
		sz = ZSTD_compressCCtx(e->cctx, e->trial.v, e->trial.cap, e->scratch.v,
				       e->scratch.cnt, 1);
		if (ZSTD_isError(sz))
			return -ENOMEM;
		if (sz < best) {
			best = sz;
			*model = list[i];
		}
	}
	return 0;
}

/* One column of numbers, e->v. Leaves e->slot[DL_KEY_FIELD] for the one that follows. */
static int put_column(struct dl_encoder *e, uint8_t *model, unsigned int type, unsigned int unit,
		      bool keyed)
{
	size_t max = e->cnt * DL_VARINT_MAX + 1, i;
	struct dl_buf *out = &e->payload, *b = &e->scratch;
	int err;

	if (vec_reserve(out, max + 1 + DL_VARINT_MAX))
		return -ENOMEM;
	for (i = 1; i < e->cnt && e->v[i] == e->v[0]; i++)
		;
	b->cnt = 0;
	if (i == e->cnt) {
		if (vec_reserve(b, DL_VARINT_MAX))
			return -ENOMEM;
		b->cnt = (size_t)(dl_put_varint(b->v, e->v[0]) - b->v);
		put_byte(out, DL_COL_CONST);
	} else {
		if (e->search) {
			err = choose(e, model, type, unit, keyed);
			if (err)
				return err;
		}
		b->cnt = 0;
		if (vec_reserve(b, max))
			return -ENOMEM;
		if (!put_values(e, b, *model, e->cnt))
			put_values(e, b, MODEL(DL_MAP_U, DL_ORD_NONE, DL_KEY_NONE), e->cnt);
		put_byte(out, DL_COL_VALUES);
	}
	out->cnt = (size_t)(dl_put_varint(out->v + out->cnt, b->cnt) - out->v);
	memcpy(out->v + out->cnt, b->v, b->cnt);
	out->cnt += b->cnt;
	for (i = 0; i < e->cnt; i++)
		e->slot[DL_KEY_FIELD][i] = dl_key_slot(e->v[i]);
	return 0;
}

static void gather(struct dl_encoder *e, unsigned int type, size_t off)
{
	const struct dl_hdr *const *ev = e->ev;
	uint64_t *v = e->v;

#define GATHER(ctype) do { \
	for (size_t i = 0; i < e->cnt; i++) { \
		ctype one; \
		memcpy(&one, (const uint8_t *)ev[i] + off, sizeof(one)); \
		v[i] = (uint64_t)one; \
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
}

/* A column of raw bytes of one size. */
static int put_bytes(struct dl_encoder *e, size_t off, size_t sz)
{
	struct dl_buf *out = &e->payload;

	if (vec_reserve(out, 1 + DL_VARINT_MAX + e->cnt * sz))
		return -ENOMEM;
	put_byte(out, DL_COL_BYTES);
	out->cnt = (size_t)(dl_put_varint(out->v + out->cnt, e->cnt * sz) - out->v);
	for (size_t i = 0; i < e->cnt; i++, out->cnt += sz)
		memcpy(out->v + out->cnt, (const uint8_t *)e->ev[i] + off, sz);
	return 0;
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
static int put_tails(struct dl_encoder *e, const struct dl_event_desc *desc, uint8_t *model)
{
	struct dl_buf *out = &e->payload, *b = &e->scratch;
	uint64_t last = 0;
	size_t sum = 0;
	int err;

	for (size_t i = 0; i < e->cnt; i++) {
		e->v[i] = (uint64_t)(e->ev[i]->size - desc->size);
		sum += e->v[i];
	}
	err = put_column(e, model, DL_FT_u32, DL_UNIT_NUM, false);
	if (err)
		return err;
	b->cnt = 0;
	if (vec_reserve(b, sum * 2) || vec_reserve(out, sum * 2 + 1 + DL_VARINT_MAX))
		return -ENOMEM;
	for (size_t i = 0; i < e->cnt; i++) {
		const uint8_t *tail = (const uint8_t *)e->ev[i] + desc->size;
		size_t sz = e->ev[i]->size - desc->size;

		if (desc->tail == DL_TAIL_ADDRS) {
			b->cnt = (size_t)(put_addrs(b->v + b->cnt, tail, sz, &last) - b->v);
		} else if (sz) {
			memcpy(b->v + b->cnt, tail, sz);
			b->cnt += sz;
		}
	}
	put_byte(out, DL_COL_BYTES);
	out->cnt = (size_t)(dl_put_varint(out->v + out->cnt, b->cnt) - out->v);
	if (b->cnt)
		memcpy(out->v + out->cnt, b->v, b->cnt);
	out->cnt += b->cnt;
	return 0;
}

/* Time since, and thread of, the neighbours on the same CPU; CPUs that share a slot are one. */
static void find_neighbours(struct dl_encoder *e)
{
	uint64_t *last = e->last, *tid = e->last2;

	memset(last, 0, DL_KEY_SLOTS * sizeof(*last));
	memset(tid, 0, DL_KEY_SLOTS * sizeof(*tid));
	for (size_t i = 0; i < e->cnt; i++) {
		uint32_t s = e->slot[DL_KEY_CPU][i];

		e->dt[i] = last[s] ? e->ts[i] - last[s] : 0;
		last[s] = e->ts[i];
	}
	for (size_t i = e->cnt; i-- > 0;) {
		uint32_t s = e->slot[DL_KEY_CPU][i];

		e->next[i] = (uint32_t)tid[s];
		tid[s] = e->ev[i]->tid;
	}
}

static int put_header_columns(struct dl_encoder *e, uint8_t *model)
{
	int err;

	for (size_t i = 0; i < e->cnt; i++) {
		e->v[i] = thread_index(e, e->ev[i]);
		e->slot[DL_KEY_THREAD][i] = (uint32_t)e->v[i];
		e->slot[DL_KEY_CPU][i] = 0;	/* not known yet */
	}
	err = put_column(e, &model[DL_HCOL_THREAD], DL_FT_u32, DL_UNIT_NUM, false);
	if (err)
		return err;
	gather(e, DL_FT_u16, offsetof(struct dl_hdr, cpu));
	err = put_column(e, &model[DL_HCOL_CPU], DL_FT_u16, DL_UNIT_NUM, true);
	if (err)
		return err;
	for (size_t i = 0; i < e->cnt; i++)
		e->slot[DL_KEY_CPU][i] = dl_key_slot(e->ev[i]->cpu);
	find_neighbours(e);
	gather(e, DL_FT_u16, offsetof(struct dl_hdr, flags));
	return put_column(e, &model[DL_HCOL_FLAGS], DL_FT_u16, DL_UNIT_NUM, true);
}

static int put_kind(struct dl_encoder *e, const struct dl_event_desc *desc,
		    const struct dl_hdr *const *ev, size_t cnt)
{
	struct kind_state *st = &e->kinds[desc->kind];
	int err = 0;

	e->ev = ev;
	e->cnt = cnt;
	e->search = !st->searched || (cnt > 16 && (st->age >= SEARCH_EVERY || cnt / 4 > st->searched));
	st->age++;
	if (e->search) {
		st->searched = (uint32_t)cnt;
		st->age = 0;
	}
	for (size_t i = 0; i < cnt; i++)
		e->ts[i] = ev[i]->ts;
	if (desc->tail != DL_TAIL_NONE)
		err = put_tails(e, desc, &st->model[COL_TAIL_LEN]);
	err = err ?: put_header_columns(e, st->model);
	for (unsigned int i = 0; i < desc->field_cnt && !err; i++) {
		const struct dl_field *f = &desc->fields[i];

		if (!dl_ftype_is_int(f->type)) {
			err = put_bytes(e, f->off, f->size);
			continue;
		}
		gather(e, f->type, f->off);
		err = put_column(e, &st->model[DL_HCOL_CNT + i], f->type, f->unit, true);
	}
	return err;
}

/* --- frames --- */

static int put_common(struct dl_encoder *e, const struct dl_hdr *const *events, size_t cnt,
		      struct dl_frame_hdr *h)
{
	struct dl_buf *out = &e->payload;
	uint64_t last = events[0]->ts;
	uint8_t *p;
	int err;

	err = find_threads(e, events, cnt);
	if (err)
		return err;
	out->cnt = 0;
	if (vec_reserve(out, (e->threads.cnt * 2 + 1 + cnt) * DL_VARINT_MAX + cnt))
		return -ENOMEM;
	p = dl_put_varint(out->v, e->threads.cnt);
	vec_for_each(&e->threads, t) {
		p = dl_put_varint(p, *t >> 32);
		p = dl_put_varint(p, (uint32_t)*t);
	}
	err = group_by_kind(e, events, cnt, h, p);
	if (err)
		return err;
	p += cnt;
	for (size_t i = 0; i < cnt; i++) {
		p = dl_put_varint(p, events[i]->ts - last);
		last = events[i]->ts;
	}
	out->cnt = (size_t)(p - out->v);
	return reserve_arrays(e, cnt);
}

int dl_encode_frame(struct dl_encoder *e, const struct dl_hdr *const *events, size_t cnt,
		    struct dl_frame_hdr *h, struct dl_buf *out)
{
	size_t at = 0, header_sz, bound, sz;
	int err = put_common(e, events, cnt, h);

	for (uint32_t k = 0; !err && k < h->kinds; at += h->kind[k++].cnt)
		err = put_kind(e, e->desc(h->kind[k].kind), e->grouped.v + at, h->kind[k].cnt);
	if (err)
		return err;
	if (e->payload.cnt > DL_MAX_PAYLOAD_SZ)
		return -E2BIG;
	header_sz = DL_FRAME_FIXED_SZ + h->kinds * DL_FRAME_KIND_SZ + 4;
	bound = ZSTD_compressBound(e->payload.cnt);
	if (vec_reserve(out, header_sz + bound))
		return -ENOMEM;
	sz = ZSTD_compressCCtx(e->cctx, out->v + out->cnt + header_sz, bound, e->payload.v,
			       e->payload.cnt, e->level);
	if (ZSTD_isError(sz))
		return -ENOMEM;	/* the only way it fails with room enough */
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
