/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The recorder's end of the GPU ring, fed with what a hostile process could leave in it. Input:
 * u32 where reading begins, then rounds of { u32 how far head moves, u16 bytes, the bytes }.
 *
 * With clang -fsanitize=fuzzer a fuzz target; else a program that replays the files given, and with
 * -n COUNT mutations of each. It aborts when an event comes out that may not.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <dlbpf/gpu_ring.h>

#include "capture/gpu.h"

#define DATA_SZ 8192U
#define ROUNDS_MAX 64

int LLVMFuzzerTestOneInput(const uint8_t *in, size_t sz);

static struct dl_gpu_ring *hdr;
static uint8_t *data;
static uint64_t now, emitted;

#define MUST(cond) do { \
	if (!(cond)) { \
		fprintf(stderr, "fuzz_gpu_ring: %s does not hold\n", #cond); \
		abort(); \
	} \
} while (0)

static int check(struct dl_sink *sink, const struct dl_hdr *ev)
{
	uint64_t end;

	(void)sink;
	emitted++;
	MUST(ev->size >= sizeof(*ev) && ev->size <= DL_EVENT_MAX_SZ);
	MUST(ev->kind == DL_EV_LOSS || ev->pid == (uint32_t)getpid());
	MUST(ev->kind >= DL_EV_GPU_SOURCE && ev->kind < DL_EV_MAX);
	switch (ev->kind) {
	case DL_EV_GPU_KERNEL:
	case DL_EV_GPU_MEMCPY:
	case DL_EV_GPU_MEMSET:
	case DL_EV_GPU_SYNC:
	case DL_EV_GPU_API:
	case DL_EV_GPU_GRAPH:
	case DL_EV_GPU_OVERHEAD:
		memcpy(&end, ev + 1, sizeof(end));
		MUST(ev->ts && ev->ts <= end && end <= now + 3000000000ULL);
		break;
	}
	return 0;
}

static void set_up(void)
{
	int fd = memfd_create(DL_GPU_MEMFD, MFD_CLOEXEC | MFD_ALLOW_SEALING);

	MUST(fd >= 0 && !ftruncate(fd, DL_GPU_RING_HDR_SZ + DATA_SZ));
	hdr = mmap(NULL, DL_GPU_RING_HDR_SZ + DATA_SZ, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	MUST(hdr != MAP_FAILED);
	MUST(!fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL));
	data = (uint8_t *)hdr + DL_GPU_RING_HDR_SZ;
}

static uint64_t take(const uint8_t **in, size_t *sz, size_t n)
{
	uint64_t v = 0;

	n = n < *sz ? n : *sz;
	memcpy(&v, *in, n);
	*in += n;
	*sz -= n;
	return v;
}

int LLVMFuzzerTestOneInput(const uint8_t *in, size_t sz)
{
	struct dl_gpu_opts opts = { .mode = DL_GPU_MODE_STD };
	struct dl_sink sink = { .emit = check };
	struct timespec ts;
	struct dl_gpu *g;

	if (!hdr)
		set_up();
	*hdr = (struct dl_gpu_ring){
		.magic = DL_GPU_RING_MAGIC, .abi = DL_GPU_RING_ABI, .hdr_sz = DL_GPU_RING_HDR_SZ,
		.data_sz = DATA_SZ, .pid = (uint32_t)getpid(), .head = take(&in, &sz, 4) & ~7ULL,
	};
	memset(data, 0, DATA_SZ);
	MUST(!dl_gpu_open(&g, &opts, &sink, NULL));
	MUST(dl_gpu_probe(g, (uint32_t)getpid()) == 1);
	for (int round = 0; sz && round < ROUNDS_MAX; round++) {
		int32_t move = (int32_t)take(&in, &sz, 4);
		size_t n = take(&in, &sz, 2);

		n = n < sz ? n : sz;
		for (size_t i = 0; i < n; i++)
			data[(hdr->head + i) & (DATA_SZ - 1)] = in[i];
		in += n;
		sz -= n;
		hdr->head += (uint64_t)(int64_t)move;
		clock_gettime(CLOCK_MONOTONIC, &ts);
		now = (uint64_t)ts.tv_sec * 1000000000ULL + (uint64_t)ts.tv_nsec;
		emitted = 0;
		MUST(dl_gpu_drain(g, now) >= 0);
		/* What was held back may come at once, but no more than was ever written. */
		MUST(emitted <= (uint64_t)(round + 1) * (DATA_SZ / sizeof(struct dl_hdr)) + 8);
	}
	MUST(dl_gpu_forget(g, (uint32_t)getpid()) >= 0);
	dl_gpu_close(g);
	return 0;
}

#ifndef FUZZ_LIBFUZZER

static void mutate(uint8_t *buf, size_t sz, uint64_t *x)
{
	for (int i = 0; i < 1 + (int)(*x % 5) && sz; i++) {
		*x = *x * 6364136223846793005ULL + 1442695040888963407ULL;
		if (*x >> 60 & 1)
			buf[(*x >> 20) % sz] = (uint8_t)(*x >> 8);
		else
			buf[(*x >> 20) % sz] ^= (uint8_t)(1 << (*x >> 8 & 7));
	}
}

int main(int argc, char **argv)
{
	static uint8_t file[1 << 16], buf[1 << 16];
	uint64_t x = 88172645463325252ULL;
	long mutations = 0, runs = 0;
	int i = 1;

	if (argc > 2 && !strcmp(argv[1], "-n")) {
		mutations = atol(argv[2]);
		i = 3;
	}
	for (; i < argc; i++) {
		FILE *f = fopen(argv[i], "rb");
		size_t sz = f ? fread(file, 1, sizeof(file), f) : 0;

		if (!f) {
			perror(argv[i]);
			return 1;
		}
		fclose(f);
		LLVMFuzzerTestOneInput(file, sz);
		for (long n = 0; n < mutations; n++, runs++) {
			memcpy(buf, file, sz);
			mutate(buf, sz, &x);
			LLVMFuzzerTestOneInput(buf, n % 7 ? sz : sz - (size_t)n % (sz + 1));
		}
	}
	printf("%ld runs\n", runs + argc - (mutations ? 3 : 1));
	return 0;
}

#endif
