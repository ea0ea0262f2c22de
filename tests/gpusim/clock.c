/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * CUPTI's clock: CLOCK_REALTIME, as in the real libraries, which tests can make drift and jump by
 * GPUSIM_CUPTI_PPM, and by GPUSIM_CUPTI_STEP_US after GPUSIM_CUPTI_STEP_MS.
 */
#include <stdlib.h>
#include <time.h>

#include "cupti_double.h"

static struct {
	double ppm;
	uint64_t t0, step_after_ns;
	int64_t step_ns;
} clk;

uint64_t mono_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ULL + (uint64_t)ts.tv_nsec;
}

double env_num(const char *name)
{
	const char *s = getenv(name);

	return s && s[0] ? atof(s) : 0;
}

/* CLOCK_REALTIME less CLOCK_MONOTONIC, from the tightest of three readings. */
static int64_t realtime_offset(void)
{
	uint64_t best = UINT64_MAX;
	int64_t off = 0;

	for (int i = 0; i < 3; i++) {
		struct timespec ts;
		uint64_t a = mono_ns(), b;

		clock_gettime(CLOCK_REALTIME, &ts);
		b = mono_ns();
		if (b - a >= best)
			continue;
		best = b - a;
		off = (int64_t)((uint64_t)ts.tv_sec * 1000000000ULL + (uint64_t)ts.tv_nsec) -
		      (int64_t)(a + (b - a) / 2);
	}
	return off;
}

uint64_t cupti_time(uint64_t mono)
{
	int64_t t = (int64_t)mono + realtime_offset(), since = (int64_t)(mono - clk.t0);

	t += (int64_t)((double)since * clk.ppm / 1e6);
	if (clk.step_after_ns && since > (int64_t)clk.step_after_ns)
		t += clk.step_ns;
	return (uint64_t)t;
}

void clock_load(void)
{
	clk.t0 = mono_ns();
	clk.ppm = env_num("GPUSIM_CUPTI_PPM");
	clk.step_after_ns = (uint64_t)(env_num("GPUSIM_CUPTI_STEP_MS") * 1e6);
	clk.step_ns = (int64_t)(env_num("GPUSIM_CUPTI_STEP_US") * 1e3);
}
