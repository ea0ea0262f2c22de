/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The mapping that holds an address of the current process, found in whichever way the kernel has. */
#ifndef DLBPF_VMA_BPF_H
#define DLBPF_VMA_BPF_H

#include "file.bpf.h"

#define VM_WRITE 0x00000002
#define VM_SHARED 0x00000008
#define VM_HUGETLB 0x00400000

enum dl_vma_how { DL_VMA_NONE, DL_VMA_HELPER, DL_VMA_RB };

struct dl_vma {
	__u64 start;
	__u64 end;
	__u64 pgoff;
	__u64 flags;
	struct file *file;
	bool found;
};

static __always_inline void dl_vma_read(struct dl_vma *out, struct vm_area_struct *vma)
{
	out->start = BPF_CORE_READ(vma, vm_start);
	out->end = BPF_CORE_READ(vma, vm_end);
	out->pgoff = BPF_CORE_READ(vma, vm_pgoff);
	out->flags = BPF_CORE_READ(vma, vm_flags);
	out->file = BPF_CORE_READ(vma, vm_file);
	out->found = true;
}

/* The file may only be looked at here, while the mapping's lock is held; probe reads make it safe
 * to do so a moment later as well, and then it is still there in all but contrived cases. */
static long dl_vma_cb(struct task_struct *t, struct vm_area_struct *vma, struct dl_vma *out)
{
	dl_vma_read(out, vma);
	return 0;
}

static __always_inline void dl_vma_find(struct dl_vma *out, __u64 addr, enum dl_vma_how how)
{
	if (how == DL_VMA_HELPER) {
		bpf_find_vma(bpf_get_current_task_btf(), addr, dl_vma_cb, out, 0);
	} else if (how == DL_VMA_RB) {
		struct task_struct *t = (void *)bpf_get_current_task();
		struct vm_area_struct *vma = dl_find_vma_rb(BPF_CORE_READ(t, mm), addr);

		if (vma)
			dl_vma_read(out, vma);
	}
}

#endif
