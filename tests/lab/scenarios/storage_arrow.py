# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""Rows of an Arrow file that is mapped into memory, on a slow disk and not in the page cache: the wait is
in page faults, and no read is called."""

import os

import data_arrow
from scenario import Scenario


def place(_form):
    from places_arrow import SlowFolder

    return SlowFolder(mib_s=64, mib=160)


class Rows(data_arrow.Rows):
    def __init__(self, path, rows):
        super().__init__(path)
        self.rows = rows

    def cost(self, index):
        import numpy

        for i in range(self.rows):
            # Every row once: what was read ahead of one is not what is read next.
            row = self.row((index * self.rows + i) * 61)
            numpy.frombuffer(row.column(0).buffers()[1], numpy.uint8)[::4096].max()


def train(run):
    path = os.path.join(run.place["folder"], "rows.arrow")
    if not os.path.exists(path):
        data_arrow.make(path)
    data_arrow.drop_cache(path)
    run.loop(run.loader(Rows(path, int(run.dose)), 1))


SCENARIO = Scenario(
    kind="storage", cause="storage", doses=(0, 2, 3, 4), unit="rows of 512 KiB a batch", batches=40,
    place=place, twins=("decode_arrow",), only_torch2=True, needs=("pyarrow",),
)
