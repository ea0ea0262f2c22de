/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What the tests of the post-mortem plant in the small job of diagnose_util.h, and look for. */
#ifndef DLBPF_TESTS_PM_UTIL_H
#define DLBPF_TESTS_PM_UTIL_H

#include "unit/diagnose_util.h"

#include <signal.h>

#include "diagnose/postmortem.h"

#define MIB (1ULL << 20)
#define TMPFS 0x01021994u
#define EXT4 0xef53u

/* A batch of the worker at t: its feeder writes, the trainer wakes and fetches it from the sharer. */
static inline void batch_at(struct synth *s, double t)
{
	synth_wake(s, AT(t), WORKER, WORKER, FEEDER, WORKER, NR_FUTEX);
	synth_run(s, 1, FEEDER, WORKER, AT(t), AT(t + 1), SYNTH_SLEEP, ON_COND);
	synth_wake(s, AT(t + 0.9), FEEDER, WORKER, TRAINER, TRAINER, NR_WRITE);
	synth_run(s, 0, TRAINER, TRAINER, AT(t + 1), AT(t + 2), SYNTH_SLEEP,
		  WAIT(NR_READ, .file_kind = DL_FILE_UNIX, .file_ino = SOCKET));
	synth_wake(s, AT(t + 1.5), TRAINER, TRAINER, SHARER, WORKER, NR_CONNECT);
	synth_run(s, 1, SHARER, WORKER, AT(t + 2), AT(t + 3), SYNTH_SLEEP,
		  WAIT(NR_ACCEPT4, .file_kind = DL_FILE_UNIX, .file_ino = SOCKET + 1, .flags = DL_SW_SIGBLOCK));
	synth_wake(s, AT(t + 2.9), SHARER, WORKER, TRAINER, TRAINER, NR_WRITE);
	synth_run(s, 0, TRAINER, TRAINER, AT(t + 3), AT(t + 4), SYNTH_SLEEP, ON_RESULTS);
}

/* The job, with two batches at 10 and 20 ms; then everybody waits. */
static inline struct synth *job_running(void)
{
	struct synth *s = job_new();

	synth_run(s, 0, TRAINER, TRAINER, AT(5), AT(6), SYNTH_SLEEP, ON_RESULTS);
	batch_at(s, 10);
	batch_at(s, 20);
	return s;
}

static inline void signal_from(struct synth *s, double t, uint32_t sender, uint32_t target, int sig, int code, uint64_t addr)
{
	struct dl_ev_signal ev = { .h = { .size = sizeof(ev), .kind = DL_EV_SIGNAL, .ts = AT(t), .tid = sender, .pid = sender },
				   .target_tid = target, .target_pid = target, .sig = sig, .code = code, .addr = addr,
				   .sender_ppid = 1, .sender_uid = 1000, .sender_comm = { "reaper" } };

	if (sender >= STRANGER)
		ev.h.flags = DL_HDR_FOREIGN;
	synth_event(s, &ev.h);
}

static inline void died_of(struct synth *s, double t, uint32_t pid, int sig)
{
	synth_exit(s, AT(t), pid, pid, sig, DL_EX_LAST);
}

static inline void exited(struct synth *s, double t, uint32_t pid, int code)
{
	synth_exit(s, AT(t), pid, pid, code << 8, DL_EX_LAST);
}

static inline void env_shm(struct synth *s, double t, uint64_t total, uint64_t used, uint64_t files, uint64_t bytes)
{
	struct dl_ev_env_shm ev = { .h = { .size = sizeof(ev), .kind = DL_EV_ENV_SHM, .ts = AT(t), .tid = TRAINER, .pid = TRAINER },
				    .total = total, .used = used, .torch_cnt = files, .torch_bytes = bytes };

	synth_event_text(s, &ev.h, "/dev/shm");
}

static inline void env_proc(struct synth *s, double t, uint32_t pid, uint64_t fds, uint64_t fds_limit, uint64_t maps, uint64_t maps_limit)
{
	struct dl_ev_env_proc ev = { .h = { .size = sizeof(ev), .kind = DL_EV_ENV_PROC, .ts = AT(t), .tid = pid, .pid = pid },
				     .fds = fds, .fds_limit = fds_limit, .maps = maps, .maps_limit = maps_limit };

	synth_event(s, &ev.h);
}

static inline void env_cgroup(struct synth *s, double t, const char *path, uint64_t usage, uint64_t limit, uint64_t kills)
{
	struct dl_ev_env_cgroup ev = { .h = { .size = sizeof(ev), .kind = DL_EV_ENV_CGROUP, .ts = AT(t), .tid = TRAINER, .pid = TRAINER },
				       .version = 2, .mem_usage = usage, .mem_limit = limit, .mem_anon = usage / 2,
				       .mem_shmem = usage / 4, .mem_file = usage / 8, .oom_kills = kills };

	synth_event_text(s, &ev.h, path);
}

static inline void mem(struct synth *s, double t, uint32_t pid, uint64_t anon, uint64_t file, uint64_t shmem)
{
	struct dl_ev_mem ev = { .h = { .size = sizeof(ev), .kind = DL_EV_MEM, .ts = AT(t), .tid = pid, .pid = pid },
				.anon = anon, .file = file, .shmem = shmem, .pgtables = MIB };

	synth_event(s, &ev.h);
}

