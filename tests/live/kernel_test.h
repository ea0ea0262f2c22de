/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What the test programs of the kernel side begin with: one harness, opened by the first test that
 * needs it. SAMPLE_HZ may be defined before. */
#ifndef DLBPF_TESTS_LIVE_KERNEL_TEST_H
#define DLBPF_TESTS_LIVE_KERNEL_TEST_H

#include "harness.h"
#include "unit/test.h"

#ifndef SAMPLE_HZ
#define SAMPLE_HZ 0
#endif

static struct harness h;

/* Skips the test without root, fails it when the kernel side cannot be opened. */
static void need_kernel(void)
{
	static const char *why_not;
	static bool tried;

	if (!tried) {
		tried = true;
		why_not = geteuid() ? "needs root" : harness_open(&h, SAMPLE_HZ, 0);
	}
	if (why_not && geteuid())
		SKIP("%s", why_not);
	if (why_not)
		FAIL("%s", why_not);
}

#endif
