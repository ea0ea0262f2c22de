/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What to do about a death, and what not to do, from the numbers that are known: a table with one function for
 * each kind. It is the same for a trace and for what a machine has left over.
 */
#include "diagnose/postmortem.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"

#define MIB (1ULL << 20)
#define GIB (1ULL << 30)

struct remedy {
	struct dl_postmortem *pm;
	int err;
};

typedef void (*remedy_fn)(struct remedy *r);

/* command NULL: none. */
__attribute__((format(printf, 3, 4)))
static void say(struct remedy *r, const char *command, const char *fmt, ...)
{
	_cleanup_free_ char *text = NULL;
	va_list ap;
	int len;

	if (r->err)
		return;
	va_start(ap, fmt);
	len = vasprintf(&text, fmt, ap);
	va_end(ap);
	if (len < 0) {
		text = NULL;
		r->err = -ENOMEM;
		return;
	}
	r->err = dl_pm_action(r->pm, command, "%s", text);
}

static uint64_t number(const struct remedy *r, const char *id)
{
	uint64_t value = 0;

	dl_pm_get(r->pm, id, &value);
	return value;
}

/* A size with a sixth to spare, in steps that a person would type. */
static uint64_t roomy(uint64_t bytes)
{
	const uint64_t want = bytes + bytes / 6, step = want < 4 * GIB ? 64 * MIB : GIB / 2;

	return (want + step - 1) / step * step;
}

static uint64_t in_mib(uint64_t bytes)
{
	return (bytes + MIB - 1) / MIB;
}

/* The process as a shell sees it: of the machine, else of its container. */
static uint32_t pid_of(const struct remedy *r)
{
	return r->pm->victim.pid ? r->pm->victim.pid : r->pm->victim.nspid;
}

static const char *text_of(const struct dl_str *s)
{
	return s->s && !s->err ? s->s : NULL;
}

/* --- shared memory --- */

static void shm_sizes(struct remedy *r, uint64_t mib)
{
	_cleanup_(dl_str_fini) struct dl_str docker = {}, compose = {}, kube = {}, mount = {};

	dl_str_addf(&docker, "docker run --shm-size=%" PRIu64 "m ...", mib);
	dl_str_addf(&compose, "shm_size: \"%" PRIu64 "m\"", mib);
	dl_str_addf(&kube, "volumes: [{name: dshm, emptyDir: {medium: Memory, sizeLimit: %" PRIu64 "Mi}}]\n"
		    "volumeMounts: [{name: dshm, mountPath: /dev/shm}]", mib);
	dl_str_addf(&mount, "mount -o remount,size=%" PRIu64 "m /dev/shm", mib);
	if (!text_of(&docker) || !text_of(&compose) || !text_of(&kube) || !text_of(&mount)) {
		r->err = -ENOMEM;
		return;
	}
	say(r, docker.s, "In Docker or Podman (a container that was made already keeps its old size: make a new one):");
	say(r, compose.s, "In Docker Compose, in the service:");
	say(r, kube.s, "In Kubernetes, in the pod and in its container (the size counts towards the pod's memory limit):");
	say(r, mount.s, "Without a container, as root, at once, also while the training runs:");
}

/* How many workers would do with what there is. */
static void fewer_workers(struct remedy *r, uint64_t total)
{
	const uint64_t batch = number(r, "batch.bytes"), workers = number(r, "workers");
	uint64_t fit;

	if (!batch || !workers || !total)
		return;
	fit = total > batch ? (total - batch) / (2 * batch) : 0;
	if (fit && fit < workers)
		say(r, NULL, "Or need less: with num_workers=%" PRIu64 " (there were %" PRIu64 ") and prefetch_factor=2 the batches fit into what there is.", fit, workers);
	else if (!fit)
		say(r, NULL, "Or need less: a smaller batch, or smaller samples (uint8 images take a quarter of float32 ones). What there is holds less than what one worker needs.");
	else
		say(r, NULL, "Or need less: fewer workers, prefetch_factor=1, or a smaller batch.");
}

