/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* One event as a line of text or a JSON object, by the schema alone: it knows no kinds. */
#ifndef DLBPF_RENDER_EVENT_H
#define DLBPF_RENDER_EVENT_H

#include <stdio.h>

#include <dlbpf/event.h>

#include "base/diag.h"
#include "base/str.h"
#include "trace/schema.h"

struct dl_event_fmt {
	uint64_t start_ts;	/* times are printed relative to it in text */
	const char *machine;	/* uname -m of the trace, for system call numbers */
	bool utf8;
};

/* A line with its newline. Fields that say nothing (a 0 where 0 is "none") are left out. */
void dl_event_text(struct dl_str *out, const struct dl_event_fmt *fmt, const struct dl_hdr *ev);

/*
 * A JSON object in one line: {"kind", "ts", "tid", "pid", "cpu", "foreign", "fields": {...},
 * "names": {...}}, "restated" where it was only said again, and "text" or "addrs" where the kind has a tail. Numbers are as in the file; what
 * they are called, where they have a name, stands in "names". Written to out; 0 or -errno.
 */
int dl_event_json(FILE *out, const struct dl_event_fmt *fmt, const struct dl_hdr *ev, struct dl_diag *d);

/* "1.234567890" seconds from start_ts to ts, with a minus sign where it is earlier. */
void dl_event_time(struct dl_str *out, const struct dl_event_fmt *fmt, uint64_t ts);

#endif
