/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The recorder's samples of the environment: which groups, which /dev/shm, which processes. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "capture/recorder_int.h"

enum {
	CHAINS_MAX = 8,		/* different sets of control groups in one tree */
	SHMS_MAX = 8,
	PROCS_AT_ONCE = 128,	/* processes sampled in one round; the others follow in the next */
};

int dl_rec_absent(struct dl_recorder *r, uint32_t source, const char *text)
{
	struct dl_ev_absent ev = DL_EVENT_INIT(absent, DL_EV_ABSENT, dl_now_ns(), 0, 0);

	ev.source = source;
	return dl_emit_text(&r->sink, &ev.h, text);
}

int dl_rec_mark(struct dl_recorder *r, uint32_t what, int32_t value, const char *text)
{
	struct dl_ev_mark ev = DL_EVENT_INIT(mark, DL_EV_MARK, dl_now_ns(), r->root_pid, r->root_pid);

	ev.what = what;
	ev.value = value;
	return dl_emit_text(&r->sink, &ev.h, text);
}

void dl_rec_env_open(struct dl_recorder *r)
{
	dl_env_host_open(&r->host);
	r->maps_limit = dl_env_maps_limit();
	if (dl_cg_mounts_read(&r->mounts))
		memset(&r->mounts, 0, sizeof(r->mounts));
}

void dl_rec_env_close(struct dl_recorder *r)
{
	dl_env_host_close(&r->host);
	dl_cg_mounts_fini(&r->mounts);
	vec_for_each(&r->chains, it)
		dl_cg_chain_close(it->chain);
	vec_free(&r->chains);
	vec_for_each(&r->shms, it)
		dl_env_shm_close(&it->shm);
	vec_free(&r->shms);
}

/*
 * One process stands for all that share a set of groups or a /dev/shm: the first met, until a worker
 * shows which process trains; and another one when it ends.
 */
static void represent(struct dl_recorder *r, const struct dl_tree_proc *p, uint32_t *pid)
{
	if (p->worker)
		*pid = dl_tree_find(&r->tree, p->ppid) ? p->ppid : p->pid;
	else if (!dl_tree_find(&r->tree, *pid))
		*pid = p->pid;
}

static int meet_groups(struct dl_recorder *r, struct dl_tree_proc *p)
{
	struct dl_cg_chain *chain;
	struct dl_rec_chain *slot;
	struct dl_diag d = {};
	char text[16384];
	uint64_t id;
	int err;

	if (dl_proc_read(p->fd, "cgroup", text, sizeof(text)) <= 0)
		return 0;
	id = dl_hash_bytes(text, strlen(text));
	vec_for_each(&r->chains, it) {
		if (it->id == id) {
			represent(r, p, &it->pid);
			return 0;
		}
	}
	if (r->chains.cnt >= CHAINS_MAX)
		return 0;
	err = dl_cg_chain_open(&chain, &r->mounts, text, &d);
	if (err == -ENOMEM)
		return err;
	if (err) {
		if (r->told_cgroup || r->chains.cnt)
			return 0;
		r->told_cgroup = true;
		return dl_rec_absent(r, DL_SRC_CGROUP, d.msg);
	}
	slot = vec_push(&r->chains);
	if (!slot) {
		dl_cg_chain_close(chain);
		return -ENOMEM;
	}
	*slot = (struct dl_rec_chain){ chain, id, p->pid };
	return 0;
}

static int meet_shm(struct dl_recorder *r, struct dl_tree_proc *p)
{
	const uint64_t ns = dl_mnt_ns(p->fd);
	struct dl_env_shm shm;
	struct dl_rec_shm *slot;

	if (!ns || r->shms.cnt >= SHMS_MAX)
		return 0;
	vec_for_each(&r->shms, it) {
		if (it->shm.mnt_ns == ns) {
			represent(r, p, &it->pid);
			return 0;
		}
	}
	if (dl_env_shm_open(&shm, p->fd)) {
		if (r->told_shm || r->shms.cnt)
			return 0;
		r->told_shm = true;
		return dl_rec_absent(r, DL_SRC_SHM, "the target sees no /dev/shm");
	}
	slot = vec_push(&r->shms);
	if (!slot) {
		dl_env_shm_close(&shm);
		return -ENOMEM;
	}
	*slot = (struct dl_rec_shm){ shm, p->pid };
	return 0;
}

