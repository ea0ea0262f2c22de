# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""The trainer synchronises in every step, with nothing of its own behind that but the next batch's
hand-over: less than 5 % of a step. The GPU is the limit."""

from loop import Samples
from scenario import Scenario


def synchronise(run, batch):
    run.stream.synchronize()


def train(run):
    run.kernel_ms = run.dose
    run.loop(run.loader(Samples(), 4), step=synchronise)


SCENARIO = Scenario(
    kind="healthy", cause=None, doses=(50, 60, 70, 80), unit="ms of kernels a batch",
    gpus=("sim",), forms={"1 worker": {}, "pin": {"pin": True}}, batches=20,
)
