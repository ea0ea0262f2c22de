/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The double of libcupti: the activity interface as a collector meets it, over the doubles of the
 * driver and the runtime. Records are written in the sizes that the chosen release used
 * (layout.c); buffers are asked for on the application's threads and handed back on a thread of
 * CUPTI's own or on the one that flushes.
 *
 * Environment, all for tests:
 *   GPUSIM_CUPTI_RELEASE     whose records: "11.0" .. "13.4"; the default is the library's own
 *   GPUSIM_CUPTI_BUSY        another tool holds the subscription
 *   GPUSIM_CUPTI_RESERVE     records take their place at submission, incomplete until the work ends
 *   GPUSIM_CUPTI_UNKNOWN_EVERY, _DROP_EVERY, _ZERO_EVERY   every n-th device record is of a kind
 *                            that the walker does not know; is dropped; has no timestamps
 *   GPUSIM_CUPTI_PPM, _STEP_MS, _STEP_US   the clock drifts; jumps by STEP_US after STEP_MS
 */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "cupti_double.h"

#define KIND_CNT 64
#define CALL_CNT 1024
#define BUF_CNT 256
#define THREAD_CNT 64
#define PENDING_MAX 65536

struct buf {
	uint8_t *mem;
	size_t size, used;
	uint64_t ready;		/* CLOCK_MONOTONIC: all records in it are complete */
	uint32_t thread;	/* whose it is; 0 everybody's */
	bool full, open;
};

struct pending {		/* a record that is not written until its work has ended */
	struct sim_op op;
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t wake;
	bool loaded, attached, worker, subscribed, per_thread, all_sync, reserve, quit;
	bool kinds[KIND_CNT], runtime[CALL_CNT], driver[CALL_CNT];
	bool used;		/* an Enable or a Subscribe succeeded */
	cupti_buffer_request request;
	cupti_buffer_complete complete;
	uint64_t (*timestamp)(void);
	struct buf bufs[BUF_CNT];
	struct pending *pending;
	size_t pending_cnt;
	size_t dropped;
	uint32_t flush_ms;
	uint64_t device_records, written;
	unsigned int unknown_every, drop_every, zero_every;
	pid_t pid;
	size_t attr[32];
} c = {
	.lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER, .all_sync = true,
};

SIM_EXPORT const int dlbpf_gpusim_marker = 1;

/* How often each function was called: a dormant collector calls none. */
static uint64_t call_cnt;

SIM_EXPORT uint64_t dlbpf_gpusim_calls(void);
SIM_EXPORT uint64_t dlbpf_gpusim_calls(void)
{
	return __atomic_load_n(&call_cnt, __ATOMIC_RELAXED);
}

#define COUNT() __atomic_fetch_add(&call_cnt, 1, __ATOMIC_RELAXED)

/* --- settings ------------------------------------------------------------------------ */

static void load(void)
{
	if (c.loaded)
		return;
	c.loaded = true;
	c.pid = getpid();
	c.per_thread = layout()->version >= 130000;
	c.reserve = env_num("GPUSIM_CUPTI_RESERVE") != 0;
	c.unknown_every = (unsigned int)env_num("GPUSIM_CUPTI_UNKNOWN_EVERY");
	c.drop_every = (unsigned int)env_num("GPUSIM_CUPTI_DROP_EVERY");
	c.zero_every = (unsigned int)env_num("GPUSIM_CUPTI_ZERO_EVERY");
	clock_load();
}

/* What every call but a few answers without a driver. */
static cupti_result driver_missing(void)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);

	load();
	if (lib && getpid() == c.pid)
		return CUPTI_ABI_OK;
	return layout()->version >= 130000 ? CUPTI_ABI_ERR_UNKNOWN : CUPTI_ABI_ERR_NOT_INIT;
}

/* --- buffers ------------------------------------------------------------------------------------ */

static void hand_back(struct buf *b)
{
	struct buf done = *b;

	memset(b, 0, sizeof(*b));
	pthread_mutex_unlock(&c.lock);
	c.complete(NULL, 0, done.mem, done.size, done.used);
	pthread_mutex_lock(&c.lock);
}

