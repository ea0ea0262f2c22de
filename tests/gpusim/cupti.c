/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The double of libcupti: the activity interface as a collector meets it, over the doubles of the
 * driver and the runtime. Records are written in the sizes that the chosen release used
 * (layout.c); buffers are asked for on the application's threads and handed back on a thread of
 * CUPTI's own or on the one that flushes.
 *
 * Environment, all for tests:
 *   GPUSIM_CUPTI_RELEASE     whose records: "11.0" .. "13.4"; the default is the library's own
 *   GPUSIM_CUPTI_BUSY        another tool holds the subscription; _HOLDER names it
 *   GPUSIM_CUPTI_SEVERAL     0: the driver is too old for several subscribers
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
	unsigned int subs;	/* bits of those who had its kind on */
};

#define SUB_CNT 4

/* Who records: [0] is the first interface, which knows one for the whole process. */
struct sub {
	bool open;		/* subscribed by the second interface */
	bool kinds[KIND_CNT], runtime[CALL_CNT], driver[CALL_CNT], all_sync;
	cupti_buffer_request request;
	cupti_buffer_complete complete;
	cupti_buffer_request_v2 request_v2;
	cupti_buffer_complete_v2 complete_v2;
	struct buf bufs[BUF_CNT];
	size_t dropped;
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t wake;
	bool loaded, attached, worker, subscribed, per_thread, reserve, quit;
	bool used;		/* an Enable or a Subscribe succeeded */
	bool second;		/* the process has decided for the second interface */
	struct sub subs[SUB_CNT];
	char name[54];		/* of the first who subscribed by the second interface */
	uint64_t (*timestamp)(void);
	struct pending *pending;
	size_t pending_cnt;
	uint32_t flush_ms;
	uint64_t device_records, written;
	unsigned int unknown_every, drop_every, zero_every;
	pid_t pid;
	size_t attr[32];
} c = {
	.lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER,
	.subs[0].all_sync = true,
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

#define for_each_sub(u) for (struct sub *u = c.subs; u < c.subs + SUB_CNT; u++)

static void hand_back(struct sub *u, struct buf *b)
{
	struct buf done = *b;

	memset(b, 0, sizeof(*b));
	pthread_mutex_unlock(&c.lock);
	if (u->complete_v2)
		u->complete_v2(done.mem, done.size, done.used, NULL);
	else
		u->complete(NULL, 0, done.mem, done.size, done.used);
	pthread_mutex_lock(&c.lock);
}

static struct buf *current_buf(struct sub *u, uint32_t thread)
{
	for (struct buf *b = u->bufs; b < u->bufs + BUF_CNT; b++)
		if (b->open && !b->full && b->thread == thread)
			return b;
	return NULL;
}

/* Room for one record in the thread's buffer; asks for another where it is full. */
static uint8_t *room(struct sub *u, uint32_t thread, size_t sz, uint64_t ready)
{
	struct buf *b = current_buf(u, thread);
	size_t max = 0;

	if (b && b->used + sz > b->size) {
		b->full = true;
		pthread_cond_signal(&c.wake);
		b = NULL;
	}
	for (struct buf *n = u->bufs; !b && n < u->bufs + BUF_CNT; n++) {
		if (n->open)
			continue;
		if (u->request_v2)
			u->request_v2(&n->mem, &n->size, &max, NULL);
		else
			u->request(&n->mem, &n->size, &max);
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
		u->dropped++;
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

static void put_op(struct sub *u, const struct sim_op *op, bool complete, uint32_t thread)
{
	uint64_t n = ++c.written;
	struct record r;
	uint8_t *p;

	if (c.drop_every && n % c.drop_every == 0) {
		u->dropped++;
		return;
	}
	record_of_op(&r, op, u->kinds[CUPTI_ABI_KIND_KERNEL] ? CUPTI_ABI_KIND_KERNEL :
						       CUPTI_ABI_KIND_CONCURRENT_KERNEL);
	if (!r.sz)
		return;
	if (c.zero_every && n % c.zero_every == 0)
		complete = false;
	record_times(&r, complete ? cupti_time(op->start) : 0, complete ? cupti_time(op->end) : 0);
	if (c.unknown_every && n % c.unknown_every == 0)
		memcpy(r.bytes, &(uint32_t){ 250 }, 4);
	p = room(u, thread, r.sz, op->end);
	if (p)
		memcpy(p, r.bytes, r.sz);
}

static void put_pending(const struct pending *p, bool complete)
{
	for_each_sub(u)
		if (p->subs & 1U << (u - c.subs))
			put_op(u, &p->op, complete, 0);
}

/* Writes what has ended meanwhile. */
static void write_ended(uint64_t now)
{
	size_t kept = 0;

	for (size_t i = 0; i < c.pending_cnt; i++) {
		if (c.pending[i].op.end <= now)
			put_pending(&c.pending[i], true);
		else
			c.pending[kept++] = c.pending[i];
	}
	c.pending_cnt = kept;
}

static bool records(const struct sub *u)
{
	return u->request || u->request_v2;
}

static bool wanted_op(const struct sub *u, const struct sim_op *op)
{
	if (!records(u))
		return false;
	switch (op->kind) {
	case SIM_KERNEL:
		return u->kinds[CUPTI_ABI_KIND_KERNEL] || u->kinds[CUPTI_ABI_KIND_CONCURRENT_KERNEL];
	case SIM_MEMCPY:
		return u->kinds[CUPTI_ABI_KIND_MEMCPY];
	case SIM_MEMSET:
		return u->kinds[CUPTI_ABI_KIND_MEMSET];
	case SIM_SYNC:
		return u->kinds[CUPTI_ABI_KIND_SYNC] && (u->all_sync || !op->not_ready);
	case SIM_GRAPH:
		return u->kinds[CUPTI_ABI_KIND_GRAPH_TRACE];
	}
	return false;
}

static void on_op(const struct sim_op *op)
{
	uint64_t now = mono_ns();
	struct pending p = { .op = *op };

	pthread_mutex_lock(&c.lock);
	for_each_sub(u) {
		if (!wanted_op(u, op))
			continue;
		if (c.reserve || op->kind == SIM_SYNC || op->end <= now)
			put_op(u, op, true, own_thread());
		else if (c.pending_cnt < PENDING_MAX)
			p.subs |= 1U << (u - c.subs);
		else
			u->dropped++;
		if (c.device_records++ % 1024 == 0)
			write_ended(now);
	}
	if (p.subs && c.pending_cnt < PENDING_MAX)
		c.pending[c.pending_cnt++] = p;
	pthread_mutex_unlock(&c.lock);
}

static bool wanted_call(const struct sub *u, const struct sim_call *call)
{
	bool runtime = call->domain == SIM_RUNTIME;

	return records(u) && (u->kinds[runtime ? CUPTI_ABI_KIND_RUNTIME : CUPTI_ABI_KIND_DRIVER] ||
			      (call->cbid < CALL_CNT && (runtime ? u->runtime : u->driver)[call->cbid]));
}

static void on_call(const struct sim_call *call)
{
	struct record r;
	uint8_t *p;

	pthread_mutex_lock(&c.lock);
	for_each_sub(u) {
		if (!wanted_call(u, call))
			continue;
		record_of_call(&r, call, (uint32_t)c.pid);
		record_times(&r, cupti_time(call->start), cupti_time(call->end));
		p = room(u, own_thread(), r.sz, call->end);
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
			put_pending(&c.pending[i], false);
		c.pending_cnt = 0;
	}
	for_each_sub(u) {
		for (struct buf *b = u->bufs; records(u) && b < u->bufs + BUF_CNT; b++) {
			if (!b->open || !b->used || (!forced && b->ready > now))
				continue;
			blank_incomplete(b, now);
			hand_back(u, b);
		}
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
		for (size_t i = 0; i < (size_t)SUB_CNT * BUF_CNT; i++) {
			struct sub *u = &c.subs[i / BUF_CNT];
			struct buf *b = &u->bufs[i % BUF_CNT];

			if (!b->open || !b->full)
				continue;
			if (b->ready <= now)
				hand_back(u, b);
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

/* A subscriber of the second interface; NULL for anything else. */
static struct sub *sub_of(void *subscriber)
{
	for (struct sub *u = c.subs + 1; u < c.subs + SUB_CNT; u++)
		if (u == subscriber && u->open)
			return u;
	return NULL;
}

DEF(cuptiSubscribe, (void **subscriber, cupti_callback callback, void *userdata))
{
	DRIVER_CALL();
	(void)callback, (void)userdata;
	if (c.second)
		return CUPTI_ABI_ERR_SUBSCRIBERS;
	if (c.subscribed || env_num("GPUSIM_CUPTI_BUSY") != 0)
		return layout()->version < 19 ? CUPTI_ABI_ERR_LIMIT : CUPTI_ABI_ERR_SUBSCRIBERS;
	c.subscribed = c.used = true;
	*subscriber = &c;
	return CUPTI_ABI_OK;
}

DEF(cuptiUnsubscribe, (void *subscriber))
{
	struct sub *u;

	DRIVER_CALL();
	if (subscriber == &c && c.subscribed) {
		c.subscribed = false;
		return CUPTI_ABI_OK;
	}
	u = sub_of(subscriber);
	if (!u)
		return CUPTI_ABI_ERR_PARAM;
	/* What nobody flushed is lost with it. */
	pthread_mutex_lock(&c.lock);
	memset(u, 0, sizeof(*u));
	pthread_mutex_unlock(&c.lock);
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
	if (c.second)
		return CUPTI_ABI_ERR_SUBSCRIBERS;
	pthread_mutex_lock(&c.lock);
	c.subs[0].request = request;
	c.subs[0].complete = complete;
	pthread_mutex_unlock(&c.lock);
	return CUPTI_ABI_OK;
}

DEF(cuptiActivityEnable, (int kind))
{
	DRIVER_CALL();
	if (kind <= 0 || kind >= KIND_CNT)
		return CUPTI_ABI_ERR_PARAM;
	if (c.second)
		return CUPTI_ABI_ERR_SUBSCRIBERS;
	pthread_mutex_lock(&c.lock);
	attach();
	c.subs[0].kinds[kind] = c.used = true;
	pthread_mutex_unlock(&c.lock);
	return CUPTI_ABI_OK;
}

DEF(cuptiActivityDisable, (int kind))
{
	DRIVER_CALL();
	if (kind <= 0 || kind >= KIND_CNT)
		return CUPTI_ABI_ERR_PARAM;
	pthread_mutex_lock(&c.lock);
	c.subs[0].kinds[kind] = false;
	pthread_mutex_unlock(&c.lock);
	return CUPTI_ABI_OK;
}

DEF(cuptiActivityEnableRuntimeApi, (uint32_t cbid, uint8_t enable))
{
	DRIVER_CALL();
	if (!cbid || cbid > layout()->runtime_max)
		return CUPTI_ABI_ERR_PARAM;
	c.subs[0].runtime[cbid] = enable;
	return CUPTI_ABI_OK;
}

DEF(cuptiActivityEnableDriverApi, (uint32_t cbid, uint8_t enable))
{
	DRIVER_CALL();
	if (!cbid || cbid > layout()->driver_max)
		return CUPTI_ABI_ERR_PARAM;
	c.subs[0].driver[cbid] = enable;
	return CUPTI_ABI_OK;
}

DEF(cuptiActivityEnableAllSyncRecords, (uint8_t enable))
{
	DRIVER_CALL();
	c.subs[0].all_sync = enable;
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
	*dropped = c.subs[0].dropped;
	c.subs[0].dropped = 0;
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
	memset(c.subs[0].kinds, 0, sizeof(c.subs[0].kinds));
	return CUPTI_ABI_OK;
}

/* --- the second interface ------------------------------------------------------------------------- */

static bool several_possible(void)
{
	const char *s = getenv("GPUSIM_CUPTI_SEVERAL");

	return layout()->version >= 130200 && !(s && s[0] == '0');
}

DEF(cuptiSubscribe_v2, (void **subscriber, cupti_callback callback, void *userdata,
			struct cupti_subscribe *p))
{
	size_t want = layout()->version >= 130200 ? sizeof(*p) : CUPTI_ABI_SUBSCRIBE_13_0_SZ;
	const char *holder = getenv("GPUSIM_CUPTI_HOLDER");
	bool busy = c.subscribed || env_num("GPUSIM_CUPTI_BUSY") != 0, several;

	DRIVER_CALL();
	(void)callback, (void)userdata;
	if (!p || p->size != want)
		return CUPTI_ABI_ERR_PARAM;
	several = p->size == sizeof(*p) && p->allow_several;
	if (!holder)
		holder = c.name[0] ? c.name : "nobody in particular";
	if ((busy || c.second) && p->old_name && p->old_name_sz)
		snprintf(p->old_name, p->old_name_sz, "CUPTI for %s", holder);
	if (busy || (several && !several_possible()) || (!several && c.second))
		return CUPTI_ABI_ERR_SUBSCRIBERS;
	if (!several) {
		c.subscribed = c.used = true;
		*subscriber = &c;
		return CUPTI_ABI_OK;
	}
	for (struct sub *u = c.subs + 1; u < c.subs + SUB_CNT; u++) {
		if (u->open)
			continue;
		u->open = c.second = c.used = true;
		if (!c.name[0] && p->name)
			snprintf(c.name, sizeof(c.name), "%s", p->name);
		*subscriber = u;
		return CUPTI_ABI_OK;
	}
	return CUPTI_ABI_ERR_LIMIT;
}

DEF(cuptiActivityRegisterCallbacks_v2, (void *subscriber, cupti_buffer_request_v2 request,
					cupti_buffer_complete_v2 complete))
{
	struct sub *u = sub_of(subscriber);

	COUNT();
	if (!u || !request || !complete)
		return CUPTI_ABI_ERR_PARAM;
	pthread_mutex_lock(&c.lock);
	u->request_v2 = request;
	u->complete_v2 = complete;
	pthread_mutex_unlock(&c.lock);
	return CUPTI_ABI_OK;
}

static cupti_result set_kind_v2(void *subscriber, int kind, bool on)
{
	struct sub *u = sub_of(subscriber);

	DRIVER_CALL();
	if (!u || kind <= 0 || kind >= KIND_CNT)
		return CUPTI_ABI_ERR_PARAM;
	pthread_mutex_lock(&c.lock);
	attach();
	u->kinds[kind] = on;
	pthread_mutex_unlock(&c.lock);
	return CUPTI_ABI_OK;
}

DEF(cuptiActivityEnable_v2, (void *subscriber, int kind, void *config))
{
	return config ? CUPTI_ABI_ERR_PARAM : set_kind_v2(subscriber, kind, true);
}

DEF(cuptiActivityDisable_v2, (void *subscriber, int kind, void *config))
{
	return config ? CUPTI_ABI_ERR_PARAM : set_kind_v2(subscriber, kind, false);
}

DEF(cuptiActivityEnableRuntimeApi_v2, (void *subscriber, uint32_t cbid, uint8_t enable))
{
	struct sub *u = sub_of(subscriber);

	DRIVER_CALL();
	if (!u || !cbid || cbid > layout()->runtime_max)
		return CUPTI_ABI_ERR_PARAM;
	u->runtime[cbid] = enable;
	return CUPTI_ABI_OK;
}

DEF(cuptiActivityEnableDriverApi_v2, (void *subscriber, uint32_t cbid, uint8_t enable))
{
	struct sub *u = sub_of(subscriber);

	DRIVER_CALL();
	if (!u || !cbid || cbid > layout()->driver_max)
		return CUPTI_ABI_ERR_PARAM;
	u->driver[cbid] = enable;
	return CUPTI_ABI_OK;
}

DEF(cuptiActivityGetNextRecord_v2, (void *subscriber, uint8_t *buf, size_t valid, uint8_t **record))
{
	COUNT();
	return sub_of(subscriber) ? walk(buf, valid, record) : CUPTI_ABI_ERR_PARAM;
}

DEF(cuptiActivityGetNumDroppedRecords_v2, (void *subscriber, void *ctx, uint32_t stream,
					   size_t *dropped))
{
	struct sub *u = sub_of(subscriber);

	COUNT();
	(void)ctx, (void)stream;
	if (!u || !dropped)
		return CUPTI_ABI_ERR_PARAM;
	pthread_mutex_lock(&c.lock);
	*dropped = u->dropped;
	u->dropped = 0;
	pthread_mutex_unlock(&c.lock);
	return CUPTI_ABI_OK;
}

DEF(cuptiGetTimestamp_v2, (void *subscriber, uint64_t *ts))
{
	DRIVER_CALL();
	if (!sub_of(subscriber))
		return CUPTI_ABI_ERR_PARAM;
	*ts = cupti_time(mono_ns());
	return CUPTI_ABI_OK;
}

DEF(cuptiActivityGetAttribute_v2, (void *subscriber, int attr, size_t *size, void *value))
{
	uint8_t state = c.second ? 1 : c.subscribed || !several_possible() ? 0 : 2;

	DRIVER_CALL();
	(void)subscriber;
	if (attr != CUPTI_ABI_ATTR_MULTIPLE_SUBSCRIBERS || !size || *size != sizeof(state) || !value)
		return CUPTI_ABI_ERR_PARAM;
	memcpy(value, &state, sizeof(state));
	return CUPTI_ABI_OK;
}

DEF(cuptiActivitySetAttribute_v2, (void *subscriber, int attr, size_t *size, void *value))
{
	struct sub *u = sub_of(subscriber);
	uint32_t type;

	DRIVER_CALL();
	if (!u || !size || !value)
		return CUPTI_ABI_ERR_PARAM;
	if (attr == CUPTI_ABI_ATTR_ALL_SYNC && *size == 1) {
		u->all_sync = *(uint8_t *)value;
	} else if (attr == CUPTI_ABI_ATTR_THREAD_ID_TYPE && *size == sizeof(type)) {
		memcpy(&type, value, sizeof(type));
		record_thread_ids(type == CUPTI_ABI_THREAD_ID_SYSTEM);
	} else {
		return CUPTI_ABI_ERR_PARAM;
	}
	return CUPTI_ABI_OK;
}

DEF(cuptiActivityGetEnabledKinds, (void *subscriber, uint32_t *kinds, uint32_t *sz, uint32_t *cnt))
{
	struct sub *only = sub_of(subscriber);
	uint32_t n = 0;

	DRIVER_CALL();
	if (!cnt || (kinds && !sz) || (subscriber && !only))
		return CUPTI_ABI_ERR_PARAM;
	for (uint32_t kind = 1; kind < KIND_CNT; kind++) {
		bool on = false;

		for_each_sub(u)
			on |= (!only || u == only) && u->kinds[kind];
		if (!on)
			continue;
		if (kinds && (n + 1) * sizeof(*kinds) <= *sz)
			kinds[n] = kind;
		n++;
	}
	*cnt = n;
	return CUPTI_ABI_OK;
}

/* How many kinds and calls are switched on: after a recording none. */
SIM_EXPORT unsigned int dlbpf_gpusim_enabled(void);
SIM_EXPORT unsigned int dlbpf_gpusim_enabled(void)
{
	unsigned int n = 0;

	for_each_sub(u) {
		for (size_t i = 0; i < KIND_CNT; i++)
			n += u->kinds[i];
		for (size_t i = 0; i < CALL_CNT; i++)
			n += u->runtime[i] + u->driver[i];
	}
	return n;
}

/* Buffers that it holds; subscriptions. */
SIM_EXPORT unsigned int dlbpf_gpusim_held(void);
SIM_EXPORT unsigned int dlbpf_gpusim_held(void)
{
	unsigned int n = c.subscribed;

	for_each_sub(u) {
		n += u->open;
		for (struct buf *b = u->bufs; b < u->bufs + BUF_CNT; b++)
			n += b->open;
	}
	return n;
}
