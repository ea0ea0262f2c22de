/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What writer and reader share, private to trace/. docs/FORMAT.md says all of it in words. */
#ifndef DLBPF_TRACE_FORMAT_H
#define DLBPF_TRACE_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/diag.h"
#include "trace/schema.h"
#include "trace/trace.h"

#define DL_FORMAT_MAJOR 1
#define DL_FORMAT_MINOR 0

/* A byte above 127, and in the first one both line ends: a transfer as text shows at once. */
#define DL_TRACE_MAGIC "\x89" "DLBPF\r\n"
#define DL_FRAME_MAGIC "\xd5" "DLFRAME"
#define DL_INDEX_MAGIC "\xd5" "DLINDEX"
#define DL_FOOTER_MAGIC "\xd5" "DLFOOT\n"
#define DL_MAGIC_SZ 8

/* Limits of the format: a writer keeps to them, a reader believes nothing beyond them. */
#define DL_MAX_HEADER_SZ (1u << 20)
#define DL_MAX_TEXT_SZ (1u << 16)		/* of one metadata value */
#define DL_MAX_FRAME_EVENTS (1u << 18)
#define DL_MAX_STRUCT_SZ (32u << 20)		/* a frame's events as structs */
#define DL_MAX_PAYLOAD_SZ (64u << 20)		/* a frame, decompressed */
#define DL_MAX_COMP_SZ (65u << 20)
#define DL_MAX_FRAME_KINDS 255
#define DL_MAX_KIND 1023			/* largest id a schema block may give */
#define DL_MAX_FIELDS 64

/* --- file header --- */

#define DL_PREFIX_SZ 32		/* fixed part; the sections follow, and a crc at the end */

enum dl_section { DL_SEC_META = 1, DL_SEC_SCHEMA = 2 };
enum dl_meta_type { DL_META_U64 = 1, DL_META_TEXT = 2 };

/* --- frame --- */

#define DL_FRAME_FIXED_SZ 72
#define DL_FRAME_KIND_SZ 8
#define DL_FRAME_HEADER_MAX (DL_FRAME_FIXED_SZ + DL_FRAME_KIND_SZ * DL_MAX_FRAME_KINDS + 4)
#define DL_CODEC_COLUMNS_ZSTD 1

struct dl_frame_hdr {
	uint32_t header_sz, comp_sz, payload_sz, struct_sz, events, kinds;
	uint64_t seq, first_ts, last_ts, trace_id;
	uint32_t payload_crc;
	uint32_t codec;
	struct { uint16_t kind; uint32_t cnt; } kind[DL_MAX_FRAME_KINDS];
};

/* --- columns of a frame's payload --- */

enum dl_col_enc { DL_COL_CONST = 0, DL_COL_VALUES = 1, DL_COL_BYTES = 2 };

/* x, what is predicted and stored, from the value v of an event at ts */
enum dl_col_map {
	DL_MAP_U = 0,	/* x = v */
	DL_MAP_S = 1,	/* x = zigzag(v) */
	DL_MAP_TS = 2,	/* x = v ? zigzag(v - ts) + 1 : 0 */
	DL_MAP_CNT,
};

/* How x is predicted from earlier events of its kind that have the same key. */
enum dl_col_order {
	DL_ORD_NONE = 0,	/* not: x itself is stored */
	DL_ORD_LAST = 1,	/* the last x */
	DL_ORD_LINEAR = 2,	/* the last x and its last step again */
	DL_ORD_RUN = 3,		/* the last x and, if that had moved, the time since the kind's previous event on the CPU */
	DL_ORD_NEXT = 4,	/* the tid of the kind's following event on the CPU */
	DL_ORD_CNT,
};

enum dl_col_key {
	DL_KEY_NONE = 0,
	DL_KEY_THREAD = 1,
	DL_KEY_CPU = 2,
	DL_KEY_FIELD = 3,	/* the value of the column before this one */
	DL_KEY_CNT,
};

