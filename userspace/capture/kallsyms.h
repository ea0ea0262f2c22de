/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Names of the kernel's functions, from /proc/kallsyms, read once. */
#ifndef DLBPF_CAPTURE_KALLSYMS_H
#define DLBPF_CAPTURE_KALLSYMS_H

#include <stddef.h>
#include <stdint.h>

#include "base/str.h"
#include "base/vec.h"

struct dl_kallsyms {
	DL_VEC(struct dl_ksym { uint64_t addr; uint32_t name; }) syms;	/* by address */
	struct dl_str names;	/* each followed by a NUL */
};

/* -EACCES when the kernel hides its addresses (kernel.kptr_restrict). */
int dl_kallsyms_load(struct dl_kallsyms *ret, const char *path);
void dl_kallsyms_fini(struct dl_kallsyms *k);

/* The function at the address, and how far into it; NULL when it is below the first. */
const char *dl_kallsyms_find(const struct dl_kallsyms *k, uint64_t addr, uint64_t *ret_off);

#endif
