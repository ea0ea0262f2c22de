/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * glibc's last words. Before it calls abort() for a broken heap, a smashed stack or a failed assert(), it
 * leaves the message in memory, and its address in __abort_msg, for this very use (glibc,
 * sysdeps/posix/libc_fatal.c and assert/assert.c).
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
