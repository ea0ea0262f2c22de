/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * When a limit will be met: shared memory, a cgroup's memory, descriptors and mappings mostly rise in
 * lines before they kill. A forecast is only made of a line: what steps, has come to rest or falls back
 * time and again (saw-teeth) is not extended, unless both the teeth's lows and their tops rise.
 */
#ifndef DLBPF_CAPTURE_FORECAST_H
#define DLBPF_CAPTURE_FORECAST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <dlbpf/event.h>

/* --- one line; a pure function --- */

#define DL_FORECAST_MIN_CNT 30		/* samples; fewer give no forecast */
#define DL_FORECAST_MIN_NS (25 * 1000000000ULL)	/* that they cover at least */
#define DL_FORECAST_TRUST_NS (300 * 1000000000ULL)	/* a line of less than that counts above half of the limit only */

struct dl_fc_point { uint64_t ts; double val; };

struct dl_forecast {
	bool valid;
	double val;		/* tops of the last part of the line */
	double per_s;		/* slope: the median of those between all pairs (Theil-Sen) */
	/* From the last sample until the limit is met: by the median, by the steepest tenth of the slopes
	 * and by the flattest. 0: it is met. */
	uint64_t eta_ns, soonest_ns, latest_ns;
};

/*
 * Points are sorted by time. fell_from: a value that the line has fallen back from before these
 * points (0: none); below it, it may be on the way to do so again, and there is no forecast.
 */
void dl_forecast(struct dl_forecast *ret, const struct dl_fc_point *v, size_t cnt, double limit, double fell_from);

/* --- the lines of a recording, from its ENV events --- */

struct dl_lines;

struct dl_line_forecast {
	struct dl_forecast f;
	char brief[64];		/* "shm full in 7 min" */
	char text[256];		/* with the numbers */
};

int dl_lines_new(struct dl_lines **ret);
void dl_lines_free(struct dl_lines *l);

/* Takes note of an event; others than ENV_* are none of its business. */
void dl_lines_event(struct dl_lines *l, const struct dl_hdr *ev);

/*
 * Looks at all lines, every few seconds. True: *ret is the limit that is met first, of those within
 * within_ns. *ret_due: *ret_save is one that is met within save_ns and was not told of so before; again
 * when there was no such forecast of it for two minutes.
 */
bool dl_lines_next(struct dl_lines *l, uint64_t now, uint64_t within_ns, struct dl_line_forecast *ret,
		   uint64_t save_ns, struct dl_line_forecast *ret_save, bool *ret_due);

#endif
