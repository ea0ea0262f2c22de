/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Environments as lists, private to invoker.c, spawn.c and their tests. */
#ifndef DLBPF_CAPTURE_INVOKER_ENV_H
#define DLBPF_CAPTURE_INVOKER_ENV_H

#include "capture/invoker.h"

void dl_env_fini(struct dl_env_list *env);

#endif
