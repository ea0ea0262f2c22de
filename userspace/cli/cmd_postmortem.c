/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* dlbpf postmortem: what killed the run. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "cli/cmd.h"
#include "cli/term.h"
#include "cli/textfile.h"
#include "diagnose/postmortem.h"
#include "render/postmortem.h"
#include "render/text.h"
#include "trace/trace.h"

struct postmortem_opts {
	bool json;
	int color;
	uint64_t pid;
	const char *log;
};

#define OFF(member) .off = offsetof(struct postmortem_opts, member)

static const struct dl_opt options[] = {
	{ .name = "pid", .short_name = 'p', .metavar = "PID", .kind = DL_OPT_U64, OFF(pid), .min = 1, .max = UINT32_MAX,
	  .help = "ask about this process, by the number in PyTorch's message or by the host's (default: the first "
		  "that died)" },
	{ .name = "log", .metavar = "FILE", .kind = DL_OPT_STR, OFF(log),
	  .help = "what the training printed, - for standard input: each line that tells of a death is explained, and "
		  "held against the facts" },
	{ .name = "json", .short_name = 'j', .kind = DL_OPT_FLAG, OFF(json),
	  .help = "print JSON for machines, as in postmortem.schema.json" },
	{ .name = "color", .metavar = "WHEN", .kind = DL_OPT_CHOICE, OFF(color),
	  .choices = dl_color_choices, .help = "colours: auto (on a terminal), always or never" },
	{ }
};

const struct dl_cmd dl_cmd_postmortem = {
	.name = "postmortem",
	.args = "[FILE]",
	.summary = "Say what killed a run, and what to change",
	.about = "Says what ended a recorded run: which process died first and of what, which number was too small, and "
		 "what to type; then the evidence in order, the memory and limits of every process, what every thread "
		 "was doing, and what the GPU did.\n"
		 "The first event of a crash decides, not the last message: PyTorch's advice to raise the shared memory "
		 "limit comes with every bus error. FILE is " DL_DEFAULT_TRACE " unless named. Needs no privileges.",
	.examples = "dlbpf postmortem run.dlbpf\n"
		    "dlbpf postmortem run.dlbpf --log train.log\tand what do its messages mean?\n"
		    "dlbpf postmortem --json run.dlbpf | jq -r .verdict.death\tfor a script",
	.opts = options,
	.fn = cmd_postmortem,
};

static void trace_close_p(struct dl_trace **t)
{
	dl_trace_close(*t);
}

static void postmortem_free_p(struct dl_postmortem **pm)
{
	dl_postmortem_free(*pm);
}

static int make(struct dl_postmortem **ret, struct dl_trace *t, const char *path, const struct dl_pm_opts *how,
		struct dl_diag *d)
{
	int err = dl_postmortem_trace(ret, t, how, d);

	if (!err && !(*ret)->path) {
		(*ret)->path = strdup(path);
		err = (*ret)->path ? 0 : dl_oom(d);
	}
	return err;
}

int cmd_postmortem(int argc, char **argv)
{
	_cleanup_(postmortem_free_p) struct dl_postmortem *pm = NULL;
	_cleanup_(trace_close_p) struct dl_trace *t = NULL;
	_cleanup_free_ char *log = NULL;
	struct postmortem_opts o = {};
	struct dl_pm_opts how = {};
	struct dl_text_opts text;
	struct dl_diag d = {};
	const char *path;
	int first, err;

	if (!dl_opts_begin(&dl_cmd_postmortem, argc, argv, &o, &first, &err))
		return err;
	err = dl_cli_trace_open(&dl_cmd_postmortem, argc, argv, first, &t, &path);
	if (err)
		return err;
	if (o.log)
		err = dl_text_file(o.log, &log, &how.log_len, &d);
	how.log = log;
	how.pid = (uint32_t)o.pid;
	if (!err)
		err = make(&pm, t, path, &how, &d);
	if (err)
		return dl_cli_failed(err, &d);
	dl_cli_text_opts(&text, (enum dl_color)o.color);
	err = o.json ? dl_render_postmortem_json(pm, stdout, &d) : dl_render_postmortem(pm, &text, stdout, &d);
	return err ? dl_cli_failed(err, &d) : DL_EXIT_OK;
}
