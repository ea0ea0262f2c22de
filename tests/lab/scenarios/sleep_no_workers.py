# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""There are no workers: the data set sleeps in the trainer, as long as its twin computes."""

from loop import Sleeps
from scenario import Scenario

BATCH = 4


def train(run):
    run.loop(run.loader(Sleeps(run.dose / BATCH), BATCH, num_workers=0))


SCENARIO = Scenario(
    kind="sleep", cause="sleep", doses=(0, 16, 24, 32), unit="ms of sleep a batch",
    gpus=("sim",),  # without GPU data the step sleeps too, and nothing tells the two apart
    twins=("decode_no_workers",),
)
