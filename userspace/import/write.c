/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Imported records become a trace: alone, or among the events of a recording of the same run. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/version.h"
#include "import/import_int.h"
#include "trace/trace.h"

struct out {
	struct dl_import *imp;
	struct dl_trace_writer *w;
	struct dl_diag *d;
	uint64_t add;		/* to the times of the import, modulo 2^64 */
};

static int put(struct out *o, const struct dl_hdr *ev)
{
	int err = dl_trace_write(o->w, ev);

	return err ? dl_fail_errno(o->d, err, "cannot write the trace") : 0;
}

static int put_text(struct out *o, struct dl_hdr *ev, size_t fixed, const char *text)
{
	_Alignas(8) char buf[1024];
	size_t len = strlen(text);

	if (len > sizeof(buf) - fixed)
		len = sizeof(buf) - fixed;
	memcpy(buf, ev, fixed);
	memcpy(buf + fixed, text, len);
	((struct dl_hdr *)buf)->size = (uint16_t)(fixed + len);
	return put(o, (struct dl_hdr *)buf);
}

/* --- ids --- */

static uint32_t host_pid(const struct dl_import *imp, uint32_t pid)
{
	uint64_t to;

	if (!pid)
		pid = imp->info.pid;
	return dl_map_get(&imp->pid_map, pid, &to) ? (uint32_t)to : pid;
}

static uint32_t host_tid(const struct dl_import *imp, uint32_t pid, uint32_t tid)
{
	uint64_t to;

	return dl_map_get(&imp->tid_map, (uint64_t)pid << 32 | tid, &to) ? (uint32_t)to : tid;
}

/* --- what is said once --- */

static int put_threads(struct out *o, uint64_t ts)
{
	const struct dl_import *imp = o->imp;
	size_t pos = 0;
	uint64_t pid, unused;
	int err = 0;

	while (!err && dl_map_next(&imp->pid_seen, &pos, &pid, &unused)) {
		struct dl_ev_task t = { .h = { .kind = DL_EV_TASK, .size = sizeof(t), .ts = ts, .pid = (uint32_t)pid,
					       .tid = (uint32_t)pid, .cpu = DL_CPU_NONE },
					.nspid = (uint32_t)pid, .nstid = (uint32_t)pid, .syscall = -2,
					.flags = pid == imp->info.pid ? DL_TF_ROOT : 0 };

		err = put(o, &t.h);
	}
	vec_for_each(&imp->threads, th) {
		struct dl_ev_task t = { .h = { .kind = DL_EV_TASK, .size = sizeof(t), .ts = ts, .pid = th->pid, .tid = th->tid,
					       .cpu = DL_CPU_NONE },
					.nspid = th->pid, .nstid = th->tid, .syscall = -2 };

		if (!err && th->pid != th->tid && dl_map_get(&imp->pid_seen, th->pid, NULL))
			err = put(o, &t.h);
	}
	return err;
}

static int put_source(struct out *o, uint64_t ts, uint32_t pid)
{
	const struct dl_import *imp = o->imp;
	struct dl_ev_gpu_source src = { .h = { .kind = DL_EV_GPU_SOURCE, .ts = ts, .pid = pid, .cpu = DL_CPU_NONE },
					.state = DL_GPU_IMPORTED };
	int err = put_text(o, &src.h, sizeof(src), imp->origin);

	vec_for_each(&imp->devices, it) {
		struct dl_ev_gpu_device dev = { .h = { .kind = DL_EV_GPU_DEVICE, .ts = ts, .pid = pid,
						       .cpu = DL_CPU_NONE }, .device = it->id, .mem_total = it->mem };

		if (!err && it->used && it->name[0])
			err = put_text(o, &dev.h, sizeof(dev), it->name);
	}
	return err;
}

static int put_absent(struct out *o, uint64_t ts, uint32_t source, const char *text)
{
	struct dl_ev_absent a = { .h = { .kind = DL_EV_ABSENT, .ts = ts, .cpu = DL_CPU_NONE }, .source = source };

	return put_text(o, &a.h, sizeof(a), text);
}

