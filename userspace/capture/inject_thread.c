/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Whom to borrow. The thread will call pthread_create(), so it must not be inside malloc or the
 * loader, whose locks it might hold. Neither of them ever waits in poll(), nanosleep() and the like;
 * of what they call, mmap(), read() of files and futex() with the value 2 (a lock that is contended)
 * are left out. What remains is a signal handler that interrupted them and waits: its frame shows on
 * the stack.
 */
#include "capture/inject_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "capture/proc.h"

#ifndef SYS_epoll_pwait2
#define SYS_epoll_pwait2 441
#endif

#define PF_EXITING 0x00000004
#define PF_IO_WORKER 0x00000010		/* include/linux/sched.h: threads without user code */
#define STACK_LOOK (256U << 10)
#define STACK_NEAR 1024			/* frames of the function that made the call */

/* --- system calls ---------------------------------------------------------------------------------- */

static bool is_file(const struct inject_target *t, uint64_t fd)
{
	char path[32];
	struct stat st;

	snprintf(path, sizeof(path), "fd/%d", (int)fd);
	return fstatat(t->proc_fd, path, &st, 0) || S_ISREG(st.st_mode) || S_ISDIR(st.st_mode) ||
	       S_ISBLK(st.st_mode);
}

static bool futex_ok(const uint64_t args[6])
{
	switch ((int)args[1] & FUTEX_CMD_MASK) {
	case FUTEX_WAIT_BITSET:		/* conditions, semaphores, joins: no lock of libc's own */
		return true;
	case FUTEX_WAIT:
		return (uint32_t)args[2] != 2;
	}
	return false;
}

static bool call_ok(const struct inject_target *t, const struct inject_wait *w)
{
	if (!inject_can_restart && inject_wait_needs_restart(w->nr))
		return false;
	switch (w->nr) {
#ifdef SYS_poll
	case SYS_poll:
	case SYS_select:
	case SYS_pause:
	case SYS_epoll_wait:
		/* Never continued by the kernel; begun anew it would wait for too long. */
		return w->nr != SYS_epoll_wait || (int)w->args[3] < 0;
#endif
	case SYS_epoll_pwait:
		return (int)w->args[3] < 0;
	case SYS_epoll_pwait2:
	case SYS_semtimedop:
		return !w->args[3];
	case SYS_rt_sigtimedwait:
		return !w->args[2];
	case SYS_restart_syscall:	/* a timed wait that was interrupted before */
	case SYS_ppoll:
	case SYS_pselect6:
	case SYS_rt_sigsuspend:
	case SYS_nanosleep:
	case SYS_clock_nanosleep:
	case SYS_wait4:
	case SYS_waitid:
	case SYS_accept:
	case SYS_accept4:
	case SYS_recvfrom:
	case SYS_recvmsg:
		return true;
	case SYS_read:
		return !is_file(t, w->args[0]);
	case SYS_futex:
		return futex_ok(w->args);
	}
	return false;
}

bool inject_wait_needs_restart(int64_t nr)
{
	switch (nr) {
#ifdef SYS_epoll_wait
	case SYS_epoll_wait:
#endif
	case SYS_epoll_pwait:
	case SYS_epoll_pwait2:
	case SYS_semop:
	case SYS_semtimedop:
	case SYS_rt_sigtimedwait:
	case SYS_accept:
	case SYS_accept4:
	case SYS_recvfrom:
	case SYS_recvmsg:
	case SYS_io_getevents:
		return true;
	}
	return false;
}

/* --- the stack ------------------------------------------------------------------------------------- */

/* What a signal handler returns to: it makes the call rt_sigreturn. */
static bool is_sigreturn(const struct inject_target *t, uint64_t addr)
{
#ifdef __x86_64__
	static const uint8_t want[] = { 0x48, 0xc7, 0xc0, SYS_rt_sigreturn, 0, 0, 0, 0x0f, 0x05 };
#else
	static const uint8_t want[] = { 0x68, 0x11, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4 };	/* mov x8, #139; svc #0 */
#endif
	uint8_t code[sizeof(want)];
	struct iovec to = { code, sizeof(code) }, from = { (void *)(uintptr_t)addr, sizeof(code) };

	return process_vm_readv((pid_t)t->pid, &to, 1, &from, 1, 0) == sizeof(code) && !memcmp(code, want, sizeof(want));
}

