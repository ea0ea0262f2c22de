# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""Two loaders are alive at once. That of the training sleeps, that of the validation decodes: what is said of
the first, which is judged here, must not be mixed up with the second."""

from data_two import two_loaders, verdicts
from scenario import Scenario


def check(report):
    return verdicts(report["loaders"])


def train(run):
    two_loaders(run)


SCENARIO = Scenario(
    kind="trainers", cause="sleep", part="loader 0", doses=(0, 16, 24, 32), unit="ms a batch", batches=60, check=check,
    forms={"1 worker each": {}, "pin, spawn": {"pin": True, "start": "spawn"}}, twins=("two_loaders_validation",),
)