/* What the file lacks; alone: what every such file lacks. */
static int put_lacks(struct out *o, uint64_t ts, bool alone)
{
	const struct dl_import_info *info = &o->imp->info;
	struct dl_ev_loss l = { .h = { .kind = DL_EV_LOSS, .size = sizeof(l), .ts = ts, .cpu = DL_CPU_NONE },
				.ring = DL_RING_GPU, .cause = DL_LOSS_INVALID, .cnt = info->invalid };
	char text[640];
	int err = 0;

	if (alone)
		err = put_absent(o, ts, DL_SRC_SWITCH, "threads and processes: a GPU trace does not say what the host did "
				 "outside of CUDA calls and operators, nor why it waited for data; dlbpf record does");
	if (!err && info->cut) {
		snprintf(text, sizeof(text), "the end of the GPU trace: %s", info->cut);
		err = put_absent(o, ts, DL_SRC_GPU, text);
	}
	if (!err && info->pids > 1 && info->format == DL_IMPORT_KINETO) {
		snprintf(text, sizeof(text), "the process of each GPU record: %u processes are in this Kineto trace, "
			 "all records are charged to pid %u", info->pids, info->pid);
		err = put_absent(o, ts, DL_SRC_GPU, text);
	}
	return !err && info->invalid ? put(o, &l.h) : err;
}

static int put_sources(struct out *o, uint64_t ts)
{
	size_t pos = 0;
	uint64_t pid, unused;
	int err = 0;

	if (!o->imp->pid_seen.cnt)
		return put_source(o, ts, o->imp->info.pid);
	while (!err && dl_map_next(&o->imp->pid_seen, &pos, &pid, &unused))
		err = put_source(o, ts, host_pid(o->imp, (uint32_t)pid));
	return err;
}

static int put_mark(struct out *o, uint64_t ts, uint32_t what, const char *text)
{
	struct dl_ev_mark m = { .h = { .kind = DL_EV_MARK, .ts = ts, .cpu = DL_CPU_NONE }, .what = what };

	return put_text(o, &m.h, sizeof(m), text);
}

/* --- records --- */

/* In their events the end follows the header. */
static bool has_end(uint16_t kind)
{
	return kind != DL_EV_STRING;
}

static int next_record(struct out *o, struct dl_hdr *buf)
{
	const struct dl_hdr *ev;
	int got = dl_spill_next(o->imp->spill, &ev, o->d);

	if (got <= 0)
		return got;
	memcpy(buf, ev, ev->size);
	if (buf->kind == DL_EV_STRING && buf->ts < o->imp->first)
		buf->ts = o->imp->first;	/* written before the time of its first user was known */
	buf->ts += o->add;
	if (has_end(buf->kind)) {
		struct dl_ev_span *span = (void *)buf;	/* any of them */
		uint32_t pid = buf->pid ? buf->pid : o->imp->info.pid;

		span->end += o->add;
		buf->tid = buf->tid ? host_tid(o->imp, pid, buf->tid) : 0;
		buf->pid = host_pid(o->imp, pid);
	}
	return 1;
}

static int begin(struct out *o, int fd, const struct dl_trace_meta *meta, struct dl_diag *d)
{
	int err = dl_spill_rewind(o->imp->spill, d);

	if (err) {
		close(fd);
		return err;
	}
	return dl_trace_writer_open(&o->w, fd, meta, NULL, d);
}

static int finish(struct out *o, int err)
{
	struct dl_diag d2 = {};
	int end_err;

	if (!o->w)
		return err;
	end_err = dl_trace_writer_close(o->w, err ? &d2 : o->d);
	return err ? err : end_err;
}

int dl_import_write(struct dl_import *imp, int fd, struct dl_diag *d)
{
	struct out o = { .imp = imp, .d = d, .add = (uint64_t)imp->info.base_ns };
	uint64_t first = imp->info.first_ns;
	struct dl_trace_meta meta = { .start_ts = first, .start_realtime_ns = first, .target_pid = imp->info.pid,
				      .recorder = (char *)"dlbpf " DLBPF_VERSION };
	_Alignas(8) char buf[DL_EVENT_MAX_SZ];
	_cleanup_free_ char *args = NULL;
	int got = 0, err;

	if (asprintf(&args, "import %s", imp->path) < 0) {
		args = NULL;
		close(fd);
		return dl_oom(d);
	}
	meta.record_args = args;
	imp->offset = 0;
	err = begin(&o, fd, &meta, d);
	err = err ? err : put_mark(&o, first, DL_MARK_START, imp->origin);
	err = err ? err : put_threads(&o, first);
	err = err ? err : put_sources(&o, first);
	err = err ? err : put_lacks(&o, first, true);
	while (!err && (got = next_record(&o, (void *)buf)) > 0)
		err = put(&o, (void *)buf);
	err = err ? err : got;
	if (!err)
		err = put_mark(&o, imp->info.last_ns, DL_MARK_STOP, imp->info.cut ? "the file ends in the middle" :
			       "the file is over");
	return finish(&o, err);
}

