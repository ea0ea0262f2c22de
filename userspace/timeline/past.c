/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Counts what is cut off of a thread; see past.h. */
#include "timeline/past.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "timeline/syscalls.h"

#define FEW_MAX 64
#define PUTS_MAX 256		/* of one worker, before who it works for is known for certain */
#define PUTS_TO_MAX 16		/* threads one of which may be its feeder */
#define FUTEX_PRIVATE 128
#define FUTEX_WAIT_CMD(op) ((op) & 127)
#define GIL_SLICE_MAX_NS 7000000	/* switch interval 5 ms, and what the first look cost */
#define HAND_OUT_NS 1000000	/* work is handed out this shortly before one waits for it */

static bool is_futex(const struct dl_timeline *tl, const struct dl_wait *w)
{
	return dl_sys_class(tl->machine, w->syscall) == DL_SYS_FUTEX;
}

/* --- habits --- */

static int add_new(struct dl_u64s *set, uint64_t value)
{
	uint64_t *at;

	for (size_t i = set->cnt; i-- > 0;) {
		if (set->v[i] == value)
			return 0;
	}
	if (set->cnt >= FEW_MAX)
		return 0;
	at = vec_push(set);
	if (!at)
		return -ENOMEM;
	*at = value;
	return 0;
}

static int add_futex(struct dl_habits *h, const struct dl_proc *p, const struct dl_wait *w)
{
	if (dl_is_gil(p, w->arg0)) {
		h->gil = true;
		return 0;
	}
	if (w->deadline) {
		if (!h->timed_max || w->arg0 < h->timed_min)
			h->timed_min = w->arg0;
		if (w->arg0 > h->timed_max)
			h->timed_max = w->arg0;
	}
	return p->gil_addr ? 0 : add_new(&h->words, w->arg0);
}

int dl_habits_add_wait(struct dl_habits *h, const struct dl_timeline *tl, const struct dl_thread *th, const struct dl_wait *w)
{
	enum dl_sys sys = dl_sys_class(tl->machine, w->syscall);
	bool fifo = w->file_kind == DL_FILE_FIFO;

	h->waits = true;
	h->accepts |= sys == DL_SYS_ACCEPT;
	h->fifo_poll |= sys == DL_SYS_POLL && fifo;
	h->sock |= dl_is_handover_wait(tl, w);
	h->elsewhere |= sys != DL_SYS_FUTEX && !(sys == DL_SYS_WRITE && fifo) && !(w->flags & DL_SW_EXCEPTION);
	h->not_pool |= sys != DL_SYS_FUTEX || w->arg1 != FUTEX_PRIVATE;
	if (sys == DL_SYS_POLL && fifo)
		return add_new(&h->polled, w->file_ino);
	return sys == DL_SYS_FUTEX ? add_futex(h, &tl->procs.v[th->proc], w) : 0;
}

/* Up to 2. */
static int count(struct dl_map *m, uint32_t thread)
{
	uint64_t *at = dl_map_at(m, thread);

	if (!at)
		return -ENOMEM;
	*at += *at < 2;
	return 0;
}

int dl_habits_add_wake(struct dl_habits *h, const struct dl_timeline *tl, const struct dl_thread *th, const struct dl_woke *w)
{
	const struct dl_thread *to = &tl->threads.v[w->wakee];
	enum dl_sys sys = dl_sys_class(tl->machine, w->syscall);

	h->futex_main |= sys == DL_SYS_FUTEX && to->proc == th->proc && to->tid == tl->procs.v[th->proc].pid;
	return sys == DL_SYS_WRITE ? count(&h->wrote, w->wakee) : 0;
}

