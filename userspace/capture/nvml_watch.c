/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#include "capture/nvml_watch.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/vec.h"
#include "capture/nvml.h"
#include "capture/pci.h"
#include "capture/proc.h"

#define UNKNOWN UINT32_MAX
#define END_NS (2 * DL_NS_PER_S)	/* a thread that has not ended by then is left behind */
#define ENVIRON_MAX (1 << 20)

enum { LOOKS_MAX = 256 };		/* looks that wait to be taken: 4 s of 64 devices */

/* A device as a process knows it, until it has been told. */
struct pending {
	uint32_t pid, device;
	uint64_t pci;
	char name[128];
};

struct seen { uint32_t pid, index; bool told; };	/* a recorded process on a device of NVML's */

struct dl_gpu_watch {
	struct dl_gpu_watch_opts o;
	pthread_t thread;
	bool started;
	/* the recorder's thread alone */
	bool told_absent;
	uint32_t known;			/* devices of NVML's, once facts can be read */
	uint64_t wanted;		/* bits: devices of recorded processes */
	DL_VEC(struct pending) pending;
	DL_VEC(struct seen) seen;
	/* both threads, under the lock */
	pthread_mutex_t lock;
	pthread_cond_t wake;
	bool stop;
	int state;			/* 0 NVML is being loaded, 1 it is there, -1 it is not */
	struct dl_diag why;		/* of -1 */
	uint32_t cnt;			/* set with state, as are the facts, which nobody changes then */
	struct dl_nvml_facts facts[DL_NVML_DEVICES];
	uint64_t pcie;			/* bits: count the traffic of these */
	uint32_t look_cnt, look_lost;
	struct dl_nvml_look looks[LOOKS_MAX];
};

/* --- the thread -------------------------------------------------------------------------------- */

static bool ask_all(struct dl_gpu_watch *w, struct dl_nvml *n, uint32_t cnt)
{
	bool stop = false;

	for (uint32_t i = 0; i < cnt && !stop; i++) {
		struct dl_nvml_look look;
		bool pcie;
		int err;

		pthread_mutex_lock(&w->lock);
		pcie = w->pcie >> i & 1;
		pthread_mutex_unlock(&w->lock);
		err = dl_nvml_look(n, i, pcie, &look);
		pthread_mutex_lock(&w->lock);
		if (!err && w->look_cnt < LOOKS_MAX)
			w->looks[w->look_cnt++] = look;
		else if (!err)
			w->look_lost++;
		stop = w->stop;
		pthread_mutex_unlock(&w->lock);
	}
	return !stop;
}

static bool sleep_until(struct dl_gpu_watch *w, uint64_t ts)
{
	const struct timespec until = { .tv_sec = (time_t)(ts / DL_NS_PER_S), .tv_nsec = (long)(ts % DL_NS_PER_S) };
	bool stop;

	pthread_mutex_lock(&w->lock);
	while (!w->stop && pthread_cond_timedwait(&w->wake, &w->lock, &until) != ETIMEDOUT)
		;
	stop = w->stop;
	pthread_mutex_unlock(&w->lock);
	return !stop;
}

static void *watch_main(void *arg)
{
	struct dl_gpu_watch *w = arg;
	struct dl_nvml *n = NULL;
	struct dl_diag d = {};
	uint64_t next = dl_now_ns();
	uint32_t cnt = 0;
	int err;

	err = dl_nvml_open(&n, &d);
	if (!err)
		cnt = dl_nvml_cnt(n);
	for (uint32_t i = 0; i < cnt; i++)
		dl_nvml_facts(n, i, &w->facts[i]);
	pthread_mutex_lock(&w->lock);
	w->cnt = cnt;
	w->state = err ? -1 : 1;
	w->why = d;
	pthread_mutex_unlock(&w->lock);
	while (!err && ask_all(w, n, cnt)) {
		const uint64_t now = dl_now_ns();

		/* What took longer than the period is not caught up with. */
		next += w->o.period_ms * 1000000ULL;
		next = next < now ? now : next;
		if (!sleep_until(w, next))
			break;
	}
	dl_nvml_close(n);
	return NULL;
}

/* --- begin and end ----------------------------------------------------------------------------- */

