# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""What the scenarios about CPUs share, in the training: samples of a fixed work, and the moment at which
the fault begins. What is lost to it is charged to waiting alone where that is long against the work."""

import contextlib
import ctypes
import os
import signal
import time

from loop import Decodes

BATCH = 4


class Data(Decodes):
    """Samples that take so many ms of CPU a batch."""

    def __init__(self, ms):
        super().__init__(ms / BATCH)


def started(run, loader):
    """An iterator of the loader of which every worker has made its first batch."""
    iterator = iter(loader)
    began = time.monotonic_ns()
    for _ in range(loader.num_workers):
        next(iterator)
    run.waited_ns += time.monotonic_ns() - began
    return iterator


@contextlib.contextmanager
def neighbours(run, each):
    """So many hogs of the place (places_cpu.Hogs) run for each CPU."""
    pids = run.place["pids"][:each * run.place["cpus"]]
    try:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)


@contextlib.contextmanager
def limited(run, percent, period_ms):
    """The cgroup of the place (places_cpu.Quota) may use so many percent of one CPU."""
    def write(name, value):
        with open(os.path.join(run.place["group"], name), "w") as f:
            f.write(value)

    period = int(period_ms * 1000)
    quota = int(period * percent / 100)
    try:
        if run.place["version"] == 1:
            write("cpu.cfs_period_us", str(period))
            write("cpu.cfs_quota_us", str(quota))
        else:
            write("cpu.max", f"{quota} {period}")
        yield
    finally:
        write(*(("cpu.cfs_quota_us", "-1") if run.place["version"] == 1 else ("cpu.max", "max")))


class BlasPool:
    """The threads of the OpenBLAS that numpy brings along. They spin between two calls, up to
    OPENBLAS_THREAD_TIMEOUT (2**30 cycles at most: about 0.4 s)."""

    ENV = {"OPENBLAS_THREAD_TIMEOUT": "30", "OPENBLAS_NUM_THREADS": "1"}

    def __init__(self, threads):
        import numpy

        self.vector = numpy.ones(20000)
        with open("/proc/self/maps") as f:
            path = next(line.split()[-1] for line in f if "openblas" in line)
        ctypes.CDLL(path).scipy_openblas_set_num_threads64_(threads)

    def call(self):
        """A call that uses all threads; its own work is nothing."""
        self.vector.dot(self.vector)


def held(report):
    """Who had the CPUs, as the report says it."""
    return [c["detail"] or "" for part in report["devices"] or [report["waits"]] for c in part["causes"]
            if c["cause"] == "cpu-contention"]


def names_pool(report, whose):
    """What is missing where the report should name a pool of OpenBLAS threads, and whose they are."""
    if any(whose in text and "openblas" in text for text in held(report)):
        return None
    return f"no OpenBLAS threads of {whose} are named: {held(report)}"
