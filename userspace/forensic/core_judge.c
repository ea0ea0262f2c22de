/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Concludes from a core's signal. The one that the kernel made first decides; one that was only raised
 * again, or sent, says so. A core knows its mappings, but neither how full a file system was nor how long
 * a file: what is looked up now is told as that, and decides nothing for certain.
 */
#include "forensic/core_judge.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"

enum {
	FRAME_TEXT = 512,
	NEAR_SP = 64 << 10,
	NULL_PAGE = 4096,
	NAME_MAX_LEN = 160,
};

#define RECORDING "a recording of such a run (dlbpf record)"

/* --- words ------------------------------------------------------------------------------------- */

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash && slash[1] ? slash + 1 : path;
}

/* What every program has beneath its own code. */
static bool is_plumbing(const char *path)
{
	static const char *const prefixes[] = { "libc.so", "libc-2", "libpthread", "ld-linux", "ld-2", "ld-musl", "libstdc++",
						"libgcc_s", "libc++", "[vdso]" };
	const char *base = base_name(path);

	for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++)
		if (!strncmp(base, prefixes[i], strlen(prefixes[i])))
			return true;
	return false;
}

/* The innermost frame of somebody's own code. */
const struct dl_core_frame *dl_core_own_frame(const struct dl_core_thread *t)
{
	vec_for_each(&t->frames, f)
		if (f->path && !is_plumbing(f->path))
			return f;
	return NULL;
}

/* A C++ function without its arguments, which may fill a screen. */
static int name_len(const char *name)
{
	const char *p = strchr(name, '(');

	while (p && (!strncmp(p, "(anonymous", 10) || (p - name >= 8 && !strncmp(p - 8, "operator", 8))))
		p = strchr(p + 1, '(');
	return (int)(p && p - name < NAME_MAX_LEN ? p - name : NAME_MAX_LEN);
}

/* "load+0x3 (libfoo.so)", "libfoo.so" */
static void add_frame(struct dl_str *s, const struct dl_core_frame *f)
{
	const char *lib = f->path ? base_name(f->path) : NULL;

	if (f->function)
		dl_str_addf(s, "%.*s+0x%" PRIx64 "%s%s%s", name_len(f->function), f->function, f->into, lib ? " (" : "",
			    lib ? lib : "", lib ? ")" : "");
	else if (lib)
		dl_str_add(s, lib);
	else
		dl_str_addf(s, "code at 0x%" PRIx64 " that belongs to no file", f->pc);
}

/* ", in memcpy+0x12 (libc.so.6), called from load+0x3 (libfoo.so)"; of abort() the C library's part says nothing. */
static void add_place(struct dl_str *s, const struct dl_core_signal *sig, const struct dl_core_thread *t)
{
	const struct dl_core_frame *top = t->frames.v, *own = dl_core_own_frame(t);

	if (top && (sig->sig != SIGABRT || !own)) {
		dl_str_add(s, ", in ");
		add_frame(s, top);
	}
	if (own && own != top) {
		dl_str_add(s, ", called from ");
		add_frame(s, own);
	}
}

__attribute__((format(printf, 5, 6)))
static void verdict(struct dl_core_judging *j, enum dl_death death, enum dl_pm_confidence confidence, bool with_place, const char *fmt, ...)
{
	struct dl_str s = {};
	char *text = NULL;
	va_list ap;

	va_start(ap, fmt);
	if (vasprintf(&text, fmt, ap) < 0)
		text = NULL;
	va_end(ap);
	dl_str_addf(&s, "%s %s", j->subject, text ? text : "");
	if (with_place)
		add_place(&s, j->sig, j->thread);
	if (!text)
		s.err = -ENOMEM;
	free(text);
	free(j->text);
	j->death = death;
	j->confidence = confidence;
	j->text = dl_str_take(&s);
	j->err = j->text ? j->err : -ENOMEM;
}

/* --- SIGBUS ------------------------------------------------------------------------------------ */

/* A file at a path as it is now; it need not be the one that was mapped. */
struct now { bool exists; uint64_t sz, fs_total, fs_free; };

