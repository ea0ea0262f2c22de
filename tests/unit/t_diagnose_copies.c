/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Copies with a known fault in traces made by hand: which of the four kinds it is, at and around each
 * threshold; what a copy costs; where its thread ran; and sums that must hold whatever was copied. */
#include "unit/diagnose_util.h"

#include "diagnose/copies.h"
#include "diagnose/summary.h"

#define MIB (1ULL << 20)

static uint64_t rng_state;

static uint32_t rnd(uint32_t below)
{
	rng_state = rng_state * 6364136223846793005ULL + 1442695040888963407ULL;
	return (uint32_t)((rng_state >> 33) % below);
}

/* --- the rules ----------------------------------------------------------------------------------- */

static enum dl_copy_problem judge(struct dl_copy_device c)
{
	double share;

	c.cnt = 1;
	return dl_copy_judge(&c, &share);
}

TEST(rules_at_their_thresholds)
{
	struct dl_copy_device none = {};
	double share;

	CHECK_EQ(dl_copy_judge(&none, &share), DL_COPY_NONE);
	CHECK_EQ(judge((struct dl_copy_device){ .cost_ns = 100, .small_ns = 50, .ns = 100 }), DL_COPY_TOO_SMALL);
	CHECK_EQ(judge((struct dl_copy_device){ .cost_ns = 100, .small_ns = 49, .ns = 100 }), DL_COPY_LINK);
	CHECK_EQ(judge((struct dl_copy_device){ .cost_ns = 100, .pageable_ns = 50, .ns = 100 }), DL_COPY_PAGEABLE);
	CHECK_EQ(judge((struct dl_copy_device){ .cost_ns = 100, .pageable_ns = 49, .ns = 100 }), DL_COPY_LINK);
	/* Small ones that are pageable, too: pinned memory would not help. */
	CHECK_EQ(judge((struct dl_copy_device){ .cost_ns = 100, .small_ns = 60, .pageable_ns = 100 }), DL_COPY_TOO_SMALL);
	CHECK_EQ(judge((struct dl_copy_device){ .cost_ns = 100, .ns = 100, .kernel_ns = 900, .overlap_ns = 50 }),
		 DL_COPY_NOT_OVERLAPPED);
	CHECK_EQ(judge((struct dl_copy_device){ .cost_ns = 100, .ns = 100, .kernel_ns = 900, .overlap_ns = 51 }), DL_COPY_LINK);
	/* Copies that take longer than the kernels cannot lie beside them for more than the kernels' time. */
	CHECK_EQ(judge((struct dl_copy_device){ .cost_ns = 900, .ns = 900, .kernel_ns = 100, .overlap_ns = 99 }), DL_COPY_LINK);
	CHECK_EQ(judge((struct dl_copy_device){ .cost_ns = 900, .ns = 900, .kernel_ns = 100, .overlap_ns = 40 }),
		 DL_COPY_NOT_OVERLAPPED);
}

TEST(link_rates)
{
	CHECK_EQ(dl_link_bps(1, 16), 4000000000ULL);
	CHECK_NEAR(dl_link_bps(3, 16), 15753846160ULL, 20);
	CHECK_NEAR(dl_link_bps(4, 16), 31507692300ULL, 20);
	CHECK_NEAR(dl_link_bps(5, 8), 31507692300ULL, 20);
	CHECK_EQ(dl_link_bps(0, 16), 0);
	CHECK_EQ(dl_link_bps(3, 0), 0);
	CHECK_EQ(dl_link_bps(7, 16), 0);
	CHECK_EQ(dl_link_bps(UINT32_MAX, UINT32_MAX), 0);
}

TEST(overlap_with_spans)
{
	struct dl_span v[] = { { 10, 20 }, { 30, 40 }, { 50, 60 } };
	const struct dl_spans s = { v, 3, 3 }, none = {};

	CHECK_EQ(dl_overlap_ns(&s, 0, 100), 30);
	CHECK_EQ(dl_overlap_ns(&s, 15, 35), 10);
	CHECK_EQ(dl_overlap_ns(&s, 12, 18), 6);
	CHECK_EQ(dl_overlap_ns(&s, 10, 20), 10);
	CHECK_EQ(dl_overlap_ns(&s, 20, 30), 0);
	CHECK_EQ(dl_overlap_ns(&s, 60, 90), 0);
	CHECK_EQ(dl_overlap_ns(&s, 55, 55), 0);
	CHECK_EQ(dl_overlap_ns(&none, 0, 100), 0);
}

