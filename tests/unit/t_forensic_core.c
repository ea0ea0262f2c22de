/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Core files of processes that die here, of a known cause at a known place. */
#include "unit/test.h"

#include <dirent.h>
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <zstd.h>

#include "base/cleanup.h"
#include "diagnose/postmortem.h"
#include "forensic/core.h"

/* --- dying ------------------------------------------------------------------------------------- */

static char core_path[512];

/* Where the kernel puts cores, if that is the working directory. */
static void need_plain_cores(void)
{
	_cleanup_fclose_ FILE *f = fopen("/proc/sys/kernel/core_pattern", "re");
	char pattern[256] = "";

	if (!f || !fgets(pattern, sizeof(pattern), f))
		SKIP("the kernel writes no core files");
	pattern[strcspn(pattern, "\n")] = '\0';
	if (strcmp(pattern, "core"))
		SKIP("cores go elsewhere: kernel.core_pattern is '%s'", pattern);
}

static void find_core(void)
{
	_cleanup_closedir_ DIR *d = opendir(test_path("."));
	const struct dirent *e;

	core_path[0] = '\0';
	CHECK(d);
	while ((e = readdir(d)))
		if (!strncmp(e->d_name, "core", 4) && !strchr(e->d_name, '_'))
			snprintf(core_path, sizeof(core_path), "%s", test_path(e->d_name));
}

static void child_setup(void)
{
	const struct rlimit all = { RLIM_INFINITY, RLIM_INFINITY };
	static const int sigs[] = { SIGSEGV, SIGBUS, SIGFPE, SIGABRT, SIGILL, SIGALRM };
	int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

	for (size_t i = 0; i < ARRAY_SIZE(sigs); i++)
		signal(sigs[i], SIG_DFL);
	if (chdir(test_path(".")) || setrlimit(RLIMIT_CORE, &all) || null < 0 || dup2(null, 2) < 0)
		_exit(99);
	prctl(PR_SET_NAME, "dying \x1b[1m");
	prctl(PR_SET_DUMPABLE, 1);
	alarm(20);
}

static struct dl_core *read_core(void)
{
	struct dl_diag d = {};
	struct dl_core *core = NULL;
	const int err = dl_core_read(&core, core_path, &d);

	CHECK_MSG(!err, "%d: %s", err, d.msg);
	return core;
}

/* The core of a child that dies in fn; kill_by: it is sent this signal when it has closed its pipe. */
static pid_t die(int (*fn)(int), int arg, int kill_by)
{
	int fds[2], status;
	char c;
	pid_t pid;

	need_plain_cores();
	test_path("");	/* its folder is made now, not by the child */
#ifdef __SANITIZE_ADDRESS__
	if (!kill_by)
		SKIP("the sanitizer handles the signals itself");
#endif
	CHECK(!pipe2(fds, O_CLOEXEC));
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		child_setup();
		_exit(fn(arg) & 1 ? 98 : 97);
	}
	close(fds[1]);
	if (kill_by) {
		CHECK_EQ(read(fds[0], &c, 1), 0);
		usleep(100000);
		CHECK(!kill(pid, kill_by));
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	close(fds[0]);
	CHECK_MSG(WIFSIGNALED(status), "status 0x%x", status);
	if (!WCOREDUMP(status))
		SKIP("no core was written (status 0x%x)", status);
	find_core();
	CHECK(core_path[0]);
	return pid;
}

static struct dl_core *core_of(int (*fn)(int), int arg)
{
	const pid_t pid = die(fn, arg, 0);
	struct dl_core *core = read_core();

	CHECK_EQ(core->pid, pid);
	CHECK_EQ(core->threads.v[0].tid, pid);
	CHECK_STR(core->comm, "dying \x1b[1m");
	CHECK(!core->truncated);
	return core;
}

static void end(struct dl_core *core, struct dl_postmortem *pm)
{
	dl_postmortem_free(pm);
	dl_core_free(core);
	unlink(core_path);
}

