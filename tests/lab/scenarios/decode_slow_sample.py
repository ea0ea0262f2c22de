# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""One sample in 32 takes very long to decode, the others cost nothing. Prefetch hides only its
beginning."""

from loop import Samples, burn
from scenario import Scenario

BATCH, EVERY = 4, 32


class Data(Samples):
    def __init__(self, ms):
        super().__init__()
        self.ms = ms

    def cost(self, index):
        if index % EVERY == EVERY - 1:
            burn(self.ms)


def train(run):
    run.loop(run.loader(Data(run.dose), BATCH))


SCENARIO = Scenario(
    kind="decode", cause="decode", doses=(0, 90, 135, 180), unit="ms of Python in one sample of 32",
    forms={"1 worker": {}, "2 workers": {"workers": 2}},
    twins=("sleep_slow_sample",),
)
