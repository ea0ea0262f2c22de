/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The ring that the recorder maps: made once, sealed, written by the collector's thread only. */
#include "agent.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define RING_DATA_SZ (4U << 20)	/* about 60,000 kernel records; pages are charged when touched */
#define RING_URGENT_SZ 4096	/* kept for clock pairs and drop counts */

#ifndef MFD_CLOEXEC
#define MFD_CLOEXEC 1U
#define MFD_ALLOW_SEALING 2U
#endif
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8U	/* Linux 6.3; vm.memfd_noexec can demand it */
#endif
#ifndef F_ADD_SEALS
#define F_ADD_SEALS 1033
#define F_SEAL_SEAL 1
#define F_SEAL_SHRINK 2
#define F_SEAL_GROW 4
#endif

static struct {
	struct dl_gpu_ring *hdr;
	uint8_t *data;
	uint32_t data_sz;
	int fd;
	uint64_t pos;		/* where the next record goes */
	uint64_t tail;		/* the recorder's position when last looked at */
	uint64_t lost;
} ring = { .fd = -1 };

/* DLBPF_GPU_RING_KB: another size, a power of two of at least 64. */
static uint32_t wanted_size(void)
{
	const char *s = getenv("DLBPF_GPU_RING_KB");
	uint32_t kb = 0;

	for (; s && *s >= '0' && *s <= '9' && kb < (1U << 20); s++)
		kb = kb * 10 + (uint32_t)(*s - '0');
	if (kb < 64 || kb & (kb - 1) || kb << 10 > DL_GPU_RING_MAX_SZ)
		return RING_DATA_SZ;
	return kb << 10;
}

int ring_open(void)
{
	uint32_t data_sz = wanted_size();
	size_t map_sz = DL_GPU_RING_HDR_SZ + data_sz;
	struct timespec now;
	void *mem;
	int fd;

	fd = (int)syscall(SYS_memfd_create, DL_GPU_MEMFD, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
	if (fd < 0 && errno == EINVAL)
		fd = (int)syscall(SYS_memfd_create, DL_GPU_MEMFD, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -errno;
	if (ftruncate(fd, (off_t)map_sz))
		goto err;
	mem = mmap(NULL, map_sz, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (mem == MAP_FAILED)
		goto err;
	/* Forked workers must not keep the ring alive, nor be able to write it. */
	madvise(mem, map_sz, MADV_DONTFORK);
	clock_gettime(CLOCK_MONOTONIC, &now);
	ring.hdr = mem;
	ring.data = (uint8_t *)mem + DL_GPU_RING_HDR_SZ;
	ring.data_sz = data_sz;
	ring.hdr->abi = DL_GPU_RING_ABI;
	ring.hdr->hdr_sz = DL_GPU_RING_HDR_SZ;
	ring.hdr->data_sz = data_sz;
	ring.hdr->pid = (uint32_t)getpid();
	ring.hdr->start_ns = (uint64_t)now.tv_sec * 1000000000ULL + (uint64_t)now.tv_nsec;
	/* The recorder looks at the seals first and at the magic next: both come last. */
	__atomic_store_n(&ring.hdr->magic, DL_GPU_RING_MAGIC, __ATOMIC_RELEASE);
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)) {
		munmap(mem, map_sz);
		ring.hdr = NULL;
		goto err;
	}
	ring.fd = fd;
	return 0;
err:
	close(fd);
	return -EIO;
}

struct dl_gpu_ring *ring_header(void)
{
	return ring.hdr;
}

void ring_leave(void)
{
	if (ring.fd >= 0)
		close(ring.fd);
	ring.fd = -1;
	ring.hdr = NULL;	/* not mapped here: MADV_DONTFORK */
	ring.data = NULL;
}

static bool room_for(uint64_t need)
{
	uint64_t used = ring.pos - ring.tail;

	if (used <= ring.data_sz && need <= ring.data_sz - used)
		return true;
	ring.tail = __atomic_load_n(&ring.hdr->tail, __ATOMIC_ACQUIRE);
	used = ring.pos - ring.tail;
	return used <= ring.data_sz && need <= ring.data_sz - used;
}

/* Reserves sz bytes in one piece, filling the end of the ring where they do not fit there. */
static uint8_t *reserve(size_t sz, bool urgent)
{
	uint64_t off = ring.pos & (ring.data_sz - 1);
	uint64_t rest = ring.data_sz - off, skip = 0;

	/* Nor may a rest remain that is too short for the header of a filler. */
	if (rest < sz || (rest > sz && rest - sz < sizeof(struct dl_hdr)))
		skip = rest;
	if (!room_for(skip + sz + (urgent ? 0 : RING_URGENT_SZ))) {
		ring.lost++;
		return NULL;
	}
	if (skip) {
		struct dl_hdr fill = { .size = (uint16_t)skip, .kind = DL_EV_NONE };

		memcpy(ring.data + off, &fill, sizeof(fill));
		ring.pos += skip;
	}
	return ring.data + (ring.pos & (ring.data_sz - 1));
}

bool ring_put(const void *rec, size_t sz, bool urgent)
{
	uint8_t *p = reserve(sz, urgent);

	if (!p)
		return false;
	memcpy(p, rec, sz);
	ring.pos += sz;
	return true;
}

bool ring_put_text(struct dl_hdr *rec, size_t fixed_sz, const char *text, size_t len, bool urgent)
{
	size_t sz;
	uint8_t *p;

	if (len > DL_EVENT_MAX_SZ - fixed_sz)
		len = DL_EVENT_MAX_SZ - fixed_sz;
	sz = (fixed_sz + len + 7) & ~(size_t)7;
	rec->size = (uint16_t)sz;
	p = reserve(sz, urgent);
	if (!p)
		return false;
	memcpy(p, rec, fixed_sz);
	memcpy(p + fixed_sz, text, len);
	memset(p + fixed_sz + len, 0, sz - fixed_sz - len);
	ring.pos += sz;
	return true;
}

void ring_publish(void)
{
	__atomic_store_n(&ring.hdr->dropped_ring, ring_lost_cnt(), __ATOMIC_RELAXED);
	__atomic_store_n(&ring.hdr->head, ring.pos, __ATOMIC_RELEASE);
}

uint64_t ring_lost_cnt(void)
{
	return ring.lost + pool_lost_cnt();
}

void ring_set_text(const char *fmt, ...)
{
	char text[sizeof(ring.hdr->text)] = { 0 };
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	memcpy(ring.hdr->text, text, sizeof(text));
}
