# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""torchdata's StatefulDataLoader: its workers are not named and send their state with every batch. They
decode in pure Python."""

from loop import Decodes
from scenario import Scenario

BATCH = 4


def train(run):
    from torchdata.stateful_dataloader import StatefulDataLoader

    run.loop(StatefulDataLoader(Decodes(run.dose / BATCH), BATCH, num_workers=run.form["workers"]))


SCENARIO = Scenario(
    kind="decode", cause="decode", doses=(0, 16, 24, 32), unit="ms of Python a batch", batches=40,
    forms={"": {"workers": 1}}, twins=("sleep_stateful",), gpus=("sim",), only_torch2=True, needs=("torchdata",),
)
