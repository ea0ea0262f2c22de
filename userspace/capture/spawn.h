/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Runs the command to be recorded as the invoking user. The process is made first and waits; it
 * becomes the command when tracing is attached, so that nothing of it is missed.
 */
#ifndef DLBPF_CAPTURE_SPAWN_H
#define DLBPF_CAPTURE_SPAWN_H

#include <sys/types.h>

#include "base/diag.h"
#include "capture/invoker.h"

struct dl_spawn {
	pid_t pid;
	int sock;	/* our end: a byte lets it go; what comes back is why it could not */
};

#define DL_SPAWN_NONE { .pid = -1, .sock = -1 }

/* Before any thread is started, and before signals are blocked. It stays in our process group: the
 * terminal's Ctrl-C reaches it. */
int dl_spawn_prepare(struct dl_spawn *ret, char **argv, const struct dl_invoker *inv,
		     struct dl_diag *d);

/* Lets it go and waits until it is the command. A failure of exec comes back as -errno. */
int dl_spawn_go(struct dl_spawn *s, const char *name, struct dl_diag *d);

/* Ends a process that was not let go; else only forgets. Reaps in the first case. */
void dl_spawn_close(struct dl_spawn *s);

#endif
