/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The notes of a core: signal, threads, registers, mapped files (fs/binfmt_elf.c, linux/elfcore.h). */
#include "forensic/core_int.h"

#include <elf.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

#include "base/cleanup.h"

enum {
	THREADS_MAX = 4096,
	MAPS_MAX = 1 << 20,
	/* struct elf_prstatus, the same on x86-64 and arm64 */
	PRSTATUS_SIG = 12, PRSTATUS_TID = 32, PRSTATUS_REGS = 112,
	/* struct elf_prpsinfo */
	PSINFO_UID = 16, PSINFO_PID = 24, PSINFO_PPID = 28, PSINFO_COMM = 40, PSINFO_ARGS = 56, PSINFO_SZ = 136,
	/* siginfo_t */
	SIGINFO_CODE = 8, SIGINFO_UNION = 16, SIGINFO_SZ = 32,
	X86_ORIG_AX = 15, X86_REGS = 27,
};

static uint32_t u32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static uint64_t u64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static int take_thread(struct dl_core_reading *r, const uint8_t *p, size_t sz)
{
	struct dl_core *core = r->core;
	const size_t cnt = core->machine == EM_X86_64 ? X86_REGS : DL_UNWIND_ARM64_WORDS;
	uint64_t words[DL_UNWIND_ARM64_WORDS];
	struct dl_core_thread *t;

	if (sz < PRSTATUS_REGS + cnt * sizeof(*words))
		return 0;
	core->thread_cnt++;
	if (core->threads.cnt >= THREADS_MAX)
		return 0;
	memcpy(words, p + PRSTATUS_REGS, cnt * sizeof(*words));
	t = vec_push(&core->threads);
	if (!t)
		return -ENOMEM;
	t->tid = u32(p + PRSTATUS_TID);
	dl_unwind_regs(&t->regs, core->machine, words, cnt);
	t->sp = dl_unwind_sp(&t->regs);
	t->syscall = core->machine == EM_X86_64 ? (int32_t)words[X86_ORIG_AX] : -2;
	if (t->syscall < -1)
		t->syscall = -2;
	/* Kernels before 3.7 have no NT_SIGINFO, and gcore writes none. */
	if (core->threads.cnt == 1 && !core->last.sig) {
		core->last.sig = (int32_t)(u32(p + PRSTATUS_SIG) & 0xffff);
		core->last.code = INT32_MIN;
	}
	return 0;
}

/* Signals whose siginfo holds an address when the kernel makes them. */
static bool has_address(int32_t sig)
{
	return sig == SIGSEGV || sig == SIGBUS || sig == SIGFPE || sig == SIGILL || sig == SIGTRAP;
}

static void take_siginfo(struct dl_core *core, const uint8_t *p, size_t sz)
{
	struct dl_core_signal *s = &core->last;

	if (sz < SIGINFO_SZ || (int32_t)u32(p) < 1)
		return;
	s->sig = (int32_t)u32(p);
	s->code = (int32_t)u32(p + SIGINFO_CODE);
	s->has_addr = s->code > 0 && has_address(s->sig);
	s->addr = s->has_addr ? u64(p + SIGINFO_UNION) : 0;
	s->sender_pid = s->code <= 0 ? u32(p + SIGINFO_UNION) : 0;
	s->sender_uid = s->code <= 0 ? u32(p + SIGINFO_UNION + 4) : 0;
}

static int take_psinfo(struct dl_core *core, const uint8_t *p, size_t sz)
{
	if (sz < PSINFO_SZ)
		return 0;
	core->uid = u32(p + PSINFO_UID);
	core->pid = u32(p + PSINFO_PID);
	core->ppid = u32(p + PSINFO_PPID);
	memcpy(core->comm, p + PSINFO_COMM, sizeof(core->comm) - 1);
	free(core->cmdline);
	core->cmdline = strndup((const char *)p + PSINFO_ARGS, PSINFO_SZ - PSINFO_ARGS);
	for (size_t n = core->cmdline ? strlen(core->cmdline) : 0; n && core->cmdline[n - 1] == ' '; n--)
		core->cmdline[n - 1] = '\0';
	return core->cmdline ? 0 : -ENOMEM;
}

