/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Processes and losses: sums over the timeline. */
#include "diagnose/summary.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "diagnose/diagnose.h"
#include "diagnose/walk.h"
#include "timeline/past.h"
#include "trace/schema.h"

static enum dl_block_kind block_kind(enum dl_why why)
{
	switch (why) {
	case DL_WHY_DATA:
		return DL_BLOCK_ON_DATA;
	case DL_WHY_LOCK:
	case DL_WHY_KLOCK:
		return DL_BLOCK_ON_LOCK;
	case DL_WHY_GIL:
		return DL_BLOCK_ON_GIL;
	case DL_WHY_STORAGE:
		return DL_BLOCK_ON_STORAGE;
	case DL_WHY_NETWORK:
		return DL_BLOCK_ON_NETWORK;
	case DL_WHY_SWAP:
	case DL_WHY_MEMORY:
		return DL_BLOCK_ON_MEMORY;
	case DL_WHY_SLEEP:
		return DL_BLOCK_ON_TIMER;
	case DL_WHY_CHILD:
		return DL_BLOCK_ON_CHILD;
	default:
		return DL_BLOCK_ON_OTHER;
	}
}

/* What a thread did, stage by stage. */
struct thread_sum {
	uint64_t at;			/* segments that begin before are summed up */
	uint64_t ran_ns;
	uint64_t runnable_ns, throttled_ns, blocked_ns[DL_BLOCK_ON_CNT];	/* of main threads */
};

struct dl_proc_finder { DL_VEC(struct thread_sum) threads; };

static void take_thread(struct thread_sum *sum, const struct dl_stage *st, uint32_t thread)
{
	const struct dl_thread *th = &st->tl->threads.v[thread];
	const bool main = th->proc != DL_NONE && st->tl->procs.v[th->proc].main == thread;

	for (uint32_t i = (uint32_t)vec_first_at(&th->segs, sum->at); i < th->segs.cnt; i++) {
		const struct dl_seg *s = &th->segs.v[i];
		uint64_t end = dl_seg_end(th, i), from = s->start, to = end, ns;

		sum->at = s->start;
		if (!st->last && (end > st->until || i + 1 == th->segs.cnt))
			return;
		sum->at = end > s->start ? end : s->start + 1;
		from = from > st->opts->from_ts ? from : st->opts->from_ts;
		to = to < st->opts->to_ts ? to : st->opts->to_ts;
		ns = to > from ? to - from : 0;
		switch (s->state) {
		case DL_ST_RUNNING:
			sum->ran_ns += ns;
			break;
		case DL_ST_RUNNABLE:
			sum->runnable_ns += main ? ns : 0;
			if (main && th->rqs.v[s->ref].throttled)
				sum->throttled_ns += ns;
			break;
		case DL_ST_BLOCKED:
			if (main)
				sum->blocked_ns[block_kind(dl_why_blocked(st->tl, th, i))] += ns;
			break;
		}
	}
}

int dl_procs_take(struct dl_proc_finder *f, const struct dl_stage *st)
{
	while (f->threads.cnt < st->tl->threads.cnt) {
		if (!vec_push(&f->threads))
			return -ENOMEM;
	}
	for (uint32_t i = 0; i < st->tl->threads.cnt; i++)
		take_thread(&f->threads.v[i], st, i);
	return 0;
}

struct dl_proc_finder *dl_proc_finder_new(void)
{
	return calloc(1, sizeof(struct dl_proc_finder));
}

void dl_proc_finder_free(struct dl_proc_finder *f)
{
	if (f)
		vec_free(&f->threads);
	free(f);
}

static void add_thread(struct dl_proc_report *out, const struct thread_sum *sum, const struct dl_thread *th)
{
	out->threads++;
	out->cpu_ns += sum->ran_ns;
	out->runnable_ns += sum->runnable_ns;
	out->throttled_ns += sum->throttled_ns;
	for (int k = 0; k < DL_BLOCK_ON_CNT; k++)
		out->blocked_ns[k] += sum->blocked_ns[k];
	if (th->has_totals) {
		uint64_t first_flt = th->start ? 0 : th->first_min_flt;

		out->min_flt += th->min_flt - first_flt;
		out->maj_flt += th->maj_flt - (th->start ? 0 : th->first_maj_flt);
	}
}