static int copy_past(struct dl_habits *h, const struct dl_habits *past)
{
	const struct dl_u64s *from[] = { &past->words, &past->polled };
	struct dl_u64s *into[] = { &h->words, &h->polled };

	*h = *past;
	h->past = past;
	h->words = h->polled = (struct dl_u64s){};
	h->wrote = (struct dl_map){};
	for (int i = 0; i < 2; i++) {
		if (vec_reserve(into[i], from[i]->cnt))
			return -ENOMEM;
		for (size_t k = 0; k < from[i]->cnt; k++)
			into[i]->v[into[i]->cnt++] = from[i]->v[k];
	}
	return 0;
}

int dl_habits_of(struct dl_habits *h, const struct dl_timeline *tl, const struct dl_thread *th)
{
	int err = th->past ? copy_past(h, &th->past->habits) : 0;

	vec_for_each(&th->waits, w)
		err = err ? err : dl_habits_add_wait(h, tl, th, w);
	for (size_t i = dl_first_woke(tl, th); i < th->woke.cnt && !err; i++)
		err = dl_habits_add_wake(h, tl, th, &th->woke.v[i]);
	return err;
}

void dl_habits_fini(struct dl_habits *h)
{
	vec_free(&h->words);
	vec_free(&h->polled);
	dl_map_fini(&h->wrote);
}

bool dl_habits_gil(const struct dl_habits *h, const struct dl_proc *p)
{
	bool gil = h->gil;

	vec_for_each(&h->words, w)
		gil |= dl_is_gil(p, *w);
	return gil;
}

bool dl_habits_timed(const struct dl_habits *h, const struct dl_proc *p)
{
	return h->timed_max && (!dl_is_gil(p, h->timed_min) || !dl_is_gil(p, h->timed_max));
}

/* --- single waits and wakes --- */

bool dl_looks_like_gil(const struct dl_timeline *tl, const struct dl_wait *w, uint64_t start)
{
	return is_futex(tl, w) && (w->arg1 & FUTEX_PRIVATE) && FUTEX_WAIT_CMD(w->arg1) == 9 &&
	       w->deadline > start && w->deadline - start < GIL_SLICE_MAX_NS;
}

uint32_t dl_pipe_writer(const struct dl_timeline *tl, const struct dl_wait *w)
{
	if (w->waker == DL_NONE || w->file_kind != DL_FILE_FIFO ||
	    dl_sys_class(tl->machine, w->wake_syscall) != DL_SYS_WRITE)
		return DL_NONE;
	return w->waker;
}

bool dl_tl_feeds(const struct dl_timeline *tl, uint32_t thread, const struct dl_woke *w)
{
	const struct dl_thread *waiter = &tl->threads.v[w->wakee];
	uint32_t seg = dl_seg_before(waiter, w->ts);
	const struct dl_wait *wait = seg == DL_NONE ? NULL : dl_seg_wait(waiter, &waiter->segs.v[seg]);
	uint64_t from;

	/* Python's locks; libgomp's end of a region, which a spinning thread ends unasked, is another wait. */
	if (!wait || wait->wake_ts != w->ts || !is_futex(tl, wait) || FUTEX_WAIT_CMD(wait->arg1) != 9 ||
	    dl_is_gil(&tl->procs.v[waiter->proc], wait->arg0))
		return false;
	from = waiter->segs.v[seg].start > HAND_OUT_NS ? waiter->segs.v[seg].start - HAND_OUT_NS : 0;
	for (size_t i = vec_first_at(&waiter->woke, from); i < waiter->woke.cnt && waiter->woke.v[i].ts < w->ts; i++) {
		if (waiter->woke.v[i].wakee == thread)
			return false;
	}
	return true;
}

uint64_t dl_first_start(const struct dl_thread *th)
{
	if (th->past && th->past->first_start)
		return th->past->first_start;
	return th->segs.cnt ? th->segs.v[0].start : 0;
}

/* --- cutting --- */

