/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * A command that is run only to be looked at. All that it starts becomes dlbpf's own descendant and stays so
 * (dlbpf is a subreaper), so that its end can be seen to: what dlbpf did not start is not touched.
 */
#ifndef DLBPF_CHECK_COMMAND_H
#define DLBPF_CHECK_COMMAND_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/diag.h"

struct dl_invoker;

struct ck_family;

struct ck_command {
	struct ck_family *fam;	/* the caller's, of dlbpf itself: the command is what was not there before */
	pid_t pid;		/* 0 none */
	bool ended;
	int status;		/* as of wait(2) */
};

/* Its standard output goes to ours for errors. *ret_exec is set when it was the exec that failed. */
int ck_command_start(struct ck_command *c, char **argv, const struct dl_invoker *inv, bool *ret_exec, struct dl_diag *d);
void ck_command_poll(struct ck_command *c);
/* As Ctrl-C would, then by SIGTERM, then by SIGKILL: until nothing of it is left. */
void ck_command_end(struct ck_command *c);

#endif
