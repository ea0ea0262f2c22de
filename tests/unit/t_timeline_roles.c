/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Who is who, from what they do: jobs with workers, without handlers, behind a forkserver, several
 * loaders, several trainers. */
#include "unit/diagnose_util.h"

#include "timeline/timeline.h"

static struct dl_timeline *build(struct synth *s)
{
	struct dl_timeline *tl = NULL;
	struct dl_trace *t = NULL;
	struct dl_diag d = {};

	CHECK_EQ(synth_finish(s), 0);
	CHECK_EQ(dl_trace_open(&t, test_path("job.dlbpf"), &d), 0);
	CHECK_EQ(dl_timeline_build(&tl, t, &d), 0);
	dl_trace_close(t);
	return tl;
}

static enum dl_role thread_role(const struct dl_timeline *tl, uint32_t tid)
{
	uint64_t idx = 0;

	CHECK(dl_map_get(&tl->tids, tid, &idx));
	return tl->threads.v[idx].role;
}

static const struct dl_proc *proc(const struct dl_timeline *tl, uint32_t pid)
{
	uint64_t idx = 0;

	CHECK(dl_map_get(&tl->pids, pid, &idx));
	return &tl->procs.v[idx];
}

TEST(threads_of_a_job)
{
	struct synth *s = job_new();
	struct dl_timeline *tl;

	synth_task(s, AT(0), PIN, TRAINER, 1, "python", 0, 0);
	synth_task(s, AT(0), INDEX_FEEDER, TRAINER, 1, "python", 0, 0);
	synth_run(s, 0, PIN, TRAINER, AT(1), AT(2), SYNTH_SLEEP, ON_RESULTS);
	synth_wake(s, AT(3), FEEDER, WORKER, PIN, TRAINER, NR_WRITE);
	synth_run(s, 0, PIN, TRAINER, AT(3), AT(4), SYNTH_SLEEP, WAIT(NR_RECVMSG, .file_kind = DL_FILE_UNIX));
	synth_run(s, 1, SHARER, WORKER, AT(1), AT(2), SYNTH_SLEEP,
		  WAIT(NR_ACCEPT4, .file_kind = DL_FILE_UNIX, .flags = DL_SW_SIGBLOCK));
	synth_wake(s, AT(5), INDEX_FEEDER, TRAINER, WORKER, WORKER, NR_WRITE);
	tl = build(s);
	CHECK_EQ(thread_role(tl, TRAINER), DL_ROLE_TRAINER);
	CHECK_EQ(thread_role(tl, PIN), DL_ROLE_PIN);
	CHECK_EQ(thread_role(tl, INDEX_FEEDER), DL_ROLE_INDEX_FEEDER);
	CHECK_EQ(thread_role(tl, WORKER), DL_ROLE_WORKER);
	CHECK_EQ(thread_role(tl, FEEDER), DL_ROLE_FEEDER);
	CHECK_EQ(thread_role(tl, SHARER), DL_ROLE_SHARER);
	dl_timeline_free(tl);
}

/* torchdata's process workers and hand-made loaders set no handlers: a forked child that writes to
 * its parent is a worker; one that does not is a helper. */
TEST(worker_without_handlers)
{
	struct synth *s = synth_new(test_path("job.dlbpf"));
	struct dl_timeline *tl;

	CHECK(s);
	synth_task(s, AT(0), TRAINER, TRAINER, 1, "python", DL_TF_ROOT, 0);
	synth_fork(s, AT(1), TRAINER, TRAINER, WORKER, WORKER, "python");
	synth_fork(s, AT(2), TRAINER, TRAINER, WORKER2, WORKER2, "python");
	for (int i = 0; i < 3; i++)
		synth_wake(s, AT(10 + i), WORKER, WORKER, TRAINER, TRAINER, NR_WRITE);
	tl = build(s);
	CHECK_EQ(proc(tl, WORKER)->role, DL_ROLE_WORKER);
	CHECK_EQ(proc(tl, WORKER2)->role, DL_ROLE_HELPER);
	CHECK_EQ(proc(tl, TRAINER)->role, DL_ROLE_TRAINER);
	dl_timeline_free(tl);
}

TEST(forkserver_is_passed_over)
{
	struct synth *s = synth_new(test_path("job.dlbpf"));
	struct dl_timeline *tl;

	CHECK(s);
	synth_task(s, AT(0), TRAINER, TRAINER, 1, "python", DL_TF_ROOT, 0);
	synth_fork(s, AT(1), TRAINER, TRAINER, 150, 150, "python");
	synth_exec(s, AT(1.1), 150, 150, "/usr/bin/python3");
	synth_cmdline(s, AT(1.2), 150, "python3 -c from multiprocessing.forkserver import main; main(5)");
	synth_fork(s, AT(2), 150, 150, WORKER, WORKER, "python");
	synth_cmdline(s, AT(2.1), WORKER, "python3 -c from multiprocessing.forkserver import main; main(5)");
	synth_run(s, 0, WORKER, WORKER, AT(3), AT(4), SYNTH_SLEEP, ON_INDEX);
	tl = build(s);
	CHECK_EQ(proc(tl, 150)->role, DL_ROLE_FORKSERVER);
	CHECK_EQ(proc(tl, WORKER)->role, DL_ROLE_WORKER);
	CHECK_EQ(proc(tl, TRAINER)->role, DL_ROLE_TRAINER);
	CHECK_EQ(proc(tl, WORKER)->trainer, 0);
	dl_timeline_free(tl);
}

