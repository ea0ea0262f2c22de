/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#include "trace/outq.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct piece {
	struct piece *next;
	size_t sz;
	uint8_t bytes[];
};

struct dl_outq {
	int fd;
	size_t max_sz;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t more, less;	/* something to write; room again */
	/* under the lock */
	struct piece *first, **end;
	size_t waiting_sz;		/* the one that is being written included */
	int err;			/* sticks */
	bool closing;
	/* written by the thread, read by anybody */
	_Atomic uint64_t off;
	_Atomic bool behind;
};

/* All of the bytes, or none as far as the file system lets us take them back. */
static int write_piece(struct dl_outq *q, const struct piece *piece)
{
	const uint64_t off = atomic_load(&q->off);
	size_t done = 0;
	int err = 0;

	while (done < piece->sz && !err) {
		const ssize_t n = write(q->fd, piece->bytes + done, piece->sz - done);

		if (n > 0)
			done += (size_t)n;
		else if (n == 0 || errno != EINTR)
			err = n < 0 ? -errno : -EIO;
	}
	if (!err) {
		atomic_store(&q->off, off + piece->sz);
		return 0;
	}
	/* A pipe cannot go back: its reader sees a torn piece, which is no worse than the loss. */
	if (done && !ftruncate(q->fd, (off_t)off) && lseek(q->fd, (off_t)off, SEEK_SET) < 0)
		return err;
	return err;
}

static void free_all(struct dl_outq *q)
{
	while (q->first) {
		struct piece *piece = q->first;

		q->first = piece->next;
		free(piece);
	}
	q->end = &q->first;
	q->waiting_sz = 0;
}

static void count(struct dl_outq *q, size_t sz)
{
	q->waiting_sz = sz;
	atomic_store(&q->behind, sz > q->max_sz / 2);
}

static void *run(void *arg)
{
	struct dl_outq *q = arg;

	pthread_mutex_lock(&q->lock);
	for (;;) {
		struct piece *piece;
		int err;

		while (!q->first && !q->closing)
			pthread_cond_wait(&q->more, &q->lock);
		piece = q->first;
		if (!piece)
			break;
		q->first = piece->next;
		if (!q->first)
			q->end = &q->first;
		pthread_mutex_unlock(&q->lock);
		err = write_piece(q, piece);
		pthread_mutex_lock(&q->lock);
		count(q, q->waiting_sz - piece->sz);
		free(piece);
		if (err) {
			q->err = err;
			free_all(q);
			count(q, 0);
		}
		pthread_cond_signal(&q->less);
	}
	pthread_mutex_unlock(&q->lock);
	return NULL;
}

/* Signals are for the thread that records. */
static int start(struct dl_outq *q)
{
	sigset_t all, old;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&q->thread, NULL, run, q);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return -err;
}

static void destroy(struct dl_outq *q)
{
	free_all(q);
	pthread_cond_destroy(&q->more);
	pthread_cond_destroy(&q->less);
	pthread_mutex_destroy(&q->lock);
	free(q);
}

int dl_outq_new(struct dl_outq **ret, int fd, uint64_t off, size_t max_sz)
{
	struct dl_outq *q = calloc(1, sizeof(*q));
	int err;

	if (!q)
		return -ENOMEM;
	q->fd = fd;
	q->max_sz = max_sz;
	q->end = &q->first;
	atomic_init(&q->off, off);
	atomic_init(&q->behind, false);
	pthread_mutex_init(&q->lock, NULL);
	pthread_cond_init(&q->more, NULL);
	pthread_cond_init(&q->less, NULL);
	err = start(q);
	if (err) {
		destroy(q);
		return err;
	}
	*ret = q;
	return 0;
}

int dl_outq_put(struct dl_outq *q, const void *p, size_t sz)
{
	struct piece *piece = malloc(sizeof(*piece) + sz);
	int err;

	if (!piece)
		return -ENOMEM;
	piece->next = NULL;
	piece->sz = sz;
	memcpy(piece->bytes, p, sz);
	pthread_mutex_lock(&q->lock);
	while (!q->err && q->waiting_sz && q->waiting_sz + sz > q->max_sz)
		pthread_cond_wait(&q->less, &q->lock);
	err = q->err;
	if (err) {
		free(piece);
	} else {
		*q->end = piece;
		q->end = &piece->next;
		count(q, q->waiting_sz + sz);
		pthread_cond_signal(&q->more);
	}
	pthread_mutex_unlock(&q->lock);
	return err;
}

bool dl_outq_is_behind(const struct dl_outq *q)
{
	return atomic_load(&q->behind);
}

uint64_t dl_outq_written(const struct dl_outq *q)
{
	return atomic_load(&q->off);
}

int dl_outq_close(struct dl_outq *q, uint64_t *ret_off)
{
	int err;

	pthread_mutex_lock(&q->lock);
	q->closing = true;
	pthread_cond_signal(&q->more);
	pthread_mutex_unlock(&q->lock);
	pthread_join(q->thread, NULL);
	err = q->err;
	*ret_off = atomic_load(&q->off);
	destroy(q);
	return err;
}
