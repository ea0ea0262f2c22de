/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What --keep and --trigger may be, and what is said of what they may not. */
#include "cli/record_keep.h"
#include "unit/test.h"

#define S 1000000000ULL

static struct dl_record_keep got;
static struct dl_diag diag;

static int parse(const char *keep, const char *trigger)
{
	const struct dl_keep_args args = { .keep = keep, .trigger = trigger, .cooldown_ns = 60 * S, .bundles = 8 };

	diag.msg[0] = '\0';
	return dl_keep_args_parse(&got, &args, &diag);
}

TEST(times_and_sizes)
{
	CHECK_OK(parse("60s", NULL));
	CHECK_EQ(got.span_ns, 60 * S);
	CHECK_EQ(got.max_sz, 0);
	CHECK_OK(parse("90", NULL));
	CHECK_EQ(got.span_ns, 90 * S);
	CHECK_OK(parse("500M", NULL));
	CHECK_EQ(got.span_ns, 0);
	CHECK_EQ(got.max_sz, 500ULL << 20);
	CHECK_OK(parse("5m,2G", NULL));
	CHECK_EQ(got.span_ns, 300 * S);
	CHECK_EQ(got.max_sz, 2ULL << 30);
	CHECK_OK(parse("500m", NULL));	/* minutes, as everywhere */
	CHECK_EQ(got.span_ns, 30000 * S);
}

TEST(bad_limits)
{
	CHECK_EQ(parse("", NULL), -EINVAL);
	CHECK_EQ(parse("soon", NULL), -EINVAL);
	CHECK_HAS(diag.msg, "--keep: \"soon\" is neither a time");
	CHECK_EQ(parse("60s,", NULL), -EINVAL);
	CHECK_EQ(parse("1s", NULL), -EINVAL);
	CHECK_HAS(diag.msg, "too short");
	CHECK_EQ(parse("64K", NULL), -EINVAL);
	CHECK_HAS(diag.msg, "too small");
}

TEST(triggers)
{
	CHECK_OK(parse("60s", NULL));
	for (int i = 1; i < DL_TRIGGER_MAX; i++)
		CHECK_EQ(got.triggers.on[i], i != DL_TRIGGER_FORECAST);
	CHECK_EQ(got.triggers.after_ns[DL_TRIGGER_GAP], 60 * S);
	CHECK_OK(parse("60s", "death,gap=5s,stall"));
	CHECK(got.triggers.on[DL_TRIGGER_DEATH] && got.triggers.on[DL_TRIGGER_GAP] && got.triggers.on[DL_TRIGGER_STALL]);
	CHECK(!got.triggers.on[DL_TRIGGER_OOM] && !got.triggers.on[DL_TRIGGER_SIGNAL]);
	CHECK_EQ(got.triggers.after_ns[DL_TRIGGER_GAP], 5 * S);
	CHECK_EQ(got.triggers.after_ns[DL_TRIGGER_STALL], 60 * S);
	CHECK_OK(parse("60s", "none"));
	for (int i = 1; i < DL_TRIGGER_MAX; i++)
		CHECK(!got.triggers.on[i]);
}

TEST(bad_triggers)
{
	CHECK_EQ(parse("60s", "deaths"), -EINVAL);
	CHECK_STR(diag.msg, "--trigger: \"deaths\" is none of death, oom, sigbus, gap=TIME, stall=TIME, signal");
	CHECK_EQ(parse("60s", "forecast"), -EINVAL);
	CHECK_EQ(parse("60s", "oom=5s"), -EINVAL);
	CHECK_HAS(diag.msg, "oom takes no time");
	CHECK_EQ(parse("60s", "gap=often"), -EINVAL);
	CHECK_EQ(parse("60s", "gap=0"), -EINVAL);
	CHECK_EQ(parse("60s", "death,,oom"), -EINVAL);
}
