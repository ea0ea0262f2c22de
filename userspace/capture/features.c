/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Probes of the running kernel: rights and obstacles first, then one row for each difference. */
#include "capture/features.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>

#include <bpf/btf.h>
#include <bpf/libbpf.h>

#include "base/cleanup.h"
#include "base/str.h"

#define VMLINUX_BTF "/sys/kernel/btf/vmlinux"
#define UPROBE_PMU "/sys/bus/event_source/devices/uprobe/type"
#define LOCKDOWN "/sys/kernel/security/lockdown"
#define PID_INIT_INO 0xeffffffcU	/* PROC_PID_INIT_INO, include/linux/proc_ns.h */

enum { CAP_SYS_ADMIN_BIT = 21, CAP_PERFMON_BIT = 38, CAP_BPF_BIT = 39 };

const struct dl_feature dl_feature_table[DL_FEAT_MAX] = {
	[DL_FEAT_SWITCH_STATE] = { "sched_switch has prev_state", "exact state of a thread that is woken while it stops",
				   "8feb053d5319, 5.18" },
	[DL_FEAT_PT_REGS] = { "bpf_task_pt_regs", "system call of a thread by a plain load", "dd6e10fbd9fb, 5.15" },
	[DL_FEAT_FIND_VMA] = { "bpf_find_vma", "file behind a fault or SIGBUS, under its lock", "7c7e3d31e785, 5.17" },
	[DL_FEAT_VMA_RB] = { "mappings in a red-black tree", "file behind a fault or SIGBUS, without a lock",
			     "until 524e00b36e8c, 6.1" },
	[DL_FEAT_VICTIM_TASK] = { "mark_victim has the task", "memory of an OOM victim that was dying already",
				  "72ba14deb40a, 6.9" },
	[DL_FEAT_RSS_PERCPU] = { "per-CPU memory counters", "none: resident memory lags by up to max(32, 2 CPUs) pages a CPU",
				 "f1a7941243c1, 6.2" },
	[DL_FEAT_EXIT_EARLY] = { "sched_process_exit before exit_mm", "exactly one thread is the last of its process",
				 "\"exit: move and extend sched_process_exit() tracepoint\", 6.16" },
	[DL_FEAT_PSI] = { "task_struct.in_memstall", "whether a thread that stops is reclaiming", "CONFIG_PSI" },
	[DL_FEAT_CFS_BANDWIDTH] = { "cfs_rq.throttle_count", "whether a thread that stops is over its CPU quota",
				    "CONFIG_CFS_BANDWIDTH" },
	[DL_FEAT_UPROBE] = { "uprobes by perf_event_open", "CUDA calls where there is no collector",
			     "33ea4b24277b, 4.17; CONFIG_UPROBE_EVENTS" },
	[DL_FEAT_CAST] = { "bpf_rdonly_cast", "what a thread waits at, in a fraction of the time", "a35b9af4ec2c, 6.2" },
	[DL_FEAT_MEMCG] = { "struct mem_cgroup", "which cgroup's limit an OOM kill was for", "CONFIG_MEMCG" },
};

/* --- BTF ------------------------------------------------------------------------------------- */

static const struct btf_type *skip_mods(const struct btf *btf, __u32 id)
{
	const struct btf_type *t = btf__type_by_id(btf, id);

	while (t && (btf_is_mod(t) || btf_is_typedef(t)))
		t = btf__type_by_id(btf, t->type);
	return t;
}

/* Looks into anonymous structs and unions too. Returns the member's type id, or 0. */
static __u32 member_in(const struct btf *btf, const struct btf_type *t, const char *member)
{
	const struct btf_member *m = btf_members(t);

	for (int i = 0; i < btf_vlen(t); i++) {
		const char *name = btf__name_by_offset(btf, m[i].name_off);
		const struct btf_type *inner = skip_mods(btf, m[i].type);
		__u32 id;

		if (name && !strcmp(name, member))
			return m[i].type;
		if (name && *name)
			continue;
		id = inner && btf_is_composite(inner) ? member_in(btf, inner, member) : 0;
		if (id)
			return id;
	}
	return 0;
}

static __u32 struct_member(const struct btf *btf, const char *name, const char *member)
{
	int id = btf__find_by_name_kind(btf, name, BTF_KIND_STRUCT);

	return id < 0 ? 0 : member_in(btf, btf__type_by_id(btf, id), member);
}

static bool has_helper(const struct btf *btf, const char *enumerator)
{
	int id = btf__find_by_name_kind(btf, "bpf_func_id", BTF_KIND_ENUM);
	const struct btf_type *t;

	if (id < 0)
		return false;
	t = btf__type_by_id(btf, id);
	for (int i = 0; i < btf_vlen(t); i++) {
		if (!strcmp(btf__name_by_offset(btf, btf_enum(t)[i].name_off), enumerator))
			return true;
	}
	return false;
}

int dl_features_tp_args(const struct dl_features *f, const char *tracepoint)
{
	const struct btf_type *t;
	char name[80];
	int id;

	snprintf(name, sizeof(name), "btf_trace_%s", tracepoint);
	id = btf__find_by_name_kind(f->btf, name, BTF_KIND_TYPEDEF);
	if (id < 0)
		return -1;
	/* typedef -> pointer -> function; its first parameter is the tracepoint's private data */
	t = btf__type_by_id(f->btf, btf__type_by_id(f->btf, id)->type);
	t = t && btf_is_ptr(t) ? btf__type_by_id(f->btf, t->type) : NULL;
	return t && btf_is_func_proto(t) ? btf_vlen(t) - 1 : -1;
}

