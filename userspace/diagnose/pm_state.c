/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What every thread of the tree was doing at one instant, and the GPU. */
#include "diagnose/pm_int.h"

#include <errno.h>
#include <string.h>

#include "diagnose/walk.h"
#include "timeline/past.h"

#define FUTEX_PRIVATE 128
#define FUTEX_CMD(op) ((op) & 127)
#define FUTEX_WAIT 0
#define THREADS_MAX 1024	/* told; a note says how many more there are */
#define DATA_TIMEOUT_NS (40 * DL_PM_MS)

/* --- one wait in words --- */

static bool is_result_pipe(const struct dl_timeline *tl, uint64_t ino)
{
	vec_for_each(&tl->procs, p) {
		if (p->role == DL_ROLE_WORKER && p->result_ino == ino && ino)
			return true;
	}
	return false;
}

static const char *pipe_text(const struct dl_timeline *tl, const struct dl_thread *th, const struct dl_wait *w)
{
	const bool write = dl_sys_class(tl->machine, w->syscall) == DL_SYS_WRITE;

	if (write)
		return th->role == DL_ROLE_FEEDER ? "waiting for room in the pipe that its batches go through" :
			"waiting for room in a pipe";
	switch (th->role) {
	case DL_ROLE_WORKER:
		return is_result_pipe(tl, w->file_ino) ? "waiting at the result pipe" : "idle: waiting for the indices of a batch";
	case DL_ROLE_PIN:
		return "waiting for the next batch";
	case DL_ROLE_TRAINER:
		return is_result_pipe(tl, w->file_ino) ? "waiting for the next batch" : "waiting at a pipe";
	default:
		return "waiting at a pipe";
	}
}

static const char *futex_text(const struct dl_timeline *tl, const struct dl_thread *th, const struct dl_wait *w)
{
	if (th->proc != DL_NONE && dl_is_gil(&tl->procs.v[th->proc], w->arg0))
		return "waiting for Python's lock (GIL)";
	switch (th->role) {
	case DL_ROLE_FEEDER:
		return w->arg1 & FUTEX_PRIVATE ? "idle: waiting for a batch to send" : "waiting for its turn at the result pipe";
	case DL_ROLE_INDEX_FEEDER:
		return "idle: waiting for indices to send";
	case DL_ROLE_POOL:
		return "waiting for work, or for a lock";
	default:
		break;
	}
	if (!(w->arg1 & FUTEX_PRIVATE))
		return "waiting for a lock that processes share, or for a thread to end";
	if (w->deadline)
		return th->role == DL_ROLE_TRAINER ? "waiting for data from another thread, with a time-out" : "waiting in a lock or queue, with a time-out";
	return FUTEX_CMD(w->arg1) == FUTEX_WAIT ? "waiting for a lock" : "waiting for a lock, or for another thread";
}

static const char *call_text(const struct dl_timeline *tl, const struct dl_wait *w)
{
	switch (dl_sys_class(tl->machine, w->syscall)) {
	case DL_SYS_SLEEP:
		return "sleeping";
	case DL_SYS_WAIT:
		return "waiting for a process to end";
	case DL_SYS_ACCEPT:
		return "idle: waiting for somebody to connect";
	case DL_SYS_CONNECT:
		return "connecting";
	case DL_SYS_FSYNC:
		return "waiting for storage in fsync";
	case DL_SYS_LOCK:
		return "waiting for a lock on a file";
	case DL_SYS_FILE:
		return "waiting for a file system";
	case DL_SYS_MMAP:
		return "waiting in a change of its memory map";
	case DL_SYS_CLOSE:
		return "waiting for a file system in close";
	case DL_SYS_EXIT:
		return "ending";
	case DL_SYS_FORK:
		return "creating a process or thread";
	case DL_SYS_POLL:
		return "waiting in poll";
	case DL_SYS_READ:
		return "waiting in read";
	case DL_SYS_WRITE:
		return "waiting in write";
	default:
		return NULL;
	}
}

static const char *why_text(enum dl_why why)
{
	switch (why) {
	case DL_WHY_STORAGE:
		return "waiting for storage";
	case DL_WHY_SWAP:
		return "waiting for memory that was swapped out";
	case DL_WHY_MEMORY:
		return "freeing memory before it can go on";
	case DL_WHY_KLOCK:
		return "waiting for a lock of the kernel, most often that of its memory map";
	case DL_WHY_NETWORK:
		return "waiting for the network";
	default:
		return NULL;
	}
}

