/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Memory of the machine and of the job's control groups, swap, huge pages. */
#include <string.h>

#include "check/judge.h"

/* Shared memory that the loaders may come to need beyond what they hold now. */
static uint64_t still_to_come(const struct dl_ck_facts *f)
{
	const struct dl_ck_need n = dl_ck_need_of(f);

	return n.bytes > f->seen.now_bytes ? n.bytes - f->seen.now_bytes : 0;
}

void ck_judge_mem_host(const struct dl_ck_facts *f, struct dl_ck_line *l)
{
	const struct dl_ck_mem *m = &f->mem;
	const uint64_t more = still_to_come(f);
	ck_buf a, b, c;

	if (!m->known) {
		ck_say(l, DL_CK_UNKNOWN, "/proc/meminfo cannot be read");
		return;
	}
	ck_num(l, "total_bytes", (double)m->total);
	ck_num(l, "available_bytes", (double)m->avail);
	ck_say(l, DL_CK_OK, "%s of %s are available", ck_size(a, m->avail), ck_size(b, m->total));
	if (f->seen.worker_anon) {
		ck_num(l, "worker_bytes", (double)f->seen.worker_anon);
		ck_add(l, "; a worker holds up to %s of its own", ck_size(c, f->seen.worker_anon));
	}
	if (more > m->avail) {
		l->state = DL_CK_PROBLEM;
		ck_add(l, ", and the shared memory of the loaders alone may need %s more", ck_size(c, more));
		ck_fix(l, "fewer workers, a smaller prefetch_factor or smaller batches");
	} else if (m->avail < m->total / 20) {
		l->state = DL_CK_PROBLEM;
		ck_add(l, ": the OOM killer is near");
		ck_fix(l, "end what else runs, see who holds the memory");
		ck_cmd(l, "ps -eo pid,rss,comm --sort=-rss | head");
	} else if (m->avail < m->total / 10) {
		l->state = DL_CK_WARNING;
	}
}

/* What can be had of a level: page cache gives way. */
static uint64_t left_of(const struct dl_ck_level *l)
{
	const uint64_t file = l->ev.mem_file < l->ev.mem_usage ? l->ev.mem_file : l->ev.mem_usage;
	const uint64_t held = l->ev.mem_usage - file;

	return held < l->ev.mem_limit ? l->ev.mem_limit - held : 0;
}

static void fix_memory(const struct dl_ck_facts *f, struct dl_ck_line *l, const struct dl_ck_level *level)
{
	const uint64_t mib = (level->ev.mem_limit * 3 / 2 + still_to_come(f)) >> 20;

	ck_fix(l, "fewer workers, a smaller prefetch_factor or smaller batches; or raise the limit");
	if (f->slurm)
		ck_cmd(l, "sbatch --mem=%lluM ...", (unsigned long long)mib);
	else if (f->place == DL_CK_KUBERNETES)
		ck_cmd(l, "resources: { limits: { memory: %lluMi } }", (unsigned long long)mib);
	else if (f->place == DL_CK_CONTAINER)
		ck_cmd(l, "docker run --memory=%llum ...", (unsigned long long)mib);
	else if (level->ev.version == 2)
		ck_cmd(l, "echo %lluM | sudo tee /sys/fs/cgroup%s/memory.max", (unsigned long long)mib, level->path);
	else
		ck_cmd(l, "echo %lluM | sudo tee /sys/fs/cgroup/memory%s/memory.limit_in_bytes", (unsigned long long)mib,
		       level->path);
}

static void say_history(const struct dl_ck_facts *f, struct dl_ck_line *l)
{
	const struct dl_ck_level *most = NULL;
	ck_buf a;

	vec_for_each(&f->levels, it)
		if (it->ev.oom_kills && (!most || it->ev.oom_kills > most->ev.oom_kills))
			most = it;
	if (!most)
		return;
	if (l->state < DL_CK_WARNING)
		l->state = DL_CK_WARNING;
	ck_num(l, "oom_kills", (double)most->ev.oom_kills);
	ck_add(l, "; the OOM killer has ended %s process%s in cgroup %s since it was made", ck_cnt(a, most->ev.oom_kills),
	       most->ev.oom_kills == 1 ? "" : "es", ck_level(most));
	if (!l->fix)
		ck_fix(l, "if that was this job, its memory had no room: dlbpf postmortem says more");
}

