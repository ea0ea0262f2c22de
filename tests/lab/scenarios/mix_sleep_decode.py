# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""Every sample sleeps and then decodes in Python: 60 % of what it costs is sleep, 40 % decoding."""

import time

from loop import Samples, burn
from scenario import Scenario

BATCH = 8
SLEEP = 0.6


class Data(Samples):
    def __init__(self, ms):
        super().__init__()
        self.ms = ms

    def cost(self, index):
        if self.ms:
            time.sleep(self.ms * SLEEP / 1000)
            burn(self.ms * (1 - SLEEP))


def train(run):
    run.loop(run.loader(Data(run.dose / BATCH), BATCH))


SCENARIO = Scenario(
    kind="mix", cause="sleep", shares={"sleep": SLEEP, "decode": 1 - SLEEP}, doses=(0, 16, 28, 40),
    unit="ms a batch", forms={"1 worker": {}, "spawn, pin": {"start": "spawn", "pin": True}},
)
