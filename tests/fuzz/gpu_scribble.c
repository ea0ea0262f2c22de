/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * A hostile process against the recorder's end of the GPU ring, both running: the child makes a
 * ring, or something that only looks like one, and scribbles over its header and records while the
 * parent probes, drains, switches and stops. What it does is decided by a seed; how the two
 * interleave is not, so this is for the sanitizers to watch.
 *
 *   gpu_scribble FIRST_SEED COUNT
 */
#include <fcntl.h>
#include <linux/futex.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <dlbpf/gpu_ring.h>

#include "capture/gpu.h"

#define ROUNDS 40
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

#define MUST(cond) do { \
	if (!(cond)) { \
		fprintf(stderr, "gpu_scribble: seed %llu: %s does not hold\n", seed, #cond); \
		abort(); \
	} \
} while (0)

static unsigned long long seed;
static uint32_t child_pid;
static uint64_t emitted, scribbled;

/* Shared with the child: how often it has written, so that it is known to have done so. */
static struct { _Atomic uint64_t passes; _Atomic bool scribbles; } *seen;

static uint64_t next(uint64_t *x)
{
	*x = *x * 6364136223846793005ULL + 1442695040888963407ULL;
	return *x >> 16;
}

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ULL + (uint64_t)ts.tv_nsec;
}

static int check(struct dl_sink *sink, const struct dl_hdr *ev)
{
	uint64_t end;

	(void)sink;
	emitted++;
	MUST(ev->size >= sizeof(*ev) && ev->size <= DL_EVENT_MAX_SZ);
	MUST(ev->kind >= DL_EV_GPU_SOURCE && ev->kind < DL_EV_MAX);
	MUST(ev->kind == DL_EV_LOSS || ev->pid == child_pid);
	if (ev->kind >= DL_EV_GPU_KERNEL && ev->kind <= DL_EV_GPU_API) {
		memcpy(&end, ev + 1, sizeof(end));
		MUST(ev->ts && ev->ts <= end && end <= now_ns() + 3000000000ULL);
	}
	return 0;
}

