/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The levels of a process's control groups as ENV_CGROUP events, version 1, 2 or both at once.
 *
 * A level is a path. Under version 2 the levels are the process's group and all above it. Under
 * version 1 every controller has a hierarchy of its own in which the process may be elsewhere, so
 * the levels are the union of the paths of the memory, cpu and pids controllers and of all paths
 * above them, longest first; a level gives a controller's numbers only where the process's line in
 * that controller's hierarchy passes through it. With the memory controller at /job/a and the cpu
 * controller at /, the levels are /job/a (memory), /job (memory) and / (memory and cpu). Levels
 * that give no number at all, as the root of version 2, are left out.
 *
 * Paths are those of the host: /proc/PID/cgroup as the recorder sees it, below the mount points
 * that the recorder sees. The target's own cgroup namespace and mounts play no part.
 */
#ifndef DLBPF_CAPTURE_CGROUP_H
#define DLBPF_CAPTURE_CGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/diag.h"
#include "capture/sink.h"

enum dl_cg_ctl { DL_CG_MEMORY, DL_CG_CPU, DL_CG_PIDS, DL_CG_CTL_CNT };

/* Where a controller is mounted. */
struct dl_cg_mount {
	char *dir;	/* mount point; NULL: not mounted */
	char *root;	/* the group that is seen there, "/" for all */
	int version;	/* 1 or 2 */
};

struct dl_cg_mounts {
	struct dl_cg_mount ctl[DL_CG_CTL_CNT];
};

/* From the text of /proc/self/mountinfo; exists says whether a file is there (for version 2,
 * whose mount line does not name its controllers). */
int dl_cg_mounts_parse(const char *mountinfo, bool (*has)(const char *dir, const char *controller),
		       struct dl_cg_mounts *ret);
int dl_cg_mounts_read(struct dl_cg_mounts *ret);
void dl_cg_mounts_fini(struct dl_cg_mounts *m);

/* The group of a controller in the text of /proc/PID/cgroup; false when it is in none. */
bool dl_cg_path(const char *text, enum dl_cg_ctl ctl, int version, char *buf, size_t sz);

/* The levels of one process, with their files held open. */
struct dl_cg_chain;

/* -ENOENT when no controller of use is mounted, or the groups are out of sight. */
int dl_cg_chain_open(struct dl_cg_chain **ret, const struct dl_cg_mounts *mounts,
		     const char *proc_cgroup, struct dl_diag *d);
void dl_cg_chain_close(struct dl_cg_chain *c);
size_t dl_cg_chain_levels(const struct dl_cg_chain *c);

/* One ENV_CGROUP per level, for the process pid. */
int dl_cg_chain_emit(struct dl_cg_chain *c, struct dl_sink *sink, uint64_t ts, uint32_t pid);

#endif
