/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The text report: whole pages against tests/golden/report/ (read by a person before they were
 * stored; DLBPF_UPDATE_GOLDEN=1 writes them anew), and what must hold for any report.
 */
#include "test.h"

#include <fcntl.h>

#include "base/diag.h"
#include "render/text.h"
#include "failing_alloc.h"
#include "render_samples.h"

typedef struct dl_report *(*sample_fn)(void);

static const struct { const char *name; sample_fn make; } samples[] = {
	{ "decode", sample_decode }, { "no-gpu", sample_no_gpu }, { "healthy", sample_healthy },
	{ "crash", sample_crash }, { "cut", sample_cut }, { "empty", sample_empty },
};

#define SAMPLE_CNT (sizeof(samples) / sizeof(samples[0]))

static char *render(const struct dl_report *r, const struct dl_text_opts *opts)
{
	struct dl_diag d = {};
	char *text = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&text, &len);

	CHECK(out);
	CHECK_OK(dl_render_text(r, opts, out, &d));
	fclose(out);
	return text;
}

static char *render_sample(size_t i, struct dl_text_opts opts)
{
	struct dl_report *r = samples[i].make();
	char *text = render(r, &opts);

	dl_report_free(r);
	return text;
}

static char *read_file(const char *path)
{
	char *text = NULL;
	size_t len = 0, got;
	FILE *f = fopen(path, "r");
	char buf[4096];

	if (!f)
		return NULL;
	while ((got = fread(buf, 1, sizeof(buf), f)) > 0) {
		text = realloc(text, len + got + 1);
		CHECK(text);
		memcpy(text + len, buf, got);
		len += got;
		text[len] = '\0';
	}
	fclose(f);
	return text;
}

static void write_file(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	CHECK_MSG(f, "%s", path);
	CHECK(fputs(text, f) >= 0);
	CHECK(!fclose(f));
}

/* Says where the first difference is. */
static void compare(const char *path, const char *got, const char *want)
{
	const char *g = got, *w = want;
	int line = 1;

	for (; *g && *g == *w; g++, w++)
		line += *g == '\n';
	if (*g == *w)
		return;
	while (g > got && g[-1] != '\n') {
		g--;
		w--;
	}
	FAIL("%s:%d: \"%.*s\", not \"%.*s\"", path, line, (int)strcspn(g, "\n"), g, (int)strcspn(w, "\n"), w);
}

static void check_golden(const char *name, char *got)
{
	char path[256];
	char *want;

	snprintf(path, sizeof(path), "tests/golden/report/%s.txt", name);
	if (getenv("DLBPF_UPDATE_GOLDEN"))
		write_file(path, got);
	want = read_file(path);
	CHECK_MSG(want, "%s is missing (run from the root of the tree)", path);
	compare(path, got, want);
	free(want);
	free(got);
}

TEST(pages)
{
	for (size_t i = 0; i < SAMPLE_CNT; i++)
		check_golden(samples[i].name, render_sample(i, (struct dl_text_opts){ .utf8 = true }));
}

TEST(pages_ascii_narrow)
{
	check_golden("decode-ascii-72", render_sample(0, (struct dl_text_opts){ .width = 72 }));
}

TEST(pages_brief)
{
	for (size_t i = 0; i < SAMPLE_CNT; i++) {
		char name[64];

		snprintf(name, sizeof(name), "brief-%s", samples[i].name);
		check_golden(name, render_sample(i, (struct dl_text_opts){ .brief = true }));
	}
}

TEST(verdict_comes_first)
{
	static const char *const first[] = {
		"VERDICT: decode, 82 % of the GPU's idle time\n",
		"VERDICT: storage, 93 % of the waiting for batches\n",
		"VERDICT: nothing holds the GPU up\n",
		"CRASH: shm-full\n",
		"VERDICT: decode, ",
		"VERDICT: none\n",
	};

	for (size_t i = 0; i < SAMPLE_CNT; i++) {
		char *text = render_sample(i, (struct dl_text_opts){});

		CHECK_MSG(!strncmp(text, first[i], strlen(first[i])), "%s: %.80s", samples[i].name, text);
		free(text);
	}
}