/* --- traces with a known fault ------------------------------------------------------------------- */

/* What is copied for each of ten steps of 40 ms: 20 ms idle, then a kernel of 20 ms that waited for it. */
enum plan { PAGEABLE, SMALL, SERIAL, SATURATED };

static void plan_step(struct synth *s, enum plan plan, double t, uint32_t *corr)
{
	double launch;

	switch (plan) {
	case PAGEABLE:	/* one call of 18 ms, the thread is on a CPU for all of it */
		synth_api(s, AT(t + 1), AT(t + 19), TRAINER, TRAINER, ++*corr, DL_CALL_COPY, "cudaMemcpyAsync");
		synth_memcpy(s, AT(t + 1.2), AT(t + 19.1), TRAINER, 0, 7, *corr, DL_GPU_HTOD, DL_GPU_MEM_PAGEABLE, 100 * MIB);
		break;
	case SMALL:	/* calls of 30 us, copies of 2 us */
		for (int i = 0; i < 600; i++) {
			const double at = t + 1 + i * 0.03;

			synth_api(s, AT(at), AT(at + 0.029), TRAINER, TRAINER, ++*corr, DL_CALL_COPY, "cudaMemcpyAsync");
			synth_memcpy(s, AT(at + 0.02), AT(at + 0.022), TRAINER, 0, 7, *corr, DL_GPU_HTOD, DL_GPU_MEM_PAGEABLE, 1024);
		}
		break;
	case SERIAL:	/* pinned, in the gap */
		synth_api(s, AT(t + 1), AT(t + 1.01), TRAINER, TRAINER, ++*corr, DL_CALL_COPY, "cudaMemcpyAsync");
		synth_memcpy(s, AT(t + 1.1), AT(t + 19), TRAINER, 0, 7, *corr, DL_GPU_HTOD, DL_GPU_MEM_PINNED, 100 * MIB);
		break;
	case SATURATED:	/* pinned, on a stream that never rests: 38 of 40 ms */
		synth_api(s, AT(t - 18), AT(t - 17.99), TRAINER, TRAINER, ++*corr, DL_CALL_COPY, "cudaMemcpyAsync");
		synth_memcpy(s, AT(t - 18.5), AT(t + 19.5), TRAINER, 0, 9, *corr, DL_GPU_HTOD, DL_GPU_MEM_PINNED, 100 * MIB);
		break;
	}
	launch = plan == PAGEABLE || plan == SMALL ? t + 19.2 : t + 1.02;
	synth_api(s, AT(launch), AT(launch + 0.01), TRAINER, TRAINER, ++*corr, DL_CALL_LAUNCH, "cudaLaunchKernel");
	synth_kernel(s, AT(t + 20), AT(t + 40), TRAINER, 0, 7, *corr, "train_step");
}

static struct synth *plan_new(enum plan plan)
{
	struct synth *s = job_new();
	uint32_t corr = 0;

	for (int i = 1; i <= 10; i++)
		plan_step(s, plan, i * 40.0, &corr);
	synth_run(s, 0, TRAINER, TRAINER, AT(1), AT(450), SYNTH_SLEEP, ON_RESULTS);
	return s;
}

/* The link of the trainer's device 0: gen 3 x16 of a possible gen 4 x16, at node 0 of 2, near CPU 0. */
static void plan_link(struct synth *s, uint32_t near_cpu)
{
	struct dl_ev_gpu_link ev = {
		.h = { .size = sizeof(ev), .kind = DL_EV_GPU_LINK, .ts = AT(2), .tid = TRAINER, .pid = TRAINER, .cpu = DL_CPU_NONE },
		.match = DL_GPU_MATCH_PCI, .flags = DL_GL_NVML | DL_GL_SYSFS, .pci = 0x3b00, .mem_total = 16ULL << 30,
		.gen = 1, .width = 16, .gen_max = 4, .width_max = 16, .numa_nodes = 2, .dist_min = 21, .dist_max = 21,
	};

	((uint8_t *)&ev.near_cpus)[near_cpu / 8] = (uint8_t)(1 << near_cpu % 8);
	synth_event_text(s, &ev.h, "GPU X");
}

