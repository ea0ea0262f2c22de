#!/usr/bin/python3
# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""hog.py COUNT: so many processes that only compute, each stopped until it is sent SIGCONT. Prints their
pids as JSON. They end with the process that started this one."""

import ctypes
import json
import os
import signal
import sys

NAME = b"neighbour"
PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15


def end_with(parent):
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    libc.prctl(PR_SET_NAME, NAME)
    if os.getppid() != parent:
        os._exit(0)


def hog(parent):
    end_with(parent)
    os.kill(os.getpid(), signal.SIGSTOP)
    while True:
        pass


def main():
    end_with(os.getppid())
    pids, me = [], os.getpid()
    for _ in range(int(sys.argv[1])):
        pid = os.fork()
        if not pid:
            hog(me)
        pids.append(pid)
    for pid in pids:
        os.waitpid(pid, os.WUNTRACED)
    print(json.dumps(pids), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
