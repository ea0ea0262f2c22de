/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The post-mortem for people and for machines (docs/postmortem.schema.json). */
#ifndef DLBPF_RENDER_POSTMORTEM_H
#define DLBPF_RENDER_POSTMORTEM_H

#include <stdio.h>

#include "base/diag.h"

#define DL_POSTMORTEM_SCHEMA "dlbpf.postmortem/1"

struct dl_postmortem;
struct dl_text_opts;

/* Both return 0, -ENOMEM, or the error of the write (-EPIPE, -ENOSPC, ...), out being flushed. */
int dl_render_postmortem(const struct dl_postmortem *pm, const struct dl_text_opts *opts, FILE *out, struct dl_diag *d);
int dl_render_postmortem_json(const struct dl_postmortem *pm, FILE *out, struct dl_diag *d);

#endif
