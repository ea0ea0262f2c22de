/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Reports filled in by hand, for the tests of render/: what a person would see after a run that is
 * slow to decode, one without GPU data, a healthy one, a crash, a file that was cut off, an empty
 * recording. The numbers are made to add up as the diagnosis promises.
 */
#ifndef DLBPF_RENDER_SAMPLES_H
#define DLBPF_RENDER_SAMPLES_H

#include <stdlib.h>
#include <string.h>

#include <dlbpf/event.h>

#include "diagnose/report.h"

#define MS 1000000ULL
#define SEC 1000000000ULL
#define T0 (5000 * SEC)

static inline void *sample_push(void *p)
{
	if (!p)
		abort();
	return p;
}

#define PUSH(vec) ((__typeof__((vec)->v))sample_push(vec_push(vec)))

static inline struct dl_report *sample_base(void)
{
	struct dl_report *r = sample_push(calloc(1, sizeof(*r)));

	r->path = strdup("run.dlbpf");
	r->complete = true;
	r->start = T0;
	r->duration_ns = 30 * SEC;
	r->events = 1234567;
	r->host = strdup("gpu03");
	r->kernel = strdup("6.1.0-37-amd64");
	r->target_cmdline = strdup("python train.py --data /data/imagenet --workers 2");
	r->target_pid = 4242;
	return r;
}

static inline void sample_charge(struct dl_charge *causes, enum dl_cause cause, uint64_t ns,
				 uint64_t gaps, const char *detail)
{
	causes[cause] = (struct dl_charge){ .ns = ns, .gaps = gaps,
					    .detail = detail ? strdup(detail) : NULL };
}

static inline struct dl_proc_report *sample_proc(struct dl_report *r, uint32_t pid, enum dl_role role,
						 int index, const char *name)
{
	struct dl_proc_report *p = PUSH(&r->procs);

	*p = (struct dl_proc_report){
		.pid = pid, .ppid = role == DL_ROLE_TRAINER ? 4000 : 4242, .nspid = pid, .role = role,
		.index = index, .loader = role == DL_ROLE_WORKER ? 0 : -1, .rank = -1,
		.trainer_pid = role == DL_ROLE_WORKER ? 4242 : 0, .threads = 4, .name = strdup(name),
		.cmdline = strdup("python train.py"), .start = T0, .end = T0 + 30 * SEC,
		.rss_peak = 1800ULL << 20,
	};
	return p;
}

static inline void sample_procs(struct dl_report *r)
{
	struct dl_proc_report *p = sample_proc(r, 4242, DL_ROLE_TRAINER, -1, "python");

	p->threads = 37;
	p->cpu_ns = 12 * SEC;
	p->runnable_ns = 200 * MS;
	p->blocked_ns[DL_BLOCK_ON_DATA] = 17 * SEC;
	p->blocked_ns[DL_BLOCK_ON_OTHER] = 900 * MS;
	p->min_flt = 123456;
	p->rss_peak = 3ULL << 30;
	p->shmem_peak = 300ULL << 20;
	for (int i = 0; i < 2; i++) {
		p = sample_proc(r, 4301 + (uint32_t)i, DL_ROLE_WORKER, i, "pt_data_worker");
		p->start = T0 + 1 * SEC;
		p->cpu_ns = 27 * SEC;
		p->runnable_ns = 1 * SEC;
		p->blocked_ns[DL_BLOCK_ON_DATA] = 600 * MS;
		p->blocked_ns[DL_BLOCK_ON_GIL] = 350 * MS;
		p->blocked_ns[DL_BLOCK_ON_STORAGE] = 40 * MS;
		p->min_flt = 1234567;
		p->maj_flt = (uint64_t)i * 3;
		p->shmem_peak = 160ULL << 20;
	}
	p = sample_proc(r, 4310, DL_ROLE_TRACKER, -1, "python");
	p->rss_peak = 9ULL << 20;
}

static inline void sample_loader(struct dl_report *r)
{
	*PUSH(&r->loaders) = (struct dl_loader_report){
		.trainer_pid = 4242, .index = 0, .workers = 2, .batches = 412,
		.wait = { 412, 17 * SEC, 39 * MS, 180 * MS, 412 * MS },
		.produce = { 412, 54 * SEC, 128 * MS, 240 * MS, 391 * MS },
		.deliver = { 412, 1236 * MS, 3 * MS, 9 * MS, 14 * MS },
	};
}

static inline struct dl_step *sample_step(struct dl_gap *gap, uint64_t start_ms, uint64_t end_ms,
					  enum dl_cause cause, uint32_t pid, uint32_t tid,
					  enum dl_role role, const char *text)
{
	struct dl_step *s = PUSH(&gap->steps);

