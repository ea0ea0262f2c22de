/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Kineto traces: numbers without loss, damage with its place, and the clock and ids of a run of ours. */
#include "import/import.h"
#include "import/json.h"
#include "import/spill.h"
#include "unit/trace_util.h"

#define BASE 1712275200000000000LL
#define REAL_OFFSET 1712000000000000000LL	/* CLOCK_REALTIME - CLOCK_MONOTONIC of the run */

static const char *file_with(const char *text)
{
	const char *path = test_path("t.json");
	FILE *f = fopen(path, "w");

	CHECK(f && fputs(text, f) >= 0 && !fclose(f));
	return path;
}

static const char good[] =
	"{\"schemaVersion\": 1, \"traceEvents\": [\n"
	"{\"ph\":\"X\",\"cat\":\"cuda_runtime\",\"name\":\"cudaLaunchKernel\",\"pid\":77,\"tid\":78,\"ts\":275300000000000.001,\"dur\":5.25,"
	"\"args\":{\"correlation\":9,\"cbid\":211}},\n"
	"{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"k\\u00e9\\ud83d\\ude00\",\"pid\":0,\"tid\":7,\"ts\":275300000000010.5,\"dur\":2.125,"
	"\"args\":{\"device\":0,\"stream\":7,\"correlation\":9,\"est\":NaN,\"deep\":[[[{}]]]}}\n"
	"], \"baseTimeNanoseconds\": 1712275200000000000}\n";

TEST(json_numbers_are_exact)
{
	static const struct { const char *text; int64_t ns; bool ok; } cases[] = {
		{ "1623142623460111", 1623142623460111000, true }, { "1.5", 1500, true }, { "0.001", 1, true },
		{ "9007199254740993.125", 9007199254740993125, true }, { "-3.0625", -3062, true }, { "1e3", 1000000, true },
		{ "1e-05", 0, true }, { "9999999999999999999", 0, false }, { "12a", 0, false }, { "", 0, false },
		{ "1e18", 0, false },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		int64_t ns = 0;

		CHECK_EQ(dl_json_milli(cases[i].text, &ns), cases[i].ok);
		CHECK_EQ(ns, cases[i].ok ? cases[i].ns : 0);
	}
}

/* -1 it was taken, else the byte that the message names. */
static long long wrong_at(const char *text)
{
	struct dl_diag d = { "" };
	struct dl_stream in;
	struct dl_json j;
	const char *at;
	int tok;

	CHECK(!dl_stream_open(&in, file_with(text), &d));
	dl_json_begin(&j, &in, &d);
	while ((tok = dl_json_next(&j)) > 0)
		;
	dl_stream_close(&in);
	at = strstr(d.msg, "byte ");
	return tok ? (at ? atoll(at + 5) : -2) : -1;
}

TEST(json_damage_has_a_place)
{
	CHECK_EQ(wrong_at("{\"a\": [1, 2, {\"b\": null}], \"a\": \"\\\"\"}"), -1);
	CHECK_EQ(wrong_at("[NaN, -Infinity, 1.5e9]"), -1);
	CHECK_EQ(wrong_at("[1 2]"), 3);
	CHECK_EQ(wrong_at("[1,]"), 3);
	CHECK_EQ(wrong_at("{\"a\" 1}"), 5);
	CHECK_EQ(wrong_at("{\"a\": \"x"), 8);
	CHECK_EQ(wrong_at("[1}"), 2);
	CHECK_EQ(wrong_at("[\"\\q\"]"), 3);
	CHECK_EQ(wrong_at("[01]"), 1);
	CHECK_EQ(wrong_at("[] []"), 3);
	CHECK_EQ(wrong_at(""), 0);
}

TEST(json_depth_is_bounded)
{
	char *deep = malloc(20000);

	CHECK(deep != NULL);
	memset(deep, '[', 200);
	memset(deep + 200, ']', 200);
	deep[400] = 0;
	CHECK_EQ(wrong_at(deep), -1);
	memset(deep, '[', 10000);
	deep[10000] = 0;
	CHECK_EQ(wrong_at(deep), 1024);
	free(deep);
}

TEST(spill_sorts_what_does_not_fit)
{
	struct dl_spill *s = dl_spill_new(4096);
	struct dl_ev_span ev = { .h = { .kind = DL_EV_SPAN, .size = sizeof(ev) } };
	const struct dl_hdr *got;
	uint64_t last = 0;
	int cnt = 0;

	CHECK(s != NULL);
	rng_seed(3);
	for (uint32_t i = 0; i < 5000; i++) {
		ev.h.ts = rng() % 1000;
		ev.name = i;
		CHECK(!dl_spill_add(s, &ev.h, NULL));
	}
	for (int again = 0; again < 2; again++) {
		uint32_t name = 0;

		CHECK(!dl_spill_rewind(s, NULL));
		for (last = 0, cnt = 0; dl_spill_next(s, &got, NULL) == 1; cnt++) {
			uint32_t n = ((const struct dl_ev_span *)got)->name;

			CHECK(got->ts > last || (got->ts == last && (!cnt || n > name)));
			last = got->ts;
			name = n;
		}
		CHECK_EQ(cnt, 5000);
	}
	dl_spill_free(s);
}

