/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#include "cli/record_keep.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/opts.h"

#define SPAN_MIN_NS 2000000000ULL
#define SIZE_MIN (4ULL << 20)	/* the head of a segment has to be a small part of it */

/* "60s,500M": both are times and sizes by their units; a time may be given without. "5m" is five
 * minutes, as everywhere. */
static int parse_limit(struct dl_record_keep *ret, const char *word, struct dl_diag *d)
{
	uint64_t v;

	/* M is no minutes here: units of times are small letters. */
	if (!strpbrk(word, "MBKGTkgtb") && dl_parse_duration(word, &v)) {
		if (v < SPAN_MIN_NS)
			return dl_fail(d, -EINVAL, "--keep: %s is too short; the least is 2s", word);
		ret->span_ns = v;
		return 0;
	}
	if (!dl_parse_size(word, &v))
		return dl_fail(d, -EINVAL, "--keep: \"%s\" is neither a time, such as 60s or 5m, nor a size, such as 500M",
			       word);
	if (v < SIZE_MIN)
		return dl_fail(d, -EINVAL, "--keep: %s is too small; the least is 4M", word);
	ret->max_sz = v;
	return 0;
}

static int unknown_trigger(const char *word, struct dl_diag *d)
{
	_cleanup_(dl_str_fini) struct dl_str list = {};

	for (int what = 1; what < DL_TRIGGER_MAX; what++) {
		const char *name = dl_trigger_name((enum dl_trigger)what);

		if (dl_trigger_by_name(name) == DL_TRIGGER_NONE)
			continue;
		dl_str_addf(&list, "%s%s%s", list.len ? ", " : "", name,
			    dl_trigger_takes_time((enum dl_trigger)what) ? "=TIME" : "");
	}
	return dl_fail(d, -EINVAL, "--trigger: \"%s\" is none of %s", word, list.s ? list.s : "its values");
}

/* "gap=5s": the name and, for some, the time. */
static int parse_trigger(struct dl_record_keep *ret, char *word, struct dl_diag *d)
{
	char *val = strchr(word, '=');
	enum dl_trigger what;

	if (val)
		*val++ = '\0';
	what = dl_trigger_by_name(word);
	if (what == DL_TRIGGER_NONE)
		return unknown_trigger(word, d);
	if (val && !dl_trigger_takes_time(what))
		return dl_fail(d, -EINVAL, "--trigger: %s takes no time", word);
	if (val && (!dl_parse_duration(val, &ret->triggers.after_ns[what]) || !ret->triggers.after_ns[what]))
		return dl_fail(d, -EINVAL, "--trigger: %s=%s is not a duration, such as %s=30s", word, val, word);
	ret->triggers.on[what] = true;
	return 0;
}

static int each_word(const char *list, int (*fn)(struct dl_record_keep *ret, char *word, struct dl_diag *d),
		     struct dl_record_keep *ret, struct dl_diag *d)
{
	_cleanup_free_ char *copy = strdup(list);
	char *rest = copy, *word;
	int err = 0;

	if (!copy)
		return dl_oom(d);
	while (!err && (word = strsep(&rest, ",")))
		err = fn(ret, word, d);
	return err;
}

static int limit_word(struct dl_record_keep *ret, char *word, struct dl_diag *d)
{
	return parse_limit(ret, word, d);
}

int dl_keep_args_parse(struct dl_record_keep *ret, const struct dl_keep_args *args, struct dl_diag *d)
{
	int err;

	*ret = (struct dl_record_keep){ .cooldown_ns = args->cooldown_ns, .forecast_ns = args->forecast_ns,
					.bundles = (uint32_t)args->bundles };
	dl_triggers_defaults(&ret->triggers);
	err = each_word(args->keep, limit_word, ret, d);
	if (err || !args->trigger)
		return err;
	memset(ret->triggers.on, 0, sizeof(ret->triggers.on));
	if (!strcmp(args->trigger, "none"))
		return 0;
	return each_word(args->trigger, parse_trigger, ret, d);
}
