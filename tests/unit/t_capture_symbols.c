/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Build-ids and names of functions, with this program as the file: what is where is known. */
#include "unit/test.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/wait.h>

#include "base/cleanup.h"
#include "base/vec.h"
#include "capture/elf.h"
#include "capture/kallsyms.h"
#include "capture/proc.h"
#include "capture/symbols.h"

/* A function to be found: static, and long enough to be hit in the middle. */
__attribute__((noinline, noclone, used))
static int dl_test_landmark(int n)
{
	for (int i = 0; i < 10; i++)
		n = n * 31 + (n >> 3) + i;
	return n;
}

struct own {
	uint64_t base;
	uint8_t build_id[DL_BUILD_ID_MAX];
	uint32_t build_id_sz;
};

/* What the loader knows of this program. */
static int own_notes(struct dl_phdr_info *info, size_t sz, void *arg)
{
	struct own *own = arg;

	(void)sz;
	own->base = info->dlpi_addr;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const char *p = (const char *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
		const char *end = p + info->dlpi_phdr[i].p_memsz;

		while (info->dlpi_phdr[i].p_type == PT_NOTE && p + sizeof(ElfW(Nhdr)) < end) {
			const ElfW(Nhdr) *nh = (const void *)p;

			if (nh->n_type == NT_GNU_BUILD_ID) {
				own->build_id_sz = nh->n_descsz;
				memcpy(own->build_id, p + sizeof(*nh) + 4, nh->n_descsz);
			}
			p += sizeof(*nh) + ((nh->n_namesz + 3) & ~3u) + ((nh->n_descsz + 3) & ~3u);
		}
	}
	return 1;	/* the first is the program */
}

TEST(own_build_id)
{
	_cleanup_close_ int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	struct own own = {};
	struct dl_elf e;

	dl_iterate_phdr(own_notes, &own);
	CHECK_OK(dl_elf_read(&e, fd));
	CHECK_EQ(e.build_id_sz, own.build_id_sz);
	CHECK_MEM(e.build_id, own.build_id, own.build_id_sz);
	if (!own.build_id_sz)
		SKIP("the linker wrote no build-id");
}

TEST(own_function)
{
	_cleanup_close_ int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	struct dl_elf_query q[3] = {};
	struct own own = {};
	struct dl_elf e;
	char name[64], tiny[4];
	uint64_t at;

	dl_iterate_phdr(own_notes, &own);
	at = (uint64_t)(uintptr_t)dl_test_landmark - own.base;
	q[0].vaddr = 1;		/* the ELF header: no function */
	q[1].vaddr = at;
	q[2].vaddr = at + 5;
	CHECK_OK(dl_elf_read(&e, fd));
	CHECK_OK(dl_elf_resolve(&e, q, 3));
	CHECK_EQ(q[0].size, 0);
	CHECK_EQ(q[1].value, at);
	CHECK_EQ(q[2].value, at);
	CHECK(q[2].size > 5);
	CHECK_OK(dl_elf_name(&e, q[2].name, name, sizeof(name)));
	CHECK_STR(name, "dl_test_landmark");
	CHECK_OK(dl_elf_name(&e, q[2].name, tiny, sizeof(tiny)));
	CHECK_STR(tiny, "dl_");
	CHECK(dl_elf_name(&e, UINT32_MAX, name, sizeof(name)) < 0);
	CHECK_OK(dl_elf_resolve(&e, q, 0));
}

TEST(offsets_to_addresses)
{
	struct dl_elf e = { .load_cnt = 2, .load = { { 0x400000, 0, 0x1000 }, { 0x601000, 0x2000, 0x500 } } };
	uint64_t v = 0;

	CHECK(dl_elf_vaddr(&e, 0xfff, &v));
	CHECK_EQ(v, 0x400fff);
	CHECK(dl_elf_vaddr(&e, 0x2001, &v));
	CHECK_EQ(v, 0x601001);
	CHECK(!dl_elf_vaddr(&e, 0x1000, &v));
	CHECK(!dl_elf_vaddr(&e, 0x2500, &v));
}

/* The file is the target's: nothing in it may hurt. The head and the sections are changed at random,
 * with a fixed seed, and the file is cut off anywhere. */
