/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Another tool in the process, to share CUPTI with: it does what torch.profiler does, which is to
 * take no subscription, register buffer callbacks of its own, switch kinds on, and at its end off
 * again and flush. Or, second: it subscribes by the interface for several.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "../../cupti/cupti_abi.h"
#include "sim.h"

#define BUF_SZ (1U << 20)
#define MINE_CNT 1024

SIM_EXPORT int gpusim_profiler_start(const char *cupti, int second, const char *name);
SIM_EXPORT int gpusim_profiler_stop(void);
SIM_EXPORT int gpusim_profiler_work(void);
SIM_EXPORT int gpusim_profiler_strange(void);

static struct {
	struct cupti_api_table t;
	void *sub;
	pthread_mutex_t lock;
	uint8_t *mine[MINE_CNT];
	int work, strange;
} prof = { .lock = PTHREAD_MUTEX_INITIALIZER };

static const int kinds[] = {
	CUPTI_ABI_KIND_MEMCPY, CUPTI_ABI_KIND_MEMSET, CUPTI_ABI_KIND_CONCURRENT_KERNEL,
	CUPTI_ABI_KIND_RUNTIME, CUPTI_ABI_KIND_DRIVER, CUPTI_ABI_KIND_OVERHEAD,
};

static void request(uint8_t **buf, size_t *size, size_t *max)
{
	*buf = malloc(BUF_SZ);
	*size = *buf ? BUF_SZ : 0;
	*max = 0;
	pthread_mutex_lock(&prof.lock);
	for (size_t i = 0; *buf && i < MINE_CNT; i++) {
		if (!prof.mine[i]) {
			prof.mine[i] = *buf;
			break;
		}
	}
	pthread_mutex_unlock(&prof.lock);
}

static int take(uint8_t *buf)
{
	for (size_t i = 0; i < MINE_CNT; i++) {
		if (prof.mine[i] == buf) {
			prof.mine[i] = NULL;
			return 1;
		}
	}
	return 0;
}

static void complete(void *ctx, uint32_t stream, uint8_t *buf, size_t size, size_t valid)
{
	uint8_t *rec = NULL;
	uint32_t kind;

	(void)ctx, (void)stream, (void)size;
	pthread_mutex_lock(&prof.lock);
	if (!take(buf)) {
		prof.strange++;
		pthread_mutex_unlock(&prof.lock);
		return;
	}
	while (!(prof.sub ? prof.t.v2_next_record(prof.sub, buf, valid, &rec) :
			    prof.t.next_record(buf, valid, &rec))) {
		memcpy(&kind, rec, sizeof(kind));
		prof.work += kind == CUPTI_ABI_KIND_CONCURRENT_KERNEL || kind == CUPTI_ABI_KIND_MEMCPY;
	}
	pthread_mutex_unlock(&prof.lock);
	free(buf);
}

static void request_v2(uint8_t **buf, size_t *size, size_t *max, const void *info)
{
	(void)info;
	request(buf, size, max);
}

static void complete_v2(uint8_t *buf, size_t size, size_t valid, const void *info)
{
	(void)info;
	complete(NULL, 0, buf, size, valid);
}

static void no_callback(void *userdata, int domain, uint32_t cbid, const void *data)
{
	(void)userdata, (void)domain, (void)cbid, (void)data;
}

static int load(const char *path)
{
	void *lib = dlopen(path, RTLD_NOW | RTLD_NOLOAD), *f;

	if (!lib)
		return -1;
#define CUPTI_FN(required, member, symbol, params) \
	f = dlsym(lib, symbol); \
	memcpy(&prof.t.member, &f, sizeof(f));
	CUPTI_FUNCTIONS(CUPTI_FN)
	CUPTI_FUNCTIONS_V2(CUPTI_FN)
#undef CUPTI_FN
	return 0;
}

int gpusim_profiler_start(const char *cupti, int second, const char *name)
{
	struct cupti_subscribe p = { .size = sizeof(p), .name = name, .allow_several = 1 };
	int err = load(cupti);

	prof.sub = NULL;
	prof.work = prof.strange = 0;
	if (!err && second)
		err = prof.t.subscribe_v2(&prof.sub, no_callback, NULL, &p);
	if (!err)
		err = prof.sub ? prof.t.v2_register_callbacks(prof.sub, request_v2, complete_v2) :
				 prof.t.register_callbacks(request, complete);
	for (size_t i = 0; !err && i < sizeof(kinds) / sizeof(kinds[0]); i++)
		err = prof.sub ? prof.t.v2_enable(prof.sub, kinds[i], NULL) : prof.t.enable(kinds[i]);
	return err;
}

int gpusim_profiler_stop(void)
{
	int err = 0;

	for (size_t i = 0; !err && i < sizeof(kinds) / sizeof(kinds[0]); i++)
		err = prof.sub ? prof.t.v2_disable(prof.sub, kinds[i], NULL) : prof.t.disable(kinds[i]);
	if (!err)
		err = prof.t.flush_all(0);
	if (!err && prof.sub) {
		err = prof.t.unsubscribe(prof.sub);
		prof.sub = NULL;
	}
	return err;
}

int gpusim_profiler_work(void)
{
	return prof.work;
}

int gpusim_profiler_strange(void)
{
	return prof.strange;
}
