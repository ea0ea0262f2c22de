/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What running time is charged to: first the driver call that the thread is in, then the phase
 * (creation and death of workers), then the thread's role, and of that the part that its samples
 * show in page faults and reclaim.
 */
#include "diagnose/walk.h"

#include <string.h>

#define MS 1000000ULL
#define BIRTH_NS (20 * MS)	/* a feeder's or sharer's first imports and listening socket */
#define COPY_LATENCY_NS 50000	/* from a copy's call to its start, and from its end to the return */
#define SAMPLES_MIN 8
#define SAMPLES_REACH_NS (2000 * MS)

/* --- driver calls --- */

enum dl_cause dl_api_cause(const struct dl_api *a)
{
	switch (a->cls) {
	case DL_CALL_COPY:
		return DL_CAUSE_PCIE;
	case DL_CALL_SYNC:
		return DL_CAUSE_SYNC;
	case DL_CALL_ALLOC:
	case DL_CALL_HOST_ALLOC:
	case DL_CALL_FREE:
	case DL_CALL_MODULE:
	case DL_CALL_GRAPH:
		return DL_CAUSE_CUDA_API;
	}
	return DL_CAUSE_HOST;
}

/* The end of the last call before t that explains time by itself, but not before floor. */
static uint64_t last_api_end(const struct dl_timeline *tl, const struct dl_thread *th, uint64_t t, uint64_t floor)
{
	const struct dl_proc *p = &tl->procs.v[th->proc];
	uint32_t i = dl_call_before(tl, th, t);
	uint64_t best = floor;

	for (int back = 0; i != DL_NONE && back < 64; back++, i = i ? i - 1 : DL_NONE) {
		const struct dl_api *a = &p->apis.v[th->apis.v[i]];

		if (a->start < floor && a->end < floor)
			break;
		if (dl_call_explains(a) && a->end < t && a->end > best)
			best = a->end;
	}
	return best;
}

/* --- phases --- */

/* Does the instant just before t lie in the phase (from, to]? Moves *began to the phase's begin, or,
 * when it is over, to its end. */
static bool within(uint64_t from, uint64_t to, uint64_t t, uint64_t *began)
{
	if (t <= from)
		return false;
	if (t <= to || to > *began)
		*began = t <= to ? from : to;
	return t <= to;
}

static bool process_phase(const struct dl_proc *p, uint64_t t, uint64_t *began)
{
	return (p->start && p->ready && within(p->start, p->ready, t, began)) ||
	       within(p->ending, UINT64_MAX, t, began);
}

static bool trainer_phase(const struct dl_proc *p, uint64_t t, uint64_t *began)
{
	size_t i = vec_first_at(&p->starting, t);

	return i && within(p->starting.v[i - 1].start, p->starting.v[i - 1].end, t, began);
}

static bool in_startup(const struct dl_timeline *tl, uint32_t thread, uint64_t t, uint64_t *began)
{
	const struct dl_thread *th = &tl->threads.v[thread];
	const struct dl_proc *p;

	if (th->proc == DL_NONE)
		return false;
	p = &tl->procs.v[th->proc];
	switch (th->role) {
	case DL_ROLE_FORKSERVER:
	case DL_ROLE_TRACKER:
	case DL_ROLE_LAUNCHER:
		return true;
	case DL_ROLE_FEEDER:
	case DL_ROLE_SHARER:
		return (th->start && within(th->start, th->start + BIRTH_NS, t, began)) || process_phase(p, t, began);
	case DL_ROLE_WORKER:
	case DL_ROLE_WORKER_THREAD:
	case DL_ROLE_SHM_MANAGER:
		return process_phase(p, t, began);
	case DL_ROLE_TRAINER:
		return trainer_phase(p, t, began);
	default:
		return false;
	}
}

bool dl_workers_alive(const struct dl_timeline *tl, uint32_t trainer, uint64_t from, uint64_t to)
{
	const struct dl_spans *loading = &tl->procs.v[trainer].loading;
	size_t i = vec_first_at(loading, to + 1);

	return i && loading->v[i - 1].end >= from;
}

/* --- roles --- */

/* Without workers, now and until then, the data set runs in the trainer. What comes before the copy of
 * a batch is then its making; what comes before launches is the step. */
