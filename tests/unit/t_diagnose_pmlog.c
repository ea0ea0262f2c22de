/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Output of trainings, in the wordings of several PyTorch versions, and what it tells and does not tell. */
#include "unit/test.h"

#include "base/cleanup.h"
#include "diagnose/pm_log.h"
#include "diagnose/postmortem.h"
#include "unit/failing_alloc.h"
#include "unit/pmlog_samples.h"

static void free_pm(struct dl_postmortem **pm)
{
	dl_postmortem_free(*pm);
}

#define _cleanup_pm_ _cleanup_(free_pm)

static struct dl_postmortem *read_log(const char *text, size_t len)
{
	struct dl_postmortem *pm = dl_pm_new();

	CHECK(pm);
	CHECK_OK(dl_pm_read_log(pm, text, len));
	return pm;
}

#define READ(text) read_log((text), sizeof(text) - 1)
#define D(ID) DL_DEATH_BIT(ID)

struct fit {
	uint64_t fits;
	enum dl_death likely;
	const struct dl_pm_claim *first;
	int sig;
};

static struct fit fit_of(const struct dl_postmortem *pm)
{
	struct fit f;

	CHECK_OK(dl_pm_claims_fit(pm, &f.fits, &f.likely, &f.first, &f.sig));
	return f;
}

#define BUS (D(SHM_FULL) | D(MAPPED_FILE_TRUNCATED) | D(MAPPED_FILESYSTEM_FULL) | D(HUGEPAGES_EXHAUSTED) | \
	     D(MEMORY_FAILURE) | D(MAPPED_FILE_ERROR) | D(KILLED_BY))

/* --- one line each ------------------------------------------------------------------------------ */

