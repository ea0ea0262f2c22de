/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The fixed structures of the file: frame headers, index, footer. */
#include "trace/format.h"

#include <errno.h>
#include <stdlib.h>
#include <zlib.h>

#include "base/vec.h"

uint32_t dl_crc32(const void *p, size_t sz)
{
	return (uint32_t)crc32_z(0, p, sz);
}

size_t dl_ftype_sz(unsigned int type)
{
	static const uint8_t sizes[] = {
		[DL_FT_u16] = 2, [DL_FT_u32] = 4, [DL_FT_u64] = 8, [DL_FT_s32] = 4, [DL_FT_s64] = 8,
		[DL_FT_c16] = 16, [DL_FT_x32] = 32,
	};

	return type < sizeof(sizes) ? sizes[type] : 0;
}

/* --- frame header --- */

size_t dl_frame_hdr_build(uint8_t *p, const struct dl_frame_hdr *h)
{
	uint8_t *at = p + DL_MAGIC_SZ;

	memcpy(p, DL_FRAME_MAGIC, DL_MAGIC_SZ);
	at = dl_put(at, DL_FRAME_FIXED_SZ + h->kinds * DL_FRAME_KIND_SZ + 4, 4);
	at = dl_put(at, h->comp_sz, 4);
	at = dl_put(at, h->payload_sz, 4);
	at = dl_put(at, h->struct_sz, 4);
	at = dl_put(at, h->events, 4);
	at = dl_put(at, h->kinds, 4);
	at = dl_put(at, h->seq, 8);
	at = dl_put(at, h->first_ts, 8);
	at = dl_put(at, h->last_ts, 8);
	at = dl_put(at, h->trace_id, 8);
	at = dl_put(at, h->payload_crc, 4);
	at = dl_put(at, h->codec, 4);
	for (uint32_t i = 0; i < h->kinds; i++) {
		at = dl_put(at, h->kind[i].kind, 4);
		at = dl_put(at, h->kind[i].cnt, 4);
	}
	at = dl_put(at, dl_crc32(p, (size_t)(at - p)), 4);
	return (size_t)(at - p);
}

static bool frame_hdr_sane(const struct dl_frame_hdr *h, uint64_t trace_id)
{
	return h->kinds && h->kinds <= DL_MAX_FRAME_KINDS &&
	       h->header_sz == DL_FRAME_FIXED_SZ + h->kinds * DL_FRAME_KIND_SZ + 4 &&
	       h->comp_sz && h->comp_sz <= DL_MAX_COMP_SZ && h->payload_sz <= DL_MAX_PAYLOAD_SZ &&
	       h->struct_sz <= DL_MAX_STRUCT_SZ && h->events && h->events <= DL_MAX_FRAME_EVENTS &&
	       h->first_ts <= h->last_ts && h->trace_id == trace_id;
}

bool dl_frame_hdr_parse(struct dl_frame_hdr *h, const uint8_t *p, size_t sz, uint64_t trace_id)
{
	const uint8_t *at = p + DL_MAGIC_SZ;
	uint64_t sum = 0;

	if (sz < DL_FRAME_FIXED_SZ || memcmp(p, DL_FRAME_MAGIC, DL_MAGIC_SZ))
		return false;
	h->header_sz = (uint32_t)dl_get(at, 4);
	h->comp_sz = (uint32_t)dl_get(at + 4, 4);
	h->payload_sz = (uint32_t)dl_get(at + 8, 4);
	h->struct_sz = (uint32_t)dl_get(at + 12, 4);
	h->events = (uint32_t)dl_get(at + 16, 4);
	h->kinds = (uint32_t)dl_get(at + 20, 4);
	h->seq = dl_get(at + 24, 8);
	h->first_ts = dl_get(at + 32, 8);
	h->last_ts = dl_get(at + 40, 8);
	h->trace_id = dl_get(at + 48, 8);
	h->payload_crc = (uint32_t)dl_get(at + 56, 4);
	h->codec = (uint32_t)dl_get(at + 60, 4);
	if (!frame_hdr_sane(h, trace_id) || h->header_sz > sz ||
	    dl_get(p + h->header_sz - 4, 4) != dl_crc32(p, h->header_sz - 4))
		return false;
	at = p + DL_FRAME_FIXED_SZ;
	for (uint32_t i = 0; i < h->kinds; i++, at += DL_FRAME_KIND_SZ) {
		uint32_t kind = (uint32_t)dl_get(at, 4);

		h->kind[i].kind = (uint16_t)kind;
		h->kind[i].cnt = (uint32_t)dl_get(at + 4, 4);
		if (!kind || kind > DL_MAX_KIND || !h->kind[i].cnt)
			return false;
		sum += h->kind[i].cnt;
	}
	return sum == h->events;
}

