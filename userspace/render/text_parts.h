/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The parts of the text report, in the order in which they are printed. Internal to render/. */
#ifndef DLBPF_RENDER_TEXT_PARTS_H
#define DLBPF_RENDER_TEXT_PARTS_H

#include "diagnose/report.h"
#include "render/tx.h"

void tx_crash(struct tx *t, const struct dl_report *r);
void tx_verdict(struct tx *t, const struct dl_report *r);
void tx_warnings(struct tx *t, const struct dl_report *r);
void tx_summary(struct tx *t, const struct dl_report *r);	/* a line for each device, brief */
void tx_devices(struct tx *t, const struct dl_report *r);
void tx_waits(struct tx *t, const struct dl_report *r);
void tx_gaps(struct tx *t, const struct dl_report *r);
void tx_processes(struct tx *t, const struct dl_report *r);
void tx_trainers(struct tx *t, const struct dl_report *r);	/* only where there are several */
void tx_batches(struct tx *t, const struct dl_report *r);
void tx_copies(struct tx *t, const struct dl_report *r);
void tx_copy_devices(struct tx *t, const struct dl_report *r);	/* below it: what is wrong with them */
void tx_gpus(struct tx *t, const struct dl_report *r);	/* what NVML saw */
void tx_recording(struct tx *t, const struct dl_report *r);

/* The causes that have time, most first. */
struct tx_cause_list {
	enum dl_cause v[DL_CAUSE_CNT];
	size_t cnt;
};

void tx_causes_sorted(struct tx_cause_list *list, const struct dl_charge *causes);

#endif
