/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Reads a trace into a timeline: one handler for each kind of event, in a table. */
#include "timeline/timeline.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "timeline/past.h"
#include "timeline/plan.h"
#include "timeline/threads.h"
#include "trace/schema.h"
#include "trace/trace.h"

typedef int (*handler_fn)(struct dl_timeline *tl, const struct dl_hdr *ev);

static uint32_t text_add(struct dl_timeline *tl, const char *text, size_t len)
{
	char **at = vec_push(&tl->texts);

	if (!at)
		return DL_NONE;
	*at = strndup(text ? text : "", len);
	return *at ? (uint32_t)(tl->texts.cnt - 1) : DL_NONE;
}

static int map_text(struct dl_timeline *tl, struct dl_map *map, uint64_t key, const struct dl_hdr *ev)
{
	size_t len;
	const char *text = dl_event_tail(ev, &len);
	uint32_t idx = text_add(tl, text, len);

	return idx == DL_NONE ? -ENOMEM : dl_map_set(map, key, idx);
}

static int keep(struct dl_kept_vec *kept, const struct dl_hdr *ev)
{
	struct dl_kept *k = vec_push(kept);

	if (!k)
		return -ENOMEM;
	k->ts = ev->ts;
	k->ev = malloc(ev->size);
	if (!k->ev)
		return -ENOMEM;
	memcpy(k->ev, ev, ev->size);
	return 0;
}

static int on_switch(struct dl_timeline *tl, const struct dl_hdr *ev)
{
	return dl_tl_switch(tl, (const void *)ev);
}

static int on_wake(struct dl_timeline *tl, const struct dl_hdr *ev)
{
	return dl_tl_wake(tl, (const void *)ev);
}

static int on_fork(struct dl_timeline *tl, const struct dl_hdr *ev)
{
	return dl_tl_fork(tl, (const void *)ev);
}

static int on_exit_ev(struct dl_timeline *tl, const struct dl_hdr *ev)
{
	int err = dl_tl_exit(tl, (const void *)ev);
	uint32_t idx = dl_tl_find_thread(tl, ev->tid);

	/* In the window its last switch says when. */
	if (!tl->in_window && idx != DL_NONE && idx != DL_IDLE && tl->threads.v[idx].end == UINT64_MAX)
		tl->threads.v[idx].end = ev->ts;
	return err ? err : keep(&tl->crash, ev);
}

static int on_task(struct dl_timeline *tl, const struct dl_hdr *ev)
{
	return dl_tl_task(tl, (const void *)ev);
}

static int on_name(struct dl_timeline *tl, const struct dl_hdr *ev)
{
	const struct dl_ev_name *n = (const void *)ev;
	uint32_t idx = dl_tl_thread(tl, ev->tid);

	if (idx == DL_NONE)
		return -ENOMEM;
	memcpy(tl->threads.v[idx].name, n->comm.s, 16);
	if (n->flags & DL_NM_KTHREAD)
		tl->threads.v[idx].kthread = true;
	return 0;
}

static int on_exec(struct dl_timeline *tl, const struct dl_hdr *ev)
{
	uint32_t proc = dl_tl_proc(tl, ev->pid);

	if (proc == DL_NONE)
		return -ENOMEM;
	tl->procs.v[proc].execed = true;
	if (!tl->procs.v[proc].start)
		tl->procs.v[proc].start = ev->ts;	/* the program that the recorder started */
	tl->procs.v[proc].quartet = false;	/* handlers do not survive an exec */
	tl->procs.v[proc].handlers_ts = 0;
	tl->procs.v[proc].gil_addr = 0;
	return 0;
}

static int on_cmdline(struct dl_timeline *tl, const struct dl_hdr *ev)
{
	uint32_t proc = dl_tl_proc(tl, ev->pid);
	const char *text;
	size_t len;

	if (proc == DL_NONE)
		return -ENOMEM;
	text = dl_event_tail(ev, &len);
	free(tl->procs.v[proc].cmdline);
	tl->procs.v[proc].cmdline = strndup(text ? text : "", len);
	return tl->procs.v[proc].cmdline ? 0 : -ENOMEM;
}

