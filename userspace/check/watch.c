/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#include "check/watch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/map.h"
#include "capture/gpu.h"
#include "capture/maps.h"
#include "capture/proc.h"
#include "check/gather.h"
#include "check/store.h"

#define MS 1000000ULL

enum {
	PERIOD_MS = 15,		/* between looks, or ten times what one takes; */
	SHORT_MS = 6,		/* while the workers are young: what dies of its first batches does so at once */
	FAMILY_MS = 150,	/* who is there; */
	FIRST_MS = 40,		/* until there are workers, and while they are young: their first batch may be their last */
	YOUNG_MS = 1000,	/* workers are */
	DEAR_MS = 1000,		/* what is dear: limits, mappings, memory; not while the workers are young */
	JUDGE_MS = 300,		/* is it enough? */
	LATE_MS = 2 * PERIOD_MS,	/* between two looks, or in one: what it finds was not made together */
	WARM_MS = 2000,		/* not before the workers are so old */
	BATCHES = 3,		/* of each worker, at least */
	SMALL_FILE = 4 << 20,
};

int ck_watch_open(struct ck_watch *w, struct dl_ck_facts *f, uint32_t pid, struct ck_family *fam)
{
	*w = (struct ck_watch){
		.f = f,
		.fam = fam,
		.shm = DL_ENV_SHM_NONE,
		.proc_of = pid,
		.start_wall = time(NULL),
		.start_ts = dl_now_ns(),
		.levels_ts = dl_now_ns(),
		.period_ns = PERIOD_MS * MS,
	};
	w->store = ck_store_new();
	return w->store ? 0 : -ENOMEM;
}

void ck_watch_close(struct ck_watch *w)
{
	dl_env_shm_close(&w->shm);
	ck_store_free(w->store);
	w->store = NULL;
}

/* --- a worker is there: limits and the like are asked of its trainer from now on --------------------- */

static void take_shm(struct ck_watch *w)
{
	struct dl_env_shm shm;

	if (w->shm_of_worker)
		return;
	vec_for_each(&w->fam->v, it) {
		if (it->gone || it->foreign || (!it->worker && w->shm.shm_fd >= 0) || dl_env_shm_open(&shm, it->fd))
			continue;
		dl_env_shm_close(&w->shm);
		w->shm = shm;
		w->shm_of_worker = it->worker;
		if (it->worker)
			return;
	}
}

static int take_trainer(struct ck_watch *w)
{
	const struct ck_member *t = ck_family_trainer(w->fam);

	if (!t || w->trainer_taken)
		return 0;
	w->trainer_taken = true;
	ck_gather_proc(w->f, "", t->pid, NULL);
	if (w->proc_of == t->pid)
		return 0;
	w->proc_of = t->pid;
	vec_free(&w->f->levels);
	w->levels_ts = dl_now_ns();
	return ck_gather_levels(w->f, "", t->pid, false);
}

/* --- looks ------------------------------------------------------------------------------------------ */

static int look_family(struct ck_watch *w, uint64_t now)
{
	struct dl_ck_seen *s = &w->f->seen;
	uint32_t workers, trainers;
	int err = ck_family_look(w->fam);

	if (err)
		return err;
	workers = ck_family_workers(w->fam);
	trainers = ck_family_trainers(w->fam);
	if (workers && !w->first_worker_ts)
		w->first_worker_ts = now;
	if (workers > s->workers)
		s->workers = workers;
	if (trainers > s->trainers)
		s->trainers = trainers;
	vec_for_each(&w->fam->v, it) {
		if (it->worker && it->start)
			s->start = it->start;
		if (!it->gone && it->pid == w->fam->root)
			s->trainer_of_target = it->handlers && !it->trainer && !workers ? it->ppid : 0;
		s->file_system |= it->manager;
	}
	take_shm(w);
	return 0;
}

static int look_objects(struct ck_watch *w, uint64_t now)
{
	struct dl_ck_seen *s = &w->f->seen;
	const bool late = w->look_ts && now - w->look_ts > LATE_MS * MS;
	int err = 0;

	ck_store_begin(w->store);
	w->look_ts = now;
	for (int pass = 0; pass < 2; pass++) {
		vec_for_each(&w->fam->v, it) {
			if (it->gone || it->foreign || it->manager || it->worker != !pass)
				continue;
			err = ck_store_member(w->store, it, it->worker ? &s->worker_fds : &s->trainer_fds);
			if (err == -ENOMEM)
				return err;
			w->denied |= err == -EACCES;
		}
	}
	if (w->shm.shm_fd >= 0)
		err = ck_store_dir(w->store, w->fam, w->shm.shm_fd);
	ck_store_end(w->store, w->fam, late || dl_now_ns() - now > LATE_MS * MS);
	if (!w->first_object_ts && ck_store_any(w->store))
		w->first_object_ts = dl_now_ns();
	return err == -ENOMEM ? err : 0;
}

static int offer_mapping(const struct dl_mapping *m, void *arg)
{
	if (!m->exec && !m->write && m->path[0] == '/' && m->end - m->start >= 1 << 20)
		ck_store_offer(arg, m->path, m->end - m->start);
	return 0;
}

static void more64(uint64_t *most, uint64_t v)
{
	if (v > *most)
		*most = v;
}

