/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Block requests by the thread that issued them. What a kernel worker issues (a throttled or
 * delayed request) names no thread of the tree and is left out; devices that take bios without
 * requests (zram) are not seen at all.
 */
#include "dlbpf.bpf.h"

#define REQ_OP_MASK 0xff
#define REQ_OP_READ 0
#define REQ_OP_WRITE 1

struct inflight {
	__u64 ts;
	__u64 sector;
	__u32 pid;
	__u32 tid;
	__u32 bytes;
	__u32 dev;
	__u32 op;
	__u16 cpu;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);	/* the request's address */
	__type(value, struct inflight);
} dl_inflight SEC(".maps");

static __always_inline int on_issue(struct request *rq)
{
	__u64 id = bpf_get_current_pid_tgid(), key = (__u64)rq;
	struct inflight io = {};
	__u32 op;

	if (!dl_target_of(id >> 32))
		return 0;
	io.ts = bpf_ktime_get_ns();
	io.sector = rq->__sector;
	io.pid = id >> 32;
	io.tid = id;
	io.bytes = rq->__data_len;
	io.dev = dl_request_dev(rq);
	io.cpu = bpf_get_smp_processor_id();
	op = rq->cmd_flags & REQ_OP_MASK;
	io.op = op == REQ_OP_READ ? DL_BLOCK_READ : op == REQ_OP_WRITE ? DL_BLOCK_WRITE : DL_BLOCK_OTHER;
	if (bpf_map_update_elem(&dl_inflight, &key, &io, BPF_ANY))
		dl_lost(DL_LOSS_MAP_FULL, DL_EV_BLOCK_IO);
	return 0;
}

SEC("?tp_btf/block_rq_issue")
int BPF_PROG(dl_block_issue, struct request *rq)
{
	return on_issue(rq);
}

/* commit a54895fa057c ("block: remove the request_queue to argument request based tracepoints"),
 * 5.11 and later 5.10.x */
SEC("?tp_btf/block_rq_issue")
int BPF_PROG(dl_block_issue_q, struct request_queue *q, struct request *rq)
{
	return on_issue(rq);
}

SEC("?tp_btf/block_rq_complete")
int BPF_PROG(dl_block_complete, struct request *rq, int error, unsigned int bytes)
{
	struct dl_ev_block_io ev = {};
	__u64 key = (__u64)rq;
	struct inflight *io = bpf_map_lookup_elem(&dl_inflight, &key);

	if (!io)
		return 0;
	/* A request may be completed in parts; the last one counts. */
	if (!error && bytes < rq->__data_len)
		return 0;
	dl_hdr_init(&ev.h, DL_EV_BLOCK_IO, sizeof(ev), io->ts, io->pid, io->tid);
	ev.h.cpu = io->cpu;
	ev.end = bpf_ktime_get_ns();
	ev.sector = io->sector;
	ev.bytes = io->bytes;
	ev.dev = io->dev;
	ev.op = io->op;
	ev.error = error;
	bpf_map_delete_elem(&dl_inflight, &key);
	dl_out(&ev, sizeof(ev), DL_EV_BLOCK_IO);
	return 0;
}