static void shm_room(struct remedy *r)
{
	const uint64_t needed = number(r, "shm.needed"), total = number(r, "shm.total"), limit = number(r, "cgroup.limit");
	const uint64_t anon = number(r, "cgroup.anon");
	uint64_t want = roomy(needed);
	char a[32], b[32], c[32];

	if (needed) {
		if (want <= total)
			want = roomy(total + needed);
		say(r, NULL, "Give the training %s of shared memory%s%s: the run needs about %s, see the numbers.",
		    dl_fmt_bytes(a, sizeof(a), want), total ? "; it has " : "", total ? dl_fmt_bytes(b, sizeof(b), total) : "",
		    dl_fmt_bytes(c, sizeof(c), needed));
	} else {
		const uint64_t used = number(r, "shm.used"), host = number(r, "host.total");
		const bool other = used && used < total / 2;

		if (other)
			say(r, "df -h /dev/shm    # inside the container", "The /dev/shm that is seen here is not full: the run had one of its own, its container's. Look how large that is.");
		want = total && !other ? 4 * total : 8 * GIB;
		if (host && want > host / 2)
			want = host / 2;
		say(r, NULL, "Give the training more shared memory. How much it needs is not known (workers x 2 batches ahead x bytes of a batch); %s is a start.",
		    dl_fmt_bytes(a, sizeof(a), want));
	}
	shm_sizes(r, in_mib(want));
	fewer_workers(r, total);
	if (limit && want + anon > limit)
		say(r, NULL, "Raise the cgroup's memory limit, too: it is %s, shared memory counts towards it, and %s of private memory is in it already.",
		    dl_fmt_bytes(a, sizeof(a), limit), dl_fmt_bytes(b, sizeof(b), anon));
}

static void shm_full(struct remedy *r)
{
	shm_room(r);
	say(r, NULL, "What does not help: the sharing strategy file_system (it uses the same /dev/shm), kernel.shmmax (another kind of shared memory), GPU memory.");
}

static void shm_unlinked(struct remedy *r)
{
	say(r, "sed -i 's/^#*RemoveIPC=.*/RemoveIPC=no/' /etc/systemd/logind.conf && systemctl restart systemd-logind",
	    "Keep whoever removed them (see above) from /dev/shm/torch_*. If it was systemd-logind, which does this when the last session of the user ends:");
	say(r, "python3 -c \"import torch.multiprocessing as m; print(m.get_sharing_strategy())\"",
	    "Use the sharing strategy file_descriptor (the default on Linux): its objects have no name that anybody could remove. To see which one it is:");
}

/* --- mapped files --- */

static void mapped_truncated(struct remedy *r)
{
	say(r, "mv data.new data.bin", "Never shorten or rewrite a file that a training has mapped: write a new one beside it, and rename that over it.");
	say(r, NULL, "More shared memory (--shm-size) does not help, whatever PyTorch's message says.");
}

static void mapped_fs_full(struct remedy *r)
{
	const uint64_t total = number(r, "fs.total");
	char a[32];

	say(r, "df -h", "Make room on the file system of the mapped file%s%s, or put the file elsewhere.", total ? ", which has " : "",
	    total ? dl_fmt_bytes(a, sizeof(a), total) : "");
	say(r, "fallocate -l SIZE FILE", "Reserve the room when the file is made: it then fails at once, with an error instead of a signal.");
	say(r, NULL, "More shared memory (--shm-size) does not help, whatever PyTorch's message says.");
}

static void hugepages(struct remedy *r)
{
	say(r, "sysctl -w vm.nr_hugepages=COUNT", "Give the machine more huge pages, or none to this program: memory of huge pages is promised by mmap, and taken at first touch.");
	say(r, "grep -i huge /proc/meminfo", "To see how many there are, and how many are free:");
}

