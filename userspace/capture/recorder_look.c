/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What an event makes the recorder look at: a new process is followed and looked at a little later,
 * when it has set its signal handlers and loaded its libraries; a crash asks for a sample at once; a
 * stack asks for names. One switch over kinds, after the event has been written; the frequent kinds
 * cost one comparison.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <dlbpf/gpu_ring.h>

#include "capture/maps.h"
#include "capture/recorder_int.h"

enum {
	HELPER_FAILED = 1,	/* beside the errors of failed system calls, of which EPERM is none */
	ASKED_MAX = 1 << 16,	/* addresses asked for; then they are asked for anew */
};

#define LOOK_AGAIN_NS (100 * 1000000ULL)
#define LOOKS_NS (10 * 1000000ULL)	/* at a time: the rings are to be read as well */

/* --- processes --------------------------------------------------------------------------------- */

struct dl_tree_proc *dl_rec_add_proc(struct dl_recorder *r, uint32_t pid, uint32_t ppid, bool root)
{
	struct dl_tree_proc *p = dl_tree_add(&r->tree, pid, ppid);

	if (p && root) {
		p->root = true;
		p->execed = true;
	}
	return p;
}

/* One pass; children may come before their parents in the list, so the caller repeats it. */
static bool add_children(struct dl_recorder *r, const struct dl_pid_list *list)
{
	bool any = false;

	for (size_t i = 0; i < list->cnt; i++) {
		const struct dl_pid_pair *pair = &list->v[i];
		struct dl_tree_proc *p;

		if (!dl_tree_find(&r->tree, pair->ppid) || dl_tree_find(&r->tree, pair->pid))
			continue;
		p = dl_rec_add_proc(r, pair->pid, pair->ppid, false);
		if (p) {
			p->execed = true;	/* not known: take it for one */
			r->tree.procs_seen++;
			any = true;
		}
	}
	return any;
}

/* The kernel side has the whole tree when this returns, and tells of what is forked from then on;
 * what was there before is found by looking until nothing new is found. */
int dl_rec_add_tree(struct dl_recorder *r, uint32_t root, struct dl_diag *d)
{
	bool any;
	int err;

	r->tree.procs_seen = 1;
	if (!dl_rec_add_proc(r, root, 0, true))
		return dl_fail(d, -ESRCH, "process %u has just ended", root);
	err = dl_kernel_add_target(r->k, root, true, d);
	if (err)
		return err;
	do {
		struct dl_pid_list list;

		err = dl_proc_list(&list);
		if (err)
			return dl_fail_errno(d, err, "cannot read /proc");
		any = add_children(r, &list);
		vec_free(&list);
	} while (any);
	return 0;
}

/*
 * Mappings are dear to read. A forked process has its parent's, which names can be found by; its own
 * are read once, when it has lived for a while. After an exec they are read twice; and all are again when
 * samples hit code that is not known, or when more code has been mapped.
 */
static bool wants_mappings(const struct dl_tree_proc *p)
{
	return p->execed ? p->looks <= 2 : p->looks == 2;
}

int dl_rec_look_at(struct dl_recorder *r, struct dl_tree_proc *p, uint32_t flags)
{
	int err;

	err = dl_tree_snapshot(&r->tree, p, &r->sink, dl_now_ns(), flags);
	if (err)
		return err == -ESRCH ? 0 : err;	/* its exit will be told */
	err = dl_env_limits_emit(&p->env, &r->sink, dl_now_ns(), p->pid, p->fd);
	if (!err)
		err = dl_rec_env_meet(r, p);
	if (err)
		return err;
	p->looks++;
	p->look_ts = dl_now_ns();
	if (r->sym && wants_mappings(p))
		dl_symbols_scan(r->sym, p->pid, p->fd);	/* told as loss by its counter */
	p->next_gpu_ts = 0;
	r->gpu_wanted = true;
	return 0;
}

int dl_rec_due_looks(struct dl_recorder *r, uint64_t now)
{
	const uint64_t until = now + LOOKS_NS;
	struct dl_look look;

	r->looks_due = false;
	while (dl_tree_next_look(&r->tree, now, &look)) {
		struct dl_tree_proc *p = dl_tree_find(&r->tree, look.pid);
		int err;

		if (!p)
			continue;	/* a short life, told by FORK and EXIT */
		if (p->look_ts && now - p->look_ts < LOOK_AGAIN_NS)
			continue;	/* it, and so this thread, was looked at just now */
		if (look.tid)
			err = dl_tree_snapshot_thread(p, look.tid, &r->sink, now, DL_TF_LATE);
		else
			err = dl_rec_look_at(r, p, DL_TF_LATE);
		if (err && err != -ESRCH)
			return err;
		if (dl_now_ns() > until) {
			r->looks_due = true;
			break;
		}
	}
	return 0;
}

/* --- events ------------------------------------------------------------------------------------ */

/* A child begins with its parent's mappings, and may die before anybody looks at its own: so the parent's are to be
 * known by then. At most so often: there are programs that do little but fork. */
