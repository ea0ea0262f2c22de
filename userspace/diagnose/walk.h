/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Inside diagnose/: the critical path, walked backwards from the instant at which somebody stopped
 * waiting. Every nanosecond between that instant and the floor is charged exactly once.
 */
#ifndef DLBPF_DIAGNOSE_WALK_H
#define DLBPF_DIAGNOSE_WALK_H

#include "base/map.h"
#include "diagnose/report.h"
#include "timeline/timeline.h"

/* Why a thread is blocked, as far as the walk needs it. */
enum dl_why {
	DL_WHY_UNKNOWN = 0,
	DL_WHY_DATA,		/* something that another thread makes */
	DL_WHY_LOCK,		/* a lock: its holder is walked, then the waiter again */
	DL_WHY_GIL,
	DL_WHY_KLOCK,		/* a lock of the kernel, mmap_lock for one */
	DL_WHY_KERNEL,		/* the kernel's own latency inside the call: a grace period */
	DL_WHY_STORAGE,
	DL_WHY_SWAP,
	DL_WHY_MEMORY,
	DL_WHY_NETWORK,
	DL_WHY_SLEEP,
	DL_WHY_CHILD,		/* the end of a process or thread */
	DL_WHY_CNT,
};

/* The cause of a wait that ends in the waiter itself, and of the latency of waking up from it. */
enum dl_cause dl_why_cause(enum dl_why why);

enum dl_why dl_why_blocked(const struct dl_timeline *tl, const struct dl_thread *th, uint32_t seg);

/* Totals over all walked intervals. Of many files that evidence is about those with little time are forgotten,
 * so that it does not grow with the trace. */
struct dl_ledger {
	struct dl_charge causes[DL_CAUSE_CNT];
	struct dl_map evidence[DL_CAUSE_CNT];	/* what it is, by cause -> ns; see dl_evidence_key */
	struct dl_map devs;			/* of files: evidence's key -> device */
	size_t room[DL_CAUSE_CNT];		/* so many things before the next are forgotten */
	int err;				/* -ENOMEM sticks */
};

void dl_ledger_fini(struct dl_ledger *l);
int dl_ledger_merge(struct dl_ledger *into, const struct dl_ledger *from);	/* 0 or -ENOMEM */

/*
 * One stage of a diagnosis in pieces: everything that ends in (after, until], and in the last one all the
 * rest, is explained from a timeline that was settled. Behind until there is enough for what the rules look
 * at ahead.
 */
struct dl_diagnose_opts;
struct dl_stage {
	const struct dl_timeline *tl;
	const struct dl_diagnose_opts *opts;
	uint64_t after, until;
	bool last;
};

/* Parts of the idle time by trainer, and by worker whose batch was waited for; by index of process. */
struct dl_part_vec { struct dl_part *v; size_t cnt, cap; };
struct dl_parts { struct dl_part_vec trainers, workers; };

struct dl_gap_vec { struct dl_gap *v; size_t cnt, cap; };
void dl_gaps_free(struct dl_gap_vec *gaps);

/* What a charge is about: a thread, or a file. */
enum dl_evidence { DL_EVI_THREAD = 1, DL_EVI_FILE, DL_EVI_NAME };

static inline uint64_t dl_evidence_key(enum dl_evidence kind, uint64_t id)
{
	return (uint64_t)kind << 60 | (id & 0x0fffffffffffffffULL);
}

/* A name (of a call, of a kernel) is a string of a process: see dl_string. */
static inline uint64_t dl_name_id(uint32_t proc, uint32_t name)
{
	return (uint64_t)proc << 32 | name;
}

struct dl_walk {
	const struct dl_timeline *tl;
	struct dl_gap *gap;
	struct dl_ledger *ledger;	/* NULL: only the gap */
	bool want_steps;
	bool copy_estimated;	/* where the copy began was estimated */
	/* Refilling the GPU after a synchronise: up to budget of the host's own time behind
	 * sync_end is charged to it, since without it the host would have been that far ahead. */
	uint32_t sync_thread;
	uint64_t sync_end, sync_budget;
	/* inside a look-through */
	uint32_t via_lock;		/* depth */
	enum dl_cause relabel;		/* DL_CAUSE_CNT: charge what the holder did */
	uint64_t links;			/* guard against damage */
	bool jumped;			/* a wake-up led to the next step */
};

/* Charges [floor, t] along the path that ends in the thread at t. */
void dl_walk_path(struct dl_walk *w, uint32_t thread, uint64_t t, uint64_t floor);

/* Charges [start, end] of the thread to a cause. what: the step's text and its evidence. */
struct dl_what { const char *text; enum dl_evidence kind; uint64_t id; bool estimated, own_tree, affinity; uint32_t dev; };
void dl_charge(struct dl_walk *w, enum dl_cause cause, uint32_t thread, uint64_t start, uint64_t end,
	       const struct dl_what *what);

/* runqueue.c: charges a wait for a CPU that is more than the latency of waking up. */
void dl_charge_runnable(struct dl_walk *w, uint32_t thread, uint32_t seg, uint64_t start, uint64_t end);

/* Is this wait for a CPU only the latency of waking up: the CPU came from idle or from the waker at once? */
bool dl_is_latency(const struct dl_timeline *tl, uint32_t thread, uint32_t seg);

