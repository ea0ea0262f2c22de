/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The store of facts: which kinds of events are facts, what makes two of them the same one, and the last
 * event of each. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "capture/keep_state_int.h"
#include "trace/schema.h"

#define U32(ev, tag, field) (((const struct dl_ev_##tag *)(const void *)(ev))->field)

/* --- what makes a fact the same one: one row for each kind -------------------------------------- */

static uint64_t id_none(const struct dl_hdr *ev)
{
	(void)ev;
	return 0;
}

static uint64_t id_tid(const struct dl_hdr *ev)
{
	return ev->tid;
}

static uint64_t id_tail(const struct dl_hdr *ev)
{
	size_t len;
	const char *text = dl_event_tail(ev, &len);

	return dl_hash_bytes(text, len);
}

static uint64_t id_mmap(const struct dl_hdr *ev)
{
	return U32(ev, mmap, start);
}

static uint64_t id_symbol(const struct dl_hdr *ev)
{
	return U32(ev, symbol, addr);
}

static uint64_t id_stack(const struct dl_hdr *ev)
{
	return U32(ev, stack, id);
}

static uint64_t id_string(const struct dl_hdr *ev)
{
	return U32(ev, string, id);
}

static uint64_t id_gpu_device(const struct dl_hdr *ev)
{
	return U32(ev, gpu_device, device);
}

/* "busy" says for how long another tool had the records; it stands beside the present state. */
static uint64_t id_gpu_source(const struct dl_hdr *ev)
{
	return U32(ev, gpu_source, state) == DL_GPU_BUSY;
}

static uint64_t id_gpu_link(const struct dl_hdr *ev)
{
	return (uint64_t)U32(ev, gpu_link, index) << 32 | U32(ev, gpu_link, device);
}

static uint64_t id_loss(const struct dl_hdr *ev)
{
	return (uint64_t)U32(ev, loss, shed) << 56 | (uint64_t)U32(ev, loss, ring) << 32 | U32(ev, loss, cause) << 16 |
		U32(ev, loss, kind);
}

struct rule {
	uint64_t (*id)(const struct dl_hdr *ev);
	bool global;	/* the header's pid is not part of what it is */
};

static const struct rule rules[DL_EV_MAX] = {
	[DL_EV_NAME] = { .id = id_tid, .global = true },
	[DL_EV_CMDLINE] = { .id = id_none },
	[DL_EV_EXEC] = { .id = id_none },
	[DL_EV_PROC_LIMITS] = { .id = id_none },	/* said once, and again when they change */
	[DL_EV_MMAP] = { .id = id_mmap },
	[DL_EV_SYMBOL] = { .id = id_symbol },
	[DL_EV_STACK] = { .id = id_stack, .global = true },	/* ids are unique in the trace */
	[DL_EV_STRING] = { .id = id_string },
	[DL_EV_GPU_SOURCE] = { .id = id_gpu_source },
	[DL_EV_GPU_DEVICE] = { .id = id_gpu_device },
	[DL_EV_GPU_LINK] = { .id = id_gpu_link, .global = true },
	[DL_EV_GPU_CLOCK] = { .id = id_none },
	[DL_EV_GPU_DROP] = { .id = id_none },
	[DL_EV_LOSS] = { .id = id_loss, .global = true },
	[DL_EV_ABSENT] = { .id = id_tail },
};

/* --- the store ---------------------------------------------------------------------------------- */

static uint64_t key_of(uint16_t kind, uint32_t pid, uint64_t id)
{
	const uint64_t v[2] = { (uint64_t)kind << 32 | (rules[kind].global ? 0 : pid), id };

	return dl_hash_bytes(v, sizeof(v));
}

void dl_facts_fini(struct dl_facts *f)
{
	vec_for_each(&f->v, it)
		free(it->ev);
	vec_free(&f->v);
	dl_map_fini(&f->by_key);
	*f = (struct dl_facts){};
}

struct dl_fact *dl_facts_find(const struct dl_facts *f, uint16_t kind, uint32_t pid, uint64_t id)
{
	uint64_t index;

	return dl_map_get(&f->by_key, key_of(kind, pid, id), &index) ? &f->v.v[index - 1] : NULL;
}

const struct dl_hdr *dl_facts_get(const struct dl_facts *f, uint16_t kind, uint32_t pid, uint64_t id)
{
	const struct dl_fact *fact = dl_facts_find(f, kind, pid, id);

	return fact ? fact->ev : NULL;
}

static void count(struct dl_facts *f, const struct dl_hdr *ev, int sign)
{
	const uint64_t sz = (uint64_t)ev->size + sizeof(struct dl_fact) + 48;	/* and its place in the table */

	f->sz += sign < 0 ? -sz : sz;
	if (ev->kind == DL_EV_STACK)
		f->stacks_sz += sign < 0 ? -sz : sz;
}

void dl_facts_remove(struct dl_facts *f, size_t index)
{
	struct dl_fact *at = &f->v.v[index], *last = &f->v.v[f->v.cnt - 1];

	if (last != at && dl_map_set(&f->by_key, last->key, index + 1))
		return;
	dl_map_del(&f->by_key, at->key);
	count(f, at->ev, -1);
	free(at->ev);
	*at = *last;
	f->v.cnt--;
}

void dl_facts_forget_pid(struct dl_facts *f, uint32_t pid)
{
	for (size_t i = f->v.cnt; i-- > 0;) {
		const struct dl_hdr *ev = f->v.v[i].ev;

		if (ev->pid == pid && !rules[ev->kind].global)
			dl_facts_remove(f, i);
	}
}

static int replace(struct dl_facts *f, struct dl_fact *at, const struct dl_hdr *ev)
{
	if (at->ev->size != ev->size) {
		struct dl_hdr *copy = malloc(ev->size);

		if (!copy)
			return -ENOMEM;
		count(f, at->ev, -1);
		free(at->ev);
		at->ev = copy;
		memcpy(at->ev, ev, ev->size);
		count(f, at->ev, 1);
	} else {
		memcpy(at->ev, ev, ev->size);
	}
	return 0;
}

int dl_facts_take(struct dl_facts *f, const struct dl_hdr *ev, uint32_t segment)
{
	struct dl_fact *at;
	uint64_t key;

	if (ev->kind >= DL_EV_MAX || !rules[ev->kind].id)
		return 0;
	at = dl_facts_find(f, ev->kind, ev->pid, rules[ev->kind].id(ev));
	if (at) {
		at->segment = segment;
		return replace(f, at, ev) ? -ENOMEM : 1;
	}
	if (f->sz + ev->size > DL_KSTATE_FACTS_SZ)
		return -ENOSPC;
	key = key_of(ev->kind, ev->pid, rules[ev->kind].id(ev));
	at = vec_push(&f->v);
	if (!at)
		return -ENOMEM;
	*at = (struct dl_fact){ .ev = malloc(ev->size), .key = key, .segment = segment };
	if (!at->ev || dl_map_set(&f->by_key, key, f->v.cnt)) {
		free(at->ev);
		f->v.cnt--;
		return -ENOMEM;
	}
	memcpy(at->ev, ev, ev->size);
	count(f, at->ev, 1);
	return 1;
}
