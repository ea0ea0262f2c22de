# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""A data set of 96 MiB in a worker's memory, of which a memory cgroup lets 48 MiB stay: the rest is swapped out
to a disk that gives back 4 MiB a second. The worker waits for each page."""

from scenario import Scenario


def place(_form):
    from places_memory import SwapFile

    return SwapFile(mib=48, mib_s=4)


def train(run):
    import data_swap

    data_swap.train(run, 4, part=1 / 3)


SCENARIO = Scenario(
    kind="swap", cause="swap", doses=(0, 16, 24, 32), unit="pages brought back a batch", batches=40,
    forms={"1 worker": {}, "pin": {"pin": True}}, place=place, twins=("storage_mmap",),
)
