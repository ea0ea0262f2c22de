/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Gathers all facts, in an order that disturbs the job least, and has them judged. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "capture/env.h"
#include "capture/proc.h"
#include "check/check.h"
#include "check/command.h"
#include "check/gather.h"
#include "check/watch.h"

#define PID_NS (10 * DL_NS_PER_S)
#define CMD_NS (60 * DL_NS_PER_S)
#define OBJECT_NS (10 * DL_NS_PER_S)	/* behind the first batch, without a pattern in them */

static void note(const struct dl_ck_opts *o, const char *text)
{
	if (o->on_note)
		o->on_note(text);
}

static bool is_over(const struct dl_ck_opts *o, const struct ck_watch *w, const struct ck_command *c)
{
	const uint64_t now = dl_now_ns(), most = o->watch_ns ? o->watch_ns : o->argv ? CMD_NS : PID_NS;

	if (w->enough || c->ended || now - w->start_ts > most)
		return true;
	if (!o->watch_ns && w->first_object_ts && now - w->first_object_ts > OBJECT_NS)
		return true;
	return o->stopped && o->stopped();
}

static int watch(const struct dl_ck_opts *o, struct dl_ck_facts *f, struct ck_watch *w, struct ck_command *c, uint32_t pid)
{
	const int fd = dl_proc_open(pid);
	int err = 0;

	while (!err && !is_over(o, w, c)) {
		err = ck_watch_look(w);
		ck_command_poll(c);
		/* A target that is not ours has ended. */
		if (!c->pid && (fd < 0 || faccessat(fd, "stat", F_OK, 0) || !ck_family_alive(w->fam)))
			break;
		if (!c->ended)
			usleep((useconds_t)(w->period_ns / 1000));
	}
	if (fd >= 0)
		close(fd);
	/* Once more: what a dead worker has left in /dev/shm tells what it wanted. */
	if (!err)
		err = ck_watch_look(w);
	f->seen.ended = c->ended;
	f->seen.status = c->status;
	f->seen.interrupted = o->stopped && o->stopped();
	return err ? err : ck_watch_end(w);
}

/* Without a target: the /dev/shm and the control groups that a job started from here would have. */
static int look_at_self(struct dl_ck_facts *f)
{
	_cleanup_close_ int fd = open("/dev/shm", O_PATH | O_DIRECTORY | O_CLOEXEC);

	return ck_gather_shm(f, fd < 0 ? -errno : fd);
}

static int look_at_target(const struct dl_ck_opts *o, struct dl_ck_facts *f, struct ck_command *c, uint32_t pid)
{
	struct ck_watch w;
	int err = ck_watch_open(&w, f, pid, c->fam);

	note(o, c->pid ? "running the command until its first batches; it is ended then" :
	     "watching the job for some seconds, without touching it");
	ck_gather_swapins(f, "", false);
	if (!err)
		err = watch(o, f, &w, c, pid);
	ck_gather_swapins(f, "", true);
	ck_gather_place(f, "", c->ended ? 0 : w.proc_of);
	if (!err)
		ck_gather_gpus(f, "/sys");	/* while the job runs: an idle GPU turns its link down */
	if (!err && f->data.found)
		ck_gather_data(f, "", c->ended ? 0 : w.proc_of);
	ck_command_end(c);
	if (c->pid && !err)
		err = ck_watch_tidy(&w);
	ck_watch_close(&w);
	return err;
}

static int gather(const struct dl_ck_opts *o, struct dl_ck_facts *f, struct ck_command *c, bool *exec, struct dl_diag *d)
{
	uint32_t pid = o->pid;
	int err = 0;

	f->target = o->argv ? DL_CK_CMD : o->pid ? DL_CK_PID : DL_CK_SELF;
	f->workers = o->workers;
	f->prefetch = o->prefetch;
	f->batch_bytes = o->batch_bytes;
	if (o->data) {
		f->data.asked = true;
		ck_copy(f->data.path, sizeof(f->data.path), o->data);
	}
	ck_gather_cpus(f, "");
	ck_gather_mem(f, "");
	if (o->argv) {
		err = ck_command_start(c, o->argv, o->invoker, exec, d);
		if (err)
			return err;
		pid = (uint32_t)c->pid;
	}
	ck_gather_proc(f, "", pid, pid ? NULL : o->invoker);
	err = ck_gather_levels(f, "", pid, false);
	if (!err)
		err = pid ? look_at_target(o, f, c, pid) : look_at_self(f);
	if (!pid && !err) {
		ck_gather_place(f, "", 0);
		ck_gather_gpus(f, "/sys");
	}
	if (f->data.asked && !f->data.found && !err)
		ck_gather_data(f, "", o->pid);
	return err ? dl_oom(d) : 0;
}

int dl_check_run(struct dl_check **ret, const struct dl_ck_opts *o, bool *ret_exec, struct dl_diag *d)
{
	struct dl_ck_facts *f = calloc(1, sizeof(*f));
	/* Of a command, all that dlbpf has below it from now on. */
	struct ck_family fam = { .root = o->argv ? (uint32_t)getpid() : o->pid, .with_root = !o->argv };
	struct ck_command c = { .fam = &fam };
	int err;

	if (!f)
		return dl_oom(d);
	err = gather(o, f, &c, ret_exec, d);
	ck_command_end(&c);
	if (!err) {
		ck_gather_host(f, "");
		ck_gather_self(f, o->pid);
		err = dl_check_judge(ret, f, d);
	}
	ck_family_fini(&fam);
	dl_ck_facts_fini(f);
	free(f);
	return err;
}
