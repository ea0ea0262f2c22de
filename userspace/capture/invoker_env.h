/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Parts of invoker.c for its tests. */
#ifndef DLBPF_CAPTURE_INVOKER_ENV_H
#define DLBPF_CAPTURE_INVOKER_ENV_H

#include "capture/invoker.h"

void dl_env_fini(struct dl_env_list *env);

/* Which of the limits the user had; sudo and shell may be NULL. */
void dl_limit_vote(int resource, const struct rlimit *own, const struct rlimit *sudo,
		   const struct rlimit *shell, struct rlimit *ret);

#endif
