/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Jobs of any length, and reports that must be the same: for the tests of stages. */
#ifndef DLBPF_TESTS_DIAGNOSE_JOB_H
#define DLBPF_TESTS_DIAGNOSE_JOB_H

#include "unit/diagnose_random.h"

/* --- two reports are the same ------------------------------------------------------------------- */

static inline const char *text(const char *s)
{
	return s ? s : "";
}

static inline void same_charges(const struct dl_charge *a, const struct dl_charge *b)
{
	for (int c = 0; c < DL_CAUSE_CNT; c++) {
		if (a[c].ns != b[c].ns)
			test_fail(__FILE__, __LINE__, "%s: %" PRIu64 " for %" PRIu64, dl_cause_id((enum dl_cause)c), b[c].ns, a[c].ns);
		CHECK_EQ(a[c].via_lock_ns, b[c].via_lock_ns);
		CHECK_EQ(a[c].gaps, b[c].gaps);
		CHECK_EQ(a[c].own_tree_ns, b[c].own_tree_ns);
		CHECK_EQ(a[c].affinity_ns, b[c].affinity_ns);
		CHECK_EQ(a[c].estimated_ns, b[c].estimated_ns);
		CHECK_STR(text(a[c].detail), text(b[c].detail));
	}
}

static inline void same_part(const struct dl_part *a, const struct dl_part *b)
{
	CHECK_EQ(a->idle_ns, b->idle_ns);
	CHECK_EQ(a->span_ns, b->span_ns);
	CHECK(!memcmp(a->cause_ns, b->cause_ns, sizeof(a->cause_ns)));
	CHECK_EQ(a->has_cause, b->has_cause);
	CHECK_EQ(a->cause, b->cause);
}

static inline void same_gap(const struct dl_gap *a, const struct dl_gap *b)
{
	CHECK_EQ(a->start, b->start);
	CHECK_EQ(a->end, b->end);
	CHECK_EQ(a->open, b->open);
	CHECK_EQ(a->worker, b->worker);
	CHECK_EQ(a->sync_ns, b->sync_ns);
	CHECK(!memcmp(a->cause_ns, b->cause_ns, sizeof(a->cause_ns)));
	CHECK_EQ(a->steps.cnt, b->steps.cnt);
	for (size_t i = 0; i < a->steps.cnt; i++) {
		const struct dl_step *x = &a->steps.v[i], *y = &b->steps.v[i];

		CHECK_EQ(x->start, y->start);
		CHECK_EQ(x->end, y->end);
		CHECK_EQ(x->cause, y->cause);
		CHECK_EQ(x->tid, y->tid);
		CHECK_EQ(x->role, y->role);
		CHECK_EQ(x->via_lock, y->via_lock);
		CHECK_EQ(x->jump, y->jump);
		CHECK_STR(text(x->text), text(y->text));
	}
}

static inline void same_dist(const struct dl_dist *a, const struct dl_dist *b)
{
	CHECK_EQ(a->cnt, b->cnt);
	CHECK_EQ(a->sum_ns, b->sum_ns);
	CHECK_EQ(a->p50_ns, b->p50_ns);
	CHECK_EQ(a->p99_ns, b->p99_ns);
	CHECK_EQ(a->max_ns, b->max_ns);
}

static inline void same_devices(const struct dl_report *a, const struct dl_report *b)
{
	CHECK_EQ(a->devices.cnt, b->devices.cnt);
	for (size_t i = 0; i < a->devices.cnt; i++) {
		const struct dl_device_report *x = &a->devices.v[i], *y = &b->devices.v[i];

		CHECK_EQ(x->id, y->id);
		CHECK_EQ(x->start, y->start);
		CHECK_EQ(x->end, y->end);
		CHECK_EQ(x->busy_ns, y->busy_ns);
		CHECK_EQ(x->collective_ns, y->collective_ns);
		CHECK_EQ(x->idle_ns, y->idle_ns);
		CHECK_EQ(x->unobserved_ns, y->unobserved_ns);
		CHECK_EQ(x->kernels, y->kernels);
		CHECK_EQ(x->gap_cnt, y->gap_cnt);
		same_charges(x->causes, y->causes);
	}
}

