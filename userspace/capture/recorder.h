/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The recording: kernel events, GPU records and samples of the environment of one process tree into
 * one trace file, until the target ends, a signal comes, the time is over or the file is full.
 * Whatever goes wrong on the way, the target goes on and the file can be read.
 */
#ifndef DLBPF_CAPTURE_RECORDER_H
#define DLBPF_CAPTURE_RECORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/diag.h"
#include "capture/invoker.h"
#include "capture/trigger.h"

/* Once a second while recording. */
struct dl_record_status {
	uint64_t elapsed_ns;
	uint32_t pid;			/* the target */
	uint32_t processes;		/* alive in its tree, itself included */
	uint32_t workers;		/* of which are PyTorch workers */
	uint64_t events, events_per_s, lost, file_bytes;
	const char *gpu;		/* "CUPTI 13.0 (simulated)", "uprobes", "none", "off" */
	const char *gpu_hint;		/* what would give GPU data; "" */
	uint64_t kept_ns;		/* the flight recorder's; 0: all is kept */
	const char *forecast;		/* "shm full in 7 min"; NULL or "" none */
};

/* Keep only the last part, and save it when something happens. */
struct dl_record_keep {
	uint64_t span_ns, max_sz;	/* so long, so much; 0 no limit, of one of them */
	struct dl_triggers triggers;	/* dl_triggers_defaults(), or as chosen */
	uint64_t cooldown_ns;		/* between two that are saved */
	uint64_t forecast_ns;		/* save when a limit is that near; 0 do not */
	uint32_t bundles;		/* so many of each trigger; 0 no limit */
};

struct dl_record_opts {
	/* the target: a process, or a command */
	uint32_t pid;
	char **argv;			/* NULL-terminated; NULL: pid */
	const struct dl_invoker *invoker;
	/* the file */
	const char *path;
	uint64_t max_sz;		/* bytes; 0 no limit */
	const struct dl_record_keep *keep;	/* path is for how the recording ends; NULL: all of it goes there */
	uint64_t duration_ns;		/* 0 no limit */
	uint32_t sample_hz;
	uint32_t gpu_mode;		/* enum dl_gpu_mode, of the collector */
	uint32_t uprobes;		/* enum dl_gpu_mode, where there is none */
	bool user_stacks;		/* with samples */
	bool no_syscalls;		/* no failed system calls */
	bool all_syscalls;		/* watch them however many calls the machine makes */
	bool inject;			/* load the collector where it is missing */
	bool verbose;
	const char *record_args;	/* for the trace's description */
	/* what the user is told; text is one line */
	void (*on_start)(uint32_t pid, void *arg);
	void (*on_status)(const struct dl_record_status *st, void *arg);
	void (*on_note)(const char *text, void *arg);
	void *arg;
};

enum dl_record_end {
	DL_END_TARGET = 1,	/* the target ended */
	DL_END_SIGNAL,		/* SIGINT, SIGTERM or SIGHUP */
	DL_END_DURATION,
	DL_END_MAX_SIZE,
	DL_END_WRITE,		/* the file could not be written to: err */
	DL_END_CAPTURE,		/* reading events failed: err */
};

struct dl_record_result {
	enum dl_record_end end;
	int err;			/* negative; of DL_END_WRITE and DL_END_CAPTURE */
	bool target_ended;
	bool has_status;
	int status;			/* of the target, as from wait(2) */
	uint32_t left_over;		/* processes of the tree alive after the target's end */
	uint32_t processes_seen, workers_seen;
	uint64_t elapsed_ns, events, lost, file_bytes;
	uint64_t shed;			/* events, or parts of events, that were left out on purpose */
	uint64_t kept_ns;		/* the flight recorder's; 0: all was kept */
	uint32_t saved;			/* traces that triggers have saved */
};

/*
 * Records. 0 when there is a recording, however it ended (ret_result says how); with a command, it
 * has ended then, unless the user lost patience. On failure nothing was recorded and the command
 * was not run; -ENOENT, -EACCES, ... and *ret_exec true when the command itself could not be.
 */
int dl_record(const struct dl_record_opts *o, struct dl_record_result *ret_result, bool *ret_exec,
	      struct dl_diag *d);

#endif
