/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Columns of numbers: each is predicted by the model that suits it best, and what is left is written as
 * varints. This is where most of the recorder's time goes, so the loops are short ones over arrays.
 */
#include <errno.h>
#include <string.h>

#include "trace/encode.h"

#define SAMPLE_CNT 2048	/* values of a column on which the models are tried */
#define FEW_CNT 32	/* so few are not worth being compressed to see how well they are */

/* map, order and key in one byte, as in the file */
#define MODEL(map, order, key) ((uint8_t)((map) | (order) << 2 | (key) << 5))
#define PLAIN MODEL(DL_MAP_U, DL_ORD_NONE, DL_KEY_NONE)

int dl_enc_reserve(struct dl_encoder *e, size_t cnt)
{
	const size_t slots = e->threads.cnt > DL_KEY_SLOTS ? e->threads.cnt : DL_KEY_SLOTS;
	const size_t halves = (cnt + 1) / 2;
	uint64_t *p;

	e->words.cnt = 0;
	if (vec_reserve(&e->words, cnt * 3 + slots * 2 + halves * 4))
		return -ENOMEM;
	p = e->words.v;
	e->x = p;
	e->r = p += cnt;
	e->dt = p += cnt;
	e->last = p += cnt;
	e->last2 = p += slots;
	e->cpu_slot = (uint32_t *)(void *)(p += slots);
	e->field_slot = (uint32_t *)(void *)(p += halves);
	e->next = (uint32_t *)(void *)(p += halves);
	e->zero_slot = (uint32_t *)(void *)(p += halves);
	memset(e->zero_slot, 0, cnt * sizeof(uint32_t));
	return 0;
}

/* --- varints --- */

/* Of less than 56 bits, without a branch; writes 8 bytes. */
static inline uint8_t *put_varint56(uint8_t *p, uint64_t v)
{
	const unsigned int bits = 64 - (unsigned int)__builtin_clzll(v | 1), len = (bits + 6) / 7;

	/* each group of 7 bits to a byte of its own, by halves */
	v = (v & 0x000000000fffffff) | (v & 0x00fffffff0000000) << 4;
	v = (v & 0x00003fff00003fff) | (v & 0x0fffc0000fffc000) << 2;
	v = (v & 0x007f007f007f007f) | (v & 0x3f803f803f803f80) << 1;
	v |= 0x0080808080808080 >> 8 * (8 - len);
	memcpy(p, &v, sizeof(v));
	return p + len;
}

uint8_t *dl_enc_varints(uint8_t *p, const uint64_t *v, size_t cnt, uint64_t any)
{
	size_t i = 0;

	if (any < 0x80) {
		for (; i < cnt; i++)
			p[i] = (uint8_t)v[i];
		return p + cnt;
	}
	if (any >> 56) {
		for (; i < cnt; i++)
			p = dl_put_varint(p, v[i]);
		return p;
	}
	for (; i + 4 <= cnt; i += 4, v += 4) {
		if ((v[0] | v[1] | v[2] | v[3]) < 0x80) {
			const uint32_t four = (uint32_t)(v[0] | v[1] << 8 | v[2] << 16 | v[3] << 24);

			memcpy(p, &four, sizeof(four));
			p += sizeof(four);
			continue;
		}
		p = put_varint56(p, v[0]);
		p = put_varint56(p, v[1]);
		p = put_varint56(p, v[2]);
		p = put_varint56(p, v[3]);
	}
	for (; i < cnt; i++)
		p = put_varint56(p, *v++);
	return p;
}

/* --- models --- */

/* Time since, and thread of, the neighbours on the same CPU; CPUs that share a slot are one. */
static void find_neighbours(struct dl_encoder *e, const uint32_t *slot)
{
	uint64_t *last = e->last, *tid = e->last2;
	const struct dl_enc_kind *k = &e->k;

	memset(last, 0, DL_KEY_SLOTS * sizeof(*last));
	memset(tid, 0, DL_KEY_SLOTS * sizeof(*tid));
	for (size_t i = 0; i < k->cnt; i++) {
		e->dt[i] = last[slot[i]] ? k->ts[i] - last[slot[i]] : 0;
		last[slot[i]] = k->ts[i];
	}
	for (size_t i = k->cnt; i-- > 0;) {
		e->next[i] = (uint32_t)tid[slot[i]];
		tid[slot[i]] = e->threads.v[k->thread[i]] >> 32;
	}
	e->k.has_neighbours = true;
}

static void find_slots(uint32_t *slot, const uint64_t *v, size_t cnt)
{
	for (size_t i = 0; i < cnt; i++)
		slot[i] = dl_key_slot(v[i]);
}

