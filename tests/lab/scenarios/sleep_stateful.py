# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""torchdata's StatefulDataLoader: its workers are not named and send their state with every batch. They
sleep while they make a sample."""

from loop import Sleeps
from scenario import Scenario

BATCH = 4


def train(run):
    from torchdata.stateful_dataloader import StatefulDataLoader

    run.loop(StatefulDataLoader(Sleeps(run.dose / BATCH), BATCH, num_workers=run.form["workers"]))


SCENARIO = Scenario(
    kind="sleep", cause="sleep", doses=(0, 16, 24, 32), unit="ms of sleep a batch", batches=40,
    forms={"": {"workers": 1}}, twins=("decode_stateful",), only_torch2=True, needs=("torchdata",),
)
