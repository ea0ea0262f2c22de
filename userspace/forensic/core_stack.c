/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Stacks of a core's threads. A handler that raises its signal again, as those of PyTorch's workers and
 * of Python's faulthandler do, leaves a core whose own signal says nothing: no address, and a stack that
 * begins in raise(). What the kernel told the handler is on the stack, in the signal's frame.
 */
#include "forensic/core_int.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "capture/proc.h"

enum {
	FRAMES_MAX = 128,
	HEAD_SZ = 4096,
	VDSO_MAX = 64 << 10,
	SCAN_MAX = 128 << 10,	/* bytes of a stack searched for a signal's frame */
	SCAN_AT_ONCE = 4096,
	FILES_MAX = 512,
	NOTED_MAX = 64,
};

#define STACKS_NS (10 * UINT64_C(1000000000))

/* --- files ------------------------------------------------------------------------------------- */

const struct dl_core_map *dl_core_map_head(const struct dl_core *core, const struct dl_core_map *m)
{
	for (; m && m >= core->maps.v; m--) {
		if (!m->off)
			return m;
		if (m == core->maps.v || strcmp(m[-1].path, m->path))
			return NULL;
	}
	return NULL;
}

/* Only regular files: opening a device or a pipe that a core names could do anything. */
static int open_regular(const char *path)
{
	_cleanup_close_ int fd = *path == '/' ? open(path, O_PATH | O_CLOEXEC) : -1;
	char link[48];
	struct stat st;
	int file;

	if (fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode))
		return -ENOENT;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	file = open(link, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	return file < 0 ? -errno : file;
}

/* A file of memory that the core holds, as far as it goes. */
static int copy_memory(const struct dl_core_reading *r, uint64_t addr, size_t max)
{
	_cleanup_close_ int fd = memfd_create("core", MFD_CLOEXEC);
	char buf[HEAD_SZ];
	size_t len = 0;

	while (fd >= 0 && len < max && !dl_core_mem(r, addr + len, buf, sizeof(buf)) &&
	       write(fd, buf, sizeof(buf)) == (ssize_t)sizeof(buf))
		len += sizeof(buf);
	return fd >= 0 && len ? take_fd(fd) : -ENODATA;
}

/* Is the file still what was mapped? Also when the core does not hold its beginning. */
static bool is_same(struct dl_core_reading *r, const struct dl_core_map *m, const struct dl_elf *e)
{
	const struct dl_core_map *head = dl_core_map_head(r->core, m);
	_cleanup_close_ int fd = head ? copy_memory(r, head->start, HEAD_SZ) : -1;
	struct dl_elf mapped;

	if (fd < 0 || dl_elf_read(&mapped, fd) || !mapped.build_id_sz)
		return true;
	if (mapped.build_id_sz != e->build_id_sz || memcmp(mapped.build_id, e->build_id, e->build_id_sz) != 0)
		return false;
	r->core->same_cnt++;
	return true;
}

static void note_file(struct dl_core_reading *r, const struct dl_core_map *m, bool changed)
{
	char *copy, **slot;

	if (r->core->missing.cnt + r->core->changed.cnt >= NOTED_MAX)
		return;
	copy = strdup(m->path);
	slot = copy ? (changed ? vec_push(&r->core->changed) : vec_push(&r->core->missing)) : NULL;
	if (slot)
		*slot = copy;
	else
		free(copy);	/* a note the less */
}

static int64_t open_mapped(struct dl_core_reading *r, const struct dl_core_map *m)
{
	const int fd = r->files.v.cnt < FILES_MAX ? open_regular(m->path) : -EMFILE;
	int64_t i;

	if (fd < 0) {
		note_file(r, m, false);
		return DL_CORE_FILE_NONE;
	}
	i = dl_symfiles_add(&r->files, fd);
	if (i < 0 || r->files.v.v[i]->fd < 0)
		return DL_CORE_FILE_NONE;	/* no memory, or no ELF file */
	if (!is_same(r, m, &r->files.v.v[i]->elf)) {
		note_file(r, m, true);
		return DL_CORE_FILE_NONE;
	}
	return i + 1;
}