static void take_auxv(struct dl_core_reading *r, const uint8_t *p, size_t sz)
{
	for (; sz >= 16; p += 16, sz -= 16) {
		if (u64(p) == AT_SYSINFO_EHDR)
			r->vdso = u64(p + 8);
		else if (u64(p) == AT_EXECFN)
			r->execfn = u64(p + 8);
		else if (u64(p) == AT_PAGESZ)
			r->core->page_sz = u64(p + 8);
	}
}

static int add_map(struct dl_core_reading *r, const uint8_t *at, uint64_t unit, const char *name, size_t len)
{
	static const char gone[] = " (deleted)";
	const size_t gone_len = sizeof(gone) - 1;
	struct dl_core_map *m = vec_push(&r->core->maps);

	if (!m)
		return -ENOMEM;
	m->start = u64(at);
	m->end = u64(at + 8);
	m->off = u64(at + 16) * unit;
	m->deleted = len > gone_len && !memcmp(name + len - gone_len, gone, gone_len);
	m->path = strndup(name, m->deleted ? len - gone_len : len);
	return m->path ? 0 : -ENOMEM;
}

/* count, unit of the offsets; count times start, end, offset; count names */
static int take_files(struct dl_core_reading *r, const uint8_t *p, size_t sz)
{
	const char *name, *end = (const char *)p + sz;
	uint64_t cnt, unit;

	if (sz < 16 || r->core->maps.cnt)
		return 0;
	cnt = u64(p);
	unit = u64(p + 8);
	if (cnt > (sz - 16) / 24 || cnt > MAPS_MAX)
		return 0;
	name = (const char *)p + 16 + cnt * 24;
	for (uint64_t i = 0; i < cnt && name < end; i++) {
		const uint8_t *at = p + 16 + i * 24;
		const size_t len = strnlen(name, (size_t)(end - name));

		if (u64(at) < u64(at + 8) && add_map(r, at, unit, name, len) < 0)
			return -ENOMEM;
		name += len + 1;
	}
	vec_sort(&r->core->maps);
	return 0;
}

static int take_note(struct dl_core_reading *r, uint32_t type, const uint8_t *p, size_t sz)
{
	struct dl_core *core = r->core;

	switch (type) {
	case NT_PRSTATUS:
		return take_thread(r, p, sz);
	case NT_PRPSINFO:
		return take_psinfo(core, p, sz);
	case NT_SIGINFO:
		take_siginfo(core, p, sz);
		return 0;
	case NT_AUXV:
		take_auxv(r, p, sz);
		return 0;
	case NT_FILE:
		return take_files(r, p, sz);
	case NT_ARM_SYSTEM_CALL:	/* follows the thread's NT_PRSTATUS */
		if (core->threads.cnt && sz >= 4)
			vec_last(&core->threads)->syscall = (int32_t)u32(p);
		return 0;
	}
	return 0;
}

int dl_core_notes(struct dl_core_reading *r, const uint8_t *p, size_t sz)
{
	size_t pos = 0;

	while (sz - pos >= sizeof(Elf64_Nhdr)) {
		Elf64_Nhdr nh;
		size_t name, desc, next;

		memcpy(&nh, p + pos, sizeof(nh));
		name = pos + sizeof(nh);
		desc = name + (((size_t)nh.n_namesz + 3) & ~(size_t)3);
		next = desc + (((size_t)nh.n_descsz + 3) & ~(size_t)3);
		if (desc > sz || nh.n_descsz > sz - desc)
			return 0;
		if ((nh.n_namesz == 5 && !memcmp(p + name, "CORE", 4)) ||
		    (nh.n_namesz == 6 && !memcmp(p + name, "LINUX", 5))) {
			const int err = take_note(r, nh.n_type, p + desc, nh.n_descsz);

			if (err)
				return err;
		}
		if (next > sz)
			return 0;
		pos = next;
	}
	return 0;
}
