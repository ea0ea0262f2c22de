/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Every byte of a file wrong, and files cut off everywhere. */
#include <zstd.h>

#include "base/cleanup.h"
#include "fuzz/reseal.h"
#include "unit/trace_util.h"

/* Few events of many kinds in several frames. */
static struct dl_buf small_file(const char *path, struct evlist *l)
{
	const struct dl_trace_writer_opts opts = { .frame_raw_sz = 4096 };
	uint64_t ts = 5000;

	rng_seed(77);
	for (int i = 0; i < 120; i++) {
		const struct dl_hdr *ev;

		do
			ev = random_event(random_desc(), ts);
		while (ev->size > 300);
		evlist_add(l, ev);
		ts += rng() % 1000;
	}
	write_list(path, l, &opts, NULL);
	return read_file(path);
}

static bool is_one_of(const struct evlist *l, const struct dl_hdr *ev)
{
	for (size_t i = 0; i < l->off.cnt; i++) {
		const struct dl_hdr *one = evlist_at(l, i);

		if (one->size == ev->size && !memcmp(one, ev, ev->size))
			return true;
	}
	return false;
}

/* Opens and reads whatever is there. l: only these events may come out (NULL: any well-formed). */
static size_t survive(const char *path, const struct evlist *l)
{
	struct evlist got = { 0 };
	struct dl_diag d = { "" };
	struct dl_trace *t;
	size_t cnt;
	int err = dl_trace_open(&t, path, &d);

	if (err) {
		CHECK_MSG(err == -EINVAL || err == -EBADMSG || err == -ENODATA || err == -EPROTONOSUPPORT,
			  "error %d: %s", err, d.msg);
		CHECK_HAS(d.msg, path);
		return 0;
	}
	cnt = read_events(t, &got);
	for (size_t i = 0; l && i < got.off.cnt; i++)
		CHECK(is_one_of(l, evlist_at(&got, i)));
	CHECK_EQ(cnt, got.off.cnt);
	dl_trace_close(t);
	evlist_fini(&got);
	return cnt;
}

TEST(damage_every_byte)
{
	const char *path = test_path("flip.dlbpf");
	struct evlist l = { 0 };
	struct dl_buf b = small_file(path, &l);
	size_t header_sz = dl_get(b.v + 12, 4);

	CHECK_EQ(survive(path, &l), 120);
	for (size_t i = 0; i < b.cnt; i++) {
		const uint8_t mask = rng() % 4 ? (uint8_t)(1 << rng() % 8) : 0xff;

		b.v[i] ^= mask;
		write_file(path, b.v, b.cnt);
		/* a frame's worth may be missing, never an event be wrong */
		CHECK_MSG(survive(path, &l) >= (i < header_sz ? 0 : 60), "byte %zu", i);
		b.v[i] ^= mask;
	}
	free(b.v);
	evlist_fini(&l);
}

/* The same with checksums that are right again: what was damaged is taken at its word. */
TEST(damage_every_byte_resealed)
{
	const char *path = test_path("sealed.dlbpf");
	struct evlist l = { 0 };
	struct dl_buf b = small_file(path, &l), bad = { 0 };

	CHECK_OK(vec_reserve(&bad, b.cnt));
	for (size_t i = 0; i < b.cnt; i++) {
		const uint8_t ends[] = { 0, 0xff, 0x7f, 0x80 };
		const uint8_t vals[] = { (uint8_t)(b.v[i] ^ 1 << rng() % 8), ends[rng() % 4] };

		for (size_t m = 0; m < sizeof(vals); m++) {
			memcpy(bad.v, b.v, b.cnt);
			bad.v[i] = vals[m];
			reseal(bad.v, b.cnt);
			write_file(path, bad.v, b.cnt);
			survive(path, NULL);
		}
	}
	free(b.v);
	free(bad.v);
	evlist_fini(&l);
}

TEST(damage_cut_off_everywhere)
{
	const char *path = test_path("cut.dlbpf");
	struct evlist l = { 0 };
	struct dl_buf b = small_file(path, &l);
	size_t last = 120;

	for (size_t sz = b.cnt; sz-- > 0;) {
		size_t got;

		CHECK(!truncate(path, (off_t)sz));
		got = survive(path, &l);
		CHECK(got <= last);	/* whole frames, one after the other */
		last = got;
	}
	CHECK_EQ(last, 0);
	free(b.v);
	evlist_fini(&l);
}

