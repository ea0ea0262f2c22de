/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The collector is loaded into processes whose C library may be older than the one it was built
 * with (a container beside its host). glibc 2.34 gave the thread and loader functions new
 * symbol versions; the old ones are still there and are asked for by name.
 */
#ifndef DLBPF_CUPTI_COMPAT_H
#define DLBPF_CUPTI_COMPAT_H

#include <features.h>

#if defined(__GLIBC__) && defined(__x86_64__)
#define OLD_SYMBOL(f) __asm__(".symver " #f "," #f "@GLIBC_2.2.5")
#elif defined(__GLIBC__) && defined(__aarch64__)
#define OLD_SYMBOL(f) __asm__(".symver " #f "," #f "@GLIBC_2.17")
#else
#define OLD_SYMBOL(f) _Static_assert(1, "")
#endif

#endif