static struct buf *current_buf(uint32_t thread)
{
	for (struct buf *b = c.bufs; b < c.bufs + BUF_CNT; b++)
		if (b->open && !b->full && b->thread == thread)
			return b;
	return NULL;
}

/* Room for one record in the thread's buffer; asks for another where it is full. */
static uint8_t *room(uint32_t thread, size_t sz, uint64_t ready)
{
	struct buf *b = current_buf(thread);
	size_t max = 0;

	if (b && b->used + sz > b->size) {
		b->full = true;
		pthread_cond_signal(&c.wake);
		b = NULL;
	}
	for (struct buf *n = c.bufs; !b && n < c.bufs + BUF_CNT; n++) {
		if (n->open)
			continue;
		c.request(&n->mem, &n->size, &max);
		if (!n->mem && layout()->version < 27)
			raise(SIGSEGV);		/* what a refused buffer can do before 12.9 */
		if (!n->mem || n->size < sz)
			break;
		memset(n->mem, 0, n->size);
		n->open = true;
		n->used = 0;
		n->ready = 0;
		n->thread = thread;
		b = n;
	}
	if (!b) {
		c.dropped++;
		return NULL;
	}
	b->used += sz;
	if (ready > b->ready)
		b->ready = ready;
	return b->mem + b->used - sz;
}

static uint32_t own_thread(void)
{
	return c.per_thread ? (uint32_t)syscall(SYS_gettid) : 0;
}

/* --- records ------------------------------------------------------------------------------------ */

static void put_op(const struct sim_op *op, bool complete, uint32_t thread)
{
	uint64_t n = ++c.written;
	struct record r;
	uint8_t *p;

	if (c.drop_every && n % c.drop_every == 0) {
		c.dropped++;
		return;
	}
	record_of_op(&r, op, c.kinds[CUPTI_ABI_KIND_KERNEL] ? CUPTI_ABI_KIND_KERNEL :
						       CUPTI_ABI_KIND_CONCURRENT_KERNEL);
	if (!r.sz)
		return;
	if (c.zero_every && n % c.zero_every == 0)
		complete = false;
	record_times(&r, complete ? cupti_time(op->start) : 0, complete ? cupti_time(op->end) : 0);
	if (c.unknown_every && n % c.unknown_every == 0)
		memcpy(r.bytes, &(uint32_t){ 250 }, 4);
	p = room(thread, r.sz, op->end);
	if (p)
		memcpy(p, r.bytes, r.sz);
}

/* Writes what has ended meanwhile. */
static void write_ended(uint64_t now)
{
	size_t kept = 0;

	for (size_t i = 0; i < c.pending_cnt; i++) {
		if (c.pending[i].op.end <= now)
			put_op(&c.pending[i].op, true, 0);
		else
			c.pending[kept++] = c.pending[i];
	}
	c.pending_cnt = kept;
}

static bool wanted_op(const struct sim_op *op)
{
	switch (op->kind) {
	case SIM_KERNEL:
		return c.kinds[CUPTI_ABI_KIND_KERNEL] || c.kinds[CUPTI_ABI_KIND_CONCURRENT_KERNEL];
	case SIM_MEMCPY:
		return c.kinds[CUPTI_ABI_KIND_MEMCPY];
	case SIM_MEMSET:
		return c.kinds[CUPTI_ABI_KIND_MEMSET];
	case SIM_SYNC:
		return c.kinds[CUPTI_ABI_KIND_SYNC] && (c.all_sync || !op->not_ready);
	case SIM_GRAPH:
		return c.kinds[CUPTI_ABI_KIND_GRAPH_TRACE];
	}
	return false;
}

