/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Where a trace's bytes are: by kind of event, and by column.
 *
 *	trace_account FILE [CNT]	the CNT dearest columns (default: 30; 0: all)
 *
 * A frame is compressed as a whole, so what a column takes of it is an estimate: every column is
 * compressed alone, and the frame's size is divided in proportion. Names are this build's.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/str.h"
#include "trace/format.h"

enum { COMMON = DL_MAX_KIND + 1, KINDS };	/* threads, order and times, in place of a kind */
enum { TAIL_LEN = DL_MAX_FIELDS + DL_HCOL_CNT, TAIL, COLS };

struct column {
	uint64_t plain, alone, consts, frames;
	double bytes;		/* its share of the file */
	unsigned int kind, col;
};

static struct column columns[KINDS][COLS];
static uint64_t events[KINDS];

static void die(const char *what)
{
	fprintf(stderr, "trace_account: %s\n", what);
	exit(1);
}

/* One piece of a frame's payload. */
struct piece { struct column *of; uint64_t alone; };

static struct piece pieces[DL_MAX_FRAME_KINDS * (size_t)COLS + 3];
static size_t piece_cnt;
static uint64_t frame_alone;

static void take(unsigned int kind, unsigned int col, const uint8_t *p, size_t sz)
{
	static uint8_t *out;
	static size_t cap;
	struct column *c = &columns[kind][col];
	size_t bound = ZSTD_compressBound(sz), alone;

	if (bound > cap) {
		free(out);
		out = malloc(cap = bound);
		if (!out)
			die("out of memory");
	}
	alone = ZSTD_compress(out, cap, p, sz, 3);
	if (ZSTD_isError(alone))
		die("cannot compress");
	alone = alone > 10 ? alone - 10 : 1;	/* without the head of a zstd frame */
	alone = alone > sz ? sz : alone;
	c->kind = kind;
	c->col = col;
	c->plain += sz;
	c->alone += alone;
	c->frames++;
	pieces[piece_cnt++] = (struct piece){ c, alone };
	frame_alone += alone;
}

/* A column: encoding, size, content. */
static const uint8_t *take_column(unsigned int kind, unsigned int col, const uint8_t *p, const uint8_t *end)
{
	const uint8_t *at = p < end ? p + 1 : NULL;
	uint64_t sz = 0;

	at = at ? dl_get_varint(at, end, &sz) : NULL;
	if (!at || sz > (uint64_t)(end - at))
		die("a column is cut off");
	take(kind, col, p, (size_t)(at - p) + sz);
	columns[kind][col].consts += *p == DL_COL_CONST;
	return at + sz;
}

static const uint8_t *skip_varints(const uint8_t *p, const uint8_t *end, uint64_t cnt)
{
	uint64_t v;

	for (; p && cnt; cnt--)
		p = dl_get_varint(p, end, &v);
	if (!p)
		die("a payload is cut off");
	return p;
}

static void take_payload(const struct dl_file_schema *schema, const struct dl_frame_hdr *h, const uint8_t *p,
			 const uint8_t *end)
{
	const uint8_t *from = p;
	uint64_t threads;

	p = dl_get_varint(p, end, &threads);
	p = p ? skip_varints(p, end, threads * 2) : NULL;
	if (!p || h->events > (uint64_t)(end - p))
		die("a payload is cut off");
	take(COMMON, 0, from, (size_t)(p - from));
	take(COMMON, 1, p, h->events);
	from = p += h->events;
	p = skip_varints(p, end, h->events);
	take(COMMON, 2, from, (size_t)(p - from));
	events[COMMON] += h->events;
	for (uint32_t k = 0; k < h->kinds; k++) {
		const struct dl_file_event *ev = &schema->events[h->kind[k].kind];
		unsigned int kind = h->kind[k].kind;

		if (!ev->known)
			die("a kind is not in the schema");
		events[kind] += h->kind[k].cnt;
		if (ev->tail != DL_TAIL_NONE) {
			p = take_column(kind, TAIL_LEN, p, end);
			p = take_column(kind, TAIL, p, end);
		}
		for (unsigned int i = 0; i < (unsigned int)DL_HCOL_CNT + ev->field_cnt; i++)
			p = take_column(kind, i, p, end);
	}
}

static void take_frame(const struct dl_file_schema *schema, const struct dl_frame_hdr *h, const uint8_t *comp)
{
	_cleanup_free_ uint8_t *payload = malloc((size_t)h->payload_sz + 1);
	const double sz = (double)h->comp_sz + h->header_sz;

	if (!payload)
		die("out of memory");
	if (ZSTD_decompress(payload, h->payload_sz, comp, h->comp_sz) != h->payload_sz)
		die("a frame cannot be decompressed");
	piece_cnt = frame_alone = 0;
	take_payload(schema, h, payload, payload + h->payload_sz);
	for (size_t i = 0; i < piece_cnt; i++)
		pieces[i].of->bytes += sz * (double)pieces[i].alone / (double)frame_alone;
}

/* --- telling ------------------------------------------------------------------------------------- */

