/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#ifndef DLBPF_CLI_MAN_H
#define DLBPF_CLI_MAN_H

#include <stddef.h>
#include <stdio.h>

#include "cli/opts.h"

/* The manual page of a command, and the one that lists them all, as roff. */
void dl_man_command(const struct dl_cmd *cmd, FILE *out);
void dl_man_main(const struct dl_cmd *const *cmds, size_t cnt, FILE *out);

#endif
