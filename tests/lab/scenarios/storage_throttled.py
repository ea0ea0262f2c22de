# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""A worker reads its samples from a cold file on a disk that gives 20 MiB a second, one after the other and
with the kernel's readahead."""

from scenario import Scenario

BATCH = 4


def place(_form):
    from places_disk import ColdFile

    return ColdFile(mib_s=20, mib=48)


def train(run):
    from data_disk import Records

    run.loop(run.loader(Records(run.place["path"], int(run.dose * 1024 / BATCH)), BATCH))


SCENARIO = Scenario(
    kind="storage", cause="storage", doses=(0, 320, 480, 640), unit="KiB read a batch", batches=40,
    forms={"fork": {}, "spawn": {"start": "spawn"}, "2 workers, pin": {"workers": 2, "pin": True}},
    place=place, twins=("sleep_worker",), quick=True, torch2=True,
)
