/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What the collector knows of CUPTI's binary interface: numbers, offsets and signatures, so that
 * no CUDA header is needed and one library serves CUPTI 11.0 to 13.x.
 *
 * Records only ever grew at their end, so each is read through the prefix that all versions share;
 * steps from one record to the next are the library's own (cuptiActivityGetNextRecord).
 * docs/GPU.md says which versions this was compared with; tests/gpu compares it with the headers
 * of a toolkit or of the cuda-cupti wheels wherever they are found.
 */
#ifndef DLBPF_CUPTI_ABI_H
#define DLBPF_CUPTI_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef int cupti_result;	/* an enum in C: passed as int */

enum {
	CUPTI_ABI_OK = 0,
	CUPTI_ABI_ERR_PARAM = 1,
	CUPTI_ABI_ERR_LIMIT = 12,	/* the end of a buffer; before 12.0 also "somebody subscribed" */
	CUPTI_ABI_ERR_NOT_INIT = 15,	/* no driver, or one older than this CUPTI */
	CUPTI_ABI_ERR_KIND = 21,
	CUPTI_ABI_ERR_SUBSCRIBERS = 39,	/* another tool holds the subscription */
	CUPTI_ABI_ERR_UNKNOWN = 999,
};

enum {
	CUPTI_ABI_KIND_MEMCPY = 1,
	CUPTI_ABI_KIND_MEMSET = 2,
	CUPTI_ABI_KIND_KERNEL = 3,
	CUPTI_ABI_KIND_DRIVER = 4,
	CUPTI_ABI_KIND_RUNTIME = 5,
	CUPTI_ABI_KIND_CONCURRENT_KERNEL = 10,
	CUPTI_ABI_KIND_OVERHEAD = 17,
	CUPTI_ABI_KIND_MEMCPY_P2P = 22,
	CUPTI_ABI_KIND_SYNC = 38,
	CUPTI_ABI_KIND_GRAPH_TRACE = 51,
};

enum { CUPTI_ABI_DOMAIN_DRIVER = 1, CUPTI_ABI_DOMAIN_RUNTIME = 2 };
enum { CUPTI_ABI_THREAD_ID_SYSTEM = 1 };
enum { CUPTI_ABI_FLUSH_FORCED = 1 };
enum { CUPTI_ABI_DRIVER_GET_VERSION = 2 };	/* callback id of cuDriverGetVersion */

/* Attributes of the second interface, a uint8_t each but the thread id's, which is an enum. */
enum {
	CUPTI_ABI_ATTR_MULTIPLE_SUBSCRIBERS = 12,	/* 0 one only, 1 several, 2 not decided yet */
	CUPTI_ABI_ATTR_ALL_SYNC = 16,
	CUPTI_ABI_ATTR_THREAD_ID_TYPE = 21,
};

/*
 * A prefix struct has the fields up to the last one that is read; pads stand for what is not.
 * sizeof() means nothing here. All of CUPTI's records are packed and aligned to 8 bytes.
 */
#define CUPTI_ABI_PACKED __attribute__((packed, aligned(8)))

struct cupti_memcpy {		/* MEMCPY: CUpti_ActivityMemcpy .. 7 */
	uint32_t kind;
	uint8_t copy_kind, src_kind, dst_kind, flags;
	uint64_t bytes, start, end;
	uint32_t device, context, stream, corr;
} CUPTI_ABI_PACKED;

struct cupti_memcpy_p2p {	/* MEMCPY2: CUpti_ActivityMemcpyPtoP .. 4 */
	uint32_t kind;
	uint8_t copy_kind, src_kind, dst_kind, flags;
	uint64_t bytes, start, end;
	uint32_t device, context, stream;
	uint32_t src_device, src_context, dst_device, dst_context;
	uint32_t corr;
} CUPTI_ABI_PACKED;

struct cupti_memset {		/* MEMSET: CUpti_ActivityMemset .. 5 */
	uint32_t kind, value;
	uint64_t bytes, start, end;
	uint32_t device, context, stream, corr;
	uint16_t flags, memory_kind;
} CUPTI_ABI_PACKED;

struct cupti_kernel {		/* KERNEL, CONCURRENT_KERNEL: CUpti_ActivityKernel5 .. 13 */
	uint32_t kind;
	uint8_t pad0[12];
	uint64_t start, end, completed;
	uint32_t device, context, stream;
	int32_t grid[3], block[3];
	uint8_t pad1[16];
	uint32_t corr;
	int64_t grid_id;
	const char *name;
	uint64_t pad2;
	uint64_t queued, submitted;
	uint8_t pad3[8];
	uint64_t graph_node;
	uint8_t pad4[4];
	uint32_t graph;
} CUPTI_ABI_PACKED;

