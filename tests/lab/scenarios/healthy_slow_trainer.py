# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""Without GPU data: batches are always ready, the trainer is long busy with each, or sleeps. It does not
wait for data, and no data may be blamed. To take a batch over takes half a millisecond, and to make workers 20:
so that this is no twentieth of the time, a step takes 30 ms at least and the training 1.5 s."""

import time

from loop import Samples, burn
from scenario import Scenario


def step(run, batch):
    if run.form.get("sleeps"):
        time.sleep(run.dose / 1000)
    else:
        burn(run.dose)


def train(run):
    run.kernel_ms = 0
    run.loop(run.loader(Samples(), 4), step=step)


SCENARIO = Scenario(
    kind="healthy", cause=None, doses=(30, 40, 50, 60), unit="ms of the trainer a batch", gpus=("none",),
    forms={"busy": {}, "asleep": {"sleeps": True}, "busy, 2 workers": {"workers": 2}},
    batches=50,
)