TEST(damage_several_bytes_at_random)
{
	const char *path = test_path("random.dlbpf");
	struct evlist l = { 0 };
	struct dl_buf b = small_file(path, &l), bad = { 0 };

	CHECK_OK(vec_reserve(&bad, b.cnt));
	for (int i = 0; i < 3000; i++) {
		size_t sz = b.cnt - (rng() % 4 ? 0 : rng() % b.cnt);

		memcpy(bad.v, b.v, b.cnt);
		for (uint64_t n = rng() % 20; n--;) {
			size_t at = rng() % b.cnt, from = rng() % b.cnt, len = rng() % 64;

			if (rng() % 2)
				bad.v[at] = (uint8_t)rng();
			else if (at + len <= b.cnt && from + len <= b.cnt)
				memmove(bad.v + at, bad.v + from, len);
		}
		if (rng() % 2)
			reseal(bad.v, sz);
		write_file(path, bad.v, sz);
		survive(path, NULL);
	}
	free(b.v);
	free(bad.v);
	evlist_fini(&l);
}

/* --- payloads that no writer would write, with everything around them right --- */

static struct dl_decoded out;	/* of the last payload */

/* Decodes payload as a frame of h's kinds; what comes out must be well-formed. */
static int decode_payload(struct dl_decoder *dec, const struct dl_file_schema *schema,
			  struct dl_frame_hdr *h, const uint8_t *payload, size_t sz, void *cctx)
{
	static uint8_t comp[1 << 17];
	const char *why = NULL;
	uint64_t last = 0;
	size_t at = 0;
	int err;

	h->payload_sz = (uint32_t)sz;
	h->comp_sz = (uint32_t)ZSTD_compressCCtx(cctx, comp, sizeof(comp), payload, sz, 1);
	err = dl_decode_frame(dec, schema, h, comp, &out, &why);
	CHECK(!err || err == -EBADMSG);
	CHECK(!err || why);
	for (; !err && at < out.sz;) {
		const struct dl_hdr *ev = (const void *)(out.buf + at);

		CHECK(dl_event_fits(dl_event_desc(ev->kind), ev));
		CHECK(ev->ts >= last && ev->ts >= h->first_ts && ev->ts <= h->last_ts);
		last = ev->ts;
		at += (ev->size + 7u) & ~7u;
	}
	return err;
}

TEST(damage_every_byte_of_a_payload)
{
	const char *path = test_path("payload.dlbpf");
	struct evlist l = { 0 };
	struct dl_buf b = small_file(path, &l);
	struct dl_file_header header = { 0 };
	struct dl_decoder *dec = dl_decoder_new();
	ZSTD_CCtx *cctx = ZSTD_createCCtx();
	size_t off = dl_get(b.v + 12, 4), sound = 0, refused = 0;
	struct dl_frame_hdr h;
	uint32_t sum;

	CHECK(dec && cctx);
	CHECK_OK(dl_header_parse(&header, b.v, off, path, NULL));
	while (dl_frame_hdr_parse(&h, b.v + off, b.cnt - off, header.trace_id)) {
		uint8_t *payload = malloc(h.payload_sz);
		size_t sz = h.payload_sz, comp_sz = h.comp_sz;

		CHECK(payload != NULL);
		CHECK_EQ(ZSTD_decompress(payload, sz, b.v + off + h.header_sz, h.comp_sz), sz);
		CHECK_OK(decode_payload(dec, &header.schema, &h, payload, sz, cctx));
		sum = dl_crc32(out.buf, out.sz);
		for (size_t i = 0; i < sz; i++) {
			const uint8_t was = payload[i];
			const uint8_t vals[] = { 0, 1, 0x7f, 0x80, 0xff, (uint8_t)(was + 1),
						 (uint8_t)(was - 1), (uint8_t)rng() };

			for (size_t v = 0; v < sizeof(vals); v++) {
				payload[i] = vals[v];
				if (decode_payload(dec, &header.schema, &h, payload, sz, cctx))
					refused++;
				else
					sound++;
			}
			payload[i] = was;
			/* nothing of a damaged one is left behind */
			CHECK_OK(decode_payload(dec, &header.schema, &h, payload, sz, cctx));
			CHECK_EQ(dl_crc32(out.buf, out.sz), sum);
			CHECK_EQ(decode_payload(dec, &header.schema, &h, payload, i, cctx), -EBADMSG);
		}
		free(payload);
		off += h.header_sz + comp_sz;
	}
	CHECK(sound > 1000);	/* a changed number is a number */
	CHECK(refused > 1000);	/* a changed length is an error */
	ZSTD_freeCCtx(cctx);
	dl_decoder_free(dec);
	dl_file_header_fini(&header);
	free(b.v);
	evlist_fini(&l);
}