int dl_gpu_watch_open(struct dl_gpu_watch **ret, const struct dl_gpu_watch_opts *opts)
{
	struct dl_gpu_watch *w = calloc(1, sizeof(*w));
	pthread_condattr_t attr;

	if (!w)
		return -ENOMEM;
	w->o = *opts;
	if (!w->o.sys)
		w->o.sys = secure_getenv("DLBPF_SYSFS");
	if (!w->o.sys || !w->o.sys[0])
		w->o.sys = "/sys";
	if (!w->o.period_ms)
		w->o.period_ms = 1000;
	pthread_mutex_init(&w->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&w->wake, &attr);
	pthread_condattr_destroy(&attr);
	*ret = w;
	return 0;
}

void dl_gpu_watch_start(struct dl_gpu_watch *w)
{
	sigset_t all, old;

	if (w->started)
		return;
	w->started = true;
	/* The recorder takes its signals by a descriptor: no other thread may have them. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	if (pthread_create(&w->thread, NULL, watch_main, w)) {
		w->state = -1;
		dl_fail(&w->why, -EAGAIN, "no thread could be made that asks NVML");
		w->thread = pthread_self();
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
}

static bool thread_ended(struct dl_gpu_watch *w)
{
	struct timespec until;

	if (!w->started || pthread_equal(w->thread, pthread_self()))
		return true;
	pthread_mutex_lock(&w->lock);
	w->stop = true;
	pthread_cond_signal(&w->wake);
	pthread_mutex_unlock(&w->lock);
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += (time_t)(END_NS / DL_NS_PER_S);
	return !pthread_clockjoin_np(w->thread, NULL, CLOCK_MONOTONIC, &until);
}

void dl_gpu_watch_close(struct dl_gpu_watch *w)
{
	if (!w)
		return;
	vec_free(&w->pending);
	vec_free(&w->seen);
	/* One that hangs in the driver still uses the rest. */
	if (!thread_ended(w))
		return;
	pthread_cond_destroy(&w->wake);
	pthread_mutex_destroy(&w->lock);
	free(w);
}

int dl_gpu_watch_device(struct dl_gpu_watch *w, const struct dl_ev_gpu_device *ev)
{
	struct pending *p = vec_push(&w->pending);
	size_t len = ev->h.size - sizeof(*ev);

	if (!p)
		return -ENOMEM;
	*p = (struct pending){ .pid = ev->h.pid, .device = ev->device, .pci = ev->pci };
	len = len < sizeof(p->name) ? len : sizeof(p->name) - 1;
	memcpy(p->name, ev + 1, len);
	dl_gpu_watch_start(w);
	return 0;
}

/* --- which device is it ------------------------------------------------------------------------- */

int32_t dl_gpu_visible(const char *visible, bool same_order, const char *const *uuids, uint32_t cnt, uint32_t device)
{
	if (!visible)
		return same_order && device < cnt ? (int32_t)device : -1;
	for (uint32_t at = 0;; at++) {
		size_t len = strcspn(visible, ",");
		int32_t index = -1;
		char *end;

		if (!strncmp(visible, "GPU-", 4)) {
			/* A prefix is enough, if it is one device's alone. */
			for (uint32_t i = 0; i < cnt; i++)
				if (!strncmp(uuids[i], visible, len))
					index = index == -1 ? (int32_t)i : -2;
		} else if (visible[0] >= '0' && visible[0] <= '9') {
			unsigned long nr = strtoul(visible, &end, 10);

			index = end == visible + len && nr < cnt ? (int32_t)nr : -1;
			if (index >= 0 && !same_order && at == device)
				return -1;
		}
		/* The first one that is none ends the list. */
		if (index < 0)
			return -1;
		if (at == device)
			return index;
		if (!visible[len])
			return -1;
		visible += len + 1;
	}
}

static uint32_t by_environment(const struct dl_gpu_watch *w, const struct pending *p)
{
	const char *uuids[DL_NVML_DEVICES], *order, *visible;
	_cleanup_free_ char *strings = NULL;
	_cleanup_close_ int fd = -1;
	bool alike = true;
	size_t len = 0;
	int32_t index;

	fd = dl_proc_open(p->pid);
	if (fd < 0 || dl_proc_strings(fd, "environ", ENVIRON_MAX, &strings, &len))
		return UNKNOWN;
	for (uint32_t i = 0; i < w->known; i++) {
		uuids[i] = w->facts[i].uuid;
		alike &= !strcmp(w->facts[i].name, w->facts[0].name);
	}
	order = dl_proc_var(strings, len, "CUDA_DEVICE_ORDER");
	visible = dl_proc_var(strings, len, "CUDA_VISIBLE_DEVICES");
	index = dl_gpu_visible(visible, alike || (order && !strcmp(order, "PCI_BUS_ID")), uuids, w->known, p->device);
	return index < 0 ? UNKNOWN : (uint32_t)index;
}

