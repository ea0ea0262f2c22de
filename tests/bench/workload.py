# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""A load that runs while it is measured: what it has done and used, at any instant."""

import os
import subprocess
import tempfile
import time
from collections import namedtuple

import dlbpf
import machine
import procs

EDGE_S = 0.25  # so long a segment may be prolonged

# A unit is a batch, or what the neighbour does. busy: of the whole machine, whoever used it.
Segment = namedtuple("Segment", "seconds rate cpu_ms_unit busy_ms_unit faults_s")


class Workload:
    """with Workload(load) as w: the load runs evenly."""

    def __init__(self, load):
        self.load, self.p, self.neighbour, self.counter, self.pids = load, None, None, None, []
        self.folder = tempfile.TemporaryDirectory(prefix="dlbpf-bench-", ignore_cleanup_errors=True)
        self.log = open(os.path.join(self.folder.name, "stderr"), "w")

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def start(self):
        load, counters = self.load, [os.path.join(self.folder.name, name) for name in ("batches", "neighbour")]
        env = dict(os.environ, **load.env)
        options = ["--seconds", "36000", "--counter", counters[0], *load.options]
        if load.gpu:
            env = dict(dlbpf.gpu_env(), **load.env)
            options += ["--gpu", "sim"]
        self.p = procs.start([dlbpf.PYTHON, "-B", dlbpf.TRAIN, *options], stdout=subprocess.DEVNULL, stderr=self.log,
                             env=env)
        self.wait_for(counters[0])
        if load.neighbour:
            last = max(os.sched_getaffinity(0))
            self.neighbour = procs.start([os.path.join(dlbpf.BUILD, "tests", "bench", "neighbour"), load.neighbour,
                                          counters[1], str(last)], stdout=subprocess.DEVNULL, stderr=self.log)
            self.wait_for(counters[1])
        self.counter = open(counters[1 if load.neighbour else 0], "rb")
        self.rest(load.settle)
        self.pids = procs.tree(self.p.pid)  # workers live as long as the training
        self.measured = procs.tree(self.neighbour.pid) if load.neighbour else self.pids

    def wait_for(self, path):
        end = time.monotonic() + 60
        while not (os.path.exists(path) and os.path.getsize(path) == 8):
            if time.monotonic() > end:
                raise RuntimeError("the training did not begin within 60 s")
            self.rest(0.05)

    def rest(self, seconds):
        """RuntimeError when what is measured has ended meanwhile."""
        time.sleep(seconds)
        for p in (self.p, self.neighbour):
            if p and p.poll() is not None:
                with open(self.log.name) as f:
                    raise RuntimeError(f"the load {self.load.name} ended with {p.returncode}: {f.read()[-400:]}")
        if not all(os.path.exists(f"/proc/{pid}") for pid in self.pids):
            raise RuntimeError(f"the workers of the load {self.load.name} are not those that it began with")

    def done(self):
        self.counter.seek(0)
        return int.from_bytes(self.counter.read(8), "little")

    def edge(self):
        """Waits for the end of a unit, unless they end all the time: else a segment would hold one more or less."""
        before, end = self.done(), time.monotonic() + EDGE_S
        while self.done() == before and time.monotonic() < end:
            time.sleep(0.0005)

    def now(self):
        self.edge()
        return self.done(), procs.cpu_ns(self.measured), procs.minor_faults(self.pids), machine.clock()

    def segment(self, seconds):
        """What happens in the next seconds, and a moment more."""
        d0, c0, f0, m0 = self.now()
        self.rest(seconds)
        d1, c1, f1, m1 = self.now()
        units, took = max(1, d1 - d0), m1.time - m0.time
        return Segment(took, units / took, (c1 - c0) / 1e6 / units, machine.busy(m0, m1) * 1e3 / units,
                       (f1 - f0) / took)

    def close(self):
        for p in (self.neighbour, self.p):
            if p:
                procs.end(p)
        if self.counter:
            self.counter.close()
        self.log.close()
        self.folder.cleanup()
