/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The recording from begin to end: set-up, the loop, and the end, which always leaves a whole file. */
#include "capture/recorder.h"

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "capture/meta.h"
#include "capture/output.h"
#include "capture/recorder_int.h"

#define SYMBOLS_NS (3 * DL_NS_PER_S)	/* time for names at the end */

enum {
	EARLY_MAX = 1 << 20,
	QUEUE_SZ = 8 << 20,	/* of the file, while the disk does not answer: a million events or more */
};

/* --- the sink ---------------------------------------------------------------------------------- */

static int keep_early(struct dl_recorder *r, const struct dl_hdr *ev)
{
	static const char zeros[8];

	if (r->early.len + ev->size > EARLY_MAX) {
		r->invalid++;
		return 0;
	}
	dl_str_addn(&r->early, (const char *)ev, ev->size);
	dl_str_addn(&r->early, zeros, -(size_t)ev->size & 7);
	return r->early.err;
}

static int rec_emit(struct dl_sink *sink, const struct dl_hdr *ev)
{
	struct dl_recorder *r = (struct dl_recorder *)sink;
	int err;

	if (ev->kind == DL_KIND_FAULT_STACK) {	/* the target's memory: not for the file */
		dl_rec_fault_stack(r, (const void *)ev);
		return 0;
	}
	if (!r->w && !r->keep)
		return keep_early(r, ev);
	if (r->write_err)
		return r->write_err;
	err = r->keep ? dl_rec_keep_write(r, ev) : dl_trace_write(r->w, ev);
	if (err == -EINVAL) {
		r->invalid++;
		return 0;
	}
	if (err) {
		r->write_err = err;
		return err;
	}
	return dl_rec_on_event(r, ev);
}

static int write_early(struct dl_recorder *r)
{
	int err = 0;

	for (size_t pos = 0; !err && pos < r->early.len;) {
		const struct dl_hdr *ev = (const void *)(r->early.s + pos);

		err = rec_emit(&r->sink, ev);
		pos += (ev->size + 7u) & ~7u;
	}
	dl_str_fini(&r->early);
	return err;
}

static int emit_own_loss(struct dl_recorder *r, uint32_t cause, uint32_t kind, uint64_t cnt)
{
	struct dl_ev_loss ev = DL_EVENT_INIT(loss, DL_EV_LOSS, dl_now_ns(), 0, 0);

	ev.ring = DL_RING_WRITER;
	ev.cause = cause;
	ev.kind = kind;
	ev.cnt = cnt;
	return cnt ? rec_emit(&r->sink, &ev.h) : 0;
}

int dl_rec_emit_losses(struct dl_recorder *r)
{
	uint64_t kernel = r->lost;
	int err;

	err = dl_kernel_emit_losses(r->k, &kernel);
	if (err < 0)
		return err;
	r->lost = kernel;
	err = emit_own_loss(r, DL_LOSS_INVALID, 0, r->invalid);
	if (!err && r->keep)
		err = emit_own_loss(r, DL_LOSS_DISK, 0, dl_rec_keep_lost(r));
	if (!err && r->keep)
		err = emit_own_loss(r, DL_LOSS_MAP_FULL, 0, dl_rec_keep_dropped(r));
	if (!err)
		err = emit_own_loss(r, DL_LOSS_MAP_FULL, DL_EV_SYMBOL, r->sym ? dl_symbols_dropped(r->sym) : 0);
	return err ? err : emit_own_loss(r, DL_LOSS_MAP_FULL, DL_EV_TASK, r->tree.not_followed);
}

/* --- begin and end ----------------------------------------------------------------------------- */

static void watch(int epoll_fd, int fd)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.fd = fd };

	if (fd >= 0)
		epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &ev);
}

/* nohup(1), and shells for programs in the background, want these to mean nothing. */
static void add_unless_ignored(sigset_t *set, int sig)
{
	struct sigaction sa;

	if (sigaction(sig, NULL, &sa) || sa.sa_handler != SIG_IGN)
		sigaddset(set, sig);
}

