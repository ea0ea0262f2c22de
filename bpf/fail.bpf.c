/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * System calls of recorded threads that fail for want of something (room, descriptors, mappings,
 * processes, memory), descriptors that recvmsg drops, and shared memory objects that a process outside
 * of the tree removes. These deaths come without a signal: an exception in a thread that nobody watches.
 *
 * One program at the exit of every system call. What it costs the host while a recording goes on, on
 * every system call of every process: the way through the kernel's slow exit, which any user of
 * raw_syscalls switches on for all threads, and some twenty instructions here, which end at the result of
 * a call that went well. Together that was 70 to 80 ns where getppid(2) takes 112 ns without (a virtual
 * machine of 2026, 6.18): 1 % of a CPU that makes 130,000 calls a second; a failed open(2) of a recorded
 * thread costs 0.3 us. What would be cheaper, and why it is not used:
 *   - fexit programs at the few functions that fail: refused where trampolines are (ftrace off, some
 *     arm64 before 6.0, our own test machines), inlined functions differ by kernel, and there are dozens.
 *   - syscalls:sys_exit_*, one perf event each: they switch on the same slow exit, pay for a filter
 *     on top of it, and have no arguments.
 *   - kretprobes: refused as well, and each is dearer than the whole exit of a call.
 *   - a tracepoint where it fails: there is none for a full file system, table of descriptors or
 *     pids.max.
 *   - fanotify for removed objects: no name of who did it, who lives for milliseconds ("rm"), and
 *     tmpfs has it since 5.13 only.
 * Where it cannot be attached, or is not wanted (--no-syscalls), or the machine makes so many calls that it is
 * dear (userspace/capture/kernel_calls.c), everything else goes on and the trace says so.
 */
#include "limit.bpf.h"
#include "unlink.bpf.h"

#define MSG_CTRUNC 8
#define MSG_FLAGS_OFF 48	/* of msg_flags in struct user_msghdr, on 64 bits */
#define FAILS_A_SECOND 4

/* Set by userspace before loading. */
const volatile struct dl_sc_fail dl_sc_fails[DL_SYSCALL_CNT] = {};
const volatile __s64 dl_nr_recvmsg = -1;
const volatile __s64 dl_nr_unlink = -1;

struct dl_call_cnt dl_calls[DL_CALL_SLOTS] = {};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct fail_scratch);
} dl_fail_scratch SEC(".maps");

#define WANTS_0 (BIT(ENOENT) | BIT(EIO) | BIT(EAGAIN) | BIT(ENOMEM) | BIT(ENFILE) | BIT(EMFILE) | BIT(EFBIG) | BIT(ENOSPC))
#define WANTS_64 (BIT(ENOTCONN - 64) | BIT(ETOOMANYREFS - 64) | BIT(ESTALE - 64) | BIT(EDQUOT - 64))

/* The errors that mean want of something; some of them only for some calls. */
static __always_inline bool is_want(__u64 err)
{
	if (err < 64)
		return WANTS_0 >> err & 1;
	if (err < 128)
		return WANTS_64 >> (err - 64) & 1;
	return err == EHWPOISON;
}

/* --- what a call was about ------------------------------------------------------------------------- */

/* An argument by its place, from 1; 0 is none. By cases: the verifier wants to know the place. */
static __always_inline __u64 arg_of(const struct dl_regs *r, __u8 place)
{
	switch (place) {
	case 1:
		return r->a[0];
	case 2:
		return r->a[1];
	case 3:
		return r->a[2];
	case 4:
		return r->a[3];
	case 5:
		return r->a[4];
	}
	return 0;
}

/* Without pointers, as dl_args() does; futexes do not come here. */
static __always_inline void fill_args(struct dl_ev_syscall_fail *ev, const struct dl_regs *r)
{
	if (!(r->a[0] >> 32))
		ev->arg0 = r->a[0];
	if (!(r->a[1] >> 32))
		ev->arg1 = r->a[1];
}

/* The place of the descriptor among the arguments; 0 none. */
static __always_inline __u8 fd_place(__u64 nr)
{
	__u8 place = dl_sc_fails[nr].fd, fd = dl_syscalls[nr].fd;

	if (place)
		return place;
	return fd == DL_SC_FD_ARG0 ? 1 : fd == DL_SC_FD_ARG1 ? 2 : 0;
}

static __always_inline void fill_file(struct dl_ev_syscall_fail *ev, struct file *file)
{
	struct dl_file f = {};

	if (!file)
		return;
	dl_file_read(&f, file);
	ev->file_ino = f.ino;
	ev->file_dev = f.dev;
	ev->file_magic = f.magic;
	ev->file_kind = f.kind;
}

/* What the error does not mean for every call. */
static __always_inline bool is_other(__u32 err, __u8 flags)
{
	switch (err) {
	case EAGAIN:
		return !(flags & DL_FC_AGAIN);
	case ENOENT:
		return !(flags & DL_FC_SHM_ENOENT);
	case ENOMEM:
		return flags & DL_FC_NO_MEM;
	}
	return false;
}

/* The length comes last: what 5.10 knows of a number it forgets when the number goes over the stack. */
static __always_inline void out_fail(struct fail_scratch *e, __s64 n, __u64 id, __u64 now)
{
	__u64 len;

	dl_hdr_init(&e->ev.h, DL_EV_SYSCALL_FAIL, 0, now, id >> 32, id);
	len = DL_TEXT_LEN(n, TEXT_MAX);
	e->ev.h.size = sizeof(e->ev) + len;
	dl_out_crash(e, sizeof(e->ev) + len, DL_EV_SYSCALL_FAIL);
}

