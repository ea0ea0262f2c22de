/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * A profiler inside the application, as torch.profiler is one: it registers its own callbacks with
 * CUPTI at the start of each session, without a subscription, enables whole kinds, and disables them
 * at its end. Buffers that are not its own it ignores, as libkineto does.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "cupti_double.h"

#define BUF_SZ (1U << 20)
#define BUF_MAX 1024

static const int kinds[] = {
	CUPTI_ABI_KIND_CONCURRENT_KERNEL, CUPTI_ABI_KIND_MEMCPY, CUPTI_ABI_KIND_MEMSET, CUPTI_ABI_KIND_RUNTIME,
};

static struct {
	pthread_mutex_t lock;
	cupti_result (*next)(uint8_t *buf, size_t valid, uint8_t **record);
	cupti_result (*flush)(uint32_t flag);
	cupti_result (*disable)(int kind);
	uint8_t *bufs[BUF_MAX];
	size_t cnt;
	uint64_t kernels, strange;
} p = { .lock = PTHREAD_MUTEX_INITIALIZER };

SIM_EXPORT int InitializeInjection(void);
SIM_EXPORT int profiler_start(void *cupti);
SIM_EXPORT uint64_t profiler_stop(void);
SIM_EXPORT uint64_t profiler_strange(void);

static void request(uint8_t **buf, size_t *size, size_t *max)
{
	*buf = aligned_alloc(8, BUF_SZ);
	*size = *buf ? BUF_SZ : 0;
	*max = 0;
	pthread_mutex_lock(&p.lock);
	if (*buf && p.cnt < BUF_MAX)
		p.bufs[p.cnt++] = *buf;
	pthread_mutex_unlock(&p.lock);
}

static void complete(void *ctx, uint32_t stream, uint8_t *buf, size_t size, size_t valid)
{
	uint8_t *rec = NULL;
	bool own = false;

	(void)ctx, (void)stream, (void)size;
	pthread_mutex_lock(&p.lock);
	for (size_t i = 0; i < p.cnt; i++)
		own |= p.bufs[i] == buf;
	if (!own)
		p.strange++;
	while (own && !p.next(buf, valid, &rec))
		p.kernels += *(uint32_t *)(void *)rec == CUPTI_ABI_KIND_CONCURRENT_KERNEL;
	pthread_mutex_unlock(&p.lock);
}

SIM_EXPORT int profiler_start(void *cupti)
{
	cupti_result (*enable)(int) = (cupti_result (*)(int))dlsym(cupti, "cuptiActivityEnable");
	cupti_result (*reg)(cupti_buffer_request, cupti_buffer_complete) = (cupti_result (*)(cupti_buffer_request,
		cupti_buffer_complete))dlsym(cupti, "cuptiActivityRegisterCallbacks");

	p.next = (cupti_result (*)(uint8_t *, size_t, uint8_t **))dlsym(cupti, "cuptiActivityGetNextRecord");
	p.flush = (cupti_result (*)(uint32_t))dlsym(cupti, "cuptiActivityFlushAll");
	p.disable = (cupti_result (*)(int))dlsym(cupti, "cuptiActivityDisable");
	if (!enable || !reg || !p.next || !p.flush || !p.disable)
		return -1;
	p.kernels = p.strange = 0;
	if (reg(request, complete))
		return -1;
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (enable(kinds[i]))
			return -1;
	return 0;
}

/* As an injected tool: says that it was called. */
SIM_EXPORT int InitializeInjection(void)
{
	const char *path = getenv("GPUSIM_INJECTED");
	FILE *f = path ? fopen(path, "a") : NULL;

	if (f) {
		fputs("called\n", f);
		fclose(f);
	}
	return 1;
}

/* How many kernels the session saw. */
SIM_EXPORT uint64_t profiler_stop(void)
{
	p.flush(0);
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		p.disable(kinds[i]);
	p.flush(1);
	return p.kernels;
}

/* Buffers of another tool's that came to it. */
SIM_EXPORT uint64_t profiler_strange(void)
{
	return p.strange;
}
