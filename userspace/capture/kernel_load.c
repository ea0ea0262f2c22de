/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Which programs this kernel gets, and loading them. The table says what each needs; what only the
 * verifier knows is found by trying: a program it refuses is left out, its group's next one or
 * nothing takes its place, and the reason is kept.
 */
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bpf/bpf.h>

#include "base/cleanup.h"
#include "capture/env.h"
#include "capture/kernel_priv.h"

/*
 * A CPU has a ring of its own where there are enough of them: CPUs that share one pass its lock and its end
 * back and forth at every event, which costs more than the event. 2 MiB hold 14,000 switches, 256 KiB a
 * hundred milliseconds of a CPU that switches 18,000 times a second. They count twice in the recorder's
 * resident memory, as libbpf maps them twice.
 */
#define RINGS_SZ (16U << 20)	/* together */
#define RING_MAX_SZ (2U << 20)
/* The ring of crash and lifecycle events: some 15,000 processes that are born and die while nobody reads. */
#define CRASH_SZ_DEFAULT (4U << 20)
#define SAME_CALL_MIN_NS 30000
#define SAME_CALL_MAX_NS 1000000
#define SAME_CALL_PAIRS 40

#define PROG(sym) .name = #sym, .off = offsetof(struct dlbpf_bpf, progs.sym)

enum { G_SWITCH, G_WAKE, G_WAKE_NEW, G_FORK, G_EXEC, G_EXIT, G_RENAME, G_SIGNAL, G_DELIVER, G_SIGBUS, G_OOM,
       G_OOM_SIGNAL, G_RECLAIM_BEGIN, G_RECLAIM_END, G_MEMCG_BEGIN, G_MEMCG_END, G_ISSUE, G_COMPLETE, G_MAJOR, G_SAMPLE,
       G_CUDA_ENTER, G_CUDA_LEAVE, G_FAIL, G_FAULT_STACK };

