/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Counters of control groups, which outlive the processes in them: how often a limit was met, how many were killed for
 * it, the largest usage (cgroup-v1/memory.rst, cgroup-v2.rst). They tell that something happened since the group was
 * made, and not when, nor to whom.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "capture/cgroup.h"
#include "forensic/leftovers_int.h"

/* --- reading ------------------------------------------------------------------------------------ */

/* The mount points of a mountinfo as they are below root: the fifth field of each line. */
static char *below_root(const char *text, const char *root)
{
	struct dl_str s = {};

	for (const char *line = text; *line;) {
		const size_t len = strcspn(line, "\n");
		const char *p = line, *end = line + len;

		for (int field = 0; field < 4 && p < end; field++) {
			const char *space = memchr(p, ' ', (size_t)(end - p));

			p = space ? space + 1 : end;
		}
		dl_str_addn(&s, line, (size_t)(p - line));
		dl_str_add(&s, root);
		dl_str_addn(&s, p, (size_t)(end - p));
		dl_str_add(&s, "\n");
		line += len + (line[len] == '\n');
	}
	return dl_str_take(&s);
}

static bool has_controller(const char *dir, const char *controller)
{
	char path[4096], buf[512];

	snprintf(path, sizeof(path), "%s/cgroup.controllers", dir);
	if (dl_proc_read(AT_FDCWD, path, buf, sizeof(buf)) <= 0)
		return false;
	for (char *save, *word = strtok_r(buf, " \n", &save); word; word = strtok_r(NULL, " \n", &save))
		if (!strcmp(word, controller))
			return true;
	return false;
}

