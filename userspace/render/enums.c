/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#include "render/enums.h"

#include <inttypes.h>
#include <string.h>

#include <dlbpf/event.h>

#include "base/cleanup.h"
#include "render/syscall_name.h"
#include "render/who.h"

static const struct dl_enum_name file_kind[] = {
	{ DL_FILE_NONE, "none" }, { DL_FILE_FIFO, "pipe" }, { DL_FILE_UNIX, "unix" },
	{ DL_FILE_INET, "inet" }, { DL_FILE_SOCK, "socket" }, { DL_FILE_REG, "regular" },
	{ DL_FILE_DIR, "directory" }, { DL_FILE_BLK, "block" }, { DL_FILE_CHR, "char" },
	{ DL_FILE_ANON, "anon" },
};

static const struct dl_enum_name switch_flag[] = {
	{ DL_SW_IOWAIT, "iowait" }, { DL_SW_MEMSTALL, "memstall" }, { DL_SW_EXCEPTION, "exception" },
	{ DL_SW_PREEMPT, "preempt" }, { DL_SW_QUARTET, "quartet" }, { DL_SW_SIGBLOCK, "sigblock" },
	{ DL_SW_NEXT_FOREIGN, "next_foreign" }, { DL_SW_KTHREAD, "kthread" },
	{ DL_SW_EXITING, "exiting" }, { DL_SW_COMPAT, "compat" },
	{ DL_SW_RT_DEADLINE, "rt_deadline" }, { DL_SW_BLOCKIO, "blockio" },
};

static const struct dl_enum_name wake_flag[] = {
	{ DL_WK_NEW, "new" }, { DL_WK_IRQ, "irq" }, { DL_WK_NOT_IRQ, "not_irq" },
	{ DL_WK_FOREIGN_WAKEE, "foreign_wakee" }, { DL_WK_KTHREAD, "kthread" },
};

static const struct dl_enum_name name_flag[] = {
	{ DL_NM_KTHREAD, "kthread" },
};

static const struct dl_enum_name exit_flag[] = {
	{ DL_EX_LAST, "last" }, { DL_EX_CORE, "core" }, { DL_EX_ROOT, "root" },
};

static const struct dl_enum_name task_flag[] = {
	{ DL_TF_ROOT, "root" }, { DL_TF_LATE, "late" }, { DL_TF_GONE, "gone" },
};

static const struct dl_enum_name fault_kind[] = {
	{ DL_FAULT_UNKNOWN, "unknown" }, { DL_FAULT_FILE, "file" }, { DL_FAULT_SWAP, "swap" },
	{ DL_FAULT_SHMEM, "shmem" },
};

static const struct dl_enum_name reclaim_kind[] = {
	{ DL_RECLAIM_DIRECT, "direct" }, { DL_RECLAIM_MEMCG, "memcg" },
};

static const struct dl_enum_name sigbus_flag[] = {
	{ DL_SB_NO_VMA, "no_vma" }, { DL_SB_WRITE, "write" }, { DL_SB_SHARED, "shared" },
	{ DL_SB_HUGETLB, "hugetlb" }, { DL_SB_PAST_END, "past_end" }, { DL_SB_FROM_PROC, "from_proc" },
};

static const struct dl_enum_name stack_end[] = {
	{ DL_STACK_BASE, "base" }, { DL_STACK_MEMORY, "memory" }, { DL_STACK_NO_INFO, "no_info" },
	{ DL_STACK_BROKEN, "broken" }, { DL_STACK_FULL, "full" }, { DL_STACK_TIME, "time" },
};

static const struct dl_enum_name oom_flag[] = {
	{ DL_OOM_MEMCG, "memcg" }, { DL_OOM_FOREIGN, "foreign" },
};

static const struct dl_enum_name limit[] = {
	{ DL_LIMIT_NONE, "none" }, { DL_LIMIT_FDS, "descriptors" }, { DL_LIMIT_FILES, "files" },
	{ DL_LIMIT_MAPS, "mappings" }, { DL_LIMIT_AS, "address space" }, { DL_LIMIT_DATA, "data" },
	{ DL_LIMIT_MEMLOCK, "locked memory" }, { DL_LIMIT_NPROC, "threads of the user" },
	{ DL_LIMIT_PIDS, "threads of the cgroup" }, { DL_LIMIT_FS, "file system" },
	{ DL_LIMIT_INODES, "inodes" }, { DL_LIMIT_FSIZE, "file size" },
};

