/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The GPU part of a recorder alone, for tests: finds the collector of a process, switches it on,
 * drains it and prints every event as a line of name=value. Commands come as lines on stdin
 * ("describe", "hint PID", "mode N", "stop", "quiet MS": neither beats nor drains meanwhile); the end of
 * stdin ends it.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <dlbpf/gpu_ring.h>

#include "capture/gpu.h"

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ULL + (uint64_t)ts.tv_nsec;
}

static void print_u(const char *name, uint64_t v)
{
	printf(" %s=%llu", name, (unsigned long long)v);
}

static void print_c16(const char *name, dl_c16 v)
{
	printf(" %s=%.16s", name, v.s);
}

static void print_x32(const char *name, dl_x32 v)
{
	printf(" %s=%02x..", name, v.b[0]);
}

#define PRINT_u16 print_u
#define PRINT_u32 print_u
#define PRINT_u64 print_u
#define PRINT_s32 print_u
#define PRINT_s64 print_u
#define PRINT_c16 print_c16
#define PRINT_x32 print_x32

static int print_event(struct dl_sink *unused, const struct dl_hdr *ev)
{
	size_t fixed = 0;

	(void)unused;
	switch (ev->kind) {
#define EVENT(NAME, tag, id, group, tail, doc) case id: { \
		const struct dl_ev_##tag *e = (const void *)ev; \
		fixed = sizeof(*e); \
		printf(#tag " ts=%llu pid=%u tid=%u unsure=%u", (unsigned long long)ev->ts, ev->pid, \
		       ev->tid, !!(ev->flags & DL_HDR_UNSURE));
#define FIELD(tag, type, name, unit, doc) PRINT_##type(#name, e->name);
#define END(NAME, tag) break; }
#include <dlbpf/events.def>
#undef EVENT
#undef FIELD
#undef END
	}
	if (ev->size > fixed)
		printf(" text=%.*s", (int)(ev->size - fixed), (const char *)ev + fixed);
	putchar('\n');
	return 0;
}

static bool command(struct dl_gpu *g)
{
	char line[256], text[4096];
	unsigned int arg;

	if (!fgets(line, sizeof(line), stdin))
		return false;
	if (!strncmp(line, "describe", 8)) {
		printf("# %s\n", dl_gpu_describe(g, text, sizeof(text)));
	} else if (sscanf(line, "hint %u", &arg) == 1) {
		printf("# %s\n", dl_gpu_hint(g, arg, text, sizeof(text)));
	} else if (sscanf(line, "mode %u", &arg) == 1) {
		dl_gpu_set_mode(g, arg);
		printf("# mode\n");
	} else if (sscanf(line, "quiet %u", &arg) == 1) {
		usleep(arg * 1000);
		printf("# quiet\n");
	} else if (!strncmp(line, "stop", 4)) {
		printf("# stopped %d\n", dl_gpu_stop(g) < 0);
		return false;
	}
	return true;
}

int main(int argc, char **argv)
{
	struct dl_sink sink = { .emit = print_event };
	struct dl_gpu_opts opts = { .mode = DL_GPU_MODE_STD };
	struct pollfd in = { .fd = 0, .events = POLLIN };
	struct dl_diag d = {};
	struct dl_gpu *g;
	uint64_t next = 0;
	int c, first;

	while ((c = getopt(argc, argv, "m:f:")) != -1) {
		if (c == 'm')
			opts.mode = (uint32_t)atoi(optarg);
		else
			opts.flush_ms = (uint32_t)atoi(optarg);
	}
	first = optind;
	if (dl_gpu_open(&g, &opts, &sink, &d)) {
		fprintf(stderr, "gpurec: %s\n", d.msg);
		return 1;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	setvbuf(stdin, NULL, _IONBF, 0);
	printf("# ready\n");
	for (;;) {
		int n = poll(&in, 1, 20);

		if (n > 0 && !command(g))
			break;
		for (int i = first; now_ns() >= next && i < argc; i++) {
			uint32_t pid = (uint32_t)atoi(argv[i]);
			int ret = dl_gpu_probe(g, pid);

			if (ret < 0)
				printf("# probe %u: %s\n", pid, strerror(-ret));
			if (kill(pid, 0) && errno == ESRCH)
				dl_gpu_forget(g, pid);
		}
		if (now_ns() >= next)
			next = now_ns() + 50000000;
		if (dl_gpu_drain(g, now_ns()) < 0)
			return 1;
	}
	for (int i = first; i < argc; i++)
		if (kill(atoi(argv[i]), 0))
			dl_gpu_forget(g, (uint32_t)atoi(argv[i]));
	dl_gpu_close(g);
	printf("# end\n");
	return 0;
}
