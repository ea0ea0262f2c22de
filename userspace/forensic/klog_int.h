/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Between the files of klog: lines without their prefix, and the report that is being read. */
#ifndef DLBPF_FORENSIC_KLOG_INT_H
#define DLBPF_FORENSIC_KLOG_INT_H

#include "forensic/klog.h"

enum { DL_KLOG_LINE_SZ = 2048 };

/* What stands before a message. */
struct dl_klog_prefix {
	uint64_t boot_ns;	/* 0 none */
	int64_t wall_ns;	/* 0 none */
	bool kernel;		/* no other program wrote it, as far as it can be seen */
	char ident[32];		/* the program that did; "" unknown */
};

/* Columns of the table of tasks, by what its header calls them. */
enum { DL_COL_PID, DL_COL_TGID, DL_COL_RSS, DL_COL_ANON, DL_COL_FILE, DL_COL_SHMEM, DL_COL_PGTABLES, DL_COL_NR_PTES,
       DL_COL_SWAP, DL_COL_ADJ, DL_COL_CNT };

struct dl_klog_parser {
	bool open;		/* an OOM report is being read: */
	bool stats;		/* the lines that follow are the group's statistics */
	struct dl_klog_event report;
	int8_t col[DL_COL_CNT];	/* number of the column; -1 none */
};

/* Length of the prefix of the line. now_wall_ns completes dates that have no year. */
size_t dl_klog_prefix(const char *line, int64_t now_wall_ns, struct dl_klog_prefix *ret);
/* The message of a line of `journalctl -o json`, and its time; false when it is none. buf is cut to sz. */
bool dl_klog_json(const char *line, char *buf, size_t sz, struct dl_klog_prefix *ret);

/* Keeps an event, whose texts are then the log's. 0 or -ENOMEM. */
int dl_klog_keep(struct dl_klog *k, struct dl_klog_event *ev);

/* True when the line is of an OOM report. *ret_err 0 or -ENOMEM. */
bool dl_klog_oom_line(struct dl_klog *k, const char *msg, const struct dl_klog_prefix *p, int *ret_err);
/* Any other line of interest. 0 or -ENOMEM. */
int dl_klog_other_line(struct dl_klog *k, const char *msg, const struct dl_klog_prefix *p);

/* The number behind key, of base 10 or 16; false when it is not there. */
bool dl_klog_num(const char *msg, const char *key, int base, uint64_t *ret);
/* The word behind key, up to a comma, space or the end. */
bool dl_klog_word(const char *msg, const char *key, char *buf, size_t sz);

void dl_klog_event_fini(struct dl_klog_event *ev);

#endif