/* A program may set the variable itself before it uses CUDA: what its environment says counts only where
 * NVML sees the process there. *ret_later: it does not see it anywhere yet. */
static bool is_confirmed(const struct dl_gpu_watch *w, uint32_t pid, uint32_t index, bool *ret_later)
{
	*ret_later = true;
	vec_for_each(&w->seen, s) {
		if (s->pid != pid)
			continue;
		*ret_later = false;
		if (s->index == index)
			return true;
	}
	return false;
}

static uint32_t match(const struct dl_gpu_watch *w, const struct pending *p, uint32_t *ret_how, bool *ret_later)
{
	uint32_t index = UNKNOWN;

	*ret_later = false;
	*ret_how = DL_GPU_MATCH_NONE;
	for (uint32_t i = 0; p->pci && i < w->known; i++)
		if ((w->facts[i].pci ^ p->pci) < 8)	/* NVML does not name the function */
			index = i;
	if (p->pci) {
		*ret_how = DL_GPU_MATCH_PCI;
		return index;
	}
	if (w->known == 1 && !p->device && !w->facts[0].mig) {
		*ret_how = DL_GPU_MATCH_ONLY;
		return 0;
	}
	index = by_environment(w, p);
	if (index != UNKNOWN && is_confirmed(w, p->pid, index, ret_later)) {
		*ret_how = DL_GPU_MATCH_ENV;
		return index;
	}
	*ret_later &= index != UNKNOWN;
	return UNKNOWN;
}

/* --- what is told -------------------------------------------------------------------------------- */

static void add_sysfs(const struct dl_gpu_watch *w, struct dl_ev_gpu_link *ev)
{
	struct dl_pci pci;

	ev->numa_node = -1;
	if (!ev->pci || !dl_pci_read(w->o.sys, ev->pci, &pci))
		return;
	ev->flags |= DL_GL_SYSFS;
	ev->gen = ev->gen ? ev->gen : pci.gen;
	ev->width = ev->width ? ev->width : pci.width;
	ev->gen_max = ev->gen_max ? ev->gen_max : pci.gen_max;
	ev->width_max = ev->width_max ? ev->width_max : pci.width_max;
	ev->numa_node = pci.numa_node;
	ev->numa_nodes = pci.numa_nodes;
	ev->dist_min = pci.dist_min;
	ev->dist_max = pci.dist_max;
	_Static_assert(sizeof(pci.near_cpus) == sizeof(ev->near_cpus) + sizeof(ev->near_cpus2), "two halves");
	memcpy(&ev->near_cpus, pci.near_cpus, sizeof(ev->near_cpus));
	memcpy(&ev->near_cpus2, pci.near_cpus + sizeof(ev->near_cpus), sizeof(ev->near_cpus2));
}

static int tell_link(struct dl_gpu_watch *w, struct dl_sink *sink, const struct pending *p, uint32_t index, uint32_t how)
{
	struct dl_ev_gpu_link ev = DL_EVENT_INIT(gpu_link, DL_EV_GPU_LINK, dl_now_ns(), p->pid, p->pid);
	const struct dl_nvml_facts *f = index == UNKNOWN ? NULL : &w->facts[index];

	ev.index = index;
	ev.device = p->device;
	ev.match = how;
	ev.pci = p->pci;
	if (f) {
		ev.flags = DL_GL_NVML | (f->mig ? DL_GL_MIG : 0) | (f->simulated ? DL_GL_SIMULATED : 0);
		ev.pci = f->pci;
		ev.mem_total = f->mem_total;
		ev.gen = f->gen;
		ev.width = f->width;
		ev.gen_max = f->gen_max;
		ev.width_max = f->width_max;
		w->wanted |= 1ULL << index;
	}
	add_sysfs(w, &ev);
	return dl_emit_text(sink, &ev.h, f && f->name[0] ? f->name : p->name);
}

