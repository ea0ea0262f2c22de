/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The collectors of the recorded processes: found, switched on, kept awake, drained. Records wait
 * here until a clock pair has come behind them, since only then can their times be converted.
 */
#include "capture/gpu.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/vec.h"
#include "capture/gpu_priv.h"

#define HELD_MAX_SZ (16U << 20)	/* twice the largest ring: no clock pair came for so long */
#define FUTURE_NS 2000000000ULL	/* no record tells of times later than that from now */
#define CHECK_NS 1000000000ULL	/* whether the process has executed another program */
#define STOP_WAIT_MS 500

struct gpu_proc {
	uint32_t pid;
	int memfd_nr;
	ino_t memfd_ino;
	struct gpu_ring ring;
	struct gpu_clock clock;
	struct gpu_ids ids;
	DL_VEC(uint8_t) held;	/* records whose times are still CUPTI's */
	struct dl_ev_gpu_drop drop;	/* the last one */
	uint64_t lost;		/* held records that were given up, and impossible times */
	uint64_t begin_ts;
	uint64_t check_ts;
	uint32_t told;		/* enum dl_gpu_state last emitted by us */
	bool restart;		/* switched off to begin anew; on again once it is off */
};

struct dl_gpu {
	struct dl_gpu_opts opts;
	struct dl_sink *sink;
	DL_VEC(struct gpu_proc *) procs;
	uint64_t now;
	uint64_t invalid;	/* of processes that have ended */
	uint64_t told_invalid;
	int emitted;
};

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ULL + (uint64_t)ts.tv_nsec;
}

/* --- switching ---------------------------------------------------------------------------------- */

