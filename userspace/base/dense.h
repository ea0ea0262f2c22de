/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* From numbers that lie close together to indices: an array where they do, a hash table for the rest. Zeroed to
 * begin with. */
#ifndef DLBPF_BASE_DENSE_H
#define DLBPF_BASE_DENSE_H

#include "base/map.h"
#include "base/vec.h"

struct dl_dense {
	uint64_t first;		/* what v begins with */
	size_t cnt;		/* numbers in v that have an index */
	DL_VEC(uint32_t) v;	/* index + 1; 0 none */
	struct dl_map far;
};

/* Sets or replaces; val is less than UINT32_MAX. 0 or -ENOMEM. */
int dl_dense_set(struct dl_dense *m, uint64_t key, uint32_t val);

/* True and *ret_val when found; *ret_val is untouched otherwise. */
bool dl_dense_get(const struct dl_dense *m, uint64_t key, uint32_t *ret_val);

void dl_dense_fini(struct dl_dense *m);

#endif
