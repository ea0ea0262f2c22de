# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""A worker sleeps while it makes a sample, as long as its twin computes."""

import time

from loop import Samples
from scenario import Scenario

BATCH = 4


class Data(Samples):
    def __init__(self, ms):
        super().__init__()
        self.ms = ms

    def cost(self, index):
        if self.ms:
            time.sleep(self.ms / 1000)


def train(run):
    run.loop(run.loader(Data(run.dose / BATCH), BATCH))


SCENARIO = Scenario(
    kind="sleep", cause="sleep", doses=(0, 16, 24, 32), unit="ms of sleep a batch",
    forms={"1 worker": {}, "2 workers, pin": {"workers": 2, "pin": True}},
    twins=("decode_python",), quick=True,
)