/* The frames from the innermost on are these functions, NULL ends. */
static void check_frames(const struct dl_core_thread *t, const char *const *names, const char *lib)
{
	for (size_t i = 0; names[i]; i++) {
		char buf[256];

		CHECK_MSG(i < t->frames.cnt, "only %zu frames", t->frames.cnt);
		CHECK_STR(t->frames.v[i].function, names[i]);
		CHECK_HAS(t->frames.v[i].path, lib);
		CHECK_HAS(dl_core_frame_text(&t->frames.v[i], buf, sizeof(buf)), "(t_forensic_core)");
	}
}

static struct dl_postmortem *post_mortem(const struct dl_core *core)
{
	struct dl_postmortem *pm = dl_pm_new();

	CHECK(pm);
	CHECK_OK(dl_pm_add_core(pm, core));
	return pm;
}

static const char *fact_with(const struct dl_postmortem *pm, const char *text)
{
	vec_for_each(&pm->facts, f)
		if (strstr(f->text, text))
			return f->text;
	return NULL;
}

static bool has_alternative(const struct dl_postmortem *pm, enum dl_death death)
{
	vec_for_each(&pm->alternatives, a)
		if (a->death == death && a->why && a->decides)
			return true;
	return false;
}

/* --- places ------------------------------------------------------------------------------------ */

#define PLACE __attribute__((noinline, noclone, used))

static volatile uintptr_t nowhere = 0x40;
static volatile int zero, three = 3;

PLACE static int t_write(int arg)
{
	*(volatile int *)nowhere = arg;
	return arg + 1;
}

PLACE static int t_middle(int arg)
{
	return t_write(arg) + three;
}

PLACE static int t_outer(int arg)
{
	return t_middle(arg) + three;
}

static const char *const write_frames[] = { "t_write", "t_middle", "t_outer", NULL };

TEST(null_pointer)
{
	struct dl_core *core = core_of(t_outer, 1);
	struct dl_postmortem *pm = post_mortem(core);

	CHECK_EQ(core->last.sig, SIGSEGV);
	CHECK_EQ(core->last.code, SEGV_MAPERR);
	CHECK(core->last.has_addr);
	CHECK_EQ(core->last.addr, 0x40);
	CHECK_EQ(core->first.sig, 0);
	check_frames(&core->threads.v[0], write_frames, "t_forensic_core");
	CHECK_EQ(core->threads.v[0].end, DL_STACK_BASE);
	CHECK_HAS(core->program, "t_forensic_core");
	CHECK_HAS(core->cmdline, "t_forensic_core");
	CHECK_EQ(core->missing.cnt, 0);
	CHECK_EQ(core->changed.cnt, 0);
	CHECK_EQ(pm->death, DL_DEATH_SEGFAULT);
	CHECK_EQ(pm->confidence, DL_PM_CERTAIN);
	CHECK_HAS(pm->text, "null pointer");
	CHECK_HAS(pm->text, "t_write+0x");
	CHECK_EQ(pm->sig, SIGSEGV);
	CHECK_EQ(pm->status, SIGSEGV | 0x80);
	CHECK_EQ(pm->victim.nspid, core->pid);
	CHECK_EQ(pm->threads.cnt, 1);
	CHECK(pm->threads.v[0].died);
	CHECK_HAS(pm->threads.v[0].stack.v[1], "t_middle+0x");
	end(core, pm);
}

/* As PyTorch's workers do (torch/csrc/DataLoader.cpp): a line, the default action, and the signal again. */
static void raise_again(int sig, siginfo_t *info, void *ctx)
{
	(void)info, (void)ctx;
	signal(sig, SIG_DFL);
	raise(sig);
}

static void handle(int sig, int flags)
{
	struct sigaction sa = { .sa_sigaction = raise_again, .sa_flags = SA_SIGINFO | SA_NODEFER | flags };
	static char room[65536];
	stack_t st = { .ss_sp = room, .ss_size = sizeof(room) };

	if (((flags & SA_ONSTACK) && sigaltstack(&st, NULL)) || sigaction(sig, &sa, NULL))
		_exit(99);
}

