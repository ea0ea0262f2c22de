/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#include "capture/faultstack.h"

#include <elf.h>
#include <errno.h>
#include <string.h>

#include "capture/proc.h"

#if defined(__x86_64__)
#define MACHINE EM_X86_64
#else
#define MACHINE EM_AARCH64
#endif

/* Files may lie on slow storage, and other stacks wait. */
#define UNWIND_NS (UINT64_C(200) * 1000000)

struct view {
	const struct dl_fault_stack *fs;
	const struct dl_space *sp;
	const struct dl_symfiles *files;
	uint64_t start;		/* the stack pointer */
};

static bool read_stack(void *arg, uint64_t addr, void *buf, size_t sz)
{
	const struct view *v = arg;
	const uint64_t into = addr - v->start, have = v->fs->stack_sz;

	if (addr < v->start || into > have || sz > have - into)
		return false;
	memcpy(buf, v->fs->stack + into, sz);
	return true;
}

static bool code_at(void *arg, uint64_t addr, const struct dl_elf **ret_elf, uint64_t *ret_vaddr)
{
	const struct view *v = arg;
	const struct dl_seg *seg = dl_space_find(v->sp, addr);
	const struct dl_symfile *f = seg && seg->file != DL_NO_FILE ? v->files->v.v[seg->file] : NULL;

	*ret_elf = f && f->fd >= 0 && dl_elf_vaddr(&f->elf, addr - seg->start + seg->off, ret_vaddr) ? &f->elf : NULL;
	return seg != NULL;
}

static bool regs_of(struct dl_unwind_regs *ret, const struct dl_fault_stack *fs)
{
	return fs->words <= DL_FAULT_WORDS && fs->stack_sz <= DL_FAULT_STACK_SZ &&
	       dl_unwind_regs(ret, MACHINE, fs->regs, fs->words);
}

int dl_fault_mapping(const struct dl_fault_stack *fs, const struct dl_space *sp, const struct dl_symfiles *files)
{
	struct dl_unwind_regs regs;
	const struct dl_seg *seg = regs_of(&regs, fs) ? dl_space_find(sp, regs.pc) : NULL;
	uint64_t ino;

	if (!seg || !fs->map_start)
		return seg ? 0 : -1;
	ino = seg->file == DL_NO_FILE ? 0 : files->v.v[seg->file]->ino;
	if (!ino != !fs->map_ino || (ino && seg->off - seg->start != fs->map_off - fs->map_start))
		return -1;
	return ino == fs->map_ino;
}

int64_t dl_fault_unwind(const struct dl_fault_stack *fs, const struct dl_space *sp, const struct dl_symfiles *files,
			struct dl_frame frames[DL_FAULT_FRAMES_MAX], enum dl_stack_end *ret_end)
{
	struct view v = { .fs = fs, .sp = sp, .files = files };
	const struct dl_unwind_ops ops = { .read = read_stack, .code = code_at, .arg = &v };
	struct dl_unwind_regs regs;
	struct dl_unwinder *u;
	size_t cnt;

	*ret_end = DL_STACK_NO_INFO;
	if (!regs_of(&regs, fs))
		return 0;
	v.start = dl_unwind_sp(&regs);
	if (dl_fault_mapping(fs, sp, files) < 0 && dl_space_find(sp, regs.pc))
		v.sp = NULL;
	u = dl_unwinder_new();
	if (!u)
		return -ENOMEM;
	cnt = dl_unwind(u, &regs, &ops, dl_now_ns() + UNWIND_NS, frames, DL_FAULT_FRAMES_MAX, ret_end);
	dl_unwinder_free(u);
	return (int64_t)cnt;
}

/* The header names the thread, which the stacks of samples do not. */
static int emit_frames(struct dl_sink *sink, const struct dl_fault_stack *fs, uint32_t id, const struct dl_frame *frames,
		       size_t cnt)
{
	struct {
		struct dl_ev_stack ev;
		uint64_t addr[DL_FAULT_FRAMES_MAX];
	} out = { .ev = DL_EVENT_INIT(stack, DL_EV_STACK, fs->h.ts, fs->h.pid, fs->h.tid) };

	if (cnt > DL_FAULT_FRAMES_MAX)
		cnt = DL_FAULT_FRAMES_MAX;
	out.ev.h.size = (uint16_t)(sizeof(out.ev) + cnt * sizeof(*out.addr));
	out.ev.id = id;
	out.ev.user_cnt = (uint16_t)cnt;
	for (size_t i = 0; i < cnt; i++)
		out.addr[i] = frames[i].pc;
	return sink->emit(sink, &out.ev.h);
}

int dl_fault_emit(struct dl_sink *sink, const struct dl_fault_stack *fs, uint32_t stack_id, const struct dl_frame *frames,
		  size_t cnt, enum dl_stack_end end)
{
	struct dl_ev_crash_stack ev = DL_EVENT_INIT(crash_stack, DL_EV_CRASH_STACK, fs->h.ts, fs->h.pid, fs->h.tid);
	struct dl_unwind_regs regs;
	int err;

	ev.sig = fs->sig;
	ev.code = fs->code;
	ev.addr = fs->addr;
	ev.ip = regs_of(&regs, fs) ? regs.pc : 0;
	ev.stack = cnt ? stack_id : 0;
	ev.end = end;
	err = cnt ? emit_frames(sink, fs, stack_id, frames, cnt) : 0;
	return err ? err : sink->emit(sink, &ev.h);
}
