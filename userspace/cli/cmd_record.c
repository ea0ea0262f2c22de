/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* dlbpf record: options, what the user is told, and the exit code. The work is in capture/. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <dlbpf/gpu_ring.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "capture/gpu.h"
#include "capture/invoker.h"
#include "capture/proc.h"
#include "capture/recorder.h"
#include "cli/cmd.h"
#include "cli/progress.h"
#include "cli/record_keep.h"
#include "cli/report_brief.h"
#include "cli/term.h"

#define COLLECTOR "libdlbpf_cupti.so"
#define COLLECTOR_VAR "CUDA_INJECTION64_PATH"

enum {
	EXIT_NOT_RECORDED = 125,	/* with a command: it was not run, as in env(1) and timeout(1) */
	EXIT_CANNOT_RUN = 126,
	EXIT_NOT_FOUND = 127,
};

struct record_opts {
	uint64_t pid, duration_ns, max_sz, sample_hz;
	const char *path;
	int gpu;
	bool no_uprobes, no_syscalls, all_syscalls, user_stacks, quiet, verbose, no_report, as_root, inject;
	struct dl_keep_args keep;
};

#define OFF(member) .off = offsetof(struct record_opts, member)

/* In the order of enum dl_gpu_mode, and one more. */
static const char *const gpu_choices[] = { "off", "light", "std", "full", "uprobes", NULL };
enum { GPU_UPROBES = DL_GPU_MODE_FULL + 1 };

static const struct dl_opt options[] = {
	{ .name = "pid", .short_name = 'p', .metavar = "PID", .kind = DL_OPT_U64, OFF(pid), .min = 1,
	  .max = UINT32_MAX, .help = "record this running process, its children and theirs" },
	{ .name = "output", .short_name = 'o', .metavar = "FILE", .kind = DL_OPT_STR, OFF(path),
	  .help = "write the trace here (default " DL_DEFAULT_TRACE "); an older trace is replaced, any "
		  "other file is not" },
	{ .name = "duration", .short_name = 'd', .metavar = "TIME", .kind = DL_OPT_DURATION,
	  OFF(duration_ns), .help = "stop after this time: 30 (seconds), 500ms, 5m; the target goes on" },
	{ .name = "max-size", .metavar = "SIZE", .kind = DL_OPT_SIZE, OFF(max_sz), .min = 65536,
	  .help = "stop when the file would grow beyond SIZE: 500M, 2G; the target goes on" },
	{ .name = "keep", .metavar = "LIMIT", .kind = DL_OPT_STR, OFF(keep.keep),
	  .help = "flight recorder: keep only the last part, so long or so much of it: 60s, 5m, 500M, or both: "
		  "5m,500M" },
	{ .name = "trigger", .metavar = "LIST", .kind = DL_OPT_STR, OFF(keep.trigger),
	  .help = "with --keep: what else is saved, as FILE-TIME-TRIGGER beside FILE (default "
		  "death,oom,sigbus,gap=60s,stall=60s,signal; none: nothing)" },
	{ .name = "cooldown", .metavar = "TIME", .kind = DL_OPT_DURATION, OFF(keep.cooldown_ns),
	  .help = "with --keep: after a trigger, save no other for this time (default 60s)" },
	{ .name = "on-forecast", .metavar = "TIME", .kind = DL_OPT_DURATION, OFF(keep.forecast_ns),
	  .help = "with --keep: save when shared memory, memory, descriptors or mappings are going to meet their "
		  "limit within TIME: 10m" },
	{ .name = "bundles", .metavar = "N", .kind = DL_OPT_U64, OFF(keep.bundles), .max = 1000000,
	  .help = "with --keep: of each trigger's traces only the last N stay (default 8; 0: all)" },
	{ .name = "sample-hz", .metavar = "N", .kind = DL_OPT_U64, OFF(sample_hz), .max = 10000,
	  .help = "stack samples a second and CPU (default 199); 0 takes none" },
	{ .name = "user-stacks", .kind = DL_OPT_FLAG, OFF(user_stacks),
	  .help = "with each sample keep the user stack as well, by frame pointers: for dump; Python and most "
		  "libraries have none, and the trace grows" },
	{ .name = "gpu", .metavar = "MODE", .kind = DL_OPT_CHOICE, OFF(gpu), .choices = gpu_choices,
	  .help = "what to ask of the GPU: off, light (copies and waits), std (kernels and launches too; "
		  "the default), full (every call); uprobes: std, but never by CUPTI" },
	{ .name = "no-uprobes", .kind = DL_OPT_FLAG, OFF(no_uprobes),
	  .help = "do not probe the CUDA calls of processes without a collector" },
	{ .name = "no-syscalls", .kind = DL_OPT_FLAG, OFF(no_syscalls),
	  .help = "do not watch for system calls that fail for want of something: spares every system call "
		  "of the machine some 80 ns; a death for want of room, descriptors or processes then goes "
		  "unexplained" },
	{ .name = "syscalls", .kind = DL_OPT_FLAG, OFF(all_syscalls),
	  .help = "watch for such system calls even where the machine makes so many calls that it takes more "
		  "than 2 % of its CPUs; without it they are then given up, and the trace says so" },
	{ .name = "inject", .kind = DL_OPT_FLAG, OFF(inject),
	  .help = "load the collector into processes that use CUDA without it: see docs/GPU.md for what "
		  "is refused" },
	{ .name = "no-report", .kind = DL_OPT_FLAG, OFF(no_report),
	  .help = "do not print the first lines of the report at the end" },
	{ .name = "as-root", .kind = DL_OPT_FLAG, OFF(as_root),
	  .help = "run CMD as root in root's environment, not as the user who called sudo" },
	{ .name = "quiet", .short_name = 'q', .kind = DL_OPT_FLAG, OFF(quiet),
	  .help = "print only errors, and no report" },
	{ .name = "verbose", .short_name = 'v', .kind = DL_OPT_FLAG, OFF(verbose),
	  .help = "also print what libbpf says" },
	{ }
};

