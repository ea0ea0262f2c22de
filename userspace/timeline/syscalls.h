/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What system calls mean to a wait. A trace is analysed on any machine, so the numbers are those
 * of the machine that it was recorded on, never of this one. */
#ifndef DLBPF_TIMELINE_SYSCALLS_H
#define DLBPF_TIMELINE_SYSCALLS_H

#include <stdint.h>

enum dl_sys {
	DL_SYS_NONE = 0,	/* not in a system call */
	DL_SYS_OTHER,
	DL_SYS_READ,		/* read, recv: of any descriptor */
	DL_SYS_WRITE,		/* write, send */
	DL_SYS_POLL,		/* poll, select, epoll */
	DL_SYS_ACCEPT,
	DL_SYS_CONNECT,
	DL_SYS_FUTEX,
	DL_SYS_SLEEP,		/* nanosleep */
	DL_SYS_WAIT,		/* for a child */
	DL_SYS_FORK,
	DL_SYS_EXEC,
	DL_SYS_EXIT,
	DL_SYS_FILE,		/* open, stat, ...: a path of some file system */
	DL_SYS_FSYNC,
	DL_SYS_LOCK,		/* flock, fcntl: that blocks for a lock on a file only */
	DL_SYS_MMAP,		/* mmap, munmap, brk, ... */
	DL_SYS_KILL,
	DL_SYS_CLOSE,
	DL_SYS_CNT,
};

enum dl_machine { DL_MACHINE_X86_64 = 0, DL_MACHINE_ARM64, DL_MACHINE_CNT };

enum dl_machine dl_machine_of(const char *uname_machine);

#define DL_SYS_NRS 512	/* numbers from here on mean nothing special */

extern const uint8_t dl_sys_table[DL_MACHINE_CNT][DL_SYS_NRS];	/* DL_SYS_NONE: DL_SYS_OTHER */

static inline enum dl_sys dl_sys_class(enum dl_machine machine, int32_t nr)
{
	enum dl_sys sys;

	if (nr < 0)
		return DL_SYS_NONE;
	sys = nr < DL_SYS_NRS ? (enum dl_sys)dl_sys_table[machine][nr] : DL_SYS_OTHER;
	return sys == DL_SYS_NONE ? DL_SYS_OTHER : sys;
}

#endif
