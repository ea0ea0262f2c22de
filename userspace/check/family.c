/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#include "check/family.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/map.h"
#include "capture/proc.h"
#include "capture/tree.h"

void ck_family_fini(struct ck_family *fam)
{
	vec_for_each(&fam->v, it)
		if (it->fd >= 0)
			close(it->fd);
	vec_free(&fam->v);
}

static struct ck_member *find(const struct ck_family *fam, uint32_t pid)
{
	vec_for_each(&fam->v, it)
		if (it->pid == pid && !it->gone)
			return it;
	return NULL;
}

bool ck_family_has(const struct ck_family *fam, uint32_t nspid)
{
	vec_for_each(&fam->v, it)
		if (it->nspid == nspid && !it->foreign)
			return true;
	return false;
}

/* What a worker runs says how it was made; a forked one shows its trainer's command line. */
static enum dl_ck_start start_of(int fd)
{
	char cmd[4096];
	uint32_t argc;

	if (dl_proc_cmdline(fd, cmd, sizeof(cmd), &argc))
		return DL_CK_START_UNKNOWN;
	if (strstr(cmd, "multiprocessing.forkserver"))
		return DL_CK_FORKSERVER;
	if (strstr(cmd, "multiprocessing.spawn") || strstr(cmd, "--multiprocessing-fork"))
		return DL_CK_SPAWN;
	return DL_CK_FORK;
}

/* Python's own helper, and whatever is not Python. */
static bool is_helper(int fd)
{
	char cmd[4096];
	uint32_t argc;

	return dl_proc_cmdline(fd, cmd, sizeof(cmd), &argc) || strstr(cmd, "resource_tracker") || !strstr(cmd, "python");
}

static void look_at(struct ck_member *m)
{
	struct dl_status st;
	struct dl_stat stat;

	if (dl_proc_status(m->fd, 0, &st) || dl_proc_stat(m->fd, 0, &stat) || stat.state == 'Z' || stat.state == 'X') {
		m->gone = true;
		return;
	}
	m->nspid = st.nspid;
	m->handlers = dl_worker_handlers(st.sig_caught);
	m->manager = !strncmp(stat.comm, "torch_shm_manag", sizeof(stat.comm));
	m->helper = m->manager || (!m->handlers && is_helper(m->fd));
}

static int add(struct ck_family *fam, const struct dl_pid_pair *p)
{
	struct ck_member *m = find(fam, p->pid);
	const struct ck_member *up;

	if (!m) {
		const int fd = dl_proc_open(p->pid);

		if (fd < 0)
			return 0;	/* gone again */
		m = vec_push(&fam->v);
		if (!m) {
			close(fd);
			return -ENOMEM;
		}
		m->pid = p->pid;
		m->fd = fd;
		m->found_ts = dl_now_ns();
		up = find(fam, p->ppid);
		m->foreign = up && up->foreign;
	}
	m->ppid = p->ppid;
	m->seen = true;
	return 0;
}

/* The descendants: a parent is met before or after its children, so it is gone round until nobody is new. */
static int find_all(struct ck_family *fam)
{
	_cleanup_(dl_map_fini) struct dl_map in = {};
	struct dl_pid_list list = {};
	uint64_t val;
	bool more = true;
	int err = dl_proc_list(&list);

	if (!err)
		err = dl_map_set(&in, fam->root, 1);
	while (!err && more) {
		more = false;
		for (size_t i = 0; !err && i < list.cnt; i++) {
			const struct dl_pid_pair *p = &list.v[i];

			if (dl_map_get(&in, p->pid, &val) || !dl_map_get(&in, p->ppid, &val))
				continue;
			err = dl_map_set(&in, p->pid, 1);
			if (!err)
				err = add(fam, p);
			more = true;
		}
	}
	for (size_t i = 0; !err && fam->with_root && i < list.cnt; i++)
		if (list.v[i].pid == fam->root)
			err = add(fam, &list.v[i]);
	vec_free(&list);
	return err == -ENOMEM ? err : 0;
}

/*
 * The handlers make a worker, unless it has workers of its own: a trainer may handle these signals too, with
 * faulthandler for example. A worker's trainer is its parent, or that one's parent when that is a forkserver.
 */
static void assign_roles(struct ck_family *fam)
{
	vec_for_each(&fam->v, it) {
		struct ck_member *up = it->gone || it->foreign || !it->handlers ? NULL : find(fam, it->ppid);

		if (up && up->handlers) {
			up->trainer = true;
			up->worker = false;
		}
	}
	vec_for_each(&fam->v, it) {
		struct ck_member *up;

		if (it->gone || it->foreign || !it->handlers || it->trainer || (fam->with_root && it->pid == fam->root))
			continue;
		if (!it->worker)
			it->start = start_of(it->fd);
		it->worker = true;
		up = find(fam, it->ppid);
		if (up && it->start == DL_CK_FORKSERVER)
			up = find(fam, up->ppid);
		if (up)
			up->trainer = true;
	}
}

int ck_family_look(struct ck_family *fam)
{
	int err;

	vec_for_each(&fam->v, it)
		it->seen = false;
	err = find_all(fam);
	if (err)
		return err;
	vec_for_each(&fam->v, it) {
		if (it->gone)
			continue;
		if (it->seen)
			look_at(it);
		else
			it->gone = true;
		if (it->gone) {
			close(it->fd);
			it->fd = -1;
		}
	}
	assign_roles(fam);
	return 0;
}

void ck_family_disown(struct ck_family *fam)
{
	vec_for_each(&fam->v, it)
		it->foreign = true;
}

uint32_t ck_family_alive(const struct ck_family *fam)
{
	uint32_t cnt = 0;

	vec_for_each(&fam->v, it)
		cnt += !it->gone && !it->foreign;
	return cnt;
}

uint32_t ck_family_workers(const struct ck_family *fam)
{
	uint32_t cnt = 0;

	vec_for_each(&fam->v, it)
		cnt += it->worker && !it->gone;
	return cnt;
}

static bool was_trainer(const struct ck_family *fam, uint32_t pid)
{
	vec_for_each(&fam->v, it)
		if (it->pid == pid && it->trainer)
			return true;
	return false;
}

uint32_t ck_family_first(const struct ck_family *fam, uint64_t within_ns)
{
	uint64_t first = UINT64_MAX;
	uint32_t cnt = 0;

	vec_for_each(&fam->v, it)
		first = it->worker && it->found_ts < first ? it->found_ts : first;
	vec_for_each(&fam->v, it) {
		if (first == UINT64_MAX || it->found_ts + within_ns < first || it->found_ts > first + within_ns)
			continue;
		cnt += it->worker || (!it->helper && !it->trainer && was_trainer(fam, it->ppid));
	}
	return cnt;
}

uint32_t ck_family_trainers(const struct ck_family *fam)
{
	uint32_t cnt = 0;

	vec_for_each(&fam->v, it)
		cnt += it->trainer && !it->worker && !it->gone;
	return cnt;
}

const struct ck_member *ck_family_trainer(const struct ck_family *fam)
{
	vec_for_each(&fam->v, it)
		if (it->trainer && !it->worker && !it->gone)
			return it;
	return NULL;
}