const struct dl_prog_rule dl_prog_rules[] = {
	{ PROG(dl_switch), "sched_switch", 4, DL_FEAT_CAST, G_SWITCH, DL_SRC_SWITCH, DL_EV_SWITCH, DL_AT_TP, true },
	{ PROG(dl_switch_4), "sched_switch", 4, 0, G_SWITCH, DL_SRC_SWITCH, DL_EV_SWITCH, DL_AT_TP, true },
	{ PROG(dl_switch_3), "sched_switch", 3, 0, G_SWITCH, DL_SRC_SWITCH, DL_EV_SWITCH, DL_AT_TP, true },
	{ PROG(dl_waking), "sched_waking", 1, 0, G_WAKE, DL_SRC_WAKE, DL_EV_WAKE, DL_AT_TP, true },
	{ PROG(dl_wakeup_new), "sched_wakeup_new", 1, 0, G_WAKE_NEW, DL_SRC_WAKE, DL_EV_WAKE, DL_AT_TP, true },
	{ PROG(dl_fork), "task_newtask", 2, 0, G_FORK, DL_SRC_LIFE, DL_EV_FORK, DL_AT_TP, true },
	{ PROG(dl_exec), "sched_process_exec", 3, 0, G_EXEC, DL_SRC_LIFE, DL_EV_EXEC, DL_AT_TP, true },
	{ PROG(dl_exit), "sched_process_exit", 1, 0, G_EXIT, DL_SRC_LIFE, DL_EV_EXIT, DL_AT_TP, true },
	{ PROG(dl_rename), "task_rename", 2, 0, G_RENAME, DL_SRC_LIFE, DL_EV_NAME, DL_AT_TP, false },
	{ PROG(dl_signal), "signal_generate", 5, 0, G_SIGNAL, DL_SRC_SIGNALS, DL_EV_SIGNAL, DL_AT_TP, false },
	{ PROG(dl_deliver), "signal_deliver", 3, 0, G_DELIVER, DL_SRC_SIGNALS, DL_EV_SIGNAL_DELIVER, DL_AT_TP, false },
	{ PROG(dl_sigbus_vma), "signal_generate", 3, DL_FEAT_FIND_VMA, G_SIGBUS, DL_SRC_SIGNALS, DL_EV_SIGBUS_MAP,
	  DL_AT_TP, false },
	{ PROG(dl_sigbus_rb), "signal_generate", 3, DL_FEAT_VMA_RB, G_SIGBUS, DL_SRC_SIGNALS, DL_EV_SIGBUS_MAP,
	  DL_AT_TP, false },
	{ PROG(dl_sigbus), "signal_generate", 3, 0, G_SIGBUS, DL_SRC_SIGNALS, DL_EV_SIGBUS_MAP, DL_AT_TP, false },
	{ PROG(dl_fault_stack_vma), "signal_generate", 5, DL_FEAT_FIND_VMA, G_FAULT_STACK, DL_SRC_SIGNALS, DL_EV_CRASH_STACK,
	  DL_AT_TP, false },
	{ PROG(dl_fault_stack_rb), "signal_generate", 5, DL_FEAT_VMA_RB, G_FAULT_STACK, DL_SRC_SIGNALS, DL_EV_CRASH_STACK,
	  DL_AT_TP, false },
	{ PROG(dl_fault_stack), "signal_generate", 5, 0, G_FAULT_STACK, DL_SRC_SIGNALS, DL_EV_CRASH_STACK, DL_AT_TP, false },
	{ PROG(dl_oom), "mark_victim", 2, 0, G_OOM, DL_SRC_OOM, DL_EV_OOM_KILL, DL_AT_TP, false },
	{ PROG(dl_oom_pid), "mark_victim", 1, 0, G_OOM, DL_SRC_OOM, DL_EV_OOM_KILL, DL_AT_TP, false },
	{ PROG(dl_oom_signal), "signal_generate", 3, 0, G_OOM_SIGNAL, DL_SRC_OOM, DL_EV_OOM_KILL, DL_AT_TP, false },
	{ PROG(dl_reclaim_begin), "mm_vmscan_direct_reclaim_begin", 0, 0, G_RECLAIM_BEGIN, DL_SRC_MEM, DL_EV_RECLAIM,
	  DL_AT_TP, false },
	{ PROG(dl_reclaim_end), "mm_vmscan_direct_reclaim_end", 1, 0, G_RECLAIM_END, DL_SRC_MEM, DL_EV_RECLAIM,
	  DL_AT_TP, false },
	{ PROG(dl_memcg_reclaim_begin), "mm_vmscan_memcg_reclaim_begin", 0, DL_FEAT_MEMCG, G_MEMCG_BEGIN, DL_SRC_MEM,
	  DL_EV_RECLAIM, DL_AT_TP, false },
	{ PROG(dl_memcg_reclaim_end), "mm_vmscan_memcg_reclaim_end", 1, DL_FEAT_MEMCG, G_MEMCG_END, DL_SRC_MEM,
	  DL_EV_RECLAIM, DL_AT_TP, false },
	{ PROG(dl_block_issue_q), "block_rq_issue", 2, 0, G_ISSUE, DL_SRC_BLOCK, DL_EV_BLOCK_IO, DL_AT_TP, false },
	{ PROG(dl_block_issue), "block_rq_issue", 1, 0, G_ISSUE, DL_SRC_BLOCK, DL_EV_BLOCK_IO, DL_AT_TP, false },
	{ PROG(dl_block_complete), "block_rq_complete", 3, 0, G_COMPLETE, DL_SRC_BLOCK, DL_EV_BLOCK_IO, DL_AT_TP, false },
	{ PROG(dl_major_vma), NULL, 0, DL_FEAT_FIND_VMA, G_MAJOR, DL_SRC_FAULTS, DL_EV_MAJOR_FAULT, DL_AT_MAJOR, false },
	{ PROG(dl_major_rb), NULL, 0, DL_FEAT_VMA_RB, G_MAJOR, DL_SRC_FAULTS, DL_EV_MAJOR_FAULT, DL_AT_MAJOR, false },
	{ PROG(dl_major), NULL, 0, 0, G_MAJOR, DL_SRC_FAULTS, DL_EV_MAJOR_FAULT, DL_AT_MAJOR, false },
	{ PROG(dl_sample), NULL, 0, 0, G_SAMPLE, DL_SRC_SAMPLES, DL_EV_SAMPLE, DL_AT_SAMPLE, false },
	{ PROG(dl_cuda_enter), NULL, 0, DL_FEAT_UPROBE, G_CUDA_ENTER, DL_SRC_GPU, DL_EV_GPU_API, DL_AT_UPROBE, false },
	{ PROG(dl_cuda_leave), NULL, 0, DL_FEAT_UPROBE, G_CUDA_LEAVE, DL_SRC_GPU, DL_EV_GPU_API, DL_AT_UPROBE, false },
	{ PROG(dl_fail), "sys_exit", 2, 0, G_FAIL, DL_SRC_SYSCALLS, DL_EV_SYSCALL_FAIL, DL_AT_TP, false },
};
const int dl_prog_rule_cnt = ARRAY_SIZE(dl_prog_rules);
_Static_assert(ARRAY_SIZE(dl_prog_rules) <= DL_PROG_MAX, "raise DL_PROG_MAX");

