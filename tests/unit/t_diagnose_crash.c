/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What killed a worker: the evidence decides, not the signal's name. */
#include "unit/diagnose_util.h"

#include <signal.h>

static void signal_event(struct synth *s, double t, uint32_t sender, uint32_t target, int sig, int code, uint64_t addr)
{
	struct dl_ev_signal ev = { .h = { .size = sizeof(ev), .kind = DL_EV_SIGNAL, .ts = AT(t), .tid = sender, .pid = sender },
				   .target_tid = target, .target_pid = target, .sig = sig, .code = code, .addr = addr,
				   .sender_ppid = 1, .sender_uid = 1000, .sender_comm = { "reaper" } };

	synth_event(s, &ev.h);
}

static void sigbus_map(struct synth *s, double t, uint64_t off, uint64_t size, uint32_t magic, uint64_t total, uint64_t used)
{
	struct dl_ev_sigbus_map ev = { .h = { .size = sizeof(ev), .kind = DL_EV_SIGBUS_MAP, .ts = AT(t), .tid = WORKER, .pid = WORKER },
				       .addr = 0x7f0000001000, .file_off = off, .file_sz = size, .file_ino = 77,
				       .file_magic = magic, .fs_total = total, .fs_used = used };

	synth_event_text(s, &ev.h, "torch_200_abc");
}

/* The first signal, PyTorch's own re-raise (code -6), and the exit by it. */
static struct dl_report *dead_worker(struct synth *s, int sig)
{
	struct dl_report *r;

	signal_event(s, 30.1, WORKER, WORKER, sig, -6, 0);
	synth_exit(s, AT(30.2), WORKER, WORKER, sig, DL_EX_LAST);
	synth_run(s, 0, TRAINER, TRAINER, AT(10), AT(40), SYNTH_SLEEP, ON_RESULTS);
	r = job_report(s, NULL);
	CHECK(r->crash);
	CHECK_EQ(r->crash->pid, WORKER);
	CHECK_EQ(r->crash->role, DL_ROLE_WORKER);
	CHECK_EQ(r->crash->sig, sig);
	return r;
}

TEST(shm_full)
{
	struct synth *s = job_new();
	struct dl_report *r;

	signal_event(s, 30, WORKER, WORKER, SIGBUS, 2, 0x7f0000001000);
	sigbus_map(s, 30, 4096, 19 << 20, 0x01021994, 16 << 20, 16 << 20);
	r = dead_worker(s, SIGBUS);
	CHECK_STR(r->crash->cause, "shm-full");
	CHECK(strstr(r->crash->text, "16.0 MiB of 16.0 MiB"));
	CHECK_EQ(r->crash->ts, AT(30));
	dl_report_free(r);
}

/* The same signal and the same message of PyTorch, but the file is shorter than its mapping. */
TEST(truncated_file)
{
	struct synth *s = job_new();
	struct dl_report *r;

	signal_event(s, 30, WORKER, WORKER, SIGBUS, 2, 0x7f0000001000);
	sigbus_map(s, 30, 1 << 20, 4096, 0xef53, 100ULL << 30, 50ULL << 30);
	r = dead_worker(s, SIGBUS);
	CHECK_STR(r->crash->cause, "mapped-file-truncated");
	dl_report_free(r);
}

TEST(full_file_system)
{
	struct synth *s = job_new();
	struct dl_report *r;

	signal_event(s, 30, WORKER, WORKER, SIGBUS, 2, 0x7f0000001000);
	sigbus_map(s, 30, 4096, 1 << 20, 0xef53, 100ULL << 20, 100ULL << 20);
	r = dead_worker(s, SIGBUS);
	CHECK_STR(r->crash->cause, "mapped-filesystem-full");
	dl_report_free(r);
}