static int loop_open(struct dl_rec_loop *l, bool keep, sigset_t *ret_old, struct dl_diag *d)
{
	sigset_t set;

	*l = (struct dl_rec_loop){ .epoll_fd = -1, .signal_fd = -1, .pid_fd = -1 };
	sigemptyset(&set);
	add_unless_ignored(&set, SIGINT);
	add_unless_ignored(&set, SIGHUP);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGCHLD);
	if (keep)
		sigaddset(&set, SIGUSR1);
	if (sigprocmask(SIG_BLOCK, &set, ret_old))
		return dl_fail_errno(d, -errno, "cannot block signals");
	/* A terminal that is closed, a limit of file sizes: errors of write(2), no reason to die. */
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);
	l->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	l->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (l->signal_fd < 0 || l->epoll_fd < 0)
		return dl_fail_errno(d, -errno, "cannot wait for signals");
	watch(l->epoll_fd, l->signal_fd);
	return 0;
}

static void loop_close(struct dl_rec_loop *l, const sigset_t *old)
{
	for (int i = 0; i < 3; i++) {
		const int fd = i == 0 ? l->epoll_fd : i == 1 ? l->signal_fd : l->pid_fd;

		if (fd >= 0)
			close(fd);
	}
	sigprocmask(SIG_SETMASK, old, NULL);
}

/* A descriptor for every process, and for every file that is mapped as code. */
static void raise_fd_limit(void)
{
	struct rlimit l;

	if (!getrlimit(RLIMIT_NOFILE, &l)) {
		l.rlim_cur = l.rlim_max < 65536 ? l.rlim_max : 65536;
		setrlimit(RLIMIT_NOFILE, &l);
	}
}

static int open_file(struct dl_recorder *r, struct dl_diag *d)
{
	const struct dl_trace_writer_opts opts = { .max_sz = r->o->max_sz, .queue_sz = QUEUE_SZ };
	struct dl_trace_meta meta;
	int err, fd;

	if (r->o->keep)
		return dl_rec_keep_open(r, d);
	err = dl_rec_meta_init(&meta, r->o, r->root_pid);
	if (err)
		return dl_oom(d);
	fd = dl_output_open(r->o->path, r->o->invoker, d);
	err = fd < 0 ? fd : dl_trace_writer_open(&r->w, fd, &meta, &opts, d);
	dl_rec_meta_fini(&meta);
	return err;
}

static int first_look(struct dl_recorder *r, bool *ret_exec, struct dl_diag *d)
{
	int err;

	err = dl_rec_add_tree(r, r->root_pid, d);
	if (err)
		return err;
	if (r->o->argv) {
		/* What it is before it becomes the command is nobody's business. */
		err = dl_spawn_go(&r->spawn, r->o->argv[0], d);
		*ret_exec = err;
		if (err)
			return err;
	}
	for (size_t i = 0; !err && i < r->tree.procs.cnt; i++) {
		struct dl_tree_proc *p = r->tree.procs.v[i];

		if (!r->o->argv)
			p->looks = 1;	/* it is no new program: one look at its mappings is enough */
		err = dl_rec_look_at(r, p, 0);
		/* A worker that was forked a moment ago has no handlers yet. */
		dl_tree_look_later(&r->tree, p->pid, 0, dl_now_ns());
	}
	if (!err)
		err = dl_rec_probe_gpus(r, dl_now_ns());
	if (!err)
		err = dl_rec_env_sample(r, false);
	/* The command runs by now, and goes on: the loop will meet the error again, and stop. */
	if (err && r->o->argv)
		return 0;
	return err ? dl_fail_errno(d, err, "cannot write the first events to %s", r->o->path) : 0;
}

static bool is_ours(uint32_t pid, void *arg)
{
	const struct dl_recorder *r = arg;

	return dl_tree_find(&r->tree, pid) != NULL;
}