struct cupti_sync {		/* SYNCHRONIZATION: CUpti_ActivitySynchronization, 2 */
	uint32_t kind, type;
	uint64_t start, end;
	uint32_t corr, context, stream, event;
} CUPTI_ABI_PACKED;

struct cupti_api {		/* DRIVER, RUNTIME: CUpti_ActivityAPI */
	uint32_t kind, cbid;
	uint64_t start, end;
	uint32_t pid, tid, corr, ret;
} CUPTI_ABI_PACKED;

struct cupti_overhead {		/* OVERHEAD: CUpti_ActivityOverhead .. 3 */
	uint32_t kind, overhead_kind, object_kind;
	uint8_t object_id[12];
	uint64_t start, end;
} CUPTI_ABI_PACKED;

struct cupti_graph_trace {	/* GRAPH_TRACE: CUpti_ActivityGraphTrace, 2 */
	uint32_t kind, corr;
	uint64_t start, end;
	uint32_t device, graph, context, stream;
} CUPTI_ABI_PACKED;

#define CUPTI_ABI_AT(s, f, o) _Static_assert(offsetof(struct s, f) == (o), #s "." #f)
CUPTI_ABI_AT(cupti_memcpy, bytes, 8);
CUPTI_ABI_AT(cupti_memcpy, device, 32);
CUPTI_ABI_AT(cupti_memcpy, corr, 44);
CUPTI_ABI_AT(cupti_memcpy_p2p, stream, 40);
CUPTI_ABI_AT(cupti_memcpy_p2p, corr, 60);
CUPTI_ABI_AT(cupti_memset, corr, 44);
CUPTI_ABI_AT(cupti_memset, flags, 48);
CUPTI_ABI_AT(cupti_kernel, start, 16);
CUPTI_ABI_AT(cupti_kernel, device, 40);
CUPTI_ABI_AT(cupti_kernel, grid, 52);
CUPTI_ABI_AT(cupti_kernel, block, 64);
CUPTI_ABI_AT(cupti_kernel, corr, 92);
CUPTI_ABI_AT(cupti_kernel, grid_id, 96);
CUPTI_ABI_AT(cupti_kernel, name, 104);
CUPTI_ABI_AT(cupti_kernel, queued, 120);
CUPTI_ABI_AT(cupti_kernel, submitted, 128);
CUPTI_ABI_AT(cupti_kernel, graph_node, 144);
CUPTI_ABI_AT(cupti_kernel, graph, 156);
CUPTI_ABI_AT(cupti_sync, corr, 24);
CUPTI_ABI_AT(cupti_sync, event, 36);
CUPTI_ABI_AT(cupti_api, pid, 24);
CUPTI_ABI_AT(cupti_api, ret, 36);
CUPTI_ABI_AT(cupti_overhead, start, 24);
CUPTI_ABI_AT(cupti_graph_trace, device, 24);
CUPTI_ABI_AT(cupti_graph_trace, stream, 36);

typedef void (*cupti_buffer_request)(uint8_t **buf, size_t *size, size_t *max_records);
typedef void (*cupti_buffer_complete)(void *ctx, uint32_t stream, uint8_t *buf, size_t size,
				      size_t valid);
typedef void (*cupti_buffer_request_v2)(uint8_t **buf, size_t *size, size_t *max_records,
					const void *info);
typedef void (*cupti_buffer_complete_v2)(uint8_t *buf, size_t size, size_t valid, const void *info);
typedef void (*cupti_callback)(void *userdata, int domain, uint32_t cbid, const void *data);

/*
 * What cuptiSubscribe_v2 is given. 13.0 knows the first CUPTI_ABI_SUBSCRIBE_13_0_SZ bytes of it only
 * and refuses any other size.
 */
struct cupti_subscribe {
	size_t size;
	const char *name;
	char *old_name;		/* receives the name of who subscribed before */
	size_t old_name_sz;
	uint8_t allow_several, pad[7];
};

#define CUPTI_ABI_SUBSCRIBE_13_0_SZ 32
#define CUPTI_ABI_OLD_NAME_SZ 64	/* enough for any name */

CUPTI_ABI_AT(cupti_subscribe, name, 8);
CUPTI_ABI_AT(cupti_subscribe, old_name_sz, 24);
CUPTI_ABI_AT(cupti_subscribe, allow_several, CUPTI_ABI_SUBSCRIBE_13_0_SZ);

/*
 * CUPTI_FN(required?, member, symbol, parameters): the functions used, all returning
 * cupti_result. Since: EnableRuntimeApi and EnableDriverApi 12.5, EnableAllSyncRecords 12.8,
 * Subscribe_v2 13.0, GetEnabledKinds 13.3; everything else is in 11.0 and later.
 */
