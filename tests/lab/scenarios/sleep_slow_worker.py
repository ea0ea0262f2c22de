# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""One of two workers sleeps, as long as its twin computes, and the other one waits behind it."""

import time

from loop import Samples
from scenario import Scenario

BATCH = 4


class Data(Samples):
    def __init__(self, ms):
        super().__init__()
        self.ms = ms

    def cost(self, index):
        from torch.utils.data import get_worker_info

        if self.ms and get_worker_info().id == 0:
            time.sleep(self.ms / 1000)


def train(run):
    run.loop(run.loader(Data(run.dose / BATCH), BATCH))


SCENARIO = Scenario(
    kind="sleep", cause="sleep", doses=(0, 32, 48, 64), unit="ms of sleep in each batch of the slow worker",
    forms={"1 of 2 workers": {"workers": 2}}, gpus=("sim",),
    twins=("decode_slow_worker",),
)