static struct dl_ev_gpu_sample sample_at(double ms)
{
	return (struct dl_ev_gpu_sample){
		.h = { .size = sizeof(struct dl_ev_gpu_sample), .kind = DL_EV_GPU_SAMPLE, .ts = AT(ms), .pid = TRAINER, .tid = TRAINER,
		       .cpu = DL_CPU_NONE },
		.flags = DL_GS_UTIL | DL_GS_MEM | DL_GS_PROCS | DL_GS_PROC_MEM | DL_GS_LINK | DL_GS_PCIE,
		.util_gpu = 40, .util_mem = 10, .mem_used = 4ULL << 30, .mem_total = 16ULL << 30, .proc_used = 3ULL << 30,
		.proc_cnt = 1, .rx_kbps = 1000, .tx_kbps = 500, .gen = 3, .width = 16,
	};
}

static const struct dl_copy_device *only_device(const struct dl_report *r)
{
	CHECK_EQ(r->copy_devices.cnt, 1);
	return &r->copy_devices.v[0];
}

static bool says(const struct dl_report *r, const char *word)
{
	bool found = r->verdict.text && strstr(r->verdict.text, word);

	vec_for_each(&r->verdict.actions, a)
		found |= strstr(*a, word) != NULL;
	return found;
}

static void one_plan(enum plan plan, enum dl_copy_problem want, const char *word, const char *not_word)
{
	struct dl_report *r = job_report(plan_new(plan), NULL);

	CHECK_EQ(r->verdict.cause, DL_CAUSE_PCIE);
	CHECK_STR(dl_copy_problem_id(only_device(r)->problem), dl_copy_problem_id(want));
	CHECK_EQ(r->verdict.copies, want);
	CHECK_MSG(says(r, word), "%s", r->verdict.text);
	CHECK_MSG(!says(r, not_word), "%s", r->verdict.text);
	check_adds_up(r);
	dl_report_free(r);
}

TEST(each_kind_is_named)
{
	one_plan(PAGEABLE, DL_COPY_PAGEABLE, "pin_memory=True", "pack tensors");
	one_plan(SMALL, DL_COPY_TOO_SMALL, "pack tensors", "verlap");
	one_plan(SERIAL, DL_COPY_NOT_OVERLAPPED, "second stream", "pin_memory");
	one_plan(SATURATED, DL_COPY_LINK, "Send less", "pin_memory");
}

TEST(numbers_of_a_plan)
{
	struct dl_report *r = job_report(plan_new(PAGEABLE), NULL);
	const struct dl_copy_device *c = only_device(r);

	CHECK_EQ(c->cnt, 10);
	CHECK_EQ(c->bytes, 1000 * MIB);
	CHECK_EQ(c->ns, 10 * MS(17.9));
	CHECK_EQ(c->cost_ns, 10 * MS(18));	/* the call is longer than the copy */
	CHECK_EQ(c->pageable_ns, c->cost_ns);
	CHECK_EQ(c->small_ns, 0);
	CHECK_EQ(c->overlap_ns, 0);
	CHECK_EQ(c->kernel_ns, 10 * MS(20));
	CHECK_EQ(c->cpu_ns, 10 * MS(18));	/* the thread ran all the time */
	CHECK_EQ(c->median_bytes, 100 * MIB);
	CHECK_EQ(c->link.bps, 0);
	CHECK_EQ(c->numa_node, -1);
	CHECK(!c->has_near);
	CHECK_EQ(r->copies.cnt, 1);
	CHECK_EQ(r->copies.v[0].call_ns, 10 * MS(18));
	CHECK_EQ(r->copies.v[0].called_cnt, 10);
	CHECK_EQ(r->copies.v[0].thread_cnt, 10);
	dl_report_free(r);
}

