# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""The trainer runs Python between two steps: metrics, augmentation of its own. The batches are ready."""

from loop import Samples, burn
from scenario import Scenario


def train(run):
    run.loop(run.loader(Samples(), 4), step=lambda run, batch: burn(run.dose))


SCENARIO = Scenario(
    kind="host", cause="host", doses=(0, 16, 24, 32), unit="ms of Python a step",
    gpus=("sim",),  # without GPU data the trainer waits for nothing
    forms={"1 worker": {}, "2 workers, pin": {"workers": 2, "pin": True}},
    twins=("decode_no_workers",), quick=True, torch2=True,
)
