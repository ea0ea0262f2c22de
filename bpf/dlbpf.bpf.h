/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What every BPF program here needs: the maps (defined in core.bpf.c), the filter for the recorded
 * processes, the way into the rings, and the counting of what was lost.
 *
 * Programs are SEC("?...") and switched on by userspace/capture/kernel_load.c. An event is built on
 * the BPF stack, zeroed, and handed over by one bpf_ringbuf_output: one helper call, not two.
 */
#ifndef DLBPF_BPF_H
#define DLBPF_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include <dlbpf/bpf_shared.h>

#include "compat.bpf.h"
#include "shed.bpf.h"

#define PF_EXITING 0x00000004
#define PF_KTHREAD 0x00200000
#define TASK_UNINTERRUPTIBLE 0x0002
#define __TASK_STOPPED 0x0004
#define __TASK_TRACED 0x0008
#define TASK_NOLOAD 0x0400
#define DL_NS_PER_MS 1000000ULL

/* --- maps and variables, defined in core.bpf.c ---------------------------------------------- */

struct dl_ring_map {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);	/* userspace sets it */
};

DL_SHARED struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, DL_RING_SCHED_MAX);
	__type(key, __u32);
	__array(values, struct dl_ring_map);
} dl_rings SEC(".maps");

DL_SHARED struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, DL_TARGETS_MAX);
	__type(key, __u32);
	__type(value, struct dl_target);
} dl_targets SEC(".maps");

DL_SHARED struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, DL_LOSS_CAUSE_MAX);
	__type(key, __u32);
	__type(value, struct dl_losses);
} dl_loss SEC(".maps");

extern __u8 dl_maybe[DL_MAYBE_CNT];
extern struct dl_named dl_named[DL_NAMED_CNT];
extern const volatile __u32 dl_self_tgid;
extern const volatile __u32 dl_page_sz;
extern const volatile struct dl_syscall dl_syscalls[DL_SYSCALL_CNT];

/* --- arguments of system calls --------------------------------------------------------------- */

/* The first two arguments, without pointers: they say nothing later and cost a byte or two each in
 * the file. The address of a futex does: it names the lock. */
static __always_inline void dl_args(const struct dl_regs *r, __u64 *arg0, __u64 *arg1)
{
	__u64 nr = r->nr;

	if (!(r->a[0] >> 32) || (nr < DL_SYSCALL_CNT && dl_syscalls[nr].timeout == DL_SC_TO_FUTEX))
		*arg0 = r->a[0];
	if (!(r->a[1] >> 32))
		*arg1 = r->a[1];
}

/* --- the filter ------------------------------------------------------------------------------ */

/*
 * The recorded process of a thread group, or NULL. One byte tells nearly all strangers from it
 * before the hash is looked up. A byte is never cleared: a reused slot only costs a look-up.
 */
static __always_inline struct dl_target *dl_target_of(__u32 tgid)
{
	if (!dl_maybe[tgid & (DL_MAYBE_CNT - 1)])
		return NULL;
	return bpf_map_lookup_elem(&dl_targets, &tgid);
}

/* --- losses and rings ------------------------------------------------------------------------ */

static __always_inline void dl_lost(__u32 cause, __u32 kind)
{
	struct dl_losses *l = bpf_map_lookup_elem(&dl_loss, &cause);

	if (l && kind < DL_EV_MAX)
		__sync_fetch_and_add(&l->cnt[kind], 1);
}

static __always_inline void dl_hdr_init(struct dl_hdr *h, __u32 kind, __u32 size, __u64 ts, __u32 pid,
					__u32 tid)
{
	h->size = size;
	h->kind = kind;
	h->tid = tid;
	h->ts = ts;
	h->pid = pid;
	h->cpu = bpf_get_smp_processor_id();
	h->flags = 0;
}

/* The ring of this CPU's group. Nobody is woken before it fills: wake-ups would feed back into the trace. */
static __always_inline void dl_out(void *ev, __u64 size, __u32 kind)
{
	__u32 group = bpf_get_smp_processor_id() >> dl_ring_shift, shed = dl_shed_of(kind);
	void *ring = bpf_map_lookup_elem(&dl_rings, &group);
	__u64 flags;

	if (!ring) {
		dl_lost(DL_LOSS_RING_FULL, kind);
		return;
	}
	flags = dl_look(ring, group, ((struct dl_hdr *)ev)->ts);
	if (dl_is_full(group, shed)) {
		dl_shed_one(shed);
		dl_look_again(group, flags);
	} else if (bpf_ringbuf_output(ring, ev, size, flags)) {
		dl_shed_one(shed);
		dl_hole(group);
	}
}

