/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#include "render/info.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <dlbpf/event.h>

#include "base/cleanup.h"
#include "base/map.h"
#include "trace/schema.h"
#include "trace/trace.h"

struct collector {
	struct dl_info *info;
	struct dl_map by_pid;	/* index in info->procs of the process that has the pid now */
	struct dl_map tids;	/* threads that have been counted */
};

void dl_info_free(struct dl_info *info)
{
	if (!info)
		return;
	vec_for_each(&info->gpu, s)
		free(s->text);
	vec_free(&info->gpu);
	vec_for_each(&info->absent, s)
		free(s->text);
	vec_free(&info->absent);
	vec_free(&info->losses);
	vec_for_each(&info->procs, p)
		free(p->cmdline);
	vec_free(&info->procs);
	free(info->damage);
	free(info->stop);
	free(info);
}

static char *tail_text(const struct dl_hdr *ev)
{
	size_t len;
	const char *tail = dl_event_tail(ev, &len);

	return strndup(tail ? tail : "", len);
}

/* The process that the event belongs to, made when it is new; NULL without memory. */
static struct dl_info_proc *proc_of(struct collector *c, uint32_t pid, uint64_t ts)
{
	struct dl_info_proc *p;
	uint64_t index;

	if (dl_map_get(&c->by_pid, pid, &index))
		return &c->info->procs.v[index];
	if (dl_map_set(&c->by_pid, pid, c->info->procs.cnt))
		return NULL;
	p = vec_push(&c->info->procs);
	if (!p) {
		dl_map_del(&c->by_pid, pid);
		return NULL;
	}
	p->pid = pid;
	p->first_ts = ts;
	return p;
}

static int count_thread(struct collector *c, struct dl_info_proc *p, uint32_t tid)
{
	uint64_t seen;

	if (!tid || dl_map_get(&c->tids, tid, &seen))
		return 0;
	p->threads++;
	return dl_map_set(&c->tids, tid, p->pid);
}

static void set_name(struct dl_info_proc *p, const dl_c16 *comm)
{
	memcpy(p->name, comm->s, sizeof(comm->s));
	p->name[sizeof(comm->s)] = '\0';
}

static int on_fork(struct collector *c, const struct dl_ev_fork *ev)
{
	struct dl_info_proc *p;

	if (ev->child_pid == ev->child_tid)
		dl_map_del(&c->by_pid, ev->child_pid);	/* whoever had the number before is gone */
	dl_map_del(&c->tids, ev->child_tid);
	p = proc_of(c, ev->child_pid, ev->h.ts);
	if (!p)
		return -ENOMEM;
	if (ev->child_pid == ev->child_tid) {
		p->ppid = ev->h.pid;
		p->nspid = ev->child_nspid;
		set_name(p, &ev->comm);
	}
	return count_thread(c, p, ev->child_tid);
}

static int on_loss(struct collector *c, const struct dl_ev_loss *ev)
{
	struct dl_info_loss *l;

	vec_for_each(&c->info->losses, have)
		if (have->ring == ev->ring && have->cause == ev->cause && have->kind == ev->kind &&
		    have->shed == ev->shed) {
			if (ev->cnt > have->before + have->cnt)	/* running totals */
				have->cnt = ev->cnt - have->before;
			return 0;
		}
	l = vec_push(&c->info->losses);
	if (!l)
		return -ENOMEM;
	*l = (struct dl_info_loss){ .ring = ev->ring, .cause = ev->cause, .kind = ev->kind, .shed = ev->shed, .cnt = ev->cnt };
	if (ev->h.flags & DL_HDR_RESTATED) {
		l->before = ev->cnt;
		l->cnt = 0;
	}
	return 0;
}

static int on_gpu_source(struct collector *c, const struct dl_ev_gpu_source *ev)
{
	struct dl_info_source *s = NULL;

	vec_for_each(&c->info->gpu, have)
		if (have->pid == ev->h.pid)
			s = have;	/* the latest state counts */
	if (!s)
		s = vec_push(&c->info->gpu);
	if (!s)
		return -ENOMEM;
	free(s->text);
	*s = (struct dl_info_source){ ev->state, ev->h.pid, ev->flags & DL_GPU_SIMULATED,
				      tail_text(&ev->h) };
	return s->text ? 0 : -ENOMEM;
}

