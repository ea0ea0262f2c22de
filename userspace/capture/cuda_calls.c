/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The table of calls that the collector has, for probes: by name, with what their arguments tell. */
#include <string.h>

#include "capture/cuda_priv.h"

#include "base/cleanup.h"

const struct cuda_call cuda_calls[] = {
#define CALL(dom, id, cls, lgt, text) \
	{ .c = { .class = DL_CALL_##cls, .domain = DL_GPU_##dom, .cbid = id }, .light = lgt, .symbol = text },
#include <../cupti/calls.def>
#undef CALL
};
const size_t cuda_call_cnt = ARRAY_SIZE(cuda_calls);

/* Names of CUPTI's that no library exports: forms of a call that another row has the symbol of. */
static const char *const not_exported[] = {
	"cudaMemcpyBatchAsync_v12080", "cudaMemcpyBatchAsync_ptsz_v12080", "cudaGraphInstantiate_v12000",
	"cuMemHostAlloc_v2",
};

static bool is_exported(const char *symbol)
{
	for (size_t i = 0; i < ARRAY_SIZE(not_exported); i++) {
		if (!strcmp(symbol, not_exported[i]))
			return false;
	}
	return true;
}

const struct cuda_call *cuda_call_find(const char *symbol, size_t sz)
{
	/* A versioned name in .symtab: "cudaMalloc@@libcudart.so.12" */
	const size_t full = strnlen(symbol, sz);
	const char *at = memchr(symbol, '@', full);
	const size_t len = at ? (size_t)(at - symbol) : full;

	for (size_t i = 0; i < cuda_call_cnt; i++) {
		if (!strncmp(cuda_calls[i].symbol, symbol, len) && !cuda_calls[i].symbol[len] &&
		    is_exported(cuda_calls[i].symbol))
			return &cuda_calls[i];
	}
	return NULL;
}

struct dl_cuda_call cuda_call_full(const struct cuda_call *call)
{
	struct dl_cuda_call c = call->c;
	const char *s = call->symbol;

	c.name = DL_CUDA_NAMES + (uint32_t)(call - cuda_calls);
	if (c.class != DL_CALL_COPY || strstr(s, "2D") || strstr(s, "Batch") || strstr(s, "Attributes"))
		return c;
	/* cuMemcpyHtoD(dst, src, bytes), cudaMemcpy(dst, src, bytes, kind), cudaMemcpyAsync(..., kind, stream) */
	c.flags = DL_CUDA_HAS_BYTES;
	if (c.domain == DL_GPU_RUNTIME)
		c.flags |= DL_CUDA_HAS_KIND;
	c.dir = strstr(s, "HtoD") ? DL_GPU_HTOD : strstr(s, "DtoH") ? DL_GPU_DTOH : strstr(s, "DtoD") ? DL_GPU_DTOD : 0;
	return c;
}