/* Without calls and threads, as in other tools' traces: memory's kind is enough. */
TEST(copies_without_calls)
{
	struct synth *s = job_new();
	struct dl_report *r;

	for (int i = 0; i < 10; i++) {
		synth_memcpy(s, AT(i * 20), AT(i * 20 + 9), TRAINER, 0, 7, 0, DL_GPU_HTOD, i ? DL_GPU_MEM_PAGEABLE : DL_GPU_MEM_PINNED,
			     64 * MIB);
		synth_kernel(s, AT(i * 20 + 10), AT(i * 20 + 20), TRAINER, 0, 7, 0, "k");
	}
	r = job_report(s, NULL);
	CHECK_EQ(only_device(r)->problem, DL_COPY_PAGEABLE);
	CHECK_EQ(only_device(r)->cpu_ns, 0);
	CHECK_EQ(r->copies.cnt, 2);
	CHECK_EQ(r->copies.v[0].called_cnt + r->copies.v[1].thread_cnt, 0);
	dl_report_free(r);
}

TEST(link_and_place)
{
	struct synth *s = plan_new(SATURATED);
	struct dl_ev_gpu_sample at = sample_at(100);
	const struct dl_copy_device *c;
	struct dl_report *r;

	plan_link(s, 0);
	synth_event(s, &at.h);
	r = job_report(s, NULL);
	c = only_device(r);
	CHECK_EQ(c->link.gen, 3);	/* 1 while idle */
	CHECK_EQ(c->link.gen_max, 4);
	CHECK_EQ(c->link.bps, dl_link_bps(3, 16));
	CHECK_EQ(c->numa_node, 0);
	CHECK(c->has_near);
	CHECK_EQ(c->near_ns, c->cpu_ns);
	CHECK(says(r, "gen 3 x16"));
	CHECK(says(r, "gen 4 x16"));
	CHECK(says(r, "Even the best copy reached only 2.8 GB/s"));
	dl_report_free(r);

	s = plan_new(PAGEABLE);
	plan_link(s, 3);	/* the trainer runs on CPU 0 */
	r = job_report(s, NULL);
	c = only_device(r);
	CHECK(c->has_near);
	CHECK_EQ(c->near_ns, 0);
	CHECK(c->cpu_ns > 0);
	dl_report_free(r);
}

/* --- what NVML saw ------------------------------------------------------------------------------- */

TEST(memory_over_the_run)
{
	struct synth *s = plan_new(SERIAL);
	const struct dl_gpu_report *g;
	struct dl_report *r;

	for (int i = 0; i < 8; i++) {
		struct dl_ev_gpu_sample at = sample_at(10 + i * 50);

		at.mem_used = (uint64_t)(i < 5 ? 1 + i : 9 - i) << 30;
		at.proc_used = at.mem_used / 2;
		at.util_gpu = i ? 50 : 98;
		at.other_cnt = i == 3;
		synth_event(s, &at.h);
		at.index = 5;	/* somebody else's */
		at.proc_cnt = 0;
		synth_event(s, &at.h);
	}
	plan_link(s, 0);
	r = job_report(s, NULL);
	CHECK_EQ(r->gpus.cnt, 1);
	g = &r->gpus.v[0];
	CHECK_EQ(g->index, 0);
	CHECK_EQ(g->device, 0);
	CHECK_EQ(g->pid, TRAINER);
	CHECK_STR(g->name, "GPU X");
	CHECK_EQ(g->samples, 8);
	CHECK_EQ(g->used_first, 1ULL << 30);
	CHECK_EQ(g->used_peak, 5ULL << 30);
	CHECK_EQ(g->used_peak_ts, AT(210));
	CHECK_EQ(g->used_last, 2ULL << 30);
	CHECK_EQ(g->proc_peak, 5ULL << 29);
	CHECK_EQ(g->proc_last, 1ULL << 30);
	CHECK(g->shared);
	CHECK_NEAR(g->util_mean * 1000, 560, 0);
	CHECK_NEAR(g->util_max * 1000, 980, 0);
	CHECK_EQ(g->rx_mean_bps, 1000000);
	dl_report_free(r);
}

