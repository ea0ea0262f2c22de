/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The entry points of a library or a program, from its symbol table. The file is the target's and is
 * not believed: every number is checked by elf.c or here, and what is kept is at most one place for
 * each call.
 */
#include "capture/cuda_priv.h"

#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "capture/elf.h"

enum { SYMS_AT_ONCE = 2048, NAME_MAX_SZ = 64 };

#define STRINGS_MAX_SZ (32U << 20)	/* a larger table is that of a program with everything in it */
#define SIMULATED "dlbpf_gpusim_marker"	/* tests/gpusim */

enum cuda_layer cuda_layer_of(const char *path)
{
	const char *name = strrchr(path, '/');

	name = name ? name + 1 : path;
	if (!strncmp(name, "libcuda.so", 10))
		return CUDA_DRIVER;
	/* Wheels of PyTorch have had a libcudart-d0da41ae.so.11.0. */
	if (!strncmp(name, "libcudart.so", 12) || (!strncmp(name, "libcudart-", 10) && strstr(name, ".so")))
		return CUDA_RUNTIME;
	return CUDA_NONE;
}

static int read_all(int fd, void *buf, size_t sz, uint64_t off)
{
	for (size_t have = 0; have < sz;) {
		const ssize_t n = pread(fd, (char *)buf + have, sz - have, (off_t)(off + have));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -ENOEXEC;
		have += (size_t)n;
	}
	return 0;
}

static bool file_offset(const struct dl_elf *e, uint64_t vaddr, uint64_t *ret)
{
	for (uint32_t i = 0; i < e->load_cnt; i++) {
		if (vaddr >= e->load[i].vaddr && vaddr - e->load[i].vaddr < e->load[i].sz) {
			*ret = vaddr - e->load[i].vaddr + e->load[i].off;
			return true;
		}
	}
	return false;
}

/* 0 or -ENOMEM. */
static int add_point(struct cuda_lib *lib, const struct cuda_call *call, uint64_t off)
{
	struct cuda_point *p;

	if (lib->points.cnt >= 2 * cuda_call_cnt)
		return 0;	/* a damaged file */
	vec_for_each(&lib->points, have) {
		if (have->off == off)
			return 0;	/* two names of one function */
	}
	p = vec_push(&lib->points);
	if (!p)
		return -ENOMEM;
	*p = (struct cuda_point){ call, off };
	return 0;
}

static int take_symbol(struct cuda_lib *lib, const struct dl_elf *e, const Elf64_Sym *sym, const char *strings,
		       size_t strings_sz)
{
	const uint8_t type = ELF64_ST_TYPE(sym->st_info);
	const struct cuda_call *call;
	const char *name;
	size_t left;
	uint64_t off;

	if (sym->st_shndx == SHN_UNDEF || sym->st_name >= strings_sz)
		return 0;
	name = strings + sym->st_name;
	left = strings_sz - sym->st_name < NAME_MAX_SZ ? strings_sz - sym->st_name : NAME_MAX_SZ;
	if (type == STT_OBJECT) {
		lib->simulated |= !strncmp(name, SIMULATED, sizeof(SIMULATED));
		return 0;
	}
	if (type != STT_FUNC)
		return 0;
	/* What nvcc of CUDA 13 calls to launch a kernel is __cudaLaunchKernel(), a function of its own. */
	if (name[0] == '_' && name[1] == '_') {
		name += 2;
		left -= 2;
	}
	if (name[0] != 'c' || name[1] != 'u')
		return 0;
	call = cuda_call_find(name, left);
	return call && file_offset(e, sym->st_value, &off) ? add_point(lib, call, off) : 0;
}

static int read_symbols(struct cuda_lib *lib, const struct dl_elf *e)
{
	_cleanup_free_ char *strings = NULL;
	_cleanup_free_ Elf64_Sym *syms = NULL;
	int err;

	if (!e->sym_cnt || e->str_sz < 4)
		return 0;
	if (e->str_sz > STRINGS_MAX_SZ)
		return -EFBIG;
	strings = malloc(e->str_sz + 1);
	syms = malloc(SYMS_AT_ONCE * sizeof(*syms));
	if (!strings || !syms)
		return -ENOMEM;
	err = read_all(lib->fd, strings, e->str_sz, e->str_off);
	strings[e->str_sz] = '\0';
	for (uint64_t at = 0; !err && at < e->sym_cnt; at += SYMS_AT_ONCE) {
		const uint64_t n = e->sym_cnt - at < SYMS_AT_ONCE ? e->sym_cnt - at : SYMS_AT_ONCE;

		err = read_all(lib->fd, syms, n * sizeof(*syms), e->sym_off + at * sizeof(*syms));
		for (uint64_t i = 0; !err && i < n; i++)
			err = take_symbol(lib, e, &syms[i], strings, e->str_sz);
	}
	return err;
}

int cuda_lib_read(struct cuda_lib *lib, int fd)
{
	struct dl_elf e;
	int err;

	lib->fd = fd;
	err = dl_elf_read(&e, fd);
	return err ? err : read_symbols(lib, &e);
}

int cuda_lib_open(struct cuda_lib *ret, int proc_fd, const struct dl_mapping *m)
{
	struct cuda_lib lib = { .dev = m->dev, .ino = m->ino, .fd = -1 };
	const char *name = strrchr(m->path, '/');
	int fd, err;

	snprintf(lib.name, sizeof(lib.name), "%s", name ? name + 1 : m->path);
	for (char *c = lib.name; *c; c++)
		*c = (unsigned char)*c < ' ' || *c == 0x7f ? '?' : *c;
	fd = dl_mapping_open(proc_fd, m, false);
	if (fd < 0)
		return fd;
	err = cuda_lib_read(&lib, fd);
	if (err) {
		cuda_lib_fini(&lib);
		return err;
	}
	*ret = lib;
	return 0;
}

void cuda_lib_fini(struct cuda_lib *lib)
{
	if (lib->fd >= 0)
		close(lib->fd);
	vec_free(&lib->points);
	lib->fd = -1;
}
