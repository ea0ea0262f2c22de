# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""Workers come from a fork server, so that they are grandchildren of the trainer, and decode in pure
Python."""

from loop import Decodes
from scenario import Scenario

BATCH = 4


def train(run):
    run.loop(run.loader(Decodes(run.dose / BATCH), BATCH, multiprocessing_context="forkserver"))


SCENARIO = Scenario(
    kind="decode", cause="decode", doses=(0, 16, 24, 32), unit="ms of Python a batch", batches=40,
    twins=("sleep_forkserver",), torch2=True,
)
