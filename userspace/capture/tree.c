/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The recorded processes: who they are, and what they were when the recorder looked. */
#include "capture/tree.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "capture/proc.h"

enum { LOOKS_MAX = 1 << 14 };

static const uint64_t look_delay_ns[2] = { 300 * 1000000ULL, 2 * DL_NS_PER_S };

void dl_tree_fini(struct dl_tree *t)
{
	vec_for_each(&t->procs, it) {
		close((*it)->fd);
		free(*it);
	}
	vec_free(&t->procs);
	dl_map_fini(&t->by_pid);
	for (int i = 0; i < 2; i++)
		vec_free(&t->looks[i]);
}

struct dl_tree_proc *dl_tree_find(const struct dl_tree *t, uint32_t pid)
{
	uint64_t index;

	return dl_map_get(&t->by_pid, pid, &index) ? t->procs.v[index - 1] : NULL;
}

struct dl_tree_proc *dl_tree_add(struct dl_tree *t, uint32_t pid, uint32_t ppid)
{
	struct dl_tree_proc *p = dl_tree_find(t, pid), **slot;

	if (p)
		return p;
	if (t->procs.cnt >= DL_TREE_MAX) {
		t->not_followed++;
		return NULL;
	}
	p = calloc(1, sizeof(*p));
	if (!p)
		return NULL;
	p->pid = pid;
	p->ppid = ppid;
	p->fd = dl_proc_open(pid);
	if (p->fd < 0)
		goto err_free;
	slot = vec_push(&t->procs);
	if (!slot)
		goto err_close;
	if (dl_map_set(&t->by_pid, pid, t->procs.cnt))
		goto err_pop;
	*slot = p;
	return p;

err_pop:
	t->procs.cnt--;
err_close:
	close(p->fd);
err_free:
	free(p);
	return NULL;
}

void dl_tree_remove(struct dl_tree *t, uint32_t pid)
{
	struct dl_tree_proc *p, *last;
	uint64_t index;

	if (!dl_map_get(&t->by_pid, pid, &index))
		return;
	p = t->procs.v[index - 1];
	last = t->procs.v[t->procs.cnt - 1];
	/* The last one moves into the gap; its key exists, so this needs no memory. */
	if (last != p && dl_map_set(&t->by_pid, last->pid, index))
		return;
	t->procs.v[index - 1] = last;
	t->procs.cnt--;
	t->removed++;
	dl_map_del(&t->by_pid, pid);
	t->workers -= p->worker;
	close(p->fd);
	free(p);
}

/* Who has ended needs no look. Worth a try only when enough have ended since the last one. */
static void forget_ended(const struct dl_tree *t, struct dl_looks *q)
{
	size_t keep = q->first;

	if (t->removed - q->removed < LOOKS_MAX / 8)
		return;
	q->removed = t->removed;
	for (size_t i = q->first; i < q->cnt; i++) {
		if (dl_tree_find(t, q->v[i].pid))
			q->v[keep++] = q->v[i];
	}
	q->cnt = keep;
}

void dl_tree_look_later(struct dl_tree *t, uint32_t pid, uint32_t tid, uint64_t now)
{
	for (int i = 0; i < 2; i++) {
		struct dl_looks *q = &t->looks[i];
		struct dl_look *look;

		if (q->first && q->first == q->cnt)
			q->first = q->cnt = 0;
		if (q->first > LOOKS_MAX / 2) {
			memmove(q->v, q->v + q->first, (q->cnt - q->first) * sizeof(*q->v));
			q->cnt -= q->first;
			q->first = 0;
		}
		if (q->cnt - q->first >= LOOKS_MAX)
			forget_ended(t, q);
		look = q->cnt - q->first < LOOKS_MAX ? vec_push(q) : NULL;
		if (look)
			*look = (struct dl_look){ now + look_delay_ns[i], pid, tid };
		else
			t->not_followed++;
	}
}

bool dl_tree_next_look(struct dl_tree *t, uint64_t now, struct dl_look *ret)
{
	for (int i = 0; i < 2; i++) {
		struct dl_looks *q = &t->looks[i];

		if (q->first < q->cnt && q->v[q->first].due <= now) {
			*ret = q->v[q->first++];
			return true;
		}
	}
	return false;
}

/* --- snapshots --------------------------------------------------------------------------------- */

