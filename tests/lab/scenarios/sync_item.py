# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""Every step reads a value back from the GPU, with some of the trainer's Python behind that. All doses have
the same Python, less than the kernels take: before the read-back it runs beside them, behind it the GPU has
nothing to do. In the control the read-back comes last."""

from loop import Samples, burn
from scenario import Scenario

WORK_MS = 18


def read_back(run):
    if not run.form.get("item"):
        run.stream.synchronize()
        return
    import torch

    run.stream.d2h(torch.empty(1))  # tensor.item(): a copy of four bytes, waited for


def step(run, batch):
    burn(WORK_MS - run.dose)
    read_back(run)
    burn(run.dose)


def train(run):
    run.loop(run.loader(Samples(), 4), step=step)


SCENARIO = Scenario(
    kind="sync", cause="sync", doses=(0, 6, 12, 18), unit="ms of Python behind the read-back",
    gpus=("sim",), forms={"synchronize": {}, "item": {"item": True}, "pin, item": {"pin": True, "item": True}},
    kernel_ms=30, batches=30, twins=("host_python",), quick=True, torch2=True,
)