PLACE static int t_handled(int flags)
{
	handle(SIGSEGV, flags);
	return t_outer(1) + three;
}

static void check_raised_again(int flags)
{
	struct dl_core *core = core_of(t_handled, flags);
	struct dl_postmortem *pm = post_mortem(core);

	CHECK_EQ(core->last.sig, SIGSEGV);
	CHECK_EQ(core->last.code, SI_TKILL);
	CHECK(!core->last.has_addr);
	CHECK_EQ(core->last.sender_pid, core->pid);
	CHECK_EQ(core->first.sig, SIGSEGV);
	CHECK_EQ(core->first.code, SEGV_MAPERR);
	CHECK_EQ(core->first.addr, 0x40);
	CHECK(core->handler_frames >= 3);
	check_frames(&core->threads.v[0], write_frames, "t_forensic_core");
#if defined(__x86_64__)
	CHECK(core->first.has_access && core->first.wrote);
#endif
	CHECK_EQ(pm->death, DL_DEATH_SEGFAULT);
	CHECK_EQ(pm->confidence, DL_PM_CERTAIN);
	CHECK(fact_with(pm, "second signal"));
	end(core, pm);
}

TEST(raised_again_by_a_handler)
{
	check_raised_again(0);
}

TEST(raised_again_on_another_stack)
{
	check_raised_again(SA_ONSTACK);
}

PLACE static int t_divide(int arg)
{
	return arg / zero;
}

TEST(division)
{
#if defined(__x86_64__)
	struct dl_core *core = core_of(t_divide, 7);
	struct dl_postmortem *pm = post_mortem(core);

	CHECK_STR(core->threads.v[0].frames.v[0].function, "t_divide");
	CHECK_EQ(pm->death, DL_DEATH_ARITHMETIC);
	CHECK_EQ(pm->confidence, DL_PM_CERTAIN);
	CHECK_HAS(pm->text, "divided an integer by zero");
	end(core, pm);
#else
	SKIP("this machine divides by zero without a signal");
#endif
}

PLACE static int t_recurse(int arg)
{
	volatile char room[4000];

	room[0] = (char)arg;
	return (three ? t_recurse(arg + 1) : 0) + room[0];
}

TEST(endless_recursion)
{
	struct dl_core *core = core_of(t_recurse, 1);
	struct dl_postmortem *pm = post_mortem(core);

	CHECK_EQ(core->threads.v[0].end, DL_STACK_FULL);
	CHECK_EQ(pm->death, DL_DEATH_SEGFAULT);
	CHECK_HAS(pm->text, "ran out of stack");
	end(core, pm);
}

PLACE static int t_jump(int arg)
{
	return ((int (*)(int))nowhere)(arg) + three;
}

TEST(jump_to_nowhere)
{
	struct dl_core *core = core_of(t_jump, 1);
	struct dl_postmortem *pm = post_mortem(core);

	CHECK_EQ(core->threads.v[0].frames.v[0].pc, 0x40);
	CHECK_STR(core->threads.v[0].frames.v[1].function, "t_jump");
	CHECK_HAS(pm->text, "where no code is");
	end(core, pm);
}

PLACE static int t_abort(int arg)
{
	if (arg)
		abort();
	return 0;
}

TEST(plain_abort)
{
	struct dl_core *core = core_of(t_abort, 1);
	struct dl_postmortem *pm = post_mortem(core);

	CHECK_EQ(core->last.code, SI_TKILL);
	CHECK_EQ(pm->death, DL_DEATH_ABORT);
	CHECK_EQ(pm->confidence, DL_PM_CERTAIN);
	CHECK_HAS(pm->text, "called from t_abort");
	CHECK(!core->abort_text);
	end(core, pm);
}

