/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#ifndef DLBPF_RENDER_SYSCALL_NAME_H
#define DLBPF_RENDER_SYSCALL_NAME_H

#include <stdint.h>

/* "futex" by the numbers of the machine of the trace (uname -m); NULL when it is not known. */
const char *dl_syscall_name(const char *machine, int32_t nr);

#endif
