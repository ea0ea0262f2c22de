/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Frames to events: the way back from encode.c. Nothing in a frame is believed, although its
 * checksum is right: a file may have been made to do harm.
 */
#include "trace/decode.h"

#include <errno.h>
#include <stdlib.h>
#include <zstd_errors.h>

struct dl_decoder *dl_decoder_new(void)
{
	struct dl_decoder *d = calloc(1, sizeof(*d));

	if (!d)
		return NULL;
	d->dctx = ZSTD_createDCtx();
	if (!d->dctx) {
		dl_decoder_free(d);
		return NULL;
	}
	return d;
}

void dl_decoder_free(struct dl_decoder *d)
{
	if (!d)
		return;
	ZSTD_freeDCtx(d->dctx);
	free(d->payload.v);
	vec_free(&d->words);
	vec_free(&d->cols);
	free(d);
}

int dl_decode_bad(struct dl_decoder *d, const char *why)
{
	d->why = why;
	return -EBADMSG;
}

static int decompress(struct dl_decoder *d, const struct dl_frame_hdr *h, const uint8_t *comp)
{
	size_t sz;

	if (ZSTD_getFrameContentSize(comp, h->comp_sz) != h->payload_sz)
		return dl_decode_bad(d, "sizes do not agree");
	d->payload.cnt = 0;
	if (vec_reserve(&d->payload, h->payload_sz + DL_VARINT_MAX))
		return -ENOMEM;
	sz = ZSTD_decompressDCtx(d->dctx, d->payload.v, h->payload_sz, comp, h->comp_sz);
	if (ZSTD_isError(sz)) {
		if (ZSTD_getErrorCode(sz) == ZSTD_error_memory_allocation)
			return -ENOMEM;
		return dl_decode_bad(d, "cannot be decompressed");
	}
	if (sz != h->payload_sz)
		return dl_decode_bad(d, "sizes do not agree");
	d->payload.cnt = sz;
	return 0;
}

static int reserve_arrays(struct dl_decoder *d, size_t events, size_t most, size_t threads)
{
	size_t slots = threads > DL_KEY_SLOTS ? threads : DL_KEY_SLOTS, half = (most + 1) / 2;
	uint64_t *p;

	d->words.cnt = 0;
	if (vec_reserve(&d->words, threads + events + most * 3 + slots * 2 +
			half * (DL_KEY_CNT + 1) + 2))
		return -ENOMEM;
	p = d->words.v;
	d->threads = p;
	p += threads;
	d->v = p;
	d->ts = p += most;
	d->dt = p += most;
	d->last = p += most;
	d->last2 = p += slots;
	p += slots;
	for (int k = 0; k < DL_KEY_CNT; k++, p += half)
		d->slot[k] = (uint32_t *)(void *)p;
	memset(d->slot[DL_KEY_NONE], 0, most * sizeof(uint32_t));
	d->next = (uint32_t *)(void *)p;
	p += half;
	d->pos = (uint32_t *)(void *)p;
	d->tail_len = d->pos + events;
	return 0;
}

/* --- the parts of a frame --- */

/* Finds the columns of each kind, and the kinds themselves in the schema. */
static int find_columns(struct dl_decoder *d, const struct dl_file_schema *schema,
			const struct dl_frame_hdr *h, const uint8_t *p, const uint8_t *end)
{
	size_t first = 0;

	d->cols.cnt = 0;
	for (uint32_t k = 0; k < h->kinds; k++) {
		struct part *part = &d->parts[k];
		size_t cols;

		*part = (struct part){ .ev = &schema->events[h->kind[k].kind], .first = first,
				       .cnt = h->kind[k].cnt, .col = d->cols.cnt };
		first += part->cnt;
		if (!part->ev->known)
			return dl_decode_bad(d, "a kind is not in the schema");
		part->own = part->ev->own;
		if (part->ev->tail != DL_TAIL_NONE) {
			p = dl_column_find(p, end, &part->tail_len);
			p = p ? dl_column_find(p, end, &part->tail) : NULL;
		}
		cols = DL_HCOL_CNT + part->ev->field_cnt;
		if (vec_reserve(&d->cols, cols))
			return -ENOMEM;
		for (size_t i = 0; i < cols && p; i++)
			p = dl_column_find(p, end, &d->cols.v[d->cols.cnt++]);
		if (!p)
			return dl_decode_bad(d, "a column is missing");
	}
	return p == end ? 0 : dl_decode_bad(d, "there is something behind the last column");
}

