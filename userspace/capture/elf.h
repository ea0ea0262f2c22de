/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What the recorder needs of an ELF file: build-id and function names. The file belongs to the
 * target and is not trusted: it is read in pieces (a mapping would end the recorder with SIGBUS
 * when the file is cut short), every number in it is checked, and memory does not depend on its
 * size: symbol tables are gone through once for many addresses.
 */
#ifndef DLBPF_CAPTURE_ELF_H
#define DLBPF_CAPTURE_ELF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DL_ELF_LOADS_MAX = 16, DL_BUILD_ID_MAX = 32 };

struct dl_elf {
	int fd;			/* not owned */
	uint64_t size;
	uint8_t build_id[DL_BUILD_ID_MAX];
	uint32_t build_id_sz;
	uint32_t load_cnt;
	struct { uint64_t vaddr, off, sz; } load[DL_ELF_LOADS_MAX];
	uint64_t sym_off, sym_cnt;	/* .symtab, else .dynsym; 0: no names */
	uint64_t str_off, str_sz;
	uint16_t machine;		/* EM_* */
	uint64_t eh_hdr_vaddr, eh_hdr_sz;	/* .eh_frame_hdr; 0: none */
};

/* Reads the headers of a 64-bit file; -ENOEXEC when it is no such file or malformed. */
int dl_elf_read(struct dl_elf *ret, int fd);

/* Virtual address of an offset in the file; false when no segment holds it. */
bool dl_elf_vaddr(const struct dl_elf *e, uint64_t file_off, uint64_t *ret);

struct dl_elf_query {
	uint64_t vaddr;		/* in: sorted */
	uint64_t value;		/* out: start of the function; meaningless when not found */
	uint64_t size;		/* out: of the function; 0: not found */
	uint32_t name;		/* out: for dl_elf_name */
	uint8_t bind;
};

/* Finds the function of every address, in one pass. Symbols without a size are not believed. */
int dl_elf_resolve(const struct dl_elf *e, struct dl_elf_query *q, size_t cnt);

/* The symbol's name, clipped to sz; -errno. */
int dl_elf_name(const struct dl_elf *e, uint32_t name, char *buf, size_t sz);

#endif
