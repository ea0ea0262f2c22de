/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Traces made by hand, see synth.h. */
#include "synth/synth.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "synth/internal.h"

struct synth *synth_new(const char *path)
{
	struct synth *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->path = strdup(path);
	if (!s->path) {
		free(s);
		return NULL;
	}
	s->meta = (struct dl_trace_meta){
		.start_realtime_ns = 1700000000000000000ULL,
		.cpus = 4,
		.page_sz = 4096,
		.sample_hz = 100,
		.host = "synth",
		.kernel = "6.1.0",
		.machine = "x86_64",
		.target_cmdline = "python3 train.py",
		.recorder = "synth",
		.record_args = "",
		.boot_id = "00000000-0000-4000-8000-000000000000",
	};
	return s;
}

static void free_texts(struct text *v, size_t cnt)
{
	for (size_t i = 0; i < cnt; i++)
		free(v[i].s);
	free(v);
}

void synth_free(struct synth *s)
{
	if (!s)
		return;
	free(s->path);
	vec_free(&s->bytes);
	vec_free(&s->items);
	vec_free(&s->threads);
	vec_free(&s->cpus);
	dl_map_fini(&s->thread_idx);
	free_texts(s->strings.v, s->strings.cnt);
	free_texts(s->symbols.v, s->symbols.cnt);
	free_texts(s->stacks.v, s->stacks.cnt);
	free(s);
}

struct dl_trace_meta *synth_meta(struct synth *s)
{
	return &s->meta;
}

/* --- events --- */

void synth_add(struct synth *s, const struct dl_hdr *ev, size_t fixed, const void *tail,
	       size_t tail_sz)
{
	size_t sz = fixed + tail_sz, off = s->bytes.cnt;
	struct item *item;
	struct dl_hdr h;

	if (s->err)
		return;
	if (sz > DL_EVENT_MAX_SZ) {
		s->err = -EMSGSIZE;
		return;
	}
	if (vec_reserve(&s->bytes, sz + 8)) {
		s->err = -ENOMEM;
		return;
	}
	item = vec_push(&s->items);
	if (!item) {
		s->err = -ENOMEM;
		return;
	}
	memcpy(s->bytes.v + off, ev, fixed);
	if (tail_sz)
		memcpy(s->bytes.v + off + fixed, tail, tail_sz);
	memcpy(&h, ev, sizeof(h));
	h.size = (uint16_t)sz;
	memcpy(s->bytes.v + off, &h, sizeof(h));
	s->bytes.cnt += (sz + 7) & ~(size_t)7;
	*item = (struct item){ .ts = ev->ts, .seq = s->items.cnt, .off = off };
}

void synth_event(struct synth *s, const struct dl_hdr *ev)
{
	synth_add(s, ev, ev->size, NULL, 0);
}

void synth_event_text(struct synth *s, const struct dl_hdr *ev, const char *text)
{
	synth_add(s, ev, ev->size, text, strlen(text));
}

static int cmp_items(const void *a, const void *b)
{
	const struct item *x = a, *y = b;

	if (x->ts != y->ts)
		return x->ts < y->ts ? -1 : 1;
	return x->seq < y->seq ? -1 : x->seq > y->seq;
}

static int write_all(struct synth *s, bool killed)
{
	struct dl_trace_writer_stats st;
	struct dl_trace_writer *w;
	int fd, err;

	if (!s->meta.start_ts && s->items.cnt)
		s->meta.start_ts = s->items.v[0].ts;
	fd = open(s->path, O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0644);
	if (fd < 0)
		return -errno;
	err = dl_trace_writer_open(&w, fd, &s->meta, NULL, NULL);
	if (err)
		return err;
	vec_for_each(&s->items, it) {
		err = dl_trace_write(w, (const struct dl_hdr *)(const void *)(s->bytes.v + it->off));
		if (err)
			break;
	}
	if (!err)
		err = dl_trace_writer_flush(w, UINT64_MAX);
	dl_trace_writer_stats(w, &st);
	if (err)
		dl_trace_writer_close(w, NULL);
	else
		err = dl_trace_writer_close(w, NULL);
	if (!err && killed && truncate(s->path, (off_t)st.file_bytes))
		err = -errno;
	return err;
}

static int finish(struct synth *s, bool killed)
{
	int err;

	if (!s)
		return -ENOMEM;
	vec_for_each(&s->cpus, cpu) {
		if (cpu->busy)
			synth_event(s, &cpu->out.h);
	}
	err = s->err;
	if (!err) {
		if (s->items.cnt)
			qsort(s->items.v, s->items.cnt, sizeof(*s->items.v), cmp_items);
		err = write_all(s, killed);
	}
	synth_free(s);
	return err;
}

int synth_finish(struct synth *s)
{
	return finish(s, false);
}

int synth_finish_killed(struct synth *s)
{
	return finish(s, true);
}

/* --- threads --- */

