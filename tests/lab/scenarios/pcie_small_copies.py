# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""The trainer takes each row of a batch to the GPU by itself, as row.to("cuda") does: a copy of 1 KiB and a
synchronise for each. What Python does between two copies, and what a synchronise takes to return, goes away
with them."""

from data_bytes import said_of_copies
from loop import Samples
from scenario import Scenario

BATCH = 4


class Data(Samples):
    def __init__(self, rows):
        super().__init__()
        self.rows = max(1, rows // BATCH)

    def value(self, index):
        import torch

        return torch.zeros(self.rows, 1024, dtype=torch.uint8)


def train(run):
    def copy(batch):
        for row in batch.view(-1, 1024):
            run.stream.h2d(row)

    run.copy = copy
    run.loop(run.loader(Data(run.dose), BATCH))


SCENARIO = Scenario(
    kind="pcie", cause="pcie", also=("host", "sync"), doses=(0, 400, 700, 1000), unit="copies a batch",
    gpus=("sim",), env={"GPUSIM_WAIT": "spin"},  # as drivers do: a timer is too coarse for waits of 10 us
    forms={"1 worker": {}}, batches=40, check=lambda report: said_of_copies(report, "pack tensors"),
)
