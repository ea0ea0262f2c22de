/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Limits of processes: descriptors, mappings, locked memory, threads, cores, stacks. */
#include <string.h>

#include "check/judge.h"

enum { FDS_WANTED = 65536, MAPS_DEFAULT = 65530, OWN_THREADS = 3 };

/* How a limit is raised where the job runs. */
static void fix_ulimit(const struct dl_ck_facts *f, struct dl_ck_line *l, int resource, char letter, const char *docker,
		       const char *unit, unsigned long long want)
{
	const rlim_t hard = f->proc.limit[resource].rlim_max;

	if (hard == RLIM_INFINITY || hard >= want) {
		ck_fix(l, "raise it in the shell that starts the job");
		ck_cmd(l, "ulimit -%c %llu", letter, want);
		return;
	}
	if (f->place != DL_CK_HOST) {
		ck_fix(l, "raise it when the container is made");
		ck_cmd(l, "docker run --ulimit %s=%llu:%llu ...", docker, want, want);
		return;
	}
	ck_fix(l, "the hard limit has to be raised first: by root, for logins from then on, or in the unit of a service (%s)", unit);
	ck_cmd(l, "echo '* - %s %llu' | sudo tee /etc/security/limits.d/90-dataloader.conf", docker, want);
}

void ck_judge_fds(const struct dl_ck_facts *f, struct dl_ck_line *l)
{
	const struct dl_ck_need n = dl_ck_need_of(f);
	const bool counts = !f->seen.file_system;	/* that strategy keeps none open */
	uint64_t soft = 0, need;
	ck_buf a, b, c;

	if (!f->proc.has_limit[RLIMIT_NOFILE]) {
		ck_say(l, DL_CK_UNKNOWN, "the limit cannot be read");
		return;
	}
	ck_say(l, DL_CK_OK, "limit %s, hard limit %s", ck_limit(a, f->proc.limit[RLIMIT_NOFILE].rlim_cur),
	       ck_limit(b, f->proc.limit[RLIMIT_NOFILE].rlim_max));
	if (!ck_soft(f, RLIMIT_NOFILE, &soft))
		return;
	ck_num(l, "limit", (double)soft);
	if (f->seen.trainer_fds)
		ck_num(l, "open", (double)f->seen.trainer_fds);
	need = f->seen.trainer_fds + (counts ? n.storages : 0);
	if (f->seen.trainer_fds)
		ck_add(l, "; the trainer had %s open", ck_cnt(c, f->seen.trainer_fds));
	if (counts && n.storages) {
		ck_num(l, "needed", (double)need);
		ck_add(l, ", and each tensor in flight costs one more: up to %s", ck_cnt(c, need));
	}
	if (need > soft)
		l->state = DL_CK_PROBLEM;
	else if (need > soft / 2 || soft < 1024)
		l->state = DL_CK_WARNING;
	if (l->state == DL_CK_OK)
		return;
	fix_ulimit(f, l, RLIMIT_NOFILE, 'n', "nofile", "LimitNOFILE=", FDS_WANTED);
	if (counts) {
		ck_fix(l, "or share memory by name");
		ck_cmd(l, "torch.multiprocessing.set_sharing_strategy('file_system')");
	}
}

void ck_judge_maps(const struct dl_ck_facts *f, struct dl_ck_line *l)
{
	const uint64_t max = f->proc.map_count_max;
	const uint64_t most = f->seen.trainer_maps > f->seen.worker_maps ? f->seen.trainer_maps : f->seen.worker_maps;
	ck_buf a, b;

	if (!max) {
		ck_say(l, DL_CK_UNKNOWN, "vm.max_map_count cannot be read");
		return;
	}
	ck_num(l, "limit", (double)max);
	ck_say(l, max < MAPS_DEFAULT ? DL_CK_WARNING : DL_CK_OK, "vm.max_map_count is %s", ck_cnt(a, max));
	if (most) {
		ck_num(l, "most", (double)most);
		ck_add(l, "; a process of the job had %s", ck_cnt(b, most));
		if (most > max / 10 * 8)
			l->state = DL_CK_PROBLEM;
		else if (most > max / 2)
			l->state = DL_CK_WARNING;
	}
	if (l->state == DL_CK_OK)
		return;
	ck_add(l, ": beyond it, \"Cannot allocate memory\" comes while memory is free");
	ck_fix(l, "raise it");
	ck_cmd(l, "sudo sysctl vm.max_map_count=1048576");
}

void ck_judge_memlock(const struct dl_ck_facts *f, struct dl_ck_line *l)
{
	uint64_t soft;
	ck_buf a;

	if (!f->proc.has_limit[RLIMIT_MEMLOCK]) {
		ck_say(l, DL_CK_UNKNOWN, "the limit cannot be read");
		return;
	}
	if (!ck_soft(f, RLIMIT_MEMLOCK, &soft)) {
		ck_say(l, DL_CK_OK, "unlimited");
		return;
	}
	ck_num(l, "limit_bytes", (double)soft);
	ck_say(l, DL_CK_OK, "%s; CUDA's pinned memory does not count", ck_size(a, soft));
	if (!f->proc.infiniband)
		return;
	l->state = DL_CK_WARNING;
	ck_add(l, ", but memory that NCCL registers with InfiniBand does, and this machine has it");
	if (f->place != DL_CK_HOST) {
		ck_fix(l, "raise it when the container is made");
		ck_cmd(l, "docker run --ulimit memlock=-1 ...");
	} else {
		ck_fix(l, "raise it, by root, for logins from then on");
		ck_cmd(l, "echo '* - memlock unlimited' | sudo tee /etc/security/limits.d/90-memlock.conf");
	}
}

