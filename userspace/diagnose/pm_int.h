/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Inside diagnose/: the parts of a post-mortem from a trace. Errors stick in the context: DL_PM_DO() does
 * nothing behind the first one.
 */
#ifndef DLBPF_DIAGNOSE_PM_INT_H
#define DLBPF_DIAGNOSE_PM_INT_H

#include "base/str.h"
#include "diagnose/postmortem.h"
#include "timeline/timeline.h"

struct dl_trace_meta;

#define DL_PM_TMPFS_MAGIC 0x01021994
#define DL_PM_S 1000000000ULL
#define DL_PM_MS 1000000ULL

/* How one process ended, or is about to. */
struct dl_pm_dead {
	uint64_t ts;		/* of its first event: the signal, else the exit */
	uint32_t proc;		/* index */
	int32_t signr;		/* that it died of; 0 none */
	int32_t code;		/* exit code; 0 none */
	const struct dl_ev_signal *sig;	/* the first that was sent; NULL not in the trace */
	bool side;		/* a helper: the job can go on without it */
	bool by_own;		/* one of its own ancestors sent the signal */
};

/* A system call that failed. */
struct dl_pm_fail {
	const struct dl_ev_syscall_fail *ev;
	uint64_t ts;
	uint32_t proc, thread;	/* indices */
	char path[256];		/* "" unknown */
};

struct dl_pm_fails { struct dl_pm_fail *v; size_t cnt, cap; };

struct dl_pmx {
	const struct dl_timeline *tl;
	const struct dl_trace_meta *meta;	/* NULL not known */
	struct dl_postmortem *pm;
	struct dl_pm_fails fails;	/* in order */
	uint32_t proc;			/* the victim; DL_NONE nobody */
	uint32_t thread;		/* that took the signal or failed; DL_NONE not known */
	uint64_t at;			/* the instant whose states are told: of the death, or the end */
	const struct dl_ev_sigbus_map *bus;	/* that the verdict rests on; NULL */
	const struct dl_ev_oom_kill *oom;
	const struct dl_pm_fail *fail;
	const struct dl_ev_signal *sig;
	bool brief;			/* for a report: what may only be slow is no crash */
	int err;
};

#define DL_PM_DO(x, call) do { \
	if (!(x)->err) \
		(x)->err = (call); \
} while (0)

