/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Uprobes on the entry points of CUDA's driver and runtime, where there is no collector: when a thread
 * asked for something, and how long it was inside. Userspace attaches them to a process and says what
 * lies at each address.
 *
 * A runtime call goes through driver calls; the outermost counts. What is inside is known from the
 * stack pointer, which also heals a return that was never seen (a thread that was killed, probes that
 * were taken off in between): who is called from higher up the stack is inside nothing.
 */
#include "dlbpf.bpf.h"

/* A launch takes a few microseconds, and there are thousands of them in a step: when the host was
 * launching is enough. */
#define LAUNCH_GAP_NS 100000ULL

#if defined(__TARGET_ARCH_x86)
#define AFTER_RETURN(sp, entry) ((sp) > (entry))	/* the return address has been popped */
#else
#define AFTER_RETURN(sp, entry) ((sp) >= (entry))
#endif

struct cuda_thread {
	__u64 born;		/* thread ids are used again */
	__u64 sp;		/* at the entry of the call that it is in; 0: in none */
	__u64 ts;
	__u64 bytes;
	__u64 launch_ts;	/* of the last launch that was kept; 0: something else came behind it */
	__u32 skipped;		/* launches since */
	struct dl_cuda_call call;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, DL_CUDA_CALLS_MAX);
	__type(key, struct dl_cuda_key);
	__type(value, struct dl_cuda_call);
} dl_cuda_calls SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, DL_CUDA_THREADS_MAX);
	__type(key, __u32);
	__type(value, struct cuda_thread);
} dl_cuda_threads SEC(".maps");

static __always_inline struct cuda_thread *thread_of(__u32 tid)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	__u64 born = BPF_CORE_READ(task, start_time);
	struct cuda_thread *t = bpf_map_lookup_elem(&dl_cuda_threads, &tid);
	struct cuda_thread fresh = {};

	if (t && t->born == born)
		return t;
	fresh.born = born;
	if (bpf_map_update_elem(&dl_cuda_threads, &tid, &fresh, BPF_ANY))
		return NULL;
	return bpf_map_lookup_elem(&dl_cuda_threads, &tid);
}

static __always_inline void emit(struct cuda_thread *t, const struct dl_cuda_call *call, __u64 start, __u64 end)
{
	__u64 id = bpf_get_current_pid_tgid();
	struct dl_ev_gpu_api ev = {};

	dl_hdr_init(&ev.h, DL_EV_GPU_API, sizeof(ev), start, id >> 32, id);
	ev.end = end;
	ev.domain = call->domain;
	ev.cbid = call->cbid;
	ev.class = call->class;
	ev.name = call->name;
	ev.dir = call->dir;
	ev.bytes = t->bytes;
	ev.skipped = t->skipped;
	t->skipped = 0;
	dl_out(&ev, sizeof(ev), DL_EV_GPU_API);
}

/* enum cudaMemcpyKind; the default, by the addresses, tells nothing. */
static __always_inline __u32 dir_of(__u64 kind)
{
	return kind == 0 ? DL_GPU_HTOH : kind == 1 ? DL_GPU_HTOD : kind == 2 ? DL_GPU_DTOH :
		kind == 3 ? DL_GPU_DTOD : 0;
}

static __always_inline void launch(struct cuda_thread *t, const struct dl_cuda_call *call, __u64 now)
{
	if (t->launch_ts && now - t->launch_ts < LAUNCH_GAP_NS) {
		t->skipped++;
		return;
	}
	t->launch_ts = now;
	t->bytes = 0;
	emit(t, call, now, now);
}

SEC("?kprobe")
int dl_cuda_enter(struct pt_regs *ctx)
{
	__u64 id = bpf_get_current_pid_tgid(), sp = PT_REGS_SP(ctx);
	struct dl_cuda_key key = { .ip = PT_REGS_IP(ctx), .pid = id >> 32 };
	struct dl_cuda_call *call = bpf_map_lookup_elem(&dl_cuda_calls, &key);
	struct cuda_thread *t;

	if (!call)
		return 0;
	t = thread_of(id);
	if (!t) {
		dl_lost(DL_LOSS_MAP_FULL, DL_EV_GPU_API);
		return 0;
	}
	if (t->sp && sp <= t->sp)
		return 0;
	if (call->flags & DL_CUDA_ENTRY_ONLY) {
		t->sp = 0;
		launch(t, call, bpf_ktime_get_ns());
		return 0;
	}
	t->call = *call;
	t->bytes = call->flags & DL_CUDA_HAS_BYTES ? PT_REGS_PARM3(ctx) : 0;
	if (call->flags & DL_CUDA_HAS_KIND)
		t->call.dir = dir_of(PT_REGS_PARM4(ctx));
	t->sp = sp;
	t->ts = bpf_ktime_get_ns();
	return 0;
}

SEC("?kretprobe")
int dl_cuda_leave(struct pt_regs *ctx)
{
	__u32 tid = bpf_get_current_pid_tgid();
	struct cuda_thread *t = bpf_map_lookup_elem(&dl_cuda_threads, &tid);

	if (!t || !t->sp || !AFTER_RETURN(PT_REGS_SP(ctx), t->sp))
		return 0;
	t->sp = 0;
	t->launch_ts = 0;
	emit(t, &t->call, t->ts, bpf_ktime_get_ns());
	return 0;
}
