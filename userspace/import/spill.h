/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Events in any order, taken and given back sorted by time, in bounded memory: what does not fit is sorted
 * and kept in unlinked temporary files ($TMPDIR, else /var/tmp), and merged while it is read.
 */
#ifndef DLBPF_IMPORT_SPILL_H
#define DLBPF_IMPORT_SPILL_H

#include <stddef.h>
#include <stdint.h>

#include <dlbpf/event.h>

#include "base/diag.h"

struct dl_spill;

/* buf_sz: bytes of memory; 0: the default, 32 MiB. NULL: out of memory. */
struct dl_spill *dl_spill_new(size_t buf_sz);
void dl_spill_free(struct dl_spill *s);

/* Takes a copy. Events of equal times stay in the order in which they were added. */
int dl_spill_add(struct dl_spill *s, const struct dl_hdr *ev, struct dl_diag *d);

/* Nothing more is added; goes to the first event. May be called again, to read once more. */
int dl_spill_rewind(struct dl_spill *s, struct dl_diag *d);

/* 1 with the next event, which is valid until the next call; 0 at the end. */
int dl_spill_next(struct dl_spill *s, const struct dl_hdr **ret, struct dl_diag *d);

/* A file without a name, for reading and writing. */
int dl_temp_file(int *ret_fd, struct dl_diag *d);

#endif