/* Each word twice, until one came twice: then the search for the GIL looks no further. */
static int add_gil_word(struct dl_u64s *words, uint64_t addr)
{
	uint64_t *at;

	for (size_t i = 0; i < words->cnt; i++) {
		for (size_t k = 0; k < i; k++) {
			if (words->v[i] >> 8 == words->v[k] >> 8)
				return 0;
		}
	}
	if (words->cnt >= FEW_MAX)
		return 0;
	at = vec_push(words);
	if (!at)
		return -ENOMEM;
	*at = addr;
	return 0;
}

/* The first of each thread. */
static int add_pipe(struct dl_past *past, uint32_t from, uint64_t ino)
{
	struct dl_pipe *at;

	if (dl_map_get(&past->piped, from, NULL))
		return 0;
	at = vec_push(&past->pipes);
	if (!at)
		return -ENOMEM;
	*at = (struct dl_pipe){ from, ino };
	return dl_map_set(&past->piped, from, 1);
}

static bool knows_fed(const struct dl_past *past, uint32_t to)
{
	uint64_t cnt = 0;

	return dl_map_get(&past->fed, to, &cnt) && cnt >= 2;
}

static int add_late_put(struct dl_timeline *tl, const struct dl_proc *p, uint64_t ns)
{
	struct dl_puts *puts = NULL;

	vec_for_each(&tl->puts, it) {
		if (it->trainer == p->trainer && it->loader == p->loader)
			puts = it;
	}
	if (!puts) {
		puts = vec_push(&tl->puts);
		if (!puts)
			return -ENOMEM;
		puts->trainer = p->trainer;
		puts->loader = p->loader;
	}
	return dl_values_add(&puts->ns, ns);
}

/* Whose feeder it is, and of which loader, may not be known yet. */
static int add_put(struct dl_timeline *tl, const struct dl_proc *p, struct dl_past *past, const struct dl_woke *w)
{
	struct dl_put *put = NULL;
	uint64_t last, *ns;

	vec_for_each(&past->puts, it)
		put = it->to == w->wakee ? it : put;
	if (!put && past->puts.cnt >= PUTS_TO_MAX)
		return 0;
	if (!put) {
		put = vec_push(&past->puts);
		if (!put)
			return -ENOMEM;
		put->to = w->wakee;
	}
	last = put->last_ts;
	put->last_ts = w->ts;
	if (!last)
		return 0;
	if (put->ns.cnt >= PUTS_MAX)
		return p->feeder == w->wakee ? add_late_put(tl, p, w->ts - last) : 0;
	ns = vec_push(&put->ns);
	if (!ns)
		return -ENOMEM;
	*ns = w->ts - last;
	return 0;
}

static void note_fed(struct dl_timeline *tl, uint32_t thread, const struct dl_woke *w)
{
	uint32_t proc = tl->threads.v[w->wakee].proc;
	struct dl_proc *p = proc == DL_NONE ? NULL : &tl->procs.v[proc];

	if (p && p->main == w->wakee && p->execed && p->parent != DL_NONE && tl->procs.v[p->parent].main == thread &&
	    w->ts >= p->start && (!p->handlers_ts || w->ts <= p->handlers_ts) && w->ts > p->birth.end)
		p->birth.end = w->ts;
}

static int add_wakes(struct dl_timeline *tl, uint32_t thread, struct dl_past *past, uint64_t cut_ts)
{
	const struct dl_thread *th = &tl->threads.v[thread];
	const struct dl_proc *p = &tl->procs.v[th->proc];
	int err = 0;

	for (size_t i = dl_first_woke(tl, th); i < th->woke.cnt && th->woke.v[i].ts < cut_ts && !err; i++) {
		const struct dl_woke *w = &th->woke.v[i];
		bool own = tl->threads.v[w->wakee].proc == th->proc;

		err = dl_habits_add_wake(&past->habits, tl, th, w);
		if (!err && own && w->wakee != thread && !knows_fed(past, w->wakee) && dl_tl_feeds(tl, thread, w))
			err = count(&past->fed, w->wakee);
		if (!err && own && p->main == thread)
			err = add_put(tl, p, past, w);
		if (!own)
			note_fed(tl, thread, w);
	}
	return err;
}

