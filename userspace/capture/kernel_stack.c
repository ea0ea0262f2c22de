/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Stacks by id. The kernel side appends raw addresses to an event; here they become one STACK event
 * for each different stack, and an id in the event.
 */
#include <string.h>

#include "capture/kernel_priv.h"

/* Past this many the table starts anew, and known stacks are sent again under new ids: memory is
 * bounded and the trace stays right. */
#define STACKS_MAX 262144

static int emit_stack(struct dl_kernel *k, const struct dl_hdr *ev, uint32_t pid, const uint64_t *addr,
		      uint16_t kernel, uint16_t user, uint32_t id)
{
	struct {
		struct dl_ev_stack ev;
		uint64_t addr[DL_KSTACK_MAX + DL_USTACK_MAX];
	} s = {};
	size_t sz = sizeof(uint64_t) * (kernel + user);

	s.ev.h = (struct dl_hdr){ .size = sizeof(s.ev) + sz, .kind = DL_EV_STACK, .ts = ev->ts, .pid = pid,
				  .cpu = DL_CPU_NONE };
	s.ev.id = id;
	s.ev.kernel_cnt = kernel;
	s.ev.user_cnt = user;
	memcpy(s.addr, addr, sz);
	return k->sink->emit(k->sink, &s.ev.h);
}

/* User addresses mean something in their process only, kernel addresses everywhere. */
static int intern(struct dl_kernel *k, const struct dl_hdr *ev, const uint64_t *addr, uint16_t kernel, uint16_t user,
		  uint32_t *ret_id)
{
	uint32_t pid = user ? ev->pid : 0;
	uint64_t key = dl_hash_bytes(addr, sizeof(uint64_t) * (kernel + user)) ^
		       dl_hash64((uint64_t)pid << 32 | (uint32_t)kernel << 16 | user);
	uint64_t id;
	int err;

	if (dl_map_get(&k->stacks, key, &id)) {
		*ret_id = id;
		return 0;
	}
	if (k->stacks.cnt >= STACKS_MAX) {
		dl_map_fini(&k->stacks);
		k->stacks = (struct dl_map){};
	}
	id = ++k->stack_next;
	err = dl_map_set(&k->stacks, key, id);
	if (err)
		return err;
	err = emit_stack(k, ev, pid, addr, kernel, user, id);
	if (err)
		return err;
	*ret_id = id;
	return 0;
}

int dl_kernel_emit_stacked(struct dl_kernel *k, const struct dl_hdr *ev)
{
	union {
		struct dl_hdr h;
		struct dl_ev_switch sw;
		struct dl_ev_sample sample;
	} out;
	size_t fixed = ev->kind == DL_EV_SWITCH ? sizeof(out.sw) : sizeof(out.sample);
	uint32_t kernel, user, *stack;
	int err;

	memcpy(&out, ev, fixed);
	stack = ev->kind == DL_EV_SWITCH ? &out.sw.stack : &out.sample.stack;
	kernel = ev->kind == DL_EV_SWITCH ? *stack : *stack >> 16;
	user = ev->kind == DL_EV_SWITCH ? 0 : *stack & 0xffff;
	if (kernel > DL_KSTACK_MAX || user > DL_USTACK_MAX || ev->size != fixed + sizeof(uint64_t) * (kernel + user))
		return -EINVAL;
	*stack = 0;
	if (kernel + user) {
		err = intern(k, ev, (const uint64_t *)((const char *)ev + fixed), kernel, user, stack);
		if (err)
			return err;
	}
	out.h.size = fixed;
	return k->sink->emit(k->sink, &out.h);
}

void dl_kernel_forget_stacks(struct dl_kernel *k)
{
	dl_map_fini(&k->stacks);
	k->stacks = (struct dl_map){};
}
