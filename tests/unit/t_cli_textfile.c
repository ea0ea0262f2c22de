/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Logs that a user hands over: empty, missing, too long, with NULs. */
#include "test.h"

#include <fcntl.h>
#include <unistd.h>

#include "cli/textfile.h"

static char path[] = "/tmp/dlbpf-textfile-XXXXXX";

static int new_file(void)
{
	int fd;

	memcpy(strrchr(path, '-') + 1, "XXXXXX", 6);
	fd = mkstemp(path);
	CHECK(fd >= 0);
	return fd;
}

TEST(as_it_was_nuls_included)
{
	static const char text[] = "ERROR: bus error\0\nlast";
	struct dl_diag d = {};
	char *got = NULL;
	size_t len = 0;
	int fd = new_file();

	CHECK_EQ(write(fd, text, sizeof(text) - 1), (ssize_t)sizeof(text) - 1);
	close(fd);
	CHECK_OK(dl_text_file(path, &got, &len, &d));
	unlink(path);
	CHECK_EQ(len, sizeof(text) - 1);
	CHECK_MEM(got, text, sizeof(text));
	free(got);
}

TEST(an_empty_file_is_an_empty_text)
{
	struct dl_diag d = {};
	char *got = NULL;
	size_t len = 1;

	close(new_file());
	CHECK_OK(dl_text_file(path, &got, &len, &d));
	unlink(path);
	CHECK_EQ(len, 0);
	CHECK_STR(got, "");
	free(got);
}

TEST(what_cannot_be_read_is_named)
{
	struct dl_diag d = {};
	char *got = NULL;
	size_t len;

	CHECK_EQ(dl_text_file("/nonexistent/train.log", &got, &len, &d), -ENOENT);
	CHECK_HAS(d.msg, "/nonexistent/train.log");
	CHECK_EQ(dl_text_file("/", &got, &len, &d), -EISDIR);
	CHECK_HAS(d.msg, "cannot read /");
	CHECK(!got);
}

/* Longer by a piece that is no multiple of anything: the start and the very end are there, in order. */
TEST(of_a_long_text_both_ends_are_kept)
{
	const size_t sz = DL_TEXT_MAX + 12345677;
	struct dl_diag d = {};
	char *got = NULL;
	size_t len = 0;
	int fd = new_file();

	CHECK_OK(ftruncate(fd, (off_t)sz));
	CHECK_EQ(pwrite(fd, "first", 5, 0), 5);
	CHECK_EQ(pwrite(fd, "half", 4, DL_TEXT_MAX / 2 - 4), 4);
	CHECK_EQ(pwrite(fd, "kept", 4, (off_t)(sz - DL_TEXT_MAX / 2)), 4);
	CHECK_EQ(pwrite(fd, "last", 4, (off_t)sz - 4), 4);
	close(fd);
	CHECK_OK(dl_text_file(path, &got, &len, &d));
	unlink(path);
	CHECK_EQ(len, DL_TEXT_MAX);
	CHECK_MEM(got, "first", 5);
	CHECK_MEM(got + DL_TEXT_MAX / 2 - 4, "halfkept", 8);
	CHECK_MEM(got + DL_TEXT_MAX - 4, "last", 5);
	free(got);
}
