/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What is said again at the head of a segment: the state of threads, facts, and what is left out. */
#include "unit/keep_util.h"

enum { TRAINER = 100, WORKER = 201 };

static struct dl_kstate *state;
static struct evlist said;

static int hear(struct dl_sink *sink, const struct dl_hdr *ev)
{
	(void)sink;
	evlist_add(&said, ev);
	return 0;
}

static struct dl_sink ear = { hear };

static void feed(const struct dl_hdr *ev)
{
	CHECK_OK(dl_kstate_before(state, ev, &ear));
	dl_kstate_event(state, ev);
}

static void begin(void)
{
	dl_kstate_free(state);
	evlist_fini(&said);
	CHECK_OK(dl_kstate_new(&state));
}

static void restate(uint64_t ts)
{
	evlist_fini(&said);
	CHECK_OK(dl_kstate_restate(state, ts, &ear));
	CHECK_OK(dl_kstate_restate_marks(state, ts, 30 * S, &ear));
	for (size_t i = 0; i < said.off.cnt; i++) {
		const struct dl_hdr *ev = evlist_at(&said, i);

		CHECK(ev->flags & DL_HDR_RESTATED);
		CHECK(dl_event_fits(dl_event_desc(ev->kind), ev));
	}
}

/* The only one of its kind and thread; NULL none. */
static const void *find(uint16_t kind, uint32_t tid)
{
	const void *found = NULL;

	for (size_t i = 0; i < said.off.cnt; i++) {
		const struct dl_hdr *ev = evlist_at(&said, i);

		if (ev->kind != kind || ev->tid != tid)
			continue;
		CHECK_MSG(!found, "two of kind %d, thread %u", kind, tid);
		found = ev;
	}
	return found;
}

static size_t count(uint16_t kind)
{
	size_t n = 0;

	for (size_t i = 0; i < said.off.cnt; i++)
		n += evlist_at(&said, i)->kind == kind;
	return n;
}

static void job(void)
{
	struct dl_ev_task ev = task_ev(1 * S, TRAINER, TRAINER, 1, "python3");
	struct dl_ev_fork fork;

	begin();
	ev.flags = DL_TF_ROOT | DL_TF_LATE;
	ev.start = S / 2;
	feed(&ev.h);
	fork = fork_ev(2 * S, TRAINER, WORKER);
	feed(&fork.h);
	ev = task_ev(3 * S, WORKER, WORKER, TRAINER, "pt_data_worker");
	ev.sig_caught = DL_WORKER_SIGNALS;
	feed(&ev.h);
}

TEST(what_was_seen_by_looking_still_holds)
{
	const struct dl_ev_task *task;

	job();
	restate(50 * S);
	task = find(DL_EV_TASK, TRAINER);
	CHECK(task);
	CHECK_EQ(task->h.ts, 50 * S);
	CHECK_EQ(task->flags, DL_TF_ROOT);
	CHECK_EQ(task->state, 'S');
	CHECK_EQ(task->syscall, 7);
	CHECK_EQ(task->start, S / 2);
	CHECK(!find(DL_EV_SWITCH, TRAINER));	/* it was not seen to switch */
}

TEST(who_made_whom)
{
	const struct dl_ev_fork *fork;
	const struct dl_ev_task *task;

	job();
	restate(50 * S);
	fork = find(DL_EV_FORK, TRAINER);
	CHECK(fork);
	CHECK_EQ(fork->h.ts, 2 * S);	/* when it was */
	CHECK_EQ(fork->child_pid, WORKER);
	task = find(DL_EV_TASK, WORKER);
	CHECK(task);
	CHECK_EQ(task->ppid, TRAINER);
	CHECK_EQ(task->sig_caught, DL_WORKER_SIGNALS);
}

/* The parent has gone: the child's own description has to do. Nobody had looked at it. */
TEST(the_maker_has_gone)
{
	struct dl_ev_exit ex = exit_ev(4 * S, TRAINER, 0);
	struct dl_ev_fork fork = fork_ev(2 * S, TRAINER, 300);
	const struct dl_ev_task *task;

	job();
	feed(&fork.h);
	feed(&ex.h);
	restate(50 * S);
	CHECK(!count(DL_EV_FORK));
	CHECK(!find(DL_EV_TASK, TRAINER));
	task = find(DL_EV_TASK, 300);
	CHECK(task);
	CHECK_EQ(task->ppid, TRAINER);
	CHECK_EQ(task->nspid, 0);
	CHECK_EQ(task->start, 2 * S);
	CHECK_STR(task->comm.s, "python3");
}

