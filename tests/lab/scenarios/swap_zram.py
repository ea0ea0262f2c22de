# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""A data set of 96 MiB in a worker's memory, of which a memory cgroup lets 48 MiB stay: the rest is swapped out
to compressed memory (zram). For each page that comes back another one is pushed out. Finding that one is
reclaim, which is memory's: this part belongs to the fault by its nature."""

from scenario import Scenario


def place(_form):
    from places_memory import Zram

    return Zram(mib=48)


def train(run):
    import data_swap

    data_swap.train(run, 4)


SCENARIO = Scenario(
    kind="swap", cause="swap", doses=(0, 2500, 3500, 4500), unit="pages brought back a batch", batches=30,
    also=("memory",), forms={"1 worker": {}}, place=place, twins=("memory_first_touch",), quick=True, torch2=True,
)
