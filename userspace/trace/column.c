/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Columns of numbers: from residuals back to the values of an event's field. */
#include "trace/decode.h"

#include <errno.h>

#define EIGHT_ENDS 0x8080808080808080ULL	/* the bit that the last byte of a varint does not have */

static uint64_t load64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

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
	ret->constant = true;	/* until it is opened */
	return p + len;
}

const uint8_t *dl_skip_varints(const uint8_t *p, const uint8_t *end, size_t cnt)
{
	/* Eight bytes end at most eight of them. */
	while (cnt >= 8 && end - p >= 8) {
		const uint64_t ends = (~load64(p) & EIGHT_ENDS) >> 7;

		cnt -= ends * 0x0101010101010101ULL >> 56;
		p += 8;
	}
	for (; cnt && p < end; p++)
		cnt -= *p < 0x80;
	return cnt ? NULL : p;
}

/* --- residuals --- */

/* A varint at p, behind which at least DL_VARINT_MAX bytes can be read. */
static inline const uint8_t *get_inside(const uint8_t *p, uint64_t *ret)
{
	uint64_t w = load64(p), stop = ~w & EIGHT_ENDS;

	if (!(w & 0x80)) {
		*ret = w & 0x7f;
		return p + 1;
	}
	if (!stop)
		return dl_get_varint(p, p + DL_VARINT_MAX, ret);
	p += (__builtin_ctzll(stop) >> 3) + 1;
	/* The bytes up to the one that ends it; their sevens of bits move together. */
	w &= stop ^ (stop - 1);
	w = (w & 0x007f007f007f007fULL) | (w & 0x7f007f007f007f00ULL) >> 1;
	w = (w & 0x00003fff00003fffULL) | (w & 0x3fff00003fff0000ULL) >> 2;
	*ret = (w & 0x000000000fffffffULL) | (w & 0x0fffffff00000000ULL) >> 4;
	return p;
}

/* Eight bytes to eight numbers. */
static inline void spread(uint64_t *v, uint64_t w)
{
	v[0] = w & 0xff;
	v[1] = w >> 8 & 0xff;
	v[2] = w >> 16 & 0xff;
	v[3] = w >> 24 & 0xff;
	v[4] = w >> 32 & 0xff;
	v[5] = w >> 40 & 0xff;
	v[6] = w >> 48 & 0xff;
	v[7] = w >> 56;
}

/* n varints to v. Returns where they end, or NULL. */
static const uint8_t *get_residuals(const uint8_t *p, const uint8_t *end, uint64_t *v, size_t n)
{
	size_t i = 0;

	while (n - i >= 8 && end - p >= 8 * DL_VARINT_MAX) {
		uint64_t w = load64(p);

		if (!(w & EIGHT_ENDS)) {
			spread(v + i, w);
			p += 8;
			i += 8;
			continue;
		}
		for (const size_t stop = i + 8; i < stop; i++) {
			p = get_inside(p, &v[i]);
			if (!p)
				return NULL;
		}
	}
	for (; i < n; i++) {
		p = dl_get_varint_fast(p, end, &v[i]);
		if (!p)
			return NULL;
	}
	return p;
}

/* Are the next n residuals all 0? Most are, of most columns. */
static bool skip_zeros(const uint8_t **p, const uint8_t *end, size_t n)
{
	const uint8_t *at = *p;
	size_t left = n;

	if ((size_t)(end - at) < n)
		return false;
	for (; left >= 8; left -= 8, at += 8) {
		if (load64(at))
			return false;
	}
	for (; left; left--, at++) {
		if (*at)
			return false;
	}
	*p = at;
	return true;
}

/* --- models --- */

