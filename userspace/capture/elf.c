/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Reads ELF files by pread, see elf(5). */
#include "capture/elf.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"

enum {
	PHDRS_MAX = 256,
	NOTE_MAX = 4096,
	SYMS_AT_ONCE = 2048,
};

#define SYMS_MAX (UINT64_C(64) << 20)	/* gone through in one file */

/* Whole, or it is no such file. */
static int read_full(int fd, void *buf, size_t sz, uint64_t off)
{
	const int err = dl_read_at(fd, buf, sz, off);

	return err == -ENODATA ? -ENOEXEC : err;
}

static bool inside(const struct dl_elf *e, uint64_t off, uint64_t sz)
{
	return off <= e->size && sz <= e->size - off;
}

/* A PT_NOTE segment is a list of notes, each padded to 4 bytes (8 where the segment says so). */
static void find_build_id(struct dl_elf *e, const Elf64_Phdr *ph)
{
	const uint64_t align = ph->p_align == 8 ? 8 : 4;
	uint64_t sz = ph->p_filesz < NOTE_MAX ? ph->p_filesz : NOTE_MAX, pos = 0;
	_Alignas(8) char buf[NOTE_MAX];

	if (!inside(e, ph->p_offset, sz) || read_full(e->fd, buf, sz, ph->p_offset))
		return;
	while (pos + sizeof(Elf64_Nhdr) <= sz) {
		Elf64_Nhdr nh;
		uint64_t name, desc;

		memcpy(&nh, buf + pos, sizeof(nh));
		name = pos + sizeof(nh);
		desc = (name + nh.n_namesz + align - 1) & ~(align - 1);
		if (desc > sz || nh.n_descsz > sz - desc)
			return;
		if (nh.n_type == NT_GNU_BUILD_ID && nh.n_namesz == 4 && !memcmp(buf + name, "GNU", 4)) {
			e->build_id_sz = nh.n_descsz < DL_BUILD_ID_MAX ? nh.n_descsz : DL_BUILD_ID_MAX;
			memcpy(e->build_id, buf + desc, e->build_id_sz);
			return;
		}
		pos = (desc + nh.n_descsz + align - 1) & ~(align - 1);
	}
}

static int read_segments(struct dl_elf *e, const Elf64_Ehdr *eh)
{
	if (eh->e_phentsize != sizeof(Elf64_Phdr) || eh->e_phnum > PHDRS_MAX)
		return -ENOEXEC;
	for (unsigned int i = 0; i < eh->e_phnum; i++) {
		const uint64_t off = eh->e_phoff + (uint64_t)i * sizeof(Elf64_Phdr);
		Elf64_Phdr ph;

		if (!inside(e, off, sizeof(ph)) || read_full(e->fd, &ph, sizeof(ph), off))
			return -ENOEXEC;
		if (ph.p_type == PT_NOTE && !e->build_id_sz)
			find_build_id(e, &ph);
		if (ph.p_type == PT_GNU_EH_FRAME && !e->eh_hdr_sz) {
			e->eh_hdr_vaddr = ph.p_vaddr;
			e->eh_hdr_sz = ph.p_filesz;
		}
		if (ph.p_type == PT_LOAD && e->load_cnt < DL_ELF_LOADS_MAX) {
			e->load[e->load_cnt].vaddr = ph.p_vaddr;
			e->load[e->load_cnt].off = ph.p_offset;
			e->load[e->load_cnt++].sz = ph.p_filesz;
		}
	}
	return 0;
}

/* No sections, or broken ones: no names, which is no reason to refuse the file. */
static void find_symbols(struct dl_elf *e, const Elf64_Ehdr *eh)
{
	_cleanup_free_ Elf64_Shdr *sh = NULL;
	const Elf64_Shdr *sym = NULL, *str;
	const size_t sz = (size_t)eh->e_shnum * sizeof(*sh);

	if (eh->e_shentsize != sizeof(*sh) || !eh->e_shnum ||
	    !inside(e, eh->e_shoff, sz))
		return;
	sh = malloc(sz);
	if (!sh || read_full(e->fd, sh, sz, eh->e_shoff))
		return;
	for (unsigned int i = 0; i < eh->e_shnum; i++) {
		if (sh[i].sh_type == SHT_SYMTAB || (sh[i].sh_type == SHT_DYNSYM && !sym))
			sym = &sh[i];
		if (sh[i].sh_type == SHT_SYMTAB)
			break;
	}
	if (!sym || sym->sh_entsize != sizeof(Elf64_Sym) || sym->sh_link >= eh->e_shnum)
		return;
	str = &sh[sym->sh_link];
	if (str->sh_type != SHT_STRTAB || !inside(e, sym->sh_offset, sym->sh_size) ||
	    !inside(e, str->sh_offset, str->sh_size))
		return;
	e->sym_off = sym->sh_offset;
	e->sym_cnt = sym->sh_size / sizeof(Elf64_Sym);
	if (e->sym_cnt > SYMS_MAX)
		e->sym_cnt = SYMS_MAX;
	e->str_off = str->sh_offset;
	e->str_sz = str->sh_size;
}

