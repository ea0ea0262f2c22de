/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The runtime that PyTorch calls, on top of the double of the driver. A kernel is what
 * gpusim_function() returned in place of a compiled one. Numbers are CUPTI's callback ids.
 */
#include "sim.h"

typedef int cudaError_t;
typedef struct { unsigned int x, y, z; } dim3;

int cuInit(unsigned int flags);
int cuMemAlloc_v2(uint64_t *ptr, size_t sz);
int cuMemFree_v2(uint64_t ptr);
int cuMemHostAlloc(void **ptr, size_t sz, unsigned int flags);
int cuMemFreeHost(void *ptr);
int cuMemHostRegister_v2(void *p, size_t sz, unsigned int flags);
int cuMemHostUnregister(void *p);
int cuMemcpyHtoD_v2(uint64_t dst, const void *src, size_t sz);
int cuMemcpyHtoDAsync_v2(uint64_t dst, const void *src, size_t sz, void *stream);
int cuMemcpyDtoH_v2(void *dst, uint64_t src, size_t sz);
int cuMemcpyDtoHAsync_v2(void *dst, uint64_t src, size_t sz, void *stream);
int cuMemcpyAsync(uint64_t dst, uint64_t src, size_t sz, void *stream);
int cuMemsetD8Async(uint64_t dst, unsigned char value, size_t n, void *stream);
int cuLaunchKernel(void *fn, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
		   unsigned int by, unsigned int bz, unsigned int shared, void *stream, void **args,
		   void **extra);
int cuGraphInstantiateWithFlags(void **exec, void *graph, uint64_t flags);
int cuGraphLaunch(void *exec, void *stream);
int cuStreamCreate(void **stream, unsigned int flags);
int cuStreamDestroy_v2(void *stream);
int cuStreamSynchronize(void *stream);
int cuStreamQuery(void *stream);
int cuStreamWaitEvent(void *stream, void *event, unsigned int flags);
int cuCtxSynchronize(void);
int cuCtxSetCurrent(void *ctx);
int cuDeviceGetCount(int *cnt);
int cuEventCreate(void **event, unsigned int flags);
int cuEventDestroy_v2(void *event);
int cuEventRecord(void *event, void *stream);
int cuEventQuery(void *event);
int cuEventSynchronize(void *event);

/* Declares and begins a function of the interface. */
#define DEF(name, params) SIM_EXPORT cudaError_t name params; SIM_EXPORT cudaError_t name params
/* The first call of a process brings the driver up. */
#define RT(cbid, call) \
	struct sim_scope scope; \
	int err = cuInit(0); \
	if (err) \
		return err; \
	scope = sim_begin(SIM_RUNTIME, cbid); \
	return sim_end(&scope, call)
#define ADDR(p) ((uint64_t)(uintptr_t)(p))

DEF(cudaSetDevice, (int device))
{
	int err = cuInit(0);

	return err ? err : cuCtxSetCurrent((void *)(uintptr_t)(device + 1));
}

DEF(cudaGetDeviceCount, (int *cnt))
{
	int err = cuInit(0);

	return err ? err : cuDeviceGetCount(cnt);
}

DEF(cudaMalloc, (void **ptr, size_t sz))
{
	RT(20, cuMemAlloc_v2((uint64_t *)ptr, sz));
}

DEF(cudaFree, (void *ptr))
{
	RT(22, ptr ? cuMemFree_v2(ADDR(ptr)) : SIM_OK);
}

DEF(cudaHostAlloc, (void **ptr, size_t sz, unsigned int flags))
{
	RT(27, cuMemHostAlloc(ptr, sz, flags));
}

DEF(cudaFreeHost, (void *ptr))
{
	RT(26, cuMemFreeHost(ptr));
}

DEF(cudaHostRegister, (void *ptr, size_t sz, unsigned int flags))
{
	RT(152, cuMemHostRegister_v2(ptr, sz, flags));
}

