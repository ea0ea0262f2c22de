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
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CLOCK_TRIES 64
#define CLOCK_GOOD_NS 300
#define CUPTI_OLDEST 13	/* 11.0: older kernel records end before the correlation id's place */

static struct {
	struct cupti_api_table cupti;
	unsigned int mode;
	uint32_t version;
	bool running, loaded_here_seen, simulated;
	uint64_t dropped;	/* by CUPTI, so far */
	uint64_t taken_ns;	/* another tool gets the records since then; 0 none does */
	uint64_t quiet_ns;	/* kinds were switched on again for want of work since then; 0 not */
	uint64_t quiet_work;
	uint64_t missing_ns;	/* time without our records, in this session */
	char path[512];
} ses;

/* What each mode records. OVERHEAD is a few records a second, and no reason to fail. */
static const struct {
	int kind;
	unsigned int mode;	/* the first that has it */
	bool optional;
} kinds[] = {
	{ CUPTI_ABI_KIND_MEMCPY, DL_GPU_MODE_LIGHT, false },
	{ CUPTI_ABI_KIND_SYNC, DL_GPU_MODE_LIGHT, false },
	{ CUPTI_ABI_KIND_MEMSET, DL_GPU_MODE_STD, false },
	{ CUPTI_ABI_KIND_CONCURRENT_KERNEL, DL_GPU_MODE_STD, false },
	{ CUPTI_ABI_KIND_OVERHEAD, DL_GPU_MODE_STD, true },
};
#define KIND_CNT (sizeof(kinds) / sizeof(kinds[0]))

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

/* Some calls only, or whole kinds of them: the filter that a mode uses. */
static bool filters(unsigned int mode)
{
	return mode != DL_GPU_MODE_FULL && use_has_call_filter();
}

static void set_calls(unsigned int mode, bool on)
{
	for (unsigned int i = 0; i < calls_cnt; i++)
		if (calls[i].light || mode != DL_GPU_MODE_LIGHT)
			use_call(calls[i].domain, calls[i].cbid, on);
}

void use_beat(bool on)
{
	if (use_has_call_filter())
		use_call(DL_GPU_DRIVER, CUPTI_ABI_DRIVER_GET_VERSION, on);
	else if (on)
		use_kind(CUPTI_ABI_KIND_DRIVER, true);
}

/* Without a filter all calls are recorded, and convert.c drops what is not wanted. */
static cupti_result set_all_calls(bool on)
{
	cupti_result err = use_kind(CUPTI_ABI_KIND_RUNTIME, on);
	cupti_result second = err && on ? err : use_kind(CUPTI_ABI_KIND_DRIVER, on);

	return err ? err : second;
}

static cupti_result calls_on(unsigned int mode)
{
	if (!filters(mode))
		return set_all_calls(true);
	set_calls(mode, true);
	use_beat(true);
	return CUPTI_ABI_OK;
}

static cupti_result calls_off(unsigned int mode)
{
	if (!filters(mode))
		return set_all_calls(false);
	set_calls(mode, false);
	use_beat(false);
	return CUPTI_ABI_OK;
}

static cupti_result all_on(unsigned int mode)
{
	for (size_t i = 0; i < KIND_CNT; i++) {
		cupti_result err = kinds[i].mode > mode ? CUPTI_ABI_OK : use_kind(kinds[i].kind, true);

		/* After a first failure a second Enable can leave a thread behind (12.9 and older). */
		if (err && !kinds[i].optional)
			return err;
	}
	return calls_on(mode);
}

static void all_off(unsigned int mode)
{
	for (size_t i = 0; i < KIND_CNT; i++)
		if (kinds[i].mode <= mode)
			use_kind(kinds[i].kind, false);
	calls_off(mode);
}

