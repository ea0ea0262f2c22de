/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The status line of record, and its summary. */
#include "cli/progress.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/str.h"
#include "capture/recorder.h"

void dl_progress_init(struct dl_progress *p, bool quiet)
{
	*p = (struct dl_progress){ .quiet = quiet, .tty = isatty(STDERR_FILENO) };
}

static void clear_line(struct dl_progress *p)
{
	if (p->line)
		fputs("\r\033[K", stderr);
	p->line = false;
}

void dl_progress_end(struct dl_progress *p)
{
	clear_line(p);
	fflush(stderr);
}

void dl_progress_note(struct dl_progress *p, const char *fmt, ...)
{
	va_list ap;

	if (p->quiet)
		return;
	clear_line(p);
	fputs("dlbpf: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	putc('\n', stderr);
}

void dl_progress_on_note(const char *text, void *arg)
{
	dl_progress_note(arg, "%s", text);
}

void dl_progress_on_start(uint32_t pid, void *arg)
{
	dl_progress_note(arg, "recording process %" PRIu32 " and its children; Ctrl-C ends it", pid);
}

void dl_progress_format(const struct dl_record_status *st, unsigned int width, char *buf, size_t sz)
{
	char rate[32], lost[32], size[16], kept[16];
	const uint64_t s = st->elapsed_ns / 1000000000;
	int len;

	len = snprintf(buf, sz, "%" PRIu64 ":%02" PRIu64 "%s%s  %u process%s, %u worker%s  %s events/s  lost %s"
		       "  %s%s%s  GPU: %s", s / 60, s % 60, st->forecast && st->forecast[0] ? "  " : "",
		       st->forecast ? st->forecast : "", st->processes, st->processes == 1 ? "" : "es",
		       st->workers, st->workers == 1 ? "" : "s",
		       dl_fmt_cnt(rate, sizeof(rate), st->events_per_s), dl_fmt_cnt(lost, sizeof(lost), st->lost),
		       dl_fmt_bytes(size, sizeof(size), st->file_bytes), st->kept_ns ? " kept of the last " : "",
		       st->kept_ns ? dl_fmt_ns(kept, sizeof(kept), st->kept_ns) : "", st->gpu);
	if (len > 0 && width && (size_t)len > width && width < sz)
		buf[width] = '\0';
}

void dl_progress_on_status(const struct dl_record_status *st, void *arg)
{
	struct dl_progress *p = arg;
	struct winsize ws;
	char buf[512];

	if (p->quiet || !p->tty)
		return;
	if (st->gpu_hint[0] && strcmp(st->gpu_hint, p->hint)) {
		snprintf(p->hint, sizeof(p->hint), "%s", st->gpu_hint);
		dl_progress_note(p, "no GPU data: %s", p->hint);
	}
	if (ioctl(STDERR_FILENO, TIOCGWINSZ, &ws) || !ws.ws_col)
		ws.ws_col = 80;
	dl_progress_format(st, ws.ws_col - 1u, buf, sizeof(buf));
	clear_line(p);
	fputs(buf, stderr);
	fflush(stderr);
	p->line = true;
}

void dl_progress_summary(FILE *out, const char *path, const struct dl_record_result *res, const char *why)
{
	char took[16], events[32], lost[32], size[16];

	fprintf(out, "dlbpf: recorded %s of %u process%s (%u worker%s): %s events, %s lost, %s in %s%s%s\n",
		dl_fmt_ns(took, sizeof(took), res->elapsed_ns), res->processes_seen,
		res->processes_seen == 1 ? "" : "es", res->workers_seen, res->workers_seen == 1 ? "" : "s",
		dl_fmt_cnt(events, sizeof(events), res->events), dl_fmt_cnt(lost, sizeof(lost), res->lost),
		dl_fmt_bytes(size, sizeof(size), res->file_bytes), path, why ? "; " : "", why ? why : "");
	if (res->shed)
		fprintf(out, "dlbpf: %s events of less importance were left out while they came too fast; the report says which\n",
			dl_fmt_cnt(events, sizeof(events), res->shed));
	if (res->left_over)
		fprintf(out, "dlbpf: the target ended and left %u process%s of its tree behind\n",
			res->left_over, res->left_over == 1 ? "" : "es");
}
