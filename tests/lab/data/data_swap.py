# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""A data set in the worker's own memory, twice as large as its memory cgroup lets it keep."""

import mmap

from loop import Samples

PAGE = 4096
MIB = 96
PAGES = (MIB << 20) // PAGE
STEP = 7919  # a prime: all pages come once before one comes again


class Swapped(Samples):
    """A sample looks at so many pages from all over its first part, each of which is swapped out: either the
    part is so large that all are pushed out before they come again, or none comes again."""

    def __init__(self, pages, part):
        super().__init__()
        self.pages, self.part, self.memory = pages, int(PAGES * part), None

    def build(self, groups):
        """In the worker: what it has from here on is charged to its cgroups."""
        import numpy

        for group in groups:
            with open(group + "/cgroup.procs", "w") as f:
                f.write("0")
        memory = mmap.mmap(-1, PAGES * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        memory.madvise(mmap.MADV_NOHUGEPAGE)
        self.memory = numpy.frombuffer(memory, numpy.uint8).reshape(PAGES, PAGE)
        self.memory[:] = numpy.random.default_rng(0).integers(0, 16, PAGE, numpy.uint8)  # zram halves it

    def cost(self, index):
        import numpy

        if self.memory is not None:
            pages = numpy.arange(index * self.pages, (index + 1) * self.pages) * STEP % self.part
            return self.memory[pages, 0]


def train(run, batch_size, part=1.0):
    """The training of all scenarios with it."""

    def in_worker(_number):
        from torch.utils.data import get_worker_info

        get_worker_info().dataset.build(run.place["groups"])

    run.loop(run.loader(Swapped(run.dose // batch_size, part), batch_size, worker_init_fn=in_worker))
