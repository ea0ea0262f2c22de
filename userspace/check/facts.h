/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What "dlbpf check" knows of a machine and of a training on it, as plain data: gathered first, judged
 * then, so that a judgement can be tested on a machine that was made up. What is not known is said to
 * be so: by a flag, or where 0 means it.
 */
#ifndef DLBPF_CHECK_FACTS_H
#define DLBPF_CHECK_FACTS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>

#include <dlbpf/event.h>

#include "base/vec.h"
#include "capture/pci.h"

enum { DL_CK_WHY = 256, DL_CK_PATH = 512, DL_CK_VARS = 64, DL_CK_GPUS = 16 };

enum dl_ck_target { DL_CK_SELF = 0, DL_CK_PID, DL_CK_CMD };

/* What the job runs in: who has to raise a limit, and how. */
enum dl_ck_place { DL_CK_HOST = 0, DL_CK_CONTAINER, DL_CK_KUBERNETES };

struct dl_ck_level {
	char path[DL_CK_PATH];
	struct dl_ev_env_cgroup ev;
	uint64_t mem_high;		/* above it the kernel slows the group down, version 2; 0 none */
	bool watched;			/* twice, so that there is: */
	uint64_t throttled_cnt, oom_kills;	/* more of them while watched */
};

struct dl_ck_cpus {
	uint32_t online;		/* of the machine; 0 unknown */
	uint32_t allowed;		/* by affinity and cpuset; 0 unknown */
	uint32_t cpuset;		/* by the cpuset alone; 0 unknown */
	uint8_t mask[DL_PCI_CPUS / 8];	/* of allowed; all 0 unknown */
};

struct dl_ck_mem {
	bool known;
	uint64_t total, avail, swap_total, swap_free, commit_limit, committed;	/* bytes */
	bool overcommit_known, zram, zswap, swapins_known;
	uint32_t overcommit;		/* vm.overcommit_memory */
	uint64_t swapins;		/* pages, by the whole machine while watched */
	char swap_dev[64];		/* the first; "" none */
	bool thp_known;
	char thp[16], thp_defrag[16];	/* "always", "madvise", "never", ... */
};

struct dl_ck_shm {
	bool known, missing, tmpfs, shared_with_host;	/* the last: the same as the one that dlbpf sees */
	char why[DL_CK_WHY];		/* of not known */
	uint64_t total, used, inodes, inodes_free;	/* bytes, counts; total 0 unlimited */
	uint64_t torch_cnt, torch_bytes;	/* files torch_*, and what they hold */
	bool owners_known;
	uint64_t dead_cnt, dead_bytes;	/* files torch_PID_* whose process is gone, and what they hold */
	uint64_t failed_cnt;		/* of these, those without memory: no room for it was left */
};

struct dl_ck_var { char name[40], value[128]; };

struct dl_ck_proc {
	bool known;
	char why[DL_CK_WHY];
	uint32_t pid, uid;
	char name[64];
	bool has_limit[RLIM_NLIMITS];
	struct rlimit limit[RLIM_NLIMITS];	/* RLIM_INFINITY: none */
	bool env_known;
	struct dl_ck_var vars[DL_CK_VARS];
	uint32_t var_cnt;
	uint32_t pid_levels;		/* PID namespaces deep, 1 the host's; 0 unknown */
	bool has_container_file;	/* /.dockerenv or the like */
	uint64_t user_tasks;		/* threads of its user; 0 unknown */
	uint64_t map_count_max;		/* of the kernel; 0 unknown */
	char core_pattern[128];		/* "" unknown */
	bool infiniband;
};

enum dl_ck_start { DL_CK_START_UNKNOWN = 0, DL_CK_FORK, DL_CK_SPAWN, DL_CK_FORKSERVER };

/* What a batch is made of, from the sizes of the shared memory objects of workers; see batch.h. */
struct dl_ck_batch {
	uint64_t bytes;			/* in whole pages; 0 unknown */
	uint32_t storages;		/* objects of shared memory in it */
	uint32_t seen;			/* batches that this rests on */
	bool at_least;			/* no sure pattern was found: it may be more */
};