static struct dl_import *import(const char *path)
{
	struct dl_import *imp = NULL;
	struct dl_diag d = { "" };

	if (dl_import_read(&imp, path, &d))
		test_fail(__FILE__, __LINE__, "%s", d.msg);
	return imp;
}

TEST(import_times_are_those_of_the_file)
{
	struct dl_import *imp = import(file_with(good));
	const struct dl_import_info *info = dl_import_info(imp);

	CHECK_EQ(info->kernels, 1);
	CHECK_EQ(info->calls, 1);
	CHECK_EQ(info->pid, 77);
	CHECK_EQ(info->first_ns, BASE + 275300000000000001LL);
	CHECK_EQ(info->last_ns, BASE + 275300000000012625LL);
	CHECK(!info->cut);
	dl_import_free(imp);
}

TEST(import_of_a_killed_profiler)
{
	char text[sizeof(good)];
	struct dl_import *imp;

	strcpy(text, good);
	*strstr(text, "], \"base") = 0;
	imp = import(file_with(text));
	CHECK_EQ(dl_import_info(imp)->kernels, 1);
	CHECK(strstr(dl_import_info(imp)->cut, "the text ends here") != NULL);
	dl_import_free(imp);
}

/* A run whose process 5077 is 77 in its container. */
static const char *make_run(uint64_t start, uint32_t nspid)
{
	const struct dl_trace_meta meta = { .start_ts = start, .start_realtime_ns = start + (uint64_t)REAL_OFFSET };
	struct dl_ev_task t = { .h = { .kind = DL_EV_TASK, .size = sizeof(t), .ts = start, .pid = 5077, .tid = 5078 },
				.nspid = nspid, .nstid = 78 };
	struct dl_ev_mark m = { .h = { .kind = DL_EV_MARK, .size = sizeof(m), .ts = start + 60000000000ULL },
				.what = DL_MARK_STOP };
	struct dl_ev_gpu_kernel own = { .h = { .kind = DL_EV_GPU_KERNEL, .size = sizeof(own), .ts = start, .pid = 5077 } };
	const char *path = test_path("run.dlbpf");
	struct dl_trace_writer *w;

	CHECK(!dl_trace_writer_open(&w, open(path, O_RDWR | O_CREAT | O_TRUNC, 0600), &meta, NULL, NULL));
	CHECK(!dl_trace_write(w, &t.h) && !dl_trace_write(w, &own.h) && !dl_trace_write(w, &m.h));
	CHECK(!dl_trace_writer_close(w, NULL));
	return path;
}

static int merge(const char *run_path, struct dl_diag *d)
{
	struct dl_import *imp = import(file_with(good));
	struct dl_trace *run;
	int err;

	CHECK(!dl_trace_open(&run, run_path, NULL));
	err = dl_import_merge(imp, run, run_path, open(test_path("out.dlbpf"), O_RDWR | O_CREAT | O_TRUNC, 0600), d);
	dl_trace_close(run);
	dl_import_free(imp);
	return err;
}

static const uint64_t first_mono = (uint64_t)(BASE + 275300000000000001LL - REAL_OFFSET);

TEST(merge_puts_records_on_the_clock_and_ids_of_the_run)
{
	struct dl_diag d = { "" };
	const struct dl_hdr *ev;
	struct dl_trace *t;
	int kernels = 0, calls = 0, tasks = 0;

	CHECK(!merge(make_run(first_mono - 1000000000, 77), &d));
	CHECK(!dl_trace_open(&t, test_path("out.dlbpf"), NULL));
	while (dl_trace_next(t, &ev) == 1) {
		if (ev->kind == DL_EV_GPU_KERNEL) {
			kernels++;	/* the run's own one is gone */
			CHECK_EQ(ev->ts, first_mono + 10499);
			CHECK_EQ(((const struct dl_ev_gpu_kernel *)ev)->end, first_mono + 12624);
			CHECK_EQ(ev->pid, 5077);
		}
		if (ev->kind == DL_EV_GPU_API) {
			calls++;
			CHECK_EQ(ev->tid, 5078);
			CHECK_EQ(ev->pid, 5077);
			CHECK_EQ(((const struct dl_ev_gpu_api *)ev)->end - ev->ts, 5250);
		}
		tasks += ev->kind == DL_EV_TASK;
	}
	dl_trace_close(t);
	CHECK_EQ(kernels, 1);
	CHECK_EQ(calls, 1);
	CHECK_EQ(tasks, 1);
}

TEST(merge_of_another_run_is_refused)
{
	struct dl_diag d = { "" };

	CHECK(merge(make_run(first_mono + 1000000000, 77), &d) < 0);
	CHECK(strstr(d.msg, "do not overlap") != NULL);
	CHECK(merge(make_run(first_mono - 1000000000, 99), &d) < 0);
	CHECK(strstr(d.msg, "no such process") != NULL);
}
