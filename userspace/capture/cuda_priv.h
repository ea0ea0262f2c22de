/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The parts of cuda_probe.h, each testable alone. */
#ifndef DLBPF_CAPTURE_CUDA_PRIV_H
#define DLBPF_CAPTURE_CUDA_PRIV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <dlbpf/bpf_shared.h>

#include "base/vec.h"
#include "capture/maps.h"

/* --- cuda_calls.c: the calls, as the collector knows them ------------------------------------------- */

struct cuda_call {
	struct dl_cuda_call c;	/* name: its index + DL_CUDA_NAMES; flags: what its arguments tell */
	bool light;
	const char *symbol;
};

/* Ids of names, apart from those that collectors give. */
#define DL_CUDA_NAMES 0x40000000U

extern const struct cuda_call cuda_calls[];
extern const size_t cuda_call_cnt;

/* By the exported symbol, which need not end behind sz bytes; NULL when it is none of them. */
const struct cuda_call *cuda_call_find(const char *symbol, size_t sz);
/* Direction and arguments, from the name. */
struct dl_cuda_call cuda_call_full(const struct cuda_call *call);

/* --- cuda_lib.c: libraries with entry points ------------------------------------------------------------ */

enum cuda_layer { CUDA_NONE = 0, CUDA_DRIVER, CUDA_RUNTIME };

/* By the name of the file. */
enum cuda_layer cuda_layer_of(const char *path);

struct cuda_point {
	const struct cuda_call *call;
	uint64_t off;		/* in the file */
};

struct cuda_lib {
	uint32_t dev;		/* as /proc/PID/maps says it */
	uint64_t ino;
	int fd;
	char name[64];		/* of the file, without what a terminal would act upon */
	bool simulated;		/* tests/gpusim */
	DL_VEC(struct cuda_point) points;	/* each offset once */
};

/* Opens what is mapped and finds its entry points. 0 or -errno; -ENOEXEC when it is no ELF file. */
int cuda_lib_open(struct cuda_lib *ret, int proc_fd, const struct dl_mapping *m);
void cuda_lib_fini(struct cuda_lib *lib);

/* The same of an open file; takes the descriptor. */
int cuda_lib_read(struct cuda_lib *lib, int fd);

/* --- cuda_off.c ------------------------------------------------------------------------------------------ */

struct dl_uprobe;

/* Takes probes off, in the end: what they still report is to be ignored. */
void cuda_off(struct dl_uprobe **v, size_t cnt);

#endif