int dl_elf_read(struct dl_elf *ret, int fd)
{
	struct dl_elf e = { .fd = fd };
	Elf64_Ehdr eh;
	struct stat st;
	int err;

	if (fstat(fd, &st))
		return -errno;
	e.size = (uint64_t)st.st_size;
	err = read_full(fd, &eh, sizeof(eh), 0);
	if (err)
		return err;
	if (memcmp(eh.e_ident, ELFMAG, SELFMAG) || eh.e_ident[EI_CLASS] != ELFCLASS64 ||
	    eh.e_ident[EI_DATA] != ELFDATA2LSB)
		return -ENOEXEC;
	e.machine = eh.e_machine;
	err = read_segments(&e, &eh);
	if (err)
		return err;
	find_symbols(&e, &eh);
	*ret = e;
	return 0;
}

bool dl_elf_vaddr(const struct dl_elf *e, uint64_t file_off, uint64_t *ret)
{
	for (uint32_t i = 0; i < e->load_cnt; i++) {
		if (file_off >= e->load[i].off && file_off - e->load[i].off < e->load[i].sz) {
			*ret = file_off - e->load[i].off + e->load[i].vaddr;
			return true;
		}
	}
	return false;
}

/* A function that lies within another is meant, then the name that others can link to. */
static bool is_better(const struct dl_elf_query *q, const Elf64_Sym *sym)
{
	static const uint8_t rank[] = { [STB_LOCAL] = 0, [STB_WEAK] = 1, [STB_GLOBAL] = 2 };
	const uint8_t bind = ELF64_ST_BIND(sym->st_info);

	if (!q->size || sym->st_size != q->size)
		return !q->size || sym->st_size < q->size;
	return (bind < ARRAY_SIZE(rank) ? rank[bind] : 0) > (q->bind < ARRAY_SIZE(rank) ? rank[q->bind] : 0);
}

static void try_symbol(const Elf64_Sym *sym, struct dl_elf_query *q, size_t cnt)
{
	const uint8_t type = ELF64_ST_TYPE(sym->st_info);
	const uint64_t start = sym->st_value, end = start + sym->st_size;
	size_t lo = 0, hi = cnt;

	if ((type != STT_FUNC && type != STT_GNU_IFUNC) || sym->st_shndx == SHN_UNDEF || end <= start ||
	    start > q[cnt - 1].vaddr || end <= q[0].vaddr)
		return;
	while (lo < hi) {
		const size_t mid = (lo + hi) / 2;

		if (q[mid].vaddr < start)
			lo = mid + 1;
		else
			hi = mid;
	}
	for (; lo < cnt && q[lo].vaddr < end; lo++) {
		if (!is_better(&q[lo], sym))
			continue;
		q[lo].value = start;
		q[lo].size = sym->st_size;
		q[lo].name = sym->st_name;
		q[lo].bind = ELF64_ST_BIND(sym->st_info);
	}
}

int dl_elf_resolve(const struct dl_elf *e, struct dl_elf_query *q, size_t cnt)
{
	_cleanup_free_ Elf64_Sym *syms = NULL;

	for (size_t i = 0; i < cnt; i++)
		q[i].size = 0;
	if (!cnt || !e->sym_cnt)
		return 0;
	syms = malloc(SYMS_AT_ONCE * sizeof(*syms));
	if (!syms)
		return -ENOMEM;
	for (uint64_t at = 0; at < e->sym_cnt; at += SYMS_AT_ONCE) {
		const uint64_t n = e->sym_cnt - at < SYMS_AT_ONCE ? e->sym_cnt - at : SYMS_AT_ONCE;
		int err;

		err = read_full(e->fd, syms, n * sizeof(*syms), e->sym_off + at * sizeof(*syms));
		if (err)
			return err;
		for (uint64_t i = 0; i < n; i++)
			try_symbol(&syms[i], q, cnt);
	}
	return 0;
}

int dl_elf_name(const struct dl_elf *e, uint32_t name, char *buf, size_t sz)
{
	uint64_t len = sz - 1;
	int err;

	if (name >= e->str_sz)
		return -ENOEXEC;
	if (len > e->str_sz - name)
		len = e->str_sz - name;
	err = read_full(e->fd, buf, len, e->str_off + name);
	if (err)
		return err;
	buf[len] = '\0';
	return *buf ? 0 : -ENOENT;
}
