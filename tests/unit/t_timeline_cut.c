/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What a timeline holds when it is read piece by piece. That reports are the same is in t_diagnose_stages.c. */
#include "unit/test.h"

#include "synth/synth.h"
#include "timeline/timeline.h"

enum { ROOT = 100, NR_POLL = 7, LOOKS = 60000 };

#define S(n) MS((n) * 1000.0)

/* Reads the trace in pieces of so many events and cuts a second behind each. */
static struct dl_timeline *read_cut(const char *path, uint64_t piece)
{
	struct dl_timeline *tl = NULL;
	struct dl_trace *t = NULL;
	struct dl_diag d = {};
	int more;

	CHECK_EQ(dl_trace_open(&t, path, &d), 0);
	CHECK_EQ(dl_timeline_open(&tl, t, &d), 0);
	do {
		more = dl_timeline_read(tl, t, piece, &d);
		CHECK(more >= 0);
		CHECK_EQ(dl_timeline_settle(tl, &d), 0);
		CHECK_EQ(dl_timeline_cut(tl, tl->end - S(1), &d), 0);
	} while (more);
	dl_trace_close(t);
	return tl;
}

static struct synth *new_trace(void)
{
	struct synth *s = synth_new(test_path("t.dlbpf"));

	CHECK(s);
	synth_task(s, S(1), ROOT, ROOT, 1, "python", DL_TF_ROOT, 0);
	return s;
}

static void add_looks(struct synth *s)
{
	for (uint64_t i = 0; i < LOOKS; i++) {
		struct dl_ev_env_host host = { .h = { .kind = DL_EV_ENV_HOST, .size = sizeof(host), .ts = S(2 + i) }, .cpus = 4,
					       .idle_ns = i };
		struct dl_ev_mem mem = { .h = { .kind = DL_EV_MEM, .size = sizeof(mem), .ts = S(2 + i), .pid = ROOT, .tid = ROOT },
					 .anon = i == LOOKS / 3 ? 1 << 30 : 1 << 20 };
		struct dl_ev_gpu_clock clock = { .h = { .kind = DL_EV_GPU_CLOCK, .size = sizeof(clock), .ts = S(2 + i), .pid = ROOT } };
		struct dl_ev_gpu_sample smp = { .h = { .kind = DL_EV_GPU_SAMPLE, .size = sizeof(smp), .ts = S(2 + i) },
						.index = (uint32_t)(i % 2), .flags = DL_GS_MEM, .mem_used = i == LOOKS / 2 ? 7777 : i % 1000 };

		synth_event(s, &host.h);
		synth_event(s, &mem.h);
		synth_event(s, &clock.h);
		synth_event(s, &smp.h);
	}
}

/* A day of looks, a second apart: a bounded number stays, first, last and peaks among them. */
TEST(cut_thins_looks)
{
	struct synth *s = new_trace();
	struct dl_timeline *tl;
	uint64_t most = 0;

	add_looks(s);
	CHECK_EQ(synth_finish(s), 0);
	tl = read_cut(test_path("t.dlbpf"), 5000);
	CHECK(tl->env.cnt < 20000 && tl->env.cnt > 5000);
	CHECK_EQ(tl->env.v[0].ts, S(2));
	CHECK_EQ(tl->env.v[tl->env.cnt - 1].ts, S(1 + LOOKS));
	for (size_t i = 1; i < tl->env.cnt; i++)
		CHECK(tl->env.v[i - 1].ts < tl->env.v[i].ts);
	CHECK(tl->clocks.cnt <= 3);	/* and one behind the last cut */
	CHECK_EQ(tl->clocks.v[0].ts, S(2));
	CHECK_EQ(tl->clocks.v[tl->clocks.cnt - 1].ts, S(1 + LOOKS));
	CHECK(tl->procs.v[0].mem.cnt < 6000);
	CHECK_EQ(tl->procs.v[0].mem.v[0].ts, S(2));
	CHECK_EQ(tl->procs.v[0].anon_peak, 1 << 30);
	CHECK(tl->gpu_looks.cnt < 20000);
	vec_for_each(&tl->gpu_looks, k) {
		const struct dl_ev_gpu_sample *smp = (const void *)k->ev;

		most = smp->mem_used > most ? smp->mem_used : most;
	}
	CHECK_EQ(most, 7777);
	dl_timeline_free(tl);
}

/* Around a death every look stays. */
TEST(cut_keeps_looks_around_a_death)
{
	struct synth *s = new_trace();
	struct dl_timeline *tl;
	uint32_t cnt = 0;

	add_looks(s);
	synth_exit(s, S(1002.5), 200, 200, 9, DL_EX_LAST);
	CHECK_EQ(synth_finish(s), 0);
	tl = read_cut(test_path("t.dlbpf"), 5000);
	vec_for_each(&tl->env, k)
		cnt += k->ts >= S(993) && k->ts <= S(1012);
	CHECK_EQ(cnt, 20);
	dl_timeline_free(tl);
}

/* A thread that blocks for good and one that never stops hold no more than they must; segments have no holes. */
TEST(cut_keeps_segments_gapless)
{
	struct synth *s = new_trace();
	struct dl_timeline *tl;

	synth_run(s, 0, ROOT, ROOT, S(2), S(2.1), SYNTH_SLEEP, WAIT(NR_POLL));
	for (uint32_t i = 0; i < 30000; i++)
		synth_run(s, 1, ROOT + 1, ROOT, S(3) + MS(i), S(3) + MS(i) + US(600), SYNTH_SLEEP, WAIT(NR_POLL, .file_ino = i));
	CHECK_EQ(synth_finish(s), 0);
	tl = read_cut(test_path("t.dlbpf"), 1000);
	vec_for_each(&tl->threads, th) {
		if (th->proc == DL_NONE)
			continue;
		CHECK(th->segs.cnt && th->segs.cnt < 4000);
		CHECK(th->waits.cnt < 2000);
		for (uint32_t i = 1; i < th->segs.cnt; i++)
			CHECK(th->segs.v[i - 1].start < th->segs.v[i].start);
		vec_for_each(&th->segs, seg) {
			const struct dl_wait *w = dl_seg_wait(th, seg);

			if (w && th->tid == ROOT + 1)
				CHECK_EQ(w->file_ino, (seg->start - US(600) - S(3)) / MS(1));
		}
	}
	CHECK_EQ(tl->threads.v[1].segs.v[tl->threads.v[1].segs.cnt - 1].state, DL_ST_BLOCKED);
	dl_timeline_free(tl);
}
