# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""One sample in 32 sleeps, as long as its twin computes."""

import time

from loop import Samples
from scenario import Scenario

BATCH, EVERY = 4, 32


class Data(Samples):
    def __init__(self, ms):
        super().__init__()
        self.ms = ms

    def cost(self, index):
        if self.ms and index % EVERY == EVERY - 1:
            time.sleep(self.ms / 1000)


def train(run):
    run.loop(run.loader(Data(run.dose), BATCH))


SCENARIO = Scenario(
    kind="sleep", cause="sleep", doses=(0, 90, 135, 180), unit="ms of sleep in one sample of 32",
    gpus=("sim",), twins=("decode_slow_sample",),
)
