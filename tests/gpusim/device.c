/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The device: streams in order, one copy engine a direction, kernels that overlap freely. */
#include "sim.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

#define MAX_DEVICES 8
#define ENGINE_CNT 3		/* host to device, device to host, on the device */
#define BOOKED_MAX 4096

struct interval { uint64_t start, end; };

struct engine {
	struct interval v[BOOKED_MAX];
	size_t cnt;
};

struct sim_stream {
	uint32_t id, device;
	uint64_t end;		/* when all submitted work is done */
	uint64_t dep;		/* the next piece may not start before */
};

static struct {
	pthread_mutex_t lock;
	struct sim_model model;
	uint32_t devices;
	bool ready, driver_calls;
	enum { SPIN, YIELD, BLOCK } wait;
	struct sim_stream def[MAX_DEVICES];
	uint32_t next_stream, next_event, next_corr;
	uint64_t last[MAX_DEVICES];	/* when all work of a device is done */
	const struct sim_sink *sink;
	int truth_fd;
	pid_t pid;
} dev = { .lock = PTHREAD_MUTEX_INITIALIZER, .truth_fd = -1, .next_stream = 13 };

static struct engine engines[MAX_DEVICES][ENGINE_CNT];
static __thread uint32_t depth, corr, current;

uint64_t sim_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ULL + (uint64_t)ts.tv_nsec;
}

void sim_spin_until(uint64_t ts)
{
	while (sim_now() < ts) {
#if defined(__x86_64__)
		__builtin_ia32_pause();
#endif
	}
}

/* --- settings -------------------------------------------------------------------------------- */

const struct sim_model *sim_model(void)
{
	return &dev.model;
}

