/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The living processes of a run, from /proc: each looked at twice, to tell one that waits from one that works. Nobody
 * is stopped for it.
 */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/str.h"
#include "capture/maps.h"
#include "forensic/leftovers_int.h"

enum {
	PROCS_MAX = 4096,	/* of a tree */
};

struct all_procs {
	DL_VEC(struct dl_pid_pair) v;
};

static int open_proc(const struct dl_left *l, uint32_t pid)
{
	char path[32];
	int fd;

	snprintf(path, sizeof(path), "proc/%" PRIu32, pid);
	fd = openat(l->root_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static int list_all(const struct dl_left *l, struct all_procs *all)
{
	_cleanup_closedir_ DIR *dir = NULL;
	const struct dirent *de;
	const int fd = openat(l->root_fd, "proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return 0;
	dir = dl_dir_of(fd);
	if (!dir)
		return -ENOMEM;
	while ((de = readdir(dir))) {
		struct dl_pid_pair *pair;
		struct dl_stat st;
		char path[300], buf[1024];
		uint64_t nr;

		if (!dl_parse_u64(de->d_name, &nr) || !nr || nr > UINT32_MAX)
			continue;
		snprintf(path, sizeof(path), "proc/%s/stat", de->d_name);
		if (dl_proc_read(l->root_fd, path, buf, sizeof(buf)) < 0 || !dl_parse_stat(buf, &st))
			continue;
		pair = vec_push(&all->v);
		if (!pair)
			return -ENOMEM;
		*pair = (struct dl_pid_pair){ (uint32_t)nr, st.ppid };
	}
	return 0;
}

/* --- one process ------------------------------------------------------------------------------- */

/*
 * The owner that a mutex of glibc names, when a thread waits in FUTEX_WAIT as its lock does (nptl/lowlevellock.h):
 * struct __pthread_mutex_s { int lock; unsigned int count; int owner; ... }. Other waits of that kind have anything
 * there: who reads this must know the id.
 */
static uint32_t mutex_owner(int proc_fd, const struct dl_left_thread *t)
{
	_cleanup_close_ int fd = -1;
	uint32_t word[3];

	if (t->nr != SYS_futex || (t->arg1 & 0x7f) != 0)
		return 0;
	fd = openat(proc_fd, "mem", O_RDONLY | O_CLOEXEC);
	if (fd < 0 || t->arg0 > INT64_MAX || pread(fd, word, sizeof(word), (off_t)t->arg0) != sizeof(word))
		return 0;
	return word[0] == 1 || word[0] == 2 ? word[2] : 0;
}

/* The fourth argument of futex(2), of "202 0x7f.. 0x189 0x0 0x0 ...". */
static bool has_no_deadline(const char *text)
{
	for (int field = 0; field < 4 && text; field++) {
		text = strchr(text, ' ');
		text = text ? text + 1 : NULL;
	}
	return text && !strtoull(text, NULL, 16);
}

static void read_call(int proc_fd, struct dl_left_thread *t)
{
	char path[64], buf[256];

	snprintf(path, sizeof(path), "task/%" PRIu32 "/syscall", t->tid);
	t->has_call = dl_proc_read(proc_fd, path, buf, sizeof(buf)) > 0 && dl_parse_syscall(buf, &t->nr, &t->arg0, &t->arg1);
	if (!t->has_call)
		t->nr = -1;
	t->for_ever = t->has_call && t->nr == SYS_futex && has_no_deadline(buf);
	snprintf(path, sizeof(path), "task/%" PRIu32 "/wchan", t->tid);
	if (dl_proc_read(proc_fd, path, t->wchan, sizeof(t->wchan)) <= 0 || !strcmp(t->wchan, "0"))
		t->wchan[0] = '\0';
	t->wchan[strcspn(t->wchan, "\n")] = '\0';
	t->owner = t->has_call ? mutex_owner(proc_fd, t) : 0;
}

static uint64_t switches_of(int proc_fd, uint32_t tid)
{
	char path[64], buf[8192];
	uint64_t voluntary = 0, forced = 0;

	snprintf(path, sizeof(path), "task/%" PRIu32 "/status", tid);
	if (dl_proc_read(proc_fd, path, buf, sizeof(buf)) > 0) {
		dl_text_u64(buf, "voluntary_ctxt_switches", &voluntary);
		dl_text_u64(buf, "nonvoluntary_ctxt_switches", &forced);
	}
	return voluntary + forced;
}

struct thread_arg {
	int proc_fd;
	struct dl_left_proc *p;
};

static int add_thread(uint32_t tid, void *arg)
{
	const struct thread_arg *a = arg;
	struct dl_left_thread *t;
	struct dl_status status;
	struct dl_stat st;

	if (dl_proc_stat(a->proc_fd, tid, &st))
		return 0;
	t = vec_push(&a->p->threads);
	if (!t)
		return -ENOMEM;
	t->tid = tid;
	memcpy(t->comm, st.comm, sizeof(t->comm));
	t->state = st.state;
	t->ticks = st.cpu_ticks;
	t->ran = st.state == 'R';
	t->nspid = dl_proc_status(a->proc_fd, tid, &status) ? 0 : status.nspid;
	t->switches = switches_of(a->proc_fd, tid);
	read_call(a->proc_fd, t);
	if (tid == a->p->pid && a->p->threads.cnt > 1) {
		const struct dl_left_thread tmp = a->p->threads.v[0];

		a->p->threads.v[0] = *t;
		*t = tmp;
	}
	return 0;
}

/* "Max open files            1024                 524288               files" */
static uint64_t soft_limit(int proc_fd, const char *name)
{
	char buf[4096];
	const char *at;

	if (dl_proc_read(proc_fd, "limits", buf, sizeof(buf)) <= 0)
		return 0;
	at = strstr(buf, name);
	return at ? strtoull(at + strlen(name), NULL, 10) : 0;
}

static uint64_t count_entries(int proc_fd, const char *name)
{
	_cleanup_closedir_ DIR *dir = NULL;
	const struct dirent *de;
	const int fd = openat(proc_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	uint64_t cnt = 0;

	if (fd < 0)
		return 0;
	dir = dl_dir_of(fd);
	if (!dir)
		return 0;
	while ((de = readdir(dir)))
		cnt += de->d_name[0] != '.';
	return cnt;
}

/* The last field of /proc/PID/stat, which only those who may trace the process are told. */
static int32_t exit_status(int proc_fd)
{
	char buf[1024];
	const ssize_t n = dl_proc_read(proc_fd, "stat", buf, sizeof(buf));
	const char *last = n > 0 ? strrchr(buf, ' ') : NULL;

	return last ? (int32_t)strtol(last + 1, NULL, 10) : 0;
}

/* Shells handle those signals too: the program must be Python, by its name or by its file's. */
static bool looks_like_worker(int proc_fd, const struct dl_status *status, const char *comm)
{
	char exe[4096];
	const char *name;
	ssize_t n;

	if (!dl_worker_handlers(status->sig_caught))
		return false;
	if (dl_left_is_python(comm))
		return true;
	n = readlinkat(proc_fd, "exe", exe, sizeof(exe) - 1);
	exe[n > 0 ? n : 0] = '\0';
	name = strrchr(exe, '/');
	return name && dl_left_is_python(name + 1);
}

/* 0, also when it is gone meanwhile, or -ENOMEM. */
static int add_proc(struct dl_left *l, uint32_t pid)
{
	_cleanup_close_ int fd = open_proc(l, pid);
	struct dl_status status = {};
	struct dl_left_proc *p;
	struct dl_stat st;
	int64_t maps;
	int err;

	if (fd < 0 || dl_proc_stat(fd, 0, &st) || l->procs.cnt >= PROCS_MAX)
		return 0;
	p = vec_push(&l->procs);
	if (!p)
		return -ENOMEM;
	dl_proc_status(fd, 0, &status);
	*p = (struct dl_left_proc){
		.pid = pid, .ppid = st.ppid, .nspid = status.nstgid, .state = st.state, .anon = status.rss_anon,
		.file = status.rss_file, .shmem = status.rss_shmem, .swap = status.swap, .pgtables = status.pgtables,
		.role = looks_like_worker(fd, &status, st.comm) ? DL_ROLE_WORKER : DL_ROLE_HELPER,
		.start_ns = dl_start_ns(st.start_ticks),
		.fds = count_entries(fd, "fd"), .fds_limit = soft_limit(fd, "Max open files"),
	};
	memcpy(p->comm, st.comm, sizeof(p->comm));
	maps = dl_maps_count(fd);
	p->maps = maps > 0 ? (uint64_t)maps : 0;
	if (st.state == 'Z')
		p->exit_status = exit_status(fd);
	err = dl_proc_each_tid(fd, add_thread, &(struct thread_arg){ fd, p });
	return err == -ENOMEM ? err : 0;
}

/* --- the tree ------------------------------------------------------------------------------------ */

static uint32_t parent_of(const struct all_procs *all, uint32_t pid)
{
	vec_for_each(&all->v, it)
		if (it->pid == pid)
			return it->ppid;
	return 0;
}

static bool comm_of(const struct dl_left *l, uint32_t pid, struct dl_stat *ret)
{
	_cleanup_close_ int fd = pid ? open_proc(l, pid) : -1;

	return fd >= 0 && !dl_proc_stat(fd, 0, ret);
}

static bool is_worker(const struct dl_left *l, uint32_t pid)
{
	_cleanup_close_ int fd = open_proc(l, pid);
	struct dl_status status;
	struct dl_stat st;

	return fd >= 0 && !dl_proc_status(fd, 0, &status) && !dl_proc_stat(fd, 0, &st) &&
	       looks_like_worker(fd, &status, st.comm);
}

/* A worker's parent is the trainer, or its fork server: both are of the worker's own program. */
static bool has_lost_parent(const struct dl_left *l, uint32_t pid, uint32_t ppid)
{
	struct dl_stat st, own;

	if (!comm_of(l, ppid, &st) || !comm_of(l, pid, &own))
		return true;
	return !dl_left_is_python(st.comm) && strcmp(st.comm, own.comm);
}

static int add_tree(struct dl_left *l, const struct all_procs *all, uint32_t root)
{
	int err = add_proc(l, root);

	/* Those below the ones that are there, until no one is new; add_proc() may pass one over. */
	for (size_t i = 0; !err && i < l->procs.cnt; i++) {
		const uint32_t pid = l->procs.v[i].pid;

		vec_for_each(&all->v, it)
			if (it->ppid == pid && !dl_left_proc(l, it->pid) && !err)
				err = add_proc(l, it->pid);
	}
	return err;
}

static void look_again(struct dl_left *l)
{
	vec_for_each(&l->procs, p) {
		_cleanup_close_ int fd = open_proc(l, p->pid);

		if (fd < 0)
			continue;
		vec_for_each(&p->threads, t) {
			const uint64_t switches = switches_of(fd, t->tid);
			struct dl_stat st;

			if (dl_proc_stat(fd, t->tid, &st))
				continue;
			t->ran |= st.state == 'R' || st.cpu_ticks != t->ticks;
			/* One that was switched to is where it is now, and may have been elsewhere. */
			if (switches != t->switches) {
				t->state = st.state;
				read_call(fd, t);
			} else if (t->state == 'D' && st.state != 'D') {
				t->state = st.state;
			}
		}
	}
}

static void pause_between(const struct dl_left *l)
{
	const uint64_t ns = l->o->settle_ns ? l->o->settle_ns : DL_NS_PER_S;
	struct timespec ts = { (time_t)(ns / DL_NS_PER_S), (long)(ns % DL_NS_PER_S) };

	while (nanosleep(&ts, &ts) && errno == EINTR)
		;
}

/*
 * The process of that number, as a host id, or, where there is none, as the only Python program that has it inside its
 * container, as the output of the run has it. 0 none.
 */
static uint32_t resolve(const struct dl_left *l, const struct all_procs *all, uint32_t pid)
{
	uint32_t found = 0;

	vec_for_each(&all->v, it)
		if (it->pid == pid)
			return pid;
	vec_for_each(&all->v, it) {
		_cleanup_close_ int fd = open_proc(l, it->pid);
		struct dl_status status;
		struct dl_stat st;

		if (fd < 0 || dl_proc_status(fd, 0, &status) || status.nstgid != pid || dl_proc_stat(fd, 0, &st) ||
		    !dl_left_is_python(st.comm))
			continue;
		if (found)
			return 0;
		found = it->pid;
	}
	return found;
}

int dl_left_read_tree(struct dl_left *l)
{
	_cleanup_free_ void *mem = NULL;
	struct all_procs all = {};
	uint32_t root;
	int err;

	if (!l->o->pid)
		return 0;
	err = list_all(l, &all);
	mem = all.v.v;
	root = err ? 0 : resolve(l, &all, l->o->pid);
	if (!root)
		return err;
	/* A worker was named: the run is its trainer's. */
	for (int up = 0; up < 3 && is_worker(l, root) && !has_lost_parent(l, root, parent_of(&all, root)); up++)
		root = parent_of(&all, root);
	err = add_tree(l, &all, root);
	if (err || !l->procs.cnt)
		return err;
	vec_for_each(&l->procs, p)
		p->orphan = p->role == DL_ROLE_WORKER && p->state != 'Z' && has_lost_parent(l, p->pid, p->ppid);
	if (l->procs.v->role != DL_ROLE_WORKER)
		l->procs.v->role = DL_ROLE_TRAINER;
	pause_between(l);
	look_again(l);
	return 0;
}

/* Workers whose trainer is gone, on the whole machine. */
int dl_left_find_orphans(struct dl_left *l)
{
	_cleanup_free_ void *mem = NULL;
	struct all_procs all = {};
	int err = list_all(l, &all);

	mem = all.v.v;
	vec_for_each(&all.v, it) {
		if (err || !is_worker(l, it->pid) || !has_lost_parent(l, it->pid, it->ppid))
			continue;
		err = add_proc(l, it->pid);
		/* One that init has not waited for yet is no orphan that goes on. */
		if (!err && l->procs.cnt && vec_last(&l->procs)->pid == it->pid)
			vec_last(&l->procs)->orphan = vec_last(&l->procs)->state != 'Z';
	}
	return err;
}

struct dl_left_proc *dl_left_proc(const struct dl_left *l, uint32_t pid)
{
	vec_for_each(&l->procs, p)
		if (p->pid == pid)
			return p;
	return NULL;
}

void dl_left_procs_fini(struct dl_left *l)
{
	vec_for_each(&l->procs, p)
		vec_free(&p->threads);
	vec_free(&l->procs);
}