TEST(no_color_without_escapes_and_the_same_text_with_them)
{
	for (size_t i = 0; i < SAMPLE_CNT; i++) {
		char *plain = render_sample(i, (struct dl_text_opts){});
		char *color = render_sample(i, (struct dl_text_opts){ .color = true });
		char *to = color;

		CHECK(!strchr(plain, '\033'));
		CHECK(strchr(color, '\033'));
		for (const char *p = color; *p; p++) {
			if (*p == '\033')
				p += strcspn(p, "m");
			else
				*to++ = *p;
		}
		*to = '\0';
		compare(samples[i].name, color, plain);
		free(plain);
		free(color);
	}
}

TEST(ascii_only_without_utf8)
{
	for (size_t i = 0; i < SAMPLE_CNT; i++) {
		struct dl_report *r = samples[i].make();
		const struct dl_text_opts opts = {};
		char *text;

		free(r->host);
		r->host = strdup("h\xc3\xb6st \xe2\x80\x93 \xe6\x97\xa5");
		text = render(r, &opts);
		for (const char *p = text; *p; p++)
			CHECK_MSG((signed char)*p > 0, "byte %zu of %s", (size_t)(p - text), samples[i].name);
		free(text);
		dl_report_free(r);
	}
}

TEST(hostile_names_reach_no_terminal)
{
	static const char evil[] = "\033[2J\a\r\n\x9b" "31m\xff\xc2\x9b\xe2\x80\xae" "evil";
	struct dl_report *r = sample_crash();
	const struct dl_text_opts opts = { .utf8 = true };
	char **const texts[] = { &r->path, &r->gpu_source, &r->gpu_hint, &r->host, &r->kernel,
				 &r->target_cmdline, &r->crash->text, &r->crash->cause,
				 &r->verdict.text, &r->verdict.actions.v[0], &r->procs.v[3].name,
				 &r->waits.causes[DL_CAUSE_STORAGE].detail, &r->worst.v[0].steps.v[0].text };
	char *text;

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		free(*texts[i]);
		*texts[i] = strdup(evil);
	}
	r->procs.v[3].role = DL_ROLE_HELPER;	/* is called by its name */
	text = render(r, &opts);
	CHECK_HAS(text, "evil");
	for (const unsigned char *p = (unsigned char *)text; *p; p++) {
		CHECK(*p >= ' ' || *p == '\n');
		CHECK(*p != 0x7f && *p != 0xff);
		CHECK(!(p[0] == 0xc2 && p[1] < 0xa0));			/* C1 controls */
		CHECK(!(p[0] == 0xe2 && p[1] == 0x80 && p[2] == 0xae));	/* right-to-left override */
	}
	free(text);
	dl_report_free(r);
}

TEST(paragraphs_keep_to_the_width)
{
	for (size_t i = 0; i < SAMPLE_CNT; i++) {
		/* brief: it has no tables, which may be wider */
		char *text = render_sample(i, (struct dl_text_opts){ .width = 60, .brief = true });

		for (char *line = text, *end; *line; line = end + 1) {
			end = strchr(line, '\n');
			CHECK(end);
			CHECK_MSG(end - line <= 60 || !memchr(line + 5, ' ', (size_t)(end - line) - 5),
				  "%.*s", (int)(end - line), line);
		}
		free(text);
	}
}

TEST(no_line_ends_in_blanks)
{
	for (size_t i = 0; i < SAMPLE_CNT; i++) {
		char *text = render_sample(i, (struct dl_text_opts){ .utf8 = true });

		CHECK_MSG(!strstr(text, " \n"), "%s", samples[i].name);
		free(text);
	}
}

TEST(simulated_is_said_in_every_form)
{
	for (int brief = 0; brief < 2; brief++) {
		char *text = render_sample(0, (struct dl_text_opts){ .brief = brief });

		CHECK_HAS(text, "The GPU is SIMULATED");
		free(text);
	}
}

