/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Look-ups in calls, copies and segments against those that go through all of them, in any order of times. */
#include "unit/diagnose_util.h"

#include "timeline/timeline.h"

static uint64_t rng;

static uint64_t rnd(uint64_t below)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return rng % below;
}

static uint32_t corr;

/* Calls of the trainer in [from, to], some within others, of all classes; copies with a record, or not. */
static void make_calls(struct synth *s, double from, double to, int depth)
{
	for (double at = from + (double)rnd(1000) / 1e4; at < to;) {
		const double end = at + (double)(1 + rnd(depth ? 300 : 5000)) / 1e4;
		const uint32_t class = (uint32_t)rnd(DL_CALL_GRAPH + 1);

		if (end > to)
			return;
		synth_api(s, AT(at), AT(end), TRAINER, TRAINER, ++corr, class, "call");
		if (class == DL_CALL_COPY && rnd(3))
			synth_memcpy(s, AT(at), AT(at + (double)(1 + rnd(rnd(9) ? 800 : 90000)) / 1e4), TRAINER, 0, 7, corr,
				     (uint16_t)(DL_GPU_HTOD + rnd(2)), DL_GPU_MEM_PINNED, 4096);
		if (depth < 2 && !rnd(3))
			make_calls(s, at, end, depth + 1);
		at = end + (double)rnd(depth ? 50 : 2000) / 1e4;
	}
}

static struct dl_timeline *make(uint64_t seed)
{
	struct synth *s = job_new();
	struct dl_timeline *tl = NULL;
	struct dl_trace *t = NULL;
	struct dl_diag d = {};

	rng = seed * 2654435761 + 88172645463325252ULL;
	corr = 0;
	make_calls(s, 1, 100, 0);
	for (double at = 1; at < 100; at += 0.3 + (double)rnd(1000) / 1e3) {
		synth_run(s, 0, TRAINER, TRAINER, AT(at), AT(at + 0.2), SYNTH_SLEEP, ON_COND);
		synth_sample(s, AT(at + 0.1), 0, TRAINER, TRAINER, DL_SAMPLE_USER, 0);
	}
	CHECK_EQ(synth_finish(s), 0);
	CHECK_OK(dl_trace_open(&t, test_path("job.dlbpf"), &d));
	CHECK_OK(dl_timeline_build(&tl, t, &d));
	dl_trace_close(t);
	return tl;
}

static const struct dl_api *call(const struct dl_timeline *tl, const struct dl_thread *th, size_t i)
{
	return &tl->procs.v[th->proc].apis.v[th->apis.v[i]];
}

static void check_calls(const struct dl_timeline *tl, const struct dl_thread *th, uint64_t t)
{
	const struct dl_api *around = NULL, *step = NULL;
	uint64_t last_end = 0;
	size_t before = 0;

	for (; before < th->apis.cnt && call(tl, th, before)->start < t; before++)
		last_end = call(tl, th, before)->end > last_end ? call(tl, th, before)->end : last_end;
	for (size_t i = before; i-- > 0 && i + 3 >= before && !around;) {
		if (call(tl, th, i)->end >= t && dl_call_explains(call(tl, th, i)))
			around = call(tl, th, i);
	}
	for (size_t i = before; i < th->apis.cnt && !step; i++) {
		const struct dl_api *a = call(tl, th, i);

		if (a->cls == DL_CALL_LAUNCH || a->cls == DL_CALL_GRAPH_LAUNCH)
			step = a;
		vec_for_each(&tl->procs.v[th->proc].copies, c) {
			if (a->cls == DL_CALL_COPY && c->corr == a->corr)
				step = a;
		}
	}
	CHECK_EQ(dl_call_before(tl, th, t), before ? before - 1 : DL_NONE);
	CHECK(dl_api_at(tl, th, t) == around);
	CHECK(dl_next_step(tl, th, t) == step);
	CHECK_EQ(dl_last_call_end(tl, th, t), last_end);
}