static void bad_memory(struct remedy *r)
{
	say(r, "dmesg -T | grep -i -e 'hardware error' -e mce", "Take the machine out of service until its memory has been tested; run again on another one.");
	say(r, NULL, "Nothing in the training is wrong: no setting of it helps.");
}

static void mapped_error(struct remedy *r)
{
	say(r, "dmesg -T | grep -i -e 'i/o error' -e nfs -e stale", "See what the storage reported:");
	say(r, NULL, "Read the data with read() instead of a mapping where it lies on a network file system: an error is then an exception, not the end of the process. Or copy it to a local disk first.");
	say(r, NULL, "More shared memory (--shm-size) does not help, whatever PyTorch's message says.");
}

/* --- memory --- */

static const struct dl_pm_proc *leaker(const struct dl_postmortem *pm)
{
	const struct dl_pm_proc *most = NULL;

	vec_for_each(&pm->procs, p) {
		if (p->leaks && (!most || p->growth_bps > most->growth_bps))
			most = p;
	}
	return most;
}

static void leak(struct remedy *r)
{
	const struct dl_pm_proc *p = leaker(r->pm);
	const bool worker = p && p->who.role == DL_ROLE_WORKER;
	char a[32], b[32], each[64] = "";

	if (!p)
		return;
	if (p->growth_batch >= 1)
		snprintf(each, sizeof(each), ", %s a batch", dl_fmt_bytes(b, sizeof(b), (uint64_t)p->growth_batch));
	say(r, NULL, "Find what grows: %s (pid %" PRIu32 ") gains %s a second%s. More memory only delays the end.",
	    worker ? "a worker" : p->who.role == DL_ROLE_TRAINER ? "the trainer" : "a process", p->who.pid,
	    dl_fmt_bytes(a, sizeof(a), (uint64_t)p->growth_bps), each);
	if (worker)
		say(r, NULL, "In a data set that is most often a list that is appended to in __getitem__, a cache without a bound, or Python objects made before the fork, which are copied little by little when they are read: keep them in numpy arrays or tensors.");
	else
		say(r, NULL, "In a training loop that is most often a loss or an output that is kept with its graph: keep loss.item() or .detach().cpu().");
}

static uint64_t worker_memory(const struct dl_postmortem *pm)
{
	uint64_t most = 0;

	vec_for_each(&pm->procs, p) {
		const uint64_t own = p->anon + p->swap;

		if (p->who.role == DL_ROLE_WORKER && own > most)
			most = own;
	}
	return most;
}

/* What there is in the group that no process has mapped: files in a tmpfs. */
static void unmapped_shm(struct remedy *r, uint64_t limit)
{
	const uint64_t shmem = number(r, "cgroup.shmem");
	char a[32];

	if (shmem && limit && shmem > limit / 4)
		say(r, "du -sh /dev/shm; ls -la /dev/shm", "%s of it was shared memory. Files in /dev/shm and other tmpfs count as memory of the group until they are deleted, also when nobody uses them: look for leftovers, and for batches that are kept.",
		    dl_fmt_bytes(a, sizeof(a), shmem));
}

static void less_memory(struct remedy *r)
{
	const uint64_t each = worker_memory(r->pm), workers = number(r, "workers");
	char a[32];

	if (each && workers > 1)
		say(r, NULL, "Or use fewer workers: each held up to %s of its own, and there were %" PRIu64 ".", dl_fmt_bytes(a, sizeof(a), each), workers);
	else
		say(r, NULL, "Or need less: fewer workers, prefetch_factor=1, a smaller batch, data that is mapped (numpy.memmap, Arrow) instead of loaded.");
}

