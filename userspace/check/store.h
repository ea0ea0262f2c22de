/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The objects of shared memory that a tree has, look by look. Internal to check/. */
#ifndef DLBPF_CHECK_STORE_H
#define DLBPF_CHECK_STORE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "check/batch.h"
#include "check/family.h"

struct ck_store;

struct ck_store *ck_store_new(void);	/* NULL no memory */
void ck_store_free(struct ck_store *s);

/*
 * A look: begin, workers first and their trainers after them, the names in /dev/shm, end. So what a worker
 * hands over meanwhile is met at least once, and counted as the trainer's. late: it comes long after the look
 * before it, or took long itself, so what is new was not made together. All return 0 or -errno.
 */
void ck_store_begin(struct ck_store *s);
int ck_store_member(struct ck_store *s, struct ck_member *m, uint64_t *ret_fds);	/* -EACCES, -ENOMEM */
int ck_store_dir(struct ck_store *s, const struct ck_family *fam, int shm_fd);
void ck_store_end(struct ck_store *s, struct ck_family *fam, bool late);

/* Files that members read, the largest; "" none. */
const char *ck_store_file(const struct ck_store *s);
uint64_t ck_store_file_size(const struct ck_store *s);
/* Considers another one: a mapped file. */
void ck_store_offer(struct ck_store *s, const char *path, uint64_t size);

/* Was this very object met? */
bool ck_store_has(const struct ck_store *s, const struct stat *st);

bool ck_store_any(const struct ck_store *s);
struct dl_ck_batch ck_store_batch(struct ck_store *s);
/* Peaks and strategy; held and prefetch in batches. */
void ck_store_result(struct ck_store *s, struct dl_ck_seen *ret);

#endif
