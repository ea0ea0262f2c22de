/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Option tables: values, errors that name the option, help. */
#include "test.h"

#include "cli/opts.h"

struct opts {
	bool flag;
	const char *text;
	struct dl_opt_strs list;
	uint64_t number, size, duration;
	struct dl_opt_time time;
	int choice;
};

static const char *const colors[] = { "red", "green", NULL };

#define OFF(member) .off = offsetof(struct opts, member)

static const struct dl_opt table[] = {
	{ .name = "flag", .short_name = 'f', .kind = DL_OPT_FLAG, OFF(flag), .help = "a flag" },
	{ .name = "text", .short_name = 't', .metavar = "TEXT", .kind = DL_OPT_STR, OFF(text), .help = "a text" },
	{ .name = "list", .metavar = "ITEM", .kind = DL_OPT_STRS, OFF(list), .group = "More",
	  .help = "an item of a list whose explanation is so long that it does not fit on one line" },
	{ .name = "number", .metavar = "N", .kind = DL_OPT_U64, OFF(number), .min = 1, .max = 100, .help = "n" },
	{ .name = "size", .metavar = "BYTES", .kind = DL_OPT_SIZE, OFF(size), .help = "a size" },
	{ .name = "duration", .metavar = "TIME", .kind = DL_OPT_DURATION, OFF(duration), .help = "a time" },
	{ .name = "time", .metavar = "TIME", .kind = DL_OPT_TIME, OFF(time), .help = "an instant" },
	{ .name = "color", .metavar = "WHICH", .kind = DL_OPT_CHOICE, OFF(choice), .choices = colors,
	  .help = "a colour" },
	{ }
};

static const struct dl_cmd cmd = { .name = "test", .args = "FILE", .summary = "Test", .opts = table };
static const struct dl_cmd cmd_first = { .name = "test", .args = "CMD", .summary = "Test", .opts = table,
					 .opts_first = true };

/* Parses words separated by blanks; getopt keeps pointers, so they live on. */
static int parse_with(const struct dl_cmd *c, const char *line, struct opts *o, int *first,
		      struct dl_diag *d, char **argv)
{
	static char words[512];
	int argc = 0;

	snprintf(words, sizeof(words), "test %s", line);
	for (char *w = strtok(words, " "); w; w = strtok(NULL, " "))
		argv[argc++] = w;
	argv[argc] = NULL;
	return dl_opts_parse(c, argc, argv, o, first, d);
}

static struct opts parse(const char *line)
{
	struct opts o = {};
	struct dl_diag d = {};
	char *argv[32];
	int first, err;

	err = parse_with(&cmd, line, &o, &first, &d, argv);
	CHECK_MSG(!err, "%s: %s", line, d.msg);
	return o;
}

static void fails(const char *line, const char *message)
{
	struct opts o = {};
	struct dl_diag d = {};
	char *argv[32];
	int first = -1;

	CHECK_EQ(parse_with(&cmd, line, &o, &first, &d, argv), -EINVAL);
	CHECK_STR(d.msg, message);
	CHECK_EQ(first, -1);
	vec_free(&o.list);
}

TEST(values)
{
	struct opts o = parse("-f --text=hello --number 100 --size 1.5K --duration 500ms --color green");

	CHECK(o.flag);
	CHECK_STR(o.text, "hello");
	CHECK_EQ(o.number, 100);
	CHECK_EQ(o.size, 1536);
	CHECK_EQ(o.duration, 500000000);
	CHECK_EQ(o.choice, 1);
	CHECK(!o.time.given);
}

TEST(a_list_keeps_its_order)
{
	struct opts o = parse("--list a --list b --list=c");

	CHECK_EQ(o.list.cnt, 3);
	CHECK_STR(o.list.v[0], "a");
	CHECK_STR(o.list.v[2], "c");
	vec_free(&o.list);
}

TEST(times_from_both_ends)
{
	struct opts o = parse("--time 1.5");

	CHECK(o.time.given && !o.time.from_end);
	CHECK_EQ(o.time.ns, 1500000000);
	o = parse("--time -10s");
	CHECK(o.time.given && o.time.from_end);
	CHECK_EQ(o.time.ns, 10000000000);
	o = parse("--time=0");
	CHECK(o.time.given);
	CHECK_EQ(o.time.ns, 0);
}

TEST(operands_may_stand_anywhere)
{
	struct opts o = {};
	struct dl_diag d = {};
	char *argv[32];
	int first;

	CHECK_OK(parse_with(&cmd, "one --flag two", &o, &first, &d, argv));
	CHECK(o.flag);
	CHECK_EQ(first, 2);
	CHECK_STR(argv[first], "one");
	CHECK_STR(argv[first + 1], "two");
}

TEST(a_command_keeps_its_own_options)
{
	struct opts o = {};
	struct dl_diag d = {};
	char *argv[32];
	int first;

	CHECK_OK(parse_with(&cmd_first, "-t x python --flag train.py", &o, &first, &d, argv));
	CHECK(!o.flag);
	CHECK_STR(argv[first], "python");
	CHECK_OK(parse_with(&cmd_first, "-t x -- --flag", &o, &first, &d, argv));
	CHECK(!o.flag);
	CHECK_STR(argv[first], "--flag");
}

