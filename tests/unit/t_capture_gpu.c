/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The recorder's end of the GPU ring against a collector that this test plays itself, well-behaved
 * and hostile: the process that it records is its own.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include "capture/gpu.h"
#include "capture/gpu_priv.h"

#include "test.h"

#define DATA_SZ 65536U
#define OFF 1795993439000000000ULL	/* the played CUPTI clock is MONOTONIC plus this */

static struct dl_gpu_ring *hdr;
static uint8_t *data;
static int ring_fd = -1;

/* --- the sink remembers ---------------------------------------------------------------------- */

static struct { union gpu_rec ev[4096]; size_t cnt; int fail; } seen;

static int remember(struct dl_sink *sink, const struct dl_hdr *ev)
{
	(void)sink;
	if (seen.fail)
		return -ENOSPC;
	if (seen.cnt < 4096)
		memcpy(&seen.ev[seen.cnt++], ev, ev->size);
	return 0;
}

static struct dl_sink sink = { .emit = remember };

static size_t count(unsigned int kind)
{
	size_t n = 0;

	for (size_t i = 0; i < seen.cnt; i++)
		n += seen.ev[i].h.kind == kind;
	return n;
}

static const union gpu_rec *last(unsigned int kind)
{
	for (size_t i = seen.cnt; i--;)
		if (seen.ev[i].h.kind == kind)
			return &seen.ev[i];
	FAIL("no event of kind %u", kind);
}

/* --- the collector that is played ------------------------------------------------------------- */

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ULL + (uint64_t)ts.tv_nsec;
}