/* What a line suggests, the deaths that fit it (0: it comes after one), and the process it names. */
static const struct {
	const char *line;
	enum dl_death suggests;
	uint64_t fits;
	uint32_t pid;
} lines[] = {
	/* torch 1.0 to 1.9, no error codes */
	{ "RuntimeError: unable to write to file </torch_4242_1790093847>", DL_DEATH_SHM_FULL, D(SHM_FULL), 4242 },
	{ "RuntimeError: unable to open shared memory object </torch_91_77> in read-write mode", DL_DEATH_UNEXPLAINED,
	  D(FD_LIMIT) | D(SHM_UNLINKED) | D(SHM_FULL), 0 },
	{ "RuntimeError: $ Torch: not enough memory: you tried to allocate 61GB. Buy new RAM! at th/THGeneral.cpp:201",
	  DL_DEATH_UNEXPLAINED, D(MAP_COUNT_LIMIT) | D(PROCESS_LIMIT) | D(OOM_CGROUP) | D(OOM_HOST) | D(WORKER_EXCEPTION) |
	  D(TRAINER_EXIT), 0 },
	{ "RuntimeError: DataLoader worker (pid 815) exited unexpectedly with exit code 1.", DL_DEATH_WORKER_EXIT,
	  D(WORKER_EXIT) | D(WORKER_EXCEPTION), 815 },
	/* 1.10 to 2.9 */
	{ "RuntimeError: unable to write to file </torch_31_16_17>: No space left on device (28)", DL_DEATH_SHM_FULL,
	  D(SHM_FULL), 31 },
	{ "RuntimeError: unable to resize file </torch_31_16_17> to the right size: No space left on device (28)",
	  DL_DEATH_SHM_FULL, D(SHM_FULL), 31 },
	{ "RuntimeError: unable to open shared memory object </torch_5_6_7> in read-write mode: Too many open files (24)",
	  DL_DEATH_FD_LIMIT, D(FD_LIMIT), 0 },
	{ "RuntimeError: unable to open shared memory object </torch_5_6_7> in read-write mode: No such file or directory (2)",
	  DL_DEATH_SHM_UNLINKED, D(SHM_UNLINKED), 0 },
	{ "RuntimeError: unable to mmap 3072 bytes from file </torch_88_9_65331>: Cannot allocate memory (12)",
	  DL_DEATH_MAP_COUNT_LIMIT, D(MAP_COUNT_LIMIT), 0 },
	{ "RuntimeError: DataLoader worker (pid 77) is killed by signal: Killed. ", DL_DEATH_UNEXPLAINED,
	  D(OOM_CGROUP) | D(OOM_HOST) | D(KILLED_BY), 77 },
	{ "RuntimeError: DataLoader worker (pid 78) is killed by signal: Segmentation fault. ", DL_DEATH_SEGFAULT,
	  D(SEGFAULT) | D(KILLED_BY), 78 },
	{ "RuntimeError: DataLoader worker (pid 79) is killed by signal: Terminated. ", DL_DEATH_KILLED_BY, D(KILLED_BY), 79 },
	{ "RuntimeError: DataLoader worker (pid 80) is killed by signal: Bus error. ", DL_DEATH_UNEXPLAINED, BUS, 80 },
	{ "RuntimeError: DataLoader worker (pid 81) exited unexpectedly with exit code 3. Details are lost due to "
	  "multiprocessing. Rerunning with num_workers=0 may give better error trace.", DL_DEATH_WORKER_EXIT,
	  D(WORKER_EXIT) | D(WORKER_EXCEPTION), 81 },
	{ "RuntimeError: DataLoader worker (pid(s) 82, 83) exited unexpectedly", DL_DEATH_UNEXPLAINED, 0, 82 },
	{ "RuntimeError: received 0 items of ancillary data", DL_DEATH_FD_LIMIT, D(FD_LIMIT), 0 },
	{ "OSError: [Errno 24] Too many open files", DL_DEATH_FD_LIMIT, D(FD_LIMIT), 0 },
	{ "OSError: [Errno 28] No space left on device: '/dev/shm/pym-70-abc'", DL_DEATH_SHM_FULL, D(SHM_FULL), 0 },
	{ "OSError: [Errno 28] No space left on device: '/data/ckpt.pt'", DL_DEATH_DISK_FULL, D(DISK_FULL), 0 },
	{ "OSError: [Errno 28] No space left on device", DL_DEATH_UNEXPLAINED, D(SHM_FULL) | D(DISK_FULL), 0 },
	{ "BlockingIOError: [Errno 11] Resource temporarily unavailable", DL_DEATH_PROCESS_LIMIT, D(PROCESS_LIMIT), 0 },
	{ "RuntimeError: can't start new thread", DL_DEATH_PROCESS_LIMIT, D(PROCESS_LIMIT), 0 },
	{ "ConnectionResetError: [Errno 104] Connection reset by peer", DL_DEATH_UNEXPLAINED, 0, 0 },
	{ "_pickle.UnpicklingError: pickle data was truncated", DL_DEATH_UNEXPLAINED, 0, 0 },
	/* 2.10 and later */
	{ "RuntimeError: unable to allocate shared memory(shm) for file </torch_1_2_3>: No space left on device (28)",
	  DL_DEATH_SHM_FULL, D(SHM_FULL), 1 },
	/* the GPU's memory is none of the machine's */
	{ "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 23.68 GiB total capacity;",
	  DL_DEATH_TRAINER_EXIT, D(TRAINER_EXIT) | D(WORKER_EXCEPTION), 0 },
	{ "RuntimeError: CUDA error: out of memory", DL_DEATH_TRAINER_EXIT, D(TRAINER_EXIT) | D(WORKER_EXCEPTION), 0 },
	/* launchers, schedulers, containers, shells */
	{ "failed (exitcode: -9) local_rank: 1 (pid: 6021) of binary: /opt/conda/bin/python", DL_DEATH_UNEXPLAINED,
	  D(OOM_CGROUP) | D(OOM_HOST) | D(KILLED_BY), 6021 },
	{ "  exitcode  : -7 (pid: 6022)", DL_DEATH_UNEXPLAINED, BUS, 6022 },
	{ "  exitcode  : 1 (pid: 6023)", DL_DEATH_UNEXPLAINED, 0, 6023 },
	{ "  traceback : Signal 11 (SIGSEGV) received by PID 6024", DL_DEATH_SEGFAULT, D(SEGFAULT) | D(KILLED_BY), 6024 },
	{ "Sending process 6025 closing signal SIGTERM", DL_DEATH_UNEXPLAINED, 0, 6025 },
	{ "torch.multiprocessing.spawn.ProcessExitedException: process 0 terminated with signal SIGKILL",
	  DL_DEATH_UNEXPLAINED, D(OOM_CGROUP) | D(OOM_HOST) | D(KILLED_BY), 0 },
	{ "subprocess.CalledProcessError: Command '['/usr/bin/python3', 't.py']' died with <Signals.SIGABRT: 6>.",
	  DL_DEATH_ABORT, D(ABORT) | D(TIMEOUT) | D(HANG) | D(KILLED_BY), 0 },
	{ "slurmstepd: error: Detected 1 oom_kill event in StepId=991.batch. Some of the step tasks have been OOM Killed.",
	  DL_DEATH_OOM_CGROUP, D(OOM_CGROUP), 0 },
	{ "slurmstepd: error: Detected 2 oom-kill event(s) in step 991.0 cgroup. Some of your processes may have been killed",
	  DL_DEATH_OOM_CGROUP, D(OOM_CGROUP), 0 },
	{ "slurmstepd: error: *** JOB 44 ON node7 CANCELLED AT 2024-03-01T10:00:00 DUE TO TIME LIMIT ***",
	  DL_DEATH_KILLED_BY, D(KILLED_BY), 0 },
	{ "    Exit Code:    137", DL_DEATH_UNEXPLAINED, D(OOM_CGROUP) | D(OOM_HOST) | D(KILLED_BY), 0 },
	{ "            \"OOMKilled\": false,", DL_DEATH_UNEXPLAINED, 0, 0 },
	{ "            \"OOMKilled\": true,", DL_DEATH_OOM_CGROUP, D(OOM_CGROUP) | D(OOM_HOST), 0 },
	{ "trainer exited with code 135", DL_DEATH_UNEXPLAINED, BUS, 0 },
	{ "error: exit status 139", DL_DEATH_SEGFAULT, D(SEGFAULT) | D(KILLED_BY), 0 },
	{ "./run.sh: line 12:  4711 Killed                  python train.py --epochs 90", DL_DEATH_UNEXPLAINED,
	  D(OOM_CGROUP) | D(OOM_HOST) | D(KILLED_BY), 4711 },
	{ "Killed", DL_DEATH_UNEXPLAINED, D(OOM_CGROUP) | D(OOM_HOST) | D(KILLED_BY), 0 },
	{ "zsh: killed     python train.py", DL_DEATH_UNEXPLAINED, D(OOM_CGROUP) | D(OOM_HOST) | D(KILLED_BY), 0 },
	{ "Bus error (core dumped)", DL_DEATH_UNEXPLAINED, BUS, 0 },
	{ "Segmentation fault (core dumped)", DL_DEATH_SEGFAULT, D(SEGFAULT) | D(KILLED_BY), 0 },
	{ "Aborted (core dumped)", DL_DEATH_ABORT, D(ABORT) | D(TIMEOUT) | D(HANG) | D(KILLED_BY), 0 },
	/* glibc, C++, Python */
	{ "malloc(): corrupted top size", DL_DEATH_ABORT, D(ABORT), 0 },
	{ "terminate called after throwing an instance of 'c10::Error'", DL_DEATH_ABORT, D(ABORT), 0 },
	{ "Fatal Python error: Bus error", DL_DEATH_UNEXPLAINED, BUS, 0 },
	{ "Fatal Python error: Segmentation fault", DL_DEATH_SEGFAULT, D(SEGFAULT) | D(KILLED_BY), 0 },
	{ "KeyboardInterrupt", DL_DEATH_KILLED_BY, D(KILLED_BY), 0 },
	{ "RuntimeError: DataLoader timed out after 60 seconds", DL_DEATH_TIMEOUT, D(TIMEOUT) | D(BATCH_LOST) | D(HANG), 0 },
};

