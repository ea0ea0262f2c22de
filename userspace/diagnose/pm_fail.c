/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * System calls that failed. The error decides, not PyTorch's text: "unable to open shared memory object" is
 * said for a lack of descriptors as well, and "cannot allocate memory" for a lack of mappings.
 */
#include "diagnose/pm_int.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "trace/schema.h"

#define ROW_NS (10 * DL_PM_S)	/* failures of one kind in a row, from retry to retry */
#define DEV_SHM "/dev/shm/"

static int add_fail(struct dl_pmx *x, const struct dl_ev_syscall_fail *ev)
{
	struct dl_pm_fail *f = vec_push(&x->fails);

	if (!f)
		return -ENOMEM;
	f->ev = ev;
	f->ts = ev->h.ts;
	f->proc = dl_pm_proc_at(x->tl, ev->h.pid, f->ts);
	f->thread = dl_pm_thread_at(x->tl, ev->h.tid, f->ts);
	dl_pm_tail(f->path, sizeof(f->path), &ev->h);
	return 0;
}

int dl_pm_read_fails(struct dl_pmx *x)
{
	int err = 0;

	vec_for_each(&x->tl->crash, k) {
		if (!err && k->ev->kind == DL_EV_SYSCALL_FAIL && !(k->ev->flags & DL_HDR_FOREIGN))
			err = add_fail(x, (const void *)k->ev);
	}
	return err;
}

static const char *last_name(const char *path)
{
	return strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
}

static bool is_shm(const struct dl_pm_fail *f)
{
	const char *name = last_name(f->path);

	if ((f->ev->flags & DL_SF_SHM) || !strncmp(f->path, DEV_SHM, strlen(DEV_SHM)))
		return true;
	if (f->ev->file_magic && f->ev->file_magic != DL_PM_TMPFS_MAGIC)
		return false;
	return !strncmp(name, "torch_", 6) || !strncmp(name, "psm_", 4) || !strncmp(name, "sem.", 4);
}

/* As many mappings as the limit allows, less what one call may need at once. */
static bool is_near_maps_limit(const struct dl_pmx *x, const struct dl_pm_fail *f)
{
	const struct dl_ev_env_proc *e = dl_pm_limits_at(x, f->ev->h.pid, f->ts);

	return e && e->maps_limit && e->maps + e->maps_limit / 20 >= e->maps_limit;
}

/* By the limit that was met, where the recorder could see which. */
static enum dl_death by_limit(const struct dl_pm_fail *f)
{
	switch (f->ev->of) {
	case DL_LIMIT_FDS:
	case DL_LIMIT_FILES:
		return DL_DEATH_FD_LIMIT;
	case DL_LIMIT_MAPS:
		return DL_DEATH_MAP_COUNT_LIMIT;
	case DL_LIMIT_NPROC:
	case DL_LIMIT_PIDS:
		return DL_DEATH_PROCESS_LIMIT;
	case DL_LIMIT_FS:
	case DL_LIMIT_INODES:
		return is_shm(f) ? DL_DEATH_SHM_FULL : DL_DEATH_DISK_FULL;
	default:
		return DL_DEATH_UNEXPLAINED;
	}
}

enum dl_death dl_pm_fail_death(const struct dl_pmx *x, const struct dl_pm_fail *f)
{
	const enum dl_sys sys = dl_sys_class(x->tl->machine, f->ev->syscall);
	const bool fork = sys == DL_SYS_FORK || (f->ev->flags & (DL_SF_FORK | DL_SF_THREAD));
	const enum dl_death known = by_limit(f);

	if (known != DL_DEATH_UNEXPLAINED)
		return known;
	if (f->ev->flags & DL_SF_CTRUNC)
		return DL_DEATH_FD_LIMIT;
	switch (f->ev->err) {
	case ENOSPC:
		if (is_shm(f))
			return DL_DEATH_SHM_FULL;
		/* Other things have a number that is used up: inotify's watches, keys. */
		return f->path[0] || f->ev->file_magic || sys == DL_SYS_WRITE ? DL_DEATH_DISK_FULL : DL_DEATH_UNEXPLAINED;
	case EDQUOT:
		return DL_DEATH_DISK_FULL;
	case EMFILE:
	case ENFILE:
		return DL_DEATH_FD_LIMIT;
	case EAGAIN:
		return fork ? DL_DEATH_PROCESS_LIMIT : DL_DEATH_UNEXPLAINED;
	case ENOMEM:
		if (fork)
			return DL_DEATH_PROCESS_LIMIT;
		return sys == DL_SYS_MMAP && is_near_maps_limit(x, f) ? DL_DEATH_MAP_COUNT_LIMIT : DL_DEATH_UNEXPLAINED;
	case ENOENT:
		/* The shared memory manager looks for objects that are gone as its way of working. */
		return is_shm(f) && f->proc != DL_NONE && x->tl->procs.v[f->proc].role != DL_ROLE_SHM_MANAGER ? DL_DEATH_SHM_UNLINKED : DL_DEATH_UNEXPLAINED;
	default:
		return DL_DEATH_UNEXPLAINED;
	}
}