struct thread *synth_thread(struct synth *s, uint32_t tid)
{
	static struct thread spare;
	struct thread *t;
	uint64_t idx;

	if (dl_map_get(&s->thread_idx, tid, &idx))
		return &s->threads.v[idx];
	t = vec_push(&s->threads);
	if (!t || dl_map_set(&s->thread_idx, tid, s->threads.cnt - 1)) {
		s->err = -ENOMEM;
		memset(&spare, 0, sizeof(spare));
		return &spare;
	}
	t->tid = tid;
	t->cpu = DL_CPU_NONE;
	return t;
}

struct dl_hdr synth_header(struct synth *s, uint16_t kind, size_t sz, uint64_t ts, uint32_t tid,
			   uint32_t pid)
{
	const struct thread *t = synth_thread(s, tid);

	return (struct dl_hdr){
		.size = (uint16_t)sz,
		.kind = kind,
		.tid = tid,
		.pid = pid,
		.ts = ts,
		.cpu = t->cpu,
		.flags = t->foreign ? DL_HDR_FOREIGN : 0,
	};
}

static void set_comm(dl_c16 *c, const char *comm)
{
	memset(c, 0, sizeof(*c));
	if (comm)
		memcpy(c->s, comm, strnlen(comm, sizeof(c->s) - 1));
}

void synth_foreign(struct synth *s, uint32_t tid, uint32_t pid, const char *comm)
{
	uint64_t ts = s->items.cnt ? s->items.v[0].ts : 1;

	synth_thread(s, tid)->foreign = true;
	if (comm)
		synth_name(s, ts, tid, pid, comm);
}

void synth_task(struct synth *s, uint64_t ts, uint32_t tid, uint32_t pid, uint32_t ppid,
		const char *comm, uint32_t flags, uint64_t sig_caught)
{
	const struct thread *t = synth_thread(s, tid);
	struct dl_ev_task ev = {
		.h = HEADER(s, TASK, task, ts, tid, pid),
		.ppid = ppid,
		.nspid = pid,
		.nstid = tid,
		.state = 'S',
		.start = ts,
		.sig_caught = sig_caught,
		.syscall = -2,
		.flags = flags,
		.exec_ns = t->exec_ns,
	};

	ev.h.cpu = DL_CPU_NONE;
	set_comm(&ev.comm, comm);
	synth_event(s, &ev.h);
	if (flags & DL_TF_ROOT)
		s->meta.target_pid = pid;
	if (comm)
		synth_name(s, ts, tid, pid, comm);
}

void synth_name(struct synth *s, uint64_t ts, uint32_t tid, uint32_t pid, const char *comm)
{
	struct dl_ev_name ev = { .h = HEADER(s, NAME, name, ts, tid, pid) };

	set_comm(&ev.comm, comm);
	synth_event(s, &ev.h);
}

void synth_fork(struct synth *s, uint64_t ts, uint32_t tid, uint32_t pid,
		uint32_t child_tid, uint32_t child_pid, const char *comm)
{
	/* CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM, and
	 * what glibc's fork() gives: CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID | SIGCHLD */
	struct dl_ev_fork ev = {
		.h = HEADER(s, FORK, fork, ts, tid, pid),
		.child_tid = child_tid,
		.child_pid = child_pid,
		.clone_flags = child_tid == child_pid ? 0x1200011 : 0x50f00,
		.child_nstid = child_tid,
		.child_nspid = child_pid,
	};
	struct dl_ev_wake wake = {
		.h = { .tid = tid, .pid = pid },
		.wakee_tid = child_tid,
		.wakee_pid = child_pid,
		.syscall = 56,	/* clone */
		.flags = DL_WK_NEW | DL_WK_NOT_IRQ,
	};

	set_comm(&ev.comm, comm);
	synth_event(s, &ev.h);
	synth_wake_ev(s, ts, wake);
}

void synth_exec(struct synth *s, uint64_t ts, uint32_t tid, uint32_t pid, const char *path)
{
	struct dl_ev_exec ev = { .h = HEADER(s, EXEC, exec, ts, tid, pid), .old_tid = tid };

	synth_event_text(s, &ev.h, path);
}

void synth_exit(struct synth *s, uint64_t ts, uint32_t tid, uint32_t pid, int code, uint32_t flags)
{
	const struct thread *t = synth_thread(s, tid);
	struct dl_ev_exit ev = {
		.h = HEADER(s, EXIT, exit, ts, tid, pid),
		.code = code,
		.flags = flags,
		.exec_ns = t->exec_ns + (t->on_cpu ? ts - t->since : 0),
		.min_flt = t->min_flt,
		.maj_flt = t->maj_flt,
		.switches = t->switches,
	};

	synth_event(s, &ev.h);
}

void synth_cmdline(struct synth *s, uint64_t ts, uint32_t pid, const char *cmdline)
{
	struct dl_ev_cmdline ev = { .h = HEADER(s, CMDLINE, cmdline, ts, pid, pid), .argc = 1 };

	for (const char *p = cmdline; *p; p++)
		ev.argc += *p == ' ';
	synth_event_text(s, &ev.h, cmdline);
}

