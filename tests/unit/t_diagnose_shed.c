/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* A recording that could not keep up: what was left out is told and is not lost, and of a hole nobody is blamed. */
#include "unit/diagnose_util.h"

static void loss(struct synth *s, uint32_t ring, uint32_t cause, uint32_t shed, uint32_t kind, uint64_t cnt, double from,
		 double to)
{
	struct dl_ev_loss ev = {
		.h = { .size = sizeof(ev), .kind = DL_EV_LOSS, .ts = AT(from), .cpu = DL_CPU_NONE }, .ring = ring,
		.cause = cause, .kind = kind, .cnt = cnt, .first = AT(from), .last = AT(to) - 1, .shed = shed,
	};

	synth_event(s, &ev.h);
}

static const struct dl_shed_row *row(const struct dl_report *r, const char *what)
{
	vec_for_each(&r->sheds, it) {
		if (!strcmp(it->what, what))
			return it;
	}
	FAIL("no row of %s", what);
}

/* Counts are running totals by ring; times that are seconds apart stay apart. */
TEST(left_out_is_told_and_not_lost)
{
	struct synth *s = job_new();
	struct dl_report *r;
	const struct dl_shed_row *u;

	two_steps(s);
	feeder_puts(s, 49, 50.01);
	loss(s, 0, DL_LOSS_SHED, DL_SHED_SAMPLE_USER, DL_EV_SAMPLE, 100, 12, 14);
	loss(s, 0, DL_LOSS_SHED, DL_SHED_SAMPLE_USER, DL_EV_SAMPLE, 130, 500, 900);
	loss(s, 1, DL_LOSS_SHED, DL_SHED_SAMPLE_USER, DL_EV_SAMPLE, 7, 10, 13);
	loss(s, 0, DL_LOSS_SHED, DL_SHED_SAMPLE_USER, DL_EV_SAMPLE, 140, 5000, 5001);
	loss(s, DL_RING_CRASH, DL_LOSS_SHED, DL_SHED_CHILD_SIGNAL, DL_EV_SIGNAL, 3, 30, 31);
	r = job_report(s, NULL);
	check_adds_up(r);
	CHECK_EQ(r->lost, 0);
	CHECK_EQ(r->losses.cnt, 0);
	CHECK_EQ(r->shed, 150);
	CHECK_EQ(r->sheds.cnt, 2);
	u = row(r, "user stacks of samples");
	CHECK(u->part);
	CHECK_EQ(u->cnt, 147);
	CHECK_EQ(u->times.cnt, 2);
	CHECK_EQ(u->times.v[0].start, AT(10));
	CHECK_EQ(u->times.v[0].end, AT(900));
	CHECK_EQ(u->times.v[1].start, AT(5000));
	CHECK(!row(r, "SIGCHLD signals")->part);
	dl_report_free(r);
}

/* The gap is 20.12 to 50.12. In the hole, 25 to 35, the worker was switched, and so was its feeder; before it the worker
 * decoded, and behind it, too. */
TEST(a_hole_is_unexplained)
{
	struct synth *s = job_new();
	struct dl_report *r;
	bool told = false;

	two_steps(s);
	synth_run(s, 1, WORKER, WORKER, AT(4), AT(5), SYNTH_SLEEP, ON_INDEX);
	synth_switch(s, AT(19), 2, 0, 0, WORKER, WORKER, 0, NULL);
	loss(s, 0, DL_LOSS_RING_FULL, DL_SHED_SWITCH, DL_EV_SWITCH, 40, 25, 35);
	loss(s, 0, DL_LOSS_RING_FULL, DL_SHED_WAKE, DL_EV_WAKE, 15, 25, 34);
	loss(s, 7, DL_LOSS_RING_FULL, DL_SHED_WAKE, DL_EV_WAKE, 5, 26, 35);	/* another CPU's ring */
	synth_switch(s, AT(36), 2, 0, 0, WORKER, WORKER, 0, NULL);
	synth_switch(s, AT(49.5), 2, WORKER, WORKER, 0, 0, SYNTH_SLEEP,
		     WAIT(NR_POLL, .file_kind = DL_FILE_FIFO, .file_ino = INDEX_PIPE, .lost = 3, .flags = DL_SW_QUARTET));
	feeder_puts(s, 49, 50.01);
	r = job_report(s, NULL);
	check_adds_up(r);
	CHECK_EQ(charged(r, DL_CAUSE_UNEXPLAINED), MS(11));	/* until the worker is met again, by a switch, at 36 */
	CHECK_EQ(charged(r, DL_CAUSE_DECODE), MS(49 - 36) + MS(25 - 20.12));
	CHECK_EQ(r->lost, 60);
	CHECK_EQ(r->shed, 0);
	CHECK_EQ(r->losses.cnt, 2);
	CHECK_EQ(r->losses.v[0].first, AT(25));
	CHECK_EQ(r->losses.v[0].last, AT(35));
	CHECK_EQ(r->losses.v[1].cnt, 20);
	CHECK_EQ(r->losses.v[1].first, AT(25));
	CHECK_EQ(r->losses.v[1].last, AT(35));
	vec_for_each(&r->notes, note)
		told |= strstr(*note, "1 hole of 0.010 s in all, the first from 0.025 s to 0.035 s") != NULL;
	CHECK(told);
	dl_report_free(r);
}
