/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Borrowing a thread: stop it where it waits, let it map a page and jump there, and put it back when
 * it has created the new thread. From each state in which it can be caught between two of our steps
 * it finds back alone: there is no breakpoint, the code behind each system call restores all
 * registers, and so does the code in the page. Other threads are never stopped.
 */
#include "capture/inject_priv.h"

#include <elf.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "capture/proc.h"

#define MS 1000000ULL
#define STOP_MS 200
#define CALL_MS 2000
#define CREATE_NS (2 * DL_NS_PER_S)	/* then it waits for a lock that it holds itself */
#define CREATE_MAX_NS (20 * DL_NS_PER_S)
#define LOOK_NS 20000
#define STOPS_MAX 64

#ifdef __x86_64__
#define VECTOR_SET NT_X86_XSTATE
#else
#define VECTOR_SET NT_FPREGSET
#endif

struct borrow {
	const struct inject_target *t;
	struct inject_try *ret;
	pid_t tid;
	struct inject_stop s;
	uint64_t stop_ts;
	uint64_t cave;			/* 0: not written to */
	uint8_t cave_was[INJECT_CAVE_MAX];
	uint8_t vector[16384];
	size_t vector_sz;
};

__attribute__((format(printf, 3, 4)))
static int fail(struct borrow *b, int err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(b->ret->msg, sizeof(b->ret->msg), fmt, ap);
	va_end(ap);
	return err;
}

/* --- stops ----------------------------------------------------------------------------------------- */

/* The next stop; -ETIMEDOUT, or -ESRCH when the thread has ended. SIGCHLD is blocked. */
static int wait_stop(const struct borrow *b, unsigned int ms, int *ret_status)
{
	const uint64_t end = dl_now_ns() + ms * MS;
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	for (;;) {
		const uint64_t now = dl_now_ns();
		const pid_t got = waitpid(b->tid, ret_status, __WALL | WNOHANG);
		struct timespec left;

		if (got == b->tid)
			return WIFSTOPPED(*ret_status) ? 0 : -ESRCH;
		if (got < 0 && errno != EINTR)
			return -ESRCH;
		if (now >= end)
			return -ETIMEDOUT;
		left = (struct timespec){ .tv_sec = (time_t)((end - now) / DL_NS_PER_S),
					  .tv_nsec = (long)((end - now) % DL_NS_PER_S) };
		sigtimedwait(&set, NULL, &left);
	}
}

static bool is_trap(int status)
{
	return status >> 8 == (SIGTRAP | PTRACE_EVENT_STOP << 8);
}

static bool is_call(int status)
{
	return WSTOPSIG(status) == (SIGTRAP | 0x80);
}

/* A fault of the thread's own: a bug, or a damaged library. */
static bool is_fault(int status)
{
	const int sig = WSTOPSIG(status);

	return status >> 16 == 0 && (sig == SIGSEGV || sig == SIGBUS || sig == SIGILL || sig == SIGFPE);
}

/* The signal that a stop which nobody asked for has to be left with; 0 for a stop of the group. */
static long signal_of(int status)
{
	return status >> 16 ? 0 : WSTOPSIG(status);
}

/* Goes on with the request until a stop that want() knows, or a fault. */
static int go_on(struct borrow *b, enum __ptrace_request how, bool (*want)(int status), unsigned int ms)
{
	long sig = 0;
	int status = 0, err;

	for (int i = 0; i < STOPS_MAX; i++) {
		if (ptrace(how, b->tid, NULL, sig))
			return -errno;
		err = wait_stop(b, ms, &status);
		if (err)
			return err;
		if (want(status))
			return 0;
		if (is_fault(status))
			return -EFAULT;
		sig = signal_of(status);
	}
	return -EBUSY;
}

static void detach(const struct borrow *b, long sig)
{
	ptrace(PTRACE_DETACH, b->tid, NULL, sig);
}

static int get_regs(const struct borrow *b, struct user_regs_struct *regs)
{
	struct iovec iov = { regs, sizeof(*regs) };

	if (ptrace(PTRACE_GETREGSET, b->tid, NT_PRSTATUS, &iov))
		return -errno;
	return iov.iov_len == sizeof(*regs) ? 0 : -EOPNOTSUPP;	/* less: it runs 32-bit code */
}

static int set_regs(const struct borrow *b, const struct user_regs_struct *regs)
{
	struct user_regs_struct copy = *regs;
	struct iovec iov = { &copy, sizeof(copy) };

	return ptrace(PTRACE_SETREGSET, b->tid, NT_PRSTATUS, &iov) ? -errno : 0;
}

