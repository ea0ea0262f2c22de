/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* CPUs: how many the job may use, against workers and threads. */
#include <stdlib.h>

#include "check/judge.h"

static void fix_cpus(const struct dl_ck_facts *f, struct dl_ck_line *l, unsigned int want)
{
	if (f->slurm) {
		ck_fix(l, "ask Slurm for more CPUs");
		ck_cmd(l, "sbatch --cpus-per-task=%u ...", want);
	} else if (f->place == DL_CK_KUBERNETES) {
		ck_fix(l, "raise the container's CPU limit");
		ck_cmd(l, "resources: { limits: { cpu: \"%u\" } }", want);
	} else if (f->place == DL_CK_CONTAINER) {
		ck_fix(l, "raise the container's CPU limit");
		ck_cmd(l, "docker run --cpus=%u ...", want);
	}
}

void ck_judge_cpus(const struct dl_ck_facts *f, struct dl_ck_line *l)
{
	const struct dl_ck_level *by;
	const double cpus = dl_ck_cpus_of(f, &by);
	const uint32_t online = f->cpus.online;
	ck_buf a;

	if (!cpus) {
		ck_say(l, DL_CK_UNKNOWN, "the CPUs that the job may use cannot be read");
		return;
	}
	ck_num(l, "cpus", cpus);
	if (online)
		ck_num(l, "online", online);
	if (by) {
		ck_say(l, DL_CK_OK, "the job may use %s of %u CPUs, by the quota of cgroup %s; os.cpu_count() says %u",
		       ck_cpus(a, cpus), online, ck_level(by), online);
	} else if (online && cpus < online) {
		ck_say(l, DL_CK_OK, "the job may use %s of %u CPUs, by %s", ck_cpus(a, cpus), online,
		       f->cpus.cpuset && f->cpus.cpuset <= cpus ? "the cpuset of its cgroup" : "its CPU affinity");
		if (cpus <= 1 && online >= 4) {
			l->state = DL_CK_PROBLEM;
			ck_add(l, ": workers, their threads and the trainer share one");
			fix_cpus(f, l, 8);
			if (!l->fix) {
				ck_fix(l, "something has pinned the process: taskset, a launcher, or a library at its import; before the "
				       "DataLoader is made, undo it");
				ck_cmd(l, "os.sched_setaffinity(0, range(os.cpu_count()))");
			}
		}
	} else {
		ck_say(l, DL_CK_OK, "the job may use all %s CPUs of the machine", ck_cpus(a, cpus));
	}
	if (!f->levels_known)
		ck_add(l, "; whether a cgroup has a quota is not known");
}

/* The trainer wants one for itself, where there are some. */
static unsigned int workers_for(double cpus)
{
	const unsigned int whole = (unsigned int)cpus;

	return whole >= 4 ? whole - 1 : whole ? whole : 1;
}

void ck_judge_worker_cpus(const struct dl_ck_facts *f, struct dl_ck_line *l)
{
	const uint32_t workers = dl_ck_workers(f);
	const double cpus = dl_ck_cpus_of(f, NULL);
	const unsigned int fit = workers_for(cpus);
	ck_buf a;

	if (!cpus)
		return;
	ck_num(l, "cpus", cpus);
	ck_num(l, "suggested_workers", fit);
	if (!workers && f->seen.ended) {
		ck_say(l, DL_CK_UNKNOWN, "the command ended before any worker was seen; %s CPUs serve about %u", ck_cpus(a, cpus), fit);
		return;
	}
	if (!workers && f->seen.watched) {
		ck_say(l, DL_CK_WARNING, "no DataLoader workers were seen: with num_workers=0, or while they are not yet there, the "
		       "trainer loads its data itself and the GPU waits meanwhile");
		ck_fix(l, "use workers");
		ck_cmd(l, "DataLoader(..., num_workers=%u)", fit);
		return;
	}
	if (!workers) {
		ck_say(l, DL_CK_UNKNOWN, "how many workers there will be is not known (--workers N, -p PID, or a command); %s CPUs "
		       "serve about %u", ck_cpus(a, cpus), fit);
		return;
	}
	ck_num(l, "workers", workers);
	if (workers <= cpus) {
		ck_say(l, DL_CK_OK, "%u workers for %s CPUs", workers, ck_cpus(a, cpus));
		return;
	}
	ck_say(l, workers >= 4 * cpus ? DL_CK_PROBLEM : DL_CK_WARNING,
	       "%u workers for %s CPUs: more than there are CPUs help only where they mostly wait for storage, and the trainer "
	       "competes with them", workers, ck_cpus(a, cpus));
	ck_fix(l, "use about %u workers, or get more CPUs", fit);
	ck_cmd(l, "DataLoader(..., num_workers=%u)", fit);
	fix_cpus(f, l, workers + 1);
}