static bool concerns(const struct dl_pmx *x, const struct dl_pm_fail *f, uint32_t proc)
{
	return f->proc != DL_NONE && (f->proc == proc || x->tl->procs.v[f->proc].trainer == proc);
}

const struct dl_pm_fail *dl_pm_fail_before(const struct dl_pmx *x, uint32_t proc, uint64_t ts, uint64_t within)
{
	const struct dl_pm_fail *first = NULL;

	for (size_t i = x->fails.cnt; i-- > 0;) {
		const struct dl_pm_fail *f = &x->fails.v[i];

		if (f->ts > ts || !concerns(x, f, proc) || dl_pm_fail_death(x, f) == DL_DEATH_UNEXPLAINED)
			continue;
		if (!first) {
			if (f->ts + within < ts)
				return NULL;
			first = f;
		} else if (dl_pm_fail_death(x, f) == dl_pm_fail_death(x, first) && f->ts + ROW_NS >= first->ts) {
			first = f;
		}
	}
	return first;
}

/* What was tried, and the word between that and the file's name. */
struct attempt { const char *what, *to; };

static struct attempt attempt_of(const struct dl_pmx *x, const struct dl_pm_fail *f)
{
	if (f->ev->flags & DL_SF_CTRUNC)
		return (struct attempt){ "take the file descriptors that were sent to it: they are lost", "" };
	if (f->ev->err == EMFILE || f->ev->err == ENFILE)
		return (struct attempt){ "get another file descriptor", " for" };
	if (f->ev->flags & DL_SF_THREAD)
		return (struct attempt){ "create a thread", "" };
	if (f->ev->flags & DL_SF_FORK)
		return (struct attempt){ "create a process", "" };
	switch (dl_sys_class(x->tl->machine, f->ev->syscall)) {
	case DL_SYS_FORK:
		return (struct attempt){ "create a process or thread", "" };
	case DL_SYS_MMAP:
		return (struct attempt){ "map", " of" };
	case DL_SYS_WRITE:
		return (struct attempt){ "write", " to" };
	case DL_SYS_READ:
		return (struct attempt){ "receive or read", " from" };
	case DL_SYS_ACCEPT:
	case DL_SYS_CONNECT:
		return (struct attempt){ "connect", " to" };
	case DL_SYS_FILE:
	case DL_SYS_FSYNC:
		if (f->ev->bytes)
			return (struct attempt){ "reserve", " for" };
		return (struct attempt){ f->ev->err == ENOENT ? "open" : "open or change", "" };
	default:
		return (struct attempt){ "go on in a system call", " with" };
	}
}

/* The names are the kernel's; strerror() would speak the user's language. */
static const char *error_text(int error)
{
	switch (error) {
	case ENOSPC:
		return "no space left (ENOSPC)";
	case EDQUOT:
		return "the disk quota is used up (EDQUOT)";
	case EMFILE:
		return "too many open files in the process (EMFILE)";
	case ENFILE:
		return "too many open files in the system (ENFILE)";
	case EAGAIN:
		return "not allowed now (EAGAIN)";
	case ENOMEM:
		return "cannot allocate memory (ENOMEM)";
	case ENOENT:
		return "no such file (ENOENT)";
	default:
		return NULL;
	}
}

void dl_pm_fail_text(struct dl_str *s, const struct dl_pmx *x, const struct dl_pm_fail *f)
{
	const struct attempt tried = attempt_of(x, f);
	const char *error = error_text(f->ev->err);
	char size[32];

	dl_str_addf(s, "could not %s", tried.what);
	if (f->ev->bytes)
		dl_str_addf(s, " %s", dl_fmt_bytes(size, sizeof(size), f->ev->bytes));
	else if (!strcmp(tried.what, "map"))
		dl_str_add(s, " memory");
	if (f->path[0] && (f->ev->flags & DL_SF_CGROUP))
		dl_str_addf(s, " in cgroup '%s'", f->path);
	else if (f->path[0])
		dl_str_addf(s, "%s '%s%s'", tried.to, is_shm(f) && !strchr(f->path, '/') ? DEV_SHM : "", f->path);
	if (error)
		dl_str_addf(s, ": %s", error);
	else if (f->ev->err)
		dl_str_addf(s, ": error %d", f->ev->err);
}