/* A running tree, from /proc, over some seconds. */
struct dl_ck_seen {
	bool watched;			/* there was a target, and it could be looked at */
	char why[DL_CK_WHY];		/* "" or why not */
	uint64_t watched_ns;
	uint32_t workers, trainers;	/* most at once; trainers: processes that have workers */
	enum dl_ck_start start;
	bool file_system, file_descriptor;	/* sharing strategies seen */
	struct dl_ck_batch batch;
	uint32_t prefetch;		/* batches of one worker that waited at once, most seen; 0 unknown */
	uint32_t held;			/* batches that trainers held at once, most seen; 0 unknown */
	uint64_t peak_bytes, now_bytes;	/* shared memory objects at once; at the last look */
	uint32_t failed;		/* objects that got no memory: /dev/shm was full */
	uint32_t trainer_threads, worker_threads;	/* most of one */
	uint64_t trainer_fds, worker_fds, trainer_maps, worker_maps;	/* most of one; 0 unknown */
	uint64_t trainer_data;		/* private writable memory of the largest trainer, bytes */
	uint64_t worker_anon;		/* of the largest worker */
	bool uses_cuda;
	uint32_t trainer_of_target;	/* the target looks like a worker itself: its parent; 0 it does not */
	bool ended;			/* the command, by itself */
	int status;			/* as of wait(2) */
	bool interrupted;		/* by the user, before there was enough to see */
};

enum dl_ck_fs_class {
	DL_CK_FS_UNKNOWN = 0, DL_CK_FS_LOCAL, DL_CK_FS_MEMORY, DL_CK_FS_OVERLAY, DL_CK_FS_NETWORK, DL_CK_FS_FUSE,
};

struct dl_ck_data {
	bool asked;			/* --data, or files that the tree reads */
	bool found;			/* by the tree, not named by the user */
	char path[DL_CK_PATH];
	char why[DL_CK_WHY];		/* "" or why nothing is known */
	bool timed_out;
	char fs[32], source[128], options[128];	/* of the mount */
	enum dl_ck_fs_class class;
	bool rotational;
	uint64_t read_bytes, read_ns, file_cnt;	/* read_bytes 0: not measured */
	uint64_t seek_ns;		/* of a small read anywhere in a large file, the median; 0 unknown */
	bool direct;			/* past the page cache */
	double cached;			/* share that was in it before; -1 unknown */
};

struct dl_ck_gpu {
	char name[96];
	bool simulated, busy, link_known, sysfs_known;
	uint64_t pci;
	uint32_t gen, width, gen_max, width_max;
	int32_t node;			/* -1 none */
	uint32_t nodes;
	bool near_known;
	uint8_t near_cpus[DL_PCI_CPUS / 8];
};

struct dl_ck_gpus {
	bool nvml;			/* it answered */
	char why[DL_CK_WHY];
	bool has_device;		/* /dev/nvidiactl or a PCI device of NVIDIA's */
	uint32_t cnt;
	struct dl_ck_gpu v[DL_CK_GPUS];
};

/* systemd and what else may end a job. */
struct dl_ck_host {
	bool systemd, logind_known, remove_ipc, kill_user, linger, oomd, earlyoom;
	char user[64];			/* "" unknown */
};

struct dl_ck_self {
	bool root;			/* dlbpf may look at everything */
	bool trace_ok, trace_known;
	char trace_why[DL_CK_WHY * 2];
	char missing[DL_CK_WHY * 4];	/* what this kernel does not give, and what it costs */
	uint32_t missing_cnt;
	bool collector;
	char collector_path[DL_CK_PATH];
	bool collector_visible;		/* to the target, at that path */
};

struct dl_ck_facts {
	enum dl_ck_target target;
	bool root_needed;		/* something was not readable for want of rights */
	struct dl_ck_cpus cpus;
	DL_VEC(struct dl_ck_level) levels;	/* the target's own first */
	bool levels_known, levels_hidden;	/* hidden: there are levels above these that cannot be seen */
	char levels_why[DL_CK_WHY];
	struct dl_ck_mem mem;
	struct dl_ck_shm shm;
	struct dl_ck_proc proc;
	struct dl_ck_seen seen;
	struct dl_ck_data data;
	struct dl_ck_gpus gpus;
	struct dl_ck_host host;
	struct dl_ck_self self;
	enum dl_ck_place place;
	bool slurm;
	/* Given by the user; 0 not. */
	uint32_t workers, prefetch;
	uint64_t batch_bytes;
};

void dl_ck_facts_fini(struct dl_ck_facts *f);

/* A variable of the target's environment; NULL when it is not set or not known. */
const char *dl_ck_var(const struct dl_ck_facts *f, const char *name);

/* What the job may use of the CPUs: the lowest of affinity, cpuset and quotas; 0 unknown. *ret_by: the
 * level whose quota it is, NULL when it is none's. */
double dl_ck_cpus_of(const struct dl_ck_facts *f, const struct dl_ck_level **ret_by);

/* Workers given or seen; 0 unknown or none. */
uint32_t dl_ck_workers(const struct dl_ck_facts *f);

/* Shared memory that the loaders may need at once. */
struct dl_ck_need {
	uint64_t bytes;			/* 0 unknown */
	uint32_t workers, prefetch, held;
	uint64_t batch, storages;	/* storages: objects at once; 0 unknown */
	bool prefetch_assumed, at_least, by_peak;
};

struct dl_ck_need dl_ck_need_of(const struct dl_ck_facts *f);

#endif
