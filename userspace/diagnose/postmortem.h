/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What ended a run, as plain data: made from a trace (dl_postmortem_trace) or from what a machine
 * still knows (forensic/), printed by render/. Instants are CLOCK_MONOTONIC nanoseconds, 0 unknown.
 * Texts are owned by the post-mortem and NULL where there is none. What does not decide between two
 * causes is DL_DEATH_UNEXPLAINED with both of them among the alternatives, never a guess.
 */
#ifndef DLBPF_DIAGNOSE_POSTMORTEM_H
#define DLBPF_DIAGNOSE_POSTMORTEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/diag.h"
#include "base/vec.h"
#include "timeline/roles.h"

struct dl_trace;

enum dl_death {
#define DEATH(ID, id, doc) DL_DEATH_##ID,
#include "diagnose/death.def"
#undef DEATH
	DL_DEATH_CNT,
};

const char *dl_death_id(enum dl_death death);	/* "shm-full" */
const char *dl_death_doc(enum dl_death death);

/* Where a fact comes from. */
enum dl_pm_source {
	DL_PM_TRACE = 0,
	DL_PM_KERNEL_LOG,
	DL_PM_CORE,
	DL_PM_CGROUP,
	DL_PM_PROC,
	DL_PM_SHM,	/* what lies in /dev/shm */
	DL_PM_LOG,	/* pasted output of the training */
	DL_PM_SOURCE_CNT,
};

const char *dl_pm_source_id(enum dl_pm_source source);	/* "kernel-log" */

enum dl_pm_confidence {
	DL_PM_UNKNOWN = 0,	/* nothing tells */
	DL_PM_POSSIBLE,		/* fits, and so does something else: see the alternatives */
	DL_PM_LIKELY,		/* fits, and nothing else that is known does */
	DL_PM_CERTAIN,		/* an event says so */
};

const char *dl_pm_confidence_id(enum dl_pm_confidence confidence);	/* "certain" */

/* A process or thread of the job, or another one. */
struct dl_pm_who {
	uint32_t pid, tid;	/* host ids; 0 unknown */
	uint32_t nspid;		/* in its own PID namespace, as PyTorch prints it; 0 unknown */
	enum dl_role role;
	int32_t index;		/* worker number; -1 none */
	char *name;		/* comm; NULL unknown */
};

/* One fact, in the order of time. */
struct dl_pm_fact {
	uint64_t ts;		/* 0 unknown */
	int64_t wall_ns;	/* CLOCK_REALTIME; 0 unknown */
	struct dl_pm_who who;
	char *text;		/* "could not write to '/dev/shm/torch_4711_1': no space left on device" */
	enum dl_pm_source source;
	bool decides;		/* the verdict rests on it */
};

enum dl_pm_unit { DL_PM_BYTES = 0, DL_PM_CNT, DL_PM_NS, DL_PM_BPS };

/*
 * A number of the run, by a stable id: "shm.total" "shm.used" "shm.needed" "shm.largest-batch"
 * "cgroup.limit" "cgroup.usage" "cgroup.anon" "cgroup.file" "cgroup.shmem" "cgroup.swap"
 * "cgroup.pgtables" "host.total" "host.available" "host.swap-free" "fds.open" "fds.limit" "maps.count"
 * "maps.limit" "pids.count" "pids.limit" "fs.total" "fs.used" "workers" "prefetch" "batch.bytes" ...
 */
struct dl_pm_number {
	char *id;
	char *label;		/* "shared memory needed" */
	uint64_t value;
	enum dl_pm_unit unit;
	bool estimated;
	char *how;		/* where it comes from: "2 workers x 2 batches ahead x 9.6 MiB"; NULL: read */
	enum dl_pm_source source;
};

/* A process at the instant of death. */
struct dl_pm_proc {
	struct dl_pm_who who;
	uint64_t anon, file, shmem, swap, pgtables;	/* last known */
	uint64_t total_first, total_peak;		/* of anon + shmem + swap + pgtables */
	bool has_mem;
	uint64_t fds, fds_limit, maps, maps_limit;	/* 0 unknown */
	uint64_t batches;	/* made, or taken, while recorded; 0 unknown */
	bool has_growth;	/* there were samples enough for: */
	double growth_bps;	/* bytes a second of what it alone holds (anon + swap) */
	double growth_batch;	/* bytes a batch; 0 where batches are not known */
	bool leaks;		/* it grows steadily; page cache of mapped files is no growth */
	bool ended;
	int32_t status;		/* as of wait(2) */
	uint64_t end_ts;
	char *state;		/* "alive", "killed by SIGBUS", "exit code 1" */
};

/* A thread at the instant of death, or at the end of the trace. */
struct dl_pm_thread {
	struct dl_pm_who who;
	char *state;		/* "waiting in poll for the result pipe" */
	uint64_t for_ns;	/* since when; 0 unknown */
	struct dl_pm_who holder;	/* who could end the wait; pid 0 nobody known */
	char *holder_text;	/* "holds the lock since 12 s, itself waiting in read" */
	DL_VEC(char *) stack;	/* innermost first: "function+0x12 (libfoo.so)" */
	bool died;		/* the thread that took the fatal signal */
};

