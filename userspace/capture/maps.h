/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The mappings of a process, from /proc/PID/maps, and the files behind them. */
#ifndef DLBPF_CAPTURE_MAPS_H
#define DLBPF_CAPTURE_MAPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "capture/sink.h"

struct dl_mapping {
	uint64_t start, end, off, ino;
	uint32_t dev;		/* major << 20 | minor, as /proc says it: overlay file systems show
				 * another one in stat */
	bool exec, write, shared;
	const char *path;	/* "" for private memory; " (deleted)" behind it is cut off */
};

/* One line, without its newline, which is changed. */
bool dl_maps_parse(char *line, struct dl_mapping *ret);

/* Calls fn for each mapping until it returns non-zero, which is then returned. */
int dl_maps_each(int proc_fd, int (*fn)(const struct dl_mapping *m, void *arg), void *arg);

/* Are there any? None: the process has given up its memory. */
bool dl_maps_any(int proc_fd);

/* How many there are; -errno. */
int64_t dl_maps_count(int proc_fd);

/* The very file of a mapping, also a deleted one or one in a container: O_PATH or O_RDONLY.
 * Only regular files; -errno. */
int dl_mapping_open(int proc_fd, const struct dl_mapping *m, bool path_only);

/*
 * Emits SIGBUS_MAP for an address of a process that was hit by SIGBUS and may be gone the next
 * moment; with DL_SB_NO_VMA where nothing is mapped. -ESRCH when it is gone.
 */
int dl_maps_emit_sigbus(struct dl_sink *sink, uint64_t ts, uint32_t pid, uint32_t tid, int proc_fd,
			uint64_t addr);

#endif
