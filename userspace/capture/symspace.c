/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Executable mappings of a process, in order of address as /proc/PID/maps has them. */
#include "capture/symspace.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void dl_space_put(struct dl_space *sp)
{
	if (!sp || --sp->refs)
		return;
	vec_free(&sp->segs);
	free(sp);
}

const struct dl_seg *dl_space_find(const struct dl_space *sp, uint64_t addr)
{
	size_t lo = 0, hi = sp ? sp->segs.cnt : 0;

	while (lo < hi) {
		const size_t mid = (lo + hi) / 2;

		if (sp->segs.v[mid].end <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return sp && lo < sp->segs.cnt && sp->segs.v[lo].start <= addr ? &sp->segs.v[lo] : NULL;
}

struct reading {
	struct dl_symfiles *files;
	int proc_fd;
	const struct dl_space *old;
	struct dl_space *sp;
	void (*tell)(const struct dl_mapping *m, const struct dl_symfile *f, void *arg);
	void *arg;
};

static int read_one(const struct dl_mapping *m, void *arg)
{
	struct reading *r = arg;
	const struct dl_seg *old;
	struct dl_symfile *f = NULL;
	struct dl_seg *seg;
	int64_t file = DL_NO_FILE;

	if (!m->exec || !strcmp(m->path, "[vsyscall]"))
		return 0;
	if (m->ino || !strcmp(m->path, "[vdso]")) {
		file = dl_symfiles_get(r->files, r->proc_fd, m);
		if (file < 0)
			return -ENOMEM;
		f = r->files->v.v[file];
	}
	seg = vec_push(&r->sp->segs);
	if (!seg)
		return -ENOMEM;
	*seg = (struct dl_seg){ m->start, m->end, m->off, (uint32_t)file };
	old = dl_space_find(r->old, m->start);
	if (!old || old->start != m->start || old->end != m->end || old->off != m->off ||
	    old->file != (uint32_t)file)
		r->tell(m, f, r->arg);
	return 0;
}

struct dl_space *dl_space_read(struct dl_symfiles *files, int proc_fd, const struct dl_space *old,
			       void (*tell)(const struct dl_mapping *m, const struct dl_symfile *f, void *arg),
			       void *arg)
{
	struct reading r = { files, proc_fd, old, calloc(1, sizeof(struct dl_space)), tell, arg };

	if (!r.sp)
		return NULL;
	r.sp->refs = 1;
	if (dl_maps_each(proc_fd, read_one, &r) < 0 || !r.sp->segs.cnt) {
		dl_space_put(r.sp);
		return NULL;
	}
	return r.sp;
}

int dl_space_extend(struct dl_space *sp, const struct dl_space *old)
{
	const uint64_t end = sp->segs.cnt ? vec_last(&sp->segs)->end : 0;

	vec_for_each(&old->segs, seg) {
		struct dl_seg *more = seg->start >= end ? vec_push(&sp->segs) : NULL;

		if (more)
			*more = *seg;
		else if (seg->start >= end)
			return -ENOMEM;
	}
	return 0;
}
