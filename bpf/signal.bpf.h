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

#endif
