/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * A post-mortem without a recording: what the machine still knows. Nothing is changed and nobody is
 * stopped; what may not be read is named in the notes.
 */
#ifndef DLBPF_FORENSIC_LEFTOVERS_H
#define DLBPF_FORENSIC_LEFTOVERS_H

#include <stddef.h>
#include <stdint.h>

#include "base/diag.h"
#include "diagnose/postmortem.h"

struct dl_leftover_opts {
	uint32_t pid;		/* host id, of a process that hangs or has died; 0 none */
	const char *core;	/* a core file; NULL none */
	const char *kernel_log;	/* a saved kernel log or journal; NULL: ask the kernel */
	const char *log;	/* output of the training; NULL none */
	size_t log_len;
	const char *cgroup;	/* control group of the run, "/docker/12ab"; NULL: that of pid, of the kernel log's
				 * victim, or the caller's own */
	const char *root;	/* where /proc, /sys/fs/cgroup and /dev are; NULL: "/" */
	uint64_t settle_ns;	/* between two looks at a living process; 0: one second */
};

/*
 * Fails where a file that was given cannot be read (-errno, with a message), or without memory. That nothing was found
 * is a post-mortem too: DL_DEATH_UNEXPLAINED, and notes of what was looked at.
 */
int dl_postmortem_leftovers(struct dl_postmortem **ret, const struct dl_leftover_opts *o, struct dl_diag *d);

#endif
