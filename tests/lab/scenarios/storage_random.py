# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""A worker reads single pages from all over a cold file, each with a pread of its own, on a disk that gives
a thousand of them a second."""

from scenario import Scenario

BATCH = 4


def place(_form):
    from places_disk import ColdFile

    return ColdFile(mib_s=4, mib=64)


def train(run):
    from data_disk import Pages

    run.loop(run.loader(Pages(run.place["path"], run.dose // BATCH), BATCH))


SCENARIO = Scenario(
    kind="storage", cause="storage", doses=(0, 16, 24, 32), unit="random reads a batch", batches=40,
    forms={"1 worker": {}, "2 workers, file_system": {"workers": 2, "sharing": "file_system"}},
    place=place,
)
