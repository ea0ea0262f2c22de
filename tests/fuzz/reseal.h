/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Makes the checksums of a damaged trace right again, so that what lies behind them is tested too.
 * Damage that hides where things are stays what it is.
 */
#ifndef DLBPF_TESTS_RESEAL_H
#define DLBPF_TESTS_RESEAL_H

#include <string.h>

#include "trace/format.h"

static inline void reseal_range(uint8_t *p, size_t sz)
{
	dl_put(p + sz, dl_crc32(p, sz), 4);
}

/* The bytes of what stands at p, 1 when it is nothing known. */
static inline size_t reseal_at(uint8_t *p, size_t sz)
{
	uint64_t header_sz, comp_sz;

	if (sz >= DL_FRAME_FIXED_SZ && !memcmp(p, DL_FRAME_MAGIC, DL_MAGIC_SZ)) {
		header_sz = dl_get(p + 8, 4);
		comp_sz = dl_get(p + 12, 4);
		if (header_sz < DL_FRAME_FIXED_SZ + 4 || header_sz > sz)
			return 1;
		if (comp_sz <= sz - header_sz)
			dl_put(p + 64, dl_crc32(p + header_sz, comp_sz), 4);
		reseal_range(p, header_sz - 4);
		return comp_sz <= sz - header_sz ? header_sz + comp_sz : header_sz;
	}
	if (sz >= DL_INDEX_FIXED_SZ && !memcmp(p, DL_INDEX_MAGIC, DL_MAGIC_SZ)) {
		header_sz = dl_get(p + 8, 4);
		if (header_sz < DL_INDEX_FIXED_SZ + 4 || header_sz > sz)
			return 1;
		reseal_range(p, header_sz - 4);
		return header_sz;
	}
	return 1;
}

static inline void reseal(uint8_t *p, size_t sz)
{
	size_t header_sz, at;

	if (sz < DL_PREFIX_SZ + 4)
		return;
	header_sz = dl_get(p + 12, 4);
	if (header_sz < DL_PREFIX_SZ + 4 || header_sz > sz)
		return;
	reseal_range(p, header_sz - 4);
	for (at = header_sz; at < sz; at += reseal_at(p + at, sz - at))
		;
	if (sz >= header_sz + DL_FOOTER_SZ)
		reseal_range(p + sz - DL_FOOTER_SZ, DL_FOOTER_SZ - 4);
}

#endif
