/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Judgements: facts in, one line out, nothing else read or changed. Internal to check/.
 *
 * A function begins with ck_say() and may worsen what it said; the texts are for people who do not know
 * kernels. Failures of memory stick in the line.
 */
#ifndef DLBPF_CHECK_JUDGE_H
#define DLBPF_CHECK_JUDGE_H

#include "check/check.h"
#include "check/facts.h"

typedef void ck_judge(const struct dl_ck_facts *f, struct dl_ck_line *l);

/* State and text, instead of what was said before. */
void ck_say(struct dl_ck_line *l, enum dl_ck_state state, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* More text behind it. */
void ck_add(struct dl_ck_line *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void ck_fix(struct dl_ck_line *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A line to type; another call adds one. */
void ck_cmd(struct dl_ck_line *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void ck_num(struct dl_ck_line *l, const char *id, double value);

/* "2.5", "8" */
typedef char ck_buf[32];
const char *ck_cpus(ck_buf buf, double cpus);
const char *ck_size(ck_buf buf, uint64_t bytes);	/* "1.2 GiB" */
const char *ck_cnt(ck_buf buf, uint64_t cnt);		/* "65,530" */
const char *ck_limit(ck_buf buf, rlim_t limit);		/* "unlimited" */
/* The level's path, "/" said in words. */
const char *ck_level(const struct dl_ck_level *level);

/* Is the limit known and not "unlimited"? */
bool ck_soft(const struct dl_ck_facts *f, int resource, uint64_t *ret);

ck_judge ck_judge_cpus, ck_judge_worker_cpus, ck_judge_quota, ck_judge_threads;
ck_judge ck_judge_mem_host, ck_judge_mem_cgroup, ck_judge_swap, ck_judge_overcommit, ck_judge_thp;
ck_judge ck_judge_shm_size, ck_judge_shm_inodes, ck_judge_shm_left;
ck_judge ck_judge_fds, ck_judge_maps, ck_judge_memlock, ck_judge_procs, ck_judge_core, ck_judge_stack;
ck_judge ck_judge_start, ck_judge_sharing, ck_judge_variables, ck_judge_run;
ck_judge ck_judge_data_fs, ck_judge_data_rate;
ck_judge ck_judge_gpus, ck_judge_gpu_link, ck_judge_gpu_node;
ck_judge ck_judge_place, ck_judge_logout, ck_judge_oomd, ck_judge_scheduler;
ck_judge ck_judge_trace, ck_judge_features, ck_judge_collector;

#endif