static inline void same_waits(const struct dl_report *a, const struct dl_report *b)
{
	CHECK_EQ(a->waits.total_ns, b->waits.total_ns);
	CHECK_EQ(a->waits.wall_ns, b->waits.wall_ns);
	CHECK_EQ(a->waits.cnt, b->waits.cnt);
	CHECK(!memcmp(&a->waits.calls, &b->waits.calls, sizeof(a->waits.calls)));
	same_charges(a->waits.causes, b->waits.causes);
}

static inline void same_loaders(const struct dl_report *a, const struct dl_report *b)
{
	CHECK_EQ(a->loaders.cnt, b->loaders.cnt);
	for (size_t i = 0; i < a->loaders.cnt; i++) {
		const struct dl_loader_report *x = &a->loaders.v[i], *y = &b->loaders.v[i];

		CHECK_EQ(x->index, y->index);
		CHECK_EQ(x->workers, y->workers);
		CHECK_EQ(x->batches, y->batches);
		same_dist(&x->wait, &y->wait);
		same_dist(&x->produce, &y->produce);
		same_dist(&x->deliver, &y->deliver);
		same_part(&x->part, &y->part);
		CHECK_EQ(x->slow_worker, y->slow_worker);
		CHECK_EQ(x->slow_ns, y->slow_ns);
		CHECK_EQ(x->other_ns, y->other_ns);
	}
}

static inline void same_procs(const struct dl_report *a, const struct dl_report *b)
{
	CHECK_EQ(a->procs.cnt, b->procs.cnt);
	for (size_t i = 0; i < a->procs.cnt; i++) {
		const struct dl_proc_report *x = &a->procs.v[i], *y = &b->procs.v[i];

		CHECK_EQ(x->pid, y->pid);
		CHECK_EQ(x->role, y->role);
		CHECK_EQ(x->index, y->index);
		CHECK_EQ(x->loader, y->loader);
		CHECK_EQ(x->threads, y->threads);
		CHECK_EQ(x->cpu_ns, y->cpu_ns);
		CHECK_EQ(x->runnable_ns, y->runnable_ns);
		CHECK_EQ(x->throttled_ns, y->throttled_ns);
		CHECK(!memcmp(x->blocked_ns, y->blocked_ns, sizeof(x->blocked_ns)));
		CHECK_EQ(x->min_flt, y->min_flt);
	}
}

static inline void same_copies(const struct dl_report *a, const struct dl_report *b)
{
	CHECK_EQ(a->copies.cnt, b->copies.cnt);
	for (size_t i = 0; i < a->copies.cnt; i++)
		CHECK(!memcmp(&a->copies.v[i], &b->copies.v[i], sizeof(a->copies.v[i])));
	CHECK_EQ(a->copy_devices.cnt, b->copy_devices.cnt);
	for (size_t i = 0; i < a->copy_devices.cnt; i++) {
		const struct dl_copy_device *x = &a->copy_devices.v[i], *y = &b->copy_devices.v[i];

		CHECK_EQ(x->cnt, y->cnt);
		CHECK_EQ(x->cost_ns, y->cost_ns);
		CHECK_EQ(x->overlap_ns, y->overlap_ns);
		CHECK_EQ(x->kernel_ns, y->kernel_ns);
		CHECK_EQ(x->cpu_ns, y->cpu_ns);
		CHECK_EQ(x->median_bytes, y->median_bytes);
		CHECK_EQ(x->problem, y->problem);
	}
}

static inline int by_start(const void *a, const void *b)
{
	const struct dl_gap *x = a, *y = b;

	return x->start < y->start ? -1 : x->start > y->start;
}

/* For a person who looks into a failure: with TEST_WORST set, the first gap that differs. */
static inline void print_difference(const struct dl_report *a, const struct dl_report *b)
{
	qsort(a->worst.v, a->worst.cnt, sizeof(*a->worst.v), by_start);
	qsort(b->worst.v, b->worst.cnt, sizeof(*b->worst.v), by_start);
	for (size_t i = 0; i < a->worst.cnt && i < b->worst.cnt; i++) {
		const struct dl_gap *x = &a->worst.v[i], *y = &b->worst.v[i];

		if (x->start == y->start && x->end == y->end && !memcmp(x->cause_ns, y->cause_ns, sizeof(x->cause_ns)))
			continue;
		for (int k = 0; k < 2; k++) {
			const struct dl_gap *g = k ? y : x;

			fprintf(stderr, "# %10.3f .. %10.3f\n", ((double)g->start - (double)BASE) / 1e6, ((double)g->end - (double)BASE) / 1e6);
			vec_for_each(&g->steps, st)
				fprintf(stderr, "#   %10.3f .. %10.3f tid %u %s%s: %s\n", ((double)st->start - (double)BASE) / 1e6,
					((double)st->end - (double)BASE) / 1e6, st->tid, dl_cause_id(st->cause),
					st->via_lock ? " (lock)" : "", st->text);
		}
		return;
	}
}