/* Time on a CPU, exact where the kernel counts it, else in ticks. */
static uint64_t cpu_ns(int proc_fd, uint32_t tid, const struct dl_stat *st)
{
	char path[48], buf[128];

	snprintf(path, sizeof(path), "task/%u/schedstat", tid);
	if (dl_proc_read(proc_fd, path, buf, sizeof(buf)) > 0)
		return strtoull(buf, NULL, 10);
	return st->cpu_ticks * (DL_NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK));
}

static void read_syscall(int proc_fd, uint32_t tid, struct dl_ev_task *ev)
{
	char path[48], buf[256];
	uint64_t arg0, arg1;
	int32_t nr;

	ev->syscall = -2;
	snprintf(path, sizeof(path), "task/%u/syscall", tid);
	if (dl_proc_read(proc_fd, path, buf, sizeof(buf)) <= 0 || !dl_parse_syscall(buf, &nr, &arg0, &arg1))
		return;
	ev->syscall = nr;
	ev->arg0 = arg0;
	ev->arg1 = arg1;
}

static int emit_thread(struct dl_tree_proc *p, uint32_t tid, struct dl_sink *sink, uint64_t ts,
		       uint32_t flags, struct dl_ev_task *ret)
{
	struct dl_ev_task ev = DL_EVENT_INIT(task, DL_EV_TASK, ts, p->pid, tid);
	struct dl_status status;
	struct dl_stat st;
	int err;

	err = dl_proc_stat(p->fd, tid, &st);
	if (!err)
		err = dl_proc_status(p->fd, tid, &status);
	if (err)
		return -ESRCH;
	ev.ppid = status.ppid;
	ev.nspid = status.nstgid;
	ev.nstid = status.nspid;
	ev.state = (uint32_t)(unsigned char)st.state;
	ev.start = dl_start_ns(st.start_ticks);
	ev.sig_caught = status.sig_caught;
	ev.sig_blocked = status.sig_blocked;
	ev.flags = flags | (p->root ? DL_TF_ROOT : 0);
	ev.exec_ns = cpu_ns(p->fd, tid, &st);
	memcpy(ev.comm.s, st.comm, sizeof(ev.comm.s));
	read_syscall(p->fd, tid, &ev);
	*ret = ev;
	return sink->emit(sink, &ev.h);
}

struct each {
	struct dl_tree *tree;
	struct dl_tree_proc *p;
	struct dl_sink *sink;
	uint64_t ts;
	uint32_t flags;
	uint32_t done;
};

static int snapshot_one(uint32_t tid, void *arg)
{
	struct each *e = arg;
	struct dl_ev_task task;
	struct dl_ev_name name;
	int err;

	err = emit_thread(e->p, tid, e->sink, e->ts, e->flags, &task);
	if (err == -ESRCH)
		return 0;	/* this thread has just ended */
	if (err)
		return err;
	e->done++;
	if (tid == e->p->pid && !e->p->worker &&
	    dl_worker_handlers(task.sig_caught)) {
		e->p->worker = true;
		e->tree->workers++;
		e->tree->workers_seen++;
	}
	name = DL_EVENT_INIT(name, DL_EV_NAME, e->ts, e->p->pid, tid);
	name.comm = task.comm;
	return e->sink->emit(e->sink, &name.h);
}

static int emit_cmdline(struct dl_tree_proc *p, struct dl_sink *sink, uint64_t ts)
{
	struct dl_ev_cmdline ev = DL_EVENT_INIT(cmdline, DL_EV_CMDLINE, ts, p->pid, p->pid);
	char text[DL_EVENT_MAX_SZ];

	if (dl_proc_cmdline(p->fd, text, sizeof(text), &ev.argc) || !ev.argc)
		return 0;
	return dl_emit_text(sink, &ev.h, text);
}

int dl_tree_snapshot(struct dl_tree *t, struct dl_tree_proc *p, struct dl_sink *sink, uint64_t ts,
		     uint32_t flags)
{
	struct each e = { t, p, sink, ts, flags, 0 };
	int err;

	err = dl_proc_each_tid(p->fd, snapshot_one, &e);
	if (!e.done)
		return err < 0 && err != -ENOENT ? err : -ESRCH;
	return err ? err : emit_cmdline(p, sink, ts);
}

int dl_tree_snapshot_thread(struct dl_tree_proc *p, uint32_t tid, struct dl_sink *sink, uint64_t ts,
			    uint32_t flags)
{
	struct dl_ev_task task;

	return emit_thread(p, tid, sink, ts, flags, &task);
}
