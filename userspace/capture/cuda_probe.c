/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Which processes use CUDA, what lies where in them, and the probes that are on. */
#include "capture/cuda_probe.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <dlbpf/gpu_ring.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "capture/cuda_priv.h"
#include "capture/gpu.h"
#include "capture/kernel.h"
#include "capture/proc.h"

#define COLLECTOR_NS (2 * DL_NS_PER_S)	/* to come up in */
#define ENVIRON_MAX (1 << 20)

enum {
	LIBS_MAX = 32,		/* different files, each held open */
	LOADS_MAX = 16,		/* mapped in one process */
	FAILURES_MAX = 16,	/* told */
};

/* A file that a process has mapped. */
struct load {
	uint32_t dev;
	uint64_t ino, start, off, end;
	enum cuda_layer layer;
	const struct cuda_lib *lib;	/* NULL: to be opened yet, or it could not be */
	size_t on;			/* entry points that are probed */
};

/* What is probed, and where it lies in the process. */
struct place {
	uint64_t ip;
	struct dl_cuda_call call;
};

struct proc {
	uint32_t pid;
	bool failed;		/* and told where it is a failure: not tried again */
	bool awaits;		/* a collector is to come up in it */
	bool probed;
	uint64_t seen_ts;	/* since when it is known to use CUDA; 0 it does not */
	DL_VEC(struct place) places;	/* in the kernel side's map */
	DL_VEC(struct dl_uprobe *) probes;
};

struct dl_cuda {
	struct dl_kernel *k;
	struct dl_sink *sink;
	struct dl_cuda_opts opts;
	uint64_t now;
	DL_VEC(struct proc *) procs;
	DL_VEC(struct cuda_lib *) libs;
	uint8_t *named;		/* by call: its name has been emitted */
	int failures;
};

/* --- events ---------------------------------------------------------------------------------------- */

static int __attribute__((format(printf, 2, 3))) emit_absent(struct dl_cuda *c, const char *fmt, ...)
{
	struct dl_ev_absent ev = DL_EVENT_INIT(absent, DL_EV_ABSENT, c->now, 0, 0);
	char text[256];
	va_list ap;

	if (c->failures++ >= FAILURES_MAX)
		return 0;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	ev.source = DL_SRC_GPU;
	return dl_emit_text(c->sink, &ev.h, text);
}

static int emit_name(struct dl_cuda *c, const struct cuda_call *call)
{
	struct dl_ev_string ev = DL_EVENT_INIT(string, DL_EV_STRING, c->now, 0, 0);
	const size_t i = (size_t)(call - cuda_calls);

	if (c->named[i])
		return 0;
	c->named[i] = 1;
	ev.id = cuda_call_full(call).name;
	return dl_emit_text(c->sink, &ev.h, call->symbol);
}

static int emit_source(struct dl_cuda *c, const struct proc *p, const struct load *loads, size_t cnt)
{
	struct dl_ev_gpu_source ev = DL_EVENT_INIT(gpu_source, DL_EV_GPU_SOURCE, c->now, p->pid, 0);
	struct dl_str s = {};
	int err;

	dl_str_add(&s, "uprobes");
	for (size_t i = 0, said = 0; i < cnt; i++) {
		if (!loads[i].on)
			continue;
		dl_str_addf(&s, "%s%zu calls of %s", said++ ? ", " : " (", loads[i].on, loads[i].lib->name);
		ev.flags |= loads[i].lib->simulated ? DL_GPU_SIMULATED : 0;
	}
	dl_str_add(&s, ")");
	ev.state = DL_GPU_UPROBES;
	err = s.err ? s.err : dl_emit_text(c->sink, &ev.h, s.s);
	dl_str_fini(&s);
	return err;
}

/* --- processes ------------------------------------------------------------------------------------- */

static struct proc *find_proc(const struct dl_cuda *c, uint32_t pid)
{
	for (size_t i = 0; i < c->procs.cnt; i++) {
		if (c->procs.v[i]->pid == pid)
			return c->procs.v[i];
	}
	return NULL;
}

