/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Samples of the environment from /proc and statfs: the machine, each process, its /dev/shm. */
#ifndef DLBPF_CAPTURE_ENV_H
#define DLBPF_CAPTURE_ENV_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/diag.h"
#include "capture/sink.h"

/* --- the machine: ENV_HOST --- */

enum { DL_HOST_FILES = 9 };

struct dl_env_host {
	int fd[DL_HOST_FILES];	/* -1: this kernel has no such file */
	uint64_t threads_limit;
};

void dl_env_host_open(struct dl_env_host *h);
void dl_env_host_close(struct dl_env_host *h);
int dl_env_host_emit(const struct dl_env_host *h, struct dl_sink *sink, uint64_t ts);

/* --- a process: ENV_PROC and MEM --- */

/*
 * Counting mappings means that the kernel prints them all: 1,700 of a PyTorch process take 2 ms. They
 * are counted every 5 s while their number grows or is above half of the limit (every 20 s while it is
 * below a sixteenth of it), else twice as rarely each time, down to every 80 s. In between the last
 * count is repeated.
 */
#define DL_MAPS_MIN_NS (5 * 1000000000ULL)
#define DL_MAPS_FAR_NS (20 * 1000000000ULL)
#define DL_MAPS_MAX_NS (80 * 1000000000ULL)

struct dl_env_proc {
	uint64_t next_maps_ts, maps_period_ns;
	uint64_t maps;
	uint64_t limits_hash;	/* of the last PROC_LIMITS; 0 none yet */
	uint64_t libs;		/* bytes of libraries' code that it has mapped; 0 unknown yet */
	uint64_t cuda_libs;	/* libs when it was looked whether CUDA's are among them */
	bool has_cuda;		/* they were */
	bool more_libs;		/* they have changed since the look before */
};

/* Looks at them, and sets both. */
void dl_env_look_libs(struct dl_env_proc *p, uint64_t libs);

/* -ESRCH when the process is gone. at_once: count mappings now. */
int dl_env_proc_emit(struct dl_env_proc *p, struct dl_sink *sink, uint64_t ts, uint32_t pid,
		     int proc_fd, uint64_t maps_limit, bool at_once);

/* Emits PROC_LIMITS when they are not those emitted last. proc_fd as in dl_env_proc_emit(); 0 as well when
 * the process is gone. */
int dl_env_limits_emit(struct dl_env_proc *p, struct dl_sink *sink, uint64_t ts, uint32_t pid, int proc_fd);

/* vm.max_map_count; 0 unknown. */
uint64_t dl_env_maps_limit(void);

/* --- /dev/shm: ENV_SHM --- */

/*
 * The process's root and its /dev/shm are held by descriptors, so that the numbers are still to be
 * had when the process and its container are gone.
 */
struct dl_env_shm {
	int root_fd, shm_fd;	/* O_PATH; -1 none */
	uint64_t mnt_ns;	/* inode of the mount namespace */
};

#define DL_ENV_SHM_NONE { .root_fd = -1, .shm_fd = -1 }

int dl_env_shm_open(struct dl_env_shm *s, int proc_fd);
void dl_env_shm_close(struct dl_env_shm *s);
/* proc_fd: of a process in there that may still be alive; -1 none. */
int dl_env_shm_emit(struct dl_env_shm *s, struct dl_sink *sink, uint64_t ts, uint32_t pid,
		    int proc_fd);

/* Inode of the process's mount namespace and of its root; 0 when it cannot be read. */
uint64_t dl_mnt_ns(int proc_fd);

/* Opens path (relative) below a root directory as a process with that root would: links stay
 * inside it. */
int dl_open_in_root(int root_fd, const char *path, int flags);

#endif
