/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Addresses of functions by name, in a library of the target: its file is not trusted. */
#include "capture/inject_priv.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "capture/elf.h"

#define TABLE_MAX (16U << 20)	/* libc's have some 200 KiB */

/* NULL without memory, or when the file is shorter than it says. One byte more, a NUL. */
static void *read_table(int fd, uint64_t off, uint64_t sz)
{
	char *buf = malloc(sz + 1);
	uint64_t have = 0;

	while (buf && have < sz) {
		const ssize_t n = pread(fd, buf + have, sz - have, (off_t)(off + have));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			free(buf);
			return NULL;
		}
		have += (uint64_t)n;
	}
	if (buf)
		buf[sz] = '\0';
	return buf;
}

int inject_symbols(int elf_fd, const char *const *names, uint64_t *ret, size_t cnt)
{
	_cleanup_free_ Elf64_Sym *syms = NULL;
	_cleanup_free_ char *strs = NULL;
	struct dl_elf e;
	int err = dl_elf_read(&e, elf_fd);

	if (err)
		return err;
	if (e.sym_cnt > TABLE_MAX / sizeof(*syms) || e.str_sz > TABLE_MAX)
		return -EFBIG;
	syms = read_table(elf_fd, e.sym_off, e.sym_cnt * sizeof(*syms));
	strs = read_table(elf_fd, e.str_off, e.str_sz);
	if (!syms || !strs)
		return -ENOEXEC;
	for (uint64_t i = 0; i < e.sym_cnt; i++) {
		const Elf64_Sym *sym = &syms[i];
		const char *name;

		if (sym->st_shndx == SHN_UNDEF || ELF64_ST_TYPE(sym->st_info) != STT_FUNC ||
		    ELF64_ST_BIND(sym->st_info) == STB_LOCAL || sym->st_name >= e.str_sz)
			continue;
		name = strs + sym->st_name;
		for (size_t k = 0; k < cnt; k++) {
			const size_t len = strlen(names[k]);

			/* .symtab names versions: dlopen@@GLIBC_2.34 */
			if (!strncmp(name, names[k], len) && (!name[len] || name[len] == '@'))
				ret[k] = sym->st_value;
		}
	}
	return 0;
}
