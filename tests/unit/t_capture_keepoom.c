/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The flight recorder without memory, from each allocation on: what cannot be remembered is counted,
 * what cannot be done is said, nothing crashes. */
#include "capture/forecast.h"
#include "capture/keep.h"
#include "unit/keep_util.h"

#include "unit/failing_alloc.h"

#if FAILING_ALLOC

static int ignore(struct dl_sink *sink, const struct dl_hdr *ev)
{
	(void)sink, (void)ev;
	return 0;
}

static struct dl_sink nobody = { ignore };

static int be_told(struct dl_kstate *s)
{
	for (uint32_t i = 0; i < 20; i++) {
		struct dl_ev_task task = task_ev(S, 100 + i / 4, 100 + i, 1, "python3");
		struct dl_ev_fork fork = fork_ev(2 * S, 100, 200 + i);
		struct dl_ev_string string = DL_EVENT_INIT(string, DL_EV_STRING, S, 100, 0);
		struct dl_ev_switch out = out_ev(3 * S, 100 + i / 4, 100 + i, 1, S);

		string.id = i;
		dl_kstate_event(s, &task.h);
		dl_kstate_event(s, &fork.h);
		dl_kstate_event(s, with_text(&string.h, "text"));
		dl_kstate_event(s, &out.h);
	}
	return dl_kstate_restate(s, 50 * S, &nobody);
}

TEST(state)
{
	struct dl_kstate *s;
	long n = 0;

	for (bool done = false; !done; n++) {
		int err;

		alloc_left = n;
		err = dl_kstate_new(&s);
		if (!err) {
			CHECK_OK(be_told(s));
			done = !dl_kstate_dropped(s);
			dl_kstate_free(s);
		}
		alloc_left = LONG_MAX;
		CHECK(!err || err == -ENOMEM);
	}
	CHECK(n > 50);
}

static void sample(struct dl_lines *l, uint64_t t)
{
	for (uint32_t pid = 1; pid < 10; pid++) {
		struct dl_ev_env_proc ev = DL_EVENT_INIT(env_proc, DL_EV_ENV_PROC, t * S, pid, pid);

		ev.fds = t;
		ev.fds_limit = 100;
		dl_lines_event(l, &ev.h);
	}
}

TEST(lines)
{
	bool found = false;

	for (long n = 0; n < 60; n++) {
		struct dl_line_forecast next, save;
		struct dl_lines *l;
		bool due;

		alloc_left = n;
		if (!dl_lines_new(&l)) {
			for (uint64_t t = 1; t < 80; t++) {
				sample(l, t);
				found = dl_lines_next(l, t * S, 1000 * S, &next, 10 * S, &save, &due);
			}
			dl_lines_free(l);
		}
		alloc_left = LONG_MAX;
	}
	CHECK(found);	/* the last time there was enough */
}

static void empty(const char *dir)
{
	char command[600];

	snprintf(command, sizeof(command), "rm -rf '%s'", dir);
	CHECK(!system(command));
}

static int record(struct dl_keep *k)
{
	int err = 0;

	for (uint64_t i = 0; i < 400 && !err; i++) {
		struct dl_ev_wake ev = DL_EVENT_INIT(wake, DL_EV_WAKE, 1000 * S + i * 10 * MS, 300, 300);

		err = dl_keep_write(k, &ev.h);
		if (!err && i % 10 == 9)
			err = dl_keep_tick(k, ev.h.ts, ev.h.ts);
	}
	return err;
}

TEST(segments)
{
	const struct dl_invoker inv = { .uid = geteuid(), .gid = getegid() };
	const struct dl_keep_opts opts = { .span_ns = 2 * S };
	struct dl_trace_meta meta = test_meta();
	const char *dir = test_path("oom.keep");
	bool done = false;
	long n = 0;

	meta.start_ts = 1000 * S;
	for (; !done; n++) {
		struct dl_keep *k = NULL;
		struct dl_diag d = { "" };
		int err;

		empty(dir);
		alloc_left = n;
		err = dl_keep_open(&k, &opts, dir, &inv, &meta, &d);
		if (err)
			CHECK(d.msg[0]);
		else
			done = !(err = record(k));
		alloc_left = LONG_MAX;
		CHECK_MSG(!err || err == -ENOMEM, "%d", err);
		dl_keep_close(k, true);
	}
	CHECK(n > 20);
}

TEST(a_folder)
{
	const struct dl_invoker inv = { .uid = geteuid(), .gid = getegid() };
	const struct dl_keep_opts opts = { .span_ns = 2 * S };
	struct dl_trace_meta meta = test_meta();
	const char *dir = test_path("read.keep");
	struct dl_keep *k = NULL;
	int err = -ENOMEM;

	meta.start_ts = 1000 * S;
	CHECK_OK(dl_keep_open(&k, &opts, dir, &inv, &meta, NULL));
	CHECK_OK(record(k));
	dl_keep_close(k, false);
	for (long n = 0; err; n++) {
		struct dl_trace *t;
		struct dl_diag d;

		alloc_left = n;
		err = dl_trace_open(&t, dir, &d);
		alloc_left = LONG_MAX;
		if (!err) {
			CHECK(read_events(t, NULL) >= 200);
			dl_trace_close(t);
		}
	}
}

#else

TEST(without_memory)
{
	SKIP("the sanitizer has an allocator of its own");
}

#endif
