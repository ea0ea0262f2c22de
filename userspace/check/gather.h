/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Readers of the machine. root is "" for the machine itself, or the folder of a made-up one, in which
 * proc/, sys/ and etc/ are looked for. What cannot be read stays unknown: only -ENOMEM is a failure.
 * Internal to check/.
 */
#ifndef DLBPF_CHECK_GATHER_H
#define DLBPF_CHECK_GATHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/map.h"
#include "check/facts.h"

struct dl_invoker;

/* Text of a small file below root, without its last newline; false when it cannot be read. */
bool ck_read(const char *root, const char *path, char *buf, size_t sz);
bool ck_read_u64(const char *root, const char *path, uint64_t *ret);
/* How many CPUs a list like "0-3,8" names. */
uint32_t ck_list_cnt(const char *list);
/* Copies, and cuts off what has no room. */
void ck_copy(char *to, size_t sz, const char *from);

void ck_gather_mem(struct dl_ck_facts *f, const char *root);	/* memory, swap, THP */
void ck_gather_swapins(struct dl_ck_facts *f, const char *root, bool end);	/* before and after watching */
void ck_gather_cpus(struct dl_ck_facts *f, const char *root);	/* of the machine */
void ck_gather_host(struct dl_ck_facts *f, const char *root);	/* systemd and others that kill */

/* A process: limits, environment, namespaces, CPUs. pid 0: dlbpf itself, with the limits of its caller. */
void ck_gather_proc(struct dl_ck_facts *f, const char *root, uint32_t pid, const struct dl_invoker *inv);
/* Its control groups. again: what grew since is stored, the levels stay as they are. */
int ck_gather_levels(struct dl_ck_facts *f, const char *root, uint32_t pid, bool again);
/* container, Kubernetes, Slurm: from what was gathered of the process and its levels. */
void ck_gather_place(struct dl_ck_facts *f, const char *root, uint32_t pid);

/* /dev/shm, by its descriptor (O_PATH will do). */
int ck_gather_shm(struct dl_ck_facts *f, int shm_fd);
/* The numbers of all processes; *ret_known false: not all can be seen. -ENOMEM. */
int ck_find_owners(struct dl_map *owners, bool *ret_known);
int ck_gather_left(struct dl_ck_facts *f, int shm_fd);	/* only what was left behind, anew */
/* The files torch_* in it; owners: by PID, of all processes that there are; NULL unknown. */
void ck_gather_torch(struct dl_ck_shm *shm, int shm_fd, const struct dl_map *owners);

/* File system and rate of a file or of the files in a folder, f->data.path, as a process sees it; pid 0: as we
 * do. */
void ck_gather_data(struct dl_ck_facts *f, const char *root, uint32_t pid);
enum dl_ck_fs_class ck_fs_class(const char *type);

void ck_gather_gpus(struct dl_ck_facts *f, const char *sys);
void ck_gather_self(struct dl_ck_facts *f, uint32_t pid);

/*
 * Runs fn in a process of its own, which fills buf, and waits timeout_ms at most: for libraries and file
 * systems that may never answer. 0, -ETIMEDOUT, -EIO when it died, -errno.
 */
int ck_in_child(int (*fn)(void *arg, void *buf), void *arg, void *buf, size_t sz, int timeout_ms);

/* One line of mountinfo, see proc(5). */
struct ck_mount {
	uint64_t id;
	char dir[DL_CK_PATH], fs[32], source[128], options[128];	/* options: those of the file system */
};

/* The mount with this id, or of the longest directory that path is below (id 0); false: not found. */
bool ck_mount_find(const char *mountinfo, uint64_t id, const char *path, struct ck_mount *ret);

#endif