#define CUPTI_FUNCTIONS(CUPTI_FN) \
	CUPTI_FN(1, get_version, "cuptiGetVersion", (uint32_t *version)) \
	CUPTI_FN(1, get_timestamp, "cuptiGetTimestamp", (uint64_t *ts)) \
	CUPTI_FN(1, enable, "cuptiActivityEnable", (int kind)) \
	CUPTI_FN(1, disable, "cuptiActivityDisable", (int kind)) \
	CUPTI_FN(1, register_callbacks, "cuptiActivityRegisterCallbacks", \
		 (cupti_buffer_request request, cupti_buffer_complete complete)) \
	CUPTI_FN(1, flush_all, "cuptiActivityFlushAll", (uint32_t flag)) \
	CUPTI_FN(1, next_record, "cuptiActivityGetNextRecord", \
		 (uint8_t *buf, size_t valid, uint8_t **record)) \
	CUPTI_FN(1, dropped, "cuptiActivityGetNumDroppedRecords", \
		 (void *ctx, uint32_t stream, size_t *dropped)) \
	CUPTI_FN(1, set_thread_id_type, "cuptiSetThreadIdType", (int type)) \
	CUPTI_FN(0, subscribe, "cuptiSubscribe", \
		 (void **subscriber, cupti_callback callback, void *userdata)) \
	CUPTI_FN(0, unsubscribe, "cuptiUnsubscribe", (void *subscriber)) \
	CUPTI_FN(0, result_string, "cuptiGetResultString", (cupti_result r, const char **text)) \
	CUPTI_FN(0, callback_name, "cuptiGetCallbackName", \
		 (int domain, uint32_t cbid, const char **name)) \
	CUPTI_FN(0, enable_runtime_api, "cuptiActivityEnableRuntimeApi", \
		 (uint32_t cbid, uint8_t enable)) \
	CUPTI_FN(0, enable_driver_api, "cuptiActivityEnableDriverApi", \
		 (uint32_t cbid, uint8_t enable)) \
	CUPTI_FN(0, enable_all_sync, "cuptiActivityEnableAllSyncRecords", (uint8_t enable)) \
	CUPTI_FN(0, subscribe_v2, "cuptiSubscribe_v2", (void **subscriber, cupti_callback callback, \
		 void *userdata, struct cupti_subscribe *params)) \
	CUPTI_FN(0, enabled_kinds, "cuptiActivityGetEnabledKinds", (void *subscriber, \
		 uint32_t *kinds, uint32_t *sz, uint32_t *cnt))

/*
 * The second version of the activity interface, for several subscribers: 13.3, in part 13.2. Used
 * only where all of it is there.
 */
#define CUPTI_FUNCTIONS_V2(CUPTI_FN) \
	CUPTI_FN(0, v2_get_timestamp, "cuptiGetTimestamp_v2", (void *subscriber, uint64_t *ts)) \
	CUPTI_FN(0, v2_enable, "cuptiActivityEnable_v2", (void *subscriber, int kind, void *config)) \
	CUPTI_FN(0, v2_disable, "cuptiActivityDisable_v2", (void *subscriber, int kind, void *config)) \
	CUPTI_FN(0, v2_register_callbacks, "cuptiActivityRegisterCallbacks_v2", (void *subscriber, \
		 cupti_buffer_request_v2 request, cupti_buffer_complete_v2 complete)) \
	CUPTI_FN(0, v2_next_record, "cuptiActivityGetNextRecord_v2", \
		 (void *subscriber, uint8_t *buf, size_t valid, uint8_t **record)) \
	CUPTI_FN(0, v2_dropped, "cuptiActivityGetNumDroppedRecords_v2", \
		 (void *subscriber, void *ctx, uint32_t stream, size_t *dropped)) \
	CUPTI_FN(0, v2_get_attribute, "cuptiActivityGetAttribute_v2", \
		 (void *subscriber, int attr, size_t *sz, void *value)) \
	CUPTI_FN(0, v2_set_attribute, "cuptiActivitySetAttribute_v2", \
		 (void *subscriber, int attr, size_t *sz, void *value)) \
	CUPTI_FN(0, v2_enable_runtime_api, "cuptiActivityEnableRuntimeApi_v2", \
		 (void *subscriber, uint32_t cbid, uint8_t enable)) \
	CUPTI_FN(0, v2_enable_driver_api, "cuptiActivityEnableDriverApi_v2", \
		 (void *subscriber, uint32_t cbid, uint8_t enable))

struct cupti_api_table {
#define CUPTI_FN(required, member, symbol, params) cupti_result (*member) params;
	CUPTI_FUNCTIONS(CUPTI_FN)
	CUPTI_FUNCTIONS_V2(CUPTI_FN)
#undef CUPTI_FN
};

#endif