static void read_settings(void)
{
	const char *wait = getenv("GPUSIM_WAIT"), *truth = getenv("GPUSIM_TRUTH");
	const char *cnt = getenv("GPUSIM_DEVICES"), *nested = getenv("GPUSIM_DRIVER_CALLS");

	model_load(&dev.model);
	dev.devices = cnt ? (uint32_t)atoi(cnt) : 1;
	if (dev.devices > MAX_DEVICES)
		dev.devices = MAX_DEVICES;
	dev.wait = wait && !strcmp(wait, "block") ? BLOCK : wait && !strcmp(wait, "yield") ? YIELD : SPIN;
	dev.driver_calls = nested && nested[0] == '1';
	if (truth && truth[0])
		dev.truth_fd = open(truth, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
}

static void in_child(void)
{
	dev.ready = false;	/* a forked child cannot use CUDA */
}

int device_init(void)
{
	pthread_mutex_lock(&dev.lock);
	if (!dev.ready && dev.pid && dev.pid != getpid()) {
		pthread_mutex_unlock(&dev.lock);
		return SIM_ERR_NOT_INIT;
	}
	if (!dev.ready) {
		dev.pid = getpid();
		read_settings();
		for (uint32_t i = 0; i < dev.devices; i++)
			dev.def[i] = (struct sim_stream){ .id = 7, .device = i };
		pthread_atfork(NULL, NULL, in_child);
		dev.ready = true;
	}
	pthread_mutex_unlock(&dev.lock);
	return dev.devices ? SIM_OK : SIM_ERR_NO_DEVICE;
}

bool sim_ready(void)
{
	return dev.ready;
}

uint32_t sim_device_cnt(void)
{
	return dev.devices;
}

uint32_t *sim_current(void)
{
	return &current;
}

/* --- who is told ------------------------------------------------------------------------------ */

SIM_EXPORT void sim_attach(const struct sim_sink *sink)
{
	__atomic_store_n(&dev.sink, sink, __ATOMIC_RELEASE);
}

/* GPUSIM_TRUTH: what the model decided, one line a piece, for tests to compare with. */
static void write_truth(const char *what, const char *fmt, ...)
{
	char line[512];
	va_list ap;
	int n, m;

	if (dev.truth_fd < 0)
		return;
	n = snprintf(line, sizeof(line), "%s ", what);
	va_start(ap, fmt);
	m = vsnprintf(line + n, sizeof(line) - (size_t)n, fmt, ap);
	va_end(ap);
	n = n + m < (int)sizeof(line) ? n + m : (int)sizeof(line) - 1;
	if (write(dev.truth_fd, line, (size_t)n) < 0)
		dev.truth_fd = -1;
}

void sim_emit(const struct sim_op *op)
{
	static const char *const names[] = { "", "kernel", "memcpy", "memset", "sync", "graph" };
	const struct sim_sink *sink = __atomic_load_n(&dev.sink, __ATOMIC_ACQUIRE);

	write_truth(names[op->kind], "%u %u %u %llu %llu %llu %u %u %u %s\n", op->corr, op->device,
		    op->stream, (unsigned long long)op->start, (unsigned long long)op->end,
		    (unsigned long long)op->bytes, op->dir, op->src, op->sync_type,
		    op->name ? op->name : "-");
	if (sink)
		sink->op(op);
}

struct sim_scope sim_begin(enum sim_domain domain, uint32_t cbid)
{
	struct sim_scope s = { .start = sim_now(), .domain = domain, .cbid = cbid };

	s.outer = depth++ == 0;
	if (s.outer)
		corr = __atomic_add_fetch(&dev.next_corr, 1, __ATOMIC_RELAXED);
	return s;
}

int sim_end(struct sim_scope *scope, int ret)
{
	const struct sim_sink *sink = __atomic_load_n(&dev.sink, __ATOMIC_ACQUIRE);
	struct sim_call c = {
		.domain = scope->domain, .cbid = scope->cbid, .corr = corr, .ret = (uint32_t)ret,
		.start = scope->start,
	};

	depth--;
	if (!scope->outer && !dev.driver_calls)
		return ret;
	if (!sink && dev.truth_fd < 0)
		return ret;
	c.tid = (uint32_t)syscall(SYS_gettid);
	c.end = sim_now();
	write_truth("call", "%u %u %u %u %llu %llu\n", c.corr, c.tid, c.domain, c.cbid,
		    (unsigned long long)c.start, (unsigned long long)c.end);
	if (sink)
		sink->call(&c);
	return ret;
}

void sim_cost(const struct sim_scope *scope, uint64_t ns)
{
	sim_spin_until(scope->start + ns);
}

/* --- streams ---------------------------------------------------------------------------------- */

struct sim_stream *sim_stream(void *handle)
{
	return (uintptr_t)handle <= 2 ? &dev.def[current] : handle;
}

int sim_stream_create(struct sim_stream **ret)
{
	struct sim_stream *s = calloc(1, sizeof(*s));

	if (!s)
		return SIM_ERR_MEMORY;
	s->id = __atomic_fetch_add(&dev.next_stream, 1, __ATOMIC_RELAXED);
	s->device = current;
	*ret = s;
	return SIM_OK;
}

uint32_t sim_stream_id(const struct sim_stream *s)
{
	return s->id;
}

uint64_t sim_stream_end(struct sim_stream *s)
{
	uint64_t end;

	pthread_mutex_lock(&dev.lock);
	end = s->end > s->dep ? s->end : s->dep;
	pthread_mutex_unlock(&dev.lock);
	return end;
}

uint64_t device_end(uint32_t device)
{
	uint64_t end;

	pthread_mutex_lock(&dev.lock);
	end = dev.last[device];
	pthread_mutex_unlock(&dev.lock);
	return end;
}

/*
 * The first hole of the engine that is long enough: work that waits for its own stream does not
 * hold up a copy of another stream that could go before it.
 */
static uint64_t book(struct engine *e, uint64_t ready, uint64_t dur, uint64_t now)
{
	size_t i, old = 0;

	while (old < e->cnt && e->v[old].end < now)
		old++;
	memmove(e->v, e->v + old, (e->cnt - old) * sizeof(e->v[0]));
	e->cnt -= old;
	for (i = 0; i < e->cnt; i++) {
		if (ready + dur <= e->v[i].start)
			break;
		if (e->v[i].end > ready)
			ready = e->v[i].end;
	}
	if (e->cnt == BOOKED_MAX)
		return ready;
	memmove(e->v + i + 1, e->v + i, (e->cnt - i) * sizeof(e->v[0]));
	e->v[i] = (struct interval){ ready, ready + dur };
	e->cnt++;
	return ready;
}

/* Puts work behind the stream's; earliest is when it could start on an idle device. */
static void submit(struct sim_stream *s, struct sim_op *op, uint64_t earliest, uint64_t dur,
		   int engine)
{
	uint64_t now = sim_now(), ready = earliest;

	op->queued = now;
	op->device = s->device;
	op->context = s->device + 1;
	op->stream = s->id;
	op->corr = corr;
	pthread_mutex_lock(&dev.lock);
	if (s->end && s->end + dev.model.gap_ns > ready)
		ready = s->end + dev.model.gap_ns;
	if (s->dep > ready)
		ready = s->dep;
	op->start = engine < 0 ? ready : book(&engines[s->device][engine], ready, dur, now);
	op->end = op->start + dur;
	s->end = op->end;
	s->dep = 0;
	if (op->end > dev.last[s->device])
		dev.last[s->device] = op->end;
	pthread_mutex_unlock(&dev.lock);
}

/* --- work ------------------------------------------------------------------------------------- */

int sim_kernel(struct sim_stream *s, const char *name, uint64_t ns, const uint32_t *grid,
	       const uint32_t *block)
{
	struct sim_op op = { .kind = SIM_KERNEL, .name = name };

	memcpy(op.grid, grid, sizeof(op.grid));
	memcpy(op.block, block, sizeof(op.block));
	submit(s, &op, sim_now() + dev.model.start_ns, ns, -1);
	sim_emit(&op);
	return SIM_OK;
}

int sim_graph(struct sim_stream *s, uint32_t id, uint64_t ns)
{
	struct sim_op op = { .kind = SIM_GRAPH, .graph = id };

	submit(s, &op, sim_now() + dev.model.start_ns, ns, -1);
	sim_emit(&op);
	return SIM_OK;
}

int sim_memset(struct sim_stream *s, size_t sz)
{
	struct sim_op op = { .kind = SIM_MEMSET, .bytes = sz, .dst = 3, .async = true };
	uint64_t dur = 1250 + bytes_ns(sz, dev.model.memset_bps);

	submit(s, &op, sim_now() + dev.model.start_ns, dur, -1);
	sim_emit(&op);
	return SIM_OK;
}

/*
 * A large pageable copy: the driver's thread copies the memory into pinned buffers part by part
 * while the device takes the parts away, so the caller is busy nearly to the end, and a caller
 * that gets no CPU holds the copy up. It also waits for the stream first, since the buffers are
 * few. Reads the real memory, so that its page faults happen where they really would.
 */
static int copy_staged(struct sim_stream *s, struct sim_op *op, const void *src, size_t sz)
{
	static __thread char part[64 << 10];
	const struct sim_model *m = &dev.model;
	bool backed = (uintptr_t)src < SIM_PAGEABLE_BASE || (uintptr_t)src >= SIM_DEVICE_BASE + SIM_RANGE_SZ;
	uint64_t dur = bytes_ns(sz, m->pageable_bps), late = 0, due, now;
	uint64_t tail = m->tail_ns < dur ? m->tail_ns : dur;

	submit(s, op, sim_now() + m->stage_ns, dur, 0);
	if (op->start > m->stage_ns)
		wait_until(op->start - m->stage_ns);
	for (size_t off = 0; backed && off < sz; off += sizeof(part)) {
		size_t n = sz - off < sizeof(part) ? sz - off : sizeof(part);

		memcpy(part, (const char *)src + off, n);
		__asm__ volatile("" :: "r"(part) : "memory");
		due = op->start + late + bytes_ns(off, m->pageable_bps);
		now = sim_now();
		if (now > due + tail)
			late += now - due - tail;
	}
	op->end += late;
	pthread_mutex_lock(&dev.lock);
	if (s->end < op->end)
		s->end = op->end;
	if (dev.last[s->device] < op->end)
		dev.last[s->device] = op->end;
	pthread_mutex_unlock(&dev.lock);
	sim_spin_until(op->end - tail);
	sim_emit(op);
	return SIM_OK;
}

/* The host waits; by default it spins, as the driver's threads do. */
void wait_until(uint64_t until)
{
	struct timespec ts = { .tv_sec = (time_t)(until / 1000000000ULL), .tv_nsec = (long)(until % 1000000000ULL) };

	if (dev.wait == SPIN) {
		sim_spin_until(until);
		return;
	}
	while (sim_now() < until) {
		if (dev.wait == BLOCK)
			clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL);
		else
			syscall(SYS_sched_yield);
	}
}

