# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""The first sample of each epoch sleeps, about as long as making workers anew would take, but the
workers stay."""

import time

from loop import Samples
from scenario import Scenario

BATCH, EPOCHS = 4, 12


class Data(Samples):
    def __init__(self, count, ms):
        super().__init__(count)
        self.ms = ms

    def cost(self, index):
        if self.ms and index == 0:
            time.sleep(self.ms / 1000)


def train(run):
    data = Data(run.batches * BATCH // EPOCHS, run.dose)
    run.loop(run.loader(data, BATCH, persistent_workers=True))


SCENARIO = Scenario(
    kind="sleep", cause="sleep", doses=(0, 40, 70, 100), unit="ms of sleep at the beginning of each of 12 epochs",
    gpus=("sim",), batches=48, twins=("startup_epochs",),
)
