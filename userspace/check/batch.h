/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * How large is a batch? PyTorch names each object of shared memory torch_PID_RANDOM_NUMBER, with a number
 * that counts in each process, and a worker makes the objects of a batch one after the other, batch after
 * batch. So the sizes, in the order of the numbers, repeat: image, label, image, label. Where they
 * do not, or where all are of one size, those that appear together are a batch.
 */
#ifndef DLBPF_CHECK_BATCH_H
#define DLBPF_CHECK_BATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "check/facts.h"

struct ck_storage {
	uint64_t ino;
	uint32_t dev;
	uint32_t owner;		/* its maker, as itself knows its PID */
	uint64_t nr;		/* that counts in the owner */
	uint64_t size;		/* bytes */
	uint32_t look;		/* the first in which it was met ... */
	bool late;		/* ... which came long after the one before it, or took long */
};

/* "torch_4711_123456_7"; false on anything else. Older PyTorch has no number: *ret_nr is 0 then. */
bool ck_storage_parse(const char *name, uint32_t *ret_owner, uint64_t *ret_nr);

/* v is sorted by owner and number. bytes is 0 when there is nothing. */
struct dl_ck_batch ck_batch_of(const struct ck_storage *v, size_t cnt);

#endif