TEST(every_line_by_itself)
{
	for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
		_cleanup_pm_ struct dl_postmortem *pm = read_log(lines[i].line, strlen(lines[i].line));
		const struct dl_pm_claim *c = pm->claims.v;

		if (pm->claims.cnt != 1)
			test_fail(__FILE__, __LINE__, "%zu claims of: %s", pm->claims.cnt, lines[i].line);
		if (c->suggests != lines[i].suggests || c->pid != lines[i].pid)
			test_fail(__FILE__, __LINE__, "%s, process %u of: %s", dl_death_id(c->suggests), c->pid, lines[i].line);
		if (fit_of(pm).fits != lines[i].fits)
			test_fail(__FILE__, __LINE__, "fits %" PRIx64 ": %s", fit_of(pm).fits, lines[i].line);
		CHECK(c->tells && *c->tells && !strchr(c->tells, '%'));
	}
}

/* Of what trainings print and mean nothing by. */
TEST(harmless_lines_are_no_claims)
{
	static const char *const harmless[] = {
		"Epoch 3/90: 100%|##########| 500/500 [01:02<00:00, 8.01it/s, loss=0.1]",
		"UserWarning: This DataLoader will create 8 worker processes in total. Our suggested max number of worker in "
		"current system is 2",
		"exited with code 0", "    Exit Code:    0", "returned non-zero exit status 0",
		"The connection was killed by the proxy",		/* not at the line's end */
		"killed 4 of 10 monsters in this episode",
		"DataLoader worker (pid x) is killed by signal: ",
		"saving to /data/Killed_scene.png", "", "Traceback (most recent call last):",
	};

	for (size_t i = 0; i < ARRAY_SIZE(harmless); i++) {
		_cleanup_pm_ struct dl_postmortem *pm = read_log(harmless[i], strlen(harmless[i]));

		if (pm->claims.cnt)
			test_fail(__FILE__, __LINE__, "'%s' of: %s", pm->claims.v->tells, harmless[i]);
	}
}

