/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#ifndef DLBPF_CAPTURE_OUTPUT_H
#define DLBPF_CAPTURE_OUTPUT_H

#include "base/diag.h"
#include "capture/invoker.h"

/*
 * Creates the trace file, or empties an older trace of that name, with the rights of the invoking
 * user, whose file it is. Before any thread is started. The descriptor, or -errno with a message.
 */
int dl_output_open(const char *path, const struct dl_invoker *inv, struct dl_diag *d);

/* Makes a folder, unless it is there and theirs, likewise. Its descriptor, or -errno with a message. */
int dl_output_open_dir(const char *path, const struct dl_invoker *inv, struct dl_diag *d);

/* Removes a trace again, with the same rights. */
void dl_output_remove(const char *path, const struct dl_invoker *inv);

#endif
