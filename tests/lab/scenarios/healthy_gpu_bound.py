# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""Nothing is wrong: batches are ready before the GPU is. Whatever waits in the loader waits for nothing
that matters."""

from loop import Samples
from scenario import Scenario


def train(run):
    run.kernel_ms = run.dose
    run.loop(run.loader(Samples(), 4))


SCENARIO = Scenario(
    kind="healthy", cause=None, doses=(10, 20, 30, 40), unit="ms of kernels a batch",
    forms={"1 worker": {}, "pin": {"pin": True}, "4 workers": {"workers": 4}},
    batches=40, quick=True, torch2=True,
)