/* The ring of crash and lifecycle events, which wakes its reader when that has read all before. */
static __always_inline void dl_out_crash(void *ev, __u64 size, __u32 kind)
{
	if ((kind == DL_EV_SYSCALL_FAIL || kind == DL_EV_SHM_UNLINK) && !dl_crash_room(DL_SHED_SYSCALL_FAIL))
		return;
	if (bpf_ringbuf_output(&dl_crash, ev, size, 0))
		dl_lost(DL_LOSS_RING_FULL, kind);
}

/*
 * The length of a text that bpf_probe_read_kernel_str() said takes n bytes with its NUL, for a buffer
 * of max bytes, a power of two. The mask is there for the verifier, which loses the comparison when
 * clang moves the arithmetic.
 */
#define DL_TEXT_LEN(n, max) ({ \
	__u64 _len = (n) < 1 || (n) > (max) ? 0 : (n) - 1; \
	asm volatile("%0 &= %1" : "+r"(_len) : "i"((max) - 1)); \
	_len; \
})

/* The id of a thread in the PID namespace that it lives in itself, the innermost. */
static __always_inline __u32 dl_ns_id(struct task_struct *t)
{
	struct pid *pid = BPF_CORE_READ(t, thread_pid);
	__u32 level = BPF_CORE_READ(pid, level);
	void *at;

	if (level > 32)	/* MAX_PID_NS_LEVEL */
		return 0;
	at = (void *)pid + bpf_core_field_offset(struct pid, numbers) + level * bpf_core_type_size(struct upid);
	return BPF_CORE_READ((struct upid *)at, nr);
}

/* --- names of foreign threads ----------------------------------------------------------------- */

/* What tells two threads of one id apart, and a thread from itself before an exec. */
static __always_inline __u32 dl_name_sig(__u64 start_time, __u32 exec_id)
{
	return (__u32)(start_time >> 10) * 2654435761u + exec_id + 1;
}

/* Sends the name of a thread outside the tree when it was not sent yet. One that is left out is counted
 * once, and sent when there is room. */
static __always_inline void dl_name_once(struct task_struct *t, __u32 sig, __u32 pid, __u32 tid, __u32 flags, __u64 now)
{
	struct dl_named *n = &dl_named[tid & (DL_NAMED_CNT - 1)];

	if (n->tid == tid && n->sig == sig)
		return;
	if (dl_is_full(bpf_get_smp_processor_id() >> dl_ring_shift, DL_SHED_NAME)) {
		if (n->tid != tid || n->sig != ~sig)
			dl_shed_one(DL_SHED_NAME);
		n->tid = tid;
		n->sig = ~sig;
		return;
	}
	n->tid = tid;
	n->sig = sig;

	struct dl_ev_name ev = {};

	dl_hdr_init(&ev.h, DL_EV_NAME, sizeof(ev), now, pid, tid);
	ev.h.flags = DL_HDR_FOREIGN;
	ev.flags = flags & PF_KTHREAD ? DL_NM_KTHREAD : 0;
	bpf_probe_read_kernel_str(&ev.comm, sizeof(ev.comm), &t->comm);
	dl_out(&ev, sizeof(ev), DL_EV_NAME);
}

/* Of a task that the verifier knows: by plain loads, for programs that run at every switch. */
static __always_inline void dl_name_task(struct task_struct *t, __u32 pid, __u32 tid, __u32 flags, __u64 now)
{
	dl_name_once(t, dl_name_sig(t->start_time, t->self_exec_id), pid, tid, flags, now);
}

static __always_inline void dl_name_foreign(struct task_struct *t, __u32 pid, __u32 tid, __u32 flags, __u64 now)
{
	dl_name_once(t, dl_name_sig(BPF_CORE_READ(t, start_time), BPF_CORE_READ(t, self_exec_id)), pid, tid, flags, now);
}

#endif