static void collector_make(int seals)
{
	size_t sz = DL_GPU_RING_HDR_SZ + DATA_SZ;

	memset(&seen, 0, sizeof(seen));
	if (ring_fd >= 0)
		close(ring_fd);
	ring_fd = memfd_create(DL_GPU_MEMFD, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	CHECK(ring_fd >= 0);
	CHECK_OK(ftruncate(ring_fd, (off_t)sz));
	hdr = mmap(NULL, sz, PROT_READ | PROT_WRITE, MAP_SHARED, ring_fd, 0);
	CHECK(hdr != MAP_FAILED);
	data = (uint8_t *)hdr + DL_GPU_RING_HDR_SZ;
	*hdr = (struct dl_gpu_ring){
		.magic = DL_GPU_RING_MAGIC, .abi = DL_GPU_RING_ABI, .hdr_sz = DL_GPU_RING_HDR_SZ,
		.data_sz = DATA_SZ, .pid = (uint32_t)getpid(), .version = 130001,
		.text = "CUPTI 13.0, /lib/libcupti.so.13",
	};
	if (seals)
		CHECK_OK(fcntl(ring_fd, F_ADD_SEALS, seals));
}

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

static void put_raw(const void *rec, size_t sz)
{
	uint64_t off = hdr->head & (DATA_SZ - 1), rest = DATA_SZ - off;

	if (rest < sz || (rest > sz && rest - sz < sizeof(struct dl_hdr))) {
		struct dl_hdr fill = { .size = (uint16_t)rest, .kind = DL_EV_NONE };

		memcpy(data + off, &fill, sizeof(fill));
		hdr->head += rest;
		off = 0;
	}
	memcpy(data + off, rec, sz);
	__atomic_store_n(&hdr->head, hdr->head + sz, __ATOMIC_RELEASE);
}

#define PUT(ev) put_raw(&(ev), sizeof(ev))

static struct dl_ev_gpu_kernel kernel(uint64_t start, uint64_t dur, uint32_t corr)
{
	return (struct dl_ev_gpu_kernel){
		.h = { .size = sizeof(struct dl_ev_gpu_kernel), .kind = DL_EV_GPU_KERNEL,
		       .ts = start + OFF, .pid = 4711, .tid = 4711, .flags = 0xffff },
		.end = start + OFF + dur, .corr = corr, .stream = 7,
	};
}

static void put_clock(uint64_t mono)
{
	struct dl_ev_gpu_clock c = {
		.h = { .size = sizeof(c), .kind = DL_EV_GPU_CLOCK, .ts = mono },
		.gpu = mono + OFF, .bracket_ns = 100,
	};

	PUT(c);
}

static void put_string(uint32_t id, const char *text)
{
	uint8_t buf[256] = { 0 };
	struct dl_ev_string *s = (void *)buf;

	s->h = (struct dl_hdr){ .kind = DL_EV_STRING };
	s->id = id;
	memcpy(buf + sizeof(*s), text, strlen(text));
	s->h.size = (uint16_t)((sizeof(*s) + strlen(text) + 7) & ~7UL);
	put_raw(buf, s->h.size);
}

static struct dl_gpu *attach(void)
{
	struct dl_gpu_opts opts = { .mode = DL_GPU_MODE_STD, .flush_ms = 50 };
	struct dl_gpu *g = NULL;

	CHECK_OK(dl_gpu_open(&g, &opts, &sink, NULL));
	CHECK_EQ(dl_gpu_probe(g, (uint32_t)getpid()), 1);
	return g;
}

/* --- well-behaved ------------------------------------------------------------------------------ */

TEST(it_is_found_switched_on_and_off)
{
	struct dl_gpu *g;

	collector_make(SEALS);
	g = attach();
	CHECK_EQ(hdr->want, DL_GPU_MODE_STD);
	CHECK_EQ(hdr->flush_ms, 50);
	CHECK_EQ(dl_gpu_probe(g, (uint32_t)getpid()), 1);
	CHECK(dl_gpu_drain(g, now_ns()) >= 0);
	CHECK(hdr->beat > 0);
	dl_gpu_close(g);
	CHECK_EQ(hdr->want, DL_GPU_MODE_OFF);
	dl_gpu_close(NULL);
}

/* torch.profiler leaves a clock behind that counts cycles, 2.5 a nanosecond here. */
TEST(a_clock_of_another_rate)
{
	const uint64_t t0 = 1000000000000ULL, cycles0 = 77000000000ULL, ms = 1000000;
	static struct gpu_clock c;
	uint64_t mono;
	bool unsure;

	memset(&c, 0, sizeof(c));
	for (uint64_t i = 0; i < 5; i++)
		CHECK(gpu_clock_add(&c, t0 + i * 100 * ms, t0 + OFF + i * 100 * ms, 100));
	CHECK_EQ(c.steps, 0);
	/* A jump and the first interval at that rate: it cannot be told from another jump yet. */
	for (uint64_t i = 5; i < 30; i++) {
		/* the reading is late by up to 1 us */
		CHECK(gpu_clock_add(&c, t0 + i * 100 * ms, cycles0 + i * 250 * ms + i % 3 * 1000, 1000));
		if (i < 7)
			continue;
		CHECK(gpu_clock_convert(&c, cycles0 + i * 250 * ms - 100 * ms, &mono, &unsure));
		CHECK_NEAR((double)mono, (double)(t0 + i * 100 * ms - 40 * ms), 1000);
		CHECK(!unsure);
	}
	CHECK_EQ(c.steps, 2);
	/* Behind the last pair, too. */
	CHECK(gpu_clock_convert(&c, cycles0 + 29 * 250 * ms + 25 * ms, &mono, &unsure));
	CHECK_NEAR((double)mono, (double)(t0 + 29 * 100 * ms + 10 * ms), 2000);
	CHECK(!unsure);
	/* And back to a clock of nanoseconds. */
	for (uint64_t i = 30; i < 33; i++)
		CHECK(gpu_clock_add(&c, t0 + i * 100 * ms, t0 + OFF + i * 100 * ms, 100));
	CHECK(gpu_clock_convert(&c, t0 + OFF + 3150 * ms, &mono, &unsure));
	CHECK_EQ(mono, t0 + 3150 * ms);
	CHECK(!unsure);
}

TEST(records_wait_for_a_clock_pair_and_are_converted)
{
	uint64_t t = now_ns() - 500000000;
	struct dl_gpu *g;
	struct dl_ev_gpu_kernel k = kernel(t + 1000, 250, 99);

	collector_make(SEALS);
	g = attach();
	put_clock(t);
	put_string(3, "vectorized_elementwise");
	PUT(k);
	CHECK(dl_gpu_drain(g, now_ns()) >= 0);
	CHECK_EQ(count(DL_EV_GPU_KERNEL), 0);
	CHECK_EQ(count(DL_EV_STRING), 1);
	put_clock(t + 100000000);
	CHECK(dl_gpu_drain(g, now_ns()) >= 0);
	CHECK_EQ(count(DL_EV_GPU_KERNEL), 1);
	CHECK_EQ(last(DL_EV_GPU_KERNEL)->h.ts, t + 1000);
	CHECK_EQ(last(DL_EV_GPU_KERNEL)->kernel.end, t + 1250);
	CHECK_EQ(last(DL_EV_GPU_KERNEL)->h.pid, getpid());
	CHECK_EQ(last(DL_EV_GPU_KERNEL)->h.tid, 0);
	CHECK_EQ(last(DL_EV_GPU_KERNEL)->h.flags, 0);
	CHECK_EQ(last(DL_EV_STRING)->h.size, sizeof(struct dl_ev_string) + strlen("vectorized_elementwise"));
	CHECK_EQ(hdr->tail, hdr->head);
	dl_gpu_close(g);
}

TEST(what_is_left_at_the_end_is_not_lost)
{
	uint64_t t = now_ns() - 500000000;
	struct dl_gpu *g;
	struct dl_ev_gpu_kernel k = kernel(t + 3000, 1, 5);

	collector_make(SEALS);
	g = attach();
	put_clock(t);
	PUT(k);
	hdr->dropped_ring = 17;
	CHECK_OK(dl_gpu_forget(g, (uint32_t)getpid()));
	CHECK_EQ(last(DL_EV_GPU_KERNEL)->h.ts, t + 3000);
	CHECK_EQ(((const struct dl_ev_gpu_drop *)last(DL_EV_GPU_DROP))->ring, 17);
	CHECK_OK(dl_gpu_forget(g, (uint32_t)getpid()));
	dl_gpu_close(g);
}

TEST(the_ring_wraps)
{
	uint64_t t = now_ns() - 900000000, n = 0;
	struct dl_gpu *g;

	collector_make(SEALS);
	g = attach();
	for (int round = 0; round < 40; round++) {
		for (int i = 0; i < 100 + round; i++) {
			struct dl_ev_gpu_kernel k = kernel(t + 1 + n, 1, (uint32_t)n);

			PUT(k);
			n++;
		}
		put_clock(t + 10000000 * (uint64_t)(round + 1));
		CHECK(dl_gpu_drain(g, now_ns()) >= 0);
		CHECK_EQ(last(DL_EV_GPU_KERNEL)->kernel.corr, n - 1);
		seen.cnt = 0;
	}
	CHECK(hdr->head > 4 * DATA_SZ);
	CHECK_EQ(count(DL_EV_LOSS), 0);
	dl_gpu_close(g);
}

TEST(another_versions_records_are_cut_or_filled_up)
{
	struct { struct dl_ev_gpu_kernel k; uint64_t more[2]; } longer;
	uint64_t t = now_ns() - 500000000;
	struct dl_ev_gpu_kernel k = kernel(t + 10, 1, 7);
	struct dl_gpu *g;

	collector_make(SEALS);
	g = attach();
	put_clock(t);
	longer.k = k;
	longer.k.h.size = sizeof(longer);
	PUT(longer);
	k.h.size = offsetof(struct dl_ev_gpu_kernel, name);
	k.name = 1234;
	put_raw(&k, k.h.size);
	put_clock(t + 1000000);
	CHECK(dl_gpu_drain(g, now_ns()) >= 0);
	CHECK_EQ(count(DL_EV_GPU_KERNEL), 2);
	CHECK_EQ(last(DL_EV_GPU_KERNEL)->h.size, sizeof(struct dl_ev_gpu_kernel));
	CHECK_EQ(last(DL_EV_GPU_KERNEL)->kernel.corr, 7);
	CHECK_EQ(last(DL_EV_GPU_KERNEL)->kernel.name, 0);
	dl_gpu_close(g);
}

TEST(a_running_one_is_started_anew)
{
	struct dl_gpu *g;

	collector_make(SEALS);
	hdr->state = DL_GPU_MODE_STD;	/* its recorder has just died */
	hdr->head = 4096;
	g = attach();
	CHECK_EQ(hdr->want, DL_GPU_MODE_OFF);
	CHECK_EQ(hdr->tail, 4096);
	CHECK(dl_gpu_drain(g, now_ns()) >= 0);
	CHECK_EQ(hdr->want, DL_GPU_MODE_OFF);
	hdr->state = DL_GPU_MODE_OFF;
	CHECK(dl_gpu_drain(g, now_ns()) >= 0);
	CHECK_EQ(hdr->want, DL_GPU_MODE_STD);
	dl_gpu_close(g);
}

TEST(it_says_why_there_is_nothing)
{
	struct dl_gpu *g;
	char buf[256];

	collector_make(SEALS);
	g = attach();
	CHECK_HAS(dl_gpu_describe(g, buf, sizeof(buf)), "none yet");
	hdr->busy = 1;
	strcpy(hdr->text, "another tool\033[31m holds CUPTI");
	CHECK(dl_gpu_drain(g, now_ns()) >= 0);
	CHECK(dl_gpu_drain(g, now_ns()) >= 0);
	CHECK_EQ(count(DL_EV_GPU_SOURCE), 1);
	CHECK_EQ(last(DL_EV_GPU_SOURCE)->source.state, DL_GPU_BUSY);
	/* of the text: in the header's numbers any byte may stand */
	CHECK(!memchr(last(DL_EV_GPU_SOURCE)->bytes + sizeof(struct dl_ev_gpu_source), 033,
		      last(DL_EV_GPU_SOURCE)->h.size - sizeof(struct dl_ev_gpu_source)));
	hdr->busy = 0;
	hdr->error = 999;
	CHECK(dl_gpu_drain(g, now_ns()) >= 0);
	CHECK_EQ(last(DL_EV_GPU_SOURCE)->source.state, DL_GPU_FAILED);
	hdr->state = DL_GPU_MODE_STD;
	strcpy(hdr->text, "CUPTI 13.0 (simulated), /lib/libcupti.so.13");
	CHECK_STR(dl_gpu_describe(g, buf, sizeof(buf)), "CUPTI 13.0 (simulated)");
	dl_gpu_close(g);
}

TEST(a_failing_sink_ends_it)
{
	struct dl_gpu *g;

	collector_make(SEALS);
	g = attach();
	put_clock(now_ns());
	seen.fail = 1;
	CHECK_EQ(dl_gpu_drain(g, now_ns()), -ENOSPC);
	seen.fail = 0;
	dl_gpu_close(g);
}

/* --- hostile ------------------------------------------------------------------------------------ */

static void check_refused(void)
{
	struct dl_gpu_opts opts = { .mode = DL_GPU_MODE_STD };
	struct dl_gpu *g = NULL;

	CHECK_OK(dl_gpu_open(&g, &opts, &sink, NULL));
	CHECK_EQ(dl_gpu_probe(g, (uint32_t)getpid()), 0);
	dl_gpu_close(g);
}

TEST(memory_that_can_shrink_is_not_mapped)
{
	collector_make(0);
	check_refused();
	collector_make(F_SEAL_GROW);
	check_refused();
}

TEST(a_wrong_header_is_not_believed)
{
	static const struct { size_t off; uint32_t val; } bad[] = {
		{ offsetof(struct dl_gpu_ring, magic), 1 },
		{ offsetof(struct dl_gpu_ring, abi), DL_GPU_RING_ABI + 1 },
		{ offsetof(struct dl_gpu_ring, hdr_sz), 8192 },
		{ offsetof(struct dl_gpu_ring, data_sz), 2 * DATA_SZ },
		{ offsetof(struct dl_gpu_ring, data_sz), DATA_SZ - 8 },
		{ offsetof(struct dl_gpu_ring, data_sz), 0 },
		{ offsetof(struct dl_gpu_ring, pid), 1 },
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		collector_make(SEALS);
		memcpy((uint8_t *)hdr + bad[i].off, &bad[i].val, 4);
		check_refused();
	}
}

/* What must hold whatever the ring says: an end, bounded work, no event out of the ordinary. */
static void check_harmless(struct dl_gpu *g)
{
	seen.cnt = 0;
	CHECK(dl_gpu_drain(g, now_ns()) >= 0);
	CHECK(seen.cnt < DATA_SZ / sizeof(struct dl_hdr) + 16);
	for (size_t i = 0; i < seen.cnt; i++) {
		CHECK(seen.ev[i].h.size >= sizeof(struct dl_hdr));
		CHECK(seen.ev[i].h.size <= DL_EVENT_MAX_SZ);
		CHECK(seen.ev[i].h.kind == DL_EV_LOSS || seen.ev[i].h.pid == (uint32_t)getpid());
		CHECK(seen.ev[i].h.kind != DL_EV_EXIT);
	}
}

TEST(mad_positions_end)
{
	static const uint64_t heads[] = {
		UINT64_MAX, UINT64_MAX - 7, 1, 7, DATA_SZ, DATA_SZ + 8, DATA_SZ * 2, 1ULL << 63,
	};
	struct dl_gpu *g;

	collector_make(SEALS);
	g = attach();
	for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++) {
		hdr->head = heads[i];
		hdr->tail = heads[i] ^ 0x5555;
		check_harmless(g);
	}
	CHECK(count(DL_EV_LOSS) > 0);
	dl_gpu_close(g);
}