static int on_mmap(struct dl_timeline *tl, const struct dl_hdr *ev)
{
	const struct dl_ev_mmap *m = (const void *)ev;
	uint32_t proc = dl_tl_proc(tl, ev->pid);
	struct dl_mapping *at;
	const char *text;
	size_t len;

	if (proc == DL_NONE)
		return -ENOMEM;
	text = dl_event_tail(ev, &len);
	at = vec_push(&tl->procs.v[proc].mappings);
	if (!at)
		return -ENOMEM;
	at->start = m->start;
	at->end = m->end;
	at->path = strndup(text ? text : "", len);
	return at->path ? 0 : -ENOMEM;
}

static void raise_to(uint64_t *peak, uint64_t value)
{
	if (value > *peak)
		*peak = value;
}

static int on_mem(struct dl_timeline *tl, const struct dl_hdr *ev)
{
	const struct dl_ev_mem *m = (const void *)ev;
	uint32_t proc = dl_tl_proc(tl, ev->pid);
	struct dl_proc *p;
	struct dl_mem *at;

	if (proc == DL_NONE)
		return -ENOMEM;
	p = &tl->procs.v[proc];
	at = vec_push(&p->mem);
	if (!at)
		return -ENOMEM;
	*at = (struct dl_mem){ ev->ts, m->anon, m->file, m->shmem, m->swap, m->pgtables };
	raise_to(&p->rss_peak, m->anon + m->file + m->shmem);
	raise_to(&p->anon_peak, m->anon);
	raise_to(&p->shmem_peak, m->shmem);
	raise_to(&p->swap_peak, m->swap);
	return 0;
}

static int on_sample(struct dl_timeline *tl, const struct dl_hdr *ev)
{
	const struct dl_ev_sample *s = (const void *)ev;
	uint32_t idx = dl_tl_own_thread(tl, ev->tid, ev->pid);
	struct dl_smp *at;

	if (idx == DL_NONE)
		return -ENOMEM;
	if (idx == DL_IDLE)
		return 0;
	at = vec_push(&tl->threads.v[idx].samples);
	if (!at)
		return -ENOMEM;
	*at = (struct dl_smp){ .ts = ev->ts, .ip = s->ip, .stack = s->stack, .syscall = s->syscall,
			       .kernel = s->mode == DL_SAMPLE_KERNEL };
	return 0;
}

/* Ids are dense and handed out in order by the recorder; one far beyond is damage. */
static int on_stack(struct dl_timeline *tl, const struct dl_hdr *ev)
{
	const struct dl_ev_stack *s = (const void *)ev;
	size_t bytes = ev->size - sizeof(*s), cnt = bytes / 8;
	struct dl_stack *at;

	if (s->id > tl->stacks.cnt + 65536 || (size_t)s->kernel_cnt + s->user_cnt > cnt)
		return 0;
	while (tl->stacks.cnt <= s->id) {
		if (!vec_push(&tl->stacks))
			return -ENOMEM;
	}
	at = &tl->stacks.v[s->id];
	free(at->addrs);
	at->addrs = malloc(bytes ? bytes : 1);
	if (!at->addrs)
		return -ENOMEM;
	memcpy(at->addrs, s + 1, cnt * 8);
	at->kernel_cnt = s->kernel_cnt;
	at->user_cnt = s->user_cnt;
	return 0;
}

static uint64_t usym_key(uint32_t pid, uint64_t addr)
{
	return dl_hash64(addr ^ ((uint64_t)pid << 32 | pid));
}

static int on_symbol(struct dl_timeline *tl, const struct dl_hdr *ev)
{
	const struct dl_ev_symbol *s = (const void *)ev;

	if (!ev->pid)
		return map_text(tl, &tl->ksyms, s->addr, ev);
	return map_text(tl, &tl->usyms, usym_key(ev->pid, s->addr), ev);
}

static int on_string(struct dl_timeline *tl, const struct dl_hdr *ev)
{
	const struct dl_ev_string *s = (const void *)ev;

	return map_text(tl, &tl->strings, (uint64_t)ev->pid << 32 | s->id, ev);
}

