/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Differences between kernels: one function each, with the commit that made the difference.
 * Existence is asked of the running kernel's BTF (CO-RE), never of a version number. The ___dl
 * types hold only what is read, so that this builds with the vmlinux.h of any of these kernels.
 *
 * "t" in the names below is a pointer the verifier knows (an argument of a tp_btf program, or what
 * hangs off one); those are read by plain loads. Everything else goes through BPF_CORE_READ.
 */
#ifndef DLBPF_COMPAT_BPF_H
#define DLBPF_COMPAT_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#include "arch.bpf.h"

#define __dl_core __attribute__((preserve_access_index))

struct task_struct___dl_old { volatile long state; } __dl_core;
struct task_struct___dl_new { unsigned int __state; } __dl_core;

/* commit 2f064a59a11f ("sched: Change task_struct::state"), 5.14 */
static __always_inline __u32 dl_task_state(struct task_struct *t)
{
	struct task_struct___dl_new *n = (void *)t;

	if (bpf_core_field_exists(n->__state))
		return n->__state;
	return ((struct task_struct___dl_old *)t)->state;
}

struct task_struct___dl_psi { unsigned int in_memstall:1; } __dl_core;

/* commit eb414681d5a0 ("psi: pressure stall information"), 4.20; absent without CONFIG_PSI */
static __always_inline bool dl_task_memstall(struct task_struct *t)
{
	struct task_struct___dl_psi *psi = (void *)t;

	return bpf_core_field_exists(psi->in_memstall) && BPF_CORE_READ_BITFIELD(psi, in_memstall);
}

struct cfs_rq___dl { int throttle_count; } __dl_core;
struct sched_entity___dl { struct cfs_rq___dl *cfs_rq; } __dl_core;
struct task_struct___dl_se { struct sched_entity___dl se; } __dl_core;

/* Absent without CONFIG_CFS_BANDWIDTH. Counts the throttled levels from this one up. */
static __always_inline __u32 dl_task_throttle(struct task_struct *t)
{
	struct task_struct___dl_se *s = (void *)t;
	struct cfs_rq___dl *rq = NULL;

	if (!bpf_core_field_exists(rq->throttle_count) || !bpf_core_field_exists(s->se.cfs_rq))
		return 0;
	rq = s->se.cfs_rq;
	return rq ? rq->throttle_count : 0;
}

enum dl_mm_counter { DL_MM_FILE = 0, DL_MM_ANON, DL_MM_SWAP, DL_MM_SHMEM };

struct mm_rss_stat___dl { atomic_long_t count[4]; } __dl_core;
struct mm_struct___dl_old { struct mm_rss_stat___dl rss_stat; } __dl_core;
struct mm_struct___dl_new { struct percpu_counter rss_stat[4]; } __dl_core;

/*
 * Pages of one kind. commit f1a7941243c1 ("mm: convert mm's rss stats into percpu_counter"), 6.2:
 * from then on the sum lags by what each CPU holds back (up to max(32, 2 * CPUs) pages each).
 * READ is how the newer form is read: by a plain load, or by BPF_CORE_READ. (The verifier of the older
 * kernels cannot walk into an array of a typedef.)
 */
#define DL_RSS(mm, which, READ) ({ \
	struct mm_struct___dl_new *_new = (void *)(mm); \
	struct mm_struct___dl_old *_old = (void *)(mm); \
	__s64 _n = bpf_core_type_exists(struct mm_rss_stat___dl) ? \
		(__s64)BPF_CORE_READ(_old, rss_stat.count[which].counter) : (__s64)READ(_new, rss_stat[which].count); \
	_n < 0 ? 0 : (__u64)_n; \
})
#define dl_load(p, field) ((p)->field)

/* --- user registers ------------------------------------------------------------------------- */

enum bpf_func_id___dl {
	BPF_FUNC_get_current_task_btf___dl = 158,
	BPF_FUNC_task_pt_regs___dl = 175,
};