/* Sealed or not, of a good size or not, even no memfd at all. */
static int make_memory(uint64_t *x, size_t *ret_sz)
{
	static const size_t odd[] = {
		0, 1, 4095, 4096, 8191, 16384 + 1, 1UL << 33, DL_GPU_RING_HDR_SZ + (12U << 20),
	};
	unsigned int kind = next(x) % 8;
	size_t sz = DL_GPU_RING_HDR_SZ + (4096U << next(x) % 5);
	int fd = memfd_create(DL_GPU_MEMFD, MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (kind == 7)
		sz = odd[next(x) % (sizeof(odd) / sizeof(odd[0]))];
	if (fd < 0 || ftruncate(fd, (off_t)sz))
		_exit(9);
	if (kind != 6)
		fcntl(fd, F_ADD_SEALS, kind == 5 ? F_SEAL_GROW : SEALS);
	*ret_sz = sz;
	return fd;
}

/* Mostly one that could be true, now and then one larger than any is. Returns the size that it claims. */
static uint16_t scribble_record(uint8_t *p, size_t room, uint64_t *x)
{
	struct dl_hdr h = {
		.size = (uint16_t)next(x), .kind = (uint16_t)(40 + next(x) % 24),
		.ts = next(x) % 4 ? now_ns() + 1795993439000000000ULL : next(x), .pid = (uint32_t)next(x),
	};
	uint64_t body[4] = { h.ts + next(x) % 100000, next(x), next(x), next(x) };

	if (h.kind == DL_EV_GPU_CLOCK) {
		h.ts = next(x) % 4 ? now_ns() : next(x);
		body[0] = next(x) % 4 ? h.ts + 1795993439000000000ULL : next(x);
	}
	if (next(x) % 8)
		h.size = 32 + 8 * (next(x) % 10);
	else if (next(x) % 2)
		h.size &= (uint16_t)~7U;
	if (room < sizeof(h) + sizeof(body))
		return (uint16_t)room;
	memcpy(p, &h, sizeof(h));
	memcpy(p + sizeof(h), body, sizeof(body));
	return h.size;
}

static void scribble(struct dl_gpu_ring *hdr, size_t sz, uint64_t x)
{
	uint8_t *all = (uint8_t *)hdr, *data = all + DL_GPU_RING_HDR_SZ;
	size_t data_sz = sz - DL_GPU_RING_HDR_SZ, at;

	for (;;) {
		uint64_t r = next(&x);

		seen->passes++;
		switch (r % 16) {
		case 0:		/* anything in the header, magic and sizes too */
			all[next(&x) % sizeof(*hdr)] = (uint8_t)next(&x);
			break;
		case 1:
			hdr->head = next(&x) % 3 ? hdr->tail + next(&x) % (2 * data_sz) : next(&x) << 20;
			break;
		case 2:
			hdr->tail = next(&x);
			break;
		case 3:
			hdr->state = (uint32_t)next(&x) % 5;
			hdr->busy = (uint32_t)next(&x) % 2;
			hdr->error = (int32_t)next(&x) % 3;
			break;
		case 4:
			hdr->want = (uint32_t)next(&x);
			syscall(SYS_futex, &hdr->want, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
			break;
		case 5:
			memset(hdr->text, (int)(1 + next(&x) % 255), sizeof(hdr->text));
			break;
		default:
			at = next(&x) % 4 ? hdr->head % data_sz & ~7ULL : next(&x) % data_sz;
			r = scribble_record(data + at, data_sz - at, &x);
			hdr->head += next(&x) % 8 ? r : 8 * (next(&x) % 20);
			if (hdr->head - hdr->tail > data_sz && next(&x) % 8)
				usleep(20);	/* full: what is there is to be read */
		}
	}
}

static void hostile(int ready)
{
	uint64_t x = seed * 0x9e3779b97f4a7c15ULL + 1;
	struct dl_gpu_ring *hdr;
	size_t sz;
	int fd = make_memory(&x, &sz);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	hdr = sz > DL_GPU_RING_HDR_SZ + 64 && sz < 1U << 28 ?
	      mmap(NULL, sz, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
	if (hdr != MAP_FAILED)
		*hdr = (struct dl_gpu_ring){
			.magic = DL_GPU_RING_MAGIC, .abi = DL_GPU_RING_ABI, .hdr_sz = DL_GPU_RING_HDR_SZ,
			.data_sz = (uint32_t)(sz - DL_GPU_RING_HDR_SZ),
			.pid = next(&x) % 8 ? (uint32_t)getpid() : 1,	/* or a lie */
		};
	seen->scribbles = hdr != MAP_FAILED && sz > DL_GPU_RING_HDR_SZ + 256;
	if (write(ready, "x", 1) != 1)
		_exit(9);
	if (seen->scribbles)
		scribble(hdr, sz, x);
	for (;;) {		/* tries to pull the memory away */
		if (ftruncate(fd, (off_t)(next(&x) % 8192)))
			usleep(100);
	}
}

/* Until the child has written something since the last look, on whatever CPU it runs; a second at most. */
static void let_it_scribble(uint64_t *last)
{
	for (int i = 0; i < 10000 && seen->scribbles && seen->passes == *last; i++)
		usleep(100);
	*last = seen->passes;
}

static void record(void)
{
	struct dl_gpu_opts opts = { .mode = DL_GPU_MODE_STD };
	struct dl_sink sink = { .emit = check };
	struct dl_gpu *g;
	uint64_t last = 0;
	char text[512];

	MUST(!dl_gpu_open(&g, &opts, &sink, NULL));
	for (int i = 0; i < ROUNDS; i++) {
		MUST(dl_gpu_probe(g, child_pid) >= 0);
		MUST(dl_gpu_drain(g, now_ns()) >= 0);
		let_it_scribble(&last);
		dl_gpu_describe(g, text, sizeof(text));
		for (const char *p = text; *p; p++)
			MUST((unsigned char)*p >= ' ' && *p != 0x7f);
		dl_gpu_set_mode(g, 1 + (uint32_t)i % 3);
	}
	if (seed % 8 == 0)
		MUST(dl_gpu_stop(g) >= 0);
	kill((pid_t)child_pid, SIGKILL);
	waitpid((pid_t)child_pid, NULL, 0);
	MUST(dl_gpu_forget(g, child_pid) >= 0);
	dl_gpu_close(g);
	scribbled += last > 1;
}

int main(int argc, char **argv)
{
	unsigned long long first = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
	unsigned long long cnt = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;

	seen = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	MUST(seen != MAP_FAILED);
	for (seed = first; seed < first + cnt; seed++) {
		int ready[2];
		pid_t pid;
		char c;

		seen->passes = 0;
		seen->scribbles = false;
		MUST(!pipe(ready));
		pid = fork();
		MUST(pid >= 0);
		if (!pid)
			hostile(ready[1]);
		close(ready[1]);
		child_pid = (uint32_t)pid;
		MUST(read(ready[0], &c, 1) == 1);
		close(ready[0]);
		record();
	}
	printf("%llu seeds, %llu scribbled while they were drained, %llu events\n", cnt,
	       (unsigned long long)scribbled, (unsigned long long)emitted);
	/* Of many, a ring is made and written by a third at least, and some of it is believed. */
	MUST(cnt < 100 || (scribbled > cnt / 3 && emitted));
	return 0;
}
