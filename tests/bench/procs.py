# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""The processes that the benchmark starts, which end with it however it ends, and what they use."""

import contextlib
import ctypes
import os
import signal
import subprocess
import tempfile
import time
from collections import namedtuple

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)
_running = []


def _end_with_parent():
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    # What a shell starts in the background ignores Ctrl-C, and so would recorders, which are ended by it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def start(command, **popen):
    """In a session of its own: Ctrl-C reaches the benchmark, which ends what it started in order."""
    p = subprocess.Popen(command, stdin=popen.pop("stdin", subprocess.DEVNULL), start_new_session=True,
                         preexec_fn=_end_with_parent, **popen)
    _running.append(p)
    return p


def end(p, how=signal.SIGTERM, seconds=20):
    """The exit code. What does not end in time is killed."""
    if p.poll() is None:
        p.send_signal(how)
        try:
            p.wait(seconds)
        except subprocess.TimeoutExpired:
            p.kill()
    if p in _running:
        _running.remove(p)
    return p.wait()


def end_all():
    for p in reversed(_running[:]):
        end(p, seconds=5)


@contextlib.contextmanager
def until_end(p, how=signal.SIGTERM, seconds=20):
    try:
        yield p
    finally:
        end(p, how, seconds)


def tree(pid):
    """A process, its children and theirs."""
    found, todo = [], [pid]
    while todo:
        pid = todo.pop()
        found.append(pid)
        with contextlib.suppress(OSError):
            for tid in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{tid}/children") as f:
                    todo += [int(c) for c in f.read().split()]
    return found


def cpu_ns(pids):
    """CPU time of processes so far, all their threads, to the nanosecond: each has a clock of its own."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):  # it has ended
            total += time.clock_gettime_ns((~pid << 3) | 2)  # CPUCLOCK_SCHED
    return total


def minor_faults(pids):
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as f:
            total += int(f.read().rsplit(")", 1)[1].split()[7])
    return total


def peak_mib(pids):
    """The largest resident memory that they had, each for itself, together."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError, StopIteration), open(f"/proc/{pid}/status") as f:
            total += next(int(line.split()[1]) for line in f if line.startswith("VmHWM"))
    return total / 1024


Used = namedtuple("Used", "seconds cpu_s peak_mib output")


def measure(command, limit=900, keep_output=False):
    """Runs a command to its end. RuntimeError when it fails or takes longer than the limit."""
    floor = peak_mib([os.getpid()])  # wait4 counts what the child was before it became the command
    peak, began = 0.0, time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        p = start(command, stdout=out if keep_output else subprocess.DEVNULL, stderr=errors)
        with until_end(p, signal.SIGKILL):
            pid = 0
            while not pid:
                peak = max(peak, peak_mib([p.pid]))
                pid, status, usage = os.wait4(p.pid, os.WNOHANG)
                if not pid and time.monotonic() - began > limit:
                    raise RuntimeError(f"{command[0]} took longer than {limit} s")
                time.sleep(0 if pid else 0.005)
            seconds = time.monotonic() - began
            p.returncode = os.waitstatus_to_exitcode(status)
        if p.returncode:
            errors.seek(0)
            raise RuntimeError(f"{' '.join(command[:3])} ended with {p.returncode}: "
                               f"{errors.read().decode(errors='replace').strip()[-300:]}")
        out.seek(0)
        output = out.read().decode(errors="replace")
    most = usage.ru_maxrss / 1024
    return Used(seconds, usage.ru_utime + usage.ru_stime, max(peak, most if most > floor * 1.1 else 0), output)