static int tell_pending(struct dl_gpu_watch *w, struct dl_sink *sink, bool last)
{
	size_t left = 0;
	int err = 0;

	for (size_t i = 0; i < w->pending.cnt && !err; i++) {
		struct pending p = w->pending.v[i];
		uint32_t how, index;
		bool later;

		index = match(w, &p, &how, &later);
		if (later && !last) {
			w->pending.v[left++] = p;
			continue;
		}
		vec_for_each(&w->seen, s)
			s->told |= s->pid == p.pid && s->index == index;
		/* One that NVML and sysfs know nothing of has nothing to tell. */
		if (index != UNKNOWN || p.pci)
			err = tell_link(w, sink, &p, index, how);
	}
	w->pending.cnt = left;
	return err;
}

/* Recorded processes on devices that no collector has told of. */
static int tell_seen(struct dl_gpu_watch *w, struct dl_sink *sink)
{
	int err = 0;

	vec_for_each(&w->seen, s) {
		const struct pending p = { .pid = s->pid, .device = UNKNOWN };
		bool waits = false;

		vec_for_each(&w->pending, it)
			waits |= it->pid == s->pid;
		if (s->told || waits || err)
			continue;
		s->told = true;
		err = tell_link(w, sink, &p, s->index, DL_GPU_MATCH_NONE);
	}
	return err;
}

static int note_seen(struct dl_gpu_watch *w, uint32_t pid, uint32_t index)
{
	struct seen *s;

	vec_for_each(&w->seen, it)
		if (it->pid == pid && it->index == index)
			return 0;
	s = vec_push(&w->seen);
	if (!s)
		return -ENOMEM;
	*s = (struct seen){ .pid = pid, .index = index };
	w->wanted |= 1ULL << index;
	return 0;
}

static int tell_look(struct dl_gpu_watch *w, struct dl_sink *sink, const struct dl_nvml_look *l)
{
	struct dl_ev_gpu_sample ev = DL_EVENT_INIT(gpu_sample, DL_EV_GPU_SAMPLE, l->ts, 0, 0);
	uint64_t most = 0;
	int err = 0;

	ev.index = l->index;
	ev.flags = l->flags;
	ev.util_gpu = l->util_gpu;
	ev.util_mem = l->util_mem;
	ev.mem_used = l->mem_used;
	ev.mem_total = l->mem_total;
	ev.rx_kbps = l->rx_kbps;
	ev.tx_kbps = l->tx_kbps;
	ev.gen = l->gen;
	ev.width = l->width;
	for (uint32_t i = 0; i < l->proc_cnt && !err; i++) {
		const struct dl_nvml_proc *p = &l->procs[i];

		if (!w->o.is_ours(p->pid, w->o.arg)) {
			ev.other_cnt++;
			continue;
		}
		if (!ev.proc_cnt++ || p->used > most) {
			ev.h.pid = ev.h.tid = p->pid;
			most = p->used;
		}
		ev.proc_used += p->used;
		err = note_seen(w, p->pid, l->index);
	}
	return err || !(w->wanted >> l->index & 1) ? err : sink->emit(sink, &ev.h);
}

static int tell_absent(struct dl_gpu_watch *w, struct dl_sink *sink)
{
	struct dl_ev_absent ev = DL_EVENT_INIT(absent, DL_EV_ABSENT, dl_now_ns(), 0, 0);

	ev.source = DL_SRC_GPU;
	if (w->told_absent)
		return 0;
	w->told_absent = true;
	return dl_emit_text(sink, &ev.h, w->why.msg);
}

int dl_gpu_watch_emit(struct dl_gpu_watch *w, struct dl_sink *sink, bool last)
{
	_cleanup_free_ struct dl_nvml_look *looks = NULL;
	uint32_t cnt;
	int err = 0, state;

	if (!w->started)
		return 0;
	pthread_mutex_lock(&w->lock);
	state = w->state;
	w->known = state == 1 ? w->cnt : 0;
	w->pcie = w->wanted;
	cnt = w->look_cnt;
	if (cnt) {
		looks = malloc(cnt * sizeof(*looks));
		if (looks)
			memcpy(looks, w->looks, cnt * sizeof(*looks));
		w->look_cnt = 0;
	}
	pthread_mutex_unlock(&w->lock);
	if (cnt && !looks)
		return -ENOMEM;
	if (!state && !last)
		return 0;
	if (state < 0)
		err = tell_absent(w, sink);
	for (uint32_t i = 0; i < cnt && !err; i++)
		err = tell_look(w, sink, &looks[i]);
	if (!err)
		err = tell_pending(w, sink, last);
	return err ? err : tell_seen(w, sink);
}