/* --- among the events of a run --- */

struct run_facts {
	uint64_t clock_ts, clock_real;	/* the pair of clocks nearest to the middle of the import */
	uint64_t gap;			/* how near */
};

static bool same_pid(const struct dl_import *imp, uint32_t pid)
{
	return pid && (dl_map_get(&imp->pid_seen, pid, NULL) || pid == imp->info.pid);
}

static int note_task(struct dl_import *imp, uint32_t pid, uint32_t nspid, uint32_t tid, uint32_t nstid)
{
	uint64_t had;

	if (!nspid)
		nspid = pid;
	if (!same_pid(imp, nspid))
		return 0;
	/* Two containers can have the same inner id. Which of them is meant nobody knows: 0. */
	if (dl_map_get(&imp->pid_map, nspid, &had) && had != pid)
		return dl_map_set(&imp->pid_map, nspid, 0);
	if (dl_map_set(&imp->pid_map, nspid, pid))
		return -ENOMEM;
	return dl_map_set(&imp->tid_map, (uint64_t)nspid << 32 | (nstid ? nstid : tid), tid);
}

static int note_event(struct dl_import *imp, const struct dl_hdr *ev, struct run_facts *f)
{
	if (ev->kind == DL_EV_TASK) {
		const struct dl_ev_task *t = (const void *)ev;

		return note_task(imp, ev->pid, t->nspid, ev->tid, t->nstid);
	}
	if (ev->kind == DL_EV_FORK) {
		const struct dl_ev_fork *k = (const void *)ev;

		return note_task(imp, k->child_pid, k->child_nspid, k->child_tid, k->child_nstid);
	}
	if (ev->kind == DL_EV_GPU_CLOCK) {
		const struct dl_ev_gpu_clock *c = (const void *)ev;
		uint64_t at = imp->info.first_ns / 2 + imp->info.last_ns / 2;
		uint64_t gap = c->realtime > at ? c->realtime - at : at - c->realtime;

		if (c->realtime && gap < f->gap) {
			f->gap = gap;
			f->clock_ts = ev->ts;
			f->clock_real = c->realtime;
		}
	}
	return 0;
}

/* "2026-05-24 13:40:14.975 UTC" */
static const char *fmt_time(char *buf, size_t sz, uint64_t ns)
{
	time_t s = (time_t)(ns / 1000000000);
	struct tm tm;
	char date[32];

	if (!gmtime_r(&s, &tm) || !strftime(date, sizeof(date), "%Y-%m-%d %H:%M:%S", &tm))
		snprintf(date, sizeof(date), "%" PRIu64 " s", ns / 1000000000);
	snprintf(buf, sz, "%s.%03u UTC", date, (unsigned int)(ns / 1000000 % 1000));
	return buf;
}

static int check_pids(const struct dl_import *imp, const char *run_path, struct dl_diag *d)
{
	uint64_t pid, to, unused;
	size_t pos = 0;
	bool any = false;

	if (!imp->info.pid)
		return dl_fail(d, -EINVAL, "%s does not say which process used the GPU: it holds no calls of CUDA", imp->path);
	while (dl_map_next(&imp->pid_seen, &pos, &pid, &unused)) {
		if (!dl_map_get(&imp->pid_map, pid, &to))
			continue;
		if (!to)
			return dl_fail(d, -EINVAL, "%s: several processes have the id %" PRIu64 " in their own PID namespaces: "
				       "which of them %s is about is not known", run_path, pid, imp->path);
		any = true;
	}
	if (any)
		return 0;
	return dl_fail(d, -EINVAL, "not the same run: %s is about process %u, and %s knows no such process, neither by its "
		       "id on the host nor by that in its PID namespace", imp->path, imp->info.pid, run_path);
}

