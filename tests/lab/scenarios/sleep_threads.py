# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""A loader in a thread of the trainer sleeps while it makes a batch."""

import time

import data_threads
from scenario import Scenario


def train(run):
    import torch

    def make(number):
        if run.dose:
            time.sleep(run.dose / 1000)
        return torch.zeros(16)

    source = data_threads.batches(make, run.form["loader"])
    run.loop(source)
    source.close()


SCENARIO = Scenario(
    kind="sleep", cause="sleep", doses=(0, 16, 24, 32), unit="ms of sleep a batch", batches=40,
    forms={"executor": {"loader": "executor"}, "queue": {"loader": "queue"}}, twins=("decode_threads",),
)