const struct dl_cmd dl_cmd_record = {
	.name = "record",
	.args = "(-p PID | [--] CMD [ARG]...)",
	.summary = "Record a training process and its DataLoader workers",
	.about = "Records what the kernel and the GPU did for a process and all processes that it starts, until "
		 "Ctrl-C, until the target ends, or for --duration. The target need not be changed or restarted. Needs root.\n"
		 "CMD is run as the user who called sudo, in the environment, with the groups, limits and umask "
		 "that it would have without sudo. Ctrl-C reaches CMD, and the recording ends with it. "
		 COLLECTOR_VAR " is set to dlbpf's collector for CMD unless it is set already. The exit code "
		 "is that of CMD, 128 and the signal when it was killed, 127 or 126 when it could not be run, "
		 "and 125 when it was not run since recording failed.\n"
		 "The trace belongs to the user who called sudo and can be read at any moment, also when the "
		 "recorder is killed.\n"
		 "With --keep the recording may last for ever: only its last part is kept, in the folder FILE.keep, and "
		 "FILE is how it ended. Whatever fires on the way is saved, with 5 s of what followed, as a trace of "
		 "its own: death (a worker or the trainer was killed or failed, or any process of the run by a "
		 "program error), oom, sigbus, gap (the trainer did nothing for so long while it had workers), stall "
		 "(nobody did), signal (SIGUSR1 to dlbpf). What a killed recorder has left in the folder is saved by "
		 "the next one with the same FILE; each file in there is a trace, too.",
	.examples = "sudo dlbpf record -p 4300 -d 60\trecord a running job for a minute\n"
		    "sudo dlbpf record -- python train.py\trecord a run from its start\n"
		    "sudo dlbpf record -o /data/run.dlbpf --max-size 2G -p 4300\n"
		    "sudo dlbpf record --keep 5m -- python train.py\tkeep what came before a crash",
	.opts = options,
	.opts_first = true,
	.fn = cmd_record,
};

static void invoker_fini_p(struct dl_invoker *inv)
{
	dl_invoker_fini(inv);
}

/* --- set-up ------------------------------------------------------------------------------------- */

