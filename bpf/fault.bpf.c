/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Major page faults, from the software event that the kernel counts at the end of each. Minor
 * faults are far too many for events: their totals ride on every switch.
 */
#include "vma.bpf.h"

static __always_inline int on_major(struct bpf_perf_event_data *ctx, enum dl_vma_how how)
{
	__u64 id = bpf_get_current_pid_tgid();
	struct dl_ev_major_fault ev = {};
	struct dl_vma vma = {};
	struct dl_file f = {};

	if (!dl_target_of(id >> 32))
		return 0;
	dl_hdr_init(&ev.h, DL_EV_MAJOR_FAULT, sizeof(ev), bpf_ktime_get_ns(), id >> 32, id);
	ev.addr = ctx->addr;
	ev.ip = DL_CTX_IP(ctx);
	dl_vma_find(&vma, ev.addr, how);
	if (vma.found && vma.file) {
		/* A private mapping's own copy that was swapped out looks like the file's page. */
		dl_file_read(&f, vma.file);
		ev.kind = f.magic == TMPFS_MAGIC ? DL_FAULT_SHMEM : DL_FAULT_FILE;
		ev.file_ino = f.ino;
		ev.file_dev = f.dev;
		ev.file_off = (vma.pgoff * dl_page_sz) + (ev.addr - vma.start);
	} else if (vma.found) {
		ev.kind = DL_FAULT_SWAP;
	}
	dl_out(&ev, sizeof(ev), DL_EV_MAJOR_FAULT);
	return 0;
}

SEC("?perf_event")
int dl_major_vma(struct bpf_perf_event_data *ctx)
{
	return on_major(ctx, DL_VMA_HELPER);
}

SEC("?perf_event")
int dl_major_rb(struct bpf_perf_event_data *ctx)
{
	return on_major(ctx, DL_VMA_RB);
}

SEC("?perf_event")
int dl_major(struct bpf_perf_event_data *ctx)
{
	return on_major(ctx, DL_VMA_NONE);
}