/* --- logs as they come ------------------------------------------------------------------------- */

#define BUS_HANDLER "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory " \
	"(shm).\n\0"
#define BUS_MAIN(pid) "RuntimeError: DataLoader worker (pid " pid ") is killed by signal: Bus error. It is possible that " \
	"dataloader's workers are out of shared memory. Please try to raise your shared memory limit.\n"

/* The handler's line ends in a NUL byte, which is then the first of the next line. */
static const char bus_log[] =
	"Epoch 1:  10%|#         | 50/500\rEpoch 1:  12%|#         | 60/500\r" BUS_HANDLER
	"Traceback (most recent call last):\n  File \"train.py\", line 8, in <module>\n"
	BUS_MAIN("31208")
	"\nThe above exception was the direct cause of the following exception:\n\n"
	"RuntimeError: DataLoader worker (pid(s) 31208) exited unexpectedly\n";

TEST(bus_error_with_its_advice)
{
	_cleanup_pm_ struct dl_postmortem *pm = READ(bus_log);
	const struct fit f = fit_of(pm);

	CHECK_EQ(pm->claims.cnt, 3);
	CHECK_EQ(pm->claims.v[0].suggests, DL_DEATH_SHM_FULL);
	CHECK_EQ(pm->claims.v[1].pid, 31208);
	CHECK(strstr(pm->claims.v[1].not_tells, "every death by SIGBUS"));
	/* What the advice suggests is not what the message proves. */
	CHECK_EQ(f.fits, BUS);
	CHECK_EQ(f.likely, DL_DEATH_UNEXPLAINED);
	CHECK_EQ(f.sig, SIGBUS);
	CHECK(f.first == pm->claims.v);
}