static void look_at_dear(struct ck_watch *w)
{
	struct dl_ck_seen *s = &w->f->seen;

	vec_for_each(&w->fam->v, it) {
		char text[8192];
		uint64_t threads = 0, data = 0, anon = 0;
		int64_t maps;

		if (it->gone || it->foreign || it->manager || dl_proc_read(it->fd, "status", text, sizeof(text)) <= 0)
			continue;
		dl_text_u64(text, "Threads", &threads);
		dl_text_u64(text, "VmData", &data);
		dl_text_u64(text, "RssAnon", &anon);
		maps = dl_maps_count(it->fd);
		if (it->worker) {
			s->worker_threads = threads > s->worker_threads ? (uint32_t)threads : s->worker_threads;
			more64(&s->worker_anon, anon << 10);
			more64(&s->worker_maps, maps > 0 ? (uint64_t)maps : 0);
		} else if (it->trainer || it->pid == w->proc_of) {
			s->trainer_threads = threads > s->trainer_threads ? (uint32_t)threads : s->trainer_threads;
			more64(&s->trainer_data, data << 10);
			more64(&s->trainer_maps, maps > 0 ? (uint64_t)maps : 0);
			s->uses_cuda |= dl_gpu_uses_cuda(it->pid);
		}
		dl_maps_each(it->fd, offer_mapping, w->store);
	}
}

/* Enough: the pattern of a batch is known, the workers are warm. */
static void judge(struct ck_watch *w, uint64_t now)
{
	const struct dl_ck_batch b = ck_store_batch(w->store);

	w->enough = w->first_worker_ts && now - w->first_worker_ts > WARM_MS * MS && !b.at_least && b.bytes &&
		b.seen >= BATCHES * w->f->seen.workers;
}

int ck_watch_look(struct ck_watch *w)
{
	uint64_t now = dl_now_ns(), took;
	bool young = w->first_worker_ts && now - w->first_worker_ts < YOUNG_MS * MS;
	int err = 0;

	if (now >= w->next_family_ts) {
		err = look_family(w, now);
		w->next_family_ts = now + (w->first_worker_ts && !young ? FAMILY_MS : FIRST_MS) * MS;
	}
	if (err)
		return err;
	now = dl_now_ns();
	err = look_objects(w, now);
	took = dl_now_ns() - now;
	if (!err && now >= w->next_dear_ts && w->first_worker_ts && !young) {
		err = take_trainer(w);
		look_at_dear(w);
		w->next_dear_ts = now + DEAR_MS * MS;
	}
	if (now >= w->next_judge_ts) {
		judge(w, now);
		w->next_judge_ts = now + JUDGE_MS * MS;
	}
	w->period_ns = (young ? SHORT_MS : PERIOD_MS) * MS;
	if (took * 10 > w->period_ns)
		w->period_ns = took * 10 < DL_NS_PER_S ? took * 10 : DL_NS_PER_S;
	return err;
}

/* Of a command that has ended: who was there at its start, if not at once. On a busy machine one may be dead before the
 * next one is recognised. */
static void count_dead(struct ck_watch *w)
{
	struct dl_ck_seen *s = &w->f->seen;
	uint32_t cnt;

	if (!s->ended || !w->first_worker_ts)
		return;
	cnt = ck_family_first(w->fam, YOUNG_MS / 2 * MS);
	if (cnt > s->workers)
		s->workers = cnt;
}

/* What the job reads: a large file, or the folder of small ones. */
static void take_file(struct ck_watch *w)
{
	struct dl_ck_data *data = &w->f->data;
	char *slash;

	ck_copy(data->path, sizeof(data->path), ck_store_file(w->store));
	data->asked = data->found = true;
	slash = strrchr(data->path, '/');
	if (ck_store_file_size(w->store) < SMALL_FILE && slash && slash != data->path)
		*slash = '\0';
}

int ck_watch_end(struct ck_watch *w)
{
	struct dl_ck_seen *s = &w->f->seen;
	int err;

	s->watched_ns = dl_now_ns() - w->start_ts;
	count_dead(w);
	err = take_trainer(w);
	if (err)
		return err;
	look_at_dear(w);
	ck_store_result(w->store, s);
	s->watched = !w->denied;
	if (w->denied) {
		snprintf(s->why, sizeof(s->why), "the descriptors of its processes may not be read");
		w->f->root_needed = true;
	}
	if (!w->f->data.path[0] && ck_store_file(w->store)[0])
		take_file(w);
	err = dl_now_ns() - w->levels_ts > DEAR_MS * MS ? ck_gather_levels(w->f, "", w->proc_of, true) : 0;
	return err ? err : ck_gather_shm(w->f, w->shm.shm_fd >= 0 ? w->shm.shm_fd : -ENOENT);
}

/* Nobody else has made it: its maker is one of ours and has ended, and it is younger than the start. */
static bool is_ours(const struct ck_watch *w, const char *name, const struct stat *st, const struct dl_map *alive)
{
	uint32_t owner;
	uint64_t nr, val;

	if (!S_ISREG(st->st_mode) || st->st_mtim.tv_sec < w->start_wall || !ck_storage_parse(name, &owner, &nr) ||
	    !ck_family_has(w->fam, owner))
		return false;
	return alive ? !dl_map_get(alive, owner, &val) : ck_store_has(w->store, st);
}

int ck_watch_tidy(struct ck_watch *w)
{
	_cleanup_(dl_map_fini) struct dl_map alive = {};
	_cleanup_closedir_ DIR *dir = NULL;
	const int fd = w->shm.shm_fd < 0 ? -1 : openat(w->shm.shm_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	bool known;
	int err;

	if (fd < 0)
		return 0;
	dir = dl_dir_of(fd);
	if (!dir)
		return 0;
	err = ck_find_owners(&alive, &known);
	if (err)
		return err;
	for (const struct dirent *de; (de = readdir(dir));) {
		struct stat st;

		if (!fstatat(fd, de->d_name, &st, AT_SYMLINK_NOFOLLOW) && is_ours(w, de->d_name, &st, known ? &alive : NULL))
			unlinkat(fd, de->d_name, 0);
	}
	return ck_gather_left(w->f, w->shm.shm_fd);
}