/* A helper that a worker started, and the shm manager. */
TEST(children_of_a_worker)
{
	struct synth *s = job_new();
	struct dl_timeline *tl;

	synth_fork(s, AT(1), WORKER, WORKER, 210, 210, "python");
	synth_exec(s, AT(1.1), 210, 210, "/usr/bin/gzip");
	synth_fork(s, AT(2), WORKER, WORKER, 220, 220, "python");
	synth_name(s, AT(2.1), 220, 220, "torch_shm_manag");
	tl = build(s);
	CHECK_EQ(proc(tl, 210)->role, DL_ROLE_WORKER_CHILD);
	CHECK_EQ(proc(tl, 220)->role, DL_ROLE_SHM_MANAGER);
	dl_timeline_free(tl);
}

/* A launcher with two trainers, each with a worker: ranks in order of their ids. */
TEST(two_trainers)
{
	struct synth *s = synth_new(test_path("job.dlbpf"));
	struct dl_timeline *tl;

	CHECK(s);
	synth_task(s, AT(0), 50, 50, 1, "torchrun", DL_TF_ROOT, 0);
	synth_task(s, AT(0), 100, 100, 50, "python", 0, 0);
	synth_task(s, AT(0), 110, 110, 50, "python", 0, 0);
	synth_task(s, AT(0), 200, 200, 100, "python", 0, QUARTET);
	synth_task(s, AT(0), 300, 300, 110, "python", 0, QUARTET);
	tl = build(s);
	CHECK_EQ(proc(tl, 50)->role, DL_ROLE_LAUNCHER);
	CHECK_EQ(proc(tl, 100)->role, DL_ROLE_TRAINER);
	CHECK_EQ(proc(tl, 100)->rank, 0);
	CHECK_EQ(proc(tl, 110)->rank, 1);
	CHECK_EQ(tl->procs.v[proc(tl, 200)->trainer].pid, 100);
	CHECK_EQ(tl->procs.v[proc(tl, 300)->trainer].pid, 110);
	CHECK_EQ(proc(tl, 300)->index, 0);
	dl_timeline_free(tl);
}

/* A training loader with two workers lives on while a validation loader is made, ends, and is made
 * again: two loaders, the second in its second generation. */
TEST(two_loaders)
{
	struct synth *s = synth_new(test_path("job.dlbpf"));
	struct dl_timeline *tl;

	CHECK(s);
	synth_task(s, AT(0), TRAINER, TRAINER, 1, "python", DL_TF_ROOT, 0);
	for (uint32_t i = 0; i < 6; i++) {
		uint32_t pid = 200 + 10 * i;
		double at = i < 2 ? 1 + i : i < 4 ? 3000 + i : 6000 + i;

		synth_fork(s, AT(at), TRAINER, TRAINER, pid, pid, "python");
		synth_run(s, i, pid, pid, AT(at + 1), AT(at + 2), SYNTH_SLEEP, ON_INDEX);
		if (i >= 2)
			synth_exit(s, AT(at + 1000), pid, pid, 0, DL_EX_LAST);
	}
	tl = build(s);
	CHECK_EQ(tl->loaders.cnt, 2);
	CHECK_EQ(proc(tl, 200)->loader, 0);
	CHECK_EQ(proc(tl, 210)->loader, 0);
	CHECK_EQ(proc(tl, 210)->index, 1);
	CHECK_EQ(proc(tl, 220)->loader, 1);
	CHECK_EQ(proc(tl, 230)->index, 1);
	CHECK_EQ(proc(tl, 240)->loader, 1);
	CHECK_EQ(proc(tl, 240)->generation, 1);
	CHECK_EQ(proc(tl, 250)->index, 1);
	dl_timeline_free(tl);
}

/* Two loaders made in one go are told apart by their result pipes. */
TEST(loaders_by_pipe)
{
	struct synth *s = synth_new(test_path("job.dlbpf"));
	struct dl_timeline *tl;

	CHECK(s);
	synth_task(s, AT(0), TRAINER, TRAINER, 1, "python", DL_TF_ROOT, 0);
	for (uint32_t i = 0; i < 2; i++) {
		uint32_t pid = 200 + 100 * i;

		synth_fork(s, AT(1 + i), TRAINER, TRAINER, pid, pid, "python");
		synth_run(s, 1 + i, pid, pid, AT(5), AT(6), SYNTH_SLEEP, ON_INDEX);
		synth_run(s, 0, TRAINER, TRAINER, AT(10 + 10 * i), AT(11 + 10 * i), SYNTH_SLEEP,
			  WAIT(NR_POLL, .file_kind = DL_FILE_FIFO, .file_ino = 800 + i));
		synth_wake(s, AT(15 + 10 * i), pid, pid, TRAINER, TRAINER, NR_WRITE);
	}
	tl = build(s);
	CHECK_EQ(tl->loaders.cnt, 2);
	CHECK_EQ(proc(tl, 200)->loader, 0);
	CHECK_EQ(proc(tl, 300)->loader, 1);
	dl_timeline_free(tl);
}