static inline void same_reports(const struct dl_report *a, const struct dl_report *b)
{
	if (getenv("TEST_WORST"))
		print_difference(a, b);
	same_procs(a, b);
	same_devices(a, b);
	same_waits(a, b);
	CHECK_EQ(a->trainers.cnt, b->trainers.cnt);
	for (size_t i = 0; i < a->trainers.cnt; i++)
		same_part(&a->trainers.v[i].part, &b->trainers.v[i].part);
	CHECK_EQ(a->worst.cnt, b->worst.cnt);
	for (size_t i = 0; i < a->worst.cnt; i++)
		same_gap(&a->worst.v[i], &b->worst.v[i]);
	same_loaders(a, b);
	same_copies(a, b);
	CHECK_EQ(a->notes.cnt, b->notes.cnt);
	for (size_t i = 0; i < a->notes.cnt; i++)
		CHECK_STR(a->notes.v[i], b->notes.v[i]);
	CHECK_STR(text(a->verdict.text), text(b->verdict.text));
	CHECK_EQ(!a->crash, !b->crash);
}

/* --- a job --------------------------------------------------------------------------------------- */

enum { GPU_NONE, GPU_KERNELS, GPU_CALLS };
enum { MANAGER = 90, NOISE = 901 };	/* NOISE: a thread of the trainer */

struct job {
	struct synth *s;
	int gpu;
	int epochs, batches;	/* in each */
	bool persistent;	/* workers live as long as the trainer */
	bool sampled;
	bool pin;		/* a thread of the trainer waits for batches, anew in each epoch */
	bool manager;		/* there is a torch_shm_manager */
	bool spawn;		/* workers run a program of their own, and are sent what they are to do */
	uint64_t now, run;	/* the trainer's, and since when it runs */
	uint32_t corr, generation;
	struct { uint32_t pid; uint64_t free, at[3]; } worker[2];	/* at: up to when its threads have run */
	uint64_t feeder_at;	/* the trainer's index feeder */
	uint32_t shm, user, fault;	/* stacks; of a fault whose kind does not show */
};

static inline uint32_t cpu_of(int worker, int thread)
{
	return 2 + (uint32_t)worker * 3 + (uint32_t)thread;
}

/* A thread of a worker runs; it has been blocked since it ran last. */
static inline void worker_runs(struct job *j, int w, int thread, uint64_t from, uint64_t to, const struct synth_wait *wait)
{
	if (from < j->worker[w].at[thread] + US(1))
		from = j->worker[w].at[thread] + US(1);
	if (to < from + US(1))
		to = from + US(1);
	synth_run(j->s, cpu_of(w, thread), j->worker[w].pid + (uint32_t)thread, j->worker[w].pid, from, to, SYNTH_SLEEP, wait);
	j->worker[w].at[thread] = to;
}

/* The trainer blocks now, and runs again from `until` on. */
static inline void trainer_blocks(struct job *j, const struct synth_wait *wait, uint64_t until)
{
	synth_run(j->s, 0, TRAINER, TRAINER, j->run, j->now, SYNTH_SLEEP, wait);
	j->run = j->now = until;
}

