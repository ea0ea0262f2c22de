# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""A worker decodes in pure Python: it holds its interpreter, so that even the hand-over of the batch
before waits for it."""

from loop import Decodes
from scenario import Scenario

BATCH = 4


def train(run):
    run.loop(run.loader(Decodes(run.dose / BATCH), BATCH))


SCENARIO = Scenario(
    kind="decode", cause="decode", doses=(0, 16, 24, 32), unit="ms of Python a batch",
    forms={"fork": {}, "spawn": {"start": "spawn"}, "pin": {"pin": True}},
    twins=("sleep_worker",), quick=True, torch2=True,
)
