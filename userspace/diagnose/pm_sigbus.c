/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * SIGBUS: what was mapped at the address decides. PyTorch says "out of shared memory" for every one of them,
 * also where the file behind a mapping was cut off, or the disk is full.
 */
#include "diagnose/pm_int.h"

#include <signal.h>
#include <string.h>

#include "trace/trace.h"

#define MAP_NS DL_PM_S		/* the recorder may have to look the mapping up itself, a moment later */
#define CODE_MCEERR_AR 4	/* bad memory was touched, or found (asm-generic/siginfo.h) */
#define CODE_MCEERR_AO 5
#define CODE_ADRALN 1

/*
 * Several threads can be hit at once, and the recorder looks a moment later for what the kernel side could not
 * say (DL_SB_FROM_PROC): the mapping, or how full its file system is. That the file was too short then, decides.
 */
static int worth(const struct dl_ev_sigbus_map *m, uint32_t tid)
{
	return (m->h.tid == tid ? 8 : 0) + (m->fault_flags & DL_SB_PAST_END ? 4 : 0) +
	       (m->fault_flags & DL_SB_NO_VMA ? 0 : 2) + (m->fs_total ? 1 : 0);
}

static const struct dl_ev_sigbus_map *map_of(const struct dl_pmx *x, const struct dl_ev_signal *ev)
{
	const struct dl_ev_sigbus_map *best = NULL;

	vec_for_each(&x->tl->crash, k) {
		const struct dl_ev_sigbus_map *m = (const void *)k->ev;

		if (k->ev->kind != DL_EV_SIGBUS_MAP || k->ev->pid != ev->target_pid || k->ts + MAP_NS < ev->h.ts ||
		    k->ts > ev->h.ts + MAP_NS)
			continue;
		if (!best || worth(m, ev->target_tid) > worth(best, ev->target_tid))
			best = m;
	}
	return best;
}

static uint64_t page_sz(const struct dl_pmx *x)
{
	return x->meta && x->meta->page_sz ? x->meta->page_sz : 4096;
}

/* tmpfs counts its pages per CPU and is behind by up to max(32, 2 * CPUs) of them on each (lib/percpu_counter.c). */
static uint64_t lag(const struct dl_pmx *x)
{
	const uint64_t cpus = x->tl->cpus_online ? x->tl->cpus_online : 1;

	return cpus * (2 * cpus > 32 ? 2 * cpus : 32) * page_sz(x);
}

enum full { HAS_ROOM, FULL_PERHAPS, FULL };

static enum full is_full(const struct dl_pmx *x, const struct dl_ev_sigbus_map *m)
{
	if (!m->fs_total)
		return HAS_ROOM;
	if (m->fs_used + m->fs_total / 100 + 64 * page_sz(x) >= m->fs_total)
		return FULL;
	return m->file_magic == DL_PM_TMPFS_MAGIC && m->fs_used + lag(x) >= m->fs_total ? FULL_PERHAPS : HAS_ROOM;
}

/* Names that PyTorch, Python and POSIX semaphores use there. */
static bool is_shm_name(const char *name)
{
	return !strncmp(name, "torch_", 6) || !strncmp(name, "psm_", 4) || !strncmp(name, "sem.", 4) ||
	       !strncmp(name, "pym-", 4) || !strncmp(name, "mp-", 3);
}

/* /dev/shm, and no other tmpfs. */
static bool is_dev_shm(const struct dl_pmx *x, const struct dl_ev_sigbus_map *m, const char *name)
{
	bool known = false;

	if (is_shm_name(name))
		return true;
	vec_for_each(&x->tl->env, k) {
		const struct dl_ev_env_shm *s = (const void *)k->ev;

		if (k->ev->kind != DL_EV_ENV_SHM)
			continue;
		known = true;
		if (s->total == m->fs_total)
			return true;
	}
	return !known;
}

static bool past_end(const struct dl_pmx *x, const struct dl_ev_sigbus_map *m)
{
	const uint64_t page = page_sz(x);

	return (m->fault_flags & DL_SB_PAST_END) || m->file_off >= (m->file_sz + page - 1) / page * page;
}

static void wrong_advice(struct dl_pmx *x, const struct dl_pm_dead *d, const char *what)
{
	if (x->tl->procs.v[d->proc].role == DL_ROLE_WORKER)
		DL_PM_DO(x, dl_pm_set(&x->pm->wrong_text, "PyTorch prints \"It is possible that dataloader's workers are out of shared memory\" for every bus error. It is wrong here: %s.", what));
}