TEST(broken_files)
{
	_cleanup_close_ int in = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	const int fd = open(test_path("broken"), O_RDWR | O_CREAT | O_TRUNC, 0600);
	static char image[4 << 20];
	const ssize_t len = pread(in, image, sizeof(image), 0);
	Elf64_Ehdr eh;
	uint32_t rnd = 1;
	int refused = 0;

	CHECK(len > 10000 && len < (ssize_t)sizeof(image));
	memcpy(&eh, image, sizeof(eh));
	for (int n = 0; n < 3000; n++) {
		struct dl_elf_query q[2] = { { .vaddr = 0x1000 }, { .vaddr = 0x2000 } };
		struct dl_elf e;
		ssize_t cut = len;
		char name[32];

		CHECK_EQ(pwrite(fd, image, (size_t)len, 0), len);
		for (int k = 0; k <= n % 4; k++) {
			const uint64_t where[] = { 0, sizeof(eh), eh.e_shoff, eh.e_phoff };
			uint64_t off;
			char byte;

			rnd = rnd * 1664525 + 1013904223;
			off = where[rnd >> 30] + (rnd >> 8) % 1024;
			byte = (char)(rnd >> 4);
			if (off < (uint64_t)len)
				CHECK_EQ(pwrite(fd, &byte, 1, (off_t)off), 1);
		}
		if (n % 3 == 0) {
			cut = (ssize_t)(rnd % (uint32_t)len);
			CHECK_OK(ftruncate(fd, cut));
		}
		if (dl_elf_read(&e, fd)) {
			refused++;
			continue;
		}
		if (!dl_elf_resolve(&e, q, 2))
			for (int i = 0; i < 2; i++)
				if (q[i].size)
					dl_elf_name(&e, q[i].name, name, sizeof(name));
	}
	close(fd);
	CHECK_MSG(refused > 10 && refused < 2990, "%d of 3000", refused);
}

TEST(not_elf)
{
	const int fd = open(test_path("text"), O_RDWR | O_CREAT | O_TRUNC, 0600);
	struct dl_elf e;

	CHECK_EQ(dl_elf_read(&e, fd), -ENOEXEC);
	CHECK_EQ(write(fd, "#!/bin/sh\n", 10), 10);
	CHECK_EQ(dl_elf_read(&e, fd), -ENOEXEC);
	close(fd);
}

/* --- the kernel's ------------------------------------------------------------------------------ */

static const char *kallsyms_file(const char *text)
{
	const char *path = test_path("kallsyms");
	FILE *f = fopen(path, "w");

	fputs(text, f);
	fclose(f);
	return path;
}

TEST(kernel_names)
{
	struct dl_kallsyms k;
	uint64_t off = 0;

	CHECK_OK(dl_kallsyms_load(&k, kallsyms_file(
		"ffffffff81000100 T second\nffffffff81000000 T first\nffffffff81000000 t alias\n"
		"ffffffff81000080 D data\nffffffffc0000000 t in_module\t[mod]\n0000000000000010 A percpu\n")));
	CHECK_STR(dl_kallsyms_find(&k, 0xffffffff81000000, &off), "first");
	CHECK_EQ(off, 0);
	CHECK_STR(dl_kallsyms_find(&k, 0xffffffff810000ff, &off), "first");
	CHECK_EQ(off, 0xff);
	CHECK_STR(dl_kallsyms_find(&k, 0xffffffff81000100, &off), "second");
	CHECK_STR(dl_kallsyms_find(&k, 0xffffffffc0000004, &off), "in_module [mod]");
	CHECK(!dl_kallsyms_find(&k, 0x1000, &off));
	dl_kallsyms_fini(&k);
}

TEST(hidden_kernel_addresses)
{
	struct dl_kallsyms k;

	CHECK_EQ(dl_kallsyms_load(&k, kallsyms_file("0000000000000000 T a\n0000000000000000 T b\n")), -EACCES);
	CHECK_EQ(dl_kallsyms_load(&k, "/no/such/file"), -ENOENT);
}

/* --- the thread -------------------------------------------------------------------------------- */

struct found {
	struct dl_sink sink;
	uint32_t pid;
	uint64_t addr;
	char name[256];		/* of addr in pid */
	uint64_t into;
	int mmaps, own_mmap;	/* of pid; of which are this program's */
	struct dl_ev_mmap mmap;
};

static int look(struct dl_sink *sink, const struct dl_hdr *ev)
{
	struct found *f = (struct found *)sink;

	if (ev->kind == DL_EV_SYMBOL && ev->pid == f->pid) {
		const struct dl_ev_symbol *s = (const void *)ev;
		const size_t len = ev->size - sizeof(*s);

		if (s->addr == f->addr && len < sizeof(f->name)) {
			memcpy(f->name, s + 1, len);
			f->name[len] = '\0';
			f->into = s->off;
		}
	} else if (ev->kind == DL_EV_MMAP && ev->pid == f->pid) {
		const struct dl_ev_mmap *m = (const void *)ev;

		f->mmaps++;
		if (m->start <= (uint64_t)(uintptr_t)dl_test_landmark && m->end > (uint64_t)(uintptr_t)dl_test_landmark) {
			f->own_mmap++;
			f->mmap = *m;
		}
	}
	return 0;
}