static int on_crash(struct dl_timeline *tl, const struct dl_hdr *ev)
{
	return keep(&tl->crash, ev);
}

/* Only those that failed: the others are nobody's reason to die. */
static int on_block_io(struct dl_timeline *tl, const struct dl_hdr *ev)
{
	return ((const struct dl_ev_block_io *)ev)->error ? keep(&tl->crash, ev) : 0;
}

static int on_mark(struct dl_timeline *tl, const struct dl_hdr *ev)
{
	const struct dl_ev_mark *m = (const void *)ev;

	if (m->what == DL_MARK_START)
		tl->start = ev->ts;
	if (m->what == DL_MARK_STOP)
		tl->stopped = true;
	return keep(&tl->crash, ev);
}

static int on_env(struct dl_timeline *tl, const struct dl_hdr *ev)
{
	if (ev->kind == DL_EV_ENV_HOST)
		tl->cpus_online = ((const struct dl_ev_env_host *)ev)->cpus;
	return keep(&tl->env, ev);
}

static int on_clock(struct dl_timeline *tl, const struct dl_hdr *ev)
{
	return keep(&tl->clocks, ev);
}

static int on_gpu_look(struct dl_timeline *tl, const struct dl_hdr *ev)
{
	return keep(&tl->gpu_looks, ev);
}

static int on_loss(struct dl_timeline *tl, const struct dl_hdr *ev)
{
	const struct dl_ev_loss *l = (const void *)ev;
	struct dl_loss *at;

	if (!(ev->flags & DL_HDR_RESTATED) && dl_tl_hole_add(tl, l))
		return -ENOMEM;
	vec_for_each(&tl->losses, it) {
		if (it->ring == l->ring && it->cause == l->cause && it->kind == l->kind && it->shed == l->shed) {
			it->cnt = l->cnt - it->before;
			return ev->flags & DL_HDR_RESTATED ? 0 : dl_tl_loss_time(it, l);
		}
	}
	at = vec_push(&tl->losses);
	if (!at)
		return -ENOMEM;
	*at = (struct dl_loss){ .ring = l->ring, .cause = l->cause, .kind = l->kind, .shed = l->shed, .cnt = l->cnt };
	if (ev->flags & DL_HDR_RESTATED) {	/* they are not of this part of the recording */
		at->before = l->cnt;
		at->cnt = 0;
		return 0;
	}
	return dl_tl_loss_time(at, l);
}

static int on_absent(struct dl_timeline *tl, const struct dl_hdr *ev)
{
	size_t len;
	const char *text = dl_event_tail(ev, &len);
	char **at = vec_push(&tl->absent);

	if (!at)
		return -ENOMEM;
	*at = strndup(text ? text : "", len);
	return *at ? 0 : -ENOMEM;
}

static int on_span(struct dl_timeline *tl, const struct dl_hdr *ev)
{
	return dl_tl_span(tl, (const void *)ev);
}

