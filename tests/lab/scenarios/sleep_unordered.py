# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""Two workers deliver in any order (in_order=False). One of them computes for 1.6 seconds over each
of its batches, and nobody waits for it: the other one, which sleeps, sets the pace."""

import time

from loop import Samples, burn
from scenario import Scenario

BATCH = 4
LONG_MS = 1600


class Data(Samples):
    def __init__(self, ms):
        super().__init__()
        self.ms = ms

    def cost(self, index):
        from torch.utils.data import get_worker_info

        if get_worker_info().id == 0:
            burn(LONG_MS / BATCH)
        elif self.ms:
            time.sleep(self.ms / 1000)


def train(run):
    run.loop(run.loader(Data(run.dose / BATCH), BATCH, in_order=False))


SCENARIO = Scenario(
    kind="sleep", cause="sleep", doses=(0, 16, 24, 32), unit="ms of sleep a batch", batches=40,
    forms={"": {"workers": 2}}, twins=("decode_unordered",), gpus=("sim",), only_torch2=True,
)
