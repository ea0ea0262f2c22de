/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What is left out of rings that fill: the table of it, and the counts of CPUs made one. */
#include "unit/test.h"

#include "capture/kernel_priv.h"
#include "capture/shed.h"

static const struct dl_shed_rule *rule(enum dl_shed shed)
{
	return &dl_shed_rules[shed];
}

TEST(every_class_has_a_row)
{
	for (int i = DL_SHED_NONE + 1; i < DL_SHED_MAX; i++) {
		CHECK_EQ(rule(i)->shed, i);
		CHECK(rule(i)->kind > DL_EV_NONE && rule(i)->kind < DL_EV_MAX);
		CHECK(rule(i)->from >= DL_FILL_WAKE && rule(i)->from <= DL_FILL_FULL);
	}
	CHECK_EQ(rule(DL_SHED_NONE)->shed, DL_SHED_NONE);
}

/* The reader is woken before anything is left out, and a ring that was full has room for all but what matters least
 * when it is used again. */
TEST(the_reader_is_woken_first)
{
	for (int i = DL_SHED_NONE + 1; i < DL_SHED_MAX; i++)
		CHECK(rule(i)->from >= DL_FILL_WAKE);
	CHECK(DL_FILL_HOLE_END > DL_FILL_WAKE && DL_FILL_HOLE_END < DL_FILL_FULL);
	CHECK(DL_FILL_HOLE >= DL_FILL_FULL);
}

/* The critical path needs switches and wakes; what explains a death is in a ring of its own. */
TEST(what_matters_most_goes_last)
{
	static const enum dl_shed order[] = { DL_SHED_SAMPLE_USER, DL_SHED_SAMPLE, DL_SHED_SWITCH_STACK, DL_SHED_WAKE_FOREIGN,
					      DL_SHED_NAME, DL_SHED_BLOCK_IO, DL_SHED_SWITCH };

	for (size_t i = 1; i < sizeof(order) / sizeof(order[0]); i++)
		CHECK_MSG(rule(order[i - 1])->from < rule(order[i])->from, "%d before %d", order[i - 1], order[i]);
	CHECK_EQ(rule(DL_SHED_SWITCH)->from, DL_FILL_FULL);
	CHECK_EQ(rule(DL_SHED_WAKE)->from, DL_FILL_FULL);
	for (int i = DL_SHED_NONE + 1; i < DL_SHED_MAX; i++) {
		CHECK(!rule(i)->crash || rule(i)->from < DL_FILL_FULL);
		/* births and ends are never left out */
		CHECK(rule(i)->kind != DL_EV_FORK && rule(i)->kind != DL_EV_EXEC && rule(i)->kind != DL_EV_EXIT);
		CHECK(rule(i)->kind != DL_EV_OOM_KILL && rule(i)->kind != DL_EV_SIGBUS_MAP);
	}
}

TEST(what_may_fill_a_ring_is_lost_not_left_out)
{
	CHECK_EQ(dl_shed_cause(rule(DL_SHED_SWITCH)), DL_LOSS_RING_FULL);
	CHECK_EQ(dl_shed_cause(rule(DL_SHED_WAKE)), DL_LOSS_RING_FULL);
	CHECK_EQ(dl_shed_cause(rule(DL_SHED_SAMPLE)), DL_LOSS_SHED);
	CHECK_EQ(dl_shed_cause(rule(DL_SHED_CHILD_SIGNAL)), DL_LOSS_SHED);
}

/* Four CPUs in two rings; times of an older epoch were told before, their counts are part of the total. */
TEST(counts_of_cpus)
{
	static const struct dl_shed_cnt by_cpu[4] = {
		{ .cnt = 10, .first = 500, .last = 900, .epoch = 7 },
		{ .cnt = 3, .first = 400, .last = 450, .epoch = 7 },
		{ .cnt = 5, .first = 10, .last = 2000, .epoch = 6 },
		{ .cnt = 0 },
	};
	struct dl_shed_sum sum = dl_shed_sum(by_cpu, 0, 2, 7);

	CHECK_EQ(sum.cnt, 13);
	CHECK_EQ(sum.first, 400);
	CHECK_EQ(sum.last, 900);
	sum = dl_shed_sum(by_cpu, 2, 4, 7);
	CHECK_EQ(sum.cnt, 5);
	CHECK_EQ(sum.first, 0);
	CHECK_EQ(sum.last, 0);
	sum = dl_shed_sum(by_cpu, 0, 4, 6);
	CHECK_EQ(sum.cnt, 18);
	CHECK_EQ(sum.first, 10);
	CHECK_EQ(sum.last, 2000);
	CHECK_EQ(dl_shed_sum(by_cpu, 2, 2, 7).cnt, 0);
}

/* A million page faults a second that need no I/O: nothing may run at them. */
TEST(nothing_is_attached_to_minor_faults)
{
	static const char *const dear[] = { "page_fault_user", "page_fault_kernel", "rss_stat", "mm_page_alloc", "mm_page_free",
					    "exceptions", "kmem" };

	for (int i = 0; i < dl_prog_rule_cnt; i++) {
		const struct dl_prog_rule *r = &dl_prog_rules[i];

		for (size_t j = 0; r->tracepoint && j < sizeof(dear) / sizeof(dear[0]); j++)
			CHECK_MSG(!strstr(r->tracepoint, dear[j]), "%s", r->name);
		CHECK_MSG(r->kind != DL_EV_MAJOR_FAULT || r->attach == DL_AT_MAJOR, "%s", r->name);
	}
}
