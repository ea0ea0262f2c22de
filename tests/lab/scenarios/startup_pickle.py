# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""The data set is a large list of Python objects and goes to a spawned worker anew for each of three
epochs; the control keeps its worker."""

from loop import Samples
from scenario import Scenario

BATCH, EPOCHS = 4, 3


class Data(Samples):
    def __init__(self, count, thousands):
        super().__init__(count)
        self.index = [(f"images/class_{i % 1000}/{i}.jpg", i % 1000, float(i)) for i in range(thousands * 1000)]


def train(run):
    data = Data(run.batches * BATCH // EPOCHS, run.dose)
    run.loop(run.loader(data, BATCH, persistent_workers=not run.dose))


SCENARIO = Scenario(
    kind="startup", quick=True, cause="startup", doses=(0, 100, 200, 300), unit="thousand objects to send, twice",
    forms={"spawn": {"start": "spawn"}}, gpus=("sim",), batches=30,
)
