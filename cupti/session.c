/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * One recording: CUPTI on, flushed every period, and off again.
 *
 * The activity interface is global to the process: kinds that are switched off here are off for
 * everybody. So the subscription, which only one tool can hold, is taken first; where it is taken
 * already the process is left alone. No timestamp callback is registered: it is global too, and
 * was wrong in several releases (docs/GPU.md); the recorder converts CUPTI's clock instead.
 */
#include "agent.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CLOCK_TRIES 64
#define CLOCK_GOOD_NS 300
#define TIDY_NS 60000000000ULL	/* no session of torch.profiler is as long: its traces would be enormous */
#define CUPTI_OLDEST 13	/* 11.0: older kernel records end before the correlation id's place */

static struct {
	struct cupti_api_table cupti;
	void *subscriber;
	unsigned int mode;
	bool running, loaded_here_seen;
	bool taken;		/* another tool has the records: hands off until the recorder goes */
	bool left_on;		/* it happened in this process before */
	uint64_t tidy_ns;	/* when what we left on for its sake is switched off; 0 nothing is */
	uint64_t dropped;	/* by CUPTI, so far */
	char path[512];
} ses;

static const int light_kinds[] = { CUPTI_ABI_KIND_MEMCPY, CUPTI_ABI_KIND_SYNC };
static const int std_kinds[] = {
	CUPTI_ABI_KIND_MEMCPY, CUPTI_ABI_KIND_SYNC, CUPTI_ABI_KIND_MEMSET,
	CUPTI_ABI_KIND_CONCURRENT_KERNEL,
};
static const int full_kinds[] = {
	CUPTI_ABI_KIND_MEMCPY, CUPTI_ABI_KIND_SYNC, CUPTI_ABI_KIND_MEMSET,
	CUPTI_ABI_KIND_CONCURRENT_KERNEL, CUPTI_ABI_KIND_OVERHEAD,
};

static uint64_t clock_ns(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ULL + (uint64_t)ts.tv_nsec;
}

bool session_running(void)
{
	return ses.running;
}

/* --- what is on ----------------------------------------------------------------------------- */

static void set_calls(bool on)
{
	ses.cupti.enable_driver_api(CUPTI_ABI_CU_DRIVER_GET_VERSION, on);	/* watch.c */
	for (unsigned int i = 0; i < calls_cnt; i++) {
		const struct call *c = &calls[i];

		if (ses.mode == DL_GPU_MODE_LIGHT && !c->light)
			continue;
		/* Numbers that this CUPTI does not know yet are refused, which is fine. */
		if (c->domain == DL_GPU_RUNTIME)
			ses.cupti.enable_runtime_api(c->cbid, on);
		else
			ses.cupti.enable_driver_api(c->cbid, on);
	}
}

static bool has_call_filter(void)
{
	return ses.mode != DL_GPU_MODE_FULL && ses.cupti.enable_runtime_api &&
	       ses.cupti.enable_driver_api;
}

static cupti_result set_kinds(bool on)
{
	const int *kinds = light_kinds;
	size_t cnt = sizeof(light_kinds) / sizeof(light_kinds[0]);
	cupti_result err, first = CUPTI_ABI_OK;

	if (ses.mode == DL_GPU_MODE_STD) {
		kinds = std_kinds;
		cnt = sizeof(std_kinds) / sizeof(std_kinds[0]);
	} else if (ses.mode == DL_GPU_MODE_FULL) {
		kinds = full_kinds;
		cnt = sizeof(full_kinds) / sizeof(full_kinds[0]);
	}
	for (size_t i = 0; i < cnt; i++) {
		err = on ? ses.cupti.enable(kinds[i]) : ses.cupti.disable(kinds[i]);
		if (err && !first)
			first = err;
		/* After a first failure a second Enable can leave a thread behind (12.9 and older). */
		if (err && on)
			return err;
	}
	if (has_call_filter()) {
		set_calls(on);
	} else {
		/* Without a filter all calls are recorded, and convert.c drops what is not wanted. */
		err = on ? ses.cupti.enable(CUPTI_ABI_KIND_RUNTIME) :
			   ses.cupti.disable(CUPTI_ABI_KIND_RUNTIME);
		if (!err)
			err = on ? ses.cupti.enable(CUPTI_ABI_KIND_DRIVER) :
				   ses.cupti.disable(CUPTI_ABI_KIND_DRIVER);
		if (err && !first)
			first = err;
	}
	return first;
}

/* --- what is written beside the records ------------------------------------------------------ */