TEST(names_of_a_process)
{
	_cleanup_close_ int proc = dl_proc_open((uint32_t)getpid());
	struct found f = { .sink.emit = look, .pid = (uint32_t)getpid(), .addr = (uint64_t)(uintptr_t)dl_test_landmark + 7 };
	struct own own = {};
	struct dl_symbols *s;
	struct dl_diag d = {};

	CHECK_OK(dl_symbols_open(&s, &d));
	CHECK_OK(dl_symbols_scan(s, f.pid, proc));
	CHECK_OK(dl_symbols_want(s, f.pid, f.addr, true));
	CHECK_OK(dl_symbols_want(s, f.pid, 12345, true));	/* nowhere: no name, and no harm */
	CHECK_OK(dl_symbols_finish(s, &f.sink, 10 * DL_NS_PER_S));
	CHECK_STR(f.name, "dl_test_landmark");
	CHECK_EQ(f.into, 7);
	CHECK_EQ(f.own_mmap, 1);
	CHECK(f.mmaps > 1);
	dl_iterate_phdr(own_notes, &own);
	CHECK_EQ(f.mmap.build_id_sz, own.build_id_sz);
	CHECK_MEM(f.mmap.build_id.b, own.build_id, own.build_id_sz);
	/* Once more: mappings are not told again, names are. */
	f.name[0] = '\0';
	CHECK_OK(dl_symbols_scan(s, f.pid, proc));
	CHECK_OK(dl_symbols_want(s, f.pid, f.addr, true));
	CHECK_OK(dl_symbols_finish(s, &f.sink, 10 * DL_NS_PER_S));
	CHECK_EQ(f.own_mmap, 1);
	CHECK_STR(f.name, "dl_test_landmark");
	CHECK_EQ(dl_symbols_dropped(s), 0);
	dl_symbols_close(s);
}

/* Addresses do not wake the thread; it takes them in and resolves them all the same, one by one and many. */
TEST(names_without_being_asked_to_finish)
{
	_cleanup_close_ int proc = dl_proc_open((uint32_t)getpid());
	struct found f = { .sink.emit = look, .pid = (uint32_t)getpid() };
	struct dl_symbols *s;
	struct dl_diag d = {};

	CHECK_OK(dl_symbols_open(&s, &d));
	CHECK_OK(dl_symbols_scan(s, f.pid, proc));
	for (uint64_t round = 0; round < 4; round++) {
		f.addr = (uint64_t)(uintptr_t)dl_test_landmark + round;
		f.name[0] = '\0';
		CHECK_OK(dl_symbols_want(s, f.pid, f.addr, true));
		for (uint64_t i = 0; round % 2 && i < 50; i++)
			CHECK_OK(dl_symbols_want(s, f.pid, f.addr + 100 + i, true));
		while (!f.name[0]) {	/* the test's own limit ends it */
			usleep(10000);
			CHECK_OK(dl_symbols_drain(s, &f.sink));
		}
		CHECK_STR(f.name, "dl_test_landmark");
		CHECK_EQ(f.into, round);
	}
	dl_symbols_close(s);
}

/* A forked process has its parent's code, also when it is gone before anybody looked; and a program
 * whose file was removed still has names. */
TEST(names_when_the_process_is_gone)
{
	struct found f = { .sink.emit = look };
	char *argv[] = { (char *)test_path("copy"), NULL };
	_cleanup_close_ int proc = -1;
	struct dl_symbols *s;
	struct dl_diag d = {};
	char command[600];
	int hold[2];
	pid_t pid;
	char c;

	snprintf(command, sizeof(command), "cp /proc/%d/exe %s", getpid(), argv[0]);
	CHECK_OK(system(command));
	CHECK_OK(pipe(hold));
	pid = fork();
	if (!pid) {
		dup2(hold[1], 1);
		setenv("DL_TEST_WAIT", "1", 1);
		execv(argv[0], argv);
		_exit(1);
	}
	/* The copy says where its function is, and waits. */
	close(hold[1]);
	CHECK_EQ(read(hold[0], &f.addr, sizeof(f.addr)), sizeof(f.addr));
	proc = dl_proc_open((uint32_t)pid);
	CHECK_OK(dl_symbols_open(&s, &d));
	CHECK_OK(dl_symbols_scan(s, (uint32_t)pid, proc));
	CHECK_OK(dl_symbols_fork(s, (uint32_t)pid, 4194303));
	CHECK_OK(dl_symbols_finish(s, &f.sink, 10 * DL_NS_PER_S));
	CHECK_OK(unlink(argv[0]));
	kill(pid, SIGKILL);
	CHECK_EQ(waitpid(pid, NULL, 0), pid);
	f.pid = 4194303;
	CHECK_OK(dl_symbols_want(s, f.pid, f.addr, true));
	CHECK_OK(dl_symbols_finish(s, &f.sink, 10 * DL_NS_PER_S));
	CHECK_STR(f.name, "dl_test_landmark");
	/* After an exec the old code means nothing. */
	f.name[0] = '\0';
	CHECK_OK(dl_symbols_exec(s, f.pid));
	CHECK_OK(dl_symbols_want(s, f.pid, f.addr, true));
	CHECK_OK(dl_symbols_exit(s, (uint32_t)pid));
	CHECK_OK(dl_symbols_finish(s, &f.sink, 10 * DL_NS_PER_S));
	CHECK_STR(f.name, "");
	dl_symbols_close(s);
	close(hold[0]);
	(void)!read(0, &c, 0);
}

__attribute__((constructor))
static void wait_as_copy(void)
{
	const uint64_t addr = (uint64_t)(uintptr_t)dl_test_landmark;

	if (!getenv("DL_TEST_WAIT"))
		return;
	if (write(1, &addr, sizeof(addr)) == sizeof(addr))
		for (;;)
			pause();
	_exit(1);
}
