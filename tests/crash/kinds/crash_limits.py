# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""Limits: descriptors, memory mappings, processes and threads."""

import ctypes
import os
import time

from crash import DECIDES, FITS, Crash
import crash_places as places
import training

FDS, PIN_FDS = 64, 128
AT = 480
LAST = 1.5  # seconds that a run goes on near its limit, as real ones do for hours


def kept(run, step=None):
    """Every batch is kept: with the default sharing each costs a descriptor."""
    batches = []
    run.loop(run.loader(training.Samples()), lambda run, batch: batches.append(batch))


def trainer_few(run):
    training.say(planted="fds", limit=FDS)
    kept(run)


def fill_all_but_one(run):
    """The trainer keeps files open until one descriptor is left: enough to ask a worker for a batch, not for
    what it then sends."""
    files = []

    def fill(run, batch):
        if run.done != 60:
            return
        training.say(planted="fds", limit=PIN_FDS)
        try:
            while True:
                files.append(open("/dev/null"))
        except OSError:
            files.pop().close()

    run.loop(run.loader(training.Samples()), fill)


class Opens(training.Samples):
    """A data set that forgets to close its files."""

    def fault(self, index):
        if index != AT:
            return
        import resource

        time.sleep(0.5)  # what is on its way has gone
        count = len(os.listdir("/proc/self/fd"))
        resource.setrlimit(resource.RLIMIT_NOFILE, (count + 40, count + 40))
        training.say(planted="fds", limit=count + 40)
        self.files = []
        for i in range(1000):
            self.files.append(open("/dev/null"))
            if i == 30:
                time.sleep(LAST)


def opens(run):
    run.loop(run.loader(Opens()))


class Maps(training.Samples):
    """Makes mappings until there are no more, and is asked for a batch."""

    def fault(self, index):
        if index != AT:
            return
        with open("/proc/sys/vm/max_map_count") as f:
            limit = int(f.read())
        training.say(planted="maps", limit=limit)
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
        for i in range(limit):
            # Neighbours of another protection: the kernel cannot make them one.
            if i == limit - 1000:
                time.sleep(LAST)
            if libc.mmap(None, 4096, 1 if i % 2 else 0, 0x22, -1, 0) == ctypes.c_void_p(-1).value:
                break


def maps(run):
    run.loop(run.loader(Maps()))


def many_workers(run):
    """As many processes as are allowed run already."""
    training.say(planted="pids")
    run.loop(run.loader(training.Samples(), num_workers=24))


class Threads(training.Samples):
    """A thread pool of its own in each worker."""

    def fault(self, index):
        if index != AT:
            return
        import threading

        time.sleep(0.5)
        training.say(planted="pids")
        for _ in range(64):
            threading.Thread(target=time.sleep, args=(60,), daemon=True).start()


def threads(run):
    run.loop(run.loader(Threads()))


def fds_are(least):
    def numbers(meta):
        limit = meta["planted"][0]["limit"]
        return {"fds.limit": (limit, limit), "fds.open": (limit - least, limit)}

    return numbers


def maps_are(meta):
    limit = meta["planted"][0]["limit"]
    return {"maps.limit": (limit, limit), "maps.count": (limit - 1100, limit + 2)}


def user(*limits):
    """An unprivileged user: limits of processes do not bind root."""
    return places.Prefix("setpriv", "--reuid=54321", "--regid=54321", "--clear-groups", "prlimit", *limits)


SCENARIOS = [
    Crash("fds_trainer", "the trainer may have 64 descriptors, and keeps all batches", "fd-limit", trainer_few,
          victim="trainer", status=1, trainer=1, numbers=fds_are(8), log=DECIDES, quick=True, kernel_ms=40,
          place=lambda: places.Prefix("prlimit", f"--nofile={FDS}:{FDS}")),
    Crash("fds_trainer_new", "the same with a current PyTorch", "fd-limit", trainer_few, victim="trainer", status=1,
          trainer=1, numbers=fds_are(8), log=DECIDES, new=True, kernel_ms=40,
          place=lambda: places.Prefix("prlimit", f"--nofile={FDS}:{FDS}")),
    Crash("fds_pin_thread", "pinned memory, and a trainer that keeps files open: the thread that pins fails",
          "fd-limit", fill_all_but_one, victim="trainer", numbers=fds_are(8), log=FITS, form={"pin": True}, gpu="sim",
          place=lambda: places.Prefix("prlimit", f"--nofile={PIN_FDS}:{PIN_FDS}")),
    Crash("fds_worker", "a data set never closes its files; the worker's limit is reached", "fd-limit", opens,
          victim=None, trainer=1, numbers=fds_are(12), log=DECIDES, said="Too many open files"),
    Crash("maps_worker", "a worker has as many memory mappings as it may (vm.max_map_count)", "map-count-limit", maps,
          victim=None, place=lambda: places.shm(64), numbers=maps_are, log=FITS, quick=True,
          said="Cannot allocate memory"),
    Crash("pids_fork", "a cgroup that may have 24 processes and threads, and a loader of 24 workers", "process-limit",
          many_workers, victim="trainer", status=1, trainer=1, place=lambda: places.processes(24),
          numbers={"pids.limit": (24, 24)}, log=FITS, quick=True),
    Crash("pids_thread", "a cgroup of 40, and a worker that starts 64 threads", "process-limit", threads, victim=None,
          place=lambda: places.processes(40), trainer=1, numbers={"pids.limit": (40, 40)}, log=FITS,
          said="can't start new thread"),
    Crash("nproc_fork", "an ordinary user that may have 20 processes (ulimit -u), and a loader of 24 workers",
          "process-limit", many_workers, victim="trainer", status=1, trainer=1,
          place=lambda: user("--nproc=20:20"), log=FITS),
]
