/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Which argument of a system call is the descriptor it may wait for, and which its time-out. The
 * numbers are this machine's, so that the BPF side needs none.
 */
#include <sys/syscall.h>

#include "base/cleanup.h"
#include "capture/kernel_priv.h"

struct row {
	int nr;
	struct dl_syscall sc;
};

#define FD(name) { SYS_##name, { DL_SC_FD_ARG0, DL_SC_TO_NONE } }
#define FD_TO(name, to) { SYS_##name, { DL_SC_FD_ARG0, DL_SC_TO_##to } }
#define POLL(name, to) { SYS_##name, { DL_SC_FD_POLL, DL_SC_TO_##to } }
#define TO(name, to) { SYS_##name, { DL_SC_FD_NONE, DL_SC_TO_##to } }

static const struct row rows[] = {
	FD(read), FD(write), FD(pread64), FD(pwrite64), FD(readv), FD(writev), FD(preadv), FD(pwritev),
	FD(preadv2), FD(pwritev2), FD(recvfrom), FD(recvmsg), FD(sendto), FD(sendmsg), FD(sendmmsg),
	FD_TO(recvmmsg, TS_ARG4), FD(accept), FD(accept4), FD(connect), FD(fsync), FD(fdatasync),
	FD(sync_file_range), FD(fallocate), FD(ftruncate), FD(flock), FD(fcntl), FD(ioctl), FD(getdents64),
	FD(fstat), FD(lseek), FD(fadvise64), FD(readahead), FD(splice), FD(vmsplice), FD(tee),
	FD(copy_file_range), FD(syncfs),
	{ SYS_sendfile, { DL_SC_FD_ARG1, DL_SC_TO_NONE } },	/* reads from its second argument */
	FD_TO(epoll_pwait, MS_ARG3),
#ifdef SYS_epoll_pwait2
	FD_TO(epoll_pwait2, TS_ARG3),
#endif
	POLL(ppoll, TS_ARG2), TO(pselect6, TS_ARG4),
#ifdef SYS_epoll_wait	/* x86-64 still has the older calls */
	FD_TO(epoll_wait, MS_ARG3), POLL(poll, MS_ARG2), TO(select, TV_ARG4), FD(getdents),
#endif
	TO(futex, FUTEX), TO(nanosleep, TS_ARG0), TO(clock_nanosleep, CLOCK_NANOSLEEP),
	TO(rt_sigtimedwait, TS_ARG2), TO(semtimedop, TS_ARG3), TO(restart_syscall, RESTART),
};

void dl_kernel_fill_syscalls(struct dl_syscall *table)
{
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		if (rows[i].nr >= 0 && rows[i].nr < DL_SYSCALL_CNT)
			table[rows[i].nr] = rows[i].sc;
	}
}