TEST(a_blocked_thread)
{
	struct dl_ev_switch out = out_ev(10 * S, WORKER, WORKER, 1, 5 * S);
	const struct dl_ev_switch *sw;
	const struct dl_ev_mark *since = NULL;
	const struct dl_ev_task *task;

	job();
	out.next_tid = 77;
	out.flags = DL_SW_NEXT_FOREIGN;
	feed(&out.h);
	restate(50 * S);
	sw = find(DL_EV_SWITCH, WORKER);
	CHECK(sw);
	CHECK_EQ(sw->h.ts, 50 * S);
	CHECK_EQ(sw->prev_state, 1);
	CHECK_EQ(sw->syscall, 202);
	CHECK_EQ(sw->file_ino, WORKER);
	CHECK_EQ(sw->switches, 10000);	/* so that a lost switch shows */
	CHECK_EQ(sw->next_tid, 0);
	task = find(DL_EV_TASK, WORKER);
	CHECK_EQ(task->state, 'S');
	CHECK_EQ(task->syscall, 202);
	CHECK_EQ(task->exec_ns, 5 * S);
	for (size_t i = 0; i < said.off.cnt; i++) {
		const struct dl_ev_mark *m = (const void *)evlist_at(&said, i);

		if (m->h.kind == DL_EV_MARK && m->what == DL_MARK_SINCE)
			since = m;
	}
	CHECK(since);
	CHECK_EQ(since->h.tid, WORKER);
	CHECK_EQ(since->value, 40000);
}

TEST(a_running_thread)
{
	struct dl_ev_switch in = in_ev(10 * S, WORKER, WORKER);
	const struct dl_ev_switch *sw;

	job();
	feed(&in.h);
	restate(50 * S);
	sw = find(DL_EV_SWITCH, 0);
	CHECK(sw);
	CHECK_EQ(sw->h.ts, 50 * S);
	CHECK_EQ(sw->h.cpu, 3);
	CHECK_EQ(sw->next_tid, WORKER);
	CHECK_EQ(sw->next_pid, WORKER);
	sw = find(DL_EV_SWITCH, WORKER);	/* in front of it: it did not wait since it was made */
	CHECK(sw);
	CHECK_EQ(sw->h.ts, 50 * S);
	CHECK_EQ(sw->prev_state, 0);
	CHECK_EQ(((const struct dl_ev_task *)find(DL_EV_TASK, WORKER))->state, 'R');
}

TEST(a_thread_that_waits_for_a_cpu)
{
	struct dl_ev_switch out = out_ev(10 * S, WORKER, WORKER, 1, 5 * S);
	struct dl_ev_wake wake = DL_EVENT_INIT(wake, DL_EV_WAKE, 11 * S, TRAINER, TRAINER);
	const struct dl_ev_switch *sw;

	job();
	feed(&out.h);
	wake.wakee_tid = wake.wakee_pid = WORKER;
	feed(&wake.h);
	restate(50 * S);
	sw = find(DL_EV_SWITCH, WORKER);
	CHECK(sw);
	CHECK_EQ(sw->prev_state, 0);
}

/* A switch that was read already but is younger than the segment's begin keeps its time: what comes
 * behind it fits then. */
TEST(a_switch_behind_the_begin)
{
	struct dl_ev_switch out = out_ev(50 * S + 3 * MS, WORKER, WORKER, 1, 5 * S);

	job();
	feed(&out.h);
	restate(50 * S);
	CHECK_EQ(((const struct dl_hdr *)find(DL_EV_SWITCH, WORKER))->ts, 50 * S + 3 * MS);
}

/* Rings are read one after the other. */
TEST(an_older_switch_that_comes_late)
{
	struct dl_ev_switch in = in_ev(10 * S, WORKER, WORKER), out = out_ev(9 * S, WORKER, WORKER, 1, S);

	job();
	feed(&in.h);
	feed(&out.h);
	restate(50 * S);
	CHECK(find(DL_EV_SWITCH, 0));
	CHECK_EQ(((const struct dl_ev_switch *)find(DL_EV_SWITCH, WORKER))->exec_ns, 0);
}

TEST(the_dead_are_left_out)
{
	struct dl_ev_name name = DL_EVENT_INIT(name, DL_EV_NAME, 3 * S, WORKER, WORKER);
	struct dl_ev_mmap map = DL_EVENT_INIT(mmap, DL_EV_MMAP, 3 * S, WORKER, WORKER);
	struct dl_ev_exit ex = exit_ev(10 * S, WORKER, 9);
	struct dl_ev_switch last = out_ev(10 * S + MS, WORKER, WORKER, 0x80, 5 * S);

	job();
	last.flags = DL_SW_EXITING;
	feed(&name.h);
	feed(with_text(&map.h, "/lib/libtorch.so"));
	restate(9 * S);
	CHECK(find(DL_EV_NAME, WORKER) && find(DL_EV_MMAP, WORKER));
	feed(&ex.h);
	feed(&last.h);
	restate(10 * S + 5 * MS);
	CHECK(!find(DL_EV_TASK, WORKER) && !count(DL_EV_FORK) && !find(DL_EV_SWITCH, WORKER));
	restate(50 * S);
	CHECK(!find(DL_EV_NAME, WORKER) && !count(DL_EV_MMAP));
	CHECK(!dl_kstate_proc(state, WORKER) && dl_kstate_proc(state, TRAINER));
}