static int sum_proc(const struct dl_proc_finder *f, struct dl_report *r, const struct dl_timeline *tl, uint32_t i)
{
	const struct dl_proc *p = &tl->procs.v[i];
	struct dl_proc_report *out = vec_push(&r->procs);

	if (!out)
		return -ENOMEM;
	*out = (struct dl_proc_report){
		.pid = p->pid, .ppid = p->ppid, .nspid = p->nspid, .role = p->role, .index = p->index,
		.loader = p->loader, .rank = p->rank, .start = p->start, .end = p->exited ? p->end : 0,
		.exited = p->exited, .exit_status = p->exit_status,
		.rss_peak = p->maxrss > p->rss_peak ? p->maxrss : p->rss_peak, .anon_peak = p->anon_peak,
		.shmem_peak = p->shmem_peak, .swap_peak = p->swap_peak,
	};
	if (p->trainer != DL_NONE)
		out->trainer_pid = tl->procs.v[p->trainer].pid;
	vec_for_each(&p->threads, idx)
		add_thread(out, &f->threads.v[*idx], &tl->threads.v[*idx]);
	if (p->main != DL_NONE && tl->threads.v[p->main].name[0])
		out->name = strdup(tl->threads.v[p->main].name);
	if (p->cmdline)
		out->cmdline = strdup(p->cmdline);
	return (p->cmdline && !out->cmdline) ? -ENOMEM : 0;
}

int dl_procs_publish(const struct dl_proc_finder *f, struct dl_report *r, const struct dl_timeline *tl)
{
	int err = 0;

	for (uint32_t i = 0; i < tl->procs.cnt && !err; i++)
		err = sum_proc(f, r, tl, i);
	return err;
}

/* --- losses --- */

static const char *ring_name(uint32_t ring)
{
	switch (ring) {
	case DL_RING_CRASH:
		return "crash";
	case DL_RING_GPU:
		return "gpu";
	case DL_RING_WRITER:
		return "recorder";
	}
	return "sched";
}

static const char *loss_cause(uint32_t cause)
{
	static const char *const names[DL_LOSS_CAUSE_MAX] = {
		[DL_LOSS_RING_FULL] = "ring full", [DL_LOSS_RECURSION] = "recursion",
		[DL_LOSS_MAP_FULL] = "map full", [DL_LOSS_STACK] = "no stack",
		[DL_LOSS_LATE] = "too late", [DL_LOSS_INVALID] = "malformed",
		[DL_LOSS_GPU] = "dropped by the collector", [DL_LOSS_DISK] = "disk full",
	};

	return cause < DL_LOSS_CAUSE_MAX && names[cause] ? names[cause] : "unknown";
}

/* Rings of CPUs are one to whoever reads: there may be very many. */
static struct dl_loss_row *loss_row(struct dl_report *r, const char *ring, const char *cause, const char *kind)
{
	struct dl_loss_row *row;

	vec_for_each(&r->losses, it) {
		if (!strcmp(it->ring, ring) && !strcmp(it->cause, cause) && !strcmp(it->kind, kind))
			return it;
	}
	row = vec_push(&r->losses);
	if (row)
		*row = (struct dl_loss_row){ .ring = ring, .cause = cause, .kind = kind };
	return row;
}

/* times: NULL not known. */
static int add_loss(struct dl_report *r, const char *ring, const char *cause, const char *kind, uint64_t cnt,
		    const struct dl_spans *times, bool event)
{
	struct dl_loss_row *row = cnt ? loss_row(r, ring, cause, kind) : NULL;

	if (!cnt)
		return 0;
	if (!row)
		return -ENOMEM;
	row->cnt += cnt;
	if (event)
		r->lost += cnt;
	if (!times || !times->cnt)
		return 0;
	if (!row->first || times->v[0].start < row->first)
		row->first = times->v[0].start;
	if (vec_last(times)->end > row->last)
		row->last = vec_last(times)->end;
	return 0;
}

static int add_note(struct dl_report *r, char *text)
{
	char **at = text ? vec_push(&r->notes) : NULL;

	if (!at) {
		free(text);
		return -ENOMEM;
	}
	*at = text;
	return 0;
}

static int note_lost_switches(struct dl_report *r, const struct dl_timeline *tl)
{
	struct dl_str s = {};

	if (tl->inferred_switches) {
		dl_str_addf(&s, "%" PRIu64 " switches to a thread were not reported by the kernel; when they happened was inferred from the thread's CPU time",
			    tl->inferred_switches);
		if (add_note(r, dl_str_take(&s)))
			return -ENOMEM;
	}
	if (tl->inferred_wakes) {
		dl_str_addf(&s, "%" PRIu64 " waits ended at their own deadline without a wake by the kernel in the trace; the timer is taken to have ended them",
			    tl->inferred_wakes);
		if (add_note(r, dl_str_take(&s)))
			return -ENOMEM;
	}
	if (!tl->lost_switches)
		return 0;
	dl_str_addf(&s, "%" PRIu64 " context switches are missing by the threads' own counters; what the threads did then is unexplained",
		    tl->lost_switches);
	return add_note(r, dl_str_take(&s));
}