static void look_before_fork(struct dl_recorder *r, uint32_t parent)
{
	struct dl_tree_proc *p = dl_tree_find(&r->tree, parent);
	const uint64_t now = dl_now_ns();
	struct dl_status st;

	if (!p || now - p->fork_ts < LOOK_AGAIN_NS || dl_proc_status(p->fd, 0, &st))
		return;
	p->fork_ts = now;
	dl_env_look_libs(&p->env, st.libs);
	if (p->env.more_libs)
		dl_symbols_scan(r->sym, p->pid, p->fd);
}

static int fork_seen(struct dl_recorder *r, const struct dl_ev_fork *ev)
{
	if (ev->child_pid == ev->child_tid) {
		if (dl_tree_find(&r->tree, ev->child_pid))
			return 0;	/* found in /proc, and looked at */
		r->tree.procs_seen++;
		if (!dl_rec_add_proc(r, ev->child_pid, ev->h.pid, false))
			return 0;
		if (r->sym) {
			look_before_fork(r, ev->h.pid);
			dl_symbols_fork(r->sym, ev->h.pid, ev->child_pid);
		}
		dl_tree_look_later(&r->tree, ev->child_pid, 0, ev->h.ts);
	} else {
		dl_tree_look_later(&r->tree, ev->child_pid, ev->child_tid, ev->h.ts);
	}
	return 0;
}

static int exec_seen(struct dl_recorder *r, const struct dl_ev_exec *ev)
{
	struct dl_tree_proc *p = dl_tree_find(&r->tree, ev->h.pid);

	if (!p)
		return 0;
	p->execed = true;
	p->looks = 0;
	p->env = (struct dl_env_proc){};
	if (r->cuda)
		dl_cuda_remove(r->cuda, ev->h.pid);
	p->has_uprobes = false;
	if (r->sym)
		dl_symbols_exec(r->sym, ev->h.pid);
	dl_tree_look_later(&r->tree, ev->h.pid, 0, ev->h.ts);
	return 0;
}

/* The trainer or a worker; of helpers, some of which say "no" by their exit code, not each one. */
static void failure_seen(struct dl_recorder *r, const struct dl_ev_exit *ev)
{
	const struct dl_tree_proc *p = dl_tree_find(&r->tree, ev->h.pid);

	if (p && (p->root || p->worker || !p->execed))
		dl_rec_env_crash(r, ev->h.pid);
	else
		dl_rec_env_fail(r, ev->h.pid, HELPER_FAILED, ev->h.ts);
}

static int exit_seen(struct dl_recorder *r, const struct dl_ev_exit *ev)
{
	int err = 0;

	if (ev->code & 0x7f)
		dl_rec_env_crash(r, ev->h.pid);
	if (!(ev->flags & DL_EX_LAST))
		return 0;
	if (ev->code & 0xff00)
		failure_seen(r, ev);
	if (ev->h.pid == r->root_pid) {
		r->root_exited = true;
		if (!r->has_status) {
			r->status = ev->code;
			r->has_status = true;
		}
	}
	if (r->g)
		err = dl_gpu_forget(r->g, ev->h.pid);
	if (r->cuda)
		dl_cuda_remove(r->cuda, ev->h.pid);
	if (r->sym)
		dl_symbols_exit(r->sym, ev->h.pid);
	dl_tree_remove(&r->tree, ev->h.pid);
	return err < 0 ? err : 0;
}

static bool is_crash(int32_t sig)
{
	return sig == SIGBUS || sig == SIGSEGV || sig == SIGKILL || sig == SIGABRT || sig == SIGFPE ||
	       sig == SIGILL || sig == SIGTERM;
}

/*
 * How full the file system is. The process is dying, most often faster than anybody can look: any process of
 * the job that has the file system mounted will do. 1 when it was found and said.
 */
static int say_room(struct dl_recorder *r, const struct dl_ev_sigbus_map *ev)
{
	_Alignas(8) char buf[sizeof(*ev) + DL_TAIL_MAX];
	struct dl_ev_sigbus_map *more = (void *)buf;
	uint64_t total, used;

	if (ev->h.size > sizeof(buf))
		return 0;
	memcpy(buf, ev, ev->h.size);
	vec_for_each(&r->tree.procs, p) {
		if (!dl_fs_room((*p)->fd, ev->file_dev, &total, &used))
			continue;
		more->fs_total = total;
		more->fs_used = used;
		more->h.ts = dl_now_ns();
		more->fault_flags |= DL_SB_FROM_PROC;
		return r->sink.emit(&r->sink, &more->h) ?: 1;
	}
	return 0;
}