static const struct dl_enum_name fail_flag[] = {
	{ DL_SF_CTRUNC, "ctrunc" }, { DL_SF_NAME, "name" }, { DL_SF_CGROUP, "cgroup" },
	{ DL_SF_FORK, "fork" }, { DL_SF_THREAD, "thread" }, { DL_SF_SHM, "shm" },
};

static const struct dl_enum_name block_op[] = {
	{ DL_BLOCK_READ, "read" }, { DL_BLOCK_WRITE, "write" }, { DL_BLOCK_OTHER, "other" },
};

static const struct dl_enum_name sample_mode[] = {
	{ DL_SAMPLE_USER, "user" }, { DL_SAMPLE_KERNEL, "kernel" },
};

static const struct dl_enum_name gpu_state[] = {
	{ DL_GPU_NONE, "none" }, { DL_GPU_COLLECTOR, "collector" }, { DL_GPU_UPROBES, "uprobes" },
	{ DL_GPU_BUSY, "busy" }, { DL_GPU_FAILED, "failed" }, { DL_GPU_STOPPED, "stopped" },
	{ DL_GPU_IMPORTED, "imported" },
};

static const struct dl_enum_name gpu_source_flag[] = {
	{ DL_GPU_SIMULATED, "simulated" },
};

static const struct dl_enum_name gpu_match[] = {
	{ DL_GPU_MATCH_NONE, "none" }, { DL_GPU_MATCH_PCI, "pci" }, { DL_GPU_MATCH_ONLY, "only_one" },
	{ DL_GPU_MATCH_ENV, "environment" },
};

static const struct dl_enum_name gpu_link_flag[] = {
	{ DL_GL_NVML, "nvml" }, { DL_GL_SYSFS, "sysfs" }, { DL_GL_MIG, "mig" },
	{ DL_GL_SIMULATED, "simulated" },
};

static const struct dl_enum_name gpu_sample_flag[] = {
	{ DL_GS_UTIL, "util" }, { DL_GS_MEM, "mem" }, { DL_GS_PROCS, "procs" },
	{ DL_GS_PROC_MEM, "proc_mem" }, { DL_GS_PCIE, "pcie" }, { DL_GS_LINK, "link" },
};

static const struct dl_enum_name gpu_dir[] = {
	{ DL_GPU_HTOD, "host-to-device" }, { DL_GPU_DTOH, "device-to-host" },
	{ DL_GPU_HTOA, "host-to-array" }, { DL_GPU_ATOH, "array-to-host" },
	{ DL_GPU_ATOA, "array-to-array" }, { DL_GPU_ATOD, "array-to-device" },
	{ DL_GPU_DTOA, "device-to-array" }, { DL_GPU_DTOD, "device-to-device" },
	{ DL_GPU_HTOH, "host-to-host" }, { DL_GPU_PTOP, "peer-to-peer" },
};

static const struct dl_enum_name gpu_mem[] = {
	{ DL_GPU_MEM_UNKNOWN, "unknown" }, { DL_GPU_MEM_PAGEABLE, "pageable" },
	{ DL_GPU_MEM_PINNED, "pinned" }, { DL_GPU_MEM_DEVICE, "device" },
	{ DL_GPU_MEM_ARRAY, "array" }, { DL_GPU_MEM_MANAGED, "managed" },
};

static const struct dl_enum_name gpu_sync_type[] = {
	{ DL_GPU_SYNC_EVENT, "event" }, { DL_GPU_SYNC_STREAM_WAIT, "stream_wait" },
	{ DL_GPU_SYNC_STREAM, "stream" }, { DL_GPU_SYNC_CONTEXT, "context" },
};

static const struct dl_enum_name gpu_domain[] = {
	{ DL_GPU_RUNTIME, "runtime" }, { DL_GPU_DRIVER, "driver" },
};

static const struct dl_enum_name gpu_call[] = {
	{ DL_CALL_OTHER, "other" }, { DL_CALL_LAUNCH, "launch" },
	{ DL_CALL_GRAPH_LAUNCH, "graph_launch" }, { DL_CALL_COPY, "copy" },
	{ DL_CALL_MEMSET, "memset" }, { DL_CALL_SYNC, "sync" }, { DL_CALL_ALLOC, "alloc" },
	{ DL_CALL_HOST_ALLOC, "host_alloc" }, { DL_CALL_FREE, "free" }, { DL_CALL_MODULE, "module" },
	{ DL_CALL_GRAPH, "graph" },
};

