/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Growing arrays. A vector is any struct with the members { T *v; size_t cnt, cap; }, zeroed to
 * begin with:
 *
 *	struct { struct seg *v; size_t cnt, cap; } segs = {};
 *	struct seg *s = vec_push(&segs);	// zeroed; NULL without memory
 */
#ifndef DLBPF_BASE_VEC_H
#define DLBPF_BASE_VEC_H

#include <stddef.h>
#include <stdint.h>

/* Makes room for cnt more of size sz; returns 0 or -ENOMEM. */
int dl_vec_grow(void **v, size_t cnt, size_t *cap, size_t more, size_t sz);

/* Zeroes the element at index and returns it. */
void *dl_vec_at_zeroed(void *v, size_t index, size_t sz);

/* For elements that begin with a uint64_t and are sorted by it: index of the first one whose number
 * is at least t; cnt when there is none. */
size_t dl_vec_first_at(const void *v, size_t cnt, size_t sz, uint64_t t);

#define vec_first_at(vec, t) dl_vec_first_at((vec)->v, (vec)->cnt, sizeof(*(vec)->v), (t))

/* Sorts such elements by it. */
void dl_vec_sort(void *v, size_t cnt, size_t sz);

#define vec_sort(vec) dl_vec_sort((vec)->v, (vec)->cnt, sizeof(*(vec)->v))

#define DL_VEC(type) struct { type *v; size_t cnt, cap; }

#define vec_reserve(vec, more) \
	dl_vec_grow((void **)&(vec)->v, (vec)->cnt, &(vec)->cap, (more), sizeof(*(vec)->v))

#define vec_push(vec) \
	((__typeof__((vec)->v))(vec_reserve(vec, 1) ? NULL : \
		dl_vec_at_zeroed((vec)->v, (vec)->cnt++, sizeof(*(vec)->v))))

#define vec_last(vec) ((vec)->cnt ? &(vec)->v[(vec)->cnt - 1] : NULL)

#define vec_free(vec) do { \
	free((vec)->v); (vec)->v = NULL; (vec)->cnt = (vec)->cap = 0; \
} while (0)

/* "it &&": adding even 0 to a null pointer is undefined. "&*": a const vector's pointer must move too. */
#define vec_for_each(vec, it) \
	for (__typeof__(&*(vec)->v) it = (vec)->v; it && it < (vec)->v + (vec)->cnt; it++)

#endif
