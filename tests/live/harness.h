/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * For tests of the kernel side: runs a function as a recorded process and keeps all events. The
 * function runs in a child that is forked with nothing recorded, then added as target, then let go;
 * what it finds out about itself it leaves in shared memory.
 */
#ifndef DLBPF_TESTS_LIVE_HARNESS_H
#define DLBPF_TESTS_LIVE_HARNESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/vec.h"
#include "capture/kernel.h"

#define TRUTH_MAX 64

/* Shared between the recorded child and the test. */
struct truth {
	volatile int64_t v[TRUTH_MAX];
};

struct harness {
	struct dl_sink sink;
	struct dl_kernel *k;
	DL_VEC(struct dl_hdr *) events;	/* in the order of arrival */
	struct truth *truth;
	uint64_t lost;
};

/* Fails or skips the running test by way of the message it returns: NULL is success. */
const char *harness_open(struct harness *h, uint32_t sample_hz, uint32_t ring_sz);
void harness_close(struct harness *h);

/* Forgets the events so far. */
void harness_reset(struct harness *h);

typedef void (*body_fn)(struct truth *t, void *arg);

/* Starts the body; it waits until harness_go(). -1 on failure. */
pid_t harness_start(struct harness *h, body_fn body, void *arg, int *ret_go);
/* Adds it as the root target and lets it go. */
int harness_go(struct harness *h, pid_t pid, int go);
/* Drains until the child has ended and for a moment longer; its wait status. */
int harness_finish(struct harness *h, pid_t pid, bool drain);
/* All three: the wait status, or -1. */
int harness_run(struct harness *h, body_fn body, void *arg);

/* The next event of a kind behind *pos, or NULL; *pos is 0 to begin with. */
const void *harness_next(const struct harness *h, unsigned int kind, size_t *pos);
size_t harness_count(const struct harness *h, unsigned int kind);

/* EACH(h, SWITCH, switch, e) { e->... } */
#define EACH(h, KIND, tag, e) \
	for (size_t _pos_##e = 0, _on_##e = 1; _on_##e; _on_##e = 0) \
		for (const struct dl_ev_##tag *e; (e = harness_next(h, DL_EV_##KIND, &_pos_##e)); )

/* The text behind an event's fixed part, NUL-terminated, in a static buffer. */
const char *harness_text(const struct dl_hdr *ev, size_t fixed);

uint64_t mono_ns(void);

/* A cgroup of version 1 or 2 with one controller ("memory", "cpu"); false when that is not to be
 * had. cgroup_set() takes version 1's and version 2's file and value; NULL leaves it. */
struct cgroup { char path[256]; bool v2; };
bool cgroup_make(struct cgroup *g, const char *controller, const char *name);
bool cgroup_set(const struct cgroup *g, const char *v1_file, const char *v1_value, const char *v2_file,
		const char *v2_value);
bool cgroup_enter(const struct cgroup *g);
void cgroup_remove(const struct cgroup *g);

/* A directory on a file system that is on a block device, or NULL: for cold reads. */
const char *block_dir(void);
/* Writes a file of size bytes there and drops it from the page cache. */
bool cold_file(const char *path, size_t size);

#endif
