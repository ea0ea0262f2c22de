/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Direct reclaim: a thread that has to free memory before it gets any. One event at the end. */
#include "dlbpf.bpf.h"

struct reclaim_key {
	__u32 tid;
	__u32 kind;	/* enum dl_reclaim_kind: one may nest in the other */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct reclaim_key);
	__type(value, __u64);
} dl_reclaims SEC(".maps");

static __always_inline int on_begin(__u32 kind)
{
	__u64 id = bpf_get_current_pid_tgid(), now;
	struct reclaim_key key = { .tid = id, .kind = kind };

	if (!dl_target_of(id >> 32))
		return 0;
	now = bpf_ktime_get_ns();
	if (bpf_map_update_elem(&dl_reclaims, &key, &now, BPF_ANY))
		dl_lost(DL_LOSS_MAP_FULL, DL_EV_RECLAIM);
	return 0;
}

static __always_inline int on_end(__u32 kind, __u64 pages)
{
	__u64 id = bpf_get_current_pid_tgid(), *start;
	struct reclaim_key key = { .tid = id, .kind = kind };
	struct dl_ev_reclaim ev = {};

	if (!dl_target_of(id >> 32))
		return 0;
	start = bpf_map_lookup_elem(&dl_reclaims, &key);
	if (!start)
		return 0;
	dl_hdr_init(&ev.h, DL_EV_RECLAIM, sizeof(ev), bpf_ktime_get_ns(), id >> 32, id);
	ev.start = *start;
	ev.pages = pages;
	ev.kind = kind;
	bpf_map_delete_elem(&dl_reclaims, &key);
	dl_out(&ev, sizeof(ev), DL_EV_RECLAIM);
	return 0;
}

SEC("?tp_btf/mm_vmscan_direct_reclaim_begin")
int BPF_PROG(dl_reclaim_begin)
{
	return on_begin(DL_RECLAIM_DIRECT);
}

SEC("?tp_btf/mm_vmscan_direct_reclaim_end")
int BPF_PROG(dl_reclaim_end, unsigned long pages)
{
	return on_end(DL_RECLAIM_DIRECT, pages);
}

/* Only with CONFIG_MEMCG. */
SEC("?tp_btf/mm_vmscan_memcg_reclaim_begin")
int BPF_PROG(dl_memcg_reclaim_begin)
{
	return on_begin(DL_RECLAIM_MEMCG);
}

SEC("?tp_btf/mm_vmscan_memcg_reclaim_end")
int BPF_PROG(dl_memcg_reclaim_end, unsigned long pages)
{
	return on_end(DL_RECLAIM_MEMCG, pages);
}