/* A failed call of a thread; what says more of it is set in more. */
static inline void fails(struct synth *s, double t, uint32_t tid, uint32_t pid, int nr, int err,
			 const struct dl_ev_syscall_fail *more, const char *path)
{
	struct dl_ev_syscall_fail ev = more ? *more : (struct dl_ev_syscall_fail){};

	ev.h = (struct dl_hdr){ .size = sizeof(ev), .kind = DL_EV_SYSCALL_FAIL, .ts = AT(t), .tid = tid, .pid = pid };
	ev.syscall = nr;
	ev.err = err;
	synth_event_text(s, &ev.h, path);
}

#define MORE(...) (&(const struct dl_ev_syscall_fail){ __VA_ARGS__ })

/* Finishes the trace and explains it; the caller frees. NULL with the message in d where that fails. */
static inline struct dl_postmortem *try_pm(struct synth *s, const struct dl_pm_opts *opts, struct dl_diag *d)
{
	struct dl_postmortem *pm = NULL;
	struct dl_trace *t = NULL;

	CHECK_EQ(synth_finish(s), 0);
	if (dl_trace_open(&t, test_path("job.dlbpf"), d))
		test_fail(__FILE__, __LINE__, "%s", d->msg);
	if (dl_postmortem_trace(&pm, t, opts, d))
		pm = NULL;
	dl_trace_close(t);
	return pm;
}

/* What must hold of every post-mortem. */
static inline void check_shape(const struct dl_postmortem *pm)
{
	uint64_t last = 0;
	bool decides = false, untimed = false;

	CHECK(pm->text && pm->text[0]);
	vec_for_each(&pm->facts, f) {
		CHECK(f->text);
		CHECK(!f->ts || (!untimed && f->ts >= last));
		last = f->ts ? f->ts : last;
		untimed |= !f->ts;
		decides |= f->decides;
	}
	CHECK(pm->death == DL_DEATH_NONE || pm->confidence != DL_PM_CERTAIN || decides);
	CHECK(pm->death != DL_DEATH_UNEXPLAINED || pm->confidence <= DL_PM_POSSIBLE);
	CHECK(pm->death == DL_DEATH_NONE || pm->actions.cnt);
	vec_for_each(&pm->alternatives, a)
		CHECK(a->why && a->decides && (a->death != pm->death || pm->confidence != DL_PM_CERTAIN));
	vec_for_each(&pm->threads, t)
		CHECK(t->state);
	vec_for_each(&pm->procs, p)
		CHECK(p->state);
	vec_for_each(&pm->numbers, n)
		CHECK(!n->estimated || n->how);
}

static inline struct dl_postmortem *explain(struct synth *s, const struct dl_pm_opts *opts)
{
	struct dl_diag d = {};
	struct dl_postmortem *pm = try_pm(s, opts, &d);

	if (!pm)
		test_fail(__FILE__, __LINE__, "%s", d.msg);
	if (getenv("TEST_CHAINS")) {
		fprintf(stderr, "# %s (%s): %s\n", dl_death_id(pm->death), dl_pm_confidence_id(pm->confidence), pm->text);
		vec_for_each(&pm->facts, f)
			fprintf(stderr, "#   %c %.3f ms %u %s\n", f->decides ? '>' : ' ', f->ts ? ((double)f->ts - (double)BASE) / 1e6 : 0,
				f->who.pid, f->text);
	}
	check_shape(pm);
	return pm;
}

#define CHECK_DEATH(pm, want, sure) do { \
	const struct dl_postmortem *_pm = (pm); \
	CHECK_STR(dl_death_id(_pm->death), want); \
	CHECK_STR(dl_pm_confidence_id(_pm->confidence), sure); \
} while (0)

static inline bool has_alternative(const struct dl_postmortem *pm, enum dl_death death)
{
	vec_for_each(&pm->alternatives, a)
		if (a->death == death)
			return true;
	return false;
}

static inline bool has_command(const struct dl_postmortem *pm, const char *text)
{
	vec_for_each(&pm->actions, a)
		if ((a->command && strstr(a->command, text)) || strstr(a->text, text))
			return true;
	return false;
}

static inline bool has_note(const struct dl_postmortem *pm, const char *text)
{
	vec_for_each(&pm->notes, n)
		if (strstr(*n, text))
			return true;
	return false;
}

static inline const struct dl_pm_fact *fact_with(const struct dl_postmortem *pm, const char *text)
{
	vec_for_each(&pm->facts, f)
		if (strstr(f->text, text))
			return f;
	return NULL;
}

static inline uint64_t number_of(const struct dl_postmortem *pm, const char *id)
{
	uint64_t value = 0;

	if (!dl_pm_get(pm, id, &value))
		test_fail(__FILE__, __LINE__, "there is no number %s", id);
	return value;
}

static inline const struct dl_pm_thread *thread_of(const struct dl_postmortem *pm, uint32_t tid)
{
	vec_for_each(&pm->threads, t)
		if (t->who.tid == tid)
			return t;
	test_fail(__FILE__, __LINE__, "thread %u is not listed", tid);
}

static inline const struct dl_pm_proc *proc_of(const struct dl_postmortem *pm, uint32_t pid)
{
	vec_for_each(&pm->procs, p)
		if (p->who.pid == pid)
			return p;
	test_fail(__FILE__, __LINE__, "process %u is not listed", pid);
}

#endif