static int begin(struct dl_recorder *r, struct dl_rec_loop *l, bool *ret_exec, struct dl_diag *d)
{
	const struct dl_kernel_opts kopts = { .sample_hz = r->o->sample_hz, .user_stacks = r->o->user_stacks,
					   .verbose = r->o->verbose,
					   .no_syscalls = r->o->no_syscalls, .all_syscalls = r->o->all_syscalls };
	const struct dl_gpu_opts gopts = { .mode = r->o->gpu_mode };
	const struct dl_cuda_opts copts = { .mode = r->o->uprobes, .collector = r->o->gpu_mode };
	const struct dl_gpu_watch_opts wopts = { .is_ours = is_ours, .arg = r };
	int err;

	raise_fd_limit();
	err = dl_kernel_open(&r->k, &kopts, &r->sink, d);
	if (!err)
		err = open_file(r, d);
	if (!err)
		err = write_early(r) ? dl_fail_errno(d, r->write_err, "cannot write to %s", r->o->path) : 0;
	if (!err && r->o->gpu_mode)
		err = dl_gpu_open(&r->g, &gopts, &r->sink, d);
	if (!err && r->o->uprobes)
		err = dl_cuda_open(&r->cuda, r->k, &copts, &r->sink, d);
	if (!err && (r->o->gpu_mode || r->o->uprobes) && dl_gpu_watch_open(&r->watch, &wopts))
		err = dl_oom(d);
	if (!err)
		err = dl_symbols_open(&r->sym, d);
	if (err)
		return err;
	dl_rec_env_open(r);
	l->start_ts = l->second_ts = dl_now_ns();
	l->hint_ts = l->start_ts - 2 * DL_NS_PER_S;
	l->pid_fd = (int)syscall(SYS_pidfd_open, (pid_t)r->root_pid, 0);
	watch(l->epoll_fd, l->pid_fd);
	err = dl_kernel_watch(r->k, l->epoll_fd);
	if (err)
		return dl_fail_errno(d, err, "cannot wait for events");
	err = dl_rec_mark(r, DL_MARK_START, 0, "recording began");
	if (!err)
		err = first_look(r, ret_exec, d);
	return err;
}

static const char *end_text(const struct dl_recorder *r, enum dl_record_end end)
{
	switch (end) {
	case DL_END_TARGET:
		return r->tree.procs.cnt ? "the target ended; processes of its tree are left" :
			"the target ended";
	case DL_END_SIGNAL:
		return "stopped by a signal";
	case DL_END_DURATION:
		return "the time was over";
	case DL_END_MAX_SIZE:
		return "the file reached its largest size";
	case DL_END_WRITE:
		return "the file could not be written to";
	case DL_END_CAPTURE:
		return "events could not be read";
	}
	return "";
}

/* Errors on the way are not reported: the end of the recording has its reason already, or the
 * writer's own error is found when it is closed. */
static void last_events(struct dl_recorder *r, struct dl_rec_loop *l)
{
	const char *hint = dl_symbols_kernel_hint(r->sym);

	dl_rec_env_sample(r, false);
	if (r->g)
		dl_gpu_stop(r->g);	/* waits for the last flush; the kernel side covers it */
	dl_cuda_close(r->cuda);
	r->cuda = NULL;
	if (r->watch)
		dl_gpu_watch_emit(r->watch, &r->sink, true);
	dl_kernel_drain(r->k);
	if (r->has_status)
		dl_rec_mark(r, DL_MARK_TARGET_EXIT, r->status, "");
	dl_rec_mark(r, DL_MARK_STOP, (int32_t)l->end, end_text(r, l->end));
	dl_rec_emit_losses(r);
	r->shed = dl_kernel_shed_total(r->k);
	dl_kernel_close(r->k);
	r->k = NULL;
	dl_rec_find_hint(r, l);
	if (l->hint[0])
		dl_rec_absent(r, DL_SRC_GPU, l->hint);
	dl_symbols_finish(r->sym, &r->sink, r->write_err ? 0 : SYMBOLS_NS);
	if (hint[0])
		dl_rec_absent(r, DL_SRC_SYMBOLS, hint);
}

static void wait_for_command(struct dl_recorder *r, struct dl_rec_loop *l)
{
	if (r->spawn.pid > 0)
		dl_rec_note(r, "the recording has ended; waiting for the command");
	while (r->spawn.pid > 0 && l->signals < 3) {
		struct epoll_event ev;
		int status;

		if (waitpid(r->spawn.pid, &status, WNOHANG) == r->spawn.pid) {
			r->status = status;
			r->has_status = true;
			r->spawn.pid = -1;
			return;
		}
		/* SIGCHLD comes through signal_fd. */
		if (epoll_wait(l->epoll_fd, &ev, 1, 1000) == 1 && ev.data.fd == l->signal_fd)
			dl_rec_on_signal(r, l);
	}
}