DEF(cudaHostUnregister, (void *ptr))
{
	RT(153, cuMemHostUnregister(ptr));
}

/* kind: 1 to the device, 2 to the host, 3 on the device, 4 by the addresses */
static int copy(void *dst, const void *src, size_t sz, int kind, void *stream)
{
	if (kind == 1)
		return cuMemcpyHtoDAsync_v2(ADDR(dst), src, sz, stream);
	if (kind == 2)
		return cuMemcpyDtoHAsync_v2(dst, ADDR(src), sz, stream);
	return cuMemcpyAsync(ADDR(dst), ADDR(src), sz, stream);
}

DEF(cudaMemcpyAsync, (void *dst, const void *src, size_t sz, int kind, void *stream))
{
	RT(41, copy(dst, src, sz, kind, stream));
}

DEF(cudaMemcpy, (void *dst, const void *src, size_t sz, int kind))
{
	RT(31, kind == 1 ? cuMemcpyHtoD_v2(ADDR(dst), src, sz) :
	       kind == 2 ? cuMemcpyDtoH_v2(dst, ADDR(src), sz) : copy(dst, src, sz, kind, NULL));
}

DEF(cudaMemsetAsync, (void *dst, int value, size_t n, void *stream))
{
	RT(51, cuMemsetD8Async(ADDR(dst), (unsigned char)value, n, stream));
}

DEF(cudaLaunchKernel, (const void *fn, dim3 grid, dim3 block, void **args, size_t shared, void *stream))
{
	RT(211, cuLaunchKernel((void *)(uintptr_t)fn, grid.x, grid.y, grid.z, block.x, block.y, block.z,
			       (unsigned int)shared, stream, args, NULL));
}

DEF(cudaGraphInstantiateWithFlags, (void **exec, void *graph, unsigned long long flags))
{
	RT(418, cuGraphInstantiateWithFlags(exec, graph, flags));
}

DEF(cudaGraphLaunch, (void *exec, void *stream))
{
	RT(311, cuGraphLaunch(exec, stream));
}

DEF(cudaStreamCreateWithFlags, (void **stream, unsigned int flags))
{
	RT(198, cuStreamCreate(stream, flags));
}

DEF(cudaStreamDestroy, (void *stream))
{
	RT(201, cuStreamDestroy_v2(stream));
}

DEF(cudaStreamSynchronize, (void *stream))
{
	RT(131, cuStreamSynchronize(stream));
}

DEF(cudaStreamQuery, (void *stream))
{
	RT(132, cuStreamQuery(stream));
}

DEF(cudaStreamWaitEvent, (void *stream, void *event, unsigned int flags))
{
	RT(147, cuStreamWaitEvent(stream, event, flags));
}

DEF(cudaDeviceSynchronize, (void))
{
	RT(165, cuCtxSynchronize());
}

DEF(cudaEventCreateWithFlags, (void **event, unsigned int flags))
{
	RT(134, cuEventCreate(event, flags));
}

DEF(cudaEventDestroy, (void *event))
{
	RT(136, cuEventDestroy_v2(event));
}

DEF(cudaEventRecord, (void *event, void *stream))
{
	RT(135, cuEventRecord(event, stream));
}

DEF(cudaEventQuery, (void *event))
{
	RT(138, cuEventQuery(event));
}

DEF(cudaEventSynchronize, (void *event))
{
	RT(137, cuEventSynchronize(event));
}

/* cnt launches of one kernel without the interpreter between them. */
SIM_EXPORT int gpusim_launch_many(void *fn, unsigned int cnt, void *stream);
SIM_EXPORT int gpusim_launch_many(void *fn, unsigned int cnt, void *stream)
{
	int err = SIM_OK;

	while (cnt-- && !err)
		err = cudaLaunchKernel(fn, (dim3){ 64, 1, 1 }, (dim3){ 256, 1, 1 }, NULL, 0, stream);
	return err;
}
