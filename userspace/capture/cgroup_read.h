/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* One level of control groups: its files, held open and read again for every sample. */
#ifndef DLBPF_CAPTURE_CGROUP_READ_H
#define DLBPF_CAPTURE_CGROUP_READ_H

#include <stdbool.h>

#include "capture/cgroup.h"

enum { DL_CG_FILES_MAX = 14 };

struct dl_cg_level {
	char *path;
	int version;			/* the highest met */
	int fd[DL_CG_FILES_MAX];	/* by row of the version's table; -1 none */
	int fd2[DL_CG_FILES_MAX];	/* version 2's, where both are in use */
};

void dl_cg_level_init(struct dl_cg_level *l);
void dl_cg_level_fini(struct dl_cg_level *l);
void dl_cg_level_add(struct dl_cg_level *l, enum dl_cg_ctl ctl, int version, int dirfd);
bool dl_cg_level_is_empty(const struct dl_cg_level *l);

/* Fills in all but the level number. */
void dl_cg_level_read(const struct dl_cg_level *l, struct dl_ev_env_cgroup *ev);

#endif