/* Which values a key holds to be of one kind, and how many kinds there may be. */
static const uint32_t *slots_of(struct dl_encoder *e, unsigned int key, size_t *ret_cnt)
{
	struct dl_enc_kind *k = &e->k;

	*ret_cnt = DL_KEY_SLOTS;
	switch (key) {
	case DL_KEY_THREAD:
		*ret_cnt = e->threads.cnt;
		return k->thread;
	case DL_KEY_CPU:
		if (!k->cpu)
			break;
		if (!k->has_cpu_slots)
			find_slots(e->cpu_slot, k->cpu, k->cnt);
		k->has_cpu_slots = true;
		return e->cpu_slot;
	case DL_KEY_FIELD:
		if (!k->prev)
			break;
		if (!k->has_field_slots)
			find_slots(e->field_slot, k->prev, k->cnt);
		k->has_field_slots = true;
		return e->field_slot;
	}
	*ret_cnt = 1;
	return e->zero_slot;
}

/* What is predicted; NULL when a value cannot be expressed by the map. */
static const uint64_t *map_values(struct dl_encoder *e, const uint64_t *v, unsigned int map, size_t cnt)
{
	const uint64_t *ts = e->k.ts;
	uint64_t *x = e->x;

	switch (map) {
	case DL_MAP_U:
		return v;
	case DL_MAP_S:
		for (size_t i = 0; i < cnt; i++)
			x[i] = dl_zigzag(v[i]);
		return x;
	default:
		for (size_t i = 0; i < cnt; i++) {
			x[i] = v[i] ? dl_zigzag(v[i] - ts[i]) + 1 : 0;
			if (v[i] && !x[i])
				return NULL;
		}
		return x;
	}
}

/* e->last and e->last2 as they are before the first value. */
static void forget(struct dl_encoder *e, const uint32_t *slot, size_t slots, size_t cnt)
{
	if (cnt < slots / 4) {
		for (size_t i = 0; i < cnt; i++)
			e->last[slot[i]] = e->last2[slot[i]] = 0;
		return;
	}
	memset(e->last, 0, slots * sizeof(*e->last));
	memset(e->last2, 0, slots * sizeof(*e->last2));
}

static uint64_t predict_last(uint64_t *r, const uint64_t *x, size_t cnt)
{
	uint64_t any = r[0] = dl_zigzag(x[0]);

	for (size_t i = 1; i < cnt; i++)
		any |= r[i] = dl_zigzag(x[i] - x[i - 1]);
	return any;
}

static uint64_t all_bits(const uint64_t *x, size_t cnt)
{
	uint64_t any = 0;

	for (size_t i = 0; i < cnt; i++)
		any |= x[i];
	return any;
}

/* Residuals of x under the model: e->r, or x itself; *ret_any: all of them or'ed. */
static const uint64_t *predict(struct dl_encoder *e, const uint64_t *x, unsigned int order, unsigned int key,
			       size_t cnt, uint64_t *ret_any)
{
	uint64_t *r = e->r, *last = e->last, *last2 = e->last2, any = 0;
	const uint32_t *slot;
	size_t slots;

	if (order == DL_ORD_NONE) {
		*ret_any = all_bits(x, cnt);
		return x;
	}
	slot = slots_of(e, key, &slots);
	if (order == DL_ORD_LAST && slots == 1) {
		*ret_any = predict_last(r, x, cnt);
		return r;
	}
	if ((order == DL_ORD_RUN || order == DL_ORD_NEXT) && !e->k.has_neighbours)
		find_neighbours(e, slots_of(e, DL_KEY_CPU, &(size_t){ 0 }));
	forget(e, slot, slots, cnt);
	switch (order) {
	case DL_ORD_LAST:
		for (size_t i = 0; i < cnt; i++) {
			any |= r[i] = dl_zigzag(x[i] - last[slot[i]]);
			last[slot[i]] = x[i];
		}
		break;
	case DL_ORD_LINEAR:
		for (size_t i = 0; i < cnt; i++) {
			uint32_t s = slot[i];

			any |= r[i] = dl_zigzag(x[i] - (2 * last[s] - last2[s]));
			last2[s] = last[s];
			last[s] = x[i];
		}
		break;
	case DL_ORD_RUN:
		for (size_t i = 0; i < cnt; i++) {
			uint32_t s = slot[i];

			any |= r[i] = dl_zigzag(x[i] - (last[s] + (last[s] != last2[s] ? e->dt[i] : 0)));
			last2[s] = last[s];
			last[s] = x[i];
		}
		break;
	default:
		for (size_t i = 0; i < cnt; i++)
			any |= r[i] = dl_zigzag(x[i] - e->next[i]);
	}
	*ret_any = any;
	return r;
}

