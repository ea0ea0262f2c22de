/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#include "base/map.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { FREE = 0, USED = 1, REMOVED = 2 };

/* The finaliser of MurmurHash3: every input bit reaches every output bit. */
uint64_t dl_hash64(uint64_t x)
{
	x ^= x >> 33;
	x *= 0xff51afd7ed558ccdULL;
	x ^= x >> 33;
	x *= 0xc4ceb9fe1a85ec53ULL;
	return x ^ (x >> 33);
}

uint64_t dl_hash_bytes(const void *p, size_t sz)
{
	const unsigned char *b = p;
	uint64_t h = 0xcbf29ce484222325ULL ^ sz, w;

	for (; sz >= 8; sz -= 8, b += 8) {
		memcpy(&w, b, 8);
		h = dl_hash64(h ^ w);
	}
	for (w = 0; sz; sz--, b++)
		w = w << 8 | *b;
	return dl_hash64(h ^ w);
}

static size_t find(const struct dl_map *m, uint64_t key, bool *ret_found)
{
	size_t i = dl_hash64(key) & (m->cap - 1), spare = SIZE_MAX;

	for (; m->used[i] != FREE; i = (i + 1) & (m->cap - 1)) {
		if (m->used[i] == REMOVED) {
			if (spare == SIZE_MAX)
				spare = i;
		} else if (m->slots[i].key == key) {
			*ret_found = true;
			return i;
		}
	}
	*ret_found = false;
	return spare == SIZE_MAX ? i : spare;
}

static int rehash(struct dl_map *m, size_t cap)
{
	struct dl_map grown = { .cap = cap };

	grown.slots = malloc(cap * sizeof(*grown.slots));
	grown.used = calloc(cap, 1);
	if (!grown.slots || !grown.used) {
		free(grown.slots);
		free(grown.used);
		return -ENOMEM;
	}
	for (size_t i = 0; i < m->cap; i++) {
		bool found;
		size_t at;

		if (m->used[i] != USED)
			continue;
		at = find(&grown, m->slots[i].key, &found);
		grown.slots[at] = m->slots[i];
		grown.used[at] = USED;
		grown.cnt++;
	}
	grown.filled = grown.cnt;
	free(m->slots);
	free(m->used);
	*m = grown;
	return 0;
}

uint64_t *dl_map_at(struct dl_map *m, uint64_t key)
{
	bool found;
	size_t at;

	if ((m->filled + 1) * 4 > m->cap * 3 &&
	    rehash(m, m->cnt * 2 + 1 > m->cap / 2 ? (m->cap ? m->cap * 2 : 16) : m->cap))
		return NULL;
	at = find(m, key, &found);
	if (!found) {
		m->cnt++;
		if (m->used[at] == FREE)
			m->filled++;
		m->used[at] = USED;
		m->slots[at].key = key;
		m->slots[at].val = 0;
	}
	return &m->slots[at].val;
}

int dl_map_set(struct dl_map *m, uint64_t key, uint64_t val)
{
	uint64_t *at = dl_map_at(m, key);

	if (!at)
		return -ENOMEM;
	*at = val;
	return 0;
}

bool dl_map_get(const struct dl_map *m, uint64_t key, uint64_t *ret_val)
{
	bool found;
	size_t at;

	if (!m->cap)
		return false;
	at = find(m, key, &found);
	if (found && ret_val)
		*ret_val = m->slots[at].val;
	return found;
}

void dl_map_del(struct dl_map *m, uint64_t key)
{
	bool found;
	size_t at;

	if (!m->cap)
		return;
	at = find(m, key, &found);
	if (!found)
		return;
	m->used[at] = REMOVED;
	m->cnt--;
}

bool dl_map_next(const struct dl_map *m, size_t *pos, uint64_t *ret_key, uint64_t *ret_val)
{
	for (; *pos < m->cap; (*pos)++) {
		if (m->used[*pos] != USED)
			continue;
		*ret_key = m->slots[*pos].key;
		*ret_val = m->slots[*pos].val;
		(*pos)++;
		return true;
	}
	return false;
}

void dl_map_fini(struct dl_map *m)
{
	free(m->slots);
	free(m->used);
	memset(m, 0, sizeof(*m));
}