/* The pair read in the shortest time of several tries: the others were interrupted. */
static void put_clock(void)
{
	struct dl_ev_gpu_clock best = {
		.h = { .size = sizeof(best), .kind = DL_EV_GPU_CLOCK, .cpu = DL_CPU_NONE },
		.bracket_ns = UINT64_MAX,
	};

	best.h.pid = ring_header()->pid;
	for (int i = 0; i < CLOCK_TRIES && best.bracket_ns > CLOCK_GOOD_NS; i++) {
		uint64_t before, after, gpu = 0;

		before = clock_ns(CLOCK_MONOTONIC);
		if (ses.cupti.get_timestamp(&gpu) || !gpu)
			return;
		after = clock_ns(CLOCK_MONOTONIC);
		if (after - before >= best.bracket_ns)
			continue;
		best.bracket_ns = after - before;
		best.h.ts = before + (after - before) / 2;
		best.gpu = gpu;
		best.realtime = clock_ns(CLOCK_REALTIME);
	}
	if (best.bracket_ns != UINT64_MAX)
		ring_put(&best, sizeof(best), true);
}

static void put_drops(void)
{
	const struct convert_counts *c = convert_counts();
	struct dl_ev_gpu_drop ev = {
		.h = { .size = sizeof(ev), .kind = DL_EV_GPU_DROP, .cpu = DL_CPU_NONE },
		.unknown = c->unknown, .zero = c->zero, .ring = ring_lost_cnt(),
	};
	size_t cnt = 0;

	if (!ses.cupti.dropped(NULL, 0, &cnt))
		ses.dropped += cnt;	/* the library starts again from 0 each time */
	ev.cupti = ses.dropped;
	ev.h.pid = ring_header()->pid;
	ev.h.ts = clock_ns(CLOCK_MONOTONIC);
	ring_header()->dropped_cupti = ses.dropped;
	ring_put(&ev, sizeof(ev), true);
}

/* "0000:3b:00.0": what tells which of the machine's devices this is, whatever CUDA_VISIBLE_DEVICES says. */
static uint64_t pci_of(int device)
{
	int (*get)(char *, int, int) = (int (*)(char *, int, int))find_driver("cuDeviceGetPCIBusId");
	unsigned int domain, bus, dev, fn;
	char text[32] = "";

	if (!get || get(text, sizeof(text), device) || sscanf(text, "%x:%x:%x.%x", &domain, &bus, &dev, &fn) != 4)
		return 0;
	return (uint64_t)domain << 16 | (bus & 0xff) << 8 | (dev & 0x1f) << 3 | (fn & 7);
}

static void put_devices(void)
{
	int (*get_cnt)(int *) = (int (*)(int *))find_driver("cuDeviceGetCount");
	int (*get_name)(char *, int, int) = (int (*)(char *, int, int))find_driver("cuDeviceGetName");
	int (*get_mem)(size_t *, int) = (int (*)(size_t *, int))find_driver("cuDeviceTotalMem_v2");
	int cnt = 0;

	if (!get_cnt || !get_name || get_cnt(&cnt))
		return;
	for (int i = 0; i < cnt && i < 64; i++) {
		char name[256] = "";
		size_t mem = 0;
		struct dl_ev_gpu_device ev = {
			.h = { .kind = DL_EV_GPU_DEVICE, .cpu = DL_CPU_NONE },
			.device = (uint32_t)i, .flags = ring_header()->flags, .pci = pci_of(i),
		};

		if (get_name(name, sizeof(name), i))
			continue;
		if (get_mem && !get_mem(&mem, i))
			ev.mem_total = mem;
		ev.h.pid = ring_header()->pid;
		ev.h.ts = clock_ns(CLOCK_MONOTONIC);
		ring_put_text(&ev.h, sizeof(ev), name, strnlen(name, sizeof(name)), true);
	}
}

static void put_source(uint32_t version, uint32_t state, uint64_t until)
{
	int (*get)(int *) = (int (*)(int *))find_driver("cuDriverGetVersion");
	const char *text = ring_header()->text;
	int driver = 0;
	struct dl_ev_gpu_source ev = {
		.h = { .kind = DL_EV_GPU_SOURCE, .cpu = DL_CPU_NONE },
		.state = state, .version = version, .flags = ring_header()->flags, .until = until,
	};

	if (get && !get(&driver))
		ev.driver = (uint32_t)driver;
	ev.h.pid = ring_header()->pid;
	ev.h.ts = clock_ns(CLOCK_MONOTONIC);
	ring_put_text(&ev.h, sizeof(ev), text, strnlen(text, sizeof(ring_header()->text)), true);
}