/* The lengths of the tails that will be returned, to d->tail_len. */
static int get_tail_lens(struct dl_decoder *d, struct part *part)
{
	uint32_t *len = d->tail_len + part->first;
	int err;

	memset(len, 0, part->cnt * sizeof(*len));
	if (!part->own || part->ev->tail == DL_TAIL_NONE)
		return 0;
	d->cnt = part->cnt;
	err = dl_column_get(d, &part->tail_len, NULL, NULL, false);
	if (err)
		return err;
	for (size_t i = 0; i < part->cnt; i++) {
		if (d->v[i] > DL_EVENT_MAX_SZ ||
		    (part->ev->tail == DL_TAIL_ADDRS && d->v[i] % sizeof(uint64_t)))
			return dl_decode_bad(d, "a tail has a wrong length");
		len[i] = (uint32_t)d->v[i];
	}
	return 0;
}

/* What of a tail finds room in this build's event. */
static size_t own_tail(const struct part *part, size_t len)
{
	size_t room = (DL_EVENT_MAX_SZ - part->own->size) & ~(size_t)7;

	if (part->own->tail != part->ev->tail)
		return 0;
	return len < room ? len : room;
}

/* Walks the events in their order: gives each its place, and writes size, kind and ts. */
static int place_events(struct dl_decoder *d, const struct dl_frame_hdr *h, const uint8_t *order,
			const uint8_t *end, struct dl_decoded *out, const uint8_t **ret_p)
{
	const uint8_t *p = order + h->events;
	uint64_t ts = h->first_ts, step;
	size_t at = 0;

	for (uint32_t i = 0; i < h->events; i++) {
		struct part *part = &d->parts[order[i]];
		struct dl_hdr hdr = { 0 };
		size_t n;

		p = dl_get_varint_fast(p, end, &step);
		if (!p || (!i && step) || step > h->last_ts - ts)
			return dl_decode_bad(d, "a time is out of the frame's range");
		ts += step;
		n = part->first + part->next++;
		if (!part->own)
			continue;
		d->pos[n] = (uint32_t)at;
		hdr.size = (uint16_t)(part->own->size + own_tail(part, d->tail_len[n]));
		hdr.kind = part->own->kind;
		hdr.ts = ts;
		memcpy(out->buf + at, &hdr, sizeof(hdr));
		at += (hdr.size + 7u) & ~7u;
	}
	if (ts != h->last_ts)
		return dl_decode_bad(d, "the last time is wrong");
	*ret_p = p;
	return 0;
}

/* Checks the order column and makes room for all events, zeroed. */
static int reserve_events(struct dl_decoder *d, const struct dl_frame_hdr *h, const uint8_t *order,
			  struct dl_decoded *out)
{
	uint32_t cnt[DL_MAX_FRAME_KINDS] = { 0 };
	size_t sz = 0;

	for (uint32_t i = 0; i < h->events; i++) {
		if (order[i] >= h->kinds)
			return dl_decode_bad(d, "an event has no kind");
		cnt[order[i]]++;
	}
	out->events = 0;
	for (uint32_t k = 0; k < h->kinds; k++) {
		const struct part *part = &d->parts[k];

		if (cnt[k] != part->cnt)
			return dl_decode_bad(d, "the events of a kind are not as many as announced");
		for (size_t i = 0; part->own && i < part->cnt; i++)
			sz += (part->own->size + own_tail(part, d->tail_len[part->first + i]) + 7) &
			      ~(size_t)7;
		out->events += part->own ? part->cnt : 0;
	}
	out->sz = sz;
	if (sz > out->cap) {
		free(out->buf);
		out->cap = 0;
		out->buf = malloc(sz);
		if (!out->buf)
			return -ENOMEM;
		out->cap = sz;
	}
	if (sz)
		memset(out->buf, 0, sz);
	return 0;
}

