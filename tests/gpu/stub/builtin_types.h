/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The same for the runtime's types. */
#ifndef STUB_BUILTIN_TYPES_H
#define STUB_BUILTIN_TYPES_H

#include <cuda.h>

typedef int cudaError_t;
typedef struct stub_stream *cudaStream_t;
typedef struct stub_event *cudaEvent_t;

#endif
