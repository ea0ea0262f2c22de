/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Hash table from u64 to u64. Zeroed to begin with; key 0 is allowed. */
#ifndef DLBPF_BASE_MAP_H
#define DLBPF_BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct dl_map {
	struct dl_map_slot { uint64_t key, val; } *slots;
	uint8_t *used;	/* 0 free, 1 used, 2 removed */
	size_t cap, cnt, filled;
};

/* Sets or replaces; 0 or -ENOMEM. */
int dl_map_set(struct dl_map *m, uint64_t key, uint64_t val);

/* Where the value of a key is, 0 where it is new; NULL without memory. Valid until the next change. */
uint64_t *dl_map_at(struct dl_map *m, uint64_t key);

/* True and *ret_val when found; *ret_val is untouched otherwise. */
bool dl_map_get(const struct dl_map *m, uint64_t key, uint64_t *ret_val);

void dl_map_del(struct dl_map *m, uint64_t key);

/* Iterates: *pos is 0 to begin with; false at the end. */
bool dl_map_next(const struct dl_map *m, size_t *pos, uint64_t *ret_key, uint64_t *ret_val);

void dl_map_fini(struct dl_map *m);

uint64_t dl_hash64(uint64_t x);
uint64_t dl_hash_bytes(const void *p, size_t sz);

#endif