static bool makes_batch(const struct dl_timeline *tl, const struct dl_thread *th, uint64_t t)
{
	const struct dl_proc *p = &tl->procs.v[th->proc];
	const struct dl_api *a = dl_next_step(tl, th, t);
	uint32_t copy;

	return a && a->cls == DL_CALL_COPY && dl_dense_get(&p->copy_by_corr, a->corr, &copy) &&
	       p->copies.v[copy].dir == DL_GPU_HTOD && !dl_workers_alive(tl, th->proc, t, a->start);
}

enum dl_cause dl_role_cause(const struct dl_timeline *tl, uint32_t thread, uint64_t at)
{
	const struct dl_thread *th = &tl->threads.v[thread];

	switch (th->role) {
	case DL_ROLE_WORKER:
	case DL_ROLE_WORKER_THREAD:
	case DL_ROLE_WORKER_CHILD:
	case DL_ROLE_LOADER_THREAD:
		return DL_CAUSE_DECODE;
	case DL_ROLE_FEEDER:
	case DL_ROLE_SHARER:
	case DL_ROLE_SHM_MANAGER:
	case DL_ROLE_PIN:
	case DL_ROLE_INDEX_FEEDER:
		return DL_CAUSE_IPC;
	case DL_ROLE_FORKSERVER:
	case DL_ROLE_TRACKER:
	case DL_ROLE_LAUNCHER:
		return DL_CAUSE_STARTUP;
	case DL_ROLE_TRAINER:
		if (th->calls && !dl_workers_alive(tl, th->proc, at, at) &&
		    !tl->procs.v[th->proc].loader_threads && makes_batch(tl, th, at))
			return DL_CAUSE_DECODE;
		return DL_CAUSE_HOST;
	case DL_ROLE_POOL:
		return th->proc != DL_NONE && tl->procs.v[th->proc].role == DL_ROLE_WORKER ? DL_CAUSE_DECODE :
			DL_CAUSE_HOST;
	case DL_ROLE_COLLECTOR:
	case DL_ROLE_TRAINER_THREAD:
	case DL_ROLE_HELPER:
		return DL_CAUSE_HOST;
	default:
		return th->proc == DL_NONE ? DL_CAUSE_EXTERNAL : DL_CAUSE_UNEXPLAINED;
	}
}

/* --- samples --- */

static enum dl_cause sample_cause(const struct dl_thread *th, uint8_t cls, enum dl_cause base)
{
	switch (cls) {
	case DL_SMP_FAULT_SHM:
	case DL_SMP_SHM:
		return DL_CAUSE_SHM;
	case DL_SMP_FAULT_ANON:
	case DL_SMP_FAULT_COW:
	case DL_SMP_RECLAIM:
		return DL_CAUSE_MEMORY;
	case DL_SMP_FAULT_SWAP:
		return DL_CAUSE_SWAP;
	case DL_SMP_UNMAP:
		/* Feeders and the trainer unmap batches, a worker's main thread its own buffers. */
		return th->role == DL_ROLE_WORKER || th->role == DL_ROLE_WORKER_THREAD ?
			DL_CAUSE_MEMORY : DL_CAUSE_SHM;
	}
	return base;
}

/* Faults whose kind a sample does not show are divided as those around them are, and where there are
 * none as the thread's are in all. */
static void spread_unknown_faults(const struct dl_thread *th, uint32_t cnt[DL_SMP_CNT])
{
	static const uint8_t kinds[] = { DL_SMP_FAULT_ANON, DL_SMP_FAULT_COW, DL_SMP_FAULT_SHM,
					 DL_SMP_FAULT_FILE, DL_SMP_FAULT_SWAP };
	uint32_t like[DL_SMP_CNT], known = 0, left = cnt[DL_SMP_FAULT];

	if (!left)
		return;
	memcpy(like, cnt, sizeof(like));
	for (size_t i = 0; i < sizeof(kinds); i++)
		known += like[kinds[i]];
	if (!known) {
		for (size_t i = 0; i < DL_SMP_CNT; i++)
			like[i] += th->cls_cnt[i];
		for (size_t i = 0; i < sizeof(kinds); i++)
			known += like[kinds[i]];
	}
	for (size_t i = 0; i < sizeof(kinds) && known; i++) {
		uint32_t part = (uint32_t)((uint64_t)cnt[DL_SMP_FAULT] * like[kinds[i]] / known);

		if (part > left)
			part = left;
		cnt[kinds[i]] += part;
		left -= part;
	}
	cnt[DL_SMP_FAULT] = left;
}

