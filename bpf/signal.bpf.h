/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Signals as the kernel hands them to its tracepoints. */
#ifndef DLBPF_SIGNAL_BPF_H
#define DLBPF_SIGNAL_BPF_H

#include "dlbpf.bpf.h"

#define SIGILL 4
#define SIGABRT 6
#define SIGBUS 7
#define SIGFPE 8
#define SIGKILL 9
#define SIGSEGV 11
#define SIGCHLD 17
#define SIGCONT 18
#define SIGURG 23
#define SIGWINCH 28
#define SI_USER 0
#define SI_KERNEL 0x80
#define SI_TIMER -2
#define BUS_ADRERR 2

/* linux/sched/signal.h: an info that is no pointer */
#define SEND_SIG_NOINFO 0
#define SEND_SIG_PRIV 1

static __always_inline int sig_code(struct kernel_siginfo *info)
{
	if ((unsigned long)info == SEND_SIG_NOINFO)
		return SI_USER;
	if ((unsigned long)info == SEND_SIG_PRIV)
		return SI_KERNEL;
	return BPF_CORE_READ(info, si_code);
}

static __always_inline bool is_fault(int sig, int code)
{
	return code > 0 && code < SI_KERNEL &&
	       (sig == SIGBUS || sig == SIGSEGV || sig == SIGFPE || sig == SIGILL);
}

/* Signals that end nobody, whoever handles them, may be left out of a ring that fills; true when this one is. */
static __always_inline bool sig_left_out(int sig)
{
	if (sig == SIGCHLD)
		return !dl_crash_room(DL_SHED_CHILD_SIGNAL);
	if (sig == SIGCONT || sig == SIGURG || sig == SIGWINCH)
		return !dl_crash_room(DL_SHED_SIGNAL);
	return false;
}

#endif