static void wake(struct gpu_proc *p)
{
	syscall(SYS_futex, &p->ring.hdr->want, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void want(struct gpu_proc *p, uint32_t mode)
{
	__atomic_add_fetch(&p->ring.hdr->beat, 1, __ATOMIC_RELAXED);
	__atomic_store_n(&p->ring.hdr->want, mode, __ATOMIC_RELEASE);
	wake(p);
}

static uint32_t state_of(const struct gpu_proc *p)
{
	return __atomic_load_n(&p->ring.hdr->state, __ATOMIC_ACQUIRE);
}

/* --- emitting ----------------------------------------------------------------------------------- */

static int emit(struct dl_gpu *g, const struct dl_hdr *ev)
{
	int err = g->sink->emit(g->sink, ev);

	if (!err)
		g->emitted++;
	return err;
}

static int emit_source(struct dl_gpu *g, struct gpu_proc *p, uint32_t state, const char *text)
{
	struct dl_ev_gpu_source ev = DL_EVENT_INIT(gpu_source, DL_EV_GPU_SOURCE, g->now, p->pid, 0);
	int err;

	ev.state = state;
	ev.version = p->ring.hdr->version;
	ev.flags = p->ring.hdr->flags & DL_GPU_SIMULATED;
	p->told = state;
	err = dl_emit_text(g->sink, &ev.h, text);
	if (!err)
		g->emitted++;
	return err;
}

static uint64_t *end_of(union gpu_rec *rec)
{
	return (uint64_t *)(void *)(rec->bytes + sizeof(struct dl_hdr));
}

/* Converts and emits all that is held. */
static int release_held(struct dl_gpu *g, struct gpu_proc *p)
{
	int err = 0;

	for (size_t at = 0; !err && at < p->held.cnt;) {
		union gpu_rec rec;
		uint64_t start, end;
		bool unsure = false;

		memcpy(&rec.h, p->held.v + at, sizeof(rec.h));
		memcpy(rec.bytes, p->held.v + at, rec.h.size);
		at += rec.h.size;
		start = rec.h.ts;
		end = *end_of(&rec);
		if ((end < start && !p->clock.steps) ||
		    !gpu_clock_span(&p->clock, &start, &end, &unsure) || !start ||
		    end > g->now + FUTURE_NS) {
			p->lost++;
			continue;
		}
		rec.h.ts = start;
		*end_of(&rec) = end;
		rec.h.flags = unsure ? DL_HDR_UNSURE : 0;
		err = emit(g, &rec.h);
	}
	p->held.cnt = 0;
	return err;
}

static int hold(struct dl_gpu *g, struct gpu_proc *p, const union gpu_rec *rec)
{
	int err;

	if (p->held.cnt + rec->h.size > HELD_MAX_SZ) {
		err = release_held(g, p);
		if (err)
			return err;
	}
	if (vec_reserve(&p->held, rec->h.size)) {
		p->lost++;
		return 0;
	}
	memcpy(p->held.v + p->held.cnt, rec->bytes, rec->h.size);
	p->held.cnt += rec->h.size;
	return 0;
}

static int take_clock(struct dl_gpu *g, struct gpu_proc *p, union gpu_rec *rec)
{
	const struct dl_ev_gpu_clock *c = &rec->clock;
	int err;

	if (c->h.ts > g->now + FUTURE_NS || !gpu_clock_add(&p->clock, c->h.ts, c->gpu, c->bracket_ns)) {
		p->lost++;
		return 0;
	}
	err = emit(g, &rec->h);
	return err ? err : release_held(g, p);
}

static int take(struct dl_gpu *g, struct gpu_proc *p, union gpu_rec *rec)
{
	rec->h.pid = p->pid;
	switch (rec->h.kind) {
	case DL_EV_GPU_CLOCK:
		rec->h.tid = 0;
		return take_clock(g, p, rec);
	case DL_EV_GPU_API:
		rec->h.tid = gpu_ids_host(&p->ids, rec->h.tid, g->now);
		return hold(g, p, rec);
	case DL_EV_GPU_KERNEL:
	case DL_EV_GPU_MEMCPY:
	case DL_EV_GPU_MEMSET:
	case DL_EV_GPU_SYNC:
	case DL_EV_GPU_GRAPH:
	case DL_EV_GPU_OVERHEAD:
		rec->h.tid = 0;
		return hold(g, p, rec);
	case DL_EV_GPU_DROP:
		memcpy(&p->drop, rec->bytes, sizeof(p->drop));
		break;
	case DL_EV_GPU_SOURCE:
		p->told = rec->source.state;
		if (rec->source.until > g->now)
			rec->source.until = 0;
		break;
	}
	/* About the recording: now is as good a time as the one that the process claims. */
	rec->h.ts = g->now;
	rec->h.tid = 0;
	return emit(g, &rec->h);
}

static int drain_ring(struct dl_gpu *g, struct gpu_proc *p)
{
	uint64_t head = gpu_ring_head(&p->ring);
	union gpu_rec rec;
	int err = 0;

	while (!err && gpu_ring_next(&p->ring, head, &rec))
		err = take(g, p, &rec);
	gpu_ring_release(&p->ring);
	return err;
}

/* --- a process ---------------------------------------------------------------------------------- */

static void proc_free(struct gpu_proc *p)
{
	if (!p)
		return;
	gpu_ring_unmap(&p->ring);
	gpu_ids_fini(&p->ids);
	vec_free(&p->held);
	free(p);
}

static struct gpu_proc *find_proc(const struct dl_gpu *g, uint32_t pid, size_t *ret_i)
{
	for (size_t i = 0; i < g->procs.cnt; i++) {
		if (g->procs.v[i]->pid != pid)
			continue;
		if (ret_i)
			*ret_i = i;
		return g->procs.v[i];
	}
	return NULL;
}

bool dl_gpu_knows(const struct dl_gpu *g, uint32_t pid)
{
	return find_proc(g, pid, NULL) != NULL;
}

static void begin(struct dl_gpu *g, struct gpu_proc *p)
{
	struct dl_gpu_ring *hdr = p->ring.hdr;

	p->begin_ts = now_ns();
	/* What an earlier recorder left is not of this recording. */
	p->ring.tail = __atomic_load_n(&hdr->head, __ATOMIC_ACQUIRE) & ~7ULL;
	gpu_ring_release(&p->ring);
	__atomic_store_n(&hdr->flush_ms, g->opts.flush_ms, __ATOMIC_RELAXED);
	/* If that one died while it was on, the names it was told of are not known here. */
	p->restart = state_of(p) != DL_GPU_MODE_OFF;
	want(p, p->restart ? DL_GPU_MODE_OFF : g->opts.mode);
}

/* 1 with a collector, 0 without a usable one, -errno. */
static int attach(struct dl_gpu *g, uint32_t pid)
{
	_cleanup_close_ int fd = -1;
	struct gpu_proc *p, **slot;
	int err;

	p = calloc(1, sizeof(*p));
	if (!p)
		return -ENOMEM;
	p->pid = pid;
	err = gpu_find_memfd(pid, &fd, &p->memfd_nr, &p->memfd_ino);
	if (!err)
		err = gpu_ids_open(&p->ids, pid);
	if (!err)
		err = gpu_ring_map(&p->ring, fd, NULL);
	/* A child that inherited somebody else's: not its own. */
	if (!err && p->ring.hdr->pid != p->ids.nspid)
		err = -ENOENT;
	slot = err ? NULL : vec_push(&g->procs);
	if (!err && !slot)
		err = -ENOMEM;
	if (err) {
		proc_free(p);
		return err == -ENOMEM ? err : 0;
	}
	*slot = p;
	begin(g, p);
	return 1;
}

/* What the collector left is emitted, by the last offset if need be, and its losses with it: where
 * the ring was full, its last GPU_DROP found no room. */
static int drain_last(struct dl_gpu *g, struct gpu_proc *p)
{
	struct dl_ev_gpu_drop drop = DL_EVENT_INIT(gpu_drop, DL_EV_GPU_DROP, g->now, p->pid, 0);
	int err = drain_ring(g, p), rel = release_held(g, p);

	if (!err)
		err = rel;
	drop.ring = p->ring.hdr->dropped_ring;
	drop.cupti = p->ring.hdr->dropped_cupti;
	drop.unknown = p->drop.unknown;
	drop.zero = p->drop.zero;
	if (err || (drop.ring <= p->drop.ring && drop.cupti <= p->drop.cupti))
		return err;
	p->drop = drop;
	return emit(g, &drop.h);
}

/* From the last clock pair, or the beginning, to now. */
static uint64_t since_last_pair(const struct dl_gpu *g, const struct gpu_proc *p)
{
	uint64_t last = p->clock.cnt ? p->clock.v[(p->clock.cnt - 1) % GPU_CLOCK_PAIRS].mono : p->begin_ts;

	return g->now > last ? g->now - last : 0;
}

/* The collector has gone. */
static int finish(struct dl_gpu *g, struct gpu_proc *p)
{
	bool clean = __atomic_load_n(&p->ring.hdr->exited, __ATOMIC_ACQUIRE);
	int err = drain_last(g, p);
	char text[128] = "ended with the process";

	/* Each flush ends with a clock pair, so the last one tells how far the records go. */
	if (!clean)
		snprintf(text, sizeof(text), "ended without a last flush: GPU records of up to %llu ms are missing",
			 (unsigned long long)since_last_pair(g, p) / 1000000);
	if (!err && p->told == DL_GPU_COLLECTOR)
		err = emit_source(g, p, DL_GPU_STOPPED, text);
	g->invalid += p->ring.invalid + p->lost;
	return err;
}

static void drop_proc(struct dl_gpu *g, size_t i)
{
	proc_free(g->procs.v[i]);
	g->procs.v[i] = g->procs.v[--g->procs.cnt];
}

/* Says once why a collector that was asked gives nothing, and asks again where it fell asleep. */
static int watch(struct dl_gpu *g, struct gpu_proc *p)
{
	const struct dl_gpu_ring *hdr = p->ring.hdr;
	uint32_t state = state_of(p), reason = DL_GPU_NONE;
	char text[sizeof(hdr->text) + 1];

	if (state != DL_GPU_MODE_OFF)
		return 0;
	if (p->restart || __atomic_load_n(&hdr->want, __ATOMIC_RELAXED) != g->opts.mode) {
		p->restart = false;
		want(p, g->opts.mode);
		return 0;
	}
	if (__atomic_load_n(&hdr->busy, __ATOMIC_RELAXED))
		reason = DL_GPU_BUSY;
	else if (__atomic_load_n(&hdr->error, __ATOMIC_RELAXED))
		reason = DL_GPU_FAILED;
	if (reason == DL_GPU_NONE || reason == p->told)
		return 0;
	gpu_ring_text(&p->ring, text, sizeof(text));
	return emit_source(g, p, reason, text);
}

/* An exec takes the old collector away and may bring a new one under the same pid. */
static int check_exec(struct dl_gpu *g, size_t *i)
{
	struct gpu_proc *p = g->procs.v[*i];
	uint32_t pid = p->pid;
	char path[32];
	int err;

	if (g->now - p->check_ts < CHECK_NS)
		return 0;
	p->check_ts = g->now;
	snprintf(path, sizeof(path), "/proc/%u", pid);
	if (gpu_find_same(pid, p->memfd_nr, p->memfd_ino) || access(path, F_OK))
		return 0;
	err = finish(g, p);
	drop_proc(g, (*i)--);
	if (!err)
		err = attach(g, pid);
	return err > 0 ? 0 : err;
}

static int tell_invalid(struct dl_gpu *g)
{
	struct dl_ev_loss ev = DL_EVENT_INIT(loss, DL_EV_LOSS, g->now, 0, 0);

	ev.ring = DL_RING_GPU;
	ev.cause = DL_LOSS_INVALID;
	ev.cnt = g->invalid;
	for (size_t i = 0; i < g->procs.cnt; i++)
		ev.cnt += g->procs.v[i]->ring.invalid + g->procs.v[i]->lost;
	if (ev.cnt == g->told_invalid)
		return 0;
	g->told_invalid = ev.cnt;
	return emit(g, &ev.h);
}

/* --- the interface ------------------------------------------------------------------------------ */

int dl_gpu_open(struct dl_gpu **ret, const struct dl_gpu_opts *opts, struct dl_sink *sink,
		struct dl_diag *d)
{
	struct dl_gpu *g;

	if (opts->mode == DL_GPU_MODE_OFF || opts->mode > DL_GPU_MODE_FULL)
		return dl_fail(d, -EINVAL, "no such GPU mode: %u", opts->mode);
	g = calloc(1, sizeof(*g));
	if (!g)
		return dl_oom(d);
	g->opts = *opts;
	g->sink = sink;
	*ret = g;
	return 0;
}

void dl_gpu_close(struct dl_gpu *g)
{
	if (!g)
		return;
	for (size_t i = 0; i < g->procs.cnt; i++) {
		want(g->procs.v[i], DL_GPU_MODE_OFF);
		proc_free(g->procs.v[i]);
	}
	vec_free(&g->procs);
	free(g);
}

void dl_gpu_set_mode(struct dl_gpu *g, uint32_t mode)
{
	if (mode == DL_GPU_MODE_OFF || mode > DL_GPU_MODE_FULL)
		return;
	g->opts.mode = mode;
	for (size_t i = 0; i < g->procs.cnt; i++)
		if (!g->procs.v[i]->restart)
			want(g->procs.v[i], mode);
}

int dl_gpu_probe(struct dl_gpu *g, uint32_t pid)
{
	return find_proc(g, pid, NULL) ? 1 : attach(g, pid);
}

bool dl_gpu_gives(const struct dl_gpu *g, uint32_t pid)
{
	const struct gpu_proc *p = find_proc(g, pid, NULL);

	return p && p->told != DL_GPU_BUSY && p->told != DL_GPU_FAILED;
}

int dl_gpu_drain(struct dl_gpu *g, uint64_t now_ts)
{
	int err = 0;

	g->now = now_ts;
	g->emitted = 0;
	for (size_t i = 0; !err && i < g->procs.cnt; i++) {
		struct gpu_proc *p = g->procs.v[i];

		__atomic_add_fetch(&p->ring.hdr->beat, 1, __ATOMIC_RELAXED);
		err = drain_ring(g, p);
		if (!err)
			err = watch(g, p);
		if (!err)
			err = check_exec(g, &i);
	}
	if (!err)
		err = tell_invalid(g);
	return err ? err : g->emitted;
}

int dl_gpu_stop(struct dl_gpu *g)
{
	const struct timespec pause = { .tv_nsec = 2000000 };
	int ret = 0;

	g->emitted = 0;
	g->now = now_ns();
	/* Room for the last flush first. */
	for (size_t i = 0; !ret && i < g->procs.cnt; i++) {
		ret = drain_ring(g, g->procs.v[i]);
		want(g->procs.v[i], DL_GPU_MODE_OFF);
	}
	for (int left = STOP_WAIT_MS / 2; left; left--) {
		size_t on = 0;

		for (size_t i = 0; i < g->procs.cnt; i++)
			on += state_of(g->procs.v[i]) != DL_GPU_MODE_OFF;
		if (!on)
			break;
		nanosleep(&pause, NULL);
	}
	g->now = now_ns();
	for (size_t i = 0; !ret && i < g->procs.cnt; i++)
		ret = drain_last(g, g->procs.v[i]);
	if (!ret)
		ret = tell_invalid(g);
	return ret ? ret : g->emitted;
}

int dl_gpu_forget(struct dl_gpu *g, uint32_t pid)
{
	size_t i;
	int err;

	if (!find_proc(g, pid, &i))
		return 0;
	g->now = now_ns();
	err = finish(g, g->procs.v[i]);
	drop_proc(g, i);
	return err ? err : tell_invalid(g);
}

const char *dl_gpu_describe(const struct dl_gpu *g, char *buf, size_t sz)
{
	char text[sizeof(((struct dl_gpu_ring *)NULL)->text) + 1], *comma;
	size_t on = 0;

	snprintf(buf, sz, "none");
	if (!g)
		return buf;
	for (size_t i = 0; i < g->procs.cnt; i++) {
		const struct gpu_proc *p = g->procs.v[i];

		gpu_ring_text(&p->ring, text, sizeof(text));
		if (state_of(p) == DL_GPU_MODE_OFF) {
			if (!on)
				snprintf(buf, sz, "none yet: %s", text[0] ? text : "the collector is starting");
			continue;
		}
		comma = strchr(text, ',');	/* the library's path follows */
		if (comma)
			*comma = '\0';
		if (++on == 1)
			snprintf(buf, sz, "%s", text);
	}
	if (on > 1)
		snprintf(buf + strlen(buf), sz - strlen(buf), ", %zu processes", on);
	return buf;
}