/* --- index --- */

static uint32_t kinds_in(const struct dl_index *ix)
{
	uint32_t kinds = 0;

	for (size_t k = 0; k <= DL_MAX_KIND; k++)
		kinds += ix->kind_cnt[k] != 0;
	return kinds;
}

size_t dl_index_sz(const struct dl_index *ix)
{
	return DL_INDEX_FIXED_SZ + kinds_in(ix) * DL_INDEX_KIND_SZ + ix->cnt * DL_INDEX_FRAME_SZ + 4;
}

int dl_index_add(struct dl_index *ix, uint64_t off, const struct dl_frame_hdr *h)
{
	struct dl_frame_pos *pos = vec_push(ix);

	if (!pos)
		return -ENOMEM;
	*pos = (struct dl_frame_pos){
		.off = off, .header_sz = h->header_sz, .comp_sz = h->comp_sz, .events = h->events,
		.struct_sz = h->struct_sz, .first_ts = h->first_ts, .last_ts = h->last_ts,
	};
	for (uint32_t i = 0; i < h->kinds; i++)
		ix->kind_cnt[h->kind[i].kind] += h->kind[i].cnt;
	if (ix->cnt == 1 || h->first_ts < ix->first_ts)
		ix->first_ts = h->first_ts;
	if (h->last_ts > ix->last_ts)
		ix->last_ts = h->last_ts;
	ix->events += h->events;
	ix->struct_bytes += h->struct_sz;
	return 0;
}

int dl_index_build(struct dl_buf *out, const struct dl_index *ix)
{
	size_t sz = dl_index_sz(ix);
	uint8_t *p, *at;

	if (sz > UINT32_MAX)
		return -EFBIG;
	if (vec_reserve(out, sz))
		return -ENOMEM;
	p = out->v + out->cnt;
	memcpy(p, DL_INDEX_MAGIC, DL_MAGIC_SZ);
	at = dl_put(p + DL_MAGIC_SZ, sz, 4);
	at = dl_put(at, kinds_in(ix), 4);
	at = dl_put(at, ix->cnt, 8);
	at = dl_put(at, ix->events, 8);
	at = dl_put(at, ix->struct_bytes, 8);
	at = dl_put(at, ix->first_ts, 8);
	at = dl_put(at, ix->last_ts, 8);
	at = dl_put(at, ix->trace_id, 8);
	for (size_t k = 0; k <= DL_MAX_KIND; k++) {
		if (!ix->kind_cnt[k])
			continue;
		at = dl_put(at, k, 8);
		at = dl_put(at, ix->kind_cnt[k], 8);
	}
	vec_for_each(ix, f) {
		at = dl_put(at, f->off, 8);
		at = dl_put(at, f->header_sz, 4);
		at = dl_put(at, f->comp_sz, 4);
		at = dl_put(at, f->events, 4);
		at = dl_put(at, f->struct_sz, 4);
		at = dl_put(at, f->first_ts, 8);
		at = dl_put(at, f->last_ts, 8);
	}
	at = dl_put(at, dl_crc32(p, sz - 4), 4);
	out->cnt += (size_t)(at - p);
	return 0;
}

