/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * A long job whose workers do not persist: each epoch has new workers, feeders and pipes, so that processes and
 * threads become as many as the trace is long. With EPOCHS=N only such a trace is made, at the path in TRACE, to
 * see how the time that a report takes grows.
 */
#include "unit/diagnose_util.h"

#include "timeline/timeline.h"

enum { WORKERS = 2, EPOCH_MS = 20, EPOCHS = 1500 };

static uint32_t worker_pid(uint32_t epoch, uint32_t i)
{
	return 1000 + 10 * (epoch * WORKERS + i);
}

static uint32_t feeder_tid(uint32_t epoch, uint32_t i)
{
	return 1000000 + epoch * WORKERS + i;
}

/* It is made, gets an index, makes a batch, and its feeder, made for the first one, writes it. */
static void one_worker(struct synth *s, uint32_t epoch, uint32_t i, double t)
{
	const uint32_t pid = worker_pid(epoch, i), index = feeder_tid(epoch, i);
	const double put = t + 6 + 2 * i;

	synth_fork(s, AT(t + 0.2 * i), TRAINER, TRAINER, pid, pid, "python");
	synth_fork(s, AT(t + 0.6 + 0.1 * i), TRAINER, TRAINER, index, TRAINER, "python");
	synth_run(s, 1 + i, pid, pid, AT(t + 1), AT(t + 2), SYNTH_SLEEP, ON_INDEX);
	synth_run(s, 5 + i, index, TRAINER, AT(t + 2.5), AT(t + 2.6), SYNTH_SLEEP, ON_COND);
	synth_wake(s, AT(t + 2.55), index, TRAINER, pid, pid, NR_WRITE);
	synth_run(s, 1 + i, pid, pid, AT(t + 2.7), AT(put + 0.1), SYNTH_SLEEP, ON_INDEX);
	synth_fork(s, AT(put - 0.5), pid, pid, pid + 1, pid, "python");
	synth_run(s, 3 + i, pid + 1, pid, AT(put - 0.4), AT(put - 0.3), SYNTH_SLEEP, ON_COND);
	synth_wake(s, AT(put), pid, pid, pid + 1, pid, NR_FUTEX);
	synth_run(s, 3 + i, pid + 1, pid, AT(put), AT(put + 0.5), SYNTH_SLEEP, ON_COND);
	synth_wake(s, AT(put + 0.4), pid + 1, pid, TRAINER, TRAINER, NR_WRITE);
	synth_exit(s, AT(t + 15), pid + 1, pid, 0, 0);
	synth_exit(s, AT(t + 15.1), pid, pid, 0, DL_EX_LAST);
	synth_exit(s, AT(t + 15.2), index, TRAINER, 0, 0);
}

static void make_epochs(const char *path, uint32_t epochs)
{
	struct synth *s = synth_new(path);

	CHECK(s);
	synth_mark(s, AT(0), DL_MARK_START, 0, "");
	synth_task(s, AT(0), TRAINER, TRAINER, 1, "python", DL_TF_ROOT, 0);
	for (uint32_t e = 0; e < epochs; e++) {
		const double t = 1 + (double)e * EPOCH_MS;

		synth_run(s, 0, TRAINER, TRAINER, AT(t), AT(t + 1), SYNTH_SLEEP,
			  WAIT(NR_POLL, .file_kind = DL_FILE_FIFO, .file_ino = 7000 + e, .deadline = AT(t + 5000)));
		for (uint32_t i = 0; i < WORKERS; i++)
			one_worker(s, e, i, t);
		for (uint32_t i = 0; i < WORKERS; i++)
			synth_run(s, 0, TRAINER, TRAINER, AT(t + 6.45 + 2 * i), AT(t + 7 + 2 * i), SYNTH_SLEEP,
				  WAIT(NR_POLL, .file_kind = DL_FILE_FIFO, .file_ino = 7000 + e, .deadline = AT(t + 5000)));
		synth_wake(s, AT(t + 15.15), worker_pid(e, 0), worker_pid(e, 0), TRAINER, TRAINER, NR_EXIT);
	}
	CHECK_EQ(synth_finish(s), 0);
}