static __always_inline int on_failed(struct pt_regs *regs, __u32 err)
{
	__u64 id = bpf_get_current_pid_tgid(), nr = dl_regs_nr(regs), now;
	struct task_struct *t;
	struct fail_scratch *e;
	struct file *file;
	__u32 zero = 0, skipped = 0;
	struct dl_regs r;
	__u8 flags, path, bytes, fd;
	__s64 n = 0, len;

	if (!dl_target_of(id >> 32) || nr >= DL_SYSCALL_CNT)
		return 0;
	/* All at once, while the verifier knows that nr is in the tables. */
	flags = dl_sc_fails[nr].flags;
	path = dl_sc_fails[nr].path;
	bytes = dl_sc_fails[nr].bytes;
	fd = fd_place(nr);
	if (is_other(err, flags))
		return 0;
	t = (void *)bpf_get_current_task();
	e = bpf_map_lookup_elem(&dl_fail_scratch, &zero);
	if (!e || dl_task_compat_read(t))
		return 0;
	__builtin_memset(&e->ev, 0, sizeof(e->ev));
	dl_regs_from(&r, regs);
	if (path) {
		n = bpf_probe_read_user_str(e->text, sizeof(e->text), (void *)arg_of(&r, path));
		if (n > 0 && is_shm_path(e->text))
			e->ev.flags |= DL_SF_SHM;
	}
	if (err == ENOENT && !(e->ev.flags & DL_SF_SHM))
		return 0;
	file = fd ? dl_fd_file_read(t, arg_of(&r, fd)) : NULL;
	fill_file(&e->ev, file);
	/* Of sockets it is everyday. */
	if (err == ENOTCONN && !path && e->ev.file_kind != DL_FILE_REG && e->ev.file_kind != DL_FILE_DIR)
		return 0;
	now = bpf_ktime_get_ns();
	if (is_too_many(id, nr, err, FAILS_A_SECOND, now, &skipped))
		return 0;
	e->ev.syscall = nr;
	e->ev.err = err;
	e->ev.skipped = skipped;
	e->ev.bytes = arg_of(&r, bytes);
	fill_args(&e->ev, &r);
	if (!path && file) {
		n = bpf_probe_read_kernel_str(e->text, sizeof(e->text), BPF_CORE_READ(file, f_path.dentry, d_name.name));
		e->ev.flags |= DL_SF_NAME;
		if (e->ev.file_magic == TMPFS_MAGIC && is_shm_name(e->text))
			e->ev.flags |= DL_SF_SHM;
	}
	len = find_limit(e, t, &r, file, flags);
	out_fail(e, len > 0 ? len : n, id, now);
	return 0;
}

/* --- descriptors that recvmsg drops ------------------------------------------------------------------ */

/*
 * A receiver without a free descriptor gets the message without what was sent in it: recvmsg
 * succeeds, and sets a flag that hardly any program looks at.
 */
static __always_inline int on_received(struct pt_regs *regs)
{
	__u64 id = bpf_get_current_pid_tgid(), now, limit;
	__u32 zero = 0, msg_flags = 0, skipped = 0;
	struct fail_scratch *e;
	struct task_struct *t;
	struct dl_regs r;

	if (!dl_target_of(id >> 32))
		return 0;
	dl_regs_from(&r, regs);
	if (bpf_probe_read_user(&msg_flags, sizeof(msg_flags), (void *)(r.a[1] + MSG_FLAGS_OFF)) ||
	    !(msg_flags & MSG_CTRUNC))
		return 0;
	t = (void *)bpf_get_current_task();
	e = bpf_map_lookup_elem(&dl_fail_scratch, &zero);
	now = bpf_ktime_get_ns();
	if (!e || dl_task_compat_read(t) || is_too_many(id, dl_nr_recvmsg, 0, FAILS_A_SECOND, now, &skipped))
		return 0;
	__builtin_memset(&e->ev, 0, sizeof(e->ev));
	fill_file(&e->ev, dl_fd_file_read(t, r.a[0]));
	e->ev.syscall = dl_nr_recvmsg;
	e->ev.flags = DL_SF_CTRUNC;
	e->ev.skipped = skipped;
	fill_args(&e->ev, &r);
	limit = RLIM(t, RLIMIT_NOFILE);
	if (is_table_full(t, limit))
		met(&e->ev, DL_LIMIT_FDS, limit, limit);
	out_fail(e, 0, id, now);
	return 0;
}

SEC("?tp_btf/sys_exit")
int BPF_PROG(dl_fail, struct pt_regs *regs, long ret)
{
	__s64 nr;

	/* Not atomic: who shares a slot may lose some, and a hundred million less or more tell the same. */
	dl_calls[bpf_get_smp_processor_id() & (DL_CALL_SLOTS - 1)].cnt++;
	if (ret < 0)
		return is_want(-ret) ? on_failed(regs, -ret) : 0;
	nr = dl_regs_nr(regs);
	if (nr == dl_nr_recvmsg)
		return on_received(regs);
	if (!ret && (nr == dl_nr_unlink || nr == dl_nr_unlinkat))
		return on_unlinked(regs, nr);
	return 0;
}
