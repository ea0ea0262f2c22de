/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The folder in which segments are kept. It belongs to the invoking user, who may do anything to it at
 * any moment, while files in it come and go as long as the recording lasts and threads run: they are
 * made and removed through its descriptor, with that user's id, never through links.
 */
#ifndef DLBPF_CAPTURE_KEEP_DIR_H
#define DLBPF_CAPTURE_KEEP_DIR_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/diag.h"
#include "base/vec.h"
#include "capture/invoker.h"

struct dl_keep_dir {
	int fd;
	char *path;
	const struct dl_invoker *inv;
};

struct dl_names { char **v; size_t cnt, cap; };	/* owned, sorted */

/* Makes it where it is missing, and locks it: -EBUSY when another recorder has it. Before any thread
 * is started. */
int dl_keep_dir_open(struct dl_keep_dir *dir, const char *path, const struct dl_invoker *inv, struct dl_diag *d);

/* and_remove: when it is empty. */
void dl_keep_dir_close(struct dl_keep_dir *dir, bool and_remove);

int dl_keep_dir_create(const struct dl_keep_dir *dir, const char *name);	/* a new file, for writing */
int dl_keep_dir_read(const struct dl_keep_dir *dir, const char *name);
void dl_keep_dir_unlink(const struct dl_keep_dir *dir, const char *name);

/* The traces in it. 0 or -errno. */
int dl_keep_dir_list(const struct dl_keep_dir *dir, struct dl_names *ret);
void dl_names_fini(struct dl_names *names);

#endif
