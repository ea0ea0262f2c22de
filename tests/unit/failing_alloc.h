/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Allocations that fail on demand, for a test program as a whole: after alloc_left more of them every
 * one fails. alloc_live counts what has not been freed. Not under the address sanitizer, which has an
 * allocator of its own.
 */
#ifndef DLBPF_FAILING_ALLOC_H
#define DLBPF_FAILING_ALLOC_H

#include <errno.h>
#include <limits.h>
#include <stddef.h>

#ifdef __SANITIZE_ADDRESS__
#define FAILING_ALLOC 0
#else
#define FAILING_ALLOC 1

static long alloc_left = LONG_MAX, alloc_live;

void *__libc_malloc(size_t sz);
void *__libc_calloc(size_t cnt, size_t sz);
void *__libc_realloc(void *p, size_t sz);
void __libc_free(void *p);

static int alloc_fails(void)
{
	if (alloc_left == LONG_MAX || alloc_left-- > 0)
		return 0;
	alloc_left = 0;
	errno = ENOMEM;
	return 1;
}

static void *alloc_counted(void *p)
{
	alloc_live += p != NULL;
	return p;
}

void *malloc(size_t sz)
{
	return alloc_fails() ? NULL : alloc_counted(__libc_malloc(sz));
}

void *calloc(size_t cnt, size_t sz)
{
	return alloc_fails() ? NULL : alloc_counted(__libc_calloc(cnt, sz));
}

void *realloc(void *p, size_t sz)
{
	if (alloc_fails())
		return NULL;
	return p ? __libc_realloc(p, sz) : alloc_counted(__libc_realloc(p, sz));
}

void free(void *p)
{
	alloc_live -= p != NULL;
	__libc_free(p);
}

#endif
#endif