/* Two processes, each with a feeder and a sharer. */
static inline void make_workers(struct job *j)
{
	j->generation++;
	if (j->spawn) {		/* pickling takes its time */
		trainer_blocks(j, WAIT(NR_READ, .file_kind = DL_FILE_REG, .file_ino = 9), j->now + MS(2));
		synth_wake(j->s, j->now - US(5), 0, 0, TRAINER, TRAINER, -1);
		j->now += MS(35);
	}
	for (int w = 0; w < 2; w++) {
		uint32_t pid = 1000 * j->generation + 100 * (uint32_t)w;
		uint64_t at = j->now + US(200);

		j->worker[w].pid = pid;
		synth_fork(j->s, at, TRAINER, TRAINER, pid, pid, "python");
		if (j->spawn) {
			synth_exec(j->s, at + US(100), pid, pid, "/usr/bin/python3");
			synth_wake(j->s, at + MS(1), TRAINER, TRAINER, pid, pid, NR_WRITE);
			synth_wake(j->s, at + MS(2), TRAINER, TRAINER, pid, pid, NR_WRITE);
		}
		for (int i = 0; i < 3; i++)
			j->worker[w].at[i] = at;
		worker_runs(j, w, 0, at + US(50), at + MS(4), WAIT(NR_READ, .file_kind = DL_FILE_REG, .flags = DL_SW_QUARTET));
		worker_runs(j, w, 0, at + MS(4.5), at + MS(6), ON_INDEX);
		worker_runs(j, w, 0, at + MS(6.5), at + MS(8), ON_INDEX);
		synth_fork(j->s, at + MS(7), pid, pid, pid + 1, pid, "python");
		synth_fork(j->s, at + MS(7.5), pid, pid, pid + 2, pid, "python");
		j->worker[w].at[1] = at + MS(7);
		j->worker[w].at[2] = at + MS(7.5);
		worker_runs(j, w, 1, at + MS(7.2), at + MS(7.4), ON_COND);
		worker_runs(j, w, 2, at + MS(7.6), at + MS(7.8), WAIT(NR_ACCEPT4, .file_kind = DL_FILE_UNIX, .file_ino = SOCKET));
		j->worker[w].free = at + MS(8);
		j->now = at + US(300);
	}
}

/* It has nothing to do: the trainer is quicker. */
static inline void make_pin_thread(struct job *j)
{
	uint32_t tid = 600 + j->generation;

	j->now += US(100);
	synth_fork(j->s, j->now, TRAINER, TRAINER, tid, TRAINER, "pt_data_pin");
	synth_run(j->s, 10, tid, TRAINER, j->now + US(10), j->now + US(60), SYNTH_SLEEP, ON_RESULTS);
}

static inline void end_pin_thread(struct job *j)
{
	uint32_t tid = 600 + j->generation;

	synth_wake(j->s, j->now, TRAINER, TRAINER, tid, TRAINER, NR_FUTEX);
	synth_run(j->s, 10, tid, TRAINER, j->now + US(10), j->now + US(60), 0x80, WAIT(NR_EXIT, .flags = DL_SW_EXITING));
	j->now += US(100);
}

static inline void end_workers(struct job *j)
{
	if (j->pin)
		end_pin_thread(j);
	for (int w = 0; w < 2; w++) {
		uint32_t pid = j->worker[w].pid;
		uint64_t end = (j->now > j->worker[w].free ? j->now : j->worker[w].free) + MS(3);

		j->now += US(50);
		worker_runs(j, w, 0, end - MS(2), end, WAIT(NR_EXIT, .flags = DL_SW_QUARTET | DL_SW_EXITING));
		synth_exit(j->s, end - US(20), pid, pid, 0, DL_EX_LAST);
		synth_wake(j->s, end - US(10), pid, pid, TRAINER, TRAINER, NR_EXIT);
		trainer_blocks(j, WAIT(NR_WAIT4), end);
	}
}

