/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What the files behind core.h share: core.c (headers, memory), core_notes.c, core_file.c (bytes, packed or
 * not), core_stack.c (stacks), core_text.c (glibc's last words). */
#ifndef DLBPF_FORENSIC_CORE_INT_H
#define DLBPF_FORENSIC_CORE_INT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "capture/symfile.h"
#include "forensic/core.h"

/* A part of the file that can be read. */
struct dl_core_part { uint64_t off, end; };

struct dl_core_file {
	int fd;
	uint64_t sz;		/* of the core as far as it was read */
	bool packed, whole;	/* all that is needed of a packed one was there */
	DL_VEC(struct dl_core_part) parts;	/* sorted; of an unpacked file there is one */
};

/* Memory that the core may hold; sorted by address. */
struct dl_core_seg {
	uint64_t start, end;
	uint64_t off, file_sz;
	uint32_t flags;		/* PF_* */
};

enum dl_core_stage { DL_CORE_BEGIN = 0, DL_CORE_HEADER, DL_CORE_SEGMENTS, DL_CORE_NOTES, DL_CORE_DONE };

struct dl_core_reading {
	struct dl_core *core;
	struct dl_core_file file;
	struct dl_diag *diag;
	enum dl_core_stage stage;	/* what is to be read next */
	uint64_t phdr_off, phdr_cnt;
	DL_VEC(struct dl_core_seg) segs;
	DL_VEC(struct dl_core_part) notes;	/* PT_NOTE */
	uint64_t vdso;		/* its address; 0 unknown */
	uint64_t execfn;	/* address of the program's path */
	/* stacks */
	struct dl_symfiles files;
	int64_t *map_file;	/* for each of core->maps: index in files plus 1, or one of the below */
	int64_t vdso_file;	/* likewise */
};

enum { DL_CORE_FILE_UNKNOWN = 0, DL_CORE_FILE_NONE = -1 };

/* --- core_file.c --- */

/*
 * What a packed core is asked for while it is unpacked: need says how many bytes from its start have to be
 * there next; 0: all that is needed is known, and keep adds the rest.
 */
struct dl_core_plan {
	int (*need)(void *arg, uint64_t *ret);
	int (*keep)(void *arg);
	void *arg;
};

/* Opens the core; of a packed one, only the parts that are asked for are kept. */
int dl_core_file_open(struct dl_core_file *f, const char *path, const struct dl_core_plan *plan, int64_t *ret_wall_ns,
		      struct dl_diag *d);
void dl_core_file_close(struct dl_core_file *f);
/* All of it, or -ENODATA where the core has it not; or -errno. */
int dl_core_pread(const struct dl_core_file *f, void *buf, size_t sz, uint64_t off);
/* Adds a part; parts_sort() afterwards. */
int dl_core_part_add(struct dl_core_file *f, uint64_t off, uint64_t sz);
void dl_core_parts_sort(struct dl_core_file *f);

/* --- core_notes.c --- */

/* The notes of one part of the file. 0 or -ENOMEM; broken ones end it. */
int dl_core_notes(struct dl_core_reading *r, const uint8_t *p, size_t sz);

/* --- core.c --- */

const struct dl_core_seg *dl_core_seg_at(const struct dl_core_reading *r, uint64_t addr);
/* Memory of the process; 0, or -ENODATA where the core has it not. */
int dl_core_mem(const struct dl_core_reading *r, uint64_t addr, void *buf, size_t sz);
/* A text of the process, up to max bytes; NULL: it is not there, or no text, or no memory. */
char *dl_core_mem_text(const struct dl_core_reading *r, uint64_t addr, size_t max);

/* --- core_stack.c --- */

/* Where the file of a mapping begins in memory; NULL: its beginning is not mapped. */
const struct dl_core_map *dl_core_map_head(const struct dl_core *core, const struct dl_core_map *m);
/* Opens the file of a mapping, at most once; NULL: there is none that could be trusted. */
struct dl_symfile *dl_core_file_of(struct dl_core_reading *r, const struct dl_core_map *m);
/* Stacks of all threads, and the first signal. 0 or -ENOMEM. */
int dl_core_stacks(struct dl_core_reading *r);

/* --- core_text.c --- */

/* What glibc said before it called abort(). 0 or -ENOMEM. */
int dl_core_find_abort(struct dl_core_reading *r);

/* The exception that __cxa_throw() was called for, by the registers of its frame. 0 or -ENOMEM. */
int dl_core_find_exception(struct dl_core_reading *r, const struct dl_unwind_regs *regs);

#endif
