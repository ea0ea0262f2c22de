/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#include "render/syscall_name.h"

#include <string.h>

#include "base/cleanup.h"

static const char *const x86_64[] = {
#define SYSCALL(nr, name) [nr] = #name,
#include "render/syscalls_x86_64.def"
#undef SYSCALL
};

static const char *const arm64[] = {
#define SYSCALL(nr, name) [nr] = #name,
#include "render/syscalls_arm64.def"
#undef SYSCALL
};

const char *dl_syscall_name(const char *machine, int32_t nr)
{
	if (!machine || nr < 0)
		return NULL;
	if (!strcmp(machine, "x86_64"))
		return (size_t)nr < ARRAY_SIZE(x86_64) ? x86_64[nr] : NULL;
	if (!strcmp(machine, "aarch64") || !strcmp(machine, "arm64"))
		return (size_t)nr < ARRAY_SIZE(arm64) ? arm64[nr] : NULL;
	return NULL;
}