static void fact(struct dl_pmx *x, const struct dl_ev_sigbus_map *m, const char *name)
{
	const struct dl_pm_who who = dl_pm_who_thread(x->tl, x->thread);
	char off[32], size[32];

	DL_PM_DO(x, dl_pm_fact(x->pm, &who, m->h.ts, DL_PM_TRACE, true, "touched offset %s of the mapped file '%s', which is %s long",
			       dl_fmt_bytes(off, sizeof(off), m->file_off), name, dl_fmt_bytes(size, sizeof(size), m->file_sz)));
}

static void by_full(struct dl_pmx *x, const struct dl_pm_dead *d, const char *name, struct dl_str *s, enum full full)
{
	const struct dl_ev_sigbus_map *m = x->bus;
	const bool tmpfs = m->file_magic == DL_PM_TMPFS_MAGIC, shm = tmpfs && is_dev_shm(x, m, name);
	char a[32], b[32];

	dl_str_addf(s, " got SIGBUS: %s is full (%s of %s used) and '%s' was touched for the first time there",
		    shm ? "the shared memory file system /dev/shm" : "the file system of a mapped file",
		    dl_fmt_bytes(a, sizeof(a), m->fs_used), dl_fmt_bytes(b, sizeof(b), m->fs_total), name);
	if (!shm)
		wrong_advice(x, d, "another file system is full, not /dev/shm");
	dl_pm_verdict(x, shm ? DL_DEATH_SHM_FULL : DL_DEATH_MAPPED_FILESYSTEM_FULL,
		      full == FULL && (!tmpfs || shm || m->fs_total) ? DL_PM_CERTAIN : DL_PM_LIKELY, s);
}

/* File systems whose server can go, or refuse a page: NFS, SMB, FUSE, 9p, Ceph, Lustre, AFS (linux/magic.h). */
static bool is_remote(uint32_t magic)
{
	static const uint32_t magics[] = { 0x6969, 0xff534d42, 0xfe534d42, 0x65735546, 0x01021997, 0x00c36400, 0x0bd00bd0,
					   0x5346414f, 0x47504653 };

	for (size_t i = 0; i < sizeof(magics) / sizeof(magics[0]); i++) {
		if (magics[i] == magic)
			return true;
	}
	return false;
}

/* A request to a device that failed shortly before. */
static bool io_failed(const struct dl_pmx *x, uint64_t ts)
{
	vec_for_each(&x->tl->crash, k) {
		if (k->ev->kind == DL_EV_BLOCK_IO && k->ts <= ts && k->ts + 60 * DL_PM_S > ts)
			return true;
	}
	return false;
}

static void by_unknown(struct dl_pmx *x, const struct dl_pm_dead *d, const char *name, struct dl_str *s)
{
	const struct dl_ev_sigbus_map *m = x->bus;
	char a[32], b[32];

	wrong_advice(x, d, "the address lies in a mapped file that is not in /dev/shm, or /dev/shm has room");
	dl_str_addf(s, " got SIGBUS in the mapped file '%s'", name);
	if (io_failed(x, d->ts) || is_remote(m->file_magic)) {
		dl_str_add(s, io_failed(x, d->ts) ? ": a request to its storage had failed" :
			   ", which lies on a network file system: its server could not give, or take, the page");
		dl_pm_verdict(x, DL_DEATH_MAPPED_FILE_ERROR, DL_PM_LIKELY, s);
		return;
	}
	/* How full it is, the kernel side knows of a tmpfs only. A write to a part of a file that has no block yet asks
	 * the file system for one: it has none to give, or the user no more. */
	if (!m->fs_total && (m->fault_flags & DL_SB_WRITE) && (m->fault_flags & DL_SB_SHARED) && m->file_ino) {
		dl_str_add(s, ", which is mapped for writing and long enough: its file system had no block left for it, or the user's quota none");
		dl_pm_verdict(x, DL_DEATH_MAPPED_FILESYSTEM_FULL, DL_PM_LIKELY, s);
		DL_PM_DO(x, dl_pm_alternative(x->pm, DL_DEATH_MAPPED_FILE_ERROR, "the kernel log of that time: it names the device and the error",
					      "its storage failed; no request to it was seen to fail"));
		return;
	}
	dl_str_add(s, "; the file is long enough");
	if (m->fs_total)
		dl_str_addf(s, " and its file system has room (%s of %s used)", dl_fmt_bytes(a, sizeof(a), m->fs_used),
			    dl_fmt_bytes(b, sizeof(b), m->fs_total));
	dl_pm_verdict(x, DL_DEATH_UNEXPLAINED, DL_PM_UNKNOWN, s);
	DL_PM_DO(x, dl_pm_alternative(x->pm, DL_DEATH_MAPPED_FILE_ERROR, "the kernel log of that time: it names the device and the error",
				      "the storage could not read the page, or take it"));
	if (m->fault_flags & DL_SB_WRITE)
		DL_PM_DO(x, dl_pm_alternative(x->pm, DL_DEATH_MAPPED_FILESYSTEM_FULL, "df and quota for that file system, at that time",
					      "a quota was used up, or the file system was full for a moment"));
	DL_PM_DO(x, dl_pm_alternative(x->pm, DL_DEATH_MAPPED_FILE_TRUNCATED, "who writes this file while it is mapped",
				      "the file was cut off and had grown again when it was looked at"));
}