struct dl_symfile *dl_core_file_of(struct dl_core_reading *r, const struct dl_core_map *m)
{
	const struct dl_core *core = r->core;
	const size_t at = (size_t)(m - core->maps.v);

	if (!r->map_file)
		r->map_file = calloc(core->maps.cnt, sizeof(*r->map_file));
	if (!r->map_file)
		return NULL;
	if (r->map_file[at] == DL_CORE_FILE_UNKNOWN) {
		int64_t found = DL_CORE_FILE_UNKNOWN;

		for (size_t i = 0; i < core->maps.cnt && found == DL_CORE_FILE_UNKNOWN; i++)
			if (r->map_file[i] != DL_CORE_FILE_UNKNOWN && !strcmp(core->maps.v[i].path, m->path))
				found = r->map_file[i];
		r->map_file[at] = found == DL_CORE_FILE_UNKNOWN ? open_mapped(r, m) : found;
	}
	return r->map_file[at] < 0 ? NULL : r->files.v.v[r->map_file[at] - 1];
}

static struct dl_symfile *vdso_file(struct dl_core_reading *r)
{
	if (r->vdso_file == DL_CORE_FILE_UNKNOWN) {
		const int fd = copy_memory(r, r->vdso, VDSO_MAX);

		const int64_t i = fd < 0 ? -ENOENT : dl_symfiles_add(&r->files, fd);

		r->vdso_file = i < 0 || r->files.v.v[i]->fd < 0 ? DL_CORE_FILE_NONE : i + 1;
	}
	return r->vdso_file < 0 ? NULL : r->files.v.v[r->vdso_file - 1];
}

/* What lies at a code address. False: nothing executable. */
struct code { const struct dl_core_map *map; struct dl_symfile *file; uint64_t off; bool vdso; };

static bool find_code(struct dl_core_reading *r, uint64_t addr, struct code *ret)
{
	const struct dl_core_seg *s = dl_core_seg_at(r, addr);

	*ret = (struct code){};
	if (!s || !(s->flags & PF_X))
		return false;
	if (r->vdso >= s->start && r->vdso < s->end) {
		ret->vdso = true;
		ret->file = vdso_file(r);
		ret->off = addr - r->vdso;
		return true;
	}
	ret->map = dl_core_map_at(r->core, addr);
	if (ret->map) {
		ret->file = dl_core_file_of(r, ret->map);
		ret->off = addr - ret->map->start + ret->map->off;
	}
	return true;
}

/* --- unwinding --------------------------------------------------------------------------------- */

/* A frame whose function's name is looked up when all stacks are known: a file's symbols are read once. */
struct pending { struct dl_symfile *file; uint64_t off; uint32_t thread, frame; bool back; };

struct work {
	struct dl_core_reading *r;
	struct dl_unwinder *u;
	struct dl_unwind_ops ops;
	uint64_t deadline;
	struct dl_frame frames[FRAMES_MAX];
	struct dl_unwind_regs regs[FRAMES_MAX];	/* of the dying thread's frames */
	size_t first;		/* of which those from here on are told */
	DL_VEC(struct pending) pending;
};

static bool read_memory(void *arg, uint64_t addr, void *buf, size_t sz)
{
	return !dl_core_mem(((struct work *)arg)->r, addr, buf, sz);
}

static bool code_at(void *arg, uint64_t addr, const struct dl_elf **ret_elf, uint64_t *ret_vaddr)
{
	struct code c;

	*ret_elf = NULL;
	if (!find_code(((struct work *)arg)->r, addr, &c))
		return false;
	if (c.file && dl_elf_vaddr(&c.file->elf, c.off, ret_vaddr))
		*ret_elf = &c.file->elf;
	return true;
}

