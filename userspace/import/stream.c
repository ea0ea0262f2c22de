/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#include "import/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#define BUF_SZ (256u << 10)

int dl_stream_open(struct dl_stream *s, const char *path, struct dl_diag *d)
{
	struct stat st;
	int fd, err;

	*s = (struct dl_stream){ .path = path };
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return dl_fail_errno(d, -errno, "cannot open %s", path);
	if (!fstat(fd, &st) && S_ISDIR(st.st_mode)) {
		close(fd);
		return dl_fail(d, -EISDIR, "%s is a folder: name one trace file in it", path);
	}
	s->gz = gzdopen(fd, "rb");
	if (!s->gz) {
		err = errno ? -errno : -ENOMEM;
		close(fd);
		return dl_fail_errno(d, err, "cannot read %s", path);
	}
	gzbuffer(s->gz, BUF_SZ);
	s->buf = malloc(BUF_SZ);
	if (!s->buf) {
		dl_stream_close(s);
		return dl_oom(d);
	}
	s->at = s->end = s->buf;
	return 0;
}

void dl_stream_close(struct dl_stream *s)
{
	if (s->gz)
		gzclose_r(s->gz);
	free(s->buf);
	s->gz = NULL;
	s->buf = NULL;
}

/* zlib says what is wrong with a file in two ways: an errno, or its own code. */
static int read_failed(struct dl_stream *s, struct dl_diag *d)
{
	int code, err = errno;
	const char *text = gzerror(s->gz, &code);

	if (code == Z_BUF_ERROR) {
		s->cut = s->eof = true;
		return 0;
	}
	if (code == Z_ERRNO)
		return dl_fail_errno(d, err ? -err : -EIO, "cannot read %s", s->path);
	return dl_fail(d, code == Z_MEM_ERROR ? -ENOMEM : -EBADMSG, "%s: damaged behind byte %llu of its unpacked text: %s",
		       s->path, (unsigned long long)s->off, text);
}

int dl_stream_fill(struct dl_stream *s, struct dl_diag *d)
{
	int n, code;

	if (s->at < s->end)
		return 1;
	if (s->eof)
		return 0;
	errno = 0;
	n = gzread(s->gz, s->buf, BUF_SZ);
	if (n < 0)
		return read_failed(s, d);
	if (!n) {
		gzerror(s->gz, &code);
		s->cut = code == Z_BUF_ERROR;
		s->eof = true;
		return 0;
	}
	s->at = s->buf;
	s->end = s->buf + n;
	s->off += (uint64_t)n;
	return 1;
}
