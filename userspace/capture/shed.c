/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#include "capture/shed.h"

const struct dl_shed_rule dl_shed_rules[DL_SHED_MAX] = {
#define SHED(class, event, sixteenths) \
	[DL_SHED_##class] = { .shed = DL_SHED_##class, .kind = DL_EV_##event, .from = sixteenths },
#define SHED_CRASH(class, event, sixteenths) \
	[DL_SHED_##class] = { .shed = DL_SHED_##class, .kind = DL_EV_##event, .from = sixteenths, .crash = true },
	DL_SHED_TABLE
#undef SHED
#undef SHED_CRASH
};

struct dl_shed_sum dl_shed_sum(const struct dl_shed_cnt *by_cpu, int from, int to, uint32_t epoch)
{
	struct dl_shed_sum sum = {};

	for (int cpu = from; cpu < to; cpu++) {
		const struct dl_shed_cnt *c = &by_cpu[cpu];

		sum.cnt += c->cnt;
		if (c->epoch != epoch)
			continue;
		if (!sum.first || c->first < sum.first)
			sum.first = c->first;
		if (c->last > sum.last)
			sum.last = c->last;
	}
	return sum;
}