static int set_collector(struct dl_invoker *inv, struct dl_progress *ui)
{
	const char *have = dl_env_get(&inv->env, COLLECTOR_VAR);
	_cleanup_free_ char *var = NULL;
	char path[4096];

	if (have && *have) {
		if (!strstr(have, COLLECTOR))
			dl_progress_note(ui, COLLECTOR_VAR " is set to %s and is left so: dlbpf's own "
					 "collector is not loaded", have);
		return 0;
	}
	if (!dl_gpu_library(path, sizeof(path))) {
		dl_progress_note(ui, "no GPU data: " COLLECTOR " is neither beside dlbpf nor in ../lib/dlbpf");
		return 0;
	}
	if (asprintf(&var, COLLECTOR_VAR "=%s", path) < 0) {
		var = NULL;
		return -ENOMEM;
	}
	return dl_env_set(&inv->env, var);
}

/* In another PID namespace the kernel side would speak of other ids than /proc. */
static bool in_own_pid_namespace(void)
{
	char link[64];
	const ssize_t n = readlink("/proc/self/ns/pid", link, sizeof(link) - 1);

	if (n <= 0)
		return false;
	link[n] = '\0';
	return strcmp(link, "pid:[4026531836]") != 0;	/* PROC_PID_INIT_INO, include/linux/proc_ns.h */
}

static int check_rights(void)
{
	char exe[4096] = "dlbpf";
	const ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);

	if (n > 0)
		exe[n] = '\0';
	if (geteuid())
		return dl_error("dlbpf record needs root: run it with sudo, as in\n  sudo %s record ...", exe);
	if (in_own_pid_namespace())
		return dl_error("dlbpf record runs in a container with process ids of its own, and the kernel "
				"reports those of the host:\nrun it on the host, where it follows the processes "
				"of containers too, or with --pid=host");
	return DL_EXIT_OK;
}

static char *join_args(int argc, char **argv)
{
	struct dl_str s = {};

	dl_str_add(&s, "dlbpf");
	for (int i = 0; i < argc; i++)
		dl_str_addf(&s, " %s", argv[i]);
	return dl_str_take(&s);
}

/* --- the end ------------------------------------------------------------------------------------ */