static const handler_fn handlers[DL_EV_MAX] = {
	[DL_EV_SWITCH] = on_switch,
	[DL_EV_WAKE] = on_wake,
	[DL_EV_NAME] = on_name,
	[DL_EV_FORK] = on_fork,
	[DL_EV_EXEC] = on_exec,
	[DL_EV_EXIT] = on_exit_ev,
	[DL_EV_TASK] = on_task,
	[DL_EV_CMDLINE] = on_cmdline,
	[DL_EV_MEM] = on_mem,
	[DL_EV_SIGNAL] = on_crash,
	[DL_EV_SIGBUS_MAP] = on_crash,
	[DL_EV_SIGNAL_DELIVER] = on_crash,
	[DL_EV_OOM_KILL] = on_crash,
	[DL_EV_SYSCALL_FAIL] = on_crash,
	[DL_EV_SHM_UNLINK] = on_crash,
	[DL_EV_CRASH_STACK] = on_crash,
	[DL_EV_BLOCK_IO] = on_block_io,
	[DL_EV_SAMPLE] = on_sample,
	[DL_EV_MMAP] = on_mmap,
	[DL_EV_STACK] = on_stack,
	[DL_EV_SYMBOL] = on_symbol,
	[DL_EV_ENV_HOST] = on_env,
	[DL_EV_ENV_CGROUP] = on_env,
	[DL_EV_ENV_SHM] = on_env,
	[DL_EV_ENV_PROC] = on_env,
	[DL_EV_PROC_LIMITS] = on_env,
	[DL_EV_GPU_SOURCE] = dl_tl_gpu,
	[DL_EV_GPU_KERNEL] = dl_tl_gpu,
	[DL_EV_GPU_MEMCPY] = dl_tl_gpu,
	[DL_EV_GPU_SYNC] = dl_tl_gpu,
	[DL_EV_GPU_API] = dl_tl_gpu,
	[DL_EV_GPU_CLOCK] = on_clock,
	[DL_EV_GPU_DROP] = dl_tl_gpu,
	[DL_EV_GPU_DEVICE] = dl_tl_gpu,
	[DL_EV_GPU_GRAPH] = dl_tl_gpu,
	[DL_EV_GPU_LINK] = on_gpu_look,
	[DL_EV_GPU_SAMPLE] = on_gpu_look,
	[DL_EV_SPAN] = on_span,
	[DL_EV_STRING] = on_string,
	[DL_EV_LOSS] = on_loss,
	[DL_EV_ABSENT] = on_absent,
	[DL_EV_MARK] = on_mark,
};

/* Anew for what is there now. */
static int set_places(struct dl_timeline *tl)
{
	struct dl_places *at;

	free(tl->places);
	at = calloc(tl->threads.cnt + tl->procs.cnt + tl->cpus.cnt, sizeof(*at));

	tl->places = at;
	if (!at)
		return -ENOMEM;
	vec_for_each(&tl->threads, th)
		th->places = at++;
	vec_for_each(&tl->procs, p)
		p->places = at++;
	vec_for_each(&tl->cpus, c)
		c->places = at++;
	return 0;
}

/* The threads of each process. */
static int list_threads(struct dl_timeline *tl)
{
	vec_for_each(&tl->procs, p)
		p->threads.cnt = p->lives.cnt = 0;
	for (uint32_t i = 0; i < tl->threads.cnt; i++) {
		struct dl_thread *th = &tl->threads.v[i];
		struct dl_span *life;
		struct dl_proc *p;
		uint32_t *at;

		if (th->proc == DL_NONE)
			continue;
		p = &tl->procs.v[th->proc];
		life = p->threads.cnt % DL_BATCH ? vec_last(&p->lives) : vec_push(&p->lives);
		at = vec_push(&p->threads);
		if (!at || !life)
			return -ENOMEM;
		*at = i;
		if (p->threads.cnt % DL_BATCH == 1 || th->start < life->start)
			life->start = th->start;
		if (th->end > life->end)
			life->end = th->end;
	}
	return 0;
}

/* Threads that go on end for the time being where the reading has come to. */
static void stop_threads(struct dl_timeline *tl)
{
	vec_for_each(&tl->threads, th) {
		if (th->end == UINT64_MAX) {
			th->end = tl->end;
			th->goes_on = true;
		}
		if (th->segs.cnt && th->end < th->segs.v[th->segs.cnt - 1].start)
			th->end = th->segs.v[th->segs.cnt - 1].start;
	}
}

static void go_on(struct dl_timeline *tl)
{
	vec_for_each(&tl->threads, th) {
		if (th->goes_on)
			th->end = UINT64_MAX;
		th->goes_on = false;
	}
}

/* What was said of a thread outside of the window, when it was born or looked at, says nothing of later; nor
 * does its last event of the window say what it did behind. */
static int pass_border(struct dl_timeline *tl, uint64_t ts)
{
	int err = 0;

	tl->in_window = ts >= tl->from_ts && ts <= tl->to_ts;
	vec_for_each(&tl->threads, th) {
		const struct dl_seg *last = vec_last(&th->segs);

		th->has_switches = false;
		if (last && th->end == UINT64_MAX && !err)
			err = dl_tl_unknown(th, tl->in_window ? last->start : tl->to_ts);
	}
	return err;
}