/* With the index, which is written last. */
static uint64_t file_bytes(const char *path, uint64_t otherwise)
{
	struct stat st;

	return lstat(path, &st) || !S_ISREG(st.st_mode) ? otherwise : (uint64_t)st.st_size;
}

static void finish(struct dl_recorder *r, struct dl_rec_loop *l, struct dl_record_result *res, struct dl_diag *d)
{
	struct dl_trace_writer_stats ws = {};
	int err;

	res->elapsed_ns = dl_now_ns() - l->start_ts;
	res->end = l->end;
	res->err = l->err;
	res->left_over = l->end == DL_END_TARGET ? (uint32_t)r->tree.procs.cnt : 0;
	last_events(r, l);
	if (r->keep) {
		err = dl_rec_keep_finish(r, res, d);
		ws.events = res->events;
	} else {
		dl_trace_writer_stats(r->w, &ws);
		err = dl_trace_writer_close(r->w, d);
		r->w = NULL;
	}
	if (err && res->end != DL_END_WRITE && res->end != DL_END_MAX_SIZE) {
		res->end = DL_END_WRITE;
		res->err = err;
	}
	res->target_ended = l->end_ts != 0;
	res->processes_seen = r->tree.procs_seen;
	res->workers_seen = r->tree.workers_seen;
	res->events = ws.events;
	res->file_bytes = file_bytes(r->o->path, ws.file_bytes);
	res->lost += r->lost + r->invalid;
	res->shed = r->shed;
}

static void rec_fini(struct dl_recorder *r)
{
	dl_spawn_close(&r->spawn);
	dl_symbols_close(r->sym);
	dl_gpu_close(r->g);
	dl_cuda_close(r->cuda);
	dl_gpu_watch_close(r->watch);
	dl_kernel_close(r->k);
	if (r->w)
		dl_trace_writer_close(r->w, NULL);
	dl_rec_keep_abort(r);
	dl_rec_env_close(r);
	dl_map_fini(&r->asked);
	dl_tree_fini(&r->tree);
	dl_str_fini(&r->early);
	free(r);
}

int dl_record(const struct dl_record_opts *o, struct dl_record_result *ret_result, bool *ret_exec,
	      struct dl_diag *d)
{
	struct dl_recorder *r = calloc(1, sizeof(*r));
	struct dl_record_result res = {};
	struct dl_rec_loop l;
	sigset_t old;
	int err;

	*ret_exec = false;
	if (!r)
		return dl_oom(d);
	r->sink.emit = rec_emit;
	r->o = o;
	r->spawn = (struct dl_spawn)DL_SPAWN_NONE;
	for (size_t i = 0; i < DL_HOST_FILES; i++)
		r->host.fd[i] = -1;
	r->root_pid = o->pid;
	if (o->argv) {
		err = dl_spawn_prepare(&r->spawn, o->argv, o->invoker, d);
		if (err) {
			rec_fini(r);
			return err;
		}
		r->root_pid = (uint32_t)r->spawn.pid;
	}
	err = loop_open(&l, o->keep != NULL, &old, d);
	if (!err)
		err = begin(r, &l, ret_exec, d);
	if (err && r->w) {
		dl_trace_writer_close(r->w, NULL);
		r->w = NULL;
		dl_output_remove(o->path, o->invoker);	/* nothing was recorded */
	}
	if (!err) {
		if (o->on_start)
			o->on_start(r->root_pid, o->arg);
		dl_rec_loop(r, &l);
		finish(r, &l, &res, d);
		wait_for_command(r, &l);
		res.has_status = r->has_status;
		res.status = r->status;
		res.target_ended |= o->argv && r->spawn.pid < 0;
		*ret_result = res;
	}
	rec_fini(r);
	loop_close(&l, &old);
	return err;
}
