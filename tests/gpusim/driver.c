/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The driver's entry points, with their real names and signatures: a program, a uprobe or the
 * double of libcudart finds what it would find in libcuda.so.1. The numbers are CUPTI's callback
 * ids of the calls.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "internal.h"

#define DRIVER_VERSION 13000
#define PAGE 4096

typedef int CUresult;
typedef uint64_t CUdeviceptr;

struct sim_event { uint32_t id; uint64_t when; bool recorded; };
struct sim_graph_exec { uint32_t id; uint64_t ns; };

/* Declares and begins a function of the interface. */
#define DEF(name, params) SIM_EXPORT CUresult name params; SIM_EXPORT CUresult name params
#define ENTER(cbid) struct sim_scope scope = sim_begin(SIM_DRIVER, cbid); \
	if (!sim_ready()) return sim_end(&scope, SIM_ERR_NOT_INIT)
#define LEAVE(ret) return sim_end(&scope, ret)

SIM_EXPORT const int dlbpf_gpusim_marker = 1;

SIM_EXPORT int gpusim_is_simulated(void)
{
	return dlbpf_gpusim_marker;
}

/* --- start ------------------------------------------------------------------------------------ */

static void inject(void)
{
	const char *path = getenv("CUDA_INJECTION64_PATH");
	int (*init)(void);
	void *lib;

	if (!path || !path[0])
		return;
	lib = dlopen(path, RTLD_NOW);
	if (!lib) {
		fprintf(stderr, "gpusim: CUDA_INJECTION64_PATH: %s\n", dlerror());
		return;
	}
	init = (int (*)(void))dlsym(lib, "InitializeInjection");
	if (init)
		init();
}

DEF(cuInit, (unsigned int flags))
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	int err;

	(void)flags;
	err = device_init();
	if (!err)
		pthread_once(&once, inject);
	return err;
}

DEF(cuDriverGetVersion, (int *version))
{
	*version = DRIVER_VERSION;
	/* It works before cuInit() too, when nobody can have it recorded. */
	if (!sim_ready())
		return SIM_OK;
	ENTER(2);
	LEAVE(SIM_OK);
}

DEF(cuDeviceGetCount, (int *cnt))
{
	if (!sim_ready())
		return SIM_ERR_NOT_INIT;
	*cnt = (int)sim_device_cnt();
	return SIM_OK;
}

DEF(cuDeviceGet, (int *device, int ordinal))
{
	if (!sim_ready())
		return SIM_ERR_NOT_INIT;
	if (ordinal < 0 || ordinal >= (int)sim_device_cnt())
		return SIM_ERR_INVALID_DEVICE;
	*device = ordinal;
	return SIM_OK;
}

DEF(cuDeviceGetName, (char *name, int len, int device))
{
	(void)device;
	if (!sim_ready())
		return SIM_ERR_NOT_INIT;
	snprintf(name, (size_t)len, "Simulated GPU (like %s)", sim_model()->name);
	return SIM_OK;
}

/* GPUSIM_PCI_BUS: the bus of device 0 (1); the others follow it downwards where GPUSIM_PCI_REVERSE is
 * set, as where CUDA orders by speed. */
DEF(cuDeviceGetPCIBusId, (char *text, int len, int device))
{
	const char *bus = getenv("GPUSIM_PCI_BUS");
	int first = bus ? atoi(bus) : 1;

	if (!sim_ready())
		return SIM_ERR_NOT_INIT;
	if (device < 0 || device >= (int)sim_device_cnt())
		return SIM_ERR_INVALID_DEVICE;
	if (getenv("GPUSIM_NO_PCI"))
		return SIM_ERR_INVALID;
	snprintf(text, (size_t)len, "0000:%02x:00.0", getenv("GPUSIM_PCI_REVERSE") ? first - device : first + device);
	return SIM_OK;
}

DEF(cuDeviceTotalMem_v2, (size_t *bytes, int device))
{
	(void)device;
	if (!sim_ready())
		return SIM_ERR_NOT_INIT;
	*bytes = sim_model()->mem_sz;
	return SIM_OK;
}

DEF(cuDevicePrimaryCtxRetain, (void **ctx, int device))
{
	*ctx = (void *)(uintptr_t)(device + 1);
	return sim_ready() ? SIM_OK : SIM_ERR_NOT_INIT;
}

DEF(cuCtxSetCurrent, (void *ctx))
{
	uintptr_t i = (uintptr_t)ctx;

	if (!i || i > sim_device_cnt())
		return SIM_ERR_INVALID_DEVICE;
	*sim_current() = (uint32_t)(i - 1);
	return SIM_OK;
}

DEF(cuCtxGetCurrent, (void **ctx))
{
	*ctx = (void *)(uintptr_t)(*sim_current() + 1);
	return SIM_OK;
}

