/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The verdict: one sentence, and what to do with numbers of this run. One function for each cause,
 * in a table. A number that was not measured is left out, never made up.
 */
#include "diagnose/summary.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "diagnose/copies.h"

#define UNEVEN_BATCHES 8	/* fewer batches say nothing about how even they are */
#define PREFETCH_DEFAULT 2
#define PREFETCH_MAX 64		/* batches ahead for each worker that somebody might want */
#define IDLE_CPUS 0.2	/* CPUs that idle more than this are CPUs that could have been used */

struct facts {
	struct dl_report *r;
	const struct dl_timeline *tl;
	const struct dl_diagnose_opts *opts;
	enum dl_cause cause;
	const struct dl_charge *charge;	/* of the device, or of the waits, with most of the cause */
	uint64_t idle_ns, busy_ns, span_ns, cause_ns, via_lock_ns, own_tree_ns;
	uint32_t workers, loader_threads;
	uint64_t batches, produce_ns;	/* typical time to make one */
	uint64_t cpus;			/* that the job may use; 0 unknown */
	double quota_cpus;		/* 0 none */
	double worker_busy;		/* share of a worker's time on a CPU; 0 unknown */
	struct dl_str *text;
	int err;
};

static void action(struct facts *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void action(struct facts *f, const char *fmt, ...)
{
	char **at = vec_push(&f->r->verdict.actions);
	va_list ap;

	if (!at) {
		f->err = -ENOMEM;
		return;
	}
	va_start(ap, fmt);
	if (vasprintf(at, fmt, ap) < 0) {
		*at = NULL;
		f->r->verdict.actions.cnt--;
		f->err = -ENOMEM;
	}
	va_end(ap);
}

static void say_detail(struct facts *f)
{
	if (f->charge && f->charge->detail)
		dl_str_addf(f->text, " (%s)", f->charge->detail);
}

static void say_more_workers(struct facts *f, uint64_t step)
{
	char a[32], b[32];

	if (f->r->has_gpu && step && f->produce_ns > step) {
		uint64_t want = (f->produce_ns + step - 1) / step;

		action(f, "One worker needs %s for a batch and the GPU takes %s: about %" PRIu64 " workers would keep up, now there %s %u",
		       dl_fmt_ns(a, sizeof(a), f->produce_ns), dl_fmt_ns(b, sizeof(b), step), want,
		       f->workers == 1 ? "is" : "are", f->workers);
		if (f->cpus && want > f->cpus)
			action(f, "The job may use only %" PRIu64 " CPUs: make the transforms cheaper, cache decoded samples, or decode on the GPU",
			       f->cpus);
	} else if (!f->cpus || f->workers < f->cpus) {
		action(f, "Use more workers (now %u%s)", f->workers, f->cpus ? "; there are CPUs left" : "");
	}
}

/* Where one worker, or a few batches, take most of the time, a number of workers is no remedy. */
static bool say_uneven(struct facts *f, uint64_t step)
{
	char a[32], b[32];

	vec_for_each(&f->r->loaders, l) {
		const struct dl_dist *d = &l->produce;

		if (l->slow_worker >= 0) {
			action(f, "Worker %d needs %s for a batch, the others %s; batches come in order, so that all wait for it: look at its samples, or take them as they come (in_order=False in newer PyTorch)",
			       l->slow_worker, dl_fmt_ns(a, sizeof(a), l->slow_ns), dl_fmt_ns(b, sizeof(b), l->other_ns));
			return true;
		}
		if (d->cnt < UNEVEN_BATCHES || d->p99_ns < 4 * d->p50_ns || d->sum_ns < 2 * d->cnt * d->p50_ns)
			continue;
		action(f, "A few batches take up to %s, half of them at most %s: look at their samples, or take batches as they come (in_order=False in newer PyTorch)",
		       dl_fmt_ns(a, sizeof(a), d->max_ns), dl_fmt_ns(b, sizeof(b), d->p50_ns));
		if (step && l->workers && d->max_ns / step / l->workers < PREFETCH_MAX &&
		    d->max_ns / step / l->workers + 1 > PREFETCH_DEFAULT)
			action(f, "prefetch_factor=%" PRIu64 " hides a batch that takes %s behind steps of %s, where memory allows it",
			       d->max_ns / step / l->workers + 1, dl_fmt_ns(a, sizeof(a), d->max_ns),
			       dl_fmt_ns(b, sizeof(b), step));
		return true;
	}
	return false;
}

/* GPU time of a batch; 0 where it is not known: batches are counted over the whole recording, kernels may not be. */
static uint64_t gpu_step(const struct facts *f)
{
	vec_for_each(&f->tl->procs, p)
		if (p->gpu_blind.cnt && p->kernel_cnt)
			return 0;
	return f->batches ? f->busy_ns / f->batches : 0;
}

static void say_decode(struct facts *f)
{
	uint64_t step = gpu_step(f);

	if (!f->workers && f->loader_threads) {
		dl_str_addf(f->text, f->loader_threads == 1 ?
			    "%u loader thread in the trainer was making samples" :
			    "%u loader threads in the trainer were making samples", f->loader_threads);
		say_detail(f);
		action(f, "Use worker processes instead of threads: Python code of one process runs one thread at a time");
		return;
	}
	if (!f->workers) {
		dl_str_add(f->text, "the trainer itself was making samples (num_workers=0)");
		say_detail(f);
		action(f, "Use worker processes: DataLoader(..., num_workers=%" PRIu64 ", pin_memory=True, persistent_workers=True)",
		       f->cpus > 1 ? f->cpus - 1 : 1);
		return;
	}
	dl_str_addf(f->text, "%u worker%s %s making samples", f->workers, f->workers == 1 ? " was" : "s were",
		    f->worker_busy > 0.9 ? "busy all the time" : "busy");
	say_detail(f);
	if (!say_uneven(f, step))
		say_more_workers(f, step);
	action(f, "Make samples cheaper: smaller images, faster decoder (turbojpeg), fewer or vectorised transforms, transforms on the GPU");
}

static void say_ipc(struct facts *f)
{
	dl_str_add(f->text, "finished batches were being handed over between processes");
	say_detail(f);
	action(f, "Put fewer and larger tensors into a batch: each tensor costs a hand-over of its own; collate in the worker");
	action(f, "Return tensors, not Python objects or strings; large objects are pickled and copied through a pipe");
}

static void say_shm(struct facts *f)
{
	dl_str_add(f->text, "memory shared between workers and trainer was being touched, mapped or freed for the first time");
	say_detail(f);
	action(f, "Keep fewer and smaller batches in flight (prefetch_factor, smaller dtype: uint8 instead of float32, convert on the GPU)");
	action(f, "Reuse buffers where you can: every new batch costs one page fault for each 4 KiB");
}

static void say_pcie(struct facts *f)
{
	const struct dl_device_report *dev = NULL;
	const struct dl_copy_device *most = NULL;

	/* The device that lost most by it. */
	vec_for_each(&f->r->devices, it) {
		if (!dev || it->causes[DL_CAUSE_PCIE].ns > dev->causes[DL_CAUSE_PCIE].ns)
			dev = it;
	}
	vec_for_each(&f->r->copy_devices, it) {
		if (dev && it->pid == dev->pid && it->device == dev->id)
			most = it;
	}
	if (!most) {
		dl_str_add(f->text, "batches were being copied to the device");
		return;
	}
	f->r->verdict.copies = most->problem;
	dl_copy_text(f->text, most);
	if (!f->err)
		f->err = dl_copy_actions(&f->r->verdict, most);
}

static void say_storage(struct facts *f)
{
	dl_str_add(f->text, "samples were being read from storage");
	say_detail(f);
	action(f, "Read less or in larger pieces: cache the data set in memory or on a local disk, pack small files into shards");
	if (f->workers)
		action(f, "More parallel reads: more workers than the %u of now hide the latency of storage (not its bandwidth)", f->workers);
	else
		action(f, "Read in the background: num_workers=2 or more hides the latency of storage");
}

static void say_swap(struct facts *f)
{
	uint64_t most = 0;
	char a[32];

	vec_for_each(&f->r->procs, p)
		most += p->swap_peak;
	dl_str_add(f->text, "memory was coming back from swap or being pushed out");
	if (most)
		dl_str_addf(f->text, " (%s swapped out)", dl_fmt_bytes(a, sizeof(a), most));
	action(f, "Use less memory: fewer workers, smaller prefetch_factor, or a data set that is mapped instead of loaded");
	action(f, "Give the job more memory, or switch swap off so that a shortage shows at once");
}

static void say_memory(struct facts *f)
{
	dl_str_add(f->text, "memory was being reclaimed, copied on write or touched for the first time");
	say_detail(f);
	action(f, "Raise the memory limit, or reuse buffers; keep per-sample data in arrays, not in Python objects (each access copies pages in forked workers)");
}

static void say_contention(struct facts *f)
{
	double own = f->cause_ns ? (double)f->own_tree_ns / (double)f->cause_ns : 0;

	dl_str_addf(f->text, "threads that had to run waited for a CPU, %.0f %% of that behind the job itself", own * 100);
	say_detail(f);
	if (f->charge && f->charge->affinity_ns * 2 > f->charge->ns && f->r->cpu_idle > IDLE_CPUS) {
		dl_str_addf(f->text, "; those threads may run on some of the machine's %u CPUs only (affinity), while the CPUs were idle for %.0f %% of their time",
			    f->r->cpus, 100 * f->r->cpu_idle);
		action(f, "Let the job's threads run on more CPUs: they are pinned (taskset, sched_setaffinity, numactl, a cpuset, a launcher's CPU binding)");
		return;
	}
	if (own > 0.5) {
		if (f->cpus)
			action(f, "The job has more to run than its %" PRIu64 " CPUs: fewer workers, one thread each (torch.set_num_threads(1), OMP_NUM_THREADS=1), or cheaper work for each sample", f->cpus);
		else
			action(f, "The job has more to run than it has CPUs: fewer workers, one thread each, or cheaper work for each sample");
	} else {
		action(f, "Other processes take the CPUs: move them away, or reserve CPUs for the job (cpuset, taskset, nice)");
	}
}

static void say_quota(struct facts *f)
{
	dl_str_add(f->text, "the job had used up the CPU time of its cgroup");
	if (f->quota_cpus > 0) {
		dl_str_addf(f->text, " (limit %.2f CPUs)", f->quota_cpus);
		action(f, "Raise the CPU limit above %.2f, or use as many workers as the limit allows", f->quota_cpus);
	} else {
		action(f, "Raise the CPU limit (cpu.max, cpu.cfs_quota_us; Kubernetes: resources.limits.cpu)");
	}
}

static void say_gil(struct facts *f)
{
	dl_str_add(f->text, "a thread that had to run waited for its Python interpreter");
	say_detail(f);
	action(f, "Move the other Python threads of that process elsewhere (a process of their own), or let them release the GIL");
	action(f, "Fewer hand-overs need the GIL less often: fewer tensors for each batch");
}

static void say_lock(struct facts *f)
{
	dl_str_add(f->text, "workers waited for a lock");
	say_detail(f);
	action(f, "Hold the lock for less, or give each worker its own resource (file handle, connection, cache)");
}

static void say_startup(struct facts *f)
{
	dl_str_add(f->text, "workers were being created or ended");
	say_detail(f);
	action(f, "Keep workers alive between epochs: persistent_workers=True");
	action(f, "Make the data set cheap to send to workers: paths instead of loaded data");
}

static void say_host(struct facts *f)
{
	dl_str_add(f->text, "the trainer was busy with its own Python code and launches, data was not what it waited for");
	say_detail(f);
	action(f, "Give the GPU more for each step of the trainer: larger batch, torch.compile or CUDA graphs; move logging, metrics and checkpoints out of the step");
}

static void say_cuda_api(struct facts *f)
{
	dl_str_add(f->text, "the trainer was inside driver calls other than copies (allocation, module load, graph creation)");
	say_detail(f);
	action(f, "Let the caching allocator keep memory (no empty_cache in the loop), warm up before measuring, reuse pinned buffers");
}

static void say_sync(struct facts *f)
{
	dl_str_add(f->text, "the trainer synchronised with the GPU and had to refill it afterwards");
	say_detail(f);
	action(f, "Remove synchronisation from the loop: .item(), .cpu(), print of a tensor, torch.cuda.synchronize(); log every N steps");
}

static void say_network(struct facts *f)
{
	dl_str_add(f->text, "samples were being fetched over the network");
	say_detail(f);
	action(f, "Fetch in parallel and ahead (more workers, larger prefetch_factor), or keep a local copy");
}

static void say_sleep(struct facts *f)
{
	dl_str_add(f->text, "the thread that had to act was asleep");
	say_detail(f);
	action(f, "Look for time.sleep, polling loops with a pause, and rate limiters in the data set and the training loop");
}

static void say_external(struct facts *f)
{
	dl_str_add(f->text, "the job waited for a process outside it");
	say_detail(f);
	action(f, "Look at that process; record it too with dlbpf record -p PID");
}

static void say_gpu(struct facts *f)
{
	dl_str_add(f->text, "the host had already asked: the device itself was between two kernels (launch latency, dependencies between streams)");
	say_detail(f);
	action(f, "Fewer and larger kernels: torch.compile, CUDA graphs, fused optimisers");
}

static void say_data(struct facts *f)
{
	bool by_itself = false;

	vec_for_each(&f->tl->procs, p)
		by_itself |= p->loads_inline;
	dl_str_add(f->text, by_itself ? "the trainer itself was making batches (num_workers=0)" :
		   "the trainer was waiting for its next batch");
	say_detail(f);
	if (by_itself)
		action(f, "Use worker processes: DataLoader(..., num_workers=N, pin_memory=True, persistent_workers=True)");
	action(f, "A GPU trace alone does not say why batches came late: record the run with dlbpf record -p PID, and give both to dlbpf report --gpu-trace");
}

/* Only another tool's GPU trace is there: what it cannot know is no loss. */
static bool only_gpu_trace(const struct dl_timeline *tl)
{
	bool imported = false, switches = false;

	vec_for_each(&tl->procs, p)
		imported |= p->gpu_state == DL_GPU_IMPORTED;
	vec_for_each(&tl->threads, th)
		switches |= th->has_switches;
	return imported && !switches;
}

static void say_unexplained(struct facts *f)
{
	if (only_gpu_trace(f->tl)) {
		dl_str_add(f->text, "the host had not asked for more work yet, and was in no call or operator that the GPU trace knows");
		action(f, "Record the run with dlbpf record -p PID, and give both to dlbpf report --gpu-trace: what the host did is not in a GPU trace");
		return;
	}
	dl_str_add(f->text, "dlbpf does not know why");
	if (f->r->lost)
		dl_str_addf(f->text, "; %" PRIu64 " events were lost", f->r->lost);
	action(f, "Look at what was lost or absent below; record again with fewer processes, or from the start of the job");
}

static void (*const say[DL_CAUSE_CNT])(struct facts *f) = {
	[DL_CAUSE_UNEXPLAINED] = say_unexplained, [DL_CAUSE_DECODE] = say_decode, [DL_CAUSE_IPC] = say_ipc,
	[DL_CAUSE_SHM] = say_shm, [DL_CAUSE_PCIE] = say_pcie, [DL_CAUSE_STORAGE] = say_storage,
	[DL_CAUSE_SWAP] = say_swap, [DL_CAUSE_MEMORY] = say_memory,
	[DL_CAUSE_CPU_CONTENTION] = say_contention, [DL_CAUSE_CPU_QUOTA] = say_quota,
	[DL_CAUSE_GIL] = say_gil, [DL_CAUSE_LOCK] = say_lock, [DL_CAUSE_STARTUP] = say_startup,
	[DL_CAUSE_HOST] = say_host, [DL_CAUSE_CUDA_API] = say_cuda_api, [DL_CAUSE_SYNC] = say_sync,
	[DL_CAUSE_NETWORK] = say_network, [DL_CAUSE_SLEEP] = say_sleep, [DL_CAUSE_EXTERNAL] = say_external,
	[DL_CAUSE_GPU] = say_gpu, [DL_CAUSE_DATA] = say_data,
};

static void add_charges(const struct dl_charge *causes, uint64_t ns[DL_CAUSE_CNT],
			const struct dl_charge *most[DL_CAUSE_CNT])
{
	for (int c = 0; c < DL_CAUSE_CNT; c++) {
		ns[c] += causes[c].ns;
		if (!most[c] || causes[c].ns > most[c]->ns)
			most[c] = &causes[c];
	}
}

static void find_cause(struct facts *f)
{
	const struct dl_charge *most[DL_CAUSE_CNT] = {};
	uint64_t ns[DL_CAUSE_CNT] = {};

	vec_for_each(&f->r->devices, dev) {
		f->idle_ns += dev->idle_ns;
		f->busy_ns += dev->busy_ns + dev->collective_ns;
		add_charges(dev->causes, ns, most);
	}
	if (!f->r->has_gpu) {
		f->idle_ns = f->r->waits.total_ns;
		f->span_ns = f->r->waits.wall_ns;
		add_charges(f->r->waits.causes, ns, most);
	} else {
		f->span_ns = f->idle_ns + f->busy_ns;
	}
	for (int c = 0; c < DL_CAUSE_CNT; c++) {
		if (ns[c] > ns[f->cause])
			f->cause = (enum dl_cause)c;
	}
	f->charge = most[f->cause];
	f->cause_ns = ns[f->cause];
	f->own_tree_ns = f->charge ? f->charge->own_tree_ns : 0;
	f->via_lock_ns = f->charge ? f->charge->via_lock_ns : 0;
}

/* How much of the machine's CPU time nobody wanted, from the first to the last look. */
static void find_idle_cpus(struct facts *f)
{
	const struct dl_ev_env_host *first = NULL, *last = NULL;
	double all_ns;

	vec_for_each(&f->tl->env, k) {
		if (k->ev->kind != DL_EV_ENV_HOST)
			continue;
		last = (const void *)k->ev;
		first = first ? first : last;
	}
	f->r->cpus = last ? last->cpus : 0;
	f->r->cpu_idle = -1;
	if (!last || last->h.ts <= first->h.ts || !last->cpus || last->idle_ns < first->idle_ns)
		return;
	all_ns = (double)(last->h.ts - first->h.ts) * last->cpus;
	f->r->cpu_idle = (double)(last->idle_ns - first->idle_ns) / all_ns;
	if (f->r->cpu_idle > 1)
		f->r->cpu_idle = 1;
}

static void find_environment(struct facts *f)
{
	find_idle_cpus(f);
	vec_for_each(&f->tl->env, k) {
		if (k->ev->kind == DL_EV_ENV_PROC) {
			const struct dl_ev_env_proc *p = (const void *)k->ev;

			/* The trainer's, unless it alone was pinned. */
			if (p->cpus_allowed > f->cpus)
				f->cpus = p->cpus_allowed;
		} else if (k->ev->kind == DL_EV_ENV_CGROUP) {
			const struct dl_ev_env_cgroup *c = (const void *)k->ev;
			double cpus = c->cpu_period_ns && c->cpu_quota_ns ?
				(double)c->cpu_quota_ns / (double)c->cpu_period_ns : 0;

			if (cpus > 0 && (f->quota_cpus <= 0 || cpus < f->quota_cpus))
				f->quota_cpus = cpus;
		}
	}
}

/* In the recording, and in the window. */
static uint64_t alive(const struct facts *f, const struct dl_proc_report *p)
{
	uint64_t from = p->start > f->tl->start ? p->start : f->tl->start, to = p->end ? p->end : f->tl->end;

	from = from > f->opts->from_ts ? from : f->opts->from_ts;
	to = to < f->opts->to_ts ? to : f->opts->to_ts;
	return to > from ? to - from : 0;
}

static void find_work(struct facts *f)
{
	uint64_t cpu_ns = 0, alive_ns = 0;

	vec_for_each(&f->r->loaders, l) {
		f->workers += l->workers;
		f->batches += l->batches;
		if (l->produce.cnt && l->produce.sum_ns / l->produce.cnt > f->produce_ns)
			f->produce_ns = l->produce.sum_ns / l->produce.cnt;
	}
	vec_for_each(&f->tl->threads, th)
		f->loader_threads += th->role == DL_ROLE_LOADER_THREAD;
	vec_for_each(&f->r->procs, p) {
		if (p->role != DL_ROLE_WORKER)
			continue;
		cpu_ns += p->cpu_ns + p->runnable_ns;
		alive_ns += alive(f, p);
	}
	if (alive_ns)
		f->worker_busy = (double)cpu_ns / (double)alive_ns;
}

static void say_nothing_to_blame(struct facts *f, double idle_share)
{
	if (f->r->has_gpu) {
		dl_str_addf(f->text, "The GPU is the limit: it was busy %.1f %% of the time and waited for nothing that matters",
			    100 * (1 - idle_share));
		action(f, "To train faster, make the GPU's own work cheaper: mixed precision, torch.compile, a larger batch, a faster GPU");
		return;
	}
	if (!f->workers && !f->loader_threads) {
		dl_str_addf(f->text, "No worker loads data here (num_workers=0, or no DataLoader): without GPU data, making a batch cannot be told from training on it; waiting was %.1f %% of the time",
			    100 * idle_share);
		action(f, "Record with GPU data: the report then tells the making of batches from the training step");
		action(f, "Use worker processes: DataLoader(..., num_workers=2) lets batches be made while the last one is trained on");
		return;
	}
	dl_str_addf(f->text, "Batches were ready: the trainer waited for data only %.1f %% of the time; the training step is the limit",
		    100 * idle_share);
	action(f, "Record with GPU data to see whether the GPU or the trainer's own code is the limit");
}

static void say_all(struct facts *f)
{
	struct dl_verdict *v = &f->r->verdict;
	double idle_share = f->span_ns ? (double)f->idle_ns / (double)f->span_ns : 0;

	if (!f->span_ns) {
		dl_str_add(f->text, "Nothing to explain: no kernel ran and no trainer waited for a batch in this recording");
		return;
	}
	if (idle_share < DL_HEALTHY_SHARE || !f->cause_ns) {
		v->healthy = true;
		say_nothing_to_blame(f, idle_share);
		return;
	}
	v->has_cause = true;
	v->cause = f->cause;
	v->share = (double)f->cause_ns / (double)f->idle_ns;
	dl_str_addf(f->text, f->r->has_gpu ? "The GPU was idle %.0f %% of the time; in %.0f %% of that " :
		    f->r->waits.calls.known ?
		    "The trainer waited for batches and in CUDA's calls %.0f %% of the time; in %.0f %% of that " :
		    "The trainer waited for batches %.0f %% of the time; in %.0f %% of that ",
		    100 * idle_share, 100 * v->share);
	say[f->cause](f);
	if (f->via_lock_ns * 2 > f->cause_ns && f->cause != DL_CAUSE_LOCK && f->cause != DL_CAUSE_GIL)
		dl_str_add(f->text, ", most of it seen through a lock (the GIL) that it held");
}

/* Then the GPU is the limit, or nearly. */
static void say_gpu_at_work(struct facts *f)
{
	uint64_t ns = f->r->waits.calls.gpu_wait_ns;

	if (f->span_ns && ns > f->idle_ns && ns * 10 > f->span_ns)
		dl_str_addf(f->text, "; in %.0f %% of the time the trainer waited for the GPU, which was at work",
			    100 * (double)ns / (double)f->span_ns);
}

/* Several trainers with several causes: each is named. */
static void say_trainers(struct facts *f)
{
	const struct dl_trainer_report *first = NULL;
	const char *sep = "; by trainer: ";
	bool differ = false;

	vec_for_each(&f->r->trainers, t) {
		if (!first)
			first = t;
		differ |= t->part.has_cause != first->part.has_cause || t->part.cause != first->part.cause;
	}
	if (!differ)
		return;
	vec_for_each(&f->r->trainers, t) {
		if (!t->part.span_ns)
			continue;
		if (t->rank >= 0)
			dl_str_addf(f->text, "%srank %d (pid %u) ", sep, t->rank, t->pid);
		else
			dl_str_addf(f->text, "%spid %u ", sep, t->pid);
		if (t->part.has_cause)
			dl_str_addf(f->text, "%s %.0f %%", dl_cause_id(t->part.cause), 100 * t->part.share);
		else
			dl_str_add(f->text, "hardly waited");
		sep = ", ";
	}
}

int dl_find_verdict(struct dl_report *r, const struct dl_timeline *tl, const struct dl_diagnose_opts *opts, struct dl_diag *d)
{
	struct dl_str text = {};
	struct facts f = { .r = r, .tl = tl, .opts = opts, .text = &text };

	find_cause(&f);
	find_environment(&f);
	find_work(&f);
	say_all(&f);
	say_gpu_at_work(&f);
	say_trainers(&f);
	r->verdict.text = dl_str_take(&text);
	return !r->verdict.text || f.err ? dl_oom(d) : 0;
}
