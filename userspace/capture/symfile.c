/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Names of functions in files: one pass over a file's symbol table for many addresses. */
#include "capture/symfile.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cleanup.h"

enum {
	FILES_OPEN_MAX = 1024,
	NAMES_MAX = 1 << 15,	/* remembered in one file */
	NAME_SZ = 2048,		/* longest name read; longer ones would not be read by people */
	VDSO_MAX = 64 << 10,
};

static void free_names(struct dl_symfile *f)
{
	vec_for_each(&f->names, it)
		free(it->name);
	vec_free(&f->names);
	dl_map_fini(&f->known);
}

void dl_symfiles_fini(struct dl_symfiles *fs)
{
	vec_for_each(&fs->v, it) {
		struct dl_symfile *f = *it;

		if (f->fd >= 0)
			close(f->fd);
		free_names(f);
		vec_free(&f->wanted);
		free(f);
	}
	vec_free(&fs->v);
	dl_map_fini(&fs->by_id);
}

/* The vDSO is no file, but the same for all 64-bit processes: a copy of our own. */
static int open_vdso(void)
{
	const void *image = (const void *)getauxval(AT_SYSINFO_EHDR);
	_cleanup_close_ int fd = -1;
	const long page = sysconf(_SC_PAGESIZE);
	off_t len = 0;

	if (!image || page <= 0)
		return -ENOENT;
	fd = memfd_create("vdso", MFD_CLOEXEC);
	if (fd < 0)
		return -errno;
	/* Its length is not told; write() stops with EFAULT behind the last page. */
	while (len < VDSO_MAX && write(fd, (const char *)image + len, (size_t)page) == page)
		len += page;
	return len ? take_fd(fd) : -ENOENT;
}

static void open_file(struct dl_symfiles *fs, struct dl_symfile *f, int proc_fd,
		      const struct dl_mapping *m)
{
	int fd = m->ino ? dl_mapping_open(proc_fd, m, false) :
		!strcmp(m->path, "[vdso]") ? open_vdso() : -ENOENT;

	if (fd < 0)
		return;
	if (dl_elf_read(&f->elf, fd) || fs->v.cnt > FILES_OPEN_MAX) {
		close(fd);
		return;
	}
	f->fd = fd;
}

int64_t dl_symfiles_get(struct dl_symfiles *fs, int proc_fd, const struct dl_mapping *m)
{
	const uint64_t id = dl_hash64(m->ino ^ dl_hash64(m->dev)) + (m->ino ? 0 : m->path[0]);
	struct dl_symfile *f, **slot;
	uint64_t index;

	if (dl_map_get(&fs->by_id, id, &index))
		return (int64_t)index;
	f = calloc(1, sizeof(*f));
	if (!f)
		return -ENOMEM;
	*f = (struct dl_symfile){ .dev = m->dev, .ino = m->ino, .fd = -1 };
	slot = vec_push(&fs->v);
	if (!slot || dl_map_set(&fs->by_id, id, fs->v.cnt - 1)) {
		if (slot)
			fs->v.cnt--;
		free(f);
		return -ENOMEM;
	}
	*slot = f;
	open_file(fs, f, proc_fd, m);
	return (int64_t)fs->v.cnt - 1;
}

int64_t dl_symfiles_add(struct dl_symfiles *fs, int fd)
{
	struct dl_symfile *f = calloc(1, sizeof(*f)), **slot = f ? vec_push(&fs->v) : NULL;

	if (!slot) {
		free(f);
		close(fd);
		return -ENOMEM;
	}
	f->fd = fd;
	if (dl_elf_read(&f->elf, fd)) {
		close(fd);
		f->fd = -1;
	}
	*slot = f;
	return (int64_t)fs->v.cnt - 1;
}