/* The kinds that must be on; without OVERHEAD, which may have been refused. */
static size_t wanted_kinds(int *ret)
{
	size_t n = 0;

	for (size_t i = 0; i < KIND_CNT; i++)
		if (kinds[i].mode <= ses.mode && !kinds[i].optional)
			ret[n++] = kinds[i].kind;
	return n;
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
		if (use_timestamp(&gpu) || !gpu)
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

	if (!use_dropped(&cnt))
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

static void put_source(uint32_t state)
{
	int (*get)(int *) = (int (*)(int *))find_driver("cuDriverGetVersion");
	const char *text = ring_header()->text;
	int driver = 0;
	struct dl_ev_gpu_source ev = {
		.h = { .kind = DL_EV_GPU_SOURCE, .cpu = DL_CPU_NONE },
		.state = state, .version = ses.version, .flags = ring_header()->flags,
		.until = state == DL_GPU_BUSY ? ses.taken_ns : 0,
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

static void say_which(void)
{
	char v[24], missing[64] = "";

	version_text(v, sizeof(v), ses.version);
	if (ses.missing_ns)
		snprintf(missing, sizeof(missing), " without %.1f s that another tool took",
			 (double)ses.missing_ns / 1e9);
	ring_header()->version = ses.version;
	ring_header()->flags = ses.simulated ? DL_GPU_SIMULATED : 0;
	ring_set_text("CUPTI %s%s%s, %.90s", v, ses.simulated ? " (simulated)" : "", missing, ses.path);
}

/* Only one tool can hold it: this is how another one shows. */
static int subscribe(void)
{
	cupti_result err = use_open(&ses.cupti);

	if (!err)
		return 0;
	if (err != CUPTI_ABI_ERR_SUBSCRIBERS)
		return fail(err, "cuptiSubscribe");
	ring_header()->error = err;
	ring_set_text("busy (%.64s): another tool holds CUPTI", use_holder()[0] ? use_holder() :
		      "torch.profiler, nsys, ncu, cuda-gdb or the like");
	return -EBUSY;
}

/* Where and which CUPTI; 0, or -EAGAIN to ask again, or -ENOENT. */
static int open_cupti(void)
{
	bool here = false;
	uint32_t version = 0;
	cupti_result err;

	switch (find_cupti(&ses.cupti, ses.path, sizeof(ses.path), &ses.simulated, &here)) {
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
	ses.version = version;
	say_which();
	return 0;
}

int session_start(unsigned int mode)
{
	cupti_result err;
	int rc;

	ring_header()->error = 0;
	ring_header()->busy = 0;
	ses.missing_ns = ses.taken_ns = ses.quiet_ns = 0;
	rc = open_cupti();
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
	convert_begin(&ses.cupti, ring_header()->pid);
	convert_mode(mode);
	names_forget();
	use_options(true);
	err = use_register();
	if (err) {
		use_close();
		return fail(err, "cuptiActivityRegisterCallbacks");
	}
	put_clock();	/* nothing recorded is older than this pair */
	err = all_on(mode);
	if (err) {
		use_kind(CUPTI_ABI_KIND_MEMCPY, false);
		use_close();
		return fail(err, "cuptiActivityEnable");
	}
	others_begin(clock_ns(CLOCK_MONOTONIC));
	put_source(DL_GPU_COLLECTOR);
	put_devices();
	ring_publish();
	ses.running = true;
	return 0;
}

void session_switch(unsigned int mode)
{
	unsigned int old = ses.mode;

	/* What is new first, then off with what is not wanted any more: what both have stays on. Records
	 * that are still under way are judged by the new mode. */
	if (ses.taken_ns) {
		ses.mode = mode;
		convert_mode(mode);
		return;
	}
	if (mode < old) {
		session_flush();
		if (ses.taken_ns) {
			session_switch(mode);
			return;
		}
	}
	ses.mode = mode;
	all_on(mode);
	for (size_t i = 0; i < KIND_CNT; i++)
		if (kinds[i].mode <= old && kinds[i].mode > mode)
			use_kind(kinds[i].kind, false);
	if (filters(old) != filters(mode)) {
		calls_off(old);
		calls_on(mode);		/* switching a kind off may undo the filter */
	} else if (filters(mode) && mode < old) {
		for (unsigned int i = 0; i < calls_cnt; i++)
			if (!calls[i].light)
				use_call(calls[i].domain, calls[i].cbid, false);
	}
	convert_mode(mode);
}

static void collect(uint32_t flag)
{
	struct dl_gpu_ring *hdr = ring_header();
	cupti_result err = ses.cupti.flush_all(flag);

	if (err)
		hdr->error = err;
	pool_drain(convert_buffer);
	put_clock();
	put_drops();
	ring_publish();
	hdr->flush_cnt++;
	hdr->last_flush_ns = clock_ns(CLOCK_MONOTONIC);
}

/* --- another tool takes the records over (others.c) ------------------------------------------------ */

/* After how many seconds the records are taken back where CUPTI cannot be asked whether the other
 * tool is done; 0 not in this recording. */
static uint64_t retake_ns(void)
{
	const char *s = getenv("DLBPF_GPU_RETAKE_S");
	uint64_t n = 0;

	for (; s && *s >= '0' && *s <= '9' && n < 1000000; s++)
		n = n * 10 + (uint64_t)(*s - '0');
	return n * 1000000000ULL;
}

static void taken(uint64_t now)
{
	ses.taken_ns = others_ours_ns();
	ring_set_text("busy (%s): another tool gets CUPTI's records, none came for %.1f s%s",
		      find_torch() ? "torch.profiler?" : "not known", (double)(now - ses.taken_ns) / 1e9,
		      use_can_ask_kinds() || retake_ns() ? "" : "; over for this recording");
	ring_header()->busy = 1;
	put_source(DL_GPU_BUSY);
	ring_publish();
}

/* The records come to us again. */
static void regained(uint64_t now, uint64_t since)
{
	ses.missing_ns += now - since;
	ses.taken_ns = ses.quiet_ns = 0;
	ring_header()->busy = 0;
	say_which();
	others_begin(now);
	put_clock();
	put_source(DL_GPU_COLLECTOR);
	ring_publish();
}

/* The other tool is done: it switched off kinds that were on. Its last records go to it first. */
static void retake(uint64_t now)
{
	ses.cupti.flush_all(CUPTI_ABI_FLUSH_FORCED);
	pool_reclaim();
	if (use_register() || all_on(ses.mode))
		return;		/* tried again with the next look */
	use_options(true);
	regained(now, ses.taken_ns);
}

static void wait_for_other(void)
{
	int want[KIND_CNT];
	size_t cnt = wanted_kinds(want);
	uint64_t now = clock_ns(CLOCK_MONOTONIC), limit = retake_ns();

	put_clock();
	ring_publish();
	if (others_kinds_gone(want, cnt, now) || (limit && now - ses.taken_ns >= limit))
		retake(now);
}

static void look_for_others(void)
{
	int want[KIND_CNT];
	size_t cnt = wanted_kinds(want);
	uint64_t now = clock_ns(CLOCK_MONOTONIC), since;

	if (ses.quiet_ns && convert_counts()->work != ses.quiet_work) {
		regained(now, ses.quiet_ns);	/* it was that indeed */
		return;
	}
	switch (others_look(want, cnt, now, ring_lost_cnt() + ses.dropped)) {
	case OTHERS_NONE:
		return;
	case OTHERS_TAKEN:
		taken(now);
		return;
	case OTHERS_QUIET:
		ses.quiet_ns = others_ours_ns();
		ses.quiet_work = convert_counts()->work;
		all_on(ses.mode);
		return;
	case OTHERS_OFF:
		since = others_ours_ns();
		if (!all_on(ses.mode))
			regained(now, since);
		return;
	}
}

void session_flush(void)
{
	if (ses.taken_ns) {
		wait_for_other();
		return;
	}
	collect(0);
	look_for_others();
}

/* The other tool's session must not be switched off under it: what it uses, it switches off itself. */
static void stop_taken(void)
{
	use_kind(CUPTI_ABI_KIND_SYNC, false);	/* torch.profiler may leave it alone */
	if (filters(ses.mode))
		calls_off(ses.mode);
	ses.taken_ns = 0;
	put_clock();
	put_drops();
	ring_publish();
}

void session_stop(void)
{
	if (!ses.running)
		return;
	ses.running = false;
	if (!ses.taken_ns) {
		collect(0);
		look_for_others();
	}
	if (ses.taken_ns) {
		stop_taken();
	} else {
		all_off(ses.mode);
		/* With nothing enabled any more, this also brings what was not complete. */
		collect(CUPTI_ABI_FLUSH_FORCED);
	}
	use_options(false);
	use_close();
	pool_trim();
}