static void keep_regs(void *arg, size_t frame, const struct dl_unwind_regs *regs)
{
	((struct work *)arg)->regs[frame] = *regs;
}

static int add_frame(struct work *w, struct dl_core_thread *t, const struct dl_frame *f)
{
	const uint64_t at = f->exact ? f->pc : f->pc - 1;	/* within the call, not behind a function's end */
	struct dl_core_frame *to = vec_push(&t->frames);
	struct dl_symwant *want;
	struct pending *p;
	struct code c;

	if (!to)
		return -ENOMEM;
	*to = (struct dl_core_frame){ .pc = f->pc, .how = f->how, .trampoline = f->trampoline };
	if (!find_code(w->r, at, &c))
		return 0;
	to->into = c.off + (f->exact ? 0 : 1);
	if (c.map || c.vdso) {
		to->path = strdup(c.vdso ? "[vdso]" : c.map->path);
		if (!to->path)
			return -ENOMEM;
	}
	if (!c.file)
		return 0;
	p = vec_push(&w->pending);
	want = vec_push(&c.file->wanted);
	if (!p || !want)
		return -ENOMEM;
	*p = (struct pending){ c.file, c.off, (uint32_t)(t - w->r->core->threads.v), (uint32_t)(t->frames.cnt - 1), !f->exact };
	want->off = c.off;
	return 0;
}

static int set_frames(struct work *w, struct dl_core_thread *t, const struct dl_frame *frames, size_t cnt)
{
	for (size_t i = 0; i < cnt; i++) {
		const int err = add_frame(w, t, &frames[i]);

		if (err)
			return err;
	}
	return 0;
}

static size_t unwind(struct work *w, struct dl_core_thread *t)
{
	enum dl_stack_end end;
	const size_t cnt = dl_unwind(w->u, &t->regs, &w->ops, w->deadline, w->frames, FRAMES_MAX, &end);

	t->end = (uint8_t)end;
	return cnt;
}

/* --- the first signal -------------------------------------------------------------------------- */

static bool is_fault(int32_t sig, int32_t code)
{
	return (sig == SIGSEGV || sig == SIGBUS || sig == SIGFPE || sig == SIGILL) && code > 0;
}

static void take_first(struct dl_core_reading *r, const struct dl_sigframe *sf)
{
	struct dl_core_thread *t = &r->core->threads.v[0];

	r->core->first = (struct dl_core_signal){ .sig = sf->sig, .code = sf->code, .has_addr = true, .addr = sf->addr,
						  .has_access = sf->has_error, .wrote = sf->error & 2 };
	t->regs = sf->regs;
	t->syscall = -1;
}

/* The outermost frame of a fault's handler among those found: index of the frame behind it; 0 none. */
static size_t find_handler(struct work *w, size_t cnt)
{
	for (size_t i = cnt; i-- > 0;) {
		struct dl_sigframe sf;

		if (!w->frames[i].trampoline ||
		    !dl_sigframe_read(&sf, w->r->core->machine, &w->ops, w->frames[i].sp) || !is_fault(sf.sig, sf.code))
			continue;
		take_first(w->r, &sf);
		return i + 1;
	}
	return 0;
}

/*
 * Where the way to the handler's frame is not known, by its looks: the siginfo of a fault, the user's
 * code segment, registers whose stack lies in memory. Handlers do not return, so it lies above.
 */
