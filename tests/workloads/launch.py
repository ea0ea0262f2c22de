# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""Starts several trainers on one machine as torchrun does: one process each, told by RANK,
LOCAL_RANK and WORLD_SIZE which it is. The first argument is their number, the rest a script with
its arguments. Ends with the first exit code that is not zero, and the others are then ended."""

import os
import signal
import subprocess
import sys


def main():
    count = int(sys.argv[1])
    procs = []
    for rank in range(count):
        env = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(count),
                   MASTER_ADDR="127.0.0.1", MASTER_PORT="29500")
        procs.append(subprocess.Popen([sys.executable] + sys.argv[2:], env=env))

    def end(*_):
        for p in procs:
            if p.poll() is None:
                p.terminate()

    signal.signal(signal.SIGTERM, end)
    code = 0
    for p in procs:
        rc = p.wait()
        if rc and not code:
            code = rc
            end()
    sys.exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