TEST(a_number_is_used_again)
{
	struct dl_ev_cmdline cmd = DL_EVENT_INIT(cmdline, DL_EV_CMDLINE, 3 * S, WORKER, WORKER);
	struct dl_ev_exit ex = exit_ev(10 * S, WORKER, 9);
	struct dl_ev_fork fork = fork_ev(11 * S, TRAINER, WORKER);
	const struct dl_ev_task *task;

	job();
	feed(with_text(&cmd.h, "old"));
	feed(&ex.h);
	feed(&fork.h);
	restate(12 * S);
	CHECK(!count(DL_EV_CMDLINE));
	task = find(DL_EV_TASK, WORKER);	/* made from its fork: nobody has looked yet */
	CHECK(!task && find(DL_EV_FORK, TRAINER));
	CHECK_EQ(((const struct dl_hdr *)find(DL_EV_FORK, TRAINER))->ts, 11 * S);
}

/* The newest of each, once; what differs in what it is about stays beside each other. */
TEST(facts)
{
	struct dl_ev_cmdline cmd = DL_EVENT_INIT(cmdline, DL_EV_CMDLINE, 3 * S, TRAINER, TRAINER);
	struct dl_ev_string string = DL_EVENT_INIT(string, DL_EV_STRING, 3 * S, TRAINER, 0);
	struct dl_ev_loss loss = DL_EVENT_INIT(loss, DL_EV_LOSS, 3 * S, 0, 0);
	struct dl_ev_absent absent = DL_EVENT_INIT(absent, DL_EV_ABSENT, 3 * S, 0, 0);
	struct dl_ev_gpu_device dev = DL_EVENT_INIT(gpu_device, DL_EV_GPU_DEVICE, 3 * S, TRAINER, 0);
	struct dl_ev_gpu_source source = DL_EVENT_INIT(gpu_source, DL_EV_GPU_SOURCE, 3 * S, TRAINER, 0);
	struct dl_ev_gpu_clock clock = DL_EVENT_INIT(gpu_clock, DL_EV_GPU_CLOCK, 4 * S, TRAINER, 0);
	struct dl_ev_env_host host = DL_EVENT_INIT(env_host, DL_EV_ENV_HOST, 3 * S, 0, 0);
	size_t len;

	job();
	feed(with_text(&cmd.h, "a"));
	feed(with_text(&cmd.h, "python3 train.py"));
	for (uint32_t id = 1; id <= 3; id++) {
		string.id = id;
		feed(with_text(&string.h, "gemm"));
	}
	loss.cnt = 7;
	feed(&loss.h);
	loss.cnt = 9;
	feed(&loss.h);
	loss.kind = DL_EV_SWITCH;
	feed(&loss.h);
	feed(with_text(&absent.h, "no BTF"));
	feed(with_text(&dev.h, "H200"));
	dev.device = 1;
	feed(with_text(&dev.h, "H200"));
	feed(with_text(&source.h, "CUPTI"));
	feed(&clock.h);
	feed(&host.h);
	restate(50 * S);
	CHECK_EQ(count(DL_EV_CMDLINE), 1);
	CHECK(!memcmp(dl_event_tail(find(DL_EV_CMDLINE, TRAINER), &len), "python3 train.py", 16));
	CHECK_EQ(count(DL_EV_STRING), 3);
	CHECK_EQ(count(DL_EV_LOSS), 2);
	CHECK_EQ(count(DL_EV_ABSENT), 1);
	CHECK_EQ(count(DL_EV_GPU_DEVICE), 2);
	CHECK_EQ(count(DL_EV_GPU_SOURCE), 1);
	CHECK_EQ(((const struct dl_hdr *)find(DL_EV_GPU_CLOCK, 0))->ts, 4 * S);
	CHECK_EQ(count(DL_EV_ENV_HOST), 0);	/* that comes every second */
	restate(60 * S);	/* and again */
	CHECK_EQ(count(DL_EV_STRING), 3);
}

TEST(marks_frame_the_state)
{
	const struct dl_ev_mark *m;
	size_t len;

	job();
	restate(50 * S);
	m = (const void *)evlist_at(&said, said.off.cnt - 1);
	CHECK_EQ(m->h.kind, DL_EV_MARK);
	CHECK_EQ(m->what, DL_MARK_STATE);
	CHECK_EQ(m->value, 30);
	m = (const void *)evlist_at(&said, said.off.cnt - 2);
	CHECK_EQ(m->what, DL_MARK_START);
	CHECK_HAS(dl_event_tail(&m->h, &len), "30 s before");
}