/* commit 3ca1032ab7ab ("bpf: Add bpf_get_current_task_btf() helper"), 5.11 */
#define dl_has_current_btf() bpf_core_enum_value_exists(enum bpf_func_id___dl, BPF_FUNC_get_current_task_btf___dl)

/* commit dd6e10fbd9fb ("bpf: Add bpf_task_pt_regs() helper"), 5.15; such kernels have the other, too. */
#define dl_has_pt_regs() bpf_core_enum_value_exists(enum bpf_func_id___dl, BPF_FUNC_task_pt_regs___dl)

extern const volatile __u32 dl_thread_sz;

static __always_inline void dl_regs_of_stack(struct dl_regs *out, void *stack)
{
	if (!dl_regs_probe(out, stack + dl_thread_sz)) {
		__builtin_memset(out, 0, sizeof(*out));
		out->nr = -1;
	}
}

/* Only for threads that have a user mode. */
static __always_inline void dl_task_regs(struct dl_regs *out, struct task_struct *t)
{
	if (dl_has_pt_regs()) {
		struct pt_regs *r = (struct pt_regs *)bpf_task_pt_regs(t);

		dl_regs_from(out, r);
		return;
	}
	dl_regs_of_stack(out, t->stack);
}

static __always_inline void dl_current_regs(struct dl_regs *out)
{
	if (dl_has_pt_regs()) {
		struct pt_regs *r = (struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf());

		dl_regs_from(out, r);
		return;
	}
	dl_regs_of_stack(out, BPF_CORE_READ((struct task_struct *)bpf_get_current_task(), stack));
}

/* --- block layer ---------------------------------------------------------------------------- */

struct request___dl_old { struct gendisk *rq_disk; } __dl_core;
struct request_queue___dl { struct gendisk *disk; } __dl_core;
struct request___dl_new { struct request_queue___dl *q; } __dl_core;

/* commit f3fa33acca9f ("block: remove the ->rq_disk field in struct request"), 5.17 */
static __always_inline __u32 dl_request_dev(struct request *rq)
{
	struct request___dl_old *o = (void *)rq;
	struct request___dl_new *n = (void *)rq;
	struct gendisk *disk;

	if (bpf_core_field_exists(o->rq_disk))
		disk = BPF_CORE_READ(o, rq_disk);
	else
		disk = BPF_CORE_READ(n, q, disk);
	if (!disk)
		return 0;
	return (__u32)BPF_CORE_READ(disk, major) << 20 | BPF_CORE_READ(disk, first_minor);
}

/* --- mappings ------------------------------------------------------------------------------- */

struct mm_struct___dl_rb { struct rb_root mm_rb; } __dl_core;
struct vm_area_struct___dl_rb {
	unsigned long vm_start;
	unsigned long vm_end;
	struct rb_node vm_rb;
} __dl_core;

#define DL_RB_DEPTH 32

/*
 * The mapping of an address, on kernels that have no bpf_find_vma (commit 7c7e3d31e785, 5.17) and
 * still keep mappings in a red-black tree (until commit 524e00b36e8c, 6.1). No lock is held: when
 * another thread changes the tree in that moment, nothing may be found.
 */
static __always_inline struct vm_area_struct *dl_find_vma_rb(struct mm_struct *mm, __u64 addr)
{
	struct vm_area_struct___dl_rb *vma = NULL;
	struct mm_struct___dl_rb *m = (void *)mm;
	struct rb_node *node;
	int i;

	if (!mm || !bpf_core_field_exists(m->mm_rb) || !bpf_core_field_exists(vma->vm_rb))
		return NULL;
	node = BPF_CORE_READ(m, mm_rb.rb_node);
	for (i = 0; i < DL_RB_DEPTH && node; i++) {
		vma = (void *)node - bpf_core_field_offset(struct vm_area_struct___dl_rb, vm_rb);
		if (addr < BPF_CORE_READ(vma, vm_start))
			node = BPF_CORE_READ(node, rb_left);
		else if (addr >= BPF_CORE_READ(vma, vm_end))
			node = BPF_CORE_READ(node, rb_right);
		else
			return (void *)vma;
	}
	return NULL;
}

#endif
