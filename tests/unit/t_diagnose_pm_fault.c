/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Program errors: which it was, in whose code, and what only looks like one. */
#include "unit/pm_util.h"

static void check_fault(int sig, int code, uint64_t addr, const char *want, const char *sure, const char *text)
{
	struct synth *s = job_running();
	struct dl_postmortem *pm;

	signal_from(s, 30, WORKER, WORKER, sig, code, addr);
	signal_from(s, 30.1, WORKER, WORKER, sig, -6, 0);
	died_of(s, 30.2, WORKER, sig);
	pm = explain(s, NULL);
	CHECK_DEATH(pm, want, sure);
	CHECK_MSG(strstr(pm->text, text), "%s", pm->text);
	CHECK_EQ(pm->ts, AT(30));
	dl_postmortem_free(pm);
}

TEST(faults)
{
	check_fault(SIGSEGV, 1, 0x10, "segfault", "certain", "a null pointer");
	check_fault(SIGSEGV, 2, 0x7f0000001000, "segfault", "certain", "mapped, but not for this kind of access");
	check_fault(SIGSEGV, -6, 0, "segfault", "likely", "raised SIGSEGV itself");
	check_fault(SIGABRT, -6, 0, "abort", "certain", "aborted itself");
	check_fault(SIGFPE, 1, 0x400000, "arithmetic-error", "certain", "divided by zero");
	check_fault(SIGILL, 2, 0x400000, "illegal-instruction", "certain", "does not have");
	check_fault(SIGXCPU, 128, 0, "unexplained", "unknown", "ulimit -t");
	check_fault(SIGSYS, 1, 0, "unexplained", "unknown", "seccomp");
}

/* kill -SEGV is no segmentation fault. */
TEST(fault_sent_by_stranger)
{
	struct synth *s = job_running();
	struct dl_postmortem *pm;

	signal_from(s, 30, STRANGER, WORKER, SIGSEGV, 0, 0);
	signal_from(s, 30.1, WORKER, WORKER, SIGSEGV, -6, 0);
	died_of(s, 30.2, WORKER, SIGSEGV);
	pm = explain(s, NULL);
	CHECK_DEATH(pm, "killed-by", "certain");
	dl_postmortem_free(pm);
}

TEST(place_of_fault)
{
	struct dl_ev_mmap map = { .h = { .size = sizeof(map), .kind = DL_EV_MMAP, .ts = AT(1), .tid = TRAINER, .pid = TRAINER },
				  .start = 0x7f0000000000, .end = 0x7f0000100000 };
	struct dl_ev_signal ev = { .h = { .size = sizeof(ev), .kind = DL_EV_SIGNAL, .ts = AT(300), .tid = 201, .pid = 250 },
				   .target_tid = 250, .target_pid = 250, .sig = SIGSEGV, .code = 1, .ip = 0x7f0000000123 };
	struct synth *s = job_running();
	struct dl_postmortem *pm;

	/* The mapping is the trainer's, whose child the worker is. */
	synth_event_text(s, &map.h, "/usr/lib/libdecode.so.2");
	synth_fork(s, AT(200), TRAINER, TRAINER, 250, 250, "python");
	synth_task(s, AT(201), 250, 250, TRAINER, "python", DL_TF_LATE, QUARTET);
	ev.h.tid = 250;
	synth_event(s, &ev.h);
	died_of(s, 301, 250, SIGSEGV);
	pm = explain(s, NULL);
	CHECK_DEATH(pm, "segfault", "certain");
	CHECK_MSG(strstr(pm->text, "libdecode.so.2"), "%s", pm->text);
	dl_postmortem_free(pm);
}

/* abort() is the C library's: who called it is told, and all of the stack stands with the thread. */
TEST(stack_of_abort)
{
	static const struct { uint64_t addr; const char *function; } frames[] = {
		{ 0x7f0000000100, "raise" }, { 0x7f0000000200, "abort" }, { 0x7f0000200100, "resize_row" }, { 0x7f0000200200, "resize" },
		{ 0x7f0000400100, "_PyEval_EvalFrameDefault" },
	};
	static const struct { uint64_t start; const char *path; } maps[] = {
		{ 0x7f0000000000, "/lib/libc.so.6" }, { 0x7f0000200000, "/usr/lib/libdecode.so.2" }, { 0x7f0000400000, "/usr/bin/python3" },
	};
	struct { struct dl_ev_stack ev; uint64_t addrs[5]; } stack = {
		.ev = { .h = { .size = sizeof(stack), .kind = DL_EV_STACK, .ts = AT(30), .tid = WORKER, .pid = WORKER }, .id = 1, .user_cnt = 5 },
	};
	struct dl_ev_crash_stack crash = { .h = { .size = sizeof(crash), .kind = DL_EV_CRASH_STACK, .ts = AT(30), .tid = WORKER, .pid = WORKER },
					   .sig = SIGABRT, .code = -6, .stack = 1 };
	struct synth *s = job_running();
	struct dl_postmortem *pm;
	const struct dl_pm_thread *th;

	for (size_t i = 0; i < 3; i++) {
		struct dl_ev_mmap map = { .h = { .size = sizeof(map), .kind = DL_EV_MMAP, .ts = AT(1), .tid = WORKER, .pid = WORKER },
					  .start = maps[i].start, .end = maps[i].start + 0x100000 };

		synth_event_text(s, &map.h, maps[i].path);
	}
	for (size_t i = 0; i < 5; i++) {
		struct dl_ev_symbol sym = { .h = { .size = sizeof(sym), .kind = DL_EV_SYMBOL, .ts = AT(30), .pid = WORKER }, .addr = frames[i].addr };

		stack.addrs[i] = frames[i].addr;
		synth_event_text(s, &sym.h, frames[i].function);
	}
	synth_event(s, &stack.ev.h);
	signal_from(s, 30, WORKER, WORKER, SIGABRT, -6, 0);
	synth_event(s, &crash.h);
	died_of(s, 31, WORKER, SIGABRT);
	pm = explain(s, NULL);
	CHECK_DEATH(pm, "abort", "certain");
	CHECK_MSG(strstr(pm->text, "in resize_row (libdecode.so.2), called by _PyEval_EvalFrameDefault (python3)"), "%s", pm->text);
	th = thread_of(pm, WORKER);
	CHECK(th->died);
	CHECK_EQ(th->stack.cnt, 5);
	CHECK_STR(th->stack.v[1], "abort (libc.so.6)");
	CHECK(!thread_of(pm, TRAINER)->died);
	dl_postmortem_free(pm);
}