static struct proc *add_proc(struct dl_cuda *c, uint32_t pid)
{
	struct proc *p = calloc(1, sizeof(*p)), **slot = p ? vec_push(&c->procs) : NULL;

	if (!slot) {
		free(p);
		return NULL;
	}
	p->pid = pid;
	*slot = p;
	return p;
}

/* From now on nothing of it is recorded; taking off the probes themselves takes longer. */
static void silence(struct dl_cuda *c, struct proc *p)
{
	vec_for_each(&p->places, at)
		dl_kernel_set_cuda_call(c->k, p->pid, at->ip, NULL);
	vec_free(&p->places);
}

static void free_proc(struct dl_cuda *c, struct proc *p)
{
	silence(c, p);
	cuda_off(p->probes.v, p->probes.cnt);
	vec_free(&p->probes);
	free(p);
}

/* --- what is mapped ---------------------------------------------------------------------------------- */

struct scan {
	char exe[PATH_MAX];
	struct load v[LOADS_MAX];
	size_t cnt;
	uint64_t driver;	/* where libcuda.so.1 begins; 0 it is not there */
	bool runtime;
};

static int on_mapping(const struct dl_mapping *m, void *arg)
{
	struct scan *s = arg;
	enum cuda_layer layer = m->exec && m->ino ? cuda_layer_of(m->path) : CUDA_NONE;
	struct load *l = &s->v[s->cnt];

	if (layer == CUDA_DRIVER && !s->driver)
		s->driver = m->start;
	s->runtime |= layer == CUDA_RUNTIME;
	/* A program may have the runtime linked in. */
	if (!layer && m->exec && m->ino && s->exe[0] && !strcmp(m->path, s->exe))
		layer = CUDA_RUNTIME;
	if (!layer || s->cnt == LOADS_MAX)
		return 0;
	*l = (struct load){ .dev = m->dev, .ino = m->ino, .start = m->start, .end = m->end, .off = m->off,
			    .layer = layer };
	s->cnt++;
	return 0;
}

static int scan_maps(struct scan *s, int proc_fd)
{
	const ssize_t n = readlinkat(proc_fd, "exe", s->exe, sizeof(s->exe) - 1);
	int err;

	s->exe[n > 0 ? n : 0] = '\0';
	err = dl_maps_each(proc_fd, on_mapping, s);
	return err < 0 ? err : 0;
}

static const struct cuda_lib *find_lib(const struct dl_cuda *c, const struct load *l)
{
	for (size_t i = 0; i < c->libs.cnt; i++) {
		if (c->libs.v[i]->dev == l->dev && c->libs.v[i]->ino == l->ino)
			return c->libs.v[i];
	}
	return NULL;
}

struct opening {
	struct dl_cuda *c;
	struct scan *s;
	int proc_fd, err;
};

/* The mapping is opened while its path is at hand. */
static int open_mapping(const struct dl_mapping *m, void *arg)
{
	struct opening *o = arg;

	for (size_t i = 0; i < o->s->cnt; i++) {
		struct load *l = &o->s->v[i];
		struct cuda_lib lib, *kept, **slot;

		if (l->start != m->start || l->ino != m->ino || l->dev != m->dev)
			continue;
		l->lib = find_lib(o->c, l);
		if (l->lib || o->c->libs.cnt == LIBS_MAX)
			return 0;
		o->err = cuda_lib_open(&lib, o->proc_fd, m);
		if (o->err)
			return 0;
		kept = malloc(sizeof(*kept));
		slot = kept ? vec_push(&o->c->libs) : NULL;
		if (!slot) {
			cuda_lib_fini(&lib);
			free(kept);
			return -ENOMEM;
		}
		*kept = lib;
		*slot = kept;
		l->lib = kept;
		return 0;
	}
	return 0;
}

/* --- probing ----------------------------------------------------------------------------------------- */

static bool is_launch(const struct cuda_call *call)
{
	return call->c.class == DL_CALL_LAUNCH || call->c.class == DL_CALL_MEMSET;
}

/*
 * A probe costs the target a microsecond or two each time, so launches, by far the most frequent calls,
 * are probed in one layer, without their return, and memsets, which the analysis does not need, not at
 * all; unless everything was asked for.
 */