static void on_op(const struct sim_op *op)
{
	uint64_t now = mono_ns();

	pthread_mutex_lock(&c.lock);
	if (c.request && wanted_op(op)) {
		if (c.reserve || op->kind == SIM_SYNC || op->end <= now) {
			put_op(op, true, own_thread());
		} else if (c.pending_cnt < PENDING_MAX) {
			c.pending[c.pending_cnt++] = (struct pending){ .op = *op };
		} else {
			c.dropped++;
		}
		if (c.device_records++ % 1024 == 0)
			write_ended(now);
	}
	pthread_mutex_unlock(&c.lock);
}

static void on_call(const struct sim_call *call)
{
	bool runtime = call->domain == SIM_RUNTIME;
	struct record r;
	uint8_t *p;

	pthread_mutex_lock(&c.lock);
	if (c.request && (c.kinds[runtime ? CUPTI_ABI_KIND_RUNTIME : CUPTI_ABI_KIND_DRIVER] ||
			  (call->cbid < CALL_CNT && (runtime ? c.runtime : c.driver)[call->cbid]))) {
		record_of_call(&r, call, (uint32_t)c.pid);
		record_times(&r, cupti_time(call->start), cupti_time(call->end));
		p = room(own_thread(), r.sz, call->end);
		if (p)
			memcpy(p, r.bytes, r.sz);
	}
	pthread_mutex_unlock(&c.lock);
}

/* In a forced flush, what has not ended has no times. */
static void blank_incomplete(struct buf *b, uint64_t now)
{
	uint8_t *rec = NULL;
	uint64_t limit = cupti_time(now);

	if (b->ready <= now)
		return;
	while (!walk(b->mem, b->used, &rec))
		record_blank_after(rec, limit);
}

static void flush(bool forced)
{
	uint64_t now = mono_ns();

	pthread_mutex_lock(&c.lock);
	write_ended(now);
	if (forced) {
		for (size_t i = 0; i < c.pending_cnt; i++)
			put_op(&c.pending[i].op, false, 0);
		c.pending_cnt = 0;
	}
	for (struct buf *b = c.bufs; c.complete && b < c.bufs + BUF_CNT; b++) {
		if (!b->open || !b->used || (!forced && b->ready > now))
			continue;
		blank_incomplete(b, now);
		hand_back(b);
	}
	pthread_mutex_unlock(&c.lock);
}

/* CUPTI's own thread: hands full buffers back. It sleeps unless there is one. */
static void *worker(void *arg)
{
	struct timespec ts;
	uint64_t now, next;

	pthread_mutex_lock(&c.lock);
	while (!c.quit) {
		now = mono_ns();
		next = 0;
		for (struct buf *b = c.bufs; b < c.bufs + BUF_CNT; b++) {
			if (!b->open || !b->full)
				continue;
			if (b->ready <= now)
				hand_back(b);
			else if (!next || b->ready < next)
				next = b->ready;
		}
		if (c.flush_ms && (!next || next > now + c.flush_ms * 1000000ULL))
			next = now + c.flush_ms * 1000000ULL;
		if (!next) {
			pthread_cond_wait(&c.wake, &c.lock);
			continue;
		}
		clock_gettime(CLOCK_REALTIME, &ts);
		next = next > now ? next - now : 0;
		ts.tv_sec += (time_t)((next + (uint64_t)ts.tv_nsec) / 1000000000ULL);
		ts.tv_nsec = (long)((next + (uint64_t)ts.tv_nsec) % 1000000000ULL);
		pthread_cond_timedwait(&c.wake, &c.lock, &ts);
	}
	pthread_mutex_unlock(&c.lock);
	return arg;
}

static const struct sim_sink sink = { .op = on_op, .call = on_call };

static void attach(void)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
	void (*fn)(const struct sim_sink *) = NULL;
	pthread_t thread;
	sigset_t all, old;

	if (lib)
		fn = (void (*)(const struct sim_sink *))dlsym(lib, "sim_attach");
	if (!c.pending)
		c.pending = malloc(sizeof(*c.pending) * PENDING_MAX);
	if (fn && c.pending && !c.attached) {
		c.attached = true;
		fn(&sink);
	}
	if (c.worker)
		return;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	c.worker = !pthread_create(&thread, NULL, worker, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
}

