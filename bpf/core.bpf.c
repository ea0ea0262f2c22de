/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The maps, variables and license that all BPF programs of dlbpf share. */
#define DL_CORE
#include "dlbpf.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Set by userspace before loading. */
const volatile __u32 dl_ring_shift = 3;	/* CPUs share a ring by their number >> this */
const volatile __u32 dl_self_tgid = 0;	/* the recorder */
const volatile __u32 dl_page_sz = 4096;
const volatile __u32 dl_thread_sz = 16384;	/* kernel stack */
const volatile __u32 dl_period_us = 0;	/* between two samples */
const volatile bool dl_user_stacks = false;	/* with samples */
const volatile __u32 dl_same_call_ns = 30000;	/* runs so short do not leave a system call */
const volatile struct dl_syscall dl_syscalls[DL_SYSCALL_CNT] = {};

/* Kept up to date by userspace: CLOCK_REALTIME and CLOCK_BOOTTIME less CLOCK_MONOTONIC. */
__s64 dl_realtime_off_ns = 0;
__s64 dl_boottime_off_ns = 0;

__u8 dl_maybe[DL_MAYBE_CNT] = {};
struct dl_named dl_named[DL_NAMED_CNT] = {};
struct dl_wait dl_waits[DL_WAITS_CNT] = {};

/* shed.bpf.h */
const volatile __u32 dl_ring_bits = 22;	/* size of a ring of a group of CPUs: 1 << this */
__u8 dl_fill[DL_RING_SCHED_MAX] = {};	/* of each of them, in sixteenths, as of the last look */
__u32 dl_shed_epoch = 0;	/* userspace begins with 1 */
__u32 dl_holes = 0;	/* so far */
