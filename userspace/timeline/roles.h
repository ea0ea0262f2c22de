/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Who does what in a training job, found from behaviour; see roles.c. */
#ifndef DLBPF_TIMELINE_ROLES_H
#define DLBPF_TIMELINE_ROLES_H

#include <stdint.h>

enum dl_role {
	DL_ROLE_UNKNOWN = 0,
	DL_ROLE_LAUNCHER,	/* starts trainers, trains nothing */
	DL_ROLE_TRAINER,
	DL_ROLE_WORKER,
	DL_ROLE_WORKER_CHILD,	/* a helper that a worker started */
	DL_ROLE_FORKSERVER,
	DL_ROLE_SHM_MANAGER,	/* torch_shm_manager */
	DL_ROLE_TRACKER,	/* Python's resource tracker */
	DL_ROLE_HELPER,		/* any other process of the tree */
	/* threads of a trainer */
	DL_ROLE_PIN,		/* pin-memory thread */
	DL_ROLE_INDEX_FEEDER,	/* queue feeder towards the workers */
	DL_ROLE_LOADER_THREAD,	/* a thread-based loader's worker */
	DL_ROLE_POOL,		/* a pool thread: OpenMP, BLAS */
	DL_ROLE_COLLECTOR,	/* dlbpf's own GPU collector */
	DL_ROLE_TRAINER_THREAD,	/* any other thread of it */
	/* threads of a worker */
	DL_ROLE_FEEDER,		/* queue feeder: pickles batches and writes the result pipe */
	DL_ROLE_SHARER,		/* resource sharer: hands out descriptors */
	DL_ROLE_WORKER_THREAD,	/* any other thread of it */
	DL_ROLE_CNT,
};

struct dl_timeline;

/* Fills in the roles of processes and threads, loaders, worker numbers and ranks. 0 or -ENOMEM. */
int dl_find_roles(struct dl_timeline *tl);

/* Finds those of the trainers' threads that load. Needs the other roles. 0 or -ENOMEM. See feeds.c. */
int dl_find_loader_threads(struct dl_timeline *tl);

/* The number that the workers of tl->loaders[loader] have as their loader: from 0 in each trainer. */
int32_t dl_loader_number(const struct dl_timeline *tl, uint32_t loader);

/* Fills in phases: workers made, alive, ending. Needs the roles. 0 or -ENOMEM. See phases.c. */
int dl_find_phases(struct dl_timeline *tl);

/* Fills in when trainers take batches over; needs the roles. 0 or -ENOMEM. See handover.c. */
int dl_find_handovers(struct dl_timeline *tl);

#endif
