/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The pre-flight: is this machine, and what a job may use of it, fit for a training run? Each check is
 * a row of a table (check.c), which turns facts into one line: fine, or what is wrong and what to type.
 */
#ifndef DLBPF_CHECK_CHECK_H
#define DLBPF_CHECK_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/diag.h"
#include "base/vec.h"
#include "check/facts.h"

struct dl_invoker;
struct dl_text_opts;

enum dl_ck_state { DL_CK_OK = 0, DL_CK_WARNING, DL_CK_PROBLEM, DL_CK_UNKNOWN, DL_CK_STATE_CNT };

const char *dl_ck_state_id(enum dl_ck_state state);	/* "problem" */

struct dl_ck_number {
	const char *id;		/* "needed_bytes": the suffix is the unit, none for counts */
	double value;
};

struct dl_ck_line {
	const char *id, *group, *name;	/* "shm-size", "Shared memory", "size of /dev/shm" */
	enum dl_ck_state state;
	char *text;		/* the reason, with its numbers */
	char *fix;		/* NULL nothing to do */
	char *command;		/* what to type, one or more lines; NULL none */
	DL_VEC(struct dl_ck_number) numbers;
	int err;		/* 0 or -ENOMEM */
};

struct dl_check {
	enum dl_ck_target target;
	uint32_t pid;
	char name[64];
	struct dl_ck_seen seen;
	DL_VEC(struct dl_ck_line) lines;	/* in the order of the table */
	uint32_t cnt[DL_CK_STATE_CNT];
	bool want_root;		/* root would see more */
};

struct dl_ck_opts {
	uint32_t pid;		/* look at this process and its tree; 0 none */
	char **argv;		/* or run this, look at it, and end it again; NULL none */
	const struct dl_invoker *invoker;	/* as whom, and whose limits count without a target */
	uint64_t watch_ns;	/* how long to look, at most; 0: until enough was seen, 3 s or 60 s at most */
	const char *data;	/* folder or file of the data set; NULL none named */
	uint32_t workers, prefetch;	/* 0 not given */
	uint64_t batch_bytes;	/* 0 not given */
	bool (*stopped)(void);	/* the user wants an end; NULL never */
	void (*on_note)(const char *text);	/* what goes on, for the terminal; NULL nobody listens */
};

/*
 * Gathers and judges. Fails only for want of memory, and where the command cannot be run (*ret_exec is set:
 * -ENOENT and others, as in exec). The command and all that it started has ended when this returns; nothing
 * else is touched.
 */
int dl_check_run(struct dl_check **ret, const struct dl_ck_opts *o, bool *ret_exec, struct dl_diag *d);

/* Judges facts. -ENOMEM. */
int dl_check_judge(struct dl_check **ret, const struct dl_ck_facts *f, struct dl_diag *d);
void dl_check_free(struct dl_check *c);

/* quiet: problems and warnings only, and the sum. 0, -ENOMEM, or the error of the write. */
int dl_check_text(const struct dl_check *c, const struct dl_text_opts *opts, bool quiet, FILE *out, struct dl_diag *d);
int dl_check_json(const struct dl_check *c, FILE *out, struct dl_diag *d);

#endif
