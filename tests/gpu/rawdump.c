/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Runs work of every kind on the simulated GPU and writes the buffers that the double of libcupti
 * completes into files DIR/buf.N, as they are: for other walkers to step through.
 *
 *   rawdump LIBDIR LIBCUPTI DIR
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../cupti/cupti_abi.h"

static const char *dir;
static int files, asked, completed;

static void request(uint8_t **buf, size_t *size, size_t *max_records)
{
	*size = 64 << 10;
	*max_records = 0;
	*buf = aligned_alloc(8, *size);
	__atomic_fetch_add(&asked, 1, __ATOMIC_RELAXED);
}

static void complete(void *ctx, uint32_t stream, uint8_t *buf, size_t size, size_t valid)
{
	char path[512];
	FILE *f;

	(void)ctx, (void)stream, (void)size;
	snprintf(path, sizeof(path), "%s/buf.%d", dir, __atomic_fetch_add(&files, 1, __ATOMIC_RELAXED));
	f = fopen(path, "wb");
	if (f) {
		fwrite(buf, 1, valid, f);
		fclose(f);
	}
	free(buf);
	__atomic_fetch_add(&completed, 1, __ATOMIC_RELEASE);
}

static void *open_lib(const char *where, const char *name)
{
	char path[512];
	void *lib;

	snprintf(path, sizeof(path), "%s/%s", where, name);
	lib = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
	if (!lib) {
		fprintf(stderr, "rawdump: %s\n", dlerror());
		exit(2);
	}
	return lib;
}

#define FN(lib, ret, name, params) ret (*name) params = (ret (*) params)dlsym(lib, #name)

typedef struct { unsigned int x, y, z; } dim3;

int main(int argc, char **argv)
{
	static const int kinds[] = { 1, 2, 4, 5, 10, 38, 51 };
	void *cuda, *rt, *cupti, *stream = NULL, *mem = NULL, *pinned = NULL, *event = NULL, *exec;

	if (argc != 4)
		return 2;
	dir = argv[3];
	cuda = open_lib(argv[1], "libcuda.so.1");
	rt = open_lib(argv[1], "libcudart.so.12");
	cupti = open_lib("", argv[2]);
	FN(cuda, void *, gpusim_function, (const char *, uint64_t));
	FN(cuda, void *, gpusim_graph, (uint32_t, uint64_t));
	FN(cuda, int, cuInit, (unsigned int));
	FN(rt, int, cudaMalloc, (void **, size_t));
	FN(rt, int, cudaHostAlloc, (void **, size_t, unsigned int));
	FN(rt, int, cudaMemcpyAsync, (void *, const void *, size_t, int, void *));
	FN(rt, int, cudaMemsetAsync, (void *, int, size_t, void *));
	FN(rt, int, cudaLaunchKernel, (const void *, dim3, dim3, void **, size_t, void *));
	FN(rt, int, cudaGraphInstantiateWithFlags, (void **, void *, unsigned long long));
	FN(rt, int, cudaGraphLaunch, (void *, void *));
	FN(rt, int, cudaStreamCreateWithFlags, (void **, unsigned int));
	FN(rt, int, cudaStreamSynchronize, (void *));
	FN(rt, int, cudaDeviceSynchronize, (void));
	FN(rt, int, cudaEventCreateWithFlags, (void **, unsigned int));
	FN(rt, int, cudaEventRecord, (void *, void *));
	FN(rt, int, cudaEventSynchronize, (void *));
	FN(rt, int, cudaStreamWaitEvent, (void *, void *, unsigned int));
	FN(cupti, cupti_result, cuptiActivityRegisterCallbacks, (cupti_buffer_request, cupti_buffer_complete));
	FN(cupti, cupti_result, cuptiActivityEnable, (int));
	FN(cupti, cupti_result, cuptiActivityFlushAll, (uint32_t));

	if (cuInit(0) || cuptiActivityRegisterCallbacks(request, complete))
		return 1;
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (cuptiActivityEnable(kinds[i]))
			return 1;
	cudaStreamCreateWithFlags(&stream, 1);
	cudaMalloc(&mem, 1 << 20);
	cudaHostAlloc(&pinned, 1 << 20, 0);
	cudaEventCreateWithFlags(&event, 0);
	cudaGraphInstantiateWithFlags(&exec, gpusim_graph(3, 20000), 0);
	for (int i = 0; i < 100; i++) {
		void *k = gpusim_function("walked_kernel", 5000 + (uint64_t)i);

		cudaMemcpyAsync(mem, pinned, 1 << 20, 1, stream);
		cudaMemcpyAsync(pinned, mem, 4096, 2, stream);
		cudaMemcpyAsync(mem, mem, 4096, 3, stream);
		cudaMemsetAsync(mem, 0, 4096, stream);
		for (int n = 0; n < 10; n++)
			cudaLaunchKernel(k, (dim3){ 1, 2, 3 }, (dim3){ 4, 5, 6 }, NULL, 0, stream);
		cudaGraphLaunch(exec, stream);
		cudaEventRecord(event, stream);
		cudaStreamWaitEvent(stream, event, 0);
		cudaEventSynchronize(event);
		cudaStreamSynchronize(stream);
	}
	cudaDeviceSynchronize();
	cuptiActivityFlushAll(1);
	/* Full buffers are handed back on a thread of the library's, which may be at one. */
	for (int i = 0; i < 10000 && __atomic_load_n(&completed, __ATOMIC_ACQUIRE) < asked; i++)
		usleep(1000);
	printf("%d buffers\n", files);
	return 0;
}
