/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Text on its way to a terminal: what is let through, what is replaced, how wide it is. */
#include "test.h"

#include "render/clean.h"
#include "render/tx.h"

static void check_line(const char *in, bool utf8, const char *want)
{
	struct dl_str s = {};

	dl_clean_line(&s, in, strlen(in), utf8);
	CHECK_STR(s.s, want);
	dl_str_fini(&s);
}

TEST(lines_for_a_utf8_terminal)
{
	check_line("", true, "");
	check_line("plain text", true, "plain text");
	check_line("h\xc3\xb6 \xe6\x97\xa5 \xf0\x9f\x98\x80", true, "h\xc3\xb6 \xe6\x97\xa5 \xf0\x9f\x98\x80");
	check_line("a\tb\nc\rd", true, "a b c d");
	check_line("\033[31m\x7f\a", true, "?[31m??");
	check_line("\xc2\x9b" "31m", true, "?31m");		/* CSI as a C1 control */
	check_line("\xe2\x80\xae" "x\xe2\x80\x8b\xef\xbb\xbf", true, "?x??");	/* RLO, zero width, BOM */
	check_line("\xff\xc0\x80", true, "???");
	check_line("cut\xe6\x97", true, "cut??");
}

TEST(lines_for_an_ascii_terminal)
{
	check_line("h\xc3\xb6st", false, "h?st");
	check_line("5 \xc2\xb5s \xe2\x80\x93 \xe2\x80\x9cx\xe2\x80\x9d\xe2\x80\xa6", false, "5 us - \"x\"...");
	check_line("\xe6\x97\xa5", false, "?");
}

TEST(embedded_zeros_end_nothing)
{
	struct dl_str s = {};

	dl_clean_line(&s, "a\0b", 3, true);
	CHECK_STR(s.s, "a?b");
	dl_str_fini(&s);
}

TEST(widths)
{
	CHECK_EQ(dl_text_width(""), 0);
	CHECK_EQ(dl_text_width("abc"), 3);
	CHECK_EQ(dl_text_width("h\xc3\xb6"), 2);
	CHECK_EQ(dl_text_width("\xe6\x97\xa5\xe6\x9c\xac"), 4);	/* wide */
	CHECK_EQ(dl_text_width("e\xcc\x81"), 1);			/* combining */
	CHECK_EQ(dl_text_width("\xe2\x96\x88\xe2\x96\x8f"), 2);	/* bars */
}

TEST(bars)
{
	static const struct { double share; const char *want; } cases[] = {
		{ 0, "....." }, { 1, "#####" }, { 0.5, "###.." }, { 0.09, "....." }, { 0.1, "#...." }, { 0.4, "##..." },
		{ -1, "....." }, { 7, "#####" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct dl_str s = {}, u = {};

		tx_bar(&s, false, cases[i].share, 5);
		CHECK_STR(s.s, cases[i].want);
		tx_bar(&u, true, cases[i].share, 5);
		CHECK_EQ(dl_text_width(u.s), 5);
		dl_str_fini(&s);
		dl_str_fini(&u);
	}
}

TEST(numbers)
{
	tx_buf b;

	CHECK_STR(tx_pct(b, 0), "0.0 %");
	CHECK_STR(tx_pct(b, 0.0001), "< 0.1 %");
	CHECK_STR(tx_pct(b, 0.1234), "12.3 %");
	CHECK_STR(tx_pct(b, 0.99999), "99.9 %");	/* not all of it */
	CHECK_STR(tx_pct(b, 1), "100.0 %");
	CHECK_STR(tx_pct_round(b, 0.996), "99 %");
	CHECK_STR(tx_pct_round(b, 0.001), "< 1 %");
	CHECK_STR(tx_pct_round(b, 1), "100 %");
	CHECK_STR(tx_pct_of(b, 1, 0), "0.0 %");
	CHECK_STR(tx_ns(b, 12345), "12.3 us");
	CHECK_STR(tx_ns(b, 599 * 1000000000ULL), "599 s");
	CHECK_STR(tx_ns(b, 723 * 1000000000ULL), "12 min 03 s");
	CHECK_STR(tx_ns(b, 7380 * 1000000000ULL), "2 h 03 min");
	CHECK_STR(tx_rate(b, 3200000000, 1000000000), "3.20 GB/s");
	CHECK_STR(tx_rate(b, 320000000, 1000000000), "320 MB/s");
	CHECK_STR(tx_rate(b, 1, 0), "");
}

TEST(a_number_keeps_its_unit)
{
	struct tx t = { .width = 20 };

	tx_para(&t, 0, "", "this is a line of 200 ms, and 7 more words");
	CHECK_STR(t.s.s, "this is a line of\n200 ms, and 7 more\nwords\n");
	dl_str_fini(&t.s);
}
