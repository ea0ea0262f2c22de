/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Text that a user hands over: a log, from a file or from standard input. */
#ifndef DLBPF_CLI_TEXTFILE_H
#define DLBPF_CLI_TEXTFILE_H

#include <stddef.h>

#include "base/diag.h"

/*
 * All of it, with a NUL behind it that *ret_len does not count; "-" is standard input. Of a text of more
 * than DL_TEXT_MAX bytes the first and the last half of that: a crash is told at the end, its first sign
 * may be at the start. Bytes are as they were: NULs, too. The caller frees it.
 */
#define DL_TEXT_MAX (64ULL << 20)

int dl_text_file(const char *path, char **ret, size_t *ret_len, struct dl_diag *d);

#endif