int dl_rec_env_meet(struct dl_recorder *r, struct dl_tree_proc *p)
{
	const int err = meet_groups(r, p);

	return err ? err : meet_shm(r, p);
}

void dl_rec_env_crash(struct dl_recorder *r, uint32_t pid)
{
	if (!r->env_wanted || !r->env_pid)
		r->env_pid = pid;	/* the first one of several decides */
	r->env_wanted = true;
}

void dl_rec_env_fail(struct dl_recorder *r, uint32_t pid, uint32_t kind, uint64_t ts)
{
	uint64_t *last = &r->env_fail_ts[kind % DL_REC_FAILS];

	if (*last && ts - *last < DL_NS_PER_S)
		return;
	*last = ts;
	dl_rec_env_crash(r, pid);
}

static int sample_proc(struct dl_recorder *r, struct dl_tree_proc *p, uint64_t ts, bool whole)
{
	int err;

	err = dl_env_proc_emit(&p->env, &r->sink, ts, p->pid, p->fd, r->maps_limit, whole);
	if (!err && whole)
		err = dl_env_limits_emit(&p->env, &r->sink, ts, p->pid, p->fd);
	return err == -ESRCH ? 0 : err;
}

static int sample_procs(struct dl_recorder *r, uint64_t ts, bool whole, uint32_t but_pid)
{
	const size_t cnt = r->tree.procs.cnt < PROCS_AT_ONCE ? r->tree.procs.cnt : PROCS_AT_ONCE;

	for (size_t i = 0; i < cnt; i++) {
		struct dl_tree_proc *p;
		int err;

		if (r->next_proc >= r->tree.procs.cnt)
			r->next_proc = 0;
		p = r->tree.procs.v[r->next_proc++];
		err = p->pid == but_pid ? 0 : sample_proc(r, p, ts, whole);
		if (err)
			return err;
		/* A library that is loaded late may be where it crashes, before any sample hits it. A forked process
		 * is looked at soon. */
		if (!err && p->env.more_libs && r->sym && (p->execed || p->looks > 1))
			dl_symbols_scan(r->sym, p->pid, p->fd);
	}
	return 0;
}

static int sample_shms(struct dl_recorder *r, uint64_t ts)
{
	int err = 0;

	vec_for_each(&r->shms, it) {
		const struct dl_tree_proc *p = dl_tree_find(&r->tree, it->pid);

		if (!err)
			err = dl_env_shm_emit(&it->shm, &r->sink, ts, it->pid, p ? p->fd : -1);
	}
	return err;
}

/*
 * What may be gone the next moment first: shared memory and the charges of a group are given back as soon
 * as a process ends. All mappings of a tree take too long to be counted at every one of many crashes.
 */
int dl_rec_env_sample(struct dl_recorder *r, bool at_once)
{
	const uint64_t ts = dl_now_ns();
	const bool whole = at_once && ts - r->env_whole_ts >= DL_NS_PER_S;
	struct dl_tree_proc *who = at_once && r->env_pid ? dl_tree_find(&r->tree, r->env_pid) : NULL;
	int err;

	r->env_ts = ts;
	r->env_crash_ts = at_once ? ts : r->env_crash_ts;
	r->env_whole_ts = whole ? ts : r->env_whole_ts;
	r->env_wanted = false;
	r->env_pid = 0;
	err = sample_shms(r, ts);
	if (!err && who)
		err = sample_proc(r, who, ts, true);
	vec_for_each(&r->chains, it) {
		if (!err)
			err = dl_cg_chain_emit(it->chain, &r->sink, ts, it->pid);
	}
	if (!err)
		err = sample_procs(r, ts, whole, who ? who->pid : 0);
	return err ? err : dl_env_host_emit(&r->host, &r->sink, ts);
}
