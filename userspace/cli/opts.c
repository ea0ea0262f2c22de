/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Options from tables: parsing and values. The help is in opts_help.c. */
#include "cli/opts.h"

#include <ctype.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"

enum {
	OPT_CODE = 256,		/* codes of long options begin here, above any character */
	OPT_HELP = OPT_CODE - 1,
	WORD_MAX = 64,
};

unsigned int dl_word_distance(const char *a, const char *b)
{
	const size_t la = strnlen(a, WORD_MAX), lb = strnlen(b, WORD_MAX);
	unsigned int row[3][WORD_MAX + 1];

	for (size_t j = 0; j <= lb; j++)
		row[0][j] = (unsigned int)j;
	for (size_t i = 1; i <= la; i++) {
		unsigned int *cur = row[i % 3], *prev = row[(i + 2) % 3], *older = row[(i + 1) % 3];

		cur[0] = (unsigned int)i;
		for (size_t j = 1; j <= lb; j++) {
			const unsigned int change = prev[j - 1] + (a[i - 1] != b[j - 1]);
			const unsigned int gap = 1 + (prev[j] < cur[j - 1] ? prev[j] : cur[j - 1]);

			cur[j] = change < gap ? change : gap;
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
			    older[j - 2] + 1 < cur[j])
				cur[j] = older[j - 2] + 1;
		}
	}
	return row[la % 3][lb];
}

void dl_word_nearest(const char *word, const char *candidate, const char **best,
		     unsigned int *best_dist)
{
	const size_t len = strlen(word);
	unsigned int dist = dl_word_distance(word, candidate);

	if (len >= 2 && !strncmp(word, candidate, len))
		dist = 0;	/* the beginning of it */
	if (dist <= (len + 2) / 3 && dist < *best_dist) {
		*best = candidate;
		*best_dist = dist;
	}
}

/* A decimal number with an optional fraction and then one of the units. */
static bool parse_scaled(const char *text, const char *const *units, const double *scale,
			 double unit_less, uint64_t *ret)
{
	double val = 0, digit = 1;
	const char *p = text;
	bool any = false;

	for (; isdigit((unsigned char)*p); p++, any = true)
		val = val * 10 + (*p - '0');
	if (*p == '.')
		for (p++; isdigit((unsigned char)*p); p++, any = true)
			val += (digit /= 10) * (*p - '0');
	if (!any)
		return false;
	if (*p) {
		size_t u = 0;

		while (units[u] && strcasecmp(units[u], p))
			u++;
		if (!units[u])
			return false;
		val *= scale[u];
	} else {
		val *= unit_less;
	}
	if (val >= 0x1p64)
		return false;
	*ret = (uint64_t)(val + 0.5);
	return true;
}

bool dl_parse_size(const char *text, uint64_t *ret_bytes)
{
	static const char *const units[] = {
		"B", "K", "KB", "KiB", "M", "MB", "MiB", "G", "GB", "GiB", "T", "TB", "TiB", NULL,
	};
	static const double scale[] = {
		1, 0x1p10, 0x1p10, 0x1p10, 0x1p20, 0x1p20, 0x1p20, 0x1p30, 0x1p30, 0x1p30,
		0x1p40, 0x1p40, 0x1p40,
	};

	if (dl_parse_u64(text, ret_bytes))	/* exact above 2^53 */
		return true;
	return parse_scaled(text, units, scale, 1, ret_bytes);
}

bool dl_parse_duration(const char *text, uint64_t *ret_ns)
{
	static const char *const units[] = {
		"ns", "us", "ms", "s", "sec", "m", "min", "h", "d", NULL,
	};
	static const double scale[] = { 1, 1e3, 1e6, 1e9, 1e9, 60e9, 60e9, 3600e9, 86400e9 };

	return parse_scaled(text, units, scale, 1e9, ret_ns);
}

static int opt_fail(const struct dl_opt *o, const char *arg, const char *want, struct dl_diag *d)
{
	return dl_fail(d, -EINVAL, "--%s: \"%s\" is not %s", o->name, arg, want);
}

static int check_range(const struct dl_opt *o, const char *arg, uint64_t val, struct dl_diag *d)
{
	if (val < o->min)
		return dl_fail(d, -EINVAL, "--%s: %s is too small; the least is %" PRIu64, o->name,
			       arg, o->min);
	if (o->max && val > o->max)
		return dl_fail(d, -EINVAL, "--%s: %s is too large; the most is %" PRIu64, o->name,
			       arg, o->max);
	return 0;
}

static int set_number(const struct dl_opt *o, const char *arg, uint64_t *to, struct dl_diag *d)
{
	uint64_t val;
	int err;

	if (o->kind == DL_OPT_U64 && !dl_parse_u64(arg, &val))
		return opt_fail(o, arg, "a number", d);
	if (o->kind == DL_OPT_SIZE && !dl_parse_size(arg, &val))
		return opt_fail(o, arg, "a size, such as 4096, 64K, 500M or 2G", d);
	if (o->kind == DL_OPT_DURATION && !dl_parse_duration(arg, &val))
		return opt_fail(o, arg, "a duration, such as 30 (seconds), 500ms or 5m", d);
	err = check_range(o, arg, val, d);
	if (!err)
		*to = val;
	return err;
}

static int set_time(const struct dl_opt *o, const char *arg, struct dl_opt_time *to,
		    struct dl_diag *d)
{
	const bool from_end = arg[0] == '-';
	uint64_t ns;

	if (!dl_parse_duration(arg + from_end, &ns))
		return opt_fail(o, arg, "a time, such as 10 (seconds from the start), 500ms, or -5s "
				"(before the end)", d);
	*to = (struct dl_opt_time){ .ns = ns, .given = true, .from_end = from_end };
	return 0;
}