	*s = (struct dl_step){ .start = gap->start + start_ms * MS, .end = gap->start + end_ms * MS,
			       .cause = cause, .pid = pid, .tid = tid, .role = role,
			       .text = strdup(text) };
	gap->cause_ns[cause] += s->end - s->start;
	return s;
}

static inline void sample_decode_gap(struct dl_report *r)
{
	struct dl_gap *gap = PUSH(&r->worst);

	*gap = (struct dl_gap){ .start = T0 + 12345 * MS, .end = T0 + 12757 * MS };
	/* latest first */
	sample_step(gap, 406, 412, DL_CAUSE_PCIE, 4242, 4242, DL_ROLE_TRAINER,
		    "in cudaMemcpyAsync: 147 MiB from pageable memory");
	sample_step(gap, 401, 406, DL_CAUSE_HOST, 4242, 4242, DL_ROLE_TRAINER, "running");
	sample_step(gap, 391, 401, DL_CAUSE_IPC, 4301, 4377, DL_ROLE_FEEDER,
		    "pickling the batch and writing it to a pipe")->jump = true;
	sample_step(gap, 380, 391, DL_CAUSE_SHM, 4301, 4301, DL_ROLE_WORKER,
		    "first touch of shared memory")->jump = true;
	sample_step(gap, 200, 380, DL_CAUSE_DECODE, 4301, 4301, DL_ROLE_WORKER,
		    "running the data set's code");
	sample_step(gap, 195, 200, DL_CAUSE_CPU_CONTENTION, 4301, 4301, DL_ROLE_WORKER,
		    "ready, while python (pid 4302) ran on its CPU");
	sample_step(gap, 0, 195, DL_CAUSE_DECODE, 4301, 4301, DL_ROLE_WORKER,
		    "running the data set's code");
}

/* Memory that grows for half of the run. */
static inline void sample_gpu(struct dl_report *r)
{
	struct dl_gpu_report *g = PUSH(&r->gpus);

	*g = (struct dl_gpu_report){
		.index = 2, .device = 0, .pid = 4242, .name = strdup("Simulated H100"), .simulated = true, .pci = 0x3b00,
		.link = { 4, 8, 4, 16, 15753846152ULL }, .numa_node = 1, .samples = 30, .mem_total = 80ULL << 30,
		.has_mem = true, .has_proc = true, .has_util = true, .has_pcie = true, .used_first = 1ULL << 30,
		.used_last = 50ULL << 30, .used_peak = 60ULL << 30, .used_peak_ts = T0 + 15 * SEC,
		.proc_last = 49ULL << 30, .proc_peak = 59ULL << 30, .proc_peak_ts = T0 + 15 * SEC,
		.util_mean = 0.55, .util_max = 0.97, .mem_util_mean = 0.2, .rx_mean_bps = 2000000000,
		.rx_max_bps = 9000000000ULL, .tx_mean_bps = 1000000, .tx_max_bps = 2000000, .shared = true,
	};
	for (size_t i = 0; i < DL_GPU_CURVE; i++) {
		g->curve[i] = i < 20 ? (3 * i + 1) << 30 : i == 20 ? 60ULL << 30 : 50ULL << 30;
		g->proc_curve[i] = g->curve[i] - (1ULL << 30);
	}
}

