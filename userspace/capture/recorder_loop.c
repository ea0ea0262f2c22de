/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The recorder's loop: what is due, signals, the target's end, and what is told every second. */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "capture/inject.h"
#include "capture/recorder_int.h"

#define MS 1000000ULL

/* At the latest: the kernel side wakes us when a ring has become a quarter full. */
enum {
	GPU_LOOKS_AT_ONCE = 16,
	DRAIN_MS = 50,
	DRAIN_BUSY_MS = 20,
	DRAIN_IDLE_MS = 100,
	BUSY_EVENTS = 8192,	/* in one drain */
	IDLE_EVENTS = 64,
};

/* A lone crash is looked at at once; a stream of forks and exits wakes us at most so often. */
#define BETWEEN_NS (5 * MS)

#define ENV_NS DL_NS_PER_S
#define ENV_CRASH_NS (100 * MS)		/* samples asked for by crashes, at most so often */
#define SHED_AGAIN_NS (10 * DL_NS_PER_S)
#define AFTER_EXIT_NS (150 * MS)	/* what the target's end sets off belongs to it */

/* --- GPU --------------------------------------------------------------------------------------- */

/* A collector appears when the process first calls CUDA. Forked workers hardly ever do. */
static uint64_t gpu_period(const struct dl_tree_proc *p)
{
	if (p->execed)
		return (p->gpu_looks < 60 ? 1 : 5) * DL_NS_PER_S;
	return (p->gpu_looks < 2 ? 2 : 30) * DL_NS_PER_S;
}

/* Reading all mappings of a PyTorch process takes a millisecond and more, and a library more or less shows in
 * the sample of every second. */
static bool uses_cuda(struct dl_tree_proc *p)
{
	if (!p->env.libs || p->env.libs != p->env.cuda_libs) {
		p->env.has_cuda = dl_gpu_uses_cuda(p->pid);
		p->env.cuda_libs = p->env.libs;
	}
	return p->env.has_cuda;
}

/* A collector that gives records makes probes needless: each call would be there twice. */
static int probe_calls(struct dl_recorder *r, struct dl_tree_proc *p, uint64_t now)
{
	int ret;

	if (p->has_gpu && dl_gpu_gives(r->g, p->pid)) {
		if (p->has_uprobes)
			dl_cuda_remove(r->cuda, p->pid);
		p->has_uprobes = false;
		return 0;
	}
	if (p->has_uprobes || !uses_cuda(p))
		return 0;
	ret = dl_cuda_probe(r->cuda, p->pid, p->execed ? 0 : p->ppid, p->fd, now);
	p->has_uprobes = ret > 0;
	return ret < 0 ? ret : 0;
}

/* A collector that was busy or had failed may give records at any moment. */
static int check_doubles(struct dl_recorder *r, uint64_t now)
{
	int err = 0;

	for (size_t i = 0; i < r->tree.procs.cnt && !err; i++) {
		struct dl_tree_proc *p = r->tree.procs.v[i];

		if (p->has_gpu && p->has_uprobes)
			err = probe_calls(r, p, now);
	}
	return err;
}

/* Into a process that uses CUDA and has no collector; once, unless it was not possible just then.
 * Forked workers have the driver's library mapped but do not use it. */
static void inject(struct dl_recorder *r, struct dl_tree_proc *p)
{
	struct dl_inject_result res;
	char lib[PATH_MAX], text[256];
	struct dl_diag d = {};
	int err;

	if (p->injected || (!p->execed && !p->root) || !uses_cuda(p))
		return;
	if (!dl_gpu_library(lib, sizeof(lib)))
		return;		/* the hint says so */
	err = dl_inject(p->pid, lib, &res, &d);
	p->injected = err != -EAGAIN;
	if (err) {
		if (err != -EAGAIN || !p->gpu_looks)
			dl_rec_note(r, d.msg);
		return;
	}
	snprintf(text, sizeof(text), "loaded the collector into process %u (its thread %u was away for %.1f ms)",
		 p->pid, res.tid, (double)res.away_ns / 1e6);
	dl_rec_note(r, text);
}

int dl_rec_probe_gpus(struct dl_recorder *r, uint64_t now)
{
	int left = GPU_LOOKS_AT_ONCE;

	r->gpu_wanted = false;
	for (size_t i = 0; i < r->tree.procs.cnt && left; i++) {
		struct dl_tree_proc *p = r->tree.procs.v[i];
		int ret;

		if ((p->has_gpu && !r->cuda) || now < p->next_gpu_ts)
			continue;
		ret = p->has_gpu || !r->g ? p->has_gpu : dl_gpu_probe(r->g, p->pid);
		if (!ret && r->g && r->o->inject) {
			inject(r, p);
			ret = dl_gpu_probe(r->g, p->pid);
		}
		if (ret < 0 && r->write_err)
			return ret;
		p->has_gpu = ret > 0;
		ret = r->cuda ? probe_calls(r, p, now) : 0;
		if (ret)
			return ret;
		if ((p->has_gpu || p->has_uprobes) && r->watch)
			dl_gpu_watch_start(r->watch);
		p->gpu_looks++;
		p->next_gpu_ts = now + gpu_period(p);
		left--;
	}
	return 0;
}