/* Charges it, where it is, as the wait before it, which was for this. */
void dl_charge_latency(struct dl_walk *w, uint32_t thread, uint32_t seg, enum dl_why why, uint64_t start, uint64_t end);

/* running.c: charges a running interval of a thread by role, phase, driver calls and samples. */
void dl_charge_running(struct dl_walk *w, uint32_t thread, uint64_t start, uint64_t end);

/* spans.c: is all that is known of the thread what a GPU trace of another tool says? Then charges the last
 * piece of (floor, t] by that, and returns where it begins. */
bool dl_only_spans(const struct dl_timeline *tl, uint32_t thread);
uint64_t dl_charge_spans(struct dl_walk *w, uint32_t thread, uint64_t floor, uint64_t t);

/* Says which idle is meant, for devices that are known from another tool's trace; by stages, behind those of
 * the gaps. */
struct dl_stage;
struct dl_gap_finder;
struct dl_idle_finder;
struct dl_idle_finder *dl_idle_finder_new(void);	/* NULL without memory */
void dl_idle_finder_free(struct dl_idle_finder *f);
int dl_idle_take(struct dl_idle_finder *f, const struct dl_stage *st, const struct dl_gap_finder *gaps);
int dl_idle_publish(struct dl_idle_finder *f, struct dl_report *r, const struct dl_timeline *tl);

/* What a thread's running is for, by its role alone. */
enum dl_cause dl_role_cause(const struct dl_timeline *tl, uint32_t thread, uint64_t at);

enum dl_cause dl_api_cause(const struct dl_api *a);

/* What the thread's own time just before t is for: phase, hand-over, role; and since when, at most. */
enum dl_cause dl_work_cause(const struct dl_timeline *tl, uint32_t thread, uint64_t t, uint64_t *ret_from);

bool dl_workers_alive(const struct dl_timeline *tl, uint32_t trainer, uint64_t from, uint64_t to);

/* The search for a thread's waits for batches, stage by stage: see waits.c. */
struct dl_wait_search {
	uint32_t thread;
	uint64_t at;		/* searched up to here */
	bool done;		/* the thread has ended */
	struct dl_spans out;	/* found, in order; */
	size_t taken;		/* so many more were before these, and are done with */
	size_t ending;		/* of all spans those before this are waits; behind it nobody may have waited any more */
	bool any_run;
	bool had_batch;		/* the last span saw one arrive */
	bool over;		/* and it was taken over: what comes is for the next batch */
	bool in_handover;
	bool only_joins;	/* the last span is nothing but waits for workers to end */
};

void dl_wait_search_begin(struct dl_wait_search *s, uint32_t thread);
int dl_wait_search(struct dl_wait_search *s, const struct dl_stage *st);	/* 0 or -ENOMEM */
/* So many spans of out do not change any more. */
size_t dl_wait_closed(const struct dl_wait_search *s, const struct dl_stage *st);
/* Nobody waits for a batch in spans from `ending` on: the training was over. Only in the last stage. */
bool dl_wait_ends(const struct dl_wait_search *s, const struct dl_timeline *tl);
/* From when on the thread's time is still needed. */
uint64_t dl_wait_need(const struct dl_wait_search *s);
/* The first cnt of out are done with. */
void dl_wait_take(struct dl_wait_search *s, size_t cnt);
void dl_wait_search_fini(struct dl_wait_search *s);

/*
 * What is explained stage by stage, gaps.c, waits.c: take() explains a stage, need() says from when on the
 * timeline is needed for the next one, publish() moves it all to the report behind the last.
 */
struct dl_gap_finder;
struct dl_gap_finder *dl_gap_finder_new(void);	/* NULL without memory */
void dl_gap_finder_free(struct dl_gap_finder *f);
int dl_gaps_take(struct dl_gap_finder *f, const struct dl_stage *st);
uint64_t dl_gaps_need(const struct dl_gap_finder *f, const struct dl_stage *st);
int dl_gaps_publish(struct dl_gap_finder *f, struct dl_report *r, const struct dl_stage *st);
/* The devices, in order of their first kernels; false there are no more. */
bool dl_gaps_device(const struct dl_gap_finder *f, size_t i, uint32_t *ret_proc, uint32_t *ret_id, uint64_t *ret_start);
/* A device's first gap began before anything was known of the device, and was cut off. */
bool dl_gaps_missed(const struct dl_gap_finder *f);
/* What an earlier reading found is known from the first stage on. 0 or -ENOMEM. */
int dl_gaps_expect(struct dl_gap_finder *f, const struct dl_gap_finder *earlier);

struct dl_wait_finder;
struct dl_wait_finder *dl_wait_finder_new(void);
void dl_wait_finder_free(struct dl_wait_finder *f);
int dl_waits_take(struct dl_wait_finder *f, const struct dl_stage *st);
uint64_t dl_waits_need(const struct dl_wait_finder *f, const struct dl_stage *st);
int dl_waits_publish(struct dl_wait_finder *f, struct dl_report *r, const struct dl_stage *st);
/* The rate of copies that is used for estimates came to be known late. */
bool dl_waits_missed(const struct dl_wait_finder *f);
int dl_waits_expect(struct dl_wait_finder *f, const struct dl_wait_finder *earlier);

/* Cuts sorted spans to [from, to]. */
void dl_clip_spans(struct dl_spans *s, uint64_t from, uint64_t to);

#endif