static void look(struct now *ret, const char *path)
{
	_cleanup_close_ int fd = open(path, O_PATH | O_CLOEXEC);
	struct statfs fs;
	struct stat st;

	*ret = (struct now){};
	if (fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode))
		return;
	ret->exists = true;
	ret->sz = (uint64_t)st.st_size;
	if (fstatfs(fd, &fs))
		return;
	ret->fs_total = (uint64_t)fs.f_blocks * (uint64_t)fs.f_bsize;
	ret->fs_free = (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize;
}

/* The paths of a container lead to other files on its host, so what lies there counts only where the code that
 * was mapped is here, too. */
static bool is_same_root(const struct dl_core *core)
{
	return core->same_cnt && !core->missing.cnt && !core->changed.cnt;
}

static const char *access_word(const struct dl_core_signal *s)
{
	return !s->has_access ? "touched" : s->wrote ? "wrote to" : "read from";
}

static void judge_shm(struct dl_core_judging *j)
{
	verdict(j, DL_DEATH_SHM_FULL, DL_PM_LIKELY, false,
		"%s shared memory '%s' where /dev/shm had no page to give: most likely it was full", access_word(j->sig), j->map->path);
	j->err = j->err ? j->err :
		dl_pm_alternative(j->pm, DL_DEATH_MAPPED_FILE_TRUNCATED, RECORDING ", or how full /dev/shm was then (df /dev/shm)",
				  "the same signal comes when another process makes a shared memory object shorter, which PyTorch "
				  "does not do");
}

static void judge_past_end(struct dl_core_judging *j, uint64_t off, const struct now *now)
{
	char a[32], b[32];

	verdict(j, DL_DEATH_MAPPED_FILE_TRUNCATED, DL_PM_LIKELY, true,
		"%s byte %" PRIu64 " (%s) of the mapped file '%s', which is only %s long now: it became shorter while it was mapped",
		access_word(j->sig), off, dl_fmt_bytes(a, sizeof(a), off), j->map->path, dl_fmt_bytes(b, sizeof(b), now->sz));
	j->err = j->err ? j->err :
		dl_pm_alternative(j->pm, DL_DEATH_MAPPED_FILE_ERROR, "the kernel's log of that time (I/O errors)",
				  "the file may have become shorter later, and have been unreadable then");
}

static void judge_file(struct dl_core_judging *j)
{
	const uint64_t off = j->sig->addr - j->map->start + j->map->off, page = j->core->page_sz ? j->core->page_sz : 4096;
	const bool wrote = j->sig->has_access && j->sig->wrote, read = j->sig->has_access && !j->sig->wrote;
	struct now now = {};

	if (!j->map->deleted && is_same_root(j->core))
		look(&now, j->map->path);
	if (now.exists && off >= ((now.sz + page - 1) & ~(page - 1))) {
		judge_past_end(j, off, &now);
		return;
	}
	verdict(j, DL_DEATH_UNEXPLAINED, DL_PM_POSSIBLE, true, "%s a page of the mapped file '%s' that could not be had",
		access_word(j->sig), j->map->path);
	if (!j->err)
		j->err = dl_pm_alternative(j->pm, DL_DEATH_MAPPED_FILE_TRUNCATED, RECORDING, now.exists ?
					   "the file is long enough now, but may have been shorter for a while" :
					   "the file that was mapped is not to be had here, so its length is not known");
	if (!j->err && !read)
		j->err = dl_pm_alternative(j->pm, DL_DEATH_MAPPED_FILESYSTEM_FULL, RECORDING ", or how full the file system was "
					   "then (df)", "%s file system that is full gives no page for a write to a hole of a file",
					   now.exists && now.fs_free < now.fs_total / 100 ?
					   "the file system of the file is full now, and a" : "a");
	if (!j->err && !wrote)
		j->err = dl_pm_alternative(j->pm, DL_DEATH_MAPPED_FILE_ERROR, "the kernel's log of that time (I/O errors)",
					   "the disk or the network file system could not read the page");
}

