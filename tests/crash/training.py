# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""The recorded side of a crash scenario: what it is given, and what it writes down about itself."""

import json
import os
import sys
import time

LAB = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "lab")
sys.path.insert(0, LAB)

import loop  # noqa: E402

READY = 60  # steps of training before anything happens


def host_pid():
    """As the machine sees it, also from a PID namespace: its /proc is the machine's."""
    return int(os.readlink("/proc/self"))


def say(**what):
    """A line of truth, with who says it and when. One write: no two lines mix."""
    line = json.dumps({"pid": host_pid(), "nspid": os.getpid(), "at": time.monotonic_ns(), **what}) + "\n"
    fd = os.open(os.environ["DLBPF_CRASH_TRUTH"], os.O_WRONLY | os.O_APPEND)
    try:
        os.write(fd, line.encode())
    finally:
        os.close(fd)


class Init:
    """Of every worker; then the scenario's own."""

    def __init__(self, own=None):
        self.own = own

    def __call__(self, number):
        say(worker=number)
        if self.own:
            self.own(number)


class Samples(loop.Samples):
    """fault(index) is what a data set has to do when its time has come."""

    def cost(self, index):
        time.sleep(0.001)
        self.fault(index)

    def fault(self, index):
        pass

    @staticmethod
    def number():
        """Of the worker that asks; None in the trainer."""
        from torch.utils.data import get_worker_info

        info = get_worker_info()
        return info.id if info else None


class Run(loop.Run):
    """One training run; what it is given is in form and place (tests/lab/loop.py)."""

    folder = property(lambda self: os.environ["TMPDIR"])

    def loader(self, dataset, batch_size=8, init=None, **options):
        if options.get("num_workers", self.form.get("workers", 2)):
            options["worker_init_fn"] = Init(init)
        options.setdefault("num_workers", self.form.get("workers", 2))
        return super().loader(dataset, batch_size, **options)

    def step(self, batch, previous=None):
        event = super().step(batch, previous)
        if self.done == READY:
            say(ready=self.done)
        return event
