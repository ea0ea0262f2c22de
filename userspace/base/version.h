/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The version of the program, as in `dlbpf --version` and in every trace it records. */
#ifndef DLBPF_BASE_VERSION_H
#define DLBPF_BASE_VERSION_H

#define DLBPF_VERSION "0.1.0"

#endif
