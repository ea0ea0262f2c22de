# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""The trainer sleeps between two steps, as a rate limiter or a polling loop does."""

import time

from loop import Samples
from scenario import Scenario


def sleep(run, batch):
    if run.dose:
        time.sleep(run.dose / 1000)


def train(run):
    run.loop(run.loader(Samples(), 4), step=sleep)


SCENARIO = Scenario(
    kind="sleep", cause="sleep", doses=(0, 16, 24, 32), unit="ms of sleep a step",
    gpus=("sim",),  # without GPU data the trainer waits for nothing
    forms={"1 worker": {}, "2 workers, pin": {"workers": 2, "pin": True}},
    twins=("host_python",),
)
