/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* dlbpf import: another tool's GPU trace as a trace of ours. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "capture/invoker.h"
#include "capture/output.h"
#include "cli/cmd.h"
#include "cli/term.h"
#include "import/import.h"

struct import_opts {
	const char *output;
};

#define OFF(member) .off = offsetof(struct import_opts, member)

static const struct dl_opt options[] = {
	{ .name = "output", .short_name = 'o', .metavar = "FILE", .kind = DL_OPT_STR, OFF(output),
	  .help = "write the trace there (default: the name of the imported file, with .dlbpf at the end, here)" },
	{ }
};

const struct dl_cmd dl_cmd_import = {
	.name = "import",
	.args = "FILE",
	.summary = "Turn a GPU trace of PyTorch's profiler or of Nsight Systems into a recording",
	.about = "Reads a trace that another tool has made: Chrome JSON of PyTorch's profiler (Kineto), plain or "
		 "gzipped, or the SQLite export of Nsight Systems (nsys export --type sqlite). Writes its kernels, copies, "
		 "calls and loader's spans as a recording for dlbpf report, info and dump.\n"
		 "What the operating system did is in no such trace: for that, give it to dlbpf report --gpu-trace "
		 "with a recording of the same run.",
	.examples = "dlbpf import worker0.pt.trace.json.gz\n"
		    "dlbpf import profile.sqlite -o profile.dlbpf",
	.opts = options,
	.fn = cmd_import,
};

static void import_free_p(struct dl_import **imp)
{
	dl_import_free(*imp);
}

/* In the folder one works in: the file's own may be somebody else's. */
static char *default_output(const char *path)
{
	static const char *const ends[] = { ".gz", ".json", ".sqlite", ".trace", ".pt" };
	const char *base = strrchr(path, '/');
	char *stem = strdup(base ? base + 1 : path), *out = NULL;

	if (!stem)
		return NULL;
	for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
		size_t len = strlen(stem), end = strlen(ends[i]);

		if (len > end && !strcmp(stem + len - end, ends[i]))
			stem[len - end] = 0;
	}
	if (asprintf(&out, "%s.dlbpf", stem) < 0)
		out = NULL;
	free(stem);
	return out;
}

static void print_summary(const struct dl_import_info *info, const char *out)
{
	char k[32], c[32], a[32], t[32];

	printf("%s: %s %s, %s %s, %s %s in %s (%s)\n", out, dl_fmt_cnt(k, sizeof(k), info->kernels),
	       info->kernels == 1 ? "kernel" : "kernels", dl_fmt_cnt(c, sizeof(c), info->copies),
	       info->copies == 1 ? "copy" : "copies", dl_fmt_cnt(a, sizeof(a), info->calls),
	       info->calls == 1 ? "call" : "calls",
	       dl_fmt_ns(t, sizeof(t), info->last_ns - info->first_ns), info->origin);
	if (info->cut)
		dl_warn("the file is not whole, what lies before its end was taken: %s", info->cut);
	if (info->invalid)
		dl_warn("%" PRIu64 " records without usable times were left out", info->invalid);
}

static int write_out(struct dl_import *imp, const char *out, struct dl_diag *d)
{
	struct dl_invoker inv = {};
	int fd, err = dl_invoker_find(&inv, false, d);

	if (err)
		return err;
	fd = dl_output_open(out, &inv, d);
	err = fd < 0 ? fd : dl_import_write(imp, fd, d);
	if (fd >= 0 && err)
		dl_output_remove(out, &inv);
	dl_invoker_fini(&inv);
	return err;
}

int cmd_import(int argc, char **argv)
{
	_cleanup_(import_free_p) struct dl_import *imp = NULL;
	_cleanup_free_ char *made = NULL;
	struct import_opts o = {};
	struct dl_diag d = {};
	int first, err;

	if (!dl_opts_begin(&dl_cmd_import, argc, argv, &o, &first, &err))
		return err;
	if (argc - first != 1)
		return dl_usage_error(&dl_cmd_import, argc > first ? "one file at a time" : "which FILE?");
	if (!o.output) {
		o.output = made = default_output(argv[first]);
		if (!made)
			return dl_error("out of memory");
	}
	err = dl_import_read(&imp, argv[first], &d);
	if (!err)
		err = write_out(imp, o.output, &d);
	if (err)
		return dl_cli_failed(err, &d);
	print_summary(dl_import_info(imp), o.output);
	return DL_EXIT_OK;
}
