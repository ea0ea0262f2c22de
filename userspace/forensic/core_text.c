/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Last words. Before glibc calls abort() for a broken heap, a smashed stack or a failed assert(), it
 * leaves the message in memory, and its address in __abort_msg, for this very use (glibc,
 * sysdeps/posix/libc_fatal.c and assert/assert.c). A C++ exception that nobody catches leaves itself.
 */
#include "forensic/core_int.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"

enum {
	SYMS_AT_ONCE = 512,
	MESSAGE_MAX = 1024,
	TYPE_MAX = 512,
};

static const char symbol[] = "__abort_msg";

/* The virtual address of the variable; 0 none. */
static uint64_t find_symbol(const struct dl_elf *e)
{
	Elf64_Sym syms[SYMS_AT_ONCE];

	for (uint64_t at = 0; at < e->sym_cnt; at += SYMS_AT_ONCE) {
		const size_t n = e->sym_cnt - at < SYMS_AT_ONCE ? (size_t)(e->sym_cnt - at) : SYMS_AT_ONCE;
		const ssize_t sz = (ssize_t)(n * sizeof(*syms));

		if (pread(e->fd, syms, (size_t)sz, (off_t)(e->sym_off + at * sizeof(*syms))) != sz)
			return 0;
		for (size_t i = 0; i < n; i++) {
			char name[sizeof(symbol) + 1];

			if (ELF64_ST_TYPE(syms[i].st_info) == STT_OBJECT && syms[i].st_value &&
			    !dl_elf_name(e, syms[i].st_name, name, sizeof(name)) && !strcmp(name, symbol))
				return syms[i].st_value;
		}
	}
	return 0;
}

static const struct dl_core_map *find_libc(const struct dl_core *core)
{
	vec_for_each(&core->maps, m) {
		const char *slash = strrchr(m->path, '/');

		if (!m->off && slash && (!strncmp(slash, "/libc.so", 8) || !strncmp(slash, "/libc-2", 7)))
			return m;
	}
	return NULL;
}

int dl_core_find_abort(struct dl_core_reading *r)
{
	const struct dl_core_map *m = find_libc(r->core);
	const struct dl_symfile *f = m ? dl_core_file_of(r, m) : NULL;
	const uint64_t vaddr = f ? find_symbol(&f->elf) : 0;
	uint64_t addr;

	if (!vaddr || !f->elf.load_cnt)
		return 0;
	/* struct abort_msg_s { unsigned int size; char msg[]; } */
	if (dl_core_mem(r, m->start - f->elf.load[0].vaddr + vaddr, &addr, sizeof(addr)) || !addr)
		return 0;
	r->core->abort_text = dl_core_mem_text(r, addr + sizeof(uint32_t), MESSAGE_MAX);
	return 0;
}

/* --- exceptions -------------------------------------------------------------------------------- */

/* A text that lies in a file's read-only part, which cores leave out. */
static bool file_text(struct dl_core_reading *r, uint64_t addr, char *buf, size_t sz)
{
	const struct dl_core_map *m = dl_core_map_at(r->core, addr);
	const struct dl_symfile *f = m ? dl_core_file_of(r, m) : NULL;
	const ssize_t n = f ? pread(f->fd, buf, sz - 1, (off_t)(addr - m->start + m->off)) : -1;

	if (n < 1)
		return false;
	buf[n] = '\0';
	return strlen(buf) < (size_t)n && *buf;
}

/*
 * Is there an object with a virtual table at the address? Its type's name then (Itanium C++ ABI: the word before
 * the table is the type_info, whose second word is the name).
 */
static bool type_of(struct dl_core_reading *r, uint64_t addr, char name[TYPE_MAX])
{
	uint64_t table, info[2];

	if (addr & 7 || dl_core_mem(r, addr, &table, sizeof(table)) || table & 7 || !dl_core_map_at(r->core, table) ||
	    dl_core_mem(r, table - 8, &info[0], 8) || !dl_core_map_at(r->core, info[0]) ||
	    dl_core_mem(r, info[0] + 8, &info[1], 8) || !file_text(r, info[1], name, TYPE_MAX))
		return false;
	for (const char *p = name; *p; p++)
		if (*p <= ' ' || *p > '~')
			return false;
	return true;
}

/* "std::runtime_error" of "St13runtime_error" */
static char *type_name(struct dl_core_reading *r, const char *name)
{
	static const char prefix[] = "typeinfo name for ";
	char mangled[TYPE_MAX + 8];
	char *text;

	snprintf(mangled, sizeof(mangled), "_ZTS%s", name + (*name == '*'));
	text = dl_symfiles_readable(&r->files, mangled);
	if (text && !strncmp(text, prefix, sizeof(prefix) - 1))
		memmove(text, text + sizeof(prefix) - 1, strlen(text) - sizeof(prefix) + 2);
	else if (text)
		memmove(text, text + 4, strlen(text) - 3);
	return text;
}

/* Behind the table, std::runtime_error has a pointer to its message, and c10::Error, PyTorch's own, has a std::string,
 * which begins with one. */
static char *message_of(const struct dl_core_reading *r, uint64_t object)
{
	uint64_t addr;

	return dl_core_mem(r, object + 8, &addr, sizeof(addr)) ? NULL : dl_core_mem_text(r, addr, MESSAGE_MAX);
}

/*
 * libstdc++ keeps the object, or the header before it, in a register that calls preserve (libsupc++/eh_throw.cc,
 * unwind-cxx.h). The first that is an object with a type is the one.
 */
int dl_core_find_exception(struct dl_core_reading *r, const struct dl_unwind_regs *regs)
{
	static const uint8_t x86[] = { 3, 6, 12, 13, 14, 15 }, arm64[] = { 19, 20, 21, 22, 23, 24, 25, 26, 27, 28 };
	static const uint64_t before[] = { 0, 0x20, 0x80 };	/* the object itself; its unwinding header; all of its header */
	const bool is_x86 = regs->machine == EM_X86_64;

	for (size_t i = 0; i < (is_x86 ? sizeof(x86) : sizeof(arm64)); i++) {
		const int reg = is_x86 ? x86[i] : arm64[i];

		for (size_t j = 0; j < ARRAY_SIZE(before) && regs->valid >> reg & 1; j++) {
			const uint64_t object = regs->r[reg] + before[j];
			char name[TYPE_MAX];

			if (!type_of(r, object, name))
				continue;
			r->core->exception = type_name(r, name);
			r->core->exception_text = message_of(r, object);
			return r->core->exception ? 0 : -ENOMEM;
		}
	}
	return 0;
}
