/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* A Kineto trace with more events: found by reading it as JSON, copied by bytes. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "base/cleanup.h"
#include "import/import.h"
#include "import/json.h"

/* Where the closing bracket of traceEvents lies in the text, and whether the array is empty. */
struct place { uint64_t off; bool empty, found; };

static int find_array_end(struct dl_json *j, struct place *at)
{
	int tok = dl_json_next(j), err;

	at->empty = tok == DL_JSON_ARR_END;
	while (tok > 0 && tok != DL_JSON_ARR_END) {
		err = dl_json_skip(j, tok);
		if (err)
			return err;
		tok = dl_json_next(j);
	}
	if (tok < 0)
		return tok;
	at->off = j->tok_off;
	at->found = true;
	return 0;
}

static int find_place(struct dl_json *j, struct place *at)
{
	int tok = dl_json_next(j), err;

	if (tok == DL_JSON_ARR) {
		err = find_array_end(j, at);
		return err ? err : dl_json_next(j);
	}
	if (tok < 0)
		return tok;
	if (tok != DL_JSON_OBJ)
		return dl_json_wrong(j, "this is no Kineto trace");
	while ((tok = dl_json_next(j)) == DL_JSON_KEY) {
		bool events = !strcmp(j->text, "traceEvents");

		tok = dl_json_next(j);
		if (events && at->found)
			return dl_json_wrong(j, "a second traceEvents");
		err = events && tok == DL_JSON_ARR ? find_array_end(j, at) : dl_json_skip(j, tok);
		if (err)
			return err;
	}
	return tok < 0 ? tok : dl_json_next(j);
}

struct sink { int fd; gzFile gz; };

static int put(struct sink *s, const void *p, size_t sz)
{
	const char *at = p;

	while (sz) {
		ssize_t n = s->gz ? gzwrite(s->gz, at, sz > 1 << 30 ? 1 << 30 : (unsigned int)sz) : write(s->fd, at, sz);

		if (n < 0 && !s->gz && errno == EINTR)
			continue;
		if (n <= 0)
			return errno ? -errno : -EIO;
		at += n;
		sz -= (size_t)n;
	}
	return 0;
}

static int copy(struct dl_stream *in, struct sink *out, const struct place *at, const char *more, struct dl_diag *d)
{
	uint64_t done = 0;
	bool put_more = false;
	int got;

	while ((got = dl_stream_fill(in, d)) > 0) {
		size_t n = (size_t)(in->end - in->at);
		int err;

		if (!put_more && done + n > at->off)
			n = (size_t)(at->off - done);
		err = n ? put(out, in->at, n) : 0;
		if (!err && !put_more && done + n == at->off) {
			put_more = true;
			err = !at->empty && *more ? put(out, ",\n", 2) : 0;
			err = err ? err : put(out, more, strlen(more));
		}
		if (err)
			return dl_fail_errno(d, err, "cannot write the annotated trace");
		done += n;
		in->at += n;
	}
	return got;
}

int dl_annotate_copy(const char *path, const char *more, int out_fd, bool out_gz, struct dl_diag *d)
{
	struct sink out = { .fd = out_fd };
	struct place at = {};
	struct dl_stream in;
	struct dl_json j;
	int err;

	err = dl_stream_open(&in, path, d);
	if (err) {
		close(out_fd);
		return err;
	}
	dl_json_begin(&j, &in, d);
	err = find_place(&j, &at);
	if (!err && !at.found)
		err = dl_fail(d, -EBADMSG, "%s has no traceEvents", path);
	dl_stream_close(&in);
	if (!err)
		err = dl_stream_open(&in, path, d);
	if (!err && out_gz) {
		out.gz = gzdopen(out_fd, "wb");
		if (!out.gz)
			err = dl_oom(d);
	}
	if (!err)
		err = copy(&in, &out, &at, more, d);
	dl_stream_close(&in);
	errno = 0;
	if ((out.gz ? gzclose_w(out.gz) != Z_OK : close(out_fd)) && !err)
		err = dl_fail_errno(d, errno ? -errno : -EIO, "cannot write the annotated trace");
	return err;
}