static void by_no_map(struct dl_pmx *x, const struct dl_pm_dead *d, struct dl_str *s)
{
	if (d->sig->code == CODE_ADRALN) {
		dl_str_add(s, " got SIGBUS: it used an address that is not aligned, an error of the program");
		dl_pm_verdict(x, DL_DEATH_UNEXPLAINED, DL_PM_UNKNOWN, s);
		return;
	}
	dl_str_addf(s, " got SIGBUS at address 0x%llx; what was mapped there is not known", d->sig->addr);
	dl_pm_verdict(x, DL_DEATH_UNEXPLAINED, DL_PM_UNKNOWN, s);
	DL_PM_DO(x, dl_pm_alternative(x->pm, DL_DEATH_SHM_FULL, "how full /dev/shm was at that time: see the numbers",
				      "/dev/shm had no room for the page"));
	DL_PM_DO(x, dl_pm_alternative(x->pm, DL_DEATH_MAPPED_FILE_TRUNCATED, "a core: it has the mapped files and the address",
				      "a mapped file was shorter than its mapping, or its file system was full"));
}

void dl_pm_by_sigbus(struct dl_pmx *x, const struct dl_pm_dead *d)
{
	const struct dl_ev_sigbus_map *m = map_of(x, d->sig);
	struct dl_str s = {};
	char name[256], size[32];
	enum full full;

	x->bus = m;
	dl_pm_add_proc(&s, x->tl, d->proc);
	dl_pm_tail(name, sizeof(name), m ? &m->h : NULL);
	if (d->sig->code == CODE_MCEERR_AR || d->sig->code == CODE_MCEERR_AO) {
		const struct dl_pm_who who = dl_pm_who_thread(x->tl, x->thread);

		DL_PM_DO(x, dl_pm_fact(x->pm, &who, d->ts, DL_PM_TRACE, true, "touched memory that the hardware reported as bad (code %d)", d->sig->code));
		wrong_advice(x, d, "the hardware reported bad memory");
		dl_str_addf(&s, " got SIGBUS: the hardware reported bad memory at address 0x%llx", d->sig->addr);
		dl_pm_verdict(x, DL_DEATH_MEMORY_FAILURE, DL_PM_CERTAIN, &s);
		return;
	}
	if (!m || (m->fault_flags & DL_SB_NO_VMA)) {
		by_no_map(x, d, &s);
		return;
	}
	full = is_full(x, m);
	fact(x, m, name);
	if (m->fault_flags & DL_SB_HUGETLB && !past_end(x, m)) {
		wrong_advice(x, d, "the machine has no free huge page for a mapping that asks for them");
		dl_str_add(&s, " got SIGBUS: no huge page was free for a mapping of huge pages");
		dl_pm_verdict(x, DL_DEATH_HUGEPAGES_EXHAUSTED, DL_PM_CERTAIN, &s);
	} else if (past_end(x, m)) {
		dl_fmt_bytes(size, sizeof(size), m->file_sz);
		wrong_advice(x, d, "a mapped file is shorter than its mapping");
		dl_str_addf(&s, " got SIGBUS: it touched offset %llu of the mapped file '%s', which is only %s long: it was truncated",
			    m->file_off, name, size);
		dl_pm_verdict(x, DL_DEATH_MAPPED_FILE_TRUNCATED, DL_PM_CERTAIN, &s);
	} else if (full != HAS_ROOM) {
		by_full(x, d, name, &s, full);
	} else {
		by_unknown(x, d, name, &s);
	}
}