/* A run that waits for decoding, on a simulated GPU. */
static inline struct dl_report *sample_decode(void)
{
	struct dl_report *r = sample_base();
	struct dl_device_report *dev = PUSH(&r->devices);
	struct dl_charge *c = dev->causes;

	r->has_gpu = true;
	r->simulated = true;
	r->gpu_source = strdup("CUPTI 13.0 (simulated)");
	*dev = (struct dl_device_report){
		.id = 0, .pid = 4242, .name = strdup("Simulated H100"), .simulated = true, .start = T0,
		.end = T0 + 30 * SEC, .busy_ns = 11700 * MS, .idle_ns = 18300 * MS, .kernels = 20600,
		.gap_cnt = 413,
	};
	sample_charge(c, DL_CAUSE_DECODE, 15000 * MS, 412,
		      "worker 0: 7.6 s, worker 1: 7.4 s; of its samples 61 % in jpeg_idct_islow (libjpeg.so.62)");
	c[DL_CAUSE_DECODE].via_lock_ns = 3200 * MS;
	sample_charge(c, DL_CAUSE_IPC, 1600 * MS, 409, NULL);
	sample_charge(c, DL_CAUSE_CPU_CONTENTION, 800 * MS, 77, "python (pid 4302), kworker/u8:2");
	c[DL_CAUSE_CPU_CONTENTION].own_tree_ns = 600 * MS;
	sample_charge(c, DL_CAUSE_SHM, 600 * MS, 300, NULL);
	c[DL_CAUSE_SHM].estimated_ns = 600 * MS;
	sample_charge(c, DL_CAUSE_PCIE, 280 * MS, 412, "147 MiB a batch from pageable memory at 9.8 GB/s");
	sample_charge(c, DL_CAUSE_UNEXPLAINED, 20 * MS - 5, 3, NULL);
	sample_charge(c, DL_CAUSE_GPU, 5, 1, NULL);

	r->verdict = (struct dl_verdict){
		.cause = DL_CAUSE_DECODE, .has_cause = true, .share = 15.0 / 18.3,
		.text = strdup("The GPU was idle 61 % of the time, and 82 % of that it waited for the workers "
			       "to decode samples: 2 workers take 131 ms for a batch that the GPU finishes in "
			       "28 ms."),
	};
	*PUSH(&r->verdict.actions) = strdup("Raise num_workers from 2 to 8: with 131 ms of decoding a batch "
		"and 28 ms of GPU time, 5 workers keep the GPU busy, and 14 of 16 CPUs were idle.");
	*PUSH(&r->verdict.actions) = strdup("Set pin_memory=True and copy with non_blocking=True: 147 MiB a "
		"batch are copied from pageable memory.");
	sample_decode_gap(r);
	sample_procs(r);
	sample_loader(r);
	*PUSH(&r->copies) = (struct dl_copy_row){
		.dir = DL_GPU_HTOD, .mem = DL_GPU_MEM_PAGEABLE, .cnt = 412, .bytes = 412 * (147ULL << 20), .ns = 6500 * MS,
		.best_bps = 10100000000ULL, .median_bytes = 147ULL << 20, .pid = 4242, .overlap_ns = 130 * MS,
		.call_ns = 6700 * MS, .cpu_ns = 6400 * MS, .called_cnt = 412, .thread_cnt = 412 };
	*PUSH(&r->copies) = (struct dl_copy_row){ .dir = DL_GPU_DTOH, .mem = DL_GPU_MEM_PINNED, .cnt = 412, .bytes = 412 * 4,
		.ns = 1 * MS, .median_bytes = 4, .pid = 4242, .small_cnt = 412 };
	*PUSH(&r->copy_devices) = (struct dl_copy_device){
		.device = 0, .pid = 4242, .to_device = true, .cnt = 412, .bytes = 412 * (147ULL << 20), .ns = 6500 * MS,
		.cost_ns = 6700 * MS, .pageable_ns = 6700 * MS, .overlap_ns = 130 * MS, .kernel_ns = 11700 * MS,
		.best_bps = 10100000000ULL, .median_bytes = 147ULL << 20, .problem = DL_COPY_PAGEABLE, .share = 1,
		.link = { 4, 8, 4, 16, 15753846152ULL }, .cpu_ns = 6400 * MS, .near_ns = 800 * MS, .has_near = true,
		.numa_node = 1, .numa_nodes = 2, .dist_min = 21, .dist_max = 21 };
	sample_gpu(r);
	*PUSH(&r->absent) = strdup("page-fault times: fexit is refused by this kernel; class and time of "
				   "faults are estimated from samples");
	*PUSH(&r->notes) = strdup("10 % of the CPU samples hit only the entry of the fault handler and were "
				  "divided in each thread's own proportions");
	return r;
}

/* Recorded without GPU data, inside a container; the worker reads a slow disk. */
static inline struct dl_report *sample_no_gpu(void)
{
	struct dl_report *r = sample_base();
	struct dl_gap *gap;

	r->gpu_source = strdup("none: the collector was not loaded");
	r->gpu_hint = strdup("start the job with CUDA_INJECTION64_PATH=/usr/local/lib/libdlbpf_cupti.so");
	r->waits = (struct dl_waits_report){ .total_ns = 12300 * MS, .wall_ns = 29 * SEC, .cnt = 300 };
	sample_charge(r->waits.causes, DL_CAUSE_STORAGE, 11400 * MS, 297,
		      "12.1 GiB read from /dev/nvme0n1p2 (ext4) at 412 MB/s");
	sample_charge(r->waits.causes, DL_CAUSE_DECODE, 900 * MS, 300, NULL);
	r->verdict = (struct dl_verdict){
		.cause = DL_CAUSE_STORAGE, .has_cause = true, .share = 11.4 / 12.3,
		.text = strdup("The trainer spent 42 % of the time waiting for batches, and 93 % of that its "
			       "workers waited for the disk."),
	};
	*PUSH(&r->verdict.actions) = strdup("Read from a faster disk or a cache.");
	gap = PUSH(&r->worst);
	*gap = (struct dl_gap){ .start = T0 + 500 * MS, .end = T0 + 506 * MS };
	sample_step(gap, 4, 6, DL_CAUSE_DECODE, 4302, 4302, DL_ROLE_WORKER,
		    "running the data set's code")->jump = true;
	sample_step(gap, 0, 4, DL_CAUSE_STORAGE, 4302, 4302, DL_ROLE_WORKER, "reading img_000123.jpg (ext4)");
	sample_procs(r);
	vec_for_each(&r->procs, p)
		p->nspid = p->pid - 4200;
	sample_loader(r);
	return r;
}

