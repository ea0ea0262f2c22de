/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Names that people use for the processes, threads, copies and endings in a report. */
#ifndef DLBPF_RENDER_WHO_H
#define DLBPF_RENDER_WHO_H

#include "base/str.h"
#include "diagnose/report.h"

/* "worker 1", "worker 1's queue feeder", "rank 2 trainer": role is that of the thread; that of
 * its process stands in the report. */
void dl_who(struct dl_str *out, const struct dl_report *r, uint32_t pid, enum dl_role role);
void dl_who_proc(struct dl_str *out, const struct dl_report *r, const struct dl_proc_report *p);

const struct dl_proc_report *dl_find_proc(const struct dl_report *r, uint32_t pid);
size_t dl_role_cnt(const struct dl_report *r, enum dl_role role);	/* processes of that role */

/* "queue feeder"; NULL for what is no thread's role. */
const char *dl_thread_noun(enum dl_role role);

/* "exit code 1", "SIGKILL (core dumped)": a status of wait(2). */
void dl_exit_text(struct dl_str *out, int32_t status);
/* "SIGKILL", "signal 200" */
void dl_signal_text(struct dl_str *out, int sig);

const char *dl_copy_dir_id(uint32_t dir);	/* "host-to-device", as in JSON */
const char *dl_copy_dir_text(uint32_t dir);	/* "host to GPU" */
const char *dl_copy_mem_id(uint32_t mem);	/* "pageable" */

#endif