static void judge_bus(struct dl_core_judging *j)
{
	const int32_t code = j->sig->code;
	const char *path = j->map ? j->map->path : "";

	if (code == BUS_MCEERR_AR || code == BUS_MCEERR_AO)
		verdict(j, DL_DEATH_MEMORY_FAILURE, DL_PM_CERTAIN, false, "used memory at 0x%" PRIx64 " that the hardware reports as "
			"broken", j->sig->addr);
	else if (code == BUS_ADRALN || code == SI_KERNEL)
		verdict(j, DL_DEATH_SEGFAULT, DL_PM_CERTAIN, true, "used an address that the machine does not allow (SIGBUS, %s)",
			code == BUS_ADRALN ? "wrong alignment" : "no such address can exist");
	else if (!j->map)
		verdict(j, DL_DEATH_UNEXPLAINED, DL_PM_POSSIBLE, true, "got SIGBUS at address 0x%" PRIx64 ", where the core knows "
			"no mapped file", j->sig->addr);
	else if (strstr(path, "hugepage") || strstr(path, "hugetlb"))
		verdict(j, DL_DEATH_HUGEPAGES_EXHAUSTED, DL_PM_LIKELY, true, "touched '%s' when no huge page was left", path);
	else if (!strncmp(path, "/dev/shm/", 9))
		judge_shm(j);
	else
		judge_file(j);
}

/* --- other signals ----------------------------------------------------------------------------- */

static bool is_stack_overflow(const struct dl_core_judging *j)
{
	const uint64_t sp = dl_unwind_sp(&j->thread->regs), addr = j->sig->addr;

	return j->sig->has_addr && addr < sp + NULL_PAGE && addr + NEAR_SP > sp && j->thread->end == DL_STACK_FULL;
}

static void judge_segv(struct dl_core_judging *j)
{
	const uint64_t addr = j->sig->addr;

	if (is_stack_overflow(j))
		verdict(j, DL_DEATH_SEGFAULT, DL_PM_CERTAIN, true, "ran out of stack: a function calls itself without an end, or too "
			"often for the size of the stack (ulimit -s)");
	else if (j->sig->code == SI_KERNEL)
		verdict(j, DL_DEATH_SEGFAULT, DL_PM_CERTAIN, true, "used something as an address that is none");
	else if (j->thread->regs.pc == addr)
		verdict(j, DL_DEATH_SEGFAULT, DL_PM_CERTAIN, true, "jumped to address 0x%" PRIx64 ", where no code is", addr);
	else
		verdict(j, DL_DEATH_SEGFAULT, DL_PM_CERTAIN, true, "%s address 0x%" PRIx64 "%s, %s", access_word(j->sig), addr,
			addr < NULL_PAGE ? " (a null pointer)" : "", j->sig->code == SEGV_ACCERR ? "which it must not access so" :
			"where nothing is mapped");
}

static const struct dl_core_frame *frame_named(const struct dl_core_thread *t, const char *name)
{
	vec_for_each(&t->frames, f)
		if (f->function && !strncmp(f->function, name, strlen(name)))
			return f;
	return NULL;
}

static void judge_abort(struct dl_core_judging *j)
{
	const struct dl_core_frame *threw = frame_named(j->thread, "__cxa_throw");
	const struct dl_core_frame *end = j->thread->frames.v + j->thread->frames.cnt;
	const char *said = j->core->exception_text;
	char buf[FRAME_TEXT];

	if (j->core->abort_text)
		verdict(j, DL_DEATH_ABORT, DL_PM_CERTAIN, true, "gave itself up: \"%s\"", j->core->abort_text);
	else if (threw && threw + 1 < end && j->core->exception)
		verdict(j, DL_DEATH_ABORT, DL_PM_CERTAIN, false, "gave itself up for a C++ exception that nobody caught: %s%s%s%s, "
			"thrown by %s", j->core->exception, said ? " \"" : "", said ? said : "", said ? "\"" : "",
			dl_core_frame_text(threw + 1, buf, sizeof(buf)));
	else if (threw && threw + 1 < end)
		verdict(j, DL_DEATH_ABORT, DL_PM_CERTAIN, false, "gave itself up for a C++ exception that nobody caught, thrown by %s",
			dl_core_frame_text(threw + 1, buf, sizeof(buf)));
	else if (frame_named(j->thread, "std::terminate"))
		verdict(j, DL_DEATH_ABORT, DL_PM_CERTAIN, true, "gave itself up in std::terminate(), for a C++ exception that nobody "
			"caught or a thread that was not joined");
	else
		verdict(j, DL_DEATH_ABORT, DL_PM_CERTAIN, true, "gave itself up (abort)");
}