int sim_memcpy(struct sim_stream *s, void *dst, const void *src, size_t sz, bool async)
{
	const struct sim_model *m = &dev.model;
	struct sim_op op = {
		.kind = SIM_MEMCPY, .bytes = sz, .async = async, .src = sim_mem_kind(src),
		.dst = sim_mem_kind(dst),
	};
	uint64_t begin = sim_now(), bps = m->pinned_bps, fixed = m->copy_ns;
	bool pageable = op.src == 1 || op.dst == 1;
	int engine = 0;

	if (op.src == 3 && op.dst == 3) {
		op.dir = 8, bps = m->dtod_bps, engine = 2;
	} else if (op.dst == 3) {
		op.dir = 1;
		if (pageable && sz > SIM_SMALL_SZ)
			return copy_staged(s, &op, src, sz);
	} else if (op.src == 3) {
		op.dir = 2, bps = m->dtoh_bps, engine = 1;
	} else {
		op.dir = 9;
	}
	if (pageable)
		fixed = 1000;	/* in the samples: 256 B in 1.25 us */
	sim_spin_until(begin + (pageable ? m->small_ns : m->memcpy_ns));
	submit(s, &op, sim_now() + 2 * m->start_ns, fixed + bytes_ns(sz, bps), engine);
	/* To pageable memory the call returns when the data are there (samples: 9 us later). */
	if (op.dir == 2 && pageable)
		wait_until(op.end + m->sync_ns);
	sim_emit(&op);
	if (!async && op.dir != 8 && !(op.dir == 1 && pageable))
		wait_until(op.end + m->sync_ns);
	return SIM_OK;
}

