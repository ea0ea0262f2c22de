/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * On-CPU samples: where a recorded thread is when the timer fires, with its kernel stack. The user stack is
 * taken only when it is asked for: it follows frame pointers, which Python and most libraries do not keep,
 * costs some microseconds with cold caches, and is different each time.
 */
#include "dlbpf.bpf.h"

extern const volatile __u32 dl_period_us;
extern const volatile bool dl_user_stacks;

struct sample_event {
	struct dl_ev_sample ev;
	__u64 addr[DL_KSTACK_MAX + DL_USTACK_MAX];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sample_event);
} dl_sample_buf SEC(".maps");

/* Appends the stacks and returns their size; in the ring stack is kernel frames << 16 | user frames. */
static __always_inline __u32 take_stacks(void *ctx, struct sample_event *s, bool user)
{
	__s64 k = 0, u = 0;

	/* In user mode there is no kernel stack: bpf_get_stack would say -EFAULT. */
	if (!user) {
		k = bpf_get_stack(ctx, s->addr, DL_KSTACK_MAX * 8, 0);
		if (k < 0 || k > DL_KSTACK_MAX * 8) {
			dl_lost(DL_LOSS_STACK, DL_EV_SAMPLE);
			k = 0;
		}
	}
	if (dl_user_stacks && dl_room(DL_SHED_SAMPLE_USER)) {
		u = bpf_get_stack(ctx, (void *)s->addr + k, DL_USTACK_MAX * 8, BPF_F_USER_STACK);
		if (u < 0 || u > DL_USTACK_MAX * 8) {
			dl_lost(DL_LOSS_STACK, DL_EV_SAMPLE);
			u = 0;
		}
	}
	s->ev.stack = ((__u32)k >> 3) << 16 | (__u32)u >> 3;
	return k + u;
}

SEC("?perf_event")
int dl_sample(struct bpf_perf_event_data *ctx)
{
	__u64 id = bpf_get_current_pid_tgid();
	struct sample_event *s;
	struct dl_regs r = {};
	__u32 zero = 0, sz;
	bool user;

	if (!dl_target_of(id >> 32) || !dl_room(DL_SHED_SAMPLE))
		return 0;
	s = bpf_map_lookup_elem(&dl_sample_buf, &zero);
	if (!s)
		return 0;
	user = DL_CTX_USER_MODE(ctx);
	dl_current_regs(&r);
	sz = take_stacks(ctx, s, user);
	if (sz > sizeof(s->addr))
		return 0;
	dl_hdr_init(&s->ev.h, DL_EV_SAMPLE, sizeof(s->ev) + sz, bpf_ktime_get_ns(), id >> 32, id);
	s->ev.ip = user ? DL_CTX_IP(ctx) : r.ip;
	s->ev.mode = user ? DL_SAMPLE_USER : DL_SAMPLE_KERNEL;
	s->ev.flags = 0;
	s->ev.syscall = user ? -1 : r.nr;
	s->ev.period_us = dl_period_us;
	dl_out(s, sizeof(s->ev) + sz, DL_EV_SAMPLE);
	return 0;
}