/* The tightest of all that count threads. */
void ck_judge_procs(const struct dl_ck_facts *f, struct dl_ck_line *l)
{
	const struct dl_ck_level *level = NULL;
	const uint32_t workers = dl_ck_workers(f);
	/* Those that run are counted already; a second loader, or the next epoch's workers, come on top. */
	const uint64_t more = workers ? (uint64_t)workers * (f->seen.worker_threads ? f->seen.worker_threads : OWN_THREADS) : 0;
	uint64_t left = UINT64_MAX, soft;
	ck_buf a, b;

	vec_for_each(&f->levels, it) {
		const uint64_t here = it->ev.pids_limit > it->ev.pids ? it->ev.pids_limit - it->ev.pids : 0;

		if (it->ev.pids_limit && here < left) {
			left = here;
			level = it;
		}
	}
	if (f->proc.uid && ck_soft(f, RLIMIT_NPROC, &soft) && f->proc.user_tasks) {
		const uint64_t here = soft > f->proc.user_tasks ? soft - f->proc.user_tasks : 0;

		if (here < left) {
			left = here;
			level = NULL;
		}
	}
	if (left == UINT64_MAX) {
		ck_say(l, f->levels_known ? DL_CK_OK : DL_CK_UNKNOWN, f->levels_known ? "no limit" : "the control groups of the job "
		       "are not known");
		return;
	}
	ck_num(l, "left", (double)left);
	if (level)
		ck_say(l, DL_CK_OK, "cgroup %s allows %s more processes and threads", ck_level(level), ck_cnt(a, left));
	else
		ck_say(l, DL_CK_OK, "the user may have %s more processes and threads (ulimit -u)", ck_cnt(a, left));
	if (left < more + 16)
		l->state = DL_CK_PROBLEM;
	else if (left < 2 * more + 100)
		l->state = DL_CK_WARNING;
	if (more)
		ck_add(l, "; %u workers are about %s", workers, ck_cnt(b, more));
	if (l->state == DL_CK_OK)
		return;
	if (!level) {
		fix_ulimit(f, l, RLIMIT_NPROC, 'u', "nproc", "LimitNPROC=", FDS_WANTED);
	} else if (f->place != DL_CK_HOST) {
		ck_fix(l, "raise it when the container is made");
		ck_cmd(l, "docker run --pids-limit=-1 ...");
	} else {
		ck_fix(l, "raise it");
		ck_cmd(l, "echo max | sudo tee /sys/fs/cgroup%s%s/pids.max", level->ev.version == 2 ? "" : "/pids", level->path);
	}
}

void ck_judge_core(const struct dl_ck_facts *f, struct dl_ck_line *l)
{
	const char *pattern = f->proc.core_pattern;
	uint64_t soft = 0;
	const bool limited = ck_soft(f, RLIMIT_CORE, &soft);

	if (!f->proc.has_limit[RLIMIT_CORE] || !pattern[0]) {
		ck_say(l, DL_CK_UNKNOWN, "the limit or kernel.core_pattern cannot be read");
		return;
	}
	if (!limited || soft) {
		if (pattern[0] == '|')
			ck_say(l, DL_CK_OK, "a crash leaves one, with the program %s", pattern + 1);
		else
			ck_say(l, DL_CK_OK, "a crash leaves one, named %s%s", pattern, pattern[0] == '/' ? "" :
			       " in the process's working folder");
		if (limited && soft < 64 << 20) {
			l->state = DL_CK_WARNING;
			ck_add(l, ", but cut off: the limit is too low for one");
		}
	} else {
		ck_say(l, DL_CK_WARNING, "a crash leaves none: the limit is 0%s", pattern[0] != '|' ? "" :
		       ", which the program that collects cores goes by");
	}
	if (l->state == DL_CK_OK)
		return;
	ck_fix(l, "to have the stack of a worker that crashes, type before the job starts");
	ck_cmd(l, "ulimit -c unlimited");
}

void ck_judge_stack(const struct dl_ck_facts *f, struct dl_ck_line *l)
{
	uint64_t soft;
	ck_buf a;

	if (!f->proc.has_limit[RLIMIT_STACK]) {
		ck_say(l, DL_CK_UNKNOWN, "the limit cannot be read");
		return;
	}
	if (!ck_soft(f, RLIMIT_STACK, &soft)) {
		ck_say(l, DL_CK_OK, "unlimited");
		return;
	}
	ck_num(l, "limit_bytes", (double)soft);
	ck_say(l, DL_CK_OK, "%s, for new threads too", ck_size(a, soft));
	if (soft >= 1 << 20 && soft <= 1 << 30)
		return;
	l->state = DL_CK_WARNING;
	ck_add(l, soft < 1 << 20 ? ": deep recursion and some libraries need more" : ": each new thread reserves that much of "
	       "address space");
	ck_fix(l, "the usual one");
	ck_cmd(l, "ulimit -s 8192");
}