static bool get_frames(struct dl_index *ix, const uint8_t *at, uint64_t frames, uint64_t lo,
		       uint64_t hi)
{
	uint64_t events = 0;

	for (uint64_t i = 0; i < frames; i++, at += DL_INDEX_FRAME_SZ) {
		struct dl_frame_pos *f = &ix->v[i];

		f->off = dl_get(at, 8);
		f->header_sz = (uint32_t)dl_get(at + 8, 4);
		f->comp_sz = (uint32_t)dl_get(at + 12, 4);
		f->events = (uint32_t)dl_get(at + 16, 4);
		f->struct_sz = (uint32_t)dl_get(at + 20, 4);
		f->first_ts = dl_get(at + 24, 8);
		f->last_ts = dl_get(at + 32, 8);
		if (f->off < lo || f->off > hi || f->header_sz > DL_FRAME_HEADER_MAX ||
		    (uint64_t)f->header_sz + f->comp_sz > hi - f->off || f->first_ts > f->last_ts ||
		    f->events > DL_MAX_FRAME_EVENTS || f->struct_sz > DL_MAX_STRUCT_SZ)
			return false;
		lo = f->off + f->header_sz + f->comp_sz;
		events += f->events;
	}
	ix->cnt = frames;
	return events == ix->events;
}

int dl_index_parse(struct dl_index *ix, const uint8_t *p, size_t sz, uint64_t trace_id,
		   uint64_t lo, uint64_t hi)
{
	uint64_t frames, kinds;
	const uint8_t *at = p + DL_INDEX_FIXED_SZ;

	if (sz < DL_INDEX_FIXED_SZ + 4 || memcmp(p, DL_INDEX_MAGIC, DL_MAGIC_SZ) ||
	    dl_get(p + 8, 4) != sz || dl_get(p + 56, 8) != trace_id ||
	    dl_get(p + sz - 4, 4) != dl_crc32(p, sz - 4))
		return 0;
	kinds = dl_get(p + 12, 4);
	frames = dl_get(p + 16, 8);
	if (kinds > DL_MAX_KIND || frames > sz / DL_INDEX_FRAME_SZ ||
	    sz != DL_INDEX_FIXED_SZ + kinds * DL_INDEX_KIND_SZ + frames * DL_INDEX_FRAME_SZ + 4)
		return 0;
	memset(ix->kind_cnt, 0, sizeof(ix->kind_cnt));
	ix->cnt = 0;
	if (vec_reserve(ix, frames))
		return -ENOMEM;
	ix->trace_id = trace_id;
	ix->events = dl_get(p + 24, 8);
	ix->struct_bytes = dl_get(p + 32, 8);
	ix->first_ts = dl_get(p + 40, 8);
	ix->last_ts = dl_get(p + 48, 8);
	for (uint64_t k = 0; k < kinds; k++, at += DL_INDEX_KIND_SZ) {
		if (dl_get(at, 8) > DL_MAX_KIND)
			return 0;
		ix->kind_cnt[dl_get(at, 8)] = dl_get(at + 8, 8);
	}
	return get_frames(ix, at, frames, lo, hi);
}

/* --- footer --- */

void dl_footer_build(uint8_t *p, uint64_t index_off, uint32_t index_sz, uint64_t trace_id)
{
	uint8_t *at = p + DL_MAGIC_SZ;

	memcpy(p, DL_FOOTER_MAGIC, DL_MAGIC_SZ);
	at = dl_put(at, index_off, 8);
	at = dl_put(at, trace_id, 8);
	at = dl_put(at, index_sz, 4);
	dl_put(at, dl_crc32(p, (size_t)(at - p)), 4);
}

bool dl_footer_parse(const uint8_t *p, uint64_t trace_id, uint64_t *ret_off, uint32_t *ret_sz)
{
	if (memcmp(p, DL_FOOTER_MAGIC, DL_MAGIC_SZ) || dl_get(p + 16, 8) != trace_id ||
	    dl_get(p + 28, 4) != dl_crc32(p, 28))
		return false;
	*ret_off = dl_get(p + 8, 8);
	*ret_sz = (uint32_t)dl_get(p + 24, 4);
	return true;
}
