# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""Workers come from a fork server, so that they are grandchildren of the trainer, and decode in pure
Python."""

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
    run.loop(run.loader(Data(run.dose / BATCH), BATCH, multiprocessing_context="forkserver"))


SCENARIO = Scenario(
    kind="decode", cause="decode", doses=(0, 16, 24, 32), unit="ms of Python a batch", batches=40,
    twins=("sleep_forkserver",), torch2=True,
)