int dl_symfile_known(const struct dl_symfile *f, uint64_t off, const char **ret_name,
		     uint64_t *ret_into)
{
	uint64_t vaddr, index;

	*ret_name = NULL;
	*ret_into = 0;
	if (f->fd < 0 || !dl_elf_vaddr(&f->elf, off, &vaddr))
		return 1;
	if (!dl_map_get(&f->known, off, &index))
		return 0;
	if (index) {
		*ret_name = f->names.v[index - 1].name;
		*ret_into = vaddr - f->names.v[index - 1].start;
	}
	return 1;
}

char *dl_symfiles_readable(struct dl_symfiles *fs, const char *name)
{
	if (!strncmp(name, "_Z", 2) && !fs->demangle_tried) {
		/* Not linked: the program does without it, and without C++. */
		void *lib = dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_LOCAL);

		fs->demangle_tried = true;
		if (lib)
			*(void **)&fs->demangle = dlsym(lib, "__cxa_demangle");
	}
	if (!strncmp(name, "_Z", 2) && fs->demangle) {
		int status = -1;
		char *out = fs->demangle(name, NULL, NULL, &status);

		if (out && !status)
			return out;
		free(out);
	}
	return strdup(name);
}

/* Remembers the function at an offset; query->size 0: none is there. */
static int remember(struct dl_symfiles *fs, struct dl_symfile *f, uint64_t off,
		    const struct dl_elf_query *q)
{
	char name[NAME_SZ];
	struct dl_symname *sym = vec_last(&f->names);

	if (!q->size || dl_elf_name(&f->elf, q->name, name, sizeof(name)))
		return dl_map_set(&f->known, off, 0);
	/* Addresses are sorted: those of one function follow each other. */
	if (!sym || sym->start != q->value) {
		sym = vec_push(&f->names);
		if (!sym)
			return -ENOMEM;
		sym->start = q->value;
		sym->name = dl_symfiles_readable(fs, name);
		if (!sym->name) {
			f->names.cnt--;
			return -ENOMEM;
		}
	}
	return dl_map_set(&f->known, off, f->names.cnt);
}

static int by_off(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

int dl_symfile_resolve(struct dl_symfiles *fs, struct dl_symfile *f)
{
	_cleanup_free_ struct dl_elf_query *q = NULL;
	_cleanup_free_ uint64_t *offs = NULL;
	size_t cnt = 0;
	int err = 0;

	if (f->fd < 0 || !f->wanted.cnt)
		return 0;
	if (f->known.cnt > NAMES_MAX)
		free_names(f);
	offs = malloc(f->wanted.cnt * sizeof(*offs));
	q = calloc(f->wanted.cnt, sizeof(*q));
	if (!offs || !q)
		return -ENOMEM;
	for (size_t i = 0; i < f->wanted.cnt; i++)
		offs[i] = f->wanted.v[i].off;
	/* Within a segment the order of offsets is that of addresses; segments may be in any order,
	 * so queries are sorted by address, and offsets along with them. */
	qsort(offs, f->wanted.cnt, sizeof(*offs), by_off);
	for (size_t i = 0; i < f->wanted.cnt; i++) {
		if (i && offs[i] == offs[i - 1])
			continue;
		if (!dl_elf_vaddr(&f->elf, offs[i], &q[cnt].vaddr))
			continue;
		offs[cnt++] = offs[i];
	}
	for (size_t i = 1; i < cnt; i++) {	/* nearly sorted: linear, but for odd files */
		for (size_t j = i; j && q[j].vaddr < q[j - 1].vaddr; j--) {
			const uint64_t v = q[j].vaddr, o = offs[j];

			q[j].vaddr = q[j - 1].vaddr;
			offs[j] = offs[j - 1];
			q[j - 1].vaddr = v;
			offs[j - 1] = o;
		}
	}
	err = dl_elf_resolve(&f->elf, q, cnt);
	if (err == -ENOMEM)
		return err;
	for (size_t i = 0; i < cnt; i++) {
		if (err)
			q[i].size = 0;	/* the file cannot be read */
		if (remember(fs, f, offs[i], &q[i]))
			return -ENOMEM;
	}
	return 0;
}
