/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#include "base/dense.h"

#include <errno.h>
#include <stdlib.h>

#define FREE_MIN 4096	/* places that may be empty, however few are not */

/* No more than three of four places are empty, whatever the numbers. */
static bool lies_close(const struct dl_dense *m, uint64_t key)
{
	return key >= m->first && key - m->first < m->cnt * 4 + FREE_MIN;
}

int dl_dense_set(struct dl_dense *m, uint64_t key, uint32_t val)
{
	if (!m->v.cnt)
		m->first = key;
	/* What is in the table stays there: one number has one place. */
	if (!lies_close(m, key) || (m->far.cnt && dl_map_get(&m->far, key, NULL)))
		return dl_map_set(&m->far, key, val);
	while (m->v.cnt <= key - m->first) {
		if (!vec_push(&m->v))
			return -ENOMEM;
	}
	m->cnt += !m->v.v[key - m->first];
	m->v.v[key - m->first] = val + 1;
	return 0;
}

bool dl_dense_get(const struct dl_dense *m, uint64_t key, uint32_t *ret_val)
{
	uint64_t far;

	if (key >= m->first && key - m->first < m->v.cnt && m->v.v[key - m->first]) {
		if (ret_val)
			*ret_val = m->v.v[key - m->first] - 1;
		return true;
	}
	if (!m->far.cnt || !dl_map_get(&m->far, key, &far))
		return false;
	if (ret_val)
		*ret_val = (uint32_t)far;
	return true;
}

void dl_dense_fini(struct dl_dense *m)
{
	vec_free(&m->v);
	dl_map_fini(&m->far);
	m->first = m->cnt = 0;
}
