# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""crash_fuse.py FOLDER broken|whole: a file system with one file, data, of 64 MiB. Of a broken one the
second half cannot be read, as of a disk with bad blocks. It ends when it is unmounted, and with the runner."""

import ctypes
import errno
import os
import signal
import stat
import sys

from fusepy import FUSE, FuseOSError, Operations

PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15
SIZE = 64 << 20


class OneFile(Operations):
    def __init__(self, broken):
        self.broken = broken

    def getattr(self, path, fh=None):
        if path == "/":
            return {"st_mode": stat.S_IFDIR | 0o755, "st_nlink": 2}
        if path != "/data":
            raise FuseOSError(errno.ENOENT)
        return {"st_mode": stat.S_IFREG | 0o444, "st_nlink": 1, "st_size": SIZE}

    def read(self, path, size, offset, fh):
        if self.broken and offset + size > SIZE // 2:
            raise FuseOSError(errno.EIO)
        return bytes(size)


if __name__ == "__main__":
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    libc.prctl(PR_SET_NAME, b"netstore")
    os.chdir("/")
    FUSE(OneFile(sys.argv[2] == "broken"), sys.argv[1], foreground=True, allow_other=True)