/* --- start, flush, stop ---------------------------------------------------------------------- */

static int fail(cupti_result err, const char *what)
{
	const char *text = NULL;

	if (ses.cupti.result_string)
		ses.cupti.result_string(err, &text);
	ring_header()->error = err;
	ring_set_text("%s: %s (%d)%s", what, text ? text : "CUPTI error", err,
		      err == CUPTI_ABI_ERR_NOT_INIT ? ": CUPTI is newer than the driver" : "");
	return -EIO;
}

/* "13.0" and the like. 18 is what 11.8 and 12.1 both answer: their SONAMEs tell them apart. */
static void version_text(char *buf, size_t sz, uint32_t v)
{
	static const char *const names[] = {
		[13] = "11.0", [14] = "11.1", [15] = "11.2", [16] = "11.5", [17] = "11.6",
		[19] = "12.0", [20] = "12.2", [21] = "12.3", [22] = "12.4", [23] = "12.5",
		[24] = "12.6", [26] = "12.8", [27] = "12.9", [28] = "12.9.1",
	};

	if (v >= 100000)
		snprintf(buf, sz, "%u.%u", v / 10000, v / 100 % 100);
	else if (v == 18)
		snprintf(buf, sz, "%s", strstr(ses.path, "so.11") ? "11.8" : "12.1");
	else if (v < sizeof(names) / sizeof(names[0]) && names[v])
		snprintf(buf, sz, "%s", names[v]);
	else
		snprintf(buf, sz, "version %u", v);
}

static void say_which(uint32_t version, bool simulated)
{
	char v[24];

	version_text(v, sizeof(v), version);
	ring_header()->version = version;
	ring_header()->flags = simulated ? DL_GPU_SIMULATED : 0;
	ring_set_text("CUPTI %s%s, %.90s", v, simulated ? " (simulated)" : "", ses.path);
}

static void on_callback(void *userdata, int domain, uint32_t cbid, const void *data)
{
	(void)userdata, (void)domain, (void)cbid, (void)data;	/* no callback is enabled */
}

/* Only one tool can hold it: this is how another one shows. */
static int subscribe(void)
{
	cupti_result err;

	if (!ses.cupti.subscribe || !ses.cupti.unsubscribe)
		return 0;
	err = ses.cupti.subscribe(&ses.subscriber, on_callback, NULL);
	if (!err)
		return 0;
	ses.subscriber = NULL;
	if (err != CUPTI_ABI_ERR_SUBSCRIBERS && err != CUPTI_ABI_ERR_LIMIT)
		return fail(err, "cuptiSubscribe");
	ring_header()->error = err;
	ring_set_text("another tool holds CUPTI (torch.profiler, nsys, ncu, cuda-gdb, ...)");
	return -EBUSY;
}

static void unsubscribe(void)
{
	if (ses.subscriber)
		ses.cupti.unsubscribe(ses.subscriber);
	ses.subscriber = NULL;
}

/* Where and which CUPTI; 0, or -EAGAIN to ask again, or -ENOENT. */
static int open_cupti(uint32_t *ret_version)
{
	bool simulated = false, here = false;
	uint32_t version = 0;
	cupti_result err;

	switch (find_cupti(&ses.cupti, ses.path, sizeof(ses.path), &simulated, &here)) {
	case FIND_OK:
		break;
	case FIND_LATER:
		ring_set_text("waiting for PyTorch to load its own libcupti");
		return -EAGAIN;
	default:
		ring_header()->error = -ENOENT;
		ring_set_text("no libcupti: pip install nvidia-cuda-cupti-cu12 (or -cu11), or set "
			      "DLBPF_LIBCUPTI to one");
		return -ENOENT;
	}
	if (here && !ses.loaded_here_seen) {
		ses.loaded_here_seen = true;
		agent_flush_at_exit();
	}
	err = ses.cupti.get_version(&version);
	if (err)
		return fail(err, "cuptiGetVersion");	/* 13.4 needs the driver even for this */
	if (version < CUPTI_OLDEST) {
		ring_set_text("CUPTI API version %u is older than CUDA 11.0", version);
		return -ENOENT;
	}
	say_which(version, simulated);
	*ret_version = version;
	return 0;
}

