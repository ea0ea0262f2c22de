/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#include "render/who.h"

#include <dlbpf/event.h>
#include <inttypes.h>
#include <string.h>
#include <sys/wait.h>

#include "render/enums.h"

const struct dl_proc_report *dl_find_proc(const struct dl_report *r, uint32_t pid)
{
	vec_for_each(&r->procs, p)
		if (p->pid == pid)
			return p;
	return NULL;
}

size_t dl_role_cnt(const struct dl_report *r, enum dl_role role)
{
	size_t cnt = 0;

	vec_for_each(&r->procs, p)
		cnt += p->role == role;
	return cnt;
}

static size_t loader_cnt(const struct dl_report *r, uint32_t trainer_pid)
{
	size_t cnt = 0;

	vec_for_each(&r->loaders, l)
		cnt += l->trainer_pid == trainer_pid;
	return cnt;
}

/* "rank 2 " or "trainer 4243 " in front of what belongs to one of several trainers. */
static void add_whose(struct dl_str *out, const struct dl_report *r,
		      const struct dl_proc_report *trainer)
{
	if (!trainer || dl_role_cnt(r, DL_ROLE_TRAINER) < 2)
		return;
	if (trainer->rank >= 0)
		dl_str_addf(out, "rank %" PRId32 " ", trainer->rank);
	else
		dl_str_addf(out, "trainer %" PRIu32 " ", trainer->pid);
}

static void add_trainer(struct dl_str *out, const struct dl_report *r,
			const struct dl_proc_report *p)
{
	if (p->rank < 0 && dl_role_cnt(r, DL_ROLE_TRAINER) > 1) {
		dl_str_addf(out, "trainer %" PRIu32, p->pid);
		return;
	}
	add_whose(out, r, p);
	dl_str_add(out, "trainer");
}

static void add_worker(struct dl_str *out, const struct dl_report *r,
		       const struct dl_proc_report *p)
{
	add_whose(out, r, dl_find_proc(r, p->trainer_pid));
	if (p->loader >= 0 && loader_cnt(r, p->trainer_pid) > 1)
		dl_str_addf(out, "loader %" PRId32 " ", p->loader);
	if (p->index < 0)
		dl_str_add(out, "worker");
	else
		dl_str_addf(out, "worker %" PRId32, p->index);
}

void dl_who_proc(struct dl_str *out, const struct dl_report *r, const struct dl_proc_report *p)
{
	const char *name = p->name && p->name[0] ? p->name : "?";

	switch (p->role) {
	case DL_ROLE_TRAINER:
		add_trainer(out, r, p);
		break;
	case DL_ROLE_WORKER:
		add_worker(out, r, p);
		break;
	case DL_ROLE_LAUNCHER:
		dl_str_add(out, "launcher");
		break;
	case DL_ROLE_FORKSERVER:
		dl_str_add(out, "fork server");
		break;
	case DL_ROLE_SHM_MANAGER:
		dl_str_add(out, "torch_shm_manager");
		break;
	case DL_ROLE_TRACKER:
		dl_str_add(out, "resource tracker");
		break;
	case DL_ROLE_WORKER_CHILD:
		dl_str_addf(out, "%s, started by a worker", name);
		break;
	default:
		dl_str_add(out, name);
	}
}

const char *dl_thread_noun(enum dl_role role)
{
	switch (role) {
	case DL_ROLE_PIN:
		return "pin-memory thread";
	case DL_ROLE_INDEX_FEEDER:
		return "index feeder";
	case DL_ROLE_LOADER_THREAD:
		return "loader thread";
	case DL_ROLE_POOL:
		return "pool thread";
	case DL_ROLE_FEEDER:
		return "queue feeder";
	case DL_ROLE_SHARER:
		return "resource sharer";
	case DL_ROLE_COLLECTOR:
		return "dlbpf collector";
	case DL_ROLE_TRAINER_THREAD:
	case DL_ROLE_WORKER_THREAD:
		return "other thread";
	default:
		return NULL;
	}
}

void dl_who(struct dl_str *out, const struct dl_report *r, uint32_t pid, enum dl_role role)
{
	const struct dl_proc_report *p = dl_find_proc(r, pid);
	const char *thread = dl_thread_noun(role);

	if (!pid) {
		dl_str_add(out, "nobody known");
		return;
	}
	if (p)
		dl_who_proc(out, r, p);
	else
		dl_str_addf(out, "%s", thread ? "process" : dl_role_id(role));
	if (thread)
		dl_str_addf(out, "'s %s", thread);
}

void dl_signal_text(struct dl_str *out, int sig)
{
	const char *name = sigabbrev_np(sig);

	if (name)
		dl_str_addf(out, "SIG%s", name);
	else
		dl_str_addf(out, "signal %d", sig);
}

void dl_exit_text(struct dl_str *out, int32_t status)
{
	if (WIFSIGNALED(status)) {
		dl_signal_text(out, WTERMSIG(status));
		if (WCOREDUMP(status))
			dl_str_add(out, " (core dumped)");
	} else {
		dl_str_addf(out, "exit code %d", WEXITSTATUS(status));
	}
}

/* The names of values that dump uses, too. */
static const char *enumerator(const char *tag, uint32_t val)
{
	const char *name = dl_enum_name(dl_enum_by_tag(tag, strlen(tag)), val);

	return name ? name : "unknown";
}

const char *dl_copy_dir_id(uint32_t dir)
{
	return enumerator("gpu_dir", dir);
}

const char *dl_copy_dir_text(uint32_t dir)
{
	switch (dir) {
	case DL_GPU_HTOD:
		return "host to GPU";
	case DL_GPU_DTOH:
		return "GPU to host";
	case DL_GPU_DTOD:
		return "within the GPU";
	case DL_GPU_PTOP:
		return "GPU to GPU";
	case DL_GPU_HTOH:
		return "host to host";
	default:
		return dl_copy_dir_id(dir);
	}
}

const char *dl_copy_mem_id(uint32_t mem)
{
	return enumerator("gpu_mem", mem);
}
