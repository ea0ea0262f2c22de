/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The decoder of frames, fed with payloads as they are before compression, behind everything that
 * checksums and zstd would reject. Input: u8 kinds - 1, for each a u8 kind and a u8 count - 1, u64
 * first time, u64 last time, then the payload. The schema is this build's own.
 *
 * Build and run like fuzz_trace.c, with corpus/frame and -max_len=4000.
 */
#include <zstd.h>

#include "base/vec.h"
#include "fuzz/driver.h"
#include "trace/format.h"

static struct dl_file_header header;
static struct dl_decoder *dec;
static ZSTD_CCtx *cctx;
static struct dl_decoded out;

static void set_up(void)
{
	const struct dl_trace_meta meta = { 0 };
	struct dl_buf b = { 0 };
	uint64_t id;

	dec = dl_decoder_new();
	cctx = ZSTD_createCCtx();
	MUST(dec && cctx);
	MUST(!dl_header_build(&b, &meta, dl_event_desc, &id));
	MUST(!dl_header_parse(&header, b.v, b.cnt, "header", NULL));
	free(b.v);
}

static size_t get_header(struct dl_frame_hdr *h, const uint8_t *in, size_t sz)
{
	size_t at = 1;

	if (!sz)
		return 0;
	h->kinds = in[0] % 16 + 1u;
	h->codec = DL_CODEC_COLUMNS_ZSTD;
	if (sz < 1 + h->kinds * 2 + 16)
		return 0;
	for (uint32_t i = 0; i < h->kinds; i++, at += 2) {
		h->kind[i].kind = in[at];
		h->kind[i].cnt = in[at + 1] + 1u;
		h->events += h->kind[i].cnt;
	}
	h->first_ts = dl_get(in + at, 8);
	h->last_ts = dl_get(in + at + 8, 8);
	return h->first_ts <= h->last_ts ? at + 16 : 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *in, size_t sz)
{
	static uint8_t comp[1 << 20];
	struct dl_frame_hdr h = { 0 };
	const char *why = NULL;
	size_t at = 0, from, cnt = 0, comp_sz;
	uint64_t last;
	int err;

	if (!dec)
		set_up();
	from = get_header(&h, in, sz);
	if (!from || sz - from > 1 << 19)
		return 0;
	h.payload_sz = (uint32_t)(sz - from);
	comp_sz = ZSTD_compressCCtx(cctx, comp, sizeof(comp), in + from, sz - from, -5);
	MUST(!ZSTD_isError(comp_sz));
	h.comp_sz = (uint32_t)comp_sz;
	err = dl_decode_frame(dec, &header.schema, &h, comp, &out, &why);
	MUST(!err || (err == -EBADMSG && why));
	last = h.first_ts;
	for (; !err && at < out.sz; cnt++) {
		const struct dl_hdr *ev = (const void *)(out.buf + at);

		MUST(dl_event_fits(dl_event_desc(ev->kind), ev));
		MUST(ev->ts >= last && ev->ts <= h.last_ts);
		last = ev->ts;
		at += (ev->size + 7u) & ~7u;
	}
	MUST(err || (at == out.sz && cnt == out.events && cnt <= h.events));
	return 0;
}
