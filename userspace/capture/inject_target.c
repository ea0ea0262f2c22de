/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What has to be known of a process before a thread of it is borrowed, and what speaks against it. */
#include "capture/inject_priv.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "capture/elf.h"
#include "capture/gpu.h"
#include "capture/gpu_priv.h"
#include "capture/maps.h"
#include "capture/proc.h"

#define ENVIRON_MAX (1 << 20)

enum lib { LIB_C, LIB_PTHREAD, LIB_DL, LIB_CNT };

/* glibc before 2.34 has three libraries. Names of the files differ: libc.so.6, libc-2.31.so. */
static const char *const lib_names[LIB_CNT][2] = {
	[LIB_C] = { "libc.so.6", "libc-2." },
	[LIB_PTHREAD] = { "libpthread.so.0", "libpthread-2." },
	[LIB_DL] = { "libdl.so.2", "libdl-2." },
};

struct found {
	uint64_t start, end, off, ino;
	uint32_t dev;
	bool known, twice;
	int fd;
};

/* What a walk over the mappings finds. */
struct scan {
	struct inject_target *t;
	struct found lib[LIB_CNT];
	bool cuda, collector, musl, loader;
	char sanitizer[64], injected[PATH_MAX];	/* injected: another tool's library, in: its path */
	bool injected_mapped;
	int err;
};

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static bool starts(const char *s, const char *with)
{
	return !strncmp(s, with, strlen(with));
}

/* Libraries whose locks a waiting thread may hold: their waits are not told from others. */
static bool is_loader(const char *name)
{
	return starts(name, "ld-linux") || starts(name, "ld-2.") || strstr(name, "malloc");
}

static bool is_sanitizer(const char *name)
{
	return starts(name, "libasan.") || starts(name, "libtsan.") || starts(name, "libmsan.") ||
	       starts(name, "libclang_rt.asan") || starts(name, "libclang_rt.tsan");
}

static void find_lib(struct scan *s, const struct dl_mapping *m, const char *name)
{
	for (int i = 0; i < LIB_CNT; i++) {
		struct found *f = &s->lib[i];

		if (strcmp(name, lib_names[i][0]) && !starts(name, lib_names[i][1]))
			continue;
		if (f->known && (f->dev != m->dev || f->ino != m->ino))
			f->twice = true;
		if (f->known || !m->exec)
			continue;
		*f = (struct found){ .start = m->start, .end = m->end, .off = m->off, .ino = m->ino, .dev = m->dev,
				     .known = true, .fd = dl_mapping_open(s->t->proc_fd, m, false) };
	}
}

/* Where a segment of code ends within its last page: bytes that nobody looks at. */
static void find_cave(struct scan *s, const struct dl_mapping *m)
{
	const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	_cleanup_close_ int fd = -1;
	struct dl_elf e;

	if (m->shared || s->t->caves.cnt >= 16)
		return;
	fd = dl_mapping_open(s->t->proc_fd, m, false);
	if (fd < 0 || dl_elf_read(&e, fd))
		return;
	for (uint32_t i = 0; i < e.load_cnt; i++) {
		const uint64_t off = e.load[i].off, sz = e.load[i].sz;
		uint64_t end, *cave;

		if ((off & -page) != m->off || sz > m->end - m->start)
			continue;
		end = (m->start + (off - m->off) + sz + 15) & ~UINT64_C(15);
		if (end >= m->end || m->end - end < INJECT_CAVE_MAX || m->end - end > page)
			continue;
		cave = vec_push(&s->t->caves);
		if (cave)
			*cave = end;
	}
}

static int on_mapping(const struct dl_mapping *m, void *arg)
{
	struct scan *s = arg;
	const char *name = base_name(m->path);
	struct inject_range *r = vec_push(&s->t->ranges);

	if (!r)
		return -ENOMEM;
	*r = (struct inject_range){ .start = m->start, .end = m->end, .exec = m->exec, .loader = is_loader(name) };
	if (m->path[0] != '/')
		return 0;
	s->cuda |= starts(name, "libcuda.so");
	s->musl |= starts(name, "ld-musl") || starts(name, "libc.musl");
	s->loader |= starts(name, "ld-");
	s->collector |= starts(name, DL_GPU_LIBRARY) || starts(m->path, "/memfd:" DL_GPU_LIBRARY);
	if (is_sanitizer(name))
		snprintf(s->sanitizer, sizeof(s->sanitizer), "%s", name);
	if (s->injected[0] && !strcmp(name, base_name(s->injected)))
		s->injected_mapped = true;
	find_lib(s, m, name);
	if (m->exec)
		find_cave(s, m);
	return 0;
}

