/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The map of recorded processes: the tree that exists already, and the removal of what has ended. */
#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include <bpf/bpf.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "capture/kernel_priv.h"

/* An ended process stays this long in the map: siblings of its last thread, and the last switches
 * of all, come a little later than its EXIT. */
#define DEAD_NS 1000000000ULL

struct proc { uint32_t pid, ppid; };
typedef DL_VEC(struct proc) proc_vec;

static int status_field(uint32_t pid, const char *fmt, uint32_t *ret)
{
	_cleanup_fclose_ FILE *f = NULL;
	char line[256];

	snprintf(line, sizeof(line), "/proc/%u/status", pid);
	f = fopen(line, "re");
	if (!f)
		return -errno;
	while (fgets(line, sizeof(line), f)) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
		if (sscanf(line, fmt, ret) == 1)
			return 0;
#pragma GCC diagnostic pop
	}
	return -ESRCH;
}

/* Every process and its parent. /proc/PID/task/TID/children would do, but needs CONFIG_PROC_CHILDREN. */
static int list_procs(proc_vec *ret)
{
	_cleanup_closedir_ DIR *dir = opendir("/proc");
	struct dirent *e;

	if (!dir)
		return -errno;
	while ((e = readdir(dir))) {
		struct proc *p;
		uint32_t ppid;
		uint64_t pid;

		if (!dl_parse_u64(e->d_name, &pid) || pid > UINT32_MAX || status_field(pid, "PPid: %u", &ppid))
			continue;
		p = vec_push(ret);
		if (!p)
			return -ENOMEM;
		*p = (struct proc){ .pid = pid, .ppid = ppid };
	}
	return 0;
}

static bool is_target(const struct dl_kernel *k, uint32_t pid)
{
	struct dl_target t;

	return !bpf_map_lookup_elem(bpf_map__fd(k->skel->maps.dl_targets), &pid, &t);
}

static int add_one(struct dl_kernel *k, uint32_t pid, uint32_t flags)
{
	struct dl_target t = { .flags = flags };

	/* Children that BPF has added in the meantime are left as they are. */
	if (bpf_map_update_elem(bpf_map__fd(k->skel->maps.dl_targets), &pid, &t, flags ? BPF_ANY : BPF_NOEXIST) &&
	    errno != EEXIST)
		return -errno;
	k->skel->bss->dl_maybe[pid & (DL_MAYBE_CNT - 1)] = 1;
	return 0;
}

/* One pass over /proc: adds children of what is in the map. Returns how many were new. */
static int add_children(struct dl_kernel *k)
{
	proc_vec procs = {};
	int err, added = 0;

	err = list_procs(&procs);
	vec_for_each(&procs, p) {
		if (err || !is_target(k, p->ppid) || is_target(k, p->pid))
			continue;
		err = add_one(k, p->pid, 0);
		added++;
	}
	vec_free(&procs);
	return err ? err : added;
}

/*
 * No child is missed: one that is forked after its parent got into the map is added by BPF, one
 * that was forked before is seen by the next pass, which goes on until a pass finds nothing new.
 */
int dl_kernel_add_target(struct dl_kernel *k, uint32_t pid, bool root, struct dl_diag *d)
{
	uint32_t tgid;
	int n;

	if (status_field(pid, "Tgid: %u", &tgid))
		return dl_fail(d, -ESRCH, "there is no process %u", pid);
	n = add_one(k, tgid, root ? DL_TG_ROOT : 0);
	if (n)
		return dl_fail_errno(d, n, "cannot record process %u", pid);
	do {
		n = add_children(k);
	} while (n > 0);
	return n ? dl_fail_errno(d, n, "cannot record the children of process %u", pid) : 0;
}

int dl_kernel_remove_target(struct dl_kernel *k, uint32_t pid)
{
	return bpf_map_delete_elem(bpf_map__fd(k->skel->maps.dl_targets), &pid) ? -errno : 0;
}

/* Removes what has been dead for long enough, unless its id is in use again. */
void dl_kernel_reap(struct dl_kernel *k)
{
	uint64_t now = dl_kernel_now();
	size_t keep = 0;

	vec_for_each(&k->dead, dead) {
		struct dl_target t;

		if (now - dead->ts < DEAD_NS)
			k->dead.v[keep++] = *dead;
		else if (!bpf_map_lookup_elem(bpf_map__fd(k->skel->maps.dl_targets), &dead->pid, &t) &&
			 t.flags & DL_TG_DEAD)
			dl_kernel_remove_target(k, dead->pid);
	}
	k->dead.cnt = keep;
}