/* The GPU is busy; nothing to blame. */
static inline struct dl_report *sample_healthy(void)
{
	struct dl_report *r = sample_base();
	struct dl_device_report *dev = PUSH(&r->devices);

	r->has_gpu = true;
	r->gpu_source = strdup("CUPTI 12.8, driver 570.86");
	*dev = (struct dl_device_report){
		.id = 0, .pid = 4242, .name = strdup("NVIDIA H100 80GB HBM3"), .start = T0,
		.end = T0 + 30 * SEC, .busy_ns = 29 * SEC, .collective_ns = 400 * MS, .idle_ns = 600 * MS,
		.kernels = 812345, .gap_cnt = 40000,
	};
	sample_charge(dev->causes, DL_CAUSE_GPU, 500 * MS, 39000, NULL);
	sample_charge(dev->causes, DL_CAUSE_HOST, 100 * MS, 1000, NULL);
	r->verdict = (struct dl_verdict){
		.healthy = true,
		.text = strdup("The GPU was busy 98 % of the time: it is the limit, not the data."),
	};
	sample_procs(r);
	sample_loader(r);
	return r;
}

/* A worker that died of a full /dev/shm; the trainer went on waiting to the end. */
static inline struct dl_report *sample_crash(void)
{
	struct dl_report *r = sample_no_gpu();
	struct dl_proc_report *w = &r->procs.v[2];

	w->exited = true;
	w->exit_status = 7;
	w->end = T0 + 17500 * MS;
	r->worst.v[0].open = true;
	r->crash = sample_push(calloc(1, sizeof(*r->crash)));
	*r->crash = (struct dl_crash_report){
		.pid = 4302, .nspid = 102, .role = DL_ROLE_WORKER, .index = 1, .sig = 7,
		.ts = T0 + 17500 * MS, .cause = strdup("shm-full"),
		.text = strdup("Worker 1 died of SIGBUS since /dev/shm was full: 64 MiB of 64 MiB were in use "
			       "when it touched a new page of torch_4302_1234. Start the container with "
			       "--shm-size=2g."),
	};
	return r;
}

/* Two trainers, two loaders, losses, something left out, and a file without its end. */
static inline struct dl_report *sample_cut(void)
{
	struct dl_report *r = sample_decode();
	struct dl_proc_report *p;

	r->complete = false;
	r->damaged_frames = 1;
	r->damaged_bytes = 345678;
	r->lost = 123456;
	r->simulated = false;
	r->procs.v[0].rank = 0;
	p = sample_proc(r, 4243, DL_ROLE_TRAINER, -1, "python");
	p->rank = 1;
	p = sample_proc(r, 4400, DL_ROLE_WORKER, 0, "python");
	p->trainer_pid = 4243;
	*PUSH(&r->loaders) = (struct dl_loader_report){ .trainer_pid = 4242, .index = 1 };
	*PUSH(&r->losses) = (struct dl_loss_row){ .ring = "sched 0", .cause = "ring full", .kind = "switch", .cnt = 123400,
						    .first = r->start + 3214 * MS, .last = r->start + 8300 * MS };
	*PUSH(&r->losses) = (struct dl_loss_row){ .ring = "gpu", .cause = "late", .kind = "any", .cnt = 56 };
	r->shed = 5432;
	*PUSH(&r->sheds) = (struct dl_shed_row){ .what = "user stacks of samples", .kind = "sample", .part = true, .cnt = 5400 };
	*PUSH(&r->sheds.v[0].times) = (struct dl_time){ r->start + 3100 * MS, r->start + 8301 * MS };
	*PUSH(&r->sheds.v[0].times) = (struct dl_time){ r->start + 20000 * MS, r->start + 20500 * MS };
	*PUSH(&r->sheds) = (struct dl_shed_row){ .what = "SIGCHLD signals", .kind = "signal", .cnt = 32 };
	*PUSH(&r->sheds.v[1].times) = (struct dl_time){ r->start + 8000 * MS, r->start + 8002 * MS };
	return r;
}

/* Nothing happened. */
static inline struct dl_report *sample_empty(void)
{
	struct dl_report *r = sample_push(calloc(1, sizeof(*r)));

	r->complete = true;
	return r;
}

#endif
