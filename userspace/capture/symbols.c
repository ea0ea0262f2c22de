/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The thread that reads mappings and symbols: its queues, and the address spaces it knows. */
#include "capture/symbols.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/map.h"
#include "base/str.h"
#include "base/vec.h"
#include "capture/faultstack.h"
#include "capture/kallsyms.h"
#include "capture/proc.h"
#include "capture/symfile.h"
#include "capture/symspace.h"

enum {
	REQS_MAX = 1 << 16,		/* waiting for the thread */
	OUT_MAX = 8 << 20,		/* bytes of events waiting for the recorder */
	WAITING_MAX = 1 << 14,		/* addresses in processes whose mappings are not known yet */
	TRIES_MAX = 3,
	SPACES_MAX = 8192,
	JOIN_S = 2,
};

#define ADDR_NS DL_NS_PER_S	/* addresses are taken in at most so often: each time wakes a thread */
#define RESOLVE_FIRST_NS (DL_NS_PER_S / 2)
#define RESOLVE_MAX_NS (10 * DL_NS_PER_S)
/* For unknown addresses, at most so often in a process; twice as rarely each time that it brought
 * nothing new: unwinding without frame pointers makes up addresses, and reading mappings is dear. */
#define RESCAN_NS (2 * DL_NS_PER_S)
#define RESCAN_MAX_NS (256 * DL_NS_PER_S)

enum req_op { REQ_SCAN, REQ_FORK, REQ_EXEC, REQ_EXIT, REQ_ADDR, REQ_CRASH };

struct req {
	enum req_op op;
	uint32_t pid, child;
	int fd;
	uint64_t addr;
	bool executed;
	struct dl_fault_stack *fs;	/* owned */
};

struct proc {
	uint32_t pid;
	uint32_t parent;	/* that it was forked from; 0 unknown */
	int fd;			/* /proc/PID; -1 none */
	struct dl_space *space;	/* NULL: not read yet */
	bool inherited;		/* the space is the parent's; the process's own was not read yet */
	uint64_t scan_ts, rescan_ns;
};

struct waiting {
	uint64_t addr;
	uint32_t pid;
	int tries;
};

struct dl_symbols {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t work, done;
	/* under the lock */
	DL_VEC(struct req) reqs;
	struct dl_str out;
	bool urgent;		/* not only addresses are among reqs */
	bool idle;		/* the thread waits for the first of reqs */
	bool stop, flush, flushed, quitting;
	uint64_t dropped;
	char kernel_hint[160];
	/* the thread's own */
	struct dl_sink sink;	/* into out */
	struct dl_symfiles files;
	struct dl_map by_pid;	/* -> struct proc * */
	DL_VEC(struct waiting) waiting;
	struct dl_kallsyms kallsyms;
	bool kallsyms_tried;
	bool any_wanted;
};

/* --- the thread's side: events ----------------------------------------------------------------- */

static int out_emit(struct dl_sink *sink, const struct dl_hdr *ev)
{
	struct dl_symbols *s = (struct dl_symbols *)((char *)sink - offsetof(struct dl_symbols, sink));
	static const char zeros[8];

	pthread_mutex_lock(&s->lock);
	if (s->out.len + ev->size > OUT_MAX) {
		s->dropped++;
	} else {
		dl_str_addn(&s->out, (const char *)ev, ev->size);
		dl_str_addn(&s->out, zeros, -(size_t)ev->size & 7);
	}
	pthread_mutex_unlock(&s->lock);
	return 0;
}

static void emit_symbol(struct dl_symbols *s, uint32_t pid, uint64_t addr, uint64_t into,
			uint64_t file_off, const char *name)
{
	struct dl_ev_symbol ev = DL_EVENT_INIT(symbol, DL_EV_SYMBOL, dl_now_ns(), pid, pid);

	ev.addr = addr;
	ev.off = into;
	ev.file_off = file_off;
	dl_emit_text(&s->sink, &ev.h, name);
}

static void emit_mmap(struct dl_symbols *s, uint32_t pid, const struct dl_mapping *m,
		      const struct dl_symfile *f)
{
	struct dl_ev_mmap ev = DL_EVENT_INIT(mmap, DL_EV_MMAP, dl_now_ns(), pid, pid);

	ev.start = m->start;
	ev.end = m->end;
	ev.file_off = m->off;
	ev.file_ino = m->ino;
	ev.file_dev = m->dev;
	if (f) {
		ev.build_id_sz = f->elf.build_id_sz;
		memcpy(ev.build_id.b, f->elf.build_id, f->elf.build_id_sz);
	}
	dl_emit_text(&s->sink, &ev.h, m->path[0] ? m->path : "//anon");
}

