/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The processes of a training, from /proc alone: who is a DataLoader worker, who has workers. */
#ifndef DLBPF_CHECK_FAMILY_H
#define DLBPF_CHECK_FAMILY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/vec.h"
#include "check/facts.h"

struct ck_member {
	uint32_t pid, ppid;
	uint32_t nspid;			/* as it knows itself */
	int fd;				/* /proc/PID */
	bool gone, seen;		/* seen: by the look that goes on */
	bool foreign;			/* below the root, but no part of the job */
	bool handlers;			/* has PyTorch's quartet of signal handlers */
	bool worker, trainer, manager;	/* trainer: has workers; manager: torch_shm_manager */
	bool helper;			/* a manager, a resource tracker, a program of its own: no worker in the making */
	enum dl_ck_start start;		/* of a worker */
	uint32_t objects;		/* of shared memory, open now */
	uint64_t found_ts;
};

struct ck_family {
	uint32_t root;
	bool with_root;			/* it is one of them; not so when it is dlbpf */
	DL_VEC(struct ck_member) v;	/* those that have ended too */
};

void ck_family_fini(struct ck_family *fam);

/* Looks who is there now. -ENOMEM. */
int ck_family_look(struct ck_family *fam);

/* All that are there now, and what comes of them, are no part of the job: they were there before it. */
void ck_family_disown(struct ck_family *fam);

/* Is this the number by which one of them, ended or not, knows itself? */
bool ck_family_has(const struct ck_family *fam, uint32_t nspid);

uint32_t ck_family_alive(const struct ck_family *fam);
uint32_t ck_family_workers(const struct ck_family *fam);	/* alive */
/* Members, ended or not, that were found within this time of the first worker, and that are or may have been workers. */
uint32_t ck_family_first(const struct ck_family *fam, uint64_t within_ns);
uint32_t ck_family_trainers(const struct ck_family *fam);
const struct ck_member *ck_family_trainer(const struct ck_family *fam);	/* one that is alive; NULL none */

#endif