static void oom_cgroup(struct remedy *r)
{
	const uint64_t limit = number(r, "cgroup.limit"), want = limit ? roomy(limit + limit / 4) : 0;
	_cleanup_(dl_str_fini) struct dl_str command = {};
	char a[32], b[32];

	leak(r);
	unmapped_shm(r, limit);
	if (want) {
		dl_str_addf(&command, "docker run --memory=%" PRIu64 "m ...\nresources: {limits: {memory: %" PRIu64 "Mi}}    # Kubernetes\nsbatch --mem=%" PRIu64 "M ...    # Slurm",
			    in_mib(want), in_mib(want), in_mib(want));
		if (!text_of(&command)) {
			r->err = -ENOMEM;
			return;
		}
		say(r, command.s, "Raise the memory limit of the group, which is %s, for example to %s:", dl_fmt_bytes(a, sizeof(a), limit),
		    dl_fmt_bytes(b, sizeof(b), want));
	} else {
		say(r, NULL, "Raise the memory limit of the container or job.");
	}
	less_memory(r);
	say(r, NULL, "A larger /dev/shm (--shm-size) does not help: it counts towards the same limit.");
}

static void oom_host(struct remedy *r)
{
	leak(r);
	less_memory(r);
	say(r, "ps -eo pid,user,rss,comm --sort=-rss | head", "See who else uses the machine's memory:");
	say(r, NULL, "Swap space gives time, not memory: a training that swaps is many times slower.");
}

/* --- signals and program errors --- */

static void killed_by(struct remedy *r)
{
	say(r, "journalctl --since -1h | grep -i -e kill -e oom -e timeout", "Ask whoever sent it, see above: a scheduler's limit of time or memory, a stopped container, a cleaning script, a person. Its own log says why.");
	say(r, NULL, "If it was a time limit or a preemption: save checkpoints, and handle SIGTERM to save one more.");
}

static void program_error(struct remedy *r)
{
	say(r, "PYTHONFAULTHANDLER=1 python3 -X faulthandler train.py ...", "See where it was in Python:");
	say(r, NULL, "If the data set opens LMDB, HDF5 or a CUDA library in its __init__, open them in the worker, at the first __getitem__: handles do not survive a fork.");
	say(r, NULL, "Try num_workers=0, and multiprocessing_context=\"spawn\": if it then works, a library does not survive the fork.");
	say(r, NULL, "More memory or more shared memory does not help against this signal.");
}

static void aborted(struct remedy *r)
{
	say(r, NULL, "Read the last line of the training's output before it: the C library or the C++ runtime prints why it gives up (double free, terminate called after ..., assertion failed).");
	program_error(r);
}

static void illegal(struct remedy *r)
{
	say(r, "lscpu | grep -i flags", "Install a build of the library for this CPU: it was built for a newer one (AVX-512, AVX2).");
}

static void arithmetic(struct remedy *r)
{
	say(r, "PYTHONFAULTHANDLER=1 python3 -X faulthandler train.py ...", "See where it was in Python. It is an integer division by zero in native code, not a NaN: floating point does not do this.");
}

/* --- limits --- */

static void fd_room(struct remedy *r)
{
	const uint64_t limit = number(r, "fds.limit"), want = limit && limit * 4 > 65536 ? limit * 4 : 65536;
	_cleanup_(dl_str_fini) struct dl_str command = {};

	dl_str_addf(&command, "ulimit -n %" PRIu64 "\nLimitNOFILE=%" PRIu64 "    # in the unit's [Service], systemd\ndocker run --ulimit nofile=%" PRIu64 ":%" PRIu64 " ...",
		    want, want, want, want);
	if (!text_of(&command)) {
		r->err = -ENOMEM;
		return;
	}
	if (limit)
		say(r, command.s, "Allow more open files than %" PRIu64 ":", limit);
	else
		say(r, command.s, "Allow more open files:");
	say(r, "torch.multiprocessing.set_sharing_strategy('file_system')", "Or let batches cost no descriptors; they then have names in /dev/shm, which are left behind when the training is killed:");
	say(r, NULL, "Do not keep batches as they come from the DataLoader: each tensor that is kept holds a descriptor. Keep a clone().");
}

