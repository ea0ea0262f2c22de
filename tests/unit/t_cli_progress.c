/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What record tells: the status line and the summary. */
#include "unit/test.h"

#include "capture/recorder.h"
#include "cli/progress.h"

static const struct dl_record_status status = {
	.elapsed_ns = 754 * 1000000000ULL + 999999999, .pid = 7, .processes = 17, .workers = 16, .events = 1234567,
	.events_per_s = 12345, .lost = 6, .file_bytes = 3 << 20, .gpu = "CUPTI 13.0 (simulated)", .gpu_hint = "",
};

TEST(status_line)
{
	char buf[256];

	dl_progress_format(&status, 200, buf, sizeof(buf));
	CHECK_STR(buf, "12:34  17 processes, 16 workers  12,345 events/s  lost 6  3.00 MiB  GPU: CUPTI 13.0 (simulated)");
}

TEST(status_line_of_one)
{
	struct dl_record_status st = { .elapsed_ns = 5000000000, .processes = 1, .workers = 1, .gpu = "none", .gpu_hint = "" };
	char buf[256];

	dl_progress_format(&st, 200, buf, sizeof(buf));
	CHECK_STR(buf, "0:05  1 process, 1 worker  0 events/s  lost 0  0 B  GPU: none");
}

TEST(status_line_of_a_flight_recorder)
{
	struct dl_record_status st = { .elapsed_ns = 65000000000, .processes = 3, .workers = 2, .gpu = "none", .gpu_hint = "",
				       .file_bytes = 1 << 20, .kept_ns = 61500000000, .forecast = "" };
	char buf[256];

	dl_progress_format(&st, 200, buf, sizeof(buf));
	CHECK_STR(buf, "1:05  3 processes, 2 workers  0 events/s  lost 0  1.00 MiB kept of the last 61.5 s  GPU: none");
	/* In front, where a narrow terminal shows it. */
	st.forecast = "shm full in 7 min";
	dl_progress_format(&st, 24, buf, sizeof(buf));
	CHECK_STR(buf, "1:05  shm full in 7 min ");
}

TEST(status_line_on_a_narrow_terminal)
{
	char buf[256];

	dl_progress_format(&status, 20, buf, sizeof(buf));
	CHECK_EQ(strlen(buf), 20);
	CHECK_STR(buf, "12:34  17 processes,");
	dl_progress_format(&status, 500, buf, 30);	/* and in a small buffer */
	CHECK_EQ(strlen(buf), 29);
}

static const char *summary(const struct dl_record_result *res, const char *why)
{
	static char *text;
	size_t len;
	FILE *f;

	free(text);
	f = open_memstream(&text, &len);
	CHECK(f);
	dl_progress_summary(f, "run.dlbpf", res, why);
	fclose(f);
	return text;
}

TEST(summaries)
{
	struct dl_record_result res = { .elapsed_ns = 12300000000, .processes_seen = 4, .workers_seen = 1, .events = 123456,
					.lost = 0, .file_bytes = 1258291 };

	CHECK_STR(summary(&res, NULL), "dlbpf: recorded 12.3 s of 4 processes (1 worker): 123,456 events, 0 lost, 1.20 MiB in "
		  "run.dlbpf\n");
	res.left_over = 2;
	res.processes_seen = 1;
	CHECK_STR(summary(&res, "stopped at --max-size"), "dlbpf: recorded 12.3 s of 1 process (1 worker): 123,456 events, 0 lost, "
		  "1.20 MiB in run.dlbpf; stopped at --max-size\n"
		  "dlbpf: the target ended and left 2 processes of its tree behind\n");
}