DEF(cuGetErrorString, (CUresult err, const char **text))
{
	static const struct { CUresult err; const char *text; } texts[] = {
		{ SIM_OK, "no error" }, { SIM_ERR_INVALID, "invalid argument" },
		{ SIM_ERR_MEMORY, "out of memory" }, { SIM_ERR_NOT_INIT, "initialization error" },
		{ SIM_ERR_NO_DEVICE, "no device" }, { SIM_ERR_INVALID_DEVICE, "invalid device ordinal" },
		{ SIM_ERR_NOT_FOUND, "named symbol not found" }, { SIM_ERR_NOT_READY, "device not ready" },
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		if (texts[i].err == err) {
			*text = texts[i].text;
			return SIM_OK;
		}
	return SIM_ERR_INVALID;
}

DEF(cuGetProcAddress_v2, (const char *symbol, void **fn, int version, uint64_t flags, int *status))
{
	char name[128];

	(void)version, (void)flags;
	*fn = dlsym(RTLD_DEFAULT, symbol);
	if (!*fn) {
		snprintf(name, sizeof(name), "%s_v2", symbol);
		*fn = dlsym(RTLD_DEFAULT, name);
	}
	if (status)
		*status = *fn ? 0 : 1;
	return *fn ? SIM_OK : SIM_ERR_NOT_FOUND;
}

/* --- memory ----------------------------------------------------------------------------------- */

DEF(cuMemAlloc_v2, (CUdeviceptr *ptr, size_t sz))
{
	ENTER(243);
	sim_cost(&scope, sim_model()->malloc_ns);
	LEAVE(sim_mem_alloc(ptr, sz));
}

/* Waits for the device, as the real one does. */
DEF(cuMemFree_v2, (CUdeviceptr ptr))
{
	ENTER(245);
	wait_until(device_end(*sim_current()));
	sim_cost(&scope, sim_model()->free_ns);
	LEAVE(sim_mem_free(ptr));
}

static uint64_t pin_ns(size_t sz)
{
	return sim_model()->host_alloc_ns + (uint64_t)(sz / PAGE + 1) * sim_model()->host_page_ns;
}

DEF(cuMemHostAlloc, (void **ptr, size_t sz, unsigned int flags))
{
	ENTER(271);
	void *p;

	(void)flags;
	/* Populated: pinning touches every page, and the caller pays for it. */
	p = mmap(NULL, sz, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (p == MAP_FAILED)
		LEAVE(SIM_ERR_MEMORY);
	sim_pin(p, sz);
	*ptr = p;
	sim_cost(&scope, pin_ns(sz));
	LEAVE(SIM_OK);
}

DEF(cuMemFreeHost, (void *p))
{
	ENTER(38);
	size_t sz;

	if (!sim_unpin(p, &sz))
		LEAVE(SIM_ERR_INVALID);
	munmap(p, sz);
	sim_cost(&scope, sim_model()->free_ns);
	LEAVE(SIM_OK);
}

DEF(cuMemHostRegister_v2, (void *p, size_t sz, unsigned int flags))
{
	ENTER(379);
	(void)flags;
	sim_pin(p, sz);
	sim_cost(&scope, pin_ns(sz));
	LEAVE(SIM_OK);
}

DEF(cuMemHostUnregister, (void *p))
{
	ENTER(302);
	size_t sz;

	LEAVE(sim_unpin(p, &sz) ? SIM_OK : SIM_ERR_INVALID);
}

/* --- copies ----------------------------------------------------------------------------------- */

#define PTR(a) ((void *)(uintptr_t)(a))

DEF(cuMemcpyHtoD_v2, (CUdeviceptr dst, const void *src, size_t sz))
{
	ENTER(276);
	LEAVE(sim_memcpy(sim_stream(NULL), PTR(dst), src, sz, false));
}

DEF(cuMemcpyHtoDAsync_v2, (CUdeviceptr dst, const void *src, size_t sz, void *stream))
{
	ENTER(277);
	LEAVE(sim_memcpy(sim_stream(stream), PTR(dst), src, sz, true));
}

DEF(cuMemcpyDtoH_v2, (void *dst, CUdeviceptr src, size_t sz))
{
	ENTER(278);
	LEAVE(sim_memcpy(sim_stream(NULL), dst, PTR(src), sz, false));
}

DEF(cuMemcpyDtoHAsync_v2, (void *dst, CUdeviceptr src, size_t sz, void *stream))
{
	ENTER(279);
	LEAVE(sim_memcpy(sim_stream(stream), dst, PTR(src), sz, true));
}

DEF(cuMemcpyDtoDAsync_v2, (CUdeviceptr dst, CUdeviceptr src, size_t sz, void *stream))
{
	ENTER(281);
	LEAVE(sim_memcpy(sim_stream(stream), PTR(dst), PTR(src), sz, true));
}

DEF(cuMemcpyAsync, (CUdeviceptr dst, CUdeviceptr src, size_t sz, void *stream))
{
	ENTER(306);
	LEAVE(sim_memcpy(sim_stream(stream), PTR(dst), PTR(src), sz, true));
}

DEF(cuMemsetD8Async, (CUdeviceptr dst, unsigned char value, size_t n, void *stream))
{
	ENTER(216);
	(void)dst, (void)value;
	sim_cost(&scope, sim_model()->launch_ns);
	LEAVE(sim_memset(sim_stream(stream), n));
}

/* --- kernels ---------------------------------------------------------------------------------- */

SIM_EXPORT struct sim_function *gpusim_function(const char *name, uint64_t ns)
{
	struct sim_function *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	snprintf(f->name, sizeof(f->name), "%s", name);
	f->ns = ns;
	return f;
}

DEF(cuModuleLoadData, (void **module, const void *image))
{
	ENTER(19);
	(void)image;
	*module = (void *)1;
	sim_cost(&scope, sim_model()->module_ns);
	LEAVE(SIM_OK);
}

DEF(cuLaunchKernel, (void *fn, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
		   unsigned int by, unsigned int bz, unsigned int shared, void *stream, void **args,
		   void **extra))
{
	ENTER(307);
	const struct sim_function *f = fn;

	(void)shared, (void)args, (void)extra;
	sim_cost(&scope, sim_model()->launch_ns);
	LEAVE(sim_kernel(sim_stream(stream), f->name, f->ns, (uint32_t[]){ gx, gy, gz },
			 (uint32_t[]){ bx, by, bz }));
}

SIM_EXPORT struct sim_graph_exec *gpusim_graph(uint32_t id, uint64_t ns);
SIM_EXPORT struct sim_graph_exec *gpusim_graph(uint32_t id, uint64_t ns)
{
	struct sim_graph_exec *g = calloc(1, sizeof(*g));

	if (g)
		*g = (struct sim_graph_exec){ id, ns };
	return g;
}

DEF(cuGraphInstantiateWithFlags, (void **exec, void *graph, uint64_t flags))
{
	ENTER(643);
	(void)flags;
	*exec = graph;
	sim_cost(&scope, sim_model()->graph_ns);
	LEAVE(SIM_OK);
}

DEF(cuGraphLaunch, (void *exec, void *stream))
{
	ENTER(514);
	const struct sim_graph_exec *g = exec;

	sim_cost(&scope, sim_model()->launch_ns);
	LEAVE(sim_graph(sim_stream(stream), g->id, g->ns));
}

/* --- streams and events ------------------------------------------------------------------------ */

DEF(cuStreamCreate, (void **stream, unsigned int flags))
{
	ENTER(124);
	(void)flags;
	LEAVE(sim_stream_create((struct sim_stream **)stream));
}

DEF(cuStreamDestroy_v2, (void *stream))
{
	ENTER(326);
	(void)stream;	/* kept: work in it may still be running */
	LEAVE(SIM_OK);
}

DEF(cuStreamSynchronize, (void *stream))
{
	ENTER(126);
	struct sim_stream *s = sim_stream(stream);

	LEAVE(sim_wait(sim_stream_end(s), s, 3, UINT32_MAX));
}

DEF(cuStreamQuery, (void *stream))
{
	ENTER(125);
	struct sim_stream *s = sim_stream(stream);

	sim_cost(&scope, sim_model()->query_ns);
	LEAVE(sim_query(sim_stream_end(s), s, 3, UINT32_MAX));
}

DEF(cuCtxSynchronize, (void))
{
	ENTER(17);
	LEAVE(sim_wait(device_end(*sim_current()), NULL, 4, UINT32_MAX));
}

DEF(cuEventCreate, (void **event, unsigned int flags))
{
	ENTER(118);
	struct sim_event *e = calloc(1, sizeof(*e));

	(void)flags;
	if (!e)
		LEAVE(SIM_ERR_MEMORY);
	e->id = device_next_event();
	*event = e;
	LEAVE(SIM_OK);
}

DEF(cuEventDestroy_v2, (void *event))
{
	ENTER(325);
	free(event);
	LEAVE(SIM_OK);
}

DEF(cuEventRecord, (void *event, void *stream))
{
	ENTER(119);
	struct sim_event *e = event;
	uint64_t end = sim_stream_end(sim_stream(stream)), now = sim_now();

	e->when = end > now ? end : now;
	e->recorded = true;
	sim_cost(&scope, sim_model()->event_ns);
	LEAVE(SIM_OK);
}

DEF(cuEventQuery, (void *event))
{
	ENTER(120);
	const struct sim_event *e = event;

	sim_cost(&scope, sim_model()->query_ns);
	LEAVE(sim_query(e->when, NULL, 1, e->id));
}

DEF(cuEventSynchronize, (void *event))
{
	ENTER(121);
	const struct sim_event *e = event;

	LEAVE(sim_wait(e->when, NULL, 1, e->id));
}

DEF(cuEventElapsedTime, (float *ms, void *start, void *end))
{
	const struct sim_event *a = start, *b = end;

	if (!a->recorded || !b->recorded)
		return SIM_ERR_INVALID;
	*ms = (float)((double)(int64_t)(b->when - a->when) / 1e6);
	return sim_now() < b->when ? SIM_ERR_NOT_READY : SIM_OK;
}

DEF(cuStreamWaitEvent, (void *stream, void *event, unsigned int flags))
{
	ENTER(295);
	const struct sim_event *e = event;

	(void)flags;
	if (e->recorded)
		sim_stream_wait(sim_stream(stream), e->when, e->id);
	LEAVE(SIM_OK);
}
