/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What a trace says about its machine, target and recorder. */
#ifndef DLBPF_CAPTURE_META_H
#define DLBPF_CAPTURE_META_H

#include "capture/recorder.h"
#include "trace/trace.h"

int dl_rec_meta_init(struct dl_trace_meta *ret, const struct dl_record_opts *o, uint32_t pid);
void dl_rec_meta_fini(struct dl_trace_meta *meta);

#endif