PLACE static int t_free(int arg)
{
	char *volatile p = calloc(1, 64);

	free(p + arg);
	return 0;
}

TEST(what_glibc_says)
{
	struct dl_core *core = core_of(t_free, 4);
	struct dl_postmortem *pm = post_mortem(core);

	CHECK_STR(core->abort_text, "free(): invalid pointer");
	CHECK_EQ(pm->death, DL_DEATH_ABORT);
	CHECK_HAS(pm->text, core->abort_text);
	CHECK_HAS(pm->text, "called from t_free+0x");
	end(core, pm);
}

/* What "throw std::runtime_error(...)" is compiled to, without a C++ compiler. */
static struct {
	void *(*allocate)(size_t sz);
	void (*construct)(void *object, const char *text);
	void (*throw)(void *object, void *type, void (*destroy)(void *object));
	void (*destroy)(void *object);
	void *type;
} cxx;

PLACE static int t_throw(int arg)
{
	void *object = cxx.allocate(16);

	cxx.construct(object, "the ring is broken");
	cxx.throw(object, cxx.type, cxx.destroy);
	return arg;
}

TEST(exception_that_nobody_catches)
{
	void *lib = dlopen("libstdc++.so.6", RTLD_NOW | RTLD_LOCAL);
	struct dl_core *core;
	struct dl_postmortem *pm;

	if (!lib)
		SKIP("no libstdc++.so.6 here");
	*(void **)&cxx.allocate = dlsym(lib, "__cxa_allocate_exception");
	*(void **)&cxx.construct = dlsym(lib, "_ZNSt13runtime_errorC1EPKc");
	*(void **)&cxx.throw = dlsym(lib, "__cxa_throw");
	*(void **)&cxx.destroy = dlsym(lib, "_ZNSt13runtime_errorD1Ev");
	cxx.type = dlsym(lib, "_ZTISt13runtime_error");
	CHECK(cxx.allocate && cxx.construct && cxx.throw && cxx.destroy && cxx.type);
	core = core_of(t_throw, 1);
	pm = post_mortem(core);
	CHECK_EQ(pm->death, DL_DEATH_ABORT);
	CHECK_STR(core->exception, "std::runtime_error");
	CHECK_STR(core->exception_text, "the ring is broken");
	CHECK_HAS(pm->text, "std::runtime_error \"the ring is broken\", thrown by t_throw+0x");
	CHECK(fact_with(pm, "the ring is broken"));
	end(core, pm);
}

/* --- SIGBUS ------------------------------------------------------------------------------------ */

static char mapped_path[512];

PLACE static int t_touch(volatile char *p)
{
	*p = 1;
	return 1;
}

/* A file of two pages, of which one is left when it is touched. gone: it has no name then. */
PLACE static int t_cut_file(int gone)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	int fd = open(mapped_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	volatile char *p;

	handle(SIGBUS, 0);
	if (fd < 0 || ftruncate(fd, (off_t)(2 * page)))
		_exit(99);
	p = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED || ftruncate(fd, (off_t)page) || (gone && unlink(mapped_path)))
		_exit(99);
	return t_touch(p + page + 5) + three;
}

TEST(mapped_file_cut_short)
{
	struct dl_core *core;
	struct dl_postmortem *pm;

	snprintf(mapped_path, sizeof(mapped_path), "%s", test_path("data.bin"));
	core = core_of(t_cut_file, 0);
	pm = post_mortem(core);
	CHECK_EQ(core->first.sig, SIGBUS);
	CHECK_EQ(core->first.code, BUS_ADRERR);
	CHECK_EQ(core->last.code, SI_TKILL);
	CHECK_STR(core->threads.v[0].frames.v[0].function, "t_touch");
	CHECK_EQ(pm->death, DL_DEATH_MAPPED_FILE_TRUNCATED);
	CHECK_EQ(pm->confidence, DL_PM_LIKELY);
	CHECK_HAS(pm->text, mapped_path);
	CHECK_HAS(pm->text, "only 4.00 KiB long now");
	CHECK(fact_with(pm, "the address is in a mapping of"));
	end(core, pm);
}

