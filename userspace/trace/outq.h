/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * A file written by a thread of its own, so that whoever records does not wait for a disk that does
 * not answer. What waits to be written is bounded; beyond that it does wait.
 *
 * In order, and whole pieces only: a piece that could not be written to its end is cut off again, and
 * nothing is written behind it.
 */
#ifndef DLBPF_TRACE_OUTQ_H
#define DLBPF_TRACE_OUTQ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct dl_outq;

/* fd stays the caller's; off: where it stands. max_sz: bytes that may wait. 0, or -errno. */
int dl_outq_new(struct dl_outq **ret, int fd, uint64_t off, size_t max_sz);

/* Takes a copy. Waits while there is no room, unless nothing else waits. 0, or the error of an earlier write, -ENOMEM. */
int dl_outq_put(struct dl_outq *q, const void *p, size_t sz);

/* More than half of what may wait does. */
bool dl_outq_is_behind(const struct dl_outq *q);

/* The offset up to which the file is whole. */
uint64_t dl_outq_written(const struct dl_outq *q);

/* Waits until all is written, or an error; ends the thread and frees q. 0 or the first error; *ret_off as dl_outq_written(). */
int dl_outq_close(struct dl_outq *q, uint64_t *ret_off);

#endif
