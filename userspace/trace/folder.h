/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The folder of segments beside a trace, private to trace/. */
#ifndef DLBPF_TRACE_FOLDER_H
#define DLBPF_TRACE_FOLDER_H

#include <stddef.h>

struct dl_folder { char **v; size_t cnt, cap; };	/* paths of segments, the oldest first */

/*
 * The segments of the newest recording in a folder: path is the folder itself, or an empty file FILE beside
 * a FILE.keep. 1, 0 when path is neither, or -ENOMEM.
 */
int dl_folder_of(const char *path, struct dl_folder *ret);
void dl_folder_fini(struct dl_folder *folder);

#endif