TEST(mapped_file_that_is_gone)
{
	struct dl_core *core;
	struct dl_postmortem *pm;

	snprintf(mapped_path, sizeof(mapped_path), "%s", test_path("data.bin"));
	core = core_of(t_cut_file, 1);
	pm = post_mortem(core);
	CHECK_EQ(pm->death, DL_DEATH_UNEXPLAINED);
	CHECK_EQ(pm->confidence, DL_PM_POSSIBLE);
	CHECK(has_alternative(pm, DL_DEATH_MAPPED_FILE_TRUNCATED));
	CHECK(has_alternative(pm, DL_DEATH_MAPPED_FILESYSTEM_FULL));
	CHECK(fact_with(pm, "had no name any more"));
	end(core, pm);
}

TEST(shared_memory)
{
	struct dl_core *core;
	struct dl_postmortem *pm;
	uint64_t sz = 0, cnt = 0;

	if (access("/dev/shm", W_OK))
		SKIP("no /dev/shm that can be written to");
	snprintf(mapped_path, sizeof(mapped_path), "/dev/shm/torch_%d_1234_0", getpid());
	core = core_of(t_cut_file, 1);
	pm = post_mortem(core);
	CHECK_EQ(pm->death, DL_DEATH_SHM_FULL);
	CHECK_EQ(pm->confidence, DL_PM_LIKELY);
	CHECK(has_alternative(pm, DL_DEATH_MAPPED_FILE_TRUNCATED));
	CHECK_HAS(pm->text, mapped_path);
	CHECK(dl_pm_get(pm, "shm.mapped", &sz) && dl_pm_get(pm, "shm.mapped-objects", &cnt));
	CHECK_EQ(cnt, 1);
	CHECK_EQ(sz, 2 * sysconf(_SC_PAGESIZE));
	end(core, pm);
}

/* --- packed ------------------------------------------------------------------------------------ */

static uint8_t *load(const char *path, size_t *ret_sz)
{
	_cleanup_fclose_ FILE *f = fopen(path, "re");
	struct stat st;
	uint8_t *p;

	CHECK(f && !fstat(fileno(f), &st));
	p = malloc((size_t)st.st_size);
	CHECK(p && fread(p, 1, (size_t)st.st_size, f) == (size_t)st.st_size);
	*ret_sz = (size_t)st.st_size;
	return p;
}

static const char *save(const char *name, const void *p, size_t sz)
{
	const char *path = test_path(name);
	_cleanup_fclose_ FILE *f = fopen(path, "we");

	CHECK(f && fwrite(p, 1, sz, f) == sz);
	return path;
}

static const char *pack(const uint8_t *p, size_t sz, size_t left_of)
{
	_cleanup_free_ void *out = malloc(ZSTD_compressBound(sz));
	size_t n;

	CHECK(out);
	n = ZSTD_compress(out, ZSTD_compressBound(sz), p, sz, 1);
	CHECK(!ZSTD_isError(n));
	return save("packed_core.zst", out, left_of ? n / left_of : n);
}

static struct dl_core *read_path(const char *path)
{
	struct dl_diag d = {};
	struct dl_core *core = NULL;
	const int err = dl_core_read(&core, path, &d);

	CHECK_MSG(!err, "%d: %s", err, d.msg);
	return core;
}