static bool stack_ok(const struct inject_target *t, const struct inject_wait *w)
{
	const struct inject_range *stack = inject_range_of(t, w->sp);
	_cleanup_free_ uint64_t *words = NULL;
	struct iovec to, from;
	uint64_t last = 0;
	ssize_t n;

	if (!stack || w->sp & 7)
		return false;
	to.iov_len = stack->end - w->sp < STACK_LOOK ? stack->end - w->sp : STACK_LOOK;
	words = malloc(to.iov_len);
	if (!words)
		return false;
	to.iov_base = words;
	from = (struct iovec){ (void *)(uintptr_t)w->sp, to.iov_len };
	n = process_vm_readv((pid_t)t->pid, &to, 1, &from, 1, 0);
	if (n <= 0)
		return false;
	for (size_t i = 0; i < (size_t)n / sizeof(*words); i++) {
		const struct inject_range *r;

		if (words[i] == last || words[i] < 65536)
			continue;
		last = words[i];
		r = inject_range_of(t, words[i]);
		if (!r || !r->exec)
			continue;
		if ((r->loader && i * sizeof(*words) < STACK_NEAR) || is_sigreturn(t, words[i]))
			return false;
	}
	return true;
}

bool inject_wait_ok(const struct inject_target *t, const struct inject_wait *w)
{
	const struct inject_range *code = inject_range_of(t, w->pc);

	return code && code->exec && !code->loader && call_ok(t, w) && stack_ok(t, w);
}

/* --- threads --------------------------------------------------------------------------------------- */

bool inject_thread_look(const struct inject_target *t, uint32_t tid, struct inject_wait *ret)
{
	char path[48], text[512];
	struct inject_wait w = {};
	struct dl_stat st;

	if (dl_proc_stat(t->proc_fd, tid, &st) || st.state != 'S' ||
	    st.flags & (DL_PF_KTHREAD | PF_IO_WORKER | PF_EXITING))
		return false;
	snprintf(path, sizeof(path), "task/%u/syscall", tid);
	if (dl_proc_read(t->proc_fd, path, text, sizeof(text)) <= 0)
		return false;
	if (sscanf(text, "%" SCNd64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64
		   " %" SCNx64 " %" SCNx64, &w.nr, &w.args[0], &w.args[1], &w.args[2], &w.args[3], &w.args[4],
		   &w.args[5], &w.sp, &w.pc) != 9 || w.nr < 0)
		return false;
	*ret = w;
	return true;
}

struct collect {
	const struct inject_target *t;
	struct inject_tids *ret;
	bool first;
};

static int add_thread(uint32_t tid, void *arg)
{
	struct collect *c = arg;
	struct inject_wait w;
	uint32_t *slot;

	if (tid == c->t->pid) {
		c->first = true;
		return 0;
	}
	if (!inject_thread_look(c->t, tid, &w) || !inject_wait_ok(c->t, &w))
		return 0;
	slot = vec_push(c->ret);
	if (!slot)
		return -ENOMEM;
	*slot = tid;
	return 0;
}

int inject_threads(const struct inject_target *t, struct inject_tids *ret)
{
	struct collect c = { .t = t, .ret = ret };
	struct inject_wait w;
	uint32_t *slot;
	int err;

	ret->cnt = 0;
	err = dl_proc_each_tid(t->proc_fd, add_thread, &c);
	if (err < 0 || !c.first || !inject_thread_look(t, t->pid, &w) || !inject_wait_ok(t, &w))
		return err < 0 ? err : 0;
	slot = vec_push(ret);
	if (!slot)
		return -ENOMEM;
	*slot = t->pid;
	return 0;
}
