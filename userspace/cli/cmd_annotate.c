/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* dlbpf annotate: why the GPU was idle, in the user's own profiler trace. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/cmd.h"
#include "cli/gputrace.h"
#include "cli/term.h"
#include "diagnose/diagnose.h"
#include "import/import.h"
#include "render/tracks.h"
#include "trace/trace.h"

#define GAPS_DEFAULT 20000

struct annotate_opts {
	const char *output;
	uint64_t gaps;
};

#define OFF(member) .off = offsetof(struct annotate_opts, member)

static const struct dl_opt options[] = {
	{ .name = "output", .short_name = 'o', .metavar = "OUT", .kind = DL_OPT_STR, OFF(output),
	  .help = "write the annotated trace there; gzipped when the name ends in .gz. Must not exist" },
	{ .name = "gaps", .short_name = 'n', .metavar = "N", .kind = DL_OPT_U64, OFF(gaps), .min = 1, .max = 1000000,
	  .help = "the N longest gaps (default 20000)" },
	{ }
};

const struct dl_cmd dl_cmd_annotate = {
	.name = "annotate",
	.args = "TRACE.json [FILE]",
	.summary = "Write the causes of idle time into a trace of PyTorch's profiler",
	.about = "Copies a Chrome JSON trace of PyTorch's profiler (Kineto) and adds tracks to it, on its own clock: for "
		 "each GPU its gaps by their main cause, and the chain of steps that leads to each. Everything else stays as "
		 "it is, for the viewer that shows the trace already (Perfetto, chrome://tracing).\n"
		 "FILE is a recording of the same run by dlbpf record; without one only what the profiler's own spans say "
		 "is known.",
	.examples = "dlbpf annotate run.pt.trace.json.gz run.dlbpf -o why.json.gz",
	.opts = options,
	.fn = cmd_annotate,
};

static void report_free_p(struct dl_report **r)
{
	dl_report_free(*r);
}

static void trace_close_p(struct dl_trace **t)
{
	dl_trace_close(*t);
}

static void import_free_p(struct dl_import **imp)
{
	dl_import_free(*imp);
}

static int make_tracks(const char *path, const char *run, uint32_t gaps, struct dl_str *out, size_t *ret_cnt,
		       struct dl_diag *d)
{
	_cleanup_(trace_close_p) struct dl_trace *t = NULL;
	_cleanup_(report_free_p) struct dl_report *r = NULL;
	_cleanup_(import_free_p) struct dl_import *imp = NULL;
	const struct dl_diagnose_opts how = { .worst_cnt = gaps };
	int err = dl_gputrace_open(path, run, &t, &imp, d);

	if (err)
		return err;
	if (dl_import_info(imp)->format != DL_IMPORT_KINETO)
		return dl_fail(d, -EINVAL, "%s is no Kineto trace: nothing can be written into it", path);
	if (dl_import_info(imp)->cut)
		return dl_fail(d, -EBADMSG, "%s\nTracks can only be added to a whole file", dl_import_info(imp)->cut);
	err = dl_diagnose(&r, t, &how, d);
	if (err)
		return err;
	*ret_cnt = r->worst.cnt;
	return dl_render_tracks(r, dl_import_offset(imp) - dl_import_info(imp)->base_ns, out) ? dl_oom(d) : 0;
}

static int write_out(const char *path, const char *more, const char *out, struct dl_diag *d)
{
	size_t len = strlen(out);
	int fd = open(out, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644), err;

	if (fd < 0)
		return dl_fail_errno(d, -errno, "cannot write %s", out);
	err = dl_annotate_copy(path, more, fd, len > 3 && !strcmp(out + len - 3, ".gz"), d);
	if (err)
		unlink(out);
	return err;
}

int cmd_annotate(int argc, char **argv)
{
	struct annotate_opts o = { .gaps = GAPS_DEFAULT };
	struct dl_str more = {};
	struct dl_diag d = {};
	size_t cnt = 0;
	int first, err;

	if (!dl_opts_begin(&dl_cmd_annotate, argc, argv, &o, &first, &err))
		return err;
	if (argc - first < 1 || argc - first > 2)
		return dl_usage_error(&dl_cmd_annotate, argc > first ? "one trace and one recording" : "which TRACE.json?");
	if (!o.output)
		return dl_usage_error(&dl_cmd_annotate, "where to? Name a file with -o OUT");
	err = make_tracks(argv[first], argc - first > 1 ? argv[first + 1] : NULL, (uint32_t)o.gaps, &more, &cnt, &d);
	if (!err)
		err = write_out(argv[first], more.s ? more.s : "", o.output, &d);
	dl_str_fini(&more);
	if (err)
		return dl_cli_failed(err, &d);
	printf("%s: %zu gaps with their causes\n", o.output, cnt);
	return DL_EXIT_OK;
}
