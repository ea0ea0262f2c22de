# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""Pinned memory, but no copy runs beside a kernel: they share a stream, or the trainer waits for each
copy besides."""

from data_bytes import BATCH, Bytes, said_of_copies
from loop import tensors
from scenario import Scenario


def train(run):
    def copy(batch):
        for tensor in tensors(batch):
            run.stream.h2d(tensor, non_blocking=not run.form.get("blocking"))

    run.copy = copy
    run.loop(run.loader(Bytes(run.dose), BATCH))


SCENARIO = Scenario(
    kind="pcie", cause="pcie", doses=(0, 6, 10, 14), unit="MiB a batch",
    gpus=("sim",), env={"GPUSIM_PINNED_GBPS": "0.5"},
    forms={"one stream": {"pin": True}, "blocking": {"pin": True, "blocking": True}},
    check=lambda report: said_of_copies(report, "verlap"),
)
