# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""The workers are made anew for every epoch, and the run has more and more epochs of fewer and fewer
batches."""

from loop import Samples
from scenario import Scenario

BATCH = 4


def train(run):
    data = Samples(run.batches * BATCH // int(1 + run.dose))
    run.loop(run.loader(data, BATCH))


SCENARIO = Scenario(
    kind="startup", cause="startup", doses=(0, 3, 7, 11), unit="epochs more than one, of 48 batches in all",
    forms={"fork": {}, "pin": {"pin": True}},
    batches=48, twins=("sleep_epochs",), torch2=True,
)
