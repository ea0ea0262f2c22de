/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What all that is left amounts to: the verdict, how sure it is, what else fits, what a recording would have shown. */
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "forensic/leftovers_int.h"

/* Of a death: what leaves it open here, what would decide, and what a recording has of it. */
static const struct {
	enum dl_death death;
	const char *why, *decides, *recording;
} table[] = {
	{ DL_DEATH_SHM_FULL, "a batch found no room in /dev/shm", "df /dev/shm while it trains, or a recording",
	  "how full /dev/shm was, what the batches needed, and the address that was touched" },
	{ DL_DEATH_SHM_UNLINKED, "somebody removed the objects in /dev/shm", "the journal of systemd-logind, or a recording",
	  "which process removed them" },
	{ DL_DEATH_MAPPED_FILE_TRUNCATED, "a data file became shorter while it was mapped",
	  "the times and sizes of the data files, a core file, or a recording",
	  "the file, and how far beyond its end the read was" },
	{ DL_DEATH_MAPPED_FILESYSTEM_FULL, "the file system of a mapped file was full",
	  "df of the data, a core file, or a recording", "the file, and how full its file system was" },
	{ DL_DEATH_HUGEPAGES_EXHAUSTED, "no huge page was left", "the kernel log of the time (dmesg)", "the mapping" },
	{ DL_DEATH_MEMORY_FAILURE, "the hardware reported bad memory", "the kernel log of the time (dmesg)",
	  "the code of the signal" },
	{ DL_DEATH_MAPPED_FILE_ERROR, "a mapped file could not be read", "the kernel log of the time (dmesg), or a recording",
	  "the file and the error of its disk" },
	{ DL_DEATH_OOM_CGROUP, "the memory limit of a container or job was hit",
	  "the kernel log of the time (dmesg), or the memory.events of the group",
	  "the memory of each worker up to the end and its growth a batch, the limit, and what the memory was" },
	{ DL_DEATH_OOM_HOST, "the machine was out of memory", "the kernel log of the time (dmesg)",
	  "the memory of each worker up to the end and its growth a batch" },
	{ DL_DEATH_KILLED_BY, "another process sent the signal", "the log of the scheduler, of systemd, or a recording",
	  "who sent the signal: its name, its number, its parent" },
	{ DL_DEATH_SEGFAULT, "a program error", "a core file, or a recording",
	  "the address, the library and the native stack" },
	{ DL_DEATH_ABORT, "the program gave itself up", "the line before it in the output, a core file, or a recording",
	  "the native stack of who gave up" },
	{ DL_DEATH_FD_LIMIT, "no descriptor was left", "ls /proc/PID/fd | wc -l while it trains, or a recording",
	  "the call that failed, and how many descriptors were open" },
	{ DL_DEATH_MAP_COUNT_LIMIT, "no memory mapping was left", "wc -l /proc/PID/maps while it trains, or a recording",
	  "the call that failed, and how many mappings there were" },
	{ DL_DEATH_PROCESS_LIMIT, "no new process or thread was allowed",
	  "pids.events of the control group, ulimit -u, or a recording", "the call that failed, and the counts" },
	{ DL_DEATH_DISK_FULL, "a disk was full", "df, or a recording", "the file, and the call that failed" },
	{ DL_DEATH_BATCH_LOST, "a batch was lost on its way", "a recording",
	  "the call that failed in the thread that was to send it" },
	{ DL_DEATH_HANG, "threads wait for each other", "dlbpf postmortem --pid of the trainer while it hangs, or a recording",
	  "since when each thread waits, and who last held the lock" },
	{ DL_DEATH_TIMEOUT, "somebody gave up waiting", "a recording", "what the one who was waited for did instead" },
	{ DL_DEATH_WORKER_EXCEPTION, "a Python exception", "the traceback in the output", "how the worker ended" },
	{ DL_DEATH_WORKER_EXIT, "a worker ended by itself", "a recording", "the exit code, and its last system calls" },
	{ DL_DEATH_TRAINER_EXIT, "a Python exception in the trainer", "the traceback in the output", "how the trainer ended" },
	{ DL_DEATH_ORPHANED, "workers outlived their trainer", "the kernel log of the time (dmesg), or a recording",
	  "what the trainer died of" },
};

static size_t row_of(enum dl_death death)
{
	size_t i = 0;

	while (i < ARRAY_SIZE(table) && table[i].death != death)
		i++;
	return i;
}

char *dl_left_text(const char *fmt, ...)
{
	va_list ap;
	char *text;
	int n;

	va_start(ap, fmt);
	n = vasprintf(&text, fmt, ap);
	va_end(ap);
	return n < 0 ? NULL : text;
}

bool dl_left_is_python(const char *comm)
{
	static const char *const names[] = {
		"python", "pt_", "torchrun", "ipython", "jupyter", "accelerate", "deepspeed", "ray::",
	};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (!strncmp(comm, names[i], strlen(names[i])))
			return true;
	return false;
}

const char *dl_left_name(char *buf, size_t sz, uint32_t pid, const char *comm)
{
	if (comm && *comm)
		snprintf(buf, sz, "%" PRIu32 " (%s)", pid, comm);
	else
		snprintf(buf, sz, "%" PRIu32, pid);
	return buf;
}