TEST(advice_is_judged_by_the_verdict)
{
	_cleanup_pm_ struct dl_postmortem *pm = READ(bus_log);

	CHECK_OK(dl_pm_judge_claims(pm));	/* no verdict yet */
	CHECK(!pm->claims.v[0].contradicts && !pm->wrong_text);
	pm->death = DL_DEATH_SHM_FULL;
	CHECK_OK(dl_pm_judge_claims(pm));
	CHECK(!pm->claims.v[0].contradicts && !pm->claims.v[1].contradicts && !pm->wrong_text);
	pm->death = DL_DEATH_MAPPED_FILE_TRUNCATED;
	CHECK_OK(dl_pm_judge_claims(pm));
	CHECK(pm->claims.v[0].contradicts && pm->claims.v[1].contradicts && !pm->claims.v[2].contradicts);
	CHECK(strstr(pm->wrong_text, "says so of every bus error"));
	/* The output of another run: nothing of it fits. */
	pm->death = DL_DEATH_OOM_CGROUP;
	CHECK_OK(dl_pm_judge_claims(pm));
	CHECK(pm->claims.v[0].contradicts && pm->claims.v[1].contradicts && !pm->claims.v[2].contradicts);
	CHECK(strstr(pm->wrong_text, "another run"));
	pm->death = DL_DEATH_NONE;
	CHECK_OK(dl_pm_judge_claims(pm));
	CHECK(pm->claims.v[0].contradicts);
}

TEST(killed_fits_three_causes_and_no_others)
{
	_cleanup_pm_ struct dl_postmortem *pm = READ("RuntimeError: DataLoader worker (pid 5) is killed by signal: Killed. \n");

	CHECK_EQ(fit_of(pm).likely, DL_DEATH_UNEXPLAINED);
	CHECK(strstr(pm->claims.v->not_tells, "by whom"));
	for (enum dl_death death = DL_DEATH_OOM_CGROUP; death <= DL_DEATH_KILLED_BY; death++) {
		pm->death = death;
		CHECK_OK(dl_pm_judge_claims(pm));
		CHECK(!pm->claims.v->contradicts);
	}
	pm->death = DL_DEATH_SHM_FULL;
	CHECK_OK(dl_pm_judge_claims(pm));
	CHECK(pm->claims.v->contradicts && pm->wrong_text);
}

TEST(memory_in_the_message_but_mappings_were_short)
{
	_cleanup_pm_ struct dl_postmortem *pm = READ("OSError: [Errno 12] Cannot allocate memory\n");

	pm->death = DL_DEATH_MAP_COUNT_LIMIT;
	CHECK_OK(dl_pm_judge_claims(pm));
	CHECK(!pm->claims.v->contradicts);	/* true as far as it goes */
	CHECK(strstr(pm->wrong_text, "memory was not short"));
}

TEST(an_exception_of_a_worker_is_told_with_its_text)
{
	_cleanup_pm_ struct dl_postmortem *pm = READ(
		"Traceback (most recent call last):\n"
		"  File \"train.py\", line 20, in <module>\n"
		"[rank1]: KeyError: Caught KeyError in DataLoader worker process 3.\n"
		"[rank1]: Original Traceback (most recent call last):\n"
		"[rank1]:   File \"worker.py\", line 308, in _worker_loop\n"
		"[rank1]:     raise KeyError('KeyError: no')\n"
		"[rank1]: KeyError: 'caption_0042'\n");

	CHECK_EQ(pm->claims.cnt, 1);
	CHECK(strstr(pm->claims.v->tells, "worker number 3"));
	CHECK(strstr(pm->claims.v->tells, "exception: KeyError: 'caption_0042'"));
	CHECK_EQ(fit_of(pm).likely, DL_DEATH_WORKER_EXCEPTION);
}

