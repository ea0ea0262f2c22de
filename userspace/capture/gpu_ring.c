/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Reading a ring whose other end is not trusted. It cannot be made to fault, since it is sealed
 * against shrinking; each record is copied first and looked at afterwards; and the work of one
 * round is bounded by the length of the ring, whatever the positions say.
 */
#include "capture/gpu_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/cleanup.h"

#define DATA_MIN_SZ 4096

struct shape {
	uint16_t kind;
	uint16_t fixed_sz;
	bool text;		/* a tail of text may follow */
	bool span;		/* ts and end are a start and an end */
};

#define SHAPE(KIND, tag, text_, span_) \
	{ DL_EV_##KIND, sizeof(struct dl_ev_##tag), text_, span_ }

/* Every span has its end right behind the header. */
static const struct shape shapes[] = {
	SHAPE(GPU_KERNEL, gpu_kernel, false, true),
	SHAPE(GPU_API, gpu_api, false, true),
	SHAPE(GPU_MEMCPY, gpu_memcpy, false, true),
	SHAPE(GPU_SYNC, gpu_sync, false, true),
	SHAPE(GPU_MEMSET, gpu_memset, false, true),
	SHAPE(GPU_GRAPH, gpu_graph, false, true),
	SHAPE(GPU_OVERHEAD, gpu_overhead, false, true),
	SHAPE(GPU_CLOCK, gpu_clock, false, false),
	SHAPE(GPU_DROP, gpu_drop, false, false),
	SHAPE(STRING, string, true, false),
	SHAPE(GPU_SOURCE, gpu_source, true, false),
	SHAPE(GPU_DEVICE, gpu_device, true, false),
};

static const struct shape *shape_of(unsigned int kind)
{
	for (size_t i = 0; i < ARRAY_SIZE(shapes); i++)
		if (shapes[i].kind == kind)
			return &shapes[i];
	return NULL;
}

int gpu_ring_map(struct gpu_ring *r, int fd, struct dl_diag *d)
{
	const int need = F_SEAL_SHRINK | F_SEAL_GROW;
	struct dl_gpu_ring hdr;
	struct stat st;
	int seals = fcntl(fd, F_GET_SEALS);
	void *mem;

	/* A memfd that can shrink would kill its reader by SIGBUS. */
	if (seals < 0 || (seals & need) != need)
		return dl_fail(d, -EPERM, "the collector's memory is not sealed");
	if (fstat(fd, &st))
		return dl_fail_errno(d, -errno, "fstat");
	if (st.st_size < DL_GPU_RING_HDR_SZ + DATA_MIN_SZ ||
	    st.st_size > DL_GPU_RING_HDR_SZ + (off_t)DL_GPU_RING_MAX_SZ)
		return dl_fail(d, -EPROTO, "the collector's memory has an impossible size");
	mem = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (mem == MAP_FAILED)
		return dl_fail_errno(d, -errno, "mmap");
	memcpy(&hdr, mem, sizeof(hdr));
	if (hdr.magic != DL_GPU_RING_MAGIC || hdr.abi != DL_GPU_RING_ABI ||
	    hdr.hdr_sz != DL_GPU_RING_HDR_SZ || hdr.data_sz & (hdr.data_sz - 1) ||
	    (off_t)hdr.data_sz != st.st_size - DL_GPU_RING_HDR_SZ) {
		munmap(mem, (size_t)st.st_size);
		return dl_fail(d, -EPROTO, hdr.magic == DL_GPU_RING_MAGIC && hdr.abi != DL_GPU_RING_ABI ?
			       "the collector in the process is of another version of dlbpf" :
			       "the collector's memory holds no ring");
	}
	*r = (struct gpu_ring){
		.hdr = mem, .data = (const uint8_t *)mem + DL_GPU_RING_HDR_SZ,
		.data_sz = hdr.data_sz, .map_sz = (size_t)st.st_size,
	};
	return 0;
}

void gpu_ring_unmap(struct gpu_ring *r)
{
	if (r->hdr)
		munmap(r->hdr, r->map_sz);
	memset(r, 0, sizeof(*r));
}

uint64_t gpu_ring_head(struct gpu_ring *r)
{
	uint64_t head = __atomic_load_n(&r->hdr->head, __ATOMIC_ACQUIRE);

	if (head - r->tail <= r->data_sz && head % 8 == 0)
		return head;
	/* Nonsense, or more than the ring holds was written without regard to us: begin anew there. */
	r->invalid++;
	r->tail = head & ~7ULL;
	return r->tail;
}

static bool believable(const struct shape *s, const union gpu_rec *rec)
{
	uint64_t end;

	if (!s->span)
		return true;
	memcpy(&end, rec->bytes + sizeof(struct dl_hdr), sizeof(end));
	/* Which of the two comes first is not certain before a jump of their clock is known. */
	return rec->h.ts && end && rec->h.ts < UINT64_MAX / 2 && end < UINT64_MAX / 2;
}

/* To what this build knows of the kind: shorter ones are filled up with zeroes, longer ones cut. */
static bool normalize(union gpu_rec *rec, size_t sz)
{
	const struct shape *s = shape_of(rec->h.kind);
	size_t len;

	if (!s)
		return false;
	if (!s->text) {
		if (sz < s->fixed_sz)
			memset(rec->bytes + sz, 0, s->fixed_sz - sz);
		rec->h.size = s->fixed_sz;
		return believable(s, rec);
	}
	if (sz < s->fixed_sz)
		return false;
	len = strnlen((const char *)rec->bytes + s->fixed_sz, sz - s->fixed_sz);
	for (size_t i = s->fixed_sz; i < s->fixed_sz + len; i++)
		if (rec->bytes[i] < ' ' || rec->bytes[i] == 0x7f)
			rec->bytes[i] = '?';
	rec->h.size = (uint16_t)(s->fixed_sz + len);
	return true;
}

bool gpu_ring_next(struct gpu_ring *r, uint64_t head, union gpu_rec *ret)
{
	while (r->tail != head) {
		uint64_t off = r->tail & (r->data_sz - 1), rest = r->data_sz - off;
		uint64_t left = head - r->tail;
		uint16_t size, kind;

		if (rest < sizeof(struct dl_hdr)) {	/* too short for a filler */
			r->tail += rest < left ? rest : left;
			continue;
		}
		if (left < sizeof(struct dl_hdr))
			goto bad;
		/* From here on only the copy counts; its size decides how much of it there is. */
		memcpy(&size, r->data + off + offsetof(struct dl_hdr, size), sizeof(size));
		memcpy(&kind, r->data + off + offsetof(struct dl_hdr, kind), sizeof(kind));
		if (size < sizeof(struct dl_hdr) || size % 8 || size > left || size > rest)
			goto bad;
		if (kind != DL_EV_NONE && size > sizeof(*ret))
			goto bad;
		r->tail += size;
		if (kind == DL_EV_NONE)
			continue;
		memcpy(ret, r->data + off, size);
		ret->h.size = size;
		ret->h.kind = kind;
		ret->h.cpu = DL_CPU_NONE;
		ret->h.flags = 0;
		if (normalize(ret, size))
			return true;
		r->invalid++;
	}
	return false;
bad:
	/* Where the next record starts is not known: all up to head is lost. */
	r->invalid++;
	r->tail = head;
	return false;
}

void gpu_ring_release(struct gpu_ring *r)
{
	__atomic_store_n(&r->hdr->tail, r->tail, __ATOMIC_RELEASE);
}

void gpu_ring_text(const struct gpu_ring *r, char *buf, size_t sz)
{
	char text[sizeof(r->hdr->text)];
	size_t i;

	memcpy(text, r->hdr->text, sizeof(text));
	for (i = 0; i + 1 < sz && i < sizeof(text) && text[i]; i++)
		buf[i] = text[i] < ' ' || text[i] == 0x7f ? '?' : text[i];
	buf[i] = '\0';
}
