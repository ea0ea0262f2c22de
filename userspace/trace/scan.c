/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Finds the frames of a file. A sound index says where they are; without one every frame header is
 * visited, and behind damage the next one is looked for.
 */
#include "trace/scan.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/vec.h"

#define WINDOW_SZ (1u << 16)	/* for a search; at least a frame header */
#define INDEX_TRIES 4		/* so many things that look like an index are read to their end */

struct scanner {
	int fd;
	uint64_t file_sz, trace_id;
	uint64_t off;		/* of the window */
	size_t sz;
	uint8_t *window;	/* WINDOW_SZ */
	int index_tries;
};

/*
 * Bytes of the file from off on, at least want where the file has them. Where they have to be
 * fetched, it is as many as fetch says.
 */
static int look(struct scanner *s, uint64_t off, size_t want, size_t fetch, const uint8_t **ret,
		size_t *ret_sz)
{
	uint64_t left = s->file_sz - off;
	int err;

	if (want > left)
		want = (size_t)left;
	if (off < s->off || off + want > s->off + s->sz) {
		size_t sz = left < fetch ? (size_t)left : fetch;

		s->sz = 0;
		s->off = off;
		err = dl_read_at(s->fd, s->window, sz, off);
		if (err)
			return err;
		s->sz = sz;
	}
	*ret = s->window + (off - s->off);
	*ret_sz = s->sz - (size_t)(off - s->off);
	return 0;
}

/* 1 with a whole index from off on, its size in *ret_sz; 0 without; -errno. */
static int read_index(struct scanner *s, struct dl_index *ix, uint64_t lo, uint64_t off,
		      uint64_t sz)
{
	uint8_t *p;
	int err;

	if (sz < DL_INDEX_FIXED_SZ + 4 || off < lo || off > s->file_sz || sz > s->file_sz - off)
		return 0;
	p = malloc(sz);
	if (!p)
		return -ENOMEM;
	err = dl_read_at(s->fd, p, sz, off);
	err = err ?: dl_index_parse(ix, p, sz, s->trace_id, lo, off);
	free(p);
	return err;
}

static void note(struct dl_scan *scan, uint64_t off, uint64_t sz)
{
	if (!scan->damaged_bytes)
		scan->damaged_off = off;
	scan->damaged_bytes += sz;
}

/* By footer and index. 1, 0 when they are not sound, or -errno. */
static int by_index(struct scanner *s, struct dl_index *ix, struct dl_scan *scan, uint64_t lo)
{
	uint8_t footer[DL_FOOTER_SZ];
	uint64_t off, at = lo;
	uint32_t sz;
	int err;

	if (s->file_sz < lo + DL_FOOTER_SZ)
		return 0;
	err = dl_read_at(s->fd, footer, sizeof(footer), s->file_sz - DL_FOOTER_SZ);
	if (err)
		return err;
	if (!dl_footer_parse(footer, s->trace_id, &off, &sz))
		return 0;
	err = read_index(s, ix, lo, off, sz);
	if (err <= 0)
		return err;
	vec_for_each(ix, f) {
		if (f->off > at)
			note(scan, at, f->off - at);
		at = f->off + f->header_sz + f->comp_sz;
	}
	if (off > at)
		note(scan, at, off - at);
	if (s->file_sz - DL_FOOTER_SZ > off + sz)
		note(scan, off + sz, s->file_sz - DL_FOOTER_SZ - off - sz);
	scan->complete = true;
	return 1;
}

/* What stands at off: its size, 0 when it is damage, or -errno. */
static int64_t at_offset(struct scanner *s, struct dl_index *ix, struct dl_scan *scan, uint64_t lo,
			 uint64_t off, bool *ret_torn)
{
	struct dl_index spare = { 0 };
	struct dl_frame_hdr h;
	const uint8_t *p;
	uint64_t total;
	size_t sz;
	uint32_t ix_sz;
	int err;

	err = look(s, off, DL_FRAME_HEADER_MAX, DL_FRAME_HEADER_MAX, &p, &sz);
	if (err)
		return err;
	if (sz >= DL_FOOTER_SZ && dl_footer_parse(p, s->trace_id, &total, &ix_sz)) {
		scan->complete = true;
		return DL_FOOTER_SZ;
	}
	if (sz > 12 && !memcmp(p, DL_INDEX_MAGIC, DL_MAGIC_SZ) && s->index_tries < INDEX_TRIES) {
		s->index_tries++;
		total = dl_get(p + 8, 4);
		err = read_index(s, &spare, lo, off, total);
		free(spare.v);
		return err > 0 ? (int64_t)total : err;
	}
	if (!dl_frame_hdr_parse(&h, p, sz, s->trace_id))
		return 0;
	total = (uint64_t)h.header_sz + h.comp_sz;
	if (total > s->file_sz - off) {
		*ret_torn = true;
		return 0;
	}
	err = dl_index_add(ix, off, &h);
	return err ? err : (int64_t)total;
}

/* The next place where something may begin, or the end of the file. */
static int find_magic(struct scanner *s, uint64_t off, uint64_t *ret)
{
	const uint8_t *p, *hit;
	size_t sz;
	int err;

	while (s->file_sz - off >= DL_MAGIC_SZ) {
		err = look(s, off, DL_MAGIC_SZ, WINDOW_SZ, &p, &sz);
		if (err)
			return err;
		/* all three magics begin so */
		hit = memmem(p, sz, DL_FRAME_MAGIC, 3);
		if (hit) {
			*ret = off + (uint64_t)(hit - p);
			return 0;
		}
		off += sz - 2;
	}
	*ret = s->file_sz;
	return 0;
}

static int by_search(struct scanner *s, struct dl_index *ix, struct dl_scan *scan, uint64_t lo)
{
	uint64_t off = lo, next;
	bool torn = false;
	int err;

	while (off < s->file_sz) {
		int64_t sz = at_offset(s, ix, scan, lo, off, &torn);

		if (sz < 0)
			return (int)sz;
		if (sz) {
			off += (uint64_t)sz;
			continue;
		}
		err = find_magic(s, off + 1, &next);
		if (err)
			return err;
		if (!scan->damaged_bytes)
			scan->torn = torn;
		note(scan, off, next - off);
		off = next;
	}
	return 0;
}

int dl_scan_file(struct dl_index *ix, struct dl_scan *scan, int fd, uint64_t file_sz,
		 uint64_t first, uint64_t trace_id)
{
	struct scanner s = { .fd = fd, .file_sz = file_sz, .trace_id = trace_id };
	int err = by_index(&s, ix, scan, first);

	if (!err) {
		ix->cnt = 0;
		ix->events = ix->struct_bytes = ix->first_ts = ix->last_ts = 0;
		memset(ix->kind_cnt, 0, sizeof(ix->kind_cnt));
		memset(scan, 0, sizeof(*scan));
		s.window = malloc(WINDOW_SZ);
		if (!s.window)
			return -ENOMEM;
		err = by_search(&s, ix, scan, first);
		free(s.window);
	}
	return err < 0 ? err : 0;
}