/* What was raised decides more than that something was. */
TEST(an_exception_that_is_a_known_error)
{
	_cleanup_pm_ struct dl_postmortem *pm = READ(
		"OSError: Caught OSError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n"
		"OSError: [Errno 24] Too many open files: '/data/img_1.jpg'\n");

	CHECK_EQ(pm->claims.cnt, 2);
	CHECK_EQ(fit_of(pm).fits, D(FD_LIMIT));
	CHECK_EQ(fit_of(pm).likely, DL_DEATH_FD_LIMIT);
}

TEST(an_exception_that_no_text_knows)
{
	_cleanup_pm_ struct dl_postmortem *pm = READ(
		"[rank0]: Traceback (most recent call last):\n[rank0]:   File \"t.py\", line 8, in <module>\n[rank0]:     loss(x)\n"
		"[rank0]: my.errors.ShapeError: 3 is not 4\n");
	/* One that was caught and printed, long before. */
	_cleanup_pm_ struct dl_postmortem *pm2 = READ(
		"Traceback (most recent call last):\n  File \"t.py\", line 8\nValueError: no such image\nEpoch 1\nEpoch 2\nKilled\n");
	/* And one whose last line is missing. */
	_cleanup_pm_ struct dl_postmortem *pm3 = READ("Traceback (most recent call last):\n  File \"t.py\", line 8\nEpoch 1 starts\nfoo: bar\n");

	CHECK_EQ(pm->claims.cnt, 1);
	CHECK(strstr(pm->claims.v->tells, "unless it was caught: my.errors.ShapeError: 3 is not 4"));
	CHECK_EQ(fit_of(pm).likely, DL_DEATH_TRAINER_EXIT);
	CHECK_EQ(pm2->claims.cnt, 2);
	CHECK_EQ(fit_of(pm2).sig, SIGKILL);
	CHECK_EQ(fit_of(pm2).fits, D(OOM_CGROUP) | D(OOM_HOST) | D(KILLED_BY));
	CHECK_EQ(pm3->claims.cnt, 0);
}

TEST(slurm_decides_what_killed_means)
{
	_cleanup_pm_ struct dl_postmortem *pm = READ(
		"0: RuntimeError: DataLoader worker (pid 412) is killed by signal: Killed. \n"
		"slurmstepd: error: Detected 1 oom_kill event in StepId=31.0. Some of the step tasks have been OOM Killed.\n"
		"srun: error: gpu12: task 0: Exited with exit code 1\n");

	CHECK_EQ(pm->claims.cnt, 3);
	CHECK_EQ(fit_of(pm).likely, DL_DEATH_OOM_CGROUP);
	CHECK_EQ(fit_of(pm).first->pid, 412);
}

/* A launcher kills what is left: that SIGKILL is no news about the bus error. */
TEST(later_deaths_do_not_change_the_first)
{
	_cleanup_pm_ struct dl_postmortem *pm = READ(
		BUS_MAIN("100")
		"E0101 10:00:00.123000 77 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -9) "
		"local_rank: 1 (pid: 101) of binary: /usr/bin/python\n"
		"W0101 10:00:00.123000 77 torch/distributed/elastic/multiprocessing/api.py:900] Sending process 102 closing "
		"signal SIGTERM\n");

	CHECK_EQ(pm->claims.cnt, 3);
	CHECK_EQ(fit_of(pm).fits, BUS);
	CHECK_EQ(fit_of(pm).sig, SIGBUS);
}

TEST(prefixes_and_colours)
{
	static const char *const logs[] = {
		"\033[31mRuntimeError\033[0m: \033[1;31mDataLoader worker (pid 31208) is killed by signal: Killed. \033[0m",
		"[1,0]<stderr>:RuntimeError: DataLoader worker (pid 31208) is killed by signal: Killed. ",
		"(train_fn pid=9, ip=10.0.0.1) RuntimeError: DataLoader worker (pid 31208) is killed by signal: Killed. ",
		"2024-05-01T10:00:00.1Z stderr F RuntimeError: DataLoader worker (pid 31208) is killed by signal: Killed. ",
		"\033]0;title\aDataLoader worker (pid 31208) is killed by signal: Killed. ",
		"{\"log\":\"DataLoader worker (pid 31208) is killed by signal: Killed. \\n\",\"stream\":\"stderr\"}",
	};

	for (size_t i = 0; i < ARRAY_SIZE(logs); i++) {
		_cleanup_pm_ struct dl_postmortem *pm = read_log(logs[i], strlen(logs[i]));

		CHECK_EQ(pm->claims.cnt, 1);
		CHECK_EQ(pm->claims.v->pid, 31208);
		CHECK_EQ(fit_of(pm).sig, SIGKILL);
		CHECK(!strchr(pm->claims.v->line, '\033'));
	}
}