static bool is_own(const struct dl_core_judging *j)
{
	return j->sig->sender_pid == j->core->pid;
}

static void judge_sent(struct dl_core_judging *j)
{
	const struct dl_core_signal *s = j->sig;

	if (s->code == INT32_MIN)
		verdict(j, DL_DEATH_UNEXPLAINED, DL_PM_POSSIBLE, true, "died of %s; the core does not say who made it", j->name);
	else if (!is_own(j) && s->sender_pid)
		verdict(j, DL_DEATH_KILLED_BY, DL_PM_CERTAIN, false, "was sent %s by process %u (user %u)", j->name, s->sender_pid,
			s->sender_uid);
	else if (!is_own(j))
		verdict(j, DL_DEATH_KILLED_BY, DL_PM_LIKELY, false, "was sent %s by a process outside its container, or by the kernel "
			"(user %u)", j->name, s->sender_uid);
	else if (s->sig == SIGABRT)
		judge_abort(j);
	else
		verdict(j, DL_DEATH_UNEXPLAINED, DL_PM_POSSIBLE, true, "raised %s itself", j->name);
}

/* Raised by itself, and no signal's frame says why: most often by a handler whose frame was not found. */
static int add_raised(struct dl_core_judging *j)
{
	const enum dl_death death = j->sig->sig == SIGSEGV ? DL_DEATH_SEGFAULT : j->sig->sig == SIGFPE ? DL_DEATH_ARITHMETIC :
				    j->sig->sig == SIGILL ? DL_DEATH_ILLEGAL_INSTRUCTION : DL_DEATH_SHM_FULL;

	if (j->sig->sig != SIGSEGV && j->sig->sig != SIGBUS && j->sig->sig != SIGFPE && j->sig->sig != SIGILL)
		return 0;
	return dl_pm_alternative(j->pm, death, RECORDING ", or the kernel's log of that time",
				 "a signal handler may have raised the signal again, as those of PyTorch's workers do; the frame of "
				 "the first signal was not found on the stack");
}

/* Why the kernel sends a signal that no row of the verdicts stands for. */
static const char *kernel_words(int32_t sig)
{
	switch (sig) {
	case SIGXCPU:
		return ": its CPU time was used up (ulimit -t)";
	case SIGXFSZ:
		return ": a file would have become larger than allowed (ulimit -f)";
	case SIGSYS:
		return ": a system call that its container or sandbox forbids (seccomp)";
	case SIGTRAP:
		return ": a breakpoint without a debugger";
	}
	return "";
}

void dl_core_judge(struct dl_core_judging *j)
{
	const struct dl_core_signal *s = j->sig;

	if (s->code <= 0) {
		judge_sent(j);
		if (j->death == DL_DEATH_UNEXPLAINED && !j->err)
			j->err = add_raised(j);
		return;
	}
	switch (s->sig) {
	case SIGSEGV:
		judge_segv(j);
		return;
	case SIGBUS:
		judge_bus(j);
		return;
	case SIGFPE:
		verdict(j, DL_DEATH_ARITHMETIC, DL_PM_CERTAIN, true, "%s", s->code == FPE_INTDIV ? "divided an integer by zero" :
			"made a calculation that the machine refuses (SIGFPE)");
		return;
	case SIGILL:
		verdict(j, DL_DEATH_ILLEGAL_INSTRUCTION, DL_PM_CERTAIN, true, "met an instruction that this CPU does not have");
		return;
	case SIGABRT:
		judge_abort(j);
		return;
	case SIGQUIT:
		verdict(j, DL_DEATH_KILLED_BY, DL_PM_CERTAIN, false, "was ended from its terminal (Ctrl-\\, SIGQUIT)");
		return;
	}
	verdict(j, DL_DEATH_UNEXPLAINED, DL_PM_POSSIBLE, true, "died of %s, which the kernel sent%s", j->name, kernel_words(s->sig));
}