static int set_mask(const struct borrow *b, uint64_t mask)
{
	return ptrace(PTRACE_SETSIGMASK, b->tid, sizeof(mask), &mask) ? -errno : 0;
}

/* --- memory ---------------------------------------------------------------------------------------- */

static int peek(const struct borrow *b, uint64_t addr, void *buf, size_t sz)
{
	struct iovec to = { buf, sz }, from = { (void *)(uintptr_t)addr, sz };

	return process_vm_readv(b->tid, &to, 1, &from, 1, 0) == (ssize_t)sz ? 0 : -EFAULT;
}

static int poke(const struct borrow *b, uint64_t addr, const void *buf, size_t sz)
{
	struct iovec from = { (void *)(uintptr_t)buf, sz }, to = { (void *)(uintptr_t)addr, sz };

	return process_vm_writev(b->tid, &from, 1, &to, 1, 0) == (ssize_t)sz ? 0 : -EFAULT;
}

/* Into code, which nobody may write to but a tracer. */
static int poke_code(const struct borrow *b, uint64_t addr, const uint8_t *buf, size_t sz)
{
	for (size_t i = 0; i < sz; i += sizeof(long)) {
		long word;

		memcpy(&word, buf + i, sizeof(word));
		if (ptrace(PTRACE_POKETEXT, b->tid, addr + i, word))
			return -errno;
	}
	return 0;
}

/* --- there and back --------------------------------------------------------------------------------- */

/* Where the kernel itself decides how the interrupted call goes on: it restarts it, or lets it fail
 * with EINTR when a signal has come meanwhile. The order matters should we die in between. */
static void put_back(struct borrow *b)
{
	if (b->cave)
		poke_code(b, b->cave, b->cave_was, sizeof(b->cave_was));
	set_mask(b, b->s.mask);
	set_regs(b, &b->s.home);
	detach(b, 0);
	b->ret->away_ns = dl_now_ns() - b->stop_ts;
}

/* From a stop in or behind one of our own system calls. */
static int call_off(struct borrow *b, int err)
{
	ptrace(PTRACE_INTERRUPT, b->tid, NULL, NULL);
	if (!go_on(b, PTRACE_CONT, is_trap, CALL_MS))
		put_back(b);
	return err;
}

static bool has_signal(const struct borrow *b)
{
	char path[48], text[4096], *end;
	static const char *const keys[] = { "SigPnd:", "ShdPnd:", "SigBlk:" };
	uint64_t v[ARRAY_SIZE(keys)] = {};

	snprintf(path, sizeof(path), "task/%d/status", (int)b->tid);
	if (dl_proc_read(b->t->proc_fd, path, text, sizeof(text)) <= 0)
		return true;
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		const char *at = strstr(text, keys[i]);

		if (!at)
			return true;
		v[i] = strtoull(at + strlen(keys[i]), &end, 16);
	}
	return (v[0] | v[1]) & ~v[2];
}

/* Stopped, with everything read and nothing changed; -EAGAIN when another thread has to be asked. */
static int stop(struct borrow *b)
{
	struct iovec iov = { b->vector, sizeof(b->vector) };
	struct inject_wait seen;
	int status, err;

	if (!inject_thread_look(b->t, (uint32_t)b->tid, &seen) || !inject_wait_ok(b->t, &seen))
		return -EAGAIN;
	if (ptrace(PTRACE_SEIZE, b->tid, NULL, PTRACE_O_TRACESYSGOOD)) {
		err = -errno;
		if (err == -ESRCH)
			return -EAGAIN;
		return fail(b, err, "it may not be traced: %s%s", strerror(-err), err != -EPERM ? "" :
			    " (root and CAP_SYS_PTRACE are needed, and kernel.yama.ptrace_scope must not be 3)");
	}
	b->stop_ts = dl_now_ns();
	if (ptrace(PTRACE_INTERRUPT, b->tid, NULL, NULL))
		return -EAGAIN;
	err = wait_stop(b, STOP_MS, &status);
	if (err)
		return -EAGAIN;		/* our end lets it go */
	if (!is_trap(status)) {
		detach(b, signal_of(status));
		return -EAGAIN;
	}
	err = get_regs(b, &b->s.regs);
	if (!err && (ptrace(PTRACE_GETSIGMASK, b->tid, sizeof(b->s.mask), &b->s.mask) ||
		     ptrace(PTRACE_GETREGSET, b->tid, VECTOR_SET, &iov)))
		err = -errno;
	b->vector_sz = iov.iov_len;
	if (!err && peek(b, inject_pc(&b->s.regs) - 4, b->s.code, sizeof(b->s.code)))
		err = -EAGAIN;
	if (!err && !inject_stop_read(&b->s))
		err = -EAGAIN;
	if (!err && memcmp(&seen, &b->s.wait, sizeof(seen)) && !inject_wait_ok(b->t, &b->s.wait))
		err = -EAGAIN;
	if (!err && has_signal(b))
		err = -EAGAIN;
	if (!err)
		return 0;
	/* It was only stopped, but that alone makes some calls fail. */
	if (b->s.wait.pc)
		set_regs(b, &b->s.home);
	detach(b, 0);
	return err == -EAGAIN ? err : fail(b, err, "its registers cannot be read: %s", strerror(-err));
}