/* --- the thread's side: address spaces --------------------------------------------------------- */

static struct proc *find_proc(struct dl_symbols *s, uint32_t pid)
{
	uint64_t p;

	return dl_map_get(&s->by_pid, pid, &p) ? (struct proc *)(uintptr_t)p : NULL;
}

static struct proc *get_proc(struct dl_symbols *s, uint32_t pid)
{
	struct proc *p = find_proc(s, pid);

	if (p || s->by_pid.cnt >= SPACES_MAX)
		return p;
	p = calloc(1, sizeof(*p));
	if (!p)
		return NULL;
	p->pid = pid;
	p->fd = -1;
	p->rescan_ns = RESCAN_NS;
	if (dl_map_set(&s->by_pid, pid, (uint64_t)(uintptr_t)p)) {
		free(p);
		return NULL;
	}
	return p;
}

static void free_proc(struct proc *p)
{
	if (p->fd >= 0)
		close(p->fd);
	dl_space_put(p->space);
	free(p);
}

struct scan {
	struct dl_symbols *s;
	const struct proc *p;
	bool any_new;
};

static void tell_mapping(const struct dl_mapping *m, const struct dl_symfile *f, void *arg)
{
	struct scan *scan = arg;

	emit_mmap(scan->s, scan->p->pid, m, f);
	scan->any_new = true;
}

/* Reads the mappings again; keeps the old ones when the process has ended. */
static void scan_proc(struct dl_symbols *s, struct proc *p)
{
	struct scan scan = { .s = s, .p = p };
	struct dl_space *sp;

	p->scan_ts = dl_now_ns();
	/* Of a process that was only inherited so far, everything is told. */
	sp = dl_space_read(&s->files, p->fd, p->inherited ? NULL : p->space, tell_mapping, &scan);
	if (!sp)
		return;
	if (p->space && !dl_maps_any(p->fd) && (p->inherited || dl_space_extend(sp, p->space))) {
		dl_space_put(sp);	/* it ended meanwhile: there may have been more */
		return;
	}
	dl_space_put(p->space);
	p->space = sp;
	p->inherited = false;
	if (scan.any_new)
		p->rescan_ns = RESCAN_NS;
	else if (p->rescan_ns < RESCAN_MAX_NS)
		p->rescan_ns *= 2;
}

/* --- the thread's side: addresses -------------------------------------------------------------- */

static void want_kernel(struct dl_symbols *s, uint64_t addr)
{
	const char *name;
	uint64_t into;

	if (!s->kallsyms_tried) {
		const int err = dl_kallsyms_load(&s->kallsyms, "/proc/kallsyms");

		s->kallsyms_tried = true;
		if (err) {
			pthread_mutex_lock(&s->lock);
			snprintf(s->kernel_hint, sizeof(s->kernel_hint), err == -EACCES ?
				 "names of kernel functions: the kernel hides its addresses; "
				 "sysctl kernel.kptr_restrict=1 gives them" :
				 "names of kernel functions: /proc/kallsyms cannot be read");
			pthread_mutex_unlock(&s->lock);
		}
	}
	name = dl_kallsyms_find(&s->kallsyms, addr, &into);
	if (name)
		emit_symbol(s, 0, addr, into, 0, name);
}

/* 0: done, or noted in its file; -ENOENT: the mapping is not known. back: what is looked for lies so many
 * bytes before the address: a call may be the last instruction of its function. */
static int want_user(struct dl_symbols *s, uint32_t pid, uint64_t addr, uint32_t back)
{
	const struct proc *p = find_proc(s, pid);
	const struct dl_seg *seg = p ? dl_space_find(p->space, addr - back) : NULL;
	struct dl_symfile *f;
	struct dl_symwant *w;
	const char *name;
	uint64_t off, into;

	if (!seg)
		return -ENOENT;
	if (seg->file == DL_NO_FILE)
		return 0;
	f = s->files.v.v[seg->file];
	off = addr - back - seg->start + seg->off;
	if (dl_symfile_known(f, off, &name, &into)) {
		if (name)
			emit_symbol(s, pid, addr, into + back, off + back, name);
		return 0;
	}
	w = vec_push(&f->wanted);
	if (!w)
		return 0;
	*w = (struct dl_symwant){ off, addr, pid, back };
	s->any_wanted = true;
	return 0;
}