TEST(bad_sizes_kinds_and_times_are_counted)
{
	uint64_t t = now_ns() - 500000000;
	struct dl_ev_gpu_kernel k;
	struct dl_ev_exit ex = { .h = { .size = sizeof(ex), .kind = DL_EV_EXIT, .ts = 5 } };
	struct dl_gpu *g;
	size_t before;

	collector_make(SEALS);
	g = attach();
	put_clock(t);
	PUT(ex);			/* not a GPU's business */
	k = kernel(t + 9, 1, 1);
	k.end = k.h.ts - 1;		/* ends before it starts */
	PUT(k);
	k = kernel(t + 9, 1, 2);
	k.h.ts = 0;
	PUT(k);
	k = kernel(t + 9, 1, 3);
	k.end = k.h.ts + 3600ULL * 1000000000ULL;	/* in an hour */
	PUT(k);
	k = kernel(t + 9, 1, 4);	/* a good one among them */
	PUT(k);
	put_clock(t + 1000000);
	CHECK(dl_gpu_drain(g, now_ns()) >= 0);
	CHECK_EQ(count(DL_EV_GPU_KERNEL), 1);
	CHECK_EQ(last(DL_EV_GPU_KERNEL)->kernel.corr, 4);
	CHECK_EQ(count(DL_EV_EXIT), 0);
	CHECK_EQ(((const struct dl_ev_loss *)last(DL_EV_LOSS))->cnt, 4);
	CHECK_EQ(((const struct dl_ev_loss *)last(DL_EV_LOSS))->cause, DL_LOSS_INVALID);
	/* Where the next record begins is unknown behind a bad size: up to head all is lost, once. */
	for (uint16_t size = 0; size < 24; size += 4) {
		k = kernel(t + 9, 1, 5);
		k.h.size = size;
		put_raw(&k, sizeof(k));
		before = seen.cnt;
		CHECK(dl_gpu_drain(g, now_ns()) >= 0);
		CHECK_EQ(seen.cnt, before + 1);
	}
	k = kernel(t + 20, 1, 6);
	PUT(k);
	put_clock(t + 2000000);
	CHECK(dl_gpu_drain(g, now_ns()) >= 0);
	CHECK_EQ(last(DL_EV_GPU_KERNEL)->kernel.corr, 6);
	dl_gpu_close(g);
}