/* --- the interface ------------------------------------------------------------------------------- */

/* Declares and begins a function of the interface. */
#define DEF(name, params) SIM_EXPORT cupti_result name params; SIM_EXPORT cupti_result name params
#define DRIVER_CALL() do { \
	cupti_result missing_ = driver_missing(); \
	COUNT(); \
	if (missing_) \
		return missing_; \
} while (0)

DEF(cuptiGetVersion, (uint32_t *version))
{
	COUNT();
	if (layout()->version >= 130400 && driver_missing())
		return CUPTI_ABI_ERR_UNKNOWN;
	*version = layout()->version;
	return CUPTI_ABI_OK;
}

DEF(cuptiGetTimestamp, (uint64_t *ts))
{
	COUNT();
	load();
	if (layout()->version >= 130400 && driver_missing())
		return CUPTI_ABI_ERR_UNKNOWN;
	*ts = c.timestamp ? c.timestamp() : cupti_time(mono_ns());
	return CUPTI_ABI_OK;
}

DEF(cuptiGetResultString, (cupti_result r, const char **text))
{
	COUNT();
	*text = r == CUPTI_ABI_OK ? "CUPTI_SUCCESS" :
		r == CUPTI_ABI_ERR_SUBSCRIBERS ? "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED" :
		r == CUPTI_ABI_ERR_NOT_INIT ? "CUPTI_ERROR_NOT_INITIALIZED" : "CUPTI_ERROR_UNKNOWN";
	return CUPTI_ABI_OK;
}

DEF(cuptiGetCallbackName, (int domain, uint32_t cbid, const char **name))
{
	COUNT();
	*name = call_name(domain, cbid);
	return *name ? CUPTI_ABI_OK : CUPTI_ABI_ERR_PARAM;
}

DEF(cuptiSubscribe, (void **subscriber, cupti_callback callback, void *userdata))
{
	DRIVER_CALL();
	(void)callback, (void)userdata;
	if (c.subscribed || env_num("GPUSIM_CUPTI_BUSY") != 0)
		return layout()->version < 19 ? CUPTI_ABI_ERR_LIMIT : CUPTI_ABI_ERR_SUBSCRIBERS;
	c.subscribed = c.used = true;
	*subscriber = &c;
	return CUPTI_ABI_OK;
}

DEF(cuptiUnsubscribe, (void *subscriber))
{
	DRIVER_CALL();
	if (subscriber != &c || !c.subscribed)
		return CUPTI_ABI_ERR_PARAM;
	c.subscribed = false;
	return CUPTI_ABI_OK;
}

DEF(cuptiEnableCallback, (uint32_t enable, void *subscriber, int domain, uint32_t cbid))
{
	DRIVER_CALL();
	(void)enable, (void)domain, (void)cbid;
	return subscriber == &c ? CUPTI_ABI_OK : CUPTI_ABI_ERR_PARAM;
}

DEF(cuptiEnableDomain, (uint32_t enable, void *subscriber, int domain))
{
	return cuptiEnableCallback(enable, subscriber, domain, 0);
}

DEF(cuptiActivityRegisterCallbacks, (cupti_buffer_request request, cupti_buffer_complete complete))
{
	COUNT();
	load();
	if (!request || !complete)
		return CUPTI_ABI_ERR_PARAM;
	pthread_mutex_lock(&c.lock);
	c.request = request;
	c.complete = complete;
	pthread_mutex_unlock(&c.lock);
	return CUPTI_ABI_OK;
}

DEF(cuptiActivityEnable, (int kind))
{
	DRIVER_CALL();
	if (kind <= 0 || kind >= KIND_CNT)
		return CUPTI_ABI_ERR_PARAM;
	pthread_mutex_lock(&c.lock);
	attach();
	c.kinds[kind] = c.used = true;
	pthread_mutex_unlock(&c.lock);
	return CUPTI_ABI_OK;
}

