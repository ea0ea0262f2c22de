/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Files and folders by their descriptors. */
#ifndef DLBPF_BASE_FILE_H
#define DLBPF_BASE_FILE_H

#include <dirent.h>
#include <stddef.h>
#include <stdint.h>

/* The folder that fd is open at, to be read; it takes fd over, also when it fails: NULL, with errno. */
DIR *dl_dir_of(int fd);

/* Reads all of sz bytes from off on: 0, -ENODATA where the file is shorter, or -errno. */
int dl_read_at(int fd, void *buf, size_t sz, uint64_t off);

#endif