int dl_column_open(struct dl_decoder *d, struct column *c, bool keyed)
{
	c->constant = c->zeros = true;
	c->map = c->order = c->key = 0;
	c->one = 0;
	if (c->enc == DL_COL_CONST) {
		if (dl_get_varint(c->p, c->end, &c->one) != c->end)
			return dl_decode_bad(d, "a constant column is malformed");
		c->p = c->end;
		return 0;
	}
	if (c->enc != DL_COL_VALUES || c->p == c->end)
		return dl_decode_bad(d, "a column is not of numbers");
	c->map = *c->p & 3;
	c->order = *c->p >> 2 & 7;
	c->key = *c->p >> 5;
	c->p++;
	if (c->map >= DL_MAP_CNT || c->order >= DL_ORD_CNT || c->key >= DL_KEY_CNT)
		return dl_decode_bad(d, "a column has an unknown model");
	if (!keyed && (c->map == DL_MAP_TS || c->order > DL_ORD_LINEAR || c->key != DL_KEY_NONE))
		return dl_decode_bad(d, "a column has a model that it cannot have");
	/* No residuals: all are 0, and so is what is predicted from nothing but those before. */
	c->zeros = c->p == c->end;
	c->constant = c->zeros && c->order != DL_ORD_NEXT;
	return 0;
}

static size_t slots_of(const struct dl_decoder *d, const struct column *c)
{
	switch (c->key) {
	case DL_KEY_NONE:
		return 1;
	case DL_KEY_THREAD:
		return d->thread_cnt;
	default:
		return DL_KEY_SLOTS;
	}
}

static bool has_tables(const struct column *c)
{
	return !c->constant && c->order != DL_ORD_NONE && c->order != DL_ORD_NEXT;
}

int dl_column_tables(struct dl_decoder *d, struct column *c, size_t cnt)
{
	const size_t had = d->tables.cap;
	size_t at = d->tables.cnt;

	for (size_t i = 0; i < cnt; i++) {
		if (!has_tables(&c[i]))
			continue;
		c[i].last = at;
		c[i].last2 = at += slots_of(d, &c[i]);
		if (c[i].order != DL_ORD_LAST)
			at += slots_of(d, &c[i]);
	}
	if (vec_reserve(&d->tables, at - d->tables.cnt))
		return -ENOMEM;
	if (d->tables.cap > had)
		memset(d->tables.v + had, 0, (d->tables.cap - had) * sizeof(*d->tables.v));
	d->tables.cnt = at;
	return 0;
}

/* Key slots of the block's events. */
static const uint32_t *get_slots(struct dl_decoder *d, const struct column *c, size_t first, size_t n)
{
	static const uint32_t none[DL_DECODE_BLOCK];

	switch (c->key) {
	case DL_KEY_NONE:
		return none;
	case DL_KEY_THREAD:
		return d->thread + first;
	case DL_KEY_CPU:
		return d->cpu_slot + first;
	}
	for (size_t i = 0; i < n; i++)
		d->slot[i] = dl_key_slot(d->before[i]);
	return d->slot;
}

/* What was last, where nothing differs from that. */
static void repeat(struct dl_decoder *d, const struct column *c, size_t first, size_t n)
{
	const uint32_t *slot = get_slots(d, c, first, n);
	const uint64_t *last = d->tables.v + c->last;

	for (size_t i = 0; i < n; i++)
		d->v[i] = last[slot[i]];
}