/* A packed core says what the plain one does, although most of it was not kept. */
static void check_packed(const struct dl_core *plain)
{
	_cleanup_free_ uint8_t *p = NULL;
	struct dl_core *packed;
	size_t sz;

	p = load(core_path, &sz);
	packed = read_path(pack(p, sz, 0));
	CHECK(!packed->truncated);
	CHECK_EQ(packed->sz, plain->sz);
	CHECK_EQ(packed->last.sig, plain->last.sig);
	CHECK_EQ(packed->last.sender_pid, plain->last.sender_pid);
	CHECK_EQ(packed->maps.cnt, plain->maps.cnt);
	CHECK_STR(packed->program, plain->program);
	CHECK_EQ(packed->threads.cnt, plain->threads.cnt);
	for (size_t i = 0; i < plain->threads.cnt; i++) {
		const struct dl_core_thread *a = &plain->threads.v[i], *b = &packed->threads.v[i];

		CHECK(a->frames.cnt >= 2);
		CHECK_EQ(b->frames.cnt, a->frames.cnt);
		for (size_t j = 0; j < a->frames.cnt; j++)
			CHECK_EQ(b->frames.v[j].pc, a->frames.v[j].pc);
	}
	dl_core_free(packed);
}

/* --- threads, senders -------------------------------------------------------------------------- */

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;

PLACE static void *t_in_poll(void *arg)
{
	poll(NULL, 0, -1);
	return arg;
}

PLACE static void *t_in_lock(void *arg)
{
	pthread_mutex_lock(&held);
	return arg;
}

PLACE static int t_with_threads(int arg)
{
	pthread_t t;

	pthread_mutex_lock(&held);
	if (pthread_create(&t, NULL, t_in_poll, NULL) || pthread_create(&t, NULL, t_in_lock, NULL))
		_exit(99);
	usleep(300000);
	return t_outer(arg);
}

static const struct dl_pm_thread *thread_in(const struct dl_postmortem *pm, const char *function)
{
	vec_for_each(&pm->threads, t)
		vec_for_each(&t->stack, f)
			if (strstr(*f, function))
				return t;
	return NULL;
}

TEST(threads)
{
	struct dl_core *core = core_of(t_with_threads, 1);
	struct dl_postmortem *pm = post_mortem(core);
	const struct dl_pm_thread *t;

	CHECK_EQ(core->thread_cnt, 3);
	check_frames(&core->threads.v[0], write_frames, "t_forensic_core");
	t = thread_in(pm, "t_in_poll+0x");
	CHECK(t && !t->died);
#if defined(__x86_64__)
	CHECK_HAS(t->state, "poll");
	t = thread_in(pm, "t_in_lock+0x");
	CHECK(t && !t->died);
	CHECK_HAS(t->state, "futex");
#endif
	CHECK(pm->threads.v[0].died);
	CHECK_EQ(pm->threads.cnt, 3);
	check_packed(core);	/* its stacks are larger than what is kept whole */
	end(core, pm);
}

PLACE static int t_sleep(int arg)
{
	execl("/bin/sleep", "sleep", "20", NULL);
	return arg;
}

TEST(sent_by_another)
{
	const pid_t pid = die(t_sleep, 0, SIGQUIT);
	struct dl_core *core = read_core();
	struct dl_postmortem *pm = post_mortem(core);

	CHECK_EQ(core->pid, pid);
	CHECK_EQ(core->last.sig, SIGQUIT);
	CHECK_EQ(core->last.sender_pid, getpid());
	CHECK_EQ(pm->death, DL_DEATH_KILLED_BY);
	CHECK_EQ(pm->confidence, DL_PM_CERTAIN);
	CHECK_HAS(pm->text, "SIGQUIT");
	CHECK(core->threads.v[0].frames.cnt >= 2);
	end(core, pm);
}

/* --- packed, cut off, refused ------------------------------------------------------------------ */

TEST(packed)
{
	struct dl_core *plain;

	die(t_sleep, 0, SIGQUIT);
	plain = read_core();
	check_packed(plain);
	end(plain, NULL);
}

