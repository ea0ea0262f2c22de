# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""The trainer writes its metrics as lines of JSON between two steps, and flushes each."""

import json
import tempfile
import time

from loop import Samples
from scenario import Scenario


def log(f, ms):
    """Lines for so long, by the thread's own clock."""
    end = time.thread_time_ns() + int(ms * 1e6)
    line = {f"layer{i}.grad_norm": i * 0.37 for i in range(24)}
    while time.thread_time_ns() < end:
        f.write(json.dumps(line) + "\n")
        f.flush()


def train(run):
    with tempfile.TemporaryFile("w") as f:
        run.loop(run.loader(Samples(), 4), step=lambda run, batch: log(f, run.dose))


SCENARIO = Scenario(
    kind="host", cause="host", doses=(0, 16, 24, 32), unit="ms of logging a step",
    gpus=("sim",), forms={"1 worker": {}},
)