/* --- scheduling --- */

static void switch_in(struct synth *s, uint64_t ts, uint32_t cpu, uint32_t tid)
{
	struct thread *t = synth_thread(s, tid);

	t->on_cpu = true;
	t->cpu = (uint16_t)cpu;
	t->since = ts;
}

/* The event of leaving the CPU, without the thread that comes next. */
static struct dl_ev_switch switch_out(struct synth *s, uint64_t ts, uint32_t cpu, uint32_t tid,
				      uint32_t pid, uint32_t state, const struct synth_wait *wait)
{
	struct dl_ev_switch ev = { .h = HEADER(s, SWITCH, switch, ts, tid, pid), .syscall = -1,
				   .prev_state = state };
	struct thread *t = synth_thread(s, tid);

	ev.h.cpu = (uint16_t)cpu;
	if (t->on_cpu)
		t->exec_ns += ts - t->since;
	t->on_cpu = false;
	t->switches++;
	if (wait) {
		t->min_flt += wait->min_flt;
		t->maj_flt += wait->maj_flt;
		t->switches += wait->lost;
		ev.syscall = wait->syscall;
		ev.arg0 = wait->arg0;
		ev.arg1 = wait->arg1;
		ev.deadline = wait->deadline;
		ev.file_ino = wait->file_ino;
		ev.file_dev = wait->file_dev;
		ev.file_magic = wait->file_magic;
		ev.file_kind = wait->file_kind;
		ev.flags = wait->flags;
		ev.stack = wait->stack;
		ev.throttle_cnt = wait->throttle_cnt;
		ev.cpus_allowed = wait->cpus_allowed;
	}
	if (tid) {
		ev.exec_ns = t->exec_ns;
		ev.min_flt = t->min_flt;
		ev.maj_flt = t->maj_flt;
		ev.switches = t->switches;
	}
	return ev;
}

static void set_next(struct synth *s, struct dl_ev_switch *ev, uint32_t tid, uint32_t pid)
{
	ev->next_tid = tid;
	ev->next_pid = pid;
	if (synth_thread(s, tid)->foreign)
		ev->flags |= DL_SW_NEXT_FOREIGN;
	switch_in(s, ev->h.ts, ev->h.cpu, tid);
}

void synth_switch(struct synth *s, uint64_t ts, uint32_t cpu, uint32_t prev_tid, uint32_t prev_pid,
		  uint32_t next_tid, uint32_t next_pid, uint32_t prev_state,
		  const struct synth_wait *wait)
{
	struct dl_ev_switch ev = switch_out(s, ts, cpu, prev_tid, prev_pid, prev_state, wait);

	set_next(s, &ev, next_tid, next_pid);
	synth_event(s, &ev.h);
}

void synth_run(struct synth *s, uint32_t cpu, uint32_t tid, uint32_t pid, uint64_t from,
	       uint64_t to, uint32_t state, const struct synth_wait *wait)
{
	struct cpu *c;

	while (s->cpus.cnt <= cpu) {
		if (!vec_push(&s->cpus)) {
			s->err = -ENOMEM;
			return;
		}
	}
	c = &s->cpus.v[cpu];
	if ((c->busy && from < c->out.h.ts) || to < from) {
		s->err = -EINVAL;	/* overlapping runs on one CPU: a mistake in the test */
		return;
	}
	if (c->busy && c->out.h.ts == from) {
		set_next(s, &c->out, tid, pid);
		synth_event(s, &c->out.h);
	} else {
		if (c->busy)
			synth_event(s, &c->out.h);
		synth_switch(s, from, cpu, 0, 0, tid, pid, SYNTH_RUNNABLE, NULL);
	}
	c->out = switch_out(s, to, cpu, tid, pid, state, wait);
	c->busy = true;
}

void synth_wake_ev(struct synth *s, uint64_t ts, struct dl_ev_wake ev)
{
	ev.h = HEADER(s, WAKE, wake, ts, ev.h.tid, ev.h.pid);
	if (!ev.wakee_state)
		ev.wakee_state = SYNTH_SLEEP;
	if (synth_thread(s, ev.wakee_tid)->foreign)
		ev.flags |= DL_WK_FOREIGN_WAKEE;
	synth_event(s, &ev.h);
}

void synth_wake(struct synth *s, uint64_t ts, uint32_t waker_tid, uint32_t waker_pid,
		uint32_t wakee_tid, uint32_t wakee_pid, int32_t syscall)
{
	struct dl_ev_wake ev = {
		.h = { .tid = waker_tid, .pid = waker_pid },
		.wakee_tid = wakee_tid,
		.wakee_pid = wakee_pid,
		.syscall = syscall,
	};

	synth_wake_ev(s, ts, ev);
}