static int write_cave(struct borrow *b)
{
	uint8_t code[INJECT_CAVE_MAX] = {};
	size_t i = 0;
	int err;

	while (i < b->t->caves.cnt && !inject_cave_reaches(b->t->caves.v[i], &b->s))
		i++;
	if (i == b->t->caves.cnt)
		return -EAGAIN;
	b->cave = b->t->caves.v[i];
	err = peek(b, b->cave, b->cave_was, sizeof(b->cave_was));
	if (err) {
		b->cave = 0;
		return err;
	}
	inject_cave(&b->s, b->cave, code);
	return poke_code(b, b->cave, code, sizeof(code));
}

/* A system call of the thread: its result, or -errno. */
static int64_t call(struct borrow *b, int64_t nr, const uint64_t args[6])
{
	struct user_regs_struct regs = b->s.regs;
	int err;

	inject_set_call(&regs, b->cave, nr, args);
	err = set_regs(b, &regs);
	if (!err)
		err = set_mask(b, UINT64_MAX);	/* now that the code behind the call undoes it */
	for (int i = 0; i < 2 && !err; i++)
		err = go_on(b, PTRACE_SYSCALL, is_call, CALL_MS);
	if (!err)
		err = get_regs(b, &regs);
	return err ? err : inject_call_result(&regs);
}

static void fill_data(const struct borrow *b, struct inject_data *data, uint64_t base)
{
	*data = b->t->data;
	data->base = base;
	data->scratch = base + 2 * INJECT_PAGE;
	data->scratch_sz = INJECT_SCRATCH;
	data->mask = b->s.mask;
	data->all_mask = UINT64_MAX;
	data->worker_mask = ~(UINT64_C(3) << 31);	/* but the two of the C library's own, 32 and 33 */
	data->let_go.tv_sec = 1;
	data->tick.tv_nsec = 5 * (long)MS;
	data->settle.tv_nsec = 2 * (long)MS;
	snprintf(data->name, sizeof(data->name), "libdlbpf_cupti.so");
	snprintf(data->symbol, sizeof(data->symbol), "InitializeInjection");
}

/* Sends it off into the new page, in which it creates the thread. */
static int enter(struct borrow *b)
{
	const uint64_t map[6] = { 0, 2 * INJECT_PAGE + INJECT_SCRATCH, PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS, UINT64_MAX, 0 };
	uint64_t protect[6] = { 0, INJECT_PAGE, PROT_READ | PROT_EXEC };
	struct user_regs_struct regs;
	struct inject_data data;
	const size_t code_sz = (size_t)(dlbpf_inject_code_end - dlbpf_inject_code);
	int64_t base, err;

	base = call(b, SYS_mmap, map);
	if (base < 0 && base > -4096)
		return call_off(b, fail(b, (int)base, "it cannot map memory: %s", strerror((int)-base)));
	fill_data(b, &data, (uint64_t)base);
	inject_set_enter(&b->s, &regs, &data, (uint64_t)base, b->cave);
	err = poke(b, (uint64_t)base, dlbpf_inject_code, code_sz);
	if (!err)
		err = poke(b, (uint64_t)base + INJECT_PAGE, &data, sizeof(data));
	protect[0] = (uint64_t)base;
	if (!err)
		err = call(b, SYS_mprotect, protect);
	if (!err)
		err = set_regs(b, &regs);
	if (!err && ptrace(PTRACE_CONT, b->tid, NULL, NULL))
		err = -errno;
	if (!err) {
		b->ret->base = (uint64_t)base;
		return 0;
	}
	protect[1] = map[1];
	call(b, SYS_munmap, protect);
	return call_off(b, fail(b, (int)err, "it cannot run code in new memory: %s%s", strerror((int)-err),
				err == -EACCES ? " (a security module forbids it)" : ""));
}