TEST(epochs_are_generations_of_one_loader)
{
	const struct dl_proc *last;
	struct dl_timeline *tl;
	struct dl_trace *t;
	struct dl_diag d;

	make_epochs(test_path("epochs.dlbpf"), EPOCHS);
	CHECK_OK(dl_trace_open(&t, test_path("epochs.dlbpf"), &d));
	CHECK_OK(dl_timeline_build(&tl, t, &d));
	CHECK_EQ(tl->procs.cnt, 1 + EPOCHS * WORKERS);
	CHECK_EQ(tl->threads.cnt, 1 + 1 + EPOCHS * WORKERS * 3);	/* the idle task, too */
	CHECK_EQ(tl->procs.v[0].threads.cnt, 1 + EPOCHS * WORKERS);
	CHECK_EQ(tl->loaders.cnt, 1);
	CHECK_EQ(tl->loaders.v[0].generations, EPOCHS);
	CHECK_EQ(tl->loaders.v[0].workers, WORKERS);
	/* from the first fork to the last one of each epoch: they are too far apart to be one */
	CHECK_EQ(tl->procs.v[0].starting.cnt, EPOCHS);
	for (uint32_t e = 0; e < EPOCHS; e++) {
		const struct dl_span *made = &tl->procs.v[0].starting.v[e];

		CHECK(made->start < AT(1 + e * EPOCH_MS) && made->end > AT(1.2 + e * EPOCH_MS));
		CHECK(made->end < AT(5 + e * EPOCH_MS));
		for (uint32_t i = 0; i < WORKERS; i++) {
			const struct dl_proc *p = &tl->procs.v[1 + e * WORKERS + i];

			CHECK_EQ(p->pid, worker_pid(e, i));
			CHECK_EQ(p->role, DL_ROLE_WORKER);
			CHECK_EQ(p->generation, e);
			CHECK_EQ(p->index, i);
			CHECK_EQ(p->loader, 0);
			CHECK(p->feeder != DL_NONE);
			CHECK_EQ(tl->threads.v[p->feeder].tid, p->pid + 1);
		}
	}
	last = &tl->procs.v[EPOCHS * WORKERS];
	CHECK_EQ(last->result_ino, 7000 + EPOCHS - 1);
	dl_timeline_free(tl);
	dl_trace_close(t);
}

/* Each epoch is like the others: what is charged grows with them, and nothing is unexplained that was not. */
TEST(epochs_are_charged_alike)
{
	struct dl_report *r[2] = { 0 };

	for (int i = 0; i < 2; i++) {
		struct dl_trace *t;
		struct dl_diag d;

		make_epochs(test_path("epochs.dlbpf"), 10u << i);
		CHECK_OK(dl_trace_open(&t, test_path("epochs.dlbpf"), &d));
		CHECK_OK(dl_diagnose(&r[i], t, NULL, &d));
		dl_trace_close(t);
		CHECK_EQ(r[i]->loaders.cnt, 1);
		CHECK_EQ(r[i]->loaders.v[0].batches, (10u << i) * WORKERS);
	}
	for (int c = 0; c < DL_CAUSE_CNT; c++) {
		const uint64_t once = r[0]->waits.causes[c].ns, twice = r[1]->waits.causes[c].ns;

		/* but for the first epoch and the last one */
		CHECK(twice <= 2 * once + MS(2 * EPOCH_MS) && twice + MS(2 * EPOCH_MS) >= 2 * once);
	}
	dl_report_free(r[0]);
	dl_report_free(r[1]);
}

/* For measurements, see above. */
TEST(epochs_of_a_trace_to_keep)
{
	if (!getenv("EPOCHS") || !getenv("TRACE"))
		SKIP("EPOCHS and TRACE are not set: no trace to keep is wanted");
	make_epochs(getenv("TRACE"), (uint32_t)atoi(getenv("EPOCHS")));
}
