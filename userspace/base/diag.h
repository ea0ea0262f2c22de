/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * How failures travel: a function returns 0 or -errno, and the message is made once, where the
 * cause is known, into the caller's struct dl_diag. Only the command line prints it.
 */
#ifndef DLBPF_BASE_DIAG_H
#define DLBPF_BASE_DIAG_H

#include <errno.h>

struct dl_diag {
	char msg[1024];	/* what was wrong and what to do, one or more lines, no newline at the end */
};

/* Stores the message unless d is NULL and returns err, which is negative. */
int dl_fail(struct dl_diag *d, int err, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* The same, with ": " and the text of err behind the message. */
int dl_fail_errno(struct dl_diag *d, int err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* "out of memory", -ENOMEM */
int dl_oom(struct dl_diag *d);

#endif