/* --- stacks and symbols ------------------------------------------------------------------------- */

static const struct dl_hdr *stack_ev(uint32_t id)
{
	static struct {
		struct dl_ev_stack ev;
		uint64_t addr[3];
	} s;

	s.ev = DL_EVENT_INIT(stack, DL_EV_STACK, 3 * S, WORKER, 0);
	s.ev.h.size = sizeof(s);
	s.ev.id = id;
	s.ev.kernel_cnt = 1;
	s.ev.user_cnt = 2;
	s.addr[0] = 0xffffffff81000000;
	s.addr[1] = 0x1000;
	s.addr[2] = 0x2000 + id;
	return &s.ev.h;
}

static const struct dl_hdr *symbol_ev(uint32_t pid, uint64_t addr)
{
	struct dl_ev_symbol ev = DL_EVENT_INIT(symbol, DL_EV_SYMBOL, 3 * S, pid, 0);

	ev.addr = addr;
	return with_text(&ev.h, "f");
}

static struct dl_ev_sample sample_ev(uint64_t ts, uint32_t stack)
{
	struct dl_ev_sample ev = DL_EVENT_INIT(sample, DL_EV_SAMPLE, ts, WORKER, WORKER);

	ev.stack = stack;
	ev.ip = 0x1000;
	return ev;
}

TEST(stacks_are_said_where_they_are_used)
{
	struct dl_ev_sample sample;

	job();
	for (uint32_t id = 1; id <= 3; id++)
		feed(stack_ev(id));
	feed(symbol_ev(0, 0xffffffff81000000));
	feed(symbol_ev(WORKER, 0x1000));
	feed(symbol_ev(WORKER, 0x2002));
	feed(symbol_ev(WORKER, 0x9000));	/* of no stack */
	evlist_fini(&said);
	sample = sample_ev(4 * S, 2);
	feed(&sample.h);
	CHECK_EQ(said.off.cnt, 0);	/* this segment has it */
	restate(50 * S);
	CHECK_EQ(count(DL_EV_STACK) + count(DL_EV_SYMBOL), 0);
	evlist_fini(&said);
	sample = sample_ev(51 * S, 2);
	feed(&sample.h);
	CHECK_EQ(count(DL_EV_STACK), 1);
	CHECK_EQ(((const struct dl_ev_stack *)(const void *)evlist_at(&said, 0))->id, 2);
	CHECK_EQ(evlist_at(&said, 0)->ts, 51 * S);
	CHECK_EQ(count(DL_EV_SYMBOL), 3);
	sample = sample_ev(52 * S, 2);
	feed(&sample.h);
	CHECK_EQ(said.off.cnt, 4);	/* once */
	/* A new stack of known functions. */
	feed(stack_ev(4));
	CHECK_EQ(count(DL_EV_SYMBOL), 3);
	restate(60 * S);
	evlist_fini(&said);
	feed(stack_ev(5));
	CHECK_EQ(count(DL_EV_SYMBOL), 2);
}

/* A thread that is blocked all the time has the stack that it was blocked with. */
TEST(the_stack_of_a_blocked_thread)
{
	struct dl_ev_switch out = out_ev(10 * S, WORKER, WORKER, 2, 5 * S);

	job();
	feed(stack_ev(1));
	out.stack = 1;
	feed(&out.h);
	restate(50 * S);
	CHECK_EQ(count(DL_EV_STACK), 1);
	CHECK_EQ(((const struct dl_ev_switch *)find(DL_EV_SWITCH, WORKER))->stack, 1);
}

TEST(too_many_stacks)
{
	struct dl_ev_sample sample = sample_ev(51 * S, 7);
	uint32_t id = 1;

	job();
	while (!dl_kstate_wants_new_stacks(state))
		feed(stack_ev(id++));
	CHECK(!dl_kstate_wants_new_stacks(state));	/* once */
	restate(50 * S);
	restate(60 * S);	/* those that no segment of late has used are forgotten */
	restate(70 * S);
	evlist_fini(&said);
	feed(&sample.h);
	CHECK_EQ(said.off.cnt, 0);
	while (!dl_kstate_wants_new_stacks(state))
		feed(stack_ev(id++));
	CHECK_EQ(dl_kstate_dropped(state), 0);
}

TEST(facts_are_bounded)
{
	struct dl_ev_string string = DL_EVENT_INIT(string, DL_EV_STRING, 3 * S, TRAINER, 0);
	char text[4000];

	memset(text, 'x', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	job();
	for (uint32_t id = 1; id < 20000; id++) {
		string.id = id;
		feed(with_text(&string.h, text));
	}
	CHECK(dl_kstate_dropped(state) > 1000 && dl_kstate_dropped(state) < 10000);
}