static int failed(int err, struct dl_diag *d)
{
	return err == -ENOMEM ? dl_oom(d) : err ? dl_fail_errno(d, err, "cannot read the trace") : 0;
}

int dl_timeline_open(struct dl_timeline **ret, struct dl_trace *t, struct dl_diag *d)
{
	struct dl_timeline *tl = calloc(1, sizeof(*tl));
	struct dl_thread *idle = tl ? vec_push(&tl->threads) : NULL;

	if (!idle) {
		dl_timeline_free(tl);
		return dl_oom(d);
	}
	idle->proc = idle->creator = DL_NONE;
	idle->end = UINT64_MAX;
	strcpy(idle->name, "idle");
	tl->last_proc = DL_NONE;
	tl->to_ts = UINT64_MAX;
	tl->in_window = true;
	tl->machine = dl_machine_of(dl_trace_info(t)->meta.machine);
	*ret = tl;
	return 0;
}

int dl_timeline_read(struct dl_timeline *tl, struct dl_trace *t, uint64_t cnt, struct dl_diag *d)
{
	const struct dl_hdr *ev;
	int got = 1, err = 0;

	go_on(tl);
	for (; cnt && !err && (got = dl_trace_next(t, &ev)) > 0; cnt--) {
		if (!tl->events || ev->ts < tl->start)
			tl->start = ev->ts;
		if (ev->ts > tl->end)
			tl->end = ev->ts;
		tl->events++;
		if (tl->in_window != (ev->ts >= tl->from_ts && ev->ts <= tl->to_ts))
			err = pass_border(tl, ev->ts);
		if (!err && ev->kind < DL_EV_MAX && handlers[ev->kind])
			err = handlers[ev->kind](tl, ev);
	}
	if (got < 0)
		err = got;
	if (!err && !got)
		err = dl_tl_holes_finish(tl);
	return err ? failed(err, d) : got;
}

int dl_timeline_settle(struct dl_timeline *tl, struct dl_diag *d)
{
	int err;

	stop_threads(tl);
	err = list_threads(tl);
	if (!err)
		err = dl_tl_classify(tl);
	if (!err)
		err = dl_tl_cpus(tl);
	if (!err)
		err = set_places(tl);
	if (!err)
		err = dl_tl_gpu_finish(tl);
	if (!err)
		err = dl_tl_calls_finish(tl);
	if (!err)
		err = dl_tl_spans_finish(tl);
	if (!err)
		err = dl_find_roles(tl);
	if (!err)
		err = dl_find_phases(tl);
	if (!err && tl->plan)
		err = dl_plan_apply(tl->plan, tl);
	if (!err)
		err = dl_find_handovers(tl);
	return failed(err, d);
}

int dl_timeline_build(struct dl_timeline **ret, struct dl_trace *t, struct dl_diag *d)
{
	struct dl_timeline *tl;
	int err = dl_timeline_open(&tl, t, d);

	if (err)
		return err;
	err = dl_timeline_read(tl, t, UINT64_MAX, d);
	if (!err)
		err = dl_timeline_settle(tl, d);
	if (err) {
		dl_timeline_free(tl);
		return err;
	}
	*ret = tl;
	return 0;
}

static const char *text_of(const struct dl_timeline *tl, const struct dl_map *map, uint64_t key)
{
	uint64_t idx;

	return dl_map_get(map, key, &idx) ? tl->texts.v[idx] : NULL;
}

const char *dl_string(const struct dl_timeline *tl, uint32_t pid, uint32_t id)
{
	const char *text = id ? text_of(tl, &tl->strings, (uint64_t)pid << 32 | id) : NULL;

	return text || !id ? text : text_of(tl, &tl->strings, id);
}

const char *dl_kernel_symbol(const struct dl_timeline *tl, uint64_t addr)
{
	return text_of(tl, &tl->ksyms, addr);
}

const char *dl_user_symbol(const struct dl_timeline *tl, uint32_t pid, uint64_t addr)
{
	return text_of(tl, &tl->usyms, usym_key(pid, addr));
}
