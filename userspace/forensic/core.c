/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Reads a core file: its headers, what memory it holds, and then the rest in the order of core_int.h. */
#include "forensic/core.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "forensic/core_int.h"

enum {
	SEGS_MAX = 1 << 20,
	TEXT_MAX = 4096,
	PHDRS_AT_ONCE = 512,
	/* kept of a packed core */
	SEG_WHOLE_MAX = 1 << 20,	/* a segment up to this size */
	STACK_MAX = 1 << 20,		/* of each stack, from its pointer on */
	HEAD_MAX = 8192,		/* of each segment */
	BELOW_SP = 256,
};

#define HEADERS_MAX (UINT64_C(256) << 20)	/* headers and notes together */
#define KEPT_MAX (UINT64_C(2) << 30)

/* --- memory ------------------------------------------------------------------------------------ */

const struct dl_core_seg *dl_core_seg_at(const struct dl_core_reading *r, uint64_t addr)
{
	const size_t i = addr == UINT64_MAX ? 0 : vec_first_at(&r->segs, addr + 1);

	return i && addr < r->segs.v[i - 1].end ? &r->segs.v[i - 1] : NULL;
}

int dl_core_mem(const struct dl_core_reading *r, uint64_t addr, void *buf, size_t sz)
{
	while (sz) {
		const struct dl_core_seg *s = dl_core_seg_at(r, addr);
		const uint64_t into = s ? addr - s->start : 0;
		size_t n;
		int err;

		if (!s || into >= s->file_sz)
			return -ENODATA;
		n = sz < s->file_sz - into ? sz : (size_t)(s->file_sz - into);
		err = dl_core_pread(&r->file, buf, n, s->off + into);
		if (err)
			return err;
		buf = (char *)buf + n;
		addr += n;
		sz -= n;
	}
	return 0;
}

char *dl_core_mem_text(const struct dl_core_reading *r, uint64_t addr, size_t max)
{
	char buf[TEXT_MAX];
	size_t len = 0;

	if (max > sizeof(buf) - 1)
		max = sizeof(buf) - 1;
	/* Byte by byte: where the memory ends is not known, and texts are short. */
	while (len < max && !dl_core_mem(r, addr + len, &buf[len], 1) && buf[len])
		len++;
	while (len && (buf[len - 1] == '\n' || buf[len - 1] == ' '))
		len--;
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)buf[i] < ' ')
			buf[i] = ' ';
	return len ? strndup(buf, len) : NULL;
}

/* --- headers ----------------------------------------------------------------------------------- */

static int refuse(struct dl_core_reading *r, const char *why)
{
	return dl_fail(r->diag, -EINVAL, "%s is not a core file: %s", r->core->path, why);
}

static int cut_off(struct dl_core_reading *r, const char *before)
{
	return dl_fail(r->diag, -EINVAL, "the core %s is cut off before %s: nothing can be read from it (ulimit -c, "
		       "ProcessSizeMax= and ExternalSizeMax= in coredump.conf, or a full disk)", r->core->path, before);
}

static const char *machine_name(uint16_t machine)
{
	switch (machine) {
	case EM_386: return "32-bit x86";
	case EM_ARM: return "32-bit Arm";
	case EM_PPC64: return "POWER";
	case EM_S390: return "s390";
	case EM_RISCV: return "RISC-V";
	case EM_X86_64: return "x86-64";
	case EM_AARCH64: return "arm64";
	}
	return NULL;
}

static int refuse_machine(struct dl_core_reading *r, const Elf64_Ehdr *eh)
{
	const char *name = eh->e_ident[EI_DATA] == ELFDATA2LSB ? machine_name(eh->e_machine) : "a big-endian machine";
	char number[32];

	snprintf(number, sizeof(number), "machine %u", eh->e_machine);
	return dl_fail(r->diag, -ENOTSUP, "the core %s is of a %s program for %s; 64-bit programs for x86-64 and arm64 can "
		       "be read", r->core->path, eh->e_ident[EI_CLASS] == ELFCLASS32 ? "32-bit" : "64-bit",
		       name ? name : number);
}

/* More segments than the header can count are counted in the first section's header, at the end of the file. */
static int count_segments(struct dl_core_reading *r, const Elf64_Ehdr *eh)
{
	Elf64_Shdr sh;
	int err;

	r->phdr_cnt = eh->e_phnum;
	if (eh->e_phnum != PN_XNUM)
		return 0;
	err = dl_core_pread(&r->file, &sh, sizeof(sh), eh->e_shoff);
	if (err)
		return dl_fail(r->diag, -EINVAL, "the core %s has so many mappings that it has to be whole and unpacked to be "
			       "read", r->core->path);
	r->phdr_cnt = sh.sh_info;
	return 0;
}