/* Counts the samples in [start, end], or where there are few the nearest ones around it. */
static uint32_t count_samples(const struct dl_thread *th, uint64_t start, uint64_t end, uint32_t cnt[DL_SMP_CNT])
{
	size_t first = vec_first_near(&th->own_samples, start, th->places->sample), last = first;
	const struct dl_own_smp *v = th->own_samples.v;
	uint32_t found;

	th->places->sample = first;
	for (; last < th->own_samples.cnt && v[last].ts <= end; last++)
		cnt[v[last].cls]++;
	for (found = (uint32_t)(last - first); found < SAMPLES_MIN; found++) {
		bool left = first > 0 && v[first - 1].ts + SAMPLES_REACH_NS >= start;
		bool right = last < th->own_samples.cnt && v[last].ts <= end + SAMPLES_REACH_NS;
		const struct dl_own_smp *s;

		if (!left && !right)
			break;
		s = left && (!right || start - v[first - 1].ts <= v[last].ts - end) ? &v[--first] : &v[last++];
		cnt[s->cls]++;
	}
	return found;
}

static const char *const cause_text[DL_CAUSE_CNT] = {
	[DL_CAUSE_SHM] = "ran: first touch, mapping or freeing of shared memory",
	[DL_CAUSE_MEMORY] = "ran: first touch or copy-on-write of private memory, or reclaim",
	[DL_CAUSE_SWAP] = "ran: bringing back swapped pages",
	[DL_CAUSE_DECODE] = "ran: the data set's own work",
	[DL_CAUSE_IPC] = "ran: handing over a batch",
	[DL_CAUSE_HOST] = "ran: the trainer's own work",
	[DL_CAUSE_STARTUP] = "ran: starting or ending workers",
	[DL_CAUSE_EXTERNAL] = "ran",
	[DL_CAUSE_UNEXPLAINED] = "ran",
};

/* Charges the parts that are not base's, from the end on. Returns where they begin. */
static uint64_t charge_parts(struct dl_walk *w, uint32_t thread, const uint64_t part[DL_CAUSE_CNT], uint64_t end)
{
	struct dl_what est = { .kind = DL_EVI_THREAD, .id = thread, .estimated = true };

	for (int c = 0; c < DL_CAUSE_CNT; c++) {
		if (!part[c])
			continue;
		est.text = cause_text[c];
		dl_charge(w, (enum dl_cause)c, thread, end - part[c], end, &est);
		end -= part[c];
	}
	return end;
}

/* Divides [start, end] between base and what the samples show; the parts add up exactly. */
static void charge_sampled(struct dl_walk *w, uint32_t thread, uint64_t start, uint64_t end, enum dl_cause base)
{
	const struct dl_thread *th = &w->tl->threads.v[thread];
	uint64_t part[DL_CAUSE_CNT] = {}, len = end - start;
	struct dl_what what = { .text = cause_text[base], .kind = DL_EVI_THREAD, .id = thread };
	uint32_t cnt[DL_SMP_CNT] = {}, total;
	bool divided = false;

	total = th->own_samples.cnt ? count_samples(th, start, end, cnt) : 0;
	if (total)
		spread_unknown_faults(th, cnt);
	for (uint8_t c = 0; c < DL_SMP_CNT && total; c++) {
		enum dl_cause cause = cnt[c] ? sample_cause(th, c, base) : base;

		if (cause == base)
			continue;
		part[cause] += (uint64_t)((unsigned __int128)len * cnt[c] / total);
		divided = true;
	}
	if (divided)
		end = charge_parts(w, thread, part, end);
	if (base == DL_CAUSE_HOST && th->role == DL_ROLE_COLLECTOR)
		what.text = "ran: dlbpf's collector";
	dl_charge(w, base, thread, start, end, &what);
}

enum dl_cause dl_work_cause(const struct dl_timeline *tl, uint32_t thread, uint64_t t, uint64_t *ret_from)
{
	const struct dl_thread *th = &tl->threads.v[thread];
	const struct dl_span *last;
	const struct dl_spans *handover;
	size_t i;

	*ret_from = 0;
	if (in_startup(tl, thread, t, ret_from))
		return DL_CAUSE_STARTUP;
	if (th->proc == DL_NONE || tl->procs.v[th->proc].main != thread)
		return dl_role_cause(tl, thread, t);
	handover = &tl->procs.v[th->proc].handover;
	i = vec_first_near(handover, t, th->places->handover);
	th->places->handover = i;
	last = i ? &handover->v[i - 1] : NULL;
	if (last && last->end >= t) {
		if (last->start > *ret_from)
			*ret_from = last->start;
		return DL_CAUSE_IPC;
	}
	if (last && last->end > *ret_from)
		*ret_from = last->end;
	return dl_role_cause(tl, thread, t);
}

