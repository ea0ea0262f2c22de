/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Strings, numbers as people read them, and messages. */
#include "base/diag.h"
#include "base/str.h"
#include "unit/test.h"

TEST(str_grows)
{
	struct dl_str s = { 0 };
	char *text;

	for (int i = 0; i < 1000; i++)
		dl_str_addf(&s, "%d,", i);
	dl_str_add(&s, "");
	dl_str_addn(&s, "end and more", 3);
	CHECK_EQ(s.err, 0);
	CHECK_EQ(s.len, 10 * 2 + 90 * 3 + 900 * 4 + 3);
	text = dl_str_take(&s);
	CHECK_HAS(text, "998,999,end");
	CHECK(!strncmp(text, "0,1,2,", 6));
	CHECK_EQ(s.len, 0);
	CHECK(s.s == NULL);
	free(text);
}

TEST(str_empty_is_a_string)
{
	struct dl_str s = { 0 };
	char *text = dl_str_take(&s);

	CHECK_STR(text, "");
	free(text);
	dl_str_fini(&s);
}

TEST(str_at_the_edges_of_its_memory)
{
	for (size_t n = 60; n < 70; n++) {
		struct dl_str s = { 0 };

		for (size_t i = 0; i < n; i++)
			dl_str_addf(&s, "%s", "x");
		dl_str_addf(&s, "%*s", (int)n, "y");
		CHECK_EQ(s.len, 2 * n);
		CHECK_EQ(strlen(s.s), 2 * n);
		dl_str_fini(&s);
	}
}

TEST(str_failure_sticks)
{
	struct dl_str s = { 0 };

	dl_str_add(&s, "before");
	s.err = -ENOMEM;
	dl_str_add(&s, "after");
	dl_str_addf(&s, "%d", 1);
	CHECK_STR(s.s, "before");
	CHECK(dl_str_take(&s) == NULL);
	CHECK_EQ(s.err, 0);
}

static const char *ns(uint64_t v)
{
	static char buf[16];

	return dl_fmt_ns(buf, sizeof(buf), v);
}

TEST(fmt_ns_three_digits)
{
	CHECK_STR(ns(0), "0 ns");
	CHECK_STR(ns(999), "999 ns");
	CHECK_STR(ns(1000), "1.00 us");
	CHECK_STR(ns(9994), "9.99 us");
	CHECK_STR(ns(9996), "10.0 us");
	CHECK_STR(ns(99960), "100 us");
	CHECK_STR(ns(999499), "999 us");
	CHECK_STR(ns(999500), "1.00 ms");
	CHECK_STR(ns(12345678), "12.3 ms");
	CHECK_STR(ns(999499999), "999 ms");
	CHECK_STR(ns(999500000), "1.00 s");
	CHECK_STR(ns(3600000000000), "3600 s");
	CHECK_STR(ns(UINT64_MAX), "18446744074 s");
}

static const char *bytes(uint64_t v)
{
	static char buf[16];

	return dl_fmt_bytes(buf, sizeof(buf), v);
}

TEST(fmt_bytes_three_digits)
{
	CHECK_STR(bytes(0), "0 B");
	CHECK_STR(bytes(1023), "1023 B");
	CHECK_STR(bytes(1024), "1.00 KiB");
	CHECK_STR(bytes(10240), "10.0 KiB");
	CHECK_STR(bytes(1023 * 1024), "1.00 MiB");
	CHECK_STR(bytes(64ULL << 20), "64.0 MiB");
	CHECK_STR(bytes(5ULL << 30), "5.00 GiB");
	CHECK_STR(bytes(2ULL << 40), "2.00 TiB");
	CHECK_STR(bytes(UINT64_MAX), "16777216 TiB");
}

TEST(fmt_cnt_groups)
{
	char buf[32], tight[6];

	CHECK_STR(dl_fmt_cnt(buf, sizeof(buf), 0), "0");
	CHECK_STR(dl_fmt_cnt(buf, sizeof(buf), 999), "999");
	CHECK_STR(dl_fmt_cnt(buf, sizeof(buf), 1000), "1,000");
	CHECK_STR(dl_fmt_cnt(buf, sizeof(buf), 1234567), "1,234,567");
	CHECK_STR(dl_fmt_cnt(buf, sizeof(buf), UINT64_MAX), "18,446,744,073,709,551,615");
	CHECK(strlen(dl_fmt_cnt(tight, sizeof(tight), 1234567)) < sizeof(tight));
}

TEST(parse_u64_takes_numbers_only)
{
	const char *const wrong[] = { "", " 1", "+1", "-1", "1 ", "0x10", "1e3", "a", "1.5",
				      "18446744073709551616" };
	uint64_t v = 42;

	CHECK(dl_parse_u64("0", &v));
	CHECK_EQ(v, 0);
	CHECK(dl_parse_u64("007", &v));
	CHECK_EQ(v, 7);
	CHECK(dl_parse_u64("18446744073709551615", &v));
	CHECK(v == UINT64_MAX);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		CHECK_MSG(!dl_parse_u64(wrong[i], &v), "\"%s\"", wrong[i]);
	CHECK(v == UINT64_MAX);	/* untouched */
}

TEST(diag_messages)
{
	struct dl_diag d = { "" };
	char lng[3000];

	CHECK_EQ(dl_fail(&d, -EPERM, "no %s for %d", "way", 7), -EPERM);
	CHECK_STR(d.msg, "no way for 7");
	CHECK_EQ(dl_fail_errno(&d, -ENOENT, "%s", "/x"), -ENOENT);
	CHECK_STR(d.msg, "/x: No such file or directory");
	CHECK_EQ(dl_oom(&d), -ENOMEM);
	CHECK_STR(d.msg, "out of memory");
	CHECK_EQ(dl_fail(NULL, -EIO, "nobody listens"), -EIO);
	CHECK_EQ(dl_fail_errno(NULL, -EIO, "nobody listens"), -EIO);
	CHECK_EQ(dl_oom(NULL), -ENOMEM);
	memset(lng, 'z', sizeof(lng));
	lng[sizeof(lng) - 1] = '\0';
	CHECK_EQ(dl_fail_errno(&d, -EIO, "%s", lng), -EIO);
	CHECK_EQ(strlen(d.msg), sizeof(d.msg) - 1);
}