/* The columns that every kind has come before its fields. */
enum { DL_HCOL_THREAD = 0, DL_HCOL_CPU, DL_HCOL_FLAGS, DL_HCOL_CNT };

#define DL_KEY_SLOTS 1024

static inline uint32_t dl_key_slot(uint64_t v)
{
	return (uint32_t)(v * 0x9e3779b97f4a7c15ULL >> 54);
}

static inline uint64_t dl_zigzag(uint64_t v)
{
	return v << 1 ^ (uint64_t)((int64_t)v >> 63);
}

static inline uint64_t dl_unzigzag(uint64_t z)
{
	return z >> 1 ^ -(z & 1);
}

#define DL_VARINT_MAX 10

static inline uint8_t *dl_put_varint(uint8_t *p, uint64_t v)
{
	while (v >= 0x80) {
		*p++ = (uint8_t)v | 0x80;
		v >>= 7;
	}
	*p++ = (uint8_t)v;
	return p;
}

/* NULL when the bytes end first or the number has more than 64 bits. */
static inline const uint8_t *dl_get_varint(const uint8_t *p, const uint8_t *end, uint64_t *ret)
{
	uint64_t v = 0;

	for (unsigned int shift = 0; p < end && shift < 64; shift += 7) {
		uint8_t b = *p++;

		if (shift == 63 && b > 1)
			return NULL;
		v |= (uint64_t)(b & 0x7f) << shift;
		if (b < 0x80) {
			*ret = v;
			return p;
		}
	}
	return NULL;
}

static inline uint8_t *dl_put(uint8_t *p, uint64_t v, size_t sz)
{
	memcpy(p, &v, sz);
	return p + sz;
}

static inline uint64_t dl_get(const uint8_t *p, size_t sz)
{
	uint64_t v = 0;

	memcpy(&v, p, sz);
	return v;
}

struct dl_buf { uint8_t *v; size_t cnt, cap; };

uint32_t dl_crc32(const void *p, size_t sz);

/* The size of a field type that this build knows, else 0. */
size_t dl_ftype_sz(unsigned int type);

static inline bool dl_ftype_is_int(unsigned int type)
{
	return type >= DL_FT_u16 && type <= DL_FT_s64;
}

/* --- header.c --- */

/* What a file says of an event, with this build's place for each field. */
struct dl_file_field {
	uint8_t type, size;	/* as in the file */
	uint8_t own_type;	/* 0: this build has no such field */
	uint16_t own_off;
};

struct dl_file_event {
	bool known;		/* in the schema block */
	bool whole;		/* its fields are all that there is of this build's event */
	uint8_t tail;
	uint16_t size;
	uint8_t field_cnt;
	struct dl_file_field *fields;
	const struct dl_event_desc *own;	/* NULL: this build does not know the kind */
};

struct dl_file_schema {
	struct dl_file_event events[DL_MAX_KIND + 1];
};

void dl_file_schema_fini(struct dl_file_schema *s);

/* desc(kind) gives the events to describe, NULL for a kind that there is not. */
typedef const struct dl_event_desc *dl_desc_fn(unsigned int kind);

int dl_header_build(struct dl_buf *out, const struct dl_trace_meta *meta, dl_desc_fn *desc,
		    uint64_t *ret_trace_id);

struct dl_file_header {
	uint16_t major, minor;
	uint32_t size;		/* of the whole header: offset of the first frame */
	uint64_t trace_id;
	struct dl_trace_meta meta;	/* texts are allocated */
	struct dl_file_schema schema;
};

/* Only the prefix: magic, version and size. Messages say what is wrong with path. */
int dl_header_prefix(const uint8_t *p, size_t sz, const char *path, uint32_t *ret_size,
		     struct dl_diag *d);

/* All of it; sz is what dl_header_prefix said. On failure *h is to be freed as well. */
int dl_header_parse(struct dl_file_header *h, const uint8_t *p, size_t sz, const char *path,
		    struct dl_diag *d);
