/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The table of known texts: of DataLoader, its workers' signal handlers and shared memory (torch/csrc/DataLoader.cpp,
 * torch/utils/data, aten/src/ATen/MapAllocator.cpp, of 1.x to 2.x), multiprocessing, CPython, glibc, CUDA, NCCL,
 * launchers, shells, Slurm, containers. Where two could match at one place the more exact one comes first.
 */
#include "diagnose/pm_log.h"

#include <signal.h>

#include "base/cleanup.h"

#define D(ID) DL_DEATH_BIT(ID)
#define BUS (D(SHM_FULL) | D(MAPPED_FILE_TRUNCATED) | D(MAPPED_FILESYSTEM_FULL) | D(HUGEPAGES_EXHAUSTED) | \
	     D(MEMORY_FAILURE) | D(MAPPED_FILE_ERROR) | D(KILLED_BY))
#define OOM (D(OOM_CGROUP) | D(OOM_HOST))
#define KILL (OOM | D(KILLED_BY))
#define NO_SPACE (D(SHM_FULL) | D(DISK_FULL))
#define RAISED (D(WORKER_EXCEPTION) | D(TRAINER_EXIT))
#define NO_MEMORY (D(MAP_COUNT_LIMIT) | D(PROCESS_LIMIT) | OOM | RAISED)
#define THREADS (D(PROCESS_LIMIT))
/* What a Python exception in a worker can be the end of. */
#define IN_WORKER (RAISED | D(FD_LIMIT) | D(SHM_FULL) | D(SHM_UNLINKED) | D(DISK_FULL) | D(MAP_COUNT_LIMIT) | \
		   D(PROCESS_LIMIT) | D(MAPPED_FILE_ERROR))