static void check_copies(const struct dl_proc *p, uint64_t t, uint64_t floor)
{
	const struct dl_copy *found = NULL;
	uint64_t from = floor, want = floor;
	size_t i = 0;

	while (i < p->copies.cnt && p->copies.v[i].start < t)
		i++;
	for (int back = 0; i-- > 0 && back < 64 && !found; back++) {
		const struct dl_copy *c = &p->copies.v[i];

		if (c->end >= t)
			found = c;
		else if (c->end > want)
			want = c->end;
	}
	if (found)
		want = found->start > floor ? found->start : floor;
	CHECK(dl_copy_before(p, NULL, t, &from) == found);
	CHECK_EQ(from, want);
}

static void check_segs(const struct dl_thread *th, uint64_t t)
{
	uint32_t seg = DL_NONE;

	for (uint32_t i = 0; i < th->segs.cnt && th->segs.v[i].start < t; i++)
		seg = i;
	CHECK_EQ(dl_seg_before(th, t), seg);
}

TEST(calls_and_copies_are_found)
{
	for (uint64_t seed = 1; seed < 12; seed++) {
		struct dl_timeline *tl = make(seed);
		const struct dl_proc *p = &tl->procs.v[0];
		const struct dl_thread *th = &tl->threads.v[p->main];
		size_t own = 0;

		CHECK_EQ(p->pid, TRAINER);
		CHECK(th->apis.cnt > 200 && p->copies.cnt > 10 && th->segs.cnt > 200);
		for (uint32_t i = 0; i < 3000; i++) {
			/* on from the last one, anywhere, and at the edges of what there is */
			const struct dl_api *a = &p->apis.v[rnd(p->apis.cnt)];
			const uint64_t near[] = { AT(i / 30.0), AT(0) + rnd(MS(101)), a->start + rnd(3) - 1, a->end + rnd(3) - 1,
						  p->copies.v[rnd(p->copies.cnt)].end + rnd(3) - 1 };
			const uint64_t t = near[rnd(5)];

			check_calls(tl, th, t);
			check_copies(p, t, rnd(2) ? 0 : t - rnd(MS(5)));
			check_segs(th, t);
		}
		vec_for_each(&th->samples, smp) {
			if (dl_api_at(tl, th, smp->ts))
				continue;
			CHECK(own < th->own_samples.cnt);
			CHECK_EQ(th->own_samples.v[own++].ts, smp->ts);
		}
		CHECK_EQ(own, th->own_samples.cnt);
		CHECK_EQ(th->cls_cnt[DL_SMP_USER], th->samples.cnt);
		dl_timeline_free(tl);
	}
}

/* All threads of a process are in its list, in order, and each lives within the life of its batch. */
TEST(threads_of_a_process)
{
	struct synth *s = job_new();
	struct dl_timeline *tl = NULL;
	struct dl_trace *t = NULL;
	struct dl_diag d = {};
	size_t listed = 0;

	for (uint32_t i = 0; i < 500; i++) {
		const uint32_t tid = 5000 + i;

		synth_fork(s, AT(1 + i), TRAINER, TRAINER, tid, TRAINER, "python");
		synth_run(s, 1 + i % 3, tid, TRAINER, AT(1.1 + i), AT(1.2 + i), SYNTH_SLEEP, ON_COND);
		if (i % 7)
			synth_exit(s, AT(2 + i), tid, TRAINER, 0, 0);
	}
	CHECK_EQ(synth_finish(s), 0);
	CHECK_OK(dl_trace_open(&t, test_path("job.dlbpf"), &d));
	CHECK_OK(dl_timeline_build(&tl, t, &d));
	dl_trace_close(t);
	vec_for_each(&tl->procs, p) {
		CHECK_EQ(p->lives.cnt, (p->threads.cnt + DL_BATCH - 1) / DL_BATCH);
		for (size_t i = 0; i < p->threads.cnt; i++, listed++) {
			const struct dl_thread *th = &tl->threads.v[p->threads.v[i]];

			CHECK_EQ(th->proc, p - tl->procs.v);
			CHECK(!i || p->threads.v[i - 1] < p->threads.v[i]);
			CHECK(p->lives.v[i / DL_BATCH].start <= th->start && p->lives.v[i / DL_BATCH].end >= th->end);
		}
	}
	vec_for_each(&tl->threads, th)
		listed -= th->proc != DL_NONE;
	CHECK_EQ(listed, 0);
	CHECK_EQ(tl->procs.v[0].threads.cnt, 501);
	dl_timeline_free(tl);
}
