# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""A worker in a memory cgroup of 40 MiB keeps what it has decoded in a file. With more memory no write would
wait: the kernel writes to the disk in the background, 64 MiB a second. Here each write has to reclaim memory
first, which is full of pages that are still being written."""

import os

from loop import Samples
from scenario import Scenario

BATCH = 4
RING = 64 << 20  # what the file holds; 48 MiB more fill the memory at the start


class Data(Samples):
    def __init__(self, path, mib):
        super().__init__()
        self.path, self.size, self.file = path, int(mib * (1 << 20)), None
        self.done = bytes(self.size)

    def start(self, groups):
        """In the worker. The cgroup is full when training begins."""
        if not self.size:
            return
        for group in groups:
            with open(os.path.join(group, "cgroup.procs"), "w") as f:
                f.write("0")
        self.file = os.open(self.path, os.O_WRONLY)
        for n in range(48):
            os.pwrite(self.file, bytes(1 << 20), RING + (n << 20))

    def cost(self, index):
        if self.size:
            os.pwrite(self.file, self.done, index * self.size % RING)


def place(_form):
    from places_memory import SlowWrites

    return SlowWrites(mib=40, mib_s=64)


def train(run):
    def in_worker(_number):
        from torch.utils.data import get_worker_info

        get_worker_info().dataset.start(run.place["groups"])

    run.loop(run.loader(Data(run.place["path"], run.dose / BATCH), BATCH, worker_init_fn=in_worker))


SCENARIO = Scenario(
    kind="memory", cause="memory", doses=(0, 1, 1.5, 2), unit="MiB written a batch",
    forms={"1 worker": {}}, place=place,
)
