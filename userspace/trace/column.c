/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Columns of numbers: from residuals back to the values of an event's field. */
#include "trace/decode.h"

#include <errno.h>

const uint8_t *dl_column_find(const uint8_t *p, const uint8_t *end, struct column *ret)
{
	uint64_t len;

	if (p == end)
		return NULL;
	ret->enc = *p++;
	p = dl_get_varint(p, end, &len);
	if (!p || len > (uint64_t)(end - p))
		return NULL;
	ret->p = p;
	ret->end = p + len;
	return p + len;
}

/* Time since, and thread of, the neighbours on the same CPU, as encode.c has them. */
static void find_neighbours(struct dl_decoder *d, const uint8_t *buf, const uint32_t *pos)
{
	uint64_t *last = d->last, *tid = d->last2;
	struct dl_hdr h;

	memset(last, 0, DL_KEY_SLOTS * sizeof(*last));
	memset(tid, 0, DL_KEY_SLOTS * sizeof(*tid));
	for (size_t i = 0; i < d->cnt; i++) {
		uint32_t s = d->slot[DL_KEY_CPU][i];

		d->dt[i] = last[s] ? d->ts[i] - last[s] : 0;
		last[s] = d->ts[i];
	}
	for (size_t i = d->cnt; i-- > 0;) {
		uint32_t s = d->slot[DL_KEY_CPU][i];

		memcpy(&h, buf + pos[i], sizeof(h));
		d->next[i] = (uint32_t)tid[s];
		tid[s] = h.tid;
	}
}

/* Varints to d->v as they stand. */
static int get_residuals(struct dl_decoder *d, const uint8_t *p, const uint8_t *end)
{
	uint64_t *v = d->v;

	if (p == end) {
		memset(v, 0, d->cnt * sizeof(*v));
		return 0;
	}
	for (size_t i = 0; i < d->cnt; i++) {
		p = dl_get_varint_fast(p, end, &v[i]);
		if (!p)
			return dl_decode_bad(d, "a column is too short");
	}
	return p == end ? 0 : dl_decode_bad(d, "a column is too long");
}

/* Residuals to x, in place. */
static void unpredict(struct dl_decoder *d, unsigned int order, unsigned int key)
{
	const uint32_t *slot = d->slot[key];
	uint64_t *v = d->v, *last = d->last, *last2 = d->last2;
	size_t slots = key == DL_KEY_NONE ? 1 : key == DL_KEY_THREAD ? d->thread_cnt : DL_KEY_SLOTS;

	memset(last, 0, slots * sizeof(*last));
	memset(last2, 0, slots * sizeof(*last2));
	switch (order) {
	case DL_ORD_NONE:
		break;
	case DL_ORD_LAST:
		for (size_t i = 0; i < d->cnt; i++)
			v[i] = last[slot[i]] += dl_unzigzag(v[i]);
		break;
	case DL_ORD_LINEAR:
		for (size_t i = 0; i < d->cnt; i++) {
			uint32_t s = slot[i];
			uint64_t x = dl_unzigzag(v[i]) + 2 * last[s] - last2[s];

			last2[s] = last[s];
			v[i] = last[s] = x;
		}
		break;
	case DL_ORD_RUN:
		for (size_t i = 0; i < d->cnt; i++) {
			uint32_t s = slot[i];
			uint64_t x = dl_unzigzag(v[i]) + last[s] + (last[s] != last2[s] ? d->dt[i] : 0);

			last2[s] = last[s];
			v[i] = last[s] = x;
		}
		break;
	default:
		for (size_t i = 0; i < d->cnt; i++)
			v[i] = dl_unzigzag(v[i]) + d->next[i];
	}
}

static void unmap(struct dl_decoder *d, unsigned int map)
{
	uint64_t *v = d->v;

	if (map == DL_MAP_S) {
		for (size_t i = 0; i < d->cnt; i++)
			v[i] = dl_unzigzag(v[i]);
	} else if (map == DL_MAP_TS) {
		for (size_t i = 0; i < d->cnt; i++)
			v[i] = v[i] ? dl_unzigzag(v[i] - 1) + d->ts[i] : 0;
	}
}

int dl_column_get(struct dl_decoder *d, const struct column *c, const uint8_t *buf,
		  const uint32_t *pos, bool keyed)
{
	unsigned int map, order, key;
	uint64_t one = 0;
	int err;

	if (c->enc == DL_COL_CONST) {
		if (dl_get_varint(c->p, c->end, &one) != c->end)
			return dl_decode_bad(d, "a constant column is malformed");
		for (size_t i = 0; i < d->cnt; i++)
			d->v[i] = one;
		return 0;
	}
	if (c->enc != DL_COL_VALUES || c->p == c->end)
		return dl_decode_bad(d, "a column is not of numbers");
	map = *c->p & 3;
	order = *c->p >> 2 & 7;
	key = *c->p >> 5;
	if (map >= DL_MAP_CNT || order >= DL_ORD_CNT || key >= DL_KEY_CNT)
		return dl_decode_bad(d, "a column has an unknown model");
	if (!keyed && (map == DL_MAP_TS || order > DL_ORD_LINEAR || key != DL_KEY_NONE))
		return dl_decode_bad(d, "a column has a model that it cannot have");
	if (order >= DL_ORD_RUN && !d->neighbours) {
		find_neighbours(d, buf, pos);
		d->neighbours = true;
	}
	err = get_residuals(d, c->p + 1, c->end);
	if (err)
		return err;
	unpredict(d, order, key);
	unmap(d, map);
	return 0;
}

void dl_column_scatter(const struct dl_decoder *d, uint8_t *buf, const uint32_t *pos,
		       unsigned int type, size_t off)
{
	const uint64_t *v = d->v;

#define SCATTER(ctype) do { \
	for (size_t i = 0; i < d->cnt; i++) { \
		ctype one = (ctype)v[i]; \
		memcpy(buf + pos[i] + off, &one, sizeof(one)); \
	} \
} while (0)
	switch (type) {
	case DL_FT_u16:
		SCATTER(uint16_t);
		break;
	case DL_FT_u32:
	case DL_FT_s32:
		SCATTER(uint32_t);
		break;
	default:
		SCATTER(uint64_t);
	}
#undef SCATTER
}
