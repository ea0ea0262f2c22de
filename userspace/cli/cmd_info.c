/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* dlbpf info: what a recording holds. */
#include <stdlib.h>

#include "base/cleanup.h"
#include "cli/cmd.h"
#include "cli/term.h"
#include "render/info.h"
#include "render/text.h"
#include "trace/trace.h"

struct info_opts {
	bool json, schema;
	int color;
};

#define OFF(member) .off = offsetof(struct info_opts, member)

static const struct dl_opt options[] = {
	{ .name = "json", .short_name = 'j', .kind = DL_OPT_FLAG, OFF(json),
	  .help = "print JSON for machines, as in info.schema.json" },
	{ .name = "schema", .kind = DL_OPT_FLAG, OFF(schema),
	  .help = "print every kind of event with its fields, and read no file" },
	{ .name = "color", .metavar = "WHEN", .kind = DL_OPT_CHOICE, OFF(color),
	  .choices = dl_color_choices, .help = "colours: auto (on a terminal), always or never" },
	{ }
};

const struct dl_cmd dl_cmd_info = {
	.name = "info",
	.args = "[FILE]",
	.summary = "Say what a recording holds",
	.about = "Says what a recording holds: when, where and of what it was made, whether it is whole, which "
		 "sources it has and which it lacks and why, events by kind, losses, processes. FILE is "
		 DL_DEFAULT_TRACE " unless named.",
	.examples = "dlbpf info run.dlbpf\n"
		    "dlbpf info --schema\twhat are the events and their fields?",
	.opts = options,
	.fn = cmd_info,
};

static void trace_close_p(struct dl_trace **t)
{
	dl_trace_close(*t);
}

static void info_free_p(struct dl_info **info)
{
	dl_info_free(*info);
}

int cmd_info(int argc, char **argv)
{
	_cleanup_(trace_close_p) struct dl_trace *t = NULL;
	_cleanup_(info_free_p) struct dl_info *info = NULL;
	struct info_opts o = {};
	struct dl_text_opts text;
	struct dl_diag d = {};
	const char *path;
	int first, err;

	if (!dl_opts_begin(&dl_cmd_info, argc, argv, &o, &first, &err))
		return err;
	dl_cli_text_opts(&text, (enum dl_color)o.color);
	if (o.schema) {
		err = o.json ? dl_schema_json(stdout, &d) : dl_schema_text(&text, stdout, &d);
		return err ? dl_cli_failed(err, &d) : DL_EXIT_OK;
	}
	err = dl_cli_trace_open(&dl_cmd_info, argc, argv, first, &t, &path);
	if (err)
		return err;
	err = dl_info_collect(&info, t, path, &d);
	if (!err)
		err = o.json ? dl_info_json(info, stdout, &d) : dl_info_text(info, &text, stdout, &d);
	return err ? dl_cli_failed(err, &d) : DL_EXIT_OK;
}
