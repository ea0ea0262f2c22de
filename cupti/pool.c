/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The buffers that CUPTI fills. request() runs on the application's threads and complete() on
 * CUPTI's: both are a few atomic operations on a bit set and a list, and never wait.
 *
 * CUPTI before 12.9 may crash when it is refused a buffer, so without a free one it gets one whose
 * contents nobody reads; several threads may then share it.
 */
#include "agent.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/mman.h>

#define BUF_SZ (256U << 10)	/* since 13.0 each thread of the application holds one */
#define BUF_CNT 64		/* bits of the free set; address space only until they are used */
#define SPARE_CNT 2
#define LOW_CNT 8		/* fewer free ones wake the collector before its period is over */
#define RECORD_SZ 128		/* to estimate records from bytes: between an API and a kernel record */

static struct {
	uint8_t *mem;
	_Atomic uint64_t free;
	_Atomic uint64_t out;	/* CUPTI has it; or another tool, which CUPTI gave it to */
	_Atomic uint64_t request_cnt;	/* buffers that CUPTI asked for, so far */
	_Atomic uint64_t done_cnt;	/* buffers with records in them that came back, so far */
	_Atomic int32_t done;	/* completed: index + 1 of the newest, 0 none */
	int32_t next[BUF_CNT];
	size_t valid[BUF_CNT];
	_Atomic uint64_t lost_bytes, foreign;
	_Atomic uint32_t spare;
} pool;

int pool_open(void)
{
	void *mem;

	if (pool.mem)
		return 0;
	mem = mmap(NULL, (size_t)BUF_SZ * (BUF_CNT + SPARE_CNT), PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (mem == MAP_FAILED)
		return -errno;
	pool.mem = mem;
	atomic_store(&pool.free, ~0ULL);
	return 0;
}

void pool_request(uint8_t **buf, size_t *size, size_t *max_records)
{
	uint64_t set = atomic_load(&pool.free), bit;

	*size = BUF_SZ;
	*max_records = 0;	/* as many as fit */
	atomic_fetch_add(&pool.request_cnt, 1);
	do {
		if (!set) {
			uint32_t i = atomic_fetch_add(&pool.spare, 1) % SPARE_CNT;

			*buf = pool.mem + (size_t)BUF_SZ * (BUF_CNT + i);
			return;
		}
		bit = set & -set;
	} while (!atomic_compare_exchange_weak(&pool.free, &set, set & ~bit));
	atomic_fetch_or(&pool.out, bit);
	*buf = pool.mem + (size_t)BUF_SZ * (unsigned int)__builtin_ctzll(bit);
}

void pool_complete(void *ctx, uint32_t stream, uint8_t *buf, size_t size, size_t valid)
{
	size_t off = (size_t)(buf - pool.mem), i = off / BUF_SZ;
	int32_t head;

	(void)ctx, (void)stream, (void)size;
	/* Another tool's, when it was profiling while our callbacks were registered. */
	if (buf < pool.mem || off >= (size_t)BUF_SZ * (BUF_CNT + SPARE_CNT)) {
		atomic_fetch_add(&pool.foreign, 1);
		return;
	}
	if (valid > BUF_SZ)
		valid = BUF_SZ;
	if (i >= BUF_CNT) {
		atomic_fetch_add(&pool.lost_bytes, valid);
		atomic_fetch_add(&pool.done_cnt, 1);
		return;
	}
	/* Twice the same, or one that was given up meanwhile: somebody else may be filling it. */
	if (!(atomic_fetch_and(&pool.out, ~(1ULL << i)) & 1ULL << i))
		return;
	if (valid)
		atomic_fetch_add(&pool.done_cnt, 1);
	pool.valid[i] = valid;
	head = atomic_load(&pool.done);
	do {
		pool.next[i] = head;
	} while (!atomic_compare_exchange_weak(&pool.done, &head, (int32_t)i + 1));
	if (__builtin_popcountll(atomic_load(&pool.free)) < LOW_CNT)
		agent_wake();
}

void pool_drain(void (*walk)(uint8_t *buf, size_t valid))
{
	int32_t i = atomic_exchange(&pool.done, 0), prev = 0;

	/* The list is newest first; reversing it keeps the order in which buffers were filled. */
	while (i) {
		int32_t next = pool.next[i - 1];

		pool.next[i - 1] = prev;
		prev = i;
		i = next;
	}
	for (i = prev; i; i = prev) {
		prev = pool.next[i - 1];
		if (pool.valid[i - 1])
			walk(pool.mem + (size_t)BUF_SZ * (size_t)(i - 1), pool.valid[i - 1]);
		atomic_fetch_or(&pool.free, 1ULL << (i - 1));
	}
}

void pool_trim(void)
{
	uint64_t set;

	if (!pool.mem)
		return;
	/* Taken out of the set meanwhile, so that CUPTI is not handed one that is being emptied. */
	set = atomic_exchange(&pool.free, 0);
	for (unsigned int i = 0; i < BUF_CNT; i++)
		if (set & 1ULL << i)
			madvise(pool.mem + (size_t)BUF_SZ * i, BUF_SZ, MADV_DONTNEED);
	atomic_fetch_or(&pool.free, set);
}

void pool_reclaim(void)
{
	atomic_fetch_or(&pool.free, atomic_exchange(&pool.out, 0));
}

uint64_t pool_request_cnt(void)
{
	return atomic_load(&pool.request_cnt);
}

uint64_t pool_done_cnt(void)
{
	return atomic_load(&pool.done_cnt);
}

uint64_t pool_lost_cnt(void)
{
	return (atomic_load(&pool.lost_bytes) + RECORD_SZ - 1) / RECORD_SZ;
}
