/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* A report without memory, wherever it runs out: an error, and nothing is left behind. */
#include "unit/diagnose_job.h"
#include "unit/failing_alloc.h"

#if FAILING_ALLOC
/* Returns whether the report was made. */
static bool try_report(long allocations, uint64_t stage, bool twice)
{
	const struct dl_diagnose_opts opts = { .stage_events = stage, .twice = twice, .ahead_ns = MS(50) };
	struct dl_report *r = NULL;
	struct dl_trace *t = NULL;
	struct dl_diag d = {};
	const long live = alloc_live;
	int err;

	alloc_left = allocations;
	err = dl_trace_open(&t, test_path("job.dlbpf"), &d);
	if (!err)
		err = dl_diagnose(&r, t, &opts, &d);
	alloc_left = LONG_MAX;
	CHECK(err == 0 || err == -ENOMEM);
	if (!err)
		dl_report_free(r);
	dl_trace_close(t);
	CHECK_EQ(alloc_live, live);
	return !err;
}

static void try_all(int gpu, uint64_t stage, bool twice)
{
	struct job j = { .gpu = gpu, .epochs = 2, .batches = 12, .sampled = true, .spawn = true, .manager = true };
	long step = 1;

	rng_state = 5;
	write_job(&j);
	CHECK(try_report(LONG_MAX, stage, twice));
	for (long left = 0; !try_report(left, stage, twice); left += step)
		step = 1 + left / 400;
}
#endif

/* Of each kind of GPU data, and of none. */
static void try_each(uint64_t stage, bool twice)
{
#if FAILING_ALLOC
	for (int gpu = GPU_NONE; gpu <= GPU_CALLS; gpu++)
		try_all(gpu, stage, twice);
#else
	(void)stage;
	(void)twice;
	test_skip("the address sanitizer allocates by itself");
#endif
}

TEST(report_without_memory)
{
	try_each(0, false);
}

TEST(stages_without_memory)
{
	try_each(150, true);
}
