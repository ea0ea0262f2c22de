# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""A worker decodes in pure Python: it holds its interpreter, so that even the hand-over of the batch
before waits for it."""

from loop import Samples, burn
from scenario import Scenario

BATCH = 4


class Data(Samples):
    def __init__(self, ms):
        super().__init__()
        self.ms = ms

    def cost(self, index):
        burn(self.ms)


def train(run):
    run.loop(run.loader(Data(run.dose / BATCH), BATCH))


SCENARIO = Scenario(
    kind="decode", cause="decode", doses=(0, 16, 24, 32), unit="ms of Python a batch",
    forms={"fork": {}, "spawn": {"start": "spawn"}, "pin": {"pin": True}},
    twins=("sleep_worker",), quick=True, torch2=True,
)
