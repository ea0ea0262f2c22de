/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* GPU events, names, stacks and the recording itself, for traces made by hand. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "synth/internal.h"

/* --- GPU --- */

static struct dl_hdr gpu_header(uint16_t kind, size_t sz, uint64_t ts, uint32_t tid, uint32_t pid)
{
	return (struct dl_hdr){ .size = (uint16_t)sz, .kind = kind, .ts = ts, .tid = tid,
				.pid = pid, .cpu = DL_CPU_NONE };
}

#define GPU_HEADER(KIND, tag, ts, tid, pid) \
	gpu_header(DL_EV_GPU_##KIND, sizeof(struct dl_ev_gpu_##tag), ts, tid, pid)

void synth_gpu_source(struct synth *s, uint64_t ts, uint32_t pid, uint32_t state, uint32_t flags,
		      const char *text)
{
	struct dl_ev_gpu_source ev = {
		.h = GPU_HEADER(SOURCE, source, ts, pid, pid),
		.state = state,
		.version = 18,
		.driver = 12020,
		.flags = flags,
	};

	synth_event_text(s, &ev.h, text);
}

void synth_gpu_device(struct synth *s, uint64_t ts, uint32_t pid, uint32_t device, uint32_t flags,
		      const char *name)
{
	struct dl_ev_gpu_device ev = {
		.h = GPU_HEADER(DEVICE, device, ts, pid, pid),
		.device = device,
		.flags = flags,
		.mem_total = 16ULL << 30,
	};

	synth_event_text(s, &ev.h, name);
}

void synth_kernel(struct synth *s, uint64_t ts, uint64_t end, uint32_t pid, uint32_t device,
		  uint32_t stream, uint32_t corr, const char *name)
{
	struct dl_ev_gpu_kernel ev = {
		.h = GPU_HEADER(KERNEL, kernel, ts, 0, pid),
		.end = end,
		.device = device,
		.context = device + 1,
		.stream = stream,
		.corr = corr,
		.name = synth_string(s, ts, pid, name),
	};

	synth_event(s, &ev.h);
}

void synth_memcpy(struct synth *s, uint64_t ts, uint64_t end, uint32_t pid, uint32_t device,
		  uint32_t stream, uint32_t corr, uint16_t dir, uint16_t host_mem, uint64_t bytes)
{
	struct dl_ev_gpu_memcpy ev = {
		.h = GPU_HEADER(MEMCPY, memcpy, ts, 0, pid),
		.end = end,
		.bytes = bytes,
		.device = device,
		.context = device + 1,
		.stream = stream,
		.corr = corr,
		.dir = dir,
		.src = dir == DL_GPU_HTOD ? host_mem : DL_GPU_MEM_DEVICE,
		.dst = dir == DL_GPU_DTOH ? host_mem : DL_GPU_MEM_DEVICE,
		.flags = host_mem == DL_GPU_MEM_PINNED,
	};

	synth_event(s, &ev.h);
}

void synth_memset(struct synth *s, uint64_t ts, uint64_t end, uint32_t pid, uint32_t device,
		  uint32_t stream, uint32_t corr, uint64_t bytes)
{
	struct dl_ev_gpu_memset ev = {
		.h = GPU_HEADER(MEMSET, memset, ts, 0, pid),
		.end = end,
		.bytes = bytes,
		.device = device,
		.context = device + 1,
		.stream = stream,
		.corr = corr,
	};

	synth_event(s, &ev.h);
}

void synth_sync(struct synth *s, uint64_t ts, uint64_t end, uint32_t tid, uint32_t pid,
		uint32_t type, uint32_t stream, uint32_t corr)
{
	struct dl_ev_gpu_sync ev = {
		.h = GPU_HEADER(SYNC, sync, ts, tid, pid),
		.end = end,
		.type = type,
		.context = 1,
		.stream = stream,
		.event = 0xffffffff,
		.corr = corr,
	};

	synth_event(s, &ev.h);
}

void synth_api(struct synth *s, uint64_t ts, uint64_t end, uint32_t tid, uint32_t pid,
	       uint32_t corr, uint32_t class, const char *name)
{
	struct dl_ev_gpu_api ev = {
		.h = GPU_HEADER(API, api, ts, tid, pid),
		.end = end,
		.domain = DL_GPU_RUNTIME,
		.corr = corr,
		.class = class,
		.name = synth_string(s, ts, pid, name),
	};

	synth_event(s, &ev.h);
}

/* --- names --- */

static const struct text *find_text(const struct text *v, size_t cnt, uint32_t pid, const char *text)
{
	for (size_t i = 0; i < cnt; i++) {
		if (v[i].pid == pid && !strcmp(v[i].s, text))
			return &v[i];
	}
	return NULL;
}

/* Adds the text; its id counts from 1. NULL without memory. */
static const struct text *add_text(struct synth *s, void *texts, uint32_t pid, const char *text)
{
	__typeof__(s->strings) *v = texts;
	struct text *t = vec_push(v);
	char *copy = strdup(text);

	if (!t || !copy) {
		if (t)
			v->cnt--;
		free(copy);
		s->err = -ENOMEM;
		return NULL;
	}
	*t = (struct text){ .pid = pid, .id = (uint32_t)v->cnt, .s = copy };
	return t;
}

uint32_t synth_string(struct synth *s, uint64_t ts, uint32_t pid, const char *text)
{
	const struct text *t = find_text(s->strings.v, s->strings.cnt, pid, text);
	struct dl_ev_string ev;

	if (t)
		return t->id;
	t = add_text(s, &s->strings, pid, text);
	if (!t)
		return 0;
	ev = (struct dl_ev_string){
		.h = gpu_header(DL_EV_STRING, sizeof(ev), ts, 0, pid),
		.id = t->id,
	};
	synth_event_text(s, &ev.h, text);
	return t->id;
}

/* The address of a function that is called so; the kernel's have pid 0. */
static uint64_t symbol(struct synth *s, uint64_t ts, uint32_t pid, const char *name)
{
	const uint64_t base = pid ? 0x400000 : 0xffffffff81000000;
	const struct text *t = find_text(s->symbols.v, s->symbols.cnt, pid, name);
	struct dl_ev_symbol ev;

	if (t)
		return base + t->id * 0x100ULL;
	t = add_text(s, &s->symbols, pid, name);
	if (!t)
		return 0;
	ev = (struct dl_ev_symbol){
		.h = gpu_header(DL_EV_SYMBOL, sizeof(ev), ts, 0, pid),
		.addr = base + t->id * 0x100ULL,
		.off = 0x10,
	};
	synth_event_text(s, &ev.h, name);
	return ev.addr;
}

static size_t add_frames(struct synth *s, uint64_t ts, uint32_t pid, const char *names,
			 uint64_t *addrs, size_t max)
{
	char name[128];
	size_t cnt = 0;

	while (names && *names && cnt < max) {
		size_t len = strcspn(names, ";");
		size_t use = len < sizeof(name) ? len : sizeof(name) - 1;

		memcpy(name, names, use);
		name[use] = '\0';
		addrs[cnt++] = symbol(s, ts, pid, name);
		names += len + (names[len] == ';');
	}
	return cnt;
}

uint32_t synth_stack(struct synth *s, uint64_t ts, uint32_t pid, const char *kernel,
		     const char *user)
{
	struct dl_ev_stack ev = { .h = gpu_header(DL_EV_STACK, sizeof(ev), ts, 0, pid) };
	uint64_t addrs[128];
	char key[512] = "";
	const struct text *t;

	strncat(key, kernel ? kernel : "", 250);
	strcat(key, "|");
	strncat(key, user ? user : "", 250);
	t = find_text(s->stacks.v, s->stacks.cnt, pid, key);
	if (t)
		return t->id;
	t = add_text(s, &s->stacks, pid, key);
	if (!t)
		return 0;
	ev.id = t->id;
	ev.kernel_cnt = (uint16_t)add_frames(s, ts, 0, kernel, addrs, 64);
	ev.user_cnt = (uint16_t)add_frames(s, ts, pid, user, addrs + ev.kernel_cnt, 64);
	synth_add(s, &ev.h, sizeof(ev), addrs, (ev.kernel_cnt + ev.user_cnt) * sizeof(addrs[0]));
	return ev.id;
}

void synth_sample(struct synth *s, uint64_t ts, uint32_t cpu, uint32_t tid, uint32_t pid,
		  uint16_t mode, uint32_t stack)
{
	struct dl_ev_sample ev = {
		.h = HEADER(s, SAMPLE, sample, ts, tid, pid),
		.stack = stack,
		.mode = mode,
		.syscall = -1,
		.period_us = 10000,
	};

	ev.h.cpu = (uint16_t)cpu;
	synth_event(s, &ev.h);
}

/* --- about the recording --- */

void synth_loss(struct synth *s, uint64_t ts, uint32_t ring, uint32_t cause, uint32_t kind,
		uint64_t cnt)
{
	struct dl_ev_loss ev = {
		.h = gpu_header(DL_EV_LOSS, sizeof(ev), ts, 0, 0),
		.ring = ring,
		.cause = cause,
		.kind = kind,
		.cnt = cnt,
	};

	synth_event(s, &ev.h);
}

void synth_absent(struct synth *s, uint64_t ts, uint32_t source, const char *why)
{
	struct dl_ev_absent ev = {
		.h = gpu_header(DL_EV_ABSENT, sizeof(ev), ts, 0, 0),
		.source = source,
	};

	synth_event_text(s, &ev.h, why);
}

void synth_mark(struct synth *s, uint64_t ts, uint32_t what, int32_t value, const char *text)
{
	struct dl_ev_mark ev = {
		.h = gpu_header(DL_EV_MARK, sizeof(ev), ts, 0, 0),
		.what = what,
		.value = value,
	};

	synth_event_text(s, &ev.h, text);
}