static int read_mounts(const struct dl_left *l, struct dl_cg_mounts *ret)
{
	_cleanup_close_ int self = openat(l->root_fd, "proc/self", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_free_ char *text = NULL, *moved = NULL;
	size_t len;

	*ret = (struct dl_cg_mounts){};
	if (self < 0 || dl_proc_strings(self, "mountinfo", 16 << 20, &text, &len))
		return 0;
	moved = below_root(text, l->o->root && strcmp(l->o->root, "/") ? l->o->root : "");
	return moved ? dl_cg_mounts_parse(moved, has_controller, ret) : -ENOMEM;
}

/* What /proc/PID/cgroup of a process in this group would say. */
static char *all_in(const char *path)
{
	return dl_left_text("2:memory:%s\n1:pids:%s\n0::%s\n", path, path, path);
}

static char *groups_of(const struct dl_left *l, uint32_t pid)
{
	_cleanup_close_ int fd = -1;
	char path[32], *text;
	size_t len;

	snprintf(path, sizeof(path), "proc/%" PRIu32, pid);
	fd = openat(l->root_fd, pid ? path : "proc/self", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 || dl_proc_strings(fd, "cgroup", 1 << 20, &text, &len) ? NULL : text;
}

/* The last victim's whose group the kernel named. */
static const char *group_of_victim(const struct dl_left *l)
{
	for (size_t i = l->klog.events.cnt; i-- > 0;) {
		const struct dl_klog_event *ev = &l->klog.events.v[i];

		if (ev->kind == DL_KLOG_OOM && dl_left_is_python(ev->comm) && (ev->oom.cgroup || ev->oom.limit_cgroup))
			return ev->oom.cgroup ? ev->oom.cgroup : ev->oom.limit_cgroup;
	}
	return NULL;
}

struct group_sink {
	struct dl_sink sink;
	struct dl_left *l;
};

static int keep_group(struct dl_sink *sink, const struct dl_hdr *h)
{
	struct dl_left *l = ((struct group_sink *)sink)->l;
	const struct dl_ev_env_cgroup *ev = (const void *)h;
	struct dl_left_group *g = vec_push(&l->groups);

	if (!g)
		return -ENOMEM;
	*g = (struct dl_left_group){
		.usage = ev->mem_usage, .limit = ev->mem_limit, .peak = ev->mem_peak, .anon = ev->mem_anon,
		.file = ev->mem_file, .shmem = ev->mem_shmem, .swap = ev->swap_usage, .limit_hits = ev->limit_hits,
		.oom_kills = ev->oom_kills, .pids = ev->pids, .pids_limit = ev->pids_limit,
	};
	g->path = strndup((const char *)h + sizeof(*ev), h->size - sizeof(*ev));
	return g->path ? 0 : -ENOMEM;
}

/* pids.events is in no sample of a recording: refused forks are events there. */
static void read_refused(struct dl_left *l, const struct dl_cg_mounts *mounts)
{
	const struct dl_cg_mount *m = &mounts->ctl[DL_CG_PIDS];
	const size_t root_len = m->root && strcmp(m->root, "/") ? strlen(m->root) : 0;

	if (!m->dir)
		return;
	vec_for_each(&l->groups, g) {
		char path[4096], buf[256];

		if (strncmp(g->path, m->root, root_len))
			continue;
		snprintf(path, sizeof(path), "%s%s/pids.events", m->dir, g->path + root_len);
		if (dl_proc_read(AT_FDCWD, path, buf, sizeof(buf)) > 0)
			dl_text_u64(buf, "max", &g->fork_refused);
	}
}

int dl_left_read_groups(struct dl_left *l)
{
	struct group_sink sink = { .sink.emit = keep_group, .l = l };
	const char *victim = group_of_victim(l);
	_cleanup_free_ char *text = NULL;
	struct dl_cg_mounts mounts;
	struct dl_cg_chain *chain;
	int err;

	if (l->o->cgroup)
		text = all_in(l->o->cgroup);
	else if (dl_left_lives(l))
		text = groups_of(l, l->procs.v->pid);
	else if (victim && l->klog.live)
		text = all_in(victim);
	if (!text) {
		text = groups_of(l, 0);
		l->own_groups = true;
	}
	if (!text)
		return 0;
	err = read_mounts(l, &mounts);
	if (!err)
		err = dl_cg_chain_open(&chain, &mounts, text, NULL);
	if (!err) {
		err = dl_cg_chain_emit(chain, &sink.sink, 0, 0);
		dl_cg_chain_close(chain);
		read_refused(l, &mounts);
	}
	dl_cg_mounts_fini(&mounts);
	return err == -ENOMEM ? err : 0;
}

/* --- what they say ----------------------------------------------------------------------------- */

static int tell_group(struct dl_left *l, const struct dl_left_group *g)
{
	char usage[16], limit[16], peak[16];
	int err = 0;

	if (g->oom_kills)
		err = dl_pm_fact(l->pm, NULL, 0, DL_PM_CGROUP, false,
				 "the kernel has killed %" PRIu64 " process%s of control group %s for want of memory since it "
				 "was made", g->oom_kills, g->oom_kills == 1 ? "" : "es", g->path);
	if (!err && g->limit)
		err = dl_pm_fact(l->pm, NULL, 0, DL_PM_CGROUP, false,
				 "control group %s uses %s of its limit of %s now%s%s, and met the limit %" PRIu64 " times",
				 g->path, dl_fmt_bytes(usage, sizeof(usage), g->usage),
				 dl_fmt_bytes(limit, sizeof(limit), g->limit),
				 g->peak ? ", at most it was " : "", g->peak ? dl_fmt_bytes(peak, sizeof(peak), g->peak) : "",
				 g->limit_hits);
	if (!err && g->fork_refused)
		err = dl_pm_fact(l->pm, NULL, 0, DL_PM_CGROUP, false,
				 "control group %s refused a new process or thread %" PRIu64 " times: its limit is %" PRIu64,
				 g->path, g->fork_refused, g->pids_limit);
	return err;
}

/* The level whose limit is the smallest: the one that is met first. */
static const struct dl_left_group *tightest(const struct dl_left *l)
{
	const struct dl_left_group *least = NULL;

	vec_for_each(&l->groups, g)
		if (g->limit && (!least || g->limit < least->limit))
			least = g;
	return least;
}

static int add_numbers(struct dl_left *l, const struct dl_left_group *g)
{
	uint64_t have;
	int err = 0;

	/* The kernel log's are of the time of death; the caller's own may be of another run. */
	if (!g || l->own_groups || dl_pm_get(l->pm, "cgroup.limit", &have))
		return 0;
	err = dl_left_number(l, "cgroup.limit", "memory limit of the control group", g->limit, DL_PM_BYTES, DL_PM_CGROUP);
	if (!err)
		err = dl_left_number(l, "cgroup.usage", "memory charged to the cgroup, now", g->usage, DL_PM_BYTES, DL_PM_CGROUP);
	if (!err && g->peak)
		err = dl_left_number(l, "cgroup.peak", "most that was charged to the cgroup", g->peak, DL_PM_BYTES, DL_PM_CGROUP);
	return err;
}

/* Those of the caller's shell are also the run's in a container, and nothing to it elsewhere. */
static int verdict_of_groups(struct dl_left *l)
{
	const enum dl_pm_confidence sure = l->own_groups ? DL_PM_POSSIBLE : DL_PM_LIKELY;
	char limit[16];

	vec_for_each(&l->groups, g) {
		if (g->oom_kills && dl_left_allows(l, DL_DEATH_OOM_CGROUP) && l->fits)
			return dl_left_verdict(l, DL_DEATH_OOM_CGROUP, sure, dl_left_text(
				"the kernel killed for want of memory in control group %s%s%s: its counter says so, and the "
				"output fits it%s", g->path, g->limit ? ", whose limit is " : "",
				g->limit ? dl_fmt_bytes(limit, sizeof(limit), g->limit) : "",
				l->own_groups ? ", if the run was in it" : ""));
		if (g->oom_kills && !l->fits && !l->o->pid && !l->own_groups)
			return dl_left_verdict(l, DL_DEATH_OOM_CGROUP, DL_PM_POSSIBLE, dl_left_text(
				"the kernel has killed %" PRIu64 " process%s of control group %s for want of memory, at some "
				"time since it was made", g->oom_kills, g->oom_kills == 1 ? "" : "es", g->path));
		if (g->fork_refused && (l->fits & DL_DEATH_BIT(PROCESS_LIMIT)) && !l->own_groups)
			return dl_left_verdict(l, DL_DEATH_PROCESS_LIMIT, DL_PM_LIKELY, dl_left_text(
				"control group %s allows %" PRIu64 " processes and threads, and refused more %" PRIu64 " times",
				g->path, g->pids_limit, g->fork_refused));
	}
	return 0;
}

int dl_left_judge_groups(struct dl_left *l)
{
	const struct dl_left_group *least = tightest(l);
	int err = 0;

	vec_for_each(&l->groups, g) {
		if (!err)
			err = tell_group(l, g);
		if (!err && g == l->groups.v && g->pids_limit && !l->own_groups)
			err = dl_left_number(l, "pids.count", "processes and threads, now", g->pids, DL_PM_CNT, DL_PM_CGROUP);
		if (!err && g == l->groups.v && g->pids_limit && !l->own_groups)
			err = dl_left_number(l, "pids.limit", "limit of processes and threads", g->pids_limit, DL_PM_CNT, DL_PM_CGROUP);
	}
	if (!err)
		err = add_numbers(l, least);
	if (!err && l->groups.cnt && l->own_groups)
		err = dl_pm_note(l->pm, "the control groups are those of this shell: for a container or a job give its "
				 "own with --cgroup");
	return err ? err : verdict_of_groups(l);
}