void ck_judge_quota(const struct dl_ck_facts *f, struct dl_ck_line *l)
{
	const struct dl_ck_level *worst = NULL, *by;
	double periods;
	ck_buf a, b;

	if (!f->levels_known) {
		ck_say(l, DL_CK_UNKNOWN, "%s", f->levels_why[0] ? f->levels_why : "the control groups of the job are not known");
		return;
	}
	vec_for_each(&f->levels, it)
		if (it->ev.cpu_quota_ns && (!worst || it->throttled_cnt > worst->throttled_cnt))
			worst = it;
	if (!worst) {
		ck_say(l, DL_CK_OK, "no CPU quota%s", f->levels_hidden ? " (cgroups above this container are out of sight)" : "");
		return;
	}
	ck_num(l, "throttled_cnt", (double)worst->throttled_cnt);
	dl_ck_cpus_of(f, &by);
	if (!worst->watched || !worst->throttled_cnt) {
		ck_say(l, DL_CK_OK, "%s", worst->watched ? "it was not met while watched" : "how often it is met shows with -p or a "
		       "command");
		if (worst->ev.throttled_cnt)
			ck_add(l, "; since the cgroup was made, in %s periods", ck_cnt(a, worst->ev.throttled_cnt));
		return;
	}
	periods = worst->ev.cpu_period_ns ? (double)f->seen.watched_ns / (double)worst->ev.cpu_period_ns : 0;
	ck_say(l, periods && (double)worst->throttled_cnt > periods / 10 ? DL_CK_PROBLEM : DL_CK_WARNING,
	       "cgroup %s used up its quota of %s CPUs in %s of about %.0f periods while watched, and stood still until the next",
	       ck_level(worst), ck_cpus(a, (double)worst->ev.cpu_quota_ns / (double)worst->ev.cpu_period_ns),
	       ck_cnt(b, worst->throttled_cnt), periods);
	ck_fix(l, "use fewer workers and threads, or raise the quota");
	fix_cpus(f, l, 2 * workers_for(dl_ck_cpus_of(f, NULL)));
	if (f->place == DL_CK_HOST && !f->slurm && worst->ev.version == 2)
		ck_cmd(l, "echo max | sudo tee /sys/fs/cgroup%s/cpu.max", worst->path);
}

/* --- threads ------------------------------------------------------------------------------------- */

enum { OWN_THREADS = 3 };	/* of a worker: its main, feeder and sharer threads */

static void fix_threads(struct dl_ck_line *l)
{
	ck_fix(l, "one thread each in the workers, set before the job starts; OpenCV has its own switch, in worker_init_fn");
	ck_cmd(l, "export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1");
	ck_cmd(l, "torch.set_num_threads(1); cv2.setNumThreads(0)");
}

static unsigned int number_of(const char *value)
{
	const unsigned long n = value ? strtoul(value, NULL, 10) : 0;

	return n < 100000 ? (unsigned int)n : 0;
}

/* What workers have been seen to start. True: said. */
static bool judge_seen(const struct dl_ck_facts *f, struct dl_ck_line *l, double cpus)
{
	const uint32_t more = f->seen.worker_threads > OWN_THREADS ? f->seen.worker_threads - OWN_THREADS : 0;
	const uint32_t workers = f->seen.workers;
	ck_buf a;

	if (!f->seen.worker_threads || !workers)
		return false;
	ck_num(l, "worker_threads", f->seen.worker_threads);
	if (!more) {
		ck_say(l, DL_CK_OK, "workers have no threads beyond those of the DataLoader itself");
		return true;
	}
	ck_say(l, workers * (1 + more) <= cpus ? DL_CK_OK : workers * (1 + more) > 4 * cpus ? DL_CK_PROBLEM : DL_CK_WARNING,
	       "a worker has %u threads of libraries besides its own (OpenMP, BLAS, OpenCV): %u workers may run %u at once, for %s "
	       "CPUs", more, workers, workers * (1 + more), ck_cpus(a, cpus));
	if (l->state != DL_CK_OK)
		fix_threads(l);
	return true;
}

void ck_judge_threads(const struct dl_ck_facts *f, struct dl_ck_line *l)
{
	const char *omp = dl_ck_var(f, "OMP_NUM_THREADS"), *blas = dl_ck_var(f, "OPENBLAS_NUM_THREADS");
	const unsigned int each = number_of(blas ? blas : omp);
	const uint32_t trainers = f->seen.trainers ? f->seen.trainers : 1, workers = dl_ck_workers(f);
	const double cpus = dl_ck_cpus_of(f, NULL);
	ck_buf a;

	if (!cpus || judge_seen(f, l, cpus))
		goto trainer;
	if (!f->proc.env_known) {
		ck_say(l, DL_CK_UNKNOWN, "the environment of the job may not be read");
		return;
	}
	if (each > 1 && workers && workers * each > cpus) {
		ck_say(l, DL_CK_WARNING, "%s=%u: numpy and others may start so many threads in each of %u workers, for %s CPUs",
		       blas ? "OPENBLAS_NUM_THREADS" : "OMP_NUM_THREADS", each, workers, ck_cpus(a, cpus));
		fix_threads(l);
		return;
	}
	if (omp)
		ck_say(l, DL_CK_OK, "OMP_NUM_THREADS=%s", omp);
	else
		ck_say(l, DL_CK_OK, "OMP_NUM_THREADS is not set: libraries start a thread for each CPU of the affinity");
trainer:
	/* OpenMP goes by the affinity, which knows nothing of a quota and of other trainers. */
	if (!cpus || omp || !f->proc.env_known || f->cpus.allowed * trainers < 2 * cpus || l->state == DL_CK_PROBLEM)
		return;
	ck_say(l, DL_CK_WARNING, "OMP_NUM_THREADS is not set: PyTorch starts %u threads in each of %u trainer%s, and the job may use "
	       "%s CPUs", f->cpus.allowed, trainers, trainers == 1 ? "" : "s", ck_cpus(a, cpus));
	ck_fix(l, "set it before the job starts");
	ck_cmd(l, "export OMP_NUM_THREADS=%u", (unsigned int)(cpus / trainers) ? (unsigned int)(cpus / trainers) : 1);
}