/* Reclaim in the job's own threads, though no limit is met. */
static void judge_high(const struct dl_ck_facts *f, struct dl_ck_line *l)
{
	vec_for_each(&f->levels, it) {
		const uint64_t file = it->ev.mem_file < it->ev.mem_usage ? it->ev.mem_file : it->ev.mem_usage;
		ck_buf a, b;

		if (!it->mem_high || it->ev.mem_usage - file < it->mem_high / 10 * 9)
			continue;
		if (l->state < DL_CK_WARNING)
			l->state = DL_CK_WARNING;
		ck_num(l, "high_bytes", (double)it->mem_high);
		ck_add(l, "; cgroup %s holds %s beside its page cache, and above %s (memory.high) the kernel slows its threads down",
		       ck_level(it), ck_size(a, it->ev.mem_usage - file), ck_size(b, it->mem_high));
		ck_fix(l, "raise memory.high");
		ck_cmd(l, "echo max | sudo tee /sys/fs/cgroup%s/memory.high", it->path);
		return;
	}
}

void ck_judge_mem_cgroup(const struct dl_ck_facts *f, struct dl_ck_line *l)
{
	const struct dl_ck_level *tight = NULL;
	const uint64_t more = still_to_come(f);
	uint64_t left;
	ck_buf a, b, c;

	if (!f->levels_known) {
		ck_say(l, DL_CK_UNKNOWN, "%s", f->levels_why[0] ? f->levels_why : "the control groups of the job are not known");
		return;
	}
	vec_for_each(&f->levels, it)
		if (it->ev.mem_limit && (!f->mem.total || it->ev.mem_limit < f->mem.total) &&
		    (!tight || left_of(it) < left_of(tight)))
			tight = it;
	if (!tight) {
		ck_say(l, DL_CK_OK, "no memory limit in %zu level%s of control groups%s", f->levels.cnt,
		       f->levels.cnt == 1 ? "" : "s", f->levels_hidden ? " (those above this container are out of sight)" : "");
		judge_high(f, l);
		say_history(f, l);
		return;
	}
	left = left_of(tight);
	ck_num(l, "limit_bytes", (double)tight->ev.mem_limit);
	ck_num(l, "usage_bytes", (double)tight->ev.mem_usage);
	ck_num(l, "left_bytes", (double)left);
	ck_say(l, DL_CK_OK, "cgroup %s allows %s, %s are left (page cache gives way); shared memory counts", ck_level(tight),
	       ck_size(a, tight->ev.mem_limit), ck_size(b, left));
	if (more > left) {
		l->state = DL_CK_PROBLEM;
		ck_add(l, ", and the loaders may need %s more of it", ck_size(c, more));
	} else if (left < tight->ev.mem_limit / 20) {
		l->state = DL_CK_PROBLEM;
		ck_add(l, ": the OOM killer is near");
	} else if (left < tight->ev.mem_limit / 7) {
		l->state = DL_CK_WARNING;
	}
	if (l->state != DL_CK_OK)
		fix_memory(f, l, tight);
	judge_high(f, l);
	if (f->shm.known && f->shm.total > tight->ev.mem_limit)
		ck_add(l, "; /dev/shm is larger, so that filling it ends in the OOM killer");
	say_history(f, l);
}