/* The kernel side could not say what is mapped there, or how full its file system is. */
static int sigbus_seen(struct dl_recorder *r, const struct dl_ev_sigbus_map *ev)
{
	const struct dl_tree_proc *p = dl_tree_find(&r->tree, ev->h.pid);
	int err;

	dl_rec_env_crash(r, ev->h.pid);
	if (!p || (ev->fault_flags & DL_SB_FROM_PROC))
		return 0;
	if (!(ev->fault_flags & DL_SB_NO_VMA) && (ev->fs_total || !ev->file_ino))
		return 0;
	if (!(ev->fault_flags & DL_SB_NO_VMA)) {
		err = say_room(r, ev);
		if (err)
			return err < 0 ? err : 0;
	}
	err = dl_maps_emit_sigbus(&r->sink, dl_now_ns(), ev->h.pid, ev->h.tid, p->fd, ev->addr);
	return err == -ESRCH || err == -ENOENT || err == -EACCES ? 0 : err;
}

/* --- names for stacks -------------------------------------------------------------------------- */

/* True the first time, and again after very many others. */
static bool is_new(struct dl_map *asked, uint64_t hash)
{
	uint64_t val;

	if (dl_map_get(asked, hash, &val))
		return false;
	if (asked->cnt >= ASKED_MAX)
		dl_map_fini(asked);
	return !dl_map_set(asked, hash, 1);
}

static void want(struct dl_recorder *r, uint32_t pid, uint64_t addr, bool executed)
{
	if (addr && is_new(&r->asked, dl_hash64(addr ^ dl_hash64(pid))))
		dl_symbols_want(r->sym, pid, addr, executed);
}

/* A stack with user frames comes once for each process that has it. */
static void stack_seen(struct dl_recorder *r, const struct dl_ev_stack *ev)
{
	const uint64_t *addrs = (const void *)(ev + 1);
	const size_t have = (ev->h.size - sizeof(*ev)) / sizeof(*addrs);
	const size_t kernel = ev->kernel_cnt < have ? ev->kernel_cnt : have;
	const size_t user = ev->user_cnt < have - kernel ? ev->user_cnt : have - kernel;

	if (ev->h.tid)
		return;		/* a crash's: its names have been asked for */
	for (size_t i = 0; i < kernel; i++)
		want(r, 0, addrs[i], true);
	for (size_t i = 0; i < user && ev->h.pid; i++)
		want(r, ev->h.pid, addrs[kernel + i], i == 0);
}

void dl_rec_fault_stack(struct dl_recorder *r, const struct dl_fault_stack *fs)
{
	const struct dl_tree_proc *p = dl_tree_find(&r->tree, fs->h.pid);

	if (r->sym && r->k && fs->h.size == sizeof(*fs))	/* told as loss by its counter */
		dl_symbols_crash(r->sym, fs, dl_kernel_stack_id(r->k), p ? p->fd : -1);
}

/* The collector's thread appears: there is a ring to be found, before the first kernels run. */
static void name_seen(struct dl_recorder *r, const struct dl_ev_name *ev)
{
	struct dl_tree_proc *p;

	if ((ev->h.flags & DL_HDR_FOREIGN) || strncmp(ev->comm.s, DL_GPU_THREAD, sizeof(ev->comm.s)))
		return;
	p = dl_tree_find(&r->tree, ev->h.pid);
	if (!p || p->has_gpu)
		return;
	p->next_gpu_ts = 0;
	r->gpu_wanted = true;
}

int dl_rec_on_event(struct dl_recorder *r, const struct dl_hdr *ev)
{
	if (ev->kind == DL_EV_SWITCH || ev->kind == DL_EV_WAKE)
		return 0;
	switch (ev->kind) {
	case DL_EV_FORK:
		return ev->flags & DL_HDR_FOREIGN ? 0 : fork_seen(r, (const void *)ev);
	case DL_EV_EXEC:
		return exec_seen(r, (const void *)ev);
	case DL_EV_EXIT:
		return exit_seen(r, (const void *)ev);
	case DL_EV_NAME:
		name_seen(r, (const void *)ev);
		return 0;
	case DL_EV_SIGNAL:
		if (is_crash(((const struct dl_ev_signal *)ev)->sig))
			dl_rec_env_crash(r, ((const struct dl_ev_signal *)ev)->target_pid);
		return 0;
	case DL_EV_SIGBUS_MAP:
		return sigbus_seen(r, (const void *)ev);
	case DL_EV_OOM_KILL:
		dl_rec_env_crash(r, ((const struct dl_ev_oom_kill *)ev)->target_pid);
		return 0;
	case DL_EV_SYSCALL_FAIL:
		dl_rec_env_fail(r, ev->pid, (uint32_t)((const struct dl_ev_syscall_fail *)ev)->err, ev->ts);
		return 0;
	case DL_EV_GPU_DEVICE:
		return r->watch ? dl_gpu_watch_device(r->watch, (const void *)ev) : 0;
	case DL_EV_STACK:
		if (r->sym)
			stack_seen(r, (const void *)ev);
		return 0;
	case DL_EV_SAMPLE:
		if (r->sym)
			want(r, ev->pid, ((const struct dl_ev_sample *)ev)->ip, true);
		return 0;
	default:
		return 0;
	}
}
