/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Many numbers of which the order matters: a median, the 99th of 100. All are kept while they are few;
 * beyond DL_VALUES_EXACT they are counted in buckets, and a number that is asked for is then off by less
 * than 1/256 of itself. Count, sum and largest are exact in any case. Zeroed to begin with.
 */
#ifndef DLBPF_BASE_VALUES_H
#define DLBPF_BASE_VALUES_H

#include <stddef.h>
#include <stdint.h>

#define DL_VALUES_EXACT 65536

struct dl_values {
	uint64_t cnt, sum, max;
	struct { uint64_t *v; size_t cnt, cap; } few;	/* empty once there are buckets */
	uint64_t *buckets;				/* NULL while all are kept */
};

/* 0 or -ENOMEM, after which they hold what they held. */
int dl_values_add(struct dl_values *s, uint64_t value);
int dl_values_merge(struct dl_values *into, const struct dl_values *from);

/* The number at this place in ascending order; place must be below cnt. Sorts what is kept. */
uint64_t dl_values_at(struct dl_values *s, uint64_t place);

void dl_values_fini(struct dl_values *s);

#endif
