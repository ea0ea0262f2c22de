/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Which addresses are whose: device memory is only counted, pinned host memory is remembered. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

struct range { uint64_t start, sz; };

static struct {
	pthread_mutex_t lock;
	struct range *pinned, *device;
	size_t pinned_cnt, pinned_cap, device_cnt, device_cap;
	uint64_t used, next;
} mem = { .lock = PTHREAD_MUTEX_INITIALIZER, .next = SIM_DEVICE_BASE };

static bool add(struct range **v, size_t *cnt, size_t *cap, uint64_t start, uint64_t sz)
{
	if (*cnt == *cap) {
		size_t n = *cap ? 2 * *cap : 64;
		struct range *r = realloc(*v, n * sizeof(*r));

		if (!r)
			return false;
		*v = r;
		*cap = n;
	}
	(*v)[(*cnt)++] = (struct range){ start, sz };
	return true;
}

static bool take(struct range *v, size_t *cnt, uint64_t start, uint64_t *ret_sz)
{
	for (size_t i = 0; i < *cnt; i++) {
		if (v[i].start != start)
			continue;
		*ret_sz = v[i].sz;
		v[i] = v[--*cnt];
		return true;
	}
	return false;
}

int sim_mem_alloc(uint64_t *ret, size_t sz)
{
	int err = SIM_OK;

	sz = (sz + 511) & ~(size_t)511;
	pthread_mutex_lock(&mem.lock);
	if (!sz || mem.used + sz > sim_model()->mem_sz ||
	    !add(&mem.device, &mem.device_cnt, &mem.device_cap, mem.next, sz)) {
		err = sz ? SIM_ERR_MEMORY : SIM_ERR_INVALID;
	} else {
		*ret = mem.next;
		mem.next += sz;
		mem.used += sz;
	}
	pthread_mutex_unlock(&mem.lock);
	return err;
}

int sim_mem_free(uint64_t ptr)
{
	uint64_t sz = 0;
	bool known;

	pthread_mutex_lock(&mem.lock);
	known = take(mem.device, &mem.device_cnt, ptr, &sz);
	mem.used -= sz;
	pthread_mutex_unlock(&mem.lock);
	return known || !ptr ? SIM_OK : SIM_ERR_INVALID;
}

void sim_pin(const void *p, size_t sz)
{
	pthread_mutex_lock(&mem.lock);
	add(&mem.pinned, &mem.pinned_cnt, &mem.pinned_cap, (uintptr_t)p, sz);
	pthread_mutex_unlock(&mem.lock);
}

bool sim_unpin(const void *p, size_t *ret_sz)
{
	uint64_t sz = 0;
	bool known;

	pthread_mutex_lock(&mem.lock);
	known = take(mem.pinned, &mem.pinned_cnt, (uintptr_t)p, &sz);
	pthread_mutex_unlock(&mem.lock);
	*ret_sz = sz;
	return known;
}

uint8_t sim_mem_kind(const void *p)
{
	uint64_t a = (uintptr_t)p;
	uint8_t kind = 1;	/* pageable */

	if (a >= SIM_DEVICE_BASE && a < SIM_DEVICE_BASE + SIM_RANGE_SZ)
		return 3;
	if (a >= SIM_PINNED_BASE && a < SIM_PINNED_BASE + SIM_RANGE_SZ)
		return 2;
	if (a >= SIM_PAGEABLE_BASE && a < SIM_PAGEABLE_BASE + SIM_RANGE_SZ)
		return 1;
	pthread_mutex_lock(&mem.lock);
	for (size_t i = 0; i < mem.pinned_cnt; i++)
		if (a >= mem.pinned[i].start && a < mem.pinned[i].start + mem.pinned[i].sz)
			kind = 2;
	pthread_mutex_unlock(&mem.lock);
	return kind;
}

SIM_EXPORT int gpusim_pinned(const void *p)
{
	return sim_mem_kind(p) == 2;
}