static bool is_wanted(const struct dl_cuda *c, const struct scan *s, const struct load *l, const struct cuda_call *call)
{
	if (c->opts.mode == DL_GPU_MODE_LIGHT)
		return call->light;
	if (c->opts.mode == DL_GPU_MODE_FULL || !is_launch(call))
		return true;
	return call->c.class == DL_CALL_LAUNCH && (l->layer == CUDA_RUNTIME || !s->runtime);
}

static int add_uprobe(struct dl_cuda *c, struct proc *p, const struct load *l, uint64_t off, bool at_return)
{
	struct dl_uprobe **slot = vec_push(&p->probes);
	int err;

	if (!slot)
		return -ENOMEM;
	err = dl_kernel_uprobe(c->k, p->pid, l->lib->fd, off, at_return, slot);
	if (err)
		p->probes.cnt--;
	return err;
}

/* The return first: an entry without it would leave a thread inside for ever. */
static int probe_point(struct dl_cuda *c, struct proc *p, const struct scan *s, struct load *l,
		       const struct cuda_point *point)
{
	struct dl_cuda_call call = cuda_call_full(point->call);
	const uint64_t ip = l->start + (point->off - l->off);
	struct place *place;
	int err;

	if (point->off < l->off || ip >= l->end || !is_wanted(c, s, l, point->call))
		return 0;
	if (is_launch(point->call) && c->opts.mode != DL_GPU_MODE_FULL)
		call.flags |= DL_CUDA_ENTRY_ONLY;
	err = call.flags & DL_CUDA_ENTRY_ONLY ? 0 : add_uprobe(c, p, l, point->off, true);
	if (!err)
		err = add_uprobe(c, p, l, point->off, false);
	if (err)
		return err;
	place = vec_push(&p->places);
	if (!place)
		return -ENOMEM;
	*place = (struct place){ ip, call };
	l->on++;
	return 0;
}

/* When all probes are on: before that an inner call would be taken for the outermost. */
static int begin(struct dl_cuda *c, struct proc *p)
{
	int err = 0;

	vec_for_each(&p->places, at)
		err = err ? err : dl_kernel_set_cuda_call(c->k, p->pid, at->ip, &at->call);
	c->now = dl_now_ns();
	return err;
}

/* 0, or the first failure of the kernel's; *ret_err: the sink's. */
static int probe_all(struct dl_cuda *c, struct proc *p, struct scan *s, int *ret_err)
{
	int failed = 0;

	*ret_err = 0;
	for (size_t i = 0; i < s->cnt; i++) {
		struct load *l = &s->v[i];

		if (!l->lib)
			continue;
		vec_for_each(&l->lib->points, point) {
			const size_t had = l->on;
			const int err = probe_point(c, p, s, l, point);

			failed = failed ? failed : err;
			if (l->on > had)
				*ret_err = emit_name(c, point->call);
			if (*ret_err || err == -ESRCH || err == -EMFILE)
				return failed;
		}
	}
	return failed;
}

static int probe(struct dl_cuda *c, struct proc *p, struct scan *s, int proc_fd)
{
	struct opening o = { .c = c, .s = s, .proc_fd = proc_fd };
	size_t on = 0, points = 0;
	int failed, err;

	p->failed = true;
	err = dl_kernel_has_uprobes(c->k);
	if (err)
		return 0;	/* said when the kernel side was opened */
	err = dl_maps_each(proc_fd, open_mapping, &o);
	if (err)
		return err == -ENOMEM ? err : 0;
	failed = probe_all(c, p, s, &err);
	if (err)
		return err;
	err = begin(c, p);
	failed = failed ? failed : err;
	for (size_t i = 0; i < s->cnt; i++) {
		on += s->v[i].on;
		points += s->v[i].lib ? s->v[i].lib->points.cnt : 0;
	}
	err = 0;
	if (on) {
		p->failed = false;
		p->probed = true;
		err = emit_source(c, p, s->v, s->cnt);
	}
	if (err || failed == -ESRCH)
		return err;	/* it has ended */
	if (failed)
		return emit_absent(c, "process %u uses CUDA, but %s of its calls could not be probed (uprobes): %s", p->pid,
				   on ? "some" : "none", strerror(-failed));
	if (o.err && !points)
		return emit_absent(c, "process %u uses CUDA, but its libraries could not be read to probe their calls: %s",
				   p->pid, strerror(-o.err));
	if (!on)
		return emit_absent(c, "process %u uses CUDA, but its libraries have no symbols of CUDA's calls to probe",
				   p->pid);
	return 0;
}