/* How near to the limit it was: as the failing call met it, else by what the recorder had read. */
static void add_limit(struct dl_str *s, const struct dl_pmx *x, const struct dl_pm_fail *f, enum dl_death death)
{
	const struct dl_ev_env_proc *e = dl_pm_limits_at(x, f->ev->h.pid, f->ts);
	const struct dl_ev_env_shm *shm = dl_pm_shm_at(x, f->ts);
	const uint64_t used = f->ev->used, limit = f->ev->limit;
	char a[32], b[32];

	switch (death) {
	case DL_DEATH_SHM_FULL:
	case DL_DEATH_DISK_FULL:
		if (f->ev->of == DL_LIMIT_INODES && limit)
			dl_str_addf(s, "; the file system may hold %" PRIu64 " files, and does", limit);
		else if (f->ev->of == DL_LIMIT_FS && limit)
			dl_str_addf(s, "; %s has %s, %s of it were used", death == DL_DEATH_SHM_FULL ? "/dev/shm" : "the file system",
				    dl_fmt_bytes(a, sizeof(a), limit), dl_fmt_bytes(b, sizeof(b), used));
		else if (death == DL_DEATH_SHM_FULL && shm && shm->total)
			dl_str_addf(s, "; /dev/shm has %s, %s of it were used when the recorder last looked",
				    dl_fmt_bytes(a, sizeof(a), shm->total), dl_fmt_bytes(b, sizeof(b), shm->used));
		break;
	case DL_DEATH_FD_LIMIT:
		if (f->ev->err == ENFILE || f->ev->of == DL_LIMIT_FILES)
			dl_str_add(s, "; it is the limit of the whole machine (fs.file-max)");
		else if (limit || (e && e->fds_limit))
			dl_str_addf(s, "; its limit is %" PRIu64 " open files (ulimit -n)", (uint64_t)(limit ? limit : e->fds_limit));
		break;
	case DL_DEATH_MAP_COUNT_LIMIT:
		if (limit || e)
			dl_str_addf(s, "; it had %" PRIu64 " memory mappings, and vm.max_map_count allows %" PRIu64,
				    (uint64_t)(limit ? used : e->maps), (uint64_t)(limit ? limit : e->maps_limit));
		break;
	case DL_DEATH_PROCESS_LIMIT:
		if (limit)
			dl_str_addf(s, "; %s allows %" PRIu64 " processes and threads", f->ev->of == DL_LIMIT_PIDS ?
				    "pids.max of its cgroup" : "its user's limit (ulimit -u)", limit);
		break;
	default:
		break;
	}
}

/* Who removed this object, else the last one that was removed before. */
static const struct dl_ev_shm_unlink *unlinker_of(const struct dl_pmx *x, const struct dl_pm_fail *f)
{
	const struct dl_ev_shm_unlink *any = NULL;
	char tail[256];

	for (size_t i = x->tl->crash.cnt; i-- > 0;) {
		const struct dl_ev_shm_unlink *ev = (const void *)x->tl->crash.v[i].ev;

		if (ev->h.kind != DL_EV_SHM_UNLINK || ev->h.ts > f->ts)
			continue;
		dl_pm_tail(tail, sizeof(tail), &ev->h);
		if (!strcmp(last_name(tail), last_name(f->path)))
			return ev;
		any = any ? any : ev;
	}
	return any;
}

static void unlinked(struct dl_pmx *x, const struct dl_pm_fail *f, struct dl_str *s)
{
	const struct dl_ev_shm_unlink *by = unlinker_of(x, f);
	struct dl_pm_who who = { .index = -1 };
	char name[256], comm[17] = "";

	if (!by) {
		dl_str_add(s, "; who had removed it is not in the trace");
		return;
	}
	memcpy(comm, by->sender_comm.s, 16);
	who.pid = by->h.pid;
	who.tid = by->h.tid;
	who.name = comm;
	dl_pm_tail(name, sizeof(name), &by->h);
	dl_str_addf(s, "; %s (pid %u, parent %.16s%s%u, user id %u), which is not of the job, had removed it %.1f s before",
		    comm[0] ? comm : "a process", by->h.pid, by->parent_comm.s, by->parent_comm.s[0] ? " " : "", by->sender_ppid,
		    by->sender_uid, (double)(f->ts - by->h.ts) / 1e9);
	DL_PM_DO(x, dl_pm_fact(x->pm, &who, by->h.ts, DL_PM_TRACE, true, "removed '%s' from shared memory", name));
}

void dl_pm_by_fail(struct dl_pmx *x, const struct dl_pm_fail *f, const char *then)
{
	const enum dl_death death = dl_pm_fail_death(x, f);
	const struct dl_pm_who who = dl_pm_who_thread(x->tl, f->thread), victim = dl_pm_who_proc(x->tl, f->proc);
	const struct dl_proc *p = &x->tl->procs.v[f->proc];
	struct dl_str s = {}, text = {};

	dl_pm_fail_text(&text, x, f);
	if (text.err) {
		x->err = x->err ? x->err : text.err;
		dl_str_fini(&text);
		return;
	}
	DL_PM_DO(x, dl_pm_fact(x->pm, &who, f->ts, DL_PM_TRACE, true, "%s", text.s));
	dl_pm_add_proc(&s, x->tl, f->proc);
	dl_str_addf(&s, " %s", text.s);
	dl_str_fini(&text);
	if (death == DL_DEATH_SHM_UNLINKED)
		unlinked(x, f, &s);
	add_limit(&s, x, f, death);
	dl_str_add(&s, then);
	x->fail = f;
	x->proc = f->proc;
	x->thread = f->thread;
	x->at = x->pm->ts = f->ts;
	DL_PM_DO(x, dl_pm_who_copy(&x->pm->victim, &victim));
	x->pm->sig = p->exited ? p->exit_status & 0x7f : 0;
	x->pm->has_status = p->exited;
	x->pm->status = p->exited ? p->exit_status : 0;
	dl_pm_verdict(x, death, DL_PM_CERTAIN, &s);
}