void dl_rec_find_hint(struct dl_recorder *r, struct dl_rec_loop *l)
{
	l->hint[0] = '\0';
	if (!r->g)
		return;
	for (size_t i = 0; i < r->tree.procs.cnt; i++)
		if (r->tree.procs.v[i]->has_gpu)
			return;
	for (size_t i = 0, left = GPU_LOOKS_AT_ONCE; i < r->tree.procs.cnt && left && !l->hint[0]; i++) {
		struct dl_tree_proc *p = r->tree.procs.v[i];

		if (p->execed && uses_cuda(p)) {
			dl_gpu_hint(r->g, p->pid, l->hint, sizeof(l->hint));
			left--;
		}
	}
}

/* --- the loop ---------------------------------------------------------------------------------- */

/* Leaving out is no failure, but whoever watches should know; and where it began stands in the recording. */
static int tell_shed(struct dl_recorder *r, uint64_t now)
{
	static const char text[] = "events come faster than they can be read or written: what matters least is left out";
	const uint64_t shed = dl_kernel_shed_total(r->k);

	if (shed == r->shed)
		return 0;
	r->shed = shed;
	if (r->shed_told_ts && now - r->shed_told_ts < SHED_AGAIN_NS)
		return 0;
	r->shed_told_ts = now;
	dl_rec_note(r, text);
	return dl_rec_mark(r, DL_MARK_SHED, 0, text);
}

/* Who sleeps since a hole tells nothing by itself: what it waits for stands in /proc. */
static void look_behind_holes(struct dl_recorder *r, uint64_t now)
{
	const uint32_t holes = dl_kernel_holes(r->k);

	if (holes != r->holes) {
		r->holes = holes;
		r->hole_looks = true;
		return;
	}
	if (!r->hole_looks)
		return;
	r->hole_looks = false;
	for (size_t i = 0; i < r->tree.procs.cnt; i++)
		dl_tree_look_later(&r->tree, r->tree.procs.v[i]->pid, 0, now);
}

static int weigh_calls(struct dl_recorder *r, uint64_t now)
{
	char why[256];
	int ret = dl_kernel_weigh_calls(r->k, now, why, sizeof(why));

	if (ret > 0)
		dl_rec_note(r, why);
	return ret < 0 ? ret : 0;
}

static int every_second(struct dl_recorder *r, struct dl_rec_loop *l, uint64_t now)
{
	struct dl_trace_writer_stats ws = {};
	struct dl_record_status st = {};
	int err;

	err = dl_rec_emit_losses(r);
	if (!err)
		err = weigh_calls(r, now);
	if (!err)
		err = tell_shed(r, now);
	look_behind_holes(r, now);
	if (!err)
		err = dl_rec_probe_gpus(r, now);
	if (err)
		return err;
	if (now - l->hint_ts >= 5 * DL_NS_PER_S) {
		dl_rec_find_hint(r, l);
		l->hint_ts = now;
		if (r->watch && l->hint[0])
			dl_gpu_watch_start(r->watch);	/* CUDA without a collector */
	}
	if (r->w)
		dl_trace_writer_stats(r->w, &ws);
	st.elapsed_ns = now - l->start_ts;
	st.pid = r->root_pid;
	st.processes = (uint32_t)r->tree.procs.cnt;
	st.workers = r->tree.workers;
	st.events = ws.events;
	st.lost = r->lost;
	st.file_bytes = ws.file_bytes;
	if (r->keep)
		dl_rec_keep_status(r, now, &st);
	st.events_per_s = (st.events - l->second_events) * DL_NS_PER_S / (now - l->second_ts);
	st.gpu = r->g ? dl_gpu_describe(r->g, l->gpu, sizeof(l->gpu)) : "off";
	if (r->cuda && dl_cuda_procs(r->cuda))
		st.gpu = "uprobes";
	st.gpu_hint = l->hint;
	l->second_events = st.events;
	l->second_ts = now;
	if (r->o->on_status)
		r->o->on_status(&st, r->o->arg);
	return 0;
}

/* Everything that is due; *ret_cnt: kernel events drained. */
static int tick(struct dl_recorder *r, struct dl_rec_loop *l, int *ret_cnt)
{
	/* The disk does not answer: rings shed what matters least, and what ended is still told. */
	const bool stuck = r->w && dl_trace_writer_is_behind(r->w);
	uint64_t now = dl_now_ns();
	const int cnt = stuck ? dl_kernel_drain_crash(r->k) : dl_kernel_drain(r->k);
	int err;

	if (cnt < 0)
		return cnt;
	*ret_cnt = cnt;
	if (!stuck && !dl_kernel_behind(r->k))
		r->drain_ts = now;
	now = dl_now_ns();
	err = r->g && !stuck ? dl_gpu_drain(r->g, now) : 0;
	if (err >= 0)
		err = dl_rec_due_looks(r, now);
	if (!err && r->cuda)
		err = check_doubles(r, now);
	if (!err && r->gpu_wanted)
		err = dl_rec_probe_gpus(r, now);
	if (!err && r->watch)
		err = dl_gpu_watch_emit(r->watch, &r->sink, false);
	if (!err && r->sym)
		err = dl_symbols_drain(r->sym, &r->sink);
	if (!err && (now - r->env_ts >= ENV_NS || (r->env_wanted && now - r->env_crash_ts >= ENV_CRASH_NS)))
		err = dl_rec_env_sample(r, r->env_wanted);
	if (!err && now - l->second_ts >= DL_NS_PER_S)
		err = every_second(r, l, now);
	if (!err) {
		err = r->keep ? dl_rec_keep_tick(r, now) : dl_trace_writer_flush(r->w, now);
		if (err)
			r->write_err = err;
	}
	return err;
}