static void want_later(struct dl_symbols *s, uint32_t pid, uint64_t addr)
{
	struct waiting *w = s->waiting.cnt < WAITING_MAX ? vec_push(&s->waiting) : NULL;

	if (w)
		*w = (struct waiting){ addr, pid, 0 };
}

/* Addresses outside all known mappings: perhaps a library was loaded since. */
static void retry_waiting(struct dl_symbols *s)
{
	const uint64_t now = dl_now_ns();
	size_t kept = 0;

	for (size_t i = 0; i < s->waiting.cnt; i++) {
		struct waiting w = s->waiting.v[i];
		struct proc *p = find_proc(s, w.pid);

		if (!want_user(s, w.pid, w.addr, 0))
			continue;
		if (p && p->fd >= 0 && now - p->scan_ts >= p->rescan_ns) {
			scan_proc(s, p);
			if (!want_user(s, w.pid, w.addr, 0))
				continue;
		}
		if (++w.tries < TRIES_MAX)
			s->waiting.v[kept++] = w;
	}
	s->waiting.cnt = kept;
}

static void resolve_all(struct dl_symbols *s)
{
	retry_waiting(s);
	s->any_wanted = false;
	for (size_t i = 0; i < s->files.v.cnt; i++) {
		struct dl_symfile *f = s->files.v.v[i];

		if (!f->wanted.cnt || dl_symfile_resolve(&s->files, f))
			continue;
		vec_for_each(&f->wanted, w) {
			const char *name;
			uint64_t into;

			if (dl_symfile_known(f, w->off, &name, &into) && name)
				emit_symbol(s, w->pid, w->addr, into + w->back, w->off + w->back, name);
		}
		vec_free(&f->wanted);
	}
}

/* --- the thread's side: crashes ---------------------------------------------------------------- */

/*
 * The process may still be there, held up by its handler or by the dump of its core; then what it has mapped
 * meanwhile is seen. Of one that is gone and was never looked at, its parent may have mapped more by the time
 * of the fork than was known: that is taken when the instruction's own mapping agrees.
 */
static void refresh_crashed(struct dl_symbols *s, struct proc *p, const struct dl_fault_stack *fs)
{
	struct proc *parent;

	if (p->fd >= 0)
		scan_proc(s, p);
	parent = p->inherited ? find_proc(s, p->parent) : NULL;
	if (!parent || parent->fd < 0)
		return;
	scan_proc(s, parent);
	if (parent->space == p->space || dl_fault_mapping(fs, parent->space, &s->files) < 1)
		return;
	dl_space_put(p->space);
	p->space = parent->space;
	p->space->refs++;
}

static void unwind_crash(struct dl_symbols *s, const struct req *r)
{
	struct dl_frame frames[DL_FAULT_FRAMES_MAX];
	struct proc *p = r->fd >= 0 ? get_proc(s, r->pid) : find_proc(s, r->pid);
	enum dl_stack_end end;
	int64_t cnt;

	if (p && p->fd < 0)
		p->fd = r->fd;
	else if (r->fd >= 0)
		close(r->fd);
	if (p)
		refresh_crashed(s, p, r->fs);
	cnt = dl_fault_unwind(r->fs, p ? p->space : NULL, &s->files, frames, &end);
	dl_fault_emit(&s->sink, r->fs, r->child, frames, cnt > 0 ? (size_t)cnt : 0, end);
	for (int64_t i = 0; i < cnt; i++)
		want_user(s, r->pid, frames[i].pc, frames[i].exact ? 0 : 1);
	free(r->fs);
}

/* --- the thread -------------------------------------------------------------------------------- */

static void handle_fork(struct dl_symbols *s, const struct req *r)
{
	const struct proc *parent = find_proc(s, r->pid);
	struct proc *child = parent && parent->space ? get_proc(s, r->child) : NULL;

	if (!child || child->space)
		return;
	child->space = parent->space;
	child->space->refs++;
	child->inherited = true;
	child->parent = r->pid;
}

static void handle(struct dl_symbols *s, struct req *r)
{
	struct proc *p;

	switch (r->op) {
	case REQ_SCAN:
		p = get_proc(s, r->pid);
		if (!p) {
			close(r->fd);
			return;
		}
		if (p->fd >= 0)
			close(p->fd);
		p->fd = r->fd;
		scan_proc(s, p);
		return;
	case REQ_FORK:
		handle_fork(s, r);
		return;
	case REQ_EXEC:
		p = find_proc(s, r->pid);
		if (p) {
			dl_space_put(p->space);
			p->space = NULL;
			p->inherited = false;
		}
		return;
	case REQ_EXIT:
		p = find_proc(s, r->pid);
		if (p) {
			dl_map_del(&s->by_pid, r->pid);
			free_proc(p);
		}
		return;
	case REQ_ADDR:
		if (!r->pid)
			want_kernel(s, r->addr);
		else if (want_user(s, r->pid, r->addr, 0) && r->executed)
			want_later(s, r->pid, r->addr);
		return;
	case REQ_CRASH:
		unwind_crash(s, r);
		return;
	}
}