void dl_file_header_fini(struct dl_file_header *h);

/* --- frame headers, index, footer (layout.c) --- */

#define DL_INDEX_FIXED_SZ 64
#define DL_INDEX_KIND_SZ 16
#define DL_INDEX_FRAME_SZ 40
#define DL_FOOTER_SZ 32

struct dl_frame_pos {
	uint64_t off;
	uint32_t header_sz, comp_sz, events, struct_sz;
	uint64_t first_ts, last_ts;
};

struct dl_index {
	uint64_t trace_id, events, struct_bytes, first_ts, last_ts;
	uint64_t kind_cnt[DL_MAX_KIND + 1];
	struct dl_frame_pos *v;	/* frames */
	size_t cnt, cap;
};

/* Writes h at p (room for DL_FRAME_HEADER_MAX) and returns its size. */
size_t dl_frame_hdr_build(uint8_t *p, const struct dl_frame_hdr *h);

/* False unless all of a believable frame header of this file stands at p. */
bool dl_frame_hdr_parse(struct dl_frame_hdr *h, const uint8_t *p, size_t sz, uint64_t trace_id);

size_t dl_index_sz(const struct dl_index *ix);
int dl_index_build(struct dl_buf *out, const struct dl_index *ix);
/* Adds the frame at off to the totals; 0 or -ENOMEM. */
int dl_index_add(struct dl_index *ix, uint64_t off, const struct dl_frame_hdr *h);
/* 1, or 0 when the bytes are no sound index, or -ENOMEM. [lo, hi) is where frames may be. */
int dl_index_parse(struct dl_index *ix, const uint8_t *p, size_t sz, uint64_t trace_id,
		   uint64_t lo, uint64_t hi);
void dl_footer_build(uint8_t *p, uint64_t index_off, uint32_t index_sz, uint64_t trace_id);
bool dl_footer_parse(const uint8_t *p, uint64_t trace_id, uint64_t *ret_off, uint32_t *ret_sz);

/* --- encode.c --- */

struct dl_encoder;

/* level: zstd's; 0: what suits columns best, which is also the fastest. */
struct dl_encoder *dl_encoder_new(dl_desc_fn *desc, int level);
void dl_encoder_free(struct dl_encoder *e);

/*
 * Encodes events, which are sorted by ts, and appends frame header and payload to out.
 * h->seq and h->trace_id are the caller's, the rest is filled in.
 */
int dl_encode_frame(struct dl_encoder *e, const struct dl_hdr *const *events, size_t cnt,
		    struct dl_frame_hdr *h, struct dl_buf *out);

/* --- decode.c --- */

struct dl_decoder;

struct dl_decoder *dl_decoder_new(void);
void dl_decoder_free(struct dl_decoder *d);

/* The events of a frame in this build's layout, each on a multiple of 8 bytes, sorted by ts. */
struct dl_decoded {
	uint8_t *buf;
	size_t sz, cap;
	size_t events;
};

/*
 * comp holds h->comp_sz bytes, whose checksum is right. 0, -ENOMEM, or -EBADMSG with *ret_why.
 * out's buffer is reused and belongs to the caller.
 */
int dl_decode_frame(struct dl_decoder *d, const struct dl_file_schema *schema,
		    const struct dl_frame_hdr *h, const uint8_t *comp, struct dl_decoded *out,
		    const char **ret_why);

/* --- writer.c --- */

/* A frame of another trace of the same events, as it is, behind all that was written or is pending. */
int dl_trace_writer_put_frame(struct dl_trace_writer *w, const struct dl_frame_hdr *h, const uint8_t *payload);

/* dl_trace_writer_open() with another table of events; tests make past and future files with it. */
int dl_trace_writer_open_desc(struct dl_trace_writer **ret, int fd,
			      const struct dl_trace_meta *meta,
			      const struct dl_trace_writer_opts *opts, dl_desc_fn *desc,
			      struct dl_diag *d);

#endif
