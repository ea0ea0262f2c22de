/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What the job runs in, and who may end it there. */
#include <stdlib.h>

#include "check/judge.h"

enum { SYSTEM_UID_MAX = 999, NOBODY = 65534 };	/* accounts that log-out leaves alone, as systemd has them */

void ck_judge_place(const struct dl_ck_facts *f, struct dl_ck_line *l)
{
	if (!f->proc.known) {
		ck_say(l, DL_CK_UNKNOWN, "%s", f->proc.why);
		return;
	}
	switch (f->place) {
	case DL_CK_KUBERNETES:
		ck_say(l, DL_CK_OK, "a container of Kubernetes");
		break;
	case DL_CK_CONTAINER:
		ck_say(l, DL_CK_OK, "a container");
		break;
	default:
		ck_say(l, DL_CK_OK, "no container");
		break;
	}
	if (f->proc.pid_levels > 1)
		ck_add(l, ", with process ids of its own");
	if (f->shm.known && f->place != DL_CK_HOST && f->target != DL_CK_SELF)
		ck_add(l, f->shm.shared_with_host ? ", and the /dev/shm that dlbpf sees" : ", and a /dev/shm of its own");
	if (f->slurm)
		ck_add(l, "; a job of Slurm");
}

void ck_judge_logout(const struct dl_ck_facts *f, struct dl_ck_line *l)
{
	const struct dl_ck_host *h = &f->host;
	const char *user = h->user[0] ? h->user : "USER";

	if (!h->systemd || !f->proc.known || (f->place != DL_CK_HOST && !f->shm.shared_with_host))
		return;
	if (f->proc.uid <= SYSTEM_UID_MAX || f->proc.uid == NOBODY || h->linger) {
		ck_say(l, DL_CK_OK, h->linger ? "%s lingers: logging out changes nothing" :
		       "%s is a system account: logging out removes nothing of it", user);
		return;
	}
	if (!h->logind_known) {
		ck_say(l, DL_CK_UNKNOWN, "logind.conf cannot be read");
		return;
	}
	if (!h->remove_ipc && !h->kill_user) {
		ck_say(l, DL_CK_OK, "logging out ends no processes and removes no shared memory");
		return;
	}
	ck_say(l, h->kill_user || f->seen.file_system ? DL_CK_PROBLEM : DL_CK_WARNING, "when the last log-in of %s ends, systemd ",
	       user);
	if (h->kill_user)
		ck_add(l, "kills all their processes (KillUserProcesses=yes)%s", h->remove_ipc ? " and " : "");
	if (h->remove_ipc)
		ck_add(l, "removes their shared memory under running jobs (RemoveIPC=yes)");
	ck_fix(l, "let the account linger");
	ck_cmd(l, "sudo loginctl enable-linger %s", user);
}

void ck_judge_oomd(const struct dl_ck_facts *f, struct dl_ck_line *l)
{
	const struct dl_ck_host *h = &f->host;

	if (!h->oomd && !h->earlyoom) {
		ck_say(l, DL_CK_OK, "neither systemd-oomd nor earlyoom runs%s", f->proc.pid_levels > 1 && f->target == DL_CK_SELF ?
		       " in this container" : "");
		return;
	}
	ck_say(l, DL_CK_WARNING, h->oomd ? "systemd-oomd runs: under memory pressure or with swap full it kills whole cgroups, long "
	       "before the kernel would" : "earlyoom runs: with little memory left it kills the largest process, before the kernel "
	       "would");
	ck_fix(l, "keep the job out of its reach, or know that it may be the killer");
	if (h->oomd)
		ck_cmd(l, "oomctl");
}

/* What the scheduler gave against what is asked of it. */
void ck_judge_scheduler(const struct dl_ck_facts *f, struct dl_ck_line *l)
{
	const char *task = dl_ck_var(f, "SLURM_CPUS_PER_TASK"), *node = dl_ck_var(f, "SLURM_CPUS_ON_NODE");
	const char *per_node = dl_ck_var(f, "SLURM_MEM_PER_NODE"), *per_cpu = dl_ck_var(f, "SLURM_MEM_PER_CPU");
	const char *cpus = task ? task : node;
	const uint32_t workers = dl_ck_workers(f);
	const unsigned long have = cpus ? strtoul(cpus, NULL, 10) : 0;

	if (!f->slurm)
		return;
	ck_say(l, DL_CK_OK, "Slurm job %s", dl_ck_var(f, "SLURM_JOB_ID") ? dl_ck_var(f, "SLURM_JOB_ID") : "of unknown number");
	if (have)
		ck_add(l, ": %lu CPUs %s", have, task ? "a task" : "on this node");
	else
		ck_add(l, ": CPUs a task are not set, so a task has one");
	if (per_node)
		ck_add(l, ", %s MiB a node", per_node);
	else if (per_cpu)
		ck_add(l, ", %s MiB a CPU", per_cpu);
	if (workers < (have ? have : 1) || !workers)
		return;
	l->state = DL_CK_WARNING;
	ck_add(l, ", for %u workers and the trainer", workers);
	ck_fix(l, "ask for as many CPUs as there are workers, and one more");
	ck_cmd(l, "sbatch --cpus-per-task=%u ...", workers + 1);
}