void dl_pm_wait_text(struct dl_str *s, const struct dl_timeline *tl, uint32_t thread, const struct dl_wait *w)
{
	const struct dl_thread *th = &tl->threads.v[thread];
	const enum dl_sys sys = dl_sys_class(tl->machine, w->syscall);
	const char *text = NULL;

	vec_for_each(&th->segs, seg) {
		if (dl_seg_wait(th, seg) == w)
			text = why_text(dl_why_blocked(tl, th, (uint32_t)(seg - th->segs.v)));
	}
	if (!text && sys == DL_SYS_FUTEX)
		text = futex_text(tl, th, w);
	if (!text && w->file_kind == DL_FILE_FIFO)
		text = pipe_text(tl, th, w);
	if (!text && w->file_kind == DL_FILE_UNIX)
		text = sys == DL_SYS_ACCEPT ? "idle: waiting for somebody to fetch a batch" : "handing a batch over (unix socket)";
	if (!text)
		text = call_text(tl, w);
	if (text)
		dl_str_add(s, text);
	else if (w->flags & DL_SW_EXCEPTION)
		dl_str_add(s, "waiting in a page fault");
	else if (w->syscall >= 0)
		dl_str_addf(s, "waiting in system call %d", w->syscall);
	else
		dl_str_add(s, "waiting");
	if (w->uninterruptible)
		dl_str_add(s, " (uninterruptible)");
}

/* --- threads --- */

/* Who could end the wait: the one thread that runs while others wait for the interpreter's lock; the one
 * worker that is not idle. */
static uint32_t holder_of(const struct dl_pmx *x, uint32_t thread, const struct dl_wait *w)
{
	const struct dl_timeline *tl = x->tl;
	const struct dl_thread *th = &tl->threads.v[thread];
	uint32_t found = DL_NONE;
	const bool gil = dl_is_gil(&tl->procs.v[th->proc], w->arg0);

	if (!gil && !(dl_is_batch_wait(tl, w) && (th->role == DL_ROLE_PIN || th->role == DL_ROLE_TRAINER)))
		return DL_NONE;
	for (uint32_t i = 1; i < tl->threads.cnt; i++) {
		const struct dl_thread *o = &tl->threads.v[i];
		uint32_t seg = o->proc == DL_NONE || i == thread || o->end < x->at ? DL_NONE : dl_seg_before(o, x->at);
		const struct dl_wait *ow;

		if (seg == DL_NONE || o->segs.v[seg].state == DL_ST_GONE)
			continue;
		ow = dl_seg_wait(o, &o->segs.v[seg]);
		if (gil && (o->proc != th->proc || ow))
			continue;
		if (!gil && (o->role != DL_ROLE_WORKER || tl->procs.v[o->proc].trainer != th->proc || tl->procs.v[o->proc].main != i ||
			     (ow && dl_is_batch_wait(tl, ow))))
			continue;
		if (found != DL_NONE)
			return DL_NONE;
		found = i;
	}
	return found;
}

/* "holds it, waiting for storage since 12 s" */
static int add_holder(const struct dl_pmx *x, struct dl_pm_thread *out, uint32_t holder, bool gil)
{
	const struct dl_pm_who who = dl_pm_who_thread(x->tl, holder);
	const struct dl_wait *w = NULL;
	struct dl_str s = {};
	uint64_t since = 0;
	char ns[32];
	int err;

	dl_str_add(&s, gil ? "seems to hold it" : "makes it");
	if (dl_pm_blocked_since(x->tl, holder, x->at, &since, &w)) {
		dl_str_add(&s, ", itself ");
		dl_pm_wait_text(&s, x->tl, holder, w);
		dl_str_addf(&s, " for %s", dl_fmt_ns(ns, sizeof(ns), x->at - since));
	}
	out->holder_text = dl_str_take(&s);
	err = dl_pm_who_copy(&out->holder, &who);
	return out->holder_text ? err : -ENOMEM;
}

