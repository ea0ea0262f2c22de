# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""Workers come from a fork server, so that they are grandchildren of the trainer, and sleep while they
make a sample."""

from loop import Sleeps
from scenario import Scenario

BATCH = 4


def train(run):
    run.loop(run.loader(Sleeps(run.dose / BATCH), BATCH, multiprocessing_context="forkserver"))


SCENARIO = Scenario(
    kind="sleep", cause="sleep", doses=(0, 32, 48, 64), unit="ms of sleep a batch", batches=40,
    forms={"2 workers, file_system": {"workers": 2, "sharing": "file_system"}},
    twins=("decode_forkserver",), gpus=("sim",), torch2=True,
)