const struct inject_range *inject_range_of(const struct inject_target *t, uint64_t addr)
{
	size_t lo = 0, hi = t->ranges.cnt;

	while (lo < hi) {
		const size_t mid = (lo + hi) / 2;

		if (addr >= t->ranges.v[mid].end)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < t->ranges.cnt && addr >= t->ranges.v[lo].start ? &t->ranges.v[lo] : NULL;
}

/* --- refusals ------------------------------------------------------------------------------------ */

static int refuse(struct dl_diag *d, int err, const struct inject_target *t, const char *why)
{
	return dl_fail(d, err, "cannot inject into %u: %s", t->pid, why);
}

static int check_program(const struct inject_target *t, struct dl_diag *d)
{
	_cleanup_close_ int fd = openat(t->proc_fd, "exe", O_RDONLY | O_CLOEXEC);
	Elf64_Ehdr eh;

	if (fd < 0)
		return dl_fail_errno(d, -errno, "cannot inject into %u: cannot read its program", t->pid);
	if (pread(fd, &eh, sizeof(eh), 0) != sizeof(eh) || memcmp(eh.e_ident, ELFMAG, SELFMAG))
		return refuse(d, -EOPNOTSUPP, t, "its program is no ELF file");
	if (eh.e_ident[EI_CLASS] != ELFCLASS64)
		return refuse(d, -EOPNOTSUPP, t, "it is a 32-bit program");
	if (eh.e_machine != inject_machine)
		return refuse(d, -EOPNOTSUPP, t, "it is a program of another architecture");
	return 0;
}

struct tracer_arg {
	const struct inject_target *t;
	uint64_t tracer;
	bool seccomp;
};

static int look_at_thread(uint32_t tid, void *arg)
{
	struct tracer_arg *a = arg;
	char path[48], text[4096];
	uint64_t v;

	snprintf(path, sizeof(path), "task/%u/status", tid);
	if (dl_proc_read(a->t->proc_fd, path, text, sizeof(text)) <= 0)
		return 0;
	if (dl_text_u64(text, "TracerPid", &v) && v)
		a->tracer = v;
	if (dl_text_u64(text, "Seccomp", &v) && v)
		a->seccomp = true;
	return 0;
}

static int check_state(const struct inject_target *t, struct dl_diag *d)
{
	struct tracer_arg a = { .t = t };
	struct dl_stat st;

	if (dl_proc_stat(t->proc_fd, 0, &st))
		return refuse(d, -ESRCH, t, "it has ended");
	if (st.state == 'Z' || st.state == 'X')
		return refuse(d, -ESRCH, t, "it has ended");
	dl_proc_each_tid(t->proc_fd, look_at_thread, &a);
	if (a.tracer)
		return dl_fail(d, -EOPNOTSUPP, "cannot inject into %u: process %" PRIu64 " traces it already "
			       "(a debugger, strace, or another injection)", t->pid, a.tracer);
	if (st.state == 'T' || st.state == 't')
		return refuse(d, -EAGAIN, t, "it is stopped; continue it first");
	if (a.seccomp)
		return refuse(d, -EOPNOTSUPP, t, "its system calls are filtered (seccomp), and the filter might kill "
			      "it for what loading a library needs");
	return 0;
}

/* The value, unless it is empty, which is as good as none. */
static const char *set_to(const char *env, size_t len, const char *name)
{
	const char *val = dl_proc_var(env, len, name);

	return val && val[0] ? val : NULL;
}

static int check_environ(const struct inject_target *t, struct scan *s, struct dl_diag *d)
{
	_cleanup_free_ char *env = NULL;
	const char *val;
	size_t len = 0;

	if (dl_proc_strings(t->proc_fd, "environ", ENVIRON_MAX, &env, &len))
		return 0;	/* it decides nothing that the process needs to survive */
	if (set_to(env, len, "LD_AUDIT"))
		return refuse(d, -EOPNOTSUPP, t, "an auditor of its dynamic loader is at work (LD_AUDIT)");
	val = set_to(env, len, "DLBPF_GPU_DISABLE");
	if (val && strcmp(val, "0"))
		return refuse(d, -EOPNOTSUPP, t, "DLBPF_GPU_DISABLE is set in its environment");
	val = set_to(env, len, DL_GPU_VARIABLE);
	if (val && !strstr(val, DL_GPU_LIBRARY))
		snprintf(s->injected, sizeof(s->injected), "%s", val);
	return 0;
}

static int check_mapped(const struct inject_target *t, const struct scan *s, struct dl_diag *d)
{
	if (s->musl)
		return refuse(d, -EOPNOTSUPP, t, "its C library is musl; the collector needs glibc");
	if (!s->lib[LIB_C].known)
		return refuse(d, -EOPNOTSUPP, t, s->loader ? "its C library is not glibc" :
			      "it is linked statically and has no dlopen()");
	if (s->collector)
		return refuse(d, -EEXIST, t, "it has loaded the collector already, which is switched off there");
	if (!s->cuda)
		return refuse(d, -ENOENT, t, "it does not use CUDA (libcuda is not mapped), so there is nothing to "
			      "collect");
	if (s->injected_mapped)
		return dl_fail(d, -EOPNOTSUPP, "cannot inject into %u: another tool is injected there (%s), and only one "
			       "can use CUPTI", t->pid, s->injected);
	if (s->sanitizer[0])
		return dl_fail(d, -EOPNOTSUPP, "cannot inject into %u: it runs under a sanitizer (%s)", t->pid,
			       s->sanitizer);
	for (int i = 0; i < LIB_CNT; i++)
		if (s->lib[i].twice)
			return refuse(d, -EOPNOTSUPP, t, "it has two C libraries");
	return 0;
}

/* dlopen() goes by the name of a descriptor. */
static int check_proc_inside(const struct inject_target *t, struct dl_diag *d)
{
	struct statfs fs;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%u/root/proc", t->pid);
	if (statfs(path, &fs) || (uint64_t)fs.f_type != PROC_SUPER_MAGIC)
		return refuse(d, -EOPNOTSUPP, t, "no /proc is mounted in its container");
	return 0;
}

/* --- functions ------------------------------------------------------------------------------------ */

static int lib_bias(const struct found *f, uint64_t *ret)
{
	const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	struct dl_elf e;
	int err = f->fd < 0 ? f->fd : dl_elf_read(&e, f->fd);

	if (err)
		return err;
	for (uint32_t i = 0; i < e.load_cnt; i++) {
		if ((e.load[i].off & -page) != f->off)
			continue;
		*ret = f->start - f->off - (e.load[i].vaddr - e.load[i].off);
		return 0;
	}
	return -ENOEXEC;
}

static int find_functions(struct inject_target *t, const struct scan *s, struct dl_diag *d)
{
	static const char *const names[] = { "pthread_create", "__errno_location", "__register_atfork",
					     "__cxa_finalize", "dlopen", "dlsym", "dlerror", "pthread_self",
					     "pthread_detach" };
	uint64_t *const slots = &t->data.pthread_create;

	for (int lib = 0; lib < LIB_CNT; lib++) {
		uint64_t vaddr[ARRAY_SIZE(names)] = {}, bias;
		int err;

		if (!s->lib[lib].known)
			continue;
		err = lib_bias(&s->lib[lib], &bias);
		if (!err)
			err = inject_symbols(s->lib[lib].fd, names, vaddr, ARRAY_SIZE(names));
		if (err)
			return dl_fail_errno(d, err, "cannot inject into %u: cannot read the symbols of its C library",
					     t->pid);
		for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
			/* Of pthread_create, a libc before 2.34 has none, and stubs of others. */
			if (vaddr[i] && (!slots[i] || lib == LIB_PTHREAD))
				slots[i] = bias + vaddr[i];
		}
	}
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		const struct inject_range *r = inject_range_of(t, slots[i]);

		if (!slots[i] || !r || !r->exec)
			return dl_fail(d, -EOPNOTSUPP, "cannot inject into %u: its C library has no %s()", t->pid,
				       names[i]);
	}
	return 0;
}