static int read_header(struct dl_core_reading *r)
{
	Elf64_Ehdr eh;
	int err;

	if (dl_core_pread(&r->file, &eh, sizeof(eh), 0))
		return refuse(r, "it is too short");
	if (memcmp(eh.e_ident, ELFMAG, SELFMAG))
		return refuse(r, "it does not begin as one");
	if (eh.e_ident[EI_DATA] != ELFDATA2LSB || eh.e_ident[EI_CLASS] != ELFCLASS64 ||
	    (eh.e_machine != EM_X86_64 && eh.e_machine != EM_AARCH64))
		return refuse_machine(r, &eh);
	if (eh.e_type != ET_CORE)
		return refuse(r, "it is a program or a library");
	r->core->machine = eh.e_machine;
	err = count_segments(r, &eh);
	if (err)
		return err;
	r->phdr_off = eh.e_phoff;
	if (eh.e_phentsize != sizeof(Elf64_Phdr) || !r->phdr_cnt || r->phdr_cnt > SEGS_MAX || r->phdr_off > HEADERS_MAX)
		return refuse(r, "its list of segments is broken");
	return 0;
}

static int add_segment(struct dl_core_reading *r, const Elf64_Phdr *ph)
{
	const uint64_t end = ph->p_vaddr + ph->p_memsz;
	struct dl_core_seg *s;
	struct dl_core_part *n;

	if (ph->p_filesz && ph->p_offset <= UINT64_MAX - ph->p_filesz && ph->p_offset + ph->p_filesz > r->core->want_sz)
		r->core->want_sz = ph->p_offset + ph->p_filesz;
	if (ph->p_type == PT_NOTE && ph->p_filesz) {
		n = vec_push(&r->notes);
		if (!n)
			return -ENOMEM;
		*n = (struct dl_core_part){ ph->p_offset, ph->p_offset + ph->p_filesz };
	}
	if (ph->p_type != PT_LOAD || end <= ph->p_vaddr)
		return 0;
	s = vec_push(&r->segs);
	if (!s)
		return -ENOMEM;
	*s = (struct dl_core_seg){ ph->p_vaddr, end, ph->p_offset, ph->p_filesz, ph->p_flags };
	if (s->file_sz > ph->p_memsz)
		s->file_sz = ph->p_memsz;
	return 0;
}

static int read_segments(struct dl_core_reading *r)
{
	Elf64_Phdr ph[PHDRS_AT_ONCE];

	for (uint64_t i = 0; i < r->phdr_cnt; i += ARRAY_SIZE(ph)) {
		const size_t n = r->phdr_cnt - i < ARRAY_SIZE(ph) ? (size_t)(r->phdr_cnt - i) : ARRAY_SIZE(ph);

		if (dl_core_pread(&r->file, ph, n * sizeof(*ph), r->phdr_off + i * sizeof(*ph)))
			return cut_off(r, "the end of its list of segments");
		for (size_t j = 0; j < n; j++)
			if (add_segment(r, &ph[j]) < 0)
				return dl_oom(r->diag);
	}
	vec_sort(&r->segs);
	r->core->map_cnt = r->segs.cnt;
	return 0;
}

static int read_notes(struct dl_core_reading *r)
{
	vec_for_each(&r->notes, n) {
		const uint64_t end = n->end < r->file.sz ? n->end : r->file.sz;
		_cleanup_free_ uint8_t *buf = NULL;
		int err;

		if (end <= n->off || end - n->off > HEADERS_MAX)
			continue;
		buf = malloc(end - n->off);
		if (!buf)
			return dl_oom(r->diag);
		if (dl_core_pread(&r->file, buf, end - n->off, n->off))
			continue;
		err = dl_core_notes(r, buf, end - n->off);
		if (err)
			return dl_oom(r->diag);
	}
	return r->core->threads.cnt ? 0 : cut_off(r, "its notes");
}

/* One stage; *ret: the bytes that have to be there for the next one, 0 after the last. */
static int next_stage(void *arg, uint64_t *ret)
{
	struct dl_core_reading *r = arg;
	uint64_t need = 0;
	int err = 0;

	switch (r->stage) {
	case DL_CORE_BEGIN:
		need = sizeof(Elf64_Ehdr);
		break;
	case DL_CORE_HEADER:
		err = read_header(r);
		need = r->phdr_off + r->phdr_cnt * sizeof(Elf64_Phdr);
		break;
	case DL_CORE_SEGMENTS:
		err = read_segments(r);
		need = 1;
		vec_for_each(&r->notes, n)
			need = n->end > need && n->end < HEADERS_MAX ? n->end : need;
		break;
	default:
		err = read_notes(r);
	}
	r->stage++;
	*ret = need;
	return err;
}

