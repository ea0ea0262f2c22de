/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Watching a tree of processes without tracing it: who is there, and which objects of shared memory they
 * have open. Those live from the moment a worker makes them until the trainer drops them, so a look every few
 * hundredths of a second meets most of them. Internal to check/.
 */
#ifndef DLBPF_CHECK_WATCH_H
#define DLBPF_CHECK_WATCH_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "capture/env.h"
#include "check/batch.h"
#include "check/family.h"

struct dl_ck_opts;

struct ck_watch {
	struct dl_ck_facts *f;
	struct ck_family *fam;		/* the caller's */
	struct dl_env_shm shm;		/* of a worker, once there is one */
	bool shm_of_worker, trainer_taken;
	uint32_t proc_of;		/* the process that the facts are of: the target, then its trainer */
	struct ck_store *store;		/* objects seen */
	int64_t start_wall;		/* CLOCK_REALTIME, seconds */
	uint64_t levels_ts;		/* when the levels were read first */
	uint64_t start_ts, first_worker_ts, first_object_ts;
	uint64_t look_ts;		/* of the last look at objects; 0 none yet */
	uint64_t next_family_ts, next_dear_ts, next_judge_ts, period_ns;
	bool denied;			/* descriptors could not be read, for want of rights */
	bool enough;
};

/* pid: of the target. */
int ck_watch_open(struct ck_watch *w, struct dl_ck_facts *f, uint32_t pid, struct ck_family *fam);
void ck_watch_close(struct ck_watch *w);

/* One look; -ENOMEM. */
int ck_watch_look(struct ck_watch *w);

/* What was seen, into the facts. */
int ck_watch_end(struct ck_watch *w);

/* Removes objects that the tree, which has ended, has left in /dev/shm, and looks what others have. */
int ck_watch_tidy(struct ck_watch *w);

#endif
