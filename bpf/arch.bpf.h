/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What differs between x86-64 and arm64: where a thread's user registers are and what they mean. */
#ifndef DLBPF_ARCH_BPF_H
#define DLBPF_ARCH_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

/* The user registers that say what a thread asked of the kernel. */
struct dl_regs {
	__s64 nr;	/* system call, -1 when it came by an exception or interrupt */
	__u64 a[5];
	__u64 ip;
	__u64 sp;
};

/* A register of a perf_event program's context, which begins with the interrupted registers. The
 * verifier takes nothing but loads of whole words there. */
#define DL_CTX_WORD(c, reg) (*(volatile __u64 *)&((struct dl_raw_regs *)(c))->reg)

#if defined(__TARGET_ARCH_x86)

/* struct pt_regs as it has been since 2.6: a plain copy, so that one helper call reads all of it. */
struct dl_raw_regs {
	__u64 r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip, cs, flags,
		sp, ss;
};

/* r is a pointer to the kernel's struct pt_regs or to a struct dl_raw_regs. */
#define dl_regs_from(out, r) do { \
	(out)->nr = (r)->orig_ax; \
	(out)->a[0] = (r)->di; \
	(out)->a[1] = (r)->si; \
	(out)->a[2] = (r)->dx; \
	(out)->a[3] = (r)->r10; \
	(out)->a[4] = (r)->r8; \
	(out)->ip = (r)->ip; \
	(out)->sp = (r)->sp; \
} while (0)

/* Of registers that the verifier knows: by a plain load. */
#define dl_regs_nr(r) ((__s64)(r)->orig_ax)

/* From the end of the kernel stack; TOP_OF_KERNEL_STACK_PADDING is 0 on the kernels that need this
 * (FRED came with 6.9). */
static __always_inline bool dl_regs_probe(struct dl_regs *out, void *stack_end)
{
	struct dl_raw_regs raw;

	if (bpf_probe_read_kernel(&raw, sizeof(raw), stack_end - sizeof(raw)))
		return false;
	dl_regs_from(out, &raw);
	return true;
}

#define DL_CTX_USER_MODE(c) ((DL_CTX_WORD(c, cs) & 3) == 3)
#define DL_RAW_IP ip
#define DL_CTX_IP(c) DL_CTX_WORD(c, DL_RAW_IP)

/* TS_COMPAT: the thread is in a 32-bit system call. */
#define dl_task_compat(t) ((t)->thread_info.status & 0x0002)
#define dl_task_compat_read(t) (BPF_CORE_READ(t, thread_info.status) & 0x0002)

#elif defined(__TARGET_ARCH_arm64)

struct dl_raw_regs {
	__u64 regs[31], sp, pc, pstate, orig_x0;
	__s32 syscallno;
	__u32 unused;
};

#define dl_regs_from(out, r) do { \
	(out)->nr = (r)->syscallno; \
	(out)->a[0] = (r)->orig_x0; \
	(out)->a[1] = (r)->regs[1]; \
	(out)->a[2] = (r)->regs[2]; \
	(out)->a[3] = (r)->regs[3]; \
	(out)->a[4] = (r)->regs[4]; \
	(out)->ip = (r)->pc; \
	(out)->sp = (r)->sp; \
} while (0)

#define dl_regs_nr(r) ((__s64)(r)->syscallno)

/* From the end of the kernel stack. What lies behind these fields in struct pt_regs has grown, so the
 * kernel is asked for its size; two reads, since all of it is too large for the BPF stack. */
static __always_inline bool dl_regs_probe(struct dl_regs *out, void *stack_end)
{
	void *regs = stack_end - bpf_core_type_size(struct pt_regs);
	struct {
		__u64 sp, pc, pstate, orig_x0;
		__s32 syscallno;
		__u32 unused;
	} rest;

	if (bpf_probe_read_kernel(out->a, sizeof(out->a), regs) ||
	    bpf_probe_read_kernel(&rest, sizeof(rest), regs + __builtin_offsetof(struct dl_raw_regs, sp)))
		return false;
	out->nr = rest.syscallno;
	out->a[0] = rest.orig_x0;
	out->ip = rest.pc;
	out->sp = rest.sp;
	return true;
}

#define DL_CTX_USER_MODE(c) ((DL_CTX_WORD(c, pstate) & 0xf) == 0)
#define DL_RAW_IP pc
#define DL_CTX_IP(c) DL_CTX_WORD(c, DL_RAW_IP)

/* _TIF_32BIT */
#define dl_task_compat(t) ((t)->thread_info.flags & (1UL << 22))
#define dl_task_compat_read(t) (BPF_CORE_READ(t, thread_info.flags) & (1UL << 22))

#else
#error "dlbpf knows x86-64 and arm64"
#endif

#endif