TEST(without_a_clock_pair_memory_stays_bounded)
{
	uint64_t t = now_ns();
	struct dl_ev_gpu_kernel k = kernel(t, 1, 1);
	struct dl_gpu *g;

	collector_make(SEALS);
	g = attach();
	for (int i = 0; i < 1000; i++) {	/* 60 MB of records in all */
		for (int n = 0; n < 900; n++)
			PUT(k);
		CHECK(dl_gpu_drain(g, now_ns()) >= 0);
	}
	CHECK_EQ(count(DL_EV_GPU_KERNEL), 0);
	CHECK(((const struct dl_ev_loss *)last(DL_EV_LOSS))->cnt > 100000);
	dl_gpu_close(g);
}

TEST(random_bytes_are_harmless)
{
	uint64_t x = 88172645463325252ULL;
	struct dl_gpu *g;

	collector_make(SEALS);
	g = attach();
	for (int round = 0; round < 200; round++) {
		for (size_t i = 0; i < DATA_SZ / 8; i++) {
			x ^= x << 13;
			x ^= x >> 7;
			x ^= x << 17;
			memcpy(data + 8 * i, &x, 8);
		}
		/* Plausible headers now and then, or nothing would get past the first check. */
		for (size_t off = 0; off + 128 < DATA_SZ; off += 24 + 8 * (x % 9)) {
			struct dl_hdr h = { .size = (uint16_t)(24 + 8 * (x % 9)), .kind = (uint16_t)(40 + x % 24) };

			x = x * 6364136223846793005ULL + 1442695040888963407ULL;
			memcpy(data + off, &h, 4);
		}
		hdr->head = hdr->tail + DATA_SZ - 8 * (x % 64);
		check_harmless(g);
	}
	dl_gpu_close(g);
}

