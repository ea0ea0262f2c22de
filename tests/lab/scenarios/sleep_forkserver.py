# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""Workers come from a fork server, so that they are grandchildren of the trainer, and sleep while they
make a sample."""

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
    run.loop(run.loader(Data(run.dose / BATCH), BATCH, multiprocessing_context="forkserver"))


SCENARIO = Scenario(
    kind="sleep", cause="sleep", doses=(0, 32, 48, 64), unit="ms of sleep a batch", batches=40,
    forms={"2 workers, file_system": {"workers": 2, "sharing": "file_system"}},
    twins=("decode_forkserver",), gpus=("sim",), torch2=True,
)