static int look_at(struct inject_target *t, struct scan *s, struct dl_diag *d)
{
	_cleanup_close_ int ring_fd = -1;
	ino_t ino;
	int nr, err;

	err = check_program(t, d);
	if (!err)
		err = check_state(t, d);
	if (!err)
		err = check_environ(t, s, d);
	if (err)
		return err;
	if (!gpu_find_memfd(t->pid, &ring_fd, &nr, &ino))
		return refuse(d, -EEXIST, t, "it has a collector already");
	err = dl_maps_each(t->proc_fd, on_mapping, s);
	if (err < 0)
		return dl_fail_errno(d, err, "cannot inject into %u: cannot read its mappings", t->pid);
	err = check_mapped(t, s, d);
	if (!err)
		err = check_proc_inside(t, d);
	if (!err)
		err = find_functions(t, s, d);
	if (!err && !t->caves.cnt)
		err = refuse(d, -EOPNOTSUPP, t, "no page of its code has room for a system call");
	return err;
}

int inject_target_open(struct inject_target *t, uint32_t pid, struct dl_diag *d)
{
	struct scan *s = calloc(1, sizeof(*s));
	int err;

	*t = (struct inject_target){ .pid = pid, .proc_fd = -1 };
	if (!s)
		return dl_oom(d);
	s->t = t;
	for (int i = 0; i < LIB_CNT; i++)
		s->lib[i].fd = -1;
	t->proc_fd = dl_proc_open(pid);
	err = t->proc_fd < 0 ? dl_fail_errno(d, t->proc_fd, "cannot inject into %u", pid) : look_at(t, s, d);
	for (int i = 0; i < LIB_CNT; i++)
		if (s->lib[i].fd >= 0)
			close(s->lib[i].fd);
	free(s);
	if (err)
		inject_target_close(t);
	return err;
}

void inject_target_close(struct inject_target *t)
{
	free(t->ranges.v);
	free(t->caves.v);
	if (t->proc_fd >= 0)
		close(t->proc_fd);
	*t = (struct inject_target){ .proc_fd = -1 };
}