struct bpf_program *dl_rule_prog(const struct dl_kernel *k, const struct dl_prog_rule *r)
{
	return *(struct bpf_program **)((char *)k->skel + r->off);
}

static bool can_use(const struct dl_kernel *k, int i)
{
	const struct dl_prog_rule *r = &dl_prog_rules[i];

	if (k->bad[i] || (r->needs && !k->feat.has[r->needs]))
		return false;
	if (r->attach == DL_AT_SAMPLE && !k->opts.sample_hz)
		return false;
	if (r->group == G_FAIL && k->opts.no_syscalls)
		return false;
	/* Where mark_victim has the task, the signal before it need not be kept. */
	if (r->group == G_OOM_SIGNAL && k->feat.has[DL_FEAT_VICTIM_TASK])
		return false;
	return !r->tracepoint || dl_features_tp_args(&k->feat, r->tracepoint) >= r->args;
}

/* Takes the first usable program of each group; -1 or the row of a required group without one. */
static int choose(struct dl_kernel *k)
{
	int missing = -1;

	for (int i = 0; i < dl_prog_rule_cnt; i++) {
		bool taken = false;

		for (int j = 0; j < i; j++)
			taken |= k->use[j] && dl_prog_rules[j].group == dl_prog_rules[i].group;
		k->use[i] = !taken && can_use(k, i);
		if (dl_prog_rules[i].required && !taken && !k->use[i] &&
		    (i + 1 == dl_prog_rule_cnt || dl_prog_rules[i + 1].group != dl_prog_rules[i].group))
			missing = i;
	}
	return missing;
}

/*
 * How long a thread may run between two sleeps and still be in the same system call: some 40 times
 * what two short calls take on this machine, which tells an emulated one from a real one.
 */
static uint32_t same_call_ns(void)
{
	uint64_t best = UINT64_MAX;
	int p[2];
	char c = 0;

	if (pipe(p))
		return SAME_CALL_MIN_NS;
	for (int i = 0; i < 64; i++) {
		uint64_t start = dl_kernel_now(), took;

		if (write(p[1], &c, 1) != 1 || read(p[0], &c, 1) != 1)
			break;
		took = dl_kernel_now() - start;
		best = took < best ? took : best;
	}
	close(p[0]);
	close(p[1]);
	if (best > SAME_CALL_MAX_NS / SAME_CALL_PAIRS)
		return best == UINT64_MAX ? SAME_CALL_MIN_NS : SAME_CALL_MAX_NS;
	return SAME_CALL_PAIRS * best < SAME_CALL_MIN_NS ? SAME_CALL_MIN_NS : SAME_CALL_PAIRS * best;
}

/* A power of two, whole pages. */
static uint32_t ring_sz(uint32_t want, uint32_t otherwise)
{
	uint32_t sz = sysconf(_SC_PAGESIZE);

	want = want ? want : otherwise;
	while (sz < want && sz < 1U << 30)
		sz <<= 1;
	return sz;
}

/* Of each ring of a group of CPUs. */
static uint32_t sched_ring_sz(const struct dl_kernel *k)
{
	uint32_t each = RINGS_SZ / (uint32_t)k->group_cnt;

	while (each & (each - 1))	/* a power of two, downwards */
		each &= each - 1;
	return ring_sz(k->opts.ring_sz, each < RING_MAX_SZ ? each : RING_MAX_SZ);
}

static void fill_rodata(struct dl_kernel *k)
{
	struct dlbpf_bpf__rodata *ro = k->skel->rodata;
	uint32_t page = sysconf(_SC_PAGESIZE);

	ro->dl_ring_shift = k->group_shift;
	ro->dl_ring_bits = __builtin_ctz(sched_ring_sz(k));
	ro->dl_self_tgid = getpid();
	ro->dl_page_sz = page;
	ro->dl_thread_sz = page > 16384 ? page : 16384;	/* arm64 with 64 KiB pages */
	ro->dl_same_call_ns = same_call_ns();
	ro->dl_period_us = k->opts.sample_hz ? 1000000 / k->opts.sample_hz : 0;
	ro->dl_user_stacks = k->opts.user_stacks;
	dl_kernel_fill_syscalls(ro->dl_syscalls);
	dl_kernel_fill_fails(ro->dl_sc_fails);
	ro->dl_max_maps = dl_env_maps_limit();
	ro->dl_nr_recvmsg = SYS_recvmsg;
	ro->dl_nr_unlinkat = SYS_unlinkat;
#ifdef SYS_unlink
	ro->dl_nr_unlink = SYS_unlink;
#endif
}