static const struct dl_enum_name span_kind[] = {
	{ DL_SPAN_NONE, "none" }, { DL_SPAN_DATA, "data" }, { DL_SPAN_DATA_INLINE, "data_inline" },
	{ DL_SPAN_STEP, "step" }, { DL_SPAN_OP, "op" },
};

static const struct dl_enum_name ring[] = {
	{ DL_RING_CRASH, "crash" }, { DL_RING_GPU, "gpu" }, { DL_RING_WRITER, "recorder" },
};

static const struct dl_enum_name loss_cause[] = {
	{ DL_LOSS_NONE, "none" }, { DL_LOSS_RING_FULL, "ring full" },
	{ DL_LOSS_RECURSION, "recursion" }, { DL_LOSS_MAP_FULL, "map full" },
	{ DL_LOSS_STACK, "no stack" }, { DL_LOSS_LATE, "late" }, { DL_LOSS_INVALID, "malformed" },
	{ DL_LOSS_GPU, "collector" }, { DL_LOSS_DISK, "disk full" }, { DL_LOSS_SHED, "left out" },
};

static const struct dl_enum_name shed[] = {
	{ DL_SHED_NONE, "any" }, { DL_SHED_SAMPLE_USER, "user stacks of samples" }, { DL_SHED_SAMPLE, "samples" },
	{ DL_SHED_MEM, "memory figures" }, { DL_SHED_SWITCH_STACK, "stacks of waits" },
	{ DL_SHED_MAJOR_FAULT, "major faults" }, { DL_SHED_WAKE_FOREIGN, "wakes of other threads" },
	{ DL_SHED_NAME, "names of threads" }, { DL_SHED_BLOCK_IO, "block I/O" }, { DL_SHED_RECLAIM, "reclaim" },
	{ DL_SHED_GPU_API, "CUDA calls" }, { DL_SHED_WAKE, "wakes" }, { DL_SHED_SWITCH, "switches" },
	{ DL_SHED_CHILD_SIGNAL, "SIGCHLD" }, { DL_SHED_SIGNAL, "harmless signals" },
	{ DL_SHED_SYSCALL_FAIL, "failed system calls" }, { DL_SHED_CRASH_STACK, "stacks of crashes" },
};

static const struct dl_enum_name source[] = {
	{ DL_SRC_NONE, "none" }, { DL_SRC_SWITCH, "switches" }, { DL_SRC_WAKE, "wakes" },
	{ DL_SRC_LIFE, "lifecycle" }, { DL_SRC_FAULTS, "faults" }, { DL_SRC_MEM, "memory" },
	{ DL_SRC_SIGNALS, "signals" }, { DL_SRC_OOM, "oom" }, { DL_SRC_BLOCK, "block I/O" },
	{ DL_SRC_SAMPLES, "samples" }, { DL_SRC_CGROUP, "cgroup" }, { DL_SRC_SHM, "/dev/shm" },
	{ DL_SRC_GPU, "gpu" }, { DL_SRC_SYMBOLS, "symbols" },
	{ DL_SRC_SYSCALLS, "system calls" },
};

static const struct dl_enum_name mark[] = {
	{ DL_MARK_NONE, "none" }, { DL_MARK_START, "start" }, { DL_MARK_STOP, "stop" },
	{ DL_MARK_TARGET_EXIT, "target_exit" }, { DL_MARK_SHED, "shed" },
	{ DL_MARK_TRIGGER, "trigger" }, { DL_MARK_STATE, "state" }, { DL_MARK_SINCE, "since" },
};

/* The kernel's, and POSIX's: include/linux/sched.h, include/uapi/linux/sched.h, magic.h. */

static const struct dl_enum_name task_state[] = {
	{ 0x1, "S" }, { 0x2, "D" }, { 0x4, "T" }, { 0x8, "t" }, { 0x10, "X" }, { 0x20, "Z" },
	{ 0x40, "P" }, { 0x80, "DEAD" }, { 0x100, "WAKEKILL" }, { 0x200, "WAKING" },
	{ 0x400, "NOLOAD" }, { 0x800, "NEW" }, { 0x1000, "RTLOCK" }, { 0x2000, "FREEZABLE" },
	{ 0x4000, "FREEZABLE_UNSAFE" }, { 0x8000, "FROZEN" },
};