static int check_time(const struct dl_import *imp, const struct dl_trace_info *run, const char *run_path,
		      struct dl_diag *d)
{
	uint64_t off = (uint64_t)imp->offset, from = run->first_ts + off, to = run->last_ts + off;
	char a[64], b[64], c[64], e[64];

	/* Threads that were found running are older than the recording. */
	if (run->meta.start_ts > run->first_ts)
		from = run->meta.start_ts + off;
	if (imp->info.last_ns >= from && imp->info.first_ns <= to)
		return 0;
	return dl_fail(d, -ERANGE, "not the same run: %s goes from %s to %s,\n%s from %s to %s; they do not overlap", imp->path,
		       fmt_time(a, sizeof(a), imp->info.first_ns), fmt_time(b, sizeof(b), imp->info.last_ns), run_path,
		       fmt_time(c, sizeof(c), from), fmt_time(e, sizeof(e), to));
}

/* Looks through the run for ids and clocks. */
static int match_run(struct dl_import *imp, struct dl_trace *run, const char *run_path, struct dl_diag *d)
{
	const struct dl_trace_info *info = dl_trace_info(run);
	struct run_facts f = { .clock_ts = info->meta.start_ts, .clock_real = info->meta.start_realtime_ns,
			       .gap = UINT64_MAX };
	const struct dl_hdr *ev;
	int got, err = 0;

	if (!imp->info.has_clock)
		return dl_fail(d, -EINVAL, "%s does not say when it was made (it has no session start): it cannot be put "
			       "on the clock of %s", imp->path, run_path);
	if (!f.clock_real)
		return dl_fail(d, -EINVAL, "%s does not say what CLOCK_REALTIME was", run_path);
	while (!err && (got = dl_trace_next(run, &ev)) > 0)
		err = note_event(imp, ev, &f);
	err = err ? err : got;
	if (err)
		return err == -ENOMEM ? dl_oom(d) : dl_fail_errno(d, err, "cannot read %s", run_path);
	imp->offset = (int64_t)(f.clock_real - f.clock_ts);
	err = check_time(imp, info, run_path, d);
	return err ? err : check_pids(imp, run_path, d);
}

/* The run's own records of a process that the import has, too: one of the two would count twice. */
static bool replaced(const struct dl_import *imp, const struct dl_hdr *ev)
{
	uint64_t pid, to, unused;
	size_t pos = 0;

	if ((ev->kind < DL_EV_GPU_SOURCE || ev->kind > DL_EV_GPU_GRAPH) && ev->kind != DL_EV_SPAN)
		return false;
	while (dl_map_next(&imp->pid_seen, &pos, &pid, &unused)) {
		if (dl_map_get(&imp->pid_map, pid, &to) && to == ev->pid)
			return true;
	}
	return false;
}

static int merge_records(struct out *o, struct dl_trace *run)
{
	_Alignas(8) char buf[DL_EVENT_MAX_SZ];
	struct dl_hdr *own = (void *)buf;
	const struct dl_hdr *ev;
	int got_own = next_record(o, own), got = dl_trace_next(run, &ev), err = 0;

	while (!err && got_own >= 0 && got >= 0 && (got_own || got)) {
		if (got && (!got_own || ev->ts <= own->ts)) {
			err = replaced(o->imp, ev) ? 0 : put(o, ev);
			got = dl_trace_next(run, &ev);
		} else {
			err = put(o, own);
			got_own = next_record(o, own);
		}
	}
	if (got < 0)
		return dl_fail_errno(o->d, got, "cannot read the recording");
	return err ? err : got_own;
}

int dl_import_merge(struct dl_import *imp, struct dl_trace *run, const char *run_path, int fd, struct dl_diag *d)
{
	const struct dl_trace_info *info = dl_trace_info(run);
	struct out o = { .imp = imp, .d = d };
	uint64_t ts = info->meta.start_ts;
	int err = match_run(imp, run, run_path, d);

	if (!err && dl_trace_window(run, 0, UINT64_MAX))
		err = dl_fail(d, -EIO, "cannot read %s again", run_path);
	if (err) {
		close(fd);
		return err;
	}
	o.add = (uint64_t)imp->info.base_ns - (uint64_t)imp->offset;
	err = begin(&o, fd, &info->meta, d);
	err = err ? err : put_sources(&o, ts);
	err = err ? err : put_lacks(&o, ts, false);
	err = err ? err : merge_records(&o, run);
	return finish(&o, err);
}
