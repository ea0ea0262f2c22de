/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Whether CUPTI's records still come to us.
 *
 * Before CUDA 13.3 the activity interface has one pair of callbacks for the whole process: whoever
 * registers last gets all records, and nobody else is told. torch.profiler does so at the start of
 * every session, without a subscription that would show it. So each flush makes a call that is sure
 * to be recorded, cuDriverGetVersion: it needs no context, costs the application nothing, and no
 * program makes it in its loop. When records came and then none comes for a while, another tool has
 * them. The other way round, buffers that are not ours show that we took them from another tool.
 */
#include "agent.h"

#include <stddef.h>

#define LOST_NS 5000000000ULL	/* longer than buffers are held back by a kernel that still runs */
#define LOST_FLUSHES 5

static struct {
	uint64_t foreign, records;	/* as last seen */
	uint64_t last_ns;		/* when records last came */
	unsigned int missed;		/* flushes since then */
	bool left_on;
	bool any;			/* they came at all: the call is recorded on this system */
} watch;

void watch_begin(uint64_t now, bool left_on)
{
	watch.left_on = left_on;
	watch.foreign = pool_foreign_cnt(left_on);
	watch.records = convert_counts()->records;
	watch.last_ns = now;
	watch.missed = 0;
	watch.any = false;
}

void watch_beat(void)
{
	static int (*get)(int *);
	int version;

	if (!get)
		get = (int (*)(int *))find_driver("cuDriverGetVersion");
	if (get)
		get(&version);
}

enum watch_result watch_look(uint64_t now, uint64_t *ret_until)
{
	uint64_t records = convert_counts()->records;

	*ret_until = watch.last_ns;
	if (pool_foreign_cnt(watch.left_on) != watch.foreign)
		return WATCH_TOOK;
	if (records != watch.records) {
		watch.records = records;
		watch.last_ns = now;
		watch.missed = 0;
		watch.any = true;
		return WATCH_OURS;
	}
	watch.missed++;
	return watch.any && watch.missed >= LOST_FLUSHES && now - watch.last_ns >= LOST_NS ? WATCH_LOST : WATCH_OURS;
}

bool watch_doubts(void)
{
	return watch.any && watch.missed >= LOST_FLUSHES;
}
