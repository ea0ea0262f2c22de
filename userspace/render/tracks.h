/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The gaps of a report as events of a Chrome JSON trace, for the viewer that somebody uses already. */
#ifndef DLBPF_RENDER_TRACKS_H
#define DLBPF_RENDER_TRACKS_H

#include <stdint.h>

#include "base/str.h"

struct dl_report;

/*
 * Appends objects with commas between them: two tracks a device, its gaps by their main cause, and the steps
 * of the chain that leads to each. offset_ns is added to the report's instants to get the trace's own. The
 * gaps are those in r->worst. 0 or -ENOMEM.
 */
int dl_render_tracks(const struct dl_report *r, int64_t offset_ns, struct dl_str *out);

#endif
