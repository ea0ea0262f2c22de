/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Between the files of leftovers: what was found so far. */
#ifndef DLBPF_FORENSIC_LEFTOVERS_INT_H
#define DLBPF_FORENSIC_LEFTOVERS_INT_H

#include <stdbool.h>

#include "base/vec.h"
#include "capture/proc.h"
#include "diagnose/pm_log.h"
#include "diagnose/postmortem.h"
#include "forensic/klog.h"
#include "forensic/leftovers.h"

/* A thread, looked at twice. */
struct dl_left_thread {
	uint32_t tid, nspid;
	char comm[16];
	char state;		/* as of /proc/PID/stat */
	bool ran;		/* it was on a CPU, or ready to be, at a look or between them */
	bool has_call;		/* the right to see this: */
	int32_t nr;		/* system call; -1 in the kernel without one, -2 running */
	uint64_t arg0, arg1;
	char wchan[48];		/* "" unknown */
	bool for_ever;		/* a futex without a deadline */
	uint32_t owner;		/* inner id that a mutex it waits for names; 0 none */
	uint64_t switches, ticks;	/* of the first look */
};

struct dl_left_proc {
	uint32_t pid, ppid, nspid;
	char comm[16];
	char state;
	enum dl_role role;	/* TRAINER, WORKER or HELPER */
	bool orphan;		/* a worker whose parent is no Python program any more */
	uint64_t start_ns;	/* CLOCK_MONOTONIC; 0 unknown */
	int32_t exit_status;	/* of a zombie, as of wait(2) */
	uint64_t anon, file, shmem, swap, pgtables;
	uint64_t fds, fds_limit, maps;	/* 0 unknown */
	DL_VEC(struct dl_left_thread) threads;	/* the first one first */
};

/* One level of control groups. Bytes; 0 none or unknown, as in ENV_CGROUP. */
struct dl_left_group {
	char *path;
	uint64_t usage, limit, peak, anon, file, shmem, swap, limit_hits, oom_kills, pids, pids_limit;
	uint64_t fork_refused;	/* pids.events */
};

struct dl_left_shm {
	bool known;
	uint64_t total, used, inodes, inodes_free;	/* total 0: no limit of its own */
	uint64_t dead_cnt, dead_bytes;		/* torch_* whose owner is dead; bytes that they hold */
	uint64_t live_cnt, live_bytes;
	uint64_t hollow_cnt, hollow_want;	/* of them all, those of a size and without a block; and that size */
	uint32_t hollow_pid;			/* owner of one, of a dead one first; inner id */
	bool hollow_dead;
	uint64_t hollow_wall_ns;		/* when the last one was made */
};

struct dl_left {
	const struct dl_leftover_opts *o;
	struct dl_diag *d;
	int root_fd;
	struct dl_postmortem *pm;
	uint64_t fits;			/* deaths that the output allows; 0 it tells nothing */
	enum dl_death likely;		/* that it names, believably; UNEXPLAINED none */
	int sig;			/* 0 unknown */
	uint32_t pid;			/* of the one that died first, as the output or the core names it; 0 unknown */
	struct dl_klog klog;
	bool has_klog;
	DL_VEC(struct dl_left_proc) procs;	/* of the living tree, the root first */
	DL_VEC(struct dl_left_group) groups;	/* the deepest first */
	bool own_groups;		/* they are the caller's, for want of others */
	struct dl_left_shm shm;
	uint64_t maps_limit;
};

/* --- each 0 or -ENOMEM; what is not there or not allowed is passed over or noted ------------------- */

int dl_left_read_tree(struct dl_left *l);		/* leftovers_proc.c */
int dl_left_find_orphans(struct dl_left *l);
int dl_left_judge_tree(struct dl_left *l);		/* leftovers_hang.c */
int dl_left_read_groups(struct dl_left *l);		/* leftovers_cgroup.c */
int dl_left_judge_groups(struct dl_left *l);
int dl_left_read_shm(struct dl_left *l);		/* leftovers_shm.c */
int dl_left_judge_shm(struct dl_left *l);
int dl_left_judge_klog(struct dl_left *l);		/* leftovers_klog.c */
int dl_left_judge_output(struct dl_left *l);		/* leftovers_judge.c */
int dl_left_conclude(struct dl_left *l);

/* Of a word for cnt things. */
static inline const char *dl_left_s(uint64_t cnt)
{
	return cnt == 1 ? "" : "s";
}

/* The process that was asked about lives. */
static inline bool dl_left_lives(const struct dl_left *l)
{
	return l->o->pid && l->procs.cnt;
}

/* Does the output leave room for this death? */
bool dl_left_allows(const struct dl_left *l, enum dl_death death);
/* Sets the verdict where it is surer than the one there. The text is taken over, also on failure; NULL is -ENOMEM. */
int dl_left_verdict(struct dl_left *l, enum dl_death death, enum dl_pm_confidence confidence, char *text);
bool dl_left_is_python(const char *comm);
/* What ends a death's name in a sentence: "4711 (python3)". */
const char *dl_left_name(char *buf, size_t sz, uint32_t pid, const char *comm);
struct dl_left_proc *dl_left_proc(const struct dl_left *l, uint32_t pid);
void dl_left_procs_fini(struct dl_left *l);

/* A number in the post-mortem, unless it is unknown. */
int dl_left_number(struct dl_left *l, const char *id, const char *label, uint64_t value, enum dl_pm_unit unit,
		   enum dl_pm_source source);

/* asprintf() that returns NULL with no memory. */
char *dl_left_text(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