static int note_estimates(struct dl_report *r, const struct dl_timeline *tl)
{
	uint64_t samples = 0;
	struct dl_str s = {};

	vec_for_each(&tl->threads, th)
		samples += th->samples.cnt + (th->past ? th->past->smp_cnt : 0);
	if (!samples)
		return 0;
	dl_str_addf(&s, "page faults are counted exactly; their kind and time (shm, memory, swap on a CPU) are estimates from %" PRIu64 " on-CPU samples",
		    samples);
	return add_note(r, dl_str_take(&s));
}

static int note_blind(struct dl_report *r, const struct dl_timeline *tl)
{
	struct dl_str s = {};

	vec_for_each(&tl->procs, p) {
		vec_for_each(&p->gpu_blind, b) {
			uint64_t end = b->end < tl->end ? b->end : tl->end;

			if (!p->kernel_cnt || end <= b->start)
				continue;
			dl_str_addf(&s, "for %.1f s, from %.3f s on, another tool had the GPU records of process %u: what the GPU did then is not known",
				    (double)(end - b->start) / 1e9, (double)(b->start - r->start) / 1e9, p->pid);
			if (add_note(r, dl_str_take(&s)))
				return -ENOMEM;
		}
	}
	return 0;
}

/* That it is a part, and what made the recorder save it. */
static int note_kept(struct dl_report *r, const struct dl_timeline *tl)
{
	struct dl_str s = {};

	vec_for_each(&tl->crash, k) {
		const struct dl_ev_mark *m = (const void *)k->ev;
		size_t len;
		const char *text = dl_event_tail(k->ev, &len);

		if (k->ev->kind != DL_EV_MARK)
			continue;
		if (m->what == DL_MARK_STATE && m->value > 0)
			dl_str_addf(&s, "this is the last part of a recording (--keep), which began %d s before it", m->value);
		else if (m->what == DL_MARK_TRIGGER)
			dl_str_addf(&s, "%.3f s: a trigger fired: %.*s", ((double)k->ts - (double)r->start) / 1e9, (int)len, text);
		else
			continue;
		if (add_note(r, dl_str_take(&s)))
			return -ENOMEM;
	}
	return 0;
}

int dl_sum_losses(struct dl_report *r, const struct dl_timeline *tl, struct dl_diag *d)
{
	int err = 0;

	vec_for_each(&tl->losses, l) {
		const struct dl_event_desc *desc = dl_event_desc(l->kind);

		if (l->cause == DL_LOSS_SHED)
			continue;
		/* A stack that could not be taken loses no event. */
		err = err ? err : add_loss(r, ring_name(l->ring), loss_cause(l->cause), desc ? desc->name : "any", l->cnt,
					   &l->times, l->cause != DL_LOSS_STACK);
	}
	err = err ? err : dl_sum_sheds(r, tl);
	vec_for_each(&tl->procs, p) {
		err = err ? err : add_loss(r, "gpu", "dropped by CUPTI", "any", p->gpu_drop.cupti, NULL, true);
		err = err ? err : add_loss(r, "gpu", "ring full", "any", p->gpu_drop.ring, NULL, true);
		err = err ? err : add_loss(r, "gpu", "unknown record", "any", p->gpu_drop.unknown, NULL, true);
		err = err ? err : add_loss(r, "gpu", "no timestamps", "any", p->gpu_drop.zero, NULL, true);
	}
	vec_for_each(&tl->absent, a)
		err = err ? err : !vec_push(&r->absent) ? -ENOMEM :
			(r->absent.v[r->absent.cnt - 1] = strdup(*a)) ? 0 : -ENOMEM;
	if (!err)
		err = note_kept(r, tl);
	if (!err && tl->holes.cnt)
		err = add_note(r, dl_holes_note(r, tl));
	if (!err)
		err = note_lost_switches(r, tl);
	if (!err)
		err = note_estimates(r, tl);
	if (!err)
		err = note_blind(r, tl);
	return err ? dl_oom(d) : 0;
}