TEST(causes_are_sorted_and_their_shares_are_of_the_idle_time)
{
	struct dl_report *r = sample_base();
	const struct dl_text_opts opts = {};
	struct dl_device_report *dev = PUSH(&r->devices);
	const char *swap, *shm, *none;
	char *text;

	r->has_gpu = true;
	*dev = (struct dl_device_report){ .start = T0, .end = T0 + 100 * SEC, .busy_ns = 60 * SEC,
					  .idle_ns = 40 * SEC, .gap_cnt = 7 };
	sample_charge(dev->causes, DL_CAUSE_SHM, 10 * SEC, 3, NULL);
	sample_charge(dev->causes, DL_CAUSE_SWAP, 30 * SEC, 4, NULL);
	text = render(r, &opts);
	swap = strstr(text, "swap   30.0 s  75.0 %  ###############.....     4\n");
	shm = strstr(text, "shm    10.0 s  25.0 %  #####...............     3\n");
	CHECK_MSG(swap && shm, "%s", text);
	CHECK(swap < shm);
	none = strstr(text, "decode");
	CHECK(!none);
	CHECK_HAS(text, "busy  60.0 s  60.0 %");
	CHECK_HAS(text, "idle  40.0 s  40.0 %");
	free(text);
	dl_report_free(r);
}

TEST(a_gap_is_told_in_the_order_of_time)
{
	struct dl_report *r = sample_decode();
	const struct dl_text_opts opts = {};
	char *text = render(r, &opts), *at = strstr(text, "LONGEST GAPS");
	static const char *const order[] = {
		"12.345 s                           worker 0 (pid 4301)\n",
		"          375 ms  decode          running the data set's code, 2 times\n",
		"         11.0 ms  shm             first touch of shared memory\n",
		"5.00 ms  cpu-contention  ready, while python (pid 4302) ran on its CPU\n",
		"                                  -> woke worker 0's queue feeder\n",
		"12.736 s  10.0 ms  ipc             worker 0's queue feeder (tid 4377): pickling the batch",
		"-> woke trainer\n",
		"12.746 s                           trainer (pid 4242)\n",
		"6.00 ms  pcie            in cudaMemcpyAsync: 147 MiB from pageable memory\n",
		"5.00 ms  host            running\n",
		"12.757 s                           the GPU works again\n",
	};

	for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
		CHECK(at);
		at = strstr(at, order[i]);
		CHECK_MSG(at, "%s", order[i]);
	}
	free(text);
	dl_report_free(r);
}

TEST(steps_of_a_thread_are_added_up)
{
	struct dl_report *r = sample_no_gpu();
	const struct dl_text_opts opts = {};
	struct dl_gap *gap = PUSH(&r->worst);
	char *text;

	*gap = (struct dl_gap){ .start = T0 + 1000 * MS, .end = T0 + 1100 * MS };
	for (uint64_t i = 100; i-- > 0;)	/* latest first */
		sample_step(gap, i, i + 1, i % 4 ? DL_CAUSE_DECODE : DL_CAUSE_IPC, 4301, 4301,
			    DL_ROLE_WORKER, i % 4 ? "computes" : "writes");
	text = render(r, &opts);
	CHECK_HAS(text, "     1.000 s                   worker 0 (pid 4301)\n"
			"              75.0 ms  decode  computes, 75 times\n"
			"              25.0 ms  ipc     writes, 25 times\n"
			"     1.100 s                   the batch is there\n");
	free(text);
	dl_report_free(r);
}

TEST(many_steps_are_cut_down_to_the_longest)
{
	struct dl_report *r = sample_no_gpu();
	const struct dl_text_opts opts = {};
	struct dl_gap *gap = PUSH(&r->worst);
	char *text;

	/* Two threads take turns; every tenth turn takes 11 ms, the others 1 ms. */
	*gap = (struct dl_gap){ .start = T0 + 1000 * MS, .end = T0 + 1200 * MS };
	for (uint64_t i = 100; i-- > 0;) {	/* latest first */
		const uint64_t at = i + i / 10 * 10, len = i % 10 == 9 ? 11 : 1;
		const uint32_t pid = i % 2 ? 4301 : 4302;

		sample_step(gap, at, at + len, i % 2 ? DL_CAUSE_DECODE : DL_CAUSE_IPC, pid, pid,
			    DL_ROLE_WORKER, i % 10 == 9 ? "long" : "short");
	}
	text = render(r, &opts);
	CHECK_HAS(text, "(9 shorter steps)");
	CHECK_HAS(text, "1.009 s  11.0 ms  decode  worker 0 (pid 4301): long\n");
	CHECK_HAS(text, "1.189 s  11.0 ms  decode  worker 0 (pid 4301): long\n");
	free(text);
	dl_report_free(r);
}

