# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""A training loop that runs while it is measured: batches done and CPU time used, at any instant."""

import os
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))

import dlbpf  # noqa: E402


class Workload:
    def __init__(self, options, gpu=False):
        self.folder = tempfile.TemporaryDirectory(prefix="dlbpf-bench-")
        counter = os.path.join(self.folder.name, "counter")
        env = None
        if gpu:
            env = dlbpf.gpu_env()
            options = options + ["--gpu", "sim"]
        self.log = open(os.path.join(self.folder.name, "stderr"), "w")
        self.p = subprocess.Popen([dlbpf.PYTHON, "-B", dlbpf.TRAIN, "--seconds", "3600", "--counter", counter,
                                   *options], stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
                                  stderr=self.log, env=env)
        dlbpf.wait_until(lambda: os.path.exists(counter) and os.path.getsize(counter) == 8, 60, "training")
        self.counter = open(counter, "rb")
        self.rest(1.5)

    def rest(self, seconds):
        time.sleep(seconds)
        if self.p.poll() is not None:
            with open(self.log.name) as f:
                raise RuntimeError(f"the training ended with {self.p.returncode}: {f.read()[-400:]}")

    def pids(self):
        found, todo = [], [self.p.pid]
        while todo:
            pid = todo.pop()
            found.append(pid)
            try:
                for tid in os.listdir(f"/proc/{pid}/task"):
                    with open(f"/proc/{pid}/task/{tid}/children") as f:
                        todo += [int(c) for c in f.read().split()]
            except OSError:
                pass
        return found

    def batches(self):
        self.counter.seek(0)
        return int.from_bytes(self.counter.read(8), "little")

    def cpu_ns(self):
        total = 0
        for pid in self.pids():
            try:
                for tid in os.listdir(f"/proc/{pid}/task"):
                    with open(f"/proc/{pid}/task/{tid}/schedstat") as f:
                        total += int(f.read().split()[0])
            except OSError:
                pass
        return total

    def segment(self, seconds):
        """(batches a second, CPU milliseconds a batch) over the next seconds."""
        b0, c0, t0 = self.batches(), self.cpu_ns(), time.monotonic()
        self.rest(seconds)
        b1, c1, t1 = self.batches(), self.cpu_ns(), time.monotonic()
        done = max(1, b1 - b0)
        return done / (t1 - t0), (c1 - c0) / 1e6 / done

    def close(self):
        dlbpf.stop(self.p)
        self.counter.close()
        self.log.close()
        self.folder.cleanup()


def spread(values):
    """(median, lower quartile, upper quartile)"""
    if len(values) < 2:
        return (values[0],) * 3 if values else (float("nan"),) * 3
    q = statistics.quantiles(values, n=4, method="inclusive")
    return statistics.median(values), q[0], q[2]
