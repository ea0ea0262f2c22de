/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The collector's parts that need no CUPTI: buffers, names, the ring's writer, the call table. */
#include <string.h>
#include <sys/mman.h>

#include "../../cupti/agent.h"
#include "../unit/test.h"

static unsigned int woken, walked;
static size_t walked_bytes;

/* In place of inject.c */
void agent_wake(void)
{
	woken++;
}

static void walk(uint8_t *buf, size_t valid)
{
	CHECK_EQ(buf[0], 0x5a);
	walked++;
	walked_bytes += valid;
}

TEST(without_a_free_buffer_it_hands_out_one_that_nobody_reads)
{
	uint8_t *bufs[80];
	size_t size, max;

	CHECK_OK(pool_open());
	for (int i = 0; i < 80; i++) {
		pool_request(&bufs[i], &size, &max);
		CHECK(bufs[i] != NULL);
		CHECK_EQ((uintptr_t)bufs[i] % 8, 0);
		CHECK_EQ(max, 0);
		memset(bufs[i], 0x5a, size);
	}
	for (int i = 0; i < 64; i++)
		for (int k = 0; k < i; k++)
			CHECK(bufs[i] != bufs[k]);
	CHECK_EQ(pool_lost_cnt(), 0);
	for (int i = 0; i < 80; i++)
		pool_complete(NULL, 0, bufs[i], size, 1280);
	CHECK(woken > 0);
	CHECK_EQ(pool_lost_cnt(), 16 * 1280 / 128);
	pool_drain(walk);
	CHECK_EQ(walked, 64);
	CHECK_EQ(walked_bytes, 64 * 1280);
	pool_drain(walk);
	CHECK_EQ(walked, 64);
	/* All are free again. */
	pool_trim();
	for (int i = 0; i < 64; i++) {
		pool_request(&bufs[i], &size, &max);
		CHECK_EQ(bufs[i][0], 0);	/* given back to the system meanwhile */
		bufs[i][0] = 0x5a;
		pool_complete(NULL, 0, bufs[i], size, 0);
	}
	pool_drain(walk);
	CHECK_EQ(walked, 64);	/* empty ones are not walked */
}

TEST(a_strange_buffer_is_left_alone)
{
	uint8_t other[64] = { 0 };

	CHECK_OK(pool_open());
	pool_complete(NULL, 0, other, sizeof(other), sizeof(other));
	pool_complete(NULL, 0, NULL, 0, 0);
	walked = 0;
	pool_drain(walk);
	CHECK_EQ(walked, 0);
}

TEST(calls_are_sorted_and_found)
{
	for (unsigned int i = 1; i < calls_cnt; i++)
		CHECK_MSG(calls[i - 1].domain < calls[i].domain ||
			  (calls[i - 1].domain == calls[i].domain && calls[i - 1].cbid < calls[i].cbid),
			  "%s", calls[i].name);
	for (unsigned int i = 0; i < calls_cnt; i++)
		CHECK(call_find(calls[i].domain, calls[i].cbid) == &calls[i]);
	CHECK(call_find(DL_GPU_RUNTIME, 100000) == NULL);
	CHECK(call_find(DL_GPU_DRIVER, 0) == NULL);
	CHECK(call_find(9, 41) == NULL);
	CHECK_EQ(call_find(DL_GPU_RUNTIME, 41)->class, DL_CALL_COPY);
	CHECK_EQ(call_find(DL_GPU_DRIVER, 307)->class, DL_CALL_LAUNCH);
}

/* --- the ring ---------------------------------------------------------------------------------- */

static const uint8_t *ring_data(void)
{
	return (const uint8_t *)ring_header() + DL_GPU_RING_HDR_SZ;
}

/* Reads as the recorder does; returns records seen. */
static unsigned int read_all(uint64_t *tail)
{
	const uint32_t mask = ring_header()->data_sz - 1;
	unsigned int n = 0;

	while (*tail != ring_header()->head) {
		struct dl_hdr h;

		CHECK(ring_header()->data_sz - (*tail & mask) >= sizeof(h));
		memcpy(&h, ring_data() + (*tail & mask), sizeof(h));
		CHECK(h.size >= sizeof(h) && h.size % 8 == 0);
		CHECK((*tail & mask) + h.size <= ring_header()->data_sz);
		*tail += h.size;
		n += h.kind != DL_EV_NONE;
	}
	ring_header()->tail = *tail;
	return n;
}