/* Residuals to x, in place. */
static void unpredict(struct dl_decoder *d, const struct column *c, size_t first, size_t n)
{
	const uint32_t *slot = c->order == DL_ORD_NONE ? NULL : get_slots(d, c, first, n);
	const bool tables = has_tables(c);
	uint64_t *last = tables ? d->tables.v + c->last : NULL, *last2 = tables ? d->tables.v + c->last2 : NULL;
	uint64_t *v = d->v, x;

	switch (c->order) {
	case DL_ORD_NONE:
		break;
	case DL_ORD_LAST:
		if (c->key == DL_KEY_NONE) {
			x = last[0];
			for (size_t i = 0; i < n; i++)
				v[i] = x += dl_unzigzag(v[i]);
			last[0] = x;
			break;
		}
		for (size_t i = 0; i < n; i++)
			v[i] = last[slot[i]] += dl_unzigzag(v[i]);
		break;
	case DL_ORD_LINEAR:
		for (size_t i = 0; i < n; i++) {
			const uint32_t s = slot[i];

			x = dl_unzigzag(v[i]) + 2 * last[s] - last2[s];
			last2[s] = last[s];
			v[i] = last[s] = x;
		}
		break;
	case DL_ORD_RUN:
		for (size_t i = 0; i < n; i++) {
			const uint32_t s = slot[i];

			x = dl_unzigzag(v[i]) + last[s] + (last[s] != last2[s] ? d->dt[first + i] : 0);
			last2[s] = last[s];
			v[i] = last[s] = x;
		}
		break;
	default:
		for (size_t i = 0; i < n; i++)
			v[i] = dl_unzigzag(v[i]) + d->next[first + i];
	}
	/* Few events: their slots are fewer than the tables are long. */
	if (d->cnt > DL_DECODE_BLOCK || !tables)
		return;
	for (size_t i = 0; i < n; i++)
		last[slot[i]] = 0;
	for (size_t i = 0; i < n && c->order != DL_ORD_LAST; i++)
		last2[slot[i]] = 0;
}

static void unmap(struct dl_decoder *d, unsigned int map, size_t first, size_t n)
{
	uint64_t *v = d->v;

	if (map == DL_MAP_S) {
		for (size_t i = 0; i < n; i++)
			v[i] = dl_unzigzag(v[i]);
	} else if (map == DL_MAP_TS) {
		for (size_t i = 0; i < n; i++)
			v[i] = v[i] ? dl_unzigzag(v[i] - 1) + d->ts[first + i] : 0;
	}
}

int dl_column_read(struct dl_decoder *d, struct column *c, size_t first, size_t n)
{
	if (c->constant) {
		for (size_t i = 0; i < n; i++)
			d->v[i] = c->one;
		return 0;
	}
	if (!c->zeros && !skip_zeros(&c->p, c->end, n)) {
		c->p = get_residuals(c->p, c->end, d->v, n);
		if (!c->p)
			return dl_decode_bad(d, "a column is too short");
		unpredict(d, c, first, n);
	} else if (c->order == DL_ORD_LAST && d->cnt > DL_DECODE_BLOCK) {
		repeat(d, c, first, n);
	} else {
		memset(d->v, 0, n * sizeof(*d->v));
		unpredict(d, c, first, n);
	}
	unmap(d, c->map, first, n);
	return 0;
}

int dl_column_close(struct dl_decoder *d, struct column *c, size_t cnt)
{
	if (d->cnt > DL_DECODE_BLOCK && d->tables.cnt)
		memset(d->tables.v, 0, d->tables.cnt * sizeof(*d->tables.v));
	d->tables.cnt = 0;
	for (size_t i = 0; i < cnt; i++) {
		if (c[i].p != c[i].end)
			return dl_decode_bad(d, "a column is too long");
	}
	return 0;
}

/* As encode.c has them. */
void dl_find_neighbours(struct dl_decoder *d)
{
	uint64_t last[DL_KEY_SLOTS] = { 0 };
	uint32_t tid[DL_KEY_SLOTS] = { 0 };

	for (size_t i = 0; i < d->cnt; i++) {
		const uint32_t s = d->cpu_slot[i];

		d->dt[i] = last[s] ? d->ts[i] - last[s] : 0;
		last[s] = d->ts[i];
	}
	for (size_t i = d->cnt; i-- > 0;) {
		const uint32_t s = d->cpu_slot[i];

		d->next[i] = tid[s];
		tid[s] = (uint32_t)(d->threads[d->thread[i]] >> 32);
	}
}

/* --- fields --- */

void dl_column_scatter(const struct dl_decoder *d, uint8_t *buf, const uint32_t *pos, size_t n, unsigned int type,
		       size_t off)
{
	const uint64_t *v = d->v;

	buf += off;
#define SCATTER(ctype) do { \
	for (size_t i = 0; i < n; i++) { \
		ctype one = (ctype)v[i]; \
		memcpy(buf + pos[i], &one, sizeof(one)); \
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