static int get_tails(struct dl_decoder *d, const struct part *part, uint8_t *buf)
{
	const uint8_t *p = part->tail.p, *end = part->tail.end;
	const uint32_t *pos = d->pos + part->first, *len = d->tail_len + part->first;
	uint64_t addr = 0, step;

	if (part->tail.enc != DL_COL_BYTES)
		return dl_decode_bad(d, "a tail is not of bytes");
	for (size_t i = 0; i < part->cnt; i++) {
		size_t own = own_tail(part, len[i]);

		if (part->ev->tail != DL_TAIL_ADDRS) {
			if (len[i] > (size_t)(end - p))
				return dl_decode_bad(d, "a tail is too short");
			if (own)
				memcpy(buf + pos[i] + part->own->size, p, own);
			p += len[i];
			continue;
		}
		for (size_t a = 0; a < len[i]; a += sizeof(addr)) {
			p = dl_get_varint(p, end, &step);
			if (!p)
				return dl_decode_bad(d, "a tail is too short");
			addr += dl_unzigzag(step);
			if (a < own)
				memcpy(buf + pos[i] + part->own->size + a, &addr, sizeof(addr));
		}
	}
	return p == end ? 0 : dl_decode_bad(d, "a tail is too long");
}

/* Whoever goes through a stack believes its counts. */
static int check_stacks(struct dl_decoder *d, const struct part *part, const uint8_t *buf)
{
	for (size_t i = 0; i < part->cnt; i++) {
		const void *ev = buf + d->pos[part->first + i];

		if (!dl_event_fits(part->own, ev))
			return dl_decode_bad(d, "an event does not fit its kind");
	}
	return 0;
}

static int get_header_columns(struct dl_decoder *d, const struct part *part, uint8_t *buf)
{
	const struct column *col = d->cols.v + part->col;
	const uint32_t *pos = d->pos + part->first;
	int err;

	err = dl_column_get(d, &col[DL_HCOL_THREAD], buf, pos, false);
	if (err)
		return err;
	for (size_t i = 0; i < d->cnt; i++) {
		struct dl_hdr h;

		if (d->v[i] >= d->thread_cnt)
			return dl_decode_bad(d, "an event has no thread");
		memcpy(&h, buf + pos[i], sizeof(h));
		h.tid = (uint32_t)(d->threads[d->v[i]] >> 32);
		h.pid = (uint32_t)d->threads[d->v[i]];
		memcpy(buf + pos[i], &h, sizeof(h));
		d->ts[i] = h.ts;
		d->slot[DL_KEY_THREAD][i] = (uint32_t)d->v[i];
		d->slot[DL_KEY_FIELD][i] = dl_key_slot(d->v[i]);
		d->slot[DL_KEY_CPU][i] = 0;
	}
	d->neighbours = true;	/* there are none before the CPUs are known */
	memset(d->dt, 0, d->cnt * sizeof(*d->dt));
	memset(d->next, 0, d->cnt * sizeof(*d->next));
	err = dl_column_get(d, &col[DL_HCOL_CPU], buf, pos, true);
	if (err)
		return err;
	d->neighbours = false;
	dl_column_scatter(d, buf, pos, DL_FT_u16, offsetof(struct dl_hdr, cpu));
	for (size_t i = 0; i < d->cnt; i++)
		d->slot[DL_KEY_FIELD][i] = d->slot[DL_KEY_CPU][i] = dl_key_slot(d->v[i]);
	err = dl_column_get(d, &col[DL_HCOL_FLAGS], buf, pos, true);
	if (err)
		return err;
	dl_column_scatter(d, buf, pos, DL_FT_u16, offsetof(struct dl_hdr, flags));
	for (size_t i = 0; i < d->cnt; i++)
		d->slot[DL_KEY_FIELD][i] = dl_key_slot(d->v[i]);
	return 0;
}

static int get_text(struct dl_decoder *d, const struct column *c, const struct dl_file_field *f,
		    const uint32_t *pos, uint8_t *buf)
{
	if (c->enc != DL_COL_BYTES || (size_t)(c->end - c->p) != d->cnt * f->size)
		return dl_decode_bad(d, "a text column has a wrong length");
	for (size_t i = 0; f->own_type && i < d->cnt; i++)
		memcpy(buf + pos[i] + f->own_off, c->p + i * f->size, f->size);
	return 0;
}