DEF(cuptiActivityDisable, (int kind))
{
	DRIVER_CALL();
	if (kind <= 0 || kind >= KIND_CNT)
		return CUPTI_ABI_ERR_PARAM;
	pthread_mutex_lock(&c.lock);
	c.kinds[kind] = false;
	pthread_mutex_unlock(&c.lock);
	return CUPTI_ABI_OK;
}

DEF(cuptiActivityEnableRuntimeApi, (uint32_t cbid, uint8_t enable))
{
	DRIVER_CALL();
	if (!cbid || cbid > layout()->runtime_max)
		return CUPTI_ABI_ERR_PARAM;
	c.runtime[cbid] = enable;
	return CUPTI_ABI_OK;
}

DEF(cuptiActivityEnableDriverApi, (uint32_t cbid, uint8_t enable))
{
	DRIVER_CALL();
	if (!cbid || cbid > layout()->driver_max)
		return CUPTI_ABI_ERR_PARAM;
	c.driver[cbid] = enable;
	return CUPTI_ABI_OK;
}

DEF(cuptiActivityEnableAllSyncRecords, (uint8_t enable))
{
	DRIVER_CALL();
	c.all_sync = enable;
	return CUPTI_ABI_OK;
}

DEF(cuptiActivityFlushAll, (uint32_t flag))
{
	DRIVER_CALL();
	flush(flag & CUPTI_ABI_FLUSH_FORCED);
	return CUPTI_ABI_OK;
}

DEF(cuptiActivityFlushPeriod, (uint32_t ms))
{
	DRIVER_CALL();
	c.flush_ms = ms;
	pthread_cond_signal(&c.wake);
	return CUPTI_ABI_OK;
}

DEF(cuptiActivityGetNextRecord, (uint8_t *buf, size_t valid, uint8_t **record))
{
	COUNT();
	if (layout()->version >= 130400 && driver_missing())
		return CUPTI_ABI_ERR_UNKNOWN;
	return walk(buf, valid, record);
}

DEF(cuptiActivityGetNumDroppedRecords, (void *ctx, uint32_t stream, size_t *dropped))
{
	COUNT();
	(void)ctx, (void)stream;
	pthread_mutex_lock(&c.lock);
	*dropped = c.dropped;
	c.dropped = 0;
	pthread_mutex_unlock(&c.lock);
	return CUPTI_ABI_OK;
}

DEF(cuptiSetThreadIdType, (int type))
{
	DRIVER_CALL();
	record_thread_ids(type == CUPTI_ABI_THREAD_ID_SYSTEM);
	return CUPTI_ABI_OK;
}

DEF(cuptiGetThreadIdType, (int *type))
{
	DRIVER_CALL();
	*type = record_system_ids();
	return CUPTI_ABI_OK;
}

DEF(cuptiActivitySetAttribute, (int attr, size_t *size, void *value))
{
	DRIVER_CALL();
	if (attr < 0 || attr >= 32 || !size || !value || *size > sizeof(size_t))
		return CUPTI_ABI_ERR_PARAM;
	memcpy(&c.attr[attr], value, *size);
	if (attr == 9)
		c.per_thread = c.attr[attr] != 0;
	return CUPTI_ABI_OK;
}

DEF(cuptiActivityGetAttribute, (int attr, size_t *size, void *value))
{
	DRIVER_CALL();
	if (attr < 0 || attr >= 32 || !size || !value || *size > sizeof(size_t))
		return CUPTI_ABI_ERR_PARAM;
	memcpy(value, &c.attr[attr], *size);
	return CUPTI_ABI_OK;
}

DEF(cuptiActivityRegisterTimestampCallback, (uint64_t (*fn)(void)))
{
	DRIVER_CALL();
	c.timestamp = fn;
	return CUPTI_ABI_OK;
}

DEF(cuptiFinalize, (void))
{
	COUNT();
	if (!c.used && layout()->version >= 22 && layout()->version <= 28)
		raise(SIGSEGV);		/* seen on 12.4 to 12.9 */
	memset(c.kinds, 0, sizeof(c.kinds));
	return CUPTI_ABI_OK;
}
