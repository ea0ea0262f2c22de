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
	vec_free(&d->tables);
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

static void *take(uint64_t **at, size_t cnt, size_t sz)
{
	void *p = *at;

	*at += (cnt * sz + sizeof(**at) - 1) / sizeof(**at);
	return p;
}

static int reserve_arrays(struct dl_decoder *d, size_t events, size_t most, size_t threads)
{
	uint64_t *at;

	d->words.cnt = 0;
	/* Four and two bytes are rounded up to eight, once for each array. */
	if (vec_reserve(&d->words, threads + events * 2 + most * 3 + 8))
		return -ENOMEM;
	at = d->words.v;
	d->threads = take(&at, threads, sizeof(*d->threads));
	d->all_ts = take(&at, events, sizeof(*d->all_ts));
	d->pos = take(&at, events, sizeof(*d->pos));
	d->tail_len = take(&at, events, sizeof(*d->tail_len));
	d->dt = take(&at, most, sizeof(*d->dt));
	d->next = take(&at, most, sizeof(*d->next));
	d->thread = take(&at, most, sizeof(*d->thread));
	d->cpu_slot = take(&at, most, sizeof(*d->cpu_slot));
	d->cpu = take(&at, most, sizeof(*d->cpu));
	return 0;
}

/* --- the parts of a frame --- */

/* How many of the kind's events are read at a time, from the one at first on. */
static size_t block_sz(const struct dl_decoder *d, size_t first)
{
	return d->cnt - first < DL_DECODE_BLOCK ? d->cnt - first : DL_DECODE_BLOCK;
}

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

	if (!part->own || part->ev->tail == DL_TAIL_NONE)
		return 0;
	d->cnt = part->cnt;
	err = dl_column_open(d, &part->tail_len, false);
	err = err ?: dl_column_tables(d, &part->tail_len, 1);
	for (size_t first = 0, n; first < part->cnt && !err; first += n) {
		n = block_sz(d, first);
		err = dl_column_read(d, &part->tail_len, first, n);
		for (size_t i = 0; i < n && !err; i++) {
			if (d->v[i] > DL_EVENT_MAX_SZ ||
			    (part->ev->tail == DL_TAIL_ADDRS && d->v[i] % sizeof(uint64_t)))
				return dl_decode_bad(d, "a tail has a wrong length");
			len[first + i] = (uint32_t)d->v[i];
		}
	}
	return err ?: dl_column_close(d, &part->tail_len, 1);
}

/* What of a tail finds room in this build's event. */
static size_t own_tail(const struct part *part, size_t len)
{
	size_t room = (DL_EVENT_MAX_SZ - part->own->size) & ~(size_t)7;

	if (part->own->tail != part->ev->tail)
		return 0;
	return len < room ? len : room;
}

static size_t padded(size_t sz)
{
	return (sz + 7) & ~(size_t)7;
}

/* Walks the events in their order: gives each its time, and its place among those of its kind and in the buffer. */
static int place_events(struct dl_decoder *d, const struct dl_frame_hdr *h, const uint8_t *order,
			const uint8_t *end, const uint8_t **ret_p)
{
	const uint8_t *p = order + h->events;
	uint64_t ts = h->first_ts, step;
	size_t at = 0;

	for (uint32_t i = 0; i < h->events; i++) {
		const uint8_t k = order[i];
		const uint32_t n = d->next_event[k];

		if (n == d->end_event[k])
			return dl_decode_bad(d, k >= h->kinds ? "an event has no kind" :
					     "the events of a kind are not as many as announced");
		d->next_event[k] = n + 1;
		p = dl_get_varint_fast(p, end, &step);
		if (!p || (!i && step) || step > h->last_ts - ts)
			return dl_decode_bad(d, "a time is out of the frame's range");
		d->all_ts[n] = ts += step;
		d->pos[n] = (uint32_t)at;
		if (d->event_sz[k])
			at += d->event_sz[k];
		else if (d->parts[k].own)
			at += padded(d->parts[k].own->size + own_tail(&d->parts[k], d->tail_len[n]));
	}
	if (ts != h->last_ts)
		return dl_decode_bad(d, "the last time is wrong");
	*ret_p = p;
	return 0;
}