/* Model byte and residuals of the first cnt values to e->scratch; false where the model does not do. */
static bool put_values(struct dl_encoder *e, const uint64_t *v, uint8_t model, size_t cnt)
{
	const uint64_t *x = map_values(e, v, model & 3, cnt), *r;
	struct dl_buf *b = &e->scratch;
	uint64_t any;

	if (!x)
		return false;
	r = predict(e, x, model >> 2 & 7, model >> 5, cnt, &any);
	b->v[0] = model;
	b->cnt = 1;
	if (any)
		b->cnt = (size_t)(dl_enc_varints(b->v + 1, r, cnt, any) - b->v);
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

/* What e->scratch comes to when it is compressed. */
static int compressed_sz(struct dl_encoder *e, size_t values, size_t *ret)
{
	size_t sz = e->scratch.cnt;

	if (values >= FEW_CNT && sz > 1)
		sz = ZSTD_compressCCtx(e->cctx, e->trial.v, e->trial.cap, e->scratch.v, e->scratch.cnt, 1);
	*ret = sz;
	return ZSTD_isError(sz) ? -ENOMEM : 0;
}

/* The model whose result compresses best on the first values; the one before while none is clearly better. */
static int choose(struct dl_encoder *e, const uint64_t *v, uint8_t *model, unsigned int type, unsigned int unit,
		  bool keyed)
{
	const size_t cnt = e->k.cnt < SAMPLE_CNT ? e->k.cnt : SAMPLE_CNT, max = cnt * DL_VARINT_MAX + 1 + 8;
	size_t best = SIZE_MAX, now = SIZE_MAX, tries, sz;
	const uint8_t before = *model;
	uint8_t list[16];

	tries = models(list, type, unit, keyed);
	e->trial.cnt = 0;
	if (vec_reserve(&e->trial, ZSTD_compressBound(max)))
		return -ENOMEM;
	for (size_t i = 0; i < tries; i++) {
		if (!put_values(e, v, list[i], cnt))
			continue;
		if (compressed_sz(e, cnt, &sz))
			return -ENOMEM;
		if (list[i] == before)
			now = sz;
		if (sz < best) {
			best = sz;
			*model = list[i];
		}
	}
	if (now <= best + best / 32)
		*model = before;
	e->changed |= *model != before;
	return 0;
}

/* --- columns --- */

int dl_enc_cut(struct dl_encoder *e, size_t from)
{
	if (e->payload.cnt - from < e->cut_sz)
		return 0;
	if (vec_reserve(&e->cuts, 2))
		return -ENOMEM;
	e->cuts.v[e->cuts.cnt++] = from;
	e->cuts.v[e->cuts.cnt++] = e->payload.cnt;
	return 0;
}

static int put_coded(struct dl_encoder *e, uint8_t enc, const uint8_t *p, size_t sz)
{
	const size_t from = e->payload.cnt;
	uint8_t *at;

	if (vec_reserve(&e->payload, 1 + DL_VARINT_MAX + sz))
		return -ENOMEM;
	at = e->payload.v + from;
	*at = enc;
	at = dl_put_varint(at + 1, sz);
	if (sz)
		memcpy(at, p, sz);
	e->payload.cnt = (size_t)(at + sz - e->payload.v);
	return dl_enc_cut(e, from);
}

int dl_enc_bytes(struct dl_encoder *e, const uint8_t *p, size_t sz)
{
	return put_coded(e, DL_COL_BYTES, p, sz);
}

static int put_column(struct dl_encoder *e, const uint64_t *v, bool constant, uint8_t *model, unsigned int type,
		      unsigned int unit, bool keyed)
{
	struct dl_buf *b = &e->scratch;
	int err;

	b->cnt = 0;
	if (vec_reserve(b, e->k.cnt * DL_VARINT_MAX + 1 + 8))
		return -ENOMEM;
	if (constant) {
		b->cnt = (size_t)(dl_put_varint(b->v, v[0]) - b->v);
		return put_coded(e, DL_COL_CONST, b->v, b->cnt);
	}
	if (e->search || *model == DL_ENC_NO_MODEL) {
		err = choose(e, v, model, type, unit, keyed);
		if (err)
			return err;
	}
	if (!put_values(e, v, *model, e->k.cnt))
		put_values(e, v, PLAIN, e->k.cnt);
	return put_coded(e, DL_COL_VALUES, b->v, b->cnt);
}

int dl_enc_column(struct dl_encoder *e, const uint64_t *v, bool constant, uint8_t *model, unsigned int type,
		  unsigned int unit, bool keyed)
{
	const int err = put_column(e, v, constant, model, type, unit, keyed);

	e->k.prev = constant ? NULL : v;
	e->k.has_field_slots = false;
	return err;
}