/* One piece without driver calls. Returns where the piece began. */
static uint64_t charge_piece(struct dl_walk *w, uint32_t thread, uint64_t start, uint64_t end)
{
	struct dl_what startup = { .text = cause_text[DL_CAUSE_STARTUP], .kind = DL_EVI_THREAD, .id = thread };
	uint64_t from;
	enum dl_cause base = dl_work_cause(w->tl, thread, end, &from);

	if (from < start)
		from = start;
	if (base == DL_CAUSE_STARTUP)
		dl_charge(w, base, thread, from, end, &startup);
	else
		charge_sampled(w, thread, from, end, base);
	return from;
}

/* A synchronise inside a gap, when no kernel runs, waits for what else the device does: a copy, which
 * the host would have to wait for without it, too, with its way there and back. */
static void charge_sync(struct dl_walk *w, uint32_t thread, uint64_t start, uint64_t end, const struct dl_what *sync)
{
	const struct dl_proc *p = &w->tl->procs.v[w->tl->threads.v[thread].proc];
	struct dl_what copy = { .text = "synchronised with a copy" };
	struct dl_what own = { .text = "synchronised with a copy on the device" };
	struct dl_what work = { .text = "synchronised with the GPU, which was at work", .kind = sync->kind, .id = sync->id };
	bool beside = false;

	while (end > start) {
		uint64_t from = start, before = start;
		const struct dl_copy *c = dl_copy_before(p, NULL, end, &from);

		/* The way to the device and back. */
		if (!c && end - from < COPY_LATENCY_NS && (beside || from > start))
			c = from > start ? dl_copy_before(p, NULL, from, &before) : dl_copy_before(p, NULL, end + 1, &before);
		beside = c != NULL;
		if (!c && !p->has_kernels)	/* for all that is known */
			dl_charge(w, DL_CAUSE_GPU, thread, from, end, &work);
		else if (!c)
			dl_charge(w, DL_CAUSE_SYNC, thread, from, end, sync);
		else if (c->dir == DL_GPU_DTOD)
			dl_charge(w, DL_CAUSE_GPU, thread, from, end, &own);
		else
			dl_charge(w, DL_CAUSE_PCIE, thread, from, end, &copy);
		end = from;
	}
}

/* A copy from the device (.item()) that is over: the rest of its call is the return to the host, as behind a
 * synchronise. Returns where the copy ended. */
static uint64_t charge_return(struct dl_walk *w, uint32_t thread, const struct dl_api *a, uint64_t start, uint64_t end,
			      const struct dl_what *what)
{
	const struct dl_proc *p = &w->tl->procs.v[w->tl->threads.v[thread].proc];
	uint64_t over;
	uint32_t idx;

	if (!dl_dense_get(&p->copy_by_corr, a->corr, &idx) || p->copies.v[idx].dir != DL_GPU_DTOH)
		return end;
	over = p->copies.v[idx].end > start ? p->copies.v[idx].end : start;
	if (over >= end)
		return end;
	dl_charge(w, DL_CAUSE_SYNC, thread, over, end, what);
	return over;
}

void dl_charge_running(struct dl_walk *w, uint32_t thread, uint64_t start, uint64_t end)
{
	const struct dl_timeline *tl = w->tl;
	const struct dl_thread *th = &tl->threads.v[thread];

	while (end > start) {
		const struct dl_api *a = dl_api_at(tl, th, end);
		uint64_t from = start;

		if (a) {
			const char *name = w->want_steps ? dl_string(tl, tl->procs.v[th->proc].pid, a->name) : NULL;
			struct dl_what what = { .text = name ? name : "driver call", .kind = DL_EVI_NAME,
						.id = dl_name_id(th->proc, a->name) };

			if (a->start > from)
				from = a->start;
			if (a->cls == DL_CALL_COPY)
				end = charge_return(w, thread, a, from, end, &what);
			if (a->cls == DL_CALL_SYNC)
				charge_sync(w, thread, from, end, &what);
			else
				dl_charge(w, dl_api_cause(a), thread, from, end, &what);
			end = from;
			continue;
		}
		if (th->proc != DL_NONE)
			from = last_api_end(tl, th, end, start);
		end = charge_piece(w, thread, from, end);
	}
}