/* Makes room for all events. What is in it is from earlier frames. */
static int reserve_events(struct dl_decoder *d, const struct dl_frame_hdr *h, struct dl_decoded *out)
{
	size_t sz = 0;

	memset(d->next_event, 0, sizeof(d->next_event));
	memset(d->end_event, 0, sizeof(d->end_event));
	memset(d->event_sz, 0, sizeof(d->event_sz));
	out->events = 0;
	for (uint32_t k = 0; k < h->kinds; k++) {
		const struct part *part = &d->parts[k];

		d->next_event[k] = (uint32_t)part->first;
		d->end_event[k] = (uint32_t)(part->first + part->cnt);
		if (!part->own)
			continue;
		out->events += part->cnt;
		if (part->ev->tail == DL_TAIL_NONE || part->ev->tail != part->own->tail) {
			d->event_sz[k] = (uint32_t)padded(part->own->size);
			sz += part->cnt * d->event_sz[k];
			continue;
		}
		for (size_t i = 0; i < part->cnt; i++)
			sz += padded(part->own->size + own_tail(part, d->tail_len[part->first + i]));
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

/* Thread and CPU of all events of the kind. */
static int get_places(struct dl_decoder *d, struct column *thread, struct column *cpu)
{
	int err = 0;

	/* Of what the CPU decides nothing is known yet: one slot for all, and no neighbours. */
	cpu->key = cpu->key == DL_KEY_CPU ? DL_KEY_NONE : cpu->key;
	cpu->order = cpu->order == DL_ORD_RUN ? DL_ORD_LAST : cpu->order;
	if (cpu->order == DL_ORD_NEXT)
		memset(d->next, 0, d->cnt * sizeof(*d->next));
	for (size_t first = 0, n; first < d->cnt && !err; first += n) {
		n = block_sz(d, first);
		d->v = d->block[0];
		err = dl_column_read(d, thread, first, n);
		for (size_t i = 0; i < n && !err; i++) {
			if (d->v[i] >= d->thread_cnt)
				return dl_decode_bad(d, "an event has no thread");
			d->thread[first + i] = (uint32_t)d->v[i];
		}
		d->before = d->v;
		d->v = d->block[1];
		err = err ?: dl_column_read(d, cpu, first, n);
		for (size_t i = 0; i < n && !err; i++) {
			d->cpu[first + i] = (uint16_t)d->v[i];
			d->cpu_slot[first + i] = dl_key_slot(d->v[i]);
		}
	}
	return err;
}

/* Headers of a block of events; their flags are in d->v. Where the columns do not fill the events, what is
 * behind the headers becomes 0. */
static void put_headers(const struct dl_decoder *d, const struct part *part, size_t first, size_t n, uint8_t *buf)
{
	const uint32_t *len = d->tail_len + part->first + first;
	const bool tails = part->ev->tail != DL_TAIL_NONE;

	for (size_t i = 0; i < n; i++) {
		const uint64_t thread = d->threads[d->thread[first + i]];
		const size_t sz = part->own->size + (tails ? own_tail(part, len[i]) : 0);
		const struct dl_hdr h = {
			.size = (uint16_t)sz, .kind = part->own->kind, .tid = (uint32_t)(thread >> 32),
			.ts = d->ts[first + i], .pid = (uint32_t)thread, .cpu = d->cpu[first + i],
			.flags = (uint16_t)d->v[i],
		};
		uint8_t *at = buf + d->pos[part->first + first + i];

		memcpy(at, &h, sizeof(h));
		if (!part->ev->whole)
			memset(at + sizeof(h), 0, padded(sz) - sizeof(h));
	}
}

/* Flags and fields of a block of events. */
static int get_block(struct dl_decoder *d, const struct part *part, size_t first, size_t n, uint8_t *buf)
{
	struct column *col = d->cols.v + part->col + DL_HCOL_FLAGS;
	const uint32_t *pos = d->pos + part->first + first;
	int err = dl_column_read(d, col++, first, n);

	if (!err)
		put_headers(d, part, first, n, buf);
	for (unsigned int i = 0; i < part->ev->field_cnt && !err; i++, col++) {
		const struct dl_file_field *f = &part->ev->fields[i];
		uint64_t *before = d->before;

		if (!dl_ftype_is_int(f->type))
			continue;
		d->before = d->v;
		d->v = before;
		err = dl_column_read(d, col, first, n);
		if (!err && f->own_type)
			dl_column_scatter(d, buf, pos, n, f->own_type, f->own_off);
	}
	return err;
}

static int get_texts(struct dl_decoder *d, const struct part *part, uint8_t *buf)
{
	struct column *col = d->cols.v + part->col + DL_HCOL_CNT;
	const uint32_t *pos = d->pos + part->first;

	for (unsigned int i = 0; i < part->ev->field_cnt; i++, col++) {
		const struct dl_file_field *f = &part->ev->fields[i];

		if (!f->size || dl_ftype_is_int(f->type))
			continue;
		if (col->enc != DL_COL_BYTES || (size_t)(col->end - col->p) != d->cnt * f->size)
			return dl_decode_bad(d, "a text column has a wrong length");
		for (size_t e = 0; f->own_type && e < d->cnt; e++)
			memcpy(buf + pos[e] + f->own_off, col->p + e * f->size, f->size);
		col->p = col->end;
	}
	return 0;
}

static int open_columns(struct dl_decoder *d, const struct part *part)
{
	const size_t cnt = DL_HCOL_CNT + part->ev->field_cnt;
	struct column *col = d->cols.v + part->col;
	int err = 0;

	for (size_t i = 0; i < cnt && !err; i++) {
		const struct dl_file_field *f = i < DL_HCOL_CNT ? NULL : &part->ev->fields[i - DL_HCOL_CNT];

		if (!f || dl_ftype_is_int(f->type))
			err = dl_column_open(d, &col[i], i != DL_HCOL_THREAD);
		else if (!f->size)
			col[i].p = col[i].end;	/* a type that this build does not know */
	}
	/* The number before it is the CPU. */
	if (col[DL_HCOL_FLAGS].key == DL_KEY_FIELD)
		col[DL_HCOL_FLAGS].key = DL_KEY_CPU;
	return err ?: dl_column_tables(d, col, cnt);
}

static bool needs_neighbours(const struct dl_decoder *d, const struct part *part)
{
	const struct column *col = d->cols.v + part->col;
	bool any = false;

	for (size_t i = DL_HCOL_FLAGS; i < DL_HCOL_CNT + (size_t)part->ev->field_cnt; i++)
		any |= col[i].order >= DL_ORD_RUN;
	return any;
}

/* All events of a kind, but for their tails. */
static int get_part(struct dl_decoder *d, const struct part *part, uint8_t *buf)
{
	struct column *col = d->cols.v + part->col;
	int err;

	d->cnt = part->cnt;
	d->ts = d->all_ts + part->first;
	err = open_columns(d, part);
	err = err ?: get_places(d, &col[DL_HCOL_THREAD], &col[DL_HCOL_CPU]);
	if (!err && needs_neighbours(d, part))
		dl_find_neighbours(d);
	for (size_t first = 0, n; first < d->cnt && !err; first += n) {
		n = block_sz(d, first);
		err = get_block(d, part, first, n, buf);
	}
	err = err ?: get_texts(d, part, buf);
	return err ?: dl_column_close(d, col, DL_HCOL_CNT + part->ev->field_cnt);
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
	cols = dl_skip_varints(order + h->events, end, h->events);
	if (!cols)
		return dl_decode_bad(d, "the times of the events are missing");
	err = find_columns(d, schema, h, cols, end);
	for (uint32_t k = 0; !err && k < h->kinds; k++)
		err = get_tail_lens(d, &d->parts[k]);
	err = err ?: reserve_events(d, h, out);
	err = err ?: place_events(d, h, order, end, &p);
	if (!err && p != cols)
		err = dl_decode_bad(d, "the times of the events are malformed");
	for (uint32_t k = 0; !err && k < h->kinds; k++) {
		struct part *part = &d->parts[k];

		if (!part->own)
			continue;
		err = get_part(d, part, out->buf);
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
	d->v = d->block[0];
	d->before = d->block[1];
	if (h->codec != DL_CODEC_COLUMNS_ZSTD)
		err = dl_decode_bad(d, "it is coded in a way that this dlbpf does not know");
	else
		err = decompress(d, h, comp);
	err = err ?: decode(d, schema, h, out);
	if (err && d->tables.cnt)	/* it ended with columns open */
		memset(d->tables.v, 0, d->tables.cnt * sizeof(*d->tables.v));
	d->tables.cnt = 0;
	if (err == -EBADMSG)
		*ret_why = d->why;
	return err;
}
