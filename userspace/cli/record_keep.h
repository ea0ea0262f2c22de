/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The options of the flight recorder: record --keep and what belongs to it. */
#ifndef DLBPF_CLI_RECORD_KEEP_H
#define DLBPF_CLI_RECORD_KEEP_H

#include "base/diag.h"
#include "capture/recorder.h"

/* As given on the command line; NULL and 0: not given. */
struct dl_keep_args {
	const char *keep, *trigger;
	uint64_t cooldown_ns, forecast_ns, bundles;
};

/* Values for --keep's companions unless they are given. */
#define DL_KEEP_COOLDOWN_NS (60 * 1000000000ULL)
#define DL_KEEP_BUNDLES 8

/* 0 with *ret filled in, or -EINVAL with a message that names the option. */
int dl_keep_args_parse(struct dl_record_keep *ret, const struct dl_keep_args *args, struct dl_diag *d);

#endif