TEST(utf16_and_junk)
{
	static const char text[] = "DataLoader worker (pid 9) is killed by signal: Killed. \n";
	char wide[2 + 2 * sizeof(text)] = "\xff\xfe", junk[70000];
	_cleanup_pm_ struct dl_postmortem *pm = NULL, *pm2 = NULL;

	for (size_t i = 0; i < sizeof(text); i++)
		wide[2 + 2 * i] = text[i];
	pm = read_log(wide, sizeof(wide));
	CHECK_EQ(pm->claims.cnt, 1);
	CHECK_EQ(pm->claims.v->pid, 9);
	/* In the middle of a line without end, across the border of its parts, between bytes that are no text. */
	for (size_t at = 6000; at < 9000; at += 97) {
		dl_postmortem_free(take_ptr(pm2));
		for (size_t i = 0; i < sizeof(junk); i++)
			junk[i] = (char)(0x80 | i * 7);
		memcpy(junk + at, text, sizeof(text) - 2);
		pm2 = read_log(junk, sizeof(junk));
		CHECK_EQ(pm2->claims.cnt, 1);
		CHECK_EQ(pm2->claims.v->pid, 9);
		for (const char *s = pm2->claims.v->line; *s; s++)
			CHECK((unsigned char)*s < 0x80);
	}
}

/* Many deaths of one kind: the first two and the last two. */
TEST(a_log_of_many_restarts)
{
	_cleanup_free_ char *log = malloc(100 * 100);
	_cleanup_pm_ struct dl_postmortem *pm = NULL;
	size_t len = 0;

	CHECK(log);
	for (int i = 1; i <= 100; i++)
		len += (size_t)sprintf(log + len, "RuntimeError: DataLoader worker (pid %d) is killed by signal: Killed. \n", i);
	pm = read_log(log, len);
	CHECK_EQ(pm->claims.cnt, 4);
	CHECK_EQ(pm->claims.v[0].pid, 1);
	CHECK_EQ(pm->claims.v[1].pid, 2);
	CHECK_EQ(pm->claims.v[2].pid, 99);
	CHECK_EQ(pm->claims.v[3].pid, 100);
}

/* The same line again and again is one claim. */
TEST(repetitions)
{
	_cleanup_pm_ struct dl_postmortem *pm = READ(
		"OSError: [Errno 24] Too many open files\nOSError: [Errno 24] Too many open files\n"
		"OSError: [Errno 24] Too many open files\n");

	CHECK_EQ(pm->claims.cnt, 1);
}

TEST(made_to_be_slow)
{
	const size_t sz = 4 << 20;
	_cleanup_free_ char *log = malloc(sz);
	_cleanup_pm_ struct dl_postmortem *pm = NULL;

	CHECK(log);
	for (size_t i = 0; i < sz; i++)
		log[i] = "DataLoader worker (pid(s) 1"[i % 27];
	pm = read_log(log, sz);
	CHECK(pm->claims.cnt <= 8);
}

TEST(nothing_at_all)
{
	_cleanup_pm_ struct dl_postmortem *pm = read_log("", 0);

	CHECK_EQ(pm->claims.cnt, 0);
	CHECK_EQ(fit_of(pm).fits, 0);
	pm->death = DL_DEATH_SHM_FULL;
	CHECK_OK(dl_pm_judge_claims(pm));
	CHECK(!pm->wrong_text);
}

