/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Whole outputs of runs that died, written for these tests in the wordings of several PyTorch versions. */
#ifndef DLBPF_TESTS_PMLOG_SAMPLES_H
#define DLBPF_TESTS_PMLOG_SAMPLES_H

#include <signal.h>

#include "diagnose/pm_log.h"

#define S_D(ID) DL_DEATH_BIT(ID)
#define S_BUS (S_D(SHM_FULL) | S_D(MAPPED_FILE_TRUNCATED) | S_D(MAPPED_FILESYSTEM_FULL) | S_D(HUGEPAGES_EXHAUSTED) | \
	       S_D(MEMORY_FAILURE) | S_D(MAPPED_FILE_ERROR) | S_D(KILLED_BY))
#define S_KILL (S_D(OOM_CGROUP) | S_D(OOM_HOST) | S_D(KILLED_BY))

/* fits: all deaths that the output leaves possible; likely: the one it names believably; pid: of the first claim that decides. */
static const struct pmlog_sample {
	const char *name;
	uint64_t fits;
	enum dl_death likely;
	int sig;
	uint32_t pid;
	const char *text;
} pmlog_samples[] = {
	{ "bus error, torch 1.7", S_BUS, DL_DEATH_UNEXPLAINED, SIGBUS, 0,
	  "  7%|7         | 70/1000 [00:31<06:51,  2.26it/s]\r"
	  "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).\n"
	  " Traceback (most recent call last):\n"
	  "  File \"/opt/conda/lib/python3.7/site-packages/torch/utils/data/dataloader.py\", line 872, in _try_get_data\n"
	  "    data = self._data_queue.get(timeout=timeout)\n"
	  "RuntimeError: DataLoader worker (pid 1208) is killed by signal: Bus error. It is possible that dataloader's workers are out "
	  "of shared memory. Please try to raise your shared memory limit.\n\n"
	  "The above exception was the direct cause of the following exception:\n\n"
	  "RuntimeError: DataLoader worker (pid(s) 1208) exited unexpectedly\n" },
	{ "bus error of a rank, torch 2.4 under torchrun", S_BUS, DL_DEATH_UNEXPLAINED, SIGBUS, 4242,
	  "[rank1]: RuntimeError: DataLoader worker (pid 4242) is killed by signal: Bus error. It is possible that dataloader's workers "
	  "are out of shared memory. Please try to raise your shared memory limit.\n"
	  "W0716 10:11:12.131000 140001 torch/distributed/elastic/multiprocessing/api.py:858] Sending process 4100 closing signal SIGTERM\n"
	  "E0716 10:11:13.131000 140001 torch/distributed/elastic/multiprocessing/api.py:833] failed (exitcode: 1) local_rank: 1 "
	  "(pid: 4101) of binary: /usr/bin/python3\n"
	  "  exitcode  : 1 (pid: 4101)\n" },
	{ "no room in /dev/shm, torch 1.6", S_D(SHM_FULL), DL_DEATH_SHM_FULL, 0, 0,
	  "Traceback (most recent call last):\n"
	  "  File \"/usr/lib/python3.6/multiprocessing/queues.py\", line 240, in _feed\n"
	  "    send_bytes(obj)\n"
	  "RuntimeError: unable to write to file </torch_1208_2047325107>\n" },
	{ "no room in /dev/shm, torch 2.1", S_D(SHM_FULL), DL_DEATH_SHM_FULL, 0, 0,
	  "RuntimeError: Caught RuntimeError in DataLoader worker process 2.\n"
	  "Original Traceback (most recent call last):\n"
	  "  File \"/usr/lib/python3.10/site-packages/torch/utils/data/_utils/collate.py\", line 160, in collate_tensor_fn\n"
	  "    storage = elem._typed_storage()._new_shared(numel, device=elem.device)\n"
	  "RuntimeError: unable to write to file </torch_1208_2047325107_3>: No space left on device (28)\n" },
	{ "no room in /dev/shm, torch 2.11", S_D(SHM_FULL), DL_DEATH_SHM_FULL, 0, 0,
	  "RuntimeError: Caught RuntimeError in DataLoader worker process 0.\n"
	  "Original Traceback (most recent call last):\n"
	  "RuntimeError: unable to allocate shared memory(shm) for file </torch_1208_204_3>: No space left on device (28)\n" },
	{ "no descriptor left, torch 1.4", S_D(FD_LIMIT), DL_DEATH_FD_LIMIT, 0, 0,
	  "  File \"/usr/lib/python3.6/multiprocessing/reduction.py\", line 164, in recvfds\n"
	  "    raise RuntimeError('received %d items of ancillary data' %\n"
	  "RuntimeError: received 0 items of ancillary data\n" },
	{ "no descriptor left, torch 2.2, in the pin thread", S_D(FD_LIMIT), DL_DEATH_FD_LIMIT, 0, 0,
	  "Exception in thread Thread-2 (_pin_memory_loop):\n"
	  "OSError: [Errno 24] Too many open files\n"
	  "Traceback (most recent call last):\n"
	  "RuntimeError: Pin memory thread exited unexpectedly\n" },
	{ "no descriptor left, as the loader says it, torch 1.13", S_D(FD_LIMIT), DL_DEATH_FD_LIMIT, 0, 0,
	  "RuntimeError: Too many open files. Communication with the workers is no longer possible. Please increase the limit using "
	  "`ulimit -n` in the shell or change the sharing strategy by calling `torch.multiprocessing.set_sharing_strategy('file_system')` "
	  "at the beginning of your code\n" },
	{ "no mapping left, torch 1.13, in the pin thread", S_D(MAP_COUNT_LIMIT), DL_DEATH_MAP_COUNT_LIMIT, 0, 0,
	  "RuntimeError: Caught RuntimeError in pin memory thread for device 0.\n"
	  "Original Traceback (most recent call last):\n"
	  "RuntimeError: unable to mmap 9437184 bytes from file </torch_1208_2047325107_64211>: Cannot allocate memory (12)\n" },
	{ "object removed, torch 2.0", S_D(SHM_UNLINKED), DL_DEATH_SHM_UNLINKED, 0, 0,
	  "  File \"/usr/lib/python3.10/site-packages/torch/multiprocessing/reductions.py\", line 307, in rebuild_storage_filename\n"
	  "RuntimeError: unable to open shared memory object </torch_1208_204_3> in read-write mode: No such file or directory (2)\n" },
	{ "a killed worker under Slurm", S_D(OOM_CGROUP), DL_DEATH_OOM_CGROUP, SIGKILL, 1208,
	  "3: RuntimeError: DataLoader worker (pid 1208) is killed by signal: Killed. \n"
	  "slurmstepd: error: Detected 1 oom_kill event in StepId=1208.batch. Some of the step tasks have been OOM Killed.\n"
	  "srun: error: gpu12: task 3: Out Of Memory\n" },
	{ "a killed trainer in a pod, with kubectl describe", S_D(OOM_CGROUP) | S_D(OOM_HOST), DL_DEATH_OOM_CGROUP, SIGKILL, 0,
	  "Killed\n"
	  "    Last State:     Terminated\n"
	  "      Reason:       OOMKilled\n"
	  "      Exit Code:    137\n" },
	{ "a killed rank under torchrun", S_KILL, DL_DEATH_UNEXPLAINED, SIGKILL, 4101,
	  "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -9) local_rank: 1 (pid: 4101) of binary: /usr/bin/python\n"
	  "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n"
	  "Root Cause (first observed failure):\n"
	  "  exitcode  : -9 (pid: 4101)\n"
	  "  error_file: <N/A>\n"
	  "  traceback : Signal 9 (SIGKILL) received by PID 4101\n" },
	{ "a tail of unpickling after a kill, in a shell", S_KILL, DL_DEATH_UNEXPLAINED, SIGKILL, 1208,
	  "_pickle.UnpicklingError: pickle data was truncated\n"
	  "./run.sh: line 3: 1208 Killed                  python3 train.py\n" },
	{ "time is up under Slurm", S_D(KILLED_BY), DL_DEATH_KILLED_BY, SIGTERM, 0,
	  "slurmstepd: error: *** STEP 31.0 ON gpu12 CANCELLED AT 2024-05-01T10:00:00 DUE TO TIME LIMIT ***\n"
	  "srun: error: gpu12: task 0: Terminated\n" },
	{ "segmentation fault of a worker, torch 2.3", S_D(SEGFAULT) | S_D(KILLED_BY), DL_DEATH_SEGFAULT, SIGSEGV, 0,
	  "ERROR: Unexpected segmentation fault encountered in worker.\n"
	  " RuntimeError: DataLoader worker (pid 1208) is killed by signal: Segmentation fault. \n" },
	{ "damaged heap under torchrun", S_D(ABORT), DL_DEATH_ABORT, SIGABRT, 0,
	  "corrupted size vs. prev_size\n"
	  "E0716 10:11:13.131000 140001 torch/distributed/elastic/multiprocessing/api.py:833] failed (exitcode: -6) local_rank: 0 "
	  "(pid: 4101) of binary: /usr/bin/python3\n" },
	{ "a collective that timed out, torch 2.5", S_D(TIMEOUT) | S_D(HANG), DL_DEATH_TIMEOUT, SIGABRT, 0,
	  "[rank0]:[E716 10:11:12.131 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective operation timeout: "
	  "WorkNCCL(SeqNum=812, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600029 milliseconds\n"
	  "[rank0]: what():  [Rank 0] To avoid data inconsistency, we are taking the entire process down.\n"
	  "  exitcode  : -6 (pid: 4100)\n" },
	{ "a loader that timed out", S_D(TIMEOUT) | S_D(BATCH_LOST) | S_D(HANG), DL_DEATH_TIMEOUT, 0, 0,
	  "RuntimeError: DataLoader timed out after 30 seconds\n" },
	{ "an exception in a worker, torch 2.6", S_D(WORKER_EXCEPTION) | S_D(TRAINER_EXIT) | S_D(FD_LIMIT) | S_D(SHM_FULL) |
	  S_D(SHM_UNLINKED) | S_D(DISK_FULL) | S_D(MAP_COUNT_LIMIT) | S_D(PROCESS_LIMIT) | S_D(MAPPED_FILE_ERROR),
	  DL_DEATH_WORKER_EXCEPTION, 0, 0,
	  "[rank0]: PIL.UnidentifiedImageError: Caught UnidentifiedImageError in DataLoader worker process 5.\n"
	  "[rank0]: Original Traceback (most recent call last):\n"
	  "[rank0]: PIL.UnidentifiedImageError: cannot identify image file '/data/train/0/17.jpg'\n" },
	{ "CUDA in a forked worker", S_D(WORKER_EXCEPTION) | S_D(TRAINER_EXIT), DL_DEATH_WORKER_EXCEPTION, 0, 0,
	  "RuntimeError: Caught RuntimeError in DataLoader worker process 0.\n"
	  "Original Traceback (most recent call last):\n"
	  "RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the 'spawn' "
	  "start method\n" },
	{ "no thread left", S_D(PROCESS_LIMIT), DL_DEATH_PROCESS_LIMIT, 0, 0,
	  "OpenBLAS blas_thread_init: pthread_create failed for thread 31 of 64: Resource temporarily unavailable\n"
	  "RuntimeError: can't start new thread\n" },
};

#endif