TEST(the_ring_wraps_fills_and_counts)
{
	static const uint16_t sizes[] = { 24, 32, 40, 56, 72, 4096, 48, 88 };
	uint8_t rec[4096] = { 0 };
	uint64_t tail = 0, before;
	unsigned int put = 0, got = 0;

	setenv("DLBPF_GPU_RING_KB", "64", 1);
	CHECK_OK(ring_open());
	CHECK_EQ(ring_header()->data_sz, 65536);
	for (int i = 0; i < 20000; i++) {
		struct dl_hdr h = { .size = sizes[i % 8], .kind = DL_EV_GPU_API };

		memcpy(rec, &h, sizeof(h));
		put += ring_put(rec, h.size, false);
		if (i % 13 == 0) {
			ring_publish();
			got += read_all(&tail);
		}
	}
	ring_publish();
	got += read_all(&tail);
	CHECK_EQ(put, 20000);
	CHECK_EQ(got, put);
	CHECK_EQ(ring_header()->dropped_ring, pool_lost_cnt());
	/* Nobody reads: it fills, drops, counts, and keeps room for what is urgent. */
	for (put = 0; ring_put(rec, 88, false); put++)
		CHECK(put < 1000);
	before = ring_lost_cnt();
	CHECK(!ring_put(rec, 88, false));
	CHECK_EQ(ring_lost_cnt(), before + 1);
	CHECK(ring_put(rec, 88, true));
	ring_publish();
	CHECK_EQ(read_all(&tail), put + 1);
	/* A mad reader: never beyond the memory, at worst nothing is written. */
	ring_header()->tail = UINT64_MAX / 2;
	for (int i = 0; i < 2000; i++)
		ring_put(rec, 88, false);
	ring_header()->tail = tail;
	CHECK(ring_put(rec, 88, false));
	ring_publish();
	read_all(&tail);
}

static unsigned int strings(uint64_t *tail)
{
	const uint32_t mask = ring_header()->data_sz - 1;
	unsigned int n = 0;

	ring_publish();
	while (*tail != ring_header()->head) {
		struct dl_hdr h;

		memcpy(&h, ring_data() + (*tail & mask), sizeof(h));
		n += h.kind == DL_EV_STRING;
		*tail += h.size;
	}
	ring_header()->tail = *tail;
	return n;
}

TEST(a_name_is_shipped_once_in_a_session)
{
	uint64_t tail = ring_header()->head;
	char a[] = "kernel_a", b[] = "kernel_b", same[] = "kernel_a", long_[5000];
	uint32_t id = names_id(a);

	CHECK(id != 0);
	CHECK_EQ(names_id(a), id);
	CHECK_EQ(names_id(same), id);
	CHECK(names_id(b) != id);
	CHECK_EQ(strings(&tail), 2);
	/* A stale pointer: the text behind it is another one now. */
	strcpy(a, "kernel_c");
	CHECK(names_id(a) != id);
	CHECK_EQ(names_id(same), id);
	CHECK_EQ(strings(&tail), 1);
	names_forget();
	CHECK_EQ(names_id(same), id);
	CHECK_EQ(strings(&tail), 1);
	CHECK_EQ(names_id(NULL), 0);
	CHECK_EQ(names_id(""), 0);
	memset(long_, 'x', sizeof(long_) - 1);
	long_[sizeof(long_) - 1] = '\0';
	CHECK(names_id(long_) != 0);
	CHECK_EQ(strings(&tail), 1);
}

TEST(very_many_names_end_in_none)
{
	uint64_t tail = ring_header()->head;
	unsigned int none = 0;
	char name[32];

	for (int i = 0; i < 40000; i++) {
		snprintf(name, sizeof(name), "generated_%d", i);
		none += names_id(name) == 0;
		strings(&tail);
	}
	CHECK(none > 20000 && none < 24000);
	CHECK(names_id("generated_1") != 0);
}