TEST(help_is_asked_for)
{
	struct opts o = {};
	struct dl_diag d = {};
	char *argv[32];
	int first;

	CHECK_EQ(parse_with(&cmd, "--help", &o, &first, &d, argv), 1);
	CHECK_EQ(parse_with(&cmd, "file -h", &o, &first, &d, argv), 1);
}

TEST(errors_name_the_option)
{
	fails("--nmber 1", "no such option: --nmber; did you mean --number?");
	fails("--zzz", "no such option: --zzz");
	fails("--nmber=1", "no such option: --nmber; did you mean --number?");
	fails("-x", "no such option: -x");
	fails("-fx", "no such option: -x");
	fails("--flag=1", "--flag takes no argument");
	fails("--help=1", "--help takes no argument");
	fails("--number", "--number needs an argument: N");
	fails("-t", "-t needs an argument: TEXT");
	fails("--number x", "--number: \"x\" is not a number");
	fails("--number -1", "--number: \"-1\" is not a number");
	fails("--number 0", "--number: 0 is too small; the least is 1");
	fails("--number 101", "--number: 101 is too large; the most is 100");
	fails("--number 99999999999999999999", "--number: \"99999999999999999999\" is not a number");
	fails("--size 5X", "--size: \"5X\" is not a size, such as 4096, 64K, 500M or 2G");
	fails("--duration soon", "--duration: \"soon\" is not a duration, such as 30 (seconds), 500ms or 5m");
	fails("--color blue", "--color: \"blue\" is none of red, green");
}

TEST(sizes)
{
	static const struct { const char *text; uint64_t want; } good[] = {
		{ "0", 0 }, { "4096", 4096 }, { "18446744073709551615", UINT64_MAX }, { "9007199254740993", 9007199254740993 },
		{ "64K", 65536 }, { "64k", 65536 }, { "64KiB", 65536 }, { "500M", 500ULL << 20 }, { "2G", 2ULL << 30 },
		{ "1.5G", 3ULL << 29 }, { "1T", 1ULL << 40 }, { "10B", 10 },
	};
	static const char *const bad[] = { "", "K", ".", "-1", "1.2.3", "5 K", "1e3", "16777216T", "0x10" };
	uint64_t val;

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		CHECK_MSG(dl_parse_size(good[i].text, &val), "%s", good[i].text);
		CHECK_EQ(val, good[i].want);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		CHECK_MSG(!dl_parse_size(bad[i], &val), "%s", bad[i]);
}

TEST(durations)
{
	static const struct { const char *text; uint64_t want; } good[] = {
		{ "0", 0 }, { "30", 30000000000 }, { "30s", 30000000000 }, { "0.5", 500000000 }, { "500ms", 500000000 },
		{ "20us", 20000 }, { "7ns", 7 }, { "5m", 300000000000 }, { "1.5h", 5400000000000 }, { "1d", 86400000000000 },
	};
	static const char *const bad[] = { "", "s", "-5", "5x", "1 s", "99999999999999999999d" };
	uint64_t val;

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		CHECK_MSG(dl_parse_duration(good[i].text, &val), "%s", good[i].text);
		CHECK_EQ(val, good[i].want);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		CHECK_MSG(!dl_parse_duration(bad[i], &val), "%s", bad[i]);
}

TEST(word_distances)
{
	static const struct { const char *a, *b; unsigned int want; } cases[] = {
		{ "", "", 0 }, { "abc", "abc", 0 }, { "abc", "", 3 }, { "", "abc", 3 }, { "report", "reprot", 1 },
		{ "kitten", "sitting", 3 }, { "dump", "dupm", 1 }, { "record", "recrod", 1 }, { "a", "b", 1 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		CHECK_EQ(dl_word_distance(cases[i].a, cases[i].b), cases[i].want);
}

TEST(only_a_near_word_is_suggested)
{
	const char *best = NULL;
	unsigned int dist = UINT32_MAX;

	dl_word_nearest("reprot", "record", &best, &dist);
	dl_word_nearest("reprot", "report", &best, &dist);
	CHECK_STR(best, "report");
	best = NULL;
	dist = UINT32_MAX;
	dl_word_nearest("xyz", "report", &best, &dist);
	CHECK(!best);
	dl_word_nearest("rep", "report", &best, &dist);
	CHECK_STR(best, "report");
}

TEST(help_shows_every_option_in_79_columns)
{
	char *text = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&text, &len);

	CHECK(out);
	dl_opts_help(&cmd, out);
	fclose(out);
	CHECK_HAS(text, "Usage: dlbpf test [OPTION]... FILE\n");
	CHECK_HAS(text, "  -t, --text TEXT           a text\n");
	CHECK_HAS(text, "      --size BYTES          a size\n");
	CHECK_HAS(text, "\n More:\n");
	CHECK_HAS(text, "  -h, --help ");
	for (const struct dl_opt *o = table; o->name; o++)
		CHECK_HAS(text, o->name);
	for (const char *line = text; *line; line = strchr(line, '\n') + 1)
		CHECK(strcspn(line, "\n") <= 79);
	free(text);
}
