/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#include "cli/textfile.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

enum { READ_SZ = 1 << 16 };

/* The first half and a ring of the last half. */
struct kept {
	char *v;
	size_t len, cap;
	size_t at;	/* in the ring, once it is full */
	bool wrapped;
};

static int keep(struct kept *k, const char *data, size_t len)
{
	const size_t half = DL_TEXT_MAX / 2;

	while (len) {
		size_t room, n;

		if (!k->wrapped && k->len < DL_TEXT_MAX) {
			if (k->len == k->cap) {
				size_t cap = k->cap ? k->cap * 2 : READ_SZ;
				char *v = realloc(k->v, cap + 1);

				if (!v)
					return -ENOMEM;
				k->v = v;
				k->cap = cap;
			}
			room = k->cap - k->len;
			n = len < room ? len : room;
			memcpy(k->v + k->len, data, n);
			k->len += n;
		} else {
			k->wrapped = true;
			room = half - k->at;
			n = len < room ? len : room;
			memcpy(k->v + half + k->at, data, n);
			k->at = (k->at + n) % half;
		}
		data += n;
		len -= n;
	}
	return 0;
}

/* Brings the ring's oldest byte to its front. */
static int unroll(struct kept *k)
{
	const size_t half = DL_TEXT_MAX / 2;
	char *tail;

	if (!k->wrapped || !k->at)
		return 0;
	tail = malloc(half);
	if (!tail)
		return -ENOMEM;
	memcpy(tail, k->v + half + k->at, half - k->at);
	memcpy(tail + half - k->at, k->v + half, k->at);
	memcpy(k->v + half, tail, half);
	free(tail);
	return 0;
}

static int read_all(FILE *f, struct kept *k)
{
	_cleanup_free_ char *buf = malloc(READ_SZ);
	size_t n;
	int err;

	if (!buf)
		return -ENOMEM;
	errno = 0;
	while ((n = fread(buf, 1, READ_SZ, f)) > 0) {
		err = keep(k, buf, n);
		if (err)
			return err;
	}
	if (ferror(f))
		return errno ? -errno : -EIO;
	return unroll(k);
}

int dl_text_file(const char *path, char **ret, size_t *ret_len, struct dl_diag *d)
{
	const bool standard = !strcmp(path, "-");
	FILE *f = standard ? stdin : fopen(path, "re");
	struct kept k = {};
	int err;

	if (!f)
		return dl_fail_errno(d, -errno, "cannot open %s", path);
	err = read_all(f, &k);
	if (!standard)
		fclose(f);
	if (!err && !k.v) {
		k.v = malloc(1);
		err = k.v ? 0 : -ENOMEM;
	}
	if (err) {
		free(k.v);
		return err == -ENOMEM ? dl_oom(d) : dl_fail_errno(d, err, "cannot read %s", standard ? "standard input" : path);
	}
	k.v[k.len] = '\0';
	*ret = k.v;
	*ret_len = k.len;
	return 0;
}