static int fill_state(const struct dl_pmx *x, struct dl_pm_thread *out, uint32_t thread)
{
	const struct dl_thread *th = &x->tl->threads.v[thread];
	const uint32_t seg = dl_seg_before(th, x->at);
	const struct dl_wait *w;
	struct dl_str s = {};
	uint64_t since, start = seg == DL_NONE ? x->at : th->segs.v[seg].start;
	int err = 0;

	if (seg == DL_NONE) {
		dl_str_add(&s, "not known");
	} else if (th->segs.v[seg].state == DL_ST_RUNNING) {
		dl_str_add(&s, "running");
	} else if (th->segs.v[seg].state == DL_ST_RUNNABLE) {
		dl_str_add(&s, "ready to run, waiting for a CPU");
	} else if (dl_pm_blocked_since(x->tl, thread, x->at, &since, &w)) {
		uint32_t holder = holder_of(x, thread, w);

		start = since;
		dl_pm_wait_text(&s, x->tl, thread, w);
		if (holder != DL_NONE)
			err = add_holder(x, out, holder, dl_is_gil(&x->tl->procs.v[th->proc], w->arg0));
	} else {
		dl_str_add(&s, "not known");
		start = x->at;
	}
	out->for_ns = x->at > start ? x->at - start : 0;
	out->state = dl_str_take(&s);
	return out->state ? err : -ENOMEM;
}

static int add_thread(struct dl_pmx *x, uint32_t thread)
{
	const struct dl_pm_who who = dl_pm_who_thread(x->tl, thread);
	struct dl_pm_thread *out = vec_push(&x->pm->threads);
	int err;

	if (!out)
		return -ENOMEM;
	out->who.index = out->holder.index = -1;
	err = dl_pm_who_copy(&out->who, &who);
	if (err)
		return err;
	out->died = thread == x->thread && x->sig && x->pm->sig && (x->sig->code > 0 || x->sig->h.pid == x->sig->target_pid);
	err = out->died ? dl_pm_fill_stack(x, out) : 0;
	return err ? err : fill_state(x, out, thread);
}

static bool was_there(const struct dl_thread *th, uint64_t at)
{
	return th->proc != DL_NONE && th->segs.cnt && dl_first_start(th) <= at && th->end >= at;
}

/* Process by process, each with its main thread first. */
void dl_pm_add_threads(struct dl_pmx *x)
{
	size_t left_out = 0;

	vec_for_each(&x->tl->procs, p) {
		vec_for_each(&p->threads, i) {
			if (!was_there(&x->tl->threads.v[*i], x->at))
				continue;
			if (x->pm->threads.cnt >= THREADS_MAX)
				left_out++;
			else
				DL_PM_DO(x, add_thread(x, *i));
		}
	}
	if (left_out)
		DL_PM_DO(x, dl_pm_note(x->pm, "%zu more threads are not listed", left_out));
}

/* --- the GPU --- */

static const char *kernel_name(const struct dl_timeline *tl, const struct dl_proc *p, const struct dl_kern *k)
{
	const char *name = dl_string(tl, p->pid, k->name);

	return name ? name : "a kernel";
}

/* The kernel that ran just before ts, or was the last; the records of what runs at a death are lost with it. */
static const struct dl_kern *last_kernel(const struct dl_timeline *tl, uint64_t ts, const struct dl_proc **of)
{
	const struct dl_kern *best = NULL;

	vec_for_each(&tl->procs, p) {
		vec_for_each(&p->kernels, k) {
			if (k->start > ts)
				break;
			if (!best || k->end > best->end) {
				best = k;
				*of = p;
			}
		}
	}
	return best;
}

void dl_pm_gpu(struct dl_pmx *x)
{
	const struct dl_proc *p = NULL;
	const struct dl_kern *k = last_kernel(x->tl, x->at, &p);
	const struct dl_wait *w;
	struct dl_str s = {};
	uint64_t since;
	char ns[32];

	if (!k)
		return;
	if (k->end >= x->at) {
		dl_str_addf(&s, "running %.80s", kernel_name(x->tl, p, k));
	} else {
		dl_str_addf(&s, "idle for %s", dl_fmt_ns(ns, sizeof(ns), x->at - k->end));
		if (p->main != DL_NONE && dl_pm_blocked_since(x->tl, p->main, x->at, &since, &w)) {
			dl_str_add(&s, ", while the trainer was ");
			dl_pm_wait_text(&s, x->tl, p->main, w);
			dl_str_addf(&s, " for %s", dl_fmt_ns(ns, sizeof(ns), x->at - since));
		}
		dl_str_addf(&s, "; the last kernel was %.80s", kernel_name(x->tl, p, k));
	}
	if (p->gpu_simulated)
		dl_str_add(&s, " (simulated)");
	x->pm->gpu = dl_str_take(&s);
	if (!x->pm->gpu)
		x->err = x->err ? x->err : -ENOMEM;
}
