/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Programs that do nothing, on the tracepoints that dlbpf uses: what the kernel charges for any
 * program there. The benchmark runs them in turn with dlbpf's own.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define EMPTY(point) \
	SEC("?tp_btf/" #point) \
	int point(void *ctx) \
	{ \
		return 0; \
	}

EMPTY(sched_switch)
EMPTY(sched_waking)
EMPTY(sched_wakeup_new)
EMPTY(task_newtask)
EMPTY(task_rename)
EMPTY(sched_process_exec)
EMPTY(sched_process_exit)
EMPTY(signal_generate)
EMPTY(signal_deliver)
EMPTY(block_rq_issue)
EMPTY(block_rq_complete)
EMPTY(page_fault_user)
EMPTY(rss_stat)
EMPTY(mm_vmscan_direct_reclaim_begin)
EMPTY(mm_vmscan_direct_reclaim_end)
EMPTY(mm_vmscan_memcg_reclaim_begin)
EMPTY(mm_vmscan_memcg_reclaim_end)
EMPTY(mark_victim)
EMPTY(sys_exit)
