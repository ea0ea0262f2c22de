/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#include "cli/term.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/str.h"
#include "render/clean.h"
#include "render/text.h"
#include "trace/trace.h"

enum {
	MIN_WIDTH = 60,
	MAX_WIDTH = 120,	/* longer lines are hard to read */
};

const char *const dl_color_choices[] = { "auto", "always", "never", NULL };

int dl_cli_trace_path(const struct dl_cmd *cmd, int argc, char **argv, int first, const char **ret)
{
	if (argc - first > 1)
		return dl_usage_error(cmd, "one file at a time: what is %s?", argv[first + 1]);
	if (argc > first) {
		*ret = argv[first];
		return DL_EXIT_OK;
	}
	if (access(DL_DEFAULT_TRACE, F_OK))
		return dl_usage_error(cmd, "which recording? Name the FILE that dlbpf record wrote "
				      "(there is no %s here)", DL_DEFAULT_TRACE);
	*ret = DL_DEFAULT_TRACE;
	return DL_EXIT_OK;
}

int dl_cli_failed(int err, const struct dl_diag *d)
{
	return err == -EPIPE ? DL_EXIT_FAILURE : dl_error("%s", d->msg);
}

int dl_cli_trace_open(const struct dl_cmd *cmd, int argc, char **argv, int first, struct dl_trace **ret,
		      const char **ret_path)
{
	struct dl_diag d = {};
	const char *path = NULL;
	int err = dl_cli_trace_path(cmd, argc, argv, first, &path);

	if (err)
		return err;
	err = dl_trace_open(ret, path, &d);
	if (err)
		return dl_cli_failed(err, &d);
	*ret_path = path;
	return DL_EXIT_OK;
}

/* Where the recording begins and ends: events from before the start (threads found running) are
 * part of it, times are counted from the start. */
static uint64_t end_of(const struct dl_trace_info *info)
{
	return info->last_ts > info->meta.start_ts ? info->last_ts : info->meta.start_ts;
}

static uint64_t resolve(const struct dl_trace_info *info, const struct dl_opt_time *at, uint64_t not_given)
{
	const uint64_t end = end_of(info);
	uint64_t ts;

	if (!at->given)
		return not_given;
	if (at->from_end)
		return at->ns > end ? 0 : end - at->ns;
	return __builtin_add_overflow(info->meta.start_ts, at->ns, &ts) ? UINT64_MAX : ts;
}

int dl_cli_window(const struct dl_cmd *cmd, const struct dl_trace *t, const struct dl_opt_time *from,
		  const struct dl_opt_time *to, uint64_t *ret_from, uint64_t *ret_to)
{
	const struct dl_trace_info *info = dl_trace_info(t);
	const uint64_t from_ts = resolve(info, from, 0), to_ts = resolve(info, to, UINT64_MAX);
	char buf[32];

	if (from_ts > to_ts)
		return dl_usage_error(cmd, "--from lies behind --to");
	if (from->given && from_ts > end_of(info))
		return dl_usage_error(cmd, "--from lies behind the end of the recording, which is %s long",
				      dl_fmt_ns(buf, sizeof(buf), end_of(info) - info->meta.start_ts));
	*ret_from = from_ts;
	*ret_to = to_ts;
	return DL_EXIT_OK;
}

static bool want_color(enum dl_color color)
{
	const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");

	if (color != DL_COLOR_AUTO)
		return color == DL_COLOR_ALWAYS;
	return isatty(STDOUT_FILENO) && !(no_color && no_color[0]) && term && strcmp(term, "dumb");
}

void dl_cli_text_opts(struct dl_text_opts *ret, enum dl_color color)
{
	struct winsize ws;

	*ret = (struct dl_text_opts){ .color = want_color(color), .utf8 = dl_locale_utf8() };
	if (!ioctl(STDOUT_FILENO, TIOCGWINSZ, &ws) && ws.ws_col)
		ret->width = ws.ws_col < MIN_WIDTH ? MIN_WIDTH : ws.ws_col > MAX_WIDTH ? MAX_WIDTH : ws.ws_col;
}