void dl_rec_note(const struct dl_recorder *r, const char *text)
{
	if (r->o->on_note)
		r->o->on_note(text, r->o->arg);
}

/*
 * Signals of the terminal reach the command as well, since it is in our process group; what was
 * sent to us alone is handed on. The command then decides, and the recording ends with it; who
 * repeats the signal ends the recording, and with a third one the wait for the command.
 */
void dl_rec_on_signal(struct dl_recorder *r, struct dl_rec_loop *l)
{
	struct signalfd_siginfo si;

	if (read(l->signal_fd, &si, sizeof(si)) != sizeof(si) || si.ssi_signo == SIGCHLD)
		return;
	if (si.ssi_signo == SIGUSR1) {
		dl_rec_keep_asked(r);	/* the next write meets its error */
		return;
	}
	dl_rec_keep_ending(r);
	l->signals++;
	if (!r->o->argv || r->spawn.pid < 0) {
		l->end = l->end ? l->end : DL_END_SIGNAL;
		return;
	}
	if (si.ssi_code != SI_KERNEL)
		kill(r->spawn.pid, (int)si.ssi_signo);
	if (l->signals == 1)
		dl_rec_note(r, "waiting for the command to end; once more ends the recording");
	else
		l->end = l->end ? l->end : DL_END_SIGNAL;
}

/* The target's end, seen by its descriptor or, without one, by its EXIT event. */
static void check_target(struct dl_recorder *r, struct dl_rec_loop *l, bool readable, uint64_t now)
{
	if (l->end_ts || (!readable && !r->root_exited))
		return;
	if (r->o->argv && r->spawn.pid > 0) {
		int status;

		if (waitpid(r->spawn.pid, &status, WNOHANG) != r->spawn.pid)
			return;	/* its threads are still ending */
		r->status = status;
		r->has_status = true;
		r->spawn.pid = -1;
	}
	l->end_ts = now + AFTER_EXIT_NS;
	if (l->pid_fd >= 0)
		epoll_ctl(l->epoll_fd, EPOLL_CTL_DEL, l->pid_fd, NULL);
}

static int wait_ms(const struct dl_rec_loop *l, const struct dl_recorder *r, int cnt, uint64_t now)
{
	if (dl_kernel_behind(r->k) || r->looks_due)
		return 0;

	uint64_t ms = cnt > BUSY_EVENTS ? DRAIN_BUSY_MS : cnt < IDLE_EVENTS ? DRAIN_IDLE_MS : DRAIN_MS;
	uint64_t until = l->end_ts;

	if (r->o->duration_ns && (!until || l->start_ts + r->o->duration_ns < until))
		until = l->start_ts + r->o->duration_ns;
	if (until && until < now + ms * MS)
		ms = until > now ? (until - now + MS - 1) / MS : 0;
	return (int)ms;
}

void dl_rec_loop(struct dl_recorder *r, struct dl_rec_loop *l)
{
	uint64_t last = 0;
	int cnt = 0, err;

	while (!l->end) {
		struct epoll_event ev[4];
		bool target = false;
		uint64_t now;
		int n;

		err = tick(r, l, &cnt);
		now = dl_now_ns();
		if (err < 0) {
			l->err = err;
			l->end = !r->write_err ? DL_END_CAPTURE :
				err == -EFBIG && r->o->max_sz ? DL_END_MAX_SIZE : DL_END_WRITE;
			return;
		}
		if (l->end_ts && now >= l->end_ts)
			l->end = DL_END_TARGET;
		else if (r->o->duration_ns && now - l->start_ts >= r->o->duration_ns)
			l->end = DL_END_DURATION;
		if (l->end)
			return;
		if (now - last < BETWEEN_NS && !dl_kernel_in_hurry(r->k))
			usleep((useconds_t)((BETWEEN_NS - (now - last)) / 1000));
		last = dl_now_ns();
		n = epoll_wait(l->epoll_fd, ev, ARRAY_SIZE(ev), wait_ms(l, r, cnt, now));
		for (int i = 0; i < n; i++) {
			if (ev[i].data.fd == l->signal_fd)
				dl_rec_on_signal(r, l);
			else if (ev[i].data.fd == l->pid_fd)
				target = true;
		}
		check_target(r, l, target, dl_now_ns());
	}
}