void ck_judge_swap(const struct dl_ck_facts *f, struct dl_ck_line *l)
{
	const struct dl_ck_mem *m = &f->mem;
	const uint64_t used = m->swap_total > m->swap_free ? m->swap_total - m->swap_free : 0;
	uint64_t cgroup = 0;
	double rate;
	ck_buf a, b;

	if (!m->known) {
		ck_say(l, DL_CK_UNKNOWN, "/proc/meminfo cannot be read");
		return;
	}
	vec_for_each(&f->levels, it)
		cgroup = it->ev.mem_limit && it->ev.swap_usage > cgroup ? it->ev.swap_usage : cgroup;
	ck_num(l, "total_bytes", (double)m->swap_total);
	ck_num(l, "used_bytes", (double)used);
	if (!m->swap_total) {
		ck_say(l, DL_CK_OK, "none: what does not fit into memory ends in the OOM killer at once");
		return;
	}
	ck_say(l, DL_CK_OK, "%s of %s in use (%s)%s%s", ck_size(a, used), ck_size(b, m->swap_total),
	       m->swap_dev[0] ? m->swap_dev : "of unknown kind",
	       m->zram ? "; it is zram, compressed memory: swapping shows as CPU time of the workers, not as disk I/O" : "",
	       m->zswap ? "; zswap compresses before it writes" : "");
	rate = m->swapins_known && f->seen.watched_ns ? (double)m->swapins * 1e9 / (double)f->seen.watched_ns : 0;
	if (rate > 10) {
		ck_num(l, "swapins_per_s", rate);
		l->state = rate > 1000 ? DL_CK_PROBLEM : DL_CK_WARNING;
		ck_add(l, "; while watched, the machine read %.0f pages a second back from it", rate);
	} else if (cgroup > 64 << 20 || used > m->swap_total / 2) {
		l->state = DL_CK_WARNING;
		if (cgroup > 64 << 20)
			ck_add(l, "; %s of it are the job's own cgroup's", ck_size(a, cgroup));
	}
	if (l->state != DL_CK_OK)
		ck_fix(l, "fewer workers, or more memory: what a worker has to read back from swap keeps its batch waiting");
}

void ck_judge_overcommit(const struct dl_ck_facts *f, struct dl_ck_line *l)
{
	const struct dl_ck_mem *m = &f->mem;
	const uint64_t left = m->commit_limit > m->committed ? m->commit_limit - m->committed : 0;
	ck_buf a, b;

	if (!m->overcommit_known || !m->known) {
		ck_say(l, DL_CK_UNKNOWN, "vm.overcommit_memory cannot be read");
		return;
	}
	ck_num(l, "mode", m->overcommit);
	if (m->overcommit != 2) {
		ck_say(l, DL_CK_OK, "mode %u: forking workers costs no memory at first", m->overcommit);
		return;
	}
	ck_num(l, "left_bytes", (double)left);
	ck_say(l, DL_CK_WARNING, "strict (vm.overcommit_memory=2): each forked worker counts as large as its trainer, and %s are "
	       "left", ck_size(a, left));
	if (f->seen.trainer_data && dl_ck_workers(f) && f->seen.trainer_data > left) {
		l->state = DL_CK_PROBLEM;
		ck_add(l, ", less than one of %s needs", ck_size(b, f->seen.trainer_data));
	}
	ck_fix(l, "let the kernel overcommit, or start workers by spawn");
	ck_cmd(l, "sudo sysctl vm.overcommit_memory=0");
}

void ck_judge_thp(const struct dl_ck_facts *f, struct dl_ck_line *l)
{
	const struct dl_ck_mem *m = &f->mem;

	if (!m->thp_known) {
		ck_say(l, DL_CK_UNKNOWN, "/sys/kernel/mm/transparent_hugepage is not there");
		return;
	}
	ck_say(l, DL_CK_OK, "transparent huge pages: %s", m->thp);
	if (strcmp(m->thp, "never"))
		ck_add(l, ", defragmentation: %s", m->thp_defrag[0] ? m->thp_defrag : "unknown");
	if (strcmp(m->thp, "always") || strcmp(m->thp_defrag, "always"))
		return;
	l->state = DL_CK_WARNING;
	ck_add(l, ": a thread that touches new memory may have to wait until pages were moved together");
	ck_fix(l, "let a kernel thread do that");
	ck_cmd(l, "echo defer+madvise | sudo tee /sys/kernel/mm/transparent_hugepage/defrag");
}
