/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* dlbpf postmortem: what killed the run. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "cli/cmd.h"
#include "cli/term.h"
#include "cli/textfile.h"
#include "diagnose/postmortem.h"
#include "forensic/leftovers.h"
#include "render/postmortem.h"
#include "render/text.h"
#include "trace/trace.h"

struct postmortem_opts {
	bool json;
	int color;
	uint64_t pid;
	const char *log, *core, *kernel_log, *cgroup;
};

#define OFF(member) .off = offsetof(struct postmortem_opts, member)

static const struct dl_opt options[] = {
	{ .name = "pid", .short_name = 'p', .metavar = "PID", .kind = DL_OPT_U64, OFF(pid), .min = 1, .max = UINT32_MAX,
	  .help = "ask about this process, by the number in PyTorch's message or by the host's (default: the first "
		  "that died)" },
	{ .name = "log", .metavar = "FILE", .kind = DL_OPT_STR, OFF(log),
	  .help = "what the training printed, - for standard input: each line that tells of a death is explained, and "
		  "held against the facts" },
	{ .name = "core", .metavar = "FILE", .kind = DL_OPT_STR, OFF(core),
	  .group = "Without a recording",
	  .help = "a core file, as the kernel or systemd-coredump (.zst) stored it" },
	{ .name = "kernel-log", .metavar = "FILE", .kind = DL_OPT_STR, OFF(kernel_log),
	  .help = "a saved kernel log: dmesg, /var/log/kern.log, journalctl -k (default: ask this machine's kernel)" },
	{ .name = "cgroup", .metavar = "PATH", .kind = DL_OPT_STR, OFF(cgroup),
	  .help = "the control group that the run was in, as in /proc/PID/cgroup: its counters outlive the run" },
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
	.about = "Says what ended a run: which process died first and of what, which number was too small, and what to "
		 "type; then the evidence in order, the memory and limits of every process, what every thread was doing, "
		 "and what the GPU did. The first event of a crash decides, not the last message: PyTorch's advice to raise "
		 "the shared memory limit comes with every bus error.\n"
		 "FILE is what dlbpf record wrote. Without FILE, and without anything that is read instead, it is "
		 DL_DEFAULT_TRACE ", where there is one. Needs no privileges.\n"
		 "Without a recording it reads what the machine still knows: the kernel's log, counters of control groups, "
		 "files left in /dev/shm, limits, a core file, the training's output; or, with --pid, a run that hangs. "
		 "How sure the answer is, and what a recording would have shown, is said. Root sees most.",
	.examples = "dlbpf postmortem run.dlbpf\n"
		    "dlbpf postmortem run.dlbpf --log train.log\tand what do its messages mean?\n"
		    "sudo dlbpf postmortem --log train.log\tthere was no recording\n"
		    "sudo dlbpf postmortem --pid PID\twhat does this run hang in?\n"
		    "dlbpf postmortem --core core.1234\n"
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

static int from_trace(struct dl_postmortem **ret, const char *path, const struct dl_pm_opts *how, struct dl_diag *d)
{
	_cleanup_(trace_close_p) struct dl_trace *t = NULL;
	int err = dl_trace_open(&t, path, d);

	if (!err)
		err = dl_postmortem_trace(ret, t, how, d);
	if (!err && !(*ret)->path) {
		(*ret)->path = strdup(path);
		err = (*ret)->path ? 0 : dl_oom(d);
	}
	return err;
}

static int from_leftovers(struct dl_postmortem **ret, const struct postmortem_opts *o, const struct dl_pm_opts *how,
			  struct dl_diag *d)
{
	const struct dl_leftover_opts what = {
		.pid = how->pid,
		.core = o->core,
		.kernel_log = o->kernel_log,
		.log = how->log,
		.log_len = how->log_len,
		.cgroup = o->cgroup,
	};

	return dl_postmortem_leftovers(ret, &what, d);
}

/* The recording to read; NULL for the leftovers. */
static int choose(const struct postmortem_opts *o, int argc, char **argv, int first, const char **ret_path)
{
	const bool leftovers = o->core || o->kernel_log || o->cgroup;

	*ret_path = NULL;
	if (argc - first > 0 && leftovers)
		return dl_usage_error(&dl_cmd_postmortem, "--core, --kernel-log and --cgroup are for a run without a recording: "
				      "what is %s?", argv[first]);
	if (argc - first > 0)
		return dl_cli_trace_path(&dl_cmd_postmortem, argc, argv, first, ret_path);
	if (!leftovers && !o->pid && !o->log && !access(DL_DEFAULT_TRACE, F_OK))
		*ret_path = DL_DEFAULT_TRACE;
	return DL_EXIT_OK;
}

int cmd_postmortem(int argc, char **argv)
{
	_cleanup_(postmortem_free_p) struct dl_postmortem *pm = NULL;
	_cleanup_free_ char *log = NULL;
	struct postmortem_opts o = {};
	struct dl_pm_opts how = {};
	struct dl_text_opts text;
	struct dl_diag d = {};
	const char *path;
	int first, err;

	if (!dl_opts_begin(&dl_cmd_postmortem, argc, argv, &o, &first, &err))
		return err;
	err = choose(&o, argc, argv, first, &path);
	if (err)
		return err;
	if (o.log)
		err = dl_text_file(o.log, &log, &how.log_len, &d);
	how.log = log;
	how.pid = (uint32_t)o.pid;
	if (!err)
		err = path ? from_trace(&pm, path, &how, &d) : from_leftovers(&pm, &o, &how, &d);
	if (err)
		return dl_cli_failed(err, &d);
	dl_cli_text_opts(&text, (enum dl_color)o.color);
	err = o.json ? dl_render_postmortem_json(pm, stdout, &d) : dl_render_postmortem(pm, &text, stdout, &d);
	return err ? dl_cli_failed(err, &d) : DL_EXIT_OK;
}