static const char *kind_name(unsigned int kind, char *buf, size_t sz)
{
	const struct dl_event_desc *desc = kind == COMMON ? NULL : dl_event_desc(kind);

	if (kind == COMMON)
		return "(all)";
	if (desc)
		return desc->name;
	snprintf(buf, sz, "kind %u", kind);
	return buf;
}

static const char *col_name(unsigned int kind, unsigned int col, char *buf, size_t sz)
{
	static const char *const common[] = { "threads", "order", "times" };
	static const char *const header[DL_HCOL_CNT] = { "thread", "cpu", "flags" };
	const struct dl_event_desc *desc = kind == COMMON ? NULL : dl_event_desc(kind);

	if (kind == COMMON)
		return common[col];
	if (col == TAIL_LEN || col == TAIL)
		return col == TAIL ? "(tail)" : "(lengths)";
	if (col < DL_HCOL_CNT)
		return header[col];
	if (desc && col - DL_HCOL_CNT < desc->field_cnt)
		return desc->fields[col - DL_HCOL_CNT].name;
	snprintf(buf, sz, "field %u", col - DL_HCOL_CNT);
	return buf;
}

static int by_bytes(const void *a, const void *b)
{
	const struct column *const *x = a, *const *y = b;

	return (*x)->bytes < (*y)->bytes ? 1 : (*x)->bytes > (*y)->bytes ? -1 : 0;
}

static void tell_kinds(double all)
{
	char buf[32];

	printf("%-16s %10s %12s %12s %9s %7s\n", "kind", "events", "plain bytes", "file bytes", "an event", "share");
	for (unsigned int kind = 0; kind < KINDS; kind++) {
		uint64_t plain = 0;
		double bytes = 0;

		for (size_t i = 0; i < COLS; i++) {
			plain += columns[kind][i].plain;
			bytes += columns[kind][i].bytes;
		}
		if (events[kind])
			printf("%-16s %10" PRIu64 " %12" PRIu64 " %12.0f %9.2f %6.1f%%\n",
			       kind_name(kind, buf, sizeof(buf)), events[kind], plain, bytes,
			       bytes / (double)events[kind], bytes / all * 100);
	}
}

static void tell_columns(double all, size_t cnt)
{
	static struct column *sorted[KINDS * (size_t)COLS];
	char kind[32], col[32];
	size_t have = 0;

	for (size_t i = 0; i < KINDS; i++) {
		for (size_t j = 0; j < COLS; j++) {
			if (columns[i][j].frames)
				sorted[have++] = &columns[i][j];
		}
	}
	qsort(sorted, have, sizeof(*sorted), by_bytes);
	printf("\n%-16s %-16s %12s %12s %9s %7s %14s\n", "kind", "column", "plain bytes", "file bytes", "an event",
	       "share", "constant in");
	for (size_t i = 0; i < have && (!cnt || i < cnt); i++) {
		const struct column *c = sorted[i];

		printf("%-16s %-16s %12" PRIu64 " %12.0f %9.2f %6.1f%% %6" PRIu64 " of %4" PRIu64 "\n",
		       kind_name(c->kind, kind, sizeof(kind)), col_name(c->kind, c->col, col, sizeof(col)), c->plain,
		       c->bytes, c->bytes / (double)events[c->kind], c->bytes / all * 100, c->consts, c->frames);
	}
}

int main(int argc, char **argv)
{
	static struct dl_file_header header;
	_cleanup_free_ uint8_t *file = NULL;
	struct dl_diag d = { "" };
	struct dl_frame_hdr h;
	uint64_t at, cnt = 30;
	uint32_t header_sz;
	struct stat st;
	int fd;

	if (argc < 2 || (argc > 2 && dl_parse_u64(argv[2], &cnt) == false))
		die("usage: trace_account FILE [CNT]");
	fd = open(argv[1], O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) || !(file = malloc((size_t)st.st_size + 1)) ||
	    dl_read_at(fd, file, (size_t)st.st_size, 0))
		die("cannot read the file");
	close(fd);
	if (dl_header_prefix(file, (size_t)st.st_size, argv[1], &header_sz, &d) || header_sz > (uint64_t)st.st_size ||
	    dl_header_parse(&header, file, header_sz, argv[1], &d))
		die(d.msg);
	for (at = header_sz; dl_frame_hdr_parse(&h, file + at, (size_t)st.st_size - at, header.trace_id) &&
	     h.comp_sz <= (uint64_t)st.st_size - at - h.header_sz; at += h.header_sz + h.comp_sz)
		take_frame(&header.schema, &h, file + at + h.header_sz);
	printf("%" PRIu64 " events in %" PRIu64 " bytes of frames (%.2f each), %" PRIu64 " bytes of header and index\n\n",
	       events[COMMON], at - header_sz, (double)(at - header_sz) / (double)(events[COMMON] ?: 1),
	       (uint64_t)st.st_size - at + header_sz);
	tell_kinds((double)(at - header_sz));
	tell_columns((double)(at - header_sz), cnt);
	dl_file_header_fini(&header);
	return 0;
}