/* --- processes ---------------------------------------------------------------------------------- */

TEST(a_child_that_inherited_the_descriptor_is_not_a_collector)
{
	struct dl_gpu_opts opts = { .mode = DL_GPU_MODE_STD };
	struct dl_gpu *g = NULL;
	pid_t pid;

	collector_make(SEALS);
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		pause();
		_exit(0);
	}
	CHECK_OK(dl_gpu_open(&g, &opts, &sink, NULL));
	CHECK_EQ(dl_gpu_probe(g, (uint32_t)pid), 0);
	CHECK_EQ(dl_gpu_probe(g, 0x7ffffffe), 0);
	dl_gpu_close(g);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

TEST(ids_of_the_same_namespace_stay)
{
	struct gpu_ids ids;

	CHECK_OK(gpu_ids_open(&ids, (uint32_t)getpid()));
	CHECK(ids.same);
	CHECK_EQ(ids.nspid, getpid());
	CHECK_EQ(gpu_ids_host(&ids, 12345, now_ns()), 12345);
	gpu_ids_fini(&ids);
	CHECK_EQ(gpu_ids_open(&ids, 0x7ffffffe), -ESRCH);
}

TEST(no_hint_for_what_does_not_use_cuda)
{
	char buf[512] = "x";

	CHECK_STR(dl_gpu_hint(NULL, (uint32_t)getpid(), buf, sizeof(buf)), "");
}
