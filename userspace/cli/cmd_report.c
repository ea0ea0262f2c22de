/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* dlbpf report: why the GPU waited. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "cli/cmd.h"
#include "cli/gputrace.h"
#include "cli/report_brief.h"
#include "cli/term.h"
#include "diagnose/diagnose.h"
#include "render/json.h"
#include "render/text.h"
#include "trace/trace.h"

struct report_opts {
	bool json, no_gpu;
	int color;
	uint64_t worst;
	struct dl_opt_time from, to;
	const char *gpu_trace;
};

#define OFF(member) .off = offsetof(struct report_opts, member)

static const struct dl_opt options[] = {
	{ .name = "json", .short_name = 'j', .kind = DL_OPT_FLAG, OFF(json),
	  .help = "print JSON for machines, as in report.schema.json" },
	{ .name = "from", .metavar = "TIME", .kind = DL_OPT_TIME, OFF(from),
	  .help = "leave out gaps that begin earlier: 90 is 90 s after the start of the recording, "
		  "-10s is 10 s before its end" },
	{ .name = "to", .metavar = "TIME", .kind = DL_OPT_TIME, OFF(to),
	  .help = "leave out gaps that begin later" },
	{ .name = "worst", .short_name = 'n', .metavar = "N", .kind = DL_OPT_U64, OFF(worst), .min = 1,
	  .max = 1000, .help = "show the N longest gaps step by step (default 5)" },
	{ .name = "no-gpu", .kind = DL_OPT_FLAG, OFF(no_gpu),
	  .help = "explain the trainer's waits for batches even where there are GPU data" },
	{ .name = "gpu-trace", .metavar = "TRACE", .kind = DL_OPT_STR, OFF(gpu_trace),
	  .help = "what the GPU did is in TRACE, which PyTorch's profiler (JSON) or Nsight Systems (SQLite) has made of the "
		  "same run; without FILE only TRACE is reported" },
	{ .name = "color", .metavar = "WHEN", .kind = DL_OPT_CHOICE, OFF(color),
	  .choices = dl_color_choices, .help = "colours: auto (on a terminal), always or never" },
	{ }
};

const struct dl_cmd dl_cmd_report = {
	.name = "report",
	.args = "[FILE]",
	.summary = "Say why the GPU waited in a recorded run",
	.about = "Reads what dlbpf record wrote and says why the GPU waited: the main cause and what to do "
		 "about it, then every cause with its time, the longest gaps step by step, batches, processes "
		 "and copies, and what the recording lacks.\n"
		 "Needs no privileges and works on any machine, also on a file whose recorder was killed. "
		 "FILE is " DL_DEFAULT_TRACE " unless named.",
	.examples = "dlbpf report\twhy did the GPU wait?\n"
		    "dlbpf report --from -60s run.dlbpf\tthe last minute only\n"
		    "dlbpf report --json run.dlbpf | jq .verdict\tfor a script",
	.opts = options,
	.fn = cmd_report,
};

/* The recording, or another tool's trace, or both in one. */
static int open_trace(const struct report_opts *o, int argc, char **argv, int first, struct dl_trace **ret,
		      const char **ret_path)
{
	struct dl_diag d = {};
	int err;

	if (!o->gpu_trace)
		return dl_cli_trace_open(&dl_cmd_report, argc, argv, first, ret, ret_path);
	*ret_path = o->gpu_trace;
	if (argc > first) {
		err = dl_cli_trace_path(&dl_cmd_report, argc, argv, first, ret_path);
		if (err)
			return err;
	}
	err = dl_gputrace_open(o->gpu_trace, argc > first ? *ret_path : NULL, ret, NULL, &d);
	return err ? dl_cli_failed(err, &d) : DL_EXIT_OK;
}

static void report_free_p(struct dl_report **r)
{
	dl_report_free(*r);
}

static void trace_close_p(struct dl_trace **t)
{
	dl_trace_close(*t);
}

int cmd_report(int argc, char **argv)
{
	_cleanup_(trace_close_p) struct dl_trace *t = NULL;
	_cleanup_(report_free_p) struct dl_report *r = NULL;
	struct dl_diagnose_opts how = {};
	struct report_opts o = {};
	struct dl_text_opts text;
	struct dl_diag d = {};
	const char *path;
	int first, err;

	if (!dl_opts_begin(&dl_cmd_report, argc, argv, &o, &first, &err))
		return err;
	err = open_trace(&o, argc, argv, first, &t, &path);
	if (err)
		return err;
	err = dl_cli_window(&dl_cmd_report, t, &o.from, &o.to, &how.from_ts, &how.to_ts);
	if (err)
		return err;
	how.worst_cnt = (uint32_t)o.worst;
	how.no_gpu = o.no_gpu;
	err = dl_diagnose(&r, t, &how, &d);
	if (!err && !r->path) {
		r->path = strdup(path);
		err = r->path ? 0 : dl_oom(&d);
	}
	if (err)
		return dl_cli_failed(err, &d);
	dl_cli_text_opts(&text, (enum dl_color)o.color);
	err = o.json ? dl_render_json(r, stdout, &d) : dl_render_text(r, &text, stdout, &d);
	return err ? dl_cli_failed(err, &d) : DL_EXIT_OK;
}

int dlbpf_report_brief(const char *path, FILE *out)
{
	_cleanup_(trace_close_p) struct dl_trace *t = NULL;
	_cleanup_(report_free_p) struct dl_report *r = NULL;
	const struct dl_diagnose_opts how = { .to_ts = UINT64_MAX };
	struct dl_text_opts text;
	struct dl_diag d = {};
	int err;

	err = dl_trace_open(&t, path, &d);
	if (!err)
		err = dl_diagnose(&r, t, &how, &d);
	if (!err && !r->path) {
		r->path = strdup(path);
		err = r->path ? 0 : dl_oom(&d);
	}
	if (err)
		return dl_cli_failed(err, &d);
	dl_cli_text_opts(&text, DL_COLOR_AUTO);
	text.color &= out == stdout;
	text.brief = true;
	err = dl_render_text(r, &text, out, &d);
	return err ? dl_cli_failed(err, &d) : DL_EXIT_OK;
}