/* --- the interface ----------------------------------------------------------------------------------- */

int dl_cuda_open(struct dl_cuda **ret, struct dl_kernel *k, const struct dl_cuda_opts *opts, struct dl_sink *sink,
		 struct dl_diag *d)
{
	struct dl_cuda *c = calloc(1, sizeof(*c));

	if (!c)
		return dl_oom(d);
	c->named = calloc(cuda_call_cnt, 1);
	if (!c->named) {
		free(c);
		return dl_oom(d);
	}
	c->k = k;
	c->sink = sink;
	c->opts = *opts;
	*ret = c;
	return 0;
}

void dl_cuda_close(struct dl_cuda *c)
{
	if (!c)
		return;
	vec_for_each(&c->procs, p)
		silence(c, *p);
	vec_for_each(&c->procs, p)
		free_proc(c, *p);
	vec_free(&c->procs);
	vec_for_each(&c->libs, lib) {
		cuda_lib_fini(*lib);
		free(*lib);
	}
	vec_free(&c->libs);
	free(c->named);
	free(c);
}

/* Was the driver there when it was forked? Then it cannot use it: cuInit() fails in the child. */
static bool is_inherited(const struct scan *s, uint32_t ppid)
{
	_cleanup_close_ int fd = dl_proc_open(ppid);
	struct scan parent = {};

	return fd >= 0 && !scan_maps(&parent, fd) && parent.driver == s->driver;
}

/* Does a collector come up with its first call? It was there before the first look, or is on its way. */
static bool awaits_collector(int proc_fd)
{
	_cleanup_free_ char *env = NULL;
	const char *path, *off;
	size_t len = 0;

	if (dl_proc_strings(proc_fd, "environ", ENVIRON_MAX, &env, &len))
		return false;
	path = dl_proc_var(env, len, DL_GPU_VARIABLE);
	off = dl_proc_var(env, len, "DLBPF_GPU_DISABLE");
	return path && strstr(path, DL_GPU_LIBRARY) && !(off && off[0] && strcmp(off, "0"));
}

int dl_cuda_probe(struct dl_cuda *c, uint32_t pid, uint32_t forked_by, int proc_fd, uint64_t now)
{
	struct proc *p = find_proc(c, pid);
	struct scan s = {};
	int err;

	c->now = now;
	if (p && (p->probed || p->failed))
		return p->probed;
	if (scan_maps(&s, proc_fd) || !s.driver)
		return 0;
	p = p ? p : add_proc(c, pid);
	if (!p)
		return -ENOMEM;
	if (!p->seen_ts) {
		p->seen_ts = now;
		p->failed = forked_by && is_inherited(&s, forked_by);
		p->awaits = c->opts.collector && awaits_collector(proc_fd);
	}
	if (p->failed || (p->awaits && now - p->seen_ts < COLLECTOR_NS))
		return 0;
	err = probe(c, p, &s, proc_fd);
	return err ? err : p->probed;
}

void dl_cuda_remove(struct dl_cuda *c, uint32_t pid)
{
	for (size_t i = 0; i < c->procs.cnt; i++) {
		if (c->procs.v[i]->pid != pid)
			continue;
		free_proc(c, c->procs.v[i]);
		c->procs.v[i] = c->procs.v[--c->procs.cnt];
		return;
	}
}

size_t dl_cuda_procs(const struct dl_cuda *c)
{
	size_t cnt = 0;

	vec_for_each(&c->procs, p)
		cnt += (*p)->probed;
	return cnt;
}
