/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What the parts of fail.bpf.c share: how many events at most, where they are made, names of shared
 * memory objects. */
#ifndef DLBPF_FAIL_BPF_H
#define DLBPF_FAIL_BPF_H

#include "file.bpf.h"

#define TEXT_MAX 256
#define DL_NS_PER_SEC 1000000000ULL
#define BIT(nr) (1ULL << (nr))

/* --- at most so many ----------------------------------------------------------------------- */

/*
 * A loop that fails for ever must not fill the ring. Each thread has so many of each failure a second;
 * what a thread does before it fails first, being forked, is an event of that ring anyway.
 */
struct fail_key {
	__u32 tid;
	__u16 nr;
	__u16 err;
};

struct fail_cnt {
	__u64 start;
	__u32 cnt;
	__u32 skipped;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct fail_key);
	__type(value, struct fail_cnt);
} dl_fail_cnts SEC(".maps");

/* True when this one is to be left out; else in *skipped how many were before it. */
static __always_inline bool is_too_many(__u32 tid, __u64 nr, __u32 err, __u32 max, __u64 now, __u32 *skipped)
{
	struct fail_key key = { .tid = tid, .nr = nr, .err = err };
	struct fail_cnt *c = bpf_map_lookup_elem(&dl_fail_cnts, &key);

	if (!c) {
		struct fail_cnt first = { .start = now, .cnt = 1 };

		bpf_map_update_elem(&dl_fail_cnts, &key, &first, BPF_ANY);
		return false;
	}
	if (now - c->start > DL_NS_PER_SEC) {
		c->start = now;
		c->cnt = 0;
	}
	if (c->cnt >= max) {
		c->skipped++;
		return true;
	}
	c->cnt++;
	*skipped = c->skipped;
	c->skipped = 0;
	return false;
}

/* --- shared memory objects -------------------------------------------------------------------- */

/* Names that PyTorch, Python's multiprocessing, joblib and NCCL give theirs. */
static __always_inline bool is_shm_name(const char *s)
{
	if (s[0] == 't')
		return s[1] == 'o' && s[2] == 'r' && s[3] == 'c' && s[4] == 'h' && s[5] == '_';
	if (s[0] == 'p')
		return s[1] == 's' && s[2] == 'm' && s[3] == '_';
	if (s[0] == 'n')
		return s[1] == 'c' && s[2] == 'c' && s[3] == 'l' && s[4] == '-';
	return s[0] == 's' && s[1] == 'e' && s[2] == 'm' && s[3] == '.' &&
	       ((s[4] == 'm' && s[5] == 'p' && s[6] == '-') ||
		(s[4] == 'l' && s[5] == 'o' && s[6] == 'k' && s[7] == 'y' && s[8] == '-'));
}

/* "/dev/shm/torch_...", as shm_open(3) and sem_open(3) make it */
static __always_inline bool is_shm_path(const char *s)
{
	return s[0] == '/' && s[1] == 'd' && s[2] == 'e' && s[3] == 'v' && s[4] == '/' && s[5] == 's' &&
	       s[6] == 'h' && s[7] == 'm' && s[8] == '/' && is_shm_name(s + 9);
}

#endif