#define TEXT(id, pattern, fits, suggests, tells, not_tells) \
	{ id, pattern, DL_LOG_PLAIN, 0, fits, DL_DEATH_##suggests, 0, NULL, tells, not_tells }
#define MISLEADS(id, pattern, fits, suggests, wrong_for, wrong, tells, not_tells) \
	{ id, pattern, DL_LOG_PLAIN, 0, fits, DL_DEATH_##suggests, wrong_for, wrong, tells, not_tells }
/* A signal's text with PyTorch's advice. */
#define ADVISES(id, pattern, tells) \
	{ id, pattern, DL_LOG_PLAIN, SIGBUS, BUS, DL_DEATH_SHM_FULL, BUS & ~D(SHM_FULL), ADVICE_WRONG, tells, \
	  WHY_BUS ". " ADVICE }
#define OF_SIGNAL(id, pattern, sig) \
	{ id, pattern, DL_LOG_SIGNAL, sig, 0, DL_DEATH_UNEXPLAINED, 0, NULL, NULL, NULL }
#define OF_EXIT(id, pattern, fits) \
	{ id, pattern, DL_LOG_EXIT, 0, fits, DL_DEATH_UNEXPLAINED, 0, NULL, NULL, NULL }

/* Of these the text is who it is about; without one it is a process. */
#define WORKER_SIGNAL(id, pattern) \
	{ id, pattern, DL_LOG_SIGNAL, 0, 0, DL_DEATH_UNEXPLAINED, 0, NULL, "worker", NULL }
#define WORKER_EXIT(id, pattern, fits) \
	{ id, pattern, DL_LOG_EXIT, 0, fits, DL_DEATH_WORKER_EXIT, 0, NULL, "worker", NULL }

#define ADVICE "PyTorch adds its advice about shared memory to every death by SIGBUS, whatever touched the memory"
#define ADVICE_WRONG "PyTorch's message says that shared memory ran out. It says so of every bus error, and this one " \
	"has another cause."
#define WHY_BUS "which memory: a batch in /dev/shm, a mapped file that became shorter, a full file system, huge pages, " \
	"bad memory"
#define FD_TEXT "a process had no descriptor left to open or to receive one"
#define SPACE_DEV "which device: /dev/shm is one too, and its text is the same as a full disk's"
#define PEER "why the other side went away: this comes after a death, and the first message or the kernel log has it"
#define PEER_WRONG "The message is only the tail of it: the process on the other side had already died."
#define HEAP "the C library found its heap damaged and gave the program up"
#define HEAP_NOT "who damaged it: a library that wrote where it must not, at some time before"

const struct dl_log_rule dl_log_rules[] = {
	/* --- DataLoader --- */
	ADVISES("worker-bus-handler", "Unexpected bus error encountered in worker",
		"a worker touched memory that could not be provided (SIGBUS)"),
	{ "worker-segv-handler", "Unexpected segmentation fault encountered in worker", DL_LOG_PLAIN, SIGSEGV,
	  D(SEGFAULT) | D(KILLED_BY), DL_DEATH_SEGFAULT, 0, NULL, "a worker touched memory that is not there (SIGSEGV)",
	  "which library; the worker's own handler keeps the kernel from logging it. It does not mean that memory or shared "
	  "memory ran out" },
	{ "worker-fpe-handler", "Unexpected floating-point exception encountered in worker", DL_LOG_PLAIN, SIGFPE,
	  D(ARITHMETIC) | D(KILLED_BY), DL_DEATH_ARITHMETIC, 0, NULL, "a worker divided by zero, or the like (SIGFPE)",
	  "which library" },
	ADVISES("worker-bus", "DataLoader worker (pid %p) is killed by signal: Bus error*shared memory limit",
		"worker %p touched memory that could not be provided (SIGBUS)"),
	ADVISES("shm-advice", "dataloader's workers are out of shared memory", "a worker died of SIGBUS"),
	WORKER_SIGNAL("worker-signal", "DataLoader worker (pid %p) is killed by signal: %s"),
	WORKER_SIGNAL("worker-signal-old", "DataLoader worker (pid %p) exited unexpectedly with signal %s"),
	WORKER_EXIT("worker-exit-code", "DataLoader worker (pid %p) exited unexpectedly with exit code %n",
		    D(WORKER_EXIT) | D(WORKER_EXCEPTION)),
	TEXT("worker-gone", "DataLoader worker (pid(s) %p*) exited unexpectedly", 0, UNEXPLAINED,
	     "worker %p was gone when the trainer looked",
	     "how it ended: killed, out of memory, or by itself. The message above it, or the kernel log, has that"),
	TEXT("fds-dataloader", "Too many open files. Communication with the workers is no longer possible",
	     D(FD_LIMIT), FD_LIMIT, "the trainer could not open ten more files: it was at its limit of open files",
	     "the limit. Every tensor that is kept costs a descriptor under the sharing strategy file_descriptor"),
	TEXT("loader-timeout", "DataLoader timed out after %n seconds", D(TIMEOUT) | D(BATCH_LOST) | D(HANG), TIMEOUT,
	     "no batch came for %n seconds, the timeout= of the DataLoader",
	     "why: a worker that is slow, stuck on a lock, or a batch that was lost on its way"),
	MISLEADS("pin-thread-gone", "Pin memory thread exited unexpectedly",
		 D(FD_LIMIT) | D(MAP_COUNT_LIMIT) | D(SHM_FULL) | D(SHM_UNLINKED) | D(TRAINER_EXIT) | D(PROCESS_LIMIT),
		 UNEXPLAINED, D(FD_LIMIT) | D(MAP_COUNT_LIMIT) | D(SHM_FULL) | D(SHM_UNLINKED),
		 "The message names the thread that ended. What ended it was a call that failed before.",
		 "the thread that copies batches into pinned memory had ended",
		 "what ended it: often no descriptor, or no mapping, was left. Its own traceback, above, has that"),
	{ "worker-exception", "Caught %w in DataLoader worker process %n", DL_LOG_RAISED, 0, IN_WORKER,
	  DL_DEATH_WORKER_EXCEPTION, 0, NULL, "worker number %n ended with a Python exception", NULL },
	{ "pin-exception", "Caught %w in pin memory thread", DL_LOG_RAISED, 0, IN_WORKER,
	  DL_DEATH_TRAINER_EXIT, 0, NULL, "the trainer's thread that pins batches ended with a Python exception", NULL },

	{ "traceback", "^Traceback (most recent call last)", DL_LOG_TRACEBACK, 0, IN_WORKER, DL_DEATH_TRAINER_EXIT, 0, NULL,
	  "the program ended with a Python exception, unless it was caught", NULL },

	TEXT("feeder-failed", "multiprocessing/queues.py\", line %n, in _feed", IN_WORKER | D(BATCH_LOST), BATCH_LOST,
	     "the thread that sends a process's batches could not send one: it is lost, and whoever waits for it waits for ever",
	     "why: the last line of that traceback has it"),

	/* --- shared memory of tensors --- */
	TEXT("shm-allocate", "unable to allocate shared memory(shm) for file </torch_%p_*No space left on device", D(SHM_FULL),
	     SHM_FULL, "/dev/shm had no room for a tensor (torch 2.10 and later reserve the room at once)",
	     "how large /dev/shm is, and who filled it"),
	TEXT("shm-allocate-other", "unable to allocate shared memory(shm) for file ", NO_SPACE | RAISED, SHM_FULL,
	     "a tensor's shared memory could not be reserved", NULL),
	TEXT("shm-write", "unable to write to file </torch_%p_*No space left on device", D(SHM_FULL), SHM_FULL,
	     "/dev/shm had no room for a tensor", "how large /dev/shm is, and who filled it. 'device' is /dev/shm, no disk"),
	TEXT("shm-write-old", "unable to write to file </torch_%p_", D(SHM_FULL), SHM_FULL,
	     "a tensor could not be written to /dev/shm; torch before 1.10 leaves out why, and it is nearly always that "
	     "there was no room", "the error itself"),
	TEXT("shm-resize", "unable to resize file </torch_%p_*No space left on device", D(SHM_FULL), SHM_FULL,
	     "/dev/shm had no room, or no inode, for a tensor", NULL),
	TEXT("shm-resize-other", "unable to resize file <", D(SHM_FULL) | D(SHM_UNLINKED) | RAISED, UNEXPLAINED,
	     "a shared memory object could not be given its size", "why: the text has no error code, or an uncommon one"),
	MISLEADS("shm-open-fds", "unable to open shared memory object <*Too many open files", D(FD_LIMIT), FD_LIMIT, 0,
		 NULL, FD_TEXT, "the limit"),
	TEXT("shm-open-gone", "unable to open shared memory object <*No such file or directory", D(SHM_UNLINKED),
	     SHM_UNLINKED, "a tensor's shared memory object was gone when the other side opened it",
	     "who removed it: systemd at a logout (RemoveIPC), a clean-up script, or its owner that died"),
	TEXT("shm-open-space", "unable to open shared memory object <*No space left on device", D(SHM_FULL), SHM_FULL,
	     "/dev/shm had no inode left for a tensor", NULL),
	TEXT("shm-open", "unable to open shared memory object <", D(FD_LIMIT) | D(SHM_UNLINKED) | D(SHM_FULL),
	     UNEXPLAINED, "a tensor's shared memory object could not be opened",
	     "why: torch before 1.10 leaves out the error. Most often the limit of open files; it may also have been removed"),
	TEXT("shm-file-open-fds", "unable to open file <*Too many open files", D(FD_LIMIT), FD_LIMIT, FD_TEXT, NULL),
	{ "mmap-shm", "unable to mmap %n bytes from file </torch_%n_%n_%n>: Cannot allocate memory", DL_LOG_MAPPING, 0,
	  NO_MEMORY, DL_DEATH_UNEXPLAINED, D(MAP_COUNT_LIMIT),
	  "The message speaks of memory, but memory was not short: the process had as many mappings as it may.",
	  "a mapping of %n bytes was refused", "which limit: of mappings (vm.max_map_count), of address space, or memory" },
	MISLEADS("mmap-file", "unable to mmap %n bytes from file <*Cannot allocate memory", NO_MEMORY, UNEXPLAINED,
		 D(MAP_COUNT_LIMIT),
		 "The message speaks of memory, but memory was not short: the process had as many mappings as it may.",
		 "a mapping of %n bytes was refused",
		 "which limit: of mappings (vm.max_map_count), of address space (ulimit -v), or memory itself"),
	TEXT("mmap-old", "unable to mmap memory: you tried to mmap %n", NO_MEMORY, UNEXPLAINED,
	     "a mapping of %n GB was refused",
	     "which limit: of mappings (vm.max_map_count), of address space (ulimit -v), or memory itself"),
	TEXT("shm-unlink", "could not unlink the shared memory file", D(SHM_UNLINKED), SHM_UNLINKED,
	     "a tensor's shared memory object had been removed by somebody else", "by whom"),
	TEXT("shm-manager", "torch_shm_manager at *", RAISED, UNEXPLAINED,
	     "the helper process of the sharing strategy file_system failed", "why"),
	MISLEADS("ancillary", "received %n items of ancillary data", D(FD_LIMIT), FD_LIMIT, 0, NULL,
		 "the trainer received no descriptor with a tensor: the kernel drops it when the receiver is at its limit "
		 "of open files", "the limit: ulimit -n of the trainer"),

	/* --- errors of system calls, as Python prints them --- */
	TEXT("emfile-system", "Too many open files in system", D(FD_LIMIT), FD_LIMIT,
	     "the whole machine was at its limit of open files (fs.file-max)", NULL),
	TEXT("emfile", "[Errno 24] Too many open files", D(FD_LIMIT), FD_LIMIT, FD_TEXT,
	     "the limit, and what keeps them open"),
	TEXT("emfile-plain", "Too many open files", D(FD_LIMIT), FD_LIMIT, FD_TEXT, "the limit, and what keeps them open"),
	TEXT("enospc-shm", "[Errno 28] No space left on device: '/dev/shm", D(SHM_FULL), SHM_FULL,
	     "/dev/shm had no room", NULL),
	TEXT("enospc-file", "[Errno 28] No space left on device: '%w", D(DISK_FULL), DISK_FULL,
	     "the file system of %w had no room", NULL),
	TEXT("enospc", "No space left on device", NO_SPACE, UNEXPLAINED, "a file system had no room", SPACE_DEV),
	TEXT("edquot", "Disk quota exceeded", D(DISK_FULL), DISK_FULL, "the user's quota on a file system was used up", NULL),
	MISLEADS("enomem", "[Errno 12] Cannot allocate memory", NO_MEMORY, UNEXPLAINED, D(MAP_COUNT_LIMIT),
		 "The message speaks of memory, but memory was not short: the process had as many mappings as it may.",
		 "a system call was refused memory",
		 "which: a fork, for which the whole trainer counts, or a mapping beyond vm.max_map_count or ulimit -v. It is "
		 "not the out-of-memory killer, which prints nothing here"),
	TEXT("eagain", "[Errno 11] Resource temporarily unavailable", THREADS, PROCESS_LIMIT,
	     "no new process or thread was allowed", "which limit: ulimit -u of the user, or pids.max of the container"),
	TEXT("no-thread", "can't start new thread", THREADS, PROCESS_LIMIT, "no new thread was allowed",
	     "which limit: ulimit -u, pids.max of the container, or memory for its stack"),
	TEXT("gomp-thread", "Thread creation failed: Resource temporarily unavailable", THREADS, PROCESS_LIMIT,
	     "OpenMP could not start a thread", "which limit: ulimit -u, or pids.max of the container"),
	TEXT("blas-thread", "pthread_create failed for thread %n of %n", THREADS, PROCESS_LIMIT,
	     "a mathematics library could not start its threads", "which limit: ulimit -u, or pids.max of the container"),
	TEXT("shell-fork", "fork: *Resource temporarily unavailable", THREADS, PROCESS_LIMIT,
	     "a shell could not start a process", "which limit: ulimit -u, or pids.max of the container"),
	TEXT("shell-fork-mem", "fork: *Cannot allocate memory", D(PROCESS_LIMIT) | OOM, PROCESS_LIMIT,
	     "a process could not be started for want of memory, or of pids", NULL),
	TEXT("stale", "Stale file handle", D(MAPPED_FILE_ERROR) | RAISED, UNEXPLAINED,
	     "a file was replaced or removed on its server while it was open", NULL),
	TEXT("eio", "[Errno 5] Input/output error", D(MAPPED_FILE_ERROR) | RAISED, UNEXPLAINED,
	     "a disk or a network file system failed to read or write", "which: the kernel log has it"),

	/* --- memory that a program asked for --- */
	TEXT("cuda-oom", "CUDA out of memory. Tried to allocate", RAISED, TRAINER_EXIT,
	     "the GPU's own memory ran out", "anything about the machine's memory or /dev/shm: a GPU has its own"),
	TEXT("cuda-oom-plain", "CUDA error: out of memory", RAISED, TRAINER_EXIT,
	     "the GPU's own memory ran out, or another process holds it", NULL),
	TEXT("cpu-oom", "DefaultCPUAllocator: *you tried to allocate %n", NO_MEMORY, UNEXPLAINED,
	     "an allocation of %n bytes of the machine's memory was refused",
	     "why: so large a tensor, ulimit -v, strict overcommit, or vm.max_map_count. The out-of-memory killer would "
	     "have killed instead"),
	TEXT("cpu-oom-old", "Torch: not enough memory: you tried to allocate %n", NO_MEMORY, UNEXPLAINED,
	     "an allocation of %n GB of the machine's memory was refused", NULL),
	TEXT("numpy-oom", "Unable to allocate *for an array with shape", RAISED | D(MAP_COUNT_LIMIT), UNEXPLAINED,
	     "NumPy was refused memory for one array", "whether the machine was short of memory, or the array absurdly large"),
	TEXT("python-oom", "^MemoryError", RAISED | D(MAP_COUNT_LIMIT), UNEXPLAINED, "Python was refused memory",
	     "why: ulimit -v, a container without overcommit, or one object too large"),
	TEXT("bad-alloc", "std::bad_alloc", D(ABORT) | RAISED | D(MAP_COUNT_LIMIT), UNEXPLAINED,
	     "a C++ library was refused memory", NULL),

	/* --- a peer that is gone: the tail of a death --- */
	MISLEADS("conn-reset", "ConnectionResetError: [Errno 104]", 0, UNEXPLAINED, ~D(TRAINER_EXIT), PEER_WRONG,
		 "the process at the other end of a connection went away", PEER),
	MISLEADS("conn-refused", "ConnectionRefusedError: [Errno 111]", 0, UNEXPLAINED, ~D(TRAINER_EXIT), PEER_WRONG,
		 "the worker that was to hand a tensor over no longer listened", PEER),
	MISLEADS("broken-pipe", "BrokenPipeError: [Errno 32]", 0, UNEXPLAINED, ~D(TRAINER_EXIT), PEER_WRONG,
		 "the process that was to read went away", PEER),
	MISLEADS("eof", "^EOFError$", 0, UNEXPLAINED, ~D(TRAINER_EXIT), PEER_WRONG,
		 "the process at the other end of a pipe went away", PEER),
	MISLEADS("pickle-tail", "pickle data was truncated", 0, UNEXPLAINED, ~D(TRAINER_EXIT),
		 "The message speaks of pickled data. It is the tail of it: the sender died in the middle of a message.",
		 "a message between processes ended in its middle: its sender died, or a file is cut off", PEER),
	TEXT("tracker", "leaked semaphore objects to clean up", 0, UNEXPLAINED,
	     "a process ended without tidying up", "why it ended: this is printed after every hard death"),
	TEXT("tracker-shm", "leaked shared_memory objects to clean up", 0, UNEXPLAINED,
	     "a process ended without tidying up", "why it ended: this is printed after every hard death"),

	/* --- CUDA --- */
	TEXT("cuda-fork", "Cannot re-initialize CUDA in forked subprocess", D(WORKER_EXCEPTION) | D(TRAINER_EXIT),
	     WORKER_EXCEPTION, "a forked worker used CUDA, which does not survive a fork", NULL),
	TEXT("cuda-assert", "CUDA error: device-side assert triggered", RAISED | D(ABORT), TRAINER_EXIT,
	     "a check inside a GPU kernel failed, most often an index out of range",
	     "which: the traceback is of a later call unless CUDA_LAUNCH_BLOCKING=1"),
	TEXT("cuda-illegal", "CUDA error: an illegal memory access", RAISED | D(ABORT), TRAINER_EXIT,
	     "a GPU kernel touched GPU memory that is not its own", "which: the traceback is of a later call"),
	TEXT("cuda-launch", "CUDA error: unspecified launch failure", RAISED | D(ABORT), TRAINER_EXIT,
	     "a GPU kernel crashed", NULL),
	TEXT("cuda-init", "CUDA error: initialization error", RAISED, UNEXPLAINED,
	     "CUDA could not start in this process, often a forked worker", NULL),
	TEXT("cuda-other", "CUDA error: ", RAISED | D(ABORT), TRAINER_EXIT, "a CUDA call failed", NULL),

	/* --- collectives --- */
	TEXT("nccl-timeout", "Watchdog caught collective operation timeout", D(TIMEOUT) | D(HANG), TIMEOUT,
	     "a collective waited for a rank until its timeout",
	     "which rank did not come, and why: look at the rank that does not complain, or that died before"),
	TEXT("nccl-down", "we are taking the entire process down", D(TIMEOUT) | D(HANG) | D(ABORT), TIMEOUT,
	     "NCCL's watchdog ended the process after a collective failed or timed out", "which rank failed first"),
	TEXT("nccl-stuck", "ProcessGroupNCCL's watchdog got stuck", D(TIMEOUT) | D(HANG), HANG,
	     "the thread that watches collectives was itself stuck", "in what: often the GIL, or a CUDA call"),
	TEXT("gloo-timeout", "Timed out waiting %nms for *operation to complete", D(TIMEOUT) | D(HANG), TIMEOUT,
	     "a collective on the CPU waited %n ms for another rank", "why that rank did not come"),
	TEXT("gloo-closed", "Connection closed by peer", 0, UNEXPLAINED, "another rank went away", PEER),
	TEXT("nccl-remote", "ncclRemoteError", 0, UNEXPLAINED, "another rank, or the network to it, went away", PEER),
	TEXT("store-timeout", "wait timeout after %nms", D(TIMEOUT) | D(HANG), TIMEOUT,
	     "ranks waited for each other for %n ms", "why one did not come"),

	/* --- launchers: mostly what comes after --- */
	TEXT("elastic-close", "Sending process %p closing signal SIG", 0, UNEXPLAINED,
	     "the launcher ended process %p because another rank had died", "why that one died"),
	TEXT("elastic-graceful", "Unable to shutdown process %p via ", 0, UNEXPLAINED,
	     "process %p did not end when asked to, and was killed by the launcher", "why the first one died"),
	OF_EXIT("elastic-failed", "failed (exitcode: %n) local_rank: * (pid: %p)", 0),
	OF_EXIT("elastic-code", "exitcode~: %n (pid: %p)", 0),
	OF_SIGNAL("elastic-signal", "Signal %s *received by PID %p", 0),
	OF_SIGNAL("elastic-got", "Process %p got signal: %s", 0),
	OF_SIGNAL("elastic-death", "Received %s death signal, shutting down workers", 0),
	OF_SIGNAL("spawn-signal", "process * terminated with signal %s", 0),
	OF_EXIT("spawn-exit", "process * terminated with exit code %n", 0),
	OF_SIGNAL("popen-signal", "died with <Signals.%s", 0),
	OF_EXIT("popen-exit", "returned non-zero exit status %n", 0),
	OF_EXIT("deepspeed-exit", "exits with return code = %n", 0),
	TEXT("deepspeed-kill", "Killing subprocess %p", 0, UNEXPLAINED,
	     "the launcher killed process %p because another one had died", "why that one died"),
	OF_SIGNAL("mpirun", "noticed that process rank *with PID %p *exited on signal %s", 0),
	OF_SIGNAL("mpi-signal", "Signal: %s", 0),
	TEXT("pool-broken", "A process in the process pool was terminated abruptly", KILL | D(SEGFAULT) | D(ABORT) |
	     D(WORKER_EXIT) | BUS, UNEXPLAINED, "a process of a pool died", "how: the kernel log tells"),
	TEXT("loky", "A worker process managed by the executor was unexpectedly terminated", KILL | D(SEGFAULT) |
	     D(ABORT) | D(WORKER_EXIT) | BUS, UNEXPLAINED, "a process of a pool died", "how: the kernel log tells"),
	TEXT("background-gone", "background workers are no longer alive", KILL | D(SEGFAULT) | D(ABORT) | D(WORKER_EXIT) |
	     D(WORKER_EXCEPTION) | BUS, UNEXPLAINED, "a process that loads data died",
	     "how: most often memory, but only the kernel log tells"),
	TEXT("ray-oom", "Workers (tasks / actors) killed due to memory pressure", D(KILLED_BY), KILLED_BY,
	     "Ray killed workers because its node was short of memory", NULL),
	TEXT("ray-oom-task", "Task was killed due to the node running low on memory", D(KILLED_BY), KILLED_BY,
	     "Ray killed the task because its node was short of memory", NULL),

	/* --- Slurm --- */
	TEXT("slurm-oom", "slurmstepd: error: Detected %n oom*kill event", D(OOM_CGROUP), OOM_CGROUP,
	     "the job's control group was at its memory limit, and the kernel killed %n of its processes",
	     "which ones, and what the memory was used for. The limit is --mem or --mem-per-cpu of the job"),
	TEXT("slurm-oom-old", "exceeded memory limit (%n > %n), being killed", D(KILLED_BY) | D(OOM_CGROUP), KILLED_BY,
	     "Slurm itself killed the step over its memory limit of %n", "what the memory was used for"),
	TEXT("slurm-oom-job", "Exceeded job memory limit", D(KILLED_BY) | D(OOM_CGROUP), UNEXPLAINED,
	     "the job was over its memory limit", "who killed it: Slurm, or the kernel"),
	TEXT("slurm-time", "CANCELLED AT *DUE TO TIME LIMIT", D(KILLED_BY), KILLED_BY,
	     "Slurm ended the job: its time was up", NULL),
	TEXT("slurm-preempt", "CANCELLED AT *DUE TO PREEMPTION", D(KILLED_BY), KILLED_BY,
	     "Slurm ended the job for one of higher priority", NULL),
	TEXT("slurm-cancel", "CANCELLED AT ", D(KILLED_BY), KILLED_BY, "Slurm ended the job", "at whose request"),
	TEXT("slurm-oom-task", "srun: error: *: task *: Out Of Memory", D(OOM_CGROUP), OOM_CGROUP,
	     "a task of the job was over its memory limit", NULL),
	OF_EXIT("slurm-exit", "Exited with exit code %n", 0),
	OF_SIGNAL("slurm-signal", "srun: error: *: task *: %s", 0),

	/* --- containers and services --- */
	TEXT("k8s-shm", "Usage of EmptyDir volume *exceeds the limit", D(KILLED_BY), KILLED_BY,
	     "Kubernetes evicted the pod: a volume in memory, perhaps its /dev/shm, was larger than its sizeLimit", NULL),
	TEXT("k8s-evicted", "The node was low on resource", D(KILLED_BY), KILLED_BY,
	     "Kubernetes evicted the pod: its node was short of memory or disk", NULL),
	TEXT("k8s-disk", "ephemeral local storage usage exceeds", D(KILLED_BY) | D(DISK_FULL), KILLED_BY,
	     "Kubernetes evicted the pod: it wrote more to local disk than it may", NULL),
	TEXT("docker-no-oom", "OOMKilled\": false", 0, UNEXPLAINED, "Docker saw no kill for want of memory in the container",
	     "whether the machine was out of memory, or who else sent the signal"),
	TEXT("k8s-oom", "OOMKilled", D(OOM_CGROUP) | D(OOM_HOST), OOM_CGROUP,
	     "the kernel killed a process of the container for want of memory",
	     "which process, and what the memory was used for; /dev/shm counts too"),
	OF_EXIT("container-exit", "Exit Code:~%n", 0),
	OF_EXIT("container-exit-with", "exited with code %n", 0),
	OF_EXIT("container-exit-json", "\"exitCode\": %n", 0),
	OF_EXIT("container-status", "exit status %n", 0),
	TEXT("systemd-oom", "has been killed by the OOM killer", OOM, OOM_CGROUP,
	     "the kernel killed a process of the service for want of memory", NULL),
	TEXT("systemd-oom-result", "Failed with result 'oom-kill'", OOM, OOM_CGROUP,
	     "the kernel killed a process of the service for want of memory", NULL),

	/* --- kernel log that was pasted too --- */
	TEXT("kernel-oom-memcg", "Memory cgroup out of memory: Kill* process %p", D(OOM_CGROUP), OOM_CGROUP,
	     "a control group was at its memory limit and the kernel killed process %p in it", NULL),
	TEXT("kernel-oom", "Out of memory: Kill* process %p", D(OOM_HOST), OOM_HOST,
	     "the machine was out of memory and the kernel killed process %p", NULL),
	TEXT("kernel-hugetlb", "killed due to inadequate hugepage pool", D(HUGEPAGES_EXHAUSTED), HUGEPAGES_EXHAUSTED,
	     "no huge page was left for a mapping of them", NULL),

	/* --- programs that give themselves up --- */
	TEXT("heap-free", "free(): ", D(ABORT), ABORT, HEAP, HEAP_NOT),
	TEXT("heap-double", "double free or corruption", D(ABORT), ABORT, HEAP, HEAP_NOT),
	TEXT("heap-malloc", "malloc(): ", D(ABORT), ABORT, HEAP, HEAP_NOT),
	TEXT("heap-realloc", "realloc(): ", D(ABORT), ABORT, HEAP, HEAP_NOT),
	TEXT("heap-size", "corrupted size vs. prev_size", D(ABORT), ABORT, HEAP, HEAP_NOT),
	TEXT("heap-list", "corrupted double-linked list", D(ABORT), ABORT, HEAP, HEAP_NOT),
	TEXT("heap-chunk", "munmap_chunk(): ", D(ABORT), ABORT, HEAP, HEAP_NOT),
	TEXT("heap-consolidate", "malloc_consolidate(): ", D(ABORT), ABORT, HEAP, HEAP_NOT),
	TEXT("smash", "stack smashing detected", D(ABORT), ABORT, "a program found its stack overwritten", NULL),
	TEXT("overflow", "buffer overflow detected", D(ABORT), ABORT, "the C library found a buffer overwritten", NULL),
	TEXT("thread-system-error", "what():~Resource temporarily unavailable", THREADS | D(ABORT), PROCESS_LIMIT,
	     "a C++ library could not start a thread", "which limit: ulimit -u, or pids.max of the container"),
	TEXT("terminate", "terminate called after throwing an instance of '%w", D(ABORT), ABORT,
	     "a C++ exception that nobody caught ended the process: %w", "what it said is in the next line"),
	TEXT("terminate-none", "terminate called without an active exception", D(ABORT), ABORT,
	     "C++ gave the process up: most often a thread that was still running when its owner ended", NULL),
	OF_SIGNAL("python-fatal-segv", "Fatal Python error: Segmentation fault", SIGSEGV),
	OF_SIGNAL("python-fatal-bus", "Fatal Python error: Bus error", SIGBUS),
	OF_SIGNAL("python-fatal-fpe", "Fatal Python error: Floating", SIGFPE),
	OF_SIGNAL("python-fatal-ill", "Fatal Python error: Illegal instruction", SIGILL),
	TEXT("python-fatal", "Fatal Python error: ", D(ABORT), ABORT, "the Python interpreter gave itself up", NULL),
	TEXT("assert", "Assertion `*' failed", D(ABORT), ABORT, "a check in a library failed", NULL),
	TEXT("interrupt", "^KeyboardInterrupt", D(KILLED_BY), KILLED_BY,
	     "the run was interrupted: Ctrl-C, or a SIGINT from elsewhere", "by whom"),

	/* --- shells --- */
	OF_SIGNAL("bash-line", ": line %n:~%p %s", 0),
	OF_SIGNAL("zsh", "zsh: %s", 0),
	OF_SIGNAL("fish", "terminated by signal %s", 0),
	OF_SIGNAL("core-bus", "Bus error (core dumped)", SIGBUS),
	OF_SIGNAL("core-segv", "Segmentation fault (core dumped)", SIGSEGV),
	OF_SIGNAL("core-abort", "Aborted (core dumped)", SIGABRT),
	OF_SIGNAL("core-fpe", "Floating point exception (core dumped)", SIGFPE),
	OF_SIGNAL("core-ill", "Illegal instruction (core dumped)", SIGILL),
	OF_SIGNAL("shell-killed", "^Killed$", SIGKILL),
	OF_SIGNAL("shell-killed-cmd", "^Killed ~python*", SIGKILL),
	OF_SIGNAL("shell-term", "^Terminated$", SIGTERM),
	OF_SIGNAL("shell-bus", "^Bus error$", SIGBUS),
	OF_SIGNAL("shell-segv", "^Segmentation fault$", SIGSEGV),
	OF_SIGNAL("shell-abort", "^Aborted$", SIGABRT),
};

const size_t dl_log_rules_cnt = ARRAY_SIZE(dl_log_rules);

static const struct dl_log_signal signals[] = {
	{ SIGKILL, "SIGKILL", "Killed", KILL, DL_DEATH_UNEXPLAINED, "was killed outright (SIGKILL)",
	  "by whom: the kernel, out of memory (the machine, or the container's or job's limit); or another process, such as "
	  "Slurm, Kubernetes, systemd-oomd, a launcher, or somebody's kill -9. The text is the same for all" },
	{ SIGBUS, "SIGBUS", "Bus error", BUS, DL_DEATH_UNEXPLAINED,
	  "touched memory that could not be provided (SIGBUS)", WHY_BUS },
	{ SIGSEGV, "SIGSEGV", "Segmentation fault", D(SEGFAULT) | D(KILLED_BY), DL_DEATH_SEGFAULT,
	  "touched memory that is not there (SIGSEGV)",
	  "which library: a core file or a recording tells. It does not mean that memory or shared memory ran out" },
	{ SIGABRT, "SIGABRT", "Aborted", D(ABORT) | D(TIMEOUT) | D(HANG) | D(KILLED_BY), DL_DEATH_ABORT,
	  "gave itself up (SIGABRT)",
	  "why: the line before has it: a failed check, a damaged heap, a C++ exception, or the watchdog of NCCL" },
	{ SIGFPE, "SIGFPE", "Floating point exception", D(ARITHMETIC) | D(KILLED_BY), DL_DEATH_ARITHMETIC,
	  "divided by zero, or the like (SIGFPE)", "which library" },
	{ SIGILL, "SIGILL", "Illegal instruction", D(ILLEGAL_INSTRUCTION) | D(KILLED_BY),
	  DL_DEATH_ILLEGAL_INSTRUCTION, "used an instruction that this CPU does not have (SIGILL)", "which library" },
	{ SIGTERM, "SIGTERM", "Terminated", D(KILLED_BY), DL_DEATH_KILLED_BY,
	  "was asked to end (SIGTERM)",
	  "by whom: a scheduler, a launcher after another rank's death, systemd, or a user" },
	{ SIGINT, "SIGINT", "Interrupt", D(KILLED_BY), DL_DEATH_KILLED_BY,
	  "was interrupted (SIGINT): Ctrl-C, or a kill from elsewhere", "by whom" },
	{ SIGHUP, "SIGHUP", "Hangup", D(KILLED_BY), DL_DEATH_KILLED_BY,
	  "lost its terminal (SIGHUP): an ssh session that ended",
	  "whether it was the terminal: nohup, tmux or setsid would have kept it" },
	{ SIGUSR1, "SIGUSR1", "User defined signal 1", D(KILLED_BY), DL_DEATH_KILLED_BY,
	  "took SIGUSR1: schedulers send it as a warning", "by whom" },
	{ SIGXCPU, "SIGXCPU", "CPU time limit exceeded", D(KILLED_BY), DL_DEATH_KILLED_BY,
	  "used up its CPU time (SIGXCPU, ulimit -t)", NULL },
};

const struct dl_log_signal *dl_log_signal(int sig)
{
	for (size_t i = 0; i < ARRAY_SIZE(signals); i++)
		if (signals[i].sig == sig)
			return &signals[i];
	return NULL;
}