/* Another cause that the facts allow. */
struct dl_pm_alternative {
	enum dl_death death;
	char *why;
	char *decides;		/* what would tell: "a recording", "dmesg of the time", ... */
};

struct dl_pm_action {
	char *text;		/* "give the container 2.1 GiB of shared memory" */
	char *command;		/* "docker run --shm-size=2300m ..."; NULL none */
};

/* A line of the training's own output, what it tells, and what it does not. */
struct dl_pm_claim {
	char *line;
	char *tells;
	char *not_tells;	/* NULL nothing to add */
	enum dl_death suggests;	/* DL_DEATH_UNEXPLAINED: none */
	uint32_t pid;		/* that it names, as the training sees it; 0 none */
	bool contradicts;	/* the verdict says otherwise */
};

struct dl_postmortem {
	char *path;		/* of the trace; NULL made from leftovers */
	bool complete;		/* the trace is whole */
	uint64_t start, end;	/* of the trace */
	int64_t wall_ns;	/* CLOCK_REALTIME of start; 0 unknown */
	char *host, *kernel, *cmdline;

	enum dl_death death;
	enum dl_pm_confidence confidence;
	char *text;		/* one sentence: who, what, how much */
	char *wrong_text;	/* what PyTorch's message claims although it is not so; NULL */
	struct dl_pm_who victim;
	int32_t sig;		/* that it died of; 0 none */
	int32_t status;		/* as of wait(2), where has_status */
	bool has_status;
	uint64_t ts;		/* of the first event of the crash; 0 unknown */

	DL_VEC(struct dl_pm_fact) facts;	/* sorted by time; those without one last */
	DL_VEC(struct dl_pm_number) numbers;
	DL_VEC(struct dl_pm_proc) procs;
	DL_VEC(struct dl_pm_thread) threads;
	DL_VEC(struct dl_pm_alternative) alternatives;
	DL_VEC(struct dl_pm_action) actions;
	DL_VEC(struct dl_pm_claim) claims;
	char *gpu;		/* what the GPU was doing: "idle for 12.3 s, waiting for a batch"; NULL unknown */
	DL_VEC(char *) notes;	/* losses, what is not known, what a recording would have shown */
};

struct dl_pm_opts {
	uint32_t pid;		/* ask about this process, as host or inner id; 0 the first that died */
	const char *log;	/* text of the training's output; NULL none */
	size_t log_len;
};

/* Reads all of the trace and explains how the run ended. */
int dl_postmortem_trace(struct dl_postmortem **ret, struct dl_trace *t, const struct dl_pm_opts *opts,
			struct dl_diag *d);
void dl_postmortem_free(struct dl_postmortem *pm);

/*
 * Building one. All return 0 or -ENOMEM, and what they return a pointer to stays valid until the next
 * of its kind is added.
 */
struct dl_postmortem *dl_pm_new(void);	/* death UNEXPLAINED; NULL no memory */
int dl_pm_set(char **text, const char *fmt, ...) __attribute__((format(printf, 2, 3)));	/* replaces */
int dl_pm_fact(struct dl_postmortem *pm, const struct dl_pm_who *who, uint64_t ts, enum dl_pm_source source,
	       bool decides, const char *fmt, ...) __attribute__((format(printf, 6, 7)));
int dl_pm_number(struct dl_postmortem *pm, const char *id, const char *label, uint64_t value, enum dl_pm_unit unit,
		 enum dl_pm_source source);
/* The same for a value that was worked out: how says from what. */
int dl_pm_estimate(struct dl_postmortem *pm, const char *id, const char *label, uint64_t value, enum dl_pm_unit unit,
		   enum dl_pm_source source, const char *how_fmt, ...) __attribute__((format(printf, 7, 8)));
int dl_pm_alternative(struct dl_postmortem *pm, enum dl_death death, const char *decides, const char *why_fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* command NULL: none. */
int dl_pm_action(struct dl_postmortem *pm, const char *command, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
int dl_pm_note(struct dl_postmortem *pm, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int dl_pm_claim(struct dl_postmortem *pm, const struct dl_pm_claim *claim);	/* copies its texts */
int dl_pm_who_copy(struct dl_pm_who *to, const struct dl_pm_who *from);
void dl_pm_sort_facts(struct dl_postmortem *pm);
/* A number by its id; false unknown. */
bool dl_pm_get(const struct dl_postmortem *pm, const char *id, uint64_t *ret);

/*
 * Reads output of a training, of any PyTorch version, and adds a claim for each line that tells of a death
 * (pm_log.c). dl_pm_judge_claims() marks those that the verdict contradicts, and sets wrong_text; once the
 * verdict is known.
 */
int dl_pm_read_log(struct dl_postmortem *pm, const char *text, size_t len);
int dl_pm_judge_claims(struct dl_postmortem *pm);

/*
 * What to do about a death, from its numbers: the table of remedies (pm_remedies.c), the same
 * for traces and leftovers. Call it last.
 */
int dl_pm_remedies(struct dl_postmortem *pm);

#endif