static int keep(struct dl_core_reading *r, const struct dl_core_seg *s, uint64_t from, uint64_t sz, uint64_t *left)
{
	if (from >= s->file_sz)
		return 0;
	if (sz > s->file_sz - from)
		sz = s->file_sz - from;
	if (sz > *left)
		return 0;
	*left -= sz;
	return dl_core_part_add(&r->file, s->off + from, sz);
}

/* Stacks first: they are what must not be missing. */
static int keep_needed(void *arg)
{
	struct dl_core_reading *r = arg;
	uint64_t left = KEPT_MAX;
	int err = 0;

	vec_for_each(&r->core->threads, t) {
		const struct dl_core_seg *s = dl_core_seg_at(r, t->sp);
		const uint64_t into = s ? t->sp - s->start : 0;

		if (s && !err)
			err = keep(r, s, into > BELOW_SP ? into - BELOW_SP : 0, STACK_MAX, &left);
	}
	vec_for_each(&r->segs, s)
		if (!err)
			err = keep(r, s, 0, s->file_sz <= SEG_WHOLE_MAX ? s->file_sz : HEAD_MAX, &left);
	return err;
}

/* --- all of it --------------------------------------------------------------------------------- */

static void reading_free(struct dl_core_reading *r)
{
	dl_core_file_close(&r->file);
	dl_symfiles_fini(&r->files);
	vec_free(&r->segs);
	vec_free(&r->notes);
	free(r->map_file);
}

static int read_all(struct dl_core_reading *r)
{
	const struct dl_core_plan plan = { .need = next_stage, .keep = keep_needed, .arg = r };
	struct dl_core *core = r->core;
	int err;

	err = dl_core_file_open(&r->file, core->path, &plan, &core->wall_ns, r->diag);
	for (uint64_t need; !err && r->stage != DL_CORE_DONE;)
		err = next_stage(r, &need);
	if (err)
		return err;
	core->truncated = r->file.packed ? !r->file.whole : r->file.sz < core->want_sz;
	core->sz = core->truncated ? r->file.sz : core->want_sz;
	if (r->execfn)
		core->program = dl_core_mem_text(r, r->execfn, TEXT_MAX);
	err = dl_core_stacks(r);
	if (!err)
		err = dl_core_find_abort(r);
	return err ? dl_oom(r->diag) : 0;
}

int dl_core_read(struct dl_core **ret, const char *path, struct dl_diag *d)
{
	struct dl_core_reading r = { .file.fd = -1, .diag = d };
	int err = -ENOMEM;

	if (d)
		d->msg[0] = '\0';
	r.core = calloc(1, sizeof(*r.core));
	if (r.core)
		r.core->path = strdup(path);
	if (r.core && r.core->path)
		err = read_all(&r);
	else
		dl_oom(d);
	reading_free(&r);
	if (err)
		dl_core_free(r.core);
	else
		*ret = r.core;
	return err;
}

static void free_texts(char **v, size_t cnt)
{
	for (size_t i = 0; i < cnt; i++)
		free(v[i]);
	free(v);
}

void dl_core_free(struct dl_core *core)
{
	if (!core)
		return;
	vec_for_each(&core->maps, m)
		free(m->path);
	vec_free(&core->maps);
	vec_for_each(&core->threads, t) {
		vec_for_each(&t->frames, f) {
			free(f->function);
			free(f->path);
		}
		vec_free(&t->frames);
	}
	vec_free(&core->threads);
	free_texts(core->missing.v, core->missing.cnt);
	free_texts(core->changed.v, core->changed.cnt);
	free(core->abort_text);
	free(core->exception);
	free(core->exception_text);
	free(core->program);
	free(core->cmdline);
	free(core->path);
	free(core);
}

const struct dl_core_signal *dl_core_signal(const struct dl_core *core)
{
	return core->first.sig ? &core->first : &core->last;
}

const struct dl_core_map *dl_core_map_at(const struct dl_core *core, uint64_t addr)
{
	const size_t i = addr == UINT64_MAX ? 0 : vec_first_at(&core->maps, addr + 1);

	return i && addr < core->maps.v[i - 1].end ? &core->maps.v[i - 1] : NULL;
}