static int get_fields(struct dl_decoder *d, const struct part *part, uint8_t *buf)
{
	const struct column *col = d->cols.v + part->col + DL_HCOL_CNT;
	const uint32_t *pos = d->pos + part->first;
	int err = 0;

	for (unsigned int i = 0; i < part->ev->field_cnt && !err; i++, col++) {
		const struct dl_file_field *f = &part->ev->fields[i];

		if (!f->size)
			continue;	/* a type that this build does not know */
		if (!dl_ftype_is_int(f->type)) {
			err = get_text(d, col, f, pos, buf);
			continue;
		}
		err = dl_column_get(d, col, buf, pos, true);
		if (err)
			break;
		if (f->own_type && !(col->enc == DL_COL_CONST && !d->v[0]))
			dl_column_scatter(d, buf, pos, f->own_type, f->own_off);
		for (size_t j = 0; j < d->cnt; j++)
			d->slot[DL_KEY_FIELD][j] = dl_key_slot(d->v[j]);
	}
	return err;
}

/* --- a frame --- */

static int get_threads(struct dl_decoder *d, const struct dl_frame_hdr *h, const uint8_t **p,
		       const uint8_t *end)
{
	uint64_t cnt, tid, pid, most = 0;
	int err;

	*p = dl_get_varint(*p, end, &cnt);
	if (!*p || cnt > h->events)
		return dl_decode_bad(d, "the threads are malformed");
	for (uint32_t k = 0; k < h->kinds; k++)
		most = h->kind[k].cnt > most ? h->kind[k].cnt : most;
	err = reserve_arrays(d, h->events, most, cnt);
	if (err)
		return err;
	d->thread_cnt = cnt;
	for (uint64_t i = 0; i < cnt; i++) {
		*p = dl_get_varint(*p, end, &tid);
		*p = *p ? dl_get_varint(*p, end, &pid) : NULL;
		if (!*p || tid > UINT32_MAX || pid > UINT32_MAX)
			return dl_decode_bad(d, "the threads are malformed");
		d->threads[i] = tid << 32 | pid;
	}
	return 0;
}

/* Where the time column ends, without looking at it. */
static const uint8_t *skip_varints(const uint8_t *p, const uint8_t *end, size_t cnt)
{
	for (; cnt && p < end; p++)
		cnt -= *p < 0x80;
	return cnt ? NULL : p;
}

static int decode(struct dl_decoder *d, const struct dl_file_schema *schema,
		  const struct dl_frame_hdr *h, struct dl_decoded *out)
{
	const uint8_t *p = d->payload.v, *end = p + d->payload.cnt, *order, *cols;
	int err;

	err = get_threads(d, h, &p, end);
	if (err)
		return err;
	order = p;
	if ((size_t)(end - p) < h->events)
		return dl_decode_bad(d, "the kinds of the events are missing");
	cols = skip_varints(order + h->events, end, h->events);
	if (!cols)
		return dl_decode_bad(d, "the times of the events are missing");
	err = find_columns(d, schema, h, cols, end);
	for (uint32_t k = 0; !err && k < h->kinds; k++)
		err = get_tail_lens(d, &d->parts[k]);
	err = err ?: reserve_events(d, h, order, out);
	err = err ?: place_events(d, h, order, end, out, &p);
	if (!err && p != cols)
		err = dl_decode_bad(d, "the times of the events are malformed");
	for (uint32_t k = 0; !err && k < h->kinds; k++) {
		struct part *part = &d->parts[k];

		if (!part->own)
			continue;
		d->cnt = part->cnt;
		err = get_header_columns(d, part, out->buf);
		err = err ?: get_fields(d, part, out->buf);
		if (!err && part->ev->tail != DL_TAIL_NONE)
			err = get_tails(d, part, out->buf);
		if (!err && part->own->tail == DL_TAIL_ADDRS)
			err = check_stacks(d, part, out->buf);
	}
	return err;
}

int dl_decode_frame(struct dl_decoder *d, const struct dl_file_schema *schema,
		    const struct dl_frame_hdr *h, const uint8_t *comp, struct dl_decoded *out,
		    const char **ret_why)
{
	int err;

	d->why = NULL;
	if (h->codec != DL_CODEC_COLUMNS_ZSTD)
		err = dl_decode_bad(d, "it is coded in a way that this dlbpf does not know");
	else
		err = decompress(d, h, comp);
	err = err ?: decode(d, schema, h, out);
	if (err == -EBADMSG)
		*ret_why = d->why;
	return err;
}