/* The worker gets its index at `asked`, computes, and puts; its feeder writes. Returns when. */
static inline uint64_t make_batch(struct job *j, int w, uint64_t asked)
{
	uint32_t pid = j->worker[w].pid;
	uint64_t from = asked > j->worker[w].free ? asked : j->worker[w].free;
	uint64_t len = MS(4) + rnd(MS(6)) + (rnd(25) ? 0 : MS(60)), put, at = from + US(10);

	synth_wake(j->s, at, INDEX_FEEDER, TRAINER, pid, pid, NR_WRITE);
	at += US(5);
	if (rnd(4) == 0) {	/* a read, from a disk */
		worker_runs(j, w, 0, at, at + len / 3, WAIT(NR_READ, .file_kind = DL_FILE_REG, .file_ino = 4000 + rnd(30),
							    .file_dev = 8 << 20, .flags = DL_SW_QUARTET | DL_SW_IOWAIT));
		at = j->worker[w].at[0] + MS(2);
		synth_wake(j->s, at, 0, 0, pid, pid, -1);
	} else if (rnd(6) == 0) {	/* it sleeps */
		worker_runs(j, w, 0, at, at + len / 3, WAIT(NR_NANOSLEEP, .deadline = at + len / 3 + MS(3), .flags = DL_SW_QUARTET));
		at = j->worker[w].at[0] + MS(3);
		synth_wake(j->s, at, 0, 0, pid, pid, -1);
	} else if (rnd(6) == 0) {	/* its feeder has the GIL */
		worker_runs(j, w, 0, at, at + len / 3, WAIT(NR_FUTEX, .arg0 = GIL_ADDR, .arg1 = FUTEX_TIMED, .flags = DL_SW_QUARTET,
							    .deadline = at + len / 3 + MS(5)));
		at = j->worker[w].at[0] + MS(1);
		synth_wake(j->s, at, pid + 1, pid, pid, pid, NR_FUTEX);
	}
	put = at + len;
	for (uint64_t t = at + MS(1); j->sampled && t < put; t += MS(3)) {
		bool user = rnd(3);

		synth_sample(j->s, t, cpu_of(w, 0), pid, pid, user ? DL_SAMPLE_USER : DL_SAMPLE_KERNEL,
			     user ? j->user : rnd(4) ? j->shm : j->fault);
	}
	synth_wake(j->s, put - US(20), pid, pid, pid + 1, pid, NR_FUTEX);
	worker_runs(j, w, 0, at, put, ON_INDEX);
	worker_runs(j, w, 1, put - US(15), put + US(300), ON_COND);
	j->worker[w].free = put + US(20);
	return put + US(200);
}

static inline void train(struct job *j)
{
	uint64_t t = j->now + US(100), len = MS(2) + rnd(MS(3));

	j->corr++;
	if (j->gpu == GPU_KERNELS) {
		synth_api(j->s, t, t + US(20), TRAINER, TRAINER, j->corr * 2, DL_CALL_COPY, "cudaMemcpyAsync");
		synth_memcpy(j->s, t + US(30), t + US(200), TRAINER, 0, 7, j->corr * 2, DL_GPU_HTOD, DL_GPU_MEM_PINNED, 1 << 20);
		synth_api(j->s, t + US(40), t + US(50), TRAINER, TRAINER, j->corr * 2 + 1, DL_CALL_LAUNCH, "cudaLaunchKernel");
		synth_kernel(j->s, t + US(210), t + US(210) + len, TRAINER, 0, 7, j->corr * 2 + 1, "train_step");
	} else if (j->gpu == GPU_CALLS) {
		struct dl_ev_gpu_api ev = { .h = { .kind = DL_EV_GPU_API, .size = sizeof(ev), .pid = TRAINER, .tid = TRAINER, .ts = t },
					    .end = t + US(60) + rnd(US(300)), .class = DL_CALL_COPY, .bytes = 1 << 21, .dir = DL_GPU_HTOD };

		synth_event(j->s, &ev.h);
	}
	if (rnd(8) == 0 && j->gpu == GPU_KERNELS) {
		synth_api(j->s, t + US(60), t + US(250) + len, TRAINER, TRAINER, 0, DL_CALL_SYNC, "cudaStreamSynchronize");
		synth_sync(j->s, t + US(60), t + US(250) + len, TRAINER, TRAINER, DL_GPU_SYNC_STREAM, 7, 0);
		j->now = t + US(260) + len;
	}
}

/* One batch: wait for it, take it over, ask for another (returns when), train on it, log. */
static inline uint64_t take_batch(struct job *j, int w, uint64_t put)
{
	uint64_t had;

	if (put > j->now + US(100)) {
		synth_wake(j->s, put, j->worker[w].pid + 1, j->worker[w].pid, TRAINER, TRAINER, NR_WRITE);
		j->now += US(50);
		trainer_blocks(j, ON_RESULTS, put + US(10));
	}
	had = j->now + US(250);
	synth_wake(j->s, had, TRAINER, TRAINER, INDEX_FEEDER, TRAINER, NR_FUTEX);
	if (had + US(5) > j->feeder_at) {
		synth_run(j->s, 1, INDEX_FEEDER, TRAINER, had + US(5), had + US(105), SYNTH_SLEEP, ON_COND);
		j->feeder_at = had + US(105);
	}
	j->now += US(300);
	train(j);
	j->now += US(400);
	if (rnd(3) == 0) {
		uint64_t until = j->now + MS(1.5);

		synth_wake(j->s, until, 0, 0, TRAINER, TRAINER, -1);
		trainer_blocks(j, WAIT(NR_NANOSLEEP, .deadline = until), until + US(5));
	}
	return had + US(50);
}