/* pm_who.c: names; the texts in a dl_pm_who are the timeline's. */
struct dl_pm_who dl_pm_who_proc(const struct dl_timeline *tl, uint32_t proc);
struct dl_pm_who dl_pm_who_thread(const struct dl_timeline *tl, uint32_t thread);
void dl_pm_add_proc(struct dl_str *s, const struct dl_timeline *tl, uint32_t proc);	/* "worker 1 (pid 7)" */
void dl_pm_add_sender(struct dl_str *s, const struct dl_timeline *tl, const struct dl_ev_signal *ev);
const char *dl_pm_signal_name(char buf[24], int32_t sig);	/* "SIGTERM" */
uint32_t dl_pm_proc_at(const struct dl_timeline *tl, uint32_t pid, uint64_t ts);	/* DL_NONE foreign */
uint32_t dl_pm_thread_at(const struct dl_timeline *tl, uint32_t tid, uint64_t ts);
bool dl_pm_is_ancestor(const struct dl_timeline *tl, uint32_t proc, uint32_t of);
bool dl_pm_alive(const struct dl_proc *p, uint64_t ts);
/* The thread that takes a trainer's batches: its pin-memory thread, else its main thread; DL_NONE. */
uint32_t dl_pm_consumer(const struct dl_timeline *tl, uint32_t trainer);
bool dl_pm_timed_out(const struct dl_wait *w, uint64_t start);	/* as dl_timed_out(), of nice processes, too */
/* Copies the text behind an event; "" none. */
void dl_pm_tail(char *buf, size_t sz, const struct dl_hdr *ev);
/* The verdict and its sentence. */
void dl_pm_verdict(struct dl_pmx *x, enum dl_death death, enum dl_pm_confidence confidence, struct dl_str *text);
void dl_pm_verdictf(struct dl_pmx *x, enum dl_death death, enum dl_pm_confidence confidence, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* pm_env.c: what the recorder had read last before an instant, or first behind it; NULL never. */
const struct dl_ev_env_shm *dl_pm_shm_at(const struct dl_pmx *x, uint64_t ts);
const struct dl_ev_env_proc *dl_pm_limits_at(const struct dl_pmx *x, uint32_t pid, uint64_t ts);
const struct dl_ev_env_host *dl_pm_host_at(const struct dl_pmx *x, uint64_t ts);
/* The level that is full, by the OOM kill's limit and name, else the one nearest to its limit. */
const struct dl_ev_env_cgroup *dl_pm_cgroup_at(const struct dl_pmx *x, uint64_t ts, const struct dl_ev_oom_kill *oom);
/* Kills that the groups counted around ts. */
uint64_t dl_pm_cgroup_kills(const struct dl_pmx *x, uint64_t ts);
const struct dl_mem *dl_pm_mem_at(const struct dl_proc *p, uint64_t ts);

/* pm_judge.c: the verdict, with the facts that decide and the alternatives. pid 0: of the run. */
int dl_pm_judge(struct dl_pmx *x, uint32_t asked);
/* The first signal from outside that asked this process, or one above it, to end, in the time before; NULL. */
const struct dl_ev_signal *dl_pm_asked_to_end(const struct dl_pmx *x, uint32_t proc, uint64_t before);

/* pm_signal.c, pm_oom.c, pm_exit.c: explain a death. */
void dl_pm_by_signal(struct dl_pmx *x, const struct dl_pm_dead *d);
void dl_pm_by_sender(struct dl_pmx *x, const struct dl_pm_dead *d, const struct dl_ev_signal *ev);
bool dl_pm_by_oom(struct dl_pmx *x, const struct dl_pm_dead *d);	/* false: the OOM killer had no part in it */
void dl_pm_killed_by_kernel(struct dl_pmx *x, const struct dl_pm_dead *d);
void dl_pm_by_sigbus(struct dl_pmx *x, const struct dl_pm_dead *d);
void dl_pm_by_exit(struct dl_pmx *x, const struct dl_pm_dead *d);

/* pm_stack.c: native code. */
void dl_pm_add_place(struct dl_str *s, const struct dl_pmx *x, uint32_t proc, uint64_t ip);	/* "decode (libfoo.so)" */
/* " in decode (libfoo.so), called by ...": the victim's innermost frames that tell something; false no stack. */
bool dl_pm_add_caller(struct dl_str *s, const struct dl_pmx *x, uint32_t proc);
/* The frames of the thread that got the fatal signal by its own doing. 0 or -ENOMEM. */
int dl_pm_fill_stack(const struct dl_pmx *x, struct dl_pm_thread *out);

/* pm_fail.c: system calls that failed. */
int dl_pm_read_fails(struct dl_pmx *x);
enum dl_death dl_pm_fail_death(const struct dl_pmx *x, const struct dl_pm_fail *f);
/* The first of the failures of one kind that led to the end of proc at ts; NULL none did. */
const struct dl_pm_fail *dl_pm_fail_before(const struct dl_pmx *x, uint32_t proc, uint64_t ts, uint64_t within);
void dl_pm_by_fail(struct dl_pmx *x, const struct dl_pm_fail *f, const char *then);
void dl_pm_fail_text(struct dl_str *s, const struct dl_pmx *x, const struct dl_pm_fail *f);

/* pm_hang.c: just before ts nothing moved any more: true, and the verdict is set. sure: only where nothing
 * else explains it. */
bool dl_pm_by_hang(struct dl_pmx *x, uint64_t ts, bool sure);
bool dl_pm_by_orphans(struct dl_pmx *x);
/* Since when the thread has been in the block that it is in just before ts, its time-outs looked through;
 * false where it is not blocked. */
bool dl_pm_blocked_since(const struct dl_timeline *tl, uint32_t thread, uint64_t ts, uint64_t *since,
			 const struct dl_wait **wait);

/* pm_state.c: "waiting in poll for the next batch" */
void dl_pm_wait_text(struct dl_str *s, const struct dl_timeline *tl, uint32_t thread, const struct dl_wait *w);
void dl_pm_add_threads(struct dl_pmx *x);
void dl_pm_gpu(struct dl_pmx *x);

/* pm_numbers.c, pm_procs.c, pm_facts.c */
void dl_pm_numbers(struct dl_pmx *x);
void dl_pm_procs(struct dl_pmx *x);
void dl_pm_facts(struct dl_pmx *x);
void dl_pm_notes(struct dl_pmx *x, bool complete);

#endif