/* Until there is something to do at once, addresses have come and the last ones were looked at a while ago, or
 * it is time to resolve what is wanted. */
static void wait_for_work(struct dl_symbols *s, uint64_t handled, uint64_t resolve)
{
	while (!s->urgent && !s->stop && !s->flush) {
		uint64_t until = resolve;
		struct timespec ts;

		s->idle = !s->reqs.cnt;
		if (s->idle && !s->any_wanted && !s->waiting.cnt) {
			pthread_cond_wait(&s->work, &s->lock);
			continue;
		}
		if (!s->idle && handled + ADDR_NS < until)
			until = handled + ADDR_NS;
		ts = (struct timespec){ (time_t)(until / DL_NS_PER_S), (long)(until % DL_NS_PER_S) };
		if (pthread_cond_timedwait(&s->work, &s->lock, &ts))
			return;
	}
}

static void *run(void *arg)
{
	struct dl_symbols *s = arg;
	uint64_t period = RESOLVE_FIRST_NS, handled = dl_now_ns(), next = handled + period;

	setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), 10);
	pthread_mutex_lock(&s->lock);
	for (;;) {
		__typeof__(s->reqs) reqs;
		bool flush;

		wait_for_work(s, handled, next);
		if (s->stop)
			break;
		reqs = s->reqs;
		memset(&s->reqs, 0, sizeof(s->reqs));
		s->urgent = s->idle = false;
		flush = s->flush;
		pthread_mutex_unlock(&s->lock);
		vec_for_each(&reqs, r)
			handle(s, r);
		vec_free(&reqs);
		handled = dl_now_ns();
		if (flush || handled >= next) {
			resolve_all(s);
			period = period * 2 < RESOLVE_MAX_NS ? period * 2 : RESOLVE_MAX_NS;
			next = dl_now_ns() + period;
		}
		pthread_mutex_lock(&s->lock);
		if (flush) {
			s->flush = false;
			s->flushed = true;
			pthread_cond_broadcast(&s->done);
		}
	}
	s->quitting = true;
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

/* --- the recorder's side ----------------------------------------------------------------------- */

int dl_symbols_open(struct dl_symbols **ret, struct dl_diag *d)
{
	struct dl_symbols *s = calloc(1, sizeof(*s));
	pthread_condattr_t attr;
	sigset_t all, old;
	int err;

	if (!s)
		return dl_oom(d);
	s->sink.emit = out_emit;
	pthread_mutex_init(&s->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&s->work, &attr);
	pthread_cond_init(&s->done, &attr);
	pthread_condattr_destroy(&attr);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);	/* signals are the recorder's */
	err = pthread_create(&s->thread, NULL, run, s);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (err) {
		free(s);
		return dl_fail_errno(d, -err, "cannot start a thread");
	}
	*ret = s;
	return 0;
}