static inline void one_epoch(struct job *j)
{
	uint64_t put[2];

	for (int w = 0; w < 2; w++)
		put[w] = make_batch(j, w, j->now + MS(9));
	for (int b = 0; b < j->batches; b++) {
		uint64_t asked = take_batch(j, b % 2, put[b % 2]);

		if (b + 2 < j->batches)
			put[b % 2] = make_batch(j, b % 2, asked);
	}
}

static inline void begin_job(struct job *j)
{
	j->s = synth_new(test_path("job.dlbpf"));
	j->now = j->run = AT(1);
	j->feeder_at = AT(1);
	CHECK(j->s);
	synth_mark(j->s, AT(0), DL_MARK_START, 0, "");
	synth_task(j->s, AT(0), TRAINER, TRAINER, 1, "python", DL_TF_ROOT, 0);
	if (j->gpu == GPU_KERNELS)
		synth_gpu_source(j->s, AT(0), TRAINER, DL_GPU_COLLECTOR, DL_GPU_SIMULATED, "CUPTI");
	if (j->manager) {
		synth_fork(j->s, AT(0.1), TRAINER, TRAINER, MANAGER, MANAGER, "torch_shm_manag");
		synth_run(j->s, 9, MANAGER, MANAGER, AT(0.2), AT(0.6), SYNTH_SLEEP, WAIT(NR_POLL, .file_kind = DL_FILE_UNIX));
		synth_run(j->s, 9, MANAGER, MANAGER, AT(60), AT(61), SYNTH_SLEEP, WAIT(NR_READ, .file_kind = DL_FILE_UNIX));
		synth_run(j->s, 9, MANAGER, MANAGER, AT(80), AT(81), SYNTH_SLEEP, WAIT(NR_READ, .file_kind = DL_FILE_UNIX));
	}
	j->shm = synth_stack(j->s, AT(0), TRAINER, "clear_page_erms;shmem_fault;asm_exc_page_fault", "memcpy;collate");
	j->fault = synth_stack(j->s, AT(0), TRAINER, "asm_exc_page_fault", "memcpy;collate");
	j->user = synth_stack(j->s, AT(0), TRAINER, "", "decode;main");
}

/* Writes the trace of a job. */
static inline void write_job(struct job *j)
{
	begin_job(j);
	for (int e = 0; e < j->epochs; e++) {
		if (!e || !j->persistent) {
			make_workers(j);
			if (j->pin)
				make_pin_thread(j);
		}
		one_epoch(j);
		if (e == j->epochs - 1 || !j->persistent)
			end_workers(j);
	}
	j->now += MS(1);
	trainer_blocks(j, WAIT(NR_EXIT, .flags = DL_SW_EXITING), j->now);
	CHECK_EQ(synth_finish(j->s), 0);
}

static inline struct dl_report *read_job(const struct dl_diagnose_opts *opts, struct dl_diagnose_stats *stats)
{
	struct dl_report *r = NULL;
	struct dl_diag d = {};
	struct dl_trace *t = NULL;

	if (dl_trace_open(&t, test_path("job.dlbpf"), &d) || dl_diagnose_stages(&r, t, opts, stats, &d))
		test_fail(__FILE__, __LINE__, "%s", d.msg);
	dl_trace_close(t);
	return r;
}

/* In stages of this size it is what it is in one. */
static inline void check_stages(const struct dl_diagnose_opts *opts, uint64_t events)
{
	struct dl_diagnose_opts use = *opts;
	struct dl_diagnose_stats one, many;
	struct dl_report *a, *b;

	if (getenv("TEST_WORST"))
		use.worst_cnt = (uint32_t)atoi(getenv("TEST_WORST"));
	a = read_job(&use, &one);

	CHECK_EQ(one.stages, 1);
	CHECK_EQ(one.readings, 1);
	check_adds_up(a);
	use.stage_events = events;
	b = read_job(&use, &many);
	CHECK(many.stages > 2);
	check_adds_up(b);
	same_reports(a, b);
	dl_report_free(a);
	dl_report_free(b);
}

#endif