int dl_left_number(struct dl_left *l, const char *id, const char *label, uint64_t value, enum dl_pm_unit unit,
		   enum dl_pm_source source)
{
	uint64_t have;

	return dl_pm_get(l->pm, id, &have) ? 0 : dl_pm_number(l->pm, id, label, value, unit, source);
}

bool dl_left_allows(const struct dl_left *l, enum dl_death death)
{
	return !l->fits || (l->fits >> death & 1);
}

static int alternative(struct dl_left *l, enum dl_death death, const char *why)
{
	const size_t i = row_of(death);

	vec_for_each(&l->pm->alternatives, a)
		if (a->death == death)
			return 0;
	return dl_pm_alternative(l->pm, death, i < ARRAY_SIZE(table) ? table[i].decides : "a recording", "%s", why);
}

int dl_left_verdict(struct dl_left *l, enum dl_death death, enum dl_pm_confidence confidence, char *text)
{
	struct dl_postmortem *pm = l->pm;
	_cleanup_free_ char *mine = text, *old = NULL;
	const enum dl_death old_death = pm->death;

	if (!mine)
		return -ENOMEM;
	if (pm->death != DL_DEATH_UNEXPLAINED && confidence <= pm->confidence)
		return pm->death == death || pm->confidence == DL_PM_CERTAIN ? 0 : alternative(l, death, mine);
	old = pm->text;
	pm->text = take_ptr(mine);
	pm->death = death;
	pm->confidence = confidence;
	if (old && old_death != DL_DEATH_UNEXPLAINED && old_death != death && confidence != DL_PM_CERTAIN)
		return alternative(l, old_death, old);
	return 0;
}

/* --- the output -------------------------------------------------------------------------------- */

int dl_left_judge_output(struct dl_left *l)
{
	const struct dl_log_signal *sig = l->sig ? dl_log_signal(l->sig) : NULL;
	const struct dl_pm_claim *best = NULL;

	if (l->likely == DL_DEATH_UNEXPLAINED)
		return 0;
	vec_for_each(&l->pm->claims, c)
		if (c->suggests == l->likely && !best)
			best = c;
	if (!best && l->pm->claims.cnt)
		best = l->pm->claims.v;
	/* Its end was seen, in a core or as it waits to be reaped. */
	if (!best)
		return !sig ? 0 : dl_left_verdict(l, l->likely, DL_PM_LIKELY, dl_left_text("process %" PRIu32 " %s", l->pid, sig->tells));
	return dl_left_verdict(l, l->likely, DL_PM_LIKELY, dl_left_text("the output says that %s", best->tells));
}

/* --- the end ------------------------------------------------------------------------------------ */

static int count_bits(uint64_t set)
{
	return __builtin_popcountll(set);
}

static int say_nothing(struct dl_left *l)
{
	const struct dl_log_signal *sig = l->sig ? dl_log_signal(l->sig) : NULL;

	if (l->pm->text)
		return 0;
	if (!l->fits)
		return dl_pm_set(&l->pm->text, l->pm->claims.cnt ?
				 "the output tells that something died, not of what, and nothing else that is left here does" :
				 "nothing that is left on this machine tells of a death");
	return dl_pm_set(&l->pm->text, "%s%s; %d causes fit that, and nothing that is left on this machine decides between "
			 "them", sig ? "a process " : "the output tells of an error", sig ? sig->tells : "",
			 count_bits(l->fits));
}

static int other_causes(struct dl_left *l)
{
	int err = 0;

	if (l->pm->death != DL_DEATH_UNEXPLAINED && l->pm->confidence > DL_PM_POSSIBLE)
		return 0;
	for (enum dl_death death = 0; death < DL_DEATH_CNT && !err; death++) {
		const size_t i = row_of(death);

		if ((l->fits >> death & 1) && death != l->pm->death)
			err = alternative(l, death, i < ARRAY_SIZE(table) ? table[i].why : dl_death_doc(death));
	}
	return err;
}

static int what_a_recording_has(struct dl_left *l)
{
	const size_t i = row_of(l->pm->death);
	const char *what = i < ARRAY_SIZE(table) ? table[i].recording : NULL;

	if (l->pm->death == DL_DEATH_NONE)
		return 0;
	if (!what && l->sig == SIGKILL)
		what = "who sent the signal, the kernel or which process, and the memory of each worker up to then";
	else if (!what && l->sig == SIGBUS)
		what = "the memory that was touched, the file behind it, and how full its file system was";
	return dl_pm_note(l->pm, "a recording (dlbpf record --keep 60s) would have shown %s",
			  what ? what : "which call failed first, who sent which signal, and what every thread did then");
}

int dl_left_conclude(struct dl_left *l)
{
	int err = say_nothing(l);

	if (!l->pm->sig && l->pm->death != DL_DEATH_NONE)
		l->pm->sig = l->sig;
	if (!l->pm->victim.pid && !l->pm->victim.nspid)
		l->pm->victim.nspid = l->pid;	/* as the output has it */
	if (!err)
		err = other_causes(l);
	if (!err)
		err = what_a_recording_has(l);
	if (!err)
		err = dl_pm_judge_claims(l->pm);
	if (err)
		return err;
	dl_pm_sort_facts(l->pm);
	return dl_pm_remedies(l->pm);
}