/* --- waiting ---------------------------------------------------------------------------------- */

int sim_wait(uint64_t until, struct sim_stream *s, uint32_t sync_type, uint32_t event)
{
	struct sim_op op = {
		.kind = SIM_SYNC, .sync_type = sync_type, .event = event, .corr = corr,
		.device = current, .context = current + 1, .stream = s ? s->id : UINT32_MAX,
		.start = sim_now(),
	};

	if (until > op.start)
		wait_until(until);
	sim_spin_until((until > op.start ? until : op.start) + dev.model.sync_ns);
	op.end = sim_now();
	sim_emit(&op);
	return SIM_OK;
}

int sim_query(uint64_t until, struct sim_stream *s, uint32_t sync_type, uint32_t event)
{
	struct sim_op op = {
		.kind = SIM_SYNC, .sync_type = sync_type, .event = event, .corr = corr,
		.device = current, .context = current + 1, .stream = s ? s->id : UINT32_MAX,
		.start = sim_now(),
	};

	op.not_ready = op.start < until;
	op.end = sim_now();
	sim_emit(&op);
	return op.not_ready ? SIM_ERR_NOT_READY : SIM_OK;
}

void sim_stream_wait(struct sim_stream *s, uint64_t until, uint32_t event)
{
	struct sim_op op = {
		.kind = SIM_SYNC, .sync_type = 2, .event = event, .corr = corr, .device = s->device,
		.context = s->device + 1, .stream = s->id, .start = sim_now(),
	};

	pthread_mutex_lock(&dev.lock);
	if (until > s->dep)
		s->dep = until;
	pthread_mutex_unlock(&dev.lock);
	op.end = sim_now();
	sim_emit(&op);
}

uint32_t device_next_event(void)
{
	return __atomic_add_fetch(&dev.next_event, 1, __ATOMIC_RELAXED);
}