static void fd_limit(struct remedy *r)
{
	fd_room(r);
	say(r, NULL, "Close files that the data set opens, and do not make DataLoaders with persistent_workers again and again.");
}

static void map_count(struct remedy *r)
{
	const uint64_t limit = number(r, "maps.limit"), want = limit > 65530 ? limit * 4 : 262144;
	_cleanup_(dl_str_fini) struct dl_str command = {};

	dl_str_addf(&command, "sysctl -w vm.max_map_count=%" PRIu64, want);
	if (!text_of(&command)) {
		r->err = -ENOMEM;
		return;
	}
	say(r, command.s, "Allow more memory mappings, on the machine itself, not in the container:");
	say(r, NULL, "Or make fewer: each tensor in shared memory that is kept is a mapping. Keep a clone(), put many small tensors into one, open files once.");
	say(r, NULL, "More memory does not help, although the message is \"Cannot allocate memory\".");
}

static void process_limit(struct remedy *r)
{
	const uint64_t limit = number(r, "pids.limit"), want = limit ? limit * 4 < 4096 ? 4096 : limit * 4 : 4096;
	_cleanup_(dl_str_fini) struct dl_str command = {};

	dl_str_addf(&command, "ulimit -u %" PRIu64 "\ndocker run --pids-limit=%" PRIu64 " ...\nTasksMax=%" PRIu64 "    # in the unit's [Service], systemd",
		    want, want, want);
	if (!text_of(&command)) {
		r->err = -ENOMEM;
		return;
	}
	if (limit)
		say(r, command.s, "Allow more processes and threads than %" PRIu64 " (threads count):", limit);
	else
		say(r, command.s, "Allow more processes and threads (threads count):");
	say(r, "OMP_NUM_THREADS=1", "Or make fewer: fewer workers, and one thread for the libraries in each of them:");
}

static void disk_full(struct remedy *r)
{
	const uint64_t total = number(r, "fs.total");
	char a[32];

	say(r, "df -h; df -i", "Make room on that file system%s%s%s, or write elsewhere; a quota counts, and so does the number of files.",
	    total ? " (" : "", total ? dl_fmt_bytes(a, sizeof(a), total) : "", total ? ")" : "");
	say(r, "TMPDIR=/path/with/room", "If it is /tmp:");
}

/* --- exits --- */

static void worker_exception(struct remedy *r)
{
	say(r, NULL, "Read the first traceback in the training's output, not the last: it names the sample's code.");
	say(r, "DataLoader(..., num_workers=0)", "Or run it in one process, where a debugger works:");
}

static void worker_exit(struct remedy *r)
{
	say(r, NULL, "Look for sys.exit(), os._exit(), quit() or exit() in the data set, its transforms and the libraries that they call.");
	say(r, "DataLoader(..., num_workers=0)", "Or run it in one process: the exit then has a place.");
}

static void trainer_exit(struct remedy *r)
{
	say(r, NULL, "Read the traceback at the end of the training's output. If the first lines of it say \"Caught ... in DataLoader worker process\", it is the data set's.");
}

static void tell_next_time(struct remedy *r)
{
	say(r, "DataLoader(..., timeout=600)", "Have PyTorch give up next time, instead of waiting for ever:");
}

static void stack_of(struct remedy *r)
{
	_cleanup_(dl_str_fini) struct dl_str command = {};

	if (!pid_of(r))
		return;
	dl_str_addf(&command, "py-spy dump --native --pid %" PRIu32, pid_of(r));
	if (!text_of(&command))
		r->err = -ENOMEM;
	else
		say(r, command.s, "If it still runs, see where it is in Python:");
}

