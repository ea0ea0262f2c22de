/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What is left out when a ring fills, least important first (DL_SHED_TABLE). How full a ring is, is looked at once in
 * DL_LOOK_EVERY events and kept in dl_fill[]; in between an event costs two comparisons.
 * userspace/capture/kernel_shed.c tells what was left out, and from when to when.
 *
 * A ring that was full takes nothing more until its reader has made some room: of a piece that is
 * missing as a whole it can be said where it begins and ends, of every other switch it cannot.
 */
#ifndef DLBPF_SHED_BPF_H
#define DLBPF_SHED_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <dlbpf/bpf_shared.h>

/* Maps: defined where core.bpf.c includes them, declared for the others. */
#ifdef DL_CORE
#define DL_SHARED
#else
#define DL_SHARED extern
#endif

DL_SHARED struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);	/* userspace sets it */
} dl_crash SEC(".maps");

DL_SHARED struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, DL_SHED_MAX);
	__type(key, __u32);
	__type(value, struct dl_shed_cnt);
} dl_shed SEC(".maps");

extern const volatile __u32 dl_ring_shift;
extern const volatile __u32 dl_ring_bits;
extern __u8 dl_fill[DL_RING_SCHED_MAX];
extern __u32 dl_shed_epoch;
extern __u32 dl_holes;

/* Sixteenths. With constants both are constants. */
static __always_inline __u32 dl_shed_from(__u32 shed)
{
	switch (shed) {
#define SHED(class, kind, sixteenths) case DL_SHED_##class: return sixteenths;
#define SHED_CRASH(class, kind, sixteenths) SHED(class, kind, sixteenths)
	DL_SHED_TABLE
#undef SHED
#undef SHED_CRASH
	}
	return DL_FILL_FULL;
}

/* The class of a kind as a whole; parts of it are asked for by dl_room(). */
static __always_inline __u32 dl_shed_of(__u32 kind)
{
	switch (kind) {
	case DL_EV_SWITCH:
		return DL_SHED_SWITCH;
	case DL_EV_WAKE:
		return DL_SHED_WAKE;
	case DL_EV_SAMPLE:
		return DL_SHED_SAMPLE;
	case DL_EV_MEM:
		return DL_SHED_MEM;
	case DL_EV_MAJOR_FAULT:
		return DL_SHED_MAJOR_FAULT;
	case DL_EV_NAME:
		return DL_SHED_NAME;
	case DL_EV_BLOCK_IO:
		return DL_SHED_BLOCK_IO;
	case DL_EV_RECLAIM:
		return DL_SHED_RECLAIM;
	}
	return DL_SHED_GPU_API;
}

/* Out of the way of those that find room. */
static __noinline void dl_shed_one(__u32 shed)
{
	struct dl_shed_cnt *c = bpf_map_lookup_elem(&dl_shed, &shed);
	__u64 now = bpf_ktime_get_ns();

	if (!c)
		return;
	if (c->epoch != dl_shed_epoch) {
		c->first = now;
		c->epoch = dl_shed_epoch;
	}
	c->last = now;
	__sync_fetch_and_add(&c->cnt, 1);	/* a sample may interrupt */
}

static __always_inline bool dl_is_full(__u32 group, __u32 shed)
{
	return dl_fill[group & (DL_RING_SCHED_MAX - 1)] >= dl_shed_from(shed);
}

/* Whether there is room for this part of an event; if not, it is counted. */
static __always_inline bool dl_room(__u32 shed)
{
	if (!dl_is_full(bpf_get_smp_processor_id() >> dl_ring_shift, shed))
		return true;
	dl_shed_one(shed);
	return false;
}

/* At one event in DL_LOOK_EVERY, chosen by its time as if at random, looks how full the ring is; how to write the
 * event: when the ring has become full enough for its reader not to wait any longer, with a wake-up. */
static __always_inline __u64 dl_look(void *ring, __u32 group, __u64 ts)
{
	__u8 *fill = &dl_fill[group & (DL_RING_SCHED_MAX - 1)];
	__u32 old, now;

	if ((__u32)ts * 2654435761u > ~0u / DL_LOOK_EVERY)
		return BPF_RB_NO_WAKEUP;
	old = *fill;
	now = bpf_ringbuf_query(ring, BPF_RB_AVAIL_DATA) >> (dl_ring_bits - 4);
	if (now >= DL_FILL_FULL)
		now = DL_FILL_FULL - 1;	/* whether there is room is found by trying */
	if (old == now || (old == DL_FILL_HOLE && now >= DL_FILL_HOLE_END))
		return BPF_RB_NO_WAKEUP;
	*fill = now;
	return old < DL_FILL_WAKE && now >= DL_FILL_WAKE ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP;
}

/* It is full. */
static __always_inline void dl_hole(__u32 group)
{
	__u8 *fill = &dl_fill[group & (DL_RING_SCHED_MAX - 1)];

	if (*fill != DL_FILL_HOLE)
		dl_holes++;	/* two at once may count as one: userspace only wants to see it move */
	*fill = DL_FILL_HOLE;
}

/* The event that was to wake the reader is left out: another one will. */
static __always_inline void dl_look_again(__u32 group, __u64 flags)
{
	if (flags == BPF_RB_FORCE_WAKEUP)
		dl_fill[group & (DL_RING_SCHED_MAX - 1)] = 0;
}

/* The same for the ring of crash events, whose events are too few to count. */
static __always_inline bool dl_crash_room(__u32 shed)
{
	if (bpf_ringbuf_query(&dl_crash, BPF_RB_AVAIL_DATA) * DL_FILL_FULL <
	    bpf_ringbuf_query(&dl_crash, BPF_RB_RING_SIZE) * dl_shed_from(shed))
		return true;
	dl_shed_one(shed);
	return false;
}

#endif