/* A process on a device of the machine, and no collector that says under which number. */
TEST(device_without_a_number)
{
	struct synth *s = job_new();
	struct dl_ev_gpu_sample at = sample_at(100);
	struct dl_ev_gpu_link ev = {
		.h = { .size = sizeof(ev), .kind = DL_EV_GPU_LINK, .ts = AT(2), .tid = TRAINER, .pid = TRAINER, .cpu = DL_CPU_NONE },
		.device = UINT32_MAX, .flags = DL_GL_NVML, .numa_node = -1,
	};
	struct dl_report *r;

	synth_event_text(s, &ev.h, "GPU Y");
	at.flags &= ~(uint32_t)DL_GS_PROC_MEM;
	at.proc_used = 0;
	synth_event(s, &at.h);
	r = job_report(s, NULL);
	CHECK_EQ(r->gpus.cnt, 1);
	CHECK_EQ(r->gpus.v[0].device, -1);
	CHECK_EQ(r->gpus.v[0].pid, TRAINER);
	CHECK(r->gpus.v[0].has_mem);
	CHECK(!r->gpus.v[0].has_proc);
	dl_report_free(r);
}

/* --- whatever was copied ------------------------------------------------------------------------- */

static void random_copies(struct synth *s, uint64_t *ret_bytes, uint64_t *ret_cnt)
{
	uint64_t t = AT(5);

	for (uint32_t i = 1; i <= 200; i++) {
		const uint64_t len = rnd(MS(2)), bytes = rnd(3) ? rnd(1 << 24) : rnd(4096);
		static const uint16_t dirs[] = { DL_GPU_HTOD, DL_GPU_DTOH, DL_GPU_DTOD, DL_GPU_HTOA, DL_GPU_PTOP, 77 };

		t += rnd(MS(1));
		if (rnd(4))
			synth_api(s, t, t + rnd(MS(3)), rnd(3) ? TRAINER : 0, TRAINER, i, DL_CALL_COPY, "copy");
		if (rnd(3)) {
			synth_memcpy(s, t, t + len, TRAINER, rnd(3), rnd(4), rnd(5) ? i : rnd(i), dirs[rnd(6)], (uint16_t)rnd(7), bytes);
			*ret_bytes += bytes;
			++*ret_cnt;
		} else {
			synth_kernel(s, t, t + len, TRAINER, rnd(3), rnd(4), i, "k");
		}
	}
	synth_run(s, 0, TRAINER, TRAINER, AT(6), AT(6) + rnd(MS(100)) + 1, SYNTH_SLEEP, ON_RESULTS);
}

TEST(random_copies_add_up)
{
	for (uint64_t seed = 1; seed <= 200; seed++) {
		uint64_t bytes = 0, cnt = 0, row_bytes = 0, row_cnt = 0;
		struct synth *s = job_new();
		struct dl_report *r;

		rng_state = seed * 2654435761u;
		random_copies(s, &bytes, &cnt);
		if (rnd(2))
			plan_link(s, rnd(256));
		r = job_report(s, NULL);
		vec_for_each(&r->copies, row) {
			row_bytes += row->bytes;
			row_cnt += row->cnt;
			CHECK(row->overlap_ns <= row->ns);
			CHECK(row->cpu_ns <= row->call_ns);
			CHECK(row->thread_cnt <= row->called_cnt && row->called_cnt <= row->cnt);
			CHECK(row->small_cnt <= row->cnt);
		}
		CHECK_EQ(row_bytes, bytes);
		CHECK_EQ(row_cnt, cnt);
		vec_for_each(&r->copy_devices, c) {
			CHECK(c->overlap_ns <= c->ns && c->ns <= c->cost_ns);
			CHECK(c->small_ns <= c->cost_ns && c->pageable_ns + c->unknown_ns <= c->cost_ns);
			CHECK(c->near_ns <= c->cpu_ns);
			CHECK(c->problem != DL_COPY_NONE && c->share >= 0 && c->share <= 1);
		}
		dl_report_free(r);
	}
}