void dl_symbols_close(struct dl_symbols *s)
{
	struct timespec until;
	uint64_t pid, p;
	size_t pos = 0;

	if (!s)
		return;
	pthread_mutex_lock(&s->lock);
	s->stop = true;
	pthread_cond_broadcast(&s->work);
	pthread_mutex_unlock(&s->lock);
	/* It may hang in a read of a file system that does not answer: then it keeps what it has. */
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += JOIN_S;
	if (pthread_timedjoin_np(s->thread, NULL, &until))
		return;
	vec_for_each(&s->reqs, r) {
		if ((r->op == REQ_SCAN || r->op == REQ_CRASH) && r->fd >= 0)
			close(r->fd);
		free(r->fs);
	}
	vec_free(&s->reqs);
	while (dl_map_next(&s->by_pid, &pos, &pid, &p))
		free_proc((struct proc *)(uintptr_t)p);
	dl_map_fini(&s->by_pid);
	dl_symfiles_fini(&s->files);
	vec_free(&s->waiting);
	dl_kallsyms_fini(&s->kallsyms);
	dl_str_fini(&s->out);
	pthread_cond_destroy(&s->work);
	pthread_cond_destroy(&s->done);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

static int ask(struct dl_symbols *s, struct req req)
{
	struct req *r;
	int err = 0;

	pthread_mutex_lock(&s->lock);
	/* Addresses may be left out; what became of processes may not. */
	r = (req.op == REQ_ADDR || req.op == REQ_CRASH) && s->reqs.cnt >= REQS_MAX ? NULL : vec_push(&s->reqs);
	if (r) {
		*r = req;
		s->urgent |= req.op != REQ_ADDR;
		/* More addresses are no reason to wake it: they are looked up together, a little later. */
		if (req.op != REQ_ADDR || s->idle)
			pthread_cond_signal(&s->work);
	} else {
		s->dropped++;
		err = -ENOBUFS;
	}
	pthread_mutex_unlock(&s->lock);
	return err;
}

int dl_symbols_scan(struct dl_symbols *s, uint32_t pid, int proc_fd)
{
	const int fd = fcntl(proc_fd, F_DUPFD_CLOEXEC, 0);
	int err;

	if (fd < 0)
		return -errno;
	err = ask(s, (struct req){ .op = REQ_SCAN, .pid = pid, .fd = fd });
	if (err)
		close(fd);
	return err;
}

int dl_symbols_fork(struct dl_symbols *s, uint32_t parent, uint32_t child)
{
	return ask(s, (struct req){ .op = REQ_FORK, .pid = parent, .child = child });
}

int dl_symbols_exec(struct dl_symbols *s, uint32_t pid)
{
	return ask(s, (struct req){ .op = REQ_EXEC, .pid = pid });
}

int dl_symbols_exit(struct dl_symbols *s, uint32_t pid)
{
	return ask(s, (struct req){ .op = REQ_EXIT, .pid = pid });
}

int dl_symbols_want(struct dl_symbols *s, uint32_t pid, uint64_t addr, bool executed)
{
	return ask(s, (struct req){ .op = REQ_ADDR, .pid = pid, .addr = addr, .executed = executed });
}

int dl_symbols_crash(struct dl_symbols *s, const struct dl_fault_stack *fs, uint32_t stack_id, int proc_fd)
{
	struct req req = { .op = REQ_CRASH, .pid = fs->h.pid, .child = stack_id, .fd = -1, .fs = malloc(sizeof(*fs)) };
	int err = -ENOMEM;

	if (req.fs) {
		*req.fs = *fs;
		req.fd = proc_fd < 0 ? -1 : fcntl(proc_fd, F_DUPFD_CLOEXEC, 0);
		err = ask(s, req);
	}
	if (err && req.fd >= 0)
		close(req.fd);
	if (err)
		free(req.fs);
	return err;
}

int dl_symbols_drain(struct dl_symbols *s, struct dl_sink *sink)
{
	struct dl_str out;
	int err = 0;

	pthread_mutex_lock(&s->lock);
	out = s->out;
	s->out = (struct dl_str){};
	pthread_mutex_unlock(&s->lock);
	for (size_t pos = 0; !err && pos + sizeof(struct dl_hdr) <= out.len;) {
		const struct dl_hdr *ev = (const void *)(out.s + pos);

		err = sink->emit(sink, ev);
		pos += (ev->size + 7u) & ~7u;
	}
	dl_str_fini(&out);
	return err;
}

int dl_symbols_finish(struct dl_symbols *s, struct dl_sink *sink, uint64_t timeout_ns)
{
	const uint64_t until = dl_now_ns() + timeout_ns;
	const struct timespec ts = { (time_t)(until / DL_NS_PER_S), (long)(until % DL_NS_PER_S) };

	pthread_mutex_lock(&s->lock);
	s->flush = true;
	s->flushed = false;
	pthread_cond_signal(&s->work);
	while (!s->flushed && !s->quitting)
		if (pthread_cond_timedwait(&s->done, &s->lock, &ts))
			break;
	pthread_mutex_unlock(&s->lock);
	return dl_symbols_drain(s, sink);
}

uint64_t dl_symbols_dropped(struct dl_symbols *s)
{
	uint64_t n;

	pthread_mutex_lock(&s->lock);
	n = s->dropped;
	pthread_mutex_unlock(&s->lock);
	return n;
}

const char *dl_symbols_kernel_hint(struct dl_symbols *s)
{
	const char *hint;

	pthread_mutex_lock(&s->lock);
	hint = s->kernel_hint;	/* written once, before it is not empty */
	pthread_mutex_unlock(&s->lock);
	return hint;
}
