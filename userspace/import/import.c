/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* From a file of another tool to sorted events: what the formats have in common. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "import/import_int.h"

#define NAMES_MAX (1u << 20)	/* distinct names; more is no program */
#define THREADS_MAX (1u << 17)
#define TEXT_MAX (DL_EVENT_MAX_SZ - sizeof(struct dl_ev_string))

int dl_import_name(struct dl_import *imp, uint64_t ts, const char *text, size_t len, uint32_t *ret, struct dl_diag *d)
{
	struct {
		struct dl_ev_string ev;
		char text[TEXT_MAX];
	} s = { .ev.h = { .kind = DL_EV_STRING, .ts = ts, .cpu = DL_CPU_NONE } };
	uint64_t hash, id;
	int err;

	*ret = 0;
	if (!len)
		return 0;
	if (len > TEXT_MAX)
		len = TEXT_MAX;
	hash = dl_hash_bytes(text, len);
	if (dl_map_get(&imp->names, hash, &id)) {
		*ret = (uint32_t)id;
		return 0;
	}
	if (imp->names.cnt >= NAMES_MAX)
		return 0;
	id = DL_IMPORT_NAME_BASE + imp->names.cnt + 1;
	if (dl_map_set(&imp->names, hash, id))
		return dl_oom(d);
	s.ev.h.size = (uint16_t)(sizeof(s.ev) + len);
	s.ev.id = (uint32_t)id;
	memcpy(s.text, text, len);
	err = dl_spill_add(imp->spill, &s.ev.h, d);
	*ret = err ? 0 : (uint32_t)id;
	return err;
}

int dl_import_event(struct dl_import *imp, struct dl_hdr *ev, int64_t start_ns, int64_t dur_ns,
		    struct dl_diag *d)
{
	int64_t end_ns;
	int64_t abs_ns;

	/* Far from the ends of the numbers, so that no clock that is added later overflows. */
	if (start_ns < 0 || dur_ns < 0 || __builtin_add_overflow(start_ns, dur_ns, &end_ns) ||
	    __builtin_add_overflow(end_ns, imp->info.base_ns, &abs_ns) || abs_ns > INT64_MAX / 2) {
		imp->info.invalid++;
		return 0;
	}
	ev->ts = (uint64_t)start_ns;
	ev->cpu = DL_CPU_NONE;
	((struct dl_ev_span *)ev)->end = (uint64_t)end_ns;
	if (!imp->any || ev->ts < imp->first)
		imp->first = ev->ts;
	if (!imp->any || (uint64_t)end_ns > imp->last)
		imp->last = (uint64_t)end_ns;
	imp->any = true;
	return dl_spill_add(imp->spill, ev, d);
}

struct dl_import_thread *dl_import_thread(struct dl_import *imp, uint32_t pid, uint32_t tid)
{
	uint64_t key = (uint64_t)pid << 32 | tid, at;
	struct dl_import_thread *th;

	if (dl_map_get(&imp->thread_at, key, &at))
		return &imp->threads.v[at];
	if (imp->threads.cnt >= THREADS_MAX)
		return &imp->threads.v[0];
	at = imp->threads.cnt;
	th = vec_push(&imp->threads);
	if (!th || dl_map_set(&imp->thread_at, key, at))
		return NULL;
	th->pid = pid;
	th->tid = tid;
	return th;
}

struct dl_import_device *dl_import_device(struct dl_import *imp, uint32_t id)
{
	struct dl_import_device *dev;

	vec_for_each(&imp->devices, it) {
		if (it->id == id)
			return it;
	}
	if (imp->devices.cnt > 4096)
		return &imp->devices.v[0];
	dev = vec_push(&imp->devices);
	if (dev)
		dev->id = id;
	return dev;
}

int dl_import_span(struct dl_import *imp, uint32_t pid, uint32_t tid, int64_t start_ns, int64_t dur_ns,
		   const char *text, uint32_t kind, struct dl_diag *d)
{
	struct dl_ev_span ev = { .h = { .kind = DL_EV_SPAN, .size = sizeof(ev), .pid = pid, .tid = tid }, .kind = kind };
	struct dl_import_thread *th;
	int err;

	if (start_ns < 0 || dur_ns < 0 || start_ns > INT64_MAX / 4 || dur_ns > INT64_MAX / 4) {
		imp->info.invalid++;
		return 0;
	}
	th = dl_import_thread(imp, pid, tid);
	if (!th)
		return dl_oom(d);
	if (kind == DL_SPAN_OP) {
		if ((uint64_t)(start_ns + dur_ns) <= th->op_end && (uint64_t)start_ns >= th->op_start)
			return 0;
		th->op_start = (uint64_t)start_ns;
		th->op_end = (uint64_t)(start_ns + dur_ns);
	}
	err = dl_import_name(imp, (uint64_t)start_ns, text, strlen(text), &ev.name, d);
	if (err)
		return err;
	imp->info.spans++;
	return dl_import_event(imp, &ev.h, start_ns, dur_ns, d);
}

/* --- names --- */

static bool has(const char *name, const char *part)
{
	return strstr(name, part) != NULL;
}

