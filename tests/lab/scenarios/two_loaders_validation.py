# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""Two loaders are alive at once. That of the training sleeps, that of the validation, which is judged here,
decodes."""

from data_two import two_loaders, verdicts
from scenario import Scenario


def check(report):
    return verdicts(report["loaders"])


def train(run):
    two_loaders(run)


SCENARIO = Scenario(
    kind="trainers", cause="decode", part="loader 1", doses=(0, 16, 24, 32), unit="ms a batch", batches=60, check=check,
    forms={"1 worker each": {}, "pin, spawn": {"pin": True, "start": "spawn"}}, twins=("two_loaders_training",),
    quick=True,
)