TEST(whole_outputs)
{
	for (size_t i = 0; i < ARRAY_SIZE(pmlog_samples); i++) {
		const struct pmlog_sample *s = &pmlog_samples[i];
		_cleanup_pm_ struct dl_postmortem *pm = read_log(s->text, strlen(s->text));
		const struct fit f = fit_of(pm);

		if (!f.first || f.fits != s->fits || f.likely != s->likely || f.sig != s->sig || f.first->pid != s->pid)
			test_fail(__FILE__, __LINE__, "%s: fits %" PRIx64 ", likely %s, signal %d, process %u", s->name, f.fits,
				  dl_death_id(f.likely), f.sig, f.first ? f.first->pid : 0);
	}
}

TEST(every_allocation_may_fail)
{
#if FAILING_ALLOC
	int failed = 0;

	for (long n = 0;; n++) {
		struct dl_postmortem *pm = dl_pm_new();
		int err;
		long left;

		CHECK(pm);
		alloc_left = n;
		err = dl_pm_read_log(pm, bus_log, sizeof(bus_log) - 1);
		pm->death = DL_DEATH_OOM_HOST;
		if (!err)
			err = dl_pm_judge_claims(pm);
		left = alloc_left;
		alloc_left = LONG_MAX;
		CHECK(!err || err == -ENOMEM);
		dl_postmortem_free(pm);
		if (left > 0)
			break;
		failed += err != 0;
	}
	CHECK(failed > 5);
#else
	SKIP("the sanitizer has an allocator of its own");
#endif
}

/* Each text of the table is found where it begins a line. */
TEST(table_is_well_formed)
{
	for (size_t i = 0; i < dl_log_rules_cnt; i++) {
		const struct dl_log_rule *rule = &dl_log_rules[i];
		const char *anchor = rule->pattern + (*rule->pattern == '^');

		for (int j = 0; j < 4; j++)
			if (!anchor[j] || strchr("*~%$", anchor[j]))
				test_fail(__FILE__, __LINE__, "%s begins with no plain text", rule->id);
		if (rule->kind == DL_LOG_PLAIN && (!rule->tells || !*rule->tells))
			test_fail(__FILE__, __LINE__, "%s tells nothing", rule->id);
		if (rule->suggests != DL_DEATH_UNEXPLAINED && !(rule->fits >> rule->suggests & 1))
			test_fail(__FILE__, __LINE__, "%s suggests what does not fit", rule->id);
		if ((rule->wrong_for != 0) != (rule->wrong != NULL))
			test_fail(__FILE__, __LINE__, "%s is wrong without saying how", rule->id);
		for (size_t j = 0; j < i; j++)
			if (!strcmp(rule->id, dl_log_rules[j].id))
				test_fail(__FILE__, __LINE__, "%s twice", rule->id);
	}
}

/* Texts of the table with bytes changed, cut and repeated: whatever is made of them, it is text. */
TEST(mutated_outputs)
{
	uint64_t seed = 1;

	for (int i = 0; i < 3000; i++) {
		const struct pmlog_sample *s = &pmlog_samples[i % (int)ARRAY_SIZE(pmlog_samples)];
		const size_t len = strlen(s->text);
		_cleanup_free_ char *text = malloc(len);
		_cleanup_pm_ struct dl_postmortem *pm = NULL;

		CHECK(text);
		memcpy(text, s->text, len);
		for (int j = 0; j < 1 + i % 13; j++) {
			seed = seed * 6364136223846793005 + 1442695040888963407;
			text[(seed >> 33) % len] = (char)(seed >> 20);
		}
		pm = read_log(text, len - (seed >> 40) % 40 % len);
		pm->death = (enum dl_death)(i % DL_DEATH_CNT);
		CHECK_OK(dl_pm_judge_claims(pm));
		fit_of(pm);
		vec_for_each(&pm->claims, c)
			CHECK(c->line && c->tells && strlen(c->line) <= 1024);
	}
}