static int add_block(const struct dl_timeline *tl, const struct dl_thread *th, struct dl_past *past, size_t seg)
{
	const struct dl_wait *w = dl_seg_wait(th, &th->segs.v[seg]);
	uint64_t start = th->segs.v[seg].start;
	const struct dl_proc *p = &tl->procs.v[th->proc];
	enum dl_sys sys = w ? dl_sys_class(tl->machine, w->syscall) : DL_SYS_NONE;

	past->block_end = dl_seg_end(th, (uint32_t)seg);
	if (!w)
		return 0;
	past->waits += past->waits < UINT32_MAX;
	past->waker_back += past->waker_back && past->waker_back < UINT32_MAX;
	if (w->wake_ts && !dl_is_gil(p, w->arg0)) {
		past->waker = dl_timed_out(w, start) || w->wake_syscall < 0 ? DL_NONE : w->waker;
		past->waker_back = 1;
	}
	if (!past->service_ts && (sys == DL_SYS_POLL || sys == DL_SYS_ACCEPT))
		past->service_ts = start;
	if (!past->idle_ts && p->handlers_ts && start >= p->handlers_ts && dl_is_batch_wait(tl, w))
		past->idle_ts = start;
	return dl_looks_like_gil(tl, w, start) ? add_gil_word(&past->gil_words, w->arg0) : 0;
}

static int add_samples(const struct dl_timeline *tl, const struct dl_thread *th, struct dl_past *past, size_t cnt)
{
	for (size_t i = 0; i < cnt; i++) {
		const struct dl_smp *s = &th->samples.v[i];
		const char *path = s->cls == DL_SMP_USER ? dl_mapped_at(tl, th->proc, s->ip) : NULL;
		struct dl_lib *lib = NULL;

		past->smp_cls[s->cls]++;
		vec_for_each(&past->libs, l)
			lib = path && !strcmp(l->path, path) ? l : lib;
		if (!lib && path && past->libs.cnt < FEW_MAX) {
			lib = vec_push(&past->libs);
			if (!lib)
				return -ENOMEM;
			lib->path = path;
		}
		if (lib)
			lib->cnt++;
	}
	past->smp_cnt += cnt;
	return 0;
}

int dl_past_add(struct dl_timeline *tl, uint32_t thread, const struct dl_cut *c, uint64_t cut_ts)
{
	struct dl_thread *th = &tl->threads.v[thread];
	struct dl_past *past = th->past;
	int err = 0;

	if (th->proc == DL_NONE)
		return 0;
	if (!past) {
		past = th->past = calloc(1, sizeof(*past));
		if (!past)
			return -ENOMEM;
	}
	if (!past->first_start && th->segs.cnt)
		past->first_start = th->segs.v[0].start;
	for (size_t i = 0; i < c->seg && !err; i++) {
		if (th->segs.v[i].state == DL_ST_BLOCKED)
			err = add_block(tl, th, past, i);
	}
	for (size_t i = 0; i < c->wait && !err; i++) {
		const struct dl_wait *w = &th->waits.v[i];
		uint32_t from = dl_pipe_writer(tl, w);

		err = dl_habits_add_wait(&past->habits, tl, th, w);
		if (!err && from != DL_NONE && tl->threads.v[from].proc != th->proc)
			err = add_pipe(past, from, w->file_ino);
	}
	err = err ? err : add_samples(tl, th, past, c->smp);
	return err ? err : add_wakes(tl, thread, past, cut_ts);
}

void dl_past_free(struct dl_past *p)
{
	if (!p)
		return;
	dl_habits_fini(&p->habits);
	vec_free(&p->gil_words);
	vec_free(&p->pipes);
	dl_map_fini(&p->piped);
	dl_map_fini(&p->fed);
	vec_free(&p->libs);
	vec_for_each(&p->puts, it)
		vec_free(&it->ns);
	vec_free(&p->puts);
	free(p);
}
