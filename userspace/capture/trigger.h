/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What makes a recorder that keeps only its last part save it: one row for each trigger, in a table.
 * Events and the passing of time go in, what fired comes out; nothing here reads a clock or a file.
 */
#ifndef DLBPF_CAPTURE_TRIGGER_H
#define DLBPF_CAPTURE_TRIGGER_H

#include <stdbool.h>
#include <stdint.h>

#include <dlbpf/event.h>

#include "capture/keep_state.h"

struct dl_triggers {
	bool on[DL_TRIGGER_MAX];
	uint64_t after_ns[DL_TRIGGER_MAX];	/* of those that wait for time to pass */
	/* while recording */
	bool ending;		/* the user ends it: deaths are what was asked for */
	struct dl_kstate_totals seen;
	uint64_t tick_ts, moved_ts;
	bool told;
};

struct dl_fired {
	enum dl_trigger what;
	char text[256];		/* "worker 4312 (python3) was killed by signal 9 (Killed)" */
};

/* For options and help. NULL beyond the last one. */
struct dl_trigger_row;
const struct dl_trigger_row *dl_trigger_row(unsigned int i);
const char *dl_trigger_name(enum dl_trigger what);	/* "death"; also part of the names of bundles */
enum dl_trigger dl_trigger_by_name(const char *name);	/* DL_TRIGGER_NONE: there is none that could be chosen */
bool dl_trigger_takes_time(enum dl_trigger what);

/* Those that are on unless others are asked for, with their times. */
void dl_triggers_defaults(struct dl_triggers *t);

/* After dl_kstate_event(). True: *ret fired. */
bool dl_trigger_event(const struct dl_triggers *t, struct dl_kstate *s, const struct dl_hdr *ev, struct dl_fired *ret);

/* About once a second: how many fired. What lasts fires once, until it has been over. */
int dl_trigger_tick(struct dl_triggers *t, struct dl_kstate *s, uint64_t now, struct dl_fired ret[DL_TRIGGER_MAX]);

#endif
