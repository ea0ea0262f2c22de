/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Major page faults, from the software event that the kernel counts at the end of each. Minor
 * faults are far too many for events: their totals ride on every switch.
 */
#include "vma.bpf.h"

/*
 * A swap of compressed memory brings back 100,000 pages a second, and to record one costs more than to
 * bring it back. So many events a while on each CPU say where faults come from; how many there are in
 * all rides on every switch.
 */
#define BURST_NS (10 * DL_NS_PER_MS)
#define BURST_CNT 64

struct burst {
	__u64 start;
	__u32 cnt, skipped;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct burst);
} dl_fault_burst SEC(".maps");

/* True when this one is to be left out; else in *skipped how many were before it. */
static __always_inline bool is_too_many(__u64 now, __u16 *skipped)
{
	__u32 zero = 0;
	struct burst *b = bpf_map_lookup_elem(&dl_fault_burst, &zero);

	if (!b)
		return false;
	if (now - b->start > BURST_NS) {
		b->start = now;
		b->cnt = 0;
	}
	if (b->cnt++ >= BURST_CNT) {
		b->skipped++;
		return true;
	}
	*skipped = b->skipped < 0xffff ? b->skipped : 0xffff;
	b->skipped = 0;
	return false;
}

static __always_inline int on_major(struct bpf_perf_event_data *ctx, enum dl_vma_how how)
{
	__u64 id = bpf_get_current_pid_tgid();
	struct dl_ev_major_fault ev = {};
	struct dl_vma vma = {};
	struct dl_file f = {};
	__u64 now;

	if (!dl_target_of(id >> 32))
		return 0;
	now = bpf_ktime_get_ns();
	if (is_too_many(now, &ev.skipped))
		return 0;
	dl_hdr_init(&ev.h, DL_EV_MAJOR_FAULT, sizeof(ev), now, id >> 32, id);
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