int session_start(unsigned int mode)
{
	uint32_t version = 0;
	cupti_result err;
	int rc;

	if (ses.taken)
		return -EBUSY;
	ring_header()->error = 0;
	ring_header()->busy = 0;
	rc = open_cupti(&version);
	if (rc)
		return rc;
	rc = pool_open();
	if (rc) {
		ring_set_text("no memory for CUPTI's buffers");
		return rc;
	}
	rc = subscribe();
	if (rc) {
		ring_header()->busy = rc == -EBUSY;
		return rc;
	}
	ses.mode = mode;
	convert_begin(&ses.cupti, mode, ring_header()->pid);
	names_forget();
	/* Without it, thread ids are truncated pthread_self() values. */
	ses.cupti.set_thread_id_type(CUPTI_ABI_THREAD_ID_SYSTEM);
	/* Synchronisation records of polls that found the work unfinished are noise. */
	if (ses.cupti.enable_all_sync)
		ses.cupti.enable_all_sync(0);
	watch_begin(clock_ns(CLOCK_MONOTONIC), ses.left_on);
	err = ses.cupti.register_callbacks(pool_request, pool_complete);
	if (err) {
		unsubscribe();
		return fail(err, "cuptiActivityRegisterCallbacks");
	}
	put_clock();	/* nothing recorded is older than this pair */
	err = set_kinds(true);
	if (err) {
		ses.cupti.disable(CUPTI_ABI_KIND_MEMCPY);
		unsubscribe();
		return fail(err, "cuptiActivityEnable");
	}
	put_source(version, DL_GPU_COLLECTOR, 0);
	put_devices();
	ring_publish();
	ses.tidy_ns = 0;
	ses.running = true;
	return 0;
}

static void collect(uint32_t flag)
{
	struct dl_gpu_ring *hdr = ring_header();
	cupti_result err;

	watch_beat();
	err = ses.cupti.flush_all(flag);
	if (err)
		hdr->error = err;
	pool_drain(convert_buffer);
	put_clock();
	put_drops();
	ring_publish();
	hdr->flush_cnt++;
	hdr->last_flush_ns = clock_ns(CLOCK_MONOTONIC);
}

/* What is switched on is the other tool's now, and our switching it off would end its recording. */
static void give_way(enum watch_result how, uint64_t until)
{
	struct dl_gpu_ring *hdr = ring_header();

	ses.running = false;
	ses.taken = true;
	ses.left_on = true;
	ses.tidy_ns = clock_ns(CLOCK_MONOTONIC) + TIDY_NS;
	hdr->busy = 1;
	ring_set_text(how == WATCH_LOST ? "another tool took CUPTI's records over (torch.profiler?)" :
		      "another tool was recording with CUPTI when dlbpf came (torch.profiler?)");
	put_source(hdr->version, DL_GPU_BUSY, until);
	ring_publish();
	unsubscribe();
}

int session_flush(void)
{
	enum watch_result how;
	uint64_t until;

	collect(0);
	how = watch_look(clock_ns(CLOCK_MONOTONIC), &until);
	if (how == WATCH_OURS)
		return 0;
	give_way(how, until);
	return -EBUSY;
}

void session_forget(void)
{
	ses.taken = false;
	ring_header()->busy = 0;
	ring_header()->error = 0;
}

/*
 * The other tool switches off the kinds that it uses itself. Calls that only we asked for would go on
 * filling buffers of its for ever.
 */
int session_tidy(void)
{
	uint64_t now = clock_ns(CLOCK_MONOTONIC);

	if (!ses.tidy_ns || ses.running)
		return -1;
	if (now < ses.tidy_ns)
		return (int)((ses.tidy_ns - now) / 1000000) + 1;
	ses.tidy_ns = 0;
	if (has_call_filter())
		set_calls(false);
	else
		ses.cupti.disable(CUPTI_ABI_KIND_DRIVER);
	ses.cupti.disable(CUPTI_ABI_KIND_SYNC);
	if (ses.mode == DL_GPU_MODE_FULL)
		ses.cupti.disable(CUPTI_ABI_KIND_OVERHEAD);
	return -1;
}

void session_stop(void)
{
	enum watch_result how;
	uint64_t until;

	if (!ses.running)
		return;
	ses.running = false;
	collect(0);
	how = watch_look(clock_ns(CLOCK_MONOTONIC), &until);
	if (how != WATCH_OURS || watch_doubts()) {
		give_way(how == WATCH_TOOK ? how : WATCH_LOST, until);
		pool_trim();
		return;
	}
	set_kinds(false);
	/* With nothing enabled any more, this also brings what was not complete. */
	collect(CUPTI_ABI_FLUSH_FORCED);
	if (ses.cupti.enable_all_sync)
		ses.cupti.enable_all_sync(1);	/* the default */
	unsubscribe();
	pool_trim();
}