/* Nothing fits: no cause is named. */
TEST(unknown_sigbus)
{
	struct synth *s = job_new();
	struct dl_report *r;

	signal_event(s, 30, WORKER, WORKER, SIGBUS, 2, 0x7f0000001000);
	sigbus_map(s, 30, 4096, 1 << 20, 0xef53, 100ULL << 30, 10ULL << 30);
	r = dead_worker(s, SIGBUS);
	CHECK(!r->crash->cause);
	CHECK(r->crash->text);
	dl_report_free(r);
}

/* The mark comes behind the signal here, and before it on other kernels. */
static void oom(struct synth *s, double mark_at, uint32_t flags)
{
	struct dl_ev_oom_kill ev = { .h = { .size = sizeof(ev), .kind = DL_EV_OOM_KILL, .ts = AT(mark_at), .tid = TRAINER, .pid = TRAINER },
				     .target_tid = WORKER, .target_pid = WORKER, .anon = 300 << 20, .limit = 512 << 20,
				     .usage = 512 << 20, .flags = flags };
	struct dl_report *r;

	synth_event_text(s, &ev.h, "/job/1");
	signal_event(s, 30, TRAINER, WORKER, SIGKILL, 128, 0);
	synth_exit(s, AT(30.2), WORKER, WORKER, SIGKILL, DL_EX_LAST);
	synth_run(s, 0, TRAINER, TRAINER, AT(10), AT(40), SYNTH_SLEEP, ON_RESULTS);
	r = job_report(s, NULL);
	CHECK(r->crash);
	CHECK_STR(r->crash->cause, flags & DL_OOM_MEMCG ? "oom-cgroup" : "oom-host");
	CHECK(strstr(r->crash->text, "300 MiB private"));
	CHECK(!(flags & DL_OOM_MEMCG) || strstr(r->crash->text, "'/job/1' was at its limit of 512 MiB"));
	dl_report_free(r);
}

TEST(oom_of_cgroup)
{
	oom(job_new(), 30.05, DL_OOM_MEMCG);
}

TEST(oom_of_host)
{
	oom(job_new(), 29.9, 0);
}

TEST(killed_by)
{
	struct synth *s = job_new();
	struct dl_report *r;

	signal_event(s, 30, STRANGER, WORKER, SIGKILL, 0, 0);
	synth_exit(s, AT(30.2), WORKER, WORKER, SIGKILL, DL_EX_LAST);
	synth_run(s, 0, TRAINER, TRAINER, AT(10), AT(40), SYNTH_SLEEP, ON_RESULTS);
	r = job_report(s, NULL);
	CHECK(r->crash);
	CHECK_STR(r->crash->cause, "killed-by");
	CHECK(strstr(r->crash->text, "reaper (pid 900"));
	dl_report_free(r);
}

/* The trainer ends its workers with SIGTERM: no crash. A worker that survived a signal: no crash. */
TEST(no_crash)
{
	struct synth *s = job_new();
	struct dl_report *r;

	signal_event(s, 20, STRANGER, WORKER, SIGSEGV, 0, 0);
	signal_event(s, 30, TRAINER, WORKER, SIGTERM, 0, 0);
	synth_exit(s, AT(30.2), WORKER, WORKER, SIGTERM, DL_EX_LAST);
	synth_run(s, 0, TRAINER, TRAINER, AT(10), AT(40), SYNTH_SLEEP, ON_RESULTS);
	r = job_report(s, NULL);
	CHECK(!r->crash);
	dl_report_free(r);
}

TEST(worker_exit)
{
	struct synth *s = job_new();
	struct dl_report *r;

	synth_exit(s, AT(30), WORKER, WORKER, 3 << 8, DL_EX_LAST);
	synth_run(s, 0, TRAINER, TRAINER, AT(10), AT(40), SYNTH_SLEEP, ON_RESULTS);
	r = job_report(s, NULL);
	CHECK(r->crash);
	CHECK_STR(r->crash->cause, "worker-exit");
	CHECK(strstr(r->crash->text, "exit code 3"));
	dl_report_free(r);
}
