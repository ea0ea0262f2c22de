/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The files behind executable mappings, known by device and inode. An open file keeps its inode
 * from being used again, so the pair stays true for as long as it is known. One thread's only.
 */
#ifndef DLBPF_CAPTURE_SYMFILE_H
#define DLBPF_CAPTURE_SYMFILE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/map.h"
#include "base/str.h"
#include "base/vec.h"
#include "capture/elf.h"
#include "capture/maps.h"

struct dl_symname {
	char *name;
	uint64_t start;
};

struct dl_symwant {
	uint64_t off, addr;
	uint32_t pid;
	uint32_t back;		/* bytes that off lies before addr */
};

struct dl_symfile {
	uint32_t dev;
	uint64_t ino;
	int fd;			/* -1: no file, or no ELF file, or too many are open */
	struct dl_elf elf;
	struct dl_map known;	/* file offset -> index + 1 in names; 0: has no symbol */
	DL_VEC(struct dl_symname) names;
	DL_VEC(struct dl_symwant) wanted;
};

struct dl_symfiles {
	DL_VEC(struct dl_symfile *) v;
	struct dl_map by_id;	/* hash of device and inode -> index */
	int vdso_fd;		/* 0 unknown yet */
	char *(*demangle)(const char *, char *, size_t *, int *);
	bool demangle_tried;
};

void dl_symfiles_fini(struct dl_symfiles *fs);

/* The file of an executable mapping; index, or -ENOMEM. */
int64_t dl_symfiles_get(struct dl_symfiles *fs, int proc_fd, const struct dl_mapping *m);

/* A file that is open already, and that is looked for by its index only; takes fd over. Index, or -ENOMEM. */
int64_t dl_symfiles_add(struct dl_symfiles *fs, int fd);

/* A C++ name as people write it, or a copy of it where that is not to be had; NULL no memory. */
char *dl_symfiles_readable(struct dl_symfiles *fs, const char *name);

/* Is the function at this offset known? 1: yes, in *ret_name (NULL: there is none) and how far
 * into it; 0: it has to be looked up. */
int dl_symfile_known(const struct dl_symfile *f, uint64_t off, const char **ret_name,
		     uint64_t *ret_into);

/* Looks up all wanted offsets of a file; afterwards all are known. */
int dl_symfile_resolve(struct dl_symfiles *fs, struct dl_symfile *f);

#endif
