/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Where a process has code: its executable mappings and their files. Shared by the processes that were
 * forked from one, until one of them changes. One thread's only. */
#ifndef DLBPF_CAPTURE_SYMSPACE_H
#define DLBPF_CAPTURE_SYMSPACE_H

#include <stdint.h>

#include "base/vec.h"
#include "capture/symfile.h"

#define DL_NO_FILE UINT32_MAX	/* code that was made at run time */

struct dl_seg {
	uint64_t start, end, off;
	uint32_t file;		/* index in the files, or DL_NO_FILE */
};

struct dl_space {
	unsigned int refs;
	DL_VEC(struct dl_seg) segs;	/* by address */
};

void dl_space_put(struct dl_space *sp);	/* NULL-safe */

/* The mapping of an address; NULL: none is known. sp may be NULL. */
const struct dl_seg *dl_space_find(const struct dl_space *sp, uint64_t addr);

/*
 * Reads the mappings of a process; tell is called for those that old (may be NULL) does not have,
 * with their file (NULL: none). One reference is the caller's. NULL: no memory, or the process has
 * given up its own.
 */
struct dl_space *dl_space_read(struct dl_symfiles *files, int proc_fd, const struct dl_space *old,
			       void (*tell)(const struct dl_mapping *m, const struct dl_symfile *f, void *arg),
			       void *arg);

/*
 * A process that ends while its mappings are read gives only the first of them. Adds those behind that were known
 * before. 0 or -ENOMEM.
 */
int dl_space_extend(struct dl_space *sp, const struct dl_space *old);

#endif