static bool scan_for_handler(struct work *w, uint64_t sp)
{
	const uint16_t machine = w->r->core->machine;
	uint8_t buf[SCAN_AT_ONCE];

	sp = (sp + 7) & ~UINT64_C(7);
	for (uint64_t at = sp; at < sp + SCAN_MAX; at += 8) {
		struct dl_sigframe sf;
		struct code c;

		if (!((at - sp) % sizeof(buf)) && dl_core_mem(w->r, at, buf, 8))
			return false;	/* the stack's end */
		if (dl_sigframe_read(&sf, machine, &w->ops, at) && is_fault(sf.sig, sf.code) && sf.code < 16 &&
		    sf.sig == w->r->core->last.sig && dl_core_seg_at(w->r, dl_unwind_sp(&sf.regs)) &&
		    (find_code(w->r, sf.regs.pc, &c) || sf.addr == sf.regs.pc)) {
			take_first(w->r, &sf);
			return true;
		}
	}
	return false;
}

static int dying_stack(struct work *w)
{
	struct dl_core *core = w->r->core;
	struct dl_core_thread *t = &core->threads.v[0];
	size_t cnt, from;

	w->ops.visit = keep_regs;
	cnt = unwind(w, t);
	from = find_handler(w, cnt);
	core->handler_frames = (uint32_t)from;
	if (!from && core->last.code <= 0 && is_fault(core->last.sig, 1) && scan_for_handler(w, t->sp)) {
		core->handler_frames = (uint32_t)cnt;
		cnt = unwind(w, t);
	}
	w->ops.visit = NULL;
	w->first = from;
	return set_frames(w, t, w->frames + from, cnt - from);
}

/* --- names ------------------------------------------------------------------------------------- */

static int find_names(struct work *w)
{
	vec_for_each(&w->r->files.v, f) {
		const int err = dl_symfile_resolve(&w->r->files, *f);

		if (err)
			return err;
	}
	vec_for_each(&w->pending, p) {
		struct dl_core_frame *f = &w->r->core->threads.v[p->thread].frames.v[p->frame];
		const char *name;
		uint64_t into;

		if (!dl_symfile_known(p->file, p->off, &name, &into) || !name)
			continue;
		f->function = strdup(name);
		if (!f->function)
			return -ENOMEM;
		f->into = into + (p->back ? 1 : 0);
	}
	return 0;
}

static int find_exception(const struct work *w)
{
	const struct dl_core_thread *t = &w->r->core->threads.v[0];

	for (size_t i = 0; i < t->frames.cnt; i++)
		if (t->frames.v[i].function && !strcmp(t->frames.v[i].function, "__cxa_throw"))
			return dl_core_find_exception(w->r, &w->regs[w->first + i]);
	return 0;
}

int dl_core_stacks(struct dl_core_reading *r)
{
	struct work *w = calloc(1, sizeof(*w));
	int err = w ? 0 : -ENOMEM;

	if (w) {
		*w = (struct work){ .r = r, .u = dl_unwinder_new(), .ops = { .read = read_memory, .code = code_at, .arg = w },
				    .deadline = dl_now_ns() + STACKS_NS };
		err = w->u ? dying_stack(w) : -ENOMEM;
	}
	for (size_t i = 1; i < r->core->threads.cnt && !err; i++) {
		struct dl_core_thread *t = &r->core->threads.v[i];
		const size_t cnt = unwind(w, t);

		err = set_frames(w, t, w->frames, cnt);
	}
	if (!err)
		err = find_names(w);
	if (!err)
		err = find_exception(w);
	if (w) {
		dl_unwinder_free(w->u);
		vec_free(&w->pending);
	}
	free(w);
	return err;
}

const char *dl_core_frame_text(const struct dl_core_frame *f, char *buf, size_t sz)
{
	const char *slash = f->path ? strrchr(f->path, '/') : NULL;
	const char *lib = slash ? slash + 1 : f->path;

	if (f->function)
		snprintf(buf, sz, "%s+0x%" PRIx64 "%s%s%s", f->function, f->into, lib ? " (" : "", lib ? lib : "", lib ? ")" : "");
	else if (lib)
		snprintf(buf, sz, "0x%" PRIx64 " (%s+0x%" PRIx64 ")", f->pc, lib, f->into);
	else
		snprintf(buf, sz, "0x%" PRIx64, f->pc);
	return buf;
}
