/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* dlbpf dump: the events of a recording, one by one. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/cmd.h"
#include "cli/term.h"
#include "render/clean.h"
#include "render/event.h"
#include "trace/schema.h"
#include "trace/trace.h"

struct dump_opts {
	bool json;
	struct dl_opt_strs kinds;
	uint64_t pid, tid, limit;
	struct dl_opt_time from, to;
};

#define OFF(member) .off = offsetof(struct dump_opts, member)

static const struct dl_opt options[] = {
	{ .name = "kind", .short_name = 'k', .metavar = "KIND", .kind = DL_OPT_STRS, OFF(kinds),
	  .help = "only events of this kind; may be given more than once, or as a list with commas "
		  "(the kinds: dlbpf info --schema)" },
	{ .name = "pid", .short_name = 'p', .metavar = "PID", .kind = DL_OPT_U64, OFF(pid), .min = 1,
	  .max = UINT32_MAX, .help = "only events of this process" },
	{ .name = "tid", .short_name = 't', .metavar = "TID", .kind = DL_OPT_U64, OFF(tid), .min = 1,
	  .max = UINT32_MAX, .help = "only events of this thread" },
	{ .name = "from", .metavar = "TIME", .kind = DL_OPT_TIME, OFF(from),
	  .help = "only events from then on: 1.5s is 1.5 s after the start of the recording, -10s is "
		  "10 s before its end" },
	{ .name = "to", .metavar = "TIME", .kind = DL_OPT_TIME, OFF(to), .help = "only events until then" },
	{ .name = "limit", .short_name = 'n', .metavar = "N", .kind = DL_OPT_U64, OFF(limit), .min = 1,
	  .help = "stop after N events" },
	{ .name = "json", .short_name = 'j', .kind = DL_OPT_FLAG, OFF(json),
	  .help = "one JSON object a line, with every field; times are CLOCK_MONOTONIC nanoseconds" },
	{ }
};

const struct dl_cmd dl_cmd_dump = {
	.name = "dump",
	.args = "[FILE]",
	.summary = "Print the events of a recording",
	.about = "Prints the events of a recording in the order of time, one a line: seconds since the start "
		 "of the recording, CPU, process, thread (with a * when it is outside the recorded tree, a < when it only says again "
		 "what was before a part of a recording), kind, "
		 "fields. FILE is " DL_DEFAULT_TRACE " unless named.",
	.examples = "dlbpf dump --kind signal,exit run.dlbpf\twho was killed, and by whom?\n"
		    "dlbpf dump --tid 4301 --from 12 --to 12.5 run.dlbpf\twhat did one thread do?",
	.opts = options,
	.fn = cmd_dump,
};

struct filter {
	bool kind[DL_EV_MAX];
	uint32_t pid, tid;
};

static void trace_close_p(struct dl_trace **t)
{
	dl_trace_close(*t);
}

static void dump_opts_fini(struct dump_opts *o)
{
	vec_free(&o->kinds);
}

static int unknown_kind(const char *name)
{
	_cleanup_(dl_str_fini) struct dl_str list = {};
	unsigned int dist = UINT_MAX;
	const char *best = NULL;

	for (unsigned int k = 0; k < DL_EV_MAX; k++) {
		const struct dl_event_desc *desc = dl_event_desc(k);

		if (!desc)
			continue;
		dl_str_addf(&list, "%s%s", list.len ? ", " : "", desc->name);
		dl_word_nearest(name, desc->name, &best, &dist);
	}
	return dl_usage_error(&dl_cmd_dump, "no such kind of event: %s%s%s%s\nThe kinds are %s.", name,
			      best ? "; did you mean " : "", best ? best : "", best ? "?" : "",
			      list.s ? list.s : "none");
}

static int choose_kinds(struct filter *f, const struct dl_opt_strs *names)
{
	if (!names->cnt)
		memset(f->kind, true, sizeof(f->kind));
	for (size_t i = 0; i < names->cnt; i++) {
		_cleanup_free_ char *list = strdup(names->v[i]);
		char *save = NULL;

		if (!list)
			return dl_error("out of memory");
		for (char *name = strtok_r(list, ",", &save); name; name = strtok_r(NULL, ",", &save)) {
			const struct dl_event_desc *desc = dl_event_by_name(name);

			if (!desc)
				return unknown_kind(name);
			f->kind[desc->kind] = true;
		}
	}
	return DL_EXIT_OK;
}

static bool wanted(const struct filter *f, const struct dl_hdr *ev)
{
	return ev->kind < DL_EV_MAX && f->kind[ev->kind] && (!f->pid || ev->pid == f->pid) &&
	       (!f->tid || ev->tid == f->tid);
}

static int print_event(struct dl_str *line, const struct dl_event_fmt *fmt, const struct dl_hdr *ev,
		       struct dl_diag *d)
{
	if (line->s)
		line->s[line->len = 0] = '\0';
	dl_event_text(line, fmt, ev);
	if (line->err)
		return dl_oom(d);
	errno = 0;
	if (fwrite(line->s, 1, line->len, stdout) != line->len)
		return dl_fail_errno(d, errno ? -errno : -EIO, "cannot write the result");
	return 0;
}

static int print_events(struct dl_trace *t, const struct filter *f, const struct dump_opts *o,
			struct dl_diag *d)
{
	const struct dl_trace_meta *meta = &dl_trace_info(t)->meta;
	const struct dl_event_fmt fmt = { meta->start_ts, meta->machine, dl_locale_utf8() };
	_cleanup_(dl_str_fini) struct dl_str line = {};
	const struct dl_hdr *ev;
	uint64_t cnt = 0;
	int err;

	while ((err = dl_trace_next(t, &ev)) > 0) {
		if (!wanted(f, ev))
			continue;
		err = o->json ? dl_event_json(stdout, &fmt, ev, d) : print_event(&line, &fmt, ev, d);
		if (err)
			return err;
		if (++cnt == o->limit)
			return 0;
	}
	return err ? dl_fail_errno(d, err, "cannot read on") : 0;
}

static int dump(struct dump_opts *o, int argc, char **argv, int first)
{
	_cleanup_(trace_close_p) struct dl_trace *t = NULL;
	struct filter f = { .pid = (uint32_t)o->pid, .tid = (uint32_t)o->tid };
	struct dl_diag d = {};
	const char *path;
	uint64_t from, to;
	int err;

	err = choose_kinds(&f, &o->kinds);
	if (!err)
		err = dl_cli_trace_open(&dl_cmd_dump, argc, argv, first, &t, &path);
	if (!err)
		err = dl_cli_window(&dl_cmd_dump, t, &o->from, &o->to, &from, &to);
	if (err)
		return err;
	err = dl_trace_window(t, from, to);
	if (err)
		return dl_error("cannot read the recording: %s", strerror(-err));
	err = print_events(t, &f, o, &d);
	if (err)
		return dl_cli_failed(err, &d);
	if (dl_trace_damage(t))
		dl_warn("%s", dl_trace_damage(t));
	return DL_EXIT_OK;
}

int cmd_dump(int argc, char **argv)
{
	_cleanup_(dump_opts_fini) struct dump_opts o = {};
	int first, err;

	if (!dl_opts_begin(&dl_cmd_dump, argc, argv, &o, &first, &err))
		return err;
	return dump(&o, argc, argv, first);
}