static void batch_lost(struct remedy *r)
{
	if (number(r, "shm.needed"))
		shm_room(r);
	else if (number(r, "fds.limit") && number(r, "fds.open") + 8 >= number(r, "fds.limit"))
		fd_room(r);
	else
		say(r, NULL, "Look in the training's output for a traceback of a thread (\"Traceback ... in _feed\"): it is the only place where it is said.");
	tell_next_time(r);
	say(r, NULL, "Waiting does not help: end the training and start it again.");
}

static void hang(struct remedy *r)
{
	stack_of(r);
	say(r, "DataLoader(..., multiprocessing_context=\"forkserver\")", "If a lock was held when the workers were forked (logging, OpenCV, OpenMP, a database handle): start them without a copy of the trainer's memory.");
	say(r, "cv2.setNumThreads(0); torch.set_num_threads(1)", "Or make no threads before the workers are made; in the data set:");
	tell_next_time(r);
}

static void timed_out(struct remedy *r)
{
	say(r, NULL, "Find out why the worker was slow: its state is among the threads. The DataLoader's timeout must be longer than the slowest batch.");
	stack_of(r);
}

static void orphaned(struct remedy *r)
{
	_cleanup_(dl_str_fini) struct dl_str command = {};

	vec_for_each(&r->pm->procs, p) {
		if (p->who.role == DL_ROLE_WORKER && !p->ended && p->who.pid)
			dl_str_addf(&command, "%s%" PRIu32, command.len ? " " : "kill -9 ", p->who.pid);
	}
	if (command.err) {
		r->err = -ENOMEM;
		return;
	}
	say(r, command.s, "End what is left: it holds memory, shared memory and perhaps the GPU.");
}

static void unexplained(struct remedy *r)
{
	say(r, "sudo dlbpf record --keep 60s -- python3 train.py ...", "Record the next run; what is kept is the last minute before the death:");
}

static const remedy_fn remedies[DL_DEATH_CNT] = {
	[DL_DEATH_SHM_FULL] = shm_full,
	[DL_DEATH_SHM_UNLINKED] = shm_unlinked,
	[DL_DEATH_MAPPED_FILE_TRUNCATED] = mapped_truncated,
	[DL_DEATH_MAPPED_FILESYSTEM_FULL] = mapped_fs_full,
	[DL_DEATH_HUGEPAGES_EXHAUSTED] = hugepages,
	[DL_DEATH_MEMORY_FAILURE] = bad_memory,
	[DL_DEATH_MAPPED_FILE_ERROR] = mapped_error,
	[DL_DEATH_OOM_CGROUP] = oom_cgroup,
	[DL_DEATH_OOM_HOST] = oom_host,
	[DL_DEATH_KILLED_BY] = killed_by,
	[DL_DEATH_SEGFAULT] = program_error,
	[DL_DEATH_ABORT] = aborted,
	[DL_DEATH_ARITHMETIC] = arithmetic,
	[DL_DEATH_ILLEGAL_INSTRUCTION] = illegal,
	[DL_DEATH_FD_LIMIT] = fd_limit,
	[DL_DEATH_MAP_COUNT_LIMIT] = map_count,
	[DL_DEATH_PROCESS_LIMIT] = process_limit,
	[DL_DEATH_DISK_FULL] = disk_full,
	[DL_DEATH_WORKER_EXCEPTION] = worker_exception,
	[DL_DEATH_WORKER_EXIT] = worker_exit,
	[DL_DEATH_TRAINER_EXIT] = trainer_exit,
	[DL_DEATH_BATCH_LOST] = batch_lost,
	[DL_DEATH_HANG] = hang,
	[DL_DEATH_TIMEOUT] = timed_out,
	[DL_DEATH_ORPHANED] = orphaned,
	[DL_DEATH_UNEXPLAINED] = unexplained,
};

int dl_pm_remedies(struct dl_postmortem *pm)
{
	struct remedy r = { .pm = pm };

	if (pm->death < DL_DEATH_CNT && remedies[pm->death])
		remedies[pm->death](&r);
	return r.err;
}