/* n switches that differ in nothing but their last field, of which there are so many residuals. */
static size_t make_switches(uint8_t *payload, struct dl_frame_hdr *h, size_t n, size_t residuals)
{
	const struct dl_event_desc *desc = dl_event_desc(DL_EV_SWITCH);
	uint8_t *p = payload;

	*h = (struct dl_frame_hdr){ .events = (uint32_t)n, .kinds = 1, .codec = DL_CODEC_COLUMNS_ZSTD,
				    .first_ts = 1000, .last_ts = 1000 + n - 1 };
	h->kind[0].kind = DL_EV_SWITCH;
	h->kind[0].cnt = (uint32_t)n;
	p = dl_put_varint(p, 1);	/* one thread */
	p = dl_put_varint(p, 77);
	p = dl_put_varint(p, 70);
	memset(p, 0, n);
	p += n;
	for (size_t i = 0; i < n; i++)
		*p++ = i != 0;
	for (unsigned int c = 0; c < DL_HCOL_CNT + desc->field_cnt - 1u; c++) {
		*p++ = DL_COL_CONST;
		*p++ = 1;
		*p++ = c == DL_HCOL_CPU ? 3 : 0;
	}
	*p++ = DL_COL_VALUES;
	p = dl_put_varint(p, residuals + 1);
	*p++ = DL_MAP_U | DL_ORD_NONE << 2 | DL_KEY_NONE << 5;
	for (size_t i = 0; i < residuals; i++)
		*p++ = (uint8_t)(i % 100);
	return (size_t)(p - payload);
}

/* Columns are read in pieces: one that ends with a piece has no more residuals for that. */
TEST(damage_columns_that_end_early)
{
	struct dl_file_header header = { 0 };
	struct dl_decoder *dec = dl_decoder_new();
	ZSTD_CCtx *cctx = ZSTD_createCCtx();
	const struct dl_trace_meta meta = { 0 };
	struct dl_buf b = { 0 };
	uint64_t id;

	CHECK(dec && cctx);
	CHECK_OK(dl_header_build(&b, &meta, dl_event_desc, &id));
	CHECK_OK(dl_header_parse(&header, b.v, b.cnt, "header", NULL));
	for (size_t n = 1; n < 600; n++) {
		static uint8_t payload[8192];
		const size_t residuals[] = { n, 0, n - 1, n + 1, n & ~(size_t)127, n & ~(size_t)63, n / 2 };

		for (size_t i = 0; i < sizeof(residuals) / sizeof(residuals[0]); i++) {
			struct dl_frame_hdr h;
			size_t sz = make_switches(payload, &h, n, residuals[i]);
			int err = decode_payload(dec, &header.schema, &h, payload, sz, cctx);

			CHECK_EQ(err, residuals[i] == n || !residuals[i] ? 0 : -EBADMSG);
			for (size_t k = 0; !err && k < n; k++) {
				const struct dl_ev_switch *ev = (const void *)(out.buf + k * sizeof(*ev));
				const struct dl_ev_switch want = {
					.h = { .size = sizeof(*ev), .kind = DL_EV_SWITCH, .ts = 1000 + k, .tid = 77, .pid = 70,
					       .cpu = 3 },
					.cpus_allowed = residuals[i] ? k % 100 : 0,
				};

				CHECK(!memcmp(ev, &want, sizeof(want)));
			}
		}
	}
	ZSTD_freeCCtx(cctx);
	dl_decoder_free(dec);
	dl_file_header_fini(&header);
	free(b.v);
}
