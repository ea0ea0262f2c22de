/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What of a failed system call is worth an event, and which of its arguments say more. A call that is
 * not in the table counts by its error alone. The numbers are this machine's.
 */
#include <sys/syscall.h>

#include "base/cleanup.h"
#include "capture/kernel_priv.h"

struct row {
	int nr;
	struct dl_sc_fail fail;
};

/* Arguments are counted from 1, as in their man pages. */
#define CALL(name, flags, path, bytes, fd) { SYS_##name, { flags, path, bytes, fd } }
#define BYTES(name, arg) CALL(name, 0, 0, arg, 0)
#define PATH(name, arg) CALL(name, 0, arg, 0, 0)
#define MAPS DL_FC_MAPS

static const struct row rows[] = {
	/* shared memory objects, and all other files */
	CALL(openat, DL_FC_SHM_ENOENT, 2, 0, 0), CALL(unlinkat, DL_FC_SHM_ENOENT, 2, 0, 0),
	PATH(mkdirat, 2), PATH(mknodat, 2), PATH(symlinkat, 3), PATH(linkat, 4), PATH(renameat2, 4),
	PATH(newfstatat, 2), PATH(statx, 2), PATH(readlinkat, 2), PATH(faccessat, 2), PATH(chdir, 1),
	PATH(inotify_add_watch, 2), PATH(statfs, 1), CALL(truncate, 0, 1, 2, 0),
#ifdef SYS_openat2
	CALL(openat2, DL_FC_SHM_ENOENT, 2, 0, 0),
#endif
#ifdef SYS_faccessat2
	PATH(faccessat2, 2),
#endif
#ifdef SYS_renameat
	PATH(renameat, 4),
#endif
#ifdef SYS_open	/* x86-64 still has the older calls */
	CALL(open, DL_FC_SHM_ENOENT, 1, 0, 0), CALL(unlink, DL_FC_SHM_ENOENT, 1, 0, 0),
	PATH(creat, 1), PATH(mkdir, 1), PATH(mknod, 1), PATH(symlink, 2), PATH(link, 2), PATH(rename, 2),
	PATH(stat, 1), PATH(lstat, 1), PATH(access, 1), PATH(readlink, 1),
#endif
	/* how much was to be written, or read */
	BYTES(write, 3), BYTES(pwrite64, 3), BYTES(read, 3), BYTES(pread64, 3), BYTES(ftruncate, 2),
	BYTES(fallocate, 4), BYTES(sendfile, 4), BYTES(copy_file_range, 5), BYTES(sendto, 3),
	BYTES(recvfrom, 3), BYTES(splice, 5),
	/* memory */
	CALL(mmap, MAPS | DL_FC_AGAIN, 0, 2, 5), CALL(mremap, MAPS | DL_FC_AGAIN, 0, 3, 0), CALL(munmap, MAPS, 0, 0, 0),
	CALL(mprotect, MAPS, 0, 0, 0), CALL(shmat, MAPS, 0, 0, 0), BYTES(shmget, 2),
	CALL(mlock, DL_FC_LOCK | DL_FC_AGAIN, 0, 2, 0), CALL(mlockall, DL_FC_LOCK | DL_FC_AGAIN, 0, 0, 0),
#ifdef SYS_mlock2
	CALL(mlock2, DL_FC_LOCK | DL_FC_AGAIN, 0, 2, 0),
#endif
	/* asked of an address where nothing may be mapped: unwinders look that way whether there is */
	CALL(mincore, DL_FC_NO_MEM, 0, 0, 0), CALL(msync, DL_FC_NO_MEM, 0, 0, 0), CALL(madvise, DL_FC_NO_MEM, 0, 0, 0),
	CALL(munlock, DL_FC_NO_MEM, 0, 0, 0),
#ifdef SYS_process_madvise
	CALL(process_madvise, DL_FC_NO_MEM, 0, 0, 0),
#endif
	/* processes and threads */
	CALL(clone, DL_FC_CLONE | DL_FC_AGAIN, 0, 0, 0),
#ifdef SYS_clone3
	CALL(clone3, DL_FC_CLONE3 | DL_FC_AGAIN, 0, 0, 0),
#endif
#ifdef SYS_fork
	CALL(fork, DL_FC_FORK | DL_FC_AGAIN, 0, 0, 0), CALL(vfork, DL_FC_FORK | DL_FC_AGAIN, 0, 0, 0),
#endif
	CALL(execve, DL_FC_AGAIN, 1, 0, 0), CALL(execveat, DL_FC_AGAIN, 2, 0, 0),
	CALL(io_setup, DL_FC_AGAIN, 0, 0, 0),
};

void dl_kernel_fill_fails(struct dl_sc_fail *table)
{
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		if (rows[i].nr >= 0 && rows[i].nr < DL_SYSCALL_CNT)
			table[rows[i].nr] = rows[i].fail;
	}
}