/* One ring for each group of CPUs; the map of rings is filled in after loading. */
static int make_rings(struct dl_kernel *k, struct dl_diag *d)
{
	const uint32_t sz = sched_ring_sz(k);
	LIBBPF_OPTS(bpf_map_create_opts, opts);

	for (int i = 0; i < k->group_cnt; i++) {
		int fd = bpf_map_create(BPF_MAP_TYPE_RINGBUF, "dl_ring", 0, 0, sz, &opts);

		if (fd < 0) {
			int err = -errno;

			if (err == -EPERM)
				return dl_fail(d, err, "the kernel refuses BPF maps: not enough rights (a container without "
					       "CAP_BPF, or seccomp), or RLIMIT_MEMLOCK is too small (ulimit -l unlimited)");
			return dl_fail_errno(d, err, "cannot make a BPF ring buffer of %u bytes", sz);
		}
		k->ring_fds[i] = fd;
	}
	return 0;
}

static int fill_rings(struct dl_kernel *k, struct dl_diag *d)
{
	int map = bpf_map__fd(k->skel->maps.dl_rings);

	for (__u32 i = 0; i < (__u32)k->group_cnt; i++) {
		if (bpf_map_update_elem(map, &i, &k->ring_fds[i], 0))
			return dl_fail_errno(d, -errno, "cannot hand ring %u to the BPF programs", i);
	}
	return 0;
}

/* The row of the program that libbpf's messages say was refused, or -1. */
static int find_refused(const struct dl_kernel *k)
{
	const char *text = dl_log_text();

	for (int i = 0; i < dl_prog_rule_cnt; i++) {
		char needle[96];

		snprintf(needle, sizeof(needle), "prog '%s': failed to load", dl_prog_rules[i].name);
		if (k->use[i] && strstr(text, needle))
			return i;
	}
	return -1;
}

static int open_and_load(struct dl_kernel *k)
{
	int err;

	k->skel = dlbpf_bpf__open();
	if (!k->skel)
		return -errno;
	fill_rodata(k);
	for (int i = 0; i < dl_prog_rule_cnt; i++)
		bpf_program__set_autoload(dl_rule_prog(k, &dl_prog_rules[i]), k->use[i]);
	err = bpf_map__set_inner_map_fd(k->skel->maps.dl_rings, k->ring_fds[0]);
	if (!err)
		err = bpf_map__set_max_entries(k->skel->maps.dl_crash, ring_sz(k->opts.crash_sz, CRASH_SZ_DEFAULT));
	if (!err)
		err = dlbpf_bpf__load(k->skel);
	if (err) {
		dlbpf_bpf__destroy(k->skel);
		k->skel = NULL;
	}
	return err;
}

static int load_failed(int err, struct dl_diag *d)
{
	char path[64];

	return dl_fail_errno(d, err, "the kernel refused the BPF programs (messages: %s)", dl_log_save(path, sizeof(path)));
}

int dl_kernel_load(struct dl_kernel *k, struct dl_diag *d)
{
	int err, missing, refused;

	k->group_shift = 0;
	while ((k->cpus - 1) >> k->group_shift >= DL_GROUP_MAX)
		k->group_shift++;
	k->group_cnt = ((k->cpus - 1) >> k->group_shift) + 1;
	err = make_rings(k, d);
	if (err)
		return err;
	dl_log_begin(k->opts.verbose);
	for (;;) {
		missing = choose(k);
		if (missing >= 0 && k->bad[missing])
			return load_failed(-EINVAL, d);
		if (missing >= 0)
			return dl_fail(d, -EOPNOTSUPP, "this kernel has no usable tracepoint %s",
				       dl_prog_rules[missing].tracepoint);
		err = open_and_load(k);
		if (!err)
			break;
		refused = find_refused(k);
		if (refused < 0)
			return load_failed(err, d);
		k->bad[refused] = true;
	}
	return fill_rings(k, d);
}