uint32_t dl_import_call_class(const char *name)
{
	static const struct { const char *part; uint32_t cls; } rules[] = {
		{ "GraphLaunch", DL_CALL_GRAPH_LAUNCH },
		{ "Instantiate", DL_CALL_GRAPH }, { "BeginCapture", DL_CALL_GRAPH }, { "EndCapture", DL_CALL_GRAPH },
		{ "GraphUpload", DL_CALL_GRAPH },
		{ "LaunchHostFunc", DL_CALL_OTHER }, { "Launch", DL_CALL_LAUNCH },
		{ "Memset", DL_CALL_MEMSET }, { "Memcpy", DL_CALL_COPY },
		{ "Synchronize", DL_CALL_SYNC },
		{ "MallocHost", DL_CALL_HOST_ALLOC }, { "HostAlloc", DL_CALL_HOST_ALLOC },
		{ "HostMalloc", DL_CALL_HOST_ALLOC }, { "HostRegister", DL_CALL_HOST_ALLOC },
		{ "HostUnregister", DL_CALL_FREE }, { "Free", DL_CALL_FREE }, { "MemUnmap", DL_CALL_FREE },
		{ "MemRelease", DL_CALL_FREE },
		{ "Malloc", DL_CALL_ALLOC }, { "MemAlloc", DL_CALL_ALLOC }, { "MemCreate", DL_CALL_ALLOC },
		{ "MemMap", DL_CALL_ALLOC }, { "AddressReserve", DL_CALL_ALLOC },
		{ "ModuleLoad", DL_CALL_MODULE }, { "LibraryLoad", DL_CALL_MODULE },
	};

	/* The driver's own copies have the direction in their names: cuMemcpyHtoDAsync_v2. */
	for (size_t i = 0; i < ARRAY_SIZE(rules); i++) {
		if (has(name, rules[i].part))
			return rules[i].cls;
	}
	return DL_CALL_OTHER;
}

uint32_t dl_import_span_kind(const char *name)
{
	if (has(name, "DataLoader") && has(name, ".__next__"))
		return has(name, "SingleProcess") ? DL_SPAN_DATA_INLINE : DL_SPAN_DATA;
	return strncmp(name, "ProfilerStep", 12) ? DL_SPAN_NONE : DL_SPAN_STEP;
}

/* --- files --- */

/* An SQLite file says so in its first bytes; anything else is taken for JSON, which has none. */
static int looks_like_sqlite(const char *path, bool *ret, struct dl_diag *d)
{
	static const char magic[16] = "SQLite format 3";
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	char head[16];
	ssize_t n;

	if (fd < 0)
		return dl_fail_errno(d, -errno, "cannot open %s", path);
	n = read(fd, head, sizeof(head));
	if (n < 0)
		return dl_fail_errno(d, -errno, "cannot read %s", path);
	if (!n)
		return dl_fail(d, -ENODATA, "%s is empty", path);
	*ret = n == sizeof(head) && !memcmp(head, magic, sizeof(magic));
	return 0;
}

static int no_records(const struct dl_import *imp, struct dl_diag *d)
{
	const char *how = imp->info.format == DL_IMPORT_KINETO ?
		"profile with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]" : "profile with nsys --trace=cuda";

	if (imp->info.cut)
		return dl_fail(d, -ENODATA, "%s\nNo GPU record lies before that", imp->info.cut);
	return dl_fail(d, -ENODATA, "%s holds no GPU records: %s", imp->path, how);
}

static int read_any(struct dl_import *imp, struct dl_diag *d)
{
	struct dl_import_info *info = &imp->info;
	bool sqlite = false;
	int err = looks_like_sqlite(imp->path, &sqlite, d);

	if (err)
		return err;
	info->format = sqlite ? DL_IMPORT_NSYS : DL_IMPORT_KINETO;
	err = sqlite ? dl_nsys_read(imp, d) : dl_kineto_read(imp, d);
	if (err)
		return err;
	info->origin = imp->origin;
	info->cut = imp->cut[0] ? imp->cut : NULL;
	info->pids = (uint32_t)imp->pid_seen.cnt;
	if (!(info->kernels + info->copies + info->memsets + info->syncs))
		return no_records(imp, d);
	info->first_ns = imp->first + (uint64_t)info->base_ns;
	info->last_ns = imp->last + (uint64_t)info->base_ns;
	return 0;
}

int dl_import_read(struct dl_import **ret, const char *path, struct dl_diag *d)
{
	struct dl_import *imp = calloc(1, sizeof(*imp));
	int err;

	if (!imp)
		return dl_oom(d);
	imp->path = path;
	imp->spill = dl_spill_new(0);
	err = imp->spill ? read_any(imp, d) : dl_oom(d);
	if (err) {
		dl_import_free(imp);
		return err;
	}
	*ret = imp;
	return 0;
}

void dl_import_free(struct dl_import *imp)
{
	if (!imp)
		return;
	dl_spill_free(imp->spill);
	dl_map_fini(&imp->names);
	dl_map_fini(&imp->thread_at);
	dl_map_fini(&imp->pid_seen);
	dl_map_fini(&imp->pid_map);
	dl_map_fini(&imp->tid_map);
	vec_free(&imp->threads);
	vec_free(&imp->devices);
	free(imp);
}

const struct dl_import_info *dl_import_info(const struct dl_import *imp)
{
	return &imp->info;
}

int64_t dl_import_offset(const struct dl_import *imp)
{
	return imp->offset;
}
