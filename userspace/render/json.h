/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The report for machines: one JSON document, docs/report.schema.json. */
#ifndef DLBPF_RENDER_JSON_H
#define DLBPF_RENDER_JSON_H

#include <stdio.h>

#include "base/diag.h"

#define DL_REPORT_SCHEMA "dlbpf.report/1"

struct dl_report;

/* Returns 0, -ENOMEM, or the error of the write, out being flushed. */
int dl_render_json(const struct dl_report *r, FILE *out, struct dl_diag *d);

#endif