static int exit_code_of(int status)
{
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static void say_end(const struct record_opts *o, const struct dl_record_result *res, const char *cmd)
{
	const char *why = NULL;
	char kept[64], took[16];

	if (res->end == DL_END_WRITE)
		dl_error("the recording stopped early: cannot write to %s: %s\n"
			 "what was written until then can be read", o->path, strerror(-res->err));
	else if (res->end == DL_END_CAPTURE)
		dl_error("the recording stopped early: cannot read events: %s\n"
			 "what was written until then can be read", strerror(-res->err));
	if (o->quiet)
		return;
	if (res->end == DL_END_MAX_SIZE)
		why = "stopped at --max-size";
	else if (res->end == DL_END_DURATION)
		why = "stopped after --duration";
	if (res->kept_ns && !why) {
		snprintf(kept, sizeof(kept), "the last %s of it", dl_fmt_ns(took, sizeof(took), res->kept_ns));
		why = kept;
	}
	dl_progress_summary(stderr, o->path, res, why);
	if (!res->has_status || !res->target_ended)
		return;
	if (WIFSIGNALED(res->status))
		fprintf(stderr, "dlbpf: %s was killed by signal %d (%s)\n", cmd, WTERMSIG(res->status),
			strsignal(WTERMSIG(res->status)));
	else if (WEXITSTATUS(res->status))
		fprintf(stderr, "dlbpf: %s ended with exit code %d\n", cmd, WEXITSTATUS(res->status));
}

static int finish(const struct record_opts *o, char **cmd, const struct dl_record_result *res)
{
	const bool failed = res->end == DL_END_WRITE || res->end == DL_END_CAPTURE;

	say_end(o, res, cmd ? cmd[0] : "the target");
	if (!o->no_report && !o->quiet && res->events) {
		putc('\n', stderr);
		dlbpf_report_brief(o->path, stderr);
	}
	if (!cmd)
		return failed ? DL_EXIT_FAILURE : DL_EXIT_OK;
	return res->has_status ? exit_code_of(res->status) : 128 + SIGINT;
}

static int failed_to_start(bool has_cmd, bool exec, int err, const struct dl_diag *d)
{
	dl_error("%s", d->msg);
	if (!has_cmd)
		return DL_EXIT_FAILURE;
	if (!exec)
		return EXIT_NOT_RECORDED;
	return err == -ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT_RUN;
}

static int keep_options(const struct record_opts *o, struct dl_record_keep *ret)
{
	struct dl_diag d = {};

	if (o->keep.keep && o->max_sz)
		return dl_usage_error(&dl_cmd_record, "--max-size ends the recording and --keep never does; give --keep the "
				      "size, as in --keep 500M");
	if (!o->keep.keep && (o->keep.trigger || o->keep.forecast_ns))
		return dl_usage_error(&dl_cmd_record, "%s needs --keep", o->keep.trigger ? "--trigger" : "--on-forecast");
	if (o->keep.keep && dl_keep_args_parse(ret, &o->keep, &d))
		return dl_usage_error(&dl_cmd_record, "%s", d.msg);
	return DL_EXIT_OK;
}

int cmd_record(int argc, char **argv)
{
	_cleanup_(invoker_fini_p) struct dl_invoker inv = {};
	_cleanup_free_ char *args = join_args(argc, argv);	/* before they are moved */
	struct record_opts o = { .path = DL_DEFAULT_TRACE, .sample_hz = 199, .gpu = DL_GPU_MODE_STD,
				 .keep = { .cooldown_ns = DL_KEEP_COOLDOWN_NS, .bundles = DL_KEEP_BUNDLES } };
	struct dl_record_keep keep = {};
	struct dl_record_result res;
	struct dl_progress ui;
	struct dl_diag d = {};
	bool exec = false;
	char **cmd;
	int first, err;

	if (!dl_opts_begin(&dl_cmd_record, argc, argv, &o, &first, &err))
		return err;
	cmd = first < argc ? argv + first : NULL;
	if (!cmd == !o.pid)
		return dl_usage_error(&dl_cmd_record, cmd ? "give either -p PID or a command, not both" :
				      "what is to be recorded? Give -p PID or a command");
	if (o.no_uprobes && o.gpu == GPU_UPROBES)
		return dl_usage_error(&dl_cmd_record, "--gpu uprobes and --no-uprobes contradict each other");
	if (o.no_syscalls && o.all_syscalls)
		return dl_usage_error(&dl_cmd_record, "--syscalls and --no-syscalls contradict each other");
	if (o.inject && (!o.gpu || o.gpu == GPU_UPROBES))
		return dl_usage_error(&dl_cmd_record, o.gpu ? "--inject is for CUPTI, and --gpu uprobes does without it" :
				      "--inject is for GPU data, and --gpu off wants none");
	err = keep_options(&o, &keep);
	if (err)
		return err;
	if (!args)
		return dl_error("out of memory");
	err = check_rights();
	if (!err && o.pid && dl_proc_check_target((uint32_t)o.pid, &d))
		err = dl_error("%s", d.msg);
	if (!err && dl_invoker_find(&inv, o.as_root, &d))
		err = dl_error("%s", d.msg);
	if (err)
		return cmd ? EXIT_NOT_RECORDED : err;
	dl_progress_init(&ui, o.quiet);
	if (cmd && inv.env_lost)
		dl_progress_note(&ui, "the sudo process has ended: %s gets the environment that sudo made, not "
				 "the one before it", cmd[0]);
	if (cmd && o.gpu && o.gpu != GPU_UPROBES && set_collector(&inv, &ui))
		return dl_error("out of memory");

	const struct dl_record_opts ro = {
		.pid = (uint32_t)o.pid, .argv = cmd, .invoker = &inv, .path = o.path, .max_sz = o.max_sz,
		.keep = o.keep.keep ? &keep : NULL,
		.duration_ns = o.duration_ns, .sample_hz = (uint32_t)o.sample_hz, .user_stacks = o.user_stacks,
		.gpu_mode = o.gpu == GPU_UPROBES ? DL_GPU_MODE_OFF : (uint32_t)o.gpu,
		.no_syscalls = o.no_syscalls, .all_syscalls = o.all_syscalls,
		.uprobes = o.no_uprobes ? DL_GPU_MODE_OFF : o.gpu == GPU_UPROBES ? DL_GPU_MODE_STD : (uint32_t)o.gpu,
		.inject = o.inject,
		.verbose = o.verbose, .record_args = args, .on_start = dl_progress_on_start,
		.on_status = dl_progress_on_status, .on_note = dl_progress_on_note, .arg = &ui,
	};

	err = dl_record(&ro, &res, &exec, &d);
	dl_progress_end(&ui);
	return err ? failed_to_start(cmd, exec, err, &d) : finish(&o, cmd, &res);
}
