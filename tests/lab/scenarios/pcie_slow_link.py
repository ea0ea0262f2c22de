# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""Everything is done right: pinned memory, non_blocking, a stream for copies that runs ahead of the
kernels. The link is slower than the GPU all the same."""

from data_bytes import BATCH, Bytes
from loop import tensors
from scenario import Scenario


def train(run):
    link = run.device.stream()

    def copy(batch):
        for tensor in tensors(batch):
            link.h2d(tensor, non_blocking=True)
        run.stream.wait(link.record())

    run.copy = copy
    run.loop(run.loader(Bytes(run.dose), BATCH))


SCENARIO = Scenario(
    kind="pcie", cause="pcie", doses=(0, 8, 12, 16), unit="MiB a batch",
    gpus=("sim",), env={"GPUSIM_PINNED_GBPS": "0.5"},
    forms={"1 worker": {"pin": True}, "2 workers, spawn": {"pin": True, "workers": 2, "start": "spawn"}},
)
