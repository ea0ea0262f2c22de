/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What the kernel log says of deaths: from the kernel itself (/dev/kmsg), or from a text that was saved, as dmesg
 * (also -T, -x, --time-format) or journalctl (-o short, short-iso, short-precise, short-monotonic, short-unix, json)
 * write it, or as it stands in /var/log. Formats of the kernel's lines are those of 4.x to 6.x; docs of none of them
 * are a promise, so a line that is not understood is no error.
 *
 * A text may come from anywhere: lines are bounded, events too (the last are kept).
 */
#ifndef DLBPF_FORENSIC_KLOG_H
#define DLBPF_FORENSIC_KLOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/diag.h"
#include "base/vec.h"

enum dl_klog_kind {
	DL_KLOG_OOM = 0,	/* the kernel killed for want of memory; see oom */
	DL_KLOG_FAULT,		/* a fault of a program that nobody handles: sig, addr, library */
	DL_KLOG_MEMORY_FAILURE,	/* bad memory; pid 0: nobody was killed for it */
	DL_KLOG_HUGEPAGES,	/* killed: no huge page left */
	DL_KLOG_IO_ERROR,	/* a disk or file system failed */
	DL_KLOG_FS_GONE,	/* a network file system does not answer */
	DL_KLOG_HUNG,		/* a task did not run for minutes */
	DL_KLOG_FORK_REJECTED,	/* pids controller */
	DL_KLOG_ALLOC_FAILED,	/* an allocation of the kernel failed, for this task */
	DL_KLOG_GPU,		/* the GPU's driver reported an error (Xid) */
	DL_KLOG_DAEMON_KILL,	/* systemd-oomd or earlyoom killed */
	DL_KLOG_DUMPED,		/* systemd-coredump: a process died of sig */
	DL_KLOG_LOGOUT,		/* a login session ended: with RemoveIPC its user's /dev/shm is emptied */
	DL_KLOG_KIND_CNT,
};

const char *dl_klog_kind_id(enum dl_klog_kind kind);	/* "oom" */

/* A process in the table of an OOM report. Bytes; UINT64_MAX unknown. */
struct dl_klog_task {
	uint32_t pid, tgid;
	char comm[16];
	uint64_t rss, anon, file, shmem, pgtables, swap;
	int32_t oom_score_adj;
};

#define DL_KLOG_UNKNOWN UINT64_MAX

/* All bytes, UINT64_MAX where the report does not say. */
struct dl_klog_oom {
	bool memcg;		/* a control group's limit; else the machine */
	bool cpuset;		/* or only the nodes that the task may use */
	char *limit_cgroup;	/* whose limit was hit; NULL not told */
	char *cgroup;		/* that the victim was in; NULL not told */
	char trigger[16];	/* comm of the task that asked for memory */
	char victim[16];
	uint32_t uid;
	uint64_t anon, file, shmem, pgtables, total_vm;	/* of the victim */
	uint64_t usage, limit, failcnt;		/* of the group; failcnt is a count */
	uint64_t swap_usage, swap_limit;	/* version 1: of memory and swap together */
	uint64_t group_anon, group_file, group_shmem, group_pgtables, group_swap;
	uint64_t host_total, host_free, host_shmem, host_swap_total, host_swap_free;
	DL_VEC(struct dl_klog_task) tasks;
};

struct dl_klog_event {
	uint64_t boot_ns;	/* seconds in the log: about CLOCK_MONOTONIC of that boot; 0 unknown */
	int64_t wall_ns;	/* CLOCK_REALTIME as the log has it; 0 unknown */
	enum dl_klog_kind kind;
	uint32_t pid;		/* host id; 0 unknown */
	char comm[16];
	int sig;		/* FAULT, DUMPED; 0 unknown */
	uint64_t addr, ip;	/* FAULT on x86-64 */
	bool has_addr;
	bool wrote;		/* FAULT: the access was a write */
	char lib[64];		/* FAULT: the file of ip; "" unknown */
	uint64_t lib_off;	/* from the start of that mapping; 0 unknown */
	char *text;		/* the line, without its prefix */
	struct dl_klog_oom oom;
};

struct dl_klog {
	DL_VEC(struct dl_klog_event) events;
	uint64_t lines;
	uint64_t dropped;	/* older events beyond those kept */
	uint64_t first_boot_ns, last_boot_ns;	/* of lines with a time; 0 none */
	bool live;		/* the running kernel's own */
	bool complete;		/* live, and its first line is of the boot */
	struct dl_klog_parser *parser;
};

/* From the running kernel: path is /dev/kmsg, or in tests a file of its lines. -EPERM has a message with the remedy. */
int dl_klog_read_kernel(struct dl_klog *k, const char *path, struct dl_diag *d);
/* From a saved text. */
int dl_klog_read_file(struct dl_klog *k, const char *path, struct dl_diag *d);
/* One line at a time, then the end; now_wall_ns completes dates that have no year. 0 or -ENOMEM. */
int dl_klog_line(struct dl_klog *k, const char *line, size_t len, int64_t now_wall_ns);
void dl_klog_end(struct dl_klog *k);
void dl_klog_fini(struct dl_klog *k);

#endif
