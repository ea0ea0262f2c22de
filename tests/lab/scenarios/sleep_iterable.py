# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""Two workers stream their shares of an IterableDataset and sleep before each sample, as one that waits
for its turn at a service does."""

import time

from data_stream import stream
from scenario import Scenario

BATCH = 4


def wait(ms):
    import torch

    while True:
        if ms:
            time.sleep(ms / 1000)
        yield torch.zeros(16)


def train(run):
    run.loop(run.loader(stream(wait, run.dose / BATCH), BATCH))


SCENARIO = Scenario(
    kind="sleep", cause="sleep", doses=(0, 32, 48, 64), unit="ms of sleep a batch", batches=40,
    forms={"2 workers": {"workers": 2}}, twins=("decode_iterable",), gpus=("sim",),
)
