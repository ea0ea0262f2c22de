/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The order in which what is left is looked at. What each part says is in files of their own. */
#include "forensic/leftovers.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "forensic/core.h"
#include "forensic/leftovers_int.h"

static int read_output(struct dl_left *l)
{
	const struct dl_pm_claim *first;
	int err;

	l->likely = DL_DEATH_UNEXPLAINED;
	if (!l->o->log)
		return 0;
	err = dl_pm_read_log(l->pm, l->o->log, l->o->log_len);
	if (!err)
		err = dl_pm_claims_fit(l->pm, &l->fits, &l->likely, &first, &l->sig);
	if (err)
		return err;
	/* The first line that names a process may be about another one than the first that decides. */
	l->pid = first ? first->pid : 0;
	vec_for_each(&l->pm->claims, c)
		if (!l->pid)
			l->pid = c->pid;
	return l->pm->claims.cnt ? 0 : dl_pm_note(l->pm, "no line of the output is known as one that tells of a death");
}

static int read_core(struct dl_left *l)
{
	const struct dl_log_signal *sig;
	struct dl_core *core;
	int err;

	if (!l->o->core)
		return 0;
	err = dl_core_read(&core, l->o->core, l->d);
	if (err)
		return err;
	err = dl_pm_add_core(l->pm, core);
	dl_core_free(core);
	if (err)
		return dl_oom(l->d);
	/* What the core says goes before what the output says: it may be of another process. */
	sig = l->pm->sig ? dl_log_signal(l->pm->sig) : NULL;
	if (sig && l->sig != l->pm->sig) {
		l->fits = sig->fits;
		l->likely = sig->suggests;
		l->sig = l->pm->sig;
	}
	if (l->pm->victim.pid || l->pm->victim.nspid)
		l->pid = l->pm->victim.nspid ? l->pm->victim.nspid : l->pm->victim.pid;
	return 0;
}

/* What was asked for must be there; that the kernel's own log may not be read is a note. */
static int read_kernel_log(struct dl_left *l)
{
	_cleanup_free_ char *path = NULL;
	struct dl_diag why = {};
	int err;

	if (l->o->kernel_log) {
		err = dl_klog_read_file(&l->klog, l->o->kernel_log, l->d);
		l->has_klog = !err;
		return err;
	}
	path = dl_left_text("%s/dev/kmsg", l->o->root && strcmp(l->o->root, "/") ? l->o->root : "");
	if (!path)
		return dl_oom(l->d);
	err = dl_klog_read_kernel(&l->klog, path, &why);
	l->has_klog = !err;
	if (err == -ENOMEM || (err && dl_pm_note(l->pm, "%s", why.msg)))
		return dl_oom(l->d);
	return 0;
}

/* --- limits of now -------------------------------------------------------------------------------- */

static void meminfo(const struct dl_left *l, const char *key, uint64_t *ret)
{
	char buf[8192];

	if (dl_proc_read(l->root_fd, "proc/meminfo", buf, sizeof(buf)) > 0 && dl_text_u64(buf, key, ret))
		*ret *= 1024;
}

static int add_if(struct dl_left *l, const char *id, const char *label, uint64_t value, enum dl_pm_unit unit)
{
	return value ? dl_left_number(l, id, label, value, unit, DL_PM_PROC) : 0;
}

static int add_limits(struct dl_left *l)
{
	const struct dl_left_proc *fds = NULL, *maps = NULL;
	uint64_t total = 0, available = 0, workers = 0;
	int err;

	vec_for_each(&l->procs, p) {
		workers += p->role == DL_ROLE_WORKER;
		if (p->fds_limit && (!fds || p->fds > fds->fds))
			fds = p;
		if (p->maps && (!maps || p->maps > maps->maps))
			maps = p;
	}
	meminfo(l, "MemTotal", &total);
	meminfo(l, "MemAvailable", &available);
	err = add_if(l, "host.total", "memory of the machine", total, DL_PM_BYTES);
	if (!err)
		err = add_if(l, "host.available", "free on the machine, now", available, DL_PM_BYTES);
	if (!err && fds)
		err = add_if(l, "fds.open", "open files of one process, at most", fds->fds, DL_PM_CNT);
	if (!err && fds)
		err = add_if(l, "fds.limit", "limit of open files", fds->fds_limit, DL_PM_CNT);
	if (!err && maps)
		err = add_if(l, "maps.count", "memory mappings of one process, at most", maps->maps, DL_PM_CNT);
	if (!err)
		err = add_if(l, "maps.limit", "limit of mappings (vm.max_map_count)", l->maps_limit, DL_PM_CNT);
	return err ? err : add_if(l, "workers", "workers", workers, DL_PM_CNT);
}

/* --- all of it ------------------------------------------------------------------------------------ */

static int name_machine(struct dl_left *l)
{
	struct utsname u;
	int err;

	if (uname(&u))
		return 0;
	err = dl_pm_set(&l->pm->host, "%s", u.nodename);
	return err ? err : dl_pm_set(&l->pm->kernel, "%s", u.release);
}

static int name_run(struct dl_left *l)
{
	_cleanup_close_ int fd = -1;
	char path[32], buf[4096];
	uint32_t argc;

	if (!dl_left_lives(l))
		return 0;
	snprintf(path, sizeof(path), "proc/%" PRIu32, l->procs.v->pid);
	fd = openat(l->root_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || dl_proc_cmdline(fd, buf, sizeof(buf), &argc) || !argc)
		return 0;
	return dl_pm_set(&l->pm->cmdline, "%s", buf);
}

/* Fails with a message. */
static int read_given(struct dl_left *l)
{
	int err = read_output(l);

	if (err)
		return dl_oom(l->d);
	err = read_core(l);
	return err ? err : read_kernel_log(l);
}

/* Only -ENOMEM. */
static int look_around(struct dl_left *l)
{
	static int (*const steps[])(struct dl_left *) = {
		name_machine, dl_left_read_tree, name_run, dl_left_read_groups, dl_left_read_shm,
		/* The surest first: of two that are as sure the first one stays. */
		dl_left_judge_tree, dl_left_judge_klog, dl_left_judge_shm, dl_left_judge_groups, dl_left_judge_output,
		add_limits, dl_left_conclude,
	};
	int err = 0;

	if (!dl_proc_read_u64(l->root_fd, "proc/sys/vm/max_map_count", &l->maps_limit))
		l->maps_limit = 0;
	if (!l->o->pid)
		err = dl_left_find_orphans(l);
	for (size_t i = 0; i < ARRAY_SIZE(steps) && !err; i++)
		err = steps[i](l);
	return err;
}

static void left_fini(struct dl_left *l)
{
	dl_postmortem_free(l->pm);
	dl_klog_fini(&l->klog);
	dl_left_procs_fini(l);
	vec_for_each(&l->groups, g)
		free(g->path);
	vec_free(&l->groups);
	if (l->root_fd >= 0)
		close(l->root_fd);
}

int dl_postmortem_leftovers(struct dl_postmortem **ret, const struct dl_leftover_opts *o, struct dl_diag *d)
{
	struct dl_left l = { .o = o, .d = d, .pm = dl_pm_new() };
	int err;

	l.root_fd = open(o->root ? o->root : "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (!l.pm)
		err = dl_oom(d);
	else if (l.root_fd < 0)
		err = dl_fail_errno(d, -errno, "%s", o->root ? o->root : "/");
	else
		err = read_given(&l);
	if (!err && look_around(&l))
		err = dl_oom(d);
	if (!err)
		*ret = take_ptr(l.pm);
	left_fini(&l);
	return err;
}
