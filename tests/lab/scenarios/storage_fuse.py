# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""A worker reads from a FUSE file system whose server, a process that is not recorded, takes its time. It is
the file that the worker waits for, not a foreign process."""

import os

from loop import Samples
from scenario import Scenario

BATCH = 4
PAGE = 4096


class Data(Samples):
    def __init__(self, folder, ms):
        super().__init__()
        self.path, self.file = os.path.join(folder, f"{ms:g}"), None

    def cost(self, index):
        if self.file is None:
            self.file = os.open(self.path, os.O_RDONLY)
            os.posix_fadvise(self.file, 0, 0, os.POSIX_FADV_RANDOM)
        os.pread(self.file, PAGE, index * PAGE)


def place(form):
    from places_disk import SlowServer

    return SlowServer(direct=not form.get("cached"))


def train(run):
    # Two workers wait at the same time: each batch takes twice as long, so that as much is lost.
    ms = run.dose * run.form.get("workers", 1)
    run.loop(run.loader(Data(run.place["folder"], ms / BATCH), BATCH))


SCENARIO = Scenario(
    kind="storage", cause="storage", doses=(0, 20, 30, 40), unit="ms of the server a batch", batches=40,
    forms={"direct": {}, "cached, 2 workers, pin": {"cached": True, "workers": 2, "pin": True}},
    place=place, twins=("sleep_worker",),
)
