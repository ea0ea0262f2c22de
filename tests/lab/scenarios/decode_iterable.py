# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""A worker streams an IterableDataset and parses each line of it as JSON."""

import json

from data_stream import stream
from scenario import Scenario

BATCH = 4
LINE = json.dumps([{"id": i, "name": f"sample {i}", "box": [i, i / 7, 3, 4.5]} for i in range(100)])


def parse(lines):
    import torch

    while True:
        found = sum(len(json.loads(LINE)) for _ in range(lines))
        yield torch.full((16,), found)


def train(run):
    run.loop(run.loader(stream(parse, int(run.dose * 10 / BATCH)), BATCH))


SCENARIO = Scenario(
    kind="decode", cause="decode", doses=(0, 35, 50, 65), unit="1000 records of JSON a batch", batches=40,
    twins=("sleep_iterable",), torch2=True,
)
