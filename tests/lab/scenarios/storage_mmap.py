# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""A worker looks at single pages of a mapped file, none of which is in memory: it makes no system call, each
wait for the disk is a page fault."""

from scenario import Scenario

BATCH = 4


def place(_form):
    from places_disk import ColdFile

    return ColdFile(mib_s=4, mib=64)


def train(run):
    from data_disk import MappedPages

    run.loop(run.loader(MappedPages(run.place["path"], run.dose // BATCH), BATCH))


SCENARIO = Scenario(
    kind="storage", cause="storage", doses=(0, 16, 24, 32), unit="pages touched a batch", batches=40,
    forms={"fork": {}, "spawn, pin": {"start": "spawn", "pin": True}},
    place=place, twins=("decode_python",),
)
