/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Registers and stack of a thread that gets a fatal signal by its own doing, at the instant of the signal:
 * later the memory is gone, and frames cannot be followed in the kernel without frame pointers. The thread
 * runs, so the stack near its pointer is resident; what is not ends the copy.
 *
 * Bounded: one record a thread and second, since a handler that raises the signal again would only show
 * itself, and some a second in all, so that the ring, which other crash events need, cannot be filled.
 */
#include "signal.bpf.h"
#include "vma.bpf.h"

#define THREADS_CNT 256
#define PER_SECOND 16
#define SECOND_NS 1000000000ULL

struct faulted {
	__u32 tid;
	__u32 reserved;
	__u64 ts;
};

/* Direct-mapped by tid: a collision only lets a second record through. */
static volatile struct faulted faulted[THREADS_CNT];
static volatile __u64 second_ts;
static volatile __u64 in_second;

static __always_inline bool is_fatal(int sig)
{
	return sig == SIGABRT || sig == SIGBUS || sig == SIGSEGV || sig == SIGFPE || sig == SIGILL;
}

/* True once a second for a thread, unless there are too many. */
static __always_inline bool may_send(__u32 tid, __u64 now)
{
	volatile struct faulted *f = &faulted[tid & (THREADS_CNT - 1)];

	if (f->tid == tid && now - f->ts < SECOND_NS)
		return false;
	f->tid = tid;
	f->ts = now;
	if (now - second_ts >= SECOND_NS) {
		second_ts = now;
		in_second = 0;
	}
	if (in_second >= PER_SECOND) {
		dl_lost(DL_LOSS_STACK, DL_EV_CRASH_STACK);
		return false;
	}
	in_second++;	/* two CPUs at once may count as one */
	return true;
}

/* All user registers: both ways into the kernel, by exception and by system call, have saved them. */
static __always_inline bool copy_regs(struct dl_fault_stack *rec)
{
	const __u32 sz = sizeof(struct dl_raw_regs);
	void *stack;

	_Static_assert(sizeof(struct dl_raw_regs) <= sizeof(rec->regs), "raise DL_FAULT_WORDS");
	rec->words = sz / sizeof(rec->regs[0]);
	if (dl_has_pt_regs()) {
		struct pt_regs *r = (struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf());

		return !bpf_probe_read_kernel(rec->regs, sz, r);
	}
	stack = BPF_CORE_READ((struct task_struct *)bpf_get_current_task(), stack);
	return !bpf_probe_read_kernel(rec->regs, sz, stack + dl_thread_sz - bpf_core_type_size(struct pt_regs));
}

static __always_inline void copy_stack(struct dl_fault_stack *rec)
{
	const __u64 sp = ((struct dl_raw_regs *)rec->regs)->sp;
	__u32 i;

	rec->stack_sz = 0;
#pragma unroll
	for (i = 0; i < DL_FAULT_STACK_SZ / DL_FAULT_CHUNK; i++) {
		if (bpf_probe_read_user(rec->stack + i * DL_FAULT_CHUNK, DL_FAULT_CHUNK,
					(void *)(sp + i * DL_FAULT_CHUNK)))
			return;
		rec->stack_sz = (i + 1) * DL_FAULT_CHUNK;
	}
}

/* By it userspace sees whether the mappings that it knows are those of this moment. */
static __always_inline void copy_mapping(struct dl_fault_stack *rec, enum dl_vma_how how)
{
	struct dl_vma vma = {};
	struct dl_file f = {};

	dl_vma_find(&vma, ((struct dl_raw_regs *)rec->regs)->DL_RAW_IP, how);
	if (vma.found && vma.file)
		dl_file_read(&f, vma.file);
	rec->map_start = vma.start;
	rec->map_off = vma.pgoff * dl_page_sz;
	rec->map_ino = f.ino;
}

static __always_inline int on_fault(int sig, struct kernel_siginfo *info, struct task_struct *t, int result,
				    enum dl_vma_how how)
{
	__u64 id = bpf_get_current_pid_tgid(), now;
	struct dl_fault_stack *rec;
	int code;

	if ((__u32)id != (__u32)t->pid || result || !dl_target_of(id >> 32))
		return 0;
	code = sig_code(info);
	now = bpf_ktime_get_ns();
	if (!is_fatal(sig) || !may_send(id, now))
		return 0;
	if (!dl_crash_room(DL_SHED_CRASH_STACK))
		return 0;
	rec = bpf_ringbuf_reserve(&dl_crash, sizeof(*rec), 0);
	if (!rec) {
		dl_lost(DL_LOSS_RING_FULL, DL_EV_CRASH_STACK);
		return 0;
	}
	dl_hdr_init(&rec->h, DL_KIND_FAULT_STACK, sizeof(*rec), now, id >> 32, id);
	rec->sig = sig;
	rec->code = code;
	rec->addr = 0;
	if (is_fault(sig, code))
		rec->addr = (__u64)BPF_CORE_READ(info, _sifields._sigfault._addr);
	if (!copy_regs(rec)) {
		bpf_ringbuf_discard(rec, 0);
		dl_lost(DL_LOSS_STACK, DL_EV_CRASH_STACK);
		return 0;
	}
	copy_mapping(rec, how);
	copy_stack(rec);
	bpf_ringbuf_submit(rec, 0);
	return 0;
}

SEC("?tp_btf/signal_generate")
int BPF_PROG(dl_fault_stack_vma, int sig, struct kernel_siginfo *info, struct task_struct *t, int group, int result)
{
	return on_fault(sig, info, t, result, DL_VMA_HELPER);
}

SEC("?tp_btf/signal_generate")
int BPF_PROG(dl_fault_stack_rb, int sig, struct kernel_siginfo *info, struct task_struct *t, int group, int result)
{
	return on_fault(sig, info, t, result, DL_VMA_RB);
}

SEC("?tp_btf/signal_generate")
int BPF_PROG(dl_fault_stack, int sig, struct kernel_siginfo *info, struct task_struct *t, int group, int result)
{
	return on_fault(sig, info, t, result, DL_VMA_NONE);
}
