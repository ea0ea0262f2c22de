# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""A worker sleeps while it makes a sample, as long as its twin computes."""

from loop import Sleeps
from scenario import Scenario

BATCH = 4


def train(run):
    run.loop(run.loader(Sleeps(run.dose / BATCH), BATCH))


SCENARIO = Scenario(
    kind="sleep", cause="sleep", doses=(0, 16, 24, 32), unit="ms of sleep a batch",
    forms={"1 worker": {}, "2 workers, pin": {"workers": 2, "pin": True}},
    twins=("decode_python",), quick=True,
)
