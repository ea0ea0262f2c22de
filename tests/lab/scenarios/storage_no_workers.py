# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""num_workers=0: the trainer itself reads its samples from a cold file on a disk that gives 20 MiB a
second. Nothing is prefetched, so each millisecond of it is lost."""

from scenario import Scenario

BATCH = 4


def place(_form):
    from places_disk import ColdFile

    return ColdFile(mib_s=20, mib=48)


def train(run):
    from data_disk import Records

    run.loop(run.loader(Records(run.place["path"], int(run.dose * 1024 / BATCH)), BATCH, num_workers=0))


SCENARIO = Scenario(
    kind="storage", cause="storage", doses=(0, 200, 400, 600), unit="KiB read a batch", batches=40,
    forms={"": {}}, place=place,
)
