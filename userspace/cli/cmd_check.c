/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* dlbpf check: options, Ctrl-C, the exit code. The work is in check/. */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "capture/invoker.h"
#include "capture/proc.h"
#include "check/check.h"
#include "cli/cmd.h"
#include "cli/term.h"
#include "render/text.h"

enum { WIDTH_MAX = 100 };

struct check_opts {
	uint64_t pid, watch_ns, workers, prefetch, batch_bytes;
	const char *data;
	int color;
	bool json, quiet, strict, as_root;
};

#define OFF(member) .off = offsetof(struct check_opts, member)

static const struct dl_opt options[] = {
	{ .name = "pid", .short_name = 'p', .metavar = "PID", .kind = DL_OPT_U64, OFF(pid), .min = 1, .max = UINT32_MAX,
	  .help = "look at this running job, its workers and its limits, for some seconds and without touching it" },
	{ .name = "seconds", .short_name = 's', .metavar = "TIME", .kind = DL_OPT_DURATION, OFF(watch_ns), .min = 1,
	  .help = "watch for this long at most (default: until enough was seen, 10 s with -p, 60 s with CMD)" },
	{ .name = "data", .short_name = 'd', .metavar = "DIR", .kind = DL_OPT_STR, OFF(data),
	  .help = "folder or file of the data set: its file system, and how fast a read of one second is" },
	{ .name = "workers", .short_name = 'w', .metavar = "N", .kind = DL_OPT_U64, OFF(workers), .min = 1, .max = 100000,
	  .help = "num_workers, of all loaders and trainers here together (default: as seen)" },
	{ .name = "prefetch", .metavar = "N", .kind = DL_OPT_U64, OFF(prefetch), .min = 1, .max = 100000,
	  .help = "prefetch_factor (default: 2, as PyTorch has it)" },
	{ .name = "batch-bytes", .short_name = 'b', .metavar = "SIZE", .kind = DL_OPT_SIZE, OFF(batch_bytes), .min = 1,
	  .help = "memory of one batch: 20M (default: as seen)" },
	{ .name = "strict", .kind = DL_OPT_FLAG, OFF(strict), .help = "exit with 1 for warnings too" },
	{ .name = "json", .short_name = 'j', .kind = DL_OPT_FLAG, OFF(json),
	  .help = "print JSON for machines, as in check.schema.json" },
	{ .name = "quiet", .short_name = 'q', .kind = DL_OPT_FLAG, OFF(quiet), .help = "print problems and warnings only" },
	{ .name = "as-root", .kind = DL_OPT_FLAG, OFF(as_root),
	  .help = "run CMD as root in root's environment, not as the user who called sudo" },
	{ .name = "color", .metavar = "WHEN", .kind = DL_OPT_CHOICE, OFF(color), .choices = dl_color_choices,
	  .help = "colours: auto (on a terminal), always or never" },
	{ }
};

const struct dl_cmd dl_cmd_check = {
	.name = "check",
	.args = "[-p PID | [--] CMD [ARG]...]",
	.summary = "Say whether a training can run well here, before or while it runs",
	.about = "Looks at what a training job would meet on this machine: CPUs that it may really use, memory limits of all "
		 "cgroup levels, /dev/shm against what workers and prefetched batches need, limits of files, mappings and "
		 "processes, swap, the data's file system and its rate, GPU links, who might kill it; and whether dlbpf itself "
		 "can record here. Each line is ok, a warning, a problem, or unknown, with the reason and what to type.\n"
		 "With -p PID a running job is watched from outside: how many workers it has, how large its batches are. "
		 "CMD is run for that, with its output on standard error, and is ended again, with all that it started, once its "
		 "first batches were seen; what its first steps write stays written.\n"
		 "Works as any user; what cannot be seen without root is said to be unknown. The exit code is 0 when there is no "
		 "problem, 1 when there is one, also when CMD could not be run, and 2 for a wrong command line.",
	.examples = "dlbpf check --workers 8 --batch-bytes 150M --data /data/imagenet\tbefore anything runs\n"
		    "sudo dlbpf check -p 4300\tof a running job\n"
		    "sudo dlbpf check -- python train.py\tof its first batches\n"
		    "dlbpf check -q --strict || exit 1\tin a script that starts jobs",
	.opts = options,
	.opts_first = true,
	.fn = cmd_check,
};

static void invoker_fini_p(struct dl_invoker *inv)
{
	dl_invoker_fini(inv);
}

static void check_free_p(struct dl_check **c)
{
	dl_check_free(*c);
}

/* --- Ctrl-C: what was seen until then is still told, and the command ended -------------------------- */

static volatile sig_atomic_t interrupted;

static void on_signal(int sig)
{
	interrupted = sig;
}

static bool stopped(void)
{
	return interrupted != 0;
}

static void catch_signals(void)
{
	static const int sigs[] = { SIGINT, SIGTERM, SIGHUP };
	struct sigaction sa = { .sa_handler = on_signal };

	sigemptyset(&sa.sa_mask);
	for (size_t i = 0; i < ARRAY_SIZE(sigs); i++)
		sigaction(sigs[i], &sa, NULL);
}

static void say(const char *text)
{
	fprintf(stderr, "dlbpf: %s\n", text);
}

/* The process that is asked may have another working folder. */
static char *absolute(const char *path)
{
	char cwd[PATH_MAX], *full = NULL;

	if (path[0] == '/' || !getcwd(cwd, sizeof(cwd)))
		return strdup(path);
	return asprintf(&full, "%s/%s", cwd, path) < 0 ? NULL : full;
}

static int print(const struct dl_check *c, const struct check_opts *o, struct dl_diag *d)
{
	struct dl_text_opts text;

	if (o->json)
		return dl_check_json(c, stdout, d);
	dl_cli_text_opts(&text, (enum dl_color)o->color);
	if (text.width > WIDTH_MAX)
		text.width = WIDTH_MAX;
	return dl_check_text(c, &text, o->quiet, stdout, d);
}

int cmd_check(int argc, char **argv)
{
	_cleanup_(invoker_fini_p) struct dl_invoker inv = {};
	_cleanup_(check_free_p) struct dl_check *c = NULL;
	_cleanup_free_ char *data = NULL;
	struct check_opts o = {};
	struct dl_diag d = {};
	bool exec = false;
	int first, err;

	if (!dl_opts_begin(&dl_cmd_check, argc, argv, &o, &first, &err))
		return err;
	if (first < argc && o.pid)
		return dl_usage_error(&dl_cmd_check, "give either -p PID or a command, not both");
	if (o.pid && dl_proc_check_target((uint32_t)o.pid, &d))
		return dl_error("%s", d.msg);
	if (o.data && !(data = absolute(o.data)))
		return dl_error("out of memory");
	if (dl_invoker_find(&inv, o.as_root, &d))
		return dl_error("%s", d.msg);
	catch_signals();

	const struct dl_ck_opts co = {
		.pid = (uint32_t)o.pid, .argv = first < argc ? argv + first : NULL, .invoker = &inv, .watch_ns = o.watch_ns,
		.data = data, .workers = (uint32_t)o.workers, .prefetch = (uint32_t)o.prefetch, .batch_bytes = o.batch_bytes,
		.stopped = stopped, .on_note = o.quiet ? NULL : say,
	};

	err = dl_check_run(&c, &co, &exec, &d);
	if (!err)
		err = print(c, &o, &d);
	if (err)
		return dl_cli_failed(err, &d);
	return c->cnt[DL_CK_PROBLEM] || (o.strict && c->cnt[DL_CK_WARNING]) ? DL_EXIT_FAILURE : DL_EXIT_OK;
}
