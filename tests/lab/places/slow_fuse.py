# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""slow_fuse.py FOLDER direct|cached: a file system in which every number is a file. Reading from it takes
so many milliseconds: a network file system with a slow server, or one that decompresses. It ends when it
is unmounted, and with the lab."""

import ctypes
import errno
import os
import signal
import stat
import sys
import time

from fusepy import FUSE, FuseOSError, Operations

PR_SET_PDEATHSIG = 1
SIZE = 1 << 40


class Slow(Operations):
    def getattr(self, path, fh=None):
        if path == "/":
            return {"st_mode": stat.S_IFDIR | 0o755, "st_nlink": 2}
        self.delay(path)
        return {"st_mode": stat.S_IFREG | 0o444, "st_nlink": 1, "st_size": SIZE}

    @staticmethod
    def delay(path):
        try:
            return float(path[1:]) / 1000
        except ValueError:
            raise FuseOSError(errno.ENOENT)

    def read(self, path, size, offset, fh):
        time.sleep(self.delay(path))
        return bytes(size)


if __name__ == "__main__":
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    os.chdir("/")
    FUSE(Slow(), sys.argv[1], foreground=True, allow_other=True, direct_io=sys.argv[2] == "direct")
