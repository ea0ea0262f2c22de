# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""A worker reads from a pipe what a shell's script prints, which sleeps between two batches."""

import data_pipe
from scenario import Scenario

BATCH = 1024


def train(run):
    pause = f"sleep {run.dose / 1000:.3f}" if run.dose else ":"
    script = f"while head -c {BATCH} /dev/zero; do {pause}; done 2>/dev/null"
    run.loop(run.loader(data_pipe.pipe(script, BATCH), None))


SCENARIO = Scenario(
    kind="sleep", cause="sleep", doses=(0, 24, 36, 48), unit="ms of sleep a batch, in a child of the worker",
    batches=30, twins=("decode_pipe",), gpus=("sim",),
)