static int on_absent(struct collector *c, const struct dl_ev_absent *ev)
{
	struct dl_info_source *s = vec_push(&c->info->absent);

	if (!s)
		return -ENOMEM;
	*s = (struct dl_info_source){ ev->source, ev->h.pid, false, tail_text(&ev->h) };
	return s->text ? 0 : -ENOMEM;
}

static int on_mark(struct collector *c, const struct dl_ev_mark *ev)
{
	if (ev->what == DL_MARK_TARGET_EXIT) {
		c->info->target_exited = true;
		c->info->target_status = ev->value;
	} else if (ev->what == DL_MARK_STOP) {
		free(c->info->stop);
		c->info->stop = tail_text(&ev->h);
		return c->info->stop ? 0 : -ENOMEM;
	}
	return 0;
}

/* Events that say something of their process beyond that it lived. */
static int on_process(struct collector *c, struct dl_info_proc *p, const struct dl_hdr *ev)
{
	const struct dl_ev_task *task = (const void *)ev;
	const struct dl_ev_exit *exit_ev = (const void *)ev;

	switch (ev->kind) {
	case DL_EV_TASK:
		p->root |= (task->flags & DL_TF_ROOT) != 0;
		if (ev->tid == ev->pid) {
			p->ppid = task->ppid;
			p->nspid = task->nspid;
			set_name(p, &task->comm);
		}
		break;
	case DL_EV_NAME:
		if (ev->tid == ev->pid)
			set_name(p, &((const struct dl_ev_name *)ev)->comm);
		break;
	case DL_EV_CMDLINE:
		free(p->cmdline);
		p->cmdline = tail_text(ev);
		return p->cmdline ? 0 : -ENOMEM;
	case DL_EV_EXIT:
		if (exit_ev->flags & DL_EX_LAST) {
			p->exited = true;
			p->exit_status = exit_ev->code;
		}
		break;
	}
	return count_thread(c, p, ev->tid);
}

static int on_event(struct collector *c, const struct dl_hdr *ev)
{
	struct dl_info_proc *p;

	switch (ev->kind) {
	case DL_EV_LOSS:
		return on_loss(c, (const void *)ev);
	case DL_EV_ABSENT:
		return on_absent(c, (const void *)ev);
	case DL_EV_MARK:
		return on_mark(c, (const void *)ev);
	case DL_EV_GPU_SOURCE:
		return on_gpu_source(c, (const void *)ev);
	case DL_EV_FORK:
		if (on_fork(c, (const void *)ev))
			return -ENOMEM;
	}
	/* The recorder's own remarks belong to no process; the idle task and strangers are none of ours. */
	if (!ev->pid || ev->flags & DL_HDR_FOREIGN || dl_event_desc(ev->kind)->group == DL_GROUP_META)
		return 0;
	p = proc_of(c, ev->pid, ev->ts);
	if (!p)
		return -ENOMEM;
	p->events++;
	p->last_ts = ev->ts;
	return on_process(c, p, ev);
}

static int read_all(struct collector *c, struct dl_trace *t)
{
	const struct dl_hdr *ev;
	int err;

	while ((err = dl_trace_next(t, &ev)) > 0) {
		err = on_event(c, ev);
		if (err)
			return err;
	}
	if (!err && dl_trace_damage(t)) {
		c->info->damage = strdup(dl_trace_damage(t));
		err = c->info->damage ? 0 : -ENOMEM;
	}
	return err;
}

int dl_info_collect(struct dl_info **ret, struct dl_trace *t, const char *path, struct dl_diag *d)
{
	struct collector c = { .info = calloc(1, sizeof(*c.info)) };
	int err;

	if (!c.info)
		return dl_oom(d);
	c.info->path = path;
	c.info->trace = dl_trace_info(t);
	err = read_all(&c, t);
	dl_map_fini(&c.by_pid);
	dl_map_fini(&c.tids);
	if (err) {
		dl_info_free(c.info);
		return err == -ENOMEM ? dl_oom(d) : dl_fail_errno(d, err, "cannot read %s", path);
	}
	for (size_t i = c.info->losses.cnt; i-- > 0;) {
		if (c.info->losses.v[i].cause != DL_LOSS_SHED)
			c.info->lost += c.info->losses.v[i].cnt;
		if (!c.info->losses.v[i].cnt)	/* all of it before */
			c.info->losses.v[i] = c.info->losses.v[--c.info->losses.cnt];
	}
	*ret = c.info;
	return 0;
}
