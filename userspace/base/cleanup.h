/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Cleanup of locals by attribute: the whole memory policy of userspace/ in one place. */
#ifndef DLBPF_BASE_CLEANUP_H
#define DLBPF_BASE_CLEANUP_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static inline void dl_free_p(void *p)
{
	free(*(void **)p);
}

static inline void dl_close_p(int *fd)
{
	if (*fd >= 0)
		close(*fd);
}

static inline void dl_fclose_p(FILE **f)
{
	if (*f)
		fclose(*f);
}

static inline void dl_closedir_p(DIR **d)
{
	if (*d)
		closedir(*d);
}

#define _cleanup_(fn) __attribute__((cleanup(fn)))
#define _cleanup_free_ _cleanup_(dl_free_p)
#define _cleanup_close_ _cleanup_(dl_close_p)
#define _cleanup_fclose_ _cleanup_(dl_fclose_p)
#define _cleanup_closedir_ _cleanup_(dl_closedir_p)

/* Hands a pointer or descriptor over: the local no longer owns it. */
#define take_ptr(p) ({ __typeof__(p) _taken = (p); (p) = NULL; _taken; })
#define take_fd(fd) ({ int _taken = (fd); (fd) = -1; _taken; })

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

#endif
