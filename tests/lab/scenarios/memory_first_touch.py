# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""A worker takes new private memory for every sample, writes one byte to each page and gives it back: all
that costs time is the kernel's filling of the pages, with pages of 4 KiB and with huge ones."""

import mmap

from loop import Samples
from scenario import Scenario

BATCH = 4


class Data(Samples):
    def __init__(self, mib, huge):
        super().__init__()
        self.size, self.huge = int(mib * (1 << 20)), huge

    def cost(self, index):
        import numpy

        if not self.size:
            return
        # Not malloc: it keeps what was freed, and the next sample would find the pages there.
        with mmap.mmap(-1, self.size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
            memory.madvise(mmap.MADV_HUGEPAGE if self.huge else mmap.MADV_NOHUGEPAGE)
            pages = numpy.frombuffer(memory, numpy.uint8)
            pages[::mmap.PAGESIZE] = 1
            del pages


def train(run):
    # Huge pages are filled at about ten times the rate.
    huge = run.form.get("huge", False)
    run.loop(run.loader(Data(run.dose / BATCH * (10 if huge else 1), huge), BATCH))


SCENARIO = Scenario(
    kind="memory", cause="memory", doses=(0, 40, 60, 80), unit="MiB of new memory a batch", batches=40,
    forms={"fork": {}, "spawn, pin": {"start": "spawn", "pin": True}, "huge pages": {"huge": True}},
    twins=("shm_first_touch",), quick=True, torch2=True,
)
