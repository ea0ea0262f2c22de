/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Which CUDA calls are recorded, and what kind of call each is. */
#include "agent.h"

const struct call calls[] = {
#define CALL(dom, id, cls, lgt, text) \
	{ .cbid = id, .domain = DL_GPU_##dom, .class = DL_CALL_##cls, .light = lgt, .name = text },
#include "calls.def"
#undef CALL
};

const unsigned int calls_cnt = sizeof(calls) / sizeof(calls[0]);

const struct call *call_find(unsigned int domain, uint32_t cbid)
{
	unsigned int lo = 0, hi = calls_cnt;

	while (lo < hi) {
		unsigned int mid = (lo + hi) / 2;
		const struct call *c = &calls[mid];

		if (c->domain < domain || (c->domain == domain && c->cbid < cbid))
			lo = mid + 1;
		else
			hi = mid;
	}
	if (lo < calls_cnt && calls[lo].domain == domain && calls[lo].cbid == cbid)
		return &calls[lo];
	return NULL;
}