static int set_choice(const struct dl_opt *o, const char *arg, int *to, struct dl_diag *d)
{
	_cleanup_(dl_str_fini) struct dl_str list = {};

	for (int i = 0; o->choices[i]; i++) {
		if (!strcmp(o->choices[i], arg)) {
			*to = i;
			return 0;
		}
		dl_str_addf(&list, "%s%s", i ? ", " : "", o->choices[i]);
	}
	return dl_fail(d, -EINVAL, "--%s: \"%s\" is none of %s", o->name, arg,
		       list.s ? list.s : "its values");
}

static int set_value(const struct dl_opt *o, const char *arg, void *into, struct dl_diag *d)
{
	void *to = (char *)into + o->off;
	const char **slot;

	switch (o->kind) {
	case DL_OPT_FLAG:
		*(bool *)to = true;
		return 0;
	case DL_OPT_STR:
		*(const char **)to = arg;
		return 0;
	case DL_OPT_STRS:
		slot = vec_push((struct dl_opt_strs *)to);
		if (!slot)
			return dl_oom(d);
		*slot = arg;
		return 0;
	case DL_OPT_U64:
	case DL_OPT_SIZE:
	case DL_OPT_DURATION:
		return set_number(o, arg, to, d);
	case DL_OPT_TIME:
		return set_time(o, arg, to, d);
	case DL_OPT_CHOICE:
		return set_choice(o, arg, to, d);
	}
	return dl_fail(d, -EINVAL, "--%s has no kind", o->name);
}

static int unknown_option(const struct dl_cmd *cmd, const char *word, struct dl_diag *d)
{
	_cleanup_free_ char *name = strndup(word + 2, strcspn(word + 2, "="));
	unsigned int dist = UINT_MAX;
	const char *best = NULL;

	if (!name)
		return dl_oom(d);
	for (const struct dl_opt *o = cmd->opts; o && o->name; o++)
		dl_word_nearest(name, o->name, &best, &dist);
	dl_word_nearest(name, "help", &best, &dist);
	if (best)
		return dl_fail(d, -EINVAL, "no such option: --%s; did you mean --%s?", name, best);
	return dl_fail(d, -EINVAL, "no such option: --%s", name);
}

static const struct dl_opt *opt_of_code(const struct dl_cmd *cmd, int code)
{
	for (const struct dl_opt *o = cmd->opts; o && o->name; o++)
		if (code == OPT_CODE + (int)(o - cmd->opts) || (o->short_name && code == o->short_name))
			return o;
	return NULL;
}

/* getopt's '?': which option was it, and what was wrong? */
static int bad_option(const struct dl_cmd *cmd, char **argv, struct dl_diag *d)
{
	const struct dl_opt *o = opt_of_code(cmd, optopt);
	const char *word = argv[optind - 1];

	if (o && o->kind == DL_OPT_FLAG)
		return dl_fail(d, -EINVAL, "--%s takes no argument", o->name);
	if (optopt == OPT_HELP)
		return dl_fail(d, -EINVAL, "--help takes no argument");
	if (optopt)
		return dl_fail(d, -EINVAL, "no such option: -%c", optopt);
	return unknown_option(cmd, word, d);
}

int dl_opts_parse(const struct dl_cmd *cmd, int argc, char **argv, void *into, int *ret_first,
		  struct dl_diag *d)
{
	_cleanup_(dl_str_fini) struct dl_str shorts = {};
	_cleanup_free_ struct option *longs = NULL;
	size_t cnt = 0;
	int code, err = 0;

	while (cmd->opts && cmd->opts[cnt].name)
		cnt++;
	longs = calloc(cnt + 2, sizeof(*longs));	/* and --help, and an end */
	if (!longs)
		return dl_oom(d);
	longs[cnt] = (struct option){ "help", no_argument, NULL, OPT_HELP };
	dl_str_add(&shorts, cmd->opts_first ? "+:h" : ":h");
	for (size_t i = 0; i < cnt; i++) {
		const struct dl_opt *o = &cmd->opts[i];
		const int has = o->kind == DL_OPT_FLAG ? no_argument : required_argument;

		if (o->short_name)
			dl_str_addf(&shorts, "%c%s", o->short_name, has ? ":" : "");
		longs[i] = (struct option){ o->name, has, NULL, OPT_CODE + (int)i };
	}
	if (shorts.err)
		return dl_oom(d);

	optind = 0;	/* glibc: start anew */
	opterr = 0;
	while (!err && (code = getopt_long(argc, argv, shorts.s, longs, NULL)) != -1) {
		const struct dl_opt *o = opt_of_code(cmd, code);

		if (o)
			err = set_value(o, optarg, into, d);
		else if (code == 'h' || code == OPT_HELP)
			return 1;
		else if (code == ':')
			err = dl_fail(d, -EINVAL, "%s needs an argument%s%s", argv[optind - 1],
				      opt_of_code(cmd, optopt) ? ": " : "",
				      opt_of_code(cmd, optopt) ? opt_of_code(cmd, optopt)->metavar : "");
		else
			err = bad_option(cmd, argv, d);
	}
	if (err)
		return err;
	*ret_first = optind;
	return 0;
}

bool dl_opts_begin(const struct dl_cmd *cmd, int argc, char **argv, void *into, int *ret_first,
		   int *ret_exit)
{
	struct dl_diag d = {};
	const int err = dl_opts_parse(cmd, argc, argv, into, ret_first, &d);

	if (!err)
		return true;
	if (err > 0) {
		dl_opts_help(cmd, stdout);
		*ret_exit = DL_EXIT_OK;
	} else if (err == -ENOMEM) {
		*ret_exit = dl_error("%s", d.msg);
	} else {
		*ret_exit = dl_usage_error(cmd, "%s", d.msg);
	}
	return false;
}
