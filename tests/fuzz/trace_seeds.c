/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Writes the seeds of fuzz_trace and fuzz_frame: small traces of each shape, and the payloads of
 * their frames.
 *
 *	trace_seeds tests/fuzz/corpus
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <zstd.h>

#include "base/vec.h"
#include "trace/format.h"

static uint64_t state = 1;

static uint64_t rnd(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	return state ^= state << 17;
}

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void save(const char *dir, const char *kind, const char *name, const void *head,
		 size_t head_sz, const void *p, size_t sz)
{
	char path[512];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s/%s", dir, kind, name);
	f = fopen(path, "wb");
	if (!f || fwrite(head, 1, head_sz, f) != head_sz || fwrite(p, 1, sz, f) != sz || fclose(f))
		die(path);
}

/* Files with few kinds have a short schema, of which a mutation more often hits something else. */
static unsigned int kinds[8];

static const struct dl_event_desc *only_kinds(unsigned int kind)
{
	for (size_t i = 0; i < 8; i++) {
		if (kind && kinds[i] == kind)
			return dl_event_desc(kind);
	}
	return NULL;
}

static const struct dl_hdr *make(const struct dl_event_desc *desc, uint64_t ts)
{
	static union { struct dl_hdr h; struct dl_ev_stack stack; uint8_t b[DL_EVENT_MAX_SZ]; } ev;
	size_t tail = desc->tail == DL_TAIL_NONE ? 0 : 8 * (rnd() % 4);

	memset(&ev, 0, sizeof(ev));
	for (unsigned int i = 0; i < desc->field_cnt; i++) {
		const struct dl_field *f = &desc->fields[i];
		uint64_t num = rnd() % 3 ? rnd() % 5 : f->unit == DL_UNIT_TIME ? ts + rnd() % 1000 : rnd();

		memcpy(ev.b + f->off, &num, f->size < 8 ? f->size : 8);
	}
	memset(ev.b + desc->size, 'a', tail);
	ev.h.size = (uint16_t)(desc->size + tail);
	ev.h.kind = desc->kind;
	ev.h.ts = ts;
	ev.h.tid = (uint32_t)(10 + rnd() % 3);
	ev.h.pid = 10;
	ev.h.cpu = (uint16_t)(rnd() % 2);
	if (desc->kind == DL_EV_STACK) {
		ev.stack.kernel_cnt = 0;
		ev.stack.user_cnt = (uint16_t)(tail / 8);
	}
	return &ev.h;
}

/* The payload of every frame of the file, with the head that fuzz_frame.c expects. */
static void save_frames(const char *dir, const char *name, const uint8_t *p, size_t sz, uint64_t id)
{
	size_t off = dl_get(p + 12, 4);
	struct dl_frame_hdr h;

	for (int i = 0; dl_frame_hdr_parse(&h, p + off, sz - off, id) && i < 2; i++) {
		uint8_t head[64], *at = head, *raw = malloc(h.payload_sz);
		char as[64];

		if (!raw || h.kinds > 16)
			die("frame");
		ZSTD_decompress(raw, h.payload_sz, p + off + h.header_sz, h.comp_sz);
		at = dl_put(at, h.kinds - 1, 1);
		for (uint32_t k = 0; k < h.kinds; k++) {
			at = dl_put(at, h.kind[k].kind, 1);
			at = dl_put(at, h.kind[k].cnt - 1, 1);
		}
		at = dl_put(at, h.first_ts, 8);
		at = dl_put(at, h.last_ts, 8);
		snprintf(as, sizeof(as), "%s-%d", name, i);
		save(dir, "frame", as, head, (size_t)(at - head), raw, h.payload_sz);
		free(raw);
		off += h.header_sz + h.comp_sz;
	}
}

/* end: bytes to cut off; how: the first byte of the input, see fuzz_trace.c */
static void seed(const char *dir, const char *name, int events, uint64_t back, size_t end, uint8_t how)
{
	const struct dl_trace_writer_opts opts = { .frame_raw_sz = 4096 };
	const struct dl_trace_meta meta = { .start_ts = 1, .host = "h", .target_pid = 10 };
	struct dl_trace_writer *w;
	char path[] = "/tmp/trace_seeds.XXXXXX";
	static uint8_t file[1 << 20];
	int fd = mkstemp(path), in = open(path, O_RDONLY);
	uint64_t ts = 1000000;
	ssize_t sz;

	if (fd < 0 || in < 0 || dl_trace_writer_open_desc(&w, fd, &meta, &opts, only_kinds, NULL))
		die(path);
	for (int i = 0; i < events; i++) {
		const struct dl_event_desc *desc;

		do
			desc = only_kinds(kinds[rnd() % 8]);
		while (!desc);
		ts += rnd() % 2000;
		if (dl_trace_write(w, make(desc, ts - rnd() % (back + 1))))
			die("dl_trace_write");
	}
	if (dl_trace_writer_close(w, NULL))
		die("dl_trace_writer_close");
	sz = read(in, file, sizeof(file));
	close(in);
	unlink(path);
	if (sz <= (ssize_t)end)
		die(path);
	save(dir, "trace", name, &how, 1, file, (size_t)sz - end);
	save_frames(dir, name, file, (size_t)sz, dl_get(file + 16, 8));
}

#define KINDS(...) memcpy(kinds, (const unsigned int[8]){ __VA_ARGS__ }, sizeof(kinds))

int main(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "usage: trace_seeds DIR\n");
		return 2;
	}
	KINDS(DL_EV_WAKE);
	seed(argv[1], "one", 1, 0, 0, 1);
	seed(argv[1], "wakes", 60, 0, 0, 3);
	KINDS(DL_EV_SWITCH, DL_EV_WAKE);
	seed(argv[1], "sched", 120, 0, 0, 1);
	seed(argv[1], "overlapping", 120, 300000, 0, 3);
	seed(argv[1], "no-footer", 90, 0, 10, 1);
	seed(argv[1], "torn", 90, 5000, 700, 1);
	KINDS(DL_EV_STACK, DL_EV_EXEC, DL_EV_MMAP, DL_EV_NAME);
	seed(argv[1], "tails", 60, 1000, 0, 3);
	KINDS(DL_EV_GPU_KERNEL, DL_EV_GPU_API, DL_EV_STRING, DL_EV_LOSS, DL_EV_ENV_HOST);
	seed(argv[1], "gpu", 80, 1000000, 0, 1);
	seed(argv[1], "checksums", 20, 0, 0, 0);
	return 0;
}