TEST(cut_off)
{
	_cleanup_free_ uint8_t *p = NULL;
	struct dl_diag d = {};
	struct dl_core *core;
	struct dl_postmortem *pm;
	size_t sz;

	die(t_sleep, 0, SIGQUIT);
	p = load(core_path, &sz);
	/* Its notes are there, its stack, which lies at the end, is not. */
	core = read_path(save("cut_core", p, sz / 2));
	CHECK(core->truncated);
	CHECK_EQ(core->last.sig, SIGQUIT);
	CHECK_EQ(core->want_sz, sz);
	pm = post_mortem(core);
	CHECK_EQ(pm->death, DL_DEATH_KILLED_BY);
	CHECK_HAS(pm->notes.v[0], "cut off");
	dl_postmortem_free(pm);
	dl_core_free(core);
	/* A packed one that was cut off is read as far as it goes; here not even to its notes. */
	for (size_t part = 2; part <= 512; part *= 2) {
		core = NULL;
		if (!dl_core_read(&core, pack(p, sz, part), &d))
			CHECK(core->truncated);
		else
			CHECK_HAS(d.msg, "c");
		dl_core_free(core);
	}
	for (size_t cut = 1; cut < 4096; cut += 61) {
		core = NULL;
		d.msg[0] = '\0';
		if (!dl_core_read(&core, save("cut_core", p, cut), &d))
			CHECK(core->truncated && core->threads.cnt);
		else
			CHECK(!core && strstr(d.msg, cut < sizeof(Elf64_Ehdr) ? "too short" : "cut off"));
		dl_core_free(core);
	}
	unlink(core_path);
}

static void refused(const void *p, size_t sz, int want, const char *why)
{
	struct dl_diag d = {};
	struct dl_core *core = NULL;

	CHECK_EQ(dl_core_read(&core, save("other_file", p, sz), &d), want);
	CHECK(!core);
	CHECK_HAS(d.msg, why);
	CHECK_HAS(d.msg, "other_file");
}

TEST(refused_with_a_reason)
{
	Elf64_Ehdr eh = { .e_ident = { 0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, 1 }, .e_type = ET_CORE,
			  .e_machine = EM_X86_64, .e_phentsize = sizeof(Elf64_Phdr), .e_phnum = 4, .e_phoff = sizeof(eh) };
	struct dl_diag d = {};
	struct dl_core *core = NULL;

	refused("", 0, -EINVAL, "empty");
	refused("ab", 2, -EINVAL, "too short");
	refused("Traceback (most recent call last):\n", 34, -EINVAL, "not a core file");
	refused("\x04\x22\x4d\x18 and more of it", 16, -ENOTSUP, "lz4 -d");
	refused("\xfd" "7zXZ\0 and more of it", 16, -ENOTSUP, "xz -d");
	refused("\x1f\x8b\x08 and more of it", 16, -ENOTSUP, "gzip -d");
	refused("ProblemType: Crash\n", 19, -ENOTSUP, "apport-unpack");
	refused("\x28\xb5\x2f\xfd and more of it", 16, -EINVAL, "not a core file");
	refused(&eh, sizeof(eh), -EINVAL, "cut off");
	eh.e_type = ET_DYN;
	refused(&eh, sizeof(eh), -EINVAL, "a program or a library");
	eh.e_type = ET_CORE;
	eh.e_machine = EM_386;
	eh.e_ident[EI_CLASS] = ELFCLASS32;
	refused(&eh, sizeof(eh), -ENOTSUP, "32-bit x86");
	eh.e_machine = EM_RISCV;
	eh.e_ident[EI_CLASS] = ELFCLASS64;
	refused(&eh, sizeof(eh), -ENOTSUP, "RISC-V");
	eh.e_ident[EI_DATA] = ELFDATA2MSB;
	refused(&eh, sizeof(eh), -ENOTSUP, "big-endian");
	CHECK_EQ(dl_core_read(&core, "/nonexistent/core", &d), -ENOENT);
	CHECK_EQ(dl_core_read(&core, "/tmp", &d), -EINVAL);
	CHECK(!mkfifo(test_path("fifo"), 0600));
	CHECK_EQ(dl_core_read(&core, test_path("fifo"), &d), -EINVAL);
	CHECK_HAS(d.msg, "not a regular file");
}