static const struct dl_enum_name clone_flag[] = {
	{ 0x100, "VM" }, { 0x200, "FS" }, { 0x400, "FILES" }, { 0x800, "SIGHAND" },
	{ 0x1000, "PIDFD" }, { 0x2000, "PTRACE" }, { 0x4000, "VFORK" }, { 0x8000, "PARENT" },
	{ 0x10000, "THREAD" }, { 0x20000, "NEWNS" }, { 0x40000, "SYSVSEM" }, { 0x80000, "SETTLS" },
	{ 0x100000, "PARENT_SETTID" }, { 0x200000, "CHILD_CLEARTID" }, { 0x800000, "UNTRACED" },
	{ 0x1000000, "CHILD_SETTID" }, { 0x2000000, "NEWCGROUP" }, { 0x4000000, "NEWUTS" },
	{ 0x8000000, "NEWIPC" }, { 0x10000000, "NEWUSER" }, { 0x20000000, "NEWPID" },
	{ 0x40000000, "NEWNET" }, { 0x80000000, "IO" },
};

static const struct dl_enum_name signal_result[] = {
	{ 0, "delivered" }, { 1, "ignored" }, { 2, "pending" }, { 3, "lost" }, { 4, "lost info" },
};

static const struct dl_enum_name file_magic[] = {
	{ 0x01021994, "tmpfs" }, { 0x858458f6, "ramfs" }, { 0xef53, "ext4" }, { 0x58465342, "xfs" },
	{ 0x9123683e, "btrfs" }, { 0x794c7630, "overlay" }, { 0x6969, "nfs" }, { 0x65735546, "fuse" },
	{ 0xff534d42, "cifs" }, { 0xfe534d42, "smb2" }, { 0x00c36400, "ceph" }, { 0x0bd00bd0, "lustre" },
	{ 0x47504653, "gpfs" }, { 0x2fc12fc1, "zfs" }, { 0xf2f52010, "f2fs" }, { 0x73717368, "squashfs" },
	{ 0xe0f5e1e2, "erofs" }, { 0x01021997, "9p" }, { 0x6a656a63, "virtiofs" },
	{ 0x50495045, "pipefs" }, { 0x534f434b, "sockfs" }, { 0x09041934, "anon_inode" },
	{ 0x9fa0, "proc" }, { 0x62656572, "sysfs" }, { 0x1cd1, "devpts" }, { 0x62646576, "bdev" },
	{ 0x958458f6, "hugetlbfs" }, { 0x4d44, "vfat" }, { 0x2011bab0, "exfat" },
};

#define TABLE(NAME) { #NAME, NAME, ARRAY_SIZE(NAME) }
static const struct dl_enum tables[] = {
	TABLE(file_kind), TABLE(switch_flag), TABLE(wake_flag), TABLE(name_flag), TABLE(exit_flag),
	TABLE(task_flag), TABLE(fault_kind), TABLE(reclaim_kind), TABLE(sigbus_flag), TABLE(oom_flag),
	TABLE(limit), TABLE(fail_flag),
	TABLE(block_op), TABLE(sample_mode), TABLE(gpu_state), TABLE(gpu_source_flag), TABLE(gpu_match),
	TABLE(gpu_link_flag), TABLE(gpu_sample_flag), TABLE(gpu_dir),
	TABLE(gpu_mem), TABLE(gpu_sync_type), TABLE(gpu_domain), TABLE(gpu_call), TABLE(ring),
	TABLE(loss_cause), TABLE(shed), TABLE(source), TABLE(mark), TABLE(task_state), TABLE(clone_flag),
	TABLE(signal_result), TABLE(file_magic), TABLE(span_kind), TABLE(stack_end),
};

/* Fields whose meaning names no enumeration of ours. */
static const struct { const char *field, *tag; } by_field[] = {
	{ "prev_state", "task_state" }, { "wakee_state", "task_state" },
	{ "clone_flags", "clone_flag" }, { "result", "signal_result" }, { "file_magic", "file_magic" },
};

const struct dl_enum *dl_enum_by_tag(const char *tag, size_t len)
{
	for (size_t i = 0; i < ARRAY_SIZE(tables); i++)
		if (strlen(tables[i].tag) == len && !strncmp(tables[i].tag, tag, len))
			return &tables[i];
	return NULL;
}