static void probe_table(struct dl_features *f)
{
	const struct btf *btf = f->btf;
	bool *has = f->has;

	has[DL_FEAT_SWITCH_STATE] = dl_features_tp_args(f, "sched_switch") >= 4;
	has[DL_FEAT_PT_REGS] = has_helper(btf, "BPF_FUNC_task_pt_regs");
	has[DL_FEAT_FIND_VMA] = has_helper(btf, "BPF_FUNC_find_vma");
	has[DL_FEAT_VMA_RB] = struct_member(btf, "mm_struct", "mm_rb") != 0;
	has[DL_FEAT_VICTIM_TASK] = dl_features_tp_args(f, "mark_victim") >= 2;
	has[DL_FEAT_RSS_PERCPU] = btf__find_by_name_kind(btf, "mm_rss_stat", BTF_KIND_STRUCT) < 0;
	has[DL_FEAT_EXIT_EARLY] = dl_features_tp_args(f, "sched_process_exit") >= 2;
	has[DL_FEAT_PSI] = struct_member(btf, "task_struct", "in_memstall") != 0;
	has[DL_FEAT_CFS_BANDWIDTH] = struct_member(btf, "cfs_rq", "throttle_count") != 0;
	has[DL_FEAT_UPROBE] = !access(UPROBE_PMU, R_OK);
	has[DL_FEAT_CAST] = btf__find_by_name_kind(btf, "bpf_rdonly_cast", BTF_KIND_FUNC) > 0;
	has[DL_FEAT_MEMCG] = btf__find_by_name_kind(btf, "mem_cgroup", BTF_KIND_STRUCT) > 0;
}

/* --- obstacles ------------------------------------------------------------------------------- */

static bool read_line(const char *path, char *buf, size_t sz)
{
	_cleanup_fclose_ FILE *f = fopen(path, "re");

	return f && fgets(buf, sz, f);
}

static unsigned long long effective_caps(void)
{
	_cleanup_fclose_ FILE *f = fopen("/proc/self/status", "re");
	unsigned long long caps = 0;
	char line[256];

	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "CapEff: %llx", &caps) == 1)
			break;
	}
	return caps;
}

static int check_rights(struct dl_diag *d)
{
	unsigned long long caps = effective_caps();
	bool admin = caps >> CAP_SYS_ADMIN_BIT & 1;
	char line[128];
	struct stat st;

	if (!admin && !((caps >> CAP_BPF_BIT & 1) && (caps >> CAP_PERFMON_BIT & 1)))
		return dl_fail(d, -EPERM, "recording needs root (or the capabilities CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE): "
			       "run it with sudo");
	if (stat("/proc/self/ns/pid", &st) == 0 && st.st_ino != PID_INIT_INO)
		return dl_fail(d, -EOPNOTSUPP, "this is a container with process ids of its own, and the kernel reports those of "
			       "the host: run dlbpf on the host, or with the host's PID namespace (--pid=host)");
	if (read_line(LOCKDOWN, line, sizeof(line)) && strstr(line, "[confidentiality]"))
		return dl_fail(d, -EPERM, "the kernel is locked down for confidentiality (%s), which forbids reading kernel memory "
			       "from BPF: boot with lockdown=integrity or less", LOCKDOWN);
	return 0;
}

/*
 * On PREEMPT_RT a ring buffer whose lock is a plain spinlock_t would sleep in sched_switch: 5.10-rt
 * hangs so. The lock is a raw_spinlock_t since commit 8b62645b09f8, 6.12 and stable.
 */
static int check_ring_lock(const struct btf *btf, struct dl_diag *d)
{
	__u32 id = struct_member(btf, "bpf_ringbuf", "spinlock");
	const struct btf_type *t = id ? btf__type_by_id(btf, id) : NULL;
	char line[16] = "";
	struct utsname u;
	bool rt;

	rt = read_line("/sys/kernel/realtime", line, sizeof(line)) && line[0] == '1';
	if (uname(&u) == 0 && strstr(u.version, "PREEMPT_RT"))
		rt = true;
	if (rt && t && !strcmp(btf__name_by_offset(btf, t->name_off), "spinlock_t"))
		return dl_fail(d, -EOPNOTSUPP, "the BPF ring buffer of this PREEMPT_RT kernel (%s) takes a lock that may sleep, and "
			       "would hang the machine: use a newer kernel, or one that is not PREEMPT_RT", u.release);
	return 0;
}

int dl_features_probe(struct dl_features *f, struct dl_diag *d)
{
	struct dl_features tmp = {};
	int err;

	err = check_rights(d);
	if (err)
		return err;
	if (access(VMLINUX_BTF, R_OK))
		return dl_fail(d, -ENOENT, "this kernel has no type information (%s): it must be built with "
			       "CONFIG_DEBUG_INFO_BTF=y, as the kernels of all large distributions since 2020 are", VMLINUX_BTF);
	tmp.btf = btf__load_vmlinux_btf();
	if (!tmp.btf)
		return dl_fail_errno(d, -errno, "cannot read %s", VMLINUX_BTF);
	err = check_ring_lock(tmp.btf, d);
	if (err) {
		dl_features_fini(&tmp);
		return err;
	}
	probe_table(&tmp);
	*f = tmp;
	return 0;
}

void dl_features_fini(struct dl_features *f)
{
	btf__free(f->btf);
	f->btf = NULL;
}