/* With the vector registers, which the code has not restored. */
static int rescue(struct borrow *b, const char *why)
{
	struct iovec iov = { b->vector, b->vector_sz };

	ptrace(PTRACE_SETREGSET, b->tid, VECTOR_SET, &iov);
	put_back(b);
	return fail(b, -EDEADLK, "%s", why);
}

/* 0 when it goes on trying. */
static int look_at_slow(struct borrow *b)
{
	struct user_regs_struct regs;
	struct inject_wait w;
	int status, err;

	if (!inject_thread_look(b->t, (uint32_t)b->tid, &w) || w.nr != SYS_futex || (uint32_t)w.args[2] != 2)
		return 0;
	ptrace(PTRACE_INTERRUPT, b->tid, NULL, NULL);
	err = wait_stop(b, CALL_MS, &status);
	if (err)
		return fail(b, err, "it does not answer");
	if (is_trap(status) && !get_regs(b, &regs) && inject_pc(&regs) == w.pc)
		return rescue(b, "the thread that was to create another one waited for a lock; it was put back, and "
			      "nothing was loaded");
	ptrace(PTRACE_CONT, b->tid, NULL, signal_of(status));
	return 0;
}

/* Until the new thread is there. */
static int wait_created(struct borrow *b, int32_t *ret)
{
	const uint64_t addr = b->ret->base + INJECT_PAGE + offsetof(struct inject_data, created);
	const struct timespec nap = { .tv_nsec = LOOK_NS };
	const uint64_t start = dl_now_ns();
	uint64_t slow = start + CREATE_NS;
	int status, err;

	*ret = 0;
	for (;;) {
		const uint64_t now = dl_now_ns();

		if (!peek(b, addr, ret, sizeof(*ret)) && *ret)
			return 0;
		err = wait_stop(b, 0, &status);
		if (err == -ESRCH)
			return fail(b, err, "it ended, or started another program");
		if (!err && is_fault(status))
			return rescue(b, "creating a thread failed with a fault; the one that did it was put back");
		if (!err)
			ptrace(PTRACE_CONT, b->tid, NULL, signal_of(status));
		if (now > slow) {
			err = look_at_slow(b);
			if (err)
				return err;
			slow = now + CREATE_NS;
		}
		if (now - start > CREATE_MAX_NS)
			return fail(b, -ETIMEDOUT, "creating a thread takes too long");
		nanosleep(&nap, NULL);
	}
}

static int fetch(struct borrow *b)
{
	const int32_t left = 1;
	struct user_regs_struct regs;
	int32_t created;
	int status, err;

	err = wait_created(b, &created);
	if (err)
		return err;
	ptrace(PTRACE_INTERRUPT, b->tid, NULL, NULL);
	for (int i = 0; i < STOPS_MAX; i++) {
		err = wait_stop(b, CALL_MS, &status);
		if (err || is_trap(status))
			break;
		ptrace(PTRACE_CONT, b->tid, NULL, signal_of(status));
	}
	if (err)
		return fail(b, err, "it ended, or started another program");
	/* Elsewhere: nobody came for a second, and it went by itself. */
	if (!get_regs(b, &regs) && inject_pc(&regs) - b->ret->base < INJECT_PAGE) {
		put_back(b);
		poke(b, b->ret->base + INJECT_PAGE + offsetof(struct inject_data, left), &left, sizeof(left));
	} else {
		poke_code(b, b->cave, b->cave_was, sizeof(b->cave_was));
		detach(b, 0);
		b->ret->away_ns = dl_now_ns() - b->stop_ts;
	}
	return created < 0 ? fail(b, created, "it cannot create a thread: %s", strerror(-created)) : 0;
}

void inject_borrow(const struct inject_target *t, uint32_t tid, struct inject_try *ret)
{
	struct borrow *b = calloc(1, sizeof(*b));
	sigset_t set;
	int err;

	if (!b) {
		ret->err = -ENOMEM;
		return;
	}
	b->t = t;
	b->ret = ret;
	b->tid = (pid_t)tid;
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, NULL);
	err = stop(b);
	if (!err) {
		err = write_cave(b);
		if (err)
			put_back(b);
		else
			err = enter(b);
		if (!err)
			err = fetch(b);
	}
	ret->err = err;
	free(b);
}