const struct dl_enum *dl_enum_of(const struct dl_field *f)
{
	static const char mark_of[] = "enum dl_";
	const char *at = strstr(f->doc, mark_of);

	for (size_t i = 0; i < ARRAY_SIZE(by_field); i++)
		if (!strcmp(f->name, by_field[i].field))
			return dl_enum_by_tag(by_field[i].tag, strlen(by_field[i].tag));
	if (!at)
		return NULL;
	at += sizeof(mark_of) - 1;
	return dl_enum_by_tag(at, strspn(at, "abcdefghijklmnopqrstuvwxyz_"));
}

const char *dl_enum_name(const struct dl_enum *e, uint64_t val)
{
	for (size_t i = 0; e && i < e->cnt; i++)
		if (e->names[i].val == val)
			return e->names[i].name;
	return NULL;
}

static void add_bits(struct dl_str *out, const struct dl_enum *e, uint64_t val)
{
	const char *sep = "";

	for (size_t i = 0; i < e->cnt; i++)
		if (val & e->names[i].val) {
			dl_str_addf(out, "%s%s", sep, e->names[i].name);
			val &= ~e->names[i].val;
			sep = "|";
		}
	if (val)
		dl_str_addf(out, "%s0x%" PRIx64, sep, val);
}

/* The lowest byte is the signal that the parent gets at the child's end. */
static void add_clone_flags(struct dl_str *out, const struct dl_enum *e, uint64_t val)
{
	add_bits(out, e, val & ~0xffULL);
	if (val & 0xff) {
		dl_str_add(out, val & ~0xffULL ? "|" : "");
		dl_signal_text(out, (int)(val & 0xff));
	}
}

/* LOSS.kind */
static const char *event_kind(int64_t val)
{
	const struct dl_event_desc *desc = dl_event_desc((unsigned int)val);

	return desc ? desc->name : val ? NULL : "any";
}

static bool is_dev(const char *name)
{
	const size_t len = strlen(name);

	return !strcmp(name, "dev") || (len > 4 && !strcmp(name + len - 4, "_dev"));
}

void dl_field_name(struct dl_str *out, const struct dl_field *f, int64_t val, const char *machine)
{
	const struct dl_enum *e = dl_enum_of(f);
	const char *name = NULL;

	if (f->unit == DL_UNIT_NR)
		name = val == -1 ? "none" : val == -2 ? "unknown" : dl_syscall_name(machine, (int32_t)val);
	else if (e && e->names == task_state && !val)
		name = "R";
	else if (e && e->names == clone_flag)
		add_clone_flags(out, e, (uint64_t)val);
	else if (e && f->unit == DL_UNIT_BITS)
		add_bits(out, e, (uint64_t)val);
	else if (e && e->names == ring && val < DL_RING_SCHED_MAX)
		dl_ring_text(out, (uint32_t)val);
	else if (e)
		name = dl_enum_name(e, (uint64_t)val);
	else if (f->unit == DL_UNIT_ENUM && !strncmp(f->doc, "event kind", 10))
		name = event_kind(val);
	else if (f->unit == DL_UNIT_NUM && !strcmp(f->name, "sig"))
		dl_signal_text(out, (int)val);
	else if (f->unit == DL_UNIT_NUM && !strcmp(f->name, "err"))
		name = val > 0 && val < 4096 ? strerrorname_np((int)val) : NULL;
	else if (f->unit == DL_UNIT_ID && is_dev(f->name) && val)
		dl_str_addf(out, "%" PRIu32 ":%" PRIu32, (uint32_t)val >> 20, (uint32_t)val & 0xfffff);
	else if (f->unit == DL_UNIT_ENUM && !strcmp(f->name, "state") && val > ' ' && val < 0x7f)
		dl_str_addf(out, "%c", (char)val);	/* TASK.state, a letter */
	if (name)
		dl_str_add(out, name);
}

void dl_ring_text(struct dl_str *out, uint32_t id)
{
	const struct dl_enum *e = dl_enum_by_tag("ring", 4);
	const char *name = dl_enum_name(e, id);

	if (name)
		dl_str_add(out, name);
	else if (id < DL_RING_SCHED_MAX)
		dl_str_addf(out, "sched %" PRIu32, id);
	else
		dl_str_addf(out, "ring %" PRIu32, id);
}