TEST(many_processes_end_in_a_count)
{
	struct dl_report *r = sample_no_gpu();
	const struct dl_text_opts opts = {};
	char *text;

	for (int i = 0; i < 200; i++)
		sample_proc(r, 10000 + (uint32_t)i, DL_ROLE_WORKER, i, "python");
	text = render(r, &opts);
	CHECK_HAS(text, "... and 180 more, in --json");
	free(text);
	dl_report_free(r);
}

/* Numbers that no real run has must not overflow anything. */
TEST(extreme_numbers)
{
	struct dl_report *r = sample_cut();
	const struct dl_text_opts opts = { .utf8 = true };
	char *text;

	r->duration_ns = r->events = r->lost = r->damaged_bytes = r->damaged_frames = UINT64_MAX;
	r->start = UINT64_MAX;
	vec_for_each(&r->devices, dev) {
		dev->busy_ns = dev->idle_ns = dev->kernels = dev->gap_cnt = UINT64_MAX;
		dev->start = UINT64_MAX;
		dev->end = 0;
		for (int i = 0; i < DL_CAUSE_CNT; i++)
			dev->causes[i].ns = dev->causes[i].gaps = dev->causes[i].own_tree_ns = UINT64_MAX;
	}
	vec_for_each(&r->procs, p) {
		p->start = UINT64_MAX;
		p->cpu_ns = p->min_flt = p->rss_peak = UINT64_MAX;
		p->index = p->loader = INT32_MAX;
		p->pid = UINT32_MAX;
		p->exited = true;
		p->exit_status = INT32_MIN;
	}
	r->verdict.share = 1e300;
	text = render(r, &opts);
	CHECK_HAS(text, "PROCESSES");
	free(text);
	dl_report_free(r);
}

TEST(a_full_disk_and_a_closed_pipe_are_errors)
{
	struct dl_report *r = sample_decode();
	const struct dl_text_opts opts = {};
	struct dl_diag d = {};
	FILE *full = fopen("/dev/full", "w");
	int ends[2];
	FILE *closed;

	CHECK(full);
	CHECK_EQ(dl_render_text(r, &opts, full, &d), -ENOSPC);
	CHECK_HAS(d.msg, "No space left");
	fclose(full);
	CHECK_OK(pipe2(ends, O_CLOEXEC));
	close(ends[0]);
	closed = fdopen(ends[1], "w");
	CHECK(closed);
	signal(SIGPIPE, SIG_IGN);
	CHECK_EQ(dl_render_text(r, &opts, closed, &d), -EPIPE);
	signal(SIGPIPE, SIG_DFL);
	fclose(closed);
	dl_report_free(r);
}

#if FAILING_ALLOC
/* Wherever memory runs out, the answer is an error and nothing else. */
TEST(no_memory)
{
	struct dl_report *r = sample_crash();
	FILE *out = fopen("/dev/null", "w");
	const struct dl_text_opts opts = { .utf8 = true, .color = true };
	struct dl_diag d = {};
	char buf[BUFSIZ];
	int err = -ENOMEM;

	CHECK(out);
	setvbuf(out, buf, _IOFBF, sizeof(buf));
	for (long n = 0; err; n += 1 + n / 50) {
		alloc_left = n;
		err = dl_render_text(r, &opts, out, &d);
		alloc_left = LONG_MAX;
		CHECK_MSG(!err || err == -ENOMEM, "after %ld allocations: %d", n, err);
	}
	fclose(out);
	dl_report_free(r);
}
#endif

/* A simulated device is none of the machine's: a row without a name or a number is not printed. */
TEST(a_device_without_facts_is_not_listed)
{
	struct dl_report *r = sample_no_gpu();
	struct dl_gpu_report *g = PUSH(&r->gpus);
	char *text;

	g->index = g->device = -1;
	g->numa_node = -1;
	g->pid = 4242;
	text = render(r, &(struct dl_text_opts){});
	CHECK(!strstr(text, "GPU MEMORY"));
	free(text);
	g->mem_total = 1 << 30;
	text = render(r, &(struct dl_text_opts){});
	CHECK_HAS(text, "A GPU of the machine, 1.00 GiB");
	free(text);
	g->simulated = true;
	text = render(r, &(struct dl_text_opts){});
	CHECK_HAS(text, "A simulated GPU, 1.00 GiB");
	CHECK(!strstr(text, "of the machine"));
	free(text);
	dl_report_free(r);
}
